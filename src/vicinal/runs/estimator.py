"""scikit-learn: the command's model for DataFrames, with categories, dates, texts and missing values.

>>> import pandas as pd
>>> rows = pd.DataFrame({"size": [0.1 * i for i in range(40)], "colour": ["red", None] * 20})
>>> labels = ["large" if size > 2 else "small" for size in rows["size"]]
>>> VicinalClassifier(model="hgb", random_state=0).fit(rows, labels).predict_proba(rows).shape
(40, 2)
"""

from __future__ import annotations

import copy
import dataclasses
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vicinal._checks import ArgumentError, require
from vicinal._typing import Batch
from vicinal.experiment import Experiment, default_method
from vicinal.metrics.clusters import checked_weights
from vicinal.objectives.forward import call
from vicinal.runs.bundle import Bundle
from vicinal.runs.execute import check_names, train_bundle
from vicinal.runs.run import load_task

require("sklearn", "train")
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.utils import assert_all_finite, check_random_state  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data  # noqa: E402

if TYPE_CHECKING:
    import pandas as pd

Floats: TypeAlias = NDArray[np.float64]

#: Options of `vicinal.data.load` that `fit` decides.
_DECIDED = ("target", "test", "weight")
#: How `fit` writes classes for the reader of tables.
_NAMED = re.compile(r"code (\d{9})")


class VicinalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The model of `vicinal train`, as a classifier of scikit-learn.

    Rows are a DataFrame of pandas or polars, or an array. Columns may hold numbers, categories, dates and texts, and
    values may be missing. No encoder, imputer or scaler is needed before it. A part of the rows is held out to stop
    training and to calibrate the probabilities.

    `vicinal train FILE --target COLUMN --test 0 --seed 0` on the same rows gives the numbers of
    `random_state=0`, up to rounding: rows of tables are predicted in float64 here.

    Parameters
    ----------
    method : str, default=None
        What is minimised, as an expression such as `"Mixup(alpha=0.4)"`. `None` is the default of the command.
    model : str, default=None
        The name of a model; `None` is the default of the command for these data.
    model_options : dict, default=None
        Its own options, such as `{"dropout": 0.3}`.
    training : dict, default=None
        Fields of `vicinal.training.FitConfig` that differ from the defaults, such as `{"epochs": 20}`.
    data : dict, default=None
        Options of `vicinal.data.load`, such as `{"val": 0.2, "drop": ["id"]}`. `{"seed": 1}` is the random seed of the
        split.
    calibrate : str, default="temperature"
        What calibrates the probabilities: a name of `vicinal.calibrators.CALIBRATORS`, `"none"`, or `"auto"`, which
        chooses by cross-validation.
    class_weight : "balanced" or None, default=None
        `"balanced"` makes all classes count the same in training. It distorts the probabilities.
    random_state : int, RandomState instance or None, default=None
        Random seed for weights, batch order and mixing. `None` takes one from numpy's global generator.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if all are strings.
    bundle_ : Bundle
        The trained model; `bundle_.save(FOLDER)` writes what `vicinal predict FOLDER` and `vicinal.load` read.
    notes_ : list of str
        What was inferred about the data, and what was trained, one sentence each.

    See Also
    --------
    vicinal.integrations.sklearn.MixupClassifier : the bare network for arrays of numbers, with `partial_fit`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = VicinalClassifier(training={"epochs": 5}, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    classes_: NDArray[np.generic]
    bundle_: Bundle
    notes_: list[str]

    def __init__(
        self,
        method: str | None = None,
        *,
        model: str | None = None,
        model_options: Mapping[str, object] | None = None,
        training: Mapping[str, object] | None = None,
        data: Mapping[str, object] | None = None,
        calibrate: str = "temperature",
        class_weight: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        # Nothing is checked here: scikit-learn clones by these attributes, and wants errors from `fit` alone.
        self.method = method
        self.model = model
        self.model_options = model_options
        self.training = training
        self.data = data
        self.calibrate = calibrate
        self.class_weight = class_weight
        self.random_state = random_state

    def __sklearn_tags__(self) -> object:
        """Say that values may be missing, and that columns may hold text and categories."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def fit(self, X: object, y: object, sample_weight: Any = None) -> VicinalClassifier:
        """Train on rows `X` and their labels `y`, and calibrate on rows that are held out.

        `sample_weight` `[n_samples]` says how much each row counts in both.
        """
        frame = self._frame(X, reset=True)
        labels = _labels(y)
        check_consistent_length(frame, labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {str(self.classes_[0])!r}")
        target = _free_name("target", frame)
        # Written so that their order is that of `classes_`, and that none looks like a number or a missing value.
        frame[target] = [f"code {code:09d}" for code in codes.tolist()]
        weight = None if sample_weight is None else _free_name("weight", frame)
        if weight is not None:
            frame[weight] = checked_weights(sample_weight, len(frame))
        experiment = self._experiment(target, weight)
        check_names(experiment)
        task = dataclasses.replace(load_task(experiment, source=frame), classes=tuple(map(str, self.classes_.tolist())))
        notes = [_NAMED.sub(lambda code: task.classes[int(code[1])], str(n)) for n in (*task.notes, *task.warnings)]
        with tempfile.TemporaryDirectory(prefix="vicinal-") as folder:
            self.bundle_ = train_bundle(experiment, task, Path(folder), progress=False, on_note=notes.append)[0]
        self.notes_ = notes
        return self

    def _experiment(self, target: str, weight: str | None) -> Experiment:
        """Return what the command would run."""
        given = dict(self.data or {})
        for name in _DECIDED:
            if name in given:
                raise ArgumentError("data", given, f"options without {name!r}, which fit decides")
        if isinstance(self.random_state, int | np.integer):
            seed = int(self.random_state)
        else:
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return Experiment(
            source="table",
            method=default_method(self.model) if self.method is None else str(self.method),
            # A class of one row is learned, as everywhere in scikit-learn.
            data={"rare": "train", **given, "target": target, "test": 0}
            | ({} if weight is None else {"weight": weight}),
            model=self.model,
            model_options=self.model_options or {},
            training=self.training or {},
            calibrate=self.calibrate,
            class_weight=self.class_weight,
            seed=seed,
        )

    def predict_proba(self, X: object) -> Floats:
        """Return the calibrated probability of each class, in the order of `classes_`, `[n_samples, n_classes]`."""
        logits = self._logits(X)
        probs: Floats = self.bundle_.calibrated(logits).numpy()
        return probs

    def predict_log_proba(self, X: object) -> Floats:
        """Return the logarithm of `predict_proba`, which does not underflow."""
        log_probs: Floats = self._calibrated(X).log_softmax(dim=1).numpy()
        return log_probs

    def decision_function(self, X: object) -> Floats:
        """Return calibrated logits `[n_samples, n_classes]`; of two classes their difference."""
        logits = self._calibrated(X)
        scores: Floats = (logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits).numpy()
        return scores

    def predict(self, X: object) -> NDArray[np.generic]:
        """Return the most probable label of each row."""
        best = self._calibrated(X).argmax(dim=1).numpy()
        labels: NDArray[np.generic] = self.classes_[best]
        return labels

    def _calibrated(self, X: object) -> Tensor:
        logits = self._logits(X)
        return self.bundle_.calibrators(logits)

    def _logits(self, X: object) -> Tensor:
        check_is_fitted(self)
        # Every row has an answer here, so that one that cannot be read is an error.
        rows = self.bundle_.read(self._frame(X, reset=False), max_bad=0)
        # A float32 product of matrices rounds a row by the rows beside it, and scikit-learn asks that a prediction does
        # not depend on them. Networks for texts are too large for that.
        network = _InFloat64(self.bundle_.module) if self.bundle_.preprocessing.kind == "tabular" else None
        return torch.cat(list(self.bundle_.iter_logits(rows, network=network)))

    def _frame(self, X: Any, *, reset: bool) -> pd.DataFrame:
        """Return rows as a DataFrame of pandas, checked as scikit-learn checks them."""
        pandas = require("pandas", "train")
        if hasattr(X, "columns") and not hasattr(X, "iloc") and hasattr(X, "to_pandas"):
            validate_data(self, X, skip_check_array=True, reset=reset)
            X = X.to_pandas()
        elif hasattr(X, "iloc") and hasattr(X, "columns"):
            validate_data(self, X, skip_check_array=True, reset=reset)
        else:
            X = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
            frame: pd.DataFrame = pandas.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
            # Arrays of mixed types hold objects, among them numbers.
            return frame.infer_objects()
        if not len(X):
            raise ValueError("X has 0 sample(s), and at least two classes are needed")
        renamed: pd.DataFrame = X.rename(columns=str)
        return renamed


class _InFloat64:
    """A network that computes in float64."""

    def __init__(self, module: nn.Module) -> None:
        self.module = copy.deepcopy(module).double()

    def __call__(self, x: Batch) -> Tensor:
        return call(self.module, x.double() if isinstance(x, Tensor) else x)


def _labels(y: object) -> NDArray[np.generic]:
    """Return labels as an array `[N]`; missing ones are refused."""
    given = np.asarray(y)
    if given.ndim == 2 and given.shape[1] > 1:
        raise ValueError(
            f"y has {given.shape[1]} columns, and a VicinalClassifier learns one label a row: put it into "
            "scikit-learn's MultiOutputClassifier"
        )
    labels: NDArray[np.generic] = column_or_1d(given, warn=True)
    assert_all_finite(labels, input_name="y")
    if require("pandas", "train").isna(labels).any():
        raise ValueError("y must have a label for each row, but some are missing (None)")
    check_classification_targets(labels)
    return labels


def _free_name(name: str, frame: pd.DataFrame) -> str:
    """Return a name that no column has."""
    while name in frame.columns:
        name += "_"
    return name
