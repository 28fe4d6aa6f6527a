"""Baselines on the same split, which a network must beat to be worth its cost.

The majority class answers with the shares of the classes. For rows of a table logistic regression takes the
standardised numbers and a column for each category; a random forest and histogram gradient boosting take numbers and
categories as they are. For texts logistic regression takes TF-IDF of words, pairs of words and pieces of words, for
images and sounds their pixels or spectrograms, made small by means of neighbours.

They get what the network gets. The validation set chooses how much logistic regression is regularised, and all but the
majority class have a temperature that is fitted on it. Weights of samples count in both. All else are scikit-learn's
defaults.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import choice, require
from vicinal.calibrators import TemperatureScaling
from vicinal.data import Split, Task
from vicinal.data.column_encoders import Category, Date, Number
from vicinal.data.kind import Baseline
from vicinal.data.registry import KINDS
from vicinal.data.tabular import TabularPreprocessing
from vicinal.data.text_columns import Text
from vicinal.metrics import Evaluation, evaluate
from vicinal.progress import stage
from vicinal.runs.run import RunResult

#: By name, the simplest first.
BASELINES = ("majority class", "logistic regression", "random forest", "gradient boosting")

#: Those that every run is compared with.
ALWAYS = ("majority class", "logistic regression", "gradient boosting")

#: Logistic regression sees at most so many training rows, and no baseline is fitted to more classes.
_MOST_ROWS, _MOST_CLASSES = 20_000, 100

#: The strengths of regularisation that logistic regression chooses from, C of scikit-learn, and the rows it tries on.
_STRENGTHS, _TRIED_ROWS = (0.01, 0.1, 1.0, 10.0, 100.0), 5_000

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
        counts = np.bincount(_labels(task.train), task.train.weights, len(task.classes))
        return np.tile(counts / counts.sum(), (len(task.test), 1))
    if len(task.classes) > _MOST_CLASSES:
        return None
    if name == "logistic regression":
        inputs = KINDS[task.kind].baseline(task)
        if inputs is None:
            return None
        return _logistic(inputs, task)
    return _trees(name, task, task.preprocessing) if isinstance(task.preprocessing, TabularPreprocessing) else None


def _logistic(inputs: Baseline, task: Task) -> Floats:
    """Return the probabilities of logistic regression, of the strength that suits the validation set best."""
    labels, weights = _labels(task.train)[:: inputs.step], task.train.weights
    weights = None if weights is None else weights[:: inputs.step]

    def fitted(strength: float, most: int) -> Any:
        step = -(-len(labels) // most)
        model = require("sklearn.linear_model", "train").LogisticRegression(C=strength, max_iter=1000)
        return model.fit(inputs.train[::step], labels[::step], None if weights is None else weights[::step])

    def nll(strength: float) -> float:
        probs = _every_class(fitted(strength, _TRIED_ROWS), inputs.val, len(task.classes))
        held_out = _labels(task.val), task.val.weights
        return evaluate(held_out[0], probs=_tempered(probs, probs, *held_out), sample_weight=held_out[1]).nll.value

    with warnings.catch_warnings():
        # scikit-learn warns of weak regularisation that has not converged, which validation judges.
        warnings.filterwarnings("ignore", "lbfgs failed to converge")
        strength = 1.0 if inputs.val is None else min(_STRENGTHS, key=nll)
        model = fitted(strength, _MOST_ROWS)
    return _calibrated(model, inputs.val, inputs.test, task)


def _trees(name: str, task: Task, encoding: TabularPreprocessing) -> Floats:
    """Return the probabilities of trees."""
    ensemble = require("sklearn.ensemble", "train")
    train, val, test = (_compact(encoding, part) for part in (task.train, task.val, task.test))
    if name == "random forest":
        model: Any = ensemble.RandomForestClassifier(300, random_state=0)
        train, val, test = (np.nan_to_num(part, nan=-1.0) for part in (train, val, test))
    else:
        few = [
            few
            for column in encoding.columns
            for few in (_is_few(column) if isinstance(column, Category) else [False] * _n_numbers(column))
        ]
        model = ensemble.HistGradientBoostingClassifier(categorical_features=few, random_state=0)
    model.fit(train, _labels(task.train), task.train.weights)
    return _calibrated(model, val if len(task.val) else None, test, task)


def _calibrated(model: Any, val: Any, test: Any, task: Task) -> Floats:
    """Return the probabilities of test samples with a temperature that is fitted on the validation set."""
    probs = _every_class(model, test, len(task.classes))
    if val is None:
        return probs
    return _tempered(probs, _every_class(model, val, len(task.classes)), _labels(task.val), task.val.weights)


def _tempered(probs: Floats, held_out: Floats, labels: NDArray[np.int64], weights: Floats | None) -> Floats:
    """Return probabilities with the temperature that suits held-out ones best."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few samples, or of a temperature at its bound
        fitted = TemperatureScaling().fit(np.log(held_out), labels, sample_weight=weights)
    tempered: Floats = np.asarray(fitted.predict_proba(np.log(probs)), np.float64)
    return tempered


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
            values = block[:, : column.n_one_hot]
            columns += [np.where(values.any(axis=1), values.argmax(axis=1), np.nan), *block[:, column.n_one_hot :].T]
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


def _is_few(column: Category) -> list[bool]:
    """Return whether the values, and then each target statistic, are a category of few enough values."""
    return [column.n_one_hot <= 255, *[False] * (column.width - column.n_one_hot)]


def _n_numbers(column: Number | Date | Text) -> int:
    return column.width if isinstance(column, Text) else len(_numbers(column))


def _labels(part: Split) -> NDArray[np.int64]:
    return np.array(part.labels, np.int64)
