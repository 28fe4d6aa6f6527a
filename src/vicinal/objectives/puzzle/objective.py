r"""PuzzleMix: cut both images into blocks, keep the salient ones, and move them so that more of them fit.

.. math::
    \tilde x = M \odot T(x) + (1 - M) \odot T'(x_\pi), \qquad
    \mathcal{L} = \bar M H(f(\tilde x), y) + (1 - \bar M) H(f(\tilde x), y_\pi)

where the mask M, with values 0, ½ and 1 on n × n blocks, minimises the saliency that is lost, plus smoothness,
plus a prior for :math:`\lambda \sim \mathrm{Beta}(\alpha,\alpha)` (`mask_costs` has the energy); the transports T and
T' move salient blocks of each image to where the mask shows it (`transport_plan`); :math:`\bar M` is the mean of the
mask. Saliency is the gradient of the clean loss at the input, :math:`s = \sqrt{\mathrm{mean}_c\, g_c^2}`.

References
----------
Kim, Choo & Song, "Puzzle Mix: Exploiting Saliency and Local Statistics for Optimal Mixup", ICML 2020.

Deviations from the published code: costs stay floating point, where it scales them to int32, which overflows at
16 × 16 blocks for a block with 8 % of the saliency; the whole batch is solved at once, exactly or nearly so,
instead of by α-β swaps; the transport runs until it converges (the paper's Algorithm 1), not n rounds, and the
places that it leaves empty are filled, so that it is a permutation; an image without gradient has uniform
saliency, not NaN; images need not be square or have three channels; the loss is cross-entropy, not the binary
cross-entropy of the softmax, and `clean_weight` is on that scale; the transport's resolution is given in blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from vicinal import _random, losses
from vicinal._checks import added_field, choice, flag, freeze, integer, number
from vicinal._typing import Batch, Model, Step
from vicinal.mixing import PairPlan, move, sent
from vicinal.objectives.base import InputMixing, checked_fields, mean_loss
from vicinal.objectives.forward import image_tensor, mixed_input, with_input
from vicinal.objectives.puzzle.cut import SOLVERS, EnergyWeights, mask_costs, solve_masks
from vicinal.objectives.puzzle.saliency import block_saliency, gradient_saliency, input_gradient
from vicinal.objectives.puzzle.transport import mix_blocks, refine, transport_plan


@dataclass(frozen=True, eq=False)
class PuzzleDraw:
    """What chance decides in a step; the rest of the plan is solved for."""

    lam: float
    """λ, which the masks lean to; 1 where the batch is left as it is."""
    partner: Tensor
    """The number of the row each row is mixed with, int64 `[B]`, on the CPU."""
    blocks: int
    """The blocks a side of the masks."""
    start: Tensor | None = None
    """The random start of the adversarial noise, in pixels."""
    noisy: tuple[bool, bool] = (False, False)
    """Whether noise is added to the row itself, and to its partner."""
    scale: Tensor | None = None
    """The uniform number that the noise is multiplied by."""
    mixed: bool = True
    """False where `prob` decided against mixing."""


@dataclass(frozen=True, eq=False)
class PuzzlePlan(PairPlan):
    """A pair plan with the solved puzzle: λ is the mean of each row's mask."""

    masks: Tensor = field(kw_only=True)
    """The share of the row itself in each block, `[B, n, n]`."""
    source: Tensor = field(kw_only=True)
    """Which of its own blocks each block shows, `[B, n²]`."""
    partner_source: Tensor = field(kw_only=True)
    """Which of its partner's blocks each block shows, `[B, n²]`."""
    noise: Tensor | None = field(default=None, kw_only=True)
    """What is added to the images before they are cut, of the shape of the batch."""
    noisy: tuple[bool, bool] = field(default=(False, False), kw_only=True)
    """Whether it is added to the row itself, and to its partner."""
    clean: Tensor | None = field(default=None, kw_only=True)
    """The loss of each clean row, `[B]`, if it is a part of the objective's loss."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PuzzleMix(InputMixing[PuzzlePlan]):
    """Fit the salient blocks of two images into one; labels are mixed by the share each has of the mask.

    Parameters
    ----------
    alpha
        α ≥ 0 of Beta(α, α), one λ per batch, which the masks lean to; 0 is plain training, without
        saliency or `clean_weight`.
    block_counts
        n, the blocks a side, is drawn per batch from those of these that divide both sides of the images.
    labels
        L ≥ 2, the values that a mask can take: 0, 1/(L − 1), …, 1.
    beta, gamma, eta
        Weights of the masks' smoothness, of the images' smoothness across the cuts relative to it, and of the
        prior that pulls the masks to λ.
    neighbour_size
        The side, in pixels, of the squares that are compared across the cuts.
    transport
        Whether blocks move.
    transport_eps
        ε > 0: the price of moving a block far.
    transport_blocks
        Blocks move on the finest grid that divides the masks' blocks and has at most so many blocks a side (on
        the masks' own if that is finer): 8 is the authors' 4-pixel blocks on 32 × 32 images.
    solver
        `"fast"` or `"exact"`, see `solve_masks`.
    clean_weight
        Adds this times the loss of the clean batch. The saliency then comes from the same forward, in the
        model's own mode.
    adv_eps, adv_prob
        With probability `adv_prob` each, the images and their partners carry adversarial noise of at most
        `adv_eps`/255 (one signed gradient step from a random start, scaled by a uniform number).
    mean, std
        What images were normalised with, one number or one per channel: `x * std + mean` lies in [0, 1]. Sets the
        scale of `gamma` and of `adv_eps`; 0 and 1 take images as they are.
    label_smoothing
        ε of each label before it is mixed. Default: 0.
    prob
        The share of batches that is mixed; the others are trained on plainly.
    inputs
        Of a mapping with several floating tensors, all their names, images first: they are mixed with one plan. Those
        that have another height and width than the first are mixed by λ.

    Examples
    --------
    >>> objective = PuzzleMix(block_counts=(2, 4))
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> loss = objective(model, torch.rand(8, 1, 8, 8), torch.randint(10, (8,)))
    """

    alpha: float = 1.0
    block_counts: Sequence[int] = (2, 4, 8, 16)
    labels: int = 3
    beta: float = 1.2
    gamma: float = 0.5
    eta: float = 0.2
    neighbour_size: int = 4
    transport: bool = True
    transport_eps: float = 0.8
    transport_blocks: int = 8
    solver: str = "fast"
    clean_weight: float = 0.0
    adv_eps: float = 10.0
    adv_prob: float = 0.0
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    label_smoothing: float = 0.0
    prob: float = added_field(1.0)
    inputs: Sequence[str] = added_field(())

    def __post_init__(self) -> None:
        counts = self.block_counts
        if not isinstance(counts, Sequence) or not counts:
            raise ValueError(f"block_counts must be a non-empty list of integers of at least 2, got {counts!r}")
        freeze(
            self,
            **checked_fields(self),
            block_counts=tuple(integer("block_counts", n, low=2) for n in counts),
            labels=integer("labels", self.labels, low=2),
            beta=number("beta", self.beta, low=0),
            gamma=number("gamma", self.gamma, low=0),
            eta=number("eta", self.eta, low=0),
            neighbour_size=integer("neighbour_size", self.neighbour_size, low=1),
            transport=flag("transport", self.transport),
            transport_eps=number("transport_eps", self.transport_eps, above=0),
            transport_blocks=integer("transport_blocks", self.transport_blocks, low=2),
            solver=choice("solver", self.solver, SOLVERS),
            clean_weight=number("clean_weight", self.clean_weight, low=0),
            adv_eps=number("adv_eps", self.adv_eps, low=0, high=255),
            adv_prob=number("adv_prob", self.adv_prob, low=0, high=1),
            mean=_per_channel("mean", self.mean),
            std=_per_channel("std", self.std, above=0),
        )

    def draw(self, model: Model, x: Batch, y: Tensor, *, generator: torch.Generator | None = None) -> PuzzlePlan:
        """Draw what chance decides (`draw_choices`), then solve the puzzle that it poses (`solve`)."""
        return self.solve(model, x, y, self.draw_choices(x, y, generator=generator))

    def draw_choices(self, x: Batch, y: Tensor, *, generator: torch.Generator | None = None) -> PuzzleDraw:
        """Draw λ, the partners, the number of blocks and the noise's start and size: all that is random."""
        image = image_tensor(x, "PuzzleMix", self.inputs)
        counts = self._fitting_counts(image)
        lam = float(_random.beta(self.alpha, 1, generator=generator))
        partner = _random.permutation(len(y), generator=generator)
        blocks = counts[int(_random.integers(len(counts), 1, generator=generator))]
        if not _random.tosses(self.prob, 1, generator=generator):
            return PuzzleDraw(1.0, partner, blocks, mixed=False)
        if self.alpha == 0 or not self.adv_prob:
            return PuzzleDraw(lam, partner, blocks)
        original, other = _random.coin(self.adv_prob, 2, generator=generator).tolist()
        if not (original or other):
            return PuzzleDraw(lam, partner, blocks)
        pixels = self._pixels(image)
        noise = (2 * _random.uniform_like(pixels, generator=generator) - 1) * (self.adv_eps / 255)
        start = (pixels + noise).clamp(0, 1) - pixels
        scale = _random.uniform_like(pixels.new_empty(()), generator=generator)
        return PuzzleDraw(lam, partner, blocks, start, (original, other), scale)

    def solve(self, model: Model, x: Batch, y: Tensor, drawn: PuzzleDraw) -> PuzzlePlan:
        """Look at the saliency, solve for the masks and move the blocks; nothing is drawn here."""
        image = mixed_input(x, self.inputs)
        device = image.device
        (partner,) = move([drawn.partner], device)
        if self.alpha == 0 or not drawn.mixed:
            return _unmixed(partner, drawn.blocks)
        if self.clean_weight:
            _refuse_static_graph(model)
        pixels, start = self._pixels(image), drawn.start
        gradient, clean = input_gradient(
            model,
            x if start is None else with_input(x, (image + start / self._scale(image)).to(image.dtype), self.inputs),
            y,
            keep_graph=self.clean_weight > 0,
            label_smoothing=self.label_smoothing,
            inputs=self.inputs,
        )
        salient = gradient_saliency(gradient)
        costs = mask_costs(
            pixels,
            block_saliency(salient, drawn.blocks),
            partner,
            drawn.lam,
            labels=self.labels,
            weights=EnergyWeights(self.beta, self.gamma, self.eta),
            neighbour_size=self.neighbour_size,
        )
        masks, plans = self._transport(solve_masks(costs, solver=self.solver), salient, drawn.partner.cpu())
        plan = PuzzlePlan(
            masks.mean((1, 2)).float(),
            partner,
            masks=masks,
            source=plans[0],
            partner_source=plans[1],
            noise=self._noise(pixels, drawn, gradient),
            noisy=drawn.noisy,
            clean=clean,
        )
        return sent(plan, device)

    def mix(self, x: Tensor, plan: PuzzlePlan) -> Tensor:
        """Return the assembled images."""
        noise = None if plan.noise is None or plan.noise.shape != x.shape else plan.noise
        original, other = (x if noise is None or not on else (x + noise).to(x.dtype) for on in plan.noisy)
        return mix_blocks(original, other.index_select(0, plan.partner), plan.masks, plan.source, plan.partner_source)

    def loss(self, logits: Tensor, y: Tensor, plan: PuzzlePlan) -> Tensor:
        """Return the mixed cross-entropy of each row, and `clean_weight` times the clean one."""
        mixed = super().loss(logits, y, plan)
        return mixed if plan.clean is None else mixed + self.clean_weight * plan.clean

    def mean_loss(self, logits: Tensor, y: Tensor, plan: PuzzlePlan, step: Step) -> Tensor:
        """Return the mean of `loss`: a mixed row carries the mixed weight, a clean one its own."""
        mixed = mean_loss(super().loss(logits, y, plan), logits, y, step, plan)
        return mixed if plan.clean is None else mixed + self.clean_weight * mean_loss(plan.clean, logits, y, step)

    def forwards(self, step: Step, *, sharded: bool) -> set[int]:
        """Return how often the model may run in a step: the saliency goes past a wrapper, not past sharded weights."""
        if not sharded or self.alpha == 0 or self.prob == 0:
            return {1}
        return {2} if self.prob == 1 else {1, 2}

    def _fitting_counts(self, image: Tensor) -> list[int]:
        height, width = image.shape[-2:]
        fitting = [n for n in self.block_counts if height % n == 0 and width % n == 0]
        if not fitting:
            allowed = [n for n in range(2, min(height, width) + 1) if height % n == 0 and width % n == 0]
            raise ValueError(
                f"block_counts must have a number that divides both sides of {height} × {width} images "
                f"({', '.join(map(str, allowed)) or 'there is none: crop or pad them'}), got {self.block_counts}"
            )
        return fitting

    def _transport(self, masks: Tensor, salient: Tensor, partner: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the masks on the transport's grid, and the plans of both images, which are made on the CPU.

        On a device the host waits here, once: the rounds of a transport depend on what was found in those before.
        """
        if not self.transport:
            in_place = _in_place(len(masks), masks.shape[-1], masks.device)
            return masks, (in_place, in_place)
        height, width = salient.shape[-2:]
        masks = refine(masks, self.transport_blocks, height=height, width=width)
        share = block_saliency(salient, masks.shape[-1])
        shown, share = (masks, share) if masks.is_cpu else torch.stack([masks, share]).cpu()
        # Both images' plans in one go.
        wanted, shares = torch.cat([shown, 1 - shown]), torch.cat([share, share.index_select(0, partner)])
        original, other = transport_plan(wanted, shares, eps=self.transport_eps).chunk(2)
        return masks, (original, other)

    def _scale(self, image: Tensor) -> Tensor:
        return _channels("std", self.std, image)

    def _pixels(self, image: Tensor) -> Tensor:
        pixels = image.detach().to(torch.float64 if image.dtype == torch.float64 else torch.float32)
        pixels = pixels * self._scale(pixels) + _channels("mean", self.mean, pixels)
        if self.adv_prob:
            inside = ((pixels > -1e-2) & (pixels < 1.01)).all()
            allowed = "mean and std must bring x to [0, 1] as x * std + mean for the adversarial noise"
            if not losses.at_hand(pixels):
                losses.check_later(inside, allowed)
            elif not bool(inside):
                raise ValueError(f"{allowed}, got values from {pixels.min():.4g} to {pixels.max():.4g}")
        return pixels

    def _noise(self, pixels: Tensor, drawn: PuzzleDraw, gradient: Tensor) -> Tensor | None:
        """Return the noise after one signed gradient step, within ε, scaled, in units of x."""
        if drawn.start is None or drawn.scale is None:
            return None
        limit = self.adv_eps / 255
        noise = (drawn.start + (limit + 2 / 255) * gradient.sign()).clamp(-limit, limit) * drawn.scale
        return ((pixels + noise).clamp(0, 1) - pixels) / self._scale(pixels)


def _unmixed(partner: Tensor, blocks: int) -> PuzzlePlan:
    masks = torch.ones(len(partner), blocks, blocks, device=partner.device)
    in_place = _in_place(len(partner), blocks, partner.device)
    return PuzzlePlan(masks[:, 0, 0], partner, mixed=False, masks=masks, source=in_place, partner_source=in_place)


def _in_place(n_rows: int, blocks: int, device: torch.device) -> Tensor:
    return torch.arange(blocks**2, device=device).expand(n_rows, -1)


def _refuse_static_graph(model: Model) -> None:
    for module in model.modules():
        if isinstance(module, nn.parallel.DistributedDataParallel) and module.static_graph:
            raise ValueError(
                "clean_weight must be 0 under DistributedDataParallel with static_graph=True, which allows one "
                "forward a step: use static_graph=False"
            )


def _per_channel(name: str, value: float | Sequence[float], *, above: float | None = None) -> float | tuple[float, ...]:
    if isinstance(value, Sequence) and value:
        return tuple(number(name, v, above=above) for v in value)
    return number(name, value, above=above)


def _channels(name: str, value: float | Sequence[float], image: Tensor) -> Tensor:
    if not isinstance(value, Sequence):
        return torch.tensor(value, dtype=torch.float32, device="cpu")  # a single number is at home everywhere
    if image.ndim < 4 or image.shape[-3] != len(value):
        raise ValueError(f"{name} has {len(value)} numbers, which images {list(image.shape)} must have as channels")
    return _constant(tuple(value), image.device)


@functools.lru_cache(maxsize=8)
def _constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return numbers of channels on a device, where they stay."""
    return torch.tensor(values, dtype=torch.float32, device=device).view(-1, 1, 1)
