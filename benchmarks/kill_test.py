"""Kill a training run at random moments, start it again each time, and compare it with one left in peace.

    python -m benchmarks.kill_test                 20 kills each of two methods, a few minutes

The weights, the metrics and the predictions must be equal bit for bit, and no file may ever be found half written.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import Dataset

COMPARED = ("config.json", "metrics.jsonl", "model.safetensors", "predictions.parquet")
METHODS = ("LogitMix(Mixup(alpha=3.0))", "Warmup(GuidedMixup(), epochs=1)")


class Slow(Dataset):
    """Samples that take a millisecond and draw their augmentation from torch's global generator."""

    def __init__(self, n: int, *, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.y = torch.arange(n) % 3
        self.x = torch.randn(n, 1, 6, 6, generator=generator) + self.y.view(-1, 1, 1, 1) / 2

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int):
        time.sleep(0.001)
        return self.x[i] + 0.1 * torch.randn(1, 6, 6), self.y[i]


def train(out: str, method: str, epochs: int) -> None:
    """The run: a small convolutional network with everything that could make two runs differ."""
    torch.set_num_threads(1)
    from vicinal import parse
    from vicinal.training import FitConfig, fit

    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten())
    model = nn.Sequential(features, nn.Linear(128, 3))
    config = FitConfig(
        epochs=epochs,
        batch_size=8,
        accumulation=2,
        schedule="cosine",
        clip_norm=1.0,
        eval_every_steps=5,
        checkpoint_minutes=0,
        trackers=(),
    )
    fit(model, parse(method), Slow(96, seed=1), Slow(30, seed=2), out=out, config=config, progress=False)


def processes(*, cold: bool) -> multiprocessing.context.BaseContext:
    """Return what starts a run: a new interpreter, or a fork of one that has imported everything already."""
    if cold:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # The last two are what the first optimizer and the first model bring with them.
    context.set_forkserver_preload(
        [
            "vicinal.training",
            "vicinal.expressions",
            "accelerate",
            "pyarrow.parquet",
            "torch._dynamo",
            "torch.distributed.tensor",
        ]
    )
    return context


def commits(out: Path) -> dict[Path, int]:
    """Return when the checkpoints of this run, and of its first stage, were written."""
    return {path: path.stat().st_mtime_ns for path in out.rglob("checkpoint.json")}


def check_files(out: Path) -> None:
    """Read everything that has its final name: all of it must be whole."""
    for path in [*out.rglob("*.json")]:
        content = json.loads(path.read_text())
        if path.name == "checkpoint.json":
            for name in content["files"].values():
                load_file(path.parent / name)
    for path in out.rglob("model.safetensors"):
        load_file(path)


def kill_test(
    folder: Path, *, method: str, kills: int, epochs: int, seed: int = 0, cold: bool = True
) -> dict[str, int]:
    """Run `train` in peace and with up to `kills` kills, compare, and return how it went."""
    draw = random.Random(seed)
    peace, war = folder / "peace", folder / "war"
    context = processes(cold=cold)

    def start(out: Path) -> multiprocessing.process.BaseProcess:
        process = context.Process(target=train, args=(str(out), method, epochs))
        process.start()
        return process

    undisturbed = start(peace)  # meanwhile the other one is being killed
    killed = 0
    while True:
        process = start(war)
        if killed == kills:
            break
        before = commits(war)
        if draw.random() < 0.9:  # wait until training goes on; else kill it at any moment of its start
            while commits(war) == before and process.is_alive():
                time.sleep(0.002)
            time.sleep(draw.uniform(0, 0.25 if cold else 0.1))
        else:
            time.sleep(draw.uniform(0, 4 if cold else 0.1))
        if not process.is_alive():
            break  # it was faster
        process.kill()
        process.join()
        killed += 1
        check_files(war)
    for run in (process, undisturbed):
        run.join()
        if run.exitcode:
            raise RuntimeError(f"a run of {method} failed with exit code {run.exitcode}")
    check_files(war)
    results = {name: json.loads((out / "result.json").read_text()) for name, out in (("peace", peace), ("war", war))}
    for name in COMPARED:
        if (peace / name).read_bytes() != (war / name).read_bytes():
            raise RuntimeError(f"{name} differs after {killed} kills of {method}")
    for figure in ("best", "last", "steps", "stopped_early"):
        if results["peace"][figure] != results["war"][figure]:
            raise RuntimeError(f"{figure} differs after {killed} kills of {method}")
    return {
        "kills": killed,
        "resumed": sum(json.loads(p.read_text())["resumed"] for p in war.rglob("result.json")),
        "steps": results["war"]["steps"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--method", action="append")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for method in arguments.method or METHODS:
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            found = kill_test(
                Path(folder), method=method, kills=arguments.kills, epochs=arguments.epochs, seed=arguments.seed
            )
            print(f"{method}: {found['kills']} kills, {found['resumed']} resumptions, {found['steps']} steps: "
                  f"equal bit for bit ({time.monotonic() - began:.0f} s)")  # fmt: skip


if __name__ == "__main__":
    main()
