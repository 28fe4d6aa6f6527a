r"""Several labels of 0 and 1: each is a question of two classes, and a metric is the mean over labels.

A logit z of a label stands for the logits :math:`(0, z)` of no and yes: their softmax is the sigmoid of z.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._checks import ArgumentError
from vicinal.metrics.chunks import Floats
from vicinal.metrics.intervals import Estimate, Moments, mean_interval
from vicinal.metrics.registry import METRICS

if TYPE_CHECKING:
    from vicinal.metrics.tally import Evaluation, Samples


def two_classes(
    targets: ArrayLike, *, logits: ArrayLike | None = None, probs: ArrayLike | None = None
) -> Iterator[tuple[NDArray[np.int64], Floats]]:
    """Yield the classes `[N]` and the logits or probabilities `[N, 2]` of each label.

    Targets are 0 and 1, `[N, L]` or, of a single label, `[N]`; scores have the same shape.
    """
    if (logits is None) == (probs is None):
        raise ArgumentError("probs", None if probs is None else "given", "given, or logits, but not both")
    name, given = ("logits", logits) if probs is None else ("probs", probs)
    scores, truth = _columns(name, given), _columns("targets", targets)
    if truth.shape != scores.shape:
        raise ValueError(f"targets and {name} must both be [N, L], got {list(truth.shape)} and {list(scores.shape)}")
    if not np.isin(truth, (0, 1)).all():
        raise ValueError("targets must hold 0 and 1, one for each label")
    if probs is not None and not ((scores >= 0) & (scores <= 1)).all():
        raise ValueError("probs must be in [0, 1], the probability of 1 for each label")
    other = 1 - scores if logits is None else np.zeros_like(scores)
    for k in range(scores.shape[1]):
        yield truth[:, k].astype(np.int64), np.stack([other[:, k], scores[:, k]], axis=1)


def mean_estimates(heads: Mapping[str, Evaluation], level: float) -> dict[str, Estimate | None]:
    """Return the mean over labels of each metric that all of them have.

    Those that are means over samples (accuracy, NLL, Brier) have the interval of the samples' means over labels. The
    others have the means of the labels' ends, which cover at least as much: whatever the labels share, the standard
    deviation of a mean is at most the mean of the standard deviations.
    """
    first = next(iter(heads.values()))
    known = {name: [e.metrics.get(name) for e in heads.values()] for name in first.metrics}
    whole = {name: [e for e in of if e is not None] for name, of in known.items()}
    return {name: _mean(name, of, heads, level) for name, of in whole.items() if len(of) == len(heads)}


def _mean(name: str, known: list[Estimate], heads: Mapping[str, Evaluation], level: float) -> Estimate:
    value, *ends = (float(np.mean([getattr(each, part) for each in known])) for part in ("value", "low", "high"))
    rows = [row for e in heads.values() if (row := _of_samples(name, e.samples)) is not None]
    if len(rows) < len(heads):
        return Estimate(value, *ends)
    low, high = METRICS[name].limits
    # Where all answers are right the sample says nothing of what a mistake costs: one label of a sample's accuracy.
    mistake = 1 - 1 / len(heads) if METRICS[name].mean_of_correct else None
    values, samples = np.mean(rows, axis=0), next(iter(heads.values())).samples
    together = None if samples is None else samples.groups
    moments = Moments.of(values, None if together is None else together.weights)
    if samples is not None and samples.groups is not None:
        any_wrong = mistake is None or bool(values.min() < 1)
        moments = moments.thinned(samples.groups.design_effect(values, level, any_wrong=any_wrong))
    estimate = mean_interval(moments, level, low=low, high=high, mistake=mistake)
    return Estimate(value, estimate.low, estimate.high)


def _of_samples(name: str, samples: Samples | None) -> NDArray[np.float64] | None:
    if samples is None:
        return None
    values = samples.correct if METRICS[name].mean_of_correct else samples.values.get(name)
    return None if values is None else values.astype(np.float64)


def _columns(name: str, values: object) -> NDArray[np.float64]:
    array = np.asarray(values.detach().cpu().double().numpy() if hasattr(values, "detach") else values, np.float64)
    columns = array[:, None] if array.ndim == 1 else array
    if columns.ndim != 2 or not columns.size:
        raise ValueError(f"{name} must have shape [N, L], a column for each label, got {list(array.shape)}")
    return columns
