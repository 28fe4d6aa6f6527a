"""How large prediction sets are and how often they hold the true class: overall, by class and by size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vicinal._arrays import as_classes
from vicinal.metrics.intervals import Estimate, Moments, clopper_pearson, mean_interval


@dataclass(frozen=True)
class SetEvaluation:
    """The metrics of prediction sets. Made by `evaluate_sets`.

    Examples
    --------
    >>> from vicinal.metrics import evaluate_sets
    >>> result = evaluate_sets([0, 1, 0], sets=[[True, False], [True, True], [False, True]])
    >>> print(result)
    3 sets; 95 % intervals
    coverage 0.6667 [0.0943, 0.9916]
    size     1.3333 [0.0000, 2.0000]
    empty    0.0000 [0.0000, 0.7076]
    single   0.6667 [0.0943, 0.9916]
    >>> result.size_n
    {1: 2, 2: 1}
    """

    n: int
    """The number of sets."""
    coverage: Estimate
    """The share of sets that hold the true class."""
    size: Estimate
    """Their mean number of classes."""
    empty: Estimate
    """The share of sets with no class."""
    single: Estimate
    """The share of sets with one class."""
    class_coverage: tuple[Estimate | None, ...]
    """Coverage among the samples of each class; None where a class has none."""
    class_size: tuple[Estimate | None, ...]
    """Size among the samples of each class; None where a class has none."""
    level: float = 0.95
    """Confidence level of the intervals."""
    class_n: tuple[int, ...] = ()
    """The number of samples of each class."""
    size_coverage: Mapping[int, Estimate] = field(default_factory=dict)
    """Coverage among the sets of each size that occurs: sets may cover enough on average, and too little if small."""
    size_n: Mapping[int, int] = field(default_factory=dict)
    """The number of sets of each size that occurs."""

    @property
    def worst_class(self) -> int:
        """The number of the class with the lowest coverage."""
        known = [(e.value, k) for k, e in enumerate(self.class_coverage) if e is not None]
        return min(known)[1]

    def __str__(self) -> str:
        names = ("coverage", "size", "empty", "single")
        lines = [f"{self.n:,} sets; {100 * self.level:g} % intervals"]
        return "\n".join([*lines, *(f"{name:8} {getattr(self, name)}" for name in names)])

    def to_dict(self) -> dict[str, object]:
        """Return plain numbers for a JSON file."""
        one = {name: getattr(self, name).to_dict() for name in ("coverage", "size", "empty", "single")}
        by_class = {
            name: [None if e is None else e.to_dict() for e in getattr(self, name)]
            for name in ("class_coverage", "class_size")
        }
        by_size = {str(size): {"n": self.size_n[size], **e.to_dict()} for size, e in self.size_coverage.items()}
        plain = {"class_n": list(self.class_n), "size_coverage": by_size, "worst_class": self.worst_class}
        return {"n": self.n, "level": self.level, **one, **by_class, **plain}


def evaluate_sets(labels: object, *, sets: object, level: float = 0.95) -> SetEvaluation:
    """Measure prediction sets on samples that they were not fitted on.

    Parameters
    ----------
    labels
        The true classes `[N]`.
    sets
        Which classes are in each set, bool `[N, K]`: what `LeastAmbiguousSets` and `AdaptiveSets` return.
    level
        Confidence level of the intervals.

    Returns
    -------
    SetEvaluation
        Set coverage and size, over all samples and for each class, with intervals.

    Examples
    --------
    >>> metrics = evaluate_sets([0, 1, 0], sets=[[True, False], [True, True], [False, True]])
    >>> round(metrics.coverage.value, 3), round(metrics.size.value, 3), round(metrics.single.value, 3)
    (0.667, 1.333, 0.667)
    """
    inside = np.asarray(sets)
    if inside.dtype != np.bool_ or inside.ndim != 2 or not len(inside):
        raise ValueError(f"sets must be bools [N, K], got {inside.dtype} {list(inside.shape)}")
    return SetTally(inside.shape[1]).update(inside, labels).evaluation(level)


class SetTally:
    """Prediction sets added up chunk by chunk: memory is O(K).

    Parameters
    ----------
    n_classes
        K.

    Examples
    --------
    >>> tally = SetTally(2).update([[True, False]], [0]).update([[True, True]], [1])
    >>> tally.evaluation().size.value
    1.5
    """

    def __init__(self, n_classes: int) -> None:
        self.n_classes = n_classes
        self.hits, self.counts = np.zeros(n_classes, np.int64), np.zeros(n_classes, np.int64)
        self.sizes = [Moments() for _ in range(n_classes)]
        self.size_hits, self.size_counts = np.zeros(n_classes + 1, np.int64), np.zeros(n_classes + 1, np.int64)

    def update(self, sets: object, labels: object) -> SetTally:
        """Add sets, bool `[N, K]`, and the true classes `[N]`; return the tally."""
        inside, truth = np.asarray(sets), as_classes("labels", labels)
        if inside.dtype != np.bool_ or inside.shape != (len(truth), self.n_classes):
            raise ValueError(
                f"sets must be bools [N, {self.n_classes}], as many as labels, got {inside.dtype} {list(inside.shape)} "
                f"and {len(truth)}"
            )
        if len(truth) and (truth.min() < 0 or truth.max() >= self.n_classes):
            raise ValueError(f"labels must be in [0, {self.n_classes - 1}], got {truth.min()} to {truth.max()}")
        hit, size = inside[np.arange(len(truth)), truth], inside.sum(axis=1)
        self.counts += np.bincount(truth, minlength=self.n_classes)
        self.hits += np.bincount(truth[hit], minlength=self.n_classes)
        for k in np.unique(truth):
            self.sizes[k] += Moments.of(size[truth == k].astype(np.float64))
        self.size_counts += np.bincount(size, minlength=self.n_classes + 1)
        self.size_hits += np.bincount(size[hit], minlength=self.n_classes + 1)
        return self

    def evaluation(self, level: float = 0.95) -> SetEvaluation:
        """Return the metrics of all sets so far, with intervals of confidence level `level`."""
        n = int(self.counts.sum())
        if not n:
            raise ValueError("there are no sets to measure")

        def share(k: int, of: int) -> Estimate:
            low, high = clopper_pearson(k, of, level)
            return Estimate(k / of, float(low), float(high))

        def mean_size(moments: Moments) -> Estimate:
            return mean_interval(moments, level, low=0, high=self.n_classes)

        sizes = {s: int(self.size_counts[s]) for s in np.flatnonzero(self.size_counts).tolist()}
        by_class = list(zip(self.hits.tolist(), self.counts.tolist(), self.sizes, strict=True))
        return SetEvaluation(
            n,
            share(int(self.hits.sum()), n),
            mean_size(sum(self.sizes, Moments())),
            share(sizes.get(0, 0), n),
            share(sizes.get(1, 0), n),
            tuple(share(hits, count) if count else None for hits, count, _ in by_class),
            tuple(mean_size(moments) if count else None for _, count, moments in by_class),
            level,
            tuple(self.counts.tolist()),
            {s: share(int(self.size_hits[s]), count) for s, count in sizes.items()},
            sizes,
        )
