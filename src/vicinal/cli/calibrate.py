"""`vicinal calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vicinal.cli.speaking import Speaker, check_place, kindly

__all__ = ["calibrate"]


@kindly
def calibrate(
    validation: Annotated[
        Path, typer.Argument(metavar="VALIDATION", help="Held-out predictions with labels, to fit on.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The predictions to repair; they need no labels.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to: .csv, .csv.gz, .tsv, .parquet or .npz.")],
    calibrator: Annotated[
        str, typer.Option(metavar="temperature|vector|isotonic|histogram", help="How to calibrate.")
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
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the fitted calibrator, as JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, for machines.")] = False,
) -> None:
    """Repair probabilities: fit on the first file, apply to the second."""
    from vicinal.predictions import calibrate_file, open_file

    speaker = Speaker(as_json=as_json)
    check_place("--save", save)
    how: dict[str, Any] = {
        "kind": kind,
        "columns": columns or None,
        "classes": classes or None,
        "missing": missing,
        "normalise": normalise,
        "encoding": encoding,
    }
    held_out = open_file(validation, label=label, **how)
    given = open_file(file, **how)  # its labels, if it has any, are kept as any other column is
    done = calibrate_file(held_out, given, out, calibrator=calibrator)
    if save is not None:
        save.parent.mkdir(parents=True, exist_ok=True)
        done.calibrator.save(save)
    learned = {name: value for name, value in vars(done.calibrator).items() if name == "temperature_"}
    speaker.event(
        "result",
        {
            "out": str(done.path),
            "calibrator": repr(done.calibrator),
            "fitted_on": done.n_fitted,
            "rows": done.n_rows,
            "notes": list(done.notes),
            **{name.rstrip("_"): value for name, value in learned.items()},
        },
    )
    speaker.say(str(done))
    for name, value in learned.items():
        speaker.say(f"{name.rstrip('_')}: {value:.4f}")
