"""Prediction sets of files against those of arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.cli.running import refused, text_of, vicinal
from vicinal.calibrators import loss_parts
from vicinal.calibrators.conformal import kinds_of_sets
from vicinal.metrics import SetTally, evaluate_sets
from vicinal.predictions import open_file, sets_of_file

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(401, 3)) * 1.5
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
LABELS = np.array([RNG.choice(3, p=p) for p in PROBS])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    frame = pd.DataFrame(PROBS, columns=[f"prob_{name}" for name in "abc"])
    frame.insert(0, "label", np.array(list("abc"))[LABELS])
    frame.to_csv(tmp_path / "predictions.csv", index=False)
    return tmp_path / "predictions.csv"


@pytest.mark.parametrize("rows", [2**16, 7])  # an odd number of rows at a time too
def test_one_half_fits_and_the_other_is_measured(rows, file, monkeypatch):
    monkeypatch.setattr("vicinal.predictions.predictions_file._rows_at_once", lambda n: rows)
    measured = sets_of_file(file, 0.8)
    for name, kind in kinds_of_sets(0.8, 3).items():
        generator = torch.Generator().manual_seed(0)
        fitted = kind.fit(np.log(PROBS[::2]), LABELS[::2], generator=generator)
        wanted = evaluate_sets(LABELS[1::2], sets=fitted(np.log(PROBS[1::2]), generator=generator))
        assert measured[name].coverage == wanted.coverage
        assert measured[name].class_coverage == wanted.class_coverage
        assert measured[name].size.value == pytest.approx(wanted.size.value)
        assert measured[name].size.high == pytest.approx(wanted.size.high)
    assert measured["least ambiguous"].coverage.value == pytest.approx(0.8, abs=0.1)
    assert sum(measured["adaptive"].class_n) == measured["adaptive"].n == 200


def test_calibration_and_refinement_of_a_file(file, tmp_path):
    wanted, page = loss_parts(LABELS, probs=PROBS), tmp_path / "page.html"
    parts = vicinal("evaluate", file, "--parts", "--report", page, "--json").events("result")[0]["parts"]
    for name, each in wanted.items():
        for part in ("loss", "calibration", "refinement"):
            assert parts[name][part]["value"] == pytest.approx(getattr(each, part).value, abs=1e-9)
    text = page.read_text(encoding="utf-8")
    assert f"{wanted['nll'].refinement.value:.4f}" in text
    assert "--parts" in text  # the command that makes it again
    assert "Smooth reliability" in text
    confidences = pd.DataFrame({"label": [0, 1], "prediction": [0, 1], "confidence": [0.9, 0.8]})
    confidences.to_csv(tmp_path / "c.csv", index=False)
    assert "need the scores of all classes" in refused("evaluate", tmp_path / "c.csv", "--parts")


def test_sets_add_up_to_the_whole():
    inside = RNG.random((50, 3)) < 0.6
    labels = RNG.integers(0, 3, 50)
    tally = SetTally(3)
    for start in (0, 13, 40):
        tally.update(inside[start : {0: 13, 13: 40, 40: 50}[start]], labels[start : {0: 13, 13: 40, 40: 50}[start]])
    whole, parts = evaluate_sets(labels, sets=inside), tally.evaluation()
    assert whole.coverage == parts.coverage
    assert whole.size.low == pytest.approx(parts.size.low)
    hit = inside[np.arange(50), labels]
    for k in range(3):
        assert parts.class_coverage[k].value == pytest.approx(hit[labels == k].mean())
        assert parts.class_size[k].value == pytest.approx(inside[labels == k].sum(1).mean())
    with pytest.raises(ValueError, match="no sets"):
        SetTally(3).evaluation()


def test_the_command_measures_and_reports_them(file, tmp_path):
    page = tmp_path / "page.html"
    out = vicinal("evaluate", file, "--sets", 0.8, "--report", page).out
    assert "prediction sets of 80 % coverage, least ambiguous" in out
    assert "Sets of classes instead of one" in page.read_text()
    assert "--sets 0.8" in text_of(page)
    result = vicinal("evaluate", file, "--sets", 0.8, "--json").events("result")[0]
    assert result["prediction_sets"]["adaptive"]["n"] == 200
    assert "--sets must be a number in (0, 1], got 1.5" in refused("evaluate", file, "--sets", 1.5)


def test_confidences_alone_have_no_sets(tmp_path):
    pd.DataFrame({"label": ["a", "b"], "prediction": ["a", "a"], "confidence": [0.9, 0.6]}).to_csv(
        tmp_path / "c.csv", index=False
    )
    with pytest.raises(ValueError, match="prediction sets need the scores of all classes"):
        sets_of_file(open_file(tmp_path / "c.csv"), 0.9)


def test_many_classes_have_regularised_sets_too(tmp_path):
    logits = RNG.normal(size=(400, 8))
    labels = (2 * logits + RNG.gumbel(size=logits.shape)).argmax(axis=1)
    np.savez(tmp_path / "eight.npz", logits=2 * logits, labels=labels)
    measured = sets_of_file(tmp_path / "eight.npz", 0.9)
    assert measured["regularised"].coverage.value == pytest.approx(0.9, abs=0.08)
    assert measured["regularised"].size.value <= measured["adaptive"].size.value + 0.1


def test_the_parts_of_a_file_know_weights_and_groups(file, tmp_path):
    table = pd.read_csv(file) if str(file).endswith(".csv") else pd.read_parquet(file)
    table["times"], table["customer"] = np.arange(len(table)) % 3, np.arange(len(table)) // 4
    table.to_csv(tmp_path / "weighted.csv", index=False)
    plain, weighted = (
        vicinal("evaluate", tmp_path / "weighted.csv", "--parts", *more, "--json").events("result")[0]["parts"]["nll"]
        for more in ((), ("--weight", "times", "--group", "customer"))
    )
    opened = open_file(tmp_path / "weighted.csv")
    chunk = next(iter(opened.chunks()))
    by_hand = loss_parts(
        chunk.labels,
        logits=opened.logits(np.asarray(chunk.scores)),
        sample_weight=table["times"],
        groups=table["customer"],
    )["nll"]
    assert weighted["loss"]["value"] == pytest.approx(by_hand.loss.value, rel=1e-4)
    assert weighted["refinement"]["value"] == pytest.approx(by_hand.refinement.value, abs=2e-3)
    assert weighted["loss"]["value"] != pytest.approx(plain["loss"]["value"], rel=1e-4)
