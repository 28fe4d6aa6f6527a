"""`vicinal calibrate`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal._checks import choice
from vicinal._names import CALIBRATORS
from vicinal.cli.console import Console
from vicinal.cli.errors import as_options, handle_errors
from vicinal.cli.options import CsvCommon, FileOptions, Predictions, Weight, takes_records
from vicinal.cli.outputs import check_outputs

if TYPE_CHECKING:
    from vicinal.calibrators.base import Calibrator
    from vicinal.metrics import Evaluation


#: What `--calibrator` takes.
_CALIBRATOR = ("auto", *CALIBRATORS)


@dataclass(frozen=True)
class _Fitted:
    """How to calibrate."""

    calibrator: Annotated[str, typer.Option(metavar="NAME", help=f"How to calibrate: {', '.join(_CALIBRATOR)}.")] = (
        "temperature"
    )
    check: Annotated[bool, typer.Option(help="Apply it only if it helps by cross-validation on the first file.")] = True
    group: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Groups of rows that are alike: the check keeps each together.")
    ] = None
    weight: Weight = None
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the fitted calibrator, as JSON.")] = None


@handle_errors
@takes_records
def calibrate(
    validation: Annotated[
        Path, typer.Argument(metavar="VALIDATION", help="Held-out predictions with labels, to fit on.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The predictions to repair; they need no labels.")],
    out: Predictions,
    *,
    fitting: _Fitted,
    reading: FileOptions,
    common: CsvCommon,
) -> None:
    """Repair probabilities: fit on the first file, apply to the second."""
    choice("calibrator", fitting.calibrator, _CALIBRATOR)
    from vicinal.predictions import calibrate_file, open_file

    console, save = Console(as_json=common.as_json), fitting.save
    check_outputs({"--out": out, "--save": save}, [validation, file], overwrite=common.overwrite)
    fitted_on = open_file(validation, **vars(reading))
    # Labels of the second file, if it has any, are kept as any other column is.
    repaired = open_file(file, **vars(replace(reading, label=None)))
    done = calibrate_file(
        fitted_on,
        repaired,
        out,
        calibrator=fitting.calibrator,
        check=fitting.check,
        group=fitting.group,
        weight=fitting.weight,
        safe_csv=common.safe_csv,
    )
    if save is not None:
        save.parent.mkdir(parents=True, exist_ok=True)
        done.calibrator.save(save)
    with console.stage("comparing"):
        # A safe CSV has quotation marks before some labels, so it cannot be measured as it is.
        measured = None if common.safe_csv else out
        fitted = done.calibrator if done.applied else None
        compared = _before_and_after(validation, file, measured, reading, fitted, fitting.weight)
    # What stands for a calibrator that does not help has a temperature of 1, which nobody asked for.
    learned = {name: value for name, value in vars(done.calibrator).items() if done.applied and name == "temperature_"}
    console.event(
        "result",
        {
            "out": str(done.path),
            "calibrator": repr(done.calibrator),
            "applied": done.applied,
            "fitted_on": done.n_fitted,
            "rows": done.n_rows,
            "notes": [as_options(note) for note in done.notes],
            **({} if done.choice is None else {"choice": done.choice.to_dict()}),
            **{name.rstrip("_"): value for name, value in learned.items()},
            **compared.to_dict(),
        },
    )
    for sentence in done.sentences:
        console.say(as_options(sentence))
    for name, value in learned.items():
        console.say(f"{name.rstrip('_')}: {value:.4f}")
    compared.show(console)


@dataclass(frozen=True)
class _Compared:
    """Predictions with labels before and, where they were changed, after calibration."""

    where: str
    evaluations: dict[str, Evaluation]

    def to_dict(self) -> dict[str, object]:
        from vicinal.report.verdicts import judge

        both = {name: {**each.to_dict(), "verdict": judge(each).to_dict()} for name, each in self.evaluations.items()}
        return {"measured_on": self.where, **both}

    def show(self, console: Console) -> None:
        from vicinal.metrics.registry import columns
        from vicinal.report.verdicts import judge

        first = next(iter(self.evaluations.values()))
        shown = columns(first)
        rows = [[name, *(m.text(each.metrics.get(m.name)) for m in shown)] for name, each in self.evaluations.items()]
        console.table(f"on {self.where}", ["", *(m.heading(first.n_bins) for m in shown)], rows)
        for name, each in self.evaluations.items():
            console.say(f"{name}: {judge(each).calibration.sentence}")


def _before_and_after(
    validation: Path,
    file: Path,
    out: Path | None,
    reading: FileOptions,
    fitted: Calibrator | None,
    weight: str | None,
) -> _Compared:
    """Measure the repaired file where it has labels, else the one that the calibrator was fitted on."""
    from vicinal.predictions import calibrate_file, evaluate_file, open_file

    opened = open_file(file, **vars(replace(reading, label=None)))
    label = reading.label if reading.label in opened.source.columns else opened.label
    reopen = partial(open_file, classes=reading.classes, missing=reading.missing, encoding=reading.encoding)
    where = str(file) if label is not None else f"{validation}, which it was fitted on"
    held_out = open_file(validation, **vars(reading))
    before = open_file(file, **vars(replace(reading, label=label))) if label is not None else held_out
    # The file that is repaired may have no weights: its rows then count the same.
    measure = partial(evaluate_file, weight=weight if weight in before.others else None)
    evaluations = {"before": measure(before)}
    if fitted is None:
        return _Compared(where, evaluations)
    if label is not None and out is not None:
        evaluations["after"] = measure(reopen(out, label=label))
        return _Compared(where, evaluations)
    with tempfile.TemporaryDirectory() as folder:
        done = calibrate_file(held_out, before, Path(folder) / "out.npz", calibrator=fitted, check=False, weight=weight)
        evaluations["after"] = measure(reopen(done.path, label=before.label))
    return _Compared(where, evaluations)
