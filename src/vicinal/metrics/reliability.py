r"""The reliability table: how often a model is right, against its confidence.

For each bin of confidence the table keeps the number of samples, their summed confidence and how many of them
were right. Tables add up, so any stream or set of shards gives the table of the whole, and every calibration
error and reliability diagram derives from it. Write :math:`n_b` for a bin's count, :math:`\bar c_b` for its mean
confidence, :math:`\bar a_b` for its accuracy and :math:`n` for :math:`\sum_b n_b`.

Bins are half open, (lo, hi]; confidence 0 belongs to the first and 1 to the last. The edges of equal-width bins
are the float64 numbers k / n_bins, and a confidence is compared with them as the number it is: float32's 0.6 is
0.60000002384…, above the edge 9/15, and so belongs to the tenth of 15 bins, while float64's 0.6 equals 9/15 and
belongs to the ninth. Neither is ever multiplied and rounded into another bin.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from vicinal._arrays import Values, as_array
from vicinal._arrays import equal_mass_edges as inner_edges
from vicinal._checks import ArgumentError, integer, require
from vicinal.metrics import kernels
from vicinal.metrics.chunks import Array, Chunk, Floats, open_predictions
from vicinal.metrics.display import reliability_svg, side_by_side
from vicinal.metrics.intervals import clopper_pearson

#: More bins than anyone can fill, which would fill memory instead.
MOST_BINS = 1_000_000
#: Below this many bins, confidence × n_bins is exact in float64 for every float32 confidence (24 + 29 = 53 bits).
_EXACT_BINS = 2**29


@dataclass(frozen=True, eq=False)
class BinSums:
    """What is summed in each bin, `[..., n_bins]` each; leading axes (such as resamples) are free.

    Examples
    --------
    >>> from vicinal.metrics import ReliabilityTable
    >>> bins = ReliabilityTable.from_confidences([0.9, 0.8, 0.3], [True, False, False], n_bins=2).bins
    >>> bins.count.tolist(), bins.correct.tolist()
    ([1.0, 2.0], [0.0, 1.0])
    """

    count: Array
    """The number of samples."""
    confidence: Array
    """Their summed confidence."""
    correct: Array
    """How many were right."""


def expected_error(bins: BinSums) -> Array:
    r"""ECE: :math:`\sum_b \frac{n_b}{n} |\bar c_b - \bar a_b|` (Naeini et al. 2015; Guo et al. 2017), `[...]`."""
    return _per_sample(np.abs(bins.confidence - bins.correct), bins)


def expected_error_debiased(bins: BinSums) -> Array:
    r"""ECE less what chance alone contributes, and at least 0, `[...]`.

    With :math:`G_b` a bin's part of ECE and :math:`\sigma_b` its standard deviation, from :math:`\bar a_b
    (1 - \bar a_b) / (n_b - 1)`, it is :math:`\sum_b |G_b| - (1 + \sqrt 2) B_{\sigma_b}(G_b)`; see `added_by_chance`.
    The sum is unbiased for a calibrated model and where gaps are clear, and not too high on average in between. A bin
    with one sample, whose variance is unknown, contributes nothing.
    """
    n, count = bins.count.sum(axis=-1)[..., None], _at_least_one(bins.count)
    part, accuracy = np.abs(bins.confidence - bins.correct) / n, bins.correct / count
    deviation = bins.count * np.sqrt(accuracy * (1 - accuracy) / _at_least_one(bins.count - 1)) / n
    known = np.where(bins.count >= 2, part - (1 + math.sqrt(2)) * added_by_chance(part, deviation), 0)
    debiased: Array = np.maximum(known.sum(axis=-1), 0)
    return debiased


def added_by_chance(part: Array, deviation: Array) -> Array:
    r"""Return :math:`B_\sigma(G) = E|G + \sigma\varepsilon| - |G| = 2\sigma(\varphi(t) - t\Phi(-t))`, t = |G|/σ."""
    t = np.abs(part) / np.where(deviation > 0, deviation, 1)
    added: Array = 2 * deviation * (np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) - t * ndtr(-t))
    return added


def maximum_error(bins: BinSums) -> Array:
    r"""MCE: :math:`\max_b |\bar c_b - \bar a_b|` over bins that hold a sample (Naeini et al. 2015), `[...]`."""
    largest: Array = (np.abs(bins.confidence - bins.correct) / _at_least_one(bins.count)).max(axis=-1)
    return largest


def overconfidence_error(bins: BinSums) -> Array:
    r"""OE: :math:`\sum_b \frac{n_b}{n} \bar c_b \max(\bar c_b - \bar a_b, 0)` (Thulasidasan et al. 2019), `[...]`."""
    excess = np.maximum(bins.confidence - bins.correct, 0)
    return _per_sample(bins.confidence * excess / _at_least_one(bins.count), bins)


def calibration_mse(bins: BinSums) -> Array:
    r"""Squared calibration error :math:`\sum_b \frac{n_b}{n} (\bar c_b - \bar a_b)^2`, `[...]`."""
    return _per_sample((bins.confidence - bins.correct) ** 2 / _at_least_one(bins.count), bins)


def calibration_mse_debiased(bins: BinSums) -> Array:
    r"""Squared calibration error less what chance alone contributes (may be negative), `[...]`.

    .. math:: \sum_b \frac{n_b}{n} \left[(\bar c_b - \bar a_b)^2 - \frac{\bar a_b (1 - \bar a_b)}{n_b - 1}\right]

    The accuracy of a bin varies by chance, so even a perfectly calibrated model has a positive squared error;
    its expectation is subtracted. A bin with one sample, whose variance is unknown, contributes nothing.

    References
    ----------
    Kumar, Liang & Ma, "Verified Uncertainty Calibration", NeurIPS 2019, Definition 5.2; Bröcker, "Estimating
    reliability and resolution of probability forecasts through decomposition of the empirical score", 2012.
    """
    count = _at_least_one(bins.count)
    squared = (bins.confidence - bins.correct) ** 2 / count
    chance = bins.correct * (1 - bins.correct / count) / _at_least_one(bins.count - 1)
    return _per_sample(np.where(bins.count >= 2, squared - chance, 0), bins)


def equal_mass_edges(confidence: ArrayLike, n_bins: int = 15) -> Array:
    """Return the edges of bins that hold about equally many of the given confidences.

    Inner edge k is the ⌈k·N / n_bins⌉-th smallest confidence, so bin 1 … k together hold at least k / n_bins of
    the samples. Where many confidences are equal, edges coincide and are merged: there are then fewer bins.

    Parameters
    ----------
    confidence
        Confidences in [0, 1], `[N]`.
    n_bins
        The number of bins wanted.

    Returns
    -------
    Strictly increasing edges from 0 to 1, `[at most n_bins + 1]`.

    Examples
    --------
    >>> equal_mass_edges([0.5, 0.6, 0.7, 0.8, 0.9, 1.0], n_bins=3).tolist()
    [0.0, 0.6, 0.8, 1.0]
    """
    inner = inner_edges(checked_confidences(confidence), integer("n_bins", n_bins, low=1))
    return np.unique(np.concatenate([[0.0], inner, [1.0]]))


class Additive(ABC):
    """What adds up: `a + b` leaves both alone, and `sum(parts)` works."""

    def __add__(self: A, other: object) -> A:
        if not isinstance(other, type(self)):
            return NotImplemented
        total = self.empty()
        total.merge_(self)
        total.merge_(other)
        return total

    def __radd__(self: A, other: object) -> A:
        return self if other == 0 else NotImplemented  # what `sum` starts with

    @abstractmethod
    def empty(self: A) -> A:
        """Return one of the same kind without samples."""

    @abstractmethod
    def merge_(self: A, other: A) -> None:
        """Take in the samples of another, or raise a ValueError that says why the two do not fit."""


A = TypeVar("A", bound=Additive)


class ReliabilityTable(Additive):
    """Counts, summed confidences and correct predictions by bin of confidence; streams, merges, and is exact.

    Build it from predictions (`from_probs`, `from_logits`, `from_confidences`), or start empty and `update` it
    batch by batch: the counts are the same to the last sample and the sums to rounding (float64), in any order
    and any division into batches or shards. Memory is O(bins), beside one chunk of the batch at hand.

    Parameters
    ----------
    n_bins
        The number of equal-width bins: 15 by default (Guo et al. 2017; Zhang & Vaidya 2021, Appendix A); 10 in Park &
        Caragea (2022, Section 3.3), 100 in the code of Thulasidasan et al. (2019). An ECE means little without this
        number, so it is printed with it.
    edges
        Edges of other bins, strictly increasing from 0 to 1, instead of `n_bins`. **Equal-mass bins** need to see
        confidences before they are fixed: `from_probs(…, equal_mass=True)` and the like take them from the data
        at hand; to stream or merge, take them once from a first pass or a sample by `equal_mass_edges` and give
        the same edges to every table. Tables add up only if their edges are equal.

    Attributes
    ----------
    edges
        `[n_bins + 1]`, float64.
    counts, sums, squares
        The number of samples (int64), the sum of their confidences and of the squares of these (float64), each
        `[n_bins, 2]`, for wrong predictions and right ones. All else derives from these and they merge by
        addition; the squares and the division into wrong and right are what intervals need.

    Examples
    --------
    >>> table = ReliabilityTable.from_probs([1, 1], probs=[[0.0, 1.0], [0.95, 0.05]])
    >>> table
    ReliabilityTable(n=2, n_bins=15, ece=0.475)
    >>> (table + table).ece()
    0.475
    """

    def __init__(self, n_bins: int = 15, *, edges: ArrayLike | None = None) -> None:
        if edges is None:
            n_bins = integer("n_bins", n_bins, low=1)
            if n_bins > MOST_BINS:
                raise ArgumentError("n_bins", n_bins, f"an integer of at most {MOST_BINS:,}")
            self.edges: Array = np.arange(n_bins + 1) / n_bins
        else:
            self.edges = as_array("edges", edges).astype(np.float64)
            _check_edges(self.edges)
        self._equal_width = bool(np.array_equal(self.edges, np.arange(self.n_bins + 1) / self.n_bins))
        self.counts: Values = np.zeros((self.n_bins, 2), np.int64)
        self.sums: Array = np.zeros((self.n_bins, 2))
        self.squares: Array = np.zeros((self.n_bins, 2))

    @classmethod
    def from_probs(
        cls,
        labels: ArrayLike,
        probs: ArrayLike,
        *,
        n_bins: int = 15,
        edges: ArrayLike | None = None,
        equal_mass: bool = False,
    ) -> ReliabilityTable:
        """Build the table of class numbers `[N]` and probabilities `[N, K]`.

        `equal_mass=True` places the edges so that bins hold about equally many of these samples (see
        `equal_mass_edges`); it keeps one confidence per sample while it does.
        """
        if equal_mass:
            edges = _edges_of(labels, None, probs, n_bins, edges)
        return cls(n_bins, edges=edges).update(labels, probs=probs)

    @classmethod
    def from_logits(
        cls,
        labels: ArrayLike,
        logits: ArrayLike,
        *,
        n_bins: int = 15,
        edges: ArrayLike | None = None,
        equal_mass: bool = False,
    ) -> ReliabilityTable:
        """Build the table of class numbers `[N]` and logits `[N, K]`, as `update` adds them."""
        if equal_mass:
            edges = _edges_of(labels, logits, None, n_bins, edges)
        return cls(n_bins, edges=edges).update(labels, logits=logits)

    @classmethod
    def from_confidences(
        cls,
        confidence: ArrayLike,
        correct: ArrayLike,
        *,
        n_bins: int = 15,
        edges: ArrayLike | None = None,
        equal_mass: bool = False,
    ) -> ReliabilityTable:
        """Build the table of confidences `[N]` in [0, 1] and whether each prediction was right `[N]`.

        >>> ReliabilityTable.from_confidences([0.9, 0.8], [True, False], n_bins=10)
        ReliabilityTable(n=2, n_bins=10, ece=0.45)
        """
        if equal_mass:
            _refuse_both(edges)
            edges = equal_mass_edges(confidence, n_bins)
        return cls(n_bins, edges=edges).update_confidences(confidence, correct)

    def update(
        self, labels: ArrayLike, *, logits: ArrayLike | None = None, probs: ArrayLike | None = None
    ) -> ReliabilityTable:
        """Add predictions `[N, K]` and return the table; after an error it is what it was before.

        Counts are those of a softmax in float64. The exponentials of float32 logits are float32's, so that sums are
        right to one part in ten million; a `Tally` takes all of it in float64.
        """

        def binned(chunks: Iterator[Chunk]) -> ReliabilityTable:
            part = self.empty()
            for chunk in chunks:
                part.add(chunk.confidence, chunk.correct)
            return part

        # All parts are made before the first is merged: an error in a late block leaves the table as it was.
        parts = open_predictions(labels, logits, probs).map_blocks(binned, edges=self.edges)
        for part in parts:
            self.merge_(part)
        return self

    def update_confidences(self, confidence: ArrayLike, correct: ArrayLike) -> ReliabilityTable:
        """Add confidences `[N]` in [0, 1] with whether each prediction was right `[N]`, and return the table."""
        given, right = checked_confidences(confidence), checked_correct(correct)
        if len(given) != len(right):
            raise ValueError(f"confidence and correct must have the same length, got {len(given)} and {len(right)}")
        # Some at a time: the cells and squares of all samples at once would take five times the memory of what was
        # given.
        for start in range(0, len(given), _ROWS):
            self.add(given[start : start + _ROWS], right[start : start + _ROWS])
        return self

    def __len__(self) -> int:
        return self.n_bins

    def _repr_html_(self) -> str:
        """Return the reliability diagram as a notebook shows it."""
        return side_by_side(f"{self.n:,} samples", reliability_svg(self)) if self.n else "no samples"

    def __repr__(self) -> str:
        error = f", ece={self.ece():.4g}" if self.n else ""
        kind = "" if self._equal_width else ", equal_width=False"
        return f"ReliabilityTable(n={self.n}, n_bins={self.n_bins}{kind}{error})"

    @property
    def n_bins(self) -> int:
        """The number of bins."""
        return len(self.edges) - 1

    @property
    def n(self) -> int:
        """The number of samples."""
        return round(float(self.counts.sum()))

    @property
    def bins(self) -> BinSums:
        """Count, summed confidence and number right of each bin, each `[n_bins]`."""
        return BinSums(
            self.counts.sum(axis=1).astype(np.float64), self.sums.sum(axis=1), self.counts[:, 1].astype(np.float64)
        )

    @property
    def bin_count(self) -> NDArray[np.int64]:
        """The number of samples in each bin, `[n_bins]`."""
        count: NDArray[np.int64] = self.counts.sum(axis=1)
        return count

    @property
    def bin_confidence(self) -> Array:
        """The mean confidence in each bin, NaN where it is empty, `[n_bins]`."""
        return _mean(self.bins.confidence, self.bins.count)

    @property
    def bin_accuracy(self) -> Array:
        """The fraction of right predictions in each bin, NaN where it is empty, `[n_bins]`."""
        return _mean(self.bins.correct, self.bins.count)

    def bin_interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Return the Clopper–Pearson interval of each bin's accuracy (low, high), [0, 1] where it is empty."""
        return clopper_pearson(self.bins.correct, self.bins.count, level)

    @property
    def accuracy(self) -> float:
        """The fraction of all predictions that are right."""
        return float(self.filled().correct.sum() / self.n)

    @property
    def confidence(self) -> float:
        """The mean confidence of all predictions."""
        return float(self.filled().confidence.sum() / self.n)

    def ece(self) -> float:
        """Return the expected calibration error: the mean gap between confidence and accuracy.

        Plain ECE depends on the bins and is biased upward: a perfectly calibrated model with few samples per bin
        does not reach 0. Compare only errors with the same bins on samples of the same size.
        """
        return float(expected_error(self.filled()))

    def ece_debiased(self) -> float:
        """Return `ece` without what chance contributes, 0 where that is all of it; see `expected_error_debiased`."""
        return float(expected_error_debiased(self.filled()))

    def mce(self) -> float:
        """Return the maximum calibration error: the largest gap of any bin that holds a sample."""
        return float(maximum_error(self.filled()))

    def oe(self) -> float:
        """Return the overconfidence error: gaps of overconfident bins only, weighted by confidence."""
        return float(overconfidence_error(self.filled()))

    def rms(self) -> float:
        """Return the root of the mean squared gap."""
        return float(np.sqrt(calibration_mse(self.filled())))

    def rms_debiased(self) -> float:
        """Return the bias-corrected error: `rms` without what chance contributes, 0 where that is all of it.

        See `calibration_mse_debiased` for the formula (Kumar et al. 2019).
        """
        return float(np.sqrt(np.maximum(calibration_mse_debiased(self.filled()), 0)))

    def influence(self, function: Callable[[BinSums], Array]) -> tuple[Array, Array]:
        """Return how a function of the bins moves with one more sample in each cell, times n, and the cells' counts.

        A cell is a bin's wrong or right samples; one more has their mean confidence. By the delta method Σ count ·
        influence² / n² is the variance of the function, since samples of one cell differ by less than a bin's width.
        """
        # Only cells that hold samples: an empty one has no mean confidence, and no sample whose weight could grow.
        filled = np.flatnonzero(self.counts)
        where, right = filled // 2, filled % 2
        rows, step = np.arange(len(filled)), 1e-6 * self.n  # small enough for a derivative, not for rounding
        bins = self.filled()
        count, confidence, correct = (
            np.tile(part, (len(filled), 1)) for part in (bins.count, bins.confidence, bins.correct)
        )
        count[rows, where] += step
        confidence[rows, where] += step * self.sums.ravel()[filled] / self.counts.ravel()[filled]
        correct[rows, where] += step * right
        moved: Array = (function(BinSums(count, confidence, correct)) - function(bins)) * self.n / step
        return moved, self.counts.ravel()[filled].astype(np.float64)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per bin: low, high, count, confidence, accuracy, gap."""
        pandas = require("pandas", "train")
        confidence, accuracy = self.bin_confidence, self.bin_accuracy
        columns = {"low": self.edges[:-1], "high": self.edges[1:], "count": self.bin_count}
        return pandas.DataFrame(
            {**columns, "confidence": confidence, "accuracy": accuracy, "gap": confidence - accuracy}
        )

    def to_records(self) -> list[dict[str, object]]:
        """Return low, high, count, confidence and accuracy of each bin as JSON can hold them."""
        columns = (self.edges[:-1], self.edges[1:], self.bin_count, self.bin_confidence, self.bin_accuracy)
        names = ("low", "high", "count", "confidence", "accuracy")
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [
            # NaN is the only value that differs from itself, and JSON has no NaN.
            {name: None if value != value else value for name, value in zip(names, row, strict=True)}
            for row in rows
        ]

    def bin_index(self, confidence: Floats) -> NDArray[np.intp]:
        """Return the bin (from 0) of each confidence in [0, 1], exactly, `[N]`."""
        above = self.edges_below(confidence).astype(np.intp)
        return np.maximum(above - 1, 0, out=above)  # nothing lies below 0, which belongs to the first bin

    def edges_below(self, confidence: Floats) -> Array:
        """Return how many edges lie below each confidence, as whole float64 numbers: k for bin k from 1, 0 for 0."""
        wide = confidence.astype(np.float64)
        if not self._equal_width:
            return np.searchsorted(self.edges, wide, side="left").astype(np.float64)
        # For float32 the product is exact (24 bits times at most 29), and no float32 lies between k / n_bins and the
        # float64 nearest to it, from which k / n_bins differs by less than from any other float32: ceil is exact.
        below = wide * self.n_bins
        np.ceil(below, out=below)
        if not self.exact_product(confidence.dtype):
            # For float64 the product is rounded and may cross the edge below or above.
            np.minimum(below, self.n_bins, out=below)
            place = below.astype(np.intp)
            below += wide > self.edges[place]
            below -= (wide <= self.edges[place - 1]) & (place > 0)
        return below

    def exact_product(self, dtype: np.dtype[np.generic]) -> bool:
        """Return whether the bin of such confidences is ⌈confidence · n_bins⌉, computed in float64."""
        return self._equal_width and dtype == np.float32 and self.n_bins < _EXACT_BINS

    def add(self, confidence: Floats, correct: NDArray[np.bool_]) -> None:
        """Add samples that are already checked."""
        compiled = kernels.loaded()
        sums: NDArray[np.number]
        squares: NDArray[np.number]
        if compiled and self.exact_product(confidence.dtype):
            counts, sums, squares = compiled.add_up(confidence, correct, self.n_bins)
        else:
            # One bincount for bins and correctness together: the even cells are the wrong samples, the odd ones the
            # right.
            cell = self.edges_below(confidence)
            cell *= 2
            cell += correct
            index, size = cell.astype(np.intp), 2 * self.n_bins + 2
            wide = confidence.astype(np.float64)
            counts, sums = np.bincount(index, None, size), np.bincount(index, wide, size)
            wide *= wide
            squares = np.bincount(index, wide, size)
        for total, part in ((self.counts, counts), (self.sums, sums), (self.squares, squares)):
            cells = part.reshape(-1, 2)
            cells[1] += cells[0]  # confidence 0 belongs to the first bin
            total += cells[1:]

    def weighted(self, confidence: Floats, correct: NDArray[np.bool_], weights: Array) -> ReliabilityTable:
        """Return a table with the same edges in which each sample `[N]` counts so many times."""
        wide, cell = confidence.astype(np.float64), 2 * self.bin_index(confidence) + correct
        table = ReliabilityTable(edges=self.edges)
        cells = [np.bincount(cell, weights * of, 2 * self.n_bins).reshape(-1, 2) for of in (1, wide, wide**2)]
        table.counts, table.sums, table.squares = (part.astype(np.float64) for part in cells)
        return table

    def merge_(self, other: ReliabilityTable) -> None:
        """Take in the samples of another table with the same edges."""
        # Identity first: parts of one table share their edges, and comparing thousands of them would cost more than
        # adding.
        if self.edges is not other.edges and not np.array_equal(self.edges, other.edges):
            raise ValueError(f"only tables with the same edges add up, got {self!r} and {other!r}")
        self.counts += other.counts
        self.sums += other.sums
        self.squares += other.squares

    def empty(self) -> ReliabilityTable:
        """Return a table without samples, with the same edges."""
        table = copy(self)  # its edges need no second check
        table.counts, table.sums = np.zeros_like(self.counts), np.zeros_like(self.sums)
        table.squares = np.zeros_like(self.squares)
        return table

    def coarser(self, factor: int) -> ReliabilityTable:
        """Return the table in which each bin is `factor` of these equal-width ones."""
        table = ReliabilityTable(self.n_bins // factor)
        for whole, parts in ((table.counts, self.counts), (table.sums, self.sums), (table.squares, self.squares)):
            whole += parts.reshape(table.n_bins, factor, 2).sum(axis=1)
        return table

    def thinned(self, times: float) -> ReliabilityTable:
        """Return the table with all sums divided: what fewer samples with the same means would give."""
        table = ReliabilityTable(edges=self.edges)
        table.counts, table.sums, table.squares = self.counts / times, self.sums / times, self.squares / times
        return table

    def filled(self) -> BinSums:
        """Return `bins`, or say that there is nothing in them."""
        if not self.counts.any():
            raise ValueError("the table is empty: there is nothing to measure; update it first")
        return self.bins


#: Confidences binned at a time.
_ROWS = 2**16


def _per_sample(total: Array, bins: BinSums) -> Array:
    result: Array = total.sum(axis=-1) / bins.count.sum(axis=-1)
    return result


def _at_least_one(count: Array) -> Array:
    return np.maximum(count, 1)


def _mean(total: Array, count: Array) -> Array:
    mean: Array = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    return mean


def _edges_of(
    labels: ArrayLike, logits: ArrayLike | None, probs: ArrayLike | None, n_bins: int, edges: object
) -> Array:
    _refuse_both(edges)
    blocks = open_predictions(labels, logits, probs).map_blocks(
        lambda chunks: np.concatenate([chunk.confidence for chunk in chunks])
    )
    return equal_mass_edges(np.concatenate(blocks), n_bins)


def _refuse_both(edges: object) -> None:
    if edges is not None:
        raise ValueError("pass edges= or equal_mass=True, not both: equal-mass bins choose their own edges")


def _check_edges(edges: Array) -> None:
    if edges.ndim != 1 or len(edges) < 2:
        raise ValueError(f"edges must have shape [n_bins + 1] with at least 2 entries, got {list(edges.shape)}")
    if edges[0] != 0 or edges[-1] != 1 or not bool((np.diff(edges) > 0).all()):
        raise ValueError(f"edges must increase strictly from 0 to 1, got {edges.tolist()}")


def checked_confidences(value: object) -> Floats:
    """Return confidences `[N]` in [0, 1], in their own type where that is float32 or float64."""
    given = as_array("confidence", value)
    if given.ndim != 1 or len(given) == 0:
        raise ValueError(f"confidence must have shape [N] with N of at least 1, got {list(given.shape)}")
    confidence: Floats = given if given.dtype in (np.float32, np.float64) else given.astype(np.float64)
    # Written with `not`, so that NaN, which compares false with everything, is refused too.
    low, high = confidence.min(), confidence.max()
    if not (low >= 0 and high <= 1):
        raise ValueError(f"confidence must be in [0, 1], got {low if not low >= 0 else high:.10g}")
    return confidence


def checked_correct(value: object) -> NDArray[np.bool_]:
    """Return whether predictions are right `[N]`, from True and False or 1 and 0."""
    given = as_array("correct", value)
    if given.ndim != 1:
        raise ValueError(f"correct must have shape [N], got {list(given.shape)}")
    correct: NDArray[np.bool_] = given.astype(np.bool_)
    if given.dtype != np.bool_ and not np.array_equal(given, correct):
        bad = given[given != correct][0]
        raise ValueError(f"correct must be True or False (1 or 0), got {bad:g}")
    return correct
