r"""Labels that exclude nothing: each is a question of two classes, measured like any other, and the means over them.

A logit z of a label stands for the logits :math:`(0, z)` of no and yes: their softmax is the sigmoid of z.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._checks import ArgumentError
from vicinal.metrics.intervals import Estimate, coverage, mean_interval
from vicinal.metrics.registry import METRICS, brief
from vicinal.metrics.reliability import ReliabilityTable
from vicinal.metrics.tally import Evaluation, Tally


@dataclass(frozen=True)
class MultilabelEvaluation:
    """The metrics of each label, and their means over labels. Made by `evaluate_multilabel`."""

    labels: Mapping[str, Evaluation]
    """The evaluation of each label by its name, of the classes no and yes."""
    mean: Mapping[str, Estimate]
    """The mean over labels of each metric. Those that are means over samples (accuracy, NLL, Brier) have the interval
    of the samples' means over labels. The others have the means of the labels' ends, which cover at least as much:
    whatever the labels share, the standard deviation of a mean is at most the mean of the standard deviations."""

    @property
    def metrics(self) -> Mapping[str, Estimate]:
        """The means: what stands for these labels where an `Evaluation` of classes has its metrics."""
        return self.mean

    @property
    def table(self) -> ReliabilityTable:
        """The answers to all labels in one table, for a diagram; its errors are not the means over labels."""
        first, *more = (evaluation.table for evaluation in self.labels.values())
        return sum(more, first)

    @property
    def level(self) -> float:
        """The coverage of the intervals."""
        return next(iter(self.labels.values())).level

    @property
    def n(self) -> int:
        """The number of samples."""
        return next(iter(self.labels.values())).n

    @property
    def n_bins(self) -> int:
        """The bins of the calibration errors."""
        return next(iter(self.labels.values())).n_bins

    def to_dict(self) -> dict[str, object]:
        """Return plain numbers for a JSON file."""
        return {
            "mean": {name: estimate.to_dict() for name, estimate in self.mean.items()},
            "labels": {name: evaluation.to_dict() for name, evaluation in self.labels.items()},
        }

    def __str__(self) -> str:
        first = next(iter(self.labels.values()))
        shown = [metric.name for metric in brief(self.mean)]
        wide = max(len("mean"), *map(len, self.labels)) + 1
        rows = {"": shown, "mean": [str(self.mean[name]) for name in shown]}
        rows |= {label: [str(e.metrics[name]) for name in shown] for label, e in self.labels.items()}
        lines = [f"{name:<{wide}}" + "".join(f"{cell:<26}" for cell in cells) for name, cells in rows.items()]
        head = f"{self.n:,} samples, {len(self.labels)} labels, {first.n_bins} bins; {100 * first.level:g} % intervals"
        return "\n".join([head, *(line.rstrip() for line in lines)])


def evaluate_multilabel(
    targets: ArrayLike,
    *,
    logits: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    n_bins: int = 15,
    level: float = 0.95,
) -> MultilabelEvaluation:
    """Return the metrics of labels that exclude nothing: of each label, and their means.

    `targets` are 0 and 1 for each label, `[N, L]`; either `logits` or `probs`, the probability of 1, are given of each,
    `[N, L]`. `names` are those of the labels, by default "0", "1", …; bins and level are as in `evaluate`.

    >>> metrics = evaluate_multilabel([[1, 0], [0, 0]], probs=[[0.9, 0.2], [0.4, 0.6]], names=["wet", "cold"])
    >>> metrics.labels["wet"].accuracy.value, metrics.mean["accuracy"].value
    (1.0, 0.75)
    """
    coverage(level)
    tallies = label_tallies(targets, logits=logits, probs=probs, n_bins=n_bins, keep_samples=True)
    known = [str(k) for k in range(len(tallies))] if names is None else [str(name) for name in names]
    if len(known) != len(tallies) or len(set(known)) != len(known):
        raise ArgumentError("names", names, f"{len(tallies)} different names, one for each label")
    labels = {name: tally.evaluation(level) for name, tally in zip(known, tallies, strict=True)}
    every = list(labels.values())
    shared = [name for name in every[0].metrics if all(e.metrics.get(name) is not None for e in every)]
    return MultilabelEvaluation(labels, {name: _mean(name, every, level) for name in shared})


def label_tallies(
    targets: ArrayLike, *, logits: ArrayLike | None = None, probs: ArrayLike | None = None, **options: Any
) -> list[Tally]:
    """Return the tally of each label, of targets and scores `[N, L]`; the options are those of `Tally`."""
    if (logits is None) == (probs is None):
        raise ArgumentError("probs", None if probs is None else "given", "given, or logits, but not both")
    name, given = ("logits", logits) if probs is None else ("probs", probs)
    scores, truth = _numbers(name, given), _numbers("targets", targets)
    if truth.shape != scores.shape:
        raise ValueError(f"targets and {name} must both be [N, L], got {list(truth.shape)} and {list(scores.shape)}")
    if not np.isin(truth, (0, 1)).all():
        raise ValueError("targets must hold 0 and 1, one for each label")
    if probs is not None and not ((scores >= 0) & (scores <= 1)).all():
        raise ValueError("probs must be in [0, 1], the probability of 1 for each label")
    other = 1 - scores if logits is None else np.zeros_like(scores)
    tallies = []
    for k in range(scores.shape[1]):
        tally = Tally(**options)
        both, answers = np.stack([other[:, k], scores[:, k]], axis=1), truth[:, k].astype(np.int64)
        tallies.append(tally.update(answers, probs=both) if logits is None else tally.update(answers, logits=both))
    return tallies


def _mean(name: str, every: Sequence[Evaluation], level: float) -> Estimate:
    known = [estimate for e in every if (estimate := e.metrics[name]) is not None]
    value, *ends = (float(np.mean([getattr(each, part) for each in known])) for part in ("value", "low", "high"))
    rows = [_of_samples(name, e) for e in every]
    if any(row is None for row in rows):
        return Estimate(value, *ends)
    low, high = METRICS[name].limits
    values = np.mean([row for row in rows if row is not None], axis=0)
    # Where all answers are right the sample says nothing of what a mistake costs: one label of a sample's accuracy.
    mistake = 1 - 1 / len(every) if name == "accuracy" else None
    estimate = mean_interval(values, level, low=low, high=high, mistake=mistake)
    return Estimate(value, estimate.low, estimate.high)


def _of_samples(name: str, evaluation: Evaluation) -> NDArray[np.float64] | None:
    samples = evaluation.samples
    if samples is None:
        return None
    values = samples.correct if name == "accuracy" else samples.values.get(name)
    return None if values is None else values.astype(np.float64)


def _numbers(name: str, values: object) -> NDArray[np.float64]:
    array = np.asarray(values.detach().cpu().double().numpy() if hasattr(values, "detach") else values, np.float64)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"{name} must have shape [N, L], a column for each label, got {list(array.shape)}")
    return array
