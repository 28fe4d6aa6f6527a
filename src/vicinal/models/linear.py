"""One linear layer: logistic regression, for rows of a table."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vicinal._checks import integer


class Linear(nn.Module):
    """Logistic regression: features `[B, …]`, which are flattened, to logits `[B, n_classes]`.

    Examples
    --------
    >>> Linear(8, 3)(torch.randn(4, 8)).shape
    torch.Size([4, 3])
    """

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(integer("n_features", n_features, low=1), integer("n_classes", n_classes, low=1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits `[B, n_classes]` of features `[B, …]`."""
        logits: Tensor = self.classifier(torch.flatten(x, 1))
        return logits
