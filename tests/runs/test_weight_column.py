"""`weight`: a column reaches the loss, calibrator, metrics and folder of a run, and files of predictions."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from tests.cli.running import vicinal as command
from vicinal import VicinalClassifier, evaluate
from vicinal.calibrators import TemperatureScaling
from vicinal.predictions import calibrate_file, evaluate_file
from vicinal.runs import Experiment, Run, measure_baselines, run


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Rows of two kinds with opposite answers, of which the second kind counts 20 times."""
    draws = np.random.default_rng(0)
    n = 600
    rows = pd.DataFrame({"x": draws.normal(size=n).round(4), "w": np.where(draws.random(n) < 0.4, 20.0, 1.0)})
    flipped = (rows.w > 1) & (draws.random(n) < 0.9)
    rows["label"] = np.where((rows.x > 0) ^ flipped, "yes", "no")
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    rows.to_csv(path, index=False)
    return path, rows


def _experiment(path, **data):
    chosen = {"target": "label", **data}
    return Experiment(source=str(path), method="ERM()", model="hgb", model_options={"iterations": 20}, data=chosen)


@pytest.fixture(scope="module")
def results(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    weighted = run(_experiment(table[0], weight="w"), folder / "weighted", progress=False)
    plain = run(_experiment(table[0], drop=["w"]), folder / "plain", progress=False)
    return weighted, plain


def test_weights_reach_the_loss(results):
    weighted, plain = results
    # Most rows say x > 0, and the weight of the others turns the answer round.
    agree = (weighted.test.logits.argmax(1) == plain.test.logits.argmax(1)).double().mean()
    assert agree < 0.3
    assert any("it weighs the rows" in str(note) for note in weighted.facts["data"]["notes"])


def test_weights_reach_metrics_calibrator_and_folder(results, table):
    weighted, _ = results
    test = weighted.test
    assert test.weights is not None
    assert set(np.unique(test.weights)) == {1.0, 20.0}
    expected = evaluate(test.labels, logits=test.calibrators(test.logits), sample_weight=test.weights)
    assert test.after.metrics == expected.metrics
    assert test.after.nll.value != pytest.approx(evaluate(test.labels, logits=test.logits).nll.value)
    val = weighted.sets["val"]
    fitted = TemperatureScaling().fit(val.logits, val.labels, sample_weight=val.weights).temperature_
    assert val.temperature in (pytest.approx(fitted), 1.0)
    again = Run(weighted.run.path).result()
    assert again.test.after.metrics == test.after.metrics
    assert "samples are weighted" in test.after.notes[0]


def test_baselines_and_new_data_are_weighted(results, table):
    weighted, _ = results
    measure_baselines(weighted)
    share = weighted.run.baselines()["majority class"]["accuracy"]
    test = weighted.test
    majority = np.bincount(weighted.run.task().train.labels).argmax()
    assert share.value == pytest.approx(np.average(test.labels.numpy() == majority, weights=test.weights))
    new = weighted.run.on_new_data(str(table[0]))
    assert np.array_equal(new.weights, table[1].w)


def test_the_networks_loss_is_weighted(table, tmp_path):
    training = {"epochs": 8}
    how = {"model": "mlp", "method": "ERM()", "training": training}
    parts = [
        run(Experiment(source=str(table[0]), data={"target": "label", **data}, **how), tmp_path / name, progress=False)
        for name, data in (("weighted", {"weight": "w"}), ("plain", {"drop": ["w"]}))
    ]
    assert (parts[0].test.logits.argmax(1) == parts[1].test.logits.argmax(1)).double().mean() < 0.5


def test_the_classifier_takes_weights(table):
    rows = table[1]
    made = [
        VicinalClassifier(model="hgb", model_options={"iterations": 20}, random_state=0).fit(
            rows[["x"]], rows.label, sample_weight=w
        )
        for w in (rows.w, None)
    ]
    assert (made[0].predict(rows[["x"]]) == made[1].predict(rows[["x"]])).mean() < 0.3


@pytest.fixture
def predictions(tmp_path):
    draws = np.random.default_rng(1)
    logits = draws.normal(size=(400, 3)) * 3
    frame = pd.DataFrame(
        {"label": (logits / 3 + draws.gumbel(size=(400, 3))).argmax(1), "w": draws.integers(0, 4, 400)}
    )
    for k in range(3):
        frame[f"logit_{k}"] = logits[:, k]
    frame.to_csv(tmp_path / "weighted.csv", index=False)
    repeated = frame.loc[frame.index.repeat(frame.w)]
    repeated.to_csv(tmp_path / "repeated.csv", index=False)
    return tmp_path, frame


def test_a_file_with_weights_is_one_with_repeated_rows(predictions):
    folder, _ = predictions
    weighted = evaluate_file(folder / "weighted.csv", weight="w")
    repeated = evaluate_file(folder / "repeated.csv")
    for name in ("accuracy", "nll", "brier", "ece", "mcc"):
        assert weighted.metrics[name].value == pytest.approx(repeated.metrics[name].value)
    fitted = [
        calibrate_file(folder / name, folder / name, folder / "out.csv", weight=weight).calibrator.temperature_
        for name, weight in (("weighted.csv", "w"), ("repeated.csv", None))
    ]
    assert fitted[0] == pytest.approx(fitted[1], rel=1e-6)


def test_the_commands_take_weights(predictions):
    folder, _frame = predictions
    said = command("evaluate", "weighted.csv", "--weight", "w", "--json", cwd=folder).out
    found = json.loads(said.splitlines()[-1])
    assert found["nll"]["value"] == pytest.approx(evaluate_file(folder / "repeated.csv").nll.value)
    shown = command("calibrate", "weighted.csv", "weighted.csv", "--out", "out.csv", "--weight", "w", cwd=folder).out
    assert "on weighted.csv" in shown


class TestRefusals:
    @pytest.mark.parametrize(("cell", "said"), [("-1", "-1"), ("", "''|None|nan"), ("much", "much")])
    def test_of_a_predictions_file(self, predictions, cell, said):
        folder, frame = predictions
        frame.astype({"w": object}).assign(w=[cell, *frame.w[1:]]).to_csv(folder / "bad.csv", index=False)
        with pytest.raises(ValueError, match=rf"weight='w' must hold numbers of at least 0, got .*({said}).* in row 1"):
            evaluate_file(folder / "bad.csv", weight="w")

    def test_all_zero_and_no_such_column(self, predictions):
        folder, frame = predictions
        frame.assign(w=0).to_csv(folder / "bad.csv", index=False)
        with pytest.raises(ValueError, match="is 0 in every row"):
            evaluate_file(folder / "bad.csv", weight="w")
        with pytest.raises(ValueError, match="weight must be a column"):
            calibrate_file(folder / "bad.csv", folder / "bad.csv", folder / "out.csv", weight="v")

    @pytest.mark.parametrize(("value", "said"), [(-2, "got -2 in row 3"), (None, "got no number in row 3")])
    def test_of_a_table(self, table, tmp_path, value, said):
        rows = table[1].copy()
        rows.loc[2, "w"] = value
        rows.to_csv(tmp_path / "bad.csv", index=False)
        with pytest.raises(ValueError, match=said):
            run(_experiment(tmp_path / "bad.csv", weight="w"), tmp_path / "run", progress=False)

    def test_a_table_in_which_nothing_counts(self, table, tmp_path):
        table[1].assign(w=0).to_csv(tmp_path / "bad.csv", index=False)
        with pytest.raises(ValueError, match="weight is 0 for all"):
            run(_experiment(tmp_path / "bad.csv", weight="w"), tmp_path / "run", progress=False)

    def test_the_target_and_images_have_no_weights(self, table, tmp_path):
        with pytest.raises(ValueError, match="is the target: it cannot be both"):
            run(_experiment(table[0], weight="label"), tmp_path / "run", progress=False)
        with pytest.raises(ValueError, match="'digits' is not a table"):
            run(Experiment(source="digits", data={"weight": "w"}), tmp_path / "run", progress=False)
