"""The figures of recipes, drawn from their results: bars of methods with intervals, curves over epochs or λ or α."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal._checks import require
from vicinal.recipes.claims import Key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vicinal.recipes.results import Result

__all__ = ["COLOURS", "bars", "curves", "panels", "sweep"]

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
    """Return what draws a panel for each figure: a group for each data set and network, a bar for each method.

    Lines are 95 % intervals of the mean over seeds, dots are seeds.
    """

    def draw(result: Result) -> Figure:
        groups = list(dict.fromkeys(key[:-1] for key in result.keys))
        methods = list(dict.fromkeys(key[-1] for key in result.keys))
        drawn, axes = panels(
            len(figures), size=(max(3.2, 0.9 + 0.28 * len(groups) * (len(methods) + 1)), 3.0), across=2
        )
        for ax, (name, title) in zip(axes, figures.items(), strict=True):
            factor = 100 if "%" in title else 1
            for m, method in enumerate(methods):
                for g, group in enumerate(groups):
                    estimate = result.estimate((*group, method), name)
                    if estimate is None:
                        continue
                    at = g * (len(methods) + 1) + m
                    label = method if g == 0 or method not in [t.get_label() for t in ax.containers] else None
                    ax.bar(at, factor * estimate.value, 0.8, color=COLOURS[m % 7], alpha=0.55, label=label)
                    ax.vlines(at, factor * estimate.low, factor * estimate.high, color="#222222", lw=1.4)
                    values = result.values((*group, method), name)
                    ax.plot([at] * len(values), [factor * v for v in values], ".", ms=3, color=COLOURS[m % 7])
            ax.set_xticks(
                [g * (len(methods) + 1) + (len(methods) - 1) / 2 for g in range(len(groups))],
                [_short(group) for group in groups],
                fontsize="small",
            )
            ax.set_ylabel(title)
        _legend(drawn, axes[0])
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
        _legend(drawn, axes[0])
        return drawn

    return draw


def sweep(figures: Mapping[str, str], values: Mapping[str, float], *, xlabel: str) -> Callable[[Result], Figure]:
    """Return what draws figures against a hyper-parameter, by the method that has each value."""

    def draw(result: Result) -> Figure:
        drawn, axes = panels(len(figures))
        for ax, (name, title) in zip(axes, figures.items(), strict=True):
            factor = 100 if "%" in title else 1
            for g, group in enumerate(dict.fromkeys(key[:-1] for key in result.keys)):
                rows = [(values[key[-1]], result.estimate(key, name)) for key in result.keys if key[:-1] == group]
                known = sorted((at, e.value, e.low, e.high) for at, e in rows if e is not None)
                at, middle, low, high = (np.array(column) for column in zip(*known, strict=True))
                ax.errorbar(
                    range(len(at)),
                    factor * middle,
                    yerr=factor * np.array([middle - low, high - middle]),
                    marker="o",
                    capsize=2,
                    color=COLOURS[g % 7],
                    label=_short(group),
                )
                ax.set_xticks(range(len(at)), [f"{a:g}" for a in at])
            ax.set(xlabel=xlabel, ylabel=title)
        _legend(drawn, axes[0])
        return drawn

    return draw


def _short(group: Key) -> str:
    return "\n".join(group)


def _legend(drawn: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    unique: dict[str, Any] = dict(zip(labels, handles, strict=True))
    if len(unique) > 1:
        drawn.legend(
            unique.values(), unique.keys(), loc="outside upper center", ncols=min(4, len(unique)), fontsize="small",
            frameon=False,
        )  # fmt: skip
