"""A multilayer perceptron: linear layers with ReLU between them, for rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from vicinal._checks import integer, number


class MLP(nn.Module):
    """Two hidden layers of 128 rectified units, as Zhang et al. (2018, Section 3.6) use for tabular data.

    Called with features `[B, …]`, which it flattens, it returns logits `[B, n_classes]`.

    Parameters
    ----------
    hidden
        The units of each hidden layer; an empty list is logistic regression.
    dropout
        The share of hidden units that is dropped after each ReLU.

    Examples
    --------
    >>> MLP(8, 3)(torch.randn(4, 8)).shape
    torch.Size([4, 3])
    """

    def __init__(
        self, n_features: int, n_classes: int, *, hidden: Sequence[int] = (128, 128), dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.layers, width = hidden_layers(n_features, hidden, dropout)
        self.classifier = nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits `[B, n_classes]` of features `[B, …]`."""
        logits: Tensor = self.classifier(self.layers(torch.flatten(x, 1)))
        return logits


def hidden_layers(n_features: int, hidden: Sequence[int], dropout: float) -> tuple[nn.Sequential, int]:
    """Return linear layers, each with ReLU and dropout after it, and how many numbers come out of the last."""
    if not isinstance(hidden, list | tuple):
        raise TypeError(f"hidden must be a list of the units of each layer, such as [128, 128], got {hidden!r}")
    dropout = number("dropout", dropout, low=0, high=1)
    sizes = [integer("n_features", n_features, low=1), *(integer("hidden", units, low=1) for units in hidden)]
    layers = [nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Dropout(dropout)) for i, o in pairwise(sizes)]
    return nn.Sequential(*layers), sizes[-1]
