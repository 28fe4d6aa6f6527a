"""`vicinal compare`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal._checks import Argument, Sentence
from vicinal.cli.console import Console
from vicinal.cli.errors import handle_errors
from vicinal.cli.options import (
    MOST_SEEDS,
    Address,
    AsJson,
    Backend,
    Given,
    MaxMemory,
    Overwrite,
    Portable,
    hold_portable,
    shared,
)
from vicinal.cli.outputs import check_report
from vicinal.cli.train import plain_baselines, show_baselines

if TYPE_CHECKING:
    from vicinal.runs import RunResult


@shared
@handle_errors
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
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Compare with gradient boosting and a random forest too.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report here; by default report.html in the folder.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Runs at a time; on a cluster as many as fit.")] = None,
    backend: Backend = "loky",
    address: Address = None,
    threads: Annotated[int, typer.Option(help="Threads of each run.")] = 1,
    spread: Annotated[
        str, typer.Option(metavar="interval|sd|se", help="Beside each mean: its interval, or ± over seeds.")
    ] = "interval",
    choose: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="Say which method is best by this validation metric: nll, ece, …"),
    ] = None,
    bins: Annotated[int, typer.Option(min=1, help="Bins of the calibration errors.")] = 15,
    portable: Portable = False,
    max_memory: MaxMemory = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    *,
    given: Given,
) -> None:
    """Compare methods on your data: the same splits and seeds for each, paired intervals, a report.

    Runs that are finished are kept: the same command again finishes what is missing, and methods or seeds can be added.
    """
    hold_portable(portable)
    from vicinal._checks import choice, integer
    from vicinal.metrics import METRICS

    console = Console(as_json=as_json)
    with console.stage("starting"):
        from vicinal.report import write_comparison
        from vicinal.runs import ALWAYS, BASELINES, Experiment, data_name, measure_baselines, run_grid
    if len(method or ()) < 2:
        raise ValueError("name at least two methods: --method 'ERM()' --method 'Mixup(alpha=0.2)'")
    integer("seeds", seeds, low=1, high=MOST_SEEDS)
    if choose is not None:
        choice("choose", choose, tuple(METRICS))  # a wrong name is better known before hours of training
    base = Experiment(source=data, **vars(given))
    if base.is_multilabel and baselines:
        raise ValueError(Sentence(Argument("baselines"), " needs classes: compare with one of the targets at a time"))
    folder = out or Path("runs") / f"compare-{data_name(data)}"
    page = report or folder / "report.html"
    check_report(page, given.inputs(data), overwrite=overwrite, data_root=given.data.get("data_root"))

    where: dict[str, Any] = {"workers": workers, "backend": backend, "address": address, "threads": threads}
    how: dict[str, Any] = {"n_bins": bins, "progress": not as_json, "on_cell": partial(_show_cell, console)}
    result = run_grid(base, method or [], range(seeds), folder, **where, **how)
    if not result.results:
        raise RuntimeError(f"every run failed; {next(iter(result.failures.values()))}")
    (name, seed), first = next(iter(result.results.items()))
    if not first.is_multilabel:
        with console.stage("simpler models"):
            measure_baselines(first, BASELINES if baselines else ALWAYS)
    with console.stage("comparing"):
        write_comparison(result, page, choose=choose)
        before, after = result.table(spread=spread, choose=choose), result.table(after=True, spread=spread)
    chosen: dict[str, Any] = {} if choose is None else {"chosen": result.chosen(choose)}
    if not first.is_multilabel:
        chosen["baselines"] = plain_baselines(first)
    console.event("result", {**result.to_dict(), **chosen, "report": str(page), "markdown": f"{after}\n\n{before}"})
    console.markdown(f"{after}\n\n{before}")
    if not first.is_multilabel:
        show_baselines(console, first, f"{name}, seed {seed}")
    console.say(f"report: {page}")
    if result.failures:
        raise typer.Exit(1)


def _show_cell(console: Console, name: str, seed: int, outcome: RunResult | None, error: str | None) -> None:
    facts: dict[str, object] = {"error": error} if outcome is None else {"out": str(outcome.out)}
    console.event("cell", {"method": name, "seed": seed, **facts})
    console.note(f"{name}, seed {seed}: {'done' if error is None else f'failed: {error}'}")
