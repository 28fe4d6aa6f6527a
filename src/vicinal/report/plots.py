"""Figures as inline SVG: the same bytes for the same numbers, and no names that clash with another figure's.

Nothing a user wrote is drawn: names of classes and methods stand in captions, where they are escaped.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vicinal import plots
from vicinal._arrays import Values
from vicinal._checks import require
from vicinal.metrics import BinaryEvaluation, Estimate, Evaluation, ReliabilityTable
from vicinal.metrics.selective import RiskCoverage
from vicinal.report import verdicts
from vicinal.report.formatting import count, percent, with_interval

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.ticker import FuncFormatter

_BLUE, _RED, _INK, _GREY = "#0072B2", "#D55E00", "#222222", "#8A8A8A"

#: Text stays text, set in the fonts of the page; matplotlib's own measures leave room, being wider.
_STYLE: dict[str, object] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "vicinal",
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.edgecolor": "#9AA3AE",
    "axes.labelcolor": _INK,
    "xtick.color": "#5C6675",
    "ytick.color": "#5C6675",
    "hatch.linewidth": 0.6,
}
_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_LEGEND: dict[str, object] = {
    "loc": "lower left",
    "bbox_to_anchor": (-0.02, 1),
    "ncols": 3,
    "fontsize": "small",
    "frameon": False,
    "borderaxespad": 0.2,
    "handlelength": 1.3,
    "handletextpad": 0.5,
    "columnspacing": 1.1,
}
#: The width of a bin that has room for a count.
_READABLE = 0.02
#: How the count of a bin is written: within narrow bins of a small figure.
_COUNTS: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 6.5, "color": _INK}
#: A curve with more points than this is thinned: no screen shows more.
_POINTS = 400


@dataclass(frozen=True)
class Drawing:
    """A figure for the page."""

    svg: Markup
    title: str
    caption: str


#: How the name of a part begins that shows the rest of its name under the pointer.
_HOVER = "hover:"


class Sheet:
    """Draws the figures of one page; each gets a number, which its names begin with."""

    def __init__(self) -> None:
        self.n = 0

    def draw(
        self,
        paint: Callable[[Axes], object],
        size: tuple[float, float],
        title: str,
        caption: str,
        hover: Sequence[tuple[float, float, str]] = (),
    ) -> Drawing:
        """Return a figure.

        Parameters
        ----------
        paint
            Draws on the axes it is given.
        size
            Width and height in inches; on the page it takes the width there is.
        title
            What it shows, in a few words; with the caption it is what a screen reader says.
        caption
            What to see in it.
        hover
            From and to where on the x axis the pointer shows which text.
        """
        figures, style = require("matplotlib.figure", "train"), require("matplotlib.style", "train")
        with style.context(["default", _STYLE]):
            figure = figures.Figure(figsize=size, layout="constrained")
            axes = figure.subplots()
            paint(axes)
            for low, high, text in hover:
                axes.axvspan(low, high, alpha=0, lw=0, gid=_HOVER + text)
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", metadata=_METADATA, transparent=True)
        self.n += 1
        label = " ".join(part for part in (f"{title}.", caption) if part)
        return Drawing(_inline(buffer.getvalue(), f"f{self.n}-", label), title, caption)

    def reliability(self, table: ReliabilityTable, title: str, caption: str = "", *, intervals: bool = True) -> Drawing:
        """Draw the reliability diagram of a table, with thin intervals that leave the bars in sight.

        Without `intervals` where the table pools several runs on the same samples, which are not independent.
        """

        def paint(ax: Axes) -> None:
            plots.reliability_diagram(table, level=0, counts=False, ax=ax)
            for note in list(ax.texts):  # the caption has the ECE
                note.remove()
            # The samples of each bin stand at its foot, where it is wide enough to read them.
            for b in np.flatnonzero((table.bin_count > 0) & (np.diff(table.edges) > _READABLE)):
                middle = (table.edges[b] + table.edges[b + 1]) / 2
                ax.text(middle, 0.012, _short_count(int(table.bin_count[b])), rotation=90, **_COUNTS)
            for patch in ax.patches:  # hatches in the colour of their ground are lost in an SVG
                patch.set_hatch("")
            if intervals:
                filled = table.bin_count > 0
                middle, accuracy = (table.edges[:-1] + table.edges[1:])[filled] / 2, table.bin_accuracy[filled]
                low, high = (end[filled] for end in table.bin_interval())
                ends = np.maximum([accuracy - low, high - accuracy], 0)
                ax.errorbar(middle, accuracy, ends, fmt="_", ms=5, color=_INK, lw=1, label="95 % interval")
            ax.legend(**{**_LEGEND, "ncols": 2})  # beside the bars, not over them

        return self.draw(paint, (4.1, 4.4), title, caption, _bins(table))

    def smooth(self, evaluation: Evaluation, title: str, caption: str = "") -> Drawing:
        """Draw the reliability diagram without bins."""

        def paint(ax: Axes) -> None:
            plots.smooth_diagram(evaluation, ax=ax)
            for note in list(ax.texts):  # the caption has the value
                note.remove()
            ax.legend(**{**_LEGEND, "ncols": 2})

        return self.draw(paint, (4.1, 4.4), title, caption)

    def histogram(self, table: ReliabilityTable, title: str, caption: str = "") -> Drawing:
        """Draw how confidence is spread."""

        def paint(ax: Axes) -> None:
            plots.confidence_histogram(table, ax=ax)
            ax.legend(**_LEGEND)  # narrower than its own, which a small figure would cut off

        return self.draw(paint, (4.1, 2.7), title, caption, _bins(table))

    def lines(
        self,
        curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
        title: str,
        caption: str,
        *,
        ylabel: str,
        mark: float | None = None,
        share: bool = False,
    ) -> Drawing:
        """Draw learning curves: epochs and values by name; `mark` is the epoch whose weights were kept."""

        def paint(ax: Axes) -> None:
            for (name, (x, y)), colour, dash in zip(curves.items(), (_BLUE, _RED), ("-", (0, (5, 2))), strict=False):
                known = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
                some = known[:: -(-len(known) // _POINTS)] if known else []
                at, height = zip(*some, strict=True) if some else ((), ())
                marker = "o" if len(some) <= 12 else ""
                ax.plot(at, height, color=colour, ls=dash, lw=1.7, marker=marker, ms=3.5, label=name)
            if mark is not None:
                ax.axvline(mark, color=_GREY, lw=1, ls=(0, (2, 2)), label="kept")
            ax.set(xlabel="epoch", ylabel=ylabel)
            ax.xaxis.set_major_locator(
                require("matplotlib.ticker", "train").MaxNLocator(8, integer=True, min_n_ticks=1)
            )
            ax.set_ylim(bottom=0 if share else None)
            _finish(ax, share=share)

        return self.draw(paint, (4.1, 2.9), title, caption)

    def risk(self, curve: RiskCoverage, title: str, caption: str, chosen: Sequence[verdicts.Rule] = ()) -> Drawing:
        """Draw the error among the answered cases against how many are answered."""

        def paint(ax: Axes) -> None:
            coverage, risk = _thinned(curve.coverage, curve.risk)
            ax.plot(coverage, risk, color=_BLUE, lw=1.8, drawstyle="steps-post" if len(risk) < 40 else "default")
            points = [(r.coverage, 1 - r.accuracy.value) for r in chosen if r.accuracy is not None]
            if points:
                at, wrong = zip(*points, strict=True)
                ax.plot(at, wrong, "o", color=_RED, ms=6, label="the thresholds", zorder=3, clip_on=False)
            top = max(float(risk.max()), float(curve.risk[-1]), 0.005)
            ax.set(xlim=(0, 1.005), ylim=(0, 1.12 * top), xlabel="share of cases answered", ylabel="wrong among them")
            ax.xaxis.set_major_formatter(_percent_ticks())
            _finish(ax, share=True)

        return self.draw(paint, (4.6, 3.2), title, caption)

    def roc(self, binary: BinaryEvaluation) -> Drawing:
        """Draw the true positive rate over the false positive rate."""
        fine = _fine(binary)
        tpr, fpr = (1 - np.concatenate([[0.0], c.cumsum() / c.sum()]) for c in (fine.counts[:, 1], fine.counts[:, 0]))

        def paint(ax: Axes) -> None:
            ax.plot(*_corners(fpr[::-1], tpr[::-1]), color=_BLUE, lw=1.8)
            ax.plot([0, 1], [0, 1], color=_GREY, lw=1, ls=(0, (4, 3)))
            _shares(ax, "false positive rate", "true positive rate (recall)")

        value, interval = with_interval(binary.auroc, share=True)
        return self.draw(paint, (4.1, 3.6), "ROC curve", f"AUROC {value} ({interval}); a coin is on the dashed line.")

    def precision_recall(self, binary: BinaryEvaluation) -> Drawing:
        """Draw precision over recall."""
        fine = _fine(binary)
        positive, negative = (fine.counts[::-1, k].cumsum() for k in (1, 0))
        some = positive + negative > 0
        precision, recall = positive[some] / (positive + negative)[some], positive[some] / positive[-1]

        def paint(ax: Axes) -> None:
            ax.plot(*_corners(recall, precision), color=_BLUE, lw=1.8)
            ax.axhline(binary.base_rate, color=_GREY, lw=1, ls=(0, (4, 3)))
            _shares(ax, "recall", "precision")

        value, interval = with_interval(binary.average_precision, share=True)
        return self.draw(
            paint, (4.1, 3.6), "Precision and recall", f"AP {value} ({interval}); without a model, the dashed line."
        )

    def two_histograms(self, edges: Values, known: Values, foreign: Values, title: str, caption: str) -> Drawing:
        """Draw the scores of familiar and of foreign samples over each other."""

        def paint(ax: Axes) -> None:
            for counts, colour, name in ((known, _BLUE, "familiar"), (foreign, _RED, "foreign")):
                share = np.asarray(counts) / max(int(np.sum(counts)), 1)
                ax.stairs(share, edges, fill=True, color=colour, alpha=0.22)
                ax.stairs(share, edges, color=colour, lw=1.5, label=name)
            ax.set(xlabel="score (higher: looks more familiar)", ylabel="share of samples")
            _finish(ax, share=True)

        return self.draw(paint, (4.6, 2.9), title, caption)


def _bins(table: ReliabilityTable) -> list[tuple[float, float, str]]:
    """Return what each filled bin holds, for the pointer."""
    low, high = table.bin_interval()
    found = []
    for b in np.flatnonzero(table.bin_count):
        start, stop, n = float(table.edges[b]), float(table.edges[b + 1]), int(table.bin_count[b])
        right = with_interval(Estimate(float(table.bin_accuracy[b]), float(low[b]), float(high[b])), share=True)
        said = f"{100 * start:.3g}–{100 * stop:.3g}\u00a0%: {count(n, 'sample')}, mean"
        said += f" {percent(float(table.bin_confidence[b]))}, observed {right[0]} ({right[1]})"
        found.append((start, stop, said))
    return found


def _short_count(n: int) -> str:
    return str(n) if n < 10_000 else f"{n / 1000:.0f}k" if n < 1_000_000 else f"{n / 1e6:.0f}M"


def _fine(binary: BinaryEvaluation) -> ReliabilityTable:
    if binary.fine is None:
        raise ValueError("this evaluation kept no fine table, which curves need")
    return binary.fine


def _corners(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a curve without repeated points, thinned."""
    new = np.concatenate([[True], (np.diff(x) != 0) | (np.diff(y) != 0)])
    return _thinned(x[new], y[new])


def _shares(ax: Axes, x: str, y: str) -> None:
    ax.set(xlim=(0, 1.01), ylim=(0, 1.02), xlabel=x, ylabel=y)
    ax.xaxis.set_major_formatter(_percent_ticks())
    _finish(ax, share=True)


def _finish(ax: Axes, *, share: bool) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    ax.grid(True, color="#E6E6E6", lw=0.6)
    if share:
        ax.yaxis.set_major_formatter(_percent_ticks())
    handles, _ = ax.get_legend_handles_labels()
    if handles:
        ax.legend(**_LEGEND)


def _percent_ticks() -> FuncFormatter:
    ticks: FuncFormatter = require("matplotlib.ticker", "train").FuncFormatter(lambda x, _: f"{100 * x:.3g} %")
    return ticks


def _thinned(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Keep at most some hundred points of a curve, its ends among them."""
    if len(x) <= _POINTS:
        return x, y
    keep = np.unique(np.linspace(0, len(x) - 1, _POINTS).round().astype(int))
    return x[keep], y[keep]


def _inline(text: str, prefix: str, label: str) -> Markup:
    """Return matplotlib's SVG file as an element of a page.

    The prologue, the metadata and the style sheet, which would apply to the whole page, go; so do names that nothing
    refers to, and the others begin with `prefix`.
    """
    markup = require("markupsafe", "train").Markup
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"<defs>\s*</defs>", "", text)
    text = re.sub(rf'<g id="{_HOVER}([^"]*)">', r"<g><title>\1</title>", text)
    used = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", text))
    names = {one or other for one, other in used}

    def renamed(match: re.Match[str]) -> str:
        return f' id="{prefix}{match[1]}"' if match[1] in names else ""

    text = re.sub(r' id="([^"]*)"', renamed, text)
    text = re.sub(r"url\(#", f"url(#{prefix}", text)
    text = re.sub(r'href="#', f'href="#{prefix}', text)
    box = re.search(r'viewBox="([^"]+)"', text)
    if box is None:
        raise RuntimeError("matplotlib wrote an SVG without a viewBox")
    width, height = (float(side) for side in box[1].split()[2:])
    body = re.sub(r"\n\s*", "\n", text[text.index(">") + 1 :].strip())
    head = markup('<svg role="img" aria-label="{}" viewBox="{}" style="max-width:{}px;aspect-ratio:{}/{}">').format(
        label, box[1], round(width * 1.6), round(width), round(height)
    )
    inline: Markup = head + markup(body)
    return inline
