"""Plots of results: bars of methods with intervals, curves over epochs, λ or α, forest plots of claims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal import plots
from vicinal._checks import require
from vicinal.papers.claims import HOLDS, NO_DIFFERENCE, REVERSED, UNDECIDED, Judged, Key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vicinal.papers.results import Result

#: Colours of Okabe and Ito, which differ for people with any colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8A8A")


def panels(
    n: int, *, size: tuple[float, float] = (3.6, 2.8), across: int = 3, share: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return a matplotlib figure of n panels, which share their scales if asked to.

    It belongs to no window, so nothing has to be closed.
    """
    figure_class = require("matplotlib.figure", "train").Figure
    columns = min(n, across)
    rows = -(-n // columns)
    drawn = figure_class(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = list(np.asarray(drawn.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)).ravel())
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_axisbelow(True)
        ax.grid(True, color="#E6E6E6", lw=0.6)
    for ax in axes[n:]:
        ax.set_visible(False)
    return drawn, axes[:n]


def bars(metrics: Mapping[str, str], *, scatter: str = "") -> Callable[[Result], Figure]:
    """Return a plot with a panel for each metric, a group for each data set and network, a bar for each method.

    `scatter` names a curve of confidence, accuracy and share of bins: cells that have it get a panel each.
    """

    def draw(result: Result) -> Figure:
        groups = list(dict.fromkeys(key[:-1] for key in result.keys))
        methods = list(dict.fromkeys(key[-1] for key in result.keys))
        width = max(4.2, 1.2 + 0.25 * len(groups) * (len(methods) + 1))
        clouds = [key for key in result.keys if scatter and result.first(key, scatter)]
        drawn, every = panels(len(metrics) + len(clouds), size=(width, 3.0), across=1 if width > 7 else 2)
        axes = every[: len(metrics)]
        for ax, key in zip(every[len(metrics) :], clouds, strict=True):
            confidence, accuracy, share = (np.asarray(values) for values in result.first(key, scatter))
            ax.plot([0, 1], [0, 1], color="#8A8A8A", lw=1)
            ax.scatter(confidence, accuracy, s=600 * share + 4, color=COLOURS[0], alpha=0.6, lw=0)
            ax.set(xlabel="confidence", ylabel="accuracy", title=" · ".join(key), xlim=(0, 1), ylim=(0, 1))
            ax.title.set_fontsize("small")
        for ax, (name, title) in zip(axes, metrics.items(), strict=True):
            rows = {
                _short(group): {key[-1]: estimate for key in result.keys if key[:-1] == group
                                if (estimate := result.estimate(key, name)) is not None}
                for group in groups
            }  # fmt: skip
            rows = {group: of for group, of in rows.items() if of}  # some data may not have this metric
            if not rows:
                ax.set_axis_off()
                continue
            plots.method_bars(rows, name=title.replace(" (%)", ""), percent="%" in title, ax=ax)
            ax.tick_params(axis="x", labelsize="small")
        _share_scale(axes, metrics.values())
        _one_legend(drawn, axes)
        return drawn

    return draw


def curves(metrics: Mapping[str, tuple[str, float]], *, xlabel: str = "epoch") -> Callable[[Result], Figure]:
    """Return a plot with a panel for each data set and network, a curve for each method: mean and range of seeds.

    `metrics` are names of curves, each with its title and the factor that it is drawn with.
    """

    def draw(result: Result) -> Figure:
        groups = list(dict.fromkeys(key[:-1] for key in result.keys))
        drawn, axes = panels(len(groups) * len(metrics), share=len(metrics) == 1)
        for ax, (group, name) in zip(axes, itertools.product(groups, metrics), strict=True):
            title, factor = metrics[name]
            for m, key in enumerate(key for key in result.keys if key[:-1] == group):
                lines = factor * result.curve(key, name)
                if not lines.size:
                    continue
                at = np.arange(1, lines.shape[1] + 1)
                ax.plot(at, lines.mean(axis=0), color=COLOURS[m % 7], lw=1.6, label=key[-1])
                ax.fill_between(at, lines.min(axis=0), lines.max(axis=0), color=COLOURS[m % 7], alpha=0.15, lw=0)
            ax.set(xlabel=xlabel, ylabel=title, title=_short(group))
        _one_legend(drawn, axes)
        return drawn

    return draw


def sweep(metrics: Mapping[str, str], alphas: Mapping[str, float]) -> Callable[[Result], Figure]:
    """Return a plot of metrics against α, by the method that has each value."""

    def draw(result: Result) -> Figure:
        drawn, axes = panels(len(metrics))
        for ax, (name, title) in zip(axes, metrics.items(), strict=True):
            lines: dict[str, dict[float, Any]] = {}
            for key in result.keys:
                lines.setdefault(_short(key[:-1]), {})[alphas[key[-1]]] = result.estimate(key, name)
            plots.alpha_sweep(lines, name=title.replace(" (%)", ""), percent="%" in title, ax=ax)
        _share_scale(axes, metrics.values())
        _one_legend(drawn, axes)
        return drawn

    return draw


#: Colours of verdicts.
_VERDICT_COLOURS = {HOLDS: COLOURS[2], REVERSED: COLOURS[1], NO_DIFFERENCE: COLOURS[0], UNDECIDED: COLOURS[6]}
#: Effects are cut off at so many margins, where an arrow points on.
_MOST_MARGINS = 12.0


def forest(claims: Sequence[tuple[str, Judged]], *, columns: int = 1, seeds: bool = True) -> Figure:
    """Draw a line for each claim: its interval, its mean, the paper's value and, if asked for, a dot for each seed.

    Effects are shown in units of each claim's margin, which is one point for most, so that claims share an axis. Claims
    that count sets have no margin and are left out, as are those that are not tested.
    """
    shown = has_line(claims)
    rows = max(-(-len(shown) // columns), 1)
    height = 0.34 if columns == 1 else 0.2
    drawn, axes = panels(columns, size=(8.6 if columns == 1 else 7.6, 1.0 + height * rows), across=columns)
    for column, ax in enumerate(axes):
        part = shown[column * rows : (column + 1) * rows]
        ax.axvspan(-1, 1, color="#EFEFEF", lw=0)
        ax.axvline(0, color="#555555", lw=0.8)
        for row, (_, one) in enumerate(part):
            _forest_line(ax, rows - 1 - row, one, seeds)
        places = [rows - 1 - row for row in range(len(part))]
        ax.set_yticks(places, [text for text, _ in part], fontsize="small" if columns == 1 else 6.5)
        label = "effect in margins (one point for most claims); right of zero the paper is right"
        ax.set_xlabel(label if columns == 1 else "effect in margins", fontsize="small")
        ax.set(xlim=(-_MOST_MARGINS - 0.5, _MOST_MARGINS + 0.5), ylim=(-0.7, rows - 0.3))
    handles = [axes[0].plot([], [], color=colour, lw=2, label=v)[0] for v, colour in _VERDICT_COLOURS.items()]
    handles += axes[0].plot([], [], "D", ms=4, mfc="none", color="#222222", label="the paper's value")
    drawn.legend(handles=handles, loc="outside upper center", ncols=5, fontsize="small", frameon=False)
    return drawn


def has_line(claims: Sequence[tuple[str, Judged]]) -> list[tuple[str, Judged]]:
    """Return the claims that a forest plot has a line for."""
    return [(text, one) for text, one in claims if one.effect is not None and one.margin > 0]


def _forest_line(ax: Axes, y: float, one: Judged, seeds: bool) -> None:
    """Draw a claim at a height; an arrow stands for what lies outside."""
    colour, cut = _VERDICT_COLOURS[one.verdict], _MOST_MARGINS
    if seeds:
        values = [value / one.margin for value in one.values if value is not None]
        ax.plot(np.clip(values, -cut, cut), [y + 0.18] * len(values), ".", ms=3, color=colour, alpha=0.4)
    if one.low is not None and one.high is not None:
        low, high = one.low / one.margin, one.high / one.margin
        ax.plot(np.clip([low, high], -cut, cut), [y, y], color=colour, lw=2, solid_capstyle="butt")
        for end, marker in ((low, "<"), (high, ">")):
            if abs(end) > cut:
                ax.plot(math.copysign(cut, end), y, marker, ms=5, color=colour)
    ax.plot(np.clip((one.effect or 0.0) / one.margin, -cut, cut), y, "o", ms=4, color=colour)
    if one.paper is not None:
        ax.plot(np.clip(one.paper / one.margin, -cut, cut), y, "D", ms=4, mfc="none", color="#222222")


def _short(group: Key) -> str:
    return "\n".join(group).replace(", ", ",\n")


def _share_scale(axes: Sequence[Axes], titles: Iterable[str]) -> None:
    """Give panels in percent one scale, so that bars and lines of the same height mean the same."""
    shared = [ax for ax, title in zip(axes, titles, strict=True) if "%" in title and ax.axison]
    if shared:
        low, high = min(ax.get_ylim()[0] for ax in shared), max(ax.get_ylim()[1] for ax in shared)
        for ax in shared:
            ax.set_ylim(low, high)


def _one_legend(drawn: Figure, axes: Sequence[Axes]) -> None:
    """Put one legend above all panels in place of one in each; none where there is one line only."""
    handles, labels = axes[0].get_legend_handles_labels()
    for ax in axes:
        if (legend := ax.get_legend()) is not None:
            legend.remove()
    unique: dict[str, Any] = dict(zip(labels, handles, strict=True))
    if len(unique) > 1:
        widest = 0.6 + 0.07 * max(map(len, unique))  # inches, about: handle and letters
        ncols = max(1, min(3, len(unique), int(drawn.get_figwidth() / widest)))
        drawn.legend(
            unique.values(), unique.keys(), loc="outside upper center", ncols=ncols, fontsize="small", frameon=False
        )
