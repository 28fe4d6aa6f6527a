"""The energy of a mask, and both solvers, against slow versions."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.objectives.puzzle.common import SOLVERS, batch, seeded
from vicinal.objectives.puzzle.cut import EnergyWeights, MaskCosts, mask_costs, mask_energy, solve_masks
from vicinal.objectives.puzzle.saliency import block_saliency
from vicinal.objectives.puzzle.transport import transport_plan


def random_costs(n_rows: int, n: int, labels: int = 3, seed: int = 0, **weights: float) -> MaskCosts:
    generator = seeded(seed)
    x = torch.rand(n_rows, 2, 2 * n, 2 * n, generator=generator, dtype=torch.float64)
    salient = torch.randn(n_rows, n, n, generator=generator, dtype=torch.float64).mul(1.2).exp()
    partner = torch.randperm(n_rows, generator=generator)
    lam = float(torch.rand((), generator=generator))
    return mask_costs(x, block_saliency(salient, n), partner, lam, labels=labels, weights=EnergyWeights(**weights))


# The energy -----------------------------------------------------------------------------------------------------


def slow_energy(
    mask: Tensor, x1: Tensor, x2: Tensor, s1: Tensor, s2: Tensor, lam: float, labels: int, beta: float, gamma: float,
    eta: float, neighbour: int,
) -> float:  # fmt: skip
    """E(m) of one pair of images `[C, H, W]` from the formula, block by block and pixel by pixel."""
    n, (height, width) = len(mask), x1.shape[-2:]
    rows, columns = height // n, width // n
    ph = max(p for p in range(1, neighbour + 1) if rows % p == 0)
    pw = max(p for p in range(1, neighbour + 1) if columns % p == 0)

    def square(image: Tensor, top: int, left: int) -> Tensor:
        return image[:, top : top + ph, left : left + pw].mean((1, 2))

    def gap(a: Tensor, b: Tensor, i: int, j: int, below: bool) -> float:
        """Mean |difference| across the border of block (i, j) of a and the next block of b."""
        values = []
        if below:
            for left in range(j * columns, (j + 1) * columns, pw):
                values.append((square(a, (i + 1) * rows - ph, left) - square(b, (i + 1) * rows, left)).abs().mean())
        else:
            for top in range(i * rows, (i + 1) * rows, ph):
                values.append((square(a, top, (j + 1) * columns - pw) - square(b, top, (j + 1) * columns)).abs().mean())
        return float(sum(values) / len(values))

    energy = 0.0
    for i, j in itertools.product(range(n), range(n)):
        m = float(mask[i, j])
        k = round(m * (labels - 1))
        chance = math.comb(labels - 1, k) * lam**k * (1 - lam) ** (labels - 1 - k)
        energy += m * float(s2[i, j]) + (1 - m) * float(s1[i, j]) - eta / n**2 * math.log(chance + 1e-8)
        for below in (True, False):
            i2, j2 = (i + 1, j) if below else (i, j + 1)
            if max(i2, j2) == n:
                continue
            m2 = float(mask[i2, j2])
            d = {(p, q): gap(x1 if p else x2, x1 if q else x2, i, j, below) for p in (0, 1) for q in (0, 1)}
            weight = max(0.0, 1 + gamma * (d[1, 0] + d[0, 1] - d[1, 1] - d[0, 0]) / 2)
            linear = d[0, 0] + m / 2 * (d[1, 0] + d[1, 1] - d[0, 1] - d[0, 0])
            linear += m2 / 2 * (d[0, 1] + d[1, 1] - d[1, 0] - d[0, 0])
            energy += beta / 16 / n * (weight * (m - m2) ** 2 + gamma * linear)
            if {m, m2} <= {0.0, 1.0} and weight > 0:  # for whole blocks the data term is the border that one sees
                seen = d[int(m), int(m2)]
                assert linear + (weight - 1) / gamma * (m - m2) ** 2 == pytest.approx(seen, abs=1e-6)
    return energy


@pytest.mark.parametrize(
    ("size", "n", "labels", "neighbour"), [((8, 8), 2, 3, 4), ((6, 9), 3, 2, 4), ((8, 16), 4, 4, 1)]
)
def test_energy_is_the_formula(size: tuple[int, int], n: int, labels: int, neighbour: int) -> None:
    x, _ = batch(3, 2, *size)
    generator = seeded(1)
    shares = block_saliency(torch.rand(3, *size, generator=generator), n)
    partner, lam = torch.tensor([1, 2, 0]), 0.3
    weights = EnergyWeights(beta=1.5, gamma=0.7, eta=0.3)
    costs = mask_costs(x, shares, partner, lam, labels=labels, weights=weights, neighbour_size=neighbour)
    for _ in range(3):
        masks = torch.randint(labels, (3, n, n), generator=generator) / (labels - 1)
        expected = [
            slow_energy(masks[i], x[i], x[p], shares[i], shares[p], lam, labels, 1.5, 0.7, 0.3, neighbour)
            for i, p in enumerate(partner.tolist())
        ]
        torch.testing.assert_close(mask_energy(masks, costs), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_weights_that_would_be_negative_are_zero() -> None:
    x = 100 * batch(4, 1, 8, 8)[0]
    shares, partner = block_saliency(torch.ones(4, 8, 8), 4), torch.tensor([1, 0, 3, 2])
    costs = mask_costs(x, shares, partner, 0.5, weights=EnergyWeights(gamma=3.0))
    assert min(costs.vertical.min(), costs.horizontal.min()) == 0
    exact, fast = (mask_energy(solve_masks(costs, solver=s), costs) for s in ("exact", "fast"))
    assert bool((exact <= fast + 1e-4 * fast.abs()).all())


# The solvers ----------------------------------------------------------------------------------------------------


def brute_force(costs: MaskCosts) -> Tensor:
    """The least energy of each row over all labellings."""
    n_rows, n, _, labels = costs.unary.shape
    best = torch.full((n_rows,), math.inf, dtype=costs.unary.dtype)
    every = torch.tensor(list(itertools.product(range(labels), repeat=n * n)), dtype=costs.unary.dtype) / (labels - 1)
    for row in range(n_rows):
        alone = MaskCosts(
            costs.unary[row].expand(len(every), -1, -1, -1), costs.vertical[row, None], costs.horizontal[row, None]
        )
        best[row] = mask_energy(every.view(-1, n, n), alone).min()
    return best


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([2, 2, 3]),
    labels=st.sampled_from([2, 3, 3]),
    beta=st.floats(0, 20),
    gamma=st.floats(0, 4),
    eta=st.floats(0, 2),
)
def test_exact_equals_brute_force(seed: int, n: int, labels: int, beta: float, gamma: float, eta: float) -> None:
    costs = random_costs(3, n, labels, seed, beta=beta, gamma=gamma, eta=eta)
    best = brute_force(costs)
    torch.testing.assert_close(mask_energy(solve_masks(costs, solver="exact"), costs), best, rtol=1e-5, atol=1e-8)
    fast = mask_energy(solve_masks(costs, solver="fast"), costs)
    assert bool((fast >= best - 1e-8).all())


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(1e-6, 1e6))
def test_exact_for_any_costs(seed: int, scale: float) -> None:
    """Not only those of saliency: any labels' costs, any weights, at any scale."""
    generator = seeded(seed)
    shapes = [(4, 2, 2, 4), (4, 1, 2), (4, 2, 1)]
    unary, vertical, horizontal = (torch.rand(s, generator=generator, dtype=torch.float64) for s in shapes)
    costs = MaskCosts((unary - 0.5) * scale, vertical * scale * 2, horizontal * scale * 2)
    solved = mask_energy(solve_masks(costs, solver="exact"), costs)
    torch.testing.assert_close(solved, brute_force(costs), rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("n", [4, 8, 16])
def test_no_sampled_labelling_is_below_exact(n: int) -> None:
    costs = random_costs(8, n, seed=n)
    exact = solve_masks(costs, solver="exact")
    best = mask_energy(exact, costs)
    generator = seeded(n)
    for flip in (1.0, 0.3, 0.03, 0.005):
        for _ in range(25):
            other = torch.randint(3, exact.shape, generator=generator) / 2
            labelling = torch.where(torch.rand(exact.shape, generator=generator) < flip, other.double(), exact)
            assert bool((mask_energy(labelling, costs) >= best * (1 - 1e-5)).all())


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_fast_is_within_its_promise(n: int) -> None:
    gaps = []
    for seed in range(3):
        costs = random_costs(16, n, seed=seed)
        exact, fast = (mask_energy(solve_masks(costs, solver=s), costs) for s in ("exact", "fast"))
        gaps.append((fast / exact - 1).mean())
    assert -1e-6 < torch.stack(gaps).mean() < 0.015


@pytest.mark.parametrize("labels", [2, 3, 5])
@pytest.mark.parametrize("beta", [1.2, 5.0, 100.0])
def test_fast_finds_what_no_row_alone_can_reach(labels: int, beta: float) -> None:
    """Smoothness that asks for one label everywhere: rows and columns by themselves ended up to 50 % above."""
    costs = random_costs(16, 16, labels, seed=1, beta=beta)
    exact, fast = (mask_energy(solve_masks(costs, solver=s), costs) for s in ("exact", "fast"))
    assert -1e-6 < (fast / exact - 1).mean() < 0.015


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_constant_saliency_follows_lambda(solver: str, lam: float) -> None:
    x = torch.full((3, 1, 16, 16), 0.5)
    costs = mask_costs(x, block_saliency(torch.ones(3, 16, 16), 8), torch.tensor([1, 2, 0]), lam)
    assert bool((solve_masks(costs, solver=solver) == lam).all())


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("share", [0.08, 0.25, 0.9])
@pytest.mark.parametrize("lam", [0.0, 0.2, 0.5, 1.0])
def test_a_dominant_block_is_kept(solver: str, share: float, lam: float) -> None:
    """Costs scaled to int32 overflow here: the published code mis-assigns 8 % and drops 25 %."""
    n, spot = 16, (5, 11)
    shares = torch.full((2, n, n), (1 - share) / (n * n - 1))
    shares[0, spot[0], spot[1]] = share
    shares[1] = 1 / n**2
    x = torch.rand(2, 3, 32, 32, generator=seeded())
    masks = solve_masks(mask_costs(x, shares, torch.tensor([1, 0]), lam), solver=solver)
    assert masks[0, spot[0], spot[1]] == 1  # x itself in the first row,
    assert masks[1, spot[0], spot[1]] == 0  # the partner in the second
    plan = transport_plan(masks[:1], shares[:1])
    shown = (plan[0] == spot[0] * n + spot[1]).view(n, n)
    assert masks[0][shown].item() == 1


def test_unknown_solver() -> None:
    with pytest.raises(ValueError, match="solver must be one of 'fast', 'exact', got 'gco'"):
        solve_masks(random_costs(1, 2), solver="gco")
