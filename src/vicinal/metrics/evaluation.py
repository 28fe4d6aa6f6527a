"""One call for the figures of a model on a test set, each with its confidence interval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal.metrics._predictions import Array, Chunk, Floats, open_predictions
from vicinal.metrics.error_intervals import error_estimates
from vicinal.metrics.intervals import Estimate, coverage, mean_interval, wilson
from vicinal.metrics.reliability import ReliabilityTable
from vicinal.metrics.scores import brier_of, mcc_estimate, nll_of, predicted

__all__ = ["Evaluation", "Samples", "evaluate"]


@dataclass(frozen=True, eq=False)
class Samples:
    """What a paired comparison needs of each sample, `[N]` each.

    Attributes
    ----------
    labels, predictions
        The class, and the first of the classes with the highest score.
    confidence
        The highest probability.
    nll, brier
        The sample's own negative log-likelihood and Brier score.
    """

    labels: NDArray[np.int64]
    predictions: NDArray[np.int64]
    confidence: Floats
    nll: Array
    brier: Array


@dataclass(frozen=True)
class Evaluation:
    """The figures of a model on a set of samples, each an `Estimate` (value, low, high). Made by `evaluate`.

    Attributes
    ----------
    n, n_classes, n_bins
        Sizes; the calibration errors depend on the number of bins.
    confidence
        Coverage of the intervals.
    accuracy, mcc, nll, brier
        See `vicinal.metrics.accuracy` and its neighbours.
    ece, oe, mce, rms, rms_debiased
        See `ReliabilityTable`.
    table
        The reliability table itself.
    samples
        Values of each sample (40 bytes each at most), which `compare` pairs up; not in `to_dict`.
    """

    n: int
    n_classes: int
    n_bins: int
    confidence: float
    accuracy: Estimate
    mcc: Estimate
    nll: Estimate
    brier: Estimate
    ece: Estimate
    oe: Estimate
    mce: Estimate
    rms: Estimate
    rms_debiased: Estimate
    table: ReliabilityTable = field(repr=False, compare=False)
    samples: Samples = field(repr=False, compare=False)

    @property
    def figures(self) -> dict[str, Estimate]:
        """The estimates by name, in order."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Estimate)}

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for a JSON file: sizes, and for each figure its value, low and high."""
        sizes = {"n": self.n, "n_classes": self.n_classes, "n_bins": self.n_bins, "confidence": self.confidence}
        return {**sizes, **{name: figure.to_dict() for name, figure in self.figures.items()}}

    def __str__(self) -> str:
        head = (
            f"{self.n:,} samples, {self.n_classes} classes, {self.n_bins} bins; {100 * self.confidence:g} % intervals"
        )
        return "\n".join([head, *(f"{name:<13}{figure}" for name, figure in self.figures.items())])


def evaluate(
    labels: Any,
    *,
    logits: Any = None,
    probs: Any = None,
    n_bins: int = 15,
    confidence: float = 0.95,
) -> Evaluation:
    """Return the accuracy, proper scores and calibration errors of predictions, with intervals.

    Intervals cost less than the figures: accuracy has Wilson's, NLL and Brier the normal interval of a mean, MCC that
    of the delta method, and the calibration errors theirs from the bins (see `vicinal.metrics.error_intervals`). For a
    single sample, and for an infinite NLL, that of a mean is the whole range of the figure.

    Parameters
    ----------
    labels
        Class numbers `[N]`.
    logits, probs
        Scores `[N, K]`, exactly one of the two; numpy, torch or lists, of any float type.
    n_bins
        Equal-width bins of the calibration errors.
    confidence
        Coverage of the intervals, in (0, 1).

    Examples
    --------
    >>> print(evaluate([0, 1, 1, 0], probs=[[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]], n_bins=10))
    4 samples, 2 classes, 10 bins; 95 % intervals
    accuracy     0.7500 [0.3006, 0.9544]
    mcc          0.5774 [-0.0760, 1.0000]
    nll          0.4004 [0.0486, 0.7521]
    brier        0.2500 [0.0000, 0.5638]
    ece          0.3000 [0.0000, 0.5615]
    oe           0.0900 [0.0000, 0.5394]
    mce          0.6000 [0.0000, 0.8750]
    rms          0.3536 [0.0000, 0.7847]
    rms_debiased 0.0000 [0.0000, 0.7847]
    """
    confidence = coverage(confidence)
    table = ReliabilityTable(n_bins)
    held = open_predictions(labels, logits, probs)
    samples = Samples(
        *(
            np.concatenate(parts)
            for parts in zip(*held.map_blocks(lambda chunks: _collected(chunks, held.holds_logits)), strict=True)
        )
    )
    correct = samples.predictions == samples.labels
    table.update_confidences(samples.confidence, correct)
    low, high = wilson(correct.sum(), len(held), confidence)
    return Evaluation(
        n=len(held),
        n_classes=held.n_classes,
        n_bins=table.n_bins,
        confidence=confidence,
        accuracy=Estimate(table.accuracy, float(low), float(high)),
        mcc=mcc_estimate(samples.labels, samples.predictions, confidence),
        nll=mean_interval(samples.nll, confidence, low=0.0, high=np.inf),
        brier=mean_interval(samples.brier, confidence, low=0.0, high=2.0),
        **error_estimates(table, confidence),
        table=table,
        samples=samples,
    )


def _collected(chunks: Iterator[Chunk], holds_logits: bool) -> tuple[NDArray[Any], ...]:
    rows = [
        (
            chunk.labels,
            predicted(chunk),
            chunk.confidence,
            nll_of(chunk, holds_logits),
            brier_of(chunk, holds_logits),
        )
        for chunk in chunks
    ]
    return tuple(np.concatenate(column) for column in zip(*rows, strict=True))
