"""Training and predicting, each kind of data through the real command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vicinal as library
from tests.cli.running import TINY, Ran, real, refused, vicinal
from tests.data import make

PROBABILITY = "prob_"


def _predictions(frame: pd.DataFrame, run: Path) -> np.ndarray:
    """Check what every file of predictions must have, and return its probabilities."""
    classes = library.load(run).classes
    probs = frame[[PROBABILITY + name for name in classes]].to_numpy()
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-9)
    np.testing.assert_array_equal(frame["prediction"].astype(str), np.array(classes)[probs.argmax(axis=1)])
    np.testing.assert_allclose(frame["confidence"], probs.max(axis=1))
    assert frame["row"].tolist() == list(range(len(frame)))
    return probs


def _said(ran: Ran) -> None:
    assert re.fullmatch(r"(.*, \d+ s\n)*", ran.err)  # no warning; on a busy machine lines of progress
    assert "\x1b" not in ran.out
    assert "ECE (15 bins)" in ran.out
    assert re.search(r"^\W*test\b", ran.out, re.MULTILINE)  # "test, calibrated" too, where calibration changes a metric


def test_a_table(tmp_path: Path) -> None:
    folder = tmp_path / 'a folder with "quotes" & ünïcode'
    folder.mkdir()
    frame = make.people(60)
    frame.to_csv(folder / "my people.csv", index=False)
    ran = real("train", "my people.csv", "--target", "kind", "--out", "a run", *TINY, cwd=folder)
    _said(ran)
    assert "1 of dates" in ran.out
    assert "baselines on the same 9 test samples" in ran.out
    assert {"majority class", "logistic regression"} <= json.loads((folder / "a run" / "baselines.json").read_text())[
        "models"
    ].keys()
    assert "vicinal predict 'a run' DATA --out FILE" in ran.out
    run = folder / "a run"
    assert {"model.safetensors", "model.json", "evaluation.json", "tensorboard"} <= {p.name for p in run.iterdir()}
    assert not [p for p in run.rglob("*") if p.suffix in (".pt", ".pkl", ".bin", ".pth")]

    unlabelled = frame.drop(columns="kind")
    unlabelled.to_parquet(folder / "new.parquet")
    vicinal("predict", "a run", "new.parquet", "--out", "answers é.csv", cwd=folder)
    from_csv = _predictions(pd.read_csv(folder / "answers é.csv"), run)
    vicinal("predict", run, folder / "my people.csv", "--out", folder / "answers.parquet", "--batch-size", 7)
    from_parquet = _predictions(pd.read_parquet(folder / "answers.parquet"), run)
    np.testing.assert_allclose(from_csv, from_parquet, atol=1e-6)
    np.testing.assert_allclose(from_csv, library.load(run).predict_proba(unlabelled), atol=1e-6)


def test_pairs_of_texts(tmp_path: Path) -> None:
    frame = make.reviews(40).drop(columns="stars")
    frame["answer"] = frame["review"].iloc[::-1].to_numpy()
    frame.to_csv(tmp_path / "pairs.csv", index=False)
    options = ["--text", "review", "--text", "answer", "--model", "sentencecnn", "--epochs", "1"]
    ran = vicinal("train", "pairs.csv", "--target", "mood", *options, "--out", "run", cwd=tmp_path)
    _said(ran)
    assert "kind: pairs of texts, from 'review' and 'answer'" in ran.out
    assert "SequenceMixup" in ran.out  # the usual method mixes embeddings here, and says so
    frame.drop(columns="mood").to_csv(tmp_path / "new.csv", index=False)
    vicinal("predict", "run", "new.csv", "--out", "answers.csv", cwd=tmp_path)
    probs = _predictions(pd.read_csv(tmp_path / "answers.csv"), tmp_path / "run")
    texts = list(zip(frame["review"], frame["answer"], strict=True))
    np.testing.assert_allclose(probs, library.load(tmp_path / "run").predict_proba(texts), atol=1e-6)


def test_a_folder_of_images(tmp_path: Path) -> None:
    make.image_folder(tmp_path / "my <b>images</b>".replace("/", "_"), classes=make.HOSTILE, n=8)
    source = next(tmp_path.iterdir())
    options = ["--epochs", "1", "--batch-size", "8", "--model-option", "width=4", "--report", "report.html"]
    ran = vicinal("train", source.name, *options, "--out", "run", cwd=tmp_path)
    _said(ran)
    assert "kind: colour images of 12 × 12 px" in ran.out
    assert "<script>alert" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    vicinal("predict", "run", source.name, "--out", "answers.csv", cwd=tmp_path)
    answers = pd.read_csv(tmp_path / "answers.csv")
    _predictions(answers, tmp_path / "run")
    assert answers["file"].tolist() == [str(p.relative_to(tmp_path)) for p in sorted(source.rglob("*.png"))]


def test_a_folder_of_sounds(tmp_path: Path) -> None:
    make.sound_folder(tmp_path / "sounds", n=7)
    options = ["--seconds", "0.2", "--epochs", "1", "--out", "run"]
    ran = vicinal("train", "sounds", *options, "--json", cwd=tmp_path)
    assert ran.err == ""
    events = [line["event"] for line in map(json.loads, ran.out.splitlines())]
    assert set(events) == {"note", "metrics", "result"}
    assert events[-1] == "result"
    assert "kind: " in ran.events("note")[0]["text"]
    vicinal("predict", "run", "sounds", "--out", "answers.parquet", cwd=tmp_path)
    answers = pd.read_parquet(tmp_path / "answers.parquet")
    _predictions(answers, tmp_path / "run")
    assert {Path(name).suffix for name in answers["file"]} == {".wav", ".flac"}


@pytest.mark.slow
def test_a_pretrained_transformer(tmp_path: Path) -> None:
    make.reviews(24).to_csv(tmp_path / "reviews.csv", index=False)
    options = ["--model", "minilm", "--steps", "2", "--batch-size", "4", "--max-length", "12"]
    ran = vicinal("train", tmp_path / "reviews.csv", "--target", "mood", "--out", tmp_path / "run", *options)
    assert "2 steps of adamw" in ran.out
    assert library.load(tmp_path / "run").predict(["a great film", "an awful film"]).shape == (2,)


def test_a_folder_already_split(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        make.image_folder(tmp_path / "data" / part, n=5, size=8)
    options = ["--epochs", "1", "--model-option", "width=4"]
    ran = vicinal("train", tmp_path / "data", "--out", tmp_path / "run", *options)
    assert "splits: train 10, val 10, test 10; the source's own" in ran.out


def test_digits_are_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--epochs", "1", "--train-size", "50", "--model-option", "width=2", "--method", "ERM()"]
    ran = vicinal("train", *options)
    assert "--train-size: 50 training samples" in ran.out
    assert (tmp_path / "runs" / "digits-ERM-seed0" / "evaluation.json").exists()
    assert len(json.loads((tmp_path / "runs" / "digits-ERM-seed0" / "splits.json").read_text())["train"]) == 50


def test_evaluations_and_predictions_when_asked_for(table: Path, tmp_path: Path) -> None:
    options = ["--epochs", "4", "--model-option", "hidden=[4]", "--batch-size", "16", "--select", "mcc"]
    options += ["--eval-every", "2", "--keep-predictions-at", "1", "--keep-predictions-at", "4"]
    ran = vicinal("train", table, "--target", "kind", "--model", "mlp", "--out", tmp_path / "run", "--json", *options)
    evaluated = [line["epoch"] for line in ran.events("metrics") if "val_ece" in line]
    assert evaluated == [1, 2, 4]
    kept = {path.name for path in (tmp_path / "run").glob("predictions-epoch-*")}
    assert kept == {"predictions-epoch-1.parquet", "predictions-epoch-4.parquet"}
    best = json.loads((tmp_path / "run" / "result.json").read_text())["best"]
    scores = [line["val_mcc"] for line in ran.events("metrics") if "val_mcc" in line]
    assert best["val_mcc"] == max(scores)


def test_another_domain_too(table: Path, tmp_path: Path) -> None:
    other = make.people(40)
    other["kind"] = other["kind"].where(other.index > 3, "never seen")
    other.to_csv(tmp_path / "elsewhere.csv", index=False, encoding="utf-16")
    mine = tmp_path / "mine.csv"
    make.people(60).to_csv(mine, index=False, encoding="utf-16")
    options = ["--eval-data", tmp_path / "elsewhere.csv", "--eval-data", mine, "--encoding", "utf-16"]
    ran = vicinal("train", mine, "--target", "kind", *options, "--out", tmp_path / "run", "--json", *TINY)
    sets = ran.events("result")[0]["sets"]
    assert [entry["before"]["n"] for entry in sets.values()] == [9, 9, 36, 60]
    assert any("never seen" in note["text"] for note in ran.events("note"))
    assert "--map-class: the data have no class 'x'" in refused(
        "train", mine, "--target", "kind", "--encoding", "utf-16", "--eval-data", mine, "--map-class", "x=a", *TINY
    )
    assert "--map: " in refused(
        "train", mine, "--target", "kind", "--encoding", "utf-16", "--eval-data", mine, "--map", "x=age", *TINY
    )
    assert {"ece", "accuracy"} <= set(sets["eval-1"]["after"])


def test_the_threshold_of_the_aum_is_reported(table: Path, tmp_path: Path) -> None:
    words = [
        "train",
        table,
        "--target",
        "kind",
        "--method",
        "GuidedMixup(saliency='hidden')",
        "--out",
        tmp_path / "run",
    ]
    ran = vicinal(*words, "--report", tmp_path / "page.html", *TINY)
    reported = json.loads((tmp_path / "run" / "result.json").read_text())["objective"]
    said = f"aum threshold {reported['aum_threshold']:.4g}, high {reported['high']}, low {reported['low']}"
    assert f"the objective reports: {said}" in ran.out
    assert said in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert vicinal(*words, "--json", *TINY).events("result")[0]["objective"] == reported


def test_corrupted_labels(table: Path, tmp_path: Path) -> None:
    ran = vicinal("train", table, "--target", "kind", "--corrupt", "0.5", "--out", tmp_path / "run", *TINY)
    assert "training labels drawn at random" in ran.out
    noise = json.loads((tmp_path / "run" / "evaluation.json").read_text())["label_noise"]
    assert 0 < noise["changed"] <= noise["corrupted"] < 63
    assert {"train_real", "train_corrupted", "test"} <= set(noise["last"])


def test_no_held_out_data(table: Path, tmp_path: Path) -> None:
    options = ["--val", "0", "--test", "0", *TINY]
    ran = vicinal("train", table, "--target", "kind", *options, "--out", tmp_path / "run")
    assert "not calibrated" in ran.out
    assert library.load(tmp_path / "run").temperature == 1
    vicinal("predict", tmp_path / "run", table, "--out", tmp_path / "answers.csv")


def test_a_finished_run_is_left_alone(table: Path, trained: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*") if path.is_file()}
    again = vicinal("train", table, "--target", "kind", "--out", trained, *TINY)
    assert "is finished: nothing to do" in again.out
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*") if path.is_file()} == before


def test_the_same_seed_gives_the_same_run(table: Path, trained: Path, tmp_path: Path) -> None:
    vicinal("train", table, "--target", "kind", "--out", tmp_path / "run", *TINY)
    for name in ("model.safetensors", "metrics.jsonl", "splits.json"):
        assert (tmp_path / "run" / name).read_bytes() == (trained / name).read_bytes()
    vicinal("train", table, "--target", "kind", "--out", tmp_path / "other", "--seed", 1, *TINY)
    assert (tmp_path / "other" / "splits.json").read_bytes() == (trained / "splits.json").read_bytes()
    assert (tmp_path / "other" / "metrics.jsonl").read_bytes() != (trained / "metrics.jsonl").read_bytes()


def test_balanced_classes(table: Path, tmp_path: Path) -> None:
    said = vicinal(
        "train", table, "--target", "kind", "--out", tmp_path / "run", *TINY, "--class-weight", "balanced"
    ).out
    assert "all classes counted the same in training" in said
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    weights = record["class_weights"]
    assert len(weights) == len(set(record["about"]["classes"]))
    assert min(weights) <= 1 <= max(weights)
    again = ("train", table, "--target", "kind", "--out", tmp_path / "run", *TINY)
    assert "class" in refused(*again)


def test_an_ensemble(table: Path, tmp_path: Path) -> None:
    ran = vicinal("train", table, "--target", "kind", "--ensemble", 2, "--out", tmp_path / "run", *TINY)
    assert "2 networks" in ran.out
    assert json.loads((tmp_path / "run" / "model.json").read_text())["network"]["members"] == 2
    vicinal("predict", tmp_path / "run", table, "--out", tmp_path / "out.csv")
    assert len(pd.read_csv(tmp_path / "out.csv")) == len(pd.read_csv(table))
    assert "--ensemble must be an integer from 1 to 1,000, got 0" in refused("train", table, "--ensemble", 0)
