"""scikit-learn: any classifier with calibrated probabilities, and scorers of calibration by name.

>>> from sklearn.datasets import load_iris
>>> from sklearn.ensemble import RandomForestClassifier
>>> X, y = load_iris(return_X_y=True)
>>> model = Calibrated(RandomForestClassifier(n_estimators=20, random_state=0)).fit(X, y)
>>> model.predict_proba(X[:2]).shape, model.calibration_.name in ("none", "temperature", "svs", "sms", "isotonic")
((2, 3), True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._checks import choice, require
from vicinal.calibrators import Calibration, calibrate
from vicinal.calibrators.auto import LEAST_PROB
from vicinal.metrics.reliability import ReliabilityTable
from vicinal.metrics.smooth import smooth_ece

require("sklearn", "train")
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import check_cv  # noqa: E402
from sklearn.utils import _safe_indexing, get_tags, indexable  # noqa: E402
from sklearn.utils.metaestimators import available_if  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import (  # noqa: E402
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
)

Codes: TypeAlias = NDArray[np.intp]
Floats: TypeAlias = NDArray[np.float64]


class Classifier(Protocol):
    """A classifier of scikit-learn. One that is fitted has `classes_` and at least one of the last three methods."""

    classes_: NDArray[np.generic]

    def fit(self, X: object, y: object, **how: object) -> Classifier:
        """Train it on rows and their labels."""

    def predict_proba(self, X: object) -> Floats:
        """Return the probability of each class."""

    def predict_log_proba(self, X: object) -> Floats:
        """Return its logarithm."""

    def decision_function(self, X: object) -> Floats:
        """Return scores, one of two classes and one for each of more."""


def _decides(self: Calibrated) -> bool:
    # A name that is there only where it works: scikit-learn's scorers ask with hasattr which of the methods to call.
    return hasattr(self.estimator_ if hasattr(self, "estimator_") else self._base(), "decision_function")


class Calibrated(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier whose probabilities are calibrated on predictions of rows it was not trained on.

    The rows are divided into folds. Each is predicted by a copy of the classifier that was trained on the others, the
    calibrator is fitted on these predictions, and the classifier is trained once more on all rows. That is
    `CalibratedClassifierCV(ensemble=False)`, with any calibrator of the library. Wrap a classifier that is trained
    already in `sklearn.frozen.FrozenEstimator`, and fit on other rows.

    Parameters
    ----------
    estimator : classifier, default=None
        What is calibrated, by its `decision_function` where it has one, else by its `predict_proba`. `None` is logistic
        regression.
    method : str, default="auto"
        `"auto"`, which chooses by cross-validation, or a name of `vicinal.calibrators.CALIBRATORS`.
    cv : int, splitter or iterable, default=5
        The folds, by which `"auto"` chooses as well. If a class has fewer rows than folds, there are as many folds as
        it has rows.

    Attributes
    ----------
    estimator_ : classifier
        Trained on all rows.
    calibration_ : Calibration
        The fitted calibrator; `print` it for what was tried.
    classes_ : array
        The labels.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> Calibrated(GaussianNB(), method="temperature", cv=2).fit(X, y).predict_proba(X[:2]).shape
    (2, 3)
    """

    def __init__(self, estimator: Classifier | None = None, *, method: str = "auto", cv: object = 5) -> None:
        # Nothing is checked here: scikit-learn clones by these attributes, and wants errors from `fit` alone.
        self.estimator = estimator
        self.method = method
        self.cv = cv

    def __sklearn_tags__(self) -> object:
        """Take what the classifier takes."""
        tags = super().__sklearn_tags__()
        inner = get_tags(self._base())
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        return tags

    def _base(self) -> Classifier:
        base: Classifier = LogisticRegression() if self.estimator is None else self.estimator
        return base

    def fit(self, X: object, y: object, sample_weight: ArrayLike | None = None) -> Calibrated:
        """Train the classifier and fit the calibrator; `sample_weight` `[n_samples]` counts in both."""
        rows, given = indexable(X, y)
        labels: NDArray[np.generic] = column_or_1d(given, warn=True)
        if not len(labels):
            raise ValueError("X has 0 sample(s), and at least two of each class are needed")
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {str(self.classes_[0])!r}")
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, rows, dtype=np.float64)
        kind, scores, fold = self._held_out(rows, labels, codes, weight)
        known = fold >= 0  # folds of a splitter need not hold every row, as those of a time series do not
        # The folds of the classifier are those of the choice: a calibrator is judged on another copy's predictions.
        self.calibration_: Calibration = calibrate(
            codes[known],
            **{kind: scores[known]},
            method=self.method,
            sample_weight=None if weight is None else weight[known],
            folds=fold[known] if len(np.unique(fold[known])) > 1 else None,
        )
        self.estimator_ = self._trained(rows, labels, weight)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def _held_out(
        self, X: object, y: NDArray[np.generic], codes: Codes, weight: Floats | None
    ) -> tuple[str, Floats, Codes]:
        """Return the scores of each row by a classifier that was not trained on it, what they are, and its fold.

        The fold of a row in no fold is -1.
        """
        folds = self.cv
        if isinstance(folds, int | np.integer):
            counts = np.bincount(codes if weight is None else codes[weight > 0], minlength=len(self.classes_))
            if counts.min() < 2:
                rare = str(self.classes_[counts.argmin()])
                few = f"{rare!r} has {'one' if counts.min() else 'none'}"
                raise ValueError(f"every class needs two rows, one to train on and one to calibrate; {few}")
            # With more folds than rows of a class, some fold would train on none of them.
            folds = min(int(folds), int(counts.min()))
        kind, scores = "logits", np.zeros((len(codes), len(self.classes_)))
        fold = np.full(len(codes), -1)
        for number, (train, test) in enumerate(check_cv(folds, y, classifier=True).split(X, y)):
            part = None if weight is None else weight[train]
            model = self._trained(_safe_indexing(X, train), y[train], part)
            kind, scores[test] = self._scores(model, _safe_indexing(X, test))
            fold[test] = number
        return kind, scores, fold

    def _trained(self, X: object, y: NDArray[np.generic], weight: Floats | None) -> Classifier:
        model: Classifier = clone(self._base())
        if weight is None or not has_fit_parameter(model, "sample_weight"):
            return model.fit(X, y)
        if not weight.all():  # a class of which every row counts for nothing has no probability
            X, y, weight = _safe_indexing(X, np.flatnonzero(weight)), y[weight > 0], weight[weight > 0]
        return model.fit(X, y, sample_weight=weight)

    def _scores(self, model: Classifier, X: object) -> tuple[str, Floats]:
        """Return whether the classifier gives logits or probabilities, and those of all classes."""
        here = np.searchsorted(self.classes_, model.classes_)
        if not hasattr(model, "decision_function"):
            known = np.asarray(model.predict_proba(X), dtype=np.float64)
            probs = np.zeros((len(known), len(self.classes_)))
            probs[:, here] = known  # a class that this fold did not train on has 0, which `calibrate` raises
            return "probs", probs
        scores = np.asarray(model.decision_function(X), dtype=np.float64)
        # Of two classes it is one number, the log odds for many classifiers: half of it for either side.
        scores = np.stack([-scores / 2, scores / 2], axis=1) if scores.ndim == 1 else scores
        if scores.shape[1] != len(here):
            raise ValueError(
                f"decision_function of {type(model).__name__} must return one score of each of {len(here)} classes, "
                f"got {scores.shape[1]}; a support vector machine does with decision_function_shape='ovr'"
            )
        # A class that this fold did not train on is less likely than anything it said.
        logits = np.full((len(scores), len(self.classes_)), scores.min() + np.log(LEAST_PROB))
        logits[:, here] = scores
        return "logits", logits

    def predict_proba(self, X: object) -> Floats:
        """Return the calibrated probability of each class, in the order of `classes_`, `[n_samples, n_classes]`."""
        check_is_fitted(self)
        kind, scores = self._scores(self.estimator_, X)
        probs: NDArray[np.float64] = self.calibration_.predict_proba(**{kind: scores})
        return probs

    def predict(self, X: object) -> NDArray[np.generic]:
        """Return the most probable label of each row."""
        check_is_fitted(self)
        labels: NDArray[np.generic] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels

    @available_if(_decides)  # type: ignore[untyped-decorator]
    def decision_function(self, X: object) -> Floats:
        """Return calibrated logits `[n_samples, n_classes]`; of two classes their difference."""
        check_is_fitted(self)
        logits: Floats = self.calibration_(self._scores(self.estimator_, X)[1])
        scores: NDArray[np.float64] = logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits
        return scores


def scorer(name: str) -> Callable[..., float]:
    """Return a scorer for `cross_val_score` and its like: `"nll"`, `"ece"` (15 bins) or `"smooth_ece"`, negated.

    It takes `sample_weight`, and scores the probabilities of a classifier.

    Returns
    -------
    callable
        The scorer: `scorer(estimator, X, y)` is the negated metric, so that higher is better.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> bool((cross_val_score(Calibrated(GaussianNB(), method="temperature"), X, y, scoring=scorer("nll")) < 0).all())
    True
    """
    return _Scorer(choice("name", name, tuple(_SCORES)))


class _Scorer(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A scorer that knows the classes of the classifier: a fold may lack one. As an estimator it routes weights."""

    def __init__(self, name: str) -> None:
        self.name = name

    def score(self, estimator: Classifier, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the score of the estimator's probabilities, negated: higher is better."""
        labels, classes = np.asarray(y), np.asarray(estimator.classes_)
        codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        if unknown := sorted({str(label) for label in labels[classes[codes] != labels]}):
            raise ValueError(f"y must hold classes that the estimator was trained on, got {', '.join(unknown)}")
        weight = np.ones(len(codes)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return -_SCORES[self.name](codes, np.asarray(estimator.predict_proba(X), dtype=np.float64), weight)

    __call__ = score


def _nll(codes: Codes, probs: Floats, weight: Floats) -> float:
    of_truth = probs[np.arange(len(codes)), codes]
    return float(np.average(-np.log(np.maximum(of_truth, np.finfo(float).tiny)), weights=weight))


def _ece(codes: Codes, probs: Floats, weight: Floats) -> float:
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == codes
    # A table counts samples, and these have weights, so that only its bins are used.
    gaps = np.bincount(ReliabilityTable(15).bin_index(confidence), weight * (right - confidence), 15)
    return float(np.abs(gaps).sum() / weight.sum())


def _smooth_ece(codes: Codes, probs: Floats, weight: Floats) -> float:
    return smooth_ece(probs.max(axis=1), probs.argmax(axis=1) == codes, sample_weight=weight).value


_SCORES: dict[str, Callable[[Codes, Floats, Floats], float]] = {"nll": _nll, "ece": _ece, "smooth_ece": _smooth_ece}
