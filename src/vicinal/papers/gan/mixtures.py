"""Mixtures of Gaussians in the plane, which a toy GAN learns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal import _random
from vicinal._checks import integer, number


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """Equally likely round Gaussians in the plane."""

    centres: Tensor
    """float32 `[M, 2]`."""
    std: float
    """The standard deviation of each coordinate."""

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw `n` points, float32 `[n, 2]`."""
        chosen = self.centres[_random.integers(len(self.centres), integer("n", n, low=1), generator=generator)]
        return chosen + self.std * _random.normal_like(chosen, generator=generator)


def ring_of_gaussians(n_modes: int = 8, *, radius: float = 2.0, std: float = 0.02) -> GaussianMixture:
    """Return Gaussians on a circle; by default the eight of Gulrajani et al. (2017), before they are rescaled.

    >>> ring_of_gaussians(4).sample(10).shape
    torch.Size([10, 2])
    """
    angle = 2 * math.pi * torch.arange(integer("n_modes", n_modes, low=1)) / n_modes
    return GaussianMixture(
        number("radius", radius, above=0) * torch.stack([angle.cos(), angle.sin()], dim=-1), number("std", std, above=0)
    )


def grid_of_gaussians(n_side: int = 5, *, spacing: float = 2.0, std: float = 0.05) -> GaussianMixture:
    """Return Gaussians on a square grid around the origin; by default the 25 of Gulrajani et al. (2017), not rescaled.

    >>> grid_of_gaussians(3).centres[:4].tolist()
    [[-2.0, -2.0], [-2.0, 0.0], [-2.0, 2.0], [0.0, -2.0]]
    """
    steps = torch.arange(integer("n_side", n_side, low=1)) - (n_side - 1) / 2
    line = number("spacing", spacing, above=0) * steps
    return GaussianMixture(torch.cartesian_prod(line, line).view(-1, 2), number("std", std, above=0))
