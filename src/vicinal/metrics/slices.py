"""Metrics of slices: parts of the samples, such as a value of a column, with intervals corrected for their number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal.metrics.intervals import Estimate, clopper_pearson, confidence_level, mean_interval, z_of
from vicinal.metrics.tally import Evaluation, Samples

#: A gap between confidence and accuracy that nobody would act on.
_SMALL = 0.01


@dataclass(frozen=True)
class Slice:
    """Metrics of a part of the samples. Made by `evaluate_slices`."""

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

    All intervals together hold with probability `level` (Bonferroni over the slices).

    Parameters
    ----------
    evaluation
        Of all samples, as `evaluate` returns it.
    slices
        A value of each sample `[N]`, such as a column, or by name which samples are in a slice, bool `[N]` each.
    level
        Confidence level of all intervals together.

    Examples
    --------
    >>> from vicinal.metrics import evaluate
    >>> found = evaluate_slices(evaluate([0, 1] * 50, probs=[[0.9, 0.1]] * 100), ["a", "b"] * 50)
    >>> [(one.name, one.n, one.accuracy.value, one.status) for one in found]
    [('b', 50, 0.0, 'worse'), ('a', 50, 1.0, 'miscalibrated')]
    """
    samples = evaluation.samples
    if samples is None:
        raise ValueError("slices need the values of each sample: evaluate with vicinal.evaluate")
    masks = _masks(slices, evaluation.n)
    corrected = 1 - (1 - confidence_level(level)) / max(len(masks), 1)
    found = [_slice(name, mask, evaluation, samples, corrected) for name, mask in masks.items()]

    def badness(one: Slice) -> tuple[bool, float]:
        return one.status == "", -(one.nll.low if one.nll is not None else 1 - one.accuracy.high)

    return sorted(found, key=badness)


def _masks(slices: Mapping[str, ArrayLike] | ArrayLike, n: int) -> dict[str, NDArray[np.bool_]]:
    if isinstance(slices, Mapping):
        masks = {str(name): np.asarray(mask) for name, mask in slices.items()}
    else:
        values = np.asarray(slices).astype(str)
        masks = {name: values == name for name in np.unique(values).tolist()}
    for name, mask in masks.items():
        if mask.shape != (n,) or mask.dtype != np.bool_:
            raise ValueError(f"slice {name!r} must be {n} bools, one for each sample, got {mask.dtype} {mask.shape}")
    return {name: mask for name, mask in masks.items() if mask.any()}


def _slice(name: str, mask: NDArray[np.bool_], evaluation: Evaluation, samples: Samples, level: float) -> Slice:
    right, confidence, n = samples.correct[mask], samples.confidence[mask], int(mask.sum())
    low, high = clopper_pearson(int(right.sum()), n, level)
    accuracy = Estimate(float(right.mean()), float(low), float(high))
    difference = confidence - right
    # The variance is at least that of calibrated confidences: a few samples without a mistake show none.
    variance = max(float(difference.var()), float((confidence * (1 - confidence)).mean()))
    reach, middle = z_of(level) * math.sqrt(variance / n), float(difference.mean())
    gap = Estimate(middle, middle - reach, middle + reach)
    values, overall = samples.values.get("nll"), evaluation.metrics.get("nll")
    nll = None if values is None else mean_interval(values[mask].astype(np.float64), level, low=0, high=math.inf)
    worse = accuracy.high < float(samples.correct.mean())
    worse = worse or (nll is not None and overall is not None and n > 1 and nll.low > overall.value)
    off = abs(middle) >= _SMALL and (gap.low > 0 or gap.high < 0)
    return Slice(name, n, accuracy, gap, nll, "worse" if worse else "miscalibrated" if off else "")
