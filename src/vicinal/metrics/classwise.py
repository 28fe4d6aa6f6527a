r"""Classwise calibration: the probability of *every* class is checked, not only that of the predicted one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._arrays import Values
from vicinal._checks import ArgumentError, integer
from vicinal.metrics import kernels
from vicinal.metrics.chunks import Array, Chunk, Floats, open_predictions
from vicinal.metrics.reliability import Additive, BinSums, ReliabilityTable, expected_error

#: Bins of all classes together; each takes 24 bytes.
_MOST_CELLS = 100_000_000


def classwise_ece(
    labels: ArrayLike,
    *,
    logits: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    n_bins: int = 15,
    edges: ArrayLike | None = None,
) -> float:
    r"""Return the classwise expected calibration error.

    .. math:: \frac1K \sum_k \sum_b \frac{n_{kb}}{N} \left|\bar p_{kb} - \bar y_{kb}\right|

    where bin b of class k holds the :math:`n_{kb}` samples whose probability of k falls in it, with mean
    probability :math:`\bar p_{kb}`, of which the fraction :math:`\bar y_{kb}` has label k. Bins are
    those of `ReliabilityTable`.

    Returns
    -------
    float
        The error, in [0, 1]; 0 is best.

    References
    ----------
    Kull et al., "Beyond temperature scaling", NeurIPS 2019, Equation 3; Nixon et al., "Measuring calibration in deep
    learning", 2019 (static calibration error).

    Examples
    --------
    >>> round(classwise_ece([0, 1], probs=[[0.8, 0.2], [0.2, 0.8]]), 6)
    0.2
    """
    given = open_predictions(labels, logits, probs)
    return ClasswiseTable(given.n_classes, n_bins, edges=edges).update(labels, logits=logits, probs=probs).ece()


class ClasswiseTable(Additive):
    """A reliability table for each class's probability; streams and merges like `ReliabilityTable`.

    Parameters
    ----------
    n_classes
        K.
    n_bins, edges
        As in `ReliabilityTable`; the same for every class.

    Attributes
    ----------
    counts, sums, correct
        Samples (int64), summed probability (float64) and samples whose label is the class (int64), each
        `[K, n_bins]`.

    Examples
    --------
    >>> table = ClasswiseTable(2).update([0, 1], probs=[[0.8, 0.2], [0.2, 0.8]])
    >>> table.per_class().round(6).tolist()
    [0.2, 0.2]
    """

    def __init__(self, n_classes: int, n_bins: int = 15, *, edges: ArrayLike | None = None) -> None:
        self.n_classes = integer("n_classes", n_classes, low=1)
        self._bins = ReliabilityTable(n_bins, edges=edges)
        shape = (self.n_classes, self.n_bins)
        if self.n_classes * self.n_bins > _MOST_CELLS:
            allowed = f"an integer of at most {max(_MOST_CELLS // self.n_classes, 1):,} for {self.n_classes:,} classes"
            raise ArgumentError("n_bins", self.n_bins, allowed)
        self.counts: NDArray[np.int64] = np.zeros(shape, np.int64)
        self.sums: Array = np.zeros(shape)
        self.correct: NDArray[np.int64] = np.zeros(shape, np.int64)

    @property
    def edges(self) -> Array:
        """The edges of the bins, `[n_bins + 1]`."""
        return self._bins.edges

    @property
    def n_bins(self) -> int:
        """The number of bins of each class."""
        return self._bins.n_bins

    @property
    def n(self) -> int:
        """The number of samples."""
        # Every sample has a probability of every class, so that one class counts them all.
        return int(self.counts[0].sum())

    def update(
        self, labels: ArrayLike, *, logits: ArrayLike | None = None, probs: ArrayLike | None = None
    ) -> ClasswiseTable:
        """Add predictions `[N, K]` and return the table; after an error it is what it was before."""
        given = open_predictions(labels, logits, probs)
        if given.n_classes != self.n_classes:
            raise ValueError(f"the table has {self.n_classes} classes, got predictions of {given.n_classes}")

        def binned(chunks: Iterator[Chunk]) -> ClasswiseTable:
            part = self.empty()
            for chunk in chunks:
                part.add(chunk)
            return part

        for part in given.map_blocks(binned):
            self.merge_(part)
        return self

    def __repr__(self) -> str:
        error = f", ece={self.ece():.4g}" if self.n else ""
        return f"ClasswiseTable(n={self.n}, n_classes={self.n_classes}, n_bins={self.n_bins}{error})"

    def per_class(self) -> Array:
        """Return the expected calibration error of each class's probability, `[K]`."""
        if not self.n:
            raise ValueError("the table is empty: there is nothing to measure; update it first")
        return expected_error(BinSums(self.counts.astype(np.float64), self.sums, self.correct.astype(np.float64)))

    def ece(self) -> float:
        """Return the mean over classes of `per_class`."""
        return float(self.per_class().mean())

    def add(self, chunk: Chunk) -> None:
        """Add samples that are already checked."""
        probs: Floats = chunk.scores if chunk.exp is None else chunk.probs()
        compiled = kernels.loaded()
        parts: tuple[Values, ...]
        if compiled and self._bins.exact_product(probs.dtype):
            parts = compiled.add_classes(probs, chunk.labels, self.n_bins)
        else:
            parts = self._cells(probs, chunk.labels)
        totals: tuple[Values, ...] = (self.counts, self.sums, self.correct)
        for total, cells in zip(totals, parts, strict=True):
            cells[:, 1] += cells[:, 0]  # probability 0 belongs to the first bin
            total += cells[:, 1:]

    def _cells(self, probs: Floats, labels: NDArray[np.int64]) -> tuple[Values, Values, Values]:
        """Return counts, sums, and how often the label is the class, by class and edges below, `[K, n_bins + 1]`."""
        flat, shape = probs.ravel(), (self.n_classes, self.n_bins + 1)
        cell = self._bins.edges_below(flat).reshape(probs.shape)
        # One bincount for all classes: each has a range of cells of its own.
        cell += np.arange(shape[0]) * shape[1]
        index, size = cell.astype(np.intp), shape[0] * shape[1]
        every, true = index.ravel(), index[np.arange(len(labels)), labels]
        counts, correct = (np.bincount(cells, None, size).reshape(shape) for cells in (every, true))
        return counts, np.bincount(every, flat, size).reshape(shape), correct

    def merge_(self, other: ClasswiseTable) -> None:
        """Take in the samples of another table with the same classes and edges."""
        if self.n_classes != other.n_classes or not np.array_equal(self.edges, other.edges):
            raise ValueError(f"only tables with the same classes and edges add up, got {self!r} and {other!r}")
        self.counts += other.counts
        self.sums += other.sums
        self.correct += other.correct

    def empty(self) -> ClasswiseTable:
        """Return a table without samples, with the same classes and edges."""
        return ClasswiseTable(self.n_classes, edges=self.edges)
