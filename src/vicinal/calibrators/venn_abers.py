r"""Venn–Abers calibration: isotonic regression with the new sample among the others, once as either class.

For a new score x, isotonic regression of the held-out samples and (x, 0) gives :math:`p_0` at x, that with (x, 1) gives
:math:`p_1`. One of the two is a perfectly calibrated probability (for exchangeable samples, in expectation); the point
between them that loses least in the worst case under log loss is

.. math:: p = \frac{p_1}{1 - p_0 + p_1}

It is never 0 or 1, and the gap between :math:`p_0` and :math:`p_1` says how little the samples tell. Both are constant
between neighbouring scores: they are computed once for each held-out score and each gap, from the blocks of the fits of
all samples below and of all samples above, which are pooled with the new one.

Of two classes it is fitted to the second. Of more, each class has its own, against the rest, and the answers are
normalised.

References
----------
Vovk & Petej (2014), Venn–Abers predictors; Vovk, Petej & Fedorova (2015), Large-scale probabilistic predictors with
and without guarantees of validity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from vicinal.calibrators.base import (
    Calibrator,
    Floats,
    Labels,
    Logits,
    class_log_odds,
    joined_log_odds,
    learned_arrays,
)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class VennAbersCalibration(Calibrator):
    """Replace the probability of each class by its Venn–Abers probability, then normalise.

    It assumes no shape, is never sure, and is safer than isotonic regression for few samples. Ties and the
    normalisation can change the predicted class.

    Attributes
    ----------
    scores_ : list of M float64 arrays of shape `[S]`
        The log-odds that were seen, in order; M is 1 for two classes, else K.
    lower_, upper_ : lists of M float64 arrays of shape `[2 S + 1]`
        :math:`p_0` and :math:`p_1` below the first score, at it, between it and the second, …, above the last.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.log([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]])
    >>> calibrator = VennAbersCalibration().fit(logits, np.array([0, 1, 0, 1]))
    >>> p0, p1 = calibrator.interval(logits[3:])  # one sample of class 1, and another of the same score
    >>> p0.round(3), p1.round(3)
    (array([[0.5]]), array([[1.]]))
    >>> calibrator.predict_proba(logits[3:]).round(3)  # 1 / (1 − 1/2 + 1)
    array([[0.333, 0.667]])
    """

    scores_: list[Floats] = field(init=False, repr=False)
    lower_: list[Floats] = field(init=False, repr=False)
    upper_: list[Floats] = field(init=False, repr=False)

    def interval(self, logits: object) -> tuple[Floats, Floats]:
        """Return p₀ and p₁ of logits `[N, K]`, each `[M, N]`; of two classes those of the second."""
        self._require_fit()
        odds = class_log_odds(np.asarray(logits, dtype=np.float64))
        places = [_place(x, s) for x, s in zip(odds, self.scores_, strict=True)]
        lower, upper = (
            np.stack([ends[place] for ends, place in zip(one, places, strict=True)])
            for one in (self.lower_, self.upper_)
        )
        return lower, upper

    def _solve(self, logits: Logits, labels: Labels, weights: Floats) -> dict[str, object]:
        odds = class_log_odds(logits)
        classes = [1] if len(odds) == 1 else range(len(odds))
        fits = [venn_abers(x, labels == c, weights) for c, x in zip(classes, odds, strict=True)]
        return {name: [fit[i] for fit in fits] for i, name in enumerate(("scores_", "lower_", "upper_"))}

    def _calibrate(self, logits: Logits) -> Logits:
        p0, p1 = self.interval(logits)
        return joined_log_odds(np.log(p1) - np.log1p(-p0))  # p / (1 − p) = p₁ / (1 − p₀)

    def _restore(self, n_classes: int, **learned: object) -> dict[str, object]:
        m = 1 if n_classes == 2 else n_classes
        s, low, high = (learned_arrays(name, learned[name], m) for name in ("scores_", "lower_", "upper_"))
        for x, p0, p1 in zip(s, low, high, strict=True):
            if np.any(np.diff(x) <= 0) or not len(p0) == len(p1) == 2 * len(x) + 1:
                raise ValueError("scores_ must increase, and lower_ and upper_ hold twice as many and one more")
            if not ((p0 >= 0) & (p0 < 1) & (p1 > 0) & (p1 <= 1)).all():
                raise ValueError("lower_ must lie in [0, 1) and upper_ in (0, 1]")
        return {"scores_": s, "lower_": low, "upper_": high}


def venn_abers(scores: Floats, outcomes: NDArray[np.bool_], weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the distinct scores `[S]`, and p₀ and p₁ `[2 S + 1]` at and between them.

    >>> s, p0, p1 = venn_abers(np.array([0.0, 1.0]), np.array([False, True]), np.ones(2))
    >>> p0, p1
    (array([0. , 0. , 0. , 0.5, 0.5]), array([0.5, 0.5, 1. , 1. , 1. ]))
    """
    x, where = np.unique(scores, return_inverse=True)
    count: Floats = np.bincount(where, weights).astype(np.float64)
    hits: Floats = np.bincount(where, weights * outcomes).astype(np.float64)
    first = _block_starts(count, hits)
    last = len(x) - 1 - _block_starts(count[::-1], count[::-1] - hits[::-1])[::-1]
    n, s = np.concatenate([[0.0], np.cumsum(count)]), np.concatenate([[0.0], np.cumsum(hits)])
    # The new sample joins score i (place 2 i + 1) or stands alone before it (place 2 i).
    place = np.arange(2 * len(x) + 1)
    ends = []
    for label in (0.0, 1.0):
        low, high = place // 2, (place + 1) // 2  # the rows that are pooled with it, [low, high)
        while True:
            mean = (s[high] - s[low] + label) / (n[high] - n[low] + 1)
            start = first[np.maximum(low - 1, 0)]
            stop = last[np.minimum(high, len(x) - 1)] + 1
            with np.errstate(invalid="ignore", divide="ignore"):
                below = (s[low] - s[start]) / (n[low] - n[start])
                above = (s[stop] - s[high]) / (n[stop] - n[high])
            left = (low > 0) & (below >= mean)
            right = (high < len(x)) & (above <= mean)
            if not (left.any() or right.any()):
                break
            low, high = np.where(left, start, low), np.where(right, stop, high)
        ends.append(mean)
    return x, ends[0], ends[1]


def _block_starts(count: Floats, hits: Floats) -> NDArray[np.intp]:
    """Return for each i where the last block of the isotonic fit of rows 0, …, i begins (pool adjacent violators)."""
    starts = np.empty(len(count), np.intp)
    stack: list[tuple[int, float, float]] = []
    for i, (m, s) in enumerate(zip(count.tolist(), hits.tolist(), strict=True)):
        start = i
        while stack and stack[-1][2] * m >= s * stack[-1][1]:
            start, m_below, s_below = stack.pop()
            m, s = m + m_below, s + s_below
        stack.append((start, m, s))
        starts[i] = start
    return starts


def _place(odds: Floats, scores: Floats) -> NDArray[np.intp]:
    """Return 2 i + 1 where the log-odds are score i, 2 i where they lie before it and above the last."""
    i = np.searchsorted(scores, odds)
    equal = scores[np.minimum(i, len(scores) - 1)] == odds
    place: NDArray[np.intp] = 2 * i + equal
    return place
