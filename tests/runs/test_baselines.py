"""Simpler models on the same split."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression

from tests.data import make
from tests.data.test_own_tables import frame
from vicinal.data import AudioOptions, TableOptions, TextOptions, load
from vicinal.metrics import Estimate, compare, evaluate
from vicinal.report import verdicts
from vicinal.runs import Experiment, baselines, measure_baselines, run
from vicinal.runs.baselines import BASELINES


def test_a_table_has_all_of_them():
    table = frame(300).assign(when=pd.date_range("2021-01-01", periods=300).strftime("%Y-%m-%d"))
    table.loc[::9, "x"] = None
    task = load(table, TableOptions(features="piecewise"), target="y")
    found = baselines(task, BASELINES)
    assert list(found) == list(BASELINES)
    shares = np.bincount(task.train.labels) / len(task.train)
    assert found["majority class"].nll.value == pytest.approx(-np.log(shares)[task.test.labels].mean())
    assert found["logistic regression"].nll.value < found["majority class"].nll.value
    assert all(np.isfinite(each.nll.value) for each in found.values())


def test_a_rare_class_in_the_validation_set_is_no_warning(recwarn):
    table = frame(300)
    table["y"] = np.where(np.arange(300) % 60 == 0, "rare", table["y"].astype(str))
    task = load(table, target="y")
    assert min(np.bincount(task.val.labels)) < 5  # which scikit-learn takes for too few for its five folds
    assert np.isfinite(baselines(task, ["gradient boosting"])["gradient boosting"].nll.value)
    assert not [str(one.message) for one in recwarn if "least populated" in str(one.message)]


def test_a_class_that_the_validation_set_lacks():
    table = frame(300)
    table["y"] = np.where(np.arange(300) == 7, "once", table["y"].astype(str))
    task = load(table, target="y")
    assert len(set(task.val.labels)) < len(task.classes)
    assert np.isfinite(baselines(task, ["gradient boosting"])["gradient boosting"].nll.value)


def _fair_nll(train, val, test):
    """The slow way: each strength by its NLL on validation rows, at the temperature that a general solver finds."""

    def tempered(probs, temperature):
        probs = np.maximum(probs, 1e-6) ** (1 / temperature)
        return probs / probs.sum(axis=1, keepdims=True)

    def nll(probs, labels):
        return -np.log(probs[np.arange(len(labels)), labels]).mean()

    found = []
    for strength in (0.01, 0.1, 1.0, 10.0, 100.0):
        model = LogisticRegression(C=strength, max_iter=1000).fit(*train)
        probs = model.predict_proba(val[0])
        best = minimize_scalar(
            lambda log, probs=probs: nll(tempered(probs, np.exp(log)), val[1]), bounds=(-4, 4), method="bounded"
        )
        found.append((best.fun, model, np.exp(best.x)))
    _, model, temperature = min(found, key=lambda one: one[0])
    return nll(tempered(model.predict_proba(test[0]), temperature), test[1])


def test_logistic_regression_sees_numbers_marks_and_categories_but_no_pieces_or_ranks():
    table = frame(200)
    table.loc[::9, "x"] = None
    standard, pieces, ranks = (
        load(table, TableOptions(features=how), target="y") for how in ("standard", "piecewise", "ranked")
    )
    expected = _fair_nll(*((part.features(), part.labels) for part in (standard.train, standard.val, standard.test)))
    for task in (standard, pieces, ranks):
        assert baselines(task)["logistic regression"].nll.value == pytest.approx(expected, rel=1e-4)


def test_texts_have_words_and_pictures_their_pixels():
    task = load(make.reviews(60).drop(columns="stars"), TextOptions(tokenizer="words"), target="mood")
    found = baselines(task, BASELINES)
    assert list(found) == ["majority class", "logistic regression"]
    assert found["logistic regression"].accuracy.value == 1  # great or awful
    digits = load("digits")
    found = baselines(digits, BASELINES)
    assert list(found) == ["majority class", "logistic regression"]
    plain = load("digits", augment="none")
    parts = plain.train, plain.val, plain.test
    expected = _fair_nll(*((np.stack([x.double().numpy().ravel() for x, _ in part]), part.labels) for part in parts))
    assert found["logistic regression"].nll.value == pytest.approx(expected, rel=1e-4)
    assert expected < 0.3


def test_sounds_have_their_spectrograms_and_waveforms_the_majority_alone(tmp_path):
    folder = make.sound_folder(tmp_path, n=12)
    found = baselines(load(folder, AudioOptions(front_end="mel")))
    assert found["logistic regression"].accuracy.value == 1  # two pitches
    assert list(baselines(load(folder, AudioOptions(front_end="waveform")))) == ["majority class"]


def test_the_sentence_about_baselines_follows_the_paired_interval():
    model = evaluate([0, 1] * 50, probs=[[0.8, 0.2], [0.2, 0.8]] * 50)
    simpler = {
        "logistic regression": {"nll": Estimate(0.6, 0.5, 0.7), "nll_difference": Estimate(-0.377, -0.5, -0.25)},
        "majority class": {"nll": Estimate(0.7, 0.7, 0.7), "nll_difference": Estimate(-0.477, -0.477, -0.477)},
    }
    said = "NLL 0.223, logistic regression 0.600"
    assert verdicts.versus_baselines(model, simpler).sentence == (
        f"Better than the baselines: {said} (difference −0.377, 95 % CI −0.500 to −0.250)."
    )
    for less, head in (
        (Estimate(-0.1, -0.3, 0.1), "No significant difference to the best baseline: "),
        (Estimate(0.2, 0.1, 0.3), "Worse than the best baseline: "),
    ):
        simpler["logistic regression"]["nll_difference"] = less
        assert verdicts.versus_baselines(model, simpler).sentence.startswith(head + said)
    for right, head in (
        (0.99, "Better than the baselines: "),
        (1.0, "No significant difference to the best baseline, since both"),
    ):
        simpler["logistic regression"] |= {
            "nll_difference": Estimate(-0.377, -0.38, -0.37),
            "accuracy": Estimate(right, 0.9, 1.0),
        }
        # No mistake was seen, so none has its price.
        assert verdicts.versus_baselines(model, simpler).sentence.startswith(head)


def test_simpler_models_are_compared_sample_by_sample(tmp_path):
    frame(300).to_csv(tmp_path / "rows.csv", index=False)
    training = {"epochs": 3, "trackers": []}
    experiment = Experiment(source=str(tmp_path / "rows.csv"), data={"target": "y"}, training=training, model="mlp")
    outcome = run(experiment, tmp_path / "run", progress=False)
    measure_baselines(outcome)
    task = outcome.run.task()
    shares = np.bincount(task.train.labels) / len(task.train)
    less = outcome.run.baselines()["majority class"]["nll_difference"]
    differences = outcome.test.after.samples.values["nll"] + np.log(shares)[task.test.labels]
    assert less.value == pytest.approx(differences.mean())
    simple = evaluate(task.test.labels, probs=np.tile(shares, (len(task.test), 1)))
    paired = compare(simple, outcome.test.after)["nll"]
    assert (less.low, less.high) == pytest.approx((paired.low, paired.high))
    # A folder of an earlier version, which has no differences, is measured again.
    kept = json.loads(outcome.run.files.baselines.read_text())
    for metrics in kept["models"].values():
        del metrics["nll_difference"]
    del kept["checksum"]  # as that version wrote it
    outcome.run.files.baselines.write_text(json.dumps(kept))
    measure_baselines(outcome)
    assert outcome.run.baselines()["majority class"]["nll_difference"] == less


def test_groups_widen_the_intervals_of_baselines_and_of_new_data(tmp_path) -> None:
    """Twenty patients of fifteen rows, whose label is the patient's: rows say as much as patients do."""
    random = np.random.default_rng(0)
    who = np.arange(300) % 20
    frame = pd.DataFrame({"patient": [f"p{i}" for i in who], "x": random.normal(size=20)[who], "y": who % 2})
    frame["z"] = random.normal(size=300)
    frame.to_csv(tmp_path / "t.csv", index=False)
    (frame + frame.assign(x=0, z=1, y=0, patient="n")).to_csv(tmp_path / "new.csv", index=False)
    runs = {}
    for group in (None, "patient"):
        data = {"target": "y", "drop": ["patient"]} if group is None else {"target": "y", "group": group}
        training = {"epochs": 1}
        asked = Experiment(source=str(tmp_path / "t.csv"), data=data, model="linear", training=training)
        runs[group] = run(asked, tmp_path / f"run-{group}", progress=False)
        measure_baselines(runs[group])

    def width(estimate: Estimate) -> float:
        return estimate.high - estimate.low

    plain, grouped = runs[None], runs["patient"]
    of = {name: result.run.baselines()["majority class"]["nll"] for name, result in runs.items()}
    assert width(of["patient"]) > 1.5 * width(of[None])
    new = {name: result.run.on_new_data(str(tmp_path / "new.csv")).after for name, result in runs.items()}
    assert width(new["patient"].accuracy) > 1.5 * width(new[None].accuracy)
    assert plain.test.groups is None
    assert grouped.test.groups is not None
