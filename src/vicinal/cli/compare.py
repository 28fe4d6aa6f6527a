"""`vicinal compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli.options import Given, shared
from vicinal.cli.speaking import Speaker, check_report, kindly

if TYPE_CHECKING:
    from vicinal.runs import Outcome

__all__ = ["compare"]


@shared
@kindly
def compare(
    data: Annotated[str, typer.Argument(metavar="DATA", help="As for `vicinal train`.")] = "digits",
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPR", help="A method; give at least two. The others are compared with the first."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Train each method this many times, with other weights and order.")] = 5,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the runs go; by default runs/compare-DATA.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report here; by default report.html in the folder.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Runs at a time; on a cluster as many as fit.")] = None,
    backend: Annotated[
        str, typer.Option(metavar="loky|ray|dask", help="Where runs go: this machine, or a cluster.")
    ] = "loky",
    address: Annotated[str | None, typer.Option(help="Of the cluster: auto, or HOST:PORT.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of each run.")] = 1,
    bins: Annotated[int, typer.Option(min=1, help="Bins of the calibration errors.")] = 15,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, for machines.")] = False,
    *,
    given: Given,
) -> None:
    """Compare methods on your data: the same splits and seeds for each, paired intervals, a report.

    Runs that are finished are kept: the same command again finishes what is missing, and methods or seeds can be added.
    """
    from vicinal.report import write_comparison
    from vicinal.runs import Experiment, data_name, run_grid

    speaker = Speaker(as_json=as_json)
    if len(method or ()) < 2:
        raise ValueError("name at least two methods: --method 'ERM()' --method 'Mixup(alpha=0.2)'")
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    check_report(report)
    base = Experiment(
        source=data,
        **vars(given),
    )
    folder = out or Path("runs") / f"compare-{data_name(data)}"

    def on_cell(name: str, seed: int, outcome: Outcome | None, error: str | None) -> None:
        facts: dict[str, Any] = {"error": error} if outcome is None else {"out": str(outcome.out)}
        speaker.event("cell", {"method": name, "seed": seed, **facts})
        speaker.note(f"{name}, seed {seed}: {'done' if error is None else f'failed: {error}'}")

    result = run_grid(
        base,
        method or [],
        range(seeds),
        folder,
        workers=workers,
        backend=backend,
        address=address,
        threads=threads,
        n_bins=bins,
        progress=not as_json,
        on_cell=on_cell,
    )
    if not result.outcomes:
        raise RuntimeError(f"every run failed; {next(iter(result.failures.values()))}")
    page = write_comparison(result, report or folder / "report.html")
    before, after = result.table(), result.table(after=True)
    speaker.event("result", {**result.to_dict(), "report": str(page), "markdown": f"{before}\n\n{after}"})
    speaker.markdown(f"{before}\n\n{after}")
    speaker.say(f"report: {page}")
    if result.failures:
        raise typer.Exit(1)
