"""Two perceptrons with two views of a row: each row by one of them in training, by both in evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal import ERM, data, load, models
from vicinal._atomic import read_json
from vicinal.data.tabular import TabularPreprocessing
from vicinal.models import TwoViewMLP
from vicinal.runs import Experiment, Run, run
from vicinal.training import FitConfig, fit


def slowly(model: TwoViewMLP, row: torch.Tensor, view: int) -> torch.Tensor:
    """Return the logits of a row by one of the two, layer by layer."""
    layers = (model.first, model.second)[view]
    h = row[model.plain] if view == 0 else row
    for linear, _, _ in layers:
        h = (linear.weight @ h + linear.bias).clamp_min(0)
    width = model.first[-1][0].out_features
    weight = model.classifier.weight[:, :width] if view == 0 else model.classifier.weight[:, width:]
    return weight @ h + model.classifier.bias


@pytest.mark.parametrize("n", [1, 2, 5])
def test_equals_each_view_by_hand(n: int) -> None:
    torch.manual_seed(0)
    model = TwoViewMLP(4, 3, plain=[0, 2], hidden=[5, 6], dropout=0.0)
    x = torch.randn(n, 4)
    logits = model.train()(x)
    for i in range(n):
        torch.testing.assert_close(logits[i], slowly(model, x[i], i % 2))
    probs = model.eval()(x).exp()
    for i in range(n):
        torch.testing.assert_close(
            probs[i], (slowly(model, x[i], 0).softmax(0) + slowly(model, x[i], 1).softmax(0)) / 2
        )


def test_labels_that_exclude_nothing_have_a_mean_each() -> None:
    torch.manual_seed(0)
    model = TwoViewMLP(4, 3, plain=[0, 2], hidden=[5], exclusive=False).eval()
    x = torch.randn(5, 4)
    probs = model(x).sigmoid()
    for i in range(5):
        torch.testing.assert_close(probs[i], (slowly(model, x[i], 0).sigmoid() + slowly(model, x[i], 1).sigmoid()) / 2)
    frame = pd.DataFrame({"x": np.arange(40) % 7, "wet": np.arange(40) % 2, "cold": np.arange(40) // 20})
    several = data.load(frame, target=["wet", "cold"])
    assert models.specify(**several.spec).options["exclusive"] is False
    assert models.specify("mlp", **several.spec).options == {"hidden": [128, 128], "dropout": 0.0}


def test_the_share_is_chosen_at_the_precision_that_is_served() -> None:
    torch.manual_seed(0)
    x = torch.randn(300, 6)
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).long()
    rows = torch.utils.data.TensorDataset(x, y)
    model = TwoViewMLP(6, 2, plain=[0, 2], hidden=[16])
    config = FitConfig(epochs=5, batch_size=32, mixed_precision="bf16", eval_batch_size=300, trackers=())
    fit(model, ERM(), rows, rows, config=config, progress=False)
    chosen = float(model.share)
    model.after_fit((), [(x, y)])
    assert float(model.share) != chosen
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.after_fit((), [(x, y)])
    assert float(model.share) == chosen


def test_it_is_a_network_by_name() -> None:
    spec = models.specify("two-view-mlp", kind="tabular", n_classes=3, input_shape=(8,), plain=[0, 5])
    assert spec.options["plain"] == [0, 5]
    assert models.ModelSpec.from_dict(spec.to_dict()) == spec
    assert isinstance(spec.build(), TwoViewMLP)
    assert models.specify("mlp", kind="tabular", n_classes=3, input_shape=(8,), plain=[0]).options == {
        "hidden": [128, 128],
        "dropout": 0.0,
    }
    with pytest.raises(ValueError, match="plain must be places below 4, at least one"):
        TwoViewMLP(4, 2, plain=[4])
    with pytest.raises(TypeError, match="hidden must be a list"):
        TwoViewMLP(4, 2, hidden=5)  # type: ignore[arg-type]


def test_a_table_is_seen_in_both_ways(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=200),
            "when": pd.date_range("2020-01-01", periods=200, freq="D").strftime("%Y-%m-%d"),
            "c": rng.choice(["x", "y"], 200),
        }
    )
    frame["kind"] = np.where(frame["a"].abs() > 0.7, "far", "near")
    frame.loc[::7, "a"] = None
    frame.to_csv(tmp_path / "rows.csv", index=False)
    task, pieces = (
        data.load(str(tmp_path / "rows.csv"), data.TableOptions(features=how), target="kind")
        for how in ("ranked", "piecewise")
    )
    standard = data.load(str(tmp_path / "rows.csv"), target="kind")
    assert "plain" not in standard.spec
    np.testing.assert_allclose(pieces.train.features()[:, pieces.spec["plain"]], standard.train.features(), atol=1e-6)
    assert isinstance(task.preprocessing, TabularPreprocessing)
    assert task.preprocessing.plain != task.spec["plain"]
    experiment = Experiment(
        source=str(tmp_path / "rows.csv"),
        data={"target": "kind"},
        model="two-view-mlp",
        training={"epochs": 3, "trackers": []},
    )
    outcome = run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    bundle = load(tmp_path / "run")
    assert bundle.spec.options["plain"] == task.spec["plain"]
    assert bundle.to_onnx(tmp_path / "model.onnx") < 1e-4


@pytest.mark.parametrize("exclusive", [True, False])
def test_held_out_rows_choose_the_share(exclusive: bool) -> None:
    torch.manual_seed(0)
    model = TwoViewMLP(4, 3, plain=[0, 2], hidden=[8], exclusive=exclusive).eval()
    x = torch.randn(400, 4)
    with torch.no_grad():
        first = torch.stack([slowly(model, row, 0) for row in x])
        second = torch.stack([slowly(model, row, 1) for row in x])
    # The second is right.
    y = second.argmax(1) if exclusive else (second > 0).long()
    model.after_fit((), ((x[i : i + 64], y[i : i + 64]) for i in range(0, 400, 64)))
    assert float(model.share) < 0.4
    w = float(model.share)
    if exclusive:
        torch.testing.assert_close(model(x).exp(), w * first.softmax(1) + (1 - w) * second.softmax(1))
    else:
        torch.testing.assert_close(model(x).sigmoid(), w * first.sigmoid() + (1 - w) * second.sigmoid())
    again = TwoViewMLP(4, 3, plain=[0, 2], hidden=[8], exclusive=exclusive)
    again.load_state_dict(model.state_dict())
    assert again.share == model.share
    model.after_fit((), [])
    assert float(model.share) == w


def rows_with_a_tail(path: Path) -> Experiment:
    """Write rows of two classes, told apart among the small values of a number with a long tail."""
    rng = np.random.default_rng(0)
    x = np.exp(4 * rng.normal(size=600))
    pd.DataFrame({"x": x, "n": rng.normal(size=600), "kind": np.where(x > 1, "far", "near")}).to_csv(path, index=False)
    training = {"epochs": 15, "trackers": []}
    return Experiment(source=str(path), data={"target": "kind"}, model="two-view-mlp", training=training)


def test_the_share_is_served_everywhere(tmp_path: Path) -> None:
    experiment = rows_with_a_tail(tmp_path / "rows.csv")
    outcome = run(experiment, tmp_path / "run", progress=False)
    assert outcome is not None
    bundle = load(tmp_path / "run")
    assert isinstance(bundle.module, TwoViewMLP)
    assert float(bundle.module.share) != 0.5
    logits, labels = Run(tmp_path / "run").predictions("val")
    torch.testing.assert_close(bundle.logits(Run(tmp_path / "run").task().val), logits)
    best = read_json(tmp_path / "run" / "result.json")["best"]
    nll = float(torch.nn.functional.cross_entropy(logits.double(), labels))
    assert best["val_nll"] == pytest.approx(nll, abs=1e-6)
    assert outcome.test.after.accuracy.value > 0.9


@pytest.mark.slow
def test_it_is_written_as_onnx(tmp_path: Path) -> None:
    run(rows_with_a_tail(tmp_path / "rows.csv"), tmp_path / "run", progress=False)
    assert load(tmp_path / "run").to_onnx(tmp_path / "model.onnx") < 1e-4
