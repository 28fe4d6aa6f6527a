"""Several columns of 0 and 1 as the target: from the file to the report."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import vicinal
from tests.cli.running import refused
from tests.cli.running import vicinal as command
from vicinal import data, runs
from vicinal.runs import Experiment

TRAINING = {"epochs": 3, "lr": 0.02, "batch_size": 32}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    frame = pd.DataFrame(x, columns=["p", "q", "r"])
    frame["wet"] = (x[:, 0] + 0.5 * rng.normal(size=300) > 0).astype(int)
    frame["cold"] = np.where(x[:, 1] + rng.normal(size=300) > 0.7, "yes", "no")
    path = tmp_path_factory.mktemp("labels") / "weather.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    experiment = Experiment(source=str(table), data={"target": ["wet", "cold"]}, model="mlp", training=TRAINING)
    runs.run(experiment, out, progress=False)
    return out


def test_labels_are_read_as_they_stand_and_not_learned_from(table):
    task = data.load(str(table), target=["wet", "cold"])
    assert (task.target_type, task.classes) == ("multilabel", ("wet", "cold"))
    frame = pd.read_csv(table)
    for split in (task.train, task.val, task.test):
        for i in range(len(split)):
            row = frame.iloc[split.indices[i]]
            assert split[i][1] == [int(row["wet"]), int(row["cold"] == "yes")]
    assert task.train[0][0].shape == (3,)  # p, q and r
    assert sorted(i for part in task.splits.values() for i in part) == list(range(300))
    shares = [np.mean(split.labels, axis=0) for split in (task.train, task.val, task.test)]
    np.testing.assert_allclose(shares[1:], [shares[0]] * 2, atol=0.03)  # combinations are in proportion
    assert task.counts()["train"] == np.sum(task.train.labels, axis=0).tolist()


def test_a_run_measures_and_calibrates_each_label_alone(run):
    outcome = runs.Run(run).result()
    logits, labels = runs.Run(run).predictions("test")
    assert labels.shape == logits.shape
    bundle = vicinal.load(run)
    assert bundle.is_multilabel
    temperatures = bundle.calibrators.temperatures
    assert temperatures == outcome.calibrators.temperatures
    probs = torch.stack([(logits[:, k].double() / t).sigmoid() for k, t in enumerate(temperatures.values())], dim=1)
    torch.testing.assert_close(bundle.calibrated(logits), probs)
    for k, name in enumerate(("wet", "cold")):
        alone = vicinal.evaluate(labels[:, k], probs=torch.stack([1 - probs[:, k], probs[:, k]], dim=1))
        measured = outcome.heads[name]
        assert measured.nll.value == pytest.approx(alone.nll.value)
        assert measured.ece.value == pytest.approx(alone.ece.value)
        binary = outcome.sets["test"].binary(name)
        assert binary is not None
        assert binary.auroc.value > 0.6
    assert {"val_nll", "val_accuracy", "val_ece"} <= set(outcome.fit["best"])


def test_a_finished_run_is_read_again_and_another_is_refused(run, table):
    said: list[str] = []
    experiment = Experiment(source=str(table), data={"target": ["wet", "cold"]}, model="mlp", training=TRAINING)
    assert runs.run(experiment, run, on_note=said.append) is not None
    assert said == [f"{run} is finished: nothing to do"]
    other = Experiment(source=str(table), data={"target": ["cold", "wet"]}, model="mlp", training=TRAINING)
    with pytest.raises(ValueError, match="holds another run"):
        runs.run(other, run)
    assert "--target wet --target cold" in experiment.command()


def test_new_rows_get_the_probability_of_each_label(run, table, tmp_path):
    out = tmp_path / "out.csv"
    said = command("predict", run, table, "--out", out).out
    assert "2 labels, temperatures" in said
    rows = list(csv.DictReader(out.read_text().splitlines()))
    probs = vicinal.load(run).predict_proba(str(table))
    answers = vicinal.load(run).predict(str(table))
    for row, p, yes in zip(rows, probs, answers, strict=True):
        assert [float(row["prob_wet"]), float(row["prob_cold"])] == pytest.approx(p.tolist())
        assert json.loads(row["prediction"]) == [name for name, one in zip(("wet", "cold"), yes, strict=True) if one]


def test_the_command_trains_evaluates_and_reports(table, tmp_path):
    out, page = tmp_path / "run", tmp_path / "page.html"
    words = ("--target", "wet", "--target", "cold", "--epochs", 1, "--model", "mlp", "--out", out)
    trained = command("train", table, *words, "--report", page).out
    assert "mean, calibrated" in trained
    assert "cold" in page.read_text()
    result = command("evaluate", out, "--bins", 10, "--json").events("result")[0]
    assert set(result["sets"]["test"]["after"]["labels"]) == {"wet", "cold"}
    assert result["sets"]["test"]["after"]["labels"]["wet"]["n_bins"] == 10
    page.unlink()
    command("evaluate", out, "--report", page)
    assert "Label by label" in page.read_text()


@pytest.mark.slow
def test_a_run_of_labels_as_onnx(run, tmp_path):
    pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'vicinal[export]'")
    assert vicinal.load(run).to_onnx(tmp_path / "model.onnx") < 1e-5


def test_a_run_is_measured_on_new_rows(run, table, tmp_path):
    frame = pd.read_csv(table).iloc[:80].astype({"wet": object})
    frame.loc[3, "wet"], frame["note"] = None, 1
    path = tmp_path / "new.csv"
    frame.to_csv(path, index=False)
    ran = command("evaluate", run, path, "--bins", 10, "--json")
    result = ran.events("result")[0]
    kept = frame.drop(index=3)
    answers = np.stack([kept["wet"].astype(float).astype(int), kept["cold"] == "yes"], axis=1).astype(int)
    probs = vicinal.load(run).predict_proba(kept)
    slow = [np.mean([(p > 0.5) == bool(y) for p, y in zip(probs[:, k], answers[:, k], strict=True)]) for k in (0, 1)]
    after = result["after"]["labels"]
    assert [after[name]["accuracy"]["value"] for name in ("wet", "cold")] == pytest.approx(slow)
    nll = -np.log(np.where(answers == 1, probs, 1 - probs)).mean(axis=0)
    assert [after[name]["nll"]["value"] for name in ("wet", "cold")] == pytest.approx(nll.tolist(), rel=1e-5)
    assert result["notes"][:2] == [
        "unlike the training data: 1 extra column (ignored: 'note', which the model was not trained with)",
        "left out: 1 rows that lack a label",
    ]
    assert "samples were trained on" in result["notes"][2]
    assert "mean, calibrated" in command("evaluate", run, path).out
    assert "is for a run's folder" in refused("evaluate", path, path)
    assert "leave DATA out" in refused("evaluate", run, path, "--sets", 0.9)
    frame.drop(columns="cold").to_csv(path, index=False)
    assert "'cold'" in refused("evaluate", run, path)


def test_methods_are_compared_on_every_label_and_on_their_mean(table, tmp_path):
    out, more = tmp_path / "grid", tmp_path / "more.csv"
    pd.read_csv(table).iloc[:50].to_csv(more, index=False)
    words = ("--target", "wet", "--target", "cold", "--epochs", 1, "--model", "mlp", "--seeds", 2, "--out", out)
    methods = ("--method", "ERM()", "--method", "Mixup(alpha=4.0)")
    ran = command("compare", table, *words, *methods, "--eval-data", more, "--choose", "nll", "--json")
    result = ran.events("result")[0]
    assert set(result["labels"]) == {"wet", "cold"}
    for when in ("before", "after"):
        for k, row in enumerate(result[when]):
            alone = [result["labels"][label][when][k] for label in ("wet", "cold")]
            for metric in ("accuracy", "nll", "brier", "ece"):
                assert row[metric]["value"] == pytest.approx(np.mean([each[metric]["value"] for each in alone]))
                assert row[metric]["low"] <= row[metric]["value"] <= row[metric]["high"]
        second = result[when][1]
        for metric in ("nll", "ece"):
            apart = second[metric]["value"] - result[when][0][metric]["value"]
            assert second["difference"][metric]["value"] == pytest.approx(apart)
    assert result["eval_data"]["eval-1"]["after"][0]["n"] == 50
    assert result["chosen"] in ("ERM()", "Mixup(alpha=4.0)")
    assert "The label 'cold' alone" in result["markdown"]
    page = (out / "report.html").read_text()
    assert "means over 2\u00a0labels" in page
    assert "The label &#39;wet&#39; alone" in page


def test_what_needs_classes_says_so(run, table, tmp_path):
    assert "--sets needs classes" in refused("evaluate", run, "--sets", 0.9)
    assert "--sets needs classes" in refused("predict", run, table, "--sets", 0.9, "--out", tmp_path / "out.csv")
    assert "has several targets, and this needs classes: train with one" in refused("audit", run)
    several = ("--target", "wet", "--target", "cold", "--out", tmp_path / "new")
    assert "--class-weight needs classes" in refused("train", table, *several, "--class-weight", "balanced")
    assert "--corrupt needs classes" in refused("train", table, *several, "--corrupt", 0.1)
    assert "--ensemble needs classes" in refused("train", table, *several, "--ensemble", 2)
    assert "--baselines needs classes" in refused("train", table, *several, "--baselines")
    methods = ("--method", "ERM()", "--method", "Mixup(alpha=0.2)")
    assert "--baselines needs classes" in refused("compare", table, *several, *methods, "--baselines")
    with pytest.raises(ValueError, match="this needs classes, and there are 2 labels"):
        runs.Run(run).result().test.after


def test_bad_targets_are_named(table, tmp_path):
    with pytest.raises(ValueError, match=r"'p' of .* each target of a multi-label task must hold 0 and 1"):
        data.load(str(table), target=["wet", "p"])
    with pytest.raises(ValueError, match="target='dry' is no column"):
        data.load(str(table), target=["wet", "dry"])
    with pytest.raises(ValueError, match="names a column twice"):
        data.load(str(table), target=["wet", "wet"])
    with pytest.raises(ValueError, match="drop='cold' is the target"):
        data.load(str(table), data.TableOptions(drop="cold"), target=["wet", "cold"])
    frame = pd.read_csv(table)
    frame["never"] = 0
    with pytest.raises(ValueError, match="the label 'never' is 0 in every training row"):
        data.load(frame, target=["wet", "never"])
    with pytest.raises(ValueError, match="names a column, but 'digits' is not a table"):
        data.load("digits", target=["a", "b"])


def test_texts_have_several_labels_too(tmp_path):
    rng = np.random.default_rng(0)
    words = np.array(["rain", "sun", "snow", "wind", "heat", "ice"])
    texts = [" ".join(rng.choice(words, 8)) for _ in range(120)]
    frame = pd.DataFrame({"text": texts, "wet": ["rain" in t for t in texts], "cold": ["ice" in t for t in texts]})
    path = tmp_path / "texts.csv"
    frame.to_csv(path, index=False)
    chosen = {"target": ["wet", "cold"], "text": "text"}
    experiment = Experiment(source=str(path), data=chosen, model="sentencecnn", training={"epochs": 1})
    outcome = runs.run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    assert set(outcome.heads) == {"wet", "cold"}
    assert vicinal.load(tmp_path / "run").predict_proba(["rain and ice"]).shape == (1, 2)
