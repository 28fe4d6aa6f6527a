"""Plots of calibration, comparisons and robustness: each takes `ax=`, draws there or on a new figure, and returns it.

Those of many panels (`accuracy_confidence_rows`, `decision_boundaries`) take and return `axes` instead.

    ax = plots.reliability_diagram(ReliabilityTable.from_logits(labels, logits))
    ax.figure.savefig("reliability.pdf")

Nothing global is changed: no style, no `show`. A figure made for you is an ordinary pyplot one, to show, save and
close as you like. Colours are Okabe and Ito's, which people with any colour vision can tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._arrays import as_labels, as_matrix
from vicinal._atomic import Json
from vicinal._checks import ArgumentError, choice, integer, number, require
from vicinal.metrics import (
    METRICS,
    Estimate,
    Evaluation,
    OODReport,
    ReliabilityTable,
    RiskCoverage,
    Samples,
    risk_coverage,
)

# The report of a file of predictions is drawn without torch: only the plots that call a model import it.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

    from vicinal._typing import Model
    from vicinal.probes import BetweenCurves

__all__ = [
    "accuracy_confidence_density",
    "accuracy_confidence_rows",
    "accuracy_confidence_scatter",
    "alpha_sweep",
    "between_curves",
    "confidence_histogram",
    "confidence_histograms",
    "decision_boundaries",
    "method_bars",
    "reliability_diagram",
    "risk_coverage_curve",
    "score_histogram",
    "smooth_diagram",
    "training_curves",
]

_BLUE, _RED, _GREEN, _PINK, _ORANGE, _SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
_COLOURS = (_BLUE, _RED, _GREEN, _PINK, _ORANGE, _SKY)
_INK, _GREY, _PALE = "#222222", "#8A8A8A", "#9CC4E1"
_DASHES = (0, (4, 3))
#: Samples around a confidence from which on a smoothed accuracy is drawn, however rare such confidences are.
_AROUND = 5
#: Of the box around a note.
_PAPER: dict[str, object] = {
    "facecolor": "white",
    "edgecolor": "#CCCCCC",
    "linewidth": 0.6,
    "boxstyle": "round,pad=0.35",
    "alpha": 0.9,
}

Floats = NDArray[np.float64]


# One model's calibration


def reliability_diagram(
    table: Evaluation | ReliabilityTable, *, level: float = 0.95, counts: bool = True, ax: Axes | None = None
) -> Axes:
    """Draw the accuracy of each confidence bin against the diagonal a calibrated model would follow.

    A bar is the accuracy of a bin, the hatched part the gap to its mean confidence, and the grey band the exact
    interval of the accuracy: a gap inside it may be chance. ECE is printed with its number of bins.

    Parameters
    ----------
    table : Evaluation or ReliabilityTable
        Of equal-width or equal-mass bins.
    level : float
        Confidence level of the intervals; 0 draws none.
    counts : bool
        Draw how the samples are spread over the bins, above the diagram.

    Returns
    -------
    Axes
        The axes that hold the plot.

    References
    ----------
    DeGroot & Fienberg (1983), The Comparison and Evaluation of Forecasters; Guo et al. (2017), On Calibration of
    Modern Neural Networks, Figure 1; Clopper & Pearson (1934) for the interval.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from vicinal import evaluate
    >>> ax = reliability_diagram(evaluate([0, 1], probs=[[0.8, 0.2], [0.3, 0.7]]))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('confidence', 'accuracy')
    >>> plt.close(ax.figure)
    """
    level, table = number("level", level, low=0, high=1), _table_of("table", table)
    ax = _axes(ax, (4.2, 4.8 if counts else 4.2))
    filled = table.bin_count > 0
    left, widths = table.edges[:-1][filled], np.diff(table.edges)
    accuracy, gap = table.bin_accuracy[filled], (table.bin_confidence - table.bin_accuracy)[filled]
    bars: dict[str, Any] = {"align": "edge", "width": widths[filled]}
    ax.bar(left, accuracy, **bars, color=_PALE, edgecolor="white", lw=0.6, label="accuracy")
    ax.bar(left, gap, **bars, bottom=accuracy, fc=_RED + "28", ec=_RED, hatch="////", lw=0.7, label="gap to confidence")
    if level > 0:
        low, high = (bound[filled] for bound in table.bin_interval(level))
        name = f"{100 * level:g} % interval"
        ax.bar(left, high - low, **bars, bottom=low, color=_INK, alpha=0.25, lw=0, label=name)
        ax.hlines(accuracy, left, left + widths[filled], color=_INK, lw=1.1)
    _diagonal(ax, label="perfect calibration")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="upper left", fontsize="small", handlelength=1.4, edgecolor="none", framealpha=0.85)
    _note(ax, f"ECE {100 * table.ece():.2f} % ({table.n_bins} bins)\nn = {table.n:,}", corner="lower right")
    if counts:
        _count_strip(ax, table)
    return ax


def smooth_diagram(
    table: Evaluation | ReliabilityTable, *, level: float = 0.95, ax: Axes | None = None
) -> Axes:  # fmt: skip
    """Draw the accuracy around each confidence, smoothed as smooth ECE smooths, without bins.

    The line is thick where samples are many, and the band is the pointwise normal interval of the smoothed accuracy.
    Smooth ECE is printed with its own interval.

    Parameters
    ----------
    table : Evaluation or ReliabilityTable
        Of many equal-width bins: `ReliabilityTable.from_logits(labels, logits, n_bins=10_000)`.
    level : float
        Confidence level of the intervals; 0 draws no band.

    Returns
    -------
    Axes
        The axes that hold the plot.

    References
    ----------
    Błasiok & Nakkiran (2024), Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> table = ReliabilityTable.from_confidences([0.9, 0.8, 0.7, 0.6], [True, True, False, True], n_bins=10_000)
    >>> ax = smooth_diagram(table)
    >>> ax.get_xlabel()
    'confidence'
    >>> plt.close(ax.figure)
    """
    from vicinal.metrics.smooth import smooth_band, smooth_curve, smooth_ece_of

    level, table = number("level", level, low=0, high=1), _table_of("table", table, fine=True)
    estimate, ax = smooth_ece_of(table, level or 0.95), _axes(ax, (4.2, 4.2))
    sigma = max(estimate.value, 1 / len(table.bin_count))
    curve = smooth_curve(table, sigma)
    t, accuracy, density = (values[:: max(1, len(curve[0]) // 200)] for values in curve)  # smooth: more says no more
    # The kernel averages over about so many samples.
    shown = (density > 0.01 * density.max()) | (table.n * density * 2 * sigma * math.sqrt(math.pi) >= _AROUND)
    if level > 0:
        low, high = smooth_band(accuracy, density, table.n, sigma, level)
        name = f"{100 * level:g} % interval"
        ax.fill_between(t, low, high, where=shown.tolist(), color=_INK, alpha=0.2, lw=0, label=name)
    ax.plot(t, np.where(shown, accuracy, np.nan), color=_BLUE, lw=1.6, label="smoothed accuracy")
    ax.fill_between(t, 0, 0.15 * density / density.max(), color=_GREY, alpha=0.5, lw=0, label="density of confidences")
    _diagonal(ax, label="perfect calibration")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="upper left", fontsize="small", handlelength=1.4, edgecolor="none", framealpha=0.85)
    ends = f"{100 * estimate.low:.2f} to {100 * estimate.high:.2f} %"
    _note(ax, f"smooth ECE {100 * estimate.value:.2f} %\n{ends}, n = {table.n:,}", corner="lower right")
    return ax


def _count_strip(ax: Axes, table: ReliabilityTable) -> None:
    """Draw the share of samples in each bin in a strip above the axes."""
    strip = ax.inset_axes((0, 1.03, 1, 0.16), sharex=ax)
    share = table.bin_count / table.n
    strip.bar(table.edges[:-1], share, np.diff(table.edges), align="edge", color=_GREY, edgecolor="white", lw=0.6)
    strip.tick_params(labelbottom=False)
    strip.set_ylabel("samples", fontsize="small")
    strip.set_yticks([float(share.max())])
    strip.yaxis.set_major_formatter(_percent())
    _tidy(strip)


def confidence_histogram(table: Evaluation | ReliabilityTable, *, ax: Axes | None = None) -> Axes:
    """Draw the share of samples in each confidence bin, with the mean confidence and the accuracy as lines.

    The two lines coincide for a model that is calibrated on average; confidence to the right of accuracy is
    over-confidence. Bins of unequal width are drawn as a density (share over width).

    Returns
    -------
    Axes
        The axes that hold the plot.

    References
    ----------
    Guo et al. (2017), On Calibration of Modern Neural Networks, Figure 1, top.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from vicinal import evaluate
    >>> ax = confidence_histogram(evaluate([0, 1], probs=[[0.8, 0.2], [0.3, 0.7]]))
    >>> ax.get_xlabel()
    'confidence'
    >>> plt.close(ax.figure)
    """
    table, ax = _table_of("table", table), _axes(ax, (4.6, 3.2))
    widths, share = np.diff(table.edges), table.bin_count / table.n
    equal = np.allclose(widths, widths[0])
    height = share if equal else share / widths
    ax.bar(table.edges[:-1], height, widths, align="edge", color=_SKY, edgecolor="white", lw=0.6)
    ax.axvline(table.accuracy, color=_INK, lw=1.6, label=f"accuracy {100 * table.accuracy:.1f} %")
    name = f"mean confidence {100 * table.confidence:.1f} %"
    ax.axvline(table.confidence, color=_RED, lw=1.6, ls=(0, (4, 2)), label=name)
    ax.set(xlim=(0, 1), xlabel="confidence")
    return _finished(ax, "share of samples" if equal else "density", percent=bool(equal))


def accuracy_confidence_density(evaluation: Evaluation, *, group_size: int = 100, ax: Axes | None = None) -> Axes:
    """Draw the joint density of accuracy and mean confidence over groups of samples.

    Each group of `group_size` samples is one point: its accuracy and the mean of its winning probabilities. A
    calibrated model's cloud lies on the diagonal; below it confidence exceeds accuracy. With G groups, group g is
    made of the samples g, g + G, g + 2G, …, so that a set sorted by class is no different. The density is a
    Gaussian kernel estimate with Scott's bandwidth; shades hold 20, 40, 60, 80 and 95 % of it.

    Parameters
    ----------
    evaluation : Evaluation
        Of `evaluate`, which keeps the samples.
    group_size : int
        At most N / 2: a density needs points.

    Returns
    -------
    Axes
        The axes that hold the plot.

    References
    ----------
    Thulasidasan et al. (2019), On Mixup Training, Figure 1.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from vicinal import evaluate
    >>> random = np.random.default_rng(0)
    >>> evaluation = evaluate(random.integers(3, size=90), logits=random.normal(size=(90, 3)))
    >>> ax = accuracy_confidence_density(evaluation, group_size=10)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('confidence', 'accuracy')
    >>> plt.close(ax.figure)
    """
    accuracy, confidence = group_means("evaluation", evaluation, group_size)
    ax = _axes(ax, (4.2, 4.2))
    draw_density(ax, accuracy, confidence, _reach([accuracy, confidence]))
    note = f"accuracy {100 * accuracy.mean():.1f} %\nmean confidence {100 * confidence.mean():.1f} %"
    _note(ax, note, corner="upper left")
    corner: dict[str, Any] = {"transform": ax.transAxes, "fontsize": "small", "ha": "right", "va": "bottom"}
    ax.text(0.97, 0.03, "over-confident", color=_GREY, style="italic", zorder=0, **corner)
    return ax


def accuracy_confidence_rows(
    evaluations: Mapping[str, Mapping[float, Evaluation]],
    *,
    group_size: int = 100,
    axes: Sequence[Sequence[Axes]] | None = None,
) -> list[list[Axes]]:
    """Draw how accuracy and confidence move together in training: a row for each model, a column for each epoch.

    Every panel is the density of `accuracy_confidence_density`, all on the same scale. A cloud that wanders to the
    right of the diagonal is a network that becomes over-confident.

    Parameters
    ----------
    evaluations : mapping
        By the name of the model and by epoch: an `Evaluation` of `evaluate`. Epochs that all models have are drawn.
    group_size : int
        Samples in a group.
    axes : rows of matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    list[list[Axes]]
        The panels, a list for each model.

    References
    ----------
    Thulasidasan et al. (2019), On Mixup Training, Figure 1.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from vicinal import evaluate
    >>> random = np.random.default_rng(0)
    >>> evaluation = evaluate(random.integers(3, size=90), logits=random.normal(size=(90, 3)))
    >>> axes = accuracy_confidence_rows({"ERM": {1: evaluation, 2: evaluation}}, group_size=10)
    >>> len(axes), len(axes[0])
    (1, 2)
    >>> plt.close(axes[0][0].figure)
    """
    runs = _named("evaluations", evaluations, Mapping, "a mapping from epochs to evaluations")
    epochs = sorted(set.intersection(*(set(run) for run in runs.values())))
    if not epochs:
        raise ValueError("evaluations have no epoch in common: there is nothing to draw")
    means = {
        (name, epoch): group_means("evaluations", run[epoch], group_size)
        for name, run in runs.items()
        for epoch in epochs
    }
    reach = _reach([values for pair in means.values() for values in pair])
    rows = _panels(axes, len(runs), len(epochs), size=1.9, what="models and epochs")
    for row, name in zip(rows, runs, strict=True):
        for ax, epoch in zip(row, epochs, strict=True):
            draw_density(ax, *means[name, epoch], reach)
            ax.label_outer()
            if row is rows[0]:
                ax.set_title(f"epoch {epoch:g}", fontsize="small")
        row[0].set_ylabel(f"{name}\naccuracy")
    return rows


def draw_density(ax: Axes, accuracy: Floats, confidence: Floats, reach: tuple[float, float]) -> None:
    """Shade the kernel density of points, and mark their mean."""
    grid = np.linspace(*reach, 200)
    density = _kernel(grid, accuracy) @ _kernel(grid, confidence).T  # rows: accuracy, columns: confidence
    levels = _mass_levels(density, (0.95, 0.8, 0.6, 0.4, 0.2))
    shades = ["#DCE9F3", "#B3D0E5", "#7FB2D6", "#3F8FC3", _BLUE][-len(levels) :]
    ax.contourf(grid, grid, density, levels=[*levels, 2 * density.max()], colors=shades)
    _diagonal(ax)
    ax.plot(confidence.mean(), accuracy.mean(), marker="+", ms=9, mew=1.8, color="white")
    ax.set(xlim=reach, ylim=reach)


def _reach(values: Sequence[Floats]) -> tuple[float, float]:
    """Return limits of an axis of shares: a little more than the values, at twentieths."""
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    return math.floor(20 * max(low - 0.05, 0)) / 20, math.ceil(20 * min(high + 0.05, 1)) / 20


def group_means(argument: str, evaluation: Evaluation, group_size: int = 100) -> tuple[Floats, Floats]:
    """Return the accuracy and the mean confidence of each group of `group_size` samples, `[N // group_size]` each."""
    samples, size = _samples_of(argument, evaluation), integer("group_size", group_size, low=1)
    n = len(samples.confidence)
    groups = n // size
    if groups < 2:
        raise ValueError(f"group_size must leave at least 2 groups of the {n} samples, got {group_size}")
    each = np.stack([samples.correct, samples.confidence])[:, : groups * size]
    accuracy, confidence = each.reshape(2, size, groups).mean(axis=1, dtype=np.float64)
    return accuracy, confidence


def _kernel(grid: Floats, points: Floats) -> Floats:
    """Gaussian kernels `[len(grid), len(points)]`; a bandwidth of at least 0.004, as all points may be equal."""
    width = max(float(points.std(ddof=1)) * len(points) ** (-1 / 6), 0.004)  # Scott's rule in two dimensions
    kernels: Floats = np.exp(-0.5 * ((grid[:, None] - points) / width) ** 2)
    return kernels


def _mass_levels(density: Floats, masses: tuple[float, ...]) -> list[float]:
    """Return the density at the border of the smallest regions that contain these shares of it, ascending."""
    order = np.sort(density, axis=None)[::-1]
    mass_within = np.cumsum(order) / order.sum()
    return sorted({float(order[np.searchsorted(mass_within, mass)]) for mass in masses})


# Several models


def accuracy_confidence_scatter(
    tables: Evaluation | ReliabilityTable | Mapping[str, Evaluation | ReliabilityTable], *, ax: Axes | None = None
) -> Axes:
    """Draw each confidence bin as a point, its accuracy against its mean confidence, for one model or several.

    The area of a point is the share of the samples in its bin. Points below the diagonal are over-confident. The paper
    does not say what a point is; bins of confidence (100 in its authors' code) fit its plot.

    Parameters
    ----------
    tables : Evaluation or ReliabilityTable, or several by the name of the model
        Of any bins; many narrow ones look like the paper's.

    Returns
    -------
    Axes
        The axes that hold the plot.

    References
    ----------
    Thulasidasan et al. (2019), On Mixup Training, Figure 2 (a–d).

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from vicinal import evaluate
    >>> ax = accuracy_confidence_scatter({"ERM": evaluate([0, 1], probs=[[0.8, 0.2], [0.3, 0.7]])})
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['ERM: ECE 25.00 % (15 bins)']
    >>> plt.close(ax.figure)
    """
    given = tables if isinstance(tables, Mapping) else {"": tables}
    models = {name: _table_of("tables", table) for name, table in _named("tables", given).items()}
    ax = _axes(ax, (4.2, 4.2))
    _diagonal(ax)
    for (name, table), colour in zip(models.items(), _colours(models), strict=True):
        filled = table.bin_count > 0
        area = 600 * table.bin_count[filled] / table.n + 4
        ece = f"ECE {100 * table.ece():.2f} % ({table.n_bins} bins)"
        places = table.bin_confidence[filled], table.bin_accuracy[filled]
        ax.scatter(*places, s=area, color=colour, alpha=0.6, lw=0, label=f"{name}: {ece}" if name else ece)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    for handle in _legend_above(ax, ncols=1).legend_handles:
        handle.set_sizes([30.0])
    return ax


def confidence_histograms(confidences: Mapping[str, Any], *, n_bins: int = 20, ax: Axes | None = None) -> Axes:
    """Draw how the winning probabilities of several models are distributed, in one axis.

    Labels are not needed, so the samples may come from anywhere: on inputs that look like nothing in the training
    set, or on noise, a model that knows its limits keeps to the left.

    Parameters
    ----------
    confidences : mapping
        By the name of the model: an `Evaluation`, or the highest probability of each sample, `[N]`, as
        `max_probability` returns it.
    n_bins : int
        Bins over [0, 1].

    Returns
    -------
    Axes
        The axes that hold the plot.

    References
    ----------
    Thulasidasan et al. (2019), On Mixup Training, Figure 8.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> ax = confidence_histograms({"ERM": [0.9, 0.95, 1.0], "Mixup": [0.5, 0.6, 0.7]})
    >>> ax.get_xlabel()
    'confidence'
    >>> plt.close(ax.figure)
    """
    edges = np.linspace(0, 1, integer("n_bins", n_bins, low=1) + 1)
    models = {
        name: np.asarray(_samples_of("confidences", one).confidence if isinstance(one, Evaluation) else one, np.float64)
        for name, one in _named("confidences", confidences).items()
    }
    for name, values in models.items():
        if values.ndim != 1 or not len(values) or not ((values >= 0) & (values <= 1)).all():
            raise ValueError(f"confidences must be probabilities [N] for each model, got {name!r}: {values!r}")
    ax = _axes(ax, (4.6, 3.2))
    for (name, values), colour in zip(models.items(), _colours(models), strict=True):
        shares = np.histogram(values, edges)[0] / len(values)
        ax.stairs(shares, edges, fill=True, color=colour, alpha=0.15)
        ax.stairs(shares, edges, color=colour, lw=1.4, label=f"{name}: mean {100 * values.mean():.1f} %")
    ax.set(xlim=(0, 1), xlabel="confidence")
    ax.set_ylim(bottom=0)
    return _finished(ax, "share of samples", percent=True)


def method_bars(
    estimates: Mapping[str, Mapping[str, Evaluation | Estimate | float]],
    *,
    name: str,
    percent: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw a metric of several methods as bars with their intervals, in groups such as data sets.

    Parameters
    ----------
    estimates : mapping
        By the name of the group and by method: an `Evaluation`, an `Estimate`, or a number, which has no interval. A
        group may lack methods that others have.
    name, percent : str, bool
        The label of the axis, and whether it is in per cent. For evaluations the metric, such as `"ece"`, says both.

    Returns
    -------
    Axes
        The axes that hold the plot.

    References
    ----------
    Thulasidasan et al. (2019), On Mixup Training, Figures 2 (e, f), 3, 4 and 6.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> ax = method_bars({"digits": {"ERM": Estimate(0.06, 0.05, 0.08), "Mixup": 0.02}}, name="ECE")
    >>> ax.get_ylabel()
    'ECE'
    >>> plt.close(ax.figure)
    """
    groups = _named("estimates", estimates, Mapping, "a mapping from methods to estimates")
    methods = list(dict.fromkeys(method for group in groups.values() for method in group))
    groups, name, percent = _estimates_of("estimates", groups, name, percent)
    ax = _axes(ax, (max(4.6, 0.9 + 0.32 * len(groups) * (len(methods) + 1)), 3.2))
    width = 0.8 / max(len(methods), 1)
    for i, (method, colour) in enumerate(zip(methods, _colours(methods), strict=True)):
        places = [k for k, group in enumerate(groups.values()) if method in group]
        value, below, above = _error_bars(group[method] for group in groups.values() if method in group)
        x = np.array(places) + (i - (len(methods) - 1) / 2) * width
        hatch = "///" if i >= len(_COLOURS) else None  # where the colours start again
        ax.bar(x, value, 0.92 * width, color=colour, alpha=0.8, label=method, hatch=hatch, edgecolor="white", lw=0)
        ax.errorbar(x, value, (below, above), fmt="none", ecolor=_INK, elinewidth=1.1, capsize=2.5)
    ax.set_xticks(range(len(groups)), list(groups))
    _finished(ax, name, percent).grid(False, axis="x")
    return ax


def alpha_sweep(
    estimates: Mapping[str, Mapping[float, Evaluation | Estimate | float]],
    *,
    name: str,
    percent: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw a metric against mixup's α, a line with intervals for each data set or network.

    The values of α stand at equal distances, so that 0 (no mixing), 0.1 and 32 fit in one plot.

    Parameters
    ----------
    estimates : mapping
        By the name of the line and by α: an `Evaluation`, an `Estimate`, or a number, which has no interval.
    name, percent : str, bool
        The label of the axis, and whether it is in per cent. For evaluations the metric, such as `"ece"`, says both.

    Returns
    -------
    Axes
        The axes that hold the plot.

    References
    ----------
    Thulasidasan et al. (2019), On Mixup Training, Figure 2 (h–j).

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> ax = alpha_sweep({"digits": {0: 0.06, 0.2: Estimate(0.02, 0.01, 0.04)}}, name="ECE")
    >>> ax.get_ylabel()
    'ECE'
    >>> plt.close(ax.figure)
    """
    lines = _named("estimates", estimates, Mapping, "a mapping from alpha to estimates")
    alphas = sorted({number("alpha", a, low=0, infinite=True) for line in lines.values() for a in line})
    lines, name, percent = _estimates_of("estimates", lines, name, percent)
    ax = _axes(ax, (4.6, 3.2))
    for (label, line), colour in zip(lines.items(), _colours(lines), strict=True):
        x = [alphas.index(float(a)) for a in sorted(line)]
        value, below, above = _error_bars(line[a] for a in sorted(line))
        ax.errorbar(x, value, (below, above), color=colour, lw=1.6, marker="o", ms=4, capsize=2.5, label=label)
    ax.set_xticks(range(len(alphas)), [f"{a:g}" for a in alphas])
    ax.set_xlabel("α")
    return _finished(ax, name, percent)


def training_curves(
    runs: Mapping[str, Sequence[Any]],
    *,
    name: str = "val_nll",
    by: str = "epoch",
    log: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw a metric of several runs over training: a line for each, or their mean over seeds with the range.

    Parameters
    ----------
    runs : mapping
        By the name of the line: a history (the lines of `metrics.jsonl`, as a `FitResult` has them), or a
        list of histories with other seeds, of which the mean is drawn and the range shaded where all were measured.
    name : str
        Which entry of the lines: `"val_nll"`, `"val_ece"`, `"loss"`, … Lines without it are ignored.
    by : str
        What the horizontal axis is: `"epoch"` or `"step"`.
    log : bool
        Draw on a logarithmic scale.

    Returns
    -------
    Axes
        The axes that hold the plot.

    References
    ----------
    Zhang et al. (2018), mixup, Figure 3; Zhang & Vaidya (2021), MixUp Training Leads to Reduced Overfitting and
    Improved Calibration for the Transformer Architecture, Figure 2; Thulasidasan et al. (2019), On Mixup Training,
    Figure 7.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> history = [{"epoch": 1, "val_nll": 0.9}, {"epoch": 2, "val_nll": 0.5}]
    >>> ax = training_curves({"ERM": history})
    >>> ax.get_xlabel()
    'epoch'
    >>> plt.close(ax.figure)
    """
    choice("by", by, ("epoch", "step"))
    curves = {label: _mean_curve(label, histories, name, by) for label, histories in _named("runs", runs).items()}
    ax = _axes(ax, (4.6, 3.2))
    for (label, (x, values)), colour in zip(curves.items(), _colours(curves), strict=True):
        if len(values) > 1:
            ax.fill_between(x, values.min(0), values.max(0), color=colour, alpha=0.18, lw=0)
        seeds = f" ({len(values)} seeds)" if len(values) > 1 else ""
        ax.plot(x, values.mean(0), color=colour, lw=1.6, label=f"{label}{seeds}")
    ax.set(xlabel=by, yscale="log" if log else "linear")
    return _finished(ax, name.removeprefix("val_").replace("_", " "))


def _mean_curve(label: str, histories: Sequence[Any], name: str, by: str) -> tuple[Floats, Floats]:
    """Return where all histories were measured, `[T]`, and what, `[seeds, T]`."""
    several = histories if histories and not isinstance(histories[0], Mapping) else [histories]
    measured = [{line[by]: float(line[name]) for line in history if line.get(name) is not None} for history in several]
    shared = sorted(set.intersection(*(set(curve) for curve in measured)))
    if not shared:
        entries = sorted({entry for history in several for line in history for entry in line})
        raise ArgumentError("name", name, f"an entry that the runs {label!r} share", hint=f"; there are {entries}")
    return np.array(shared, np.float64), np.array([[curve[x] for x in shared] for curve in measured])


def _estimates_of(argument: str, groups: Json, name: str, percent: bool) -> tuple[Json, str, bool]:
    """Return numbers and estimates in their groups, the label of the axis, and whether it is in per cent."""
    given = [value for group in groups.values() for value in group.values()]
    if not given:
        raise ValueError(f"{argument} is empty: there is nothing to draw")
    evaluations = [value for value in given if isinstance(value, Evaluation)]
    for value in given:
        if not isinstance(value, Evaluation | Estimate):
            number(argument, value)
    if not evaluations:
        return groups, name, percent
    choice("name", name, [metric for metric, value in evaluations[0].metrics.items() if value is not None])
    drawn = {
        label: {key: getattr(value, name) if isinstance(value, Evaluation) else value for key, value in group.items()}
        for label, group in groups.items()
    }
    return drawn, METRICS[name].heading(evaluations[0].n_bins), METRICS[name].percent


def _error_bars(estimates: Iterable[Estimate | float]) -> tuple[Floats, Floats, Floats]:
    """Return values and the lengths of their bars below and above; a number has none."""
    rows = [(f.value, f.value - f.low, f.high - f.value) if isinstance(f, Estimate) else (f, 0, 0) for f in estimates]
    value, below, above = np.array(rows, np.float64).reshape(-1, 3).T
    return value, below.clip(min=0), above.clip(min=0)


def risk_coverage_curve(
    curve: Evaluation | RiskCoverage | Mapping[str, Evaluation | RiskCoverage],
    *,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of wrong predictions among the most confident, against how many are accepted.

    A good confidence keeps the curve low until late; one that knows nothing is flat at the error rate. The area below
    is AURC. The dashed line is the best order of as many errors, in which all right predictions come first: what lies
    between the two is the excess AURC.

    Parameters
    ----------
    curve : Evaluation or RiskCoverage, or several by name
        Of `evaluate` or of `risk_coverage`. The dashed line is drawn for a single one.
    level : float
        Coverage of AURC's interval in the legend; 0 prints none.

    Returns
    -------
    Axes
        The axes that hold the plot.

    References
    ----------
    Geifman, Uziel & El-Yaniv (2019), Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers, Figure 1.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> ax = risk_coverage_curve(risk_coverage([0.9, 0.8, 0.7, 0.6], [True, True, False, True]))
    >>> ax.get_xlabel()
    'coverage'
    >>> plt.close(ax.figure)
    """
    level = number("level", level, low=0, high=1)
    given = _named("curve", curve if isinstance(curve, Mapping) else {"": curve})
    kept = {name: _samples_of("curve", one) for name, one in given.items() if isinstance(one, Evaluation)}
    measured = given | {name: risk_coverage(one.confidence, one.correct) for name, one in kept.items()}
    curves = _named("curve", measured, RiskCoverage, "an Evaluation or a RiskCoverage")
    ax = _axes(ax, (4.6, 3.4))
    top = 0.0
    for (name, one), colour in zip(curves.items(), _colours(curves), strict=True):
        estimate = f"AURC {one.aurc_estimate(level)}" if level > 0 else f"AURC {one.aurc:.4f}"
        # A step for each rule, over the share that it adds, whose area is AURC; of many rules 2,000 look the same.
        many = len(one.confidences) > 2000
        shown = np.unique(np.searchsorted(one.coverage, np.linspace(0, 1, 2001)[1:])) if many else slice(None)
        edges = np.concatenate([[0.0], one.coverage[shown]])
        label = f"{name}: {estimate}" if name else estimate
        ax.stairs(one.risk[shown], edges, baseline=None, color=colour, lw=1.6, label=label)
        settled = one.risk[one.coverage >= min(0.05, one.coverage[-1])]  # the first few samples jump
        top = max(top, float(settled.max()))
        if len(curves) == 1:
            grid = np.linspace(0, 1, 401)[1:]
            best = np.maximum(grid - (1 - float(one.risk[-1])), 0) / grid
            ax.plot(grid, best, ls=_DASHES, color=_GREY, lw=1.2, label=f"best order, excess {one.excess_aurc:.4f}")
    ax.set(xlim=(0, 1), ylim=(0, min(1.15 * top, 1.02) or 0.05), xlabel="coverage")
    ax.xaxis.set_major_formatter(_percent())
    return _finished(ax, "risk", percent=True, ncols=1)


# Robustness


def score_histogram(report: OODReport, *, ax: Axes | None = None) -> Axes:
    """Draw how the scores of in-distribution samples and of others are distributed, with AUROC and FPR.

    Each histogram is of shares, so that sets of any size compare. Higher scores look more in-distribution.

    Returns
    -------
    Axes
        The axes that hold the plot.

    References
    ----------
    Thulasidasan et al. (2019), On Mixup Training, Figure 8.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from vicinal import ood_report
    >>> ax = score_histogram(ood_report([0.9, 0.8, 0.7], [0.6, 0.75]))
    >>> plt.close(ax.figure)
    """
    if not isinstance(report, OODReport):
        raise TypeError(f"report must be an OODReport, got {type(report).__name__}")
    ax = _axes(ax, (4.6, 3.2))
    for counts, n, colour, name in (
        (report.in_counts, report.n_in, _BLUE, "in-distribution"),
        (report.out_counts, report.n_out, _RED, "out-of-distribution"),
    ):
        ax.stairs(counts / n, report.edges, fill=True, color=colour, alpha=0.25)
        ax.stairs(counts / n, report.edges, color=colour, lw=1.4, label=f"{name} ({n:,})")
    ax.set(xlim=(report.edges[0], report.edges[-1]), xlabel="score")
    ax.set_ylim(bottom=0)
    note = f"AUROC {report.auroc}\nFPR at {100 * report.tpr:g} % TPR {report.fpr_at_tpr}"
    _note(ax, note, corner="upper left")
    return _finished(ax, "share of samples", percent=True)


def decision_boundaries(
    models: Mapping[str, Model],
    points: ArrayLike,
    labels: ArrayLike,
    *,
    resolution: int = 200,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw what classifiers of the plane predict everywhere, one panel a model, and return the panels.

    The colour is that of the predicted class, the paler the lower its probability (white is 1/K); lines are where the
    class changes.
    The models are left as they were: modes, gradients and generators.

    Parameters
    ----------
    models : mapping
        Models by the name that is their panel's title; each takes points `[B, 2]` and returns logits `[B, K]`.
    points, labels : array or tensor of shape `[N, 2]` and `[N]`
        What to draw on top; they also decide what part of the plane is shown.
    resolution : int
        Grid points along each side.
    axes : sequence of matplotlib Axes, optional
        One for each model; a new figure by default.

    Returns
    -------
    list[Axes]
        The panels, one for each model.

    References
    ----------
    Zhang et al. (2018), mixup, Figure 1b; Bang et al. (2022), Logit Mixing Training, Figure 1.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import torch
    >>> points, labels = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([0, 1])
    >>> axes = decision_boundaries({"ERM": torch.nn.Linear(2, 2)}, points, labels, resolution=20)
    >>> axes[0].get_title()
    'ERM'
    >>> plt.close(axes[0].figure)
    """
    import torch

    places, classes = as_matrix("points", points).float(), as_labels("labels", labels)
    if places.shape[1] != 2 or len(places) != len(classes):
        raise ValueError(
            f"points must have shape [N, 2] with as many labels, got {list(places.shape)} and {list(classes.shape)}"
        )
    side = integer("resolution", resolution, low=2)
    low, high = places.amin(0), places.amax(0)
    rim = 0.12 * (high - low).clamp(min=1e-6)
    xs, ys = (torch.linspace(float(a), float(b), side) for a, b in zip(low - rim, high + rim, strict=True))
    grid = torch.stack(torch.meshgrid(xs, ys, indexing="xy"), dim=-1).view(-1, 2)
    shaded = {name: _probs_at(model, grid).view(side, side, -1).numpy() for name, model in models.items()}
    panels = _panels(axes, 1, len(shaded), size=2.9, what="models")[0]
    extent = (float(xs[0]), float(xs[-1]), float(ys[0]), float(ys[-1]))
    for ax, (name, probs) in zip(panels, shaded.items(), strict=True):
        ax.imshow(_shades(probs), extent=extent, origin="lower", aspect="auto", interpolation="bilinear")
        for k in range(1 if probs.shape[2] == 2 else probs.shape[2]):
            margin = probs[:, :, k] - np.delete(probs, k, axis=2).max(axis=2)
            if margin.min() < 0 < margin.max():
                ax.contour(xs.numpy(), ys.numpy(), margin, levels=[0.0], colors=[_INK], linewidths=0.9)
        for k in classes.unique().tolist():
            x1, x2 = places[classes == k].T.numpy()
            ax.scatter(x1, x2, s=9, color=_COLOURS[k % 6], edgecolors="white", linewidths=0.4, zorder=3)
        ax.set(xlim=extent[:2], ylim=extent[2:], title=name, xlabel="$x_1$", ylabel="$x_2$")
        ax.set_aspect("equal")
    return panels


def _probs_at(model: Model, grid: Tensor) -> Tensor:
    """Return the probabilities `[B, K]` at points of the plane, on the CPU."""
    import torch

    from vicinal.objectives.forward import call
    from vicinal.probes.base import device_of, probing

    with probing(model), torch.no_grad():
        device = device_of(model)
        logits = torch.cat([call(model, part.to(device)).float().cpu() for part in grid.split(4096)])
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(f"the model must return logits [B, K] with K of at least 2, got {list(logits.shape)}")
    return logits.softmax(1)


def _shades(probs: NDArray[np.floating]) -> Floats:
    """Return the colour of the likeliest class, the whiter the lower its probability, `[H, W, 3]`."""
    n_classes = probs.shape[2]
    strength = (probs.max(axis=2) - 1 / n_classes) / (1 - 1 / n_classes)
    hues = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in _COLOURS])
    colour = hues[probs.argmax(axis=2) % len(hues)]
    shades: Floats = 1 - 0.55 * strength[:, :, None] * (1 - colour)
    return np.clip(shades, 0, 1)


def between_curves(curves: Mapping[str, BetweenCurves], *, what: str = "misses", ax: Axes | None = None) -> Axes:
    """Draw what models do along segments between training samples, with intervals.

    Parameters
    ----------
    curves : mapping
        What `vicinal.probes.between_samples` returned, by the name of the model.
    what : str
        `"misses"` (the share of predictions that are neither label), `"gradient_norm"` or `"mean_confidence"`.

    Returns
    -------
    Axes
        The axes that hold the plot.

    References
    ----------
    Zhang et al. (2018), mixup, Figure 2.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import torch
    >>> from vicinal.probes import between_samples
    >>> data = torch.rand(8, 2), torch.randint(2, (8,))
    >>> ax = between_curves({"ERM": between_samples(torch.nn.Linear(2, 2), data, pairs=5)})
    >>> plt.close(ax.figure)
    """
    names = {"misses": "share of misses", "gradient_norm": "norm of the gradient", "mean_confidence": "mean confidence"}
    choice("what", what, tuple(names))
    drawn = {name: getattr(curve, what) for name, curve in _named("curves", curves).items()}
    if any(curve is None for curve in drawn.values()):
        raise ValueError("the curves have no gradient norm: they were made with gradient='none'")
    ax = _axes(ax, (4.6, 3.2))
    reach = [end for curve in curves.values() for end in (curve.lambdas.min(), curve.lambdas.max())]
    if min(reach) < 0 or max(reach) > 1:
        for edge in (0, 1):
            ax.axvline(edge, color=_GREY, lw=1, ls=_DASHES)
    for (name, curve), colour in zip(curves.items(), _colours(curves), strict=True):
        ax.fill_between(curve.lambdas, drawn[name].low, drawn[name].high, color=colour, alpha=0.18, lw=0)
        ax.plot(curve.lambdas, drawn[name].value, color=colour, lw=1.6, label=name)
    ax.set(xlabel="λ, the share of the first sample", ylabel=names[what])
    if what != "gradient_norm":
        ax.yaxis.set_major_formatter(_percent())
    _tidy(ax)
    ax.legend(fontsize="small", frameon=False)
    return ax


# What the plots share


def _table_of(argument: str, given: object, *, fine: bool = False) -> ReliabilityTable:
    """Return the reliability table that was given, or that of an evaluation."""
    table = (given.fine if fine else given.table) if isinstance(given, Evaluation) else given
    if not isinstance(table, ReliabilityTable):
        raise TypeError(f"{argument} must be an Evaluation or a ReliabilityTable, got {type(table).__name__}")
    if table.n == 0:
        raise ValueError(f"{argument} is empty: there is nothing to draw")
    return table


def _samples_of(argument: str, given: object) -> Samples:
    """Return the samples that an evaluation keeps."""
    if not isinstance(given, Evaluation):
        raise TypeError(
            f"{argument} must be an Evaluation, got {type(given).__name__}: pass evaluate(labels, logits=…)"
        )
    if given.samples is None:
        raise ValueError(f"{argument} must keep its samples, as that of evaluate does")
    return given.samples


def _named(argument: str, values: Mapping[str, object], kind: type = object, what: str = "") -> Json:
    """Return what is drawn by name: a mapping with at least one entry, all of one kind."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{argument} must be a mapping from names, got {type(values).__name__}")
    if not values:
        raise ValueError(f"{argument} is empty: there is nothing to draw")
    for value in values.values():
        if not isinstance(value, kind):
            raise TypeError(f"{argument} must be {what}, or several by name, got {type(value).__name__}")
    return dict(values)


def _colours(values: Sequence[Any] | Mapping[Any, Any]) -> list[str]:
    return [_COLOURS[i % len(_COLOURS)] for i in range(len(values))]


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    _, ax = require("matplotlib.pyplot", "train").subplots(figsize=size, layout="constrained")
    return ax


def _panels(axes: object, n_rows: int, n_columns: int, *, size: float, what: str) -> list[list[Axes]]:
    """Return rows of axes: those given, which must be as many, or those of a new figure."""
    if n_rows * n_columns == 0:
        raise ValueError(f"there are no {what}: there is nothing to draw")
    if axes is None:
        pyplot = require("matplotlib.pyplot", "train")
        shape = (size * n_columns, size * n_rows + 0.3)
        _, axes = pyplot.subplots(n_rows, n_columns, figsize=shape, layout="constrained", squeeze=False)
    given = np.asarray(axes, dtype=object).reshape(-1)
    if len(given) != n_rows * n_columns:
        raise ValueError(f"axes must be as many as the {what}, {n_rows * n_columns}, got {len(given)}")
    return [list(row) for row in given.reshape(n_rows, n_columns)]


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    ax.grid(True, color="#E6E6E6", lw=0.6)


def _diagonal(ax: Axes, *, label: str | None = None) -> None:
    """Draw the line of perfect calibration in a square of accuracy against confidence."""
    ax.plot([0, 1], [0, 1], ls=_DASHES, color=_GREY, lw=1.2, label=label)
    ax.set(xlabel="confidence", ylabel="accuracy")
    ax.set_aspect("equal")
    _tidy(ax)


def _note(ax: Axes, text: str, *, corner: str) -> None:
    vertical, horizontal = corner.split()
    x, y = {"left": 0.03, "right": 0.97}[horizontal], {"upper": 0.97, "lower": 0.04}[vertical]
    edge = {"upper": "top", "lower": "bottom"}[vertical]
    ax.text(x, y, text, transform=ax.transAxes, ha=horizontal, va=edge, fontsize="small", color=_INK, bbox=_PAPER)


def _legend_above(ax: Axes, *, ncols: int = 2, **options: Any) -> Any:
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    return ax.legend(**place, ncols=ncols, fontsize="small", frameon=False, **options)


def _finished(ax: Axes, name: str, percent: bool = False, **legend: Any) -> Axes:
    """Name the metric on the vertical axis, and the lines or bars above it."""
    ax.set_ylabel(name)
    if percent:
        ax.yaxis.set_major_formatter(_percent())
    _tidy(ax)
    _legend_above(ax, **legend)
    return ax


def _percent() -> Any:
    return require("matplotlib.ticker", "train").FuncFormatter(lambda share, _: f"{100 * share:.3g} %")
