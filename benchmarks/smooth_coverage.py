"""How often the interval of smooth ECE holds the population's value, by simulation.

    python -m benchmarks.smooth_coverage [--draws 400]

A population is a density of confidences and the accuracy at each; its smooth ECE is that of 10,000 cells.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vicinal.metrics.smooth import CELLS, population_smooth_ece, smooth_ece

Curve = Callable[[NDArray[np.float64]], NDArray[np.float64]]
POPULATIONS: dict[str, tuple[Curve, Curve]] = {
    "calibrated, uniform": (lambda t: 1.0 * (t > 0.5), lambda t: t),
    "calibrated, confident": (lambda t: (t > 0.5) * t**20, lambda t: t),
    "over-confident by 0.10": (lambda t: (t > 0.3) * t**6, lambda t: np.clip(t - 0.10, 0, 1)),
    "over-confident by 0.02": (lambda t: (t > 0.3) * t**6, lambda t: np.clip(t - 0.02, 0, 1)),
    "gaps of both signs": (lambda t: 1.0 * (t > 0.5), lambda t: np.clip(t + 0.1 * np.sin(8 * np.pi * t), 0, 1)),
    "near 1": (lambda t: np.exp((t - 1) * 200), lambda t: t**3),
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400)
    args = parser.parse_args(argv)
    generator = np.random.default_rng(0)
    t = (np.arange(CELLS) + 0.5) / CELLS
    print("| population | smooth ECE | samples | mean estimate | covered | too high | too low |")
    print("|---|---|---|---|---|---|---|")
    for name, (density, accuracy) in POPULATIONS.items():
        share = density(t) / density(t).sum()
        truth = population_smooth_ece(share * (accuracy(t) - t))
        for n in (50, 500, 5_000):
            found = []
            for _ in range(args.draws):
                confidence = generator.choice(t, n, p=share)
                found.append(smooth_ece(confidence, generator.random(n) < accuracy(confidence)))
            high = np.mean([e.low > truth for e in found])
            low = np.mean([e.high < truth for e in found])
            mean = np.mean([e.value for e in found])
            row = f"| {name} | {truth:.4f} | {n:,} | {mean:.4f} | {100 * (1 - high - low):.1f} %"
            print(f"{row} | {100 * high:.1f} % | {100 * low:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
