r"""The puzzle of PuzzleMix as pure tensor functions: which block comes from which image, and where it goes.

Everything works on a whole batch at once, on any device, for any height, width and number of channels; an
image is cut into n × n blocks. `vicinal.objectives.puzzle.objective` re-exports what is public and has the equations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vicinal._checks import choice, integer, number

__all__ = [
    "SOLVERS",
    "MaskCosts",
    "apply_transport",
    "block_saliency",
    "gradient_saliency",
    "mask_costs",
    "mask_energy",
    "mix_blocks",
    "refine",
    "solve_masks",
    "transport_plan",
]

#: How a mask may be solved for: `"fast"` in torch on any device, `"exact"` by a maximum flow on the CPU.
SOLVERS = ("fast", "exact")

_LOG_FLOOR = 1e-8  # keeps the prior finite at λ = 0 and 1, as in the authors' code
_DESCENTS = 2  # of rows and columns in the fast solver: a third one gains about 0.02 % of energy
_MAX_CANDIDATES = 4_000_000  # moves looked at together by transport_plan: about 300 MB


@dataclass(frozen=True, eq=False)
class MaskCosts:
    """The energy of every mask of a batch, as the costs it is a sum of."""

    unary: Tensor
    """Cost of each label k/(L − 1) of each block, `[B, n, n, L]`."""
    vertical: Tensor
    """Weight of (m − m')² between a block and the one below it, `[B, n − 1, n]`, not negative."""
    horizontal: Tensor
    """Weight of (m − m')² between a block and the one to its right, `[B, n, n − 1]`, not negative."""

    @property
    def values(self) -> Tensor:
        """The labels 0, 1/(L − 1), …, 1, `[L]`."""
        n_labels = self.unary.shape[-1]
        return torch.arange(n_labels, dtype=self.unary.dtype, device=self.unary.device) / (n_labels - 1)


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
    pooled = F.avg_pool2d(saliency[:, None], _block_sides(saliency, blocks))[:, 0]
    total = pooled.sum((1, 2), keepdim=True)
    return torch.where(total.isfinite() & (total > 0), pooled / total, 1 / blocks**2)


def mask_costs(
    x: Tensor,
    saliency: Tensor,
    partner: Tensor,
    lam: float,
    *,
    labels: int = 3,
    beta: float = 1.2,
    gamma: float = 0.5,
    eta: float = 0.2,
    neighbour_size: int = 4,
) -> MaskCosts:
    r"""Return the costs of every mask that mixes each image with its partner.

    Parameters
    ----------
    x
        Images `[B, …, H, W]` on a scale of [0, 1].
    saliency
        Shares `[B, n, n]` from `block_saliency`; n divides H and W.
    partner
        The row number of each image's partner, `[B]`.
    lam
        λ of the prior: the share of the mask that x should get.
    labels
        L ≥ 2: a block's label m is one of 0, 1/(L − 1), …, 1.
    beta, gamma, eta
        Weights of the label smoothness, of the data smoothness relative to it, and of the prior.
    neighbour_size
        Differences across borders are taken between squares of about so many pixels a side.

    Returns
    -------
    MaskCosts
        Whose energy is, with s₁ and s₂ the shares of x and of its partner and i ~ j neighbouring blocks,

        .. math::
            E(m) = \sum_i \Big[ m_i s_{2i} + (1-m_i) s_{1i}
            - \frac{\eta}{n^2} \log \mathrm{Bin}_{L-1,\lambda}\big((L-1) m_i\big) \Big]
            + \frac{\beta}{16 n} \sum_{i \sim j} \big[ (m_i - m_j)^2 + \gamma\, \phi_{ij}(m_i, m_j) \big]

        where :math:`\phi_{ij}(a, b) = d^{ab}_{ij}` for labels a, b in {0, 1}: the mean absolute difference
        across the border when block i shows image a (1 for x, 0 for its partner) and block j image b. Between,
        :math:`\phi = d^{00} + \frac{m_i}{2}(d^{10}+d^{11}-d^{01}-d^{00}) + \frac{m_j}{2}(d^{01}+d^{11}-d^{10}-d^{00})
        + w (m_i-m_j)^2` with :math:`w = \frac12 (d^{10}+d^{01}-d^{11}-d^{00})`. Weights of (mᵢ − mⱼ)² below zero,
        which need γ > 1 or pixels beyond [0, 1], count as zero: the energy stays convex.
    """
    n_rows, n, _ = saliency.shape
    lam, labels = number("lam", float(lam), low=0, high=1), integer("labels", labels, low=2)
    values = torch.arange(labels, dtype=saliency.dtype, device=saliency.device) / (labels - 1)
    ways = [math.comb(labels - 1, k) * lam**k * (1 - lam) ** (labels - 1 - k) for k in range(labels)]
    prior = -eta / n**2 * torch.tensor([math.log(p + _LOG_FLOOR) for p in ways]).to(values)
    lost = saliency.index_select(0, partner)[..., None] * values + saliency[..., None] * (1 - values)

    smoothness = beta / (16 * n)
    pool = [_largest_divisor(side, neighbour_size) for side in _block_sides(x, n)]
    pooled = F.avg_pool2d(x.reshape(n_rows, -1, *x.shape[-2:]).to(saliency.dtype), (pool[0], pool[1]))
    linear, constant = torch.zeros_like(saliency), torch.zeros_like(saliency)
    weights = []
    for turned in (False, True):  # borders between rows of blocks, then between columns: the same, transposed
        gaps = _border_gaps(pooled.transpose(-1, -2) if turned else pooled, partner, n)
        d00, d01, d10, d11 = (g.transpose(-1, -2) if turned else g for g in gaps)
        dim = 2 if turned else 1
        linear.narrow(dim, 0, n - 1).add_(d10 + d11 - d01 - d00, alpha=0.5)
        linear.narrow(dim, 1, n - 1).add_(d01 + d11 - d10 - d00, alpha=0.5)
        constant.narrow(dim, 0, n - 1).add_(d00)  # of a pair, so at one of its blocks
        weights.append((smoothness * (1 + gamma * (d10 + d01 - d11 - d00) / 2)).clamp(min=0))
    data = smoothness * gamma * (constant[..., None] + linear[..., None] * values)
    return MaskCosts(lost + prior + data, *weights)


def mask_energy(masks: Tensor, costs: MaskCosts) -> Tensor:
    """Return the energy E(m) of each mask, `[B]` from `[B, n, n]`, that `mask_costs` defines.

    >>> costs = MaskCosts(torch.zeros(1, 2, 2, 3), torch.ones(1, 1, 2), torch.ones(1, 2, 1))
    >>> mask_energy(torch.tensor([[[1.0, 0.5], [1.0, 1.0]]]), costs)
    tensor([0.5000])
    """
    masks = masks.to(costs.unary.dtype)
    index = (masks * (costs.unary.shape[-1] - 1)).round().long()
    unary = costs.unary.gather(-1, index[..., None])[..., 0].sum((1, 2))
    vertical = (costs.vertical * masks.diff(dim=1).square()).sum((1, 2))
    return unary + vertical + (costs.horizontal * masks.diff(dim=2).square()).sum((1, 2))


def solve_masks(costs: MaskCosts, *, solver: str = "fast") -> Tensor:
    """Return the mask of least energy of each row, `[B, n, n]`.

    Parameters
    ----------
    costs
        From `mask_costs`.
    solver
        `"exact"`: the labels are ordered and the energy is convex in their difference, so one minimum cut solves
        the whole batch (Ishikawa, IEEE TPAMI 2003), on the CPU, within 1e-5 of the optimum (capacities are integers).
        `"fast"`: start from the min-marginals of all rows and columns of blocks, then choose every other row
        (column) anew, each as a whole and exactly, given its neighbours; last, try one label for all. In torch on
        any device and faster from 4 × 4 blocks on. With the default weights it is on average within 0.5 % of the
        optimum at 16 × 16 blocks and 0.2 % at 8 × 8; where β is several times as large it can be some percent above.

    >>> costs = MaskCosts(torch.rand(4, 8, 8, 3), torch.rand(4, 7, 8), torch.rand(4, 8, 7))
    >>> exact, fast = (mask_energy(solve_masks(costs, solver=s), costs) for s in ("exact", "fast"))
    >>> bool((exact <= fast + 1e-3).all())
    True
    """
    choice("solver", solver, SOLVERS)
    return _solve_exact(costs) if solver == "exact" else _solve_fast(costs)


def refine(masks: Tensor, blocks: int, *, height: int, width: int) -> Tensor:
    """Return the masks on the finest grid that divides theirs and the image and has at most `blocks` a side.

    >>> refine(torch.tensor([[[1.0, 0.0], [0.5, 0.0]]]), 5, height=16, width=16)[0]
    tensor([[1.0000, 1.0000, 0.0000, 0.0000],
            [1.0000, 1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000, 0.0000]])
    """
    n = masks.shape[-1]
    factor = _largest_divisor(math.gcd(height // n, width // n), max(1, blocks // n))
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
    size, device = n * n, masks.device
    steps, lengths, shorter = _steps(n, device)
    share = saliency.reshape(-1).float()
    price = eps / (n - 1) ** 2
    reach = (share / price).nan_to_num(0.0)  # 0/0: a price too small for a float
    in_reach = shorter[reach.clamp(max=len(shorter) - 1).ceil().long()]
    if n_rows > 1 and int(in_reach.sum()) > _MAX_CANDIDATES:
        halves = zip(masks.split(-(-n_rows // 2)), saliency.split(-(-n_rows // 2)), strict=True)
        return torch.cat([transport_plan(m, s, eps=eps) for m, s in halves])

    # Every move worth asking for, block after block, nearest first. In a frame of n − 1 hidden blocks around the
    # masks, one look-up tells whether a move stays inside and ends in the mask.
    frame = F.pad(masks > 0, (n - 1, n - 1, n - 1, n - 1))
    grid = torch.arange(frame[0].numel(), device=device).view(frame[0].shape)[n - 1 : 1 - n, n - 1 : 1 - n]
    start = torch.arange(n_rows, device=device)[:, None, None] * frame[0].numel() + grid
    source = torch.repeat_interleave(in_reach)
    nearest = torch.arange(len(source), device=device) - (in_reach.cumsum(0) - in_reach).index_select(0, source)
    shift = steps @ steps.new_tensor([frame.shape[-1], 1])
    place = start.view(-1).index_select(0, source) + shift.index_select(0, nearest)
    kept = frame.view(-1).index_select(0, place).nonzero()[:, 0]
    source, nearest = source.index_select(0, kept), nearest.index_select(0, kept)
    target = source + (steps @ steps.new_tensor([n, 1])).index_select(0, nearest)
    gain = share.index_select(0, source) - price * lengths.index_select(0, nearest)
    # The gain and the block that asks, in one integer, so that one amax finds the best: among equals the first block.
    bid = (gain.clamp(min=0).view(torch.int32).long() << 32) | (2**31 - 1 - source)

    count = torch.bincount(source, minlength=n_rows * size)
    stop = count.cumsum(0)
    move = stop - count  # the one each block asks for
    best = torch.zeros(n_rows * size, dtype=torch.int64, device=device)  # the bid each target holds; 0: none
    asking = count.nonzero()[:, 0]
    while len(asking):
        wanted, offer = target[move[asking]], bid[move[asking]]
        before = best[wanted]
        best.scatter_reduce_(0, wanted, offer, "amax")
        won = best[wanted] == offer
        displaced = _bidder(before[won & (before > 0)])
        asking = torch.cat([asking[~won], displaced])
        move[asking] += 1
        asking = asking[move[asking] < stop[asking]]

    plan = torch.where(best > 0, _bidder(best), -1)
    moved = torch.zeros_like(plan, dtype=torch.bool)
    moved[plan[plan >= 0]] = True
    own = torch.arange(n_rows * size, device=device)
    stays = (plan < 0) & ~moved
    plan, moved = torch.where(stays, own, plan), moved | stays
    # Within each image as many blocks are free as places are empty, so the two lists line up.
    plan[plan < 0] = own[~moved]
    return plan.view(n_rows, size) % size


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
    pixels = _source_pixels(plan, x).view(len(x), *[1] * (x.ndim - 3), -1)
    flat = x.flatten(-2)
    return flat.gather(-1, pixels.expand(flat.shape)).view(x.shape)


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
    a_, b_ = (apply_transport(t if t.dtype == torch.float64 else t.float(), p) for t, p in ((a, plan_a), (b, plan_b)))
    n, (height, width) = masks.shape[-1], a.shape[-2:]
    share = masks.repeat_interleave(height // n, 1).repeat_interleave(width // n, 2).to(a_.dtype)
    return torch.lerp(b_, a_, share.view(len(a), *[1] * (a.ndim - 3), height, width)).to(a.dtype)


def _source_pixels(plan: Tensor, x: Tensor) -> Tensor:
    """Return where each pixel of the images comes from, `[B, H·W]`, for blocks that come from `plan`."""
    n, (height, width) = math.isqrt(plan.shape[1]), x.shape[-2:]
    rows, columns = _block_sides(x, n)
    pixels = torch.arange(height * width, device=plan.device).view(height, width)
    corner = pixels[::rows, ::columns].reshape(-1)[plan].view(-1, n, 1, n, 1)
    return (corner + pixels[:rows, None, :columns]).view(len(plan), -1)


def _border_gaps(pooled: Tensor, partner: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return d⁰⁰, d⁰¹, d¹⁰, d¹¹ between each block and the one below it, each `[B, n − 1, n]`."""
    rows, columns = (side // n for side in pooled.shape[-2:])
    upper, lower = pooled[:, :, rows - 1 : -1 : rows], pooled[:, :, rows::rows]
    shown = {"1": (upper, lower), "0": (upper.index_select(0, partner), lower.index_select(0, partner))}

    def gap(a: str, b: str) -> Tensor:
        across = (shown[a][0] - shown[b][1]).abs().mean(1)
        return across.view(*across.shape[:2], n, columns).mean(-1)

    own = gap("1", "1")
    return own.index_select(0, partner), gap("0", "1"), gap("1", "0"), own


def _block_sides(x: Tensor, blocks: int) -> tuple[int, int]:
    """Return the height and the width of a block of `[…, H, W]`."""
    height, width = x.shape[-2:]
    if blocks < 1 or height % blocks or width % blocks:
        raise ValueError(
            f"the number of blocks a side must divide both sides of {height} × {width} images, got {blocks}"
        )
    return height // blocks, width // blocks


def _largest_divisor(number: int, limit: int) -> int:
    return max(d for d in range(1, limit + 1) if number % d == 0)


def _solve_fast(costs: MaskCosts) -> Tensor:
    # Batch last: every step of a dynamic programme is then a few operations on long vectors.
    terms = costs.unary, costs.vertical, costs.horizontal
    unary, vertical, horizontal = (t.movedim(0, -1).contiguous() for t in terms)
    turned, across, along = (t.transpose(0, 1).contiguous() for t in (unary, horizontal, vertical))  # columns as rows
    values = costs.values
    rows = _row_marginals(unary / 2, horizontal, values)
    columns = _row_marginals(turned / 2, along, values).transpose(0, 1)
    masks = values[(rows + columns).min(2).indices]
    for _ in range(_DESCENTS):
        masks = _descend_rows(masks, unary, vertical, horizontal, values)
        masks = _descend_rows(masks.transpose(0, 1), turned, across, along, values).transpose(0, 1)
    masks = masks.movedim(-1, 0).contiguous()
    # Where smoothness rules, one label for all is best, and no row or column alone gains by turning to it.
    even, label = costs.unary.sum((1, 2)).min(1)
    better = even < mask_energy(masks, costs)
    return torch.where(better.view(-1, 1, 1), values[label].view(-1, 1, 1), masks)


def _descend_rows(masks: Tensor, unary: Tensor, vertical: Tensor, horizontal: Tensor, values: Tensor) -> Tensor:
    """Choose the even rows `[n, n, B]` anew, each as a whole, given the odd ones; then the odd ones."""
    n, _, n_labels, n_rows = unary.shape
    levels = values[:, None]
    padded = F.pad(masks, (0, 0, 0, 0, 1, 1))
    weight = F.pad(vertical, (0, 0, 0, 0, 1, 1))  # to the row above
    for parity in (0, 1):
        rows, below = slice(parity, n, 2), slice(parity + 1, n + 1, 2)
        above_pull, below_pull = weight[rows] * padded[rows], weight[below] * padded[parity + 2 :: 2]
        # w·(m − x)² of the rows above and below, without the w·x² that all labels share
        given = torch.addcmul(unary[rows], (weight[rows] + weight[below])[:, :, None], levels.square())
        given.addcmul_((above_pull + below_pull)[:, :, None], levels, value=-2)
        chains = given.permute(1, 2, 0, 3).reshape(n, n_labels, -1)
        along = horizontal[rows].transpose(0, 1).reshape(n - 1, -1)
        padded[below] = _solve_chains(chains, along, values).view(n, -1, n_rows).transpose(0, 1)
    return padded[1:-1]


def _solve_chains(unary: Tensor, weight: Tensor, values: Tensor) -> Tensor:
    """Return the best labels `[n, C]` of C chains of n blocks (Viterbi), for costs `[n, L, C]` and `[n − 1, C]`."""
    levels = values[:, None]
    best = _messages(unary, weight, values) + unary
    chosen = [values[best[-1].min(0).indices]]
    before = torch.addcmul(best[:-1], weight[:, None], levels.square())
    for cost, pull in zip(before.flip(0), weight.flip(0), strict=True):
        # the cost of a label here, given the next: w·(m − x)² again without w·x²
        to_here = torch.addcmul(cost, pull * chosen[-1], levels, value=-2)
        chosen.append(values[to_here.min(0).indices])
    return torch.stack(chosen[::-1])


def _row_marginals(unary: Tensor, weight: Tensor, values: Tensor) -> Tensor:
    """Return the least cost of each row `[n, n, L, B]` in which a block has each label."""
    n, _, n_labels, n_rows = unary.shape
    chains = unary.permute(1, 2, 0, 3).reshape(n, n_labels, -1)
    weight = weight.transpose(0, 1).reshape(n - 1, -1)
    back = _messages(chains.flip(0), weight.flip(0), values).flip(0)
    total = _messages(chains, weight, values) + chains + back
    return total.view(n, n_labels, n, n_rows).permute(2, 0, 1, 3)


def _messages(unary: Tensor, weight: Tensor, values: Tensor) -> Tensor:
    """Return the least cost of all that comes before each block of a chain, for each of its labels, `[n, L, C]`."""
    between = weight[:, None, None] * (values[:, None] - values).square()[:, :, None]
    messages = [torch.zeros_like(unary[0])]
    for cost, pair in zip(unary, between, strict=False):
        messages.append((pair + (messages[-1] + cost)[:, None]).amin(0))
    return torch.stack(messages)


def _solve_exact(costs: MaskCosts) -> Tensor:
    """Solve the whole batch by one minimum cut.

    With x_a = 1 if a label is at least a, else 0, for a = 1 … L − 1, the squared difference of two labels is
    Σ_ab (x_a − y_b)² + Σ_a (2a − L)(x_a + y_a): edges between all levels of neighbours, and linear terms.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    unary = costs.unary.detach().cpu().double()
    vertical, horizontal = (t.detach().cpu().double() for t in (costs.vertical, costs.horizontal))
    n_labels = unary.shape[-1]
    levels = n_labels - 1
    touching = F.pad(vertical, (0, 0, 1, 0)) + F.pad(vertical, (0, 0, 0, 1))
    touching += F.pad(horizontal, (1, 0)) + F.pad(horizontal, (0, 1))
    level = torch.arange(1, n_labels, dtype=torch.float64)
    linear = unary.diff(dim=-1) + touching[..., None] * (2 * level - n_labels) / levels**2

    # Capacities are 32-bit integers. Scaled for each image, so that what leaves the source sums to 2²⁸, and cut
    # off at 2²⁹, which is then as good as infinite, neither they nor any flow can overflow.
    supply = (-linear).clamp(min=0).sum((1, 2, 3))
    scale = torch.where(supply > 0, 2.0**28 / supply, 0.0).view(-1, 1, 1, 1)
    node = torch.arange(linear.numel()).view(linear.shape)
    source, sink = node.numel(), node.numel() + 1
    edges: list[tuple[Any, Any, Tensor]] = [
        (torch.full_like(node, source), node, (-linear).clamp(min=0) * scale),
        (node, torch.full_like(node, sink), linear.clamp(min=0) * scale),
        (node[..., 1:], node[..., :-1], torch.full(node[..., 1:].shape, 2.0**29)),  # label ≥ a + 1 implies ≥ a
    ]
    neighbours = (vertical, node[:, :-1], node[:, 1:]), (horizontal, node[:, :, :-1], node[:, :, 1:])
    for weight, here, there in neighbours:
        capacity = (weight[..., None] * scale / levels**2)[..., None].expand(*weight.shape, levels, levels)
        ends = here[..., None].expand_as(capacity), there[..., None, :].expand_as(capacity)
        edges += [(*ends, capacity), (*ends[::-1], capacity)]
    tail, head, cap = (torch.cat([t.reshape(-1) for t in ts]) for ts in zip(*edges, strict=True))
    cap = cap.round().clamp(max=2**29).int()
    used = cap > 0
    index = tail[used].int().numpy(), head[used].int().numpy()
    graph = coo_array((cap[used].numpy(), index), shape=(sink + 1, sink + 1)).tocsr()

    residual = graph - maximum_flow(graph, source, sink).flow
    residual.eliminate_zeros()
    reached = torch.zeros(sink + 1, dtype=torch.float64)
    reached[torch.from_numpy(breadth_first_order(residual, source, return_predecessors=False)).long()] = 1
    return (reached[:source].view(linear.shape).sum(-1) / levels).to(costs.unary)


def _steps(n: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return all moves (rows, columns) on an n × n grid, nearest first, their d², and how many have d² < 0, 1, 2, …."""
    side = torch.arange(1 - n, n, device=device)
    steps = torch.cartesian_prod(side, side)
    lengths, order = steps.square().sum(1).sort(stable=True)
    limits = torch.arange(2 * (n - 1) ** 2 + 2, device=device)
    return steps[order], lengths.float(), torch.searchsorted(lengths, limits)


def _bidder(bid: Tensor) -> Tensor:
    return 2**31 - 1 - (bid & 0xFFFFFFFF)
