r"""Smooth ECE: a calibration error without bins, from a kernel whose width the data choose.

With confidences f, :math:`y = 1` where the prediction is right and :math:`K_\sigma` the Gaussian kernel reflected at 0
and 1,

.. math::
    m_\sigma(t) = \frac1n \sum_i (y_i - f_i)\,K_\sigma(t, f_i), \qquad
    \mathrm{smECE}_\sigma = \int_0^1 |m_\sigma(t)|\,dt, \qquad \mathrm{smECE} = \sigma^* \text{ with }
    \mathrm{smECE}_{\sigma^*} = \sigma^*

:math:`\mathrm{smECE}_\sigma` never rises with σ, so there is one such σ*. It does not jump where a confidence changes,
and lies within constant factors of the least change of f that would calibrate it.

**How it is computed.** Residuals are summed in some 10,000 cells of [0, 1], so that it streams and adds up. The
reflected kernel is diagonal in the cosine basis: :math:`\cos \pi k t` is multiplied by :math:`e^{-(\pi k \sigma)^2/2}`.

**Its interval** is that of the population's value e. For each σ, :math:`\mathrm{smECE}_\sigma` is the largest mean of
:math:`(y - f)\,g(f)` over functions g, :math:`|g| \le 1`, of the form :math:`\int K_\sigma(t, \cdot)\,s(t)\,dt` with
:math:`|s| \le 1`. With the g of the population at σ = e the sample's mean is at most :math:`\mathrm{smECE}_e` of the
sample. If that lies above e there is nothing to show; if not, it is at most σ*. So the upper end of a mean around σ*
covers e, as for ECE. For the lower end, let D be :math:`\mathrm{smECE}_\sigma` of the sample, less what chance adds at
each t (see `error_intervals`) and z standard deviations. At any σ it is a lower bound of the population's: where σ is
above e that is at most e, where it is not e is at least σ. So e is at least the smaller of σ and D, and at σ = σ* that
is D.

References
----------
Błasiok & Nakkiran (2024), Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing. The interval is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import dct, idct
from scipy.special import ndtr

from vicinal.metrics.chunks import Array
from vicinal.metrics.error_intervals import squared_gaps, upper_end
from vicinal.metrics.intervals import Estimate, z_of
from vicinal.metrics.reliability import ReliabilityTable

#: Cells of [0, 1], at least: a twentieth of the smallest width that a thousand samples lead to.
CELLS = 10_000
_EXACT = 1e-6


def smooth_ece(
    confidence: ArrayLike, correct: ArrayLike, *, level: float = 0.95, sample_weight: ArrayLike | None = None
) -> Estimate:
    """Return the smooth ECE of confidences `[N]` with its interval.

    Parameters
    ----------
    confidence
        The probability of the predicted class.
    correct
        Whether the prediction is right. The probability of the second of two classes, with the label, does as well.
    level
        Confidence level of the interval.
    sample_weight
        How much each sample counts. With weights there is no interval.

    >>> round(smooth_ece([0.9] * 1000, [True] * 800 + [False] * 200).value, 4)  # 0.9 said, 0.8 right
    0.1
    """
    if sample_weight is None:
        return smooth_ece_of(ReliabilityTable.from_confidences(confidence, correct, n_bins=CELLS), level)
    # Weights need sums of w · (y − f) by cell, which a table of counts does not keep.
    f, y, w = (np.asarray(values, dtype=np.float64) for values in (confidence, correct, sample_weight))
    cell = np.clip(np.ceil(f * CELLS).astype(int) - 1, 0, CELLS - 1)
    value = population_smooth_ece(np.bincount(cell, w * (y - f), CELLS) / w.sum())
    return Estimate(value, math.nan, math.nan)


def smooth_ece_of(table: ReliabilityTable, level: float = 0.95) -> Estimate:
    """Return the smooth ECE of a reliability table of many bins, with its interval."""
    bins, n = table.bins, table.n
    residual = np.asarray(bins.correct - bins.confidence, np.float64) / n
    squared = squared_gaps(table)
    value = population_smooth_ece(residual)
    second = float(squared.sum()) / n
    # As if two right and two wrong samples had been seen: a few samples that all are right have no spread of their own.
    spread = math.sqrt(max(second - value**2, 0) / n + 1 / (n + 4) ** 2)
    z = z_of(level)

    # At least what calibrated answers vary by: a few confident ones that are right have hardly any squares.
    own = np.asarray(bins.confidence - bins.confidence**2 / np.maximum(bins.count, 1), np.float64)
    low = _debiased(residual, np.maximum(squared, own) / n**2, value, n) - z * spread - 1 / (2 * n)
    high = float(upper_end(np.asarray(value), np.asarray(second), np.asarray(n), z))
    return Estimate(value, min(max(low, 0.0), value), max(high, value))


def smooth_error(residual: Array, sigma: float) -> float:
    """Return smECE_σ of residuals (right less confidence, over n) summed in equal cells of [0, 1].

    >>> residual = np.zeros(1000)
    >>> residual[[400, 600]] = 0.1, -0.1  # two gaps of opposite sign, a fifth apart
    >>> round(smooth_error(residual, 0.01), 3), round(smooth_error(residual, 1.0), 2)
    (0.2, 0.0)
    """
    return float(np.abs(_smoothed(residual, sigma)).sum())


def population_smooth_ece(residual: Array) -> float:
    """Return the smooth ECE of a population: density times (accuracy less confidence), summed in equal cells."""
    spectrum = dct(residual)  # once for all widths that are tried
    return _fixed_point(lambda sigma: float(np.abs(_at_width(spectrum, sigma)).sum()))


def smooth_curve(table: ReliabilityTable, sigma: float) -> tuple[Array, Array, Array]:
    """Return t, the smoothed accuracy at confidence t, and the smoothed density of confidences, of many bins."""
    bins = table.bins
    count = np.maximum(_smoothed(np.asarray(bins.count, np.float64), sigma), 0)
    t = (np.arange(len(count)) + 0.5) / len(count)
    gap = _smoothed(np.asarray(bins.correct - bins.confidence, np.float64), sigma)
    # Far from all samples the density is rounding noise, and so would be the ratio.
    known = count > 1e-9 * max(count.max(), 1e-300)
    accuracy = np.where(known, t + gap / np.where(known, count, 1), np.nan)
    return t, np.clip(accuracy, 0, 1), count / count.sum() * len(count)


def smooth_band(accuracy: Array, density: Array, n: int, sigma: float, level: float = 0.95) -> tuple[Array, Array]:
    r"""Return the ends of a pointwise normal interval of the smoothed accuracy, from what `smooth_curve` returned.

    A Gaussian kernel of width σ averages over about :math:`n f(t)\, 2 \sigma \sqrt\pi` samples, f the density.
    """
    around = np.maximum(n * density * 2 * sigma * math.sqrt(math.pi), 1)
    half = z_of(level) * np.sqrt(np.clip(accuracy * (1 - accuracy), 0, None) / around + 1 / (around + 4) ** 2)
    return np.clip(accuracy - half, 0, 1), np.clip(accuracy + half, 0, 1)


def _smoothed(cells: Array, sigma: float) -> Array:
    """Return sums in cells after the reflected Gaussian kernel."""
    return _at_width(dct(cells), sigma)


def _at_width(spectrum: Array, sigma: float) -> Array:
    """Return sums in cells after the kernel of width σ, from their cosine transform."""
    # The cosine transform reflects at 0 and 1 by itself, and turns the Gaussian into a factor for each frequency: O(n
    # log n) in place of a product of matrices. Factors below e^-760 are 0 in float64, and slow to find to be so.
    kept = min(len(spectrum), int(39 / (math.pi * sigma)) + 1) if sigma > 0 else len(spectrum)
    decayed = np.zeros_like(spectrum)
    decayed[:kept] = spectrum[:kept] * np.exp(-((math.pi * sigma * np.arange(kept)) ** 2) / 2)
    smoothed: Array = idct(decayed)
    return smoothed


def _debiased(residual: Array, variance: Array, sigma: float, n: int) -> float:
    """Return smECE_σ less what chance may add to it at each t."""
    size = len(residual)
    width = 1 / size
    part = _smoothed(residual, sigma)
    # ∫ of the squared kernel: that of width σ/√2, times 1 / (2 σ √π); where an image overlaps, what the two share.
    sigma = max(sigma, width)
    square = _smoothed(variance, sigma / math.sqrt(2)) * size / (2 * sigma * math.sqrt(math.pi))
    t = (np.arange(size) + 0.5) * width
    for end in (0.0, 1.0):
        near = np.exp(-(((t - end) / sigma) ** 2))
        square = square + near * float(near @ variance) / (math.pi * sigma**2)
    deviation = np.sqrt(np.maximum(square, 0)) * width + 1e-300
    ratio = np.minimum(np.abs(part) / deviation, 40)  # beyond, chance adds nothing
    # As in `error_intervals.chance_gaps`, with a point t in place of a bin.
    density = np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    chance = (1 + math.sqrt(2)) * 2 * deviation * (density - ratio * ndtr(-ratio))
    return float((np.abs(part) - chance * (1 + 1 / n)).sum())


def _fixed_point(error: Callable[[float], float]) -> float:
    """Return the σ in [0, 1] at which a function that does not rise meets σ."""
    # Bisection, since smECE_σ does not rise in σ: there is exactly one crossing, and no derivative is needed.
    low, high = 0.0, 1.0
    while True:
        middle = (low + high) / 2
        low, high = (middle, high) if error(middle) > middle else (low, middle)
        if high - low < _EXACT:
            break
    return (low + high) / 2 if low > 0 else 0.0
