"""`vicinal evaluate`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from vicinal.cli.speaking import Speaker, check_report, kindly, percent
from vicinal.cli.train import show_outcome

__all__ = ["evaluate"]

_OF_FILE = "Predictions file (what columns hold is told by their names)"
_OF_RUN = "Run"


@kindly
def evaluate(
    what: Annotated[
        Path, typer.Argument(metavar="FILE|RUN", help="Predictions as CSV, Parquet or NPZ, or a run's folder.")
    ],
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report here, as HTML.")] = None,
    bins: Annotated[int, typer.Option(help="Bins of the calibration errors.")] = 15,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of labels.", rich_help_panel=_OF_FILE)
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="probs|logits|confidence", help="What the scores are.", rich_help_panel=_OF_FILE),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of scores; once for each class.", rich_help_panel=_OF_FILE),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A class, in the order of class numbers.", rich_help_panel=_OF_FILE),
    ] = None,
    missing: Annotated[
        str, typer.Option(metavar="error|drop", help="What to do with missing values.", rich_help_panel=_OF_FILE)
    ] = "error",
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Divide probabilities by their sum.", rich_help_panel=_OF_FILE)
    ] = False,
    encoding: Annotated[
        str | None, typer.Option(help="How a text file is written, such as latin-1.", rich_help_panel=_OF_FILE)
    ] = None,
    ood: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA|noise",
            help="Tell the test set from these data, or from Gaussian noise; may be repeated.",
            rich_help_panel=_OF_RUN,
        ),
    ] = None,
    ood_score: Annotated[
        str,
        typer.Option(metavar="max_probability|entropy|energy|margin", help="By this score.", rich_help_panel=_OF_RUN),
    ] = "max_probability",
    attack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:EPSILON[:STEPS]",
            help="Attack the test images: fgsm:4/255, ifgsm:4/255:10; may be repeated.",
            rich_help_panel=_OF_RUN,
        ),
    ] = None,
    attack_from: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Use this run's gradients: a black-box attack.", rich_help_panel=_OF_RUN),
    ] = None,
    mc_dropout: Annotated[
        int | None,
        typer.Option(metavar="PASSES", help="Evaluate with dropout on, too, this many times.", rich_help_panel=_OF_RUN),
    ] = None,
    between: Annotated[
        int | None,
        typer.Option(metavar="PAIRS", help="Look between so many pairs of training samples.", rich_help_panel=_OF_RUN),
    ] = None,
    data_root: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where named data sets are.", rich_help_panel=_OF_RUN)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, for machines.")] = False,
) -> None:
    """Say how far probabilities can be trusted: those of a file, of any size, or of a run."""
    speaker = Speaker(as_json=as_json)
    check_report(report)
    if what.is_dir():
        of_file: dict[str, Any] = {
            "--label": label,
            "--kind": kind,
            "--columns": columns,
            "--classes": classes,
            "--missing": missing != "error",
            "--normalise": normalise,
            "--encoding": encoding,
        }
        _refuse(of_file, f"is for a predictions file, and {str(what)!r} is a run's folder")
        asked = _Probes(ood or [], ood_score, attack or [], attack_from, mc_dropout, between, data_root)
        _evaluate_run(speaker, what, report, bins, asked)
        return
    of_run = {
        "--ood": ood,
        "--ood-score": ood_score != "max_probability",
        "--attack": attack,
        "--attack-from": attack_from,
        "--mc-dropout": mc_dropout,
        "--between": between,
        "--data-root": data_root,
    }
    _refuse(of_run, f"needs a run's folder: {str(what)!r} has no model")
    from vicinal.predictions import evaluate_file, open_file

    how: dict[str, Any] = {
        "label": label,
        "kind": kind,
        "columns": columns or None,
        "classes": classes or None,
        "encoding": encoding,
        "missing": missing,
        "normalise": normalise,
    }
    file = open_file(what, **how)
    with speaker.progress("rows", file.n_rows) as advance:
        seen = 0

        def move(n: int, total: int | None) -> None:
            nonlocal seen
            advance(n - seen)
            seen = n

        found = evaluate_file(file, n_bins=bins, progress=move)
    speaker.event("result", found.to_dict())
    speaker.say(str(found))
    if report is not None:
        from vicinal.report import write_predictions

        write_predictions(found, report, command=_command(what, bins, how, report))
        speaker.say(f"report: {report}")


def _command(file: Path, bins: int, how: dict[str, Any], report: Path) -> str:
    """Return the command line that makes this report again."""
    words = ["vicinal", "evaluate", str(file), "--bins", str(bins)]
    for name, value in how.items():
        if value is True:
            words.append(f"--{name}")
        elif value and (name, value) != ("missing", "error"):
            words += [word for each in ([value] if isinstance(value, str) else value) for word in (f"--{name}", each)]
    return shlex.join([*words, "--report", str(report)])


@dataclass(frozen=True)
class _Probes:
    """What is asked of a run beside its figures."""

    ood: list[str]
    ood_score: str
    attack: list[str]
    attack_from: Path | None
    mc_dropout: int | None
    between: int | None
    data_root: str | None


def _evaluate_run(speaker: Speaker, run: Path, report: Path | None, bins: int, asked: _Probes) -> None:
    from vicinal import runs

    outcome = runs.Run(run).outcome(n_bins=bins)
    source = None if asked.attack_from is None else str(asked.attack_from)
    how: dict[str, Any] = {"score": asked.ood_score, "passes": asked.mc_dropout, "data_root": asked.data_root}
    strange = runs.ood_reports(outcome, asked.ood, **how) if asked.ood else []
    attacked = runs.attacks_on(outcome, asked.attack, source=source) if asked.attack else []
    passes = None if asked.mc_dropout is None else runs.with_mc_dropout(outcome, asked.mc_dropout)
    lines = None if asked.between is None else runs.between(outcome, asked.between)
    speaker.event(
        "result",
        {
            **outcome.to_dict(),
            "ood": [{"data": r.source, "how": r.how, "score": asked.ood_score, **r.report.to_dict()} for r in strange],
            "attacks": [found.to_dict() for _, found in attacked],
            **({} if passes is None else {"mc_dropout": {"passes": asked.mc_dropout, **passes.to_dict()}}),
            **({} if lines is None else {"between": lines.to_dict()}),
        },
    )
    show_outcome(speaker, outcome)
    if passes is not None:
        speaker.say(f"test, with dropout on, mean of {asked.mc_dropout} passes:\n{passes}\n")
    if strange:
        rows = [[r.name, *(percent(figure) for figure in r.report.figures.values())] for r in strange]
        columns = ["", "AUROC", "AUPR in", "AUPR out", "FPR at 95 % TPR"]
        speaker.table(f"telling the test set from other data, by {asked.ood_score.replace('_', ' ')}", columns, rows)
    if attacked:
        rows = [_attack_row(name, found) for name, found in attacked]
        box = "white" if asked.attack_from is None else "black"
        speaker.table(f"errors on attacked test images ({box} box)", ["", *_attack_columns(attacked[0][1])], rows)
    if lines is not None:
        misses, sure = lines.misses.value, lines.mean_confidence.value
        rows = [
            [f"{share:.1f}", f"{100 * miss:.1f} %", f"{100 * confidence:.1f} %"]
            for share, miss, confidence in zip(lines.lambdas, misses, sure, strict=True)
        ]
        title = f"between {lines.n_pairs} pairs of training samples"
        speaker.table(title, ["share of the first", "neither class", "mean confidence"], rows)
    if report is not None:
        from vicinal.report import write_run

        write_run(
            outcome,
            report,
            ood=[(r.name, r.report) for r in strange],
            attacks=attacked,
            mc_dropout=passes,
            between=lines,
        )
        speaker.say(f"report: {report}")


def _attack_columns(found: Any) -> list[str]:
    return [f"top-{k}, {state}" for k in found.clean for state in ("clean", "attacked")]


def _attack_row(name: str, found: Any) -> list[str]:
    return [name, *(percent(errors[k]) for k in found.clean for errors in (found.clean, found.attacked))]


def _refuse(given: dict[str, Any], why: str) -> None:
    """Refuse options that mean nothing here instead of passing over them."""
    for name, value in given.items():
        if value:
            raise ValueError(f"{name} {why}")
