r"""RegMixup: mixup as a regulariser beside the clean cross-entropy, not instead of it.

.. math:: \mathcal{L} = H(f(x), y) + \eta\, \mathcal{L}_{\text{base}}

References
----------
Pinto, Yang, Lim, Torr & Dokania, "RegMixup: Mixup as a Regularizer Can Surprisingly Improve Accuracy and
Out Distribution Robustness", NeurIPS 2022: `RegMixup(Mixup(alpha=10.0))` is the published form, with η = 1.

Deviation: one forward of `[x; x̃]`, as in the authors' code; `split_forward=True` runs two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from vicinal._checks import flag, freeze, number
from vicinal._typing import Batch, Model, Step
from vicinal.objectives.base import BesideClean, MixingObjective, check_mixing, clean_and_mixed
from vicinal.objectives.forward import call


@dataclass(frozen=True, kw_only=True, repr=False)
class RegMixup(BesideClean):
    """Clean cross-entropy plus a mixing objective.

    Parameters
    ----------
    base
        The mixing objective, e.g. `Mixup(alpha=10.0)`.
    weight
        η ≥ 0 of the base's loss; the paper's 1.
    split_forward
        Run the clean and the mixed batch through the model one after the other, so that each has its own
        BatchNorm statistics.

    Examples
    --------
    >>> from vicinal import Mixup
    >>> objective = RegMixup(Mixup(alpha=10.0))
    >>> model = torch.nn.Linear(4, 3)
    >>> terms = objective.terms(model, torch.randn(8, 4), torch.randint(3, (8,)))
    >>> list(terms)
    ['clean', 'mixed']
    """

    # Without its parameter: LightningCLI reads the annotation, and takes none.
    base: MixingObjective = field(kw_only=False)  # type: ignore[type-arg]
    weight: float = 1.0
    split_forward: bool = False

    def __post_init__(self) -> None:
        freeze(
            self,
            base=check_mixing(self.base, "RegMixup"),
            weight=number("weight", self.weight, low=0),
            split_forward=flag("split_forward", self.split_forward),
        )

    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        """Return the weighted terms whose sum is the loss: `clean` and `mixed`."""
        plan = self.base.planned(model, x, y, step)
        if not plan.mixed:
            clean_loss = self.clean_loss(call(model, x), y, step)
            return {"clean": clean_loss, "mixed": torch.zeros_like(clean_loss)}
        clean, mixed = clean_and_mixed(self.base, model, x, plan, split_forward=self.split_forward)
        return {
            "clean": self.clean_loss(clean, y, step),
            "mixed": self.weight * self.base.mean_loss(mixed, y, plan, step),
        }
