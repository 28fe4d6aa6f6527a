"""What the pages show, as plain values: text, tables and drawings. The templates only set them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vicinal import plots
from vicinal._atomic import Json
from vicinal.metrics import (
    METRICS,
    BinaryEvaluation,
    Estimate,
    Evaluation,
    Metric,
    ReliabilityTable,
    SetEvaluation,
    Slice,
    clopper_pearson,
)
from vicinal.metrics.ood import OODReport
from vicinal.metrics.registry import brief
from vicinal.metrics.selective import RiskCoverage
from vicinal.report import verdicts
from vicinal.report.formatting import count, number, percent, threshold, with_interval
from vicinal.report.plots import Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vicinal.calibrators import LossParts
    from vicinal.probes import AttackErrors, BetweenCurves
    from vicinal.runs import Importance

#: Classes shown at once; with more, the worst of them.
SHOWN_CLASSES = 20
_SHOWN_CELLS = 4
#: Samples times classes up to which calibration and refinement take about a second.
FEW_SCORES = 20_000


def metric_name(metric: Metric, n_bins: int) -> str:
    """Return what a figure is called at the head of a row or column."""
    heading = metric.heading(n_bins).replace(" bins", "\u00a0bins")
    return heading[0].upper() + heading[1:]


def metric_text(metric: Metric, estimate: Estimate | None) -> tuple[str, str]:
    """Return an estimate and its interval as they are written."""
    return ("–", "") if estimate is None else with_interval(estimate, share=metric.percent)


def metrics_table(evaluations: Mapping[str, Evaluation]) -> dict[str, object]:
    """Return the table of figures with their intervals, a column for each evaluation."""
    first = next(iter(evaluations.values()))
    rows = [
        {
            "name": metric_name(METRICS[name], first.n_bins),
            "about": METRICS[name].about,
            "cells": [metric_text(METRICS[name], each.metrics.get(name)) for each in evaluations.values()],
        }
        for name in first.metrics
    ]
    return {"columns": list(evaluations), "rows": rows}


def tiles(evaluation: Evaluation, *extra: tuple[str, str, str]) -> list[tuple[str, str, str]]:
    """Return the metrics that stand at the top: name, value, and what to read under it."""
    shown = [m for name, m in METRICS.items() if m.headline and evaluation.metrics.get(name) is not None]
    tops = [(metric_name(f, evaluation.n_bins), *metric_text(f, evaluation.metrics[f.name])) for f in shown]
    return [*tops, *extra]


# Prediction sets


def sets_section(asked: float, sets: Mapping[str, SetEvaluation], classes: Sequence[str]) -> dict[str, object]:
    """Return how often prediction sets hold the true class and how large they are: of each kind, and by class."""
    names = {"coverage": True, "size": False, "single": True, "empty": True}
    rows: list[Json] = [
        {"name": kind, "about": "", "cells": [with_interval(getattr(e, n), share=s) for n, s in names.items()]}
        for kind, e in sets.items()
    ]
    for row, e in zip(rows, sets.values(), strict=True):
        if (lowest := e.class_coverage[e.worst_class]) is not None:
            value, interval = with_interval(lowest, share=True)
            row["cells"].insert(1, (f"{value}, {_short(classes[e.worst_class])}", interval))

    def of_class(k: int) -> list[tuple[str, str]]:
        pairs = [(e.class_coverage[k], e.class_size[k]) for e in sets.values()]
        return [
            ("–", "") if each is None else with_interval(each, share=share)
            for coverage, size in pairs
            for each, share in ((coverage, True), (size, False))
        ]

    def of_size(e: SetEvaluation, size: int) -> tuple[str, str]:
        return with_interval(e.size_coverage[size], share=True) if size in e.size_coverage else ("–", "")

    first = next(iter(sets.values()))
    covered = {k: each.value for k, each in enumerate(first.class_coverage) if each is not None}
    worst = sorted(covered, key=lambda k: covered[k])
    by_class = [
        {"name": classes[k], "about": count(first.class_n[k], "sample"), "cells": of_class(k)}
        for k in worst[:SHOWN_CLASSES]
    ]
    sizes = sorted({size for e in sets.values() for size in e.size_coverage})
    by_size = [{"name": str(size), "about": "", "cells": [of_size(e, size) for e in sets.values()]} for size in sizes]
    return {
        "asked": percent(asked, 0),
        "of": f"{first.n:,}",
        "n_classes": len(worst),
        "table": {
            "columns": ["coverage", "worst class", "classes in a set", "sets of one class", "empty sets"],
            "rows": rows,
        },
        "by_size": {"columns": [f"coverage, {kind}" for kind in sets], "rows": by_size},
        "by_class": {
            "columns": [f"{what}, {kind}" for kind in sets for what in ("coverage", "size")],
            "rows": by_class,
        },
    }


def _short(name: str, most: int = 16) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


# Baselines


def baselines_section(
    evaluation: Evaluation, simpler: Mapping[str, Mapping[str, Estimate | None]], name: str = "this model"
) -> dict[str, object] | None:
    """Return the metrics of the model beside those of baselines on the same samples; None without any."""
    if not simpler:
        return None
    shown = brief(evaluation.metrics)
    models = {f"{name}, calibrated": evaluation.metrics, **simpler}
    rows = [
        {
            "name": name,
            "about": "",
            "cells": [*(metric_text(f, metrics.get(f.name)) for f in shown), _less(metrics.get("nll_difference"))],
        }
        for name, metrics in models.items()
    ]
    found = verdicts.versus_baselines(evaluation, simpler)
    return {
        "sentence": f"{found.sentence} {found.detail}".strip(),
        "table": {"columns": [*(metric_name(f, evaluation.n_bins) for f in shown), "NLL difference"], "rows": rows},
    }


def _less(difference: Estimate | None) -> tuple[str, str]:
    """Return the NLL of the model less that of a baseline, and what it says of the model."""
    if difference is None:
        return "–", ""
    found = "better" if difference.high < 0 else "worse" if difference.low > 0 else "not significant"
    value, low, high = (
        f"{end:+.4f}".replace("-", "−") if np.isfinite(end) else number(end)
        for end in (difference.value, difference.low, difference.high)
    )
    return value, f"{low} to {high}: {found}"


# Two classes


def binary_section(sheet: Sheet, evaluation: BinaryEvaluation, name: str) -> dict[str, object]:
    """Return the diagram of the positive class's probability, and how well it ranks."""
    share = percent(evaluation.base_rate)
    rows = [
        {
            "name": "AUROC",
            "about": "chance that a positive sample has the higher probability; 50\u00a0% is a coin",
            "cells": [with_interval(evaluation.auroc, share=True)],
        },
        {
            "name": "Average precision",
            "about": f"area under precision over recall; {share} without a model",
            "cells": [with_interval(evaluation.average_precision, share=True)],
        },
    ]
    table = evaluation.table
    drawings = [] if evaluation.fine is None else [sheet.roc(evaluation), sheet.precision_recall(evaluation)]
    figure = sheet.reliability(
        table,
        "Reliability of P(positive)",
        "How often samples are positive, by the probability they were given. "
        f"ECE {percent(table.ece(), 2)} ({table.n_bins}\u00a0bins).",
    )
    return {
        "name": name,
        "share": share,
        "table": {"columns": ["value"], "rows": rows},
        "drawings": [figure, *drawings],
        "cuts": None if evaluation.fine is None else json.dumps(threshold_counts(evaluation.fine)),
    }


#: Thresholds of P(positive) that a slider has, about: half of them even, half where the samples are.
_CUTS = 100


def threshold_counts(fine: ReliabilityTable) -> dict[str, object]:
    """Return counts at thresholds of P(positive), with exact intervals, for the slider of two classes.

    A sample is positive where its probability is above the threshold. `tp` and `fp` are counts. `precision` and
    `recall` have 95 % intervals. `fp_rate` and `fn_rate` are shares of all samples with 97.5 % intervals: their
    costs together then have one of 95 % or more.
    """
    negative, positive = fine.counts[:, 0], fine.counts[:, 1]
    p, n = int(positive.sum()), int(fine.n)
    mass = np.searchsorted(np.cumsum(negative + positive), np.linspace(0, n, _CUTS + 1)[1:-1])
    even = np.linspace(0, fine.n_bins, _CUTS + 1).astype(int)
    cuts = np.unique(np.concatenate([even, np.minimum(mass + 1, fine.n_bins)]))  # bins below a cut are not positive
    tp = p - np.concatenate([[0], positive.cumsum()])[cuts]
    fp = (n - p) - np.concatenate([[0], negative.cumsum()])[cuts]

    def ends(k: NDArray[np.int64], of: NDArray[np.int64], level: float = 0.95) -> list[list[float]]:
        low, high = clopper_pearson(k, np.maximum(of, 1), level)
        both: list[list[float]] = np.stack([np.where(of > 0, low, 0), np.where(of > 0, high, 1)], 1).round(4).tolist()
        return both

    every = np.full_like(tp, n)
    return {
        "n": n,
        "positives": p,
        "at": (cuts / fine.n_bins).tolist(),
        "tp": tp.tolist(),
        "fp": fp.tolist(),
        "precision": ends(tp, tp + fp),
        "recall": ends(tp, np.full_like(tp, p)),
        "fp_rate": ends(fp, every, 0.975),
        "fn_rate": ends(p - tp, every, 0.975),
    }


# Learning


def learning_curves(sheet: Sheet, history: Sequence[Json], fit: Json) -> list[Any]:
    """Return the curves of loss and, where there was a validation set, of ECE and error."""
    if not history:
        return []
    best = fit.get("best") or {}
    mark = best.get("epoch") if "val_nll" in best else None
    bins = fit.get("ece_bins", 15)

    def of(name: str) -> tuple[list[float], list[float]]:
        known = [(line["epoch"], line[name]) for line in history if line.get(name) is not None]
        return [float(at) for at, _ in known], [float(value) for _, value in known]

    loss = {"training loss": of("loss")}
    kept = " The dotted line marks the epoch whose weights were kept." if mark is not None else ""
    if of("val_nll")[0]:
        loss["validation NLL"] = of("val_nll")
    drawn = [
        sheet.lines(
            loss,
            "Loss",
            "The training loss is the method's own (of mixed samples, say) and need not meet the NLL of plain ones."
            + kept,
            ylabel="loss",
            mark=mark,
        )
    ]
    if of("val_ece")[0]:
        epochs, accuracy = of("val_accuracy")
        curves = {f"validation ECE ({bins} bins)": of("val_ece"), "error": (epochs, [1 - a for a in accuracy])}
        drawn.append(
            sheet.lines(
                curves,
                "Calibration and error",
                f"ECE ({bins}\u00a0bins) and error on the validation set while it learned, before the temperature.",
                ylabel="",
                mark=mark,
                share=True,
            )
        )
    return drawn


# What may be answered


def risk_section(sheet: Sheet, curve: RiskCoverage, *, held_out: RiskCoverage | None = None) -> dict[str, object]:
    """Return what may be answered and what to pass on: a sentence, a table of promises, a figure.

    `curve` is of the samples of the report, `held_out` of those that promises are made from: the validation set, or
    `curve` itself if its samples are new to the model.
    """
    rules = [] if held_out is None else verdicts.rules(held_out, curve)
    rows = []
    for rule in rules:
        right = ("–", "") if rule.accuracy is None else with_interval(rule.accuracy, share=True)
        cells = (
            percent(rule.wanted, 0),
            threshold(rule.chosen),
            percent(rule.coverage),
            right,
        )
        rows.append(dict(zip(("wanted", "threshold", "coverage", "right"), cells, strict=True)))
    figure = sheet.risk(
        curve,
        "Risk and coverage",
        "From right to left: the fewer of its least confident answers are given, the fewer are wrong.",
        rules,
    )
    area, interval = with_interval(curve.aurc_estimate(), share=False)
    best = [min(max(rule.chosen.threshold, 0.0), 1.0) for rule in rules]
    levels = sorted({*best, *(k / 100 for k in range(100)), *(0.99 + k / 1000 for k in range(10)), 0.9999, 1.0})
    steps = [verdicts.answered_above(curve, level) for level in levels]
    return {
        "steps": json.dumps(steps, ensure_ascii=False),
        "start": levels.index(best[0]) if best else 50,
        "last": len(levels) - 1,
        "sentence": verdicts.promise(rules, held_out, curve),
        "rows": rows,
        "n_held_out": None if held_out is None else f"{held_out.n:,}",
        "same": held_out is curve,
        "aurc": f"{area} ({interval})",
        "figure": figure,
    }


# Classes


def class_table(
    classes: Sequence[str],
    ece: NDArray[np.float64],
    n_bins: int,
    n: NDArray[np.int64],
    named: NDArray[np.int64] | None = None,
    right: NDArray[np.int64] | None = None,
    confidence: NDArray[np.float64] | None = None,
) -> dict[str, object]:
    """Return for each class its recall, and its precision beside the confidence of the answers that name it.

    Parameters
    ----------
    ece, n_bins
        The calibration error of each class's probability, `[K]`, and its bins.
    n, named, right
        Samples of each class, answers that name it, and those that do so rightly, `[K]` each.
    confidence
        The summed confidence of the answers that name it, `[K]`.
    """
    low, high = clopper_pearson(n if right is None else right, n)
    named_ends = None if named is None or right is None else clopper_pearson(right, np.maximum(named, 1))

    def row(c: int) -> dict[str, object]:
        recall, precision, mean = ("–", ""), ("–", ""), "–"
        if named is not None and right is not None and n[c]:
            recall = with_interval(Estimate(right[c] / n[c], float(low[c]), float(high[c])), share=True)
        if named is not None and right is not None and named_ends is not None and named[c]:
            ends = (float(end[c]) for end in named_ends)
            precision = with_interval(Estimate(right[c] / named[c], *ends), share=True)
            mean = "–" if confidence is None else percent(confidence[c] / named[c])
        return {
            "name": classes[c],
            "n": f"{n[c]:,}",
            "recall": recall,
            "named": "–" if named is None else f"{named[c]:,}",
            "precision": precision,
            "confidence": mean,
            "ece": percent(float(ece[c]), 2),
        }

    rows = [row(c) for c in range(len(classes))]
    # The lowest recall first, classes without a sample last; where that is unknown, the largest error first.
    badness = np.where(n > 0, right / np.maximum(n, 1), np.inf) if right is not None else -ece
    order = np.lexsort((-n, badness))
    return {
        "rows": rows,
        "worst": [rows[c] for c in order[:SHOWN_CLASSES]] if len(rows) > SHOWN_CLASSES else [],
        "n_bins": n_bins,
        "ece": percent(float(ece.mean()), 2),
        "known": right is not None,
        "confident": confidence is not None,
    }


#: With more classes a picture of all pairs is too fine to read: then there are the most frequent confusions alone.
_PAIRS = 12
#: Shades of a cell, from none to all of a class's samples; confusions that are listed.
_SHADES, _LISTED = 10, 10


def confusion_section(
    classes: Sequence[str], labels: NDArray[np.int64], predictions: NDArray[np.int64]
) -> dict[str, object]:
    """Return how often each class was taken for which: a picture where there are few, and the most frequent confusions.

    `labels` and `predictions` are class numbers, `[N]` each.
    """
    k = len(classes)
    pairs, counts = np.unique(labels * k + predictions, return_counts=True)
    wrong = [(int(n), int(pair) // k, int(pair) % k) for pair, n in zip(pairs, counts, strict=True) if pair % (k + 1)]
    of_each = np.bincount(labels, minlength=k)
    listed = [
        {
            "label": classes[label],
            "taken_for": classes[taken],
            "n": f"{n:,}",
            "share": percent(n / int(of_each[label])),
        }
        for n, label, taken in sorted(wrong, key=lambda entry: (-entry[0], entry[1:]))[:_LISTED]
    ]
    rows = []
    if k <= _PAIRS:
        table = np.zeros(k * k, np.int64)
        table[pairs] = counts
        for label, row in enumerate(table.reshape(k, k)):
            shares = row / max(int(row.sum()), 1)
            cells = [
                {"n": f"{n:,}", "shade": int(np.ceil(_SHADES * share)), "right": taken == label}
                for taken, (n, share) in enumerate(zip(row.tolist(), shares.tolist(), strict=True))
            ]
            rows.append({"name": classes[label], "cells": cells})
    return {"classes": list(classes), "rows": rows, "listed": listed}


def error_slices_section(shared: Iterable[Json]) -> list[dict[str, object]]:
    """Return what mistakes share: the property, how often it is wrong there, with an interval, and elsewhere."""
    rows = []
    for entry in shared:
        n, wrong = int(entry["n"]), int(entry["wrong"])
        low, high = clopper_pearson(wrong, n)
        here = with_interval(Estimate(wrong / n, float(low), float(high)), share=True)
        elsewhere = percent(entry["wrong_elsewhere"] / max(entry["n_elsewhere"], 1))
        rows.append({"property": entry["property"], "n": f"{n:,}", "wrong": here, "elsewhere": elsewhere})
    return rows


#: Slices that are shown at most, the worst ones.
_SHOWN_SLICES = 300


def slices_section(slices: Sequence[Slice]) -> dict[str, object] | None:
    """Return the slices as they are shown, the worst first; the gap in points with its sign. None without any."""
    rows = [
        {
            "name": one.name,
            "n": f"{one.n:,}",
            "accuracy": with_interval(one.accuracy, share=True),
            "gap": (_points(one.gap.value), f"{_points(one.gap.low)} to {_points(one.gap.high)}"),
            "nll": ("–", "") if one.nll is None else with_interval(one.nll, share=False),
            "status": one.status,
        }
        for one in slices[:_SHOWN_SLICES]
    ]
    return {"rows": rows, "n": len(slices), "off": sum(bool(one.status) for one in slices)} if rows else None


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


#: Columns that are shown at once.
_SHOWN_COLUMNS = 30


def importance_section(found: Sequence[Importance]) -> dict[str, object] | None:
    """Return the importance of columns as bars, and the columns that were dropped."""
    known = [(one.column, one.nll) for one in found if one.nll is not None]
    if not known:
        return None
    most = max(*(e.high for _, e in known), 1e-9)
    rows = [
        {
            "name": name,
            "cell": with_interval(e, share=False),
            "bar": round(100 * max(e.value, 0) / most, 1),
            "low": round(100 * max(e.low, 0) / most, 1),
            "high": round(100 * max(e.high, 0) / most, 1),
            "matters": e.low > 0,
        }
        for name, e in known
    ]
    return {
        "rows": rows[:_SHOWN_COLUMNS],
        "n": len(rows),
        "dropped": [one.column for one in found if one.nll is None],
    }


# Samples to look at


def sample_rows(entries: Iterable[Json]) -> list[dict[str, object]]:
    """Return what to show of samples: those of mistakes.json, or suspicious ones.

    Each entry has `label`, and some of `prediction`, `confidence`, `label_probability`, `wrong_probability`, `aum`,
    `threshold`, `index`, `origin`, `text` (a text or several), `row` (a mapping) and `picture` (a data address of an
    image).
    """
    shown = []
    for entry in entries:
        text = entry.get("text", [])
        row = [(str(name), "–" if value is None else _cell(value)) for name, value in entry.get("row", {}).items()]
        picture = entry.get("picture")
        one: dict[str, object] = {
            "label": str(entry["label"]),
            "prediction": None if entry.get("prediction") is None else str(entry["prediction"]),
            "confidence": _probability(entry.get("confidence")),
            "label_probability": _probability(entry.get("label_probability")),
            "where": entry.get("origin") or entry.get("index", "–"),
            "texts": [text] if isinstance(text, str) else [str(part) for part in text],
            "cells": row[:_SHOWN_CELLS],
            "more_cells": row[_SHOWN_CELLS:],
            # Nothing but an image that is in the file already: a report fetches nothing.
            "picture": picture if str(picture).startswith("data:image/") else None,
        }
        one |= {name: _margin(entry[name]) for name in ("aum", "threshold") if name in entry}
        one |= {"wrong": _probability(entry["wrong_probability"])} if "wrong_probability" in entry else {}
        shown.append(one)
    return shown


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _margin(value: Any) -> str | None:
    return None if value is None else f"{float(value):.3g}".replace("-", "−")


def _probability(share: Any) -> str | None:
    """Return a probability that is not printed as certain unless it is."""
    if share is None:
        return None
    value = float(share)
    if 0.9995 <= value < 1:
        return "over 99.9\u00a0%"
    return "under 0.1\u00a0%" if 0 < value < 0.0005 else percent(value)


# Robustness


def ood_section(sheet: Sheet, reports: Iterable[tuple[str, OODReport]]) -> list[dict[str, object]]:
    """Return how well the confidence tells foreign samples from familiar ones."""
    parts = []
    for name, report in reports:
        names = {
            "auroc": ("AUROC", "chance that a familiar sample scores higher than a foreign one; 50\u00a0% is a coin"),
            "aupr_in": ("AUPR, familiar", "average precision of finding familiar samples"),
            "aupr_out": ("AUPR, foreign", "average precision of finding foreign samples"),
            "fpr_at_tpr": (
                f"FPR at {100 * report.tpr:g}\u00a0% TPR",
                f"foreign samples let through when {100 * report.tpr:g}\u00a0% of familiar ones are; lower is better",
            ),
        }
        rows = [
            {"name": names[key][0], "about": names[key][1], "cells": [with_interval(value, share=True)]}
            for key, value in report.metrics.items()
        ]
        figure = sheet.two_histograms(
            report.edges,
            report.in_counts,
            report.out_counts,
            "Scores of familiar and foreign samples",
            "The less the two overlap, the better foreign samples are recognised.",
        )
        parts.append(
            {
                "name": str(name),
                "sizes": f"{report.n_in:,} familiar and {count(report.n_out, 'foreign sample')}",
                "table": {"columns": ["value"], "rows": rows},
                "figure": figure,
            }
        )
    return parts


def attack_table(results: Iterable[tuple[str, AttackErrors]]) -> list[dict[str, object]]:
    """Return the errors without and under each attack, a row for each k."""
    return [
        {
            "name": str(name),
            "box": "black box" if result.black_box else "white box",
            "n": count(result.n, "sample"),
            "error": f"top-{k}",
            "clean": with_interval(result.clean[k], share=True),
            "attacked": with_interval(result.attacked[k], share=True),
        }
        for name, result in results
        for k in result.attacked
    ]


def between_section(sheet: Sheet, curves: BetweenCurves) -> dict[str, object]:
    """Return what the network does along segments between training samples, and beyond (Zhang et al., Figure 2)."""
    shown = (
        ("misses", "Misses between samples", "Predictions that are the class of neither end."),
        ("mean_confidence", "Confidence between samples", "Outside the dashed lines lies what no sample spans."),
        ("gradient_norm", "Sensitivity between samples", "The mean norm of the gradient of the logits."),
    )
    drawings = [
        sheet.draw(partial(_between, curves=curves, what=what), (4.1, 2.9), title, caption)
        for what, title, caption in shown
        if getattr(curves, what) is not None
    ]
    return {"pairs": count(curves.n_pairs, "random pair"), "drawings": drawings}


def _between(ax: Axes, curves: BetweenCurves, what: str) -> None:
    plots.between_curves({"mean, 95 % interval": curves}, what=what, ax=ax)


def label_noise_table(errors: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, object]:
    """Return the errors of Zhang et al. (2018), Table 2, with Clopper–Pearson intervals."""
    redrawn = errors["corrupted"]
    kept = sizes.get("train", 0) - redrawn
    names = (
        ("test", "Test error", "on new samples", sizes.get("test", 0)),
        ("train_real", "Training error, real labels", "of samples whose label was kept", kept),
        ("train_corrupted", "Training error, corrupted labels", "low: it memorised them", redrawn),
        ("train_recovered", "… against their real labels", "low: it saw through the noise", redrawn),
    )
    rows = []
    for key, name, about, n in names:
        if key not in errors["last"] or n <= 0:
            continue
        cells = []
        for which in ("best", "last"):
            value = float(errors[which][key])
            low, high = clopper_pearson(round(value * n), n)
            cells.append(with_interval(Estimate(value, float(low), float(high)), share=True))
        rows.append({"name": name, "about": about, "cells": cells})
    train = sizes.get("train", 0)
    return {
        "corrupted": f"{errors['corrupted']:,}",
        "changed": f"{errors['changed']:,}",
        "train": f"{train:,}",
        "table": {"columns": ["kept weights", "last epoch"], "rows": rows},
    }


def bins_section(sheet: Sheet, evaluation: Evaluation) -> dict[str, object]:
    """Return the filled bins with their counts, and the same of bins that hold as many samples each."""
    table, samples = evaluation.table, evaluation.samples
    section: dict[str, object] = {"rows": _bin_rows(table), "equal_mass": None}
    if samples is not None and evaluation.n >= table.n_bins:
        of = samples.confidence, samples.correct
        even = ReliabilityTable.from_confidences(*of, n_bins=table.n_bins, equal_mass=True)
        text = f"ECE {percent(even.ece(), 2)} ({even.n_bins}\u00a0bins of equal mass)."
        section |= {"equal_mass": sheet.reliability(even, "Reliability, equal-mass bins", text)}
        section |= {"mass_rows": _bin_rows(even)}
    return section


def _bin_rows(table: ReliabilityTable) -> list[dict[str, object]]:
    low, high = table.bin_interval()
    return [
        {
            "range": f"{100 * table.edges[b]:.3g}–{100 * table.edges[b + 1]:.3g}\u00a0%",
            "n": f"{table.bin_count[b]:,}",
            "confidence": percent(table.bins.confidence[b] / table.bin_count[b]),
            "accuracy": with_interval(Estimate(table.bin_accuracy[b], float(low[b]), float(high[b])), share=True),
            "gap": _points(table.bins.confidence[b] / table.bin_count[b] - table.bin_accuracy[b]),
        }
        for b in np.flatnonzero(table.bin_count)
    ]


def parts_table(parts: Mapping[str, LossParts]) -> dict[str, object] | None:
    """Return calibration and refinement of each loss, as a table of estimates; None where they were not measured."""
    rows = [
        {
            "name": METRICS[name].title,
            "about": "",
            "cells": [metric_text(METRICS[name], part) for part in (each.loss, each.calibration, each.refinement)],
        }
        for name, each in parts.items()
    ]
    return {"columns": ["loss", "calibration", "refinement"], "rows": rows} if rows else None


def reliability_pair(sheet: Sheet, evaluations: Mapping[str, Evaluation]) -> list[object]:
    """Return reliability diagrams, smooth ones and confidence histograms, one of each for each evaluation."""
    tables = {name: evaluation.table for name, evaluation in evaluations.items()}
    smooth = [
        sheet.smooth(
            evaluation,
            f"Smooth reliability {name}",
            f"The same without bins: accuracy around each confidence, with 95\u00a0% intervals. "
            f"Smooth ECE (no bins) {percent(estimate.value, 2)}.",
        )
        for name, evaluation in evaluations.items()
        if (estimate := evaluation.metrics.get("smooth_ece")) is not None
    ]
    diagrams = [
        sheet.reliability(
            table,
            f"Reliability {name}",
            f"Accuracy by confidence; on the dashed line it is right as often as it says. "
            f"ECE {percent(table.ece(), 2)} ({table.n_bins}\u00a0bins).",
        )
        for name, table in tables.items()
    ]
    histograms = [
        sheet.histogram(
            table,
            f"Confidence {name}",
            f"Mean confidence {percent(table.confidence)}, accuracy {percent(table.accuracy)}.",
        )
        for name, table in tables.items()
    ]
    return [*diagrams, *smooth, *histograms]
