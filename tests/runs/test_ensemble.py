from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.cli.running import vicinal
from tests.processes import free_port, in_processes, world
from vicinal import load
from vicinal.models import ModelSpec, build, specify
from vicinal.runs import Experiment, Run, run
from vicinal.training import load_weights


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(160, 3))
    path = tmp_path_factory.mktemp("ensemble") / "rows.csv"
    names = np.where(x[:, 0] + 0.5 * rng.normal(size=160) > 0, "yes", "no")
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "kind": names}).to_csv(path, index=False)
    return path


def asked(table: Path, **changed: Any) -> Experiment:
    training = {"epochs": 3, "lr": 0.01, "trackers": []}
    return Experiment(source=str(table), data={"target": "kind"}, model="mlp", training=training, seed=2, **changed)


@pytest.fixture(scope="module")
def trained(table: Path) -> Any:
    return run(asked(table, ensemble=3), table.parent / "run", progress=False)


def test_the_mean_of_the_members_is_served_with_one_temperature(trained: Any, table: Path) -> None:
    bundle = load(trained.out)
    assert bundle.spec.members == 3
    rows = bundle.read(str(table))
    probs = []
    for k in (1, 2, 3):
        member = ModelSpec.from_dict({**bundle.spec.to_dict(), "members": 1}).build()
        member.load_state_dict(load_weights(trained.out / "members" / f"member-{k}"))
        member.eval()
        x = torch.stack([rows[i][0] for i in range(len(rows))])
        probs.append(member(x).double().softmax(dim=1))
    assert not torch.equal(probs[0], probs[1])
    mean = torch.stack(probs).mean(dim=0)
    expected = mean ** (1 / trained.temperature)  # softmax(log p / T)
    expected = expected / expected.sum(dim=1, keepdim=True)
    assert np.allclose(bundle.predict_proba(str(table)), expected.detach().numpy(), atol=1e-6)
    scored = trained.sets["val"]
    assert torch.allclose(bundle.logits(bundle_val(trained)), scored.logits, atol=1e-6)


def bundle_val(trained: Any) -> Any:
    return Run(trained.out).task().val


def test_the_first_member_is_the_run_without_an_ensemble(trained: Any, table: Path, tmp_path: Path) -> None:
    run(asked(table), tmp_path / "alone", progress=False)
    alone, first = load_weights(tmp_path / "alone"), load_weights(trained.out / "members" / "member-1")
    assert all(torch.equal(alone[name], first[name]) for name in alone)


def test_it_goes_on_and_is_read_again(trained: Any, table: Path, tmp_path: Path) -> None:
    experiment = asked(table, ensemble=2)

    class StoppedError(Exception):
        pass

    def stop(line: dict[str, Any]) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        run(experiment, tmp_path / "run", progress=False, on_metrics=stop)
    outcome = run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    assert Run(tmp_path / "run").result(experiment).temperature == outcome.temperature
    assert [set(entry) for entry in outcome.fit["ensemble"]] == [{"seed", "best"}] * 2
    weights = tmp_path / "run" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-8] + b"damaged!")
    with pytest.warns(UserWarning, match="are damaged"):
        run(experiment, tmp_path / "run", progress=False)
    assert weights.read_bytes() == whole
    with pytest.raises(ValueError, match="holds another run"):
        run(asked(table, ensemble=4), tmp_path / "run", progress=False)


def test_onnx_has_all_members(trained: Any, tmp_path: Path) -> None:
    assert load(trained.out).to_onnx(tmp_path / "model.onnx") < 1e-4


def test_what_it_says_of_itself(trained: Any, table: Path) -> None:
    assert "--ensemble 3" in trained.experiment.command()
    single = sum(p.numel() for p in build("mlp", kind="tabular", n_classes=2, input_shape=(3,)).parameters())
    assert trained.facts["weights"] == 3 * single
    record = json.loads((trained.out / "model.json").read_text())
    assert record["network"]["members"] == 3
    assert "members" not in specify("mlp", kind="tabular", n_classes=2, input_shape=(3,)).to_dict()


def train_two_members(rank: int, table: Path, out: Path, port: int) -> None:
    os.environ |= world(rank, 2, port)
    vicinal("train", table, "--target", "kind", "--model", "mlp", "--epochs", 1, "--ensemble", 2, "--out", out)


@pytest.mark.slow
def test_two_processes_train_an_ensemble_together(table: Path, tmp_path: Path) -> None:
    """Each trained alone where there is no GPU, and the second found the folder in use."""
    in_processes(2, train_two_members, table, tmp_path / "run", free_port())
    assert load(tmp_path / "run").spec.members == 2


def test_hostile_arguments(table: Path) -> None:
    with pytest.raises(ValueError, match="ensemble must be an integer from 1 to 1,000, got 0"):
        asked(table, ensemble=0)
    with pytest.raises(ValueError, match="ensemble must be an integer from 1 to 1,000, got 100000"):
        asked(table, ensemble=100_000)
    with pytest.raises(ValueError, match=r"corrupt=0\.1 is of one training: pass it without ensemble=2"):
        asked(table, ensemble=2, corrupt=0.1)
