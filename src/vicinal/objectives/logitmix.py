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

Eq. 3 and the authors' code differ, and both can be had. The code has one classification term, H(z, y), which is the
default; Eq. 3 has the partner's too, and since partners are a permutation of the batch that is `cls_weight=2` exactly.
The code's similarity is the mean of squares over classes (`"mse"`, the default), Eq. 3's the norm (`"l2"`). The code
runs the model once on [x; x̃]; `split_forward=True` runs it twice, so that each half has its own BatchNorm statistics.

A batch that the base leaves unmixed (CutMix with `prob < 1`) has nothing to compare. It costs H(z, y) once, as in the
authors' code, with the larger of the weights c and m. Over CutMix the code differs in two more ways: λ is not corrected
for clipped boxes, and boxes are pasted in place, so that its clean half is the mixed batch too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from vicinal._arrays import at_least_float32
from vicinal._checks import choice, flag, freeze, number
from vicinal._typing import Batch, Model, Step
from vicinal.objectives.base import BesideClean, MixingObjective, check_mixing, clean_and_mixed, mean_loss
from vicinal.objectives.cutmix import CutMix
from vicinal.objectives.forward import call
from vicinal.objectives.puzzle.objective import PuzzleMix


def similarity(clean: Tensor, mixed: Tensor, combine: Callable[[Tensor], Tensor], *, kind: str = "mse") -> Tensor:
    r"""Return the distance of each row's logits :math:`f(\tilde x)` from the mixture of the clean ones, `[B]`.

    Parameters
    ----------
    clean, mixed
        The logits z and :math:`f(\tilde x)`, `[B, K]`.
    combine
        The plan's :math:`z \mapsto \lambda z + (1-\lambda) z_\pi`.
    kind
        `"mse"` is the mean of the squared differences over classes, `"l2"` the norm (the root of their sum), `"probs"`
        the mean for probabilities.

    >>> clean, mixed = torch.tensor([[3.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    >>> similarity(clean, mixed, lambda z: z)
    tensor([2.])
    """
    if kind == "probs":
        if clean.ndim != 2 or clean.shape[1] < 2:
            raise ValueError(f"similarity='probs' needs logits [B, K], got {list(clean.shape)}")
        clean, mixed = clean.softmax(1), mixed.softmax(1)
    gaps = (combine(clean) - mixed).view(len(clean), -1)
    if kind == "l2":
        norm: Tensor = torch.linalg.vector_norm(gaps, dim=1)  # its gradient at zero is zero; that of sqrt is not
        return norm
    return gaps.square().mean(1)


@dataclass(frozen=True, kw_only=True, repr=False)
class LogitMix(BesideClean):
    """Mixed logits as an extra target on top of any mixing objective.

    Parameters
    ----------
    base
        The mixing objective: `Mixup(alpha=3.0)`, `CutMix(alpha=1.0)`, `ManifoldMixup(...)`, `PuzzleMix()`.
    weight
        w ≥ 0 of the similarity. Not given, it is the paper's (Section 5.4): 0.1 over CutMix, 0.5 over PuzzleMix, and 1
        over Mixup (with α = 3, Section 5.5) and every other base.
    cls_weight, mix_weight
        c and m ≥ 0 of the clean cross-entropy and of the base's loss; any of the three can be 0 (Table 1). A batch
        that the base leaves unmixed costs the clean cross-entropy times the larger of the two.
    similarity
        `"mse"` (mean of squares over classes, the authors' code), `"l2"` (the norm, Eq. 3) or `"probs"` (between
        probabilities, the target that Section 3.2 argues against).
    split_forward
        Run the clean and the mixed batch through the model one after the other.

    Examples
    --------
    >>> from vicinal import CutMix, Mixup
    >>> objective = LogitMix(Mixup(alpha=3.0))
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> terms = objective.terms(model, torch.randn(8, 4), torch.randint(3, (8,)))
    >>> list(terms)
    ['clean', 'similarity', 'mixed']
    >>> LogitMix(CutMix()).weight
    0.1
    """

    # Without its parameter: LightningCLI reads the annotation, and takes none.
    base: MixingObjective = field(kw_only=False)  # type: ignore[type-arg]
    weight: float = None  # type: ignore[assignment]  # filled in from the base
    cls_weight: float = 1.0
    mix_weight: float = 1.0
    similarity: str = "mse"
    split_forward: bool = False

    def __post_init__(self) -> None:
        base = check_mixing(self.base, "LogitMix")
        published = next((weight for kind, weight in _WEIGHTS.items() if isinstance(base, kind)), 1.0)
        freeze(
            self,
            base=base,
            weight=number("weight", published if self.weight is None else self.weight, low=0),
            cls_weight=number("cls_weight", self.cls_weight, low=0),
            mix_weight=number("mix_weight", self.mix_weight, low=0),
            similarity=choice("similarity", self.similarity, ("mse", "l2", "probs")),
            split_forward=flag("split_forward", self.split_forward),
        )

    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        """Return the weighted terms whose sum is the loss: `clean`, `similarity` and `mixed`."""
        plan = self.base.planned(model, x, y, step)
        if not plan.mixed:  # nothing to compare; the clean loss and the base's are one, and an ablation has either
            clean_loss = self.clean_loss(call(model, x), y, step)
            nothing = torch.zeros_like(clean_loss)
            weight = max(self.cls_weight, self.mix_weight)
            return {"clean": weight * clean_loss, "similarity": nothing, "mixed": nothing}
        clean, mixed = clean_and_mixed(self.base, model, x, plan, split_forward=self.split_forward)
        if self.similarity == "probs" and y.is_floating_point() and y.ndim != 2:
            raise ValueError("similarity='probs' compares the probabilities of classes: use 'mse' here")
        distance = similarity(at_least_float32(clean), at_least_float32(mixed), plan.combine, kind=self.similarity)
        if self.weight and self.similarity != "probs" and _may_be_zero(self.base, model, plan, distance):
            _warn_if_zero(distance, mixed)
        return {
            "clean": self.cls_weight * self.clean_loss(clean, y, step),
            "similarity": self.weight * mean_loss(distance, clean, y, step, plan),
            "mixed": self.mix_weight * self.base.mean_loss(mixed, y, plan, step),
        }


#: Of Section 5.4, for bases other than Mixup.
_WEIGHTS: dict[type, float] = {CutMix: 0.1, PuzzleMix: 0.5}


def _may_be_zero(base: MixingObjective, model: Model, plan: Any, distance: Tensor) -> bool:  # type: ignore[type-arg]
    """Return whether to look at the distances, for which a device is waited for once only."""
    if torch.compiler.is_compiling() or not base.mixes_before_head(model, plan):
        return False
    if distance.is_cpu:
        return True
    first = model not in _LOOKED_AT
    _LOOKED_AT.add(model)
    return first


_LOOKED_AT: WeakSet[Model] = WeakSet()


def _warn_if_zero(distance: Tensor, mixed: Tensor) -> None:
    """Warn where all distances are rounding errors: the layers alone do not show what is computed between them."""
    scale = float(mixed.detach().abs().max())
    if float(distance.detach().max()) <= 32 * torch.finfo(mixed.dtype).eps * max(scale, scale**2):
        warnings.warn(
            "LogitMix over a mix at the linear head: the similarity term is identically zero, since a "
            "linear layer maps mixed inputs to mixed logits; mix at another layer",
            stacklevel=4,
        )
