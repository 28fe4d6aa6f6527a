"""How large prediction sets are, and how often they hold the true class: overall and by class, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal._arrays import as_classes
from vicinal.metrics.intervals import Estimate, clopper_pearson, mean_interval

__all__ = ["SetEvaluation", "evaluate_sets"]


@dataclass(frozen=True)
class SetEvaluation:
    """The figures of prediction sets. Made by `evaluate_sets`.

    Attributes
    ----------
    n
        The number of sets.
    coverage, size
        The share of sets that hold the true class, and their mean number of classes.
    empty, single
        The share of sets with no class, and with one.
    class_coverage, class_size
        Coverage and size among the samples of each class; None where a class has none.
    level
        Coverage of the intervals.
    """

    n: int
    coverage: Estimate
    size: Estimate
    empty: Estimate
    single: Estimate
    class_coverage: tuple[Estimate | None, ...]
    class_size: tuple[Estimate | None, ...]
    level: float = 0.95

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for a JSON file."""
        one = {name: getattr(self, name).to_dict() for name in ("coverage", "size", "empty", "single")}
        by_class = {
            name: [None if e is None else e.to_dict() for e in getattr(self, name)]
            for name in ("class_coverage", "class_size")
        }
        return {"n": self.n, "level": self.level, **one, **by_class}


def evaluate_sets(sets: Any, labels: Any, *, level: float = 0.95) -> SetEvaluation:
    """Measure prediction sets on samples that they were not fitted on.

    Parameters
    ----------
    sets
        Which classes are in each set, bool `[N, K]`: what `LeastAmbiguousSets` and `AdaptiveSets` return.
    labels
        The true classes `[N]`.
    level
        Coverage of the intervals.

    >>> figures = evaluate_sets([[True, False], [True, True], [False, True]], [0, 1, 0])
    >>> round(figures.coverage.value, 3), round(figures.size.value, 3), round(figures.single.value, 3)
    (0.667, 1.333, 0.667)
    """
    inside, truth = np.asarray(sets), as_classes("labels", labels)
    if inside.dtype != np.bool_ or inside.ndim != 2 or len(inside) != len(truth) or not len(truth):
        raise ValueError(
            f"sets must be bools [N, K], as many as labels, got {inside.dtype} {list(inside.shape)} and {len(truth)}"
        )
    n_classes = inside.shape[1]
    if truth.min() < 0 or truth.max() >= n_classes:
        raise ValueError(f"labels must be in [0, {n_classes - 1}], got {truth.min()} to {truth.max()}")
    hit, size = inside[np.arange(len(truth)), truth], inside.sum(axis=1).astype(np.float64)

    def share(which: Any) -> Estimate:
        low, high = clopper_pearson(int(which.sum()), len(which), level)
        return Estimate(float(which.mean()), float(low), float(high))

    def mean_size(values: Any) -> Estimate:
        return mean_interval(values, level, low=0, high=n_classes)

    members = [truth == k for k in range(n_classes)]
    return SetEvaluation(
        len(truth),
        share(hit),
        mean_size(size),
        share(size == 0),
        share(size == 1),
        tuple(share(hit[m]) if m.any() else None for m in members),
        tuple(mean_size(size[m]) if m.any() else None for m in members),
        level,
    )
