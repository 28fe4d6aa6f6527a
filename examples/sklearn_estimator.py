"""scikit-learn: choose an objective by cross-validation, calibrate, and see how far to trust the probabilities."""

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split

import vicinal
from vicinal.integrations.sklearn import MixupClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=400, random_state=0, stratify=y)

grid = {"objective": [vicinal.ERM(), vicinal.Mixup(alpha=0.4), vicinal.RegMixup(vicinal.Mixup(alpha=10.0))]}
model = MixupClassifier(max_iter=20, validation_fraction=0.2, calibrate=True, random_state=0)
search = GridSearchCV(model, grid, cv=2, scoring="neg_log_loss").fit(X_train, y_train)

for objective, loss in zip(search.cv_results_["param_objective"], search.cv_results_["mean_test_score"], strict=True):
    print(f"{-loss:.3f}  {objective}")
best = search.best_estimator_
print(f"best: {best.objective}, {best.n_iter_} epochs, temperature {best.temperature_:.2f}")
print(vicinal.evaluate(y_test, probs=best.predict_proba(X_test)))
