"""`vicinal train`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal._checks import Argument, Sentence
from vicinal.cli.console import Console, percent
from vicinal.cli.errors import handle_errors
from vicinal.cli.help import command_line
from vicinal.cli.options import (
    Baselines,
    Bins,
    Given,
    Report,
    Slices,
    TrainCommon,
    hold_portable,
    takes_records,
)
from vicinal.cli.outputs import check_report
from vicinal.experiment import Experiment, default_method, folder_name

if TYPE_CHECKING:
    from vicinal.metrics import BinaryEvaluation, Slice
    from vicinal.runs import Importance, RunResult, Scores


#: Data whose targets are numbers. They are learned by squared error, and no class is predicted.
SCORED = ("glue:stsb",)


@dataclass(frozen=True)
class _Shown:
    """What is measured and shown of the run."""

    bins: Bins = 15
    baselines: Baselines = False
    report: Report = None
    slice: Slices = None


@handle_errors
@takes_records
def train(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A CSV, Excel or Parquet file, a folder of class folders of images or sounds, a folder split into "
            "train, val and test, or a name: digits, fashion-mnist, cifar10, hf:NAME, …",
        ),
    ] = "digits",
    method: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR",
            help="The method, as in Python; `vicinal methods` lists them. Mixup(alpha=0.2) unless given, ERM() with "
            "--model hgb, lightgbm or catboost. On a table `auto` chooses by validation.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The run's folder; by default under runs/, by data and method.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed for weights, batch order and mixing.")] = 0,
    *,
    shown: _Shown,
    common: TrainCommon,
    given: Given,
) -> None:
    """Train, calibrate on held-out data, evaluate, save.

    Run the same command again to resume a stopped run.
    """
    hold_portable(common.portable)
    given.check(data, [method] if method else [], [given.model] if given.model else [], shown.slice)
    console, report = Console(as_json=common.as_json), shown.report
    check_report(report, given.inputs(data), overwrite=common.overwrite, data_root=given.data.get("data_root"))
    experiment = Experiment(source=data, method=method or default_method(given.model), **vars(given), seed=seed)
    folder = out or Path("runs") / folder_name(experiment)
    if data.lower() in SCORED:
        _train_scores(experiment, folder, shown, console)
        return
    how: dict[str, Any] = {"n_bins": shown.bins, "progress": not common.as_json, "on_note": console.note}
    how["on_metrics"] = lambda line: console.event("metrics", line)
    for name in ("baselines", "slice"):
        if experiment.is_multilabel and getattr(shown, name):
            alone = " needs classes, and this target is several columns: train with one of them"
            raise ValueError(Sentence(Argument(name), alone))
    with console.stage("starting"):
        from vicinal.runs import measure_baselines, run
        from vicinal.runs.baselines import ALWAYS, BASELINES
    with console.stages():
        result = run(experiment, folder, **how)
    if result is None:  # another process than the first
        return
    facts, slices = {"out": str(folder), **result.to_dict()}, None
    importance = importance_of(console, result, report)
    if result.is_multilabel:
        console.event("result", facts)
    else:
        with console.stage("baselines"):
            measure_baselines(result, BASELINES if shown.baselines else ALWAYS)
        from vicinal.report.verdicts import judge_run

        slices = result.run.slices(shown.slice or (), n_bins=shown.bins)
        verdict = judge_run(result, slices, importance)
        more = {"verdict": verdict.to_dict(), "slices": [one.to_dict() for one in slices]}
        console.event("result", {**facts, "baselines": plain_baselines(result), **more})
    show_result(console, result, slices if shown.slice else None, importance)
    console.say(f"model: {folder} ({shlex.join(['vicinal', 'predict', str(folder)])} DATA --out FILE)")
    if report is not None:
        from vicinal.report import ReportExtras, write_run

        with console.stage("writing the report"):
            extras = ReportExtras(importance=importance, slices=slices, command=command_line())
            write_run(result, report, extras)
        console.say(f"report: {report}")


def _train_scores(experiment: Experiment, folder: Path, shown: _Shown, console: Console) -> None:
    """Train on data whose targets are numbers, and show the squared error and Spearman's correlation."""
    from vicinal.metrics import METRICS
    from vicinal.runs.regression import train_scores

    for name in ("report", "baselines", "slice"):
        if getattr(shown, name):
            raise ValueError(Sentence(Argument(name), f" needs classes, and {experiment.source} has numbers"))
    how: dict[str, Any] = {"progress": not console.as_json, "on_metrics": lambda line: console.event("metrics", line)}
    with console.stages():
        result = train_scores(experiment, folder, **how)
    if result is None:  # another process than the first
        return
    console.event("result", {"out": str(folder), **result.to_dict()})
    for note in result.notes:
        console.note(note)
    names = list(next(iter(result.sets.values())).metrics)
    rows = [
        [name, f"{one.n:,}", *(METRICS[metric].text(one.metrics[metric]) for metric in names)]
        for name, one in result.sets.items()
    ]
    console.table(f"{experiment.method} on {experiment.source}", ["", "n", *(METRICS[m].title for m in names)], rows)
    console.say(f"model: {folder} (vicinal.data.regression.load_scores reads its data)")


#: Samples times columns up to which the importance of columns takes a moment.
_FEW_CELLS = 20_000


def importance_of(console: Console, result: RunResult, report: Path | None) -> list[Importance]:
    """Return the importance of columns where a report shows it, or it takes a moment; none if the data have changed."""
    from vicinal.runs.importance import measured_importance

    try:
        with console.stage("importance of columns"):
            return measured_importance(result, most_cells=_FEW_CELLS if report is None else None)
    except (OSError, ValueError) as error:
        if report is not None:
            console.note(f"the report goes without the importance of columns: {error}")
        return []


def show_result(
    console: Console,
    result: RunResult,
    named: Sequence[Slice] | None = None,
    importance: Sequence[Importance] = (),
) -> None:
    """Show the metrics of a run, beside those of classes baselines and slices: `named` ones, or the worst."""
    if result.is_multilabel:
        _show_heads(console, result)
    else:
        from vicinal.report.verdicts import judge_run

        _show_classes(console, result)
        show_baselines(console, result)
        show_slices(console, result.run.slices() if named is None else named, named is not None)
        console.say(f"\n{judge_run(result, named, importance)}")


#: Slices that are shown where no column was named.
_WORST_SLICES = 3


def show_slices(console: Console, slices: Sequence[Slice], named: bool) -> None:
    """Show slices, the worst first: all of columns that were named, else the worst of those that are significant."""
    shown = slices if named else [one for one in slices if one.status][:_WORST_SLICES]
    rows = [
        [s.name, f"{s.n:,}", percent(s.accuracy), f"{100 * s.gap.value:+.1f}", str(s.nll or "–"), s.status or "no"]
        for s in shown
    ]
    if rows:
        title = f"the worst of {len(slices)} slices" if len(rows) < len(slices) else "slices, the worst first"
        console.table(title, ["", "n", "accuracy", "gap, points", "NLL", "significant"], rows)


def _show_heads(console: Console, result: RunResult) -> None:
    """Show the metrics of several labels on each set of a run."""
    for key, scored in result.sets.items():
        name = {"val": "validation", "test": "test"}.get(key, scored.name)
        show_labels_scored(console, f"{result.experiment.method} on {result.experiment.source}, {name}", scored)
        for note in scored.notes:
            console.say(f"{scored.name}: {note}")
    if reported := result.objective_summary():
        console.say(f"the objective reports: {reported}")


def show_labels_scored(console: Console, title: str, scored: Scores) -> None:
    """Show the metrics of several labels: their means before and after the temperatures, then those of each."""
    from vicinal.metrics.registry import brief

    shown = brief(scored.calibrated.metrics)
    rows = [
        [label, "", "", *(f.text(each.metrics[f.name]) for f in shown), ""]
        for label, each in (("mean", scored.uncalibrated), ("mean, calibrated", scored.calibrated))
    ]
    for k, (label, evaluation) in enumerate(scored.heads.items()):
        binary = scored.binary(label)
        share = float(scored.labels[:, k].double().mean())
        metrics = [f.text(evaluation.metrics[f.name]) for f in shown]
        ranked = "–" if binary is None else percent(binary.auroc)
        fitted = scored.calibrators.text(label).removeprefix("temperature ")
        rows.append([label, f"{100 * share:.1f} %", fitted, *metrics, ranked])
    headings = [f.heading(scored.calibrated.n_bins) for f in shown]
    columns = ["label", "is 1", "calibrator", *headings, "AUROC"]
    console.table(f"{title}: {scored.calibrated.n:,} samples", columns, rows)


def plain_baselines(result: RunResult) -> dict[str, object]:
    """Return the metrics of baselines as JSON can hold them."""
    return {
        model: {name: None if metric is None else metric.to_dict() for name, metric in metrics.items()}
        for model, metrics in result.run.baselines().items()
    }


def show_baselines(console: Console, result: RunResult, name: str = "this model") -> None:
    """Show the baselines on the same split beside the run, which is called by `name`."""
    from vicinal.metrics.registry import columns

    simpler = result.run.baselines()
    if not simpler or "test" not in result.sets:
        return
    main = result.test.after
    shown = columns(main)
    models = {f"{name}, calibrated": main.metrics, **simpler}
    rows = [[model, *(f.text(metrics.get(f.name)) for f in shown)] for model, metrics in models.items()]
    headings = ["", *(f.heading(main.n_bins) for f in shown)]
    console.table(f"baselines on the same {main.n:,} test samples", headings, rows)


def show_scored(console: Console, title: str, sets: Sequence[tuple[str, Scores]]) -> None:
    """Show the metrics of sets of samples by name, before and after the temperature."""
    from vicinal.metrics.registry import Metric, columns

    bins = sets[0][1].before.n_bins if sets else 15
    rows: list[list[str]] = []
    shown: list[Metric] = []
    for name, scored in sets:
        both = [(", calibrated", scored.after)] if scored.before.metrics != scored.after.metrics else []
        for label, each in (("", scored.before), *both):
            shown = shown or columns(each)
            rows.append([f"{name}{label}", f"{each.n:,}", *(f.text(each.metrics[f.name]) for f in shown)])
    console.table(title, ["", "n", *(f.heading(bins) for f in shown)], rows)


def show_binary(console: Console, binary: BinaryEvaluation, positive: str, where: str) -> None:
    """Show how the probability of the second of two classes ranks."""
    metrics = (("AUROC", binary.auroc), ("AP", binary.average_precision))
    console.say(f"P({positive!r}){where}: {', '.join(f'{name} {percent(each)}' for name, each in metrics)}")


def _show_classes(console: Console, result: RunResult) -> None:
    """Show the metrics of a run, before and after the temperature."""
    title = f"{result.experiment.method} on {result.experiment.source}: {result.calibrators.text()}"
    names = {"val": "validation", "test": "test"}
    show_scored(console, title, [(names.get(key, scored.name), scored) for key, scored in result.sets.items()])
    if "test" in result.sets and (binary := result.test.binary()) is not None:
        show_binary(console, binary, result.facts["data"]["classes"][1], " on the test set, calibrated")
    for scored in result.sets.values():
        for note in scored.notes:
            console.say(f"{scored.name}: {note}")
        if (own := scored.calibrators.text()) != result.calibrators.text():
            console.say(f"{scored.name} has a calibrator of its own: {own}")
    if reported := result.objective_summary():
        console.say(f"the objective reports: {reported}")
    for name, best in result.oracle().items():
        console.say(f"lowest {name} error in hindsight (oracle): {100 * best['error']:.2f} %, epoch {best['epoch']:g}")
    if result.label_noise is not None:
        noise = result.label_noise
        kinds = ("test", "train_real", "train_corrupted")
        rows = [
            [name, *(f"{100 * noise[which][k]:.1f} %" if k in noise[which] else "" for k in kinds)]
            for which, name in (("best", "kept weights"), ("last", "last weights"))
        ]
        title = f"errors with {noise['corrupted']} training labels drawn at random, {noise['changed']} of them changed"
        console.table(title, ["", "test", "training, real labels", "training, corrupted labels"], rows)
