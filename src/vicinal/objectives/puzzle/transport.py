r"""Where each block goes: the transport of salient blocks into the mask, and the mixture of two transported images."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vicinal._arrays import at_least_float32
from vicinal._checks import number
from vicinal.objectives.puzzle.cut import largest_divisor
from vicinal.objectives.puzzle.saliency import block_sides

_MAX_CANDIDATES = 4_000_000  # moves looked at together by transport_plan: about 300 MB


def refine(masks: Tensor, blocks: int, *, height: int, width: int) -> Tensor:
    """Return the masks on the finest grid that divides theirs and the image and has at most `blocks` a side.

    >>> refine(torch.tensor([[[1.0, 0.0], [0.5, 0.0]]]), 5, height=16, width=16)[0]
    tensor([[1.0000, 1.0000, 0.0000, 0.0000],
            [1.0000, 1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000, 0.0000]])
    """
    n = masks.shape[-1]
    factor = largest_divisor(math.gcd(height // n, width // n), max(1, blocks // n))
    return masks.repeat_interleave(factor, 1).repeat_interleave(factor, 2)


def transport_plan(masks: Tensor, saliency: Tensor, *, eps: float = 0.8) -> Tensor:
    r"""Return which source block each target block shows, `[B, n²]`: a permutation that moves saliency into the mask.

    Moving block i to j costs :math:`C_{ij} = \epsilon\, d_{ij}^2 / (n-1)^2 - s_i [m_j > 0]`, d the distance in
    blocks. Every block asks for its cheapest place, a place goes to whom it costs least, and who loses asks for the
    next, until none is left: since both sides rank by the same cost, this is the greedy assignment, cheapest
    move first. Only moves of negative cost are made; other blocks stay, or fill the places that are left, all
    of them outside the mask.

    Parameters
    ----------
    masks
        The share of this image in each block, `[B, n, n]`.
    saliency
        Shares from `block_saliency`, `[B, n, n]`.
    eps
        ε > 0: the price of distance.

    Notes
    -----
    A move has negative cost only within the radius :math:`(n-1)\sqrt{s_i/\epsilon}`, and the shares sum to one, so
    an image has about :math:`\pi n^2/\epsilon` moves to look at, where a dense plan has n⁴.

    >>> masks, saliency = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]), torch.tensor([[[0.0, 0.9], [0.1, 0.0]]])
    >>> transport_plan(masks, saliency)
    tensor([[1, 0, 2, 3]])
    """
    eps = number("eps", eps, above=0)
    n_rows, n, _ = masks.shape
    if n < 2:
        raise ValueError(f"masks must have at least 2 × 2 blocks, got {list(masks.shape)}")
    steps, lengths, shorter = _steps(n, masks.device)
    share = saliency.reshape(-1).float()
    price = eps / (n - 1) ** 2
    # How many moves, nearest first, each block can pay for with its saliency.
    reach = (share / price).nan_to_num(0.0)  # 0/0: a price too small for a float
    in_reach = shorter[reach.clamp(max=len(shorter) - 1).ceil().long()]
    if n_rows > 1 and int(in_reach.sum()) > _MAX_CANDIDATES:
        halves = zip(masks.split(-(-n_rows // 2)), saliency.split(-(-n_rows // 2)), strict=True)
        return torch.cat([transport_plan(m, s, eps=eps) for m, s in halves])
    source, nearest = _moves_into_the_mask(masks > 0, steps, in_reach)
    target = source + (steps @ steps.new_tensor([n, 1])).index_select(0, nearest)
    gain = share.index_select(0, source) - price * lengths.index_select(0, nearest)
    return _filled(_greedy(source, target, gain, n_rows * n * n)).view(n_rows, n * n) % (n * n)


def _moves_into_the_mask(shown: Tensor, steps: Tensor, in_reach: Tensor) -> tuple[Tensor, Tensor]:
    """Return every move worth asking for, block after block, nearest first: its block, and its number in `steps`.

    Blocks are numbered through the batch. In a frame of n − 1 hidden blocks around each mask, one look-up tells whether
    a move stays inside the image and ends in the mask.
    """
    n_rows, n, _ = shown.shape
    frame = F.pad(shown, (n - 1, n - 1, n - 1, n - 1))
    inside = torch.arange(frame[0].numel(), device=shown.device).view(frame[0].shape)[n - 1 : 1 - n, n - 1 : 1 - n]
    start = torch.arange(n_rows, device=shown.device)[:, None, None] * frame[0].numel() + inside
    source = torch.repeat_interleave(in_reach)
    # The moves of one block follow each other, so the number within the block is the place less the block's first.
    nearest = torch.arange(len(source), device=shown.device) - (in_reach.cumsum(0) - in_reach).index_select(0, source)
    shift = steps @ steps.new_tensor([frame.shape[-1], 1])
    place = start.view(-1).index_select(0, source) + shift.index_select(0, nearest)
    kept = frame.view(-1).index_select(0, place).nonzero()[:, 0]
    return source.index_select(0, kept), nearest.index_select(0, kept)


def _greedy(source: Tensor, target: Tensor, gain: Tensor, size: int) -> Tensor:
    """Return which block each place goes to, -1 for none: deferred acceptance, all blocks of the batch at once.

    In each round every block without a place asks for the next on its list, and a place keeps the best bid it has seen.
    """
    # The gain and the block that asks, in one integer, so that one amax finds the best bid: the bits of a float that
    # is not negative order as the float does, and among equal gains the lower block has the greater lower half.
    bid = (gain.clamp(min=0).view(torch.int32).long() << 32) | (2**31 - 1 - source)
    count = torch.bincount(source, minlength=size)
    stop = count.cumsum(0)
    move = stop - count  # the one each block asks for
    best = torch.zeros(size, dtype=torch.int64, device=source.device)  # the bid each place has accepted; 0: none
    asking = count.nonzero()[:, 0]
    while len(asking):
        wanted, offer = target[move[asking]], bid[move[asking]]
        before = best[wanted]
        best.scatter_reduce_(0, wanted, offer, "amax")
        won = best[wanted] == offer
        displaced = _bidder(before[won & (before > 0)])
        asking = torch.cat([asking[~won], displaced])
        move[asking] += 1
        asking = asking[move[asking] < stop[asking]]  # who has asked everywhere stays where it is
    return torch.where(best > 0, _bidder(best), -1)


def _filled(plan: Tensor) -> Tensor:
    """Return the plan as a permutation: blocks without a place stay, or fill the places that are left."""
    moved = torch.zeros_like(plan, dtype=torch.bool)
    moved[plan[plan >= 0]] = True
    identity = torch.arange(len(plan), device=plan.device)
    stays = (plan < 0) & ~moved
    plan, moved = torch.where(stays, identity, plan), moved | stays
    # Within each image as many blocks are free as places are empty, so the two lists line up.
    plan[plan < 0] = identity[~moved]
    return plan


def apply_transport(x: Tensor, plan: Tensor) -> Tensor:
    """Return the images with their blocks rearranged: target j shows block `plan[:, j]`.

    Parameters
    ----------
    x
        Images `[B, …, H, W]`.
    plan
        Source blocks `[B, n²]` from `transport_plan`, row by row of blocks.

    >>> apply_transport(torch.tensor([[[1, 2], [3, 4]]]), torch.tensor([[3, 1, 2, 0]]))
    tensor([[[4, 2],
             [3, 1]]])
    """
    return _rearranged(x, plan, math.isqrt(plan.shape[1]))


def mix_blocks(a: Tensor, b: Tensor, masks: Tensor, plan_a: Tensor, plan_b: Tensor) -> Tensor:
    r"""Return :math:`M \odot T_a(a) + (1-M) \odot T_b(b)` for images `[B, …, H, W]`.

    Parameters
    ----------
    a, b
        Two floating batches of one shape.
    masks
        The share of `a` in each block, `[B, n, n]`.
    plan_a, plan_b
        Their transport plans, `[B, n²]`.

    Notes
    -----
    Computed in float32 (float64 for float64 input) and cast back.
    """
    n, (height, width) = masks.shape[-1], a.shape[-2:]
    a_, b_ = (_rearranged(at_least_float32(t), p, n) for t, p in ((a, plan_a), (b, plan_b)))
    share = masks.repeat_interleave(height // n, 1).repeat_interleave(width // n, 2).to(a_.dtype)
    return torch.lerp(b_, a_, share.view(len(a), *[1] * (a.ndim - 3), height, width)).to(a.dtype)


def _rearranged(x: Tensor, plan: Tensor, n: int) -> Tensor:
    """Return the images with their n × n blocks rearranged."""
    pixels = _source_pixels(plan, x, n).view(len(x), *[1] * (x.ndim - 3), -1)
    flat = x.flatten(-2)
    return flat.gather(-1, pixels.expand(flat.shape)).view(x.shape)


def _source_pixels(plan: Tensor, x: Tensor, n: int) -> Tensor:
    """Return where each pixel of the images comes from, `[B, H·W]`, for blocks that come from `plan`."""
    height, width = x.shape[-2:]
    rows, columns = block_sides(x, n)
    pixels = torch.arange(height * width, device=plan.device).view(height, width)
    corner = pixels[::rows, ::columns].reshape(-1)[plan].view(-1, n, 1, n, 1)
    return (corner + pixels[:rows, None, :columns]).view(len(plan), -1)


@functools.lru_cache(maxsize=8)
def _steps(n: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return all moves (rows, columns) on an n × n grid, nearest first, their d², and how many have d² < 0, 1, 2, …."""
    side = torch.arange(1 - n, n, device=device)
    steps = torch.cartesian_prod(side, side)
    lengths, order = steps.square().sum(1).sort(stable=True)
    limits = torch.arange(2 * (n - 1) ** 2 + 2, device=device)
    return steps[order], lengths.float(), torch.searchsorted(lengths, limits)


def _bidder(bid: Tensor) -> Tensor:
    return 2**31 - 1 - (bid & 0xFFFFFFFF)
