"""Does mixup steady a GAN? The toy of Zhang et al. (2018), Section 3.7, with and without mixup over seeds.

python -m benchmarks.gan [--iterations 20000] [--seeds 5] [--jobs 2] [--output results/gan]

Each run (target, method, seed) is one thread and is written to the output folder when it is done; started again, the
command skips what is there. It prints, per target, what each method covers and the paired verdict, and draws the panels
of Figure 5 from the first seed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.timing import table, versions
from vicinal.metrics import Estimate
from vicinal.probes.gan import Coverage, GanFit, coverage, fit_gan, grid_of_gaussians, ring_of_gaussians, verdict
from vicinal.probes.gan.losses import GENERATOR_LOSSES

TARGETS = {"ring": ring_of_gaussians, "grid": grid_of_gaussians}
PANELS = (10, 100, 1_000, 10_000, 20_000)


@dataclass(frozen=True)
class Cell:
    """One run."""

    target: str
    alpha: float
    seed: int
    iterations: int
    generator_loss: str

    @property
    def name(self) -> str:
        return f"{self.target}-alpha{self.alpha:g}-{self.generator_loss}-{self.iterations}-seed{self.seed}"

    def run(self, folder: Path) -> None:
        torch.set_num_threads(1)
        began = time.perf_counter()
        fit = fit_gan(
            TARGETS[self.target](),
            alpha=self.alpha,
            generator_loss=self.generator_loss,
            iterations=self.iterations,
            keep_at=PANELS,
            seed=self.seed,
        )
        seconds = time.perf_counter() - began
        covered = {str(i): coverage(samples, fit.target).to_dict() for i, samples in fit.samples.items()}
        torch.save(fit.samples, folder / f"{self.name}.pt")
        record = {**asdict(self), "seconds": seconds, "coverage": covered, "versions": versions()}
        partial = folder / f"{self.name}.json.{os.getpid()}"
        partial.write_text(json.dumps(record, indent=1))
        partial.replace(folder / f"{self.name}.json")  # last, and at once: what is there is whole

    def read(self, folder: Path) -> tuple[Coverage, float]:
        record = json.loads((folder / f"{self.name}.json").read_text())
        last = record["coverage"][str(self.iterations)]
        last = last | {"high_quality": Estimate(**last["high_quality"]), "counts": tuple(last["counts"])}
        return Coverage(**last), record["seconds"]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--alpha", type=float, default=0.2)
    parser.add_argument("--generator-loss", choices=GENERATOR_LOSSES, default="saturating")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("results/gan"))
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    cells = {
        (target, alpha, seed): Cell(target, alpha, seed, options.iterations, options.generator_loss)
        # Seeds outermost, so that an interrupted benchmark has whole pairs.
        for seed, target, alpha in itertools.product(range(options.seeds), options.targets, (options.alpha, 0.0))
    }
    todo = [cell for cell in cells.values() if not (options.output / f"{cell.name}.json").exists()]
    print(f"{len(cells) - len(todo)} of {len(cells)} runs are there already", flush=True)
    with ProcessPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(cell.run, options.output): cell for cell in todo}
        for done in as_completed(futures):
            done.result()
            covered, seconds = futures[done].read(options.output)
            print(f"{futures[done].name}: {covered}, {seconds:.0f} s", flush=True)
    for target in options.targets:
        report(target, options, cells)
    print(f"\n{versions()}")


def report(target: str, options: argparse.Namespace, cells: dict[tuple[str, float, int], Cell]) -> None:
    found = {
        alpha: [cells[target, alpha, seed].read(options.output)[0] for seed in range(options.seeds)]
        for alpha in (options.alpha, 0.0)
    }
    print(f"\n### {target}: {options.iterations:,} iterations, {options.generator_loss} generator loss\n")
    rows = [
        [str(seed)] + [f"{run.modes} of {run.n_modes}, {100 * run.high_quality.value:.1f} %" for run in pair]
        for seed, pair in enumerate(zip(*found.values(), strict=True))
    ]
    print(table(["seed", f"mixup (α = {options.alpha:g})", "plain"], rows))
    judged = verdict(found[options.alpha], found[0.0])
    print(f"\n{judged}")
    draw(target, options, cells)


def draw(target: str, options: argparse.Namespace, cells: dict[tuple[str, float, int], Cell]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from vicinal import plots

    fits = {}
    for name, alpha in (("plain", 0.0), (f"mixup, α = {options.alpha:g}", options.alpha)):
        samples = torch.load(options.output / f"{cells[target, alpha, 0].name}.pt", weights_only=True)
        empty = torch.nn.Identity()
        fits[name] = GanFit(
            TARGETS[target](), alpha, options.generator_loss, "opposite", 0, empty, empty, samples, torch.empty(0, 2)
        )
    path = options.output / f"{target}-{options.generator_loss}-{options.iterations}.png"
    plots.gan_panels(fits)[0][0].figure.savefig(path, dpi=70)
    print(f"\npanels: {path}")


if __name__ == "__main__":
    main()
