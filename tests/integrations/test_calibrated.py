"""`Calibrated`: scikit-learn's own checks, what it does by hand, and its scorers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_wine, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal.calibrators import TemperatureScaling
from vicinal.integrations.calibrated import Calibrated, scorer


@parametrize_with_checks([Calibrated(), Calibrated(GaussianNB(), method="isotonic", cv=2)])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_it_is_the_calibrator_of_held_out_predictions_and_the_classifier_of_all_rows():
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    base = LogisticRegression()
    fitted = Calibrated(base, method="temperature").fit(X, y)
    held_out = cross_val_predict(base, X, y, cv=StratifiedKFold(5), method="decision_function")
    by_hand = TemperatureScaling().fit(held_out, y)
    np.testing.assert_allclose(
        fitted.predict_proba(X), by_hand.predict_proba(clone(base).fit(X, y).decision_function(X)), atol=1e-6
    )
    assert (fitted.predict(X) == fitted.classes_[fitted.predict_proba(X).argmax(axis=1)]).all()
    logits = fitted.decision_function(X)
    np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(1, keepdims=True), fitted.predict_proba(X))


@pytest.mark.parametrize("base", [GaussianNB(), RandomForestClassifier(30, random_state=0), LinearSVC()], ids=repr)
def test_it_is_no_worse_than_scikit_learns_sigmoid(base):
    X, y = make_classification(1_200, 10, n_informative=5, flip_y=0.1, random_state=0)
    ours = Calibrated(base).fit(X[:600], y[:600])
    theirs = CalibratedClassifierCV(base, ensemble=False).fit(X[:600], y[:600])
    gap = log_loss(y[600:], ours.predict_proba(X[600:])) - log_loss(y[600:], theirs.predict_proba(X[600:]))
    assert gap < 0.01
    assert hasattr(ours, "decision_function") == hasattr(base, "decision_function")


def test_names_of_classes_a_frozen_classifier_weights_and_pickles():
    X, y = load_breast_cancer(return_X_y=True)
    names = np.array(["bad", "good"])[y]
    frozen = FrozenEstimator(GaussianNB().fit(X[:300], names[:300]))
    fitted = Calibrated(frozen, method="isotonic").fit(X[300:], names[300:], sample_weight=np.arange(1, 270))
    assert set(fitted.predict(X)) == {"bad", "good"}
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    plain = Calibrated(frozen, method="isotonic").fit(X[300:], names[300:])
    assert not np.allclose(plain.predict_proba(X), fitted.predict_proba(X))


def test_a_class_with_one_row_is_refused_by_name():
    with pytest.raises(ValueError, match=r"every class needs two rows.*'c' has one"):
        Calibrated().fit(np.arange(9.0)[:, None], list("aaaabbbbc"))
    with pytest.raises(ValueError, match=r"every class needs two rows.*'b' has none"):
        Calibrated().fit(np.arange(8.0)[:, None], list("aaaabbbb"), sample_weight=[1, 1, 1, 1, 0, 0, 0, 0])


def test_auto_chooses_by_the_folds_of_the_classifier_and_weights_are_repetitions():
    X, y = make_classification(300, 5, flip_y=0.2, random_state=0)
    times, fold = np.arange(300) % 3, np.arange(300) % 4
    splits, again = (
        [(np.flatnonzero(f != k), np.flatnonzero(f == k)) for k in range(4)] for f in (fold, fold.repeat(times))
    )
    base = LogisticRegression(tol=1e-9)
    weighted = Calibrated(base, cv=splits).fit(X, y, sample_weight=times)
    repeated = Calibrated(base, cv=again).fit(X.repeat(times, axis=0), y.repeat(times))
    for one, other in zip(weighted.calibration_.tried, repeated.calibration_.tried, strict=True):
        assert one.nll == pytest.approx(other.nll, abs=1e-6)
        assert one.standard_error == pytest.approx(other.standard_error, abs=1e-6)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-6)
    # The held-out loss without a calibrator, fold by fold.
    rows = [(base.fit(X[a], y[a]).predict_log_proba(X[b])[np.arange(len(b)), y[b]]) for a, b in splits]
    plain = Calibrated(LogisticRegression(tol=1e-9), cv=splits).fit(X, y)
    assert plain.calibration_.tried[1].nll == pytest.approx(-np.concatenate(rows).mean(), abs=1e-5)


def test_zeros_of_a_forest_count_as_half_its_smallest_probability_on_new_rows_too():
    X, y = make_classification(400, 5, flip_y=0.3, random_state=0)
    fitted = Calibrated(RandomForestClassifier(20, random_state=0), method="none").fit(X, y)
    probs = fitted.predict_proba(X)
    assert fitted.calibration_.least == pytest.approx(1 / 40)
    assert probs.min() == pytest.approx((1 / 40) / (1 + 1 / 40))


def test_scores_that_are_not_one_a_class_are_refused():
    X, y = make_classification(80, 6, n_classes=4, n_informative=4, random_state=0)
    with pytest.raises(ValueError, match=r"one score of each of 4 classes, got 6; .*'ovr'"):
        Calibrated(SVC(decision_function_shape="ovo"), cv=2).fit(X, y)


def test_scorers_by_hand():
    X, y = load_wine(return_X_y=True)
    model = GaussianNB().fit(X, y)
    probs, weight = model.predict_proba(X), np.arange(len(y)) % 3
    assert scorer("nll")(model, X, y) == pytest.approx(-log_loss(y, probs))
    assert scorer("nll")(model, X, y, sample_weight=weight) == pytest.approx(-log_loss(y, probs, sample_weight=weight))
    from vicinal import evaluate

    measured = evaluate(y, probs=probs)
    assert scorer("ece")(model, X, y) == pytest.approx(-measured.ece.value)
    assert scorer("smooth_ece")(model, X, y) == pytest.approx(-measured.smooth_ece.value, abs=1e-3)
    twice = scorer("ece")(model, np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert scorer("ece")(model, X, y, sample_weight=weight) == pytest.approx(twice)
    assert (cross_val_score(model, X, y, scoring=scorer("ece")) <= 0).all()
    some = y != 1  # a fold may lack a class, whose column is still there
    assert scorer("nll")(model, X[some], y[some]) == pytest.approx(np.log(probs[some, y[some]]).mean())
    with pytest.raises(ValueError, match="y must hold classes that the estimator was trained on, got 7"):
        scorer("nll")(model, X, np.full(len(y), 7))
    assert pickle.loads(pickle.dumps(scorer("ece")))(model, X, y) == scorer("ece")(model, X, y)
    with pytest.raises(ValueError, match="name"):
        scorer("accuracy")
