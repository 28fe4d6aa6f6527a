"""`vicinal compare`."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
        typer.Option(
            metavar="EXPR", help="A method; the others are compared with the first. One is enough for models."
        ),
    ] = None,
    run: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="A finished run on the same split; may be repeated.")
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
    """Compare methods, models and finished runs on your data: the same split for each, paired intervals, a report.

    Several models are named with commas: --model mlp,hgb.

    Runs that are finished are kept: the same command again finishes what is missing, and methods or seeds can be added.
    """
    hold_portable(common.portable)
    from vicinal._checks import choice, integer
    from vicinal.metrics import METRICS

    console = Console(as_json=common.as_json)
    with console.stage("starting"):
        from vicinal.report import write_comparison
        from vicinal.runs import Experiment, Pool, Run, measure_baselines, merged, run_grid
        from vicinal.runs.baselines import ALWAYS, BASELINES
        from vicinal.runs.experiment import data_name
    models = [name.strip() for name in given.model.split(",")] if given.model else []
    methods = list(method or (["ERM()"] if len(models) > 1 else []))
    if len(methods) * max(len(models), 1) + len(run or ()) < 2:
        raise ValueError(
            "name at least two methods, models or runs: --method 'ERM()' --method 'Mixup(alpha=0.2)', "
            "--model mlp,hgb or --run RUN"
        )
    integer("seeds", seeds, low=1, high=MOST_SEEDS)
    if shown.choose is not None:
        choice("choose", shown.choose, tuple(METRICS))  # a wrong name is better known before hours of training
    base = Experiment(source=data, **{**vars(given), "model": models[0] if models else None})
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
    how["pool"] = Pool(**vars(pool))
    if len(models) > 1 or run:
        each = {name: (replace(base, model=name or None), folder / name) for name in models or [""]} if methods else {}
        grids = {name: run_grid(one, methods, range(seeds), place, **how) for name, (one, place) in each.items()}
        names = ["" if len(models) < 2 else name for name in grids]
        finished = {str(path): Run(path).result(n_bins=shown.bins) for path in run or ()}
        result = merged(folder, dict(zip(names, grids.values(), strict=True)), finished)
    else:
        result = run_grid(base, methods, range(seeds), folder, **how)
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
        from vicinal.report.verdicts import versus_baselines

        show_baselines(console, first, f"{name}, seed {seed}")
        console.say(versus_baselines(first.test.after, first.run.baselines()).sentence)
    console.say(f"report: {page}")
    if result.failures:
        raise typer.Exit(1)


def _show_cell(console: Console, name: str, seed: int, result: RunResult | None, error: str | None) -> None:
    facts: dict[str, object] = {"error": error} if result is None else {"out": str(result.out)}
    console.event("cell", {"method": name, "seed": seed, **facts})
    console.note(f"{name}, seed {seed}: {'done' if error is None else f'failed: {error}'}")
