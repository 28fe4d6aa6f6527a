r"""How much each pixel, and each block, of an image matters to the loss."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from vicinal import losses
from vicinal._arrays import at_least_float32
from vicinal._typing import Batch, Model
from vicinal.objectives.forward import at_full_precision, call, evaluating, mixed_input, unwrap, with_input


def saliency(model: Model, x: Batch, y: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    r"""Return how much each pixel matters to the loss: :math:`s = \sqrt{\mathrm{mean}_c\, g_c^2}`, `[B, H, W]`.

    The model runs in eval mode, which is undone afterwards, so BatchNorm statistics stay as they are; gradients
    are taken with respect to the input only, and no parameter's `.grad` is touched.

    Parameters
    ----------
    model, x, y
        As for any objective; x holds images `[B, …, H, W]`.
    label_smoothing
        ε of the loss whose gradient is taken.

    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> saliency(model, torch.randn(4, 1, 8, 8), torch.randint(10, (4,))).shape
    torch.Size([4, 8, 8])
    """
    gradient, _ = input_gradient(model, x, y, label_smoothing=label_smoothing)
    return gradient_saliency(gradient)


def gradient_saliency(gradient: Tensor) -> Tensor:
    r"""Return :math:`s = \sqrt{\mathrm{mean}_c\, g_c^2}`, `[B, H, W]`, of gradients `[B, …, H, W]`.

    >>> gradient_saliency(torch.tensor([3e-30, 4e-30]).view(1, 2, 1, 1))
    tensor([[[3.5355e-30]]])
    """
    channels = gradient.reshape(len(gradient), -1, *gradient.shape[-2:])
    # Divided by its largest entry, the gradient of a well learnt sample can be squared without underflow.
    largest = channels.abs().amax((1, 2, 3), keepdim=True).clamp(min=torch.finfo(channels.dtype).tiny)
    return (channels / largest).square().mean(1).sqrt() * largest[:, 0]


def block_saliency(saliency: Tensor, blocks: int) -> Tensor:
    """Return each block's share of its image's saliency, `[B, n, n]` from `[B, H, W]`; each sums to one.

    An image without saliency (zero gradient, or one that is not finite) has equal shares.

    >>> block_saliency(torch.tensor([[[3.0, 1.0], [0.0, 0.0]]]), 2)
    tensor([[[0.7500, 0.2500],
             [0.0000, 0.0000]]])
    """
    pooled = F.avg_pool2d(saliency[:, None], block_sides(saliency, blocks))[:, 0]
    total = pooled.sum((1, 2), keepdim=True)
    return torch.where(total.isfinite() & (total > 0), pooled / total, 1 / blocks**2)


def block_sides(x: Tensor, blocks: int) -> tuple[int, int]:
    """Return the height and the width of a block of `[…, H, W]`."""
    height, width = x.shape[-2:]
    if blocks < 1 or height % blocks or width % blocks:
        raise ValueError(
            f"the number of blocks a side must divide both sides of {height} × {width} images, got {blocks}"
        )
    return height // blocks, width // blocks


def input_gradient(
    model: Model,
    x: Batch,
    y: Tensor,
    *,
    keep_graph: bool = False,
    label_smoothing: float = 0.0,
    inputs: Sequence[str] = (),
) -> tuple[Tensor, Tensor | None]:
    """Return the gradient of the loss at the input; and the loss of each row with its graph, if that is kept."""
    module = unwrap(model)  # a wrapper's bookkeeping (DistributedDataParallel) is for the training forward only
    leaf = mixed_input(x, inputs).detach().requires_grad_()
    with nullcontext() if keep_graph else evaluating(module), torch.enable_grad():
        # A copy, for models whose first layer works in place.
        logits = call(module, with_input(x, leaf.clone(), inputs))
        rows = losses.loss(logits, y, label_smoothing=label_smoothing)
        gradient, scale = None, None
        try:
            if rows.requires_grad:
                start, slope = rows.sum(), None
                if _in_half(logits):
                    start = logits
                    slope, scale = _scaled_slope(logits, y, label_smoothing=label_smoothing, together=keep_graph)
                (gradient,) = torch.autograd.grad(start, leaf, slope, retain_graph=keep_graph, allow_unused=True)
        except RuntimeError as error:
            if "use_reentrant" not in str(error):
                raise
            raise ValueError(
                "saliency needs the gradient at the input alone, which a reentrant checkpoint cannot give: "
                "use checkpoint(..., use_reentrant=False)"
            ) from error
    if gradient is None:
        raise ValueError(
            "saliency needs the gradient at the input, which does not reach it: a part of the model detaches, or runs "
            "without gradients (torch.no_grad, torch.inference_mode)"
        )
    gradient = at_least_float32(gradient)
    if scale is not None:
        gradient = gradient / scale.view(-1, *[1] * (gradient.ndim - 1))
    if not keep_graph:
        return gradient, None
    return gradient, rows if torch.is_grad_enabled() else rows.detach()


def _in_half(logits: Tensor) -> bool:
    """Return whether the model computes in float16, by itself or by autocast."""
    kind = logits.device.type
    return logits.dtype == torch.float16 or (
        torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.float16
    )


def _scaled_slope(logits: Tensor, y: Tensor, *, label_smoothing: float, together: bool) -> tuple[Tensor, Tensor]:
    """Return the gradient of the losses at the logits, and the powers of two that bring each row's largest to 2 … 4.

    Float16 would round the gradients of well learnt samples to zero. Both are taken in float32, so that neither a loss
    of 1e-30 nor one that label smoothing keeps from zero is lost. In train mode (`together`) BatchNorm makes each loss
    depend on all samples, so that one number is for all.
    """
    z = at_least_float32(logits.detach()).requires_grad_()
    with at_full_precision(z.device):
        (slope,) = torch.autograd.grad(losses.loss(z, y, label_smoothing=label_smoothing).sum(), z)
    largest = slope.abs().flatten(1).amax(1) if slope.ndim > 1 else slope.abs()
    level = largest.amax().expand_as(largest) if together else largest
    scale = torch.exp2(1 - level.clamp(min=2.0**-125).log2().floor())
    return (slope * scale.view(-1, *[1] * (slope.ndim - 1))).to(logits.dtype), scale
