"""Metrics of slices: parts of the samples, such as a value of a column, with intervals corrected for their number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal.metrics.intervals import Estimate, Moments, clopper_pearson, confidence_level, mean_interval, z_of

if TYPE_CHECKING:
    from vicinal.metrics.tally import Evaluation, Samples

#: A gap between confidence and accuracy that nobody would act on.
_SMALL = 0.01
#: Values of one column that are looked at, the most frequent ones; parts that the range of a number is cut into.
_VALUES, _PARTS = 30, 4
#: Mean words of a cell from which on a column of different texts is sliced by their length.
_WORDS = 3
#: Samples of a slice that is looked for, at least: fewer show nothing.
FEWEST = 10


@dataclass(frozen=True)
class Slice:
    """Metrics of a part of the samples. Made by `evaluate_slices`.

    Examples
    --------
    >>> from vicinal.metrics import evaluate, evaluate_slices
    >>> worst = evaluate_slices(evaluate([0, 1] * 50, probs=[[0.9, 0.1]] * 100), ["a", "b"] * 50)[0]
    >>> worst.name, worst.accuracy.value, round(worst.gap.value, 3)
    ('b', 0.0, 0.9)
    """

    name: str
    """The column and its value or range."""
    n: int
    """The number of samples."""
    accuracy: Estimate
    """The share of right predictions."""
    gap: Estimate
    """Mean confidence less accuracy: positive where it is over-confident."""
    nll: Estimate | None
    """None where the probabilities of all classes are unknown."""
    status: str
    """`"worse"` than all samples by accuracy or NLL, `"miscalibrated"`, or `""`: neither is significant."""

    @property
    def is_off(self) -> bool:
        """Whether its mean confidence differs significantly from its accuracy, by a point or more."""
        return abs(self.gap.value) >= _SMALL and (self.gap.low > 0 or self.gap.high < 0)

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""
        estimates = {name: getattr(self, name) for name in ("accuracy", "gap", "nll")}
        shown = {name: None if e is None else e.to_dict() for name, e in estimates.items()}
        return {"name": self.name, "n": self.n, **shown, "status": self.status}

    @classmethod
    def from_dict(cls, record: Mapping[str, object]) -> Slice:
        """Return the slice that `to_dict` described."""
        fields: dict[str, object] = dict(record)
        for name in ("accuracy", "gap", "nll"):
            fields[name] = None if record[name] is None else Estimate.from_dict(record[name])  # type: ignore[arg-type]
        return cls(**fields)  # type: ignore[arg-type]


def evaluate_slices(
    evaluation: Evaluation, slices: Mapping[str, ArrayLike] | ArrayLike, *, level: float = 0.95
) -> list[Slice]:
    """Return the metrics of slices, the worst first.

    The intervals of accuracy, gap and NLL are corrected for the number of slices and metrics together (Bonferroni).
    Significant slices come first. Among them, and among the others, that with the clearest excess of NLL over all
    samples comes first, in half-widths of its interval; accuracy decides where the NLL is unknown.

    Parameters
    ----------
    evaluation
        Of all samples, as `evaluate` returns it.
    slices
        A value of each sample `[N]`. Or columns `[N]` by name: one of bools is a slice, any other is cut into slices by
        `column_slices`.
    level
        Confidence level of all intervals together.

    Returns
    -------
    list[Slice]
        The slices, the worst first.

    Examples
    --------
    >>> from vicinal.metrics import evaluate
    >>> found = evaluate_slices(evaluate([0, 1] * 50, probs=[[0.9, 0.1]] * 100), ["a", "b"] * 50)
    >>> [(one.name, one.n, one.accuracy.value, one.status) for one in found]
    [('b', 50, 0.0, 'worse'), ('a', 50, 1.0, '')]
    """
    samples = evaluation.samples
    if samples is None:
        raise ValueError("slices need the values of each sample: evaluate with vicinal.evaluate")
    masks = _masks(slices, evaluation.n)
    if samples.weights is not None:
        masks = {name: mask for name, mask in masks.items() if samples.weights[mask].any()}
    n_metrics = 3 if "nll" in samples.values else 2
    corrected = 1 - (1 - confidence_level(level)) / max(n_metrics * len(masks), 1)
    found = [_slice(name, mask, evaluation, samples, corrected) for name, mask in masks.items()]

    right, nll = float(np.average(samples.correct, weights=samples.weights)), evaluation.metrics.get("nll")

    def badness(one: Slice) -> tuple[bool, float]:
        if one.nll is not None and nll is not None and math.isfinite(nll.value):
            excess, reach = one.nll.value - nll.value, one.nll.value - one.nll.low
        else:
            excess, reach = right - one.accuracy.value, one.accuracy.high - one.accuracy.value
        return one.status == "", -excess / max(reach, 1e-12)

    return sorted(found, key=badness)


def _masks(slices: Mapping[str, ArrayLike] | ArrayLike, n: int) -> dict[str, NDArray[np.bool_]]:
    columns = slices if isinstance(slices, Mapping) else {"": slices}
    masks: dict[str, NDArray[np.bool_]] = {}
    for name, column in columns.items():
        values = np.asarray(column)
        if values.shape != (n,):
            raise ValueError(f"slice {name!r} must be {n} values, one for each sample, got shape {list(values.shape)}")
        if not isinstance(slices, Mapping):
            texts = values.astype(str)
            masks = {value: texts == value for value in np.unique(texts).tolist()}
        else:
            masks |= {str(name): values} if values.dtype == np.bool_ else dict(column_slices(str(name), values))
    return {name: mask for name, mask in masks.items() if mask.any()}


def column_slices(name: str, cells: Sequence[object] | NDArray[Any]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield the slices of a column by name, and which rows are in each.

    They are the quartiles of numbers, the quartiles of the number of words of texts that differ, and the 30 most
    frequent values of anything else. Missing values are a slice of their own.

    >>> [(name, int(rows.sum())) for name, rows in column_slices("age", [*range(20), None])][:3]
    [('age missing', 1), ('age from 0 to 4.75', 5), ('age above 4.75 to 9.5', 5)]
    """
    missing = np.array([cell is None or cell != cell or cell == "" for cell in cells], np.bool_)
    if missing.any():
        yield f"{name} missing", missing
    numbers = np.array([_number(cell) for cell in cells])
    known = np.isfinite(numbers)
    if known.sum() and not (~known & ~missing).any() and len(np.unique(numbers[known])) > 2 * _PARTS:
        yield from _quartiles(name, numbers, known)
        return
    texts = np.array([str(cell) for cell in cells], dtype=object)
    values, counts = np.unique(texts[~missing].astype(str), return_counts=True)
    words = np.array([len(text.split()) for text in texts])
    if len(values) > max(_VALUES, (~missing).sum() / 2) and words[~missing].mean() >= _WORDS:
        yield from _quartiles(f"words in {name}", words, ~missing)
        return
    for value in values[np.argsort(-counts, kind="stable")[:_VALUES]].tolist():
        yield f"{name} is {value!r}", (texts == value) & ~missing


def _quartiles(name: str, numbers: NDArray[Any], known: NDArray[np.bool_]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    edges = np.unique(np.quantile(numbers[known], np.linspace(0, 1, _PARTS + 1)))
    for k, (low, high) in enumerate(pairwise(edges.tolist())):
        inside = (numbers > low if k else numbers >= low) & (numbers <= high) & known
        yield f"{name} {'above' if k else 'from'} {low:.6g} to {high:.6g}", inside


def _number(cell: Any) -> float:
    """Return a cell that is a number, or looks like one; NaN otherwise."""
    try:
        return np.nan if cell is None or isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError):
        return np.nan


def _slice(name: str, mask: NDArray[np.bool_], evaluation: Evaluation, samples: Samples, level: float) -> Slice:
    own, n = samples.take(mask), int(mask.sum())
    right, confidence, weights = own.correct, own.confidence, own.weights
    # With weights n samples are worth fewer of equal weight.
    worth = n if own.groups is None else own.groups.effective
    rate = float(np.average(right, weights=weights))
    low, high = clopper_pearson(rate * worth, worth, level)
    accuracy = Estimate(rate, float(low), float(high))
    difference = confidence - right
    middle = float(np.average(difference, weights=weights))
    # The variance is at least that of calibrated confidences: a few samples without a mistake show none.
    spread = (difference - middle) ** 2, confidence * (1 - confidence)
    reach = z_of(level) * math.sqrt(max(float(np.average(of, weights=weights)) for of in spread) / worth)
    gap = Estimate(middle, middle - reach, middle + reach)
    values, overall = own.values.get("nll"), evaluation.metrics.get("nll")
    of_nll = None if values is None else Moments.of(values.astype(np.float64), weights).thinned(n / worth)
    nll = None if of_nll is None else mean_interval(of_nll, level, low=0, high=math.inf)
    worse = accuracy.high < float(np.average(samples.correct, weights=samples.weights))
    worse = worse or (nll is not None and overall is not None and n > 1 and nll.low > overall.value)
    found = Slice(name, n, accuracy, gap, nll, "worse" if worse else "")
    return replace(found, status="miscalibrated") if found.is_off and not worse else found
