r"""How far to trust a calibration error: intervals of ECE, OE, RMS error and MCE from the sums of the bins alone.

**What they are intervals of.** The bins are fixed. For a new sample let :math:`D` be its confidence less 1 if it is
classified right and less 0 if not, :math:`p_b` the probability that its confidence falls in bin b, :math:`c_b` its mean
confidence there and :math:`\delta_b = E[D \mid b]`, the gap. The intervals are of

.. math::
    \mathrm{ECE} = \sum_b p_b |\delta_b|, \quad \mathrm{OE} = \sum_b p_b c_b \max(\delta_b, 0), \quad
    \mathrm{RMS} = \Big(\sum_b p_b \delta_b^2\Big)^{1/2}, \quad \mathrm{MCE} = \max_b |\delta_b|,

the last over bins that hold a sample. (The error of a finer division, or of none, is another quantity.)

**The upper end of ECE, OE and RMS.** Each is the largest mean that weights of the bins can give: :math:`\mathrm{ECE} =
\max_s E[s_b D]` over signs :math:`s_b = \pm 1`, and the estimate is the same maximum over the samples. Whatever the
true signs :math:`s^*` are, the sample mean of :math:`W = s^*_b D` is at most the estimate :math:`\hat e`, and it is a
mean of n independent numbers with expectation e. So the upper end of a *mean*, with :math:`\hat e` in its place, covers
e: no correction for many bins, and none for bins with few samples or with none. (OE: weights 0 and :math:`c_b`. RMS:
weights whose mean square is 1.) The variance of W is :math:`E[D^2] - e^2`, in which :math:`E[D^2]` is estimated and
allowed to grow with the error, as mistakes that these samples happen not to hold would make it. The end is the root
:math:`e > \hat e` of a quadratic, as in Wilson's interval:

.. math:: (e - \hat e)^2 = \frac{z^2}{n} \left(\overline{D^2} + (e - \hat e) - e^2\right)

**The lower end of ECE and OE.** Chance opens gaps, so the estimate lies too high. With :math:`\sigma` the standard
deviation of a bin's part :math:`G = \hat p_b \hat\delta_b` and :math:`B_\sigma(G) = E|G + \sigma\varepsilon| - |G| =
2\sigma(\varphi(t) - t\Phi(-t))`, :math:`t = |G|/\sigma`, what resampling would say of it, the number

.. math:: m(G) = |G| - (1 + \sqrt 2)\, B_\sigma(G)

is nowhere too high: :math:`E[m(G)] \le |p_b \delta_b|` for normal G, with equality at 0 (there :math:`E|G|` is
:math:`\sqrt{2/\pi}\,\sigma` and :math:`E|G + \sigma\varepsilon|` is :math:`\sqrt 2` times that), while m(G) is |G| for
clear gaps. The lower end is the sum over bins less z standard deviations of the sum; OE takes half of the correction.
Variances are those of accuracies with two right and two wrong added (Agresti & Coull 1998), and :math:`\sigma` in
:math:`B_\sigma` is multiplied by 1 + 1/n_b: then the inequality also holds for a bin of one or a few samples.

**The lower end of RMS** inverts a test: :math:`n \hat e^2` is a sum of squares of normal numbers, with variances
:math:`v_b` and means that add up to :math:`n e^2` as squares; it is compared with a scaled non-central χ² of that mean
and about that variance, and the end is the error at which the estimate would be its upper quantile.

**The last step** moves the ends of the three outward by 1/(2n), the continuity correction: where all samples have much
the same confidence an error takes steps of 1/n, and without it some steps would lie outside too often.

**MCE** has the gaps' Clopper–Pearson intervals: its lower end is the largest least gap, at a level that holds for all
bins at once (Bonferroni), its upper end the largest greatest gap, for which the level of one bin does, since the bin
with the largest true gap is one. What confidences vary by within a bin, beyond the accuracy, is added to both.

`benchmarks/coverage.py` measures how often they hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from scipy.special import betaincinv, chndtrinc, stdtrit

from vicinal.metrics.chunks import Array
from vicinal.metrics.intervals import Estimate, confidence_level, z_of
from vicinal.metrics.reliability import (
    BinSums,
    ReliabilityTable,
    added_by_chance,
    calibration_mse,
    expected_error,
    maximum_error,
    overconfidence_error,
)

#: Of the bins of two models and their squared gaps: how far chance may have raised the error of each more than that of
#: the other, `[...]`, as the mean over seeds.
ChanceGaps: TypeAlias = Callable[[Sequence[BinSums], Sequence[Array]], tuple[Array, Array]]


def error_estimates(table: ReliabilityTable, level: float = 0.95) -> dict[str, Estimate]:
    """Return ECE, OE, MCE, RMS error and the bias-corrected ECE and RMS with their intervals, from a table alone.

    So a stream too large to keep has intervals as well; they take the same time for ten samples as for a billion. See
    `vicinal.metrics.error_intervals` for what they are intervals of, and why they hold.

    Returns
    -------
    dict[str, Estimate]
        The errors by the names that they have in `METRICS`.

    Examples
    --------
    >>> table = ReliabilityTable.from_confidences([0.9] * 1000, [True] * 800 + [False] * 200)
    >>> print(error_estimates(table)["ece"])
    0.1000 [0.0747, 0.1268]
    """
    values = {"ece": table.ece(), "oe": table.oe(), "mce": table.mce(), "rms": table.rms()}
    ends = error_ends(table.bins, squared_gaps(table), level)
    # The ends are kept around the value: rounding, and corrections of a gap of 0, could leave it outside by a little.
    estimates = {
        name: Estimate(value, min(float(ends[name][0]), value), max(float(ends[name][1]), value))
        for name, value in values.items()
    }
    # Both estimate the same error; the interval has its bias removed already.
    for name, debiased in (("ece", table.ece_debiased()), ("rms", table.rms_debiased())):
        of = estimates[name]
        estimates[f"{name}_debiased"] = Estimate(debiased, min(of.low, debiased), max(of.high, debiased))
    return estimates


def squared_gaps(table: ReliabilityTable) -> Array:
    """Return the sum over each bin's samples of (confidence − [right])², `[n_bins]`."""
    # (c − 1)² = c² − 2c + 1 for the right ones.
    squares: Array = table.squares.sum(axis=1) - 2 * table.sums[:, 1] + table.counts[:, 1]
    return np.maximum(squares, 0)


def error_ends(bins: BinSums, squared: Array, level: float) -> dict[str, tuple[Array, Array]]:
    """Return the ends (low, high) of ECE, OE, RMS and MCE by name, each `[...]`, from sums `[..., n_bins]`.

    Parameters
    ----------
    bins
        Counts, summed confidences and numbers right of the bins.
    squared
        Summed (confidence − [right])² of the bins.
    level
        Confidence level of the intervals, in (0, 1).
    """
    z, n = z_of(level), bins.count.sum(axis=-1)
    gap, variance = _gap(bins), safe_variance(bins, squared)
    share, confidence = bins.count / n[..., None], _per(bins.confidence, bins)
    chance = chance_gaps(bins, squared)
    ends = {}
    for name, value, weight, bias in (
        ("ece", expected_error(bins), np.ones_like(confidence), chance),
        ("oe", overconfidence_error(bins), confidence, confidence * chance / 2),
    ):
        second = (share * weight**2 * (variance + gap**2)).sum(axis=-1)  # of W, with the variances made safe
        spread = np.sqrt(np.maximum(second - value**2, 0) / n)
        observed = (weight**2 * squared).sum(axis=-1) / n
        low = value - bias.sum(axis=-1) - z * spread - 1 / (2 * n)
        ends[name] = (np.maximum(low, 0), upper_end(value, observed, n, z))
    return {**ends, "rms": _rms_ends(bins, gap, variance, level), "mce": _mce_ends(bins, gap, squared, level)}


def chance_gaps(bins: BinSums, squared: Array) -> Array:
    r"""Return :math:`(1 + \sqrt 2)\,B_\sigma(G)`, what chance may add to each bin's part of ECE, `[..., n_bins]`."""
    part = (bins.confidence - bins.correct) / bins.count.sum(axis=-1)[..., None]
    return (1 + math.sqrt(2)) * added_by_chance(part, part_deviation(bins, squared))


def part_deviation(bins: BinSums, squared: Array) -> Array:
    """Return the standard deviation of each bin's part G of the error, `[..., n_bins]`, with room for few samples."""
    deviation: Array = np.sqrt(bins.count * safe_variance(bins, squared)) / bins.count.sum(axis=-1)[..., None]
    return deviation * (1 + 1 / np.maximum(bins.count, 1))


def chance_of_sum(weight: Callable[[BinSums], Array]) -> ChanceGaps:
    """Return how far chance raises a sum of the bins' parts |G|, of which each has a weight, `[..., n_bins]`.

    Chance raises |G| by at most `chance_gaps`, and those of two models by amounts that differ by no more than their G
    and their standard deviations do.
    """

    def raised(bins: Sequence[BinSums], squared: Sequence[Array]) -> tuple[Array, Array]:
        parts, deviations = _parts(bins), [part_deviation(*of) for of in zip(bins, squared, strict=True)]
        # Never more than the models differ: two with the same gaps have the same bias, and the interval must not widen
        # for it.
        apart = np.abs(parts[1] - parts[0]) + np.abs(deviations[1] - deviations[0])
        a, b = (
            (weight(of) * np.minimum(chance_gaps(of, squares), apart)).sum(axis=-1).mean(axis=-1)
            for of, squares in zip(bins, squared, strict=True)
        )
        return a, b

    return raised


def chance_of_norm(bins: Sequence[BinSums], squared: Sequence[Array]) -> tuple[Array, Array]:
    """Return the same for RMS, the norm of G/√p: chance adds the squares of the deviations to its square."""
    roots = [np.sqrt(np.maximum(of.count, 1) / of.count.sum(axis=-1, keepdims=True)) for of in bins]
    parts = [part / root for part, root in zip(_parts(bins), roots, strict=True)]
    noise = [
        np.linalg.norm(part_deviation(of, squares) / root, axis=-1)
        for of, squares, root in zip(bins, squared, roots, strict=True)
    ]
    apart = np.linalg.norm(parts[1] - parts[0], axis=-1) + np.abs(noise[1] - noise[0])
    raised = []
    for part, added in zip(parts, noise, strict=True):
        value = np.linalg.norm(part, axis=-1)
        # Twice the square, since the sample's own may be below what it is on average.
        without = np.sqrt(np.maximum(value**2 - 2 * added**2, 0))
        raised.append(np.minimum(value - without, apart).mean(axis=-1))
    return raised[0], raised[1]


def _parts(bins: Sequence[BinSums]) -> list[Array]:
    """Return each bin's part G of the error of two models, `[..., n_bins]` each."""
    return [(of.confidence - of.correct) / of.count.sum(axis=-1, keepdims=True) for of in bins]


def _rms_ends(bins: BinSums, gap: Array, variance: Array, level: float) -> tuple[Array, Array]:
    n, square = bins.count.sum(axis=-1), bins.count * gap**2
    v = np.where(bins.count > 0, variance, 0)
    total, noise, value = square.sum(axis=-1), v.sum(axis=-1), np.sqrt(calibration_mse(bins))
    # The variance where the gaps are, and of the gaps between bins, as another sample has other numbers in each.
    scale = (v * (v + square)).sum(axis=-1) / (noise + total)
    uneven = np.maximum((square * gap**2).sum(axis=-1) - total**2 / n, 0) / (noise + total)
    scale = scale + uneven / 4
    # The inverse in the non-centrality: the error at which so large a sum of squares is just not surprising.
    root = chndtrinc(total / scale, noise / scale, (1 + level) / 2)
    root = np.where(root > 1e-9, root, 0)  # where no error explains it, the root finder gives NaN or a tiny number
    low = np.maximum(np.sqrt(root * scale / n) - 1 / (2 * n), 0)
    return np.minimum(low, value), upper_end(value, scale + value**2, n, z_of(level))


def _mce_ends(bins: BinSums, gap: Array, squared: Array, level: float) -> tuple[Array, Array]:
    filled, tail = bins.count > 0, (1 - confidence_level(level)) / 2
    right, count = bins.correct, bins.count
    rate, confidence = _per(right, bins), _per(bins.confidence, bins)
    # Where confidences differ within a bin, a gap may vary more than the accuracy, also where all are right.
    spread = np.maximum(_per(squared, bins) - gap**2, 0)
    stretch = np.sqrt(np.maximum(spread / np.where((right > 0) & (right < count), rate * (1 - rate), np.inf), 1))
    more = np.maximum(spread - rate * (1 - rate), 0) / np.maximum(count, 1)

    def ends(tail: Array) -> tuple[Array, Array]:
        low = np.where(right > 0, betaincinv(np.maximum(right, 0.5), count - right + 1, tail), 0)
        high = np.where(right < count, betaincinv(right + 1, np.maximum(count - right, 0.5), 1 - tail), 1)
        beside = stdtrit(np.maximum(count - 1, 1), tail) ** 2 * more
        below, above = (np.maximum(reach * stretch, np.sqrt(reach**2 + beside)) for reach in (rate - low, high - rate))
        return rate - below, rate + above

    # Bonferroni over filled bins only: empty ones make no claim, and would widen the interval for nothing.
    low, high = ends(tail / np.maximum(filled.sum(axis=-1), 1)[..., None])
    least = np.where(filled, np.maximum(low - confidence, confidence - high), 0).max(axis=-1)
    low, high = ends(np.asarray(tail))
    most = np.where(filled, np.maximum(high - confidence, confidence - low), 0).max(axis=-1)
    return np.maximum(least, 0), np.clip(most, maximum_error(bins), 1)


def upper_end(value: Array, second: Array, n: Array, z: float) -> Array:
    """Return the root e above `value` of (e − value)² = z²/n (second + (e − value) − e²), plus 1/(2n), at most 1."""
    t = z**2 / n
    # Solved in e − value, not in e: near 0 the difference of two large roots would lose digits.
    b, c = t * (1 - 2 * value) / 2, t * np.maximum(second - value**2, 0)
    return np.minimum(value + (b + np.sqrt(b**2 + (1 + t) * c)) / (1 + t) + 1 / (2 * n), 1)


def safe_variance(bins: BinSums, squared: Array) -> Array:
    """Return the variance of D in each bin as if two right and two wrong samples had been added."""
    n, rate = bins.count, _per(bins.correct, bins)
    spread = np.maximum(squared - bins.count * _gap(bins) ** 2, 0)
    safe: Array = (spread + 1 + 4 * n / (n + 4) * (rate - 0.5) ** 2) / (n + 4)
    return safe


def _gap(bins: BinSums) -> Array:
    return _per(bins.confidence - bins.correct, bins)


def _per(total: Array, bins: BinSums) -> Array:
    mean: Array = total / np.maximum(bins.count, 1)
    return mean
