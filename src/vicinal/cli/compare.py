"""`vicinal compare`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal._checks import Argument, Sentence
from vicinal.cli.console import Console
from vicinal.cli.errors import handle_errors
from vicinal.cli.options import (
    MOST_SEEDS,
    Baselines,
    Bins,
    Given,
    PoolOptions,
    TrainCommon,
    hold_portable,
    takes_records,
)
from vicinal.cli.outputs import check_report
from vicinal.cli.train import plain_baselines, show_baselines

if TYPE_CHECKING:
    from vicinal.runs import RunResult


@dataclass(frozen=True)
class _Shown:
    """What the comparison shows."""

    baselines: Baselines = False
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report here; by default report.html in the folder.")
    ] = None
    spread: Annotated[
        str, typer.Option(metavar="interval|sd|se", help="Beside each mean: its interval, or ± over seeds.")
    ] = "interval"
    choose: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="Say which method is best by this validation metric: nll, ece, …"),
    ] = None
    bins: Bins = 15


@handle_errors
@takes_records
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
    *,
    shown: _Shown,
    pool: PoolOptions,
    common: TrainCommon,
    given: Given,
) -> None:
    """Compare methods on your data: the same splits and seeds for each, paired intervals, a report.

    Runs that are finished are kept: the same command again finishes what is missing, and methods or seeds can be added.
    """
    hold_portable(common.portable)
    from vicinal._checks import choice, integer
    from vicinal.metrics import METRICS

    console = Console(as_json=common.as_json)
    with console.stage("starting"):
        from vicinal.report import write_comparison
        from vicinal.runs import Experiment, Pool, measure_baselines, run_grid
        from vicinal.runs.baselines import ALWAYS, BASELINES
        from vicinal.runs.experiment import data_name
    if len(method or ()) < 2:
        raise ValueError("name at least two methods: --method 'ERM()' --method 'Mixup(alpha=0.2)'")
    integer("seeds", seeds, low=1, high=MOST_SEEDS)
    if shown.choose is not None:
        choice("choose", shown.choose, tuple(METRICS))  # a wrong name is better known before hours of training
    base = Experiment(source=data, **vars(given))
    if base.is_multilabel and shown.baselines:
        raise ValueError(Sentence(Argument("baselines"), " needs classes: compare with one of the targets at a time"))
    folder = out or Path("runs") / f"compare-{data_name(data)}"
    page = shown.report or folder / "report.html"
    check_report(page, given.inputs(data), overwrite=common.overwrite, data_root=given.data.get("data_root"))

    how: dict[str, Any] = {
        "n_bins": shown.bins,
        "progress": not common.as_json,
        "on_cell": partial(_show_cell, console),
    }
    result = run_grid(base, method or [], range(seeds), folder, pool=Pool(**vars(pool)), **how)
    if not result.results:
        raise RuntimeError(f"every run failed; {next(iter(result.failures.values()))}")
    (name, seed), first = next(iter(result.results.items()))
    if not first.is_multilabel:
        with console.stage("baselines"):
            measure_baselines(first, BASELINES if shown.baselines else ALWAYS)
    with console.stage("comparing"):
        write_comparison(result, page, choose=shown.choose)
        before = result.table(spread=shown.spread, choose=shown.choose)
        after = result.table(after=True, spread=shown.spread)
    chosen: dict[str, Any] = {} if shown.choose is None else {"chosen": result.chosen(shown.choose)}
    if not first.is_multilabel:
        chosen["baselines"] = plain_baselines(first)
    console.event("result", {**result.to_dict(), **chosen, "report": str(page), "markdown": f"{after}\n\n{before}"})
    console.markdown(f"{after}\n\n{before}")
    if not first.is_multilabel:
        show_baselines(console, first, f"{name}, seed {seed}")
    console.say(f"report: {page}")
    if result.failures:
        raise typer.Exit(1)


def _show_cell(console: Console, name: str, seed: int, result: RunResult | None, error: str | None) -> None:
    facts: dict[str, object] = {"error": error} if result is None else {"out": str(result.out)}
    console.event("cell", {"method": name, "seed": seed, **facts})
    console.note(f"{name}, seed {seed}: {'done' if error is None else f'failed: {error}'}")
