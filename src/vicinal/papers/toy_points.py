"""Toy data sets in the plane: spirals, and a disc in a ring."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vicinal import _random
from vicinal._checks import integer, number


def spirals(
    n: int, *, n_classes: int = 2, turns: float = 1.5, noise: float = 0.02, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    r"""Draw points on interleaved spiral arms, one class an arm (Bang et al. 2022, Figure 1).

    Arm k is :math:`r\,(\cos\varphi, \sin\varphi)` with :math:`\varphi = 2\pi (\text{turns}\cdot r + k/K)` and r
    evenly distributed over [0.1, 1], plus Gaussian noise. The numbers of the paper's figure are not published.

    Parameters
    ----------
    n
        Points in all; classes take turns, so their sizes differ by one at most.
    n_classes, turns, noise
        The arms, how often each winds around the origin, and the standard deviation of the noise.
    generator
        Where randomness comes from; torch's global generator if not given.

    Returns
    -------
    points, labels
        float32 `[n, 2]` and int64 `[n]`.

    >>> points, labels = spirals(5)
    >>> points.shape, labels
    (torch.Size([5, 2]), tensor([0, 1, 0, 1, 0]))
    """
    labels = _take_turns(n, integer("n_classes", n_classes, low=1))
    turns = number("turns", turns)
    r = 0.1 + 0.9 * _random.uniform_like(torch.empty(len(labels)), generator=generator)
    angle = 2 * math.pi * (turns * r + labels / n_classes)
    return _noisy(r[:, None] * _on_circle(angle), noise, generator), labels


def disc_in_ring(n: int, *, noise: float = 0.0, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Draw a disc of class 1 with a ring of class 0 around it, both uniform in area.

    It stands in for the data of Zhang et al. (2018), Figure 1b, whose numbers are not published. The disc has radius
    0.5, and the ring reaches from 0.8 to 1.2.

    >>> points, labels = disc_in_ring(6)
    >>> (points.norm(dim=1) <= 0.5) == (labels == 1)
    tensor([True, True, True, True, True, True])
    """
    labels = _take_turns(n, 2)
    low, high = torch.where(labels == 1, 0.0, 0.8), torch.where(labels == 1, 0.5, 1.2)
    share, angle = _random.uniform_like(torch.empty(2, len(labels)), generator=generator)
    r = (low**2 + share * (high**2 - low**2)).sqrt()
    return _noisy(r[:, None] * _on_circle(2 * math.pi * angle), noise, generator), labels


def _take_turns(n: int, n_classes: int) -> Tensor:
    return torch.arange(integer("n", n, low=1)) % n_classes


def _on_circle(angle: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def _noisy(points: Tensor, noise: float, generator: torch.Generator | None) -> Tensor:
    return points + number("noise", noise, low=0) * _random.normal_like(points, generator=generator)
