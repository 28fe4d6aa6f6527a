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

from vicinal import _random
from vicinal._arrays import at_least_float32
from vicinal._checks import added_field, freeze, number
from vicinal._typing import Batch, Model
from vicinal.mixing import PairPlan, paste, sent
from vicinal.objectives.base import InputMixing, checked_fields
from vicinal.objectives.forward import at_full_precision, image_tensor, same_rows


@dataclass(frozen=True, eq=False)
class ResizePlan(PairPlan):
    """A pair plan with the box into which each partner is pasted."""

    box: Tensor = field(kw_only=True)
    """Top, left, bottom and right, int64 `[4]`."""


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
        image = image_tensor(x, "ResizeMix", self.inputs)
        # Draws are made on the CPU, whatever the default device is, and sent in one copy.
        n, size = same_rows(len(image), y), torch.tensor(image.shape[-2:], device="cpu")
        share = _random.uniform_like(torch.empty(1, device="cpu"), generator=generator)
        side = (size * (self.smallest + (self.largest - self.smallest) * share)).long().clamp(min=1)
        start = torch.cat([_random.integers(int(room) + 1, 1, generator=generator) for room in size - side])
        partner = _random.permutation(n, generator=generator)
        lam = (1 - side.prod() / size.prod()).expand(n)
        return sent(ResizePlan(lam, partner, box=torch.cat([start, start + side])), image.device)

    def mix(self, x: Tensor, plan: ResizePlan) -> Tensor:
        """Return `x` with its partner pasted into the box."""
        partner = at_least_float32(x.index_select(0, plan.partner))
        top, left, bottom, right = plan.box.unbind()
        # Two products with matrices of a fixed shape: a size that is drawn would make the host wait for a device, and
        # make a graph for each size.
        with at_full_precision(x.device):
            rows, columns = _resizing(partner, -2, top, bottom), _resizing(partner, -1, left, right)
            small = rows @ partner @ columns.T
        return paste(x, small.to(x.dtype), plan.box)


def _resizing(x: Tensor, dim: int, start: Tensor, stop: Tensor) -> Tensor:
    """Return the square matrix that shrinks a side of `x` to between `start` and `stop`: bilinear, with antialiasing.

    A place weighs the pixels around its centre by a triangle as wide as what it shows.
    """
    place = torch.arange(x.shape[dim], device=x.device, dtype=x.dtype)
    scale = x.shape[dim] / (stop - start).to(x.dtype)
    centre = (place - start + 0.5) * scale
    weight = (1 - (place + 0.5 - centre[:, None]).abs() / scale).clamp(min=0)
    return weight / weight.sum(1, keepdim=True).clamp(min=1e-6)  # places outside see nothing
