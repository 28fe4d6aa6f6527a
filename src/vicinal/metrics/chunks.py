"""One pass over predictions of any size, a chunk at a time: the confidence of each sample, and whether it is right.

Everything here is numpy on chunks that fit in a core's cache, spread over threads for large inputs. That is
faster than whole-array operations, needs memory for the chunks only, and does not wait on a pool of threads at each
operation when the machine is busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._arrays import Values, as_array, as_classes, as_scores, is_tensor, sum_tolerance
from vicinal._checks import ArgumentError
from vicinal._memory import n_threads
from vicinal.metrics import kernels

Array: TypeAlias = NDArray[np.float64]
Floats: TypeAlias = NDArray[np.floating]
T = TypeVar("T")

#: Numbers of float32 in one thread's hands at a time, about, and half as many of float64, as which logits are computed:
#: 4 MB are few enough for the cache, and enough for threads to seldom wait for each other between calls.
CHUNK = 2**20
#: Numbers handed to a thread at a time. Blocks do not depend on the number of threads, so neither do the sums.
BLOCK = 2**22
#: The largest size of a logit.
LARGEST_LOGIT = 1e30
#: Up to this many classes a chunk is turned on its side, so that reducing over classes runs along samples.
FEW_CLASSES = 32


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some samples in a row."""

    rows: slice
    """Where they stand among all samples."""
    scores: Floats
    """Their logits or probabilities, as given (at least float32), `[M, K]`."""
    labels: NDArray[np.int64]
    """Their class numbers, `[M]`."""
    confidence: Floats
    """The highest probability of each, `[M]`: the very value given for probabilities, float64 for logits."""
    correct: NDArray[np.bool_]
    """Whether the first of the highest scores is the label's, `[M]`."""
    exp: Array | None = field(default=None, repr=False)
    """For logits z, exp(z − max z) in float64 `[M, K]`, which the scores of all metrics share; else None."""
    guess: NDArray[np.int64] | None = field(default=None, repr=False)
    """The predictions, where reading the scores gave them already."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def by_class(self) -> Floats | None:
        """The scores `[K, M]` where they lie one class after another in memory, else None."""
        layout = self.scores.flags
        return self.scores.T if layout.f_contiguous and not layout.c_contiguous else None

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """The first class with the highest score of each sample, `[M]`."""
        if self.guess is not None:
            return self.guess
        guess = self.labels.copy()
        wrong = np.flatnonzero(~self.correct)
        compiled = kernels.loaded()
        guess[wrong] = compiled.first_highest(self.scores, wrong) if compiled else self.scores[wrong].argmax(axis=1)
        return guess

    @cached_property
    def label_scores(self) -> Floats:
        """Each sample's score of its label, `[M]`."""
        return self.score_of(self.labels)

    def probs(self) -> Array:
        """Return the probabilities of all classes in float64, `[M, K]`."""
        return self.scores.astype(np.float64) if self.exp is None else self.exp * self.confidence[:, None]

    def score_of(self, classes: NDArray[np.int64]) -> Floats:
        """Return each sample's score of the class given for it, `[M]`."""
        rows, by_class = np.arange(len(self)), self.by_class
        scores: Floats = (
            self.scores[rows, classes] if by_class is None else by_class.reshape(-1).take(classes * len(self) + rows)
        )
        return scores


@dataclass(frozen=True, eq=False)
class Predictions:
    """Labels `[N]` with logits or probabilities `[N, K]`, whose values are checked as they are read."""

    labels: Values
    scores: Any  # an array, or a tensor of bfloat16, which numpy lacks
    holds_logits: bool

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.scores.shape[1])

    def chunks(self, start: int = 0, stop: int | None = None, *, edges: Array | None = None) -> Iterator[Chunk]:
        """Yield the samples from `start` to `stop`, some at a time, in order.

        Where only the bins of confidences between `edges` are wanted, exponentials of float32 logits are float32's, and
        chunks have no `exp`: confidences are right to 1e-7, and on the side of every edge on which float64 puts them.
        """
        stop = len(self) if stop is None else stop
        # Chunks of like size: a last one of a few samples would cost as many calls as a whole one.
        width = 2 if self.holds_logits or self.scores.dtype.itemsize > 4 else 1
        step = -((start - stop) // max(1, round((stop - start) * self.n_classes * width / CHUNK)))
        tolerance = sum_tolerance(self.scores.dtype)
        for first in range(start, stop, step):
            rows = slice(first, min(first + step, stop))
            labels = as_classes("labels", self.labels[rows], n_classes=self.n_classes)
            scores = as_array("scores", self.scores[rows])
            scores = scores if scores.dtype.itemsize > 4 else scores.astype(np.float32, copy=False)
            if scores.strides[0] == scores.itemsize and self.n_classes <= FEW_CLASSES:
                scores = np.asfortranarray(scores)  # one class after another already: what is read is kept so
            if self.holds_logits and edges is not None and scores.dtype == np.float32:
                yield Chunk(rows, scores, labels, *_read_quickly(scores, labels, edges))
            elif self.holds_logits:
                yield Chunk(rows, scores, labels, *_read_logits(scores, labels))
            else:
                top, correct, guess = _read_probs(scores, labels, tolerance)
                yield Chunk(rows, scores, labels, top, correct, guess=guess)

    def map_blocks(self, function: Callable[[Iterator[Chunk]], T], *, edges: Array | None = None) -> list[T]:
        """Return `function` of the chunks of each block, in order; blocks run on `n_threads` threads."""
        size = max(1, BLOCK // self.n_classes)
        if len(self) > size:
            kernels.load()
        starts = range(0, len(self), size)

        def run(start: int) -> T:
            return function(self.chunks(start, min(start + size, len(self)), edges=edges))

        threads = min(len(starts), n_threads())
        if threads == 1:
            return [run(start) for start in starts]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(run, starts))


def open_predictions(labels: ArrayLike, logits: ArrayLike | None = None, probs: ArrayLike | None = None) -> Predictions:
    """Check what shows without reading the values, and keep the arguments for `chunks`."""
    if (logits is None) == (probs is None):
        raise ValueError(f"pass exactly one of logits= and probs=, got {'both' if probs is not None else 'neither'}")
    name, given = ("logits", logits) if probs is None else ("probs", probs)
    scores, numbers = as_scores(name, given), as_array("labels", labels)
    if numbers.ndim != 1:
        raise ValueError(f"labels must have shape [N], got {list(numbers.shape)}")
    if len(numbers) != len(scores):
        raise ValueError(f"labels and {name} must have the same length, got {len(numbers)} and {len(scores)}")
    return Predictions(numbers, scores, holds_logits=probs is None)


def class_numbers(labels: ArrayLike, classes: Sequence[object] | None, scores: object) -> ArrayLike:
    """Return labels as class numbers: names become their place in `classes`, or in sorted order; numbers stay.

    >>> class_numbers(["no", "yes", "no"], None, [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]).tolist()
    [0, 1, 0]
    """
    array = np.asarray(labels) if not is_tensor(labels) else None
    named = array is not None and (
        array.dtype.kind in "US" or (array.dtype == object and isinstance(array.flat[0], str))
    )
    if array is None or not array.size or not (named or classes is not None):
        return labels
    values, n_classes = array.tolist(), as_scores("scores", scores).shape[1]
    order = sorted(set(values)) if classes is None else list(classes)
    if len(order) != n_classes:
        found = f"{len(order)}: {', '.join(map(str, order[:5]))}{', …' if len(order) > 5 else ''}"
        raise ValueError(
            f"labels name other classes than the {n_classes} columns of the scores, {found}; pass classes="
        )
    place = {name: i for i, name in enumerate(order)}
    if unknown := next((name for name in values if name not in place), None):
        raise ArgumentError("labels", unknown, f"one of the classes {', '.join(map(str, order))}")
    return np.array([place[name] for name in values])


def two_columns(scores: ArrayLike, *, are_probs: bool) -> ArrayLike:
    """Return scores of the second of two classes `[N]` as two columns; a matrix stays as it is."""
    array = as_array("probs" if are_probs else "logits", scores)
    if array.ndim != 1:
        return scores
    array = array.astype(np.float64)
    return np.stack([1 - array if are_probs else np.zeros_like(array), array], axis=1)


def _read_probs(
    probs: Floats, labels: NDArray[np.int64], tolerance: float
) -> tuple[Floats, NDArray[np.bool_], NDArray[np.int64] | None]:
    """Return confidences, whether the first highest class is the label, and that class where it is at hand."""
    compiled, few = kernels.loaded(), probs.shape[1] <= FEW_CLASSES
    quick = compiled.read_probs(probs, labels, tolerance, few=few) if compiled else None
    if quick is not None:
        return quick
    work, axis = _laid_out(probs)
    # Read as unsigned integers, the bits of floats in [0, 1] are in the same order, and those of negative numbers, of
    # numbers above 1 and of NaN are all above the bits of 1: the maximum checks the range without a pass of its own.
    bits = np.uint32 if work.dtype == np.float32 else np.uint64
    top = _highest(work.view(bits), axis).view(work.dtype)
    if top.view(bits).max() > np.ones(1, work.dtype).view(bits)[0]:
        lowest, highest = work.min(), work.max()
        if not (lowest >= 0 and highest <= 1):
            bad = "NaN" if np.isnan(lowest) else str(lowest if lowest < 0 else highest)
            raise ValueError(f"probs must be in [0, 1], got {bad}; for unnormalised scores use logits=")
        return _read_probs(probs + work.dtype.type(0), labels, tolerance)  # -0.0 is allowed, and -0.0 + 0.0 is 0.0
    # The last bits do not matter here. A matrix product would have threads of its own, which wait busily.
    total = work.sum(axis=0) if axis == 0 else np.einsum("nk->n", work)
    for end in (total.min(), total.max()):
        if abs(end - 1) > tolerance:
            raise ValueError(f"probs must sum to one in each row (within {tolerance:g}), got a row with sum {end:.6g}")
    # Two probabilities above (1 + tolerance) / 2 would sum to more than is allowed: only below can there be a tie.
    return top, _label_comes_first(work, axis, top, labels, top <= (1 + tolerance) / 2), None


def _read_logits(logits: Floats, labels: NDArray[np.int64]) -> tuple[Array, NDArray[np.bool_], Array]:
    work, axis = _laid_out(logits.astype(np.float64))
    top = _highest(work, axis)
    _check_logits(work.min(), top.max())
    correct = _label_comes_first(work, axis, top, labels, np.ones(len(labels), np.bool_))
    # Relative to the highest logit, the highest probability is exp(0) / Σ exp(z − top).
    work -= np.expand_dims(top, axis)
    np.exp(work, out=work)
    confidence: Array = 1 / _exact_order_sum(work, axis)
    exp: Values = work.T if axis == 0 else work
    return confidence, correct, exp


def _read_quickly(logits: Floats, labels: NDArray[np.int64], edges: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Return confidences and whether each prediction is right; only rows near an edge are computed in float64."""
    work, axis = _laid_out(logits)
    top = _highest(work, axis)
    _check_logits(work.min(), top.max())
    correct = _label_comes_first(work, axis, top, labels, np.ones(len(labels), np.bool_))
    # A new array, unlike in `_read_logits`: `logits` are the caller's where they were laid out already.
    away = work - np.expand_dims(top, axis)
    np.exp(away, out=away)
    confidence: Array = 1 / away.sum(axis=axis, dtype=np.float64)
    inner = edges[1:-1]  # 0 and 1 part no bins
    if len(inner):
        place = np.searchsorted(inner, confidence)
        gap = np.minimum(
            np.abs(confidence - inner[np.minimum(place, len(inner) - 1)]),
            np.abs(confidence - inner[np.maximum(place - 1, 0)]),
        )
        near = np.flatnonzero(gap < _NEAR_EDGE)
        if len(near):
            confidence[near] = _read_logits(logits[near], labels[near])[0]
    return confidence, correct


def _check_logits(low: np.floating, high: np.floating) -> None:
    # NaN and −inf show in the minimum, +inf in the maximum: two reductions in place of a mask of all numbers.
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError("logits must be finite, got NaN or inf")
    if max(-low, high) > LARGEST_LOGIT:  # squares of losses would overflow
        raise ValueError(f"logits must lie within ±{LARGEST_LOGIT:g}, got one of size {max(-low, high):g}")


#: Ten times the error of a confidence whose exponentials are float32's.
_NEAR_EDGE = 1e-6


def _laid_out(scores: Floats) -> tuple[Floats, int]:
    """Return the scores in the order that is fastest to reduce over classes, and the axis of the classes."""
    # numpy is slow to reduce many short rows. Turned, they are a few operations on long columns.
    few = scores.shape[1] <= FEW_CLASSES
    return (np.ascontiguousarray(scores.T), 0) if few else (np.ascontiguousarray(scores), 1)


def _highest(work: Values, axis: int) -> Values:
    """Return the maximum over classes; of short rows one by one numpy's `max` takes twice as long as `reduceat`."""
    if axis == 0:
        highest: Values = work.max(axis=0)
        return highest
    return np.maximum.reduceat(work.reshape(-1), np.arange(0, work.size, work.shape[1]))


def _exact_order_sum(work: Floats, axis: int) -> Floats:
    """Sum over classes, each sample in the same order whatever others are beside it.

    A matrix product, or `sum(axis=0)` of a single sample, adds up in another order in a batch of another size: the
    last bit of a confidence would depend on the batch, and a sample on the edge of a bin could change sides.
    """
    if axis == 1:
        total: Floats = work.sum(axis=1)
        return total
    total = work[0].copy()
    for row in work[1:]:
        total += row
    return total


def _label_comes_first(
    work: Floats, axis: int, top: Floats, labels: NDArray[np.int64], may_tie: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return whether the first of the highest scores is the label's, for each sample.

    An argmax is slow, so it is kept for chunks in which another class is as high. For many classes only samples whose
    label is highest and `may_tie` are looked at.
    """
    n = np.arange(len(labels))
    rows: slice | NDArray[np.intp]
    if axis == 0:
        rows, is_top = slice(None), work == top
        correct: NDArray[np.bool_] = is_top.reshape(-1).take(labels * len(labels) + n)
    else:
        correct = work.reshape(-1).take(n * work.shape[1] + labels) == top
        rows = np.flatnonzero(correct & may_tie)
        is_top = work[rows] == top[rows, None]
    if np.count_nonzero(is_top) > is_top.shape[1 - axis]:
        correct[rows] = is_top.argmax(axis=axis) == labels[rows]
    return correct
