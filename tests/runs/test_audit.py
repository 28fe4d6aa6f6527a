from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.runs import Experiment, audited, run


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, set[int]]:
    """A run on three clouds of points, some of which carry another cloud's name; and which."""
    rng = np.random.default_rng(0)
    k = np.arange(240) % 3
    points = rng.normal(size=(240, 2)) * 0.4 + np.array([[0, 3], [3, 0], [-3, -3]])[k]
    wrong = set(rng.choice(240, 14, replace=False).tolist())
    names = [f"cloud {(c + 1) % 3 if i in wrong else c}" for i, c in enumerate(k)]
    path = tmp_path_factory.mktemp("audit") / "clouds.csv"
    pd.DataFrame({"x": points[:, 0], "y": points[:, 1], "name": names}).to_csv(path, index=False)
    training = {"epochs": 15, "lr": 0.01, "batch_size": 32}
    experiment = Experiment(source=str(path), data={"target": "name"}, training=training, method="ERM()")
    return run(experiment, path.parent / "run", progress=False), wrong


def test_planted_mistakes_are_found(planted: tuple[Any, set[int]]) -> None:
    outcome, wrong = planted
    notes: list[str] = []
    audit, samples = audited(outcome, n=10_000, progress=False, on_note=notes.append)
    train = json.loads((outcome.out / "splits.json").read_text())["train"]
    planted_here = wrong & set(train)
    assert len(planted_here) >= 5
    first = {sample["index"] for sample in samples[: len(planted_here)]}
    assert len(first & planted_here) >= 0.8 * len(planted_here)
    above = [sample["aum"] - sample["threshold"] for sample in samples]  # each training has a scale of its own
    assert above == sorted(above)
    assert len(samples) == len(train) == len(audit.aum)
    assert sum(sample["suspicious"] for sample in samples) == int(audit.suspicious.sum())
    frame = pd.read_csv(outcome.experiment.source)
    for sample in samples[:20]:
        assert sample["label"] == frame["name"][sample["index"]]
        assert float(sample["row"]["x"]) == frame["x"][sample["index"]]
    assert [note[:15] for note in notes] == ["training 1 of 2", "training 2 of 2"]


def test_an_audit_is_kept(planted: tuple[Any, set[int]]) -> None:
    outcome, _ = planted
    _, first = audited(outcome, n=5, progress=False)
    models = [outcome.out / "audit" / f"training-{k}" / "model.safetensors" for k in (1, 2)]
    before = [path.stat().st_mtime_ns for path in models]
    state = torch.get_rng_state()
    _, again = audited(outcome, n=5, progress=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert again == first
    assert [path.stat().st_mtime_ns for path in models] == before
    assert json.loads((outcome.out / "audit" / "audit.json").read_text())["samples"] == first


def test_hostile_arguments(planted: tuple[Any, set[int]], tmp_path: Path) -> None:
    outcome, _ = planted
    with pytest.raises(ValueError, match="n must be an integer of at least 1"):
        audited(outcome, n=0)
    with pytest.raises(ValueError, match="percentile must be"):
        audited(outcome, percentile=101)
