"""The report of a run of several labels: how far to trust the probability of each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vicinal.metrics import Evaluation, Figure
from vicinal.metrics.figures import brief
from vicinal.report import sections, words
from vicinal.report.figures import Sheet
from vicinal.report.page import contents, write_page
from vicinal.report.run import facts_of, provenance_of
from vicinal.runs import LabelsOutcome, LabelsScored

__all__ = ["write_labels"]

#: Labels whose reliability is drawn.
_DRAWN = 24


def write_labels(outcome: LabelsOutcome, path: str | os.PathLike[str]) -> Path:
    """Write the report of what `vicinal.runs.run_labels` returned to an HTML file, and return its path."""
    sheet, data = Sheet(), outcome.facts["data"]
    key = next((name for name in ("test", "val") if name in outcome.sets), None)
    scored = None if key is None else outcome.sets[key]
    context: dict[str, object] = {
        "title": f"{data['name']}: {outcome.experiment.method}",
        "heading": f"{data['name']}, {words.count(len(outcome.temperatures), 'label')}",
        "method": outcome.experiment.method,
        "warnings": [f"{text[0].upper()}{text[1:]}." for text in data.get("warnings", [])],
        "facts": facts_of(outcome),
        "notes": [*data.get("notes", []), *outcome.facts.get("notes", [])],
        "curves": sections.learning_curves(sheet, outcome.history, outcome.fit),
        "command": outcome.experiment.command(outcome.out),
        "provenance": provenance_of(outcome),
        "tiles": [] if scored is None else [(f"Mean {name}", *text) for name, *text in sections.tiles(scored.after)],
        "of": "" if scored is None else words.count(scored.after.n, {"test": "test sample"}.get(str(key), "sample")),
        "is_validation": key == "val",
        "means": scored and sections.figures_table({"before": scored.before, "after": scored.after}),
        "labels": None if scored is None else _labels(scored),
        "drawings": [] if scored is None else _drawings(sheet, scored),
    }
    context["sections"] = contents(
        [
            ("trained", "What was trained", True),
            ("figures", "Figures", scored),
            ("labels", "Labels", scored),
            ("reliability", "Reliability", scored),
            ("learning", "Learning", context["curves"]),
            ("rerun", "Run it again", True),
        ]
    )
    return write_page("labels.html.j2", context, path)


def _labels(scored: LabelsScored) -> dict[str, object]:
    shown = brief(scored.after.mean)
    headings = [sections.figure_name(figure, scored.after.n_bins) for figure in shown]
    rows = [
        _label(scored, k, name, evaluation, shown) for k, (name, evaluation) in enumerate(scored.after.labels.items())
    ]
    return {"columns": ["is 1", "temperature", *headings, "AUROC"], "rows": rows}


def _label(scored: LabelsScored, k: int, name: str, evaluation: Evaluation, shown: list[Figure]) -> dict[str, object]:
    binary = scored.binary(name)
    cells = [
        (words.percent(float(scored.labels[:, k].double().mean())), ""),
        (f"{scored.temperatures[name]:.3g}", ""),
        *(sections.figure_text(figure, evaluation.figures.get(figure.name)) for figure in shown),
        ("–", "") if binary is None else words.estimate(binary.auroc, share=True),
    ]
    return {"name": name, "about": "", "cells": cells}


def _drawings(sheet: Sheet, scored: LabelsScored) -> list[Any]:
    drawings = []
    for name in list(scored.after.labels)[:_DRAWN]:
        if (binary := scored.binary(name)) is not None:
            caption = (
                "How often it is 1 among samples with about this probability; on the dashed line, as often as said."
            )
            drawings.append(sheet.reliability(binary.table, name, caption))
    return drawings
