from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import vicinal as library
from tests.data import make
from vicinal.calibrators import TemperatureScaling
from vicinal.expressions import parse
from vicinal.metrics import evaluate
from vicinal.runs import (
    Experiment,
    Run,
    confident_mistakes,
    default_config,
    mixed_at_embeddings,
    run,
    shown,
)
from vicinal.training import load_weights, read_predictions

TINY = {"epochs": 2, "batch_size": 16}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "people.csv"
    make.people(80).to_csv(path, index=False)
    return path


def _experiment(table: Path, **fields: Any) -> Experiment:
    plain = {"data": {"target": "kind"}, "model_options": {"hidden": [4]}, "training": TINY}
    return Experiment(source=str(table), **{**plain, **fields})


@pytest.fixture(scope="module")
def done(table: Path) -> Any:
    return run(_experiment(table), table.parent / "done", progress=False)


def test_the_figures_are_those_of_the_saved_predictions(done: Any) -> None:
    for key, name in (("val", "predictions.parquet"), ("test", "predictions-test.parquet")):
        logits, labels = read_predictions(done.out / name)
        before = evaluate(labels, logits=logits)
        after = evaluate(labels, logits=logits.double() / done.temperature)
        assert done.sets[key].before.nll == before.nll
        assert done.sets[key].after.ece == after.ece
    assert done.sets["val"].after.nll.value <= done.sets["val"].before.nll.value
    recorded = json.loads((done.out / "evaluation.json").read_text())
    assert recorded["sets"]["test"]["after"]["ece"]["value"] == done.test.after.ece.value


def test_a_finished_run_is_read_again(done: Any, table: Path) -> None:
    again = Run(done.out).outcome()
    assert again.to_dict() == done.to_dict()
    assert again.experiment == done.experiment
    assert torch.equal(again.test.logits, done.test.logits)
    with pytest.raises(ValueError, match=r"holds another run, of vicinal train .* --target kind"):
        run(_experiment(table, seed=1), done.out, progress=False)
    assert not Run(table.parent / "nothing").is_finished
    with pytest.raises(ValueError, match="is no run of vicinal"):
        Run(table.parent / "nothing").outcome()


def test_a_run_killed_before_its_evaluation_goes_on(done: Any, table: Path, tmp_path: Path) -> None:
    """Between training and evaluation.json nothing is lost and nothing trained again."""
    out = tmp_path / "run"
    run(_experiment(table), out, progress=False)
    wanted = {name: (out / name).read_bytes() for name in ("model.json", "splits.json", "mistakes.json")}
    trained = (out / "model.safetensors").stat().st_mtime_ns
    for name in (*wanted, "evaluation.json", "experiment.json", "predictions-test.parquet"):
        (out / name).unlink()
    assert not Run(out).is_finished
    lines: list[Any] = []
    outcome = run(_experiment(table), out, progress=False, on_metrics=lines.append)
    assert outcome is not None
    assert lines == []
    assert (out / "model.safetensors").stat().st_mtime_ns == trained
    assert {name: (out / name).read_bytes() for name in wanted} == wanted
    assert outcome.to_dict()["sets"] == done.to_dict()["sets"]


def test_reopening(done: Any, table: Path, tmp_path: Path) -> None:
    bundle, task = done.run.bundle(), done.run.task()
    logits = bundle.logits(task.test)
    assert torch.equal(logits, done.test.logits)
    assert task.test.labels == done.test.labels.tolist()


def test_reopening_with_fewer_training_samples_and_other_labels(table: Path, tmp_path: Path) -> None:
    experiment = _experiment(table, data={"target": "kind", "train_size": 20, "seed": 5}, corrupt=0.5)
    outcome = run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    assert outcome.label_noise is not None
    task = outcome.run.task()
    assert len(task.train) == 20
    assert task.train.indices == json.loads((outcome.out / "splits.json").read_text())["train"]
    plain = library.data.load(str(table), target="kind", train_size=20, seed=5)
    changed = sum(a != b for a, b in zip(task.train.labels, plain.train.labels, strict=True))
    assert changed == outcome.label_noise["changed"] > 0


def test_further_sets_are_read_before_training(table: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        run(_experiment(table, also=("nowhere.csv",)), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_no_test_set(table: Path, tmp_path: Path) -> None:
    outcome = run(_experiment(table, data={"target": "kind", "test": 0}), tmp_path / "run", progress=False)
    assert outcome is not None
    assert list(outcome.sets) == ["val"]
    with pytest.raises(ValueError, match="has no test set"):
        _ = outcome.test


def test_too_easy_a_validation_set_leaves_the_temperature_at_one(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 60)
    pd.DataFrame({"x": x, "z": 2 * x, "y": np.where(x > 0, "up", "down")}).to_csv(tmp_path / "easy.csv", index=False)
    notes: list[str] = []
    training = {"epochs": 40, "lr": 0.05, "patience": 40}
    experiment = Experiment(source=str(tmp_path / "easy.csv"), data={"target": "y"}, training=training, method="ERM()")
    outcome = run(experiment, tmp_path / "run", progress=False, on_note=notes.append)
    assert outcome is not None
    assert outcome.sets["val"].before.accuracy.value == 1
    assert outcome.temperature == 1
    assert [note for note in notes if note.startswith("temperature left at 1")] == outcome.facts["notes"]


# One loop that predicts


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_the_temperature_is_fitted_on_the_logits_that_are_served(precision: str, table: Path, tmp_path: Path) -> None:
    """Validation (in training), test, a further set and `predict`: the same rows have the same logits, bit for bit."""
    training = {**TINY, "mixed_precision": precision}
    frame = pd.read_csv(table)
    frame.to_csv(tmp_path / "all.csv", index=False)
    options = {"target": "kind", "val": 37, "test": 21}
    splits = library.data.load(str(table), **options).splits
    for name in ("val", "test"):
        frame.iloc[splits[name]].to_csv(tmp_path / f"{name}.csv", index=False)
    experiment = _experiment(table, data=options, training=training, also=(str(tmp_path / "val.csv"),))
    outcome = run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    bundle = library.load(outcome.out)
    assert bundle.precision == precision
    for name in ("val", "test"):
        served = bundle.logits(str(tmp_path / f"{name}.csv"))
        assert torch.equal(served, outcome.sets[name].logits)
        assert torch.equal(served, read_predictions(outcome.run.files.predictions(name))[0])
        probs = torch.tensor(bundle.predict_proba(str(tmp_path / f"{name}.csv")))
        assert torch.equal(probs, bundle.calibrated(served))
    assert torch.equal(outcome.sets["also-1"].logits, outcome.sets["val"].logits)
    refitted = TemperatureScaling().fit(served := bundle.logits(str(tmp_path / "val.csv")), outcome.sets["val"].labels)
    assert refitted.temperature_ == outcome.temperature
    # The network that probes look into is the one that is served.
    x = torch.stack([bundle.read(str(tmp_path / "val.csv"))[i][0] for i in range(16)])
    assert torch.equal(bundle.network(x), served[:16])
    assert torch.equal(bundle.module(x), served[:16]) == (precision == "no")


# Runs of the first version


def test_a_run_written_by_the_first_version_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(Path(__file__).parent / "written_by_0_1", tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    outcome = Run("run").outcome()
    recorded = json.loads(Path("run/evaluation.json").read_text())
    assert outcome.temperature == recorded["temperature"]
    for key in ("val", "test"):
        assert outcome.sets[key].before.nll.value == pytest.approx(recorded["sets"][key]["before"]["nll"]["value"])
        assert outcome.sets[key].after.ece.value == pytest.approx(recorded["sets"][key]["after"]["ece"]["value"])
    task = outcome.run.task()
    bundle = library.load("run")
    torch.testing.assert_close(bundle.logits(task.test), outcome.test.logits)
    assert len(bundle.predict("coins.csv")) == 60
    assert len(load_weights("run", last=True)) == len(bundle.module.state_dict())
    notes: list[str] = []
    again = run(outcome.experiment, "run", progress=False, on_note=notes.append)
    assert notes == ["run is finished: nothing to do"]
    assert again is not None
    # An unfinished one goes on: here from its last checkpoint.
    for name in ("evaluation.json", "result.json"):
        (tmp_path / "old" / "run" / name).unlink()
    lines: list[Any] = []
    again = run(outcome.experiment, "run", progress=False, on_metrics=lines.append)
    assert again is not None
    assert lines == []
    assert again.test.before.nll.value == pytest.approx(outcome.test.before.nll.value)


def test_weights_that_are_gone_are_noticed(table: Path, tmp_path: Path) -> None:
    out, notes = tmp_path / "run", []
    wanted = run(_experiment(table), out, progress=False)
    content = (out / "model.safetensors").read_bytes()
    (out / "model.safetensors").write_bytes(content[:50])
    with pytest.raises(ValueError, match="its checksum differs; start the run again"):
        library.load(out)
    with pytest.warns(UserWarning, match="taken from the checkpoint again"):
        again = run(_experiment(table), out, progress=False, on_note=notes.append)
    assert "are damaged: their checksum differs; the run goes on from its checkpoint" in notes[0]
    assert (out / "model.safetensors").read_bytes() == content
    assert wanted is not None
    assert again is not None
    assert again.to_dict()["sets"] == wanted.to_dict()["sets"]


def test_a_folder_of_something_else_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(ValueError, match=r"holds 'photo.jpg' but no config.json: it is not a run"):
        run(Experiment(source="nowhere.csv"), tmp_path, progress=False)


# Mistakes


def test_the_most_confident_mistakes_come_first() -> None:
    task = library.data.load("digits")
    split, n = task.test, len(task.test)
    probs = torch.rand((n, 10), generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    found = confident_mistakes(split, probs, task.classes, n=7)
    confidence, predicted = probs.max(dim=1)
    wrong = [i for i in range(n) if predicted[i] != split.labels[i]]
    worst = sorted(wrong, key=lambda i: -confidence[i].item())[:7]
    assert [entry["index"] for entry in found] == [split.indices[i] for i in worst]
    assert [entry["confidence"] for entry in found] == [confidence[i].item() for i in worst]
    assert found[0]["picture"].startswith("data:image/png;base64,")
    json.dumps(found, allow_nan=False)


def test_what_is_shown_of_a_sample(tmp_path: Path) -> None:
    make.people(40).to_csv(tmp_path / "people.csv", index=False)
    row = shown(library.data.load(str(tmp_path / "people.csv"), target="kind").train, 0)["row"]
    assert {"age", "height cm", "colour"} <= set(row)
    frame = make.reviews(30)
    frame["review"] = frame["review"] + " and so on" * 100
    frame.to_csv(tmp_path / "reviews.csv", index=False)
    task = library.data.load(str(tmp_path / "reviews.csv"), target="mood", tokenizer="words")
    (text,) = shown(task.train, 0)["text"]
    assert len(text) == 601
    assert text.endswith("…")
    make.sound_folder(tmp_path / "sounds")
    seen = shown(library.data.load(str(tmp_path / "sounds"), val=0.2, test=0.2).train, 0)
    assert seen["picture"].startswith("data:image/png")
    assert seen["origin"].endswith((".wav", ".flac"))


# What is usual


def test_what_is_given_takes_its_companions_along() -> None:
    config = default_config("audio", "lenet", {"schedule": "cosine"}, seed=1)
    assert (config.schedule, config.milestones, config.seed) == ("cosine", (), 1)
    config = default_config("image", "resnet18", {"optimizer": "adamw"}, seed=0)
    assert (config.lr, config.nesterov) == (1e-3, False)
    config = default_config("image", "resnet18", {"optimizer": "sgd"}, seed=0)
    assert (config.lr, config.nesterov) == (0.1, True)
    config = default_config("text", "minilm", {"warmup_steps": 3}, seed=0)
    assert (config.warmup_epochs, config.warmup_steps) == (0, 3)
    config = default_config("image", "resnet18", {"milestones": [5.0]}, seed=0)
    assert config.schedule == "milestones"
    assert default_config("tabular", "mlp", {}, seed=0).patience == 10
    assert default_config("tabular", "mlp", {}, seed=0, validated=False).patience is None


def test_texts_are_mixed_at_their_embeddings() -> None:
    found = mixed_at_embeddings(parse("Warmup(LogitMix(Mixup(alpha=0.3, label_smoothing=0.1), weight=0.5), epochs=2)"))
    mixed = "SequenceMixup.input(alpha=0.3, label_smoothing=0.1)"
    assert found == parse(f"Warmup(LogitMix({mixed}, weight=0.5), epochs=2)")
    for same in ("ERM()", "SequenceMixup.cls(alpha=0.2)", "ManifoldMixup(alpha=2.0, layers=('x',))"):
        assert mixed_at_embeddings(parse(same)) == parse(same)
    with pytest.raises(ValueError, match="labels='nearest'"):
        mixed_at_embeddings(parse("Mixup(alpha=0.2, labels='nearest')"))


def test_outcomes_are_records(done: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        done.temperature = 2.0
    json.dumps(done.to_dict(), allow_nan=False)
