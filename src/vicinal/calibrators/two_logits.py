"""A label of a multi-label model as a question of two classes."""

from __future__ import annotations

import torch
from torch import Tensor


def two_logits(logits: Tensor) -> Tensor:
    """Return the logits of no and yes, `[N, 2]`, of one label's `[N]`: their softmax is its sigmoid.

    >>> two_logits(torch.tensor([2.0])).tolist()
    [[0.0, 2.0]]
    """
    return torch.stack([torch.zeros_like(logits), logits], dim=1)
