"""UCI's files as they are published: no header, a test file whose classes have a dot, a first line that is no row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import vicinal
from vicinal.cli.options import _pairs

MAP = "<=50K.=<=50K,>50K.=>50K"


@pytest.fixture
def adult(tmp_path: Path) -> Path:
    draws = np.random.default_rng(0)

    def rows(n: int, dot: str) -> str:
        ages, hours = draws.integers(17, 80, n), draws.integers(10, 80, n)
        kinds = draws.choice(["Private", "State-gov", "?"], n)
        rich = np.where(ages + hours > 100, ">50K", "<=50K")
        return "".join(f"{a}, {k}, {h}, {y}{dot}\n" for a, k, h, y in zip(ages, kinds, hours, rich, strict=True))

    first = rows(120, "")
    (tmp_path / "adult.data").write_text(first)
    (tmp_path / "adult.test").write_text("|1x3 Cross validator\n" + rows(60, "."))
    (tmp_path / "both.csv").write_text(first + rows(60, "."))
    return tmp_path


def test_the_hint_names_the_option(adult: Path) -> None:
    for words in ((), ("--target", "income")):
        assert "pass --no-header" in vicinal("train", "adult.data", *words, code=1, cwd=adult).err


def test_classes_with_a_dot_are_mapped(adult: Path) -> None:
    few = ("--model", "hgb", "--model-option", "iterations=3", "--no-header", "--target", "4")
    said = vicinal("train", "adult.data", *few, "--eval-data", "adult.test", "--map-class", MAP, cwd=adult).out
    assert "2 classes: '<=50K'" in said
    assert "adult.test" in said
    merged = vicinal("train", "both.csv", *few, "--map-class", MAP, "--out", "merged", cwd=adult).out
    assert "--map-class: '<=50K.' is '<=50K', '>50K.' is '>50K'" in merged
    assert "2 classes: '<=50K'" in merged
    typo = vicinal("train", "both.csv", *few, "--map-class", "<=50k.=<=50K", "--out", "typo", code=1, cwd=adult).err
    assert "the data have no class '<=50k.'" in typo


def test_names_may_hold_comparisons() -> None:
    assert _pairs("map_class", MAP) == {"<=50K.": "<=50K", ">50K.": ">50K"}
    assert _pairs("map_class", "a=b, c = d") == {"a": "b", "c": "d"}


def test_early_stopping_is_announced(adult: Path) -> None:
    options = ("--model", "mlp", "--epochs", 40, "--patience", 1, "--lr", 0.5, "--no-header", "--target", "4")
    said = vicinal("train", "adult.data", *options, cwd=adult).out
    assert (
        "at most 40 epochs of adamw, stopped early after 1 evaluations without a lower validation NLL"
        in said.replace("adam,", "adamw,")
    )
    assert "stopped early after" in said.split("without a lower validation NLL")[1]
