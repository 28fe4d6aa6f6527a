"""Texts among the other columns of a table: their words stand beside the encoded columns."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal import data, load, models
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.tabular import Text
from vicinal.runs import Experiment, baselines, run

WORDS = ("the bird hit left wing near runway", "engine lost power while climbing out", "pilot saw nothing at all today")


def strikes(n: int = 120) -> pd.DataFrame:
    """Rows with a number, a category and a remark that is missing in every sixth; the class is in the remark."""
    rng = np.random.default_rng(0)
    k = rng.integers(3, size=n)
    remarks = [None if i % 6 == 0 else f"{WORDS[c]} report {i} " + "again " * (i % 3) for i, c in enumerate(k)]
    return pd.DataFrame({"height": rng.normal(size=n), "sky": rng.choice(["clear", "overcast"], n), "remark": remarks,
                         "kind": [f"kind {c}" for c in k]})  # fmt: skip


def slowly(text: str | None, column: Text) -> list[float]:
    """Return the numbers of one text, by the formula."""
    values = [0.0] * len(column.words)
    for i, word in enumerate(column.words):
        f = (text or "").lower().split().count(word)
        if f:
            values[i] = (1 + math.log(f)) * column.weights[i]
    norm = math.sqrt(sum(v * v for v in values)) or 1.0
    return [v / norm for v in values] + ([float(text is None)] if column.missing else [])


def test_the_words_are_weighted_as_in_the_formula() -> None:
    frame = strikes()
    task = data.load(frame, target="kind")
    assert task.kind == "tabular"
    assert "kind: tabular, 1 numeric and 1 categorical columns, 1 of text" in task.notes
    note = "the words of 'remark' count beside the other columns: text='remark' learns from it alone, by a network for "
    assert f"{note}texts; drop='remark' leaves it out" in task.notes
    reader = task.preprocessing
    column = reader.columns[-1]  # type: ignore[attr-defined]
    assert isinstance(column, Text)
    assert column.missing
    texts = [text if isinstance(text, str) else None for text in frame["remark"]]
    training = [text for text in (texts[i] for i in task.train.indices) if text is not None]
    for word, weight in zip(column.words, column.weights, strict=True):
        n_rows = sum(word in text.split() for text in training)
        assert n_rows >= 3
        assert weight == pytest.approx(1 + math.log((1 + len(training)) / (1 + n_rows)))
    assert "7" not in column.words  # of one row
    for i in range(12):
        x, _ = task.train[i]
        text = texts[task.train.indices[i]]
        assert isinstance(x, torch.Tensor)
        torch.testing.assert_close(x[-column.width :], torch.tensor(slowly(text, column)))
    # No row is lost for want of a text.
    assert sum(map(len, (task.train, task.val, task.test))) == len(frame)
    assert reader.feature_names[-2:] == [  # type: ignore[attr-defined]
        f"remark: word {column.words[-1]!r}", "remark is missing"
    ]  # fmt: skip
    assert len(reader.feature_names) == reader.width  # type: ignore[attr-defined]
    assert Preprocessing.from_dict(reader.to_dict()) == reader


def test_a_user_chooses_the_text_alone_or_none() -> None:
    frame = strikes()
    alone = data.load(frame.dropna(), data.TextOptions(text="remark", tokenizer="words"), target="kind")
    assert alone.kind == "text"
    assert (
        "ignored: 'height' and 'sky'; kind='tabular' learns from such columns, and from the words of texts"
        in alone.notes
    )
    assert (
        data.load(frame.dropna(), data.TextOptions(tokenizer="words"), target="kind").kind == "text"
    )  # a network for texts was named
    without = data.load(frame, data.TableOptions(drop=["remark"]), target="kind")
    assert [column.name for column in without.preprocessing.columns] == ["height", "sky"]  # type: ignore[attr-defined]
    # Remarks in few rows are read too, and texts without anything beside them are a text task as before.
    sparse = frame.assign(remark=[text if i % 4 == 1 else None for i, text in enumerate(frame["remark"])])
    assert [c.name for c in data.load(sparse, target="kind").preprocessing.columns][-1] == "remark"  # type: ignore[attr-defined]
    only = frame.dropna()[["remark", "kind"]]
    assert data.load(only, data.TextOptions(tokenizer="words"), target="kind").kind == "text"
    strange = frame.assign(remark=[f"w{6 * i} x{i} y{i} z{i} u{i} v{i}" for i in range(len(frame))])
    assert "left out: 'remark' (texts that share no words)" in data.load(strange, target="kind").notes


def test_both_are_learned_from_saved_and_predicted(tmp_path: Path) -> None:
    path = tmp_path / "strikes.csv"
    strikes(240).to_csv(path, index=False)
    training = {"epochs": 30, "lr": 0.01, "batch_size": 32, "trackers": []}
    outcome = run(
        Experiment(source=str(path), data={"target": "kind"}, training=training), tmp_path / "run", progress=False
    )
    assert outcome is not None
    assert outcome.facts["network"]["name"] == "mlp-and-trees"
    assert outcome.test.before.accuracy.value > 0.8  # a sixth has no remark
    again = load(tmp_path / "run")
    rows = pd.read_csv(path)
    torch.testing.assert_close(again.logits(outcome.run.task().test), outcome.test.logits)
    np.testing.assert_allclose(
        again.predict_proba(rows.assign(extra=1)), again.predict_proba(path), rtol=1e-5, atol=1e-6
    )
    # A column that is not there is one without values.
    np.testing.assert_allclose(
        again.predict_proba(rows.drop(columns="remark")), again.predict_proba(rows.assign(remark=None)), rtol=1e-5
    )
    measured = baselines(outcome.run.task(), ["logistic regression", "gradient boosting"])
    assert min(metrics.accuracy.value for metrics in measured.values()) > 0.8


def test_networks_of_tables_name_no_tokenizer() -> None:
    assert [models.tokenizer_of(name) for name in models.names("tabular")] == [None] * len(models.names("tabular"))
