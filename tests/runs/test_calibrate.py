"""`train --calibrate`: what is fitted is what is served, stored, shown and exported."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import vicinal
from tests.cli.running import refused
from tests.cli.running import vicinal as command
from tests.runs.test_labels import TRAINING
from vicinal import runs
from vicinal.calibrators import CALIBRATORS, Calibrator, MixtureCalibration, loss_parts
from vicinal.calibrators.two_logits import two_logits
from vicinal.runs import Experiment, Run
from vicinal.runs.calibration import ONLY_HEAD, HeadCalibrators
from vicinal.runs.onnx import _in_torch


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """Three classes that features predict, one of them rare, and two labels."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(900, 3))
    odds = x @ generator.normal(size=(3, 3)) + np.array([0.0, 0.5, -1.5]) + generator.gumbel(size=(900, 3))
    frame = pd.DataFrame(x, columns=list("pqr")).assign(kind=np.array(list("abc"))[odds.argmax(axis=1)])
    frame["wet"], frame["cold"] = (x[:, 0] > generator.normal(size=900)) * 1, (x[:, 1] > 1) * 1
    path = tmp_path_factory.mktemp("data") / "kinds.csv"
    frame.to_csv(path, index=False)
    return path


def experiment(table: Path, calibrate: str, **options: Any) -> Experiment:
    given = {"target": "kind", "drop": ["wet", "cold"], "val": 0.4, **options}
    return Experiment(source=str(table), data=given, model="mlp", training=TRAINING, calibrate=calibrate)


@pytest.fixture(scope="module", params=["auto", "sms", "isotonic"])
def classes(request, table, tmp_path_factory):
    out, notes = tmp_path_factory.mktemp("run") / request.param, []
    result = runs.run(experiment(table, request.param), out, progress=False, on_note=notes.append)
    return request.param, result, notes


def test_what_is_fitted_on_validation_logits_is_served(classes, table):
    name, result, notes = classes
    logits, labels = Run(result.out).predictions("val")
    again = vicinal.calibrate(labels, logits=logits, method=name)
    bundle = vicinal.load(result.out)
    stored = bundle.calibrators.by_head[ONLY_HEAD]
    assert stored.state_dict() == again.calibrator.state_dict()
    test, truth = Run(result.out).predictions("test")
    by_hand = again.calibrator.predict_proba(test.double())
    torch.testing.assert_close(bundle.calibrated(test), by_hand, rtol=1e-12, atol=1e-15)
    assert result.test.after.nll.value == pytest.approx(vicinal.evaluate(truth, probs=by_hand).nll.value)
    frame = pd.read_csv(table)
    served = bundle.predict_proba(frame)
    assert (bundle.predict(frame) == np.array(bundle.classes)[served.argmax(axis=1)]).all()
    read = Run(result.out).result(experiment(table, name))
    assert read.calibrators.to_dict() == result.calibrators.to_dict()
    assert read.test.after.nll == result.test.after.nll
    # Shown: why, and what each candidate would have given.
    said = [note for note in result.facts["notes"] if note.startswith("calibrator on the validation set")]
    assert again.why in said[0]
    if name == "auto":
        assert all(f"{one.name} {one.nll:.4f} ({one.interval[0]:.4f} to " in said[1] for one in again.tried)
    assert set(said) <= set(notes)
    assert result.to_dict()["calibration"] == {ONLY_HEAD: again.to_dict()}


def test_other_calibrators_cannot_be_taken_up_by_a_finished_run(classes, table):
    _, result, _ = classes
    with pytest.raises(ValueError, match="holds another run"):
        runs.run(experiment(table, "beta"), result.out)


@pytest.mark.parametrize("method", ["auto", "quadratic"])
def test_each_label_has_a_calibrator_of_its_own(method, table, tmp_path):
    options = {"target": ["wet", "cold"], "drop": ["kind"]}
    result = runs.run(experiment(table, method, **options), tmp_path / "run", progress=False)
    logits, labels = Run(result.out).predictions("val")
    bundle = vicinal.load(result.out)
    assert bundle.is_multilabel
    columns = []
    for k, name in enumerate(bundle.classes):
        again = vicinal.calibrate(labels[:, k], logits=two_logits(logits[:, k]), method=method).calibrator
        assert again.state_dict() == bundle.calibrators.by_head[name].state_dict()
        columns.append(again.predict_proba(two_logits(logits[:, k].double()))[:, 1])
        assert any(note.startswith(f"calibrator of {name!r} on the validation set") for note in result.facts["notes"])
    torch.testing.assert_close(bundle.calibrated(logits), torch.stack(columns, dim=1))
    assert Run(result.out).is_multilabel
    assert Run(result.out).result().head("wet").calibrators.text() == bundle.calibrators.text("wet")
    frame = pd.read_csv(table)
    np.testing.assert_array_equal(bundle.predict(frame), bundle.predict_proba(frame) > 0.5)


def test_the_command_trains_reports_predicts_and_evaluates(table, tmp_path):
    run, page = tmp_path / "run", tmp_path / "page.html"
    words = ("train", table, "--target", "kind", "--drop", "wet", "--drop", "cold", "--epochs", 1, "--model", "mlp")
    said = command(*words, "--calibrate", "svs", "--out", run, "--report", page).out
    assert "ERM" in said or "Mixup" in said
    assert ": svs" in said
    assert "svs, as asked" in page.read_text()
    assert "3 classes, svs" in command("predict", run, table, "--out", tmp_path / "out.csv").out
    result = command("evaluate", run, "--json").events("result")[0]
    assert result["calibrators"][ONLY_HEAD]["calibrator"] == "StructuredVectorScaling"
    logits, labels = Run(run).predictions("test")
    measured = command("evaluate", run, "--parts", "--json").events("result")[0]["parts"]
    parts = loss_parts(labels, logits=logits)
    assert measured["nll"]["refinement"]["value"] == pytest.approx(parts["nll"].refinement.value)
    assert measured["brier"]["calibration"]["low"] == pytest.approx(parts["brier"].calibration.low)
    assert "--calibrate svs" in Run(run).result().experiment.command()
    assert "--calibrate must be one of 'auto', 'none', 'temperature'" in refused(*words, "--calibrate", "platt")
    assert "--temperature grid" in refused(*words, "--calibrate", "sms", "--temperature", "grid")


@pytest.mark.slow
def test_the_command_exports_and_shows_parts(table, tmp_path):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    words = ("train", table, "--target", "kind", "--drop", "wet", "--drop", "cold", "--epochs", 1, "--model", "mlp")
    command(*words, "--calibrate", "svs", "--out", tmp_path / "run")
    assert "refinement" in command("evaluate", tmp_path / "run", "--parts").out
    assert "differ by" in command("export", tmp_path / "run", "--out", tmp_path / "model.onnx").out
    command(*words, "--calibrate", "isotonic", "--out", tmp_path / "another")
    assert "differ by" in command("export", tmp_path / "another", "--out", tmp_path / "another.onnx").out
    command(*words, "--calibrate", "beta", "--out", tmp_path / "other")
    error = refused("export", tmp_path / "other", "--out", tmp_path / "none.onnx")
    assert "BetaCalibration cannot be written as ONNX: train with --calibrate auto, temperature, svs," in error
    assert not (tmp_path / "none.onnx").exists()


@pytest.mark.parametrize("name", ["temperature", "svs", "sms", "vector", "quadratic", "isotonic", "mixture"])
@pytest.mark.parametrize("k", [2, 4])
def test_a_calibrator_in_torch_is_the_one_in_numpy(name, k):
    generator = np.random.default_rng(1)
    logits = 3 * generator.normal(size=(500, k))
    labels = (logits / 2 + np.arange(k) + generator.gumbel(size=logits.shape)).argmax(axis=1)
    mixture = partial(MixtureCalibration, members=("none", "quadratic", "isotonic"), shares=(0.2, 0.5, 0.3))
    calibrator: Calibrator = {**CALIBRATORS, "mixture": mixture}[name]().fit(logits, labels)
    beyond = 2 * logits  # also outside of what was seen
    got = _in_torch(calibrator)(torch.tensor(beyond, dtype=torch.float32)).softmax(dim=1)
    np.testing.assert_allclose(got.numpy(), calibrator.predict_proba(beyond), atol=2e-6)


def test_calibrators_survive_json():
    generator = np.random.default_rng(2)
    logits, labels = generator.normal(size=(200, 2)), generator.integers(2, size=200)
    made = HeadCalibrators(
        {"a": CALIBRATORS["beta"]().fit(logits, labels), "b": CALIBRATORS["temperature"]().fit(logits, labels)}
    )
    again = HeadCalibrators.from_dict(json.loads(json.dumps(made.to_dict())))
    z = torch.tensor(logits)
    assert torch.equal(again(z), made(z))
    assert (again.text("a"), again.is_multilabel, again.only_temperatures) == ("beta", True, False)
