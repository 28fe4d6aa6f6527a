"""`vicinal compare`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal import progress
from vicinal._checks import Argument, Sentence, choice, integer
from vicinal.cli.console import Console
from vicinal.cli.errors import handle_errors
from vicinal.cli.help import command_line
from vicinal.cli.inputs import check_run
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
from vicinal.experiment import Experiment, data_name

if TYPE_CHECKING:
    from vicinal.runs import GridResult, RunResult
    from vicinal.runs.grid_parts import MethodParts


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
    parts: Annotated[
        bool,
        typer.Option(
            "--parts",
            help="Divide each method's NLL into calibration, which a calibrator takes away, and refinement; takes some "
            "150 fits a run.",
        ),
    ] = False

    def check(self, *, is_multilabel: bool) -> None:
        """Raise if something cannot be shown: better now than after hours of training."""
        from vicinal.metrics import METRICS

        if self.choose is not None:
            choice("choose", self.choose, tuple(METRICS))
        for name, asked in (("baselines", self.baselines), ("parts", self.parts)):
            if asked and is_multilabel:
                raise ValueError(Sentence(Argument(name), " needs classes: compare with one of the targets at a time"))


@dataclass(frozen=True)
class _Compared:
    """What is compared."""

    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EXPR", help="A method; the others are compared with the first. One is enough for models."
        ),
    ] = None
    run: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="A finished run on the same split; may be repeated.")
    ] = None
    predictions: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Predictions with labels of the test samples, or of all rows of DATA, in order; may be repeated.",
        ),
    ] = None
    seeds: Annotated[int, typer.Option(help="Train each method this many times, with other weights and order.")] = 5
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the runs go; by default runs/compare-DATA.")
    ] = None

    def methods(self, models: Sequence[str]) -> list[str]:
        """Return the methods to train; raise if there are not two things to compare."""
        finished = len(self.run or ()) + len(self.predictions or ())
        methods = list(self.method or (["ERM()"] if len(models) + finished * bool(models) > 1 else []))
        if len(methods) * max(len(models), 1) + finished < 2:
            raise ValueError(
                "name at least two methods, models, runs or files: --method 'ERM()' --method 'Mixup(alpha=0.2)', "
                "--model mlp,hgb, --run RUN or --predictions FILE"
            )
        return methods


@handle_errors
@takes_records
def compare(
    data: Annotated[str, typer.Argument(metavar="DATA", help="As for `vicinal train`.")] = "digits",
    *,
    what: _Compared,
    shown: _Shown,
    pool: PoolOptions,
    common: TrainCommon,
    given: Given,
) -> None:
    """Compare methods, models, finished runs and predictions: the same split for each, paired intervals, a report.

    Several models are named with commas: --model mlp,hgb.

    Runs that are finished are kept: the same command again finishes what is missing, and methods or seeds can be added.
    """
    hold_portable(common.portable)
    models = [name.strip() for name in given.model.split(",")] if given.model else []
    methods = what.methods(models)
    integer("seeds", what.seeds, low=1, high=MOST_SEEDS)
    given.check(data, methods, models)
    for path in what.run or ():
        check_run(path)
    base = Experiment(source=data, **{**vars(given), "model": next(iter(models), None)})
    shown.check(is_multilabel=base.is_multilabel)
    folder = what.out or Path("runs") / f"compare-{data_name(data)}"
    page = shown.report or folder / "report.html"
    check_report(page, given.inputs(data), overwrite=common.overwrite, data_root=given.data.get("data_root"))
    console = Console(as_json=common.as_json)
    with console.stage("starting"):
        from vicinal.report import write_comparison
        from vicinal.report.verdicts import judge_comparison
        from vicinal.runs import Pool, measure_baselines, run_grid
        from vicinal.runs.baselines import ALWAYS, BASELINES
        from vicinal.runs.boosting import check_training_options
        from vicinal.runs.grid_parts import grid_parts
    for model in models:  # before the first is trained for hours
        check_training_options(model, given.training)
    place = Pool(**vars(pool))
    train = partial(run_grid, methods=methods, seeds=range(what.seeds), n_bins=shown.bins, pool=place)
    train = partial(train, progress=not common.as_json, on_cell=partial(_show_cell, console))
    # On a terminal each cell that ends is a line, and trainings in this process have bars of their own.
    with contextlib.nullcontext() if progress.on_terminal() else console.stage("training"):
        result = _trained(train, base, folder, models if methods else None, what, shown.bins)
    (name, seed), first = next(iter(result.results.items()))
    has_data = not first.is_multilabel and first.fit["seconds"] is not None  # predictions alone have none to fit on
    if has_data:
        with console.stage("baselines"):
            asked = BASELINES if shown.baselines else ALWAYS
            measure_baselines(first, asked)
            # The one that is advised is judged beside them, too; predictions have no data to fit them on.
            advised = next((one for (m, _), one in result.results.items() if m == result.advised()[0]), first)
            if advised.fit["seconds"] is not None:
                measure_baselines(advised, asked)
    with console.stage("calibration and refinement"):
        parts = grid_parts(result) if shown.parts else []
    with console.stage("comparing"):
        write_comparison(result, page, choose=shown.choose, command=command_line(), parts=parts)
        same = not result.is_calibrated
        tables = [result.table(spread=shown.spread, choose=shown.choose, times=same)]
        tables[:0] = [] if same else [result.table(after=True, spread=shown.spread, times=True)]
        markdown = "\n\n".join(tables)
    chosen: dict[str, object] = {} if shown.choose is None else {"chosen": result.chosen(shown.choose)}
    chosen |= {"baselines": plain_baselines(first)} if has_data else {}
    verdict = judge_comparison(result)
    chosen |= {"verdict": verdict, "report": str(page), "markdown": markdown}
    chosen |= {"parts": [one.to_dict() for one in parts]} if parts else {}
    console.event("result", {**result.to_dict(), **chosen})
    console.markdown(markdown)
    _show_parts(console, parts)
    if has_data:
        _say_baselines(console, first, f"{name}, seed {seed}")
    console.say(verdict)
    console.say(f"report: {page}")
    if result.failures:
        raise typer.Exit(1)


def _trained(
    train: Callable[..., GridResult],
    base: Experiment,
    folder: Path,
    models: Sequence[str] | None,
    what: _Compared,
    n_bins: int,
) -> GridResult:
    """Train each model (none if None) with all methods and seeds, and put finished runs and predictions beside them."""
    from vicinal.runs import Run, merged, result_of_predictions

    if models is not None and len(models) < 2 and not what.run and not what.predictions:
        result = train(base, out=folder)
    else:
        # A single model has no name in the table and, without --model, no folder of its own.
        places = {} if models is None else {name: folder / name for name in models or [""]}
        grids = {
            name if len(places) > 1 else "": train(replace(base, model=name or None), out=place)
            for name, place in places.items()
        }
        finished = {str(path): Run(path).result(n_bins=n_bins) for path in what.run or ()}
        trained = [each for grid in grids.values() for each in grid.results.values()]
        for path in what.predictions or ():
            like = next(iter([*trained, *finished.values()]), None)
            finished[str(path)] = result_of_predictions(path, like, n_bins=n_bins)
        result = merged(folder, grids, finished)
    if not result.results:
        raise RuntimeError(f"every run failed; {next(iter(result.failures.values()))}")
    return result


def _show_parts(console: Console, parts: Sequence[MethodParts]) -> None:
    if parts:
        columns = ["method", "NLL", "calibration", "refinement", "refinement less the first's"]
        rows = [[p.method, *map(str, vars(p.nll).values()), str(p.difference or "")] for p in parts]
        console.table("parts of the NLL before calibration", columns, rows)


def _say_baselines(console: Console, first: RunResult, name: str) -> None:
    from vicinal.report.verdicts import versus_baselines

    show_baselines(console, first, name)
    console.say(versus_baselines(first.test.after, first.run.baselines()).sentence)


def _show_cell(console: Console, name: str, seed: int, result: RunResult | None, error: str | None) -> None:
    facts: dict[str, object] = {"error": error} if result is None else {"out": str(result.out)}
    console.event("cell", {"method": name, "seed": seed, **facts})
    console.note(f"{name}, seed {seed}: {'done' if error is None else f'failed: {error}'}")
