"""The report of a run of several labels: how far to trust the probability of each."""

from __future__ import annotations

from collections.abc import Mapping

from vicinal.metrics import Evaluation, Metric
from vicinal.metrics.registry import brief
from vicinal.report import sections
from vicinal.report.formatting import count, percent, with_interval
from vicinal.report.page import contents
from vicinal.report.plots import Drawing, Sheet
from vicinal.runs import RunResult, Scores

#: Labels whose reliability is drawn.
_DRAWN = 24


def labels_page(sheet: Sheet, result: RunResult) -> dict[str, object]:
    """Return what the page of a multi-label run shows beside what every run's page has."""
    data = result.facts["data"]
    key = next((name for name in ("test", "val") if name in result.sets), None)
    scores = None if key is None else result.sets[key]
    return {
        "heading": f"{data['name']}, {count(len(result.calibrators.by_head), 'label')}",
        "warnings": [f"{text[0].upper()}{text[1:]}." for text in data.get("warnings", [])],
        "notes": [*data.get("notes", []), *result.facts.get("notes", [])],
        "tiles": []
        if scores is None
        else [(f"Mean {name}", *text) for name, *text in sections.tiles(scores.calibrated)],
        "of": "" if scores is None else count(scores.calibrated.n, {"test": "test sample"}.get(str(key), "sample")),
        "is_validation": key == "val",
        "means": scores and sections.metrics_table({"before": scores.uncalibrated, "after": scores.calibrated}),
        "labels": None if scores is None else _labels(scores),
        "drawings": [] if scores is None else _drawings(sheet, scores),
    }


def labels_contents(context: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the sections of the page of a multi-label run."""
    return contents(
        [
            ("trained", "What was trained", True),
            ("metrics", "Metrics", context["means"]),
            ("labels", "Labels", context["means"]),
            ("reliability", "Reliability", context["means"]),
            ("learning", "Learning", context["curves"]),
            ("rerun", "Run it again", True),
        ]
    )


def _labels(scored: Scores) -> dict[str, object]:
    shown = brief(scored.calibrated.metrics)
    headings = [sections.metric_name(figure, scored.calibrated.n_bins) for figure in shown]
    rows = [_label(scored, k, name, evaluation, shown) for k, (name, evaluation) in enumerate(scored.heads.items())]
    return {"columns": ["is 1", "calibrator", *headings, "AUROC"], "rows": rows}


def _label(scored: Scores, k: int, name: str, evaluation: Evaluation, shown: list[Metric]) -> dict[str, object]:
    binary = scored.binary(name)
    cells = [
        (percent(float(scored.labels[:, k].double().mean())), ""),
        (scored.calibrators.text(name).removeprefix("temperature "), ""),
        *(sections.metric_text(metric, evaluation.metrics.get(metric.name)) for metric in shown),
        ("–", "") if binary is None else with_interval(binary.auroc, share=True),
    ]
    return {"name": name, "about": "", "cells": cells}


def _drawings(sheet: Sheet, scored: Scores) -> list[Drawing]:
    drawings = []
    for name in list(scored.heads)[:_DRAWN]:
        if (binary := scored.binary(name)) is not None:
            caption = (
                "How often it is 1 among samples with about this probability; on the dashed line, as often as said."
            )
            drawings.append(sheet.reliability(binary.table, name, caption))
    return drawings
