"""Kill a training run at random moments, start it again each time, and compare it with one left in peace.

    python -m benchmarks.kill_test                 20 kills each of two methods, a few minutes
    python -m benchmarks.kill_test --commands      kills of predict, calibrate, evaluate and train while they write

The weights, the metrics and the predictions must be equal bit for bit, and no file may ever be found half written.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import Dataset

from benchmarks.commands import command, start, warm
from benchmarks.hostile import good_table, text_of

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
    for name in ("best", "last", "steps", "stopped_early"):
        if results["peace"][name] != results["war"][name]:
            raise RuntimeError(f"{name} differs after {killed} kills of {method}")
    return {
        "kills": killed,
        "resumed": sum(json.loads(p.read_text())["resumed"] for p in war.rglob("result.json")),
        "steps": results["war"]["steps"],
    }


#: What is killed, with what it writes; the first is the model that others use.
COMMANDS = {
    ("train", "good.csv", "--target", "label", "--out", "model", "--epochs", "1", "--model-option", "hidden=[4]"): (
        "model",
    ),
    ("predict", "model", "good.csv", "--out", "answers.csv"): ("answers.csv",),
    ("calibrate", "said.csv", "new.csv", "--out", "better.parquet", "--save", "how.json"): (
        "better.parquet",
        "how.json",
    ),
    ("evaluate", "said.csv", "--report", "page.html"): ("page.html",),
}


def kill_commands(folder: Path, *, kills: int, seed: int = 0) -> dict[str, int]:
    """Kill each command so often, half of the time while a draft is there, and check what is left.

    A file with its final name must be whole: as it was before, or as an undisturbed command writes it. After the last
    kill the command is run to its end, and no draft may be left. Returns how many kills met a draft, by command.
    """
    draw = random.Random(seed)
    good = good_table(rows=400)
    (folder / "good.csv").write_text(text_of(good))
    said = [["label", "prob_yes", "prob_no"], *([cells[-1], "0.8125", "0.1875"] for cells in good[1:] * 20)]
    for name in ("said.csv", "new.csv"):
        (folder / name).write_text(text_of(said))
    met = {}
    for words, written in COMMANDS.items():
        began = time.monotonic()
        _finish(words, folder)
        lasts, whole = time.monotonic() - began, {name: _shape(folder / name) for name in written}
        met[words[0]] = 0
        for k in range(kills):
            for name in written:
                _remove(folder / name if k % 3 else folder / "nothing")  # sometimes the old one is there
            met[words[0]] += _killed(words, folder, draw, lasts)
            for name in written:
                if (path := folder / name).exists() and path.is_file() and _shape(path) != whole[name]:
                    raise RuntimeError(f"{name} is half written after a kill of {words[0]}")
            if (folder / "model").is_dir():
                check_files(folder / "model")
        _finish(words, folder)
        if strays := [str(path) for path in folder.rglob(".*.tmp")]:
            raise RuntimeError(f"{words[0]} left {strays} behind after {kills} kills and a run to its end")
    return met


def _finish(words: tuple[str, ...], folder: Path) -> None:
    if (ended := command(words, folder)).code:
        raise RuntimeError(f"{words[0]} failed: {ended.err}")


def _killed(words: tuple[str, ...], folder: Path, draw: random.Random, lasts: float) -> bool:
    """Start a command and kill it at any moment or, every other time, soon after a draft is there."""
    limit = time.monotonic() + draw.uniform(0, lasts)
    waits = draw.random() < 0.5
    streams = [folder.parent / f"{folder.name}.{stream}" for stream in ("out", "err")]
    child = start(words, folder, streams, lambda: None)
    while not os.waitpid(child, os.WNOHANG)[0]:
        draft = any(folder.rglob(".*.tmp"))
        if (draft and waits) or (time.monotonic() > limit and not waits):
            time.sleep(draw.uniform(0, 0.01) if waits else 0)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return any(folder.rglob(".*.tmp"))
    return False


def _shape(path: Path) -> object:
    """Return what must be equal in a file that is whole: its bytes, or of a page, which holds the date, its end."""
    if path.is_dir():
        return None
    content = path.read_bytes()
    return (content[-20:], len(content) // 1000) if path.suffix == ".html" else content


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--method", action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", action="store_true", help="kill commands instead of training")
    arguments = parser.parse_args()
    if arguments.commands:
        warm()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "work"
            folder.mkdir()
            met = kill_commands(folder, kills=arguments.kills, seed=arguments.seed)
        print(f"{arguments.kills} kills each, no half file, no stray one; while a file was written: {met}")
        return
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
