"""`vicinal calibrate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli.console import Console
from vicinal.cli.errors import as_options, handle_errors
from vicinal.cli.options import CsvCommon, FileOptions, Predictions, takes_records
from vicinal.cli.outputs import check_outputs


@handle_errors
@takes_records
def calibrate(
    validation: Annotated[
        Path, typer.Argument(metavar="VALIDATION", help="Held-out predictions with labels, to fit on.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The predictions to repair; they need no labels.")],
    out: Predictions,
    calibrator: Annotated[
        str, typer.Option(metavar="auto|temperature|svs|sms|quadratic|isotonic|…", help="How to calibrate.")
    ] = "temperature",
    check: Annotated[
        bool, typer.Option(help="Apply it only if it helps by cross-validation on the first file.")
    ] = True,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the fitted calibrator, as JSON.")] = None,
    *,
    reading: FileOptions,
    common: CsvCommon,
) -> None:
    """Repair probabilities: fit on the first file, apply to the second."""
    from vicinal.predictions import calibrate_file, open_file

    console = Console(as_json=common.as_json)
    check_outputs({"--out": out, "--save": save}, [validation, file], overwrite=common.overwrite)
    fitted_on = open_file(validation, **vars(reading))
    # Labels of the second file, if it has any, are kept as any other column is.
    repaired = open_file(file, **vars(replace(reading, label=None)))
    done = calibrate_file(fitted_on, repaired, out, calibrator=calibrator, check=check, safe_csv=common.safe_csv)
    if save is not None:
        save.parent.mkdir(parents=True, exist_ok=True)
        done.calibrator.save(save)
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
        },
    )
    for sentence in done.sentences:
        console.say(as_options(sentence))
    for name, value in learned.items():
        console.say(f"{name.rstrip('_')}: {value:.4f}")
