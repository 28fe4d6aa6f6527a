"""`vicinal audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vicinal.cli.console import Console
from vicinal.cli.errors import handle_errors
from vicinal.cli.options import AsJson, Overwrite, Report
from vicinal.cli.outputs import check_report

__all__ = ["audit"]


@handle_errors
def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's folder; its data must still be there.")],
    n: Annotated[int, typer.Option("--top", help="How many samples to show.")] = 20,
    percentile: Annotated[
        float,
        typer.Option(help="Suspicious is what the network learns no better than this share of misplaced samples."),
    ] = 99.0,
    report: Report = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """List the training samples whose labels look wrong.

    Trains the run's network twice more, with some samples put into a class of their own (Pleiss et al. 2020).
    """
    from vicinal.runs import Run, audited

    console = Console(as_json=as_json)
    check_report(report, [run], overwrite=overwrite)
    outcome = Run(run).outcome()
    labels, samples = audited(outcome, percentile=percentile, n=n, progress=not as_json, on_note=console.note)
    console.event(
        "result",
        {"n": len(labels.aum), "suspicious": int(labels.suspicious.sum()), "samples": [_plain(s) for s in samples]},
    )
    console.say(str(labels))
    rows = [
        [str(s["index"]), s["label"], f"{s['aum']:.3f}", "suspicious" if s["suspicious"] else "", _origin(s)]
        for s in samples
    ]
    console.table("", ["sample", "label", "AUM", "", "what it is"], rows, figures=False)
    if report is not None:
        from vicinal.report import write_run

        write_run(outcome, report, audit=samples)
        console.say(f"report: {report}")


def _plain(sample: dict[str, Any]) -> dict[str, object]:
    return {name: value for name, value in sample.items() if name != "picture"}


def _origin(sample: dict[str, Any], length: int = 80) -> str:
    if "text" in sample:
        words = " / ".join(sample["text"])
    elif "row" in sample:
        words = ", ".join(f"{name} {value}" for name, value in sample["row"].items())
    else:
        words = sample["origin"]
    return words if len(words) <= length else f"{words[: length - 1]}…"
