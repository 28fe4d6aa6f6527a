"""Real processes: one that is killed, and two that train together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.processes import free_port, in_processes, world
from vicinal import ERM, GuidedMixup, Mixup
from vicinal.models import TwoViewMLP
from vicinal.training import FitConfig, fit, load_weights


def data(n: int, seed: int) -> TensorDataset:
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def network(*, norm: bool) -> nn.Sequential:
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(nn.Linear(5, 16), *middle, nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def two_views() -> TwoViewMLP:
    torch.manual_seed(0)
    return TwoViewMLP(5, 3, plain=[0, 2], hidden=[8], dropout=0.0)  # the second view alone sees what decides


class Failing:
    """Fails once, on every rank in the same step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, model, x, y, *, index=None, epoch=None, generator=None):
        self.step -= 1
        if self.step == 0:
            raise InterruptedError
        return Mixup(alpha=0.4)(model, x, y, index=index, epoch=epoch, generator=generator)

    def __repr__(self) -> str:
        return repr(Mixup(alpha=0.4))


def train_all(folder: Path, *, accumulation: int, batch_size: int = 8) -> None:
    """Train every case; in two processes each takes its half."""
    train, val = data(67, 0), data(23, 1)  # neither is a multiple of anything

    def run(name: str, objective, *, norm: bool = False, model=None, val=val, **fields):
        config = FitConfig(
            batch_size=batch_size, accumulation=accumulation, lr=0.01, trackers=(), **{"epochs": 3, **fields}
        )
        model = model or network(norm=norm)
        return fit(model, objective, train, val, out=folder / name, config=config, progress=False)

    run("mixup", Mixup(alpha=0.4), clip_norm=1.0, schedule="cosine", checkpoint_minutes=0)
    run("guided", GuidedMixup(pool="batch"))
    run("norm", ERM(), norm=True, val=None, steps=7)
    settled = run("settled", ERM(), model=two_views(), epochs=20, eval_batch_size=7)
    rank = os.environ.get("RANK", "0")
    (folder / f"share-{rank}").write_text(repr(float(settled.model.share)))
    run("norm and val", ERM(), norm=True)
    run("ema", ERM(), ema=0.8)
    run("swa", ERM(), norm=True, swa=1)
    run("whole", Mixup(alpha=0.4), norm=True, checkpoint_minutes=0, eval_every_steps=4)
    for fail_at in (3, 4, 0):
        try:
            run("resumed", Failing(fail_at * accumulation), norm=True, checkpoint_minutes=0, eval_every_steps=4)
        except InterruptedError:
            continue


def train_its_half(rank: int, folder: Path, port: int) -> None:
    os.environ |= world(rank, 2, port)
    train_all(folder, accumulation=1)


def history(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_two_processes_do_what_one_does_with_twice_the_accumulation(tmp_path):
    in_processes(2, train_its_half, tmp_path / "two", free_port())
    train_all(tmp_path / "one", accumulation=2)
    for case in ("mixup", "guided", "norm"):
        one, two = load_weights(tmp_path / "one" / case, last=True), load_weights(tmp_path / "two" / case, last=True)
        for name, weights in one.items():
            # BatchNorm's running statistics are those of the first process.
            if "running" not in name and "tracked" not in name:
                torch.testing.assert_close(two[name], weights, msg=lambda m, case=case: f"{case}: {m}")
        for a, b in zip(history(tmp_path / "one" / case), history(tmp_path / "two" / case), strict=True):
            assert a.keys() == b.keys()
            torch.testing.assert_close(torch.tensor(list(b.values())), torch.tensor(list(a.values())))
    shares = [float((tmp_path / name).read_text()) for name in ("one/share-0", "two/share-0", "two/share-1")]
    assert shares[0] < 0.45  # chosen, by all 23 validation samples on either rank
    assert shares[1] == shares[2] == float(load_weights(tmp_path / "two" / "settled")["share"])
    assert shares[1] == pytest.approx(shares[0], abs=2e-4)
    aum = [load_state(tmp_path / n / "guided" / "first-stage") for n in ("one", "two")]
    torch.testing.assert_close(*aum)
    config = [json.loads((tmp_path / n / "mixup" / "config.json").read_text()) for n in ("one", "two")]
    assert config[0] == config[1]  # so that a run may go on with another number of processes
    # The averages of two processes are those of one; statistics are computed again on all samples, not on a half.
    for name, weights in load_weights(tmp_path / "one" / "ema").items():
        torch.testing.assert_close(load_weights(tmp_path / "two" / "ema")[name], weights)
    one, two = (load_weights(tmp_path / n / "swa")["1.running_mean"] for n in ("one", "two"))
    torch.testing.assert_close(one, two, rtol=0.1, atol=0.05)
    for run in (tmp_path / "one", tmp_path / "two"):  # and a disturbed run of two is bit for bit the same, too
        for name in ("metrics.jsonl", "model.safetensors", "predictions.parquet"):
            assert (run / "resumed" / name).read_bytes() == (run / "whole" / name).read_bytes()
        assert json.loads((run / "resumed" / "result.json").read_text())["resumed"] == 2


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_process_whose_others_are_missing_says_what_it_waits_for_and_can_be_ended(rank):
    port = free_port()
    code = "from vicinal.training import environment\nenvironment._SILENCE = 0.5\nenvironment.joined_process()\n"
    waiting = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, **world(rank, 2, port)}, stderr=subprocess.PIPE, text=True
    )
    try:
        assert waiting.stderr is not None
        line = next(line for line in waiting.stderr if "waiting" in line)
        assert f"up to 30 minutes until all 2 processes (WORLD_SIZE) have met at 127.0.0.1:{port}" in line
        assert f"this one is process {rank}" in line
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(200) == -signal.SIGTERM
    finally:
        waiting.kill()
        waiting.communicate()


@pytest.mark.parametrize(("name", "value"), [("LOCAL_RANK", ""), ("RANK", "x"), ("WORLD_SIZE", "1.0")])
def test_what_says_which_process_this_is_must_be_a_number(monkeypatch, name, value):
    from vicinal.training.environment import joined_process

    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"the environment variable {name} must be a whole number, got {value!r}"):
        joined_process()


def load_state(run: Path) -> torch.Tensor:
    from vicinal.training.folder import TrainingFolder

    return TrainingFolder(run, main=False).load_checkpoint()["objective"]["margins"]


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(tmp_path):
    from benchmarks.kill_test import kill_test

    found = kill_test(tmp_path, method="Warmup(LogitMix(Mixup(alpha=1.0)), epochs=1)", kills=10, epochs=15, cold=False)
    assert found["kills"] == 10
    assert found["resumed"] >= 5
