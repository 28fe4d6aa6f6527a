"""`vicinal calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vicinal.cli.console import Console
from vicinal.cli.errors import as_options, handle_errors
from vicinal.cli.options import AsJson, MaxMemory, Overwrite, SafeCsv
from vicinal.cli.outputs import check_outputs


@handle_errors
def calibrate(
    validation: Annotated[
        Path, typer.Argument(metavar="VALIDATION", help="Held-out predictions with labels, to fit on.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The predictions to repair; they need no labels.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to: .csv, .csv.gz, .tsv, .parquet or .npz.")],
    calibrator: Annotated[
        str, typer.Option(metavar="auto|temperature|svs|sms|quadratic|isotonic|…", help="How to calibrate.")
    ] = "temperature",
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of labels.")] = None,
    kind: Annotated[str | None, typer.Option(metavar="probs|logits", help="What the scores are.")] = None,
    columns: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column of scores; once for each class.")
    ] = None,
    classes: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A class, in the order of class numbers.")
    ] = None,
    missing: Annotated[str, typer.Option(metavar="error|drop", help="What to do with missing values.")] = "error",
    normalise: Annotated[bool, typer.Option("--normalise", help="Divide probabilities by their sum.")] = False,
    encoding: Annotated[str | None, typer.Option(help="How text files are written, such as latin-1.")] = None,
    check: Annotated[
        bool, typer.Option(help="Apply it only if it helps by cross-validation on the first file.")
    ] = True,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the fitted calibrator, as JSON.")] = None,
    safe_csv: SafeCsv = False,
    max_memory: MaxMemory = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Repair probabilities: fit on the first file, apply to the second."""
    from vicinal.predictions import calibrate_file, open_file

    console = Console(as_json=as_json)
    check_outputs({"--out": out, "--save": save}, [validation, file], overwrite=overwrite)
    how: dict[str, Any] = {
        "kind": kind,
        "columns": columns or None,
        "classes": classes or None,
        "missing": missing,
        "normalise": normalise,
        "encoding": encoding,
    }
    fitted_on = open_file(validation, label=label, **how)
    repaired = open_file(file, **how)  # its labels, if it has any, are kept as any other column is
    done = calibrate_file(fitted_on, repaired, out, calibrator=calibrator, check=check, safe_csv=safe_csv)
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
            **{name.rstrip("_"): value for name, value in learned.items()},
        },
    )
    for sentence in done.sentences:
        console.say(as_options(sentence))
    for name, value in learned.items():
        console.say(f"{name.rstrip('_')}: {value:.4f}")
