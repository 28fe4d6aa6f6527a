"""The inner loops of measuring, compiled by numba where `vicinal[speed]` is installed.

They give what `chunks`, `reliability`, `classwise` and `scores` compute with numpy, to the last bit; what is in doubt,
such as a row whose sum is near the tolerance, is left to numpy. Compiling takes some seconds the first time (the result
is kept on disk), so only large inputs ask for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import require

__all__ = ["Kernels", "load", "loaded"]

Floats = NDArray[np.floating]

_loaded: list[Kernels | None] = []


@dataclass(frozen=True)
class Kernels:
    """The compiled loops."""

    _read: Callable[..., bool]
    _add: Callable[..., None]
    _classes: Callable[..., None]
    _misses: Callable[..., None]
    _highest: Callable[..., None]

    def read_probs(
        self, probs: Floats, labels: NDArray[np.int64], tolerance: float
    ) -> tuple[Floats, NDArray[np.bool_]] | None:
        """Return confidences and whether the first highest class is the label; None where a value is in doubt."""
        probs = np.ascontiguousarray(probs)
        # As unsigned integers, the bits of floats in [0, 1] keep their order, and all others are above those of 1.
        bits = probs.view(np.uint32 if probs.dtype == np.float32 else np.uint64)
        top, correct = np.empty(len(probs), bits.dtype), np.empty(len(probs), np.bool_)
        one = np.ones(1, probs.dtype).view(bits.dtype)[0]
        # The sums of numpy have other last bits: close to the tolerance it is left to them.
        certain = self._read(probs, bits, labels, one, probs.dtype.type(0.99 * tolerance), top, correct)
        return (top.view(probs.dtype), correct) if certain else None

    def add_up(
        self, confidence: Floats, correct: NDArray[np.bool_], n_bins: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Return counts, sums and sums of squares of float32 confidences by ⌈confidence · n_bins⌉ and correctness."""
        size = 2 * n_bins + 2
        counts, sums, squares = np.zeros(size, np.int64), np.zeros(size), np.zeros(size)
        self._add(confidence, correct, n_bins, counts, sums, squares)
        return counts, sums, squares

    def add_classes(
        self, probs: Floats, labels: NDArray[np.int64], n_bins: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Return counts, sums, and how often the label is the class, by class and ⌈probability · n_bins⌉."""
        shape = probs.shape[1], n_bins + 1
        counts, sums, correct = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, np.int64)
        self._classes(probs, labels, n_bins, counts, sums, correct)
        return counts, sums, correct

    def misses(
        self, scores: Floats, labels: NDArray[np.int64], correct: NDArray[np.bool_], k: int
    ) -> NDArray[np.bool_]:
        """Return whether each label is not among the k highest scores; the first win among equals."""
        missed = np.zeros(len(scores), np.bool_)
        self._misses(scores, labels, correct, k, missed)
        return missed

    def first_highest(self, scores: Floats, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the first class with the highest score, of these rows."""
        guess = np.empty(len(rows), np.int64)
        self._highest(scores, rows, guess)
        return guess


def load() -> None:
    """Have the loops compiled if numba is installed; afterwards `loaded` returns them."""
    if not _loaded:
        _loaded.append(_compiled() if find_spec("numba") is not None else None)


def loaded() -> Kernels | None:
    """Return the compiled loops, or None where there are none."""
    return _loaded[0] if _loaded else None


def _compiled() -> Kernels:
    numba: Any = require("numba", "speed")
    # The order of a row's sum is free, so that it runs in vectors; the sums of bins keep theirs.
    return Kernels(
        numba.njit(nogil=True, cache=True, fastmath={"reassoc"})(_read_rows),
        numba.njit(nogil=True, cache=True)(_add_samples),
        numba.njit(nogil=True, cache=True)(_add_all_classes),
        numba.njit(nogil=True, cache=True)(_find_misses),
        numba.njit(nogil=True, cache=True)(_find_highest),
    )


def _read_rows(probs: Any, bits: Any, labels: Any, one: Any, tolerance: Any, top: Any, correct: Any) -> bool:
    for i in range(len(probs)):
        highest, total = bits[i, 0], probs[i, 0]
        for k in range(1, probs.shape[1]):
            total += probs[i, k]
            highest = max(highest, bits[i, k])
        if highest > one or not abs(total - 1) <= tolerance:
            return False
        right = bits[i, labels[i]] == highest
        if right:
            for k in range(labels[i]):  # an earlier class that is as high comes first
                right &= bits[i, k] != highest
        top[i] = highest
        correct[i] = right
    return True


def _add_samples(confidence: Any, correct: Any, n_bins: Any, counts: Any, sums: Any, squares: Any) -> None:
    for i in range(len(confidence)):
        value = np.float64(confidence[i])
        cell = 2 * int(np.ceil(value * n_bins)) + int(correct[i])
        counts[cell] += 1
        sums[cell] += value
        squares[cell] += value * value


def _add_all_classes(probs: Any, labels: Any, n_bins: Any, counts: Any, sums: Any, correct: Any) -> None:
    for i in range(len(probs)):
        for k in range(probs.shape[1]):
            value = np.float64(probs[i, k])
            above = value * n_bins
            cell = np.int32(above)
            cell += above > cell  # the ceiling, without the call that numpy's is here
            counts[k, cell] += 1
            sums[k, cell] += value
            correct[k, cell] += k == labels[i]


def _find_misses(scores: Any, labels: Any, correct: Any, n: Any, missed: Any) -> None:
    for i in range(len(scores)):
        if correct[i]:  # it is the first
            continue
        label, before = labels[i], 0
        for k in range(scores.shape[1]):
            before += scores[i, k] > scores[i, label] or (k < label and scores[i, k] == scores[i, label])
        missed[i] = before >= n


def _find_highest(scores: Any, rows: Any, guess: Any) -> None:
    for i in range(len(rows)):
        row, first = rows[i], 0
        highest = scores[row, 0]
        for k in range(1, scores.shape[1]):
            highest = max(highest, scores[row, k])
        for k in range(scores.shape[1] - 1, -1, -1):  # all of them: a branch out of the loop is hard to predict
            first = k if scores[row, k] == highest else first
        guess[i] = first
