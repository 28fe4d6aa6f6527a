r"""AUROC and average precision of a score for two classes, with intervals, from the counts at each distinct score.

Both are sums over scores in rising order, so they come block by block: memory holds one block, of any number of rows.

**Influence.** Let P be positive and N negative, and :math:`T(s)` and :math:`F(s)` of them at or above a score s. A
sample at x moves the metric by

.. math::
    \text{AUROC: } \frac{\#\{\text{neg} < x\}/N - A}{P} \ (\text{pos}), \quad
    \frac{\#\{\text{pos} > x\}/P - A}{N} \ (\text{neg}) \\
    \text{AP: } \frac1P \Big(\frac{T(x)}{T(x) + F(x)} - A + \sum_{s_j \le x} \frac{F(s_j)}{(T + F)^2(s_j)}\Big)
    \ (\text{pos}), \quad -\frac1P \sum_{s_j \le x} \frac{T(s_j)}{(T + F)^2(s_j)} \ (\text{neg})

over positives j; equal scores count half in AUROC. The sum v of the squares is the variance, that of DeLong for AUROC.
For AP nothing is centred within a class, so v holds for a number of positives that is random too.

**Interval.** The ends are those of `influence_reach`. Where samples are perfectly ranked they show no spread, so a
positive and a negative in the worst place are allowed for at the lower end, and in the best place at the upper.

**Centre.** A positive stands among those at or above its own score, which raises AP: a useless score has
:math:`P/(P + N)` plus a term :math:`\log n / n`. Precision is unbiased if the positive itself is left out,
:math:`(T - 1)/(T + F - 1)`. The ends of AP are measured from the mean of that. For a positive alone at the top it is
unknown, and counts 0 for the lower end and 1 for the upper.

A class with one sample shows no spread: the interval is then [0, 1].

References
----------
DeLong, DeLong & Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating characteristic
curves", Biometrics 1988.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._arrays import as_vector
from vicinal.metrics.chunks import Array
from vicinal.metrics.clusters import Groups
from vicinal.metrics.intervals import Estimate, Influences, Moments, confidence_level, influence_reach

#: Samples of the worst case that share the top: a single one there would cost AP more than the next ones do.
_INTRUDERS = 3


@dataclass(frozen=True, eq=False)
class Counts:
    """How many positives and negatives have each of some distinct scores, rising, `[M]` each."""

    scores: Array
    positive: NDArray[np.int64]
    negative: NDArray[np.int64]

    @classmethod
    def of(
        cls, positive: ArrayLike, negative: ArrayLike, names: tuple[str, str] = ("positive_scores", "negative_scores")
    ) -> Counts:
        """Count two sets of finite scores."""
        a, b = as_vector(names[0], positive), as_vector(names[1], negative)
        scores, place = np.unique(np.concatenate([a, b]), return_inverse=True)
        count = [np.bincount(part, minlength=len(scores)) for part in (place[: len(a)], place[len(a) :])]
        return cls(scores, count[0], count[1])

    def turned(self) -> Counts:
        """Swap the classes and the direction of the score."""
        return Counts(-self.scores[::-1], self.negative[::-1], self.positive[::-1])

    @property
    def n_positive(self) -> int:
        """P."""
        return int(self.positive.sum())

    @property
    def n_negative(self) -> int:
        """N."""
        return int(self.negative.sum())


def auroc(in_scores: ArrayLike, out_scores: ArrayLike) -> float:
    r"""Return the area under the ROC curve: the chance that an in-distribution sample scores higher.

    .. math:: P(s_{\text{in}} > s_{\text{out}}) + \tfrac12 P(s_{\text{in}} = s_{\text{out}})

    over all pairs (Mann & Whitney 1947), from ranks; equal scores share the mean of theirs. 0.5 is chance.

    Parameters
    ----------
    in_scores, out_scores
        Finite numbers, `[N]` and `[M]`; higher means more in-distribution.

    Returns
    -------
    float
        The area, in [0, 1].

    Examples
    --------
    >>> auroc([0.9, 0.8, 0.5], [0.5, 0.1])
    0.9166666666666666
    """
    return _both(Counts.of(in_scores, out_scores, ("in_scores", "out_scores")))[0].value


def average_precision(positive_scores: ArrayLike, negative_scores: ArrayLike) -> float:
    r"""Return the area under the precision–recall curve as average precision (AUPR).

    .. math:: \frac1P \sum_{i \in \text{positive}} \frac{\#\{\text{positive} \ge s_i\}}{\#\{\text{all} \ge s_i\}}

    It equals scikit-learn's `average_precision_score`, with ties. It depends on the ratio of the two classes: chance is
    P / (P + N). With in-distribution positive pass `(in_scores, out_scores)`; with out-of-distribution positive, for
    which lower scores speak, pass `(-out_scores, -in_scores)`.

    Returns
    -------
    float
        The area, in (0, 1].

    Examples
    --------
    >>> round(average_precision([0.9, 0.8, 0.5], [0.5, 0.1]), 6)
    0.916667
    """
    return _both(Counts.of(positive_scores, negative_scores))[1].value


def ranking(
    positive_scores: ArrayLike, negative_scores: ArrayLike, *, level: float = 0.95
) -> tuple[Estimate, Estimate]:
    """Return AUROC and average precision with their intervals; nothing is drawn for them.

    >>> [round(metric.value, 4) for metric in ranking([0.9, 0.8, 0.5], [0.5, 0.1])]
    [0.9167, 0.9167]
    """
    return _both(Counts.of(positive_scores, negative_scores), level)


def _both(counts: Counts, level: float = 0.95) -> tuple[Estimate, Estimate]:
    return ranking_of_counts([counts], counts.n_positive, counts.n_negative, level)


def grouped_ranking(
    scores: Array, positive: NDArray[np.bool_], groups: Groups, alone: tuple[Estimate, Estimate], level: float = 0.95
) -> tuple[Estimate, Estimate]:
    """Return AUROC and average precision of samples in groups, at least as wide as the intervals `alone`.

    The influences of a group add up to one number, and the groups are independent. A few groups may lack the one that
    counts most, so another as far from the others as any is allowed for.
    """
    counts = Counts.of(scores[positive], scores[~positive])
    p, n = counts.n_positive, counts.n_negative
    ((_, place),) = _places([counts], p, n)
    at = np.searchsorted(counts.scores, scores)
    precision = place.true / (place.true + place.false)
    of_each = (
        np.where(positive, (place.twice_below[at] / (2 * n) - alone[0].value) / p, 0)
        + np.where(positive, 0, (place.twice_above[at] / (2 * p) - alone[0].value) / n),
        np.where(positive, precision[at] - alone[1].value + place.gain[at], -place.loss[at]) / p,
    )
    found = []
    for estimate, each in zip(alone, of_each, strict=True):
        total = groups.totals(each)
        parts = [Influences(groups.effective, float((total**2).sum()), float((total**3).sum()))]
        largest = (float(np.abs(total).max()),)
        low, high = (sign * influence_reach(parts, largest, sign, level) for sign in (-1, 1))
        low, high = min(estimate.low, estimate.value + low), max(estimate.high, estimate.value + high)
        found.append(Estimate(estimate.value, max(low, 0.0), min(high, 1.0)))
    return found[0], found[1]


def ranking_of_counts(
    blocks: Iterable[Counts], n_positive: int, n_negative: int, level: float = 0.95
) -> tuple[Estimate, Estimate]:
    """Return AUROC and average precision with their intervals, of counts in blocks with rising scores."""
    return RankingSums.of(blocks, n_positive, n_negative).ranking(n_positive, n_negative, level)


@dataclass(frozen=True)
class RankingSums:
    """Sums over a range of scores, of which AUROC, average precision and their intervals are made.

    Ranges add up with `+`, in rising order: each may be summed by another process.

    Attributes
    ----------
    moments
        Of the influences: on AUROC of positives and of negatives, and on AP of both. Those on AP begin with 0 at the
        lower end of the range.
    gained, lost
        By how much influences on AP are larger above the range.
    won, found, left_out, alone, intruder, helper
        Sums over the samples.
    """

    moments: tuple[Moments, Moments, Moments, Moments] = (Moments(), Moments(), Moments(), Moments())
    gained: float = 0.0
    lost: float = 0.0
    won: float = 0.0
    found: float = 0.0
    left_out: float = 0.0
    alone: float = 0.0
    intruder: float = 0.0
    helper: float = 0.0

    @classmethod
    def of(
        cls, blocks: Iterable[Counts], n_positive: int, n_negative: int, below: tuple[int, int] = (0, 0)
    ) -> RankingSums:
        """Return the sums over a range.

        Parameters
        ----------
        blocks
            The counts in the range, in blocks with rising scores.
        n_positive, n_negative
            How many there are in all ranges.
        below
            How many positives and negatives are below the range.
        """
        p, n = n_positive, n_negative
        won = found = left_out = alone = intruder = helper = gained = lost = 0.0
        moments = [Moments()] * 4
        for block, place in _places(blocks, p, n, below):
            pos, neg, true, total = block.positive, block.negative, place.true, place.true + place.false
            won += float(pos @ place.twice_below)  # whole numbers, as long as they are exact
            found += float(pos @ (true / total))
            each = [(place.twice_below / (2 * n), pos), (place.twice_above / (2 * p), neg)]
            each += [(true / total + place.gain, pos), (-place.loss, neg)]
            moments = [sum_ + Moments.of(*values) for sum_, values in zip(moments, each, strict=True)]
            single = total == 1
            alone += float(pos @ single)
            left_out += float(pos @ np.where(single, 0, (true - 1) / np.where(single, 1, total - 1)))
            shared = pos / (total * (total + _INTRUDERS))
            intruder, helper = intruder + float(shared @ true), helper + float(shared @ place.false)
            gained, lost = float(place.gain[-1]), float(place.loss[-1])
        first, second, third, fourth = moments
        return cls((first, second, third, fourth), gained, lost, won, found, left_out, alone, intruder, helper)

    def __add__(self, higher: RankingSums) -> RankingSums:
        above = (0.0, 0.0, self.gained, -self.lost)
        moved = [replace(one, mean=one.mean + shift) for one, shift in zip(higher.moments, above, strict=True)]
        first, second, third, fourth = (a + b for a, b in zip(self.moments, moved, strict=True))
        names = ("gained", "lost", "won", "found", "left_out", "alone", "intruder", "helper")
        sums = {name: getattr(self, name) + getattr(higher, name) for name in names}
        return RankingSums((first, second, third, fourth), **sums)

    def ranking(self, n_positive: int, n_negative: int, level: float = 0.95) -> tuple[Estimate, Estimate]:
        """Return AUROC and average precision with their intervals, of the sums over all scores."""
        level, p, n = confidence_level(level), n_positive, n_negative
        area, precision = self.won / (2 * p * n), self.found / p
        if min(p, n) < 2:
            return Estimate(area, 0.0, 1.0), Estimate(precision, 0.0, 1.0)
        of_area = [Influences.of(self.moments[0], area, p), Influences.of(self.moments[1], area, n)]
        of_precision = [Influences.of(self.moments[2], precision, p), Influences.of(self.moments[3], 0.0, p)]
        low = area - influence_reach(of_area, (area / p, area / n), -1, level)
        high = area + influence_reach(of_area, ((1 - area) / p, (1 - area) / n), 1, level)
        worst, best = ((precision - p / (p + n)) / p, self.intruder / p), ((1 - precision + self.helper) / p, 0.0)
        least = self.left_out / p - influence_reach(of_precision, worst, -1, level)
        most = (self.left_out + self.alone) / p + influence_reach(of_precision, best, 1, level)
        return (
            Estimate(area, max(low, 0.0), min(high, 1.0)),
            Estimate(precision, max(min(least, precision), 0.0), min(max(most, precision), 1.0)),
        )


@dataclass(frozen=True, eq=False)
class _Place:
    """Where the scores of a block stand among all, `[M]` each."""

    twice_below: Array
    """Twice the negatives below each, and those at it."""
    twice_above: Array
    """Twice the positives above each, and those at it."""
    true: Array
    """The positives at or above each."""
    false: Array
    """The negatives at or above each."""
    gain: Array
    """Σ F / (T + F)² over the positives at or below each."""
    loss: Array
    """Σ T / (T + F)² over the positives at or below each."""


def _places(
    blocks: Iterable[Counts], n_positive: int, n_negative: int, below: tuple[int, int] = (0, 0)
) -> Iterator[tuple[Counts, _Place]]:
    below_pos, below_neg = below
    gained = lost = 0.0
    for block in blocks:
        up_to_pos, up_to_neg = below_pos + np.cumsum(block.positive), below_neg + np.cumsum(block.negative)
        true = (n_positive - up_to_pos + block.positive).astype(np.float64)
        false = (n_negative - up_to_neg + block.negative).astype(np.float64)
        each = block.positive / (true + false) ** 2
        gain, loss = gained + np.cumsum(each * false), lost + np.cumsum(each * true)
        twice_below = (2 * up_to_neg - block.negative).astype(np.float64)
        twice_above = (2 * (n_positive - up_to_pos) + block.positive).astype(np.float64)
        yield block, _Place(twice_below, twice_above, true, false, gain, loss)
        below_pos, below_neg, gained, lost = int(up_to_pos[-1]), int(up_to_neg[-1]), float(gain[-1]), float(loss[-1])
