r"""Mixing as pure tensor functions: nothing is drawn here, and no input is changed.

One convention everywhere: **λ weights the first (original) sample, 1 − λ its partner.**

>>> import torch
>>> mix(torch.tensor([[1.0], [1.0]]), torch.tensor([[0.0], [0.0]]), torch.tensor([0.75, 0.5]))
tensor([[0.7500],
        [0.5000]])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from vicinal._arrays import at_least_float32

__all__ = [
    "PairPlan",
    "box_share",
    "cut",
    "cut_boxes",
    "fetched",
    "mix",
    "mix_rows",
    "move",
    "paste",
    "paste_rows",
    "sent",
    "weighted_rows",
]

R = TypeVar("R")


def mix(a: Tensor, b: Tensor, lam: Tensor | float) -> Tensor:
    r"""Return :math:`\lambda a + (1-\lambda) b`, for instance of two batches from two loaders.

    Parameters
    ----------
    a, b
        Two floating tensors of one shape `[B, …]`.
    lam
        The weight of `a`: a number, or one per row `[B]`.

    Returns
    -------
    Tensor
        The mixture, of the shape and type of `a`.

    Notes
    -----
    Computed in float32 (float64 for float64 input) and cast back, so that bfloat16 input is rounded once.

    References
    ----------
    Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018.

    Examples
    --------
    >>> mix(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), 0.75)
    tensor([0.7500, 0.2500])
    """
    _check_floating(a)
    _check_floating(b)
    _check_alike(a, b)
    a_, b_ = at_least_float32(a), at_least_float32(b)
    return torch.lerp(b_, a_, _column(lam, a_)).to(a.dtype)


def mix_rows(x: Tensor, partner: Tensor, lam: Tensor | float) -> Tensor:
    r"""Return :math:`\lambda x + (1-\lambda) x_\pi`: each row mixed with the row `partner` names.

    Returns
    -------
    Tensor
        The mixed rows, of the shape and type of `x`.

    Examples
    --------
    >>> mix_rows(torch.tensor([0.0, 1.0]), torch.tensor([1, 0]), 0.9)
    tensor([0.1000, 0.9000])
    """
    _check_floating(x)
    x_ = at_least_float32(x)
    # One fresh tensor, finished in place: writing new memory is what mixing a large batch costs. vmap has no such rule.
    other, weight = _picked(x_, partner), _column(lam, x_)
    in_place = torch.compiler.is_compiling() or not torch._C._functorch.is_functorch_wrapped_tensor(x_)
    return (other.lerp_(x_, weight) if in_place else torch.lerp(other, x_, weight)).to(x.dtype)


def weighted_rows(x: Tensor, partners: Tensor, weights: Tensor) -> Tensor:
    r"""Return :math:`\sum_k w_k x_{\pi_k}` for `partners` and `weights` of shape `[B, k]`.

    Returns
    -------
    Tensor
        The mixed rows, of the shape and type of `x`.

    Examples
    --------
    >>> x = torch.tensor([1.0, 2.0, 3.0])
    >>> weighted_rows(x, torch.tensor([[0, 1, 2]]), torch.tensor([[0.5, 0.25, 0.25]]))
    tensor([1.7500])
    """
    _check_floating(x)
    x_ = at_least_float32(x)
    sources = [_picked(x_, partner) for partner in partners.unbind(1)]
    first, *more = (t * _column(w, t) for t, w in zip(sources, weights.unbind(1), strict=True))
    return sum(more, first).to(x.dtype)


def cut_boxes(lam: Tensor, centre_y: Tensor, centre_x: Tensor, *, height: int, width: int) -> Tensor:
    r"""Return CutMix's boxes `[n, 4]` (top, left, bottom, right) that cover about 1 − λ of an image.

    Sides are :math:`\lfloor H\sqrt{1-\lambda}\rfloor` and :math:`\lfloor W\sqrt{1-\lambda}\rfloor`, of which one half,
    rounded down, lies on either side of the centre, so that an odd side loses a pixel (as in the published code). The
    box is clipped to the image; what was clipped is lost, so use `box_share` for the real λ.

    Returns
    -------
    Tensor
        The boxes, int64 `[n, 4]`.

    Examples
    --------
    >>> lam, centre = torch.tensor([0.75]), torch.tensor([0])
    >>> cut_boxes(lam, centre, centre, height=8, width=8)
    tensor([[0, 0, 2, 2]])
    """
    return torch.from_numpy(_edges(lam, centre_y, centre_x, height, width).T)


def box_share(boxes: Tensor, *, height: int, width: int) -> Tensor:
    """Return the share of an image `[n]` that each box covers, in float64.

    Returns
    -------
    Tensor
        The shares, float64 `[n]`, in [0, 1].

    Examples
    --------
    >>> box_share(torch.tensor([[0, 0, 2, 4]]), height=4, width=4)
    tensor([0.5000], dtype=torch.float64)
    """
    return torch.from_numpy(_share(_array(boxes).T, height, width))


def cut(lam: Tensor, centre_y: Tensor, centre_x: Tensor, *, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the boxes of `cut_boxes` and the real λ, what each box leaves of the image, float32 `[n]`.

    Returns
    -------
    tuple[Tensor, Tensor]
        The boxes, int64 `[n, 4]`, and λ, float32 `[n]`.

    Examples
    --------
    >>> cut(torch.tensor([0.75]), torch.tensor([4]), torch.tensor([4]), height=8, width=8)
    (tensor([[2, 2, 6, 6]]), tensor([0.7500]))
    """
    edges = _edges(lam, centre_y, centre_x, height, width)
    left = (1 - _share(edges, height, width)).astype(np.float32)
    return torch.from_numpy(edges.T), torch.from_numpy(left)


def _edges(lam: Tensor, centre_y: Tensor, centre_x: Tensor, height: int, width: int) -> np.ndarray:
    """Return top, left, bottom and right of each box, `[4, n]`."""
    # NumPy, and both axes at once: for so few numbers the time goes into calls.
    weight, size = _array(lam if lam.dtype == torch.float64 else lam.double()), np.array([[height], [width]])
    half = (np.sqrt(_within(1 - weight, 1)) * size).astype(np.int64)
    half >>= 1
    edges = np.empty((2, 2, len(weight)), np.int64)  # the lower and the upper ones, of either axis
    edges[:, 0], edges[:, 1] = _array(centre_y), _array(centre_x)
    edges[0] -= half
    edges[1] += half
    np.minimum(np.maximum(edges, 0, out=edges), size, out=edges)
    return edges.reshape(4, -1)


def _share(edges: np.ndarray, height: int, width: int) -> np.ndarray:
    down, across = edges[2:] - edges[:2]
    share: np.ndarray = down * across / (height * width)
    return share


def paste(a: Tensor, b: Tensor, boxes: Tensor) -> Tensor:
    """Return `a` with the inside of each row's box taken from `b`.

    Parameters
    ----------
    a, b
        Two batches of one shape `[B, …, H, W]`.
    boxes
        One box `[4]` for the whole batch, or one per row `[B, 4]`: top, left, bottom, right.

    Returns
    -------
    Tensor
        The composed batch, of the shape and type of `a`.

    Examples
    --------
    >>> a, b = torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2)
    >>> paste(a, b, torch.tensor([0, 0, 1, 2]))
    tensor([[[[1., 1.],
              [0., 0.]]]])

    References
    ----------
    Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers", ICCV 2019.
    """
    _check_alike(a, b)
    if not (boxes.ndim == 1 and _box_by_box(a, boxes)):
        return torch.where(_inside(a, boxes), b, a)
    top, left, bottom, right = boxes.tolist()
    result = a.clone()
    result[..., top:bottom, left:right] = b[..., top:bottom, left:right]
    return result


def paste_rows(x: Tensor, partner: Tensor, boxes: Tensor) -> Tensor:
    """Return `x` with each row's box taken from the row `partner` names; `boxes` as in `paste`.

    Returns
    -------
    Tensor
        The composed batch, of the shape and type of `x`.

    Examples
    --------
    >>> x = torch.arange(2.0).reshape(2, 1, 1, 1).expand(2, 1, 1, 2)
    >>> paste_rows(x, torch.tensor([1, 0]), torch.tensor([0, 0, 1, 1]))[0]
    tensor([[[1., 0.]]])
    """
    if not _box_by_box(x, boxes) or (boxes.ndim == 2 and _is_followed(x)):
        return torch.where(_inside(x, boxes), _picked(x, partner), x)
    if boxes.ndim == 1:
        top, left, bottom, right = boxes.tolist()
        result = x.clone()
        result[..., top:bottom, left:right] = x[..., top:bottom, left:right].index_select(0, partner)
        return result
    _check_boxes(x, boxes)
    # Box by box on views of the same memory, which touches only what changes.
    given = x.detach()
    result = given.clone()
    source, target = _bits(given), _bits(result)
    pairs = zip(range(len(x)), partner.tolist(), boxes.tolist(), strict=True)
    for row, other, (top, left, bottom, right) in pairs:
        target[row, ..., top:bottom, left:right] = source[other, ..., top:bottom, left:right]
    return result


def sent(plan: R, device: torch.device) -> R:
    """Return a plan that was drawn on the CPU with its tensors on `device`, by one copy that nobody waits for.

    Returns
    -------
    plan
        A plan of the same type, whose tensors are on `device`.

    Examples
    --------
    >>> sent(PairPlan(torch.tensor([0.5]), torch.tensor([0])), torch.device("cpu")).lam
    tensor([0.5000])
    """
    if device.type == "cpu":
        return plan
    named = {f.name: getattr(plan, f.name) for f in fields(plan)}  # type: ignore[arg-type]  # plans are dataclasses
    drawn = {name: value for name, value in named.items() if isinstance(value, Tensor) and value.is_cpu}
    if not drawn:
        return plan
    there = move(list(drawn.values()), device)
    return replace(plan, **dict(zip(drawn, there, strict=True)))  # type: ignore[type-var]


def move(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return CPU tensors on another device, of which all travel as one buffer of bytes, pinned for CUDA.

    What arrives are views of that buffer: nothing is computed on the device.

    Returns
    -------
    list[Tensor]
        The tensors on `device`, in the order given.

    Examples
    --------
    >>> move([torch.tensor([0.5]), torch.tensor([1, 0])], torch.device("cpu"))
    [tensor([0.5000]), tensor([1, 0])]
    """
    if device.type == "cpu":
        return list(tensors)
    sizes = [t.numel() * t.element_size() for t in tensors]
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // 16) * 16)  # where any type may start
    buffer = torch.empty(starts[-1], dtype=torch.uint8, device="cpu", pin_memory=device.type == "cuda")

    def parts(whole: Tensor) -> list[Tensor]:
        places = zip(tensors, starts, sizes, strict=False)
        return [whole[start : start + size].view(t.dtype).view(t.shape) for t, start, size in places]

    for part, t in zip(parts(buffer), tensors, strict=True):
        part.copy_(t)
    return parts(buffer.to(device, non_blocking=True))


def fetched(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors on the CPU. Those that are on a device travel as one buffer of bytes, so the host waits once.

    Returns
    -------
    list[Tensor]
        The tensors in the order given, without their graphs.

    Examples
    --------
    >>> fetched([torch.tensor([0.5]), torch.tensor([1, 0])])
    [tensor([0.5000]), tensor([1, 0])]
    """
    result = list(tensors)
    # Large types first: each part then starts where its type may.
    away = [i for i, t in enumerate(tensors) if isinstance(t, Tensor) and not t.is_cpu]
    away.sort(key=lambda i: -tensors[i].element_size())
    if not away:
        return result
    parts = [tensors[i].detach().reshape(-1).view(torch.uint8) for i in away]
    whole = torch.cat(parts).cpu().split([part.numel() for part in parts])
    for i, part in zip(away, whole, strict=True):
        result[i] = part.view(tensors[i].dtype).view(tensors[i].shape)
    return result


@dataclass(frozen=True, eq=False)
class PairPlan:
    """Each row mixed with one partner: the plan of Mixup, and what other plans are built on.

    Examples
    --------
    >>> plan = PairPlan(torch.tensor([0.9, 0.9]), torch.tensor([1, 0]))
    >>> plan.combine(torch.tensor([0.0, 1.0]))
    tensor([0.1000, 0.9000])
    """

    lam: Tensor
    """The weight of the row itself, float32 `[B]`."""
    partner: Tensor
    """The number of the row it is mixed with, int64 `[B]`."""
    mixed: bool = True
    """False where the batch was left as it is."""

    @property
    def weights(self) -> Tensor:
        """λ and 1 − λ, `[B, 2]`."""
        return torch.stack([self.lam, 1 - self.lam], dim=1)

    @property
    def partners(self) -> Tensor:
        """The row itself and its partner, `[B, 2]`."""
        rows = torch.arange(len(self.partner), device=self.partner.device)
        return torch.stack([rows, self.partner], dim=1)

    def combine(self, t: Tensor) -> Tensor:
        """Return λ·t + (1 − λ)·t[partner]."""
        return mix_rows(t, self.partner, self.lam)


def _picked(x: Tensor, rows: Tensor) -> Tensor:
    """Return the rows of `x` in its memory format, which `index_select`, the faster one, does not keep."""
    return x.index_select(0, rows) if x.is_contiguous() else x[rows]


def _array(t: Tensor) -> np.ndarray:
    """Return the numbers of `t`, which are shared where it is on the CPU."""
    # Each call that is not needed counts: a box per image is a matter of a few hundred microseconds.
    array: np.ndarray = t.numpy() if t.is_cpu and not t.requires_grad else t.detach().cpu().numpy()
    return array


def _bits(x: Tensor) -> np.ndarray:
    """Return the memory of `x`; of types that NumPy does not have, such as bfloat16, as integers."""
    if x.dtype in (torch.float32, torch.float64):
        return _array(x)
    return _array(x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]))


def _within(values: np.ndarray, high: int) -> np.ndarray:
    result: np.ndarray = np.minimum(np.maximum(values, 0), high)  # what np.clip does, in a fifth of the time
    return result


def _check_boxes(x: Tensor, boxes: Tensor) -> None:
    if boxes.shape != (len(x), 4):
        raise ValueError(f"boxes must have shape [4] or [{len(x)}, 4], got {list(boxes.shape)}")


def _box_by_box(x: Tensor, boxes: Tensor) -> bool:
    """Return whether boxes may be read as numbers: on a device, and in a graph, they act by comparison."""
    return x.is_cpu and boxes.is_cpu and not torch.compiler.is_compiling()


def _is_followed(x: Tensor) -> bool:
    """Return whether autograd or a transform such as vmap follows `x`, whose memory is then not ours."""
    return bool(x.requires_grad and torch.is_grad_enabled()) or bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def _inside(x: Tensor, boxes: Tensor) -> Tensor:
    """Return which pixels lie in each row's box, or in that of all: bool `[B or 1, 1…, H, W]`."""
    boxes = boxes[None] if boxes.ndim == 1 else boxes
    if len(boxes) > 1:
        _check_boxes(x, boxes)
    top, left, bottom, right = (edge[:, None] for edge in boxes.to(x.device, non_blocking=True).unbind(1))
    y, x_ = (torch.arange(size, device=x.device) for size in x.shape[-2:])
    rows, columns = (y >= top) & (y < bottom), (x_ >= left) & (x_ < right)
    return (rows[:, :, None] & columns[:, None, :]).view(len(boxes), *[1] * (x.ndim - 3), *x.shape[-2:])


def _column(lam: Tensor | float, like: Tensor) -> Tensor:
    """Return λ as a tensor that broadcasts over the rows of `like`."""
    weight = torch.as_tensor(lam, dtype=like.dtype, device=like.device)
    if weight.ndim == 0:
        return weight
    if weight.shape != like.shape[:1]:
        raise ValueError(f"lam must be a number or have shape [{len(like)}], got {list(weight.shape)}")
    return weight.view(-1, *[1] * (like.ndim - 1))


def _check_alike(a: Tensor, b: Tensor) -> None:
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(
            f"a and b must have one shape and type, got {list(a.shape)} {a.dtype} and {list(b.shape)} {b.dtype}"
        )


def _check_floating(x: Tensor) -> None:
    if not x.is_floating_point():
        raise ValueError(
            f"mixing needs a floating tensor, got {x.dtype}: turn uint8 images into floats first, and mix "
            "token ids at a layer (SequenceMixup, ManifoldMixup)"
        )
