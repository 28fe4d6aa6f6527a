"""`vicinal audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vicinal.cli.speaking import Speaker, check_report, kindly

__all__ = ["audit"]


@kindly
def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's folder; its data must still be there.")],
    n: Annotated[int, typer.Option("--top", help="How many samples to show.")] = 20,
    percentile: Annotated[
        float,
        typer.Option(help="Suspicious is what the network learns no better than this share of misplaced samples."),
    ] = 99.0,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report here, as HTML.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, for machines.")] = False,
) -> None:
    """List the training samples whose labels look wrong.

    Trains the run's network twice more, with some samples put into a class of their own (Pleiss et al. 2020).
    """
    from vicinal.runs import Run, audited

    speaker = Speaker(as_json=as_json)
    check_report(report)
    outcome = Run(run).outcome()
    found, samples = audited(outcome, percentile=percentile, n=n, progress=not as_json, on_note=speaker.note)
    speaker.event(
        "result",
        {"n": len(found.aum), "suspicious": int(found.suspicious.sum()), "samples": [_plain(s) for s in samples]},
    )
    speaker.say(str(found))
    rows = [
        [str(s["index"]), s["label"], f"{s['aum']:.3f}", "suspicious" if s["suspicious"] else "", _origin(s)]
        for s in samples
    ]
    speaker.table("", ["sample", "label", "AUM", "", "what it is"], rows, figures=False)
    if report is not None:
        from vicinal.report import write_run

        write_run(outcome, report, audit=samples)
        speaker.say(f"report: {report}")


def _plain(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if name != "picture"}


def _origin(sample: dict[str, Any], length: int = 80) -> str:
    if "text" in sample:
        words = " / ".join(sample["text"])
    elif "row" in sample:
        words = ", ".join(f"{name} {value}" for name, value in sample["row"].items())
    else:
        words = sample["origin"]
    return words if len(words) <= length else f"{words[: length - 1]}…"
