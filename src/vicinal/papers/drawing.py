"""The figures of recipes, drawn from their results: bars of methods with intervals, curves over epochs or λ or α."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal import plots
from vicinal._checks import require
from vicinal.papers.claims import HOLDS, NO_DIFFERENCE, REVERSED, UNDECIDED, Judged, Key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vicinal.papers.results import Result

#: Okabe and Ito's, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8A8A")


def panels(n: int, *, size: tuple[float, float] = (3.6, 2.8), across: int = 3) -> tuple[Figure, list[Axes]]:
    """Return a figure of n tidy panels. It belongs to no window: nothing has to be closed."""
    figure_class = require("matplotlib.figure", "train").Figure
    columns = min(n, across)
    rows = -(-n // columns)
    drawn = figure_class(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = list(np.asarray(drawn.subplots(rows, columns, squeeze=False)).ravel())
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_axisbelow(True)
        ax.grid(True, color="#E6E6E6", lw=0.6)
    for ax in axes[n:]:
        ax.set_visible(False)
    return drawn, axes[:n]


def bars(figures: Mapping[str, str]) -> Callable[[Result], Figure]:
    """Return what draws a panel for each figure: a group for each data set and network, a bar for each method."""

    def draw(result: Result) -> Figure:
        groups = list(dict.fromkeys(key[:-1] for key in result.keys))
        methods = list(dict.fromkeys(key[-1] for key in result.keys))
        width = max(4.2, 1.2 + 0.25 * len(groups) * (len(methods) + 1))
        drawn, axes = panels(len(figures), size=(width, 3.0), across=1 if width > 7 else 2)
        for ax, (name, title) in zip(axes, figures.items(), strict=True):
            rows = {
                _short(group): {key[-1]: estimate for key in result.keys if key[:-1] == group
                                if (estimate := result.estimate(key, name)) is not None}
                for group in groups
            }  # fmt: skip
            rows = {group: of for group, of in rows.items() if of}  # some data may not have this figure
            if not rows:
                ax.set_axis_off()
                continue
            plots.method_bars(rows, name=title.replace(" (%)", ""), percent="%" in title, ax=ax)
            ax.tick_params(axis="x", labelsize="small")
        _one_legend(drawn, axes)
        return drawn

    return draw


def curves(
    name: str, *, x: Sequence[float] | None = None, xlabel: str = "epoch", ylabel: str = "", factor: float = 100.0
) -> Callable[[Result], Figure]:
    """Return what draws a panel for each data set and network, a curve for each method: mean and range of seeds."""

    def draw(result: Result) -> Figure:
        groups = list(dict.fromkeys(key[:-1] for key in result.keys))
        drawn, axes = panels(len(groups))
        for ax, group in zip(axes, groups, strict=True):
            for m, key in enumerate(key for key in result.keys if key[:-1] == group):
                lines = factor * result.curve(key, name)
                if not lines.size:
                    continue
                at = np.arange(1, lines.shape[1] + 1) if x is None else np.asarray(x)
                ax.plot(at, lines.mean(axis=0), color=COLOURS[m % 7], lw=1.6, label=key[-1])
                ax.fill_between(at, lines.min(axis=0), lines.max(axis=0), color=COLOURS[m % 7], alpha=0.15, lw=0)
            ax.set(xlabel=xlabel, ylabel=ylabel, title=_short(group))
        _one_legend(drawn, axes)
        return drawn

    return draw


def sweep(figures: Mapping[str, str], alphas: Mapping[str, float]) -> Callable[[Result], Figure]:
    """Return what draws figures against α, by the method that has each value."""

    def draw(result: Result) -> Figure:
        drawn, axes = panels(len(figures))
        for ax, (name, title) in zip(axes, figures.items(), strict=True):
            lines: dict[str, dict[float, Any]] = {}
            for key in result.keys:
                lines.setdefault(_short(key[:-1]), {})[alphas[key[-1]]] = result.estimate(key, name)
            plots.alpha_sweep(lines, name=title.replace(" (%)", ""), percent="%" in title, ax=ax)
        _one_legend(drawn, axes)
        return drawn

    return draw


#: Colours of verdicts.
_VERDICT_COLOURS = {HOLDS: COLOURS[2], REVERSED: COLOURS[1], NO_DIFFERENCE: COLOURS[0], UNDECIDED: COLOURS[6]}
#: Effects are cut off at so many margins, where an arrow points on.
_MOST_MARGINS = 12.0


def forest(claims: Sequence[tuple[str, Judged]], *, seeds: bool = True) -> Figure:
    """Draw a line for each claim: its interval, its mean, the paper's value and, if asked for, a dot for each seed.

    Effects are shown in units of each claim's margin, which is one point for most, so that claims share an axis.
    """
    shown = [(text, one) for text, one in claims if one.effect is not None and one.margin > 0]
    drawn, (ax,) = panels(1, size=(8.6, 0.9 + 0.34 * max(len(shown), 1)))
    ax.axvspan(-1, 1, color="#EFEFEF", lw=0)
    ax.axvline(0, color="#555555", lw=0.8)
    cut = _MOST_MARGINS
    for row, (_, one) in enumerate(shown):
        y, colour = len(shown) - 1 - row, _VERDICT_COLOURS[one.verdict]
        values = [value / one.margin for value in one.values if value is not None]
        if seeds:
            ax.plot(np.clip(values, -cut, cut), [y + 0.18] * len(values), ".", ms=3, color=colour, alpha=0.4)
        if one.low is not None and one.high is not None:
            low, high = one.low / one.margin, one.high / one.margin
            ax.plot(np.clip([low, high], -cut, cut), [y, y], color=colour, lw=2, solid_capstyle="butt")
            for end, marker in ((low, "<"), (high, ">")):
                if abs(end) > cut:
                    ax.plot(math.copysign(cut, end), y, marker, ms=5, color=colour)
        ax.plot(np.clip((one.effect or 0.0) / one.margin, -cut, cut), y, "o", ms=5, color=colour)
        if one.paper is not None:
            ax.plot(np.clip(one.paper / one.margin, -cut, cut), y, "D", ms=4, mfc="none", color="#222222")
    ax.set_yticks(range(len(shown)), [text for text, _ in reversed(shown)], fontsize="small")
    ax.set(xlabel="effect in margins (one point for most claims); right of zero the paper is right")
    ax.set(xlim=(-cut - 0.5, cut + 0.5), ylim=(-0.7, len(shown) - 0.3))
    handles = [ax.plot([], [], color=colour, lw=2, label=verdict)[0] for verdict, colour in _VERDICT_COLOURS.items()]
    handles += ax.plot([], [], "D", ms=4, mfc="none", color="#222222", label="the paper's")
    drawn.legend(handles=handles, loc="outside upper center", ncols=5, fontsize="small", frameon=False)
    return drawn


def _short(group: Key) -> str:
    return "\n".join(group).replace(", ", ",\n")


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
