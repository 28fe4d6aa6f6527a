"""Baselines on the same split, which a network must beat to be worth its cost.

The majority class answers with the shares of the classes. For rows of a table logistic regression takes the
standardised numbers and a column for each category; a random forest and histogram gradient boosting, calibrated by
isotonic regression on the validation set, take numbers and categories as they are. For texts logistic regression takes
TF-IDF of words and pairs of words, for images and sounds their pixels or spectrograms, made small by means of
neighbours. All are scikit-learn's, with its defaults.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import choice, require
from vicinal.data import Split, Task
from vicinal.data.column_encoders import Category, Date, Number
from vicinal.data.registry import KINDS
from vicinal.data.tabular import TabularPreprocessing
from vicinal.data.text_columns import Text
from vicinal.metrics import Evaluation, evaluate
from vicinal.progress import stage
from vicinal.runs.run import RunResult

#: By name, the simplest first.
BASELINES = ("majority class", "logistic regression", "random forest", "gradient boosting")

#: Those that every run is compared with.
ALWAYS = BASELINES[:2]

#: Logistic regression sees at most so many training rows, and no baseline is fitted to more classes.
_MOST_ROWS, _MOST_CLASSES = 20_000, 100

Floats = NDArray[np.float64]


def baselines(
    task: Task, names: Sequence[str] = ALWAYS, *, n_bins: int = 15, groups: NDArray[np.int64] | None = None
) -> dict[str, Evaluation]:
    """Return the metrics of some of `BASELINES` on the test set of a task, by name.

    Those that do not fit this kind of data are left out: trees are for rows of a table. Intervals allow for `groups` of
    test samples, `[N]`.

    Returns
    -------
    dict[str, Evaluation]
        The metrics of each baseline on the test set.

    Examples
    --------
    >>> import pandas as pd
    >>> from vicinal.data import load
    >>> frame = pd.DataFrame({"x": [i / 7 for i in range(40)], "y": ["a", "a", "b"] * 13 + ["a"]})
    >>> found = baselines(load(frame, target="y"), ["majority class"])
    >>> round(found["majority class"].accuracy.value, 3)
    0.667
    """
    evaluations = {}
    for name in names:
        with stage(name):
            probs = _probs(choice("names", name, BASELINES), task)
        if probs is not None:
            about: dict[str, Any] = {"groups": groups, "sample_weight": task.test.weights}
            evaluations[name] = evaluate(_labels(task.test), probs=probs, n_bins=n_bins, **about)
    return evaluations


def measure_baselines(result: RunResult, names: Sequence[str] = ALWAYS) -> None:
    """Measure baselines on the split of a run that has a test set, and keep their metrics in its folder.

    With them goes the difference to the run, sample by sample. Those that are kept already are not measured again.

    Examples
    --------
    >>> result = Run("runs/digits").result()  # doctest: +SKIP
    >>> measure_baselines(result)  # doctest: +SKIP
    >>> result.run.baselines()  # doctest: +SKIP
    """
    kept = result.run.baselines()
    missing = [name for name in names if "nll_difference" not in kept.get(name, {})]
    if missing and "test" in result.sets:
        after = result.test.after
        groups = result.test.groups
        result.run.write_baselines(baselines(result.run.task(), missing, n_bins=after.n_bins, groups=groups), after)


def _probs(name: str, task: Task) -> Floats | None:
    """Return a model's probabilities of the test samples, None where it does not fit the data."""
    if name == "majority class":
        counts = np.bincount(_labels(task.train), minlength=len(task.classes))
        return np.tile(counts / counts.sum(), (len(task.test), 1))
    if len(task.classes) > _MOST_CLASSES:
        return None
    if name == "logistic regression":
        inputs = KINDS[task.kind].baseline(task)
        if inputs is None:
            return None
        return _logistic(inputs.train, inputs.test, _labels(task.train)[:: inputs.step], len(task.classes))
    return _trees(name, task, task.preprocessing) if isinstance(task.preprocessing, TabularPreprocessing) else None


def _logistic(train: Any, test: Any, labels: NDArray[np.int64], n_classes: int) -> Floats:
    model = require("sklearn.linear_model", "train").LogisticRegression(max_iter=1000)
    step = -(-len(labels) // _MOST_ROWS)
    model.fit(train[::step], labels[::step])
    return _every_class(model, test, n_classes)


def _trees(name: str, task: Task, encoding: TabularPreprocessing) -> Floats:
    """Return the probabilities of trees, calibrated by isotonic regression where the validation set has every class."""
    ensemble = require("sklearn.ensemble", "train")
    train, val, test = (_compact(encoding, part) for part in (task.train, task.val, task.test))
    if name == "random forest":
        model: Any = ensemble.RandomForestClassifier(300, random_state=0)
        train, val, test = (np.nan_to_num(part, nan=-1.0) for part in (train, val, test))
    else:
        few = [
            few
            for column in encoding.columns
            for few in ([column.width <= 255] if isinstance(column, Category) else [False] * _n_numbers(column))
        ]
        model = ensemble.HistGradientBoostingClassifier(categorical_features=few, random_state=0)
    model.fit(train, _labels(task.train))
    if set(_labels(task.val)) == set(model.classes_):  # scikit-learn cannot calibrate a class without samples
        frozen = require("sklearn.frozen", "train").FrozenEstimator(model)
        calibrated = require("sklearn.calibration", "train").CalibratedClassifierCV(frozen, method="isotonic")
        with warnings.catch_warnings():
            # scikit-learn speaks of folds, of which a fitted model has none
            warnings.filterwarnings("ignore", "The least populated class in y", UserWarning)
            model = calibrated.fit(val, _labels(task.val))
    return _every_class(model, test, len(task.classes))


def _every_class(model: Any, x: Any, n_classes: int) -> Floats:
    """Return probabilities `[N, K]`, at least 1e-6, so that a class that the model did not see is not infinite NLL."""
    probs = np.zeros((len(x) if isinstance(x, np.ndarray) else x.shape[0], n_classes))
    probs[:, model.classes_] = model.predict_proba(x)
    probs = np.maximum(probs, 1e-6)
    normalised: Floats = probs / probs.sum(axis=1, keepdims=True)
    return normalised


def _compact(encoding: TabularPreprocessing, part: Split) -> Floats:
    """Return rows as numbers, NaN where they are missing, and categories as their numbers, a column for each."""
    encoded, columns, start = part.features(), [], 0
    for column in encoding.columns:
        block = encoded[:, start : start + column.width]
        start += column.width
        if isinstance(column, Category):
            columns.append(np.where(block.any(axis=1), block.argmax(axis=1), np.nan))
            continue
        if isinstance(column, Text):
            columns += list(block.T)
            continue
        missing = block[:, -1] > 0 if column.missing else np.zeros(len(block), np.bool_)
        at = 0
        for number in _numbers(column):
            columns.append(np.where(missing, np.nan, block[:, at]))
            at += number.width
    return np.stack(columns, axis=1)


def _numbers(column: Number | Date) -> tuple[Number, ...]:
    return column.parts if isinstance(column, Date) else (column,)


def _n_numbers(column: Number | Date | Text) -> int:
    return column.width if isinstance(column, Text) else len(_numbers(column))


def _labels(part: Split) -> NDArray[np.int64]:
    return np.array(part.labels, np.int64)
