"""What the tests of PuzzleMix share: a small network, seeded draws, random batches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SOLVERS = ("fast", "exact")


class ConvNet(nn.Module):
    """With BatchNorm and dropout, so that a wrong mode shows; any channel count and image size."""

    def __init__(self, channels: int = 3, classes: int = 5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.AdaptiveAvgPool2d(2)
        )
        self.head = nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(*shape: int, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = seeded(seed)
    return torch.rand(shape, generator=generator), torch.randint(classes, shape[:1], generator=generator)
