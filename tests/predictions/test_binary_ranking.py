"""The second of two classes in a predictions file, against arrays."""

from __future__ import annotations

import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.running import refused, vicinal
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


def test_none_where_there_is_nothing_to_rank(tmp_path: Path) -> None:
    for text in (
        "label,prob_a,prob_b,prob_c\na,1,0,0\nb,0,1,0\n",
        "label,prediction,confidence\na,a,0.75\nb,a,0.5\n",
        "label,prob_a,prob_b\na,0.75,0.25\na,0.5,0.5\n",
    ):
        (tmp_path / "other.csv").write_text(text)
        assert binary_of_file(tmp_path / "other.csv") is None


@pytest.mark.parametrize("levels", [None, 30, 2, 1])
@pytest.mark.parametrize("in_memory", [1, 7, 64, 500, 501, 2_000])
def test_rows_merged_from_a_file_rank_as_all_at_once(
    levels: int | None, in_memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where one probability fills many parts, and with 0 and 1 among them."""
    monkeypatch.setattr(binary_ranking, "_IN_MEMORY", in_memory)
    probs = PROBS if levels is None else np.round(PROBS * (levels - 1)) / max(levels - 1, 1)
    np.savez(tmp_path / "p.npz", labels=LABELS, probs=np.stack([1 - probs, probs], axis=1))
    found, wanted = binary_of_file(tmp_path / "p.npz"), evaluate_binary(LABELS, probs)
    assert found is not None
    assert vars(found.auroc) == pytest.approx(vars(wanted.auroc), abs=1e-12)
    assert vars(found.average_precision) == pytest.approx(vars(wanted.average_precision), abs=1e-12)
    assert found.auroc.value == wanted.auroc.value  # pairs are whole numbers


def test_memory_does_not_grow_with_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary_ranking, "_IN_MEMORY", 2**14)
    peaks = []
    for parts in (8, 64):
        with tempfile.TemporaryFile() as spilled:
            tracemalloc.start()
            keys, random = binary_ranking._Sorted(spilled), np.random.default_rng(0)
            for _ in range(parts):
                probs = random.random(2**14)
                keys.add(np.where(probs < 0.5, 0.5, probs), random.random(2**14) < probs)  # half of them are equal
            rows = sum(int(c.positive.sum() + c.negative.sum()) for c in keys.counts())
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert rows == parts * 2**14
    assert peaks[1] < 1.5 * peaks[0]


def test_the_command_and_the_report_show_them(file: Path, tmp_path: Path) -> None:
    wanted = evaluate_binary(LABELS, PROBS)
    said = vicinal("evaluate", file, "--report", tmp_path / "r.html").out
    assert f"P('1'): AUROC {100 * wanted.auroc.value:.1f} %" in said
    share = LABELS.mean()
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert f", {entropy:.3f} by the shares of the classes" in said
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "The probability of 1</h2>" in page
    assert "Reliability of P(positive)" in page
    result = vicinal("evaluate", file, "--json").events("result")[0]
    assert result["binary"]["positive"] == "1"
    assert result["binary"]["auroc"]["value"] == pytest.approx(wanted.auroc.value)


def test_a_column_of_groups_widens_every_interval(tmp_path: Path) -> None:
    random, groups = np.random.default_rng(0), np.repeat(np.arange(10), 45)
    z = 3 * random.standard_normal(450) + 3 * random.standard_normal(10)[groups]
    true = z + 3 * random.standard_normal(10)[groups]
    labels = (random.random(450) < 1 / (1 + np.exp(-true))).astype(int)
    frame = pd.DataFrame({"y_true": labels, "y_prob": 1 / (1 + np.exp(-z)), "patient": [f"p{g}" for g in groups]})
    frame.to_csv(tmp_path / "g.csv", index=False)
    alone = vicinal("evaluate", tmp_path / "g.csv", "--json").events("result")[0]
    grouped = vicinal("evaluate", tmp_path / "g.csv", "--group", "patient", "--json").events("result")[0]
    for name in ("accuracy", "nll", "brier", "ece"):
        a, b = alone[name], grouped[name]
        assert a["value"] == b["value"]
        assert b["high"] - b["low"] > 1.5 * (a["high"] - a["low"]), name
    for name in ("auroc", "average_precision"):
        a, b = alone["binary"][name], grouped["binary"][name]
        assert b["high"] - b["low"] > a["high"] - a["low"]
    assert "--group must be a column beside label and scores: 'patient'" in refused(
        "evaluate", tmp_path / "g.csv", "--group", "nope"
    )


@pytest.mark.parametrize("decimals", [1, 3, 17])
@pytest.mark.parametrize("size", [1, 50, 400, 5000])
def test_ranges_of_probabilities_add_up_to_the_ranking_of_all(decimals, size, monkeypatch):
    monkeypatch.setattr(binary_ranking, "_IN_MEMORY", 300)
    monkeypatch.setattr(binary_ranking, "_SHORTEST_RUN", 100)
    monkeypatch.setattr(binary_ranking, "_RANGE", size)
    random = np.random.default_rng(size)
    probs = random.random(2000).round(decimals)
    probs[:9], labels = 0.0, random.random(2000) < probs
    with binary_ranking.BinaryCounts() as total:
        for part in (slice(0, 1300), slice(1300, 1350), slice(1350, 2000)):
            with binary_ranking.BinaryCounts() as counts:
                for start in range(part.start, part.stop, 250):
                    some = slice(start, min(start + 250, part.stop))
                    counts._keys.add(probs[some], labels[some])
                    counts._table.update_confidences(probs[some], labels[some])
                    counts._fine.update_confidences(probs[some], labels[some])
                total.append(counts.packed())
        seen = []

        def sums(ranges):
            seen.extend(len(ranges[k].keys) for k in ranges)
            return [ranges[k].sums() for k in ranges]

        found, wanted = total.evaluation(sum_ranges=sums), total.evaluation()
    assert sum(seen) == 2000
    assert min(seen) > 0
    for name in ("auroc", "average_precision"):
        one, other = getattr(found, name), getattr(wanted, name)
        assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high), rel=1e-12)
