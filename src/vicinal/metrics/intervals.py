"""How far to trust a figure: estimates with their confidence intervals, in closed form where there is one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from vicinal._checks import number
from vicinal.metrics._predictions import Array

__all__ = ["Estimate", "coverage", "mean_interval", "quantiles", "wilson", "z_of"]


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
