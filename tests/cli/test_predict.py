"""Predicting new data, and what may be wrong with them or with the run."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vicinal as library
from tests.cli.running import refused, vicinal
from tests.data import make
from vicinal._atomic import read_sealed, sealed, write_json
from vicinal.cli.answers import SET_KINDS
from vicinal.metrics import risk_threshold
from vicinal.predictions import write
from vicinal.runs import Run
from vicinal.training import read_predictions


def _predict(run: Path, data: object, out: Path, *options: object) -> tuple[str, pd.DataFrame]:
    said = vicinal("predict", run, data, "--out", out, *options).out
    return said, pd.read_csv(out)


def test_missing_columns_are_counted(trained: Path, tmp_path: Path) -> None:
    make.people(20).drop(columns=["colour", "age"]).to_csv(tmp_path / "new.csv", index=False)
    said, answers = _predict(trained, tmp_path / "new.csv", tmp_path / "answers.csv")
    assert "unlike the training data: 2 missing columns (missing in every row: " in said
    make.people(20).assign(colour=None, age=None).to_csv(tmp_path / "without values.csv", index=False)
    _, same = _predict(trained, tmp_path / "without values.csv", tmp_path / "same.csv")
    pd.testing.assert_frame_equal(answers, same)


def test_a_table_of_something_else_is_refused(trained: Path, tmp_path: Path) -> None:
    pd.DataFrame({"wheels": [4, 3], "doors": [5, 2]}).to_csv(tmp_path / "cars.csv", index=False)
    said = refused("predict", trained, tmp_path / "cars.csv", "--out", tmp_path / "answers.csv")
    assert "the data have 'wheels' and 'doors', and no column that the model was trained with: " in said
    assert not (tmp_path / "answers.csv").exists()


def test_a_column_that_is_called_otherwise_is_an_error(trained: Path, tmp_path: Path) -> None:
    make.people(5).rename(columns={"age": "Age"}).to_csv(tmp_path / "new.csv", index=False)
    said = refused("predict", trained, tmp_path / "new.csv", "--out", tmp_path / "answers.csv")
    assert "did you mean 'Age'? If it is not known, add it without values" in said


def test_new_columns_values_and_gaps_are_named(trained: Path, tmp_path: Path) -> None:
    frame = make.people(20).assign(shoe=42, colour="purple")
    frame["age"] = frame["age"].astype(object)
    frame.loc[3, "age"] = "old"
    frame.to_csv(tmp_path / "new.csv", index=False)
    said, answers = _predict(trained, tmp_path / "new.csv", tmp_path / "answers.csv")
    assert "ignored: 'shoe'" in said
    assert "'purple'" in said
    assert "row 4 ('old')" in said
    assert len(answers) == 20
    assert answers.filter(like="prob_").notna().all(axis=None)


def test_a_number_that_is_not_finite_counts_as_missing_and_is_said(trained: Path, tmp_path: Path) -> None:
    frame = make.people(20).astype({"age": object})
    frame.loc[3, "age"], frame.loc[4, "age"], frame.loc[5, "age"] = "1e39", "inf", "9" * 100_000
    frame.to_csv(tmp_path / "new.csv", index=False)
    said, answers = _predict(trained, tmp_path / "new.csv", tmp_path / "answers.csv")
    assert "count as missing: row 4 ('1e39')" in said
    assert "row 6 ('999" in said
    assert len(said) < 2_000  # a cell may be as long as it likes
    assert np.isfinite(answers["confidence"]).all()


def test_small_batches_are_written_together(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make.people(300).assign(id=range(300)).to_csv(tmp_path / "new.csv", index=False)
    written: list[list[int]] = []

    def counted(path: Path, classes: Sequence[str], chunks: Iterable[Any], **options: Any) -> int:
        parts = list(chunks)
        written.append([len(probs) for _, probs in parts])
        return write(path, classes, parts, **options)

    monkeypatch.setattr("vicinal.predictions.write", counted)
    words = ("--batch-size", 7, "--keep", "id", "--sets", 0.8, "--max-risk", 0.9)
    said, together = _predict(trained, tmp_path / "new.csv", tmp_path / "together.csv", *words)
    monkeypatch.setattr("vicinal.cli.answers._GATHERED", 1)
    said_alone, alone = _predict(trained, tmp_path / "new.csv", tmp_path / "alone.csv", *words)
    assert written == [[300], [7] * 42 + [6]]
    pd.testing.assert_frame_equal(together, alone, check_exact=True)
    assert together["id"].tolist() == together["row"].tolist() == list(range(300))
    assert said.replace("together", "alone") == said_alone


@pytest.mark.parametrize("rows", [3, 64])
def test_blocks_do_not_change_the_answers(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    lines = make.people(300).to_csv(index=False).splitlines()
    lines[100] += ",too,many"
    (tmp_path / "new.csv").write_text("\n".join(lines))
    _, whole = _predict(trained, tmp_path / "new.csv", tmp_path / "whole.csv", "--batch-size", 32)
    monkeypatch.setattr("vicinal.data.streaming._ROWS", rows)
    monkeypatch.setattr("vicinal.data.tabular._ROWS", 50)
    said, answers = _predict(trained, tmp_path / "new.csv", tmp_path / "blocks.csv", "--batch-size", 32)
    assert "skipped: 1 of 300 rows could not be read: row 100" in said
    pd.testing.assert_frame_equal(whole, answers, check_exact=True)
    assert answers["row"].tolist() == [i for i in range(300) if i != 99]
    refused("predict", trained, tmp_path / "new.csv", "--out", tmp_path / "none.csv", "--max-bad", 0)
    assert not (tmp_path / "none.csv").exists()


def test_only_as_many_answers_as_keep_the_risk(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    frame = pd.DataFrame({"x": x, "y": np.where(x + 0.3 * rng.normal(size=600) > 0, "up", "down")})
    frame.to_csv(tmp_path / "data.csv", index=False)
    options = ["--epochs", "15", "--lr", "0.05", "--batch-size", "64", "--model-option", "hidden=[8]"]
    run = tmp_path / "run"
    vicinal("train", tmp_path / "data.csv", "--target", "y", "--out", run, "--test", 0.4, *options)
    said, answers = _predict(run, tmp_path / "data.csv", tmp_path / "answers.csv", "--max-risk", 0.06)
    # The same rule by hand, from the predictions on the test set.
    logits, labels = read_predictions(run / "predictions-test.parquet")
    probs = (logits.double() / library.load(run).temperature).softmax(dim=1)
    rule = risk_threshold(probs.max(dim=1).values, probs.argmax(dim=1) == labels, 0.06)
    sure = answers["confidence"] > rule.threshold
    assert 0 < sure.sum() < 600
    assert (answers["answer"] == answers["prediction"].where(sure, "abstain")).all()
    assert f"{sure.sum()} of 600 rows answered" in said
    assert (answers["answer"] != frame["y"])[sure].mean() < 0.06

    result = vicinal(
        "predict", run, tmp_path / "data.csv", "--out", tmp_path / "all.parquet", "--max-risk", 0.06, "--json"
    ).events("result")[0]
    assert result["answered"] == sure.sum()
    assert result["coverage"] == sure.mean()
    said, answers = _predict(run, tmp_path / "data.csv", tmp_path / "none.csv", "--max-risk", 0)
    assert "cannot show a risk of at most 0" in said
    assert (answers["answer"] == "abstain").all()
    said, answers = _predict(run, tmp_path / "data.csv", tmp_path / "every.csv", "--max-risk", 0.5)
    assert "600 of 600 rows answered (100.0 %), every row; on data like" in said
    assert (answers["answer"] == answers["prediction"]).all()


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["--max-risk", 4], "--max-risk must be a number in [0, 1], got 4.0"),
        (["--max-risk", 0.1, "--level", 1.5], "--level must be a number in (0, 1), got 1.5"),
        (["--device", "gpu"], "--device must be a device such as 'cpu', 'cuda', 'cuda:1' or 'mps', got 'gpu'"),
        (["--device", "cuda:99"], "is not there: torch sees"),
        (["--batch-size", 0], "--batch-size must be an integer of at least 1, got 0"),
        (["--out", "answers.xlsx"], "must end in one of .csv"),
        (["--out", "nowhere/answers.csv"], "create it first"),
        (["--encoding", "latin-99"], "--encoding latin-99 is not known"),
    ],
)
def test_options(
    options: list[object], answer: str, trained: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert answer in refused("predict", trained, table, "--out", "answers.csv", *options)
    assert not list(tmp_path.iterdir())


def test_data_of_another_kind(trained: Path, pictures: Path, table: Path, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "answers.csv"]
    assert "the model takes image data, but " in refused("predict", pictures, table, *out)
    assert "the model takes tabular data, but " in refused("predict", trained, pictures.parent / "images", *out)
    assert "there is no file or folder" in refused("predict", trained, "nowhere.csv", *out)


def test_one_picture_is_enough(pictures: Path, tmp_path: Path) -> None:
    picture = next((pictures.parent / "images").rglob("*.png"))
    said, answers = _predict(pictures, picture, tmp_path / "answers.csv")
    assert answers["file"].tolist() == [str(picture)]
    assert "1 row, " in said


def test_run_folders_that_are_none(trained: Path, table: Path, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "answers.csv"]
    nearly = trained.with_name("traind")
    assert f"there is no folder '{nearly}'; did you mean '{trained}'" in refused("predict", nearly, table, *out)
    assert "holds no model.json: not a run of vicinal" in refused("predict", tmp_path, table, *out)


def test_a_run_of_another_version(trained: Path, table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    record = read_sealed(run / "model.json")

    def said(**changes: object) -> str:
        write_json(run / "model.json", sealed({**record, "versions": {"vicinal": "9.8"}, **changes}))
        return refused("predict", run, table, "--out", tmp_path / "answers.csv")

    assert "use the version that wrote it, 9.8" in said(format=2)
    assert "another version wrote it (vicinal 9.8)" in said(network={**record["network"], "colour": "red"})
    assert "another version wrote it" in said(preprocessing={**record["preprocessing"], "kind": "smell"})
    options = {**record["network"]["options"], "hidden": [5]}
    assert "do not fit its network 'mlp-and-trees'" in said(network={**record["network"], "options": options})
    (run / "model.json").write_text("{ half of it")
    assert "is not JSON" in refused("predict", run, table, "--out", tmp_path / "answers.csv")
    write_json(run / "model.json", sealed(record))
    (run / "model.safetensors").write_bytes((trained / "model.safetensors").read_bytes()[:100])
    assert "is not the file that was written" in refused("predict", run, table, "--out", tmp_path / "answers.csv")


def test_a_class_called_abstain(tmp_path: Path) -> None:
    make.people(40).replace({"kind": {"a": "abstain"}}).to_csv(tmp_path / "data.csv", index=False)
    run = tmp_path / "run"
    vicinal("train", tmp_path / "data.csv", "--target", "kind", "--epochs", 1, "--out", run)
    words = ["predict", run, tmp_path / "data.csv", "--out", tmp_path / "answers.csv"]
    assert "a class is called 'abstain'" in refused(*words, "--max-risk", 0.5)
    vicinal(*words)


@pytest.mark.parametrize("file", ["evaluation.json", "result.json"])
@pytest.mark.parametrize("text", ['{"format": 1}', '{"format": 1, "temperature": 1.0, "sets": 3}'])
def test_a_run_whose_records_have_another_shape_says_so(trained: Path, tmp_path: Path, file: str, text: str) -> None:
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / file).write_text(text)
    make.people(20).to_csv(tmp_path / "new.csv", index=False)
    said = refused("predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "a.csv", "--max-risk", 0.5)
    assert "is damaged" in said
    assert " to make it again" in said


@pytest.mark.parametrize("option", [("--level", "1"), ("--max-bad", "2.5")])
def test_options_are_checked_even_where_nothing_needs_them(
    trained: Path, tmp_path: Path, option: tuple[str, str]
) -> None:
    make.people(20).to_csv(tmp_path / "new.csv", index=False)
    said = refused("predict", trained, tmp_path / "new.csv", "--out", tmp_path / "a.csv", *option)
    assert f"{option[0]} must be a" in said


def test_what_is_no_parquet_file_is_one_line_and_the_whole_disk_no_data(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    assert refused("predict", trained, tmp_path / "x.parquet", "--out", tmp_path / "a.csv").count("\n") == 1
    assert "'/' is the whole file system" in refused("train", "/", "--out", tmp_path / "run")


def test_bounds_on_memory_are_an_option(trained: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    words = ["predict", trained, table, "--out", out]
    said = refused(*words, "--max-memory", "1KB")
    assert re.search(r"result.json takes .* of memory, and 1 KB are allowed: --max-memory \d\S* allows it", said)
    assert not out.exists()
    vicinal(*words, "--max-memory", "10MB")
    assert "VICINAL_MAX_MEMORY" not in os.environ
    assert "--max-memory must be a size such as '64GB'" in refused(*words, "--overwrite", "--max-memory", "much")


def test_prediction_sets(trained: Path, tmp_path: Path) -> None:
    make.people(20).to_csv(tmp_path / "new.csv", index=False)
    said, answers = _predict(trained, tmp_path / "new.csv", tmp_path / "answers.csv", "--sets", 0.8)
    assert "prediction sets of 80 % coverage hold" in said
    classes = set(library.load(trained).classes)
    sets = [json.loads(text) for text in answers["set"]]
    assert all(set(one) <= classes for one in sets)
    assert any(len(one) > 0 for one in sets)
    words = ("predict", trained, tmp_path / "new.csv", "--out", tmp_path / "more.csv", "--sets")
    sizes = {}
    for kind in SET_KINDS:
        how = ("--sets", 0.8, "--sets-kind", kind)
        _, again = _predict(trained, tmp_path / "new.csv", tmp_path / f"{kind}.csv", *how)
        sizes[kind] = [len(json.loads(text)) for text in again["set"]]
    assert sizes["least-ambiguous"] == [len(one) for one in sets]
    assert min(sizes["adaptive"]) > 0
    assert sum(sizes["adaptive-randomised"]) < sum(sizes["adaptive"])  # exact coverage needs fewer classes
    assert "--sets-kind must be one of" in refused(*words, 0.8, "--sets-kind", "small")
    assert "--sets-kind needs --sets" in refused(*words[:-1], "--sets-kind", "adaptive")
    for value in ("1.5", "nan", "-1"):
        assert f"--sets must be a number in (0, 1], got {float(value)}" in refused(*words, value)
        assert f"--sets must be a number in (0, 1], got {float(value)}" in refused("evaluate", trained, "--sets", value)
    assert not (tmp_path / "more.csv").exists()
    result = vicinal("evaluate", trained, "--sets", 0.8, "--json").events("result")[0]
    assert {"coverage", "size", "class_coverage"} <= set(result["prediction_sets"]["adaptive"])
    assert "test" in result["sets"]
    page = tmp_path / "page.html"
    out = vicinal("evaluate", trained, "--sets", 0.8, "--report", page).out
    assert "here 80" in page.read_text()
    assert "prediction sets of 80 % coverage, least ambiguous" in out
    assert "adaptive" in out


def test_prediction_sets_within_class(trained: Path, table: Path, tmp_path: Path) -> None:
    """The sets in the file are those of one threshold for each class, fitted on the run's test set."""
    said, answers = _predict(trained, table, tmp_path / "a.csv", "--sets", 0.9, "--within-class")
    assert "prediction sets of 90 % coverage" in said
    bundle, (logits, labels) = library.load(trained), Run(trained).predictions("test")
    probs, new = bundle.calibrated(logits).numpy(), answers[[f"prob_{name}" for name in bundle.classes]].to_numpy()
    expected = np.zeros(new.shape, bool)
    for k in range(len(bundle.classes)):
        scores = sorted(1 - probs[labels.numpy() == k, k])
        rank = math.ceil(0.9 * (len(scores) + 1))
        expected[:, k] = 1 - new[:, k] <= (scores[rank - 1] + 1e-7 if rank <= len(scores) else 1)
    found = [{*json.loads(text)} for text in answers["set"]]
    assert found == [{name for name, is_in in zip(bundle.classes, row, strict=True) if is_in} for row in expected]
    words = ("predict", trained, table, "--out", tmp_path / "b.csv", "--within-class")
    assert "--within-class needs --sets" in refused(*words)
    out = vicinal("evaluate", trained, "--sets", 0.9, "--report", tmp_path / "r.html")
    result = vicinal("evaluate", trained, "--sets", 0.9, "--json").events("result")[0]["prediction_sets"]
    within = next(kind for kind in result if "within" in kind or "by class" in kind)
    lowest = min(c["value"] for c in result[within]["class_coverage"] if c is not None)
    assert result[within]["class_coverage"][result[within]["worst_class"]]["value"] == lowest
    assert "worst class" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert within in out.out


def test_columns_are_passed_through(
    trained: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table.read_text().splitlines()
    rows.insert(4, rows[3] + ",one field too many")  # it cannot be read, and is counted
    new = tmp_path / "new.csv"
    new.write_text("\n".join([f"key,{rows[0]}", *(f"{k:04},{row}" for k, row in enumerate(rows[1:]))]) + "\n")
    monkeypatch.setattr("vicinal.data.streaming._ROWS", 20)  # several blocks
    out = tmp_path / "out.csv"
    vicinal(
        "predict", trained, new, "--out", out, "--keep", "key", "--keep", "colour", "--batch-size", 7, "--max-bad", 1
    )
    written = pd.read_csv(out, dtype={"key": str})
    assert list(written.columns[:5]) == ["row", "key", "colour", "prediction", "confidence"]
    assert written["row"].tolist() == [k for k in range(91) if k != 3]
    assert written["key"].tolist() == [f"{k:04}" for k in range(91) if k != 3]
    original = pd.read_csv(table)
    assert written["colour"].fillna("").tolist() == original["colour"].fillna("").tolist()
    plain = tmp_path / "plain.csv"
    vicinal("predict", trained, new, "--out", plain, "--max-bad", 1)
    pd.testing.assert_frame_equal(written.drop(columns=["key", "colour"]), pd.read_csv(plain))
    said = refused("predict", trained, table, "--out", tmp_path / "x.csv", "--keep", "colur")
    assert "--keep colur: " in said
    assert "did you mean" in said
    assert "--keep must be another name" in refused("predict", trained, table, "--out", out, "--keep", "confidence")


def test_kept_columns_have_their_types(
    trained: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole numbers beyond 63 bits, and a column whose first rows are empty: none is guessed from some of its cells."""
    rows = pd.read_csv(table)
    rows["key"] = np.arange(len(rows), dtype=np.uint64) + np.uint64(2**64 - 1000)
    rows["late"] = pd.array([None] * 60 + [7] * (len(rows) - 60), dtype="Int32")
    rows["word"] = pd.Categorical(["a", "b"] * (len(rows) // 2))
    rows.to_parquet(tmp_path / "new.parquet")
    monkeypatch.setattr("vicinal.data.streaming._ROWS", 20)  # several blocks
    keep = [word for name in ("key", "late", "word") for word in ("--keep", name)]
    for out in ("out.parquet", "out.csv"):
        vicinal("predict", trained, tmp_path / "new.parquet", "--out", tmp_path / out, "--batch-size", 20, *keep)
    written, text = pd.read_parquet(tmp_path / "out.parquet"), pd.read_csv(tmp_path / "out.csv", dtype={"key": str})
    assert written["key"].tolist() == rows["key"].tolist() == [int(key) for key in text["key"]]
    assert written["late"].isna().sum() == text["late"].isna().sum() == 60
    assert set(written["late"].dropna()) == {7}
    assert written["word"].tolist() == rows["word"].tolist()


def test_columns_of_pictures_cannot_be_kept(pictures: Path, tmp_path: Path) -> None:
    said = refused("predict", pictures, pictures.parent / "images", "--out", tmp_path / "x.csv", "--keep", "id")
    assert "--keep names columns, but" in said
