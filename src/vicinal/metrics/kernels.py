"""The inner loops of measuring, compiled by numba where `vicinal[speed]` is installed.

They give what `chunks`, `reliability`, `classwise` and `scores` compute with numpy, to the last bit; what is in doubt,
such as a row whose sum is near the tolerance, is left to numpy. Compiling takes some seconds the first time (the result
is kept on disk), so only large inputs ask for it. Where numba is installed and does not work, numpy measures alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import first_line, require

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]
#: Floats seen as unsigned integers of the same width.
Bits = NDArray[np.unsignedinteger]

#: Empty until `load` was called; then the kernels, or None where there are none. A failed try is not repeated.
_loaded: list[Kernels | None] = []


@dataclass(frozen=True)
class Kernels:
    """The compiled loops."""

    _read_many: Callable[..., bool]
    _read_few: Callable[..., bool]
    _read_columns: Callable[..., bool]
    _add: Callable[..., None]
    _classes: Callable[..., None]
    _distances: Callable[..., None]
    _misses: Callable[..., None]
    _before: Callable[..., None]
    _highest: Callable[..., None]

    def read_probs(
        self, probs: Floats, labels: NDArray[np.int64], tolerance: float, *, few: bool
    ) -> tuple[Floats, NDArray[np.bool_], NDArray[np.int64] | None] | None:
        """Return confidences, whether the first highest class is the label, and that class; None where in doubt.

        Of many classes the class is left out (None): looking for it takes longer than all the rest.
        """
        turned = few and probs.flags.f_contiguous
        given = probs.T if turned else np.ascontiguousarray(probs)
        # As unsigned integers, the bits of floats in [0, 1] keep their order, and all others are above those of 1.
        bits = given.view(np.uint32 if given.dtype == np.float32 else np.uint64)
        one, top = np.ones(1, given.dtype).view(bits.dtype)[0], np.empty(len(probs), bits.dtype)
        # The sums of numpy have other last bits: close to the tolerance it is left to them.
        arguments = given, bits, one, given.dtype.type(0.99 * tolerance), top
        if not few:
            correct = np.empty(len(probs), np.bool_)
            return (top.view(given.dtype), correct, None) if self._read_many(*arguments, labels, correct) else None
        guess = np.zeros(len(probs), np.int64)
        if turned:
            certain = self._read_columns(*arguments, np.empty(len(probs), given.dtype), guess)
        else:
            certain = self._read_few(*arguments, guess)
        return (top.view(given.dtype), guess == labels, guess) if certain else None

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
        self._classes(probs, labels, n_bins, counts.ravel(), sums.ravel(), correct.ravel())
        return counts, sums, correct

    def squared_distances(self, by_class: Floats, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the squared distance of each sample's probabilities `[K, M]` from its label, `[M]`."""
        total = np.zeros(len(labels))
        self._distances(by_class, labels, total)
        return total

    def misses(
        self, scores: Floats, labels: NDArray[np.int64], correct: NDArray[np.bool_], k: int
    ) -> NDArray[np.bool_]:
        """Return whether each label is not among the k highest scores; the first win among equals."""
        missed = np.zeros(len(scores), np.bool_)
        self._misses(scores, labels, correct, k, missed)
        return missed

    def count_before(self, by_class: Floats, labels: NDArray[np.int64], true: Floats) -> NDArray[np.int32]:
        """Return how many of the scores `[K, M]` come before that of the label; the first win among equals."""
        before = np.zeros(len(labels), np.int32)
        self._before(by_class, labels, true, before)
        return before

    def first_highest(self, scores: Floats, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the first class with the highest score, of these rows."""
        guess = np.empty(len(rows), np.int64)
        self._highest(scores, rows, guess)
        return guess


def load() -> None:
    """Have the loops compiled if numba is installed and works; afterwards `loaded` returns them."""
    if _loaded:
        return
    compiled = None
    try:
        compiled = _compiled() if find_spec("numba") is not None else None
    except (ImportError, RuntimeError) as error:  # a numba for another NumPy; no folder to keep what is compiled
        warnings.warn(f"measuring without vicinal[speed], which is slower: {first_line(error)}", stacklevel=3)
    _loaded.append(compiled)


def loaded() -> Kernels | None:
    """Return the compiled loops, or None where there are none."""
    return _loaded[0] if _loaded else None


def _compiled() -> Kernels:
    numba = require("numba", "speed")
    # The order of the sum of many classes is free, so that it runs in vectors; the sums of bins keep theirs.
    return Kernels(
        numba.njit(nogil=True, cache=True, fastmath={"reassoc"})(_read_many),
        numba.njit(nogil=True, cache=True)(_read_few),
        numba.njit(nogil=True, cache=True)(_read_columns),
        numba.njit(nogil=True, cache=True)(_add_samples),
        numba.njit(nogil=True, cache=True)(_add_all_classes),
        numba.njit(nogil=True, cache=True)(_add_squares),
        numba.njit(nogil=True, cache=True)(_find_misses),
        numba.njit(nogil=True, cache=True)(_count_before),
        numba.njit(nogil=True, cache=True)(_find_highest),
    )


# The loops below are plain Python to mypy and to a debugger. numba takes its types from the first call, not from here.


def _read_many(
    probs: Floats,
    bits: Bits,
    one: np.unsignedinteger,
    tolerance: np.floating,
    top: Bits,
    labels: Ints,
    correct: NDArray[np.bool_],
) -> bool:
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


def _read_few(
    probs: Floats, bits: Bits, one: np.unsignedinteger, tolerance: np.floating, top: Bits, guess: Ints
) -> bool:
    certain = True
    for i in range(len(probs)):
        highest, total, first = bits[i, 0], probs[i, 0], 0
        for k in range(1, probs.shape[1]):
            total += probs[i, k]
            first = k if bits[i, k] > highest else first
            highest = max(highest, bits[i, k])
        certain &= (highest <= one) & (abs(total - 1) <= tolerance)
        top[i] = highest
        guess[i] = first
    return certain


def _read_columns(
    probs: Floats,
    bits: Bits,
    one: np.unsignedinteger,
    tolerance: np.floating,
    top: Bits,
    total: Floats,
    guess: Ints,
) -> bool:
    # Class by class, as they lie in memory: a walk along rows would touch another cache line at every number.
    top[:], total[:] = bits[0], probs[0]
    for k in range(1, len(probs)):
        for i in range(len(top)):
            total[i] += probs[k, i]
            guess[i] = k if bits[k, i] > top[i] else guess[i]
            top[i] = max(top[i], bits[k, i])
    certain = True
    for i in range(len(top)):
        certain &= (top[i] <= one) & (abs(total[i] - 1) <= tolerance)
    return certain


def _add_samples(
    confidence: Floats, correct: NDArray[np.bool_], n_bins: int, counts: Ints, sums: Floats, squares: Floats
) -> None:
    for i in range(len(confidence)):
        # In float64 the product of a float32 and a number of bins is exact, so that ceil finds the bin that numpy does.
        value = np.float64(confidence[i])
        cell = 2 * int(np.ceil(value * n_bins)) + int(correct[i])
        counts[cell] += 1
        sums[cell] += value
        squares[cell] += value * value


def _add_all_classes(probs: Floats, labels: Ints, n_bins: int, counts: Ints, sums: Floats, correct: Ints) -> None:
    for i in range(len(probs)):
        for k in range(probs.shape[1]):
            value = np.float64(probs[i, k])
            above = value * n_bins
            whole = np.int64(above)
            # The ceiling, without the call that numpy's is here; a signed index would be checked for its sign.
            cell = np.uint64(k * (n_bins + 1) + whole + (above > whole))
            counts[cell] += 1
            sums[cell] += value
            correct[cell] += k == labels[i]


def _add_squares(probs: Floats, labels: Ints, total: Floats) -> None:
    # Class by class, as they lie in memory; numpy adds up in this order too, so that the last bits agree.
    for k in range(len(probs)):
        for i in range(len(labels)):
            away = np.float64(probs[k, i]) - (labels[i] == k)
            total[i] += away * away


def _find_misses(scores: Floats, labels: Ints, correct: NDArray[np.bool_], n: int, missed: NDArray[np.bool_]) -> None:
    for i in range(len(scores)):
        if correct[i]:  # it is the first
            continue
        label, before = labels[i], 0
        for k in range(scores.shape[1]):
            before += scores[i, k] > scores[i, label] or (k < label and scores[i, k] == scores[i, label])
        missed[i] = before >= n


def _count_before(scores: Floats, labels: Ints, true: Floats, before: Ints) -> None:
    for k in range(len(scores)):
        for i in range(len(labels)):
            # `|` and `&` do not branch, as `or` and `and` would at every number.
            before[i] += (scores[k, i] > true[i]) | ((scores[k, i] == true[i]) & (k < labels[i]))


def _find_highest(scores: Floats, rows: Ints, guess: Ints) -> None:
    for i in range(len(rows)):
        row, first = rows[i], 0
        highest = scores[row, 0]
        for k in range(1, scores.shape[1]):
            highest = max(highest, scores[row, k])
        for k in range(scores.shape[1] - 1, -1, -1):  # all of them: a branch out of the loop is hard to predict
            first = k if scores[row, k] == highest else first
        guess[i] = first
