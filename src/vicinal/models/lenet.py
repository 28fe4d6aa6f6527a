"""LeNet for spectrograms, as the speech experiments of Zhang et al. (2018) use it.

References
----------
LeCun, Bottou, Bengio & Haffner, "Gradient-Based Learning Applied to Document Recognition", 1998.
Zhang, Cisse, Dauphin & Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018, Section 3.3.

How we read the paper: it gives two convolutional and two fully-connected layers, and no sizes. Filters of 5×5 with
pooling are LeCun et al.'s; 20 maps, 1,000 hidden units and the dropout are common in code for these data.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal._checks import integer, number


class LeNet(nn.Module):
    """Two 5×5 convolutions with pooling, one hidden layer.

    Called with images or spectrograms `[B, C, H, W]` of the size it was built for, it returns logits.

    Parameters
    ----------
    input_shape
        (C, H, W) of one input; both sides at least 16.
    n_classes
        How many classes there are.
    maps, hidden
        The maps of each convolution and the units of the hidden layer.
    dropout
        The share of maps and of hidden units that is dropped.

    Examples
    --------
    >>> LeNet((1, 160, 101), 30)(torch.randn(2, 1, 160, 101)).shape
    torch.Size([2, 30])
    """

    def __init__(
        self, input_shape: Sequence[int], n_classes: int, *, maps: int = 20, hidden: int = 1000, dropout: float = 0.5
    ) -> None:
        super().__init__()
        channels, height, width = input_shape
        if min(height, width) < 16:
            raise ValueError(f"LeNet needs inputs of at least 16 × 16, got {height} × {width}: use preactresnet18")
        maps, hidden = integer("maps", maps, low=1), integer("hidden", hidden, low=1)
        dropout = number("dropout", dropout, low=0, high=1)
        self.layer1 = nn.Sequential(nn.Conv2d(channels, maps, 5), nn.MaxPool2d(2), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(maps, maps, 5), nn.Dropout2d(dropout), nn.MaxPool2d(2), nn.ReLU())
        left = maps * _after(height) * _after(width)
        self.hidden = nn.Sequential(nn.Linear(left, hidden), nn.ReLU(), nn.Dropout(dropout))
        self.classifier = nn.Linear(hidden, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits `[B, n_classes]` of inputs `[B, C, H, W]`."""
        logits: Tensor = self.classifier(self.hidden(torch.flatten(self.layer2(self.layer1(x)), 1)))
        return logits


def _after(side: int) -> int:
    """Return what two rounds of a 5×5 convolution and a halving leave of a side."""
    return ((side - 4) // 2 - 4) // 2
