r"""ResizeMix: paste the whole partner image, made smaller, somewhere into each image.

.. math::
    \tilde x = \mathrm{paste}(x, \mathrm{resize}_\tau(x_\pi)), \quad \tau \sim \mathrm{U}(a, b), \qquad
    \mathcal{L} = \lambda H(f(\tilde x), y) + (1-\lambda) H(f(\tilde x), y_\pi)

where :math:`1-\lambda` is the share of the image that the pasted one covers.

References
----------
Qin, Fang, Zhang, Liu, Wang & Wang, "ResizeMix: Mixing Data with Preserved Object Information and True Labels", 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from vicinal import _random
from vicinal._arrays import at_least_float32
from vicinal._checks import added_field, freeze, number
from vicinal._typing import Batch, Model
from vicinal.mixing import PairPlan, sent
from vicinal.objectives.base import InputMixing, checked_fields
from vicinal.objectives.forward import mixed_input, same_rows, untraced


@dataclass(frozen=True, eq=False)
class ResizePlan(PairPlan):
    """A pair plan with the box into which each partner is pasted."""

    box: tuple[int, int, int, int] = field(kw_only=True)
    """Top, left, bottom and right. The host keeps them, since its size is a shape."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ResizeMix(InputMixing[ResizePlan]):
    """Paste the partner, made smaller, into each image; labels are mixed by area.

    Parameters
    ----------
    smallest, largest
        The range of τ, the pasted image's side as a share of the image's; 0.1 and 0.8 in the paper.
    label_smoothing
        ε of each label before it is mixed. Default: 0.
    inputs
        Of a mapping with several floating tensors, all their names, images first: they are mixed with one plan. Those
        that have another height and width than the first are mixed by λ.

    Examples
    --------
    >>> ResizeMix()
    ResizeMix(smallest=0.1, largest=0.8, label_smoothing=0.0)
    """

    smallest: float = 0.1
    largest: float = 0.8
    label_smoothing: float = 0.0
    inputs: Sequence[str] = added_field(())
    draws_ahead: ClassVar[bool] = True

    def __post_init__(self) -> None:
        smallest = number("smallest", self.smallest, low=0, high=1)
        largest = number("largest", self.largest, low=smallest, high=1)
        freeze(self, **checked_fields(self), smallest=smallest, largest=largest)

    def draw(self, model: Model, x: Batch, y: Tensor, *, generator: torch.Generator | None = None) -> ResizePlan:
        """Draw the size, the place and the partners."""
        image = mixed_input(x, self.inputs)
        # Draws are made on the CPU, whatever the default device is, and sent in one copy.
        n, size = same_rows(len(image), y), torch.tensor(image.shape[-2:], device="cpu")
        share = _random.uniform_like(torch.empty(1, device="cpu"), generator=generator)
        side = (size * (self.smallest + (self.largest - self.smallest) * share)).long().clamp(min=1)
        start = torch.cat([_random.integers(int(room) + 1, 1, generator=generator) for room in size - side])
        top, left, bottom, right = torch.cat([start, start + side]).tolist()
        partner = _random.permutation(n, generator=generator)
        lam = (1 - side.prod() / size.prod()).expand(n)
        return sent(ResizePlan(lam, partner, box=(top, left, bottom, right)), image.device)

    @untraced  # each size would be a graph of its own
    def mix(self, x: Tensor, plan: ResizePlan) -> Tensor:
        """Return `x` with its partner pasted into the box."""
        top, left, bottom, right = plan.box
        mixed, partner = x.clone(), at_least_float32(x[plan.partner])
        small = interpolate(partner, size=(bottom - top, right - left), mode="bilinear", antialias=True)
        mixed[..., top:bottom, left:right] = small
        return mixed
