"""`vicinal export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli.console import Console
from vicinal.cli.errors import handle_errors
from vicinal.cli.inputs import check_run
from vicinal.cli.options import Common, takes_records
from vicinal.cli.outputs import check_outputs


@handle_errors
@takes_records
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The ONNX file to write.")],
    max_pixels: Annotated[int, typer.Option(help="The most pixels of an image of the model.")] = 178_956_970,
    *,
    common: Common,
) -> None:
    """Write a trained model as ONNX, with its calibrator inside, checked with onnxruntime."""
    check_run(run)

    import vicinal

    console = Console(as_json=common.as_json)
    check_outputs({"--out": out}, [run], overwrite=common.overwrite)
    difference = vicinal.load(run, max_pixels=max_pixels).to_onnx(out)
    console.event("result", {"out": str(out), "largest_difference": difference})
    console.say(f"{out}: its probabilities differ by {difference:.1g} at most from the model's, run by onnxruntime")
