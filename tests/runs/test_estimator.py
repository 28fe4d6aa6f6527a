"""VicinalClassifier: scikit-learn's own checks, mixed frames, and the numbers of the command."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import vicinal
from tests.cli.running import vicinal as command
from vicinal import VicinalClassifier

#: The default model, of a size that trains in a second.
SMALL = {"training": {"epochs": 3}, "model_options": {"iterations": 5}, "random_state": 0}


@pytest.fixture(scope="module")
def mixed():
    """Numbers, categories, dates and texts, some of them missing."""
    draws = np.random.default_rng(0)
    n = 120
    rows = pd.DataFrame(
        {
            "size": draws.normal(size=n).round(3),
            "colour": draws.choice(["red", "green", "blue"], n),
            "born": pd.Timestamp("2020-01-01") + pd.to_timedelta(draws.integers(0, 900, n), "D"),
            "said": [" ".join(draws.choice([f"word{k}" for k in range(30)], 12)) for _ in range(n)],
        }
    )
    answers = np.where(rows["size"] + (rows.colour == "red") + draws.normal(size=n) > 0.4, "yes", "no")
    rows.loc[::9, "size"] = np.nan
    rows.loc[::8, "colour"] = None
    rows.loc[::7, "born"] = pd.NaT
    rows.loc[::6, "said"] = None
    return rows, answers


#: `vicinal train` weighs classes by their numbers alone.
UNLIKE = {
    "check_class_weight_classifiers": "class_weight is 'balanced' or None",
    # A part of the rows is held out, and which part depends on how many there are: repeated rows are split otherwise.
    "check_sample_weight_equivalence_on_dense_data": "rows are split into training and held-out ones",
}


@parametrize_with_checks(
    [VicinalClassifier(model="hgb", model_options={"iterations": 8})], expected_failed_checks=lambda estimator: UNLIKE
)
def test_scikit_learns_checks_of_trees(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([VicinalClassifier(**SMALL)], expected_failed_checks=lambda estimator: UNLIKE)
def test_scikit_learns_checks_of_the_default_model(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def fitted(mixed):
    return VicinalClassifier(**SMALL).fit(*mixed)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_numbers_are_those_of_the_command(fitted, mixed, tmp_path, suffix):
    rows, answers = mixed
    whole = rows.assign(answer=answers)
    whole.to_csv(tmp_path / "rows.csv", index=False)
    whole.to_parquet(tmp_path / "rows.parquet")
    options = ["--test", 0, "--epochs", 3, "--model-option", "iterations=5"]
    command("train", f"rows.{suffix}", "--target", "answer", *options, "--out", "run", cwd=tmp_path)
    model = vicinal.load(tmp_path / "run")
    assert fitted.predict_proba(rows) == pytest.approx(model.predict_proba(tmp_path / f"rows.{suffix}"), abs=1e-6)
    assert fitted.classes_.tolist() == list(model.classes)


def test_what_was_inferred_is_noted(fitted):
    notes = "\n".join(fitted.notes_)
    assert "1 numeric and 1 categorical columns, 1 of dates, 1 of text" in notes
    assert "2 classes: 'no' " in notes


def test_the_saved_model_is_a_bundle(fitted, mixed, tmp_path):
    rows, _ = mixed
    model = vicinal.load(fitted.bundle_.save(tmp_path / "model"))
    assert model.predict_proba(rows) == pytest.approx(fitted.predict_proba(rows), abs=1e-6)
    assert model.classes == ("no", "yes")


def test_clone_and_pickle(fitted, mixed):
    rows, _ = mixed
    assert clone(fitted).get_params() == fitted.get_params()
    assert not hasattr(clone(fitted), "bundle_")
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(rows), fitted.predict_proba(rows))


def test_the_three_answers_agree(fitted, mixed):
    probs = fitted.predict_proba(mixed[0])
    assert np.log(probs) == pytest.approx(fitted.predict_log_proba(mixed[0]), abs=1e-9)
    odds = fitted.decision_function(mixed[0])
    assert 1 / (1 + np.exp(-odds)) == pytest.approx(probs[:, 1])
    assert np.array_equal(fitted.predict(mixed[0]) == "yes", odds > 0)


def test_polars_frames_give_the_same(fitted, mixed):
    polars = pytest.importorskip("polars")
    rows, _ = mixed
    assert np.array_equal(fitted.predict_proba(polars.from_pandas(rows)), fitted.predict_proba(rows))


def test_it_ends_a_pipeline_whose_steps_give_frames(mixed):
    rows, answers = mixed
    numbers = rows[["size"]].assign(twice=2 * rows["size"])
    pipeline = make_pipeline(StandardScaler(), VicinalClassifier(model="hgb", model_options={"iterations": 5}))
    pipeline.set_output(transform="pandas").fit(numbers, answers)
    assert pipeline[-1].feature_names_in_.tolist() == ["size", "twice"]
    scores = cross_val_score(pipeline, numbers, answers, cv=2, error_score="raise")
    assert scores.mean() > 0.5


def test_an_integer_seed_leaves_the_global_generators_alone(mixed):
    rows, answers = mixed
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    a, b = (VicinalClassifier(**SMALL).fit(rows, answers).predict_proba(rows) for _ in range(2))
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    assert np.array_equal(a, b)


class TestRefusals:
    def test_columns_of_other_names(self, fitted, mixed):
        with pytest.raises(ValueError, match="feature names should match"):
            fitted.predict(mixed[0].rename(columns={"size": "length"}))

    def test_missing_and_several_labels(self, mixed):
        rows, answers = mixed
        gaps = answers.astype(object)
        gaps[3] = None
        with pytest.raises(ValueError, match="missing"):
            VicinalClassifier().fit(rows, gaps)
        with pytest.raises(ValueError, match="MultiOutputClassifier"):
            VicinalClassifier().fit(rows, np.ones((len(rows), 2), int))

    @pytest.mark.parametrize("name", ["target", "test"])
    def test_options_that_fit_decides(self, mixed, name):
        with pytest.raises(ValueError, match=f"data must be options without '{name}'"):
            VicinalClassifier(data={name: 0}).fit(*mixed)

    def test_typing_errors(self, mixed):
        for wrong, said in (
            ({"data": {"dorp": ["size"]}}, "drop"),
            ({"method": "Mixpu()"}, "Mixup"),
        ):
            with pytest.raises(ValueError, match=said):
                VicinalClassifier(**wrong).fit(*mixed)


def test_the_name_costs_no_import():
    code = "import sys, vicinal; dir(vicinal); assert 'sklearn' not in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
