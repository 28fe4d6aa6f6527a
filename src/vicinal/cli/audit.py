"""`vicinal audit`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.cli.console import Console
from vicinal.cli.errors import handle_errors
from vicinal.cli.help import command_line
from vicinal.cli.inputs import check_run
from vicinal.cli.options import CsvCommon, Report, takes_records
from vicinal.cli.outputs import check_outputs, check_report

if TYPE_CHECKING:
    from vicinal._atomic import Json
    from vicinal.runs import RunResult

#: What judges a label.
_BY = ("cross-validation", "aum")
#: Characters of what a sample is, at most.
_LENGTH = 80


@dataclass(frozen=True)
class _Method:
    """How labels are judged."""

    by: Annotated[
        str,
        typer.Option(
            metavar="|".join(_BY),
            help="cross-validation: models that did not see a sample judge its label, in all of the data. "
            "aum: how its margin grew in training (Pleiss et al. 2020), for many classes.",
        ),
    ] = "cross-validation"
    n_folds: Annotated[int, typer.Option("--folds", help="Trainings of the cross-validation.")] = 5
    percentile: Annotated[
        float,
        typer.Option(help="With aum: suspicious is what is learned no better than this share of misplaced samples."),
    ] = 99.0


@handle_errors
@takes_records
def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's folder; its data must still be there.")],
    n: Annotated[int, typer.Option("--top", help="How many samples to show.")] = 20,
    out: Annotated[
        Path | None,
        typer.Option(help="Write all candidates for review with reasons to this file, .csv, .parquet or .npz."),
    ] = None,
    report: Report = None,
    *,
    method: _Method,
    common: CsvCommon,
) -> None:
    """List the samples whose labels look wrong.

    Trains the run's network five times more, each time without a fifth of the data, which it then judges. Candidates
    for review are always listed. They are suspicious only where label noise explains more than class overlap does.
    """
    from vicinal._checks import Argument, Sentence, choice, integer

    check_run(run)
    integer("n", n, low=1)
    console = Console(as_json=common.as_json)
    if choice("by", method.by, _BY) == "aum" and out is not None:
        raise ValueError(Sentence(Argument("out"), " needs ", Argument("by", _BY[0])))
    if out is not None:
        from vicinal.predictions.writer import check_output

        check_output(out)
    with console.stage("starting"):
        from vicinal.runs import Run
    result = Run(run).result().of_classes()
    inputs, root = [str(run), result.experiment.source], result.experiment.data.get("data_root")
    check_report(report, inputs, overwrite=common.overwrite, data_root=root)
    check_outputs({"--out": out, "--report": report}, inputs, overwrite=common.overwrite, data_root=root)
    if method.by == "aum":
        summary, samples = _by_aum(result, method.percentile, n, console)
    else:
        written = None if out is None else (out, common.safe_csv)
        summary, samples = _by_cross_validation(result, method, n, written, console)
    if report is not None:
        from vicinal.report import ReportExtras, write_run

        extras = ReportExtras(audit=samples, audit_summary=summary, command=command_line())
        write_run(result, report, extras)
        console.say(f"report: {report}")


def _by_cross_validation(
    result: RunResult, method: _Method, n: int, written: tuple[Path, bool] | None, console: Console
) -> tuple[str, list[Json]]:
    from vicinal.predictions import write
    from vicinal.runs import audited

    with console.stages():
        progress = not console.as_json
        audit = audited(result, n_folds=method.n_folds, progress=progress, on_note=console.note)
    candidates, shown = int(audit.issues.candidates.sum()), audit.samples[:n]
    suspicious = int(audit.issues.suspicious.sum())
    facts: dict[str, object] = {"n": len(audit.labels), "suspicious": suspicious, "candidates": candidates}
    facts |= {"false_alarms": audit.issues.false_alarms.to_dict(), "noise": audit.issues.noise.to_dict()}
    facts["samples"] = [_plain(s) for s in shown]
    console.event("result", facts)
    summary = str(audit.issues)
    console.say(summary)
    rows = [
        [
            str(s["index"]),
            s["label"],
            f"{s['label_probability']:.3f}",
            s["prediction"],
            f"{s['confidence']:.3f}",
            f"{100 * s['wrong_probability']:.0f} %",
            _origin(s),
        ]
        for s in shown
    ]
    head = ["sample", "label", "P", "more probable", "P", "wrong", "what it is"]
    console.table("", head, rows, numbers=False)
    if written is not None:
        out, safe_csv = written
        if candidates:
            write(out, audit.classes, audit.review(), safe_csv=safe_csv)
        said = f"{candidates} candidates for review with reasons: {out}"
        console.say(said if candidates else f"no label is to be reviewed: {out} is not written")
    return summary, shown


def _by_aum(result: RunResult, percentile: float, n: int, console: Console) -> tuple[str, list[Json]]:
    from vicinal.runs import audited_by_aum

    progress = not console.as_json
    with console.stages():
        labels, samples = audited_by_aum(result, percentile=percentile, n=n, progress=progress, on_note=console.note)
    facts = {"n": len(labels.aum), "suspicious": int(labels.suspicious.sum()), "samples": list(map(_plain, samples))}
    console.event("result", facts)
    console.say(str(labels))
    rows = [
        [str(s["index"]), s["label"], f"{s['aum']:.3f}", "suspicious" if s["suspicious"] else "", _origin(s)]
        for s in samples
    ]
    console.table("", ["sample", "label", "AUM", "", "what it is"], rows, numbers=False)
    return str(labels), samples


def _plain(sample: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in sample.items() if name not in ("picture", "row_of_probs")}


def _origin(sample: Json) -> str:
    if "text" in sample:
        words = " / ".join(sample["text"])
    elif "row" in sample:
        words = ", ".join(f"{name} {value}" for name, value in sample["row"].items())
    else:
        words = sample["origin"]
    return words if len(words) <= _LENGTH else f"{words[: _LENGTH - 1]}…"
