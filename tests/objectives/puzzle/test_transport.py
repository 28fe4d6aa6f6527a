"""The transport of blocks against the greedy assignment and the paper's dense algorithm."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.objectives.puzzle.common import ConvNet, batch, seeded
from vicinal import PuzzleMix
from vicinal.objectives.puzzle.objective import PuzzlePlan
from vicinal.objectives.puzzle.saliency import block_saliency
from vicinal.objectives.puzzle.transport import apply_transport, transport_plan


def greedy_plan(mask: Tensor, share: Tensor, eps: float) -> list[int]:
    """The moves of negative cost, cheapest first; a target without one keeps its block if that is free (else −1)."""
    n = len(mask)
    moves = []
    for i, j in itertools.product(range(n * n), range(n * n)):
        distance = (i // n - j // n) ** 2 + (i % n - j % n) ** 2
        gain = float(share.view(-1)[i]) - eps * distance / (n - 1) ** 2
        if mask.view(-1)[j] > 0 and gain > 0:
            moves.append((-gain, i, j))
    plan, used = [-1] * (n * n), set()
    for _, i, j in sorted(moves):
        if i not in used and plan[j] < 0:
            plan[j] = i
            used.add(i)
    return [j if plan[j] < 0 and j not in used else plan[j] for j in range(n * n)]


def conflict_plan(mask: Tensor, share: Tensor, eps: float, rounds: int) -> Tensor:
    """The paper's dense algorithm: each row takes its least cost, each column its least taker, losers pay 1 more."""
    n = len(mask)
    place = torch.cartesian_prod(torch.arange(n), torch.arange(n)).double()
    cost = eps * torch.cdist(place, place).square() / (n - 1) ** 2 - share.view(-1, 1) * (mask.view(1, -1) > 0)
    for _ in range(rounds):
        taken = torch.zeros_like(cost).scatter_(1, cost.argmin(1, keepdim=True), 1)
        fight = torch.where(taken > 0, cost, math.inf)
        won = torch.zeros_like(cost).scatter_(0, fight.argmin(0, keepdim=True), 1) * taken
        cost = cost + 10 * (taken - won)
    return won


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.sampled_from([2, 3, 4, 6]), eps=st.sampled_from([0.05, 0.3, 0.8, 2.0]))
def test_transport_is_the_greedy_assignment(seed: int, n: int, eps: float) -> None:
    generator = seeded(seed)
    masks = torch.randint(3, (3, n, n), generator=generator) / 2
    shares = block_saliency(torch.randn(3, n, n, generator=generator).mul(1.5).exp(), n)
    plan = transport_plan(masks, shares, eps=eps)
    for row in range(3):
        assert sorted(plan[row].tolist()) == list(range(n * n))  # every block is somewhere, once
        slow = greedy_plan(masks[row], shares[row], eps)
        hidden = masks[row].view(-1) == 0
        for j, source in enumerate(slow):
            if source >= 0:
                assert plan[row, j] == source
            else:
                assert hidden[j]


def test_transport_shows_what_the_papers_algorithm_shows() -> None:
    n, generator = 6, seeded(3)
    masks = torch.randint(3, (20, n, n), generator=generator) / 2
    shares = block_saliency(torch.randn(20, n, n, generator=generator).mul(1.5).exp(), n)
    plan = transport_plan(masks, shares)
    for row in range(20):
        dense = conflict_plan(masks[row], shares[row], 0.8, rounds=n * n)
        visible = (masks[row].view(-1) > 0).nonzero()[:, 0]
        assert dense[plan[row, visible], visible].tolist() == [1.0] * len(visible)


def test_transport_in_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = seeded(4)
    masks = torch.randint(3, (7, 8, 8), generator=generator) / 2
    shares = block_saliency(torch.rand(7, 8, 8, generator=generator), 8)
    whole = transport_plan(masks, shares)
    monkeypatch.setattr("vicinal.objectives.puzzle.transport._MAX_CANDIDATES", 200)
    assert torch.equal(transport_plan(masks, shares), whole)


def test_transport_moves_saliency_into_the_mask() -> None:
    generator = seeded(5)
    masks = (torch.rand(8, 8, 8, generator=generator) < 0.4).float()
    shares = block_saliency(torch.randn(8, 8, 8, generator=generator).mul(2).exp(), 8)
    plan = transport_plan(masks, shares)
    moved = shares.view(8, -1).gather(1, plan).view_as(shares)
    before, after = ((s * masks).sum((1, 2)) for s in (shares, moved))
    assert bool((after >= before - 1e-6).all())
    assert after.mean() > before.mean() + 0.05


@pytest.mark.parametrize("shape", [(3, 1, 8, 8), (3, 3, 8, 12), (3, 2, 4, 12, 8), (3, 8, 8)])
def test_apply_transport_moves_whole_blocks(shape: tuple[int, ...]) -> None:
    n, (height, width) = 4, shape[-2:]
    generator = seeded(6)
    x = torch.rand(shape, generator=generator)
    plan = torch.stack([torch.randperm(n * n, generator=generator) for _ in range(3)])
    moved = apply_transport(x, plan)
    h, w = height // n, width // n
    for row, target in itertools.product(range(3), range(n * n)):
        (i, j), (p, q) = divmod(target, n), divmod(int(plan[row, target]), n)
        expected = x[row, ..., p * h : (p + 1) * h, q * w : (q + 1) * w]
        assert torch.equal(moved[row, ..., i * h : (i + 1) * h, j * w : (j + 1) * w], expected)


@pytest.mark.parametrize("shape", [(5, 3, 16, 16), (5, 1, 8, 24)])
def test_every_pixel_comes_from_one_place_of_each_image(shape: tuple[int, ...]) -> None:
    """The images hold their own pixels' numbers, so what is mixed shows where it is from."""
    height, width = shape[-2:]
    x, y = torch.arange(float(height * width)).view(height, width).expand(shape), torch.arange(5)
    plan = PuzzleMix(block_counts=(4,)).draw(ConvNet(shape[1]), x / 1000, y, generator=seeded())
    assert isinstance(plan, PuzzlePlan)
    own, other = apply_transport(x, plan.source), apply_transport(x, plan.partner_source)
    for image in (own, other):
        assert torch.equal(image.flatten(2).sort(-1).values, x.flatten(2))  # each position once
    mixed = PuzzleMix().mix(x, plan)
    share = nn.functional.interpolate(plan.masks[:, None], size=(height, width))
    torch.testing.assert_close(mixed, share * own + (1 - share) * other)


@pytest.mark.parametrize("eps", [1e-30, 1e-60, 5e-324])
def test_moves_that_cost_next_to_nothing(eps: float) -> None:
    saliency = torch.tensor([[[0.0, 0.0], [0.0, 1.0]]])
    assert transport_plan(torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]), saliency, eps=eps).tolist() == [[3, 1, 2, 0]]


def test_the_transports_grid() -> None:
    """At most `transport_blocks` a side, a refinement of the mask's grid, and a divisor of the image."""
    x, y = batch(2, 1, 24, 24)
    model = ConvNet(1)

    def grid(n: int, most: int) -> int:
        return PuzzleMix(block_counts=(n,), transport_blocks=most).draw(model, x, y).masks.shape[-1]

    assert [grid(2, 8), grid(4, 8), grid(12, 8), grid(2, 2), grid(3, 24)] == [8, 8, 12, 2, 24]
