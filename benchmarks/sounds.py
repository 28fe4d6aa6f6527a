"""Does the default learn small folders of sounds, whatever the seed? And what does it reach on all spoken digits?

    VICINAL_DATA=… python -m benchmarks.sounds [few|all] [--seeds 5] [--first-seed 0]

`few`: 160 recordings of each of four spoken digits (FSDD), everything as `vicinal train FOLDER` does it, one run for
each seed, of the split as well as of the weights. `all`: 300 of each of ten. Beside them the logistic
regression that reports show.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from vicinal import data
from vicinal.runs import Experiment, measure_baselines, run

FEW_CLASSES, FEW = 4, 160


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="?", choices=("few", "all"), default="few")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    args = parser.parse_args(argv)
    print("| seed | accuracy | NLL | ECE | … after temperature: NLL | ECE | temperature | logistic regression | CPU |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        spoken_digits(Path(folder) / "sounds", *((FEW_CLASSES, FEW) if args.which == "few" else (10, 300)))
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            print(measured(Path(folder), seed), flush=True)


def spoken_digits(folder: Path, n_classes: int, n: int) -> Path:
    """Write a folder of class folders: the first n recordings of a random order of each digit."""
    every = data.load("fsdd:takes")
    paths = [Path(str(split.original(i))) for split in (every.train, every.val, every.test) for i in range(len(split))]
    for digit in range(n_classes):
        (folder / str(digit)).mkdir(parents=True)
        mine = sorted(path for path in paths if path.name.startswith(f"{digit}_"))
        random.Random(0).shuffle(mine)
        for path in mine[:n]:
            shutil.copy(path, folder / str(digit))
    return folder


def measured(folder: Path, seed: int) -> str:
    began = time.process_time()
    experiment = Experiment(source=str(folder / "sounds"), data={"seed": seed}, training={"trackers": []}, seed=seed)
    outcome = run(experiment, folder / f"run-{seed}", progress=False)
    assert outcome is not None
    seconds = time.process_time() - began
    measure_baselines(outcome)
    before, after = outcome.test.before, outcome.test.after
    simple: dict[str, Any] = outcome.run.baselines().get("logistic regression", {})
    beside = f"{100 * simple['accuracy'].value:.1f} %, NLL {simple['nll'].value:.3f}" if simple else ""
    cells = [
        str(seed),
        f"{100 * after.accuracy.value:.1f} %",
        *(f"{each.metrics[name].value:.3f}" for each in (before, after) for name in ("nll", "ece")),  # type: ignore[union-attr]
        f"{outcome.temperature:.2f}",
        beside,
        f"{seconds:.0f} s",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
