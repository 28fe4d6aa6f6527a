from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import beta, binomtest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from vicinal import plots  # noqa: E402
from vicinal.metrics import ReliabilityTable  # noqa: E402


def data(n=2_000, k=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, k, generator=generator)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator)[:, 0]
    return logits, labels


LOGITS, LABELS = data()
TABLE = ReliabilityTable.from_logits(LOGITS, LABELS, n_bins=12)

FIGURES = {
    "reliability_diagram": lambda **kw: plots.reliability_diagram(TABLE, **kw),
    "confidence_histogram": lambda **kw: plots.confidence_histogram(TABLE, **kw),
    "accuracy_confidence_density": lambda **kw: plots.accuracy_confidence_density(LABELS, logits=LOGITS, **kw),
    "label_entropy": lambda **kw: plots.label_entropy((0.2, 1.0), **kw),
}
each = pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)


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
    assert set(FIGURES) == set(plots.__all__)


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
    assert right.get_xlabel()
    assert right.get_ylabel()


@each
def test_global_style_is_untouched(draw):
    before = dict(matplotlib.rcParams)
    plt.close(draw().figure)
    assert dict(matplotlib.rcParams) == before


@each
def test_it_draws_to_vector_formats(draw, tmp_path):
    ax = draw()
    for suffix in ("pdf", "svg"):
        ax.figure.savefig(tmp_path / f"figure.{suffix}")
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
        plots.label_entropy(0.4)


def test_the_diagram_prints_ece_with_its_number_of_bins_and_the_samples():
    ax = plots.reliability_diagram(TABLE)
    assert f"ECE {100 * TABLE.ece():.2f} % (12 bins)" in texts(ax)
    assert "n = 2,000" in texts(ax)
    assert "95 % interval" in texts(ax)
    plt.close(ax.figure)


def test_the_bars_are_the_accuracies_and_the_gaps_end_at_the_mean_confidences():
    confidence, predicted = LOGITS.double().softmax(1).max(1)
    right = (predicted == LABELS).double()
    ax = plots.reliability_diagram(TABLE, confidence=0)
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
        plots.reliability_diagram(TABLE, counts=False, confidence=0),
    )
    assert len(with_counts.child_axes) == 1
    assert not without.child_axes
    assert "interval" not in texts(without)
    shares = [bar.get_height() for bar in with_counts.child_axes[0].patches]
    assert sum(shares) == pytest.approx(1)
    plt.close(with_counts.figure)
    plt.close(without.figure)


def test_the_band_is_wilsons_interval():
    ax = plots.reliability_diagram(TABLE, confidence=0.9)
    held = [(int(c), round(a * c)) for c, a in zip(TABLE.bin_count, TABLE.bin_accuracy, strict=True) if c]
    for bar, (n, hits) in zip(ax.containers[2], held, strict=True):
        expected = binomtest(hits, n).proportion_ci(0.9, method="wilson")
        assert bar.get_y() == pytest.approx(expected.low, abs=1e-9)
        assert bar.get_y() + bar.get_height() == pytest.approx(expected.high, abs=1e-9)
    plt.close(ax.figure)


def test_an_empty_table_is_refused():
    with pytest.raises(ValueError, match="table is empty"):
        plots.reliability_diagram(ReliabilityTable())


def test_equal_mass_tables_are_drawn():
    table = ReliabilityTable.from_logits(LOGITS, LABELS, n_bins=8, equal_mass=True)
    for draw in (plots.reliability_diagram, plots.confidence_histogram):
        plt.close(draw(table).figure)


def test_one_sample_is_drawn():
    table = ReliabilityTable.from_logits(LOGITS[:1], LABELS[:1])
    for draw in (plots.reliability_diagram, plots.confidence_histogram):
        plt.close(draw(table).figure)


def test_the_histogram_states_accuracy_and_mean_confidence():
    confidence, predicted = LOGITS.softmax(1).max(1)
    ax = plots.confidence_histogram(TABLE)
    assert f"accuracy {100 * (predicted == LABELS).double().mean():.1f} %" in texts(ax)
    assert f"mean confidence {100 * confidence.mean():.1f} %" in texts(ax)
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(1)
    plt.close(ax.figure)


def test_groups_are_strided_and_their_means_those_of_loops():
    accuracy, confidence = plots.group_means(LABELS[:103], logits=LOGITS[:103], group_size=10)
    assert len(accuracy) == len(confidence) == 10
    probs = LOGITS.double().softmax(1)
    for g in range(10):
        rows = list(range(g, 100, 10))
        assert accuracy[g] == pytest.approx(np.mean([int(probs[i].argmax() == LABELS[i]) for i in rows]))
        assert confidence[g] == pytest.approx(np.mean([probs[i].max().item() for i in rows]))
    again = plots.group_means(LABELS[:103].numpy(), probs=probs[:103].numpy(), group_size=10)
    np.testing.assert_allclose(again[1], confidence)


def test_density_levels_hold_their_share():
    density = np.random.default_rng(0).random((50, 50))
    for level, mass in zip(plots._mass_levels(density, (0.8, 0.5, 0.2)), (0.8, 0.5, 0.2), strict=True):
        assert density[density >= level].sum() / density.sum() == pytest.approx(mass, abs=1e-3)


def test_the_density_of_equal_groups_is_drawn():
    logits, labels = torch.tensor([[2.0, 0.0]]).repeat(100, 1), torch.zeros(100, dtype=torch.int64)
    plt.close(plots.accuracy_confidence_density(labels, logits=logits, group_size=10).figure)


@pytest.mark.parametrize("alpha", [0.1, 0.4, 1.0, 3.0])
def test_the_entropys_distribution_is_that_of_beta(alpha):
    def entropy(lam):
        return -lam * math.log(lam) - (1 - lam) * math.log1p(-lam)

    for h in (0.05, 0.3, 0.6, 0.69):
        from scipy.optimize import brentq

        edge = brentq(lambda lam, h=h: entropy(lam) - h, 1e-12, 0.5)
        middle = quad(beta(alpha, alpha).pdf, edge, 1 - edge)[0]
        assert plots.entropy_cdf(np.array([h]), alpha)[0] == pytest.approx(1 - middle, abs=1e-7)


@pytest.mark.parametrize("alpha", [0, 1e-3, 0.4, 32, math.inf])
def test_all_labels_are_counted(alpha):
    ax = plots.label_entropy(alpha, n_bins=17)
    assert sum(ax.patches[-1].get_data().values) == pytest.approx(1)
    assert texts(ax) == f"α = {alpha:g}"
    plt.close(ax.figure)


@pytest.mark.parametrize(
    ("draw", "match"),
    [
        (lambda: plots.reliability_diagram(TABLE, confidence=2), "confidence must be"),
        (lambda: plots.reliability_diagram(LOGITS), "table must be a ReliabilityTable, got Tensor"),
        (lambda: plots.confidence_histogram(None), "table must be a ReliabilityTable, got NoneType"),
        (lambda: plots.accuracy_confidence_density(LABELS), "exactly one of logits= and probs=, got neither"),
        (lambda: plots.accuracy_confidence_density(LABELS, logits=LOGITS, probs=LOGITS), "exactly one of .* got both"),
        (lambda: plots.accuracy_confidence_density(LABELS, probs=LOGITS), "probs must be in"),
        (
            lambda: plots.accuracy_confidence_density(LABELS[1:], logits=LOGITS),
            "as many, got 1999 labels and 2000 rows",
        ),
        (lambda: plots.accuracy_confidence_density(LABELS, logits=LOGITS, group_size=0), "group_size"),
        (lambda: plots.accuracy_confidence_density(LABELS, logits=LOGITS, group_size=1500), "at least 2 groups"),
        (lambda: plots.label_entropy(-1), "alpha must be"),
        (lambda: plots.label_entropy([]), "alpha is empty"),
        (lambda: plots.label_entropy(1, n_bins=0), "n_bins"),
    ],
)
def test_bad_input_is_refused_before_a_figure_is_made(draw, match):
    with pytest.raises((ValueError, TypeError), match=match):
        draw()
    assert not plt.get_fignums()
