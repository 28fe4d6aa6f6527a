"""`vicinal export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli.speaking import Speaker, kindly

__all__ = ["export"]


@kindly
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The ONNX file to write.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")] = False,
) -> None:
    """Write a trained model as ONNX, with the temperature inside, checked with onnxruntime."""
    import vicinal

    speaker = Speaker(as_json=as_json)
    difference = vicinal.load(run).to_onnx(out)
    speaker.event("result", {"out": str(out), "largest_difference": difference})
    speaker.say(f"{out}: its probabilities differ by {difference:.1g} at most from the model's, run by onnxruntime")
