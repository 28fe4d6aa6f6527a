r"""Focal loss: cross-entropy that counts less what is predicted well, the baseline of calibration papers.

.. math::
    \mathcal{L} = -(1 - p_y)^{\gamma(p_y)} \ln p_y, \qquad
    \gamma(p) = \begin{cases} 5 & p < 0.2 \\ 3 & \text{else} \end{cases}
    \quad \text{(FLSD-53)}, \qquad p = \mathrm{softmax}(f(x))

It is an upper bound of the cross-entropy less γ times the entropy of p, so it keeps predictions from becoming certain.

References
----------
Lin, Goyal, Girshick, He & Dollár, "Focal Loss for Dense Object Detection", ICCV 2017.
Mukhoti, Kulharia, Sanyal, Golodetz, Torr & Dokania, "Calibrating Deep Neural Networks using Focal Loss", NeurIPS 2020
(FLSD-53, Section 5).

Deviation: soft targets weight the loss of each class, which for one-hot targets is the published loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal import losses
from vicinal._arrays import at_least_float32
from vicinal._checks import freeze, number
from vicinal._typing import Batch, Model, Step
from vicinal.objectives.base import Objective, mean_loss
from vicinal.objectives.forward import call


@dataclass(frozen=True, kw_only=True, repr=False)
class Focal(Objective):
    """Focal loss with an exponent that depends on the sample (squared error for regression).

    Parameters
    ----------
    gamma
        γ ≥ 0 of samples whose label has a probability of at least `threshold`; 0 is cross-entropy.
    low_gamma
        γ of the others. Equal to `gamma`, it is the focal loss of Lin et al., who take 2 for both.
    threshold
        The probability in [0, 1] that divides the two.

    Examples
    --------
    >>> objective = Focal()  # FLSD-53
    >>> model = torch.nn.Linear(4, 3)
    >>> objective(model, torch.randn(8, 4), torch.randint(3, (8,))).shape
    torch.Size([])
    """

    gamma: float = 3.0
    low_gamma: float = 5.0
    threshold: float = 0.2

    def __post_init__(self) -> None:
        freeze(
            self,
            gamma=number("gamma", self.gamma, low=0),
            low_gamma=number("low_gamma", self.low_gamma, low=0),
            threshold=number("threshold", self.threshold, low=0, high=1),
        )

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row, `[B]`."""
        losses.check_targets(logits, y)
        if y.is_floating_point() and y.ndim == 1:
            return losses.loss(logits, y)
        z = at_least_float32(logits)
        if y.ndim == 3:  # no and yes of each label
            return self._each(torch.stack([torch.zeros_like(z), z], dim=-1), y).mean(dim=1)
        targets = y if y.is_floating_point() else torch.nn.functional.one_hot(y.long(), z.shape[1])
        return self._each(z, targets)

    def _each(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the sum over the last dimension of each class's focal loss, weighted by its target."""
        log_p = logits.log_softmax(dim=-1)
        p = log_p.exp()
        gamma = torch.where(p.detach() < self.threshold, self.low_gamma, self.gamma)
        # (1 − p)^γ has no finite slope at p = 1 for γ < 1.
        return (targets * (1 - p).clamp(min=torch.finfo(p.dtype).tiny) ** gamma * -log_p).sum(dim=-1)

    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        """Return the mean loss of the batch."""
        logits = call(model, x)
        return {"loss": mean_loss(self.loss(logits, y), logits, y, step)}
