from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from vicinal import evaluate, plots  # noqa: E402
from vicinal.metrics import Estimate, ReliabilityTable, Tally, max_probability, ood_report, risk_coverage  # noqa: E402
from vicinal.metrics.smooth import smooth_ece_of  # noqa: E402
from vicinal.papers.toy_points import spirals  # noqa: E402
from vicinal.probes import between_samples  # noqa: E402


def data(n=2_000, k=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, k, generator=generator)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator)[:, 0]
    return logits, labels


LOGITS, LABELS = data()
TABLE = ReliabilityTable.from_logits(LABELS, LOGITS, n_bins=12)
CURVE = risk_coverage(max_probability(LOGITS), LOGITS.argmax(1) == LABELS)
OOD = ood_report(max_probability(LOGITS), max_probability(LOGITS[:700] / 3), n_bins=20)

POINTS, ARMS = spirals(60, n_classes=3, generator=torch.Generator().manual_seed(0))


class Plane(torch.nn.Sequential):
    """A classifier of the plane that changes when it is not in eval mode."""

    def __init__(self, n_classes=3):
        torch.manual_seed(0)
        super().__init__(torch.nn.Linear(2, 9), torch.nn.BatchNorm1d(9), torch.nn.ReLU(), torch.nn.Linear(9, n_classes))


def curves(**kw):
    return between_samples(Plane(), (POINTS, ARMS), pairs=20, generator=torch.Generator().manual_seed(0), **kw)


CURVES = {"ERM": curves(), "Mixup": curves(lambdas=[-1, 0, 1, 2])}

EVALUATION = evaluate(LABELS, logits=LOGITS)
EPOCHS = {
    name: {1: evaluate(LABELS, logits=LOGITS / 4), 5: evaluate(LABELS, logits=scale * LOGITS), extra: EVALUATION}
    for name, scale, extra in (("ERM", 2, 7), ("Mixup", 0.5, 9))
}
ESTIMATES = {
    "digits": {"ERM": Estimate(0.06, 0.05, 0.08), "Mixup": Estimate(0.02, 0.01, 0.04)},
    "wine": {"Mixup": 0.05},
}
SWEEP = {"ECE": {0.2: Estimate(0.02, 0.01, 0.04), 0: 0.06, math.inf: 0.1}, "OE": {0.2: 0.01, 32: 0.0}}
HISTORIES = {
    "ERM": [{"epoch": e, "step": 10 * e, "loss": 1 / e, "val_nll": 2.0 / e} for e in (1.0, 2.0, 3.0)],
    "Mixup": [
        [{"epoch": e, "step": 10 * e, "val_nll": seed + e} for e in epochs]
        for seed, epochs in ((0, (1.0, 2.0, 3.0)), (2, (2.0, 3.0, 4.0)))
    ],
}

FINE = ReliabilityTable.from_logits(LABELS, LOGITS, n_bins=1_000)

#: Plots of several panels, and how many they have; these take and return `axes`.
PANELS = {
    "decision_boundaries": (
        lambda **kw: plots.decision_boundaries({"A": Plane(), "B": Plane()}, POINTS, ARMS, **kw),
        2,
    ),
    "accuracy_confidence_rows": (lambda **kw: plots.accuracy_confidence_rows(EPOCHS, **kw), 4),
}

PLOTS = {
    "reliability_diagram": lambda **kw: plots.reliability_diagram(TABLE, **kw),
    "confidence_histogram": lambda **kw: plots.confidence_histogram(TABLE, **kw),
    "accuracy_confidence_density": lambda **kw: plots.accuracy_confidence_density(EVALUATION, **kw),
    "accuracy_confidence_scatter": lambda **kw: plots.accuracy_confidence_scatter(TABLE, **kw),
    "confidence_histograms": lambda **kw: plots.confidence_histograms({"a": max_probability(LOGITS)}, **kw),
    "method_bars": lambda **kw: plots.method_bars(ESTIMATES, name="ECE", **kw),
    "alpha_sweep": lambda **kw: plots.alpha_sweep(SWEEP, name="ECE", **kw),
    "training_curves": lambda **kw: plots.training_curves(HISTORIES, **kw),
    "between_curves": lambda **kw: plots.between_curves(CURVES, **kw),
    "risk_coverage_curve": lambda **kw: plots.risk_coverage_curve(CURVE, **kw),
    "score_histogram": lambda **kw: plots.score_histogram(OOD, **kw),
    "smooth_diagram": lambda **kw: plots.smooth_diagram(FINE, **kw),
}
each = pytest.mark.parametrize("draw", PLOTS.values(), ids=PLOTS)


@pytest.fixture(autouse=True)
def no_figure_is_left():
    before = plt.get_fignums()
    yield
    left = set(plt.get_fignums()) - set(before)
    plt.close("all")
    assert not left, "a figure leaked"


def texts(ax):
    legend = ax.get_legend()
    return " | ".join(t.get_text() for t in [*ax.texts, *(legend.get_texts() if legend else [])])


def test_every_public_figure_is_tested():
    assert set(PLOTS) | set(PANELS) == set(plots.__all__)


@each
def test_a_new_figure_is_pyplots_and_the_callers_to_close(draw, tmp_path):
    ax = draw()
    assert plt.fignum_exists(ax.figure.number)
    path = tmp_path / "figure.png"
    ax.figure.savefig(path)
    assert path.stat().st_size > 5_000
    plt.close(ax.figure)


@each
def test_given_axes_are_used_and_returned_and_no_figure_is_made(draw):
    figure = matplotlib.figure.Figure()
    left, right = figure.subplots(1, 2)
    before = plt.get_fignums()
    assert draw(ax=right) is right
    assert plt.get_fignums() == before
    assert not left.has_data()
    assert right.has_data()
    assert right.get_xlabel() or draw is PLOTS["method_bars"]  # whose groups are named below it
    assert right.get_ylabel()


@each
def test_global_style_is_untouched(draw):
    before = dict(matplotlib.rcParams)
    plt.close(draw().figure)
    assert dict(matplotlib.rcParams) == before


@each
def test_it_draws_to_vector_formats(draw, tmp_path):
    ax = draw()
    for suffix, start in (("pdf", b"%PDF-"), ("svg", b"<?xml")):
        ax.figure.savefig(tmp_path / f"figure.{suffix}")
        drawn = (tmp_path / f"figure.{suffix}").read_bytes()
        assert drawn.startswith(start)
        assert len(drawn) > 5_000
    assert b"<image" not in drawn  # lines and shapes, not a picture of them
    plt.close(ax.figure)


def test_importing_plots_does_not_import_matplotlib():
    code = "import sys, vicinal.plots; print('matplotlib' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "False"
    )


def test_without_matplotlib_the_error_names_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'vicinal\[train\]'"):
        plots.reliability_diagram(TABLE)


def test_the_diagram_prints_ece_with_its_number_of_bins_and_the_samples():
    ax = plots.reliability_diagram(TABLE)
    assert f"ECE {100 * TABLE.ece():.2f} % (12 bins)" in texts(ax)
    assert "n = 2,000" in texts(ax)
    assert "95 % interval" in texts(ax)
    plt.close(ax.figure)


def test_the_bars_are_the_accuracies_and_the_gaps_end_at_the_mean_confidences():
    confidence, predicted = LOGITS.double().softmax(1).max(1)
    right = (predicted == LABELS).double()
    ax = plots.reliability_diagram(TABLE, level=0)
    accuracy_bars, gap_bars = ax.containers
    for bar, gap in zip(accuracy_bars, gap_bars, strict=True):
        low, high = bar.get_x(), bar.get_x() + bar.get_width()
        inside = (confidence > low) & (confidence <= high + 1e-12)
        assert bar.get_height() == pytest.approx(right[inside].mean().item(), abs=1e-6)
        assert gap.get_y() + gap.get_height() == pytest.approx(confidence[inside].mean().item(), abs=1e-6)
    plt.close(ax.figure)


def test_counts_and_intervals_can_be_left_out():
    with_counts, without = (
        plots.reliability_diagram(TABLE),
        plots.reliability_diagram(TABLE, counts=False, level=0),
    )
    assert len(with_counts.child_axes) == 1
    assert not without.child_axes
    assert "interval" not in texts(without)
    shares = [bar.get_height() for bar in with_counts.child_axes[0].patches]
    assert sum(shares) == pytest.approx(1)
    plt.close(with_counts.figure)
    plt.close(without.figure)


def test_the_band_is_clopper_and_pearsons_interval():
    ax = plots.reliability_diagram(TABLE, level=0.9)
    held = [(int(c), round(a * c)) for c, a in zip(TABLE.bin_count, TABLE.bin_accuracy, strict=True) if c]
    for bar, (n, hits) in zip(ax.containers[2], held, strict=True):
        expected = binomtest(hits, n).proportion_ci(0.9, method="exact")
        assert bar.get_y() == pytest.approx(expected.low, abs=1e-9)
        assert bar.get_y() + bar.get_height() == pytest.approx(expected.high, abs=1e-9)
    plt.close(ax.figure)


def test_an_empty_table_is_refused():
    with pytest.raises(ValueError, match="table is empty"):
        plots.reliability_diagram(ReliabilityTable())


def test_equal_mass_tables_are_drawn():
    """Each bar is as wide as its bin; the area of the histogram is one, as the bins differ in width."""
    table = ReliabilityTable.from_logits(LABELS, LOGITS, n_bins=8, equal_mass=True)
    diagram, histogram = plots.reliability_diagram(table), plots.confidence_histogram(table)
    assert [bar.get_width() for bar in diagram.containers[0]] == pytest.approx(np.diff(table.edges))
    assert histogram.get_ylabel() == "density"
    assert sum(bar.get_height() * bar.get_width() for bar in histogram.patches) == pytest.approx(1)
    for ax in (diagram, histogram):
        plt.close(ax.figure)


def test_one_sample_is_drawn():
    table = ReliabilityTable.from_logits(LABELS[:1], LOGITS[:1])
    diagram, histogram = plots.reliability_diagram(table), plots.confidence_histogram(table)
    right = float(LOGITS[0].argmax() == LABELS[0])
    assert [bar.get_height() for bar in diagram.containers[0]] == [right]
    assert "n = 1" in texts(diagram)
    assert sorted(bar.get_height() for bar in histogram.patches)[-2:] == [0, 1]
    for ax in (diagram, histogram):
        plt.close(ax.figure)


def test_the_histogram_states_accuracy_and_mean_confidence():
    confidence, predicted = LOGITS.softmax(1).max(1)
    ax = plots.confidence_histogram(TABLE)
    assert f"accuracy {100 * (predicted == LABELS).double().mean():.1f} %" in texts(ax)
    assert f"mean confidence {100 * confidence.mean():.1f} %" in texts(ax)
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(1)
    plt.close(ax.figure)


def test_groups_are_strided_and_their_means_those_of_loops():
    accuracy, confidence = plots.group_means("", evaluate(LABELS[:103], logits=LOGITS[:103]), 10)
    assert len(accuracy) == len(confidence) == 10
    probs = LOGITS.double().softmax(1)
    for g in range(10):
        rows = list(range(g, 100, 10))
        assert accuracy[g] == pytest.approx(np.mean([int(probs[i].argmax() == LABELS[i]) for i in rows]))
        assert confidence[g] == pytest.approx(np.mean([probs[i].max().item() for i in rows]))
    again = plots.group_means("", evaluate(LABELS[:103].numpy(), probs=probs[:103].numpy()), 10)
    np.testing.assert_allclose(again[1], confidence)


def test_density_levels_hold_their_share():
    density = np.random.default_rng(0).random((50, 50))
    for level, mass in zip(plots._mass_levels(density, (0.8, 0.5, 0.2)), (0.8, 0.5, 0.2), strict=True):
        assert density[density >= level].sum() / density.sum() == pytest.approx(mass, abs=1e-3)


def test_the_density_of_equal_groups_is_drawn():
    logits, labels = torch.tensor([[2.0, 0.0]]).repeat(100, 1), torch.zeros(100, dtype=torch.int64)
    ax = plots.accuracy_confidence_density(evaluate(labels, logits=logits), group_size=10)
    confidence = float(logits[0].softmax(0)[0])
    assert "accuracy 100.0 %" in texts(ax)
    assert ax.lines[-1].get_xydata()[0] == pytest.approx([confidence, 1])
    outline = np.concatenate([path.vertices for path in ax.collections[0].get_paths()])
    assert np.abs(outline - [confidence, 1]).max() < 0.02  # all there is lies around the one point
    plt.close(ax.figure)


@pytest.mark.parametrize(
    ("draw", "match"),
    [
        (lambda: plots.reliability_diagram(TABLE, level=2), "level must be"),
        (lambda: plots.reliability_diagram(LOGITS), "table must be an Evaluation or a ReliabilityTable, got Tensor"),
        (lambda: plots.confidence_histogram(None), "table must be an Evaluation or a ReliabilityTable, got NoneType"),
        (
            lambda: plots.accuracy_confidence_density(LABELS),
            "evaluation must be an Evaluation, .*got Tensor",
        ),
        (
            lambda: plots.accuracy_confidence_density(Tally().update(LABELS, logits=LOGITS).evaluation()),
            "evaluation must keep its samples",
        ),
        (lambda: plots.accuracy_confidence_density(EVALUATION, group_size=0), "group_size"),
        (lambda: plots.accuracy_confidence_density(EVALUATION, group_size=1500), "at least 2 groups"),
        (lambda: plots.method_bars({"a": {"ERM": EVALUATION}}, name="ECE"), "name must be one of .*ece"),
        (lambda: plots.decision_boundaries({}, POINTS, ARMS), "there are no models"),
        (lambda: plots.decision_boundaries({"A": Plane()}, POINTS[:, :1], ARMS), r"points must have shape \[N, 2\]"),
        (lambda: plots.decision_boundaries({"A": Plane()}, POINTS[1:], ARMS), "as many labels"),
        (lambda: plots.decision_boundaries({"A": Plane(1)}, POINTS, ARMS), "K of at least 2"),
        (lambda: plots.decision_boundaries({"A": Plane()}, POINTS, ARMS, axes=[1, 2]), "axes must be as many"),
        (lambda: plots.between_curves({}), "curves is empty"),
        (lambda: plots.between_curves(CURVES, what="loss"), "what must be one of"),
        (lambda: plots.between_curves({"A": curves(gradient="none")}, what="gradient_norm"), "no gradient norm"),
        (
            lambda: plots.risk_coverage_curve(TABLE),
            "curve must be an Evaluation or a RiskCoverage, .*got ReliabilityTable",
        ),
        (lambda: plots.risk_coverage_curve({}), "curve is empty"),
        (
            lambda: plots.risk_coverage_curve({"a": None}),
            "curve must be an Evaluation or a RiskCoverage, .*got NoneType",
        ),
        (lambda: plots.risk_coverage_curve(CURVE, level=2), "level must be"),
        (lambda: plots.accuracy_confidence_scatter({}), "tables is empty"),
        (
            lambda: plots.accuracy_confidence_scatter({"a": CURVE}),
            "tables must be an Evaluation or a ReliabilityTable",
        ),
        (lambda: plots.accuracy_confidence_rows({}), "evaluations is empty"),
        (
            lambda: plots.accuracy_confidence_rows({"a": EPOCHS["ERM"], "b": {3: EVALUATION}}),
            "no epoch in common",
        ),
        (lambda: plots.accuracy_confidence_rows({"a": TABLE}), "evaluations must be a mapping from epochs"),
        (lambda: plots.confidence_histograms({}), "confidences is empty"),
        (lambda: plots.confidence_histograms([0.5]), "confidences must be a mapping from names, got list"),
        (lambda: plots.confidence_histograms({"a": LOGITS}), r"probabilities \[N\] for each model, got 'a'"),
        (lambda: plots.confidence_histograms({"a": [1.5]}), r"probabilities \[N\] for each model, got 'a'"),
        (lambda: plots.method_bars({}, name="ECE"), "estimates is empty"),
        (lambda: plots.method_bars({"a": {}}, name="ECE"), "estimates is empty"),
        (lambda: plots.method_bars({"a": {"b": "0.1"}}, name="ECE"), "estimates must be a finite number, got '0.1'"),
        (lambda: plots.alpha_sweep({"a": {-1: 0.1}}, name="ECE"), "alpha must be a number of at least 0 or inf"),
        (lambda: plots.alpha_sweep({"a": 0.1}, name="ECE"), "estimates must be a mapping from alpha"),
        (lambda: plots.training_curves(HISTORIES, by="time"), "by must be one of 'epoch', 'step'"),
        (lambda: plots.training_curves(HISTORIES, name="loss"), "name must be an entry that the runs 'Mixup' share"),
        (lambda: plots.training_curves({"a": []}), "name must be an entry"),
        (lambda: plots.score_histogram(CURVE), "report must be an OODReport, got RiskCoverage"),
    ],
)
def test_bad_input_is_refused_before_a_figure_is_made(draw, match):
    with pytest.raises((ValueError, TypeError), match=match):
        draw()
    assert not plt.get_fignums()


def test_the_area_under_the_drawn_curve_is_aurc():
    small = risk_coverage([0.9, 0.8, 0.8, 0.6], [True, True, False, False])
    for curve, tolerance in (
        (small, 1e-12),
        (CURVE, 1e-12),
        (risk_coverage(np.arange(9_000), np.arange(9_000) % 7 > 0), 1e-3),
    ):
        ax = plots.risk_coverage_curve(curve)
        steps = ax.patches[0].get_data()
        assert steps.values @ np.diff(steps.edges) == pytest.approx(curve.aurc, abs=tolerance)
        assert len(steps.values) <= 2_000
        assert steps.edges[-1] == 1
        best = ax.lines[0].get_ydata()
        assert best[-1] == pytest.approx(curve.risk[-1])
        assert f"AURC {curve.aurc_estimate()}" in texts(ax)
        assert f"excess {curve.excess_aurc:.4f}" in texts(ax)
        plt.close(ax.figure)


def test_several_curves_are_named_and_one_without_errors_is_drawn():
    right = risk_coverage([0.9, 0.8], [True, True])
    ax = plots.risk_coverage_curve({"ours": CURVE, "theirs": right}, level=0)
    assert texts(ax) == f"ours: AURC {CURVE.aurc:.4f} | theirs: AURC 0.0000"
    assert not ax.lines
    plt.close(ax.figure)
    plt.close(plots.risk_coverage_curve(right).figure)


def test_the_score_histogram_shows_shares_and_the_figures():
    ax = plots.score_histogram(OOD)
    for filled, counts in zip(ax.patches[::2], (OOD.in_counts, OOD.out_counts), strict=True):
        np.testing.assert_allclose(filled.get_data().values, counts / counts.sum())
    assert f"AUROC {OOD.auroc}" in texts(ax)
    assert "FPR at 95 % TPR" in texts(ax)
    assert "in-distribution (2,000) | out-of-distribution (700)" in texts(ax)
    plt.close(ax.figure)
    plt.close(plots.score_histogram(ood_report([1.0], [1.0])).figure)


@pytest.mark.parametrize(("draw", "n"), PANELS.values(), ids=PANELS)
def test_figures_of_panels_draw_on_the_axes_given_or_on_a_new_figure(draw, n, tmp_path):
    made = np.array(draw()).reshape(-1)
    assert len(made) == n
    assert plt.fignum_exists(made[0].figure.number)
    made[0].figure.savefig(tmp_path / "figure.svg")
    plt.close(made[0].figure)
    figure = matplotlib.figure.Figure()
    rows = figure.subplots(2, n // 2, squeeze=False)
    assert np.array(draw(axes=rows)).reshape(-1).tolist() == rows.reshape(-1).tolist()
    assert all(ax.has_data() for ax in rows.flat)
    assert not plt.get_fignums()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_shading_is_what_the_model_predicts_and_the_model_is_left_alone(n_classes):
    model = Plane(n_classes).train()
    model[1].eval()
    before, random = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    figure = matplotlib.figure.Figure()
    (ax,) = plots.decision_boundaries({"A": model}, POINTS, ARMS % n_classes, resolution=23, axes=[figure.subplots()])
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert [m.training for m in model] == [True, False, True, True]
    image = ax.images[0]
    left, right, bottom, top = image.get_extent()
    model.eval()
    colours = np.array([matplotlib.colors.to_rgb(c) for c in ("#0072B2", "#D55E00", "#009E73")])
    for row, column in ((0, 0), (22, 3), (7, 22)):
        x = torch.tensor([[left + (right - left) * column / 22, bottom + (top - bottom) * row / 22]])
        probs = model(x).softmax(1)[0].detach().numpy()
        sure = (probs.max() - 1 / n_classes) / (1 - 1 / n_classes)
        expected = 1 - 0.55 * sure * (1 - colours[probs.argmax()])
        np.testing.assert_allclose(image.get_array()[row, column], expected, atol=1e-4)
    assert ax.get_title() == "A"


def test_the_curves_are_drawn_with_their_intervals():
    for what in ("misses", "gradient_norm", "mean_confidence"):
        ax = plots.between_curves(CURVES, what=what)
        drawn = {line.get_label(): line for line in ax.lines}
        for name, held in CURVES.items():
            np.testing.assert_allclose(drawn[name].get_ydata(), getattr(held, what).value)
        assert sum(line.get_xdata() in ([0, 0], [1, 1]) for line in ax.lines if len(line.get_xdata()) == 2) == 2
        plt.close(ax.figure)


def test_each_point_of_the_scatter_is_a_bin():
    other = ReliabilityTable.from_logits(LABELS, 2 * LOGITS, n_bins=100)
    ax = plots.accuracy_confidence_scatter({"ours": TABLE, "theirs": other})
    for points, table in zip(ax.collections, (TABLE, other), strict=True):
        filled = table.bin_count > 0
        places = np.stack([table.bin_confidence[filled], table.bin_accuracy[filled]], axis=1)
        np.testing.assert_allclose(points.get_offsets(), places)
        shares = (points.get_sizes() - 4) / (points.get_sizes() - 4).sum()
        np.testing.assert_allclose(shares, table.bin_count[filled] / table.n)
    assert f"theirs: ECE {100 * other.ece():.2f} % (100 bins)" in texts(ax)
    plt.close(ax.figure)


def test_histograms_of_several_models_hold_shares_of_all_samples():
    scores = {"ERM": [0.05, 0.95, 1.0, 0.0], "Mixup": max_probability(LOGITS[:300])}
    ax = plots.confidence_histograms(scores, n_bins=10)
    filled = [patch.get_data() for patch in ax.patches[::2]]
    assert filled[0].values.tolist() == [0.5, *[0] * 8, 0.5]
    assert [values.values.sum() for values in filled] == pytest.approx([1, 1])
    assert filled[0].edges == pytest.approx(np.linspace(0, 1, 11))
    assert "ERM: mean 50.0 % | Mixup: mean" in texts(ax)
    plt.close(ax.figure)


@pytest.mark.parametrize("draw", [plots.method_bars, plots.alpha_sweep])
def test_bars_and_sweeps_take_the_metric_of_evaluations(draw):
    drawn = draw({"toy": {0.5: EVALUATION}}, name="ece")
    wanted = draw({"toy": {0.5: EVALUATION.ece}}, name="ECE (15 bins)", percent=True)
    assert drawn.get_ylabel() == wanted.get_ylabel() == "ECE (15 bins)"
    assert drawn.get_ylim() == wanted.get_ylim()
    assert drawn.yaxis.get_major_formatter()(0.5) == wanted.yaxis.get_major_formatter()(0.5)
    plt.close(drawn.figure)
    plt.close(wanted.figure)


def test_bars_stand_in_groups_with_their_intervals():
    ax = plots.method_bars(ESTIMATES, name="ECE", percent=True)
    bars, intervals = ax.containers[::2], ax.containers[1::2]
    assert [bar.get_label() for bar in bars] == ["ERM", "Mixup"]
    assert [[patch.get_height() for patch in bar] for bar in bars] == [[0.06], [0.02, 0.05]]
    places = [[patch.get_x() + patch.get_width() / 2 for patch in bar] for bar in bars]
    assert places == [pytest.approx([-0.2]), pytest.approx([0.2, 1.2])]  # wine has no ERM, and leaves its place free
    ends = [segment[:, 1].tolist() for bar in intervals for segment in bar[2][0].get_segments()]
    assert np.array(ends) == pytest.approx(np.array([[0.05, 0.08], [0.01, 0.04], [0.05, 0.05]]))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["digits", "wine"]
    assert ax.get_ylabel() == "ECE"
    assert ax.yaxis.get_major_formatter()(0.02, 0) == "2 %"
    plt.close(ax.figure)


def test_a_sweep_puts_every_alpha_in_order():
    ax = plots.alpha_sweep(SWEEP, name="error")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "0.2", "32", "inf"]
    lines = {container.get_label(): container for container in ax.containers}
    assert lines["ECE"][0].get_xydata().tolist() == [[0, 0.06], [1, 0.02], [3, 0.1]]
    assert lines["OE"][0].get_xydata().tolist() == [[1, 0.01], [2, 0.0]]
    assert lines["ECE"][2][0].get_segments()[1][:, 1] == pytest.approx([0.01, 0.04])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("α", "error")
    plt.close(ax.figure)


def test_curves_of_several_runs_and_the_mean_over_seeds():
    ax = plots.training_curves(HISTORIES)
    erm, mixup = ax.lines
    assert erm.get_xydata().tolist() == [[1, 2.0], [2, 1.0], [3, pytest.approx(2 / 3)]]
    assert mixup.get_xydata().tolist() == [[2, 3.0], [3, 4.0]]  # where both seeds were measured: the mean
    band = ax.collections[0].get_paths()[0].vertices
    assert band[band[:, 0] == 2, 1].min() == 2
    assert band[band[:, 0] == 2, 1].max() == 4
    assert texts(ax) == "ERM | Mixup (2 seeds)"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "nll")
    by_step = plots.training_curves({"ERM": HISTORIES["ERM"]}, name="loss", by="step", log=True, ax=ax)
    assert by_step.lines[-1].get_xdata().tolist() == [10, 20, 30]
    assert ax.get_yscale() == "log"
    plt.close(ax.figure)


def test_rows_of_densities_are_models_by_the_epochs_that_all_have():
    rows = plots.accuracy_confidence_rows(EPOCHS, group_size=50)
    assert [ax.get_title() for ax in rows[0]] == ["epoch 1", "epoch 5"]
    assert [row[0].get_ylabel() for row in rows] == ["ERM\naccuracy", "Mixup\naccuracy"]
    assert len({ax.get_xlim() for row in rows for ax in row}) == 1
    for row, run in zip(rows, EPOCHS.values(), strict=True):
        for ax, epoch in zip(row, (1, 5), strict=True):
            accuracy, confidence = plots.group_means("run", run[epoch], 50)
            assert ax.lines[-1].get_xydata()[0] == pytest.approx([confidence.mean(), accuracy.mean()])
    plt.close(rows[0][0].figure)


def test_the_smooth_diagram_prints_smooth_ece_with_its_interval():
    ax = plots.smooth_diagram(FINE)
    estimate = smooth_ece_of(FINE)
    assert f"smooth ECE {100 * estimate.value:.2f} %" in texts(ax)
    assert f"{100 * estimate.low:.2f} to {100 * estimate.high:.2f} %" in texts(ax)
    assert not any(
        "interval" in text.get_text() for text in plots.smooth_diagram(FINE, level=0).get_legend().get_texts()
    )
    plt.close("all")
