"""One call for the figures of a model on a test set, each with its confidence interval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import integer
from vicinal.metrics._predictions import Array, Chunk, Floats, open_predictions
from vicinal.metrics.intervals import Estimate, coverage, error_interval, mean_interval, wilson
from vicinal.metrics.reliability import (
    ReliabilityTable,
    calibration_mse,
    expected_error,
    overconfidence_error,
)
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
    n_resamples: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Return the accuracy, proper scores and calibration errors of predictions, with intervals.

    Intervals cost less than the figures: accuracy has Wilson's, NLL and Brier the normal interval of a mean, MCC that
    of the delta method, MCE that of all its bins at once (see `maximum_error_estimate`), and the other calibration
    errors are bootstrapped from the bins (see `ReliabilityTable.resample` and `error_interval`). For a single
    sample, and for an infinite NLL, they are the whole range of the figure. The same arguments give the same numbers.

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
    n_resamples, seed
        Of the bootstrap.

    Examples
    --------
    >>> print(evaluate([0, 1, 1, 0], probs=[[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]], n_bins=10))
    4 samples, 2 classes, 10 bins; 95 % intervals
    accuracy     0.7500 [0.3006, 0.9544]
    mcc          0.5774 [-0.0760, 1.0000]
    nll          0.4004 [0.0486, 0.7521]
    brier        0.2500 [0.0000, 0.5638]
    ece          0.3000 [...]
    oe           0.0900 [...]
    mce          0.6000 [0.0000, 0.7619]
    rms          0.3536 [...]
    rms_debiased 0.0000 [...]
    """
    confidence = coverage(confidence)
    integer("n_resamples", n_resamples, low=1)
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
        mce=maximum_error_estimate(table, confidence),
        **error_estimates(table, confidence, n_resamples=n_resamples, seed=seed),
        table=table,
        samples=samples,
    )


def error_estimates(
    table: ReliabilityTable, confidence: float = 0.95, *, n_resamples: int = 1000, seed: int = 0
) -> dict[str, Estimate]:
    """Return ECE, OE, RMS error and its bias-corrected form with bootstrap intervals, from a table alone.

    So a stream too large to keep has intervals as well; they take the same time for ten samples as for a billion.

    >>> table = ReliabilityTable.from_confidences([0.9] * 1000, [True] * 800 + [False] * 200)
    >>> print(error_estimates(table)["ece"])
    0.1000 [0.07..., 0.12...]
    """
    drawn = table.resample(n_resamples, seed=seed)
    ends = {
        "ece": error_interval(expected_error(drawn), table.ece(), confidence),
        "oe": error_interval(overconfidence_error(drawn), table.oe(), confidence),
        "rms": error_interval(np.sqrt(calibration_mse(drawn)), table.rms(), confidence),
    }
    if table.n == 1:
        ends = dict.fromkeys(ends, (0.0, 1.0))
    estimates = {name: Estimate(getattr(table, name)(), low, min(high, 1.0)) for name, (low, high) in ends.items()}
    # Both estimate the same error; the interval has its bias removed already.
    rms, debiased = estimates["rms"], table.rms_debiased()
    return {**estimates, "rms_debiased": Estimate(debiased, min(rms.low, debiased), max(rms.high, debiased))}


def maximum_error_estimate(table: ReliabilityTable, confidence: float = 0.95) -> Estimate:
    """Return MCE with an interval that holds for all bins at once.

    The largest of many gaps is mostly that of the bin with the fewest samples, and resampling says nothing of such a
    bin. Instead each bin's accuracy gets a Wilson interval of confidence 1 − (1 − confidence) / (number of filled
    bins), so that all hold together (Bonferroni); the ends are the largest of the least, and of the greatest, gaps.
    """
    filled = table.bin_count > 0
    each = 1 - (1 - confidence) / filled.sum()
    sure = table.bin_confidence[filled]
    low, high = (end[filled] for end in table.bin_interval(each))
    least = np.maximum(np.maximum(low - sure, sure - high), 0).max()
    greatest = np.maximum(high - sure, sure - low).max()
    return Estimate(table.mce(), float(least), float(greatest))


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
