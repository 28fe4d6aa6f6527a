"""Small things that people try first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import vicinal
from vicinal import Mixup, evaluate, plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vicinal.metrics import Evaluation

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.6, 0.3, 0.1]])
LABELS = [0, 1, 2, 1]


def test_an_estimate_formats_as_its_value() -> None:
    found = evaluate(LABELS, probs=PROBS)
    assert f"{found.ece:.3f}" == f"{found.ece.value:.3f}"
    assert f"{found.ece}" == str(found.ece)


def test_labels_may_be_names() -> None:
    wanted = evaluate(LABELS, probs=PROBS)
    names = np.array(["a", "b", "c"])[LABELS]
    assert evaluate(names, probs=PROBS).metrics == wanted.metrics  # sorted, as scikit-learn's classes_
    assert evaluate(list(names), probs=PROBS[:, ::-1], classes=["c", "b", "a"]).metrics == wanted.metrics
    assert evaluate([10, 20, 30, 20], probs=PROBS, classes=[10, 20, 30]).metrics == wanted.metrics
    with pytest.raises(ValueError, match="3 columns of the scores, 2: a, b; pass classes="):
        evaluate(["a", "b", "b", "a"], probs=PROBS)
    with pytest.raises(ValueError, match="labels must be one of the classes a, b, d, got 'c'"):
        evaluate(names, probs=PROBS, classes=["a", "b", "d"])


def test_two_classes_need_one_column() -> None:
    p, y = np.array([0.9, 0.2, 0.6]), [1, 0, 0]
    assert evaluate(y, probs=p).metrics == evaluate(y, probs=np.c_[1 - p, p]).metrics
    z = np.array([2.0, -1.0, 0.5])
    assert evaluate(y, logits=z).metrics == evaluate(y, logits=np.c_[np.zeros(3), z]).metrics


def test_calibrate_takes_what_evaluate_takes() -> None:
    p, y = np.tile([0.9, 0.2, 0.6, 0.3], 10), np.tile([1, 0, 0, 1], 10)
    wanted = vicinal.calibrate(y, probs=np.c_[1 - p, p], method="temperature")
    for labels, probs in ((y, p), (np.array(["no", "yes"])[y], p), (np.array(["no", "yes"])[y], np.c_[1 - p, p])):
        found = vicinal.calibrate(labels, probs=probs, method="temperature")
        assert found.calibrator.temperature_ == pytest.approx(wanted.calibrator.temperature_)
        np.testing.assert_allclose(found.predict_proba(probs=probs), wanted.predict_proba(probs=np.c_[1 - p, p]))


def test_label_issues_takes_what_evaluate_takes() -> None:
    p, y = np.array([0.01] * 80 + [0.99] * 120), np.array([0] * 100 + [1] * 100)
    wanted = vicinal.probes.label_issues(y, probs=np.c_[1 - p, p]).ranking
    for labels, probs in ((y, p), (np.array(["no", "yes"])[y], p), (np.array(["no", "yes"])[y], np.c_[1 - p, p])):
        assert vicinal.probes.label_issues(labels, probs=probs).ranking.equal(wanted)


def test_calls_in_the_wrong_shape_get_a_hint() -> None:
    with pytest.raises(TypeError, match=r"evaluate\(labels, probs=…\)"):
        evaluate(LABELS, PROBS)
    model, x, y = torch.nn.Linear(2, 2), torch.randn(4, 2), torch.tensor([0, 1, 0, 1])
    for wrong in (lambda: Mixup(alpha=0.2)(model(x), y), lambda: Mixup(alpha=0.2)(model(x), x, y)):
        with pytest.raises(TypeError, match=r"pass the model, not its output: objective\(model, x, y\)"):
            wrong()
    with pytest.raises(TypeError, match=r"pass the model, the inputs and the labels: objective\(model, x, y\)"):
        Mixup(alpha=0.2)(model, x)


@pytest.mark.parametrize(
    "draw",
    [
        plots.reliability_diagram,
        plots.confidence_histogram,
        plots.smooth_diagram,
        plots.accuracy_confidence_scatter,
        plots.risk_coverage_curve,
        lambda one: plots.accuracy_confidence_density(one, group_size=2),
        lambda one: plots.accuracy_confidence_rows({"a": {1: one}}, group_size=2)[0][0],
        lambda one: plots.confidence_histograms({"a": one}),
        lambda one: plots.method_bars({"a": {"b": one}}, name="nll"),
        lambda one: plots.alpha_sweep({"a": {0.2: one}}, name="nll"),
    ],
)
def test_plots_take_an_evaluation(draw: Callable[[Evaluation], Axes]) -> None:
    ax = draw(evaluate(LABELS, probs=PROBS))
    assert ax.has_data()
    plt.close(ax.figure)


def test_modules_are_attributes() -> None:
    assert callable(vicinal.training.fit)
    assert callable(vicinal.report.write_run)
    assert callable(vicinal.runs.run)
    assert vicinal.integrations.__name__ == "vicinal.integrations"


def test_an_installed_package_adds_a_method(tmp_path: Path) -> None:
    """A package of one module with an entry point: found by `parse` and `vicinal methods` in a process of its own."""
    (tmp_path / "own_method.py").write_text(
        "from dataclasses import dataclass\nfrom vicinal import ERM\n\n\n"
        '@dataclass(frozen=True, kw_only=True)\nclass OwnMethod(ERM):\n    """Plain training under another name."""\n'
    )
    info = tmp_path / "own_method-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-method\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[vicinal.objectives]\nOwnMethod = own_method:OwnMethod\nMixup = own_method:OwnMethod\n"
    )
    code = (
        "from vicinal.expressions import parse\n"
        "own = parse('Warmup(OwnMethod(label_smoothing=0.1), epochs=1)')\n"
        "assert parse(repr(own)) == own, own\n"
        "assert type(parse('Mixup(alpha=1.0)')).__module__.startswith('vicinal.')\n"
        "import contextlib, sys\nfrom vicinal.cli import main\n"
        "for sys.argv in ['vicinal', 'methods'], ['vicinal', 'methods', 'OwnMethod']:\n"
        "    with contextlib.suppress(SystemExit):\n        main()\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "120"},
    )
    assert ran.stdout.count("Plain training under another name") == 2, ran.stdout + ran.stderr
