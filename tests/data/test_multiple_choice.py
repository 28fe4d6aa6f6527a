"""Answers to choose from: in columns or in lists, through the data, the models and the command."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

import vicinal as library
from tests.cli.running import vicinal
from tests.data.checkpoints import save_tiny
from vicinal import LogitMix, SequenceMixup, data, models
from vicinal.data import Preprocessing

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("bert"))


def rows(n=60, choices=3):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"context": ["the film was" + " so" * (k % 4) for k in range(n)]})
    endings = [[str(word) for word in rng.choice(["bad", "dull", "grey"], choices)] for _ in range(n)]
    for k, row in enumerate(endings):
        row[k % choices] = "good and fine"
    frame["endings"] = endings
    for c in range(choices):
        frame[f"ending{c}"] = [row[c] for row in endings]
    frame["label"] = [k % choices for k in range(n)]
    return frame


def test_lists_columns_and_json_give_the_same(tmp_path, checkpoint):
    frame = rows()
    by_list = data.load(frame, data.TextOptions(text="context", choice="endings", tokenizer=checkpoint))
    by_column = data.load(
        frame, data.TextOptions(text="context", choice=["ending0", "ending1", "ending2"], tokenizer=checkpoint)
    )
    frame.assign(endings=[json.dumps(row) for row in frame["endings"]]).to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    frame[["context", "endings", "label"]].to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    tasks = [by_list, by_column]
    tasks += [data.load(tmp_path / f"a.{end}", data.TextOptions(text="context", choice="endings", tokenizer=checkpoint))
              for end in ("csv", "parquet", "jsonl")]  # fmt: skip
    want = by_list.collate_fn([by_list.test[i] for i in range(len(by_list.test))])
    assert want[0]["input_ids"].shape[:2] == (len(by_list.test), 3)
    for task in tasks:
        assert task.classes == ("0", "1", "2")
        assert task.spec["choices"] == 3
        x, y = task.collate_fn([task.test[i] for i in range(len(task.test))])
        assert torch.equal(x["input_ids"], want[0]["input_ids"])
        assert torch.equal(y, want[1])


def test_each_answer_stands_after_the_context(checkpoint):
    from transformers import AutoTokenizer

    task = data.load(rows(), data.TextOptions(text="context", choice="endings", tokenizer=checkpoint))
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    context, *answers = task.train.original(0)
    x, _ = task.train[0]
    want = tokenizer([context] * 3, answers, padding=True, return_tensors="pt")
    for name in ("input_ids", "token_type_ids", "attention_mask"):
        assert torch.equal(x[name], want[name])
    again = Preprocessing.from_dict(json.loads(json.dumps(task.preprocessing.to_dict())))
    assert torch.equal(again(task.train.original(0))["input_ids"], x["input_ids"])
    row = {"context": context, "endings": list(answers)}
    assert torch.equal(again(row)["input_ids"], x["input_ids"])
    with pytest.raises(ValueError, match=r"reads 4 texts at a time \(context, then 3 answers\), got 2"):
        again(("a", "b"))


def test_logits_are_those_of_the_answers(checkpoint):
    task = data.load(rows(), data.TextOptions(text="context", choice="endings", tokenizer=checkpoint))
    torch.manual_seed(0)
    model = models.build(**task.spec, dropout=0.0).eval()
    x, y = task.collate_fn([task.train[i] for i in range(6)])
    logits = model(**x).logits
    assert logits.shape == (6, 3)
    for c in range(3):  # one answer after the other
        alone = model(**{name: t[:, c : c + 1] for name, t in x.items()}).logits
        torch.testing.assert_close(logits[:, c], alone[:, 0])
    for objective in (
        SequenceMixup.input(alpha=1.0),
        LogitMix(SequenceMixup.manifold(alpha=1.0, layers=[1]), weight=1.0),
    ):
        assert objective(model.train(), x, y).isfinite()


def test_the_command_trains_predicts_evaluates_and_reports(tmp_path, checkpoint):
    frame = rows(90)[["context", "endings", "label"]]
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    run, columns = tmp_path / "run", ["--text", "context", "--choice", "endings"]
    options = ["--model", checkpoint, "--epochs", "30", "--lr", "0.01", "--batch-size", "16"]
    report = tmp_path / "report.html"
    vicinal("train", tmp_path / "a.jsonl", *columns, *options, "--method", "ERM()", "--out", run, "--report", report)
    assert "<html" in report.read_text()
    bundle = library.load(run)
    assert bundle.spec.options["multiple_choice"] is True
    vicinal("predict", run, tmp_path / "a.jsonl", "--out", tmp_path / "out.csv")
    predicted = pd.read_csv(tmp_path / "out.csv")
    assert (predicted["prediction"] == frame["label"]).mean() > 0.9
    assert "accuracy" in vicinal("evaluate", run).out
    probs = bundle.predict_proba([("the film was", ["bad", "good and fine", "dull"])])
    assert probs.shape == (1, 3)
    assert probs.argmax() == 1


@pytest.mark.slow
def test_a_trained_model_is_written_as_onnx(tmp_path, checkpoint):
    pytest.importorskip("onnxruntime")
    rows(40)[["context", "endings", "label"]].to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    options = ["--text", "context", "--choice", "endings", "--model", checkpoint, "--epochs", "1", "--method", "ERM()"]
    vicinal("train", tmp_path / "a.jsonl", *options, "--out", tmp_path / "run")
    assert library.load(tmp_path / "run").to_onnx(tmp_path / "model.onnx") < 1e-4


def test_mistakes_are_named(checkpoint):
    frame = rows()
    for arguments in ({}, {"text": "endings"}):
        with pytest.raises(ValueError, match=r"'endings' of .* pass choice='endings'"):
            data.load_from_config(frame, {"target": "label", **arguments})
    with pytest.raises(ValueError, match=r"choice must be a column of lists"):
        data.load(frame, data.TextOptions(text="context", choice="ending0"))
    with pytest.raises(ValueError, match=r"text must be one column, what comes before the answers"):
        data.load(frame, data.TextOptions(choice="endings"))
    with pytest.raises(ValueError, match=r"answers to choose from need a transformer"):
        models.build(**data.load(frame, data.TextOptions(text="context", choice="endings", tokenizer="words")).spec)
    frame.at[3, "endings"] = ["one", "two"]
    frame.at[4, "label"] = 7
    task = data.load(frame, data.TextOptions(text="context", choice="endings", tokenizer=checkpoint))
    (note,) = [note for note in task.notes if note.startswith("skipped")]
    assert "row 4 (2 answers, not 3)" in note
    assert "row 5 (the right answer is '7', not a number from 0 to 2)" in note
    with pytest.raises(ValueError, match=r"the model chooses among 3 answers, row 4 has 2"):
        data.read(frame, task.preprocessing)
