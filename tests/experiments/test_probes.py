from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.data import make
from vicinal.experiments import Experiment, attacks_on, ood_reports, reopen, run
from vicinal.experiments.probes import OOD_SCORES


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Any:
    training = {"epochs": 2, "batch_size": 64, "lr": 0.05}
    experiment = Experiment(source="digits", model_options={"width": 4}, training=training)
    return run(experiment, tmp_path_factory.mktemp("digits") / "run", progress=False)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("table") / "data.csv"
    x = np.linspace(-3, 3, 200)
    pd.DataFrame({"x": x, "y": np.where(np.sin(5 * x) + x > 0, "up", "down")}).to_csv(path, index=False)
    training = {"epochs": 30, "lr": 0.02, "batch_size": 32}
    return run(
        Experiment(source=str(path), data={"target": "y"}, training=training), path.parent / "run", progress=False
    )


def test_what_is_uncertain_is_told_apart(table: Any, tmp_path: Path) -> None:
    """Points on the class boundary are all less sure than the test set."""
    bundle, _ = reopen(table)
    grid = np.linspace(-3, 3, 2000)
    sure = bundle.predict_proba(pd.DataFrame({"x": grid})).max(axis=1)
    pd.DataFrame({"x": grid[sure.argsort()[:40]]}).to_csv(tmp_path / "boundary.csv", index=False)
    for score in OOD_SCORES:
        ((name, report),) = ood_reports(table, [str(tmp_path / "boundary.csv")], score=score)
        assert name == str(tmp_path / "boundary.csv")
        if score != "energy":  # which looks at the size of logits, not at their differences
            assert report.figures["auroc"].value > 0.9


def test_the_test_set_itself_is_not_told_apart(table: Any) -> None:
    ((_, report),) = ood_reports(table, [table.experiment.source])
    assert 0.3 < report.figures["auroc"].value < 0.7


def test_noise_is_the_same_each_time(digits: Any) -> None:
    first, second = (ood_reports(digits, ["noise"])[0][1].to_dict() for _ in range(2))
    assert first == second


def test_attacks_do_harm(digits: Any) -> None:
    (name, gentle), (_, strong) = attacks_on(digits, ["fgsm:1/255", "ifgsm:48/255:5"])
    assert name == "fgsm:1/255"
    error = 1 - digits.test.before.accuracy.value
    assert gentle.clean[1].value == pytest.approx(error)
    assert strong.attacked[1].value > error
    assert gentle.attacked[1].value <= strong.attacked[1].value
    ((_, black),) = attacks_on(digits, ["ifgsm:48/255:5"], source=str(digits.out))
    assert black.attacked[1].value == pytest.approx(strong.attacked[1].value)


def test_what_cannot_be_probed(digits: Any, table: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="score must be one of"):
        ood_reports(digits, ["noise"], score="size")
    with pytest.raises(ValueError, match="attacks need inputs in a valid range"):
        attacks_on(table, ["fgsm:1/255"])
    with pytest.raises(ValueError, match="takes other inputs"):
        attacks_on(digits, ["fgsm:1/255"], source=str(table.out))
    make.reviews(30).to_csv(tmp_path / "reviews.csv", index=False)
    experiment = Experiment(
        source=str(tmp_path / "reviews.csv"),
        data={"target": "mood", "test": 0},
        model="sentencecnn",
        training={"epochs": 1},
    )
    texts = run(experiment, tmp_path / "run", progress=False)
    assert texts is not None
    with pytest.raises(ValueError, match="has no test set"):
        ood_reports(texts, ["noise"])
    with pytest.raises(ValueError, match="has no test set"):
        attacks_on(texts, ["fgsm:1/255"])


def test_the_model_is_left_as_it_was(digits: Any) -> None:
    weights = (digits.out / "model.safetensors").read_bytes()
    attacks_on(digits, ["fgsm:8/255"])
    assert (digits.out / "model.safetensors").read_bytes() == weights
    bundle, task = reopen(digits)
    torch.testing.assert_close(bundle.logits(task.test), digits.test.logits)
