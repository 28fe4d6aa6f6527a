"""What mistakes share, against sums over all ways to draw."""

from __future__ import annotations

from math import comb
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vicinal.data import SplitOptions, TableOptions, TextOptions, load
from vicinal.runs.error_slices import error_slices


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 400
    return pd.DataFrame(
        {
            "age": rng.normal(40, 10, n).round(2),
            "town": rng.choice(["north", "south", "east"], n),
            "noise": rng.normal(size=n),
            "kind": rng.choice(["yes", "no"], n),
        }
    )


def test_values_and_ranges_that_mistakes_share(people: pd.DataFrame) -> None:
    task = load(people, SplitOptions(test=0.5), target="kind")
    rows = [task.test.original(i) for i in range(len(task.test))]
    rng = np.random.default_rng(1)
    south = np.array([row["town"] == "south" for row in rows])
    wrong = np.where(south, rng.random(len(rows)) < 0.5, rng.random(len(rows)) < 0.05)
    first = error_slices(task.test, wrong)[0]
    assert first["property"] == "town is 'south'"
    assert (first["n"], first["wrong"]) == (south.sum(), wrong[south].sum())
    assert (first["n_elsewhere"], first["wrong_elsewhere"]) == ((~south).sum(), wrong[~south].sum())
    old = np.array([row["age"] > np.quantile([r["age"] for r in rows], 0.75) for row in rows])
    shared = error_slices(task.test, old & (rng.random(len(rows)) < 0.6))
    assert shared[0]["property"].startswith("age above ")
    assert not any("noise" in entry["property"] for entry in shared)


def test_chance_is_not_named(people: pd.DataFrame) -> None:
    task = load(people, SplitOptions(test=0.5), target="kind")
    rng = np.random.default_rng(2)
    named = sum(bool(error_slices(task.test, rng.random(len(task.test)) < 0.2)) for _ in range(60))
    assert named <= 8  # 5 % of 60 are 3; more than 8 have a probability of less than 1 %
    assert error_slices(task.test, np.zeros(len(task.test), bool)) == []
    assert error_slices(task.test, np.ones(len(task.test), bool)) == []


def test_the_probability_by_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the very edge of the level a property is named, and just beyond it is not."""
    frame = pd.DataFrame({"a": ["x"] * 12 + ["y"] * 28, "kind": ["yes", "no"] * 20})
    task = load(frame, SplitOptions(val=0, test=0.95), TableOptions(drop=[]), target="kind", kind="tabular")
    values = np.array([task.test.original(i)["a"] for i in range(len(task.test))])
    wrong = np.zeros(len(values), bool)
    wrong[np.flatnonzero(values == "x")[:4]] = True
    wrong[np.flatnonzero(values == "y")[:2]] = True
    n, total, bad, seen = int((values == "x").sum()), len(values), 6, 4
    p = sum(comb(bad, w) * comb(total - bad, n - w) for w in range(seen, bad + 1)) / comb(total, n)
    for level, named in ((2 * p * 1.001, 1), (2 * p * 0.999, 0)):  # two values are looked at
        monkeypatch.setattr("vicinal.runs.error_slices._LEVEL", level)
        assert len(error_slices(task.test, wrong)) == named


def test_words_that_mistakes_share(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    words = ["film", "story", "actor", "plot", "scene", "music"]
    texts = [" ".join(rng.choice(words, 6)) + (" Ironic" if i % 4 == 0 else "") for i in range(300)]
    pd.DataFrame({"text": texts, "kind": rng.choice(["yes", "no"], 300)}).to_csv(tmp_path / "t.csv", index=False)
    task = load(
        tmp_path / "t.csv",
        TextOptions(text="text", tokenizer="words"),
        SplitOptions(test=0.6),
        target="kind",
        kind="text",
    )
    ironic = np.array(["Ironic" in task.test.original(i) for i in range(len(task.test))])
    wrong = ironic & (rng.random(len(ironic)) < 0.7)
    assert error_slices(task.test, wrong)[0]["property"] == "the word “ironic”"
