"""Figures of calibration. Each takes `ax=`, draws on it (or on a new figure) and returns it.

    ax = plots.reliability_diagram(ReliabilityTable.from_logits(logits, labels))
    ax.figure.savefig("reliability.pdf")

Nothing global is changed: no style, no `show`. A figure made for you is an ordinary pyplot one, to show, save and
close as you like. Colours are Okabe and Ito's, which people with any colour vision can tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from vicinal._checks import integer, number, require
from vicinal.metrics import ReliabilityTable
from vicinal.metrics._predictions import open_predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["accuracy_confidence_density", "confidence_histogram", "label_entropy", "reliability_diagram"]

_BLUE, _RED, _GREEN, _PINK, _ORANGE, _SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
_INK, _GREY, _PALE = "#222222", "#8A8A8A", "#9CC4E1"

Floats = NDArray[np.float64]


def reliability_diagram(
    table: ReliabilityTable, *, confidence: float = 0.95, counts: bool = True, ax: Axes | None = None
) -> Axes:
    """Draw the accuracy of each confidence bin against the diagonal a calibrated model would follow.

    A bar is the accuracy of a bin, the hatched part the gap to its mean confidence, and the grey band the Wilson
    interval of the accuracy: a gap inside it may be chance. ECE is printed with its number of bins.

    Parameters
    ----------
    table : ReliabilityTable
        Of equal-width or equal-mass bins.
    confidence : float
        Of the intervals; 0 draws none.
    counts : bool
        Draw how the samples are spread over the bins, above the diagram.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    References
    ----------
    DeGroot & Fienberg (1983), The Comparison and Evaluation of Forecasters; Guo et al. (2017), On Calibration of
    Modern Neural Networks, Figure 1; Wilson (1927) for the interval.
    """
    level = number("confidence", confidence, low=0, high=1)
    _check_table(table)
    ax = _axes(ax, (4.2, 4.8 if counts else 4.2))
    held = table.bin_count > 0
    left, widths = table.edges[:-1][held], np.diff(table.edges)
    accuracy, gap = table.bin_accuracy[held], (table.bin_confidence - table.bin_accuracy)[held]
    bars: dict[str, Any] = {"align": "edge", "width": widths[held]}
    ax.bar(left, accuracy, **bars, color=_PALE, edgecolor="white", lw=0.6, label="accuracy")
    ax.bar(left, gap, **bars, bottom=accuracy, fc=_RED + "28", ec=_RED, hatch="////", lw=0.7, label="gap to confidence")
    if level > 0:
        low, high = (bound[held] for bound in table.bin_interval(level))
        name = f"{100 * level:g} % interval"
        ax.bar(left, high - low, **bars, bottom=low, color=_INK, alpha=0.25, lw=0, label=name)
        ax.hlines(accuracy, left, left + widths[held], color=_INK, lw=1.1)
    ax.plot([0, 1], [0, 1], ls=(0, (4, 3)), color=_GREY, lw=1.2, label="perfect calibration")
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")
    ax.set_aspect("equal")
    _tidy(ax)
    ax.legend(loc="upper left", fontsize="small", handlelength=1.4, edgecolor="none", framealpha=0.85)
    note = f"ECE {100 * table.ece():.2f} % ({table.n_bins} bins)\nn = {table.n:,}"
    ax.text(
        0.97, 0.04, note, transform=ax.transAxes, ha="right", va="bottom", fontsize="small", color=_INK, bbox=_PAPER
    )
    if counts:
        strip = ax.inset_axes((0, 1.03, 1, 0.16), sharex=ax)
        share = table.bin_count / table.n
        strip.bar(table.edges[:-1], share, widths, align="edge", color=_GREY, edgecolor="white", lw=0.6)
        strip.tick_params(labelbottom=False)
        strip.set_ylabel("samples", fontsize="small")
        strip.set_yticks([float(share.max())])
        strip.yaxis.set_major_formatter(_percent())
        _tidy(strip)
    return ax


def confidence_histogram(table: ReliabilityTable, *, ax: Axes | None = None) -> Axes:
    """Draw the share of samples in each confidence bin, with the mean confidence and the accuracy as lines.

    The two lines coincide for a model that is calibrated on average; confidence to the right of accuracy is
    over-confidence. Bins of unequal width are drawn as a density (share over width).

    References
    ----------
    Guo et al. (2017), On Calibration of Modern Neural Networks, Figure 1, top.
    """
    _check_table(table)
    ax = _axes(ax, (4.6, 3.2))
    widths, share = np.diff(table.edges), table.bin_count / table.n
    equal = np.allclose(widths, widths[0])
    height = share if equal else share / widths
    ax.bar(table.edges[:-1], height, widths, align="edge", color=_SKY, edgecolor="white", lw=0.6)
    ax.axvline(table.accuracy, color=_INK, lw=1.6, label=f"accuracy {100 * table.accuracy:.1f} %")
    name = f"mean confidence {100 * table.confidence:.1f} %"
    ax.axvline(table.confidence, color=_RED, lw=1.6, ls=(0, (4, 2)), label=name)
    ax.set(xlim=(0, 1), xlabel="confidence", ylabel="share of samples" if equal else "density")
    if equal:
        ax.yaxis.set_major_formatter(_percent())
    _tidy(ax)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize="small", frameon=False, borderaxespad=0.2)
    return ax


def accuracy_confidence_density(
    labels: Any, *, logits: Any = None, probs: Any = None, group_size: int = 100, ax: Axes | None = None
) -> Axes:
    """Draw the joint density of accuracy and mean confidence over groups of samples.

    Each group of `group_size` samples is one point: its accuracy and the mean of its winning probabilities. A
    calibrated model's cloud lies on the diagonal; below it confidence exceeds accuracy. With G groups, group g is
    made of the samples g, g + G, g + 2G, …, so that a set sorted by class is no different. The density is a
    Gaussian kernel estimate with Scott's bandwidth; shades hold 20, 40, 60, 80 and 95 % of it.

    Parameters
    ----------
    labels : array or tensor of shape `[N]`
    logits, probs : array or tensor of shape `[N, K]`
        One of the two.
    group_size : int
        At most N / 2: a density needs points.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    References
    ----------
    Thulasidasan et al. (2019), On Mixup Training, Figure 1.
    """
    accuracy, confidence = group_means(labels, logits=logits, probs=probs, group_size=group_size)
    low = math.floor(20 * max(min(accuracy.min(), confidence.min()) - 0.05, 0)) / 20
    high = math.ceil(20 * min(max(accuracy.max(), confidence.max()) + 0.05, 1)) / 20
    grid = np.linspace(low, high, 200)
    density = _kernel(grid, accuracy) @ _kernel(grid, confidence).T  # rows: accuracy, columns: confidence
    levels = _mass_levels(density, (0.95, 0.8, 0.6, 0.4, 0.2))
    shades = ["#DCE9F3", "#B3D0E5", "#7FB2D6", "#3F8FC3", _BLUE][-len(levels) :]
    ax = _axes(ax, (4.2, 4.2))
    ax.contourf(grid, grid, density, levels=[*levels, 2 * density.max()], colors=shades)
    ax.plot([0, 1], [0, 1], ls=(0, (4, 3)), color=_GREY, lw=1.2)
    ax.plot(confidence.mean(), accuracy.mean(), marker="+", ms=9, mew=1.8, color="white")
    note = f"accuracy {100 * accuracy.mean():.1f} %\nmean confidence {100 * confidence.mean():.1f} %"
    corners: dict[str, Any] = {"transform": ax.transAxes, "fontsize": "small"}
    ax.text(0.03, 0.97, note, ha="left", va="top", color=_INK, bbox=_PAPER, **corners)
    ax.text(0.97, 0.03, "over-confident", ha="right", va="bottom", color=_GREY, style="italic", zorder=0, **corners)
    ax.set(xlim=(low, high), ylim=(low, high), xlabel="confidence", ylabel="accuracy")
    ax.set_aspect("equal")
    _tidy(ax)
    return ax


def label_entropy(alpha: float | Iterable[float], *, n_bins: int = 40, ax: Axes | None = None) -> Axes:
    """Draw how the entropy of a mixed label is distributed when λ ~ Beta(α, α) and the two labels differ.

    The label (λ, 1 − λ) has entropy H(λ) = −λ log λ − (1 − λ) log(1 − λ), between 0 and log 2. Each bar is the exact
    probability of its bin, from P(H ≤ h) = 2 I_x(α, α), where x ≤ ½ has entropy h and I is the regularised incomplete
    beta function; nothing is sampled.

    Parameters
    ----------
    alpha : float or several
        Of mixup; 0 (no mixing) and inf (averages only) are allowed.
    n_bins : int
        Bins over [0, log 2].
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    References
    ----------
    Thulasidasan et al. (2019), On Mixup Training, Figure 5.
    """
    alphas = [number("alpha", a, low=0, infinite=True) for a in (alpha if isinstance(alpha, Iterable) else (alpha,))]
    if not alphas:
        raise ValueError("alpha is empty: there is nothing to draw")
    edges = math.log(2) * np.linspace(0, 1, integer("n_bins", n_bins, low=1) + 1)
    ax = _axes(ax, (4.6, 3.2))
    for i, a in enumerate(alphas):
        colour = (_BLUE, _RED, _GREEN, _PINK, _ORANGE, _SKY)[i % 6]
        mass = np.diff(entropy_cdf(edges, a), prepend=0.0)[1:]
        mass[0] += entropy_cdf(edges[:1], a)[0]
        if len(alphas) == 1:
            ax.stairs(mass, edges, fill=True, color=colour, alpha=0.25)
        ax.stairs(mass, edges, baseline=None, color=colour, lw=1.6, label=f"α = {a:g}")
    ax.set(xlim=(0, math.log(2)), xlabel="entropy of the mixed label (nats)", ylabel="share of mixed labels")
    ax.set(yscale="log", ylim=(1e-4, 1))
    ax.yaxis.set_major_formatter(_percent())
    _tidy(ax)
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=6,
        fontsize="small",
        frameon=False,
        handlelength=1.2,
        columnspacing=1.2,
    )
    return ax


def entropy_cdf(entropy: Floats, alpha: float) -> Floats:
    """Return P(H(λ) ≤ entropy) for λ ~ Beta(α, α).

    >>> entropy_cdf(np.array([0.0, 0.5, np.log(2)]), 1.0).round(4)  # λ uniform
    array([0.    , 0.3994, 1.    ])
    """
    if alpha == 0:
        return np.ones_like(entropy)
    full = entropy >= math.log(2)
    if alpha == math.inf:
        return np.where(full, 1.0, 0.0)
    low, high = np.zeros_like(entropy), np.full_like(entropy, 0.5)
    for _ in range(60):  # bisect for the λ ≤ ½ that has this entropy, which grows with λ
        middle = (low + high) / 2
        below = _entropy(middle) < entropy
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(full, 1.0, 2 * betainc(alpha, alpha, low))


def group_means(labels: Any, *, logits: Any = None, probs: Any = None, group_size: int = 100) -> tuple[Floats, Floats]:
    """Return the accuracy and the mean confidence of each group of `group_size` samples, `[N // group_size]` each."""
    held = open_predictions(labels, logits, probs)
    size = integer("group_size", group_size, low=1)
    groups = len(held) // size
    if groups < 2:
        raise ValueError(f"group_size must leave at least 2 groups of the {len(held)} samples, got {group_size}")
    each = np.concatenate([np.stack([chunk.correct, chunk.confidence]) for chunk in held.chunks()], axis=1)
    accuracy, confidence = each[:, : groups * size].reshape(2, size, groups).mean(axis=1, dtype=np.float64)
    return accuracy, confidence


def _check_table(table: ReliabilityTable) -> None:
    if not isinstance(table, ReliabilityTable):
        raise TypeError(f"table must be a ReliabilityTable, got {type(table).__name__}")
    if table.n == 0:
        raise ValueError("table is empty: there is nothing to draw")


def _kernel(grid: Floats, points: Floats) -> Floats:
    """Gaussian kernels `[len(grid), len(points)]`; a bandwidth of at least 0.004, as all points may be equal."""
    width = max(float(points.std(ddof=1)) * len(points) ** (-1 / 6), 0.004)  # Scott's rule in two dimensions
    kernels: Floats = np.exp(-0.5 * ((grid[:, None] - points) / width) ** 2)
    return kernels


def _mass_levels(density: Floats, masses: tuple[float, ...]) -> list[float]:
    """Return the density at the border of the smallest regions that hold these shares of it, ascending."""
    order = np.sort(density, axis=None)[::-1]
    held = np.cumsum(order) / order.sum()
    return sorted({float(order[np.searchsorted(held, mass)]) for mass in masses})


def _entropy(lam: Floats) -> Floats:
    return -(lam * np.log(np.maximum(lam, 1e-300)) + (1 - lam) * np.log1p(-lam))


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    _, ax = require("matplotlib.pyplot", "train").subplots(figsize=size, layout="constrained")
    return ax


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    ax.grid(True, color="#E6E6E6", lw=0.6)


def _percent() -> Any:
    return require("matplotlib.ticker", "train").FuncFormatter(lambda share, _: f"{100 * share:.3g} %")


_PAPER: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": "#CCCCCC",
    "linewidth": 0.6,
    "boxstyle": "round,pad=0.35",
    "alpha": 0.9,
}
