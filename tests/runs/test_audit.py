from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.runs import Experiment, audited, audited_by_aum, run


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


def test_models_that_did_not_see_them_find_planted_mistakes(planted: tuple[Any, set[int]]) -> None:
    outcome, wrong = planted
    notes: list[str] = []
    audit = audited(outcome, n_folds=4, progress=False, on_note=notes.append)
    assert [note[:15] for note in notes] == [f"training {k} of 4" for k in range(1, 5)]
    assert len(audit.labels) == 240  # of every split
    found = {sample["index"] for sample in audit.samples}
    assert len(found & wrong) >= 0.9 * len(wrong)
    assert len(found & wrong) >= 0.9 * len(found)
    frame = pd.read_csv(outcome.experiment.source)
    for sample in audit.samples:
        assert sample["label"] == frame["name"][sample["index"]]
        assert float(sample["row"]["x"]) == frame["x"][sample["index"]]
        assert sample["suspicious"]
        assert sample["candidate"]
        assert sample["reason"].startswith(f"a model that did not see it gives {sample['prediction']!r} a probability")
    record = json.loads((outcome.out / "audit" / "audit.json").read_text())
    assert record["suspicious"] == record["candidates"] == len(audit.samples)
    models = [outcome.out / "audit" / f"fold-{k}" / "model.safetensors" for k in range(1, 5)]
    before = [path.stat().st_mtime_ns for path in models]
    again = audited(outcome, n_folds=4, n=3, progress=False)
    assert again.samples == audit.samples[:3]
    assert [path.stat().st_mtime_ns for path in models] == before
    columns, probs = next(again.review())
    assert columns["index"] == [sample["index"] for sample in again.samples]
    for sample, row in zip(again.samples, probs, strict=True):
        assert float(row.max()) == sample["confidence"]


def test_planted_mistakes_are_found(planted: tuple[Any, set[int]]) -> None:
    outcome, wrong = planted
    notes: list[str] = []
    audit, samples = audited_by_aum(outcome, n=10_000, progress=False, on_note=notes.append)
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
    _, first = audited_by_aum(outcome, n=5, progress=False)
    models = [outcome.out / "audit" / f"training-{k}" / "model.safetensors" for k in (1, 2)]
    before = [path.stat().st_mtime_ns for path in models]
    state = torch.get_rng_state()
    _, again = audited_by_aum(outcome, n=5, progress=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert again == first
    assert [path.stat().st_mtime_ns for path in models] == before
    assert json.loads((outcome.out / "audit" / "audit.json").read_text())["samples"] == first


def test_a_run_that_was_to_stop_at_a_metric_is_audited(planted: tuple[Any, set[int]]) -> None:
    outcome, _ = planted
    training = {**outcome.experiment.training, "stop_at": ["accuracy", 0.99]}
    stopped = dataclasses.replace(outcome, experiment=dataclasses.replace(outcome.experiment, training=training))
    assert audited_by_aum(stopped, n=5, progress=False)[1] == audited_by_aum(outcome, n=5, progress=False)[1]


def test_hostile_arguments(planted: tuple[Any, set[int]], tmp_path: Path) -> None:
    outcome, _ = planted
    with pytest.raises(ValueError, match="n must be an integer of at least 1"):
        audited_by_aum(outcome, n=0)
    with pytest.raises(ValueError, match="n_folds must be an integer of at least 2"):
        audited(outcome, n_folds=1)
    with pytest.raises(ValueError, match="percentile must be"):
        audited_by_aum(outcome, percentile=101)
