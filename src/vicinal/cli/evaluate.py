"""`vicinal evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.models import OptionInfo

from vicinal._checks import Argument, Sentence
from vicinal.cli.console import Console, percent
from vicinal.cli.errors import handle_errors
from vicinal.cli.help import command_line
from vicinal.cli.inputs import OF_A_RUN, check_source
from vicinal.cli.options import (
    Common,
    FileOptions,
    Report,
    ShardOptions,
    Slices,
    Weight,
    Written,
    takes_records,
    use_device,
)
from vicinal.cli.outputs import check_report
from vicinal.cli.train import importance_of, show_binary, show_labels_scored, show_result, show_scored, show_slices

if TYPE_CHECKING:
    from vicinal.calibrators import LossParts
    from vicinal.metrics import BinaryEvaluation, Evaluation, SetEvaluation, Slice
    from vicinal.predictions import PredictionsFile
    from vicinal.probes import AttackErrors, BetweenCurves
    from vicinal.runs import RunResult
    from vicinal.runs.probes import OODResult
    from vicinal.runs.scores import Scores


def _of_run(help: str, metavar: str) -> OptionInfo:
    option: OptionInfo = typer.Option(metavar=metavar, help=help, rich_help_panel="Run")
    return option


@dataclass(frozen=True)
class _Probes:
    """What to measure of a run beside its metrics."""

    ood: Annotated[
        list[str] | None,
        _of_run("Tell the test set from these data, or from Gaussian noise; may be repeated.", "DATA|noise"),
    ] = None
    ood_score: Annotated[str, _of_run("By this score.", "max_probability|entropy|energy|margin")] = "max_probability"
    attack: Annotated[
        list[str] | None,
        _of_run("Attack the test images: fgsm:4/255, ifgsm:4/255:10; may be repeated.", "NAME:EPSILON[:STEPS]"),
    ] = None
    attack_from: Annotated[Path | None, _of_run("Use this run's gradients: a black-box attack.", "RUN")] = None
    slice: Slices = None
    mc_dropout: Annotated[int | None, _of_run("Evaluate with dropout on, too, this many times.", "PASSES")] = None
    between: Annotated[int | None, _of_run("Look between so many pairs of training samples.", "PAIRS")] = None
    sets: Annotated[
        float | None,
        typer.Option(
            metavar="COVERAGE",
            help="Measure prediction sets of this coverage: on a run's test set, fitted on its validation set; on "
            "every second row of a file, fitted on the others.",
        ),
    ] = None
    parts: Annotated[
        bool,
        typer.Option(
            "--parts",
            help="Divide NLL and Brier score of a run's test set, or of a file, into calibration and refinement; takes "
            "some 150 fits.",
        ),
    ] = False
    data_root: Annotated[str | None, _of_run("Where named data sets are.", "FOLDER")] = None


@dataclass(frozen=True)
class _Measured:
    """How to measure, and where to show it."""

    report: Report = None
    bins: Annotated[int, typer.Option(help="Bins of the calibration errors.")] = 15
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Where a run is measured: cpu, cuda, cuda:1, mps; by default on the device that trained it.",
        ),
    ] = None
    group: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column of groups of rows that are alike: intervals allow for it."),
    ] = None
    weight: Weight = None
    reference: Annotated[
        Path | None,
        typer.Option(metavar="OLD", help="Labelled predictions of the same model from before: show what has changed."),
    ] = None
    paired: Annotated[
        bool, typer.Option("--paired", help="Row i of FILE and of --reference is one sample: differences are paired.")
    ] = False


@handle_errors
@takes_records
def evaluate(
    what: Annotated[
        Path,
        typer.Argument(metavar="FILE|RUN", help="Predictions as CSV, Excel, Parquet, NPY or NPZ, or a run's folder."),
    ],
    data: Annotated[
        str | None,
        typer.Argument(metavar="[DATA]", help="Of a run: labelled data, as for `vicinal train`, to measure it on."),
    ] = None,
    *,
    measured: _Measured,
    file: FileOptions,
    probes: _Probes,
    written: Written,
    shards: ShardOptions,
    common: Common,
) -> None:
    """Say how far probabilities can be trusted: those of a file, of any size, or of a run.

    With DATA, a run is measured on these samples instead of its own: new ones, with labels, read as its training data.
    """
    console, sources = Console(as_json=common.as_json), (data, probes.attack_from)
    report, bins = measured.report, measured.bins
    if data is not None:
        check_source(data, probes.data_root)
    use_device(measured.device)
    if not shards.is_here and (data is not None or _is_run(what)):
        raise ValueError(Sentence(Argument("backend"), " is for a predictions file: leave it out"))
    if measured.reference is not None and (data is not None or _is_run(what)):
        files = f" compares predictions files, and {str(what)!r} is a run's folder: `vicinal predict` writes them"
        raise ValueError(Sentence(Argument("reference"), files))
    inputs = [what, *(probes.ood or ()), *(source for source in sources if source is not None)]
    check_report(report, inputs, overwrite=common.overwrite, data_root=probes.data_root)
    if data is None:
        _refuse(written, "is for a run on new data")
    if data is not None:
        _check_new_data(what, data, report, file, probes)
        how = {**written.options(), "encoding": file.encoding, "data_root": probes.data_root}
        _evaluate_new(console, what, data, bins, how)
    elif _is_run(what):
        _refuse(file, f"is for a predictions file, and {str(what)!r} is a run's folder")
        for name in ("group", "weight"):
            if getattr(measured, name) is not None:
                own = f" is for a predictions file: a run has its own {name}s"
                raise ValueError(Sentence(Argument(name), own))
        if _is_multilabel(what, console):
            alone = "train with one of them, or take the probability of each from `vicinal predict`"
            _refuse(probes, f"needs classes, and {str(what)!r} has several targets: {alone}")
            _evaluate_labels(console, what, report, bins)
            return
        _evaluate_run(console, what, report, bins, probes)
    else:
        _refuse(
            replace(probes, sets=None, slice=None, parts=False), f"needs a run's folder: {str(what)!r} has no model"
        )
        if measured.reference is not None:
            _evaluate_shift(console, what, measured, file, probes, shards)
        else:
            _evaluate_file(console, what, measured, file, probes, shards)


def _is_run(path: Path) -> bool:
    """Whether a path is a run's folder, or wants to be: no file, no pattern, and no folder of tables."""
    if not path.is_dir():
        return False
    from vicinal.tables import is_table

    return any((path / name).exists() for name in OF_A_RUN) or not any(is_table(entry) for entry in path.iterdir())


def _is_multilabel(run: Path, console: Console) -> bool:
    with console.stage("starting"):
        from vicinal.runs import Run

    return Run(run).is_multilabel


def _check_new_data(run: Path, data: str, report: Path | None, file: FileOptions, probes: _Probes) -> None:
    """Refuse what is not for a run on new data."""
    if not _is_run(run):
        raise ValueError(
            f"DATA ({data!r}) is for a run's folder, and {str(run)!r} is a predictions file: give one alone"
        )
    _refuse(replace(file, encoding=None), f"is for a predictions file, and {str(run)!r} is a run's folder")
    _refuse(replace(probes, data_root=None), "is for the run's own test set: leave DATA out")
    if report is not None:
        advice = " is of the run's own samples: `vicinal predict` DATA with --keep LABELS, and evaluate that file"
        raise ValueError(Sentence(Argument("report"), advice))


def _evaluate_new(console: Console, run: Path, data: str, bins: int, how: dict[str, Any]) -> None:
    """Show the metrics of a run on new labelled data."""
    with console.stage("starting"):
        from vicinal.runs import Run

    with console.stage("predicting"):
        scored = Run(run).on_new_data(data, n_bins=bins, **how)
    for note in scored.notes:
        console.note(note)
    if scored.is_multilabel:
        console.event("result", {"run": str(run), **scored.to_dict()})
        show_labels_scored(console, f"{run} on {data}", scored)
    else:
        from vicinal.report.verdicts import judge
        from vicinal.runs.importance import kept_importance

        classes, binary = Run(run).bundle().classes, scored.binary()
        about: dict[str, Any] = {"importance": kept_importance(Run(run)), "warnings": Run(run).warnings}
        verdict = judge(scored.after, classes=classes, binary=binary, **about)
        console.event("result", {"run": str(run), **scored.to_dict(), "verdict": verdict.to_dict()})
        show_scored(console, f"{run} on {data}: {scored.calibrators.text()}", [(data, scored)])
        if binary is not None:
            show_binary(console, binary, classes[1], ", calibrated")
        console.say(f"\n{verdict}")


def _evaluate_labels(console: Console, run: Path, report: Path | None, bins: int) -> None:
    from vicinal.runs import Run

    result = Run(run).result(n_bins=bins)
    console.event("result", result.to_dict())
    show_result(console, result)
    if report is not None:
        from vicinal.report import ReportExtras, write_run

        write_run(result, report, ReportExtras(command=command_line()))
        console.say(f"report: {report}")


def _refuse(given: FileOptions | _Probes | Written, why: str) -> None:
    """Refuse options that mean nothing here instead of ignoring them."""
    for one in fields(given):
        if getattr(given, one.name) != one.default:
            raise ValueError(Sentence(Argument(one.name), f" {why}"))


def _evaluate_shift(
    console: Console, path: Path, measured: _Measured, file: FileOptions, probes: _Probes, shards: ShardOptions
) -> None:
    """Show accuracy and calibration of a predictions file beside those of an earlier one."""
    from vicinal.metrics import METRICS
    from vicinal.predictions import open_file
    from vicinal.predictions.shift import ASSUMPTION, shift_of_files

    _refuse(probes, "is for one file: leave --reference out")
    if not shards.is_here:
        raise ValueError(Sentence(Argument("backend"), " is for one file: leave --reference out"))
    for name in ("group", "weight", "report"):
        if getattr(measured, name) is not None:
            raise ValueError(Sentence(Argument(name), " is for one file: leave --reference out"))
    old = open_file(str(measured.reference), **vars(file))
    named = open_file(path, **vars(replace(file, label=None)))
    new = named if file.label not in named.others else open_file(path, **vars(file))
    with console.stage("comparing"):
        shift = shift_of_files(new, old, n_bins=measured.bins, paired=measured.paired)
    console.event("result", {"path": str(path), **shift.to_dict()})
    then, now = shift.reference, shift.now
    if now is not None:
        rows = [
            [m.heading(measured.bins), m.text(then.metrics[name]), m.text(now.metrics[name]), m.text(change)]
            for name, change in shift.changes.items()
            if (m := METRICS[name])
        ]
        how = "paired" if shift.paired else "of independent rows"
        columns = ["", f"then (n = {then.n:,})", f"now (n = {now.n:,})", "change"]
        console.table(f"{path} and {measured.reference}, intervals {how}", columns, rows)
    console.say(f"accuracy predicted from the confidences of {shift.n:,} rows: {percent(shift.predicted)}")
    console.say(f"This {ASSUMPTION}.")


def _evaluate_file(
    console: Console,
    path: Path,
    measured: _Measured,
    columns: FileOptions,
    asked: _Probes,
    shards: ShardOptions,
) -> None:
    from vicinal.predictions import open_file, parts_of_file, sets_of_file
    from vicinal.report.verdicts import judge

    reading, coverage = vars(columns), asked.sets
    report = measured.report
    if measured.weight is not None:
        _refuse(replace(asked, slice=None, parts=False), "does not know weights: leave --weight out")
    # Each measurement reads the file again: its rows are never in memory at once.
    file = open_file(path if shards.is_here else path.absolute(), **reading)  # a worker has its own working folder
    evaluation, binary = _measured_rows(console, file, measured, asked, shards)
    evaluation = replace(evaluation, path=path)
    with console.stage("prediction sets"):
        sets = {} if coverage is None else sets_of_file(open_file(path, **reading), coverage)
    with console.stage("calibration and refinement"):
        wanted = asked.parts or (report is not None and _has_few_scores(evaluation))
        again = open_file(path, **reading) if wanted else None
        shown_parts = {} if again is None else parts_of_file(again, group=measured.group, weight=measured.weight)
        parts = shown_parts if asked.parts else {}
    of_two = {} if binary is None else {"binary": {"positive": evaluation.classes[1], **binary.to_dict()}}
    verdict = judge(evaluation, binary=binary)
    facts = {**evaluation.to_dict(), **of_two, "verdict": verdict.to_dict(), **_sets_facts(coverage, sets)}
    console.event("result", facts | _parts_facts(parts))
    console.say(str(evaluation))
    show_parts(console, parts, "the file, as it is")
    if binary is not None:
        show_binary(console, binary, evaluation.classes[1], "")
    show_slices(console, evaluation.slices, bool(asked.slice))
    _show_sets(console, coverage, sets, evaluation.classes)
    console.say(f"\n{verdict}")
    if report is not None:
        from vicinal.report import write_predictions

        shown = None if coverage is None else (coverage, sets)
        write_predictions(
            evaluation,
            report,
            command=command_line(),
            sets=shown,
            binary=binary,
            parts=shown_parts,
        )
        console.say(f"report: {report}")


def _measured_rows(
    console: Console, file: PredictionsFile, measured: _Measured, asked: _Probes, shards: ShardOptions
) -> tuple[Evaluation, BinaryEvaluation | None]:
    """Return the metrics of a file, and those of its second class where it has two."""
    from vicinal.predictions import binary_of_file, evaluate_file

    bins, group, weight = measured.bins, measured.group, measured.weight
    with console.stage("rows", file.n_rows) as advance:
        seen = 0

        def move(n: int, total: int | None) -> None:
            nonlocal seen
            advance(n - seen)
            seen = n

        if not shards.is_here:
            from vicinal.runs.scheduler import Pool
            from vicinal.runs.shards import evaluate_shards

            for name, given in (("group", group), ("weight", weight), ("slice", asked.slice)):
                if given:
                    alone = " needs all rows in one process: leave out "
                    raise ValueError(Sentence(Argument(name), alone, Argument("backend")))
            pool = Pool(backend="ray", address=shards.address, workers=shards.workers, gpus=shards.gpus)
            pool.check_cluster()
            return evaluate_shards(file, pool, n_bins=bins, progress=move)
        evaluation = evaluate_file(file, n_bins=bins, group=group, weight=weight, slices=asked.slice, progress=move)
    with console.stage("two classes"):
        # Ranks are not weighted, so with weights AUROC and average precision are left out.
        ranked = evaluation.n_classes == 2 and weight is None
        return evaluation, binary_of_file(file, n_bins=bins, group=group) if ranked else None


def _has_few_scores(evaluation: Evaluation) -> bool:
    """Whether calibration and refinement say something and take a moment: then the report shows them unasked."""
    from vicinal.report.sections import FEW_SCORES
    from vicinal.report.verdicts import ENOUGH

    counts, n = evaluation.class_counts, evaluation.n
    if evaluation.kind == "confidence" or counts is None or n < ENOUGH:
        return False
    return n * len(counts) <= FEW_SCORES and int((counts > 0).sum()) > 1


def _sets_facts(coverage: float | None, sets: dict[str, SetEvaluation]) -> dict[str, object]:
    """Return what a machine wants to know of prediction sets."""
    measured = {name: metrics.to_dict() for name, metrics in sets.items()}
    return {"prediction_sets": {"coverage_asked": coverage, **measured}} if sets else {}


def _parts_facts(parts: Mapping[str, LossParts]) -> dict[str, object]:
    return {"parts": {name: each.to_dict() for name, each in parts.items()}} if parts else {}


def show_parts(console: Console, parts: Mapping[str, LossParts], of: str) -> None:
    """Show calibration and refinement of NLL and Brier score, where they were measured."""
    from vicinal.metrics import METRICS

    rows = [[METRICS[name].title, *map(str, vars(each).values())] for name, each in parts.items()]
    if rows:
        console.table(f"parts of the loss, {of}", ["", "loss", "calibration", "refinement"], rows)


@dataclass(frozen=True)
class _Answers:
    """What the probes measured; nothing where it was not asked for."""

    ood: list[OODResult]
    attacks: list[tuple[str, AttackErrors]]
    mc_dropout: Evaluation | None
    between: BetweenCurves | None
    sets: dict[str, SetEvaluation]
    slices: list[Slice] | None
    parts: dict[str, LossParts]


def _evaluate_run(console: Console, run: Path, report: Path | None, bins: int, asked: _Probes) -> None:
    from vicinal import runs
    from vicinal.report.verdicts import judge_run

    with console.stage("evaluating"):
        result = runs.Run(run).result(n_bins=bins)
    answers = _answers(console, result, asked)
    facts: dict[str, object] = {
        "ood": [{"data": r.source, "how": r.how, "score": asked.ood_score, **r.report.to_dict()} for r in answers.ood],
        "attacks": [errors.to_dict() for _, errors in answers.attacks],
    }
    if answers.mc_dropout is not None:
        facts["mc_dropout"] = {"passes": asked.mc_dropout, **answers.mc_dropout.to_dict()}
    if answers.between is not None:
        facts["between"] = answers.between.to_dict()
    if answers.slices is not None:
        facts["slices"] = [one.to_dict() for one in answers.slices]
    importance = importance_of(console, result, report)
    verdict = judge_run(result, answers.slices, importance)
    facts |= {"verdict": verdict.to_dict(), **_sets_facts(asked.sets, answers.sets)}
    facts |= _parts_facts(answers.parts)
    console.event("result", {**result.to_dict(), **facts})
    show_result(console, result, answers.slices, importance)
    show_parts(console, answers.parts, "test set, before calibration")
    _show_answers(console, asked, answers)
    _show_sets(console, asked.sets, answers.sets, result.facts["data"]["classes"])
    if report is not None:
        from vicinal.report import ReportExtras, write_run

        extras = ReportExtras(
            ood=[(r.name, r.report) for r in answers.ood],
            attacks=answers.attacks,
            mc_dropout=answers.mc_dropout,
            between=answers.between,
            slices=answers.slices,
            importance=importance,
            sets=None if asked.sets is None else (asked.sets, answers.sets),
            command=command_line(),
            parts=answers.parts,
        )
        with console.stage("writing the report"):
            write_run(result, report, extras)
        console.say(f"report: {report}")


def _answers(console: Console, result: RunResult, asked: _Probes) -> _Answers:
    """Measure what is asked for; each shows itself while it takes its time."""
    from vicinal import runs

    source = None if asked.attack_from is None else str(asked.attack_from)
    with console.stage("other data"):
        ood = _foreign(result, asked)
    with console.stage("attacks"):
        attacks = runs.attacks_on(result, asked.attack, source=source) if asked.attack else []
    with console.stage("MC dropout"):
        dropout = None if asked.mc_dropout is None else runs.with_mc_dropout(result, asked.mc_dropout)
    with console.stage("between training samples"):
        between = None if asked.between is None else runs.between(result, asked.between)
    with console.stage("prediction sets"):
        sets = {} if asked.sets is None else runs.prediction_sets(result, asked.sets)
    with console.stage("slices"):
        slices = result.run.slices(asked.slice, n_bins=result.test.after.n_bins) if asked.slice else None
    with console.stage("calibration and refinement"):
        parts = _parts_of(result.test) if asked.parts else {}
    return _Answers(ood, attacks, dropout, between, sets, slices, parts)


def _parts_of(test: Scores) -> dict[str, LossParts]:
    from vicinal.calibrators import loss_parts

    return loss_parts(test.labels, logits=test.logits, sample_weight=test.weights, groups=test.groups)


def _foreign(result: RunResult, asked: _Probes) -> list[OODResult]:
    from vicinal.runs import ood_reports

    if not asked.ood:
        return []
    return ood_reports(result, asked.ood, score=asked.ood_score, passes=asked.mc_dropout, data_root=asked.data_root)


def _show_answers(console: Console, asked: _Probes, answers: _Answers) -> None:
    if answers.mc_dropout is not None:
        console.say(f"test, with dropout on, mean of {asked.mc_dropout} passes:\n{answers.mc_dropout}\n")
    if answers.ood:
        rows = [[r.name, *(percent(metric) for metric in r.report.metrics.values())] for r in answers.ood]
        columns = ["", "AUROC", "AUPR in", "AUPR out", "FPR at 95 % TPR"]
        console.table(f"telling the test set from other data, by {asked.ood_score.replace('_', ' ')}", columns, rows)
    if answers.attacks:
        ranks = list(answers.attacks[0][1].clean)
        rows = [
            [name, *(percent(rates[k]) for k in ranks for rates in (errors.clean, errors.attacked))]
            for name, errors in answers.attacks
        ]
        columns = ["", *(f"top-{k}, {state}" for k in ranks for state in ("clean", "attacked"))]
        box = "white" if asked.attack_from is None else "black"
        console.table(f"errors on attacked test images ({box} box)", columns, rows)
    if answers.between is not None:
        curves = answers.between
        rows = [
            [f"{share:.1f}", f"{100 * miss:.1f} %", f"{100 * confidence:.1f} %"]
            for share, miss, confidence in zip(
                curves.lambdas, curves.misses.value, curves.mean_confidence.value, strict=True
            )
        ]
        title = f"between {curves.n_pairs} pairs of training samples"
        console.table(title, ["share of the first", "neither class", "mean confidence"], rows)


def _show_sets(
    console: Console, coverage: float | None, sets: dict[str, SetEvaluation], classes: Sequence[str]
) -> None:
    for name, metrics in sets.items():
        rows = [["all", f"{metrics.n:,}", percent(metrics.coverage), str(metrics.size)]]
        of_classes = zip(classes, metrics.class_n, metrics.class_coverage, metrics.class_size, strict=True)
        known = [(label, n, c, s) for label, n, c, s in of_classes if c is not None]
        # The lowest coverage first: the worst class stands beside the overall coverage.
        known.sort(key=lambda row: row[2].value)
        rows += [[label, f"{n:,}", percent(c), str(s)] for label, n, c, s in known]
        title = f"prediction sets of {100 * (coverage or 0):g} % coverage, {name}"
        console.table(title, ["class", "n", "coverage", "size"], rows)
        by_size = [[f"{size}", f"{metrics.size_n[size]:,}", percent(c)] for size, c in metrics.size_coverage.items()]
        console.table(f"{title}, by size", ["classes in the set", "n", "coverage"], by_size)
