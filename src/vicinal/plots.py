"""Figures of calibration and of robustness. Each takes `ax=`, draws on it (or on a new figure) and returns it.

Those of several panels (`decision_boundaries`, `gan_panels`) take and return `axes` instead.

    ax = plots.reliability_diagram(ReliabilityTable.from_logits(logits, labels))
    ax.figure.savefig("reliability.pdf")

Nothing global is changed: no style, no `show`. A figure made for you is an ordinary pyplot one, to show, save and
close as you like. Colours are Okabe and Ito's, which people with any colour vision can tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betainc
from torch import Tensor

from vicinal._arrays import as_labels, as_matrix
from vicinal._checks import choice, integer, number, require
from vicinal._typing import Model
from vicinal.metrics import OODReport, ReliabilityTable, RiskCoverage
from vicinal.metrics._predictions import open_predictions
from vicinal.objectives.forward import call
from vicinal.probes.base import device_of, probing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vicinal.probes import BetweenCurves
    from vicinal.probes.gan import GanFit

__all__ = [
    "accuracy_confidence_density",
    "between_curves",
    "confidence_histogram",
    "decision_boundaries",
    "gan_panels",
    "label_entropy",
    "reliability_diagram",
    "risk_coverage_curve",
    "score_histogram",
]

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


def decision_boundaries(
    models: Mapping[str, Model],
    points: Any,
    labels: Any,
    *,
    resolution: int = 200,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw what classifiers of the plane predict everywhere, one panel a model, and return the panels.

    The colour is that of the predicted class, the paler the less sure (white is 1/K), and lines are where it changes.
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

    References
    ----------
    Zhang et al. (2018), mixup, Figure 1b; Bang et al. (2022), Logit Mixing Training, Figure 1.
    """
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
    shaded = {str(name): _probs_at(model, grid).view(side, side, -1).numpy() for name, model in models.items()}
    panels = _panels(axes, 1, len(shaded), size=2.9, what="models")[0]
    extent = (float(xs[0]), float(xs[-1]), float(ys[0]), float(ys[-1]))
    for ax, (name, probs) in zip(panels, shaded.items(), strict=True):
        ax.imshow(_shades(probs), extent=extent, origin="lower", aspect="auto", interpolation="bilinear")
        for k in range(1 if probs.shape[2] == 2 else probs.shape[2]):
            lead = probs[:, :, k] - np.delete(probs, k, axis=2).max(axis=2)
            if lead.min() < 0 < lead.max():
                ax.contour(xs.numpy(), ys.numpy(), lead, levels=[0.0], colors=[_INK], linewidths=0.9)
        for k in classes.unique().tolist():
            x1, x2 = places[classes == k].T.numpy()
            ax.scatter(x1, x2, s=9, color=_COLOURS[k % 6], edgecolors="white", linewidths=0.4, zorder=3)
        ax.set(xlim=extent[:2], ylim=extent[2:], title=name, xlabel="$x_1$", ylabel="$x_2$")
        ax.set_aspect("equal")
    return panels


def between_curves(curves: Mapping[str, BetweenCurves], *, what: str = "misses", ax: Axes | None = None) -> Axes:
    """Draw what models do along segments between training samples, with intervals.

    Parameters
    ----------
    curves : mapping
        What `robustness.between_samples` returned, by the name of the model.
    what : str
        `"misses"` (the share of predictions that are neither label), `"gradient_norm"` or `"mean_confidence"`.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    References
    ----------
    Zhang et al. (2018), mixup, Figure 2.
    """
    names = {
        "misses": "share of misses",
        "gradient_norm": "norm of the gradient",
        "mean_confidence": "mean confidence",
    }
    choice("what", what, tuple(names))
    if not curves:
        raise ValueError("curves is empty: there is nothing to draw")
    drawn = {str(name): getattr(held, what) for name, held in curves.items()}
    if any(curve is None for curve in drawn.values()):
        raise ValueError("the curves have no gradient norm: they were made with gradient='none'")
    ax = _axes(ax, (4.6, 3.2))
    reach = [end for held in curves.values() for end in (held.lambdas.min(), held.lambdas.max())]
    if min(reach) < 0 or max(reach) > 1:
        for edge in (0, 1):
            ax.axvline(edge, color=_GREY, lw=1, ls=(0, (4, 3)))
    for i, (name, held) in enumerate(curves.items()):
        curve, colour = drawn[str(name)], _COLOURS[i % 6]
        ax.fill_between(held.lambdas, curve.low, curve.high, color=colour, alpha=0.18, lw=0)
        ax.plot(held.lambdas, curve.value, color=colour, lw=1.6, label=str(name))
    ax.set(xlabel="λ, the share of the first sample", ylabel=names[what])
    if what != "gradient_norm":
        ax.yaxis.set_major_formatter(_percent())
    _tidy(ax)
    ax.legend(fontsize="small", frameon=False)
    return ax


def gan_panels(
    fits: Mapping[str, GanFit], *, n_points: int = 1000, axes: Sequence[Sequence[Axes]] | None = None
) -> list[list[Axes]]:
    """Draw the samples of GANs over training: a row for each GAN, a column for each iteration kept by all.

    Parameters
    ----------
    fits : mapping
        What `gan.fit_gan` returned, by name.
    n_points : int
        Real samples to draw, and generated ones at most.
    axes : rows of matplotlib Axes, optional
        Where to draw; a new figure by default.

    References
    ----------
    Zhang et al. (2018), mixup, Figure 5.
    """
    n_points = integer("n_points", n_points, low=1)
    if not fits:
        raise ValueError("fits is empty: there is nothing to draw")
    shared = sorted(set.intersection(*(set(fit.samples) for fit in fits.values())))
    if not shared:
        raise ValueError("the fits have no iteration in common: keep samples at the same ones (keep_at)")
    rows = _panels(axes, len(fits), len(shared), size=1.8, what="fits and iterations")
    for row, (name, fit) in zip(rows, fits.items(), strict=True):
        real = fit.target.sample(n_points, generator=torch.Generator().manual_seed(0)).numpy()
        reach = 1.35 * float(np.abs(real).max())
        for ax, iteration in zip(row, shared, strict=True):
            made = fit.samples[iteration][:n_points].numpy()
            for points, colour in ((real, _BLUE), (made, _ORANGE)):
                ax.scatter(points[:, 0], points[:, 1], s=3, color=colour, alpha=0.5, linewidths=0, rasterized=True)
            ax.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[])
            ax.set_aspect("equal")
            if row is rows[0]:
                ax.set_title(f"iteration {iteration:,}", fontsize="small")
        row[0].set_ylabel(str(name))
    return rows


def _probs_at(model: Model, grid: Tensor) -> Tensor:
    """Return the probabilities `[B, K]` at points of the plane, on the CPU."""
    with probing(model), torch.no_grad():
        device = device_of(model)
        logits = torch.cat([call(model, part.to(device)).float().cpu() for part in grid.split(4096)])
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(f"the model must return logits [B, K] with K of at least 2, got {list(logits.shape)}")
    return logits.softmax(1)


def _shades(probs: NDArray[Any]) -> Floats:
    """Return the colour of the likeliest class, whitened to the degree that the model is unsure, `[H, W, 3]`."""
    n_classes = probs.shape[2]
    sure = (probs.max(axis=2) - 1 / n_classes) / (1 - 1 / n_classes)
    hues = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in _COLOURS])
    colour = hues[probs.argmax(axis=2) % len(hues)]
    shades: Floats = 1 - 0.55 * sure[:, :, None] * (1 - colour)
    return np.clip(shades, 0, 1)


def _panels(axes: Any, n_rows: int, n_columns: int, *, size: float, what: str) -> list[list[Axes]]:
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


_COLOURS = (_BLUE, _RED, _GREEN, _PINK, _ORANGE, _SKY)


def risk_coverage_curve(
    curve: RiskCoverage | Mapping[str, RiskCoverage], *, confidence: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Draw the share of wrong predictions among the surest, against how many are accepted.

    A good confidence keeps the curve low until late; one that knows nothing is flat at the error rate. The area below
    is AURC. The dashed line is the best order of as many errors, in which all right predictions come first: what lies
    between the two is the excess AURC.

    Parameters
    ----------
    curve : RiskCoverage, or several by name
        Of `risk_coverage`. The dashed line is drawn for a single one.
    confidence : float
        Of AURC's interval in the legend; 0 prints none.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    References
    ----------
    Geifman, Uziel & El-Yaniv (2019), Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers, Figure 1.
    """
    level = number("confidence", confidence, low=0, high=1)
    curves = dict(curve) if isinstance(curve, Mapping) else {"": curve}
    if not curves:
        raise ValueError("curve is empty: there is nothing to draw")
    for held in curves.values():
        if not isinstance(held, RiskCoverage):
            raise TypeError(f"curve must be a RiskCoverage, or several by name, got {type(held).__name__}")
    ax = _axes(ax, (4.6, 3.4))
    top = 0.0
    for i, (name, held) in enumerate(curves.items()):
        estimate = f"AURC {held.aurc_estimate(level)}" if level > 0 else f"AURC {held.aurc:.4f}"
        label = f"{name}: {estimate}" if name else estimate
        # A step for each rule, over the share that it adds, whose area is AURC; of many rules 2,000 look the same.
        many = len(held.levels) > 2000
        shown = np.unique(np.searchsorted(held.coverage, np.linspace(0, 1, 2001)[1:])) if many else slice(None)
        edges = np.concatenate([[0.0], held.coverage[shown]])
        ax.stairs(held.risk[shown], edges, baseline=None, color=_COLOURS[i % 6], lw=1.6, label=label)
        settled = held.risk[held.coverage >= min(0.05, held.coverage[-1])]  # the first few samples jump
        top = max(top, float(settled.max()))
        if len(curves) == 1:
            grid = np.linspace(0, 1, 401)[1:]
            right = 1 - float(held.risk[-1])
            best = np.maximum(grid - right, 0) / grid
            ax.plot(grid, best, ls=(0, (4, 3)), color=_GREY, lw=1.2, label=f"best order, excess {held.excess_aurc:.4f}")
    ax.set(xlim=(0, 1), ylim=(0, min(1.15 * top, 1.02) or 0.05), xlabel="coverage", ylabel="risk")
    ax.xaxis.set_major_formatter(_percent())
    ax.yaxis.set_major_formatter(_percent())
    _tidy(ax)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize="small", frameon=False, borderaxespad=0.2)
    return ax


def score_histogram(report: OODReport, *, ax: Axes | None = None) -> Axes:
    """Draw how the scores of in-distribution samples and of others are distributed, with AUROC and FPR.

    Each histogram is of shares, so that sets of any size compare. Higher scores look more in-distribution.

    References
    ----------
    Thulasidasan et al. (2019), On Mixup Training, Figure 8.
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
    ax.set(xlim=(report.edges[0], report.edges[-1]), xlabel="score", ylabel="share of samples")
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter(_percent())
    _tidy(ax)
    note = f"AUROC {report.auroc}\nFPR at {100 * report.tpr:g} % TPR {report.fpr_at_tpr}"
    ax.text(0.03, 0.96, note, transform=ax.transAxes, ha="left", va="top", fontsize="small", color=_INK, bbox=_PAPER)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize="small", frameon=False, borderaxespad=0.2)
    return ax
