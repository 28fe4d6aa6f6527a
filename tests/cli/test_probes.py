from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import TINY, refused, vicinal


def test_dropout_and_between(table: Path, pictures: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "run", tmp_path / "report.html"
    vicinal("train", table, "--target", "kind", "--out", out, *TINY, "--model-option", "dropout=0.5")
    words = ["evaluate", out, "--mc-dropout", 3, "--between", 5]
    result = vicinal(*words, "--report", report, "--json").events("result")[0]
    assert result["mc_dropout"]["passes"] == 3
    assert result["mc_dropout"]["n"] == result["sets"]["test"]["before"]["n"]
    assert result["mc_dropout"]["nll"] != result["sets"]["test"]["before"]["nll"]
    assert result["between"]["n_pairs"] == 5
    assert result["between"]["lambdas"][0] == pytest.approx(-0.5)
    assert "with MC dropout" in report.read_text()
    assert "Between its samples" in report.read_text()
    said = vicinal(*words).out
    assert "mean of 3 passes" in said
    assert "between 5 pairs of training samples" in said
    assert "model must have dropout" in refused("evaluate", pictures, "--mc-dropout", 3)


def test_corrupted_labels(table: Path, tmp_path: Path) -> None:
    words = ["compare", table, "--target", "kind", "--out", tmp_path / "runs", "--seeds", 1, "--corrupt", 0.4, *TINY]
    ran = vicinal(*words, "--method", "ERM()", "--method", "Mixup(alpha=8.0)")
    assert ran.out.count("Errors with corrupted training labels") == 1
    result = vicinal(*words, "--method", "ERM()", "--method", "Mixup(alpha=8.0)", "--json").events("result")[0]
    for row in result["before"]:
        assert 0 <= row["label_noise"]["last"]["train_corrupted"] <= 1
    assert "--corrupt" in refused(*words, "--method", "ERM()", "--method", "Mixup(alpha=8.0)", "--corrupt", 1.5)
