"""Texts with a number to predict, through `fit`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from tests.cli.running import refused, vicinal
from tests.data.checkpoints import save_tiny
from vicinal import SequenceMixup, data, models
from vicinal.data.regression import load_scores
from vicinal.training import FitConfig, fit

pytest.importorskip("transformers")


def write_stsb(root, n=48):
    """The published format: tab-separated, quotation marks as they are, a score from 0 to 5."""
    rng = np.random.default_rng(0)
    for part, size in (("train", n), ("dev", n // 4)):
        rows = ["index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"]
        for k in range(size):
            same = int(rng.integers(0, 2))
            second = "the film was good" if same else 'it is "bad and dull'
            rows.append(f"{k}\tx\tf\t2012\t{k}\tnone\tnone\tthe film was good\t{second}\t{5.0 * same:.3f}")
        folder = root / "glue_data" / "STS-B"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{part}.tsv").write_text("\n".join(rows) + "\n")


def test_stsb_is_regression_through_fit(tmp_path):
    write_stsb(tmp_path)
    checkpoint = save_tiny(tmp_path / "bert")
    sets = load_scores(
        "glue:stsb",
        data.ReadOptions(data_root=tmp_path),
        data.TextOptions(tokenizer=checkpoint),
        data.SplitOptions(val=0.25),
    )
    assert [len(sets.train), len(sets.val), len(sets.test)] == [36, 12, 12]
    x, y = sets.collate_fn([sets.train[i] for i in range(4)])
    assert y.dtype == torch.float32
    assert set(y.tolist()) <= {0.0, 5.0}
    torch.manual_seed(0)
    model = models.build(**sets.spec, dropout=0.0)
    assert model(**x).logits.shape == (4, 1)
    config = FitConfig(epochs=25, batch_size=12, lr=0.01)
    result = fit(
        model,
        SequenceMixup.input(alpha=0.1),
        sets.train,
        sets.val,
        collate_fn=sets.collate_fn,
        progress=False,
        config=config,
        target_type="regression",
    )
    assert result.best["val_spearman"] > 0.9
    assert result.best["val_mse"] < 2


def test_splits_are_drawn_once_and_mistakes_are_named(tmp_path):
    write_stsb(tmp_path)
    options = data.ReadOptions(data_root=tmp_path), data.TextOptions(tokenizer="words")
    first, again = (load_scores("glue:stsb", *options, data.SplitOptions(seed=1)) for _ in range(2))
    assert first.val.texts == again.val.texts
    other = load_scores("glue:stsb", *options, data.SplitOptions(seed=2))
    assert len(other.val) == len(first.val)
    frame = pd.DataFrame({"text": ["a", "b", "c"], "score": [1.0, 2.0, None]})
    with pytest.raises(ValueError, match=r"target must be a column of finite numbers, got 'score'"):
        load_scores(frame, data.TextOptions(text="text", tokenizer="words"), target="score")
    with pytest.raises(ValueError, match=r"source must be a table"):
        load_scores(frame, data.TextOptions(tokenizer="words"))
    with pytest.raises(ValueError, match="must hold a number in every row"):
        load_scores(frame, data.TextOptions(text="score", tokenizer="words"), target="text")


def test_the_command_trains_on_stsb(tmp_path, monkeypatch):
    """By squared error, not on its scores as if they were classes; what needs classes is refused by name."""
    write_stsb(tmp_path)
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    checkpoint = save_tiny(tmp_path / "bert")
    short = ("--model", f"hf:{checkpoint}", "--epochs", 1, "--val", 12, "--batch-size", 12)
    how = ("--method", "Mixup(alpha=0.2)", "--out", tmp_path / "run", "--json")
    ran = vicinal("train", "glue:stsb", *short, *how)
    (result,) = ran.events("result")
    assert result["target_type"] == "regression"
    assert [result[name]["n"] for name in ("validation", "test")] == [12, 12]
    (line,) = ran.events("metrics")
    assert result["validation"]["mse"]["value"] == pytest.approx(line["val_mse"], rel=1e-4)
    again = vicinal("train", "glue:stsb", *short, *how).events("result")  # the finished run is measured again
    assert again == [result]
    assert "--ensemble needs classes, and glue:stsb has numbers" in refused(
        "train", "glue:stsb", "--ensemble", 2, "--out", tmp_path / "other"
    )
    assert "--report needs classes" in refused(
        "train", "glue:stsb", "--report", tmp_path / "report.html", "--out", tmp_path / "other"
    )
    assert "learned numbers, and this needs classes" in refused(
        "predict", tmp_path / "run", "digits", "--out", tmp_path / "p.csv"
    )
