"""The report of a comparison: methods against the first of them, on the same samples and seeds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vicinal._atomic import Json
from vicinal._portable import versions
from vicinal.metrics import METRICS, Estimate, ReliabilityTable
from vicinal.report import sections, verdicts
from vicinal.report.formatting import count, from_here, percent
from vicinal.report.page import write_page
from vicinal.report.plots import Drawing, Sheet
from vicinal.report.run import model_name
from vicinal.runs.grid_parts import MethodParts
from vicinal.runs.summary_table import GridResult


def write_comparison(
    result: GridResult,
    path: str | os.PathLike[str],
    *,
    choose: str | None = None,
    command: str | None = None,
    parts: Sequence[MethodParts] = (),
) -> Path:
    """Write the report of what `vicinal.runs.grid.run_grid` returned to an HTML file, and return its path.

    `choose` names a metric: the report says which method it chooses on the validation set. `command` is the one that
    writes this report again. `parts` are those of the NLL, as `vicinal.runs.grid_parts` returns them.

    Returns
    -------
    Path
        The HTML file.

    Examples
    --------
    >>> from vicinal.runs import Experiment, run_grid
    >>> base = Experiment(source="digits", model_options={"width": 4}, training={"epochs": 1})
    >>> grid = run_grid(base, ["ERM()", "Mixup(alpha=0.2)"], [0, 1], "runs/grid", progress=False)  # doctest: +SKIP
    >>> write_comparison(grid, "comparison.html", choose="nll")  # doctest: +SKIP
    """
    sheet = Sheet()
    (name, _), some = next(iter(result.results.items()), (("", 0), None))
    sets = [] if some is None else ["test", *result.extra_sets]
    stages = (True, False) if result.is_calibrated else (True,)
    shown = [_part(sheet, result, on, after) for on in sets for after in stages]
    for number, label in enumerate(result.labels):
        alone = _part(sheet, result.of_label(label), "test", True)
        shown.append({**alone, "id": f"label-{number}", "name": f"The label {label!r} alone, calibrated"})
    cells = len(result.methods) * len(result.seeds)
    context: dict[str, object] = {
        "title": "Comparison" if some is None else f"{from_here(some.facts['data']['name'])}: comparison",
        "heading": "Comparison" if some is None else from_here(some.facts["data"]["name"]),
        "sizes": f"{count(len(result.methods), 'method')}, {count(len(result.seeds), 'seed')}"
        + ("" if some is None else f", {count(some.test.calibrated.n, 'test sample')}")
        + (f", means over {count(len(result.labels), 'label')}" if result.labels else ""),
        "first": result.methods[0],
        "parts": shown,
        "loss_parts": _loss_parts(parts),
        "baselines": None
        if some is None or some.is_multilabel
        else sections.baselines_section(some.test.after, some.run.baselines(), name),
        "chosen": None if choose is None or some is None else _chosen(result, choose),
        "failures": [{"method": m, "seed": s, "error": error} for (m, s), error in result.failures.items()],
        "n_cells": cells,
        "label_noise": _label_noise(result) if shown else None,
        "is_calibrated": result.is_calibrated,
        "folder": from_here(str(result.out)),
        "verdict": verdicts.judge_comparison(result) if shown else "",
        "command": None if command is None else from_here(command),
        "commands": [
            from_here(r.experiment.command(r.out)) for r in result.results.values() if r.fit["seconds"] is not None
        ],
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "networks": sorted({model_name(each) for each in result.results.values()}),
    }
    return write_page("comparison.html.j2", context, path)


def _model(result: GridResult, method: str) -> str:
    """Return what answers under the name of a method: the model and, where the name does not tell it, its training."""
    each = next(each for (name, _), each in result.results.items() if name == method)
    model, trained = model_name(each), each.experiment.method
    is_told = trained in method or each.fit["seconds"] is None
    return model if is_told else f"{model}, trained by {trained}"


def _loss_parts(parts: Sequence[MethodParts]) -> dict[str, object] | None:
    nll = METRICS["nll"]
    rows = [
        {
            "name": one.method,
            "about": "",
            "cells": [
                *(sections.metric_text(nll, part) for part in (one.nll.loss, one.nll.calibration, one.nll.refinement)),
                ("", "") if one.difference is None else sections.metric_text(nll, one.difference),
            ],
        }
        for one in parts
    ]
    return {"columns": ["NLL", "calibration", "refinement", "… less the first's"], "rows": rows} if rows else None


def _chosen(result: GridResult, by: str) -> dict[str, str]:
    n_bins = next(iter(result.results.values())).test.uncalibrated.n_bins
    return {"by": sections.metric_name(METRICS[by], n_bins), "method": result.chosen(by)}


def _part(sheet: Sheet, result: GridResult, on: str, after: bool) -> dict[str, object]:
    """Return the figures, differences and diagrams of a set, before or after calibration."""
    rows = result.ranked(after=after, on=on)
    bins, shown = rows[0]["n_bins"], result.columns(after=after, on=on)
    when = "after" if after else "before"
    others = [row for row in rows if row["difference"] is not None]
    return {
        "id": when if on == "test" else f"{on}-{when}",
        "name": f"{when.capitalize()} calibration" if on == "test" else f"{result.extra_sets[on]}, {when}",
        "n": "" if on == "test" else count(rows[0]["n"], "sample"),
        "notes": next(iter(result.results.values())).sets[on].notes if after else (),
        "columns": [sections.metric_name(figure, bins) for figure in shown],
        "rows": [
            {
                "method": row["method"],
                "model": _model(result, row["method"]),
                "seeds": result.counted_seeds(row["method"]),
                "cells": [sections.metric_text(figure, Estimate.from_dict(row[figure.name])) for figure in shown],
                "calibrator": row["calibrator"],
                "seconds": "–" if (s := result.seconds(row["method"])) is None else f"{s:,.0f}\u00a0s",
            }
            for row in rows
        ],
        "differences": [
            {
                "method": row["method"],
                "seeds": row["difference"]["n_seeds"],
                "cells": [_difference(row, figure.name) for figure in shown if figure.compared],
            }
            for row in others
        ],
        "compared": [sections.metric_name(figure, bins) for figure in shown if figure.compared],
        "sentences": [_sentence(row, [figure.name for figure in shown if figure.compared]) for row in others],
        "diagrams": [_diagram(sheet, result, row, on, after) for row in rows],
    }


def _diagram(sheet: Sheet, result: GridResult, row: Json, on: str, after: bool) -> Drawing:
    """Return the reliability diagram of a method over all its seeds."""
    tables = [
        (outcome.sets[on].calibrated if after else outcome.sets[on].uncalibrated).table
        for (method, _), outcome in result.results.items()
        if method == row["method"]
    ]
    pooled: ReliabilityTable = sum(tables[1:], tables[0])
    over = f", mean of {len(tables)} seeds" if len(tables) > 1 else ""
    if result.labels:
        over += f"; the mean over {len(result.labels)} labels, which the diagram shows together"
    ece, when = percent(Estimate.from_dict(row["ece"]).value, 2), "after" if after else "before"
    caption = f"ECE {ece} ({row['n_bins']}\u00a0bins) {when} calibration{over}."
    return sheet.reliability(pooled, row["method"], caption, intervals=len(tables) == 1)


def _difference(row: Json, name: str) -> dict[str, str]:
    """Return a paired difference in print, and what it says of the method."""
    entry, percent = row["difference"][name], METRICS[name].percent
    value, low, high = ("∞" if entry[end] is None else _signed(entry[end], percent) for end in ("value", "low", "high"))
    better = entry["better"]
    verdict = "not significant" if better is None else "better" if better == row["method"] else "worse"
    return {"value": value + ("\u00a0points" if percent else ""), "interval": f"{low} to {high}", "verdict": verdict}


def _signed(value: float, share: bool) -> str:
    shown = f"{100 * value:+.2f}" if share else f"{value:+.4f}"
    return shown.replace("-", "−")


def _sentence(row: Json, compared: Sequence[str]) -> dict[str, object]:
    """Return on which figures a method is better, worse, or neither, in words."""
    verdicts = {name: _difference(row, name)["verdict"] for name in compared}
    said = []
    for verdict in ("better", "worse", "not significant"):
        names = [METRICS[name].title for name, said_of in verdicts.items() if said_of == verdict]
        if names:
            on = " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
            said.append({"verdict": verdict, "text": f"{verdict} on {on}"})
    return {"method": row["method"], "said": said, "hint": row["difference"]["hint"]}


def _label_noise(result: GridResult) -> dict[str, object] | None:
    """Return the mean errors with corrupted labels of each method, where labels were corrupted."""
    rows = [row for row in result.rows() if "label_noise" in row]
    if not rows:
        return None
    names = {"test": "test", "train_real": "training, real labels", "train_corrupted": "training, corrupted labels"}
    shown = [name for name in names if name in rows[0]["label_noise"]["best"]]
    return {
        "columns": [f"{names[name]}, {which}" for name in shown for which in ("kept", "last")],
        "rows": [
            {
                "method": row["method"],
                "cells": [percent(row["label_noise"][w][name]) for name in shown for w in ("best", "last")],
            }
            for row in rows
        ],
    }
