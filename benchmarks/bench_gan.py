"""The toy GAN: an iteration of `fit_gan` against a loop as one writes it, and against its matrix products alone.

python -m benchmarks gan
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.bench_training import processor
from benchmarks.timing import goal, ratio, shown, table, versions
from vicinal import _random
from vicinal.papers.gan import GanConfig, fit_gan, ring_of_gaussians

UNITS, BATCH, STEPS = 512, 128, 5


def network(outputs: int) -> nn.Sequential:
    """Return three hidden layers of 512, as Z18 Section 3.7 has."""
    hidden = [layer for a in (2, UNITS, UNITS) for layer in (nn.Linear(a, UNITS), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(UNITS, outputs))


def plain(iterations: int) -> None:
    """The same training with torch's usual Adam, gradients of both networks, and nothing else."""
    torch.manual_seed(0)
    g, d, target = network(2), network(1), ring_of_gaussians()
    adams = {net: torch.optim.Adam(net.parameters(), lr=1e-3) for net in (g, d)}
    for _ in range(iterations):
        for step in range(STEPS + 1):
            real, fake = target.sample(BATCH), g(torch.randn(BATCH, 2))
            learner = g if step == STEPS else d
            lam = _random.beta(0.2, 1).float()
            mixed = lam * real + (1 - lam) * (fake if learner is g else fake.detach())
            loss = binary_cross_entropy_with_logits(d(mixed)[:, 0], lam.expand(BATCH))
            adams[learner].zero_grad()
            (-loss if learner is g else loss).backward()
            adams[learner].step()


def products(iterations: int) -> None:
    """The matrix products of the hidden layers that no such training can do without."""
    x, w = torch.randn(BATCH, UNITS), torch.randn(UNITS, UNITS)
    a_step_of_d = ["forward of g", "forward", "input", "weight"]
    a_step_of_g = ["forward of g", "forward", "input", "input of g", "weight of g"]
    for _ in range(iterations):
        for what in itertools.chain(STEPS * a_step_of_d, a_step_of_g):
            for _ in range(2):
                x.t() @ x if what.startswith("weight") else x @ w


def iteration(rounds: int = 7, iterations: int = 20) -> str:
    """Processor time of an iteration: five steps of the discriminator and one of the generator, one thread."""

    def ours() -> None:
        fit_gan(ring_of_gaussians(), GanConfig(iterations=iterations), keep_at=(), n_samples=1)

    contenders = {"plain loop": lambda: plain(iterations), "`fit_gan`": ours, "products": lambda: products(iterations)}
    seconds = processor(contenders, rounds)
    rows = []
    for name, s in seconds.items():
        faster = ratio(seconds["plain loop"], s)
        wanted = goal(faster, at_least=2) if name == "`fit_gan`" else ""
        title = "its matrix products alone, a bound" if name == "products" else name
        rows.append([title, f"{1000 * np.median(s) / iterations:.1f} ms", shown(faster), wanted])
    return table(["an iteration of the toy GAN, one thread", "time", "faster by", "goal"], rows)


def main() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    print(f"{versions()}\n\n{iteration()}")
    torch.set_num_threads(threads)


if __name__ == "__main__":
    main()
