"""The usual model for rows of a table in a run: a network is trained, then trees, and validation rows weigh them."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.cli.running import refused, vicinal
from tests.processes import free_port, in_processes, world
from vicinal import load
from vicinal.models import MLPAndTrees, TwoViewMLP
from vicinal.models.averaged import best_share
from vicinal.report.run import facts_of
from vicinal.runs import Experiment, Run, audited, run
from vicinal.runs.execute import held_out_logits
from vicinal.training import load_weights


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    x, colour = rng.normal(size=(260, 2)), rng.choice(["red", "green", "blue"], 260)
    y = np.where((x[:, 0] * x[:, 1] > 0) ^ (colour == "red"), "yes", "no")
    path = tmp_path_factory.mktemp("trees") / "xor.csv"
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "colour": colour, "y": y}).to_csv(path, index=False)
    return path


def asked(table: Path, **changed: Any) -> Experiment:
    options = {"iterations": 20, "hidden": [16], **changed.pop("model_options", {})}
    training = {"epochs": 4, "lr": 0.01, "trackers": []}
    data = {"target": "y", **changed.pop("data", {})}
    return Experiment(source=str(table), data=data, model_options=options, training=training, seed=2, **changed)


@pytest.fixture(scope="module")
def notes() -> list[str]:
    return []


@pytest.fixture(scope="module")
def trained(table: Path, notes: list[str]) -> Any:
    outcome = run(asked(table), table.parent / "run", progress=False, on_note=notes.append)
    assert any("then at most 20 boosted trees a class" in note for note in notes)
    return outcome


def test_validation_rows_choose_how_much_each_counts(trained: Any, notes: list[str]) -> None:
    module, val = load(trained.out).module, trained.run.task().val
    assert isinstance(module, MLPAndTrees)
    x, labels = val.take(torch.arange(len(val)))
    p, q = (part(x).detach().double().softmax(1) for part in (module.network, module.trees))
    of_truth = (part[torch.arange(len(labels)), labels] for part in (p, q))
    share = best_share(*of_truth, (10, 1))
    assert 0.05 < share < 0.95
    assert float(module.share) == pytest.approx(share)
    logits = trained.sets["val"].logits
    torch.testing.assert_close(logits.double().softmax(1), share * p + (1 - share) * q, atol=1e-6, rtol=0)
    percent = round(100 * share)
    assert f"by validation rows the network counts {percent} % in the answers, and the trees {100 - percent} %" in notes
    told = {name: value for name, value, _ in facts_of(trained)}
    assert told["Training"].endswith(f"the network counts {percent} % in the answers, boosted trees the rest")
    assert "iterations=20" in told["Network"]
    assert trained.facts["notes"] == [note for note in notes if note.startswith("temperature")]  # nothing to warn of
    nll = float(torch.nn.functional.cross_entropy(logits.double(), labels))
    assert trained.fit["best"]["val_nll"] == pytest.approx(nll, abs=1e-6)


def test_what_is_served_is_what_was_measured(trained: Any, table: Path, tmp_path: Path) -> None:
    bundle = load(trained.out)
    assert bundle.module.trees.n_columns == 3  # a colour is one number
    task = trained.run.task()
    assert torch.equal(bundle.logits(task.val), trained.sets["val"].logits)
    assert torch.equal(bundle.logits(task.test), trained.test.logits)
    vicinal("predict", trained.out, table, "--out", tmp_path / "answers.csv")
    answers = pd.read_csv(tmp_path / "answers.csv")
    np.testing.assert_allclose(answers[["prob_no", "prob_yes"]], bundle.predict_proba(table), atol=1e-6)


@pytest.mark.slow
def test_it_is_written_as_onnx(trained: Any, tmp_path: Path) -> None:
    assert load(trained.out).to_onnx(tmp_path / "model.onnx") < 1e-4


def test_the_network_is_the_one_that_is_trained_alone(trained: Any, table: Path, tmp_path: Path) -> None:
    alone = dataclasses.replace(asked(table), model="two-view-mlp", model_options={"hidden": [16]})
    run(alone, tmp_path / "alone", progress=False)
    expected, beside = load_weights(tmp_path / "alone"), load_weights(trained.out)
    assert all(torch.equal(beside[f"network.{name}"], weights) for name, weights in expected.items())
    lines = [(run_folder / "metrics.jsonl").read_text() for run_folder in (tmp_path / "alone", trained.out)]
    assert lines[0] == lines[1]  # trees come after the training


def test_it_goes_on_and_is_read_again(trained: Any, table: Path, tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(line: dict[str, Any]) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        run(asked(table), tmp_path / "run", progress=False, on_metrics=stop)
    run(asked(table), tmp_path / "run", progress=False)
    weights = tmp_path / "run" / "model.safetensors"
    whole = weights.read_bytes()
    assert whole == (trained.out / "model.safetensors").read_bytes()
    weights.write_bytes(whole[:-8] + b"damaged!")
    with pytest.warns(UserWarning, match="are damaged"):
        run(asked(table), tmp_path / "run", progress=False)
    assert weights.read_bytes() == whole
    with pytest.raises(ValueError, match="holds another run"):
        run(asked(table, model_options={"iterations": 21}), tmp_path / "run", progress=False)


def test_members_of_an_ensemble_have_trees_too(table: Path, tmp_path: Path) -> None:
    outcome = run(asked(table, ensemble=2), tmp_path / "run", progress=False)
    assert outcome is not None
    bundle = load(tmp_path / "run")
    assert all(isinstance(member, MLPAndTrees) and member.share < 1 for member in bundle.module.members)
    torch.testing.assert_close(bundle.logits(outcome.run.task().test), outcome.test.logits)
    assert outcome.facts["share"] == pytest.approx(sum(float(member.share) for member in bundle.module.members) / 2)


def train_together(rank: int, table: Path, out: Path, port: int) -> None:
    os.environ |= world(rank, 2, port)
    options = ["--model-option", "iterations=5", "--class-weight", "balanced"]
    vicinal("train", table, "--target", "y", "--epochs", 1, *options, "--out", out)


@pytest.mark.slow
def test_two_processes(table: Path, tmp_path: Path) -> None:
    in_processes(2, train_together, table, tmp_path / "run", free_port())
    module = load(tmp_path / "run").module
    assert module.share < 1
    assert json.loads((tmp_path / "run" / "result.json").read_text())["processes"] == 2


def test_classes_count_the_same_in_the_trees_too(table: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(table)
    frame[(frame["y"] == "yes") | (frame.index % 5 == 0)].to_csv(tmp_path / "rows.csv", index=False)
    values = []
    for weight in (None, "balanced"):
        out = tmp_path / str(weight)
        run(asked(tmp_path / "rows.csv", class_weight=weight), out, progress=False)
        values.append(float(load_weights(out)["trees.baseline"]))
    assert abs(values[1]) < 1e-6 < 1 < abs(values[0])  # log-odds of the classes as they count


def test_without_validation_rows_the_network_is_alone(table: Path, tmp_path: Path) -> None:
    outcome = run(asked(table, data={"val": 0}), tmp_path / "run", progress=False)
    assert outcome is not None
    module = load(tmp_path / "run").module
    assert float(module.share) == 1
    assert torch.equal(load(tmp_path / "run").logits(outcome.run.task().test), outcome.test.logits)
    assert "share" not in outcome.facts


def test_where_training_rows_lack_a_class_the_network_is_alone(trained: Any, table: Path, tmp_path: Path) -> None:
    """As in a fold of an audit, which has the labels of the run."""
    task = trained.run.task()
    task = dataclasses.replace(task, train=task.train.relabelled([0] * len(task.train)))
    logits = held_out_logits(asked(table), task, tmp_path / "fold", progress=False)
    weights = load_weights(tmp_path / "fold")
    assert float(weights["share"]) == 1
    assert not weights["trees.value"].any()
    assert logits.isfinite().all()


def test_corrupted_labels_are_followed_in_the_network_alone(table: Path, tmp_path: Path) -> None:
    words = ["train", table, "--target", "y", "--epochs", 1, "--corrupt", 0.2]
    vicinal(*words, "--out", tmp_path / "run")
    assert isinstance(load(tmp_path / "run").module, TwoViewMLP)
    said = refused(*words, "--model", "mlp-and-trees", "--out", tmp_path / "other")
    assert "--corrupt follows one network to its last weights: pass --model two-view-mlp" in said


def test_several_labels_have_the_network_alone(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=120)
    frame = pd.DataFrame({"x": x, "wet": (x > 0).astype(int), "cold": (x > 1).astype(int)})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    words = ["train", tmp_path / "rows.csv", "--target", "wet", "--target", "cold", "--epochs", 1]
    vicinal(*words, "--out", tmp_path / "run")
    assert isinstance(load(tmp_path / "run").module, TwoViewMLP)
    said = refused(*words, "--model", "mlp-and-trees", "--out", tmp_path / "other")
    assert "--model mlp-and-trees needs classes, and this target is several columns" in said


def test_labels_are_audited_by_both(trained: Any) -> None:
    audit = audited(trained, n_folds=2, progress=False)
    assert len(audit.labels) == 260
    assert float(load_weights(Run(trained.out).files.audit_training("fold-1"))["share"]) < 1
