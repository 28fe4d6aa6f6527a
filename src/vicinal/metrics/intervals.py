"""How far to trust a figure: estimates with their confidence intervals, in closed form where there is one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from vicinal._checks import number
from vicinal.metrics._predictions import Array

__all__ = ["Estimate", "coverage", "error_interval", "mean_interval", "quantiles", "wilson", "z_of"]


@dataclass(frozen=True)
class Estimate:
    """A figure with the ends of its confidence interval.

    >>> print(Estimate(0.9, 0.85, 0.94))
    0.9000 [0.8500, 0.9400]
    >>> float(Estimate(0.9, 0.85, 0.94))
    0.9
    """

    value: float
    low: float
    high: float

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def to_dict(self) -> dict[str, float | None]:
        """Return the three numbers by name, None where one is infinite or unknown: JSON has no word for that."""
        return {name: number if math.isfinite(number) else None for name, number in vars(self).items()}


def wilson(successes: Any, n: Any, confidence: float = 0.95) -> tuple[Array, Array]:
    r"""Return Wilson's score interval of a proportion (low, high), elementwise; [0, 1] where n is 0.

    .. math:: \frac{\hat p + z^2/2n \pm z\sqrt{\hat p(1 - \hat p)/n + z^2/4n^2}}{1 + z^2/n}

    Unlike resampling it does not claim certainty when all, or none, are right.

    >>> low, high = wilson(10, 10)
    >>> round(float(low), 4), float(high)
    (0.7225, 1.0)

    References
    ----------
    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
    """
    z = z_of(confidence)
    k, m = np.asarray(successes, np.float64), np.asarray(n, np.float64)
    centre = (k + z**2 / 2) / (m + z**2)
    half = z / (m + z**2) * np.sqrt(k * (1 - k / np.maximum(m, 1)) + z**2 / 4)
    # At the ends the formula gives 0 and 1 exactly; rounding must not move them.
    return np.where(k == 0, 0, np.clip(centre - half, 0, 1)), np.where(k == m, 1, np.clip(centre + half, 0, 1))


def mean_interval(values: Array, confidence: float, *, low: float, high: float) -> Estimate:
    r"""Return the mean with :math:`\bar v \pm z s / \sqrt n`, which is what resampling the samples converges to.

    The ends are kept in the figure's range [low, high], and are that range where nothing is known of the
    spread: for one sample, or an infinite value.
    """
    mean = float(values.mean())
    if len(values) < 2 or not math.isfinite(mean):
        return Estimate(mean, low, high)
    half = z_of(confidence) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(mean, max(low, mean - half), min(high, mean + half))


def error_interval(draws: Array, value: float, confidence: float) -> tuple[float, float]:
    r"""Return the interval (low, high) of a calibration error from the errors of bootstrap resamples.

    A calibration error is biased upward, because chance opens gaps between confidence and accuracy, and a resample
    adds chance of its own: quantiles of the draws would count the bias twice, and practically never contain the 0 of
    a calibrated model. Gaps by chance and true gaps add up as squares, :math:`E[\hat e]^2 \approx e^2 + \beta^2`
    for an estimate :math:`\hat e` of the true error :math:`e`, and likewise :math:`\bar e_*^2 \approx \hat e^2 +
    \beta^2` for the mean of the draws, which gives :math:`\beta^2`. The ends are the true errors :math:`e` for
    which :math:`\hat e` is just as far from :math:`\sqrt{e^2 + \beta^2}` as a quantile :math:`q` of the draws is
    from their mean:

    .. math:: \sqrt{\max(\hat e - q_+ + \bar e_*, 0)^2 - \beta^2}, \quad \sqrt{(\hat e - q_- + \bar e_*)^2 - \beta^2}

    with 0 for the root of a negative number; the interval is stretched to contain the estimate. In simulations with
    15 bins and 200 to 10,000 samples, calibrated or not, 95 % intervals of ECE, OE and RMS held the truth in 91 to
    100 % of cases. With few samples per bin (100 bins of 1,000 samples) no resampling sees all of the bias: they
    hold it less often, and lie too high.

    Parameters
    ----------
    draws
        The error in each resample, `[R]`.
    value
        The error in the sample.
    confidence
        Coverage of the interval, in (0, 1).

    Examples
    --------
    >>> error_interval(np.array([0.03, 0.04, 0.05, 0.06, 0.07]), 0.04, 0.95)  # the bias explains it: maybe 0
    (0.0, 0.05...)
    """
    lower, upper = quantiles(draws, confidence)
    mean = float(draws.mean())
    bias = max(mean**2 - value**2, 0)
    low, high = max(value - (upper - mean), 0), value + (mean - lower)
    return min(math.sqrt(max(low**2 - bias, 0)), value), max(math.sqrt(max(high**2 - bias, 0)), value)


def quantiles(draws: Array, confidence: float) -> tuple[float, float]:
    """Return the two quantiles that leave (1 − confidence) / 2 of the draws outside on either side."""
    tail = (1 - coverage(confidence)) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def z_of(confidence: float) -> float:
    """Return the z of a two-sided normal interval: 1.96 for 0.95."""
    return float(ndtri((1 + coverage(confidence)) / 2))


def coverage(confidence: Any) -> float:
    """Return the confidence of an interval, which lies strictly between 0 and 1."""
    if not 0 < number("confidence", confidence) < 1:
        raise ValueError(f"confidence must be a number in (0, 1), got {confidence!r}")
    return float(confidence)
