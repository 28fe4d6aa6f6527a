"""`--method auto`: what is tried, what is chosen, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.cli.running import vicinal
from vicinal import VicinalClassifier, evaluate, parse
from vicinal.data import SplitOptions, load
from vicinal.runs import Experiment, Run, run
from vicinal.runs.method_choice import CANDIDATES, choice_among, choice_without_trial


def table(n: int = 160) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.where(x[:, 0] + x[:, 1] > 0, "yes", "no")})


def test_the_lowest_validation_nll_is_chosen(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "a.csv", index=False)
    words = ("train", tmp_path / "a.csv", "--target", "y", "--model", "mlp", "--epochs", 4, "--method", "auto")
    ran = vicinal(*words, "--out", tmp_path / "run", "--report", tmp_path / "report.html")
    result = Run(tmp_path / "run").result()
    choice = result.facts["method_choice"]
    assert list(choice["nll"]) == list(CANDIDATES)
    assert choice["method"] == min(choice["nll"], key=choice["nll"].get)
    assert parse(choice["method"]) == parse(result.fit["method"])
    assert result.experiment.method == "auto"
    for said in (ran.out, (tmp_path / "report.html").read_text(encoding="utf-8")):
        assert f"method {choice['method']}, by the NLL of validation rows" in said
    # Each number is that of the run with this method.
    for k, method in enumerate(CANDIDATES):
        how = {"data": {"target": "y"}, "model": "mlp", "training": {"epochs": 4}}
        alone = run(Experiment(source=str(tmp_path / "a.csv"), method=method, **how), tmp_path / str(k), progress=False)
        assert alone is not None
        assert alone.sets["val"].after.nll.value == pytest.approx(choice["nll"][method], abs=1e-6)
        if method == choice["method"]:
            assert torch.equal(alone.test.logits, result.test.logits)


def test_the_gain_has_a_paired_interval() -> None:
    labels = np.arange(200) % 2
    right = np.where(labels[:, None] == [0, 1], 0.8, 0.2)
    worse = np.where(labels[:, None] == [0, 1], 0.6, 0.4)
    choice = choice_among({"ERM()": evaluate(labels, probs=worse), "Mixup(alpha=0.2)": evaluate(labels, probs=right)})
    assert choice.method == "Mixup(alpha=0.2)"
    assert choice.difference is not None
    assert choice.difference.value == pytest.approx(np.log(0.6 / 0.8))
    assert "less than plain training by 0.2877 (95 % CI" in str(choice)
    plain = choice_among({"ERM()": evaluate(labels, probs=right), "Mixup(alpha=0.2)": evaluate(labels, probs=worse)})
    assert (plain.method, plain.difference) == ("ERM()", None)


def test_what_is_not_tried_is_said() -> None:
    task = load(table(), target="y")
    trees = choice_without_trial(Experiment(source="table", model="hgb"), task)
    unvalidated = choice_without_trial(Experiment(source="table"), load(table(), SplitOptions(val=0), target="y"))
    images = choice_without_trial(Experiment(source="digits"), load("digits"))
    assert str(trees) == "method ERM(): trees mix no rows"
    assert "no validation set" in str(unvalidated)
    assert "would take long with" in str(images)
    assert choice_without_trial(Experiment(source="table"), task) is None


def test_the_classifier_takes_it() -> None:
    rows = table(120)
    how = {"model": "mlp", "training": {"epochs": 2}, "random_state": 0}
    model = VicinalClassifier("auto", **how).fit(rows[["a", "b"]], rows["y"])
    assert any(str(note).startswith("method ") for note in model.notes_)
