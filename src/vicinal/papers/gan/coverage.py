"""How well samples cover a mixture of Gaussians."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal._checks import integer, number
from vicinal.metrics.intervals import Estimate, clopper_pearson
from vicinal.papers.gan.mixtures import GaussianMixture


@dataclass(frozen=True)
class Coverage:
    """What samples cover of a mixture. Made by `coverage`."""

    n: int
    """Samples."""
    n_modes: int
    """Modes there are."""
    modes: int
    """How many modes are covered."""
    high_quality: Estimate
    """The share of samples near a mode, with its Clopper–Pearson interval."""
    counts: tuple[int, ...]
    """High-quality samples of each mode."""

    def __str__(self) -> str:
        share = self.high_quality
        return (
            f"{self.modes} of {self.n_modes} modes, {100 * share.value:.1f} % "
            f"[{100 * share.low:.1f}, {100 * share.high:.1f}] of {self.n:,} samples of high quality"
        )

    def to_dict(self) -> dict[str, object]:
        """Return plain values for a JSON file."""
        return {**vars(self), "high_quality": self.high_quality.to_dict(), "counts": list(self.counts)}


def coverage(
    samples: Tensor, target: GaussianMixture, *, n_std: float = 3.0, at_least: int = 1, level: float = 0.95
) -> Coverage:
    """Return how many modes samples cover, and the share of high-quality samples.

    A sample is of high quality if it is within `n_std` standard deviations of its nearest mode, and a mode is covered
    if it has `at_least` such samples. In the plane, 98.9 % of the mixture's own samples are within 3.

    Parameters
    ----------
    samples
        `[N, 2]`; those that are not finite are of low quality.
    target
        The mixture.
    n_std, at_least
        3 and 1 in VEEGAN, with 2,500 samples.
    level
        Confidence level of the interval.

    References
    ----------
    Srivastava et al., "VEEGAN: Reducing Mode Collapse in GANs using Implicit Variational Learning", NeurIPS 2017,
    Section 4.1.

    Examples
    --------
    >>> from vicinal.papers.gan import ring_of_gaussians
    >>> ring = ring_of_gaussians()
    >>> print(coverage(torch.cat([ring.centres[:3], torch.zeros(1, 2)]), ring))
    3 of 8 modes, 75.0 % [19.4, 99.4] of 4 samples of high quality
    """
    if samples.ndim != 2 or samples.shape[1:] != target.centres.shape[1:] or len(samples) == 0:
        raise ValueError(f"samples must have shape [N, {target.centres.shape[1]}], got {list(samples.shape)}")
    points = samples.detach().to("cpu", torch.float64)
    distance, nearest = torch.cdist(points, target.centres.double()).min(dim=1)
    good = distance <= number("n_std", n_std, above=0) * target.std  # False for NaN
    counts = torch.bincount(nearest[good], minlength=len(target.centres))
    low, high = clopper_pearson(int(good.sum()), len(points), level)
    return Coverage(
        n=len(points),
        n_modes=len(counts),
        modes=int((counts >= integer("at_least", at_least, low=1)).sum()),
        high_quality=Estimate(float(good.double().mean()), float(low), float(high)),
        counts=tuple(counts.tolist()),
    )
