"""`vicinal predict`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal._checks import ArgumentError, integer, number
from vicinal.cli.answers import AnswerCounter, Answers, Work, answered_chunks
from vicinal.cli.console import Console
from vicinal.cli.errors import handle_errors
from vicinal.cli.inputs import check_run, check_source
from vicinal.cli.options import CsvCommon, Predictions, ShardOptions, Written, share_or_number, takes_records
from vicinal.cli.outputs import check_outputs
from vicinal.cli.predict_shards import predict_on_ray

if TYPE_CHECKING:
    from vicinal.runs.bundle import Bundle


@dataclass(frozen=True)
class _Reading:
    """How the data are read, and where predictions are computed."""

    batch_size: Annotated[
        int | None, typer.Option(help="Samples at a time; by default as many as in the run's evaluation.")
    ] = None
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Where to compute: cpu, cuda, cuda:1, mps; by default on the device that trained the run.",
        ),
    ] = None
    max_bad: Annotated[
        str, typer.Option(metavar="SHARE|NUMBER", help="Skip at most so many unreadable rows or files.")
    ] = "0.05"
    encoding: Annotated[str | None, typer.Option(metavar="NAME", help="Encoding of a text file, such as latin-1.")] = (
        None
    )
    header: Annotated[bool, typer.Option(help="Whether the first line of a table names the columns.")] = True
    max_pixels: Annotated[int, typer.Option(help="The most pixels of an image that is read.")] = 178_956_970
    data_root: Annotated[str | None, typer.Option(metavar="FOLDER", help="Where named data sets are.")] = None


@handle_errors
@takes_records
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="New data of the same kind, labelled or not.")],
    out: Predictions,
    *,
    answers: Answers,
    reading: _Reading,
    written: Written,
    shards: ShardOptions,
    common: CsvCommon,
) -> None:
    """Write each row's class and calibrated probabilities.

    The file has the number of the row, from 0 (and the name of a picture or sound, and columns to --keep),
    `prediction`, `confidence` and a column of probability for each class; with --sets a column `set`, a JSON list of
    classes. Of a run of several targets it has the probability of each, and `prediction`, a JSON list of those above
    one half.
    """
    check_run(run)
    check_source(data, reading.data_root)

    from vicinal.predictions import write
    from vicinal.predictions.writer import check_output

    check_output(out)
    check_outputs({"--out": out}, [run, data], overwrite=common.overwrite, data_root=reading.data_root)
    if reading.batch_size is not None:
        integer("batch_size", reading.batch_size, low=1)
    if not 0 < number("level", answers.level) < 1:
        raise ArgumentError("level", answers.level, "a number in (0, 1)")
    how = {name: getattr(reading, name) for name in ("encoding", "header", "data_root", "batch_size")}
    how |= {"max_bad": share_or_number("max_bad", reading.max_bad), **written.options()}
    work = Work(str(run.absolute()), data, answers, reading.device, reading.max_pixels, how)
    console = Console(as_json=common.as_json)
    if shards.is_here:
        with console.stage("loading the model"):
            bundle, rule, sets = work.loaded()
        with console.stage("opening the data"):
            blocks = work.blocks(bundle)
        answered = AnswerCounter()
        with console.stage("predicting", blocks.n_rows) as advance:
            chunks = answered_chunks(bundle, blocks, reading.batch_size, rule, sets, answered, advance)
            n = write(out, bundle.classes, chunks, safe_csv=common.safe_csv, exclusive=not bundle.is_multilabel)
        notes: Sequence[str] = blocks.notes
    else:
        with console.stage("loading the model"):
            bundle, rule, sets = work.loaded()
        answered, notes = predict_on_ray(console, work, bundle, out, shards, safe_csv=common.safe_csv)
        n = answered.rows
    for note in notes:
        console.note(note)
    facts = {} if rule is None else answered.facts(n, rule)
    facts |= {} if sets is None else {"set_size": answered.in_sets / n}
    console.event("result", {"out": str(out), "rows": n, **facts})
    console.say(f"{out}: {n:,} row{'s' * (n != 1)}, {_outputs(bundle)}")
    if rule is not None:
        console.say(answered.sentence(n, rule))
    if sets is not None:
        if few := [name for name, end in zip(bundle.classes, sets.thresholds_, strict=True) if end == math.inf]:
            console.say(f"in every set, for lack of held-out samples: {', '.join(map(repr, few))}")
        console.say(
            f"prediction sets of {100 * sets.coverage:g} % coverage hold {answered.in_sets / n:.2f} classes on average"
        )


def _outputs(bundle: Bundle) -> str:
    """Return what the model answers with, in words."""
    if not bundle.is_multilabel:
        return f"{len(bundle.classes)} classes, {bundle.calibrators.text()}"
    if not bundle.calibrators.only_temperatures:
        return f"{len(bundle.classes)} labels, {', '.join(map(bundle.calibrators.text, bundle.classes))}"
    temperatures = ", ".join(f"{value:.3f}" for value in bundle.calibrators.temperatures.values())
    return f"{len(bundle.classes)} labels, temperatures {temperatures}"
