"""PuzzleMix: the puzzle against a plain pipeline, the solvers against each other, and whole training steps.

    python -m benchmarks puzzlemix

The plain pipeline is what the method's description says, written without tricks: one image at a time, a minimum
cut each, transport plans as dense n² × n² matrices, images rearranged by multiplying with them.
"""

from __future__ import annotations

import math
import statistics
import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.resnet import CifarResNet18, step_with
from benchmarks.timing import goal, interleaved, marked, milliseconds, ratio, shown, table, versions
from vicinal import ERM, LogitMix, PuzzleMix
from vicinal.objectives.puzzle.cut import MaskCosts, mask_costs, mask_energy, solve_masks
from vicinal.objectives.puzzle.saliency import block_saliency, saliency
from vicinal.objectives.puzzle.transport import mix_blocks, transport_plan
from vicinal.training import kept_memory

COUNTS = (2, 4, 8, 16)
TARGETS = {2: 12, 4: 15, 8: 25, 16: 120}
OBJECTIVE = PuzzleMix()


def main() -> None:
    print(versions("scipy"), end="\n\n", flush=True)
    print(pipeline(), end="\n\n", flush=True)
    print(solvers(), end="\n\n", flush=True)
    print(transports(), end="\n\n", flush=True)
    print(training_steps())


def puzzle(x: Tensor, salient: Tensor, partner: Tensor, lam: float, n: int, solver: str = "fast") -> Tensor:
    """All of PuzzleMix after the saliency, on the whole batch."""
    costs = mask_costs(x, block_saliency(salient, n), partner, lam)
    masks, plans = OBJECTIVE._transport(solve_masks(costs, solver=solver), salient, partner)
    return mix_blocks(x, x.index_select(0, partner), masks, *plans)


def plain_puzzle(x: Tensor, salient: Tensor, partner: Tensor, lam: float, n: int) -> Tensor:
    """The same, one image after the other."""
    costs = mask_costs(x, block_saliency(salient, n), partner, lam)
    grid = max(n, OBJECTIVE.transport_blocks)
    share = block_saliency(salient, grid)
    mixed = []
    for i, p in enumerate(partner.tolist()):
        row = slice(i, i + 1)
        alone = MaskCosts(costs.unary[row], costs.vertical[row], costs.horizontal[row])
        mask = F.interpolate(solve_masks(alone, solver="exact")[None], size=grid)[0, 0]
        own = dense_transport(x[i], mask, share[i])
        other = dense_transport(x[p], 1 - mask, share[p])
        weight = F.interpolate(mask[None, None], size=x.shape[-2:])[0]
        mixed.append(weight * own + (1 - weight) * other)
    return torch.stack(mixed)


def dense_transport(image: Tensor, mask: Tensor, share: Tensor, eps: float = 0.8) -> Tensor:
    """Row minima, column conflicts, n rounds, on the n² × n² matrix; then a product with the patches."""
    n, size = len(mask), image.shape[-1] // len(mask)
    place = torch.cartesian_prod(torch.arange(n), torch.arange(n)).float()
    cost = eps * torch.cdist(place, place).square() / (n - 1) ** 2 - share.view(-1, 1) * (mask.view(1, -1) > 0)
    for _ in range(n):
        taken = torch.zeros_like(cost).scatter_(1, cost.min(1, keepdim=True).indices, 1)
        fight = torch.where(taken > 0, cost, math.inf)
        won = torch.zeros_like(cost).scatter_(0, fight.min(0, keepdim=True).indices, 1) * taken
        cost = cost + taken - won
    patches = F.unfold(image[None], size, stride=size)
    return F.fold(patches @ won, image.shape[-2:], size, stride=size)[0]


def pipeline(rounds: int = 7) -> str:
    """Everything but the saliency, at 128 × 3 × 32 × 32."""
    x, salient, partner = digits()
    rows = []
    for n in COUNTS:
        seconds = interleaved(
            {
                "fast": lambda n=n: puzzle(x, salient, partner, 0.4, n),
                "exact": lambda n=n: puzzle(x, salient, partner, 0.4, n, "exact"),
                "plain": lambda n=n: plain_puzzle(x, salient, partner, 0.4, n),
            },
            rounds=rounds,
        )
        rows.append(
            [
                f"{n} × {n}",
                milliseconds(seconds["fast"]),
                f"{1000 * processor_seconds(n, rounds):.3g} ms",
                marked(f"≤ {TARGETS[n]} ms", np.median(seconds["fast"]) <= TARGETS[n] / 1000),
                milliseconds(seconds["exact"]),
                milliseconds(seconds["plain"]),
                shown(faster := ratio(seconds["plain"], seconds["fast"])),
                goal(faster, at_least=8),
            ]
        )
    default, exact = '`solver="fast"` (default)', '`solver="exact"`'
    header = ["blocks", default, "its processor time", "goal", exact, "plain", "plain / default"]
    return table([*header, "goal"], rows)


def fixed_rounds(masks: Tensor, share: Tensor, rounds: int, eps: float = 0.8) -> tuple[Tensor, Tensor]:
    """Return which block each place goes to, -1 for none, and how many blocks still ask after so many rounds.

    The transport without a shape that depends on values, as a GPU would run it without a wait: every block of every
    image asks in every round, on the dense n² × n² list of its moves, and those that are done ask for nothing.
    """
    n_rows, n, _ = masks.shape
    place = torch.cartesian_prod(torch.arange(n), torch.arange(n)).float()
    price = eps / (n - 1) ** 2
    gain = share.view(n_rows, -1, 1) - price * torch.cdist(place, place).square().round()
    worth = (gain > 0) & (masks.view(n_rows, 1, -1) > 0)
    gain, target = torch.where(worth, gain, 0).sort(dim=-1, descending=True, stable=True)
    block = torch.arange(n * n).view(1, -1, 1)
    bid = torch.where(gain > 0, (gain.view(torch.int32).long() << 32) | (2**31 - 1 - block), 0)
    move = torch.zeros(n_rows, n * n, 1, dtype=torch.long)
    best = torch.zeros(n_rows, n * n, dtype=torch.long)
    for _ in range(rounds):
        offer = bid.gather(2, move.clamp(max=n * n - 1))[..., 0]
        wanted = target.gather(2, move.clamp(max=n * n - 1))[..., 0]
        best = best.scatter_reduce(1, wanted, offer, "amax")
        lost = (offer > 0) & (best.gather(1, wanted) != offer)
        move = move + lost[..., None].long()
    left = ((bid.gather(2, move.clamp(max=n * n - 1))[..., 0] > 0) & lost).sum()
    return torch.where(best > 0, 2**31 - 1 - (best & (2**32 - 1)), -1), left


def transports(batches: int = 8) -> str:
    """Both ways to transport blocks: on the host, and on the device in as many rounds as these images need."""
    generator = torch.Generator().manual_seed(0)
    x, real, partner = digits()
    rows = []
    for grid, images in ((8, "32 px"), (16, "64 px")):
        needed, host, device = [], [], []
        for _ in range(batches):
            lam = float(torch.rand((), generator=generator))
            heavy = torch.randn(real.shape, generator=generator).mul(1.5).exp()
            for salient in (real, heavy):
                masks = solve_masks(mask_costs(x, block_saliency(salient, 8), partner, lam))
                masks = F.interpolate(masks[:, None], size=grid)[:, 0]
                share = block_saliency(salient, grid)
                start = time.process_time()
                plan = transport_plan(masks, share)
                host.append(time.process_time() - start)
                rounds = next(r for r in range(1, 10_000) if not fixed_rounds(masks, share, r)[1])
                needed.append(rounds)
                start = time.process_time()
                same = fixed_rounds(masks, share, rounds)[0]
                device.append(time.process_time() - start)
                if not torch.equal(torch.where(same >= 0, plan, -1), same):
                    raise AssertionError("the two ways give different plans")
        dense = 128 * grid**4 * 8 / 2**20
        rows.append(
            [
                f"{images}, {grid} × {grid}",
                f"{1000 * statistics.median(host):.3g} ms",
                f"{statistics.median(needed):.0f} (at most {max(needed)})",
                f"{1000 * statistics.median(device):.3g} ms",
                f"{dense:,.0f} MB",
            ]
        )
    rows.append(["224 px, 56 × 56", "", "", "", f"{128 * 56**4 * 8 / 2**20:,.0f} MB"])
    header = ["blocks of 4 px, B = 128", "on the host", "rounds needed", "fixed rounds, same processor"]
    return table([*header, "memory of their lists of moves"], rows)


def processor_seconds(n: int, rounds: int) -> float:
    """Return the median processor time of the default: what it costs however busy the machine is."""
    x, salient, partner = digits()
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        puzzle(x, salient, partner, 0.4, n)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def solvers(batches: int = 4) -> str:
    """Energy of the fast solver above that of the exact one, on random and on real saliency."""
    generator = torch.Generator().manual_seed(0)
    x, real, partner = digits()
    rows = []
    for n in COUNTS:
        gaps: dict[str, list[Tensor]] = {"random": [], "real": []}
        for _ in range(batches):
            lam = float(torch.rand((), generator=generator))
            noise = torch.rand(x.shape, generator=generator)
            heavy = torch.randn(real.shape, generator=generator).mul(1.5).exp()
            for name, images, salient in (("random", noise, heavy), ("real", x, real)):
                costs = mask_costs(images, block_saliency(salient, n), partner, lam)
                exact, fast = (mask_energy(solve_masks(costs, solver=s), costs) for s in ("exact", "fast"))
                gaps[name].append(fast / exact - 1)
        shares = [torch.cat(g) for g in gaps.values()]
        wanted = marked("≤ 1.5 %", all(g.mean() <= 0.015 for g in shares))
        rows.append([f"{n} × {n}", *(f"{100 * g.mean():.3f} % (worst {100 * g.max():.2f} %)" for g in shares), wanted])
    return table(["blocks", "gap, random saliency", "gap, saliency of a CNN on digits", "goal (mean)"], rows)


def training_steps(rounds: int = 9) -> str:
    """One SGD step of the CIFAR ResNet-18 of width 16, B = 128, memory kept as in `fit`; and the saliency alone."""
    torch.manual_seed(0)
    x, y = torch.rand(128, 3, 32, 32), torch.randint(10, (128,))

    model = CifarResNet18()
    objectives = {"`ERM()`": ERM()}
    objectives |= {f"`PuzzleMix(block_counts=({n},))`": PuzzleMix(block_counts=(n,)) for n in COUNTS}
    objectives["`LogitMix(PuzzleMix(block_counts=(8,)), weight=0.5)`"] = LogitMix(
        PuzzleMix(block_counts=(8,)), weight=0.5
    )
    contenders = {name: step_with(o, x, y) for name, o in objectives.items()}
    contenders["`saliency` alone"] = lambda: saliency(model, x, y)
    with kept_memory():
        seconds = interleaved(contenders, rounds=rounds, warmup=2)
    rows = []
    for name, s in seconds.items():
        of_erm = ratio(s, seconds["`ERM()`"])
        most = 1.6 if name.startswith("`PuzzleMix") else 2.6 if name.startswith("`LogitMix") else None
        rows.append([name, milliseconds(s), shown(of_erm), goal(of_erm, at_most=most) if most else ""])
    return table(["training step as in `fit`, ResNet-18 width 16, B = 128", "time", "of ERM", "goal"], rows)


_DIGITS: list[tuple[Tensor, Tensor, Tensor]] = []


def digits() -> tuple[Tensor, Tensor, Tensor]:
    """128 digits as 3 × 32 × 32 images, their saliency to a small CNN trained on them, and partners."""
    if not _DIGITS:
        from sklearn.datasets import load_digits

        torch.manual_seed(0)
        images, labels = load_digits(return_X_y=True)
        x = F.interpolate(torch.tensor(images).float().view(-1, 1, 8, 8) / 16, size=32, mode="bilinear")
        x, y = x.expand(-1, 3, -1, -1), torch.tensor(labels)
        model = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2, 2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2048, 10),
        )
        optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
        for step in range(100):
            part = torch.arange(128 * step, 128 * (step + 1)) % len(x)
            optimiser.zero_grad()
            F.cross_entropy(model(x[part]), y[part]).backward()
            optimiser.step()
        x, y = x[:128].contiguous(), y[:128]
        _DIGITS.append((x, saliency(model, x, y), torch.randperm(128)))
    return _DIGITS[0]


if __name__ == "__main__":
    main()
