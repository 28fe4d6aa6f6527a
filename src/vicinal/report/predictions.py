"""The report of a predictions file: how far to trust its probabilities."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from vicinal._portable import versions
from vicinal.calibrators import LossParts
from vicinal.metrics import BinaryEvaluation, Evaluation, RiskCoverage, SetEvaluation
from vicinal.metrics.tally import Mistake
from vicinal.report import sections, verdicts
from vicinal.report.formatting import count, from_here, percent
from vicinal.report.page import contents, write_page
from vicinal.report.plots import Sheet


def write_predictions(
    evaluation: Evaluation,
    path: str | os.PathLike[str],
    *,
    command: str | None = None,
    sets: tuple[float, Mapping[str, SetEvaluation]] | None = None,
    binary: BinaryEvaluation | None = None,
    parts: Mapping[str, LossParts] | None = None,
) -> Path:
    """Write the report of what `vicinal.predictions.evaluate_file` returned to an HTML file, and return its path.

    `command` says how to make it again: by default `vicinal evaluate` with the file and the number of bins. `sets` are
    the coverage that was asked of prediction sets, and how they fared, as `vicinal.predictions.sets_of_file` says;
    `binary` is how the second of two classes fits and ranks, as `vicinal.predictions.binary_of_file` says; `parts` are
    those of the losses, as `vicinal.predictions.parts_of_file` says.

    Returns
    -------
    Path
        The HTML file.

    Examples
    --------
    >>> from vicinal.predictions import evaluate_file
    >>> write_predictions(evaluate_file("predictions.csv"), "report.html")  # doctest: +SKIP
    """
    if evaluation.path is None:
        raise ValueError("this evaluation is of no file: write a report of what evaluate_file returned")
    sheet = Sheet()
    file, table = evaluation.path, evaluation.table
    curve = RiskCoverage.from_table(evaluation.fine)
    wrong = int(evaluation.fine.counts[:, 0].sum())
    mistakes = sections.sample_rows(_card(mistake) for mistake in evaluation.worst)
    sizes = count(evaluation.n, "prediction")
    if evaluation.n_classes:
        sizes += f", {count(evaluation.n_classes, 'class', 'classes')}"
    context: dict[str, object] = {
        "title": f"{file.name}: report",
        "heading": file.name,
        "sizes": sizes,
        "of": count(evaluation.n, "prediction"),
        "kind": evaluation.kind,
        "verdict": verdicts.judge(evaluation, binary=binary),
        "tiles": sections.tiles(evaluation, ("Predictions", f"{evaluation.n:,}", "")),
        "summary": (
            f"It is right {percent(table.accuracy)} of the time and says {percent(table.confidence)} on "
            f"average. The mean gap (ECE, {evaluation.n_bins} bins) is {percent(table.ece(), 2)}."
        ),
        "table": sections.metrics_table({"value": evaluation}),
        "parts": sections.parts_table(parts or {}),
        "drawings": sections.reliability_pair(sheet, {"": evaluation}),
        "bins": sections.bins_section(sheet, evaluation),
        "binary": None if binary is None else sections.binary_section(sheet, binary, evaluation.classes[1]),
        "risk": sections.risk_section(sheet, curve, held_out=curve),
        "mistakes": mistakes,
        "mistakes_head": f"{count(wrong, 'mistake')} in all; "
        + ("the most confident first." if len(mistakes) == wrong else f"the {len(mistakes)} most confident of them:"),
        "classes": _classes(evaluation),
        "slices": sections.slices_section(evaluation.slices),
        "sets": None if sets is None else sections.sets_section(*sets, evaluation.classes),
        "notes": list(evaluation.notes),
        "command": command or _command(evaluation, path),
        "provenance": [
            ("File", from_here(str(file))),
            ("Versions", ", ".join(f"{name} {version}" for name, version in versions().items())),
        ],
    }
    context["sections"] = contents(
        [(name, title, name in _ALWAYS or context[name]) for name, title in _SECTIONS.items()]
    )
    return write_page("predictions.html.j2", context, path)


#: The sections of the page in their order, and those that every report has.
_SECTIONS = {
    "metrics": "Metrics",
    "reliability": "Reliability",
    "binary": "Two classes",
    "risk": "What it may answer",
    "sets": "Prediction sets",
    "slices": "Slices",
    "mistakes": "Mistakes",
    "classes": "Classes",
    "rerun": "Run it again",
}
_ALWAYS = ("metrics", "reliability", "risk", "rerun")


def _card(mistake: Mistake) -> dict[str, object]:
    card = {"label": mistake.label, "prediction": mistake.prediction, "confidence": mistake.confidence}
    return {**card, "origin": f"row {mistake.row:,}"}


def _command(evaluation: Evaluation, path: str | os.PathLike[str]) -> str:
    return shlex.join(
        ["vicinal", "evaluate", str(evaluation.path), "--bins", str(evaluation.n_bins), "--report", os.fspath(path)]
    )


def _classes(evaluation: Evaluation) -> dict[str, object] | None:
    """Return the figures of each class, as far as the file tells them."""
    if evaluation.classwise is None:
        return None
    pairs, by_class = evaluation.confusion, evaluation.classwise
    return sections.class_table(
        evaluation.classes,
        by_class.per_class(),
        by_class.n_bins,
        by_class.correct.sum(axis=1),
        None if pairs is None else pairs.sum(axis=0),
        None if pairs is None else pairs.diagonal(),
    )
