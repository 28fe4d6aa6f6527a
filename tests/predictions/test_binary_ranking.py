"""The second of two classes in a predictions file, against arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.running import vicinal
from vicinal.metrics import evaluate_binary
from vicinal.predictions import binary_of_file, binary_ranking, open_file

RNG = np.random.default_rng(0)
PROBS = RNG.beta(1, 3, size=501)
LABELS = (RNG.random(501) < PROBS).astype(int)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pd.DataFrame({"y_true": LABELS, "y_prob": PROBS}).to_csv(tmp_path / "p.csv", index=False)
    return tmp_path / "p.csv"


def test_metrics_are_those_of_arrays(file: Path, tmp_path: Path) -> None:
    wanted = evaluate_binary(LABELS, PROBS, n_bins=7)
    logits = np.stack([np.zeros(501), np.log(PROBS / (1 - PROBS))], axis=1) + 3
    pd.DataFrame(logits, columns=["logit_no", "logit_yes"]).assign(label=np.array(["no", "yes"])[LABELS]).to_csv(
        tmp_path / "z.csv", index=False
    )
    for one in (file, open_file(file), tmp_path / "z.csv"):
        found = binary_of_file(one, n_bins=7)
        assert found is not None
        assert found.auroc.value == pytest.approx(wanted.auroc.value)
        assert found.average_precision.value == pytest.approx(wanted.average_precision.value)
        assert found.table.ece() == pytest.approx(wanted.table.ece())
        assert found.base_rate == LABELS.mean()


def test_none_where_there_is_nothing_to_rank(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (
        "label,prob_a,prob_b,prob_c\na,1,0,0\nb,0,1,0\n",
        "label,prediction,confidence\na,a,0.75\nb,a,0.5\n",
        "label,prob_a,prob_b\na,0.75,0.25\na,0.5,0.5\n",
    ):
        (tmp_path / "other.csv").write_text(text)
        assert binary_of_file(tmp_path / "other.csv") is None
    monkeypatch.setattr(binary_ranking, "_MOST_ROWS", 500)
    assert binary_of_file(file) is None


def test_the_command_and_the_report_show_them(file: Path, tmp_path: Path) -> None:
    wanted = evaluate_binary(LABELS, PROBS)
    said = vicinal("evaluate", file, "--report", tmp_path / "r.html").out
    assert f"P('1'): AUROC {100 * wanted.auroc.value:.1f} %" in said
    share = max(LABELS.mean(), 1 - LABELS.mean())
    assert f"Without a model: always answering '0' is right {100 * share:.1f}" in said
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "The probability of 1</h2>" in page
    assert "Reliability of P(positive)" in page
    result = vicinal("evaluate", file, "--json").events("result")[0]
    assert result["binary"]["positive"] == "1"
    assert result["binary"]["auroc"]["value"] == pytest.approx(wanted.auroc.value)
