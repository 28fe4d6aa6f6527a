"""Time against size: samples N, classes K, batch B. Each piece should grow as its algorithm says.

    python -m benchmarks growth

The slope is that of log time over log size between the last two sizes, beyond which calls cost more than work. It is
marked where it exceeds what the algorithm says by more than a quarter. N grows by handing the same block of rows over
again and again, as a stream does, so memory stays at some hundred megabytes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.timing import marked, table, versions
from vicinal import AUM
from vicinal.calibrators import HistogramBinning, IsotonicCalibration, TemperatureScaling, VectorScaling
from vicinal.metrics import ReliabilityTable, Tally
from vicinal.objectives.guided.neighbours import arc_extremes, cosine_extremes, directions
from vicinal.objectives.puzzle.cut import mask_costs, solve_masks
from vicinal.objectives.puzzle.saliency import block_saliency

#: Rows handed over at a time.
BLOCK = 1_000_000
#: How far above the algorithm's slope a measured one may lie.
SLACK = 0.25


@dataclass(frozen=True)
class Case:
    """A piece of work at growing sizes."""

    what: str
    """The piece, and what is held fixed."""
    size: str
    """What grows."""
    sizes: Sequence[int]
    says: float
    """The slope that the algorithm says, log factors aside."""
    because: str
    prepare: Callable[[int], Callable[[], object]]
    """Return the work at a size; making its input is not timed."""


def probabilities(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    scores = random.random((n, k), dtype=np.float32)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores, random.integers(k, size=n)


def streamed(make: Callable[[], ReliabilityTable | Tally]) -> Callable[[int], Callable[[], object]]:
    """Return the measurement of N rows of ten classes, a block at a time."""

    def prepare(n: int) -> Callable[[], object]:
        probs, labels = probabilities(min(n, BLOCK), 10)

        def run() -> None:
            total = make()
            for _ in range(max(1, n // BLOCK)):
                total.update(labels, probs=probs)

        return run

    return prepare


def of_classes(make: Callable[[], ReliabilityTable | Tally], rows: int) -> Callable[[int], Callable[[], object]]:
    def prepare(k: int) -> Callable[[], object]:
        probs, labels = probabilities(rows, k)
        return lambda: make().update(labels, probs=probs)

    return prepare


def fitted(make: Callable[[], object], *, rows: int = 0, classes: int = 0) -> Callable[[int], Callable[[], object]]:
    """Return the fit of a calibrator; the size is what is not given."""

    def prepare(size: int) -> Callable[[], object]:
        n, k = rows or size, classes or size
        generator = torch.Generator().manual_seed(0)
        logits = 3 * torch.randn(n, k, generator=generator)
        labels = torch.multinomial((logits / 1.7).softmax(1), 1, generator=generator)[:, 0]
        return lambda: make().fit(logits, labels)

    return prepare


def arcs(n: int) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (2, n), generator=generator)
    mine, others = (directions(3 * torch.randn(n, 3, generator=generator), y).abs() for y in labels)
    return lambda: arc_extremes(mine, others, labels[1])


def products(n: int) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    mine, others = (torch.nn.functional.normalize(torch.rand(n, 100, generator=generator), dim=1) for _ in range(2))
    return lambda: cosine_extremes(mine, others)


def masks(batch: int, blocks: int) -> Callable[[], object]:
    """Return the masks of PuzzleMix, which are most of what it adds beside the saliency."""
    generator = torch.Generator().manual_seed(0)
    x, salient = torch.rand(batch, 3, 32, 32, generator=generator), torch.rand(batch, 32, 32, generator=generator)
    partner = torch.randperm(batch, generator=generator)
    return lambda: solve_masks(mask_costs(x, block_saliency(salient, blocks), partner, 0.4), solver="fast")


def recorded(batch: int) -> Callable[[], object]:
    logits, labels = torch.randn(batch, 10), torch.randint(10, (batch,))
    tracker, index = AUM(batch), torch.arange(batch)
    return lambda: tracker.update(logits, labels, index, epoch=0)


def cases() -> list[Case]:
    """Return what is measured, in the order of print."""
    each, n, k = "every sample once", "N", "K"
    decades = [10**e for e in range(4, 9)]
    wide = [2, 10, 100, 1_000, 10_000, 100_000]
    temperature, grid = TemperatureScaling, lambda: TemperatureScaling(search="grid")
    isotonic, sorting = IsotonicCalibration, "N log N: sorting"
    return [
        Case("reliability table, K = 10", n, decades, 1, each, streamed(ReliabilityTable)),
        Case("all metrics of `Tally`, K = 10", n, decades, 1, each, streamed(Tally)),
        Case("reliability table, N = 1,000", k, wide, 1, "every number once", of_classes(ReliabilityTable, 1_000)),
        Case("all metrics of `Tally`, N = 1,000", k, wide, 1, "every number once", of_classes(Tally, 1_000)),
        Case("`TemperatureScaling`, K = 10", n, decades[:3], 1, "a few Newton steps", fitted(temperature, classes=10)),
        Case("`TemperatureScaling`, N = 500", k, wide, 1, "a few Newton steps", fitted(temperature, rows=500)),
        Case("… `search='grid'`, K = 10", n, decades[:2], 1, "500 temperatures", fitted(grid, classes=10)),
        Case("`VectorScaling`, K = 10", n, decades[:3], 1, "iterations", fitted(VectorScaling, classes=10)),
        Case("`HistogramBinning`, K = 10", n, decades[:3], 1, each, fitted(HistogramBinning, classes=10)),
        Case("`IsotonicCalibration`, K = 10", n, decades[:3], 1, sorting, fitted(isotonic, classes=10)),
        Case("`IsotonicCalibration`, N = 2,000", k, wide[:4], 1, "a fit a class", fitted(isotonic, rows=2_000)),
        Case("partner search, K = 3, by arcs", n, decades[:3], 1, sorting, arcs),
        Case("partner search, K = 100, by products", n, [1_000, 4_000, 16_000], 2, "every pair", products),
        Case("masks of PuzzleMix, 8 × 8 blocks", "B", [16, 64, 256, 1024], 1, "image by image", lambda b: masks(b, 8)),
        Case("masks of PuzzleMix, B = 128", "blocks a side", [2, 4, 8, 16], 2, "every block", lambda b: masks(128, b)),
        Case("`AUM.update`, K = 10", "B", [16, 256, 4_096, 65_536], 1, each, recorded),
    ]


def seconds(run: Callable[[], object]) -> float:
    """Return the shortest of three times, or one that is long."""
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        if best > 2:
            break
    return best


def measured(case: Case) -> list[str]:
    """Return the row of a case."""
    taken = [seconds(case.prepare(size)) for size in case.sizes]
    slope = math.log(taken[-1] / taken[-2]) / math.log(case.sizes[-1] / case.sizes[-2])
    times = ", ".join(f"{s:.2g} s" if s >= 1 else f"{1000 * s:.2g} ms" for s in taken)
    sizes = f"{case.size} = {', '.join(f'{size:,}' for size in case.sizes)}"
    wanted = marked(f"{case.says:g} ({case.because})", slope <= case.says + SLACK)
    return [case.what, sizes, times, f"{slope:.2f}", wanted]


def main() -> None:
    print(versions("numpy", "scipy"), end="\n\n", flush=True)
    rows = [measured(case) for case in cases()]
    print(table(["work", "sizes", "time", "slope", "the algorithm says"], rows))


if __name__ == "__main__":
    main()
