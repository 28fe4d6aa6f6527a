"""The list of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from vicinal import __version__
from vicinal.cli.audit import audit
from vicinal.cli.calibrate import calibrate
from vicinal.cli.compare import compare
from vicinal.cli.evaluate import evaluate
from vicinal.cli.export import export
from vicinal.cli.methods import methods
from vicinal.cli.predict import predict
from vicinal.cli.reproduce import reproduce
from vicinal.cli.train import train

__all__ = ["app"]

app = typer.Typer(
    name="vicinal",
    help="Train classifiers whose probabilities can be trusted, and prove it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"vicinal {__version__}")
        raise typer.Exit


@app.callback()
def _vicinal(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    pass


for command in (train, predict, evaluate, calibrate, compare, audit, export, methods, reproduce):
    app.command()(command)
