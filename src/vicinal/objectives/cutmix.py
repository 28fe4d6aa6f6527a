r"""CutMix: replace a box of each image with the same box of its partner.

.. math::
    \tilde x = M \odot x + (1 - M) \odot x_\pi, \qquad
    \mathcal{L} = \lambda H(f(\tilde x), y) + (1-\lambda) H(f(\tilde x), y_\pi)

where M is 0 in a box of sides :math:`\lfloor H\sqrt{1-\lambda} \rfloor, \lfloor W\sqrt{1-\lambda} \rfloor` with
:math:`\lambda \sim \mathrm{Beta}(\alpha,\alpha)` and a uniform centre, clipped to the image; then
:math:`\lambda` becomes the share of the image that is left.

References
----------
Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features", ICCV 2019.

Deviations from the published code: none for equal draws. Half a side, rounded down, lies on either side of the centre,
so that odd sides lose a pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from vicinal import _random
from vicinal._checks import added_field, flag, freeze
from vicinal._typing import Batch, Model
from vicinal.mixing import PairPlan, cut, paste_rows, sent
from vicinal.objectives.base import InputMixing, checked_fields
from vicinal.objectives.forward import image_tensor, same_rows


@dataclass(frozen=True, eq=False)
class BoxPlan(PairPlan):
    """A pair plan with the box that each row takes from its partner."""

    boxes: Tensor = field(kw_only=True)
    """One box `[4]` for the batch, or one per row `[B, 4]` (top, left, bottom, right)."""


@dataclass(frozen=True, kw_only=True, repr=False)
class CutMix(InputMixing[BoxPlan]):
    """Cut a box out of each image's partner and paste it in; labels are mixed by area.

    Parameters
    ----------
    alpha
        α ≥ 0 of Beta(α, α); 1 in the paper. 0 mixes nothing, `inf` always cuts half.
    prob
        The share of batches (of samples with `per_sample`) that is mixed: 0.5 on CIFAR, 1.0 on ImageNet in
        the authors' code.
    per_sample
        Draw a box per sample instead of one per batch.
    correct_area
        Replace λ by the share of the image that is left after clipping, as the authors' code does.
    label_smoothing
        ε of each label before it is mixed. Default: 0.
    inputs
        Of a mapping with several floating tensors, all their names, images first: they are mixed with one plan. Those
        that have another height and width than the first are mixed by λ.

    Examples
    --------
    >>> objective = CutMix(alpha=1.0)
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> loss = objective(model, torch.randn(8, 1, 8, 8), torch.randint(10, (8,)))
    """

    alpha: float = 1.0
    prob: float = 1.0
    per_sample: bool = False
    correct_area: bool = True
    label_smoothing: float = 0.0
    inputs: Sequence[str] = added_field(())
    draws_ahead: ClassVar[bool] = True

    def __post_init__(self) -> None:
        freeze(self, **checked_fields(self), correct_area=flag("correct_area", self.correct_area))

    def draw(self, model: Model, x: Batch, y: Tensor, *, generator: torch.Generator | None = None) -> BoxPlan:
        """Draw λ, the boxes and the partners."""
        image = image_tensor(x, "CutMix", self.inputs)
        height, width = image.shape[-2:]
        n = same_rows(len(image), y)
        draws = n if self.per_sample else 1
        lam = _random.beta(self.alpha, draws, generator=generator)
        centre_y = _random.integers(height, draws, generator=generator)
        centre_x = _random.integers(width, draws, generator=generator)
        mixed = self.alpha > 0  # not λ < 1: for small α chance would round it to 1, on some processes
        if self.prob < 1:
            tossed = _random.coin(self.prob, draws, generator=generator)
            lam[~tossed] = 1
            mixed = mixed and bool(tossed.any())
        partner = _random.permutation(n, generator=generator)
        boxes, left = cut(lam, centre_y, centre_x, height=height, width=width)
        if self.correct_area:
            lam = left
        lam, boxes = (lam, boxes) if self.per_sample else (lam.expand(n), boxes[0])
        return sent(BoxPlan(lam.float(), partner, mixed=mixed, boxes=boxes), image.device)

    def mix(self, x: Tensor, plan: BoxPlan) -> Tensor:
        """Return `x` with each row's box taken from its partner."""
        return paste_rows(x, plan.partner, plan.boxes)
