r"""LogitMix: the logits of a mixed input should be the mixture of the logits.

.. math::
    \mathcal{L} = c\, H(z, y)
    + w \, \mathrm{sim}\big(\lambda z + (1-\lambda) z_\pi,\; f(\tilde x)\big)
    + m\, \mathcal{L}_{\text{base}}, \qquad z = f(x)

Gradients flow into both sides of the similarity.

References
----------
Bang, Baek, Kim, Jeon, Kim, Kim, Lee & Shim, "Logit Mixing Training for More Reliable and Accurate Prediction",
IJCAI 2022.

Deviations: the classification term H(z, y) is one term, as in the authors' code; Eq. 3 of the paper has two
(of x and of its partner), which is `cls_weight=2` in expectation. The similarity is the mean over classes, as
in the authors' code; Eq. 3's squared norm is `similarity="l2"`. The authors run the model twice; here one
forward of `[x; x̃]` serves both, which changes the BatchNorm statistics: `split_forward=True` for two.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vicinal import losses
from vicinal._arrays import at_least_float32
from vicinal._checks import choice, flag, freeze, number
from vicinal._typing import Batch, Model, Step
from vicinal.objectives.base import MixingObjective, Objective, check_mixing, clean_and_mixed
from vicinal.objectives.forward import call

__all__ = ["LogitMix", "similarity"]


def similarity(clean: Tensor, mixed: Tensor, combine: Callable[[Tensor], Tensor], *, kind: str = "mse") -> Tensor:
    r"""Return the distance of each row's logits :math:`f(\tilde x)` from the mixture of the clean ones, `[B]`.

    Parameters
    ----------
    clean, mixed
        The logits z and :math:`f(\tilde x)`, `[B, K]`.
    combine
        The plan's :math:`z \mapsto \lambda z + (1-\lambda) z_\pi`.
    kind
        `"mse"` averages the squared differences over classes, `"l2"` sums them, `"probs"` averages those of
        the probabilities.

    >>> clean, mixed = torch.tensor([[3.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> similarity(clean, mixed, lambda z: z)
    tensor([2.])
    """
    if kind == "probs":
        if clean.ndim != 2 or clean.shape[1] < 2:
            raise ValueError(f"similarity='probs' needs logits [B, K], got {list(clean.shape)}")
        clean, mixed = clean.softmax(1), mixed.softmax(1)
    squares = (combine(clean) - mixed).view(len(clean), -1).square()
    return squares.sum(1) if kind == "l2" else squares.mean(1)


@dataclass(frozen=True, kw_only=True, repr=False)
class LogitMix(Objective):
    """Mixed logits as an extra target on top of any mixing objective.

    Parameters
    ----------
    base
        The mixing objective: `Mixup(alpha=3.0)`, `CutMix(alpha=1.0)`, `ManifoldMixup(...)`, `PuzzleMix()`.
    weight
        w ≥ 0 of the similarity: 1 for Mixup, 0.1 for CutMix, 0.5 for PuzzleMix in the paper.
    cls_weight, mix_weight
        c and m ≥ 0 of the clean cross-entropy and of the base's loss; any of the three can be 0 (Table 1).
    similarity
        `"mse"` (mean over classes, the authors' code), `"l2"` (sum over classes, Eq. 3) or `"probs"` (between
        probabilities, the target that Section 3.2 argues against).
    split_forward
        Run the clean and the mixed batch through the model one after the other.

    >>> from vicinal import Mixup
    >>> objective = LogitMix(Mixup(alpha=3.0))
    >>> terms = objective.terms(torch.nn.Linear(4, 3), torch.randn(8, 4), torch.randint(3, (8,)))
    >>> list(terms)
    ['clean', 'similarity', 'mixed']
    """

    base: MixingObjective[Any] = field(kw_only=False)
    weight: float = 1.0
    cls_weight: float = 1.0
    mix_weight: float = 1.0
    similarity: str = "mse"
    split_forward: bool = False

    def __post_init__(self) -> None:
        freeze(
            self,
            base=check_mixing(self.base),
            weight=number("weight", self.weight, low=0),
            cls_weight=number("cls_weight", self.cls_weight, low=0),
            mix_weight=number("mix_weight", self.mix_weight, low=0),
            similarity=choice("similarity", self.similarity, ("mse", "l2", "probs")),
            split_forward=flag("split_forward", self.split_forward),
        )

    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        """Return the weighted terms whose sum is the loss: `clean`, `similarity` and `mixed`."""
        plan = self.base.draw(model, x, y, generator=step.generator)
        smoothing = self.base.label_smoothing
        if not plan.mixed:  # nothing to compare: the batch costs its plain cross-entropy
            clean_loss = losses.loss(call(model, x), y, label_smoothing=smoothing).mean()
            nothing = torch.zeros_like(clean_loss)
            return {"clean": clean_loss, "similarity": nothing, "mixed": nothing}
        if getattr(plan, "at_head", False) and self.weight:
            warnings.warn(
                "LogitMix over a mix at the linear head: the similarity term is identically zero, since a "
                "linear layer maps mixed inputs to mixed logits; mix at another layer",
                stacklevel=3,
            )
        clean, mixed = clean_and_mixed(self.base, model, x, plan, split_forward=self.split_forward)
        distance = similarity(at_least_float32(clean), at_least_float32(mixed), plan.combine, kind=self.similarity)
        return {
            "clean": self.cls_weight * losses.loss(clean, y, label_smoothing=smoothing).mean(),
            "similarity": self.weight * distance.mean(),
            "mixed": self.mix_weight * self.base.loss(mixed, y, plan).mean(),
        }
