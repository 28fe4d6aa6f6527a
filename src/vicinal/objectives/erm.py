r"""Empirical risk minimisation: plain cross-entropy, with label smoothing or a confidence penalty if wanted.

.. math:: H(f(x), y_{\text{smooth}}) - \beta\, \mathcal{H}(p), \qquad p = \mathrm{softmax}(f(x))

where :math:`\mathcal{H}` is the entropy.

References
----------
Szegedy et al., "Rethinking the Inception Architecture", CVPR 2016 (label smoothing).
Pereyra et al., "Regularizing Neural Networks by Penalizing Confident Output Distributions", 2017 (ERL).
Thulasidasan et al., "On Mixup Training", NeurIPS 2019, compares mixup with both (ε 0.05–0.1, β 0.1).

Deviation: torch's `label_smoothing` spreads ε over all K classes; here the other K − 1 share it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal import losses
from vicinal._checks import freeze, number
from vicinal._typing import Batch, Model, Step
from vicinal.objectives.base import Objective, checked_fields, mean_loss
from vicinal.objectives.forward import call


@dataclass(frozen=True, kw_only=True, repr=False)
class ERM(Objective):
    """Plain cross-entropy (squared error for regression), optionally smoothed or penalised.

    Parameters
    ----------
    label_smoothing
        ε in [0, 1]. Each other class gets ε/(K − 1). Default: 0.
    confidence_penalty
        β ≥ 0, the weight of the entropy that is rewarded (Thulasidasan et al.: 0.1).

    Examples
    --------
    >>> objective = ERM(label_smoothing=0.1)
    >>> model = torch.nn.Linear(4, 3)
    >>> objective(model, torch.randn(8, 4), torch.randint(3, (8,))).shape
    torch.Size([])
    """

    label_smoothing: float = 0.0
    confidence_penalty: float = 0.0

    def __post_init__(self) -> None:
        penalty = number("confidence_penalty", self.confidence_penalty, low=0)
        freeze(self, **checked_fields(self), confidence_penalty=penalty)

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row, `[B]`."""
        loss = losses.loss(logits, y, label_smoothing=self.label_smoothing)
        if self.confidence_penalty:
            if y.is_floating_point() and y.ndim == 1:
                raise ValueError("confidence_penalty must be 0 for regression targets")
            loss = loss - self.confidence_penalty * _entropy(logits, y)
        return loss

    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        """Return the mean loss of the batch."""
        logits = call(model, x)
        return {"loss": mean_loss(self.loss(logits, y), logits, y, step)}


def _entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Return the entropy of each row; for multi-label targets the mean over labels."""
    if y.ndim < 3:
        return losses.entropy(logits)
    yes = logits.view(-1)
    return losses.entropy(torch.stack([torch.zeros_like(yes), yes], 1)).view(y.shape[:2]).mean(1)
