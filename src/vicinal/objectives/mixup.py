r"""Mixup: train on convex combinations of pairs of samples and of their labels.

.. math::
    \tilde x = \lambda x + (1-\lambda) x_\pi, \qquad \lambda \sim \mathrm{Beta}(\alpha, \alpha), \qquad
    \mathcal{L} = \lambda H(f(\tilde x), y) + (1-\lambda) H(f(\tilde x), y_\pi)

which equals the cross-entropy to the mixed soft target.

References
----------
Zhang, Cisse, Dauphin & Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018.
Thulasidasan et al., "On Mixup Training", NeurIPS 2019 (calibration; `labels="nearest"`).

Deviations from the published code: none in the default; λ is drawn in float64 and log space, so small α
give the true Beta distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from vicinal import _random, losses
from vicinal._checks import added_field, choice, freeze
from vicinal._typing import Batch, Model
from vicinal.mixing import PairPlan, sent
from vicinal.objectives.base import InputMixing, checked_fields
from vicinal.objectives.forward import mixed_input, same_rows


@dataclass(frozen=True, kw_only=True, repr=False)
class Mixup(InputMixing[PairPlan]):
    """Mix the inputs and the labels of random pairs.

    Parameters
    ----------
    alpha
        α ≥ 0 of Beta(α, α): 0.1 to 0.4 on ImageNet, 1 on CIFAR, up to 32 under label noise (Zhang et al., Sections
        3.1, 3.2 and 3.4); the best ECE at 0.2 to 0.4 (Thulasidasan et al., Figure 2). 0 mixes nothing, `inf` only
        averages.
    labels
        `"soft"` mixes the labels; `"nearest"` keeps the label of the nearer sample (Thulasidasan et al.'s
        ablation: mixing features alone does not calibrate).
    partners
        `"any"` sample of the batch, or one of the `"same_class"` (Zhang et al.'s ablation).
    per_sample
        Draw one λ per sample instead of one per batch.
    label_smoothing
        ε of each label before it is mixed. Default: 0.
    prob
        The share of batches (of samples with `per_sample`) that is mixed.
    inputs
        Of a mapping with several floating tensors, all their names: they are mixed with one plan.

    Examples
    --------
    >>> objective = Mixup(alpha=0.4)
    >>> objective
    Mixup(alpha=0.4, labels='soft', partners='any', per_sample=False, label_smoothing=0.0)
    >>> model = torch.nn.Linear(4, 3)
    >>> loss = objective(model, torch.randn(8, 4), torch.randint(3, (8,)))
    """

    alpha: float
    labels: str = "soft"
    partners: str = "any"
    per_sample: bool = False
    label_smoothing: float = 0.0
    prob: float = added_field(1.0)
    inputs: Sequence[str] = added_field(())
    draws_ahead: ClassVar[bool] = True

    def __post_init__(self) -> None:
        freeze(
            self,
            **checked_fields(self),
            labels=choice("labels", self.labels, ("soft", "nearest")),
            partners=choice("partners", self.partners, ("any", "same_class")),
        )

    def draw(self, model: Model, x: Batch, y: Tensor, *, generator: torch.Generator | None = None) -> PairPlan:
        """Draw λ and the partners."""
        inputs = mixed_input(x, self.inputs)
        n = same_rows(len(inputs), y)
        lam = _random.lam(self.alpha, n, per_sample=self.per_sample, generator=generator)
        mixed = _random.tosses(self.prob, n, per_sample=self.per_sample, generator=generator)
        if self.partners == "any":
            partner = _random.permutation(n, generator=generator)
        elif y.is_floating_point():
            raise ValueError("partners='same_class' needs integer labels, got floating targets")
        else:
            partner = _random.within_class(losses.on_host(y), generator=generator)
        plan = PairPlan(torch.where(mixed, lam, 1.0), partner, mixed=self.alpha > 0 and bool(mixed.any()))
        return sent(plan, inputs.device)

    def mix(self, x: Tensor, plan: PairPlan) -> Tensor:
        """Return λx + (1 − λ)x_π."""
        return plan.combine(x)

    def labels_plan(self, plan: PairPlan) -> PairPlan:
        """Return the plan of the labels: mixed as the inputs are, or all of the nearer sample's."""
        if self.labels == "soft":
            return plan
        return replace(plan, lam=(plan.lam >= 0.5).to(plan.lam))  # at λ = ½ the sample keeps its own label
