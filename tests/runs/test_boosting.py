"""Gradient boosting as a model of the command: scikit-learn's trees, without scikit-learn and without pickles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.cli.running import refused, vicinal
from vicinal import load
from vicinal._atomic import read_sealed, sealed, write_json
from vicinal.models import Boosted
from vicinal.runs import Experiment, Run, audited, audited_by_aum, run


def test_a_thousand_million_members_are_not_built(outcome: Any, tmp_path: Path) -> None:
    run = load(outcome.out).save(tmp_path / "copy")
    record = read_sealed(run / "model.json")
    record["network"]["members"] = 10**9
    write_json(run / "model.json", sealed(record))
    with pytest.raises(ValueError, match=r"asks for 1,000,000,000 networks, and model\.safetensors holds"):
        load(run)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    x, colour = rng.normal(size=(260, 2)), rng.choice(["red", "green", "blue"], 260)
    y = np.where((x[:, 0] * x[:, 1] > 0) ^ (colour == "red"), "yes", "no")
    x[rng.random(x.shape) < 0.05] = np.nan
    path = tmp_path_factory.mktemp("boosting") / "xor.csv"
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "colour": colour, "y": y}).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def outcome(table: Path) -> Any:
    out = table.parent / "run"
    words = ("train", table, "--target", "y", "--model", "hgb", "--model-option", "iterations=60", "--out", out)
    ran = vicinal(*words, "--report", table.parent / "report.html")
    assert "gradient boosting by scikit-learn, at most 60 trees a class" in ran.out
    return Run(out).result()


def test_validation_rows_go_down_the_trees_in_the_batches_that_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1500, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.where(x[:, 0] * x[:, 1] > 0, "yes", "no")})
    frame.to_csv(tmp_path / "xor.csv", index=False)
    sizes: list[int] = []
    forward = Boosted.forward

    def counted(self: Boosted, rows: torch.Tensor) -> torch.Tensor:
        sizes.append(len(rows))
        return forward(self, rows)

    monkeypatch.setattr(Boosted, "forward", counted)
    data = {"target": "y", "val": 800, "test": 100}
    experiment = Experiment(
        source=str(tmp_path / "xor.csv"), method="ERM()", model="hgb", model_options={"iterations": 3}, data=data
    )
    outcome = run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    assert sum(sizes) >= 900
    assert max(sizes) <= 500  # those that are compared with scikit-learn's
    assert torch.equal(outcome.run.bundle().logits(outcome.run.task().val), outcome.sets["val"].logits)


def test_it_is_trained_calibrated_reported_and_served(outcome: Any, table: Path, tmp_path: Path) -> None:
    assert outcome.experiment.method == "ERM()"
    assert outcome.test.before.accuracy.value > 0.75
    page = (table.parent / "report.html").read_text(encoding="utf-8")
    assert f"{int(outcome.fit['epochs'])} of 60 trees a class of 31 leaves at most" in page
    bundle = load(outcome.out)
    assert isinstance(bundle.module, Boosted)
    torch.testing.assert_close(bundle.logits(outcome.run.task().test), outcome.test.logits)
    vicinal("predict", outcome.out, table, "--out", tmp_path / "answers.csv")
    answers = pd.read_csv(tmp_path / "answers.csv")
    np.testing.assert_allclose(answers[["prob_no", "prob_yes"]], bundle.predict_proba(table), atol=1e-6)
    vicinal("export", outcome.out, "--out", tmp_path / "model.onnx")  # compares with onnxruntime
    # The number of trees is the one with the lowest NLL on the validation set, of which the metrics are.
    assert outcome.fit["best"]["val_nll"] == pytest.approx(outcome.sets["val"].before.nll.value, abs=1e-6)
    assert outcome.fit["best"]["val_nll"] == min(line["val_nll"] for line in outcome.history)
    notes: list[str] = []
    run(outcome.experiment, outcome.out, progress=False, on_note=notes.append)
    assert notes == [f"{outcome.out} is finished: nothing to do"]
    (outcome.out / "evaluation.json").unlink()
    again = run(outcome.experiment, outcome.out, progress=False)
    assert again is not None
    assert torch.equal(again.test.logits, outcome.test.logits)


def test_labels_are_audited_by_it(outcome: Any) -> None:
    audit = audited(outcome, n_folds=2, progress=False)
    assert len(audit.labels) == 260
    with pytest.raises(ValueError, match="by='aum' needs a network"):
        audited_by_aum(outcome, progress=False)


def test_what_trees_cannot_do_is_said(table: Path, tmp_path: Path) -> None:
    words = ["train", table, "--target", "y", "--model", "hgb", "--out", tmp_path / "run"]
    assert "--model hgb mixes no rows: pass --method 'ERM()'" in refused(*words, "--method", "Mixup(alpha=0.2)")
    assert "--ensemble is for networks: leave it out with --model hgb" in refused(*words, "--ensemble", 2)
    said = refused(*words, "--epochs", 3)
    assert "--model hgb takes --model-option iterations=500" in said
    assert "hgb has no option 'hidden'" in refused(*words, "--model-option", "hidden=[3]")


@pytest.mark.parametrize("model", ["lightgbm", "catboost", "best"])
def test_other_libraries_have_the_same_calibration_and_report(table: Path, tmp_path: Path, model: str) -> None:
    if model != "best":
        pytest.importorskip(model)
    words = ("train", table, "--target", "y", "--model", model, "--out", tmp_path / "run")
    few = ("--epochs", "2") if model == "best" else ("--model-option", "iterations=30")
    ran = vicinal(*words, *few, "--report", tmp_path / "report.html")
    assert {"lightgbm": "LightGBM", "catboost": "CatBoost", "best": "then the trees of hgb"}[model] in ran.out
    result = Run(tmp_path / "run").result()
    assert result.test.after.accuracy.value > 0.5
    again = load(tmp_path / "run")
    torch.testing.assert_close(again.logits(result.run.task().test), result.test.logits)
    assert (tmp_path / "report.html").exists()


def test_trees_of_other_libraries_mix_no_rows(table: Path, tmp_path: Path) -> None:
    words = ("train", table, "--target", "y", "--model", "lightgbm", "--method", "Mixup(alpha=0.2)")
    assert "--model lightgbm mixes no rows" in refused(*words, "--out", tmp_path / "run")
