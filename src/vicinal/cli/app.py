"""The list of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from vicinal import __version__
from vicinal.cli.audit import audit
from vicinal.cli.calibrate import calibrate
from vicinal.cli.compare import compare
from vicinal.cli.doctor import doctor
from vicinal.cli.evaluate import evaluate
from vicinal.cli.export import export
from vicinal.cli.help import SharedCommand, SharedGroup
from vicinal.cli.methods import methods
from vicinal.cli.predict import predict
from vicinal.cli.reproduce import reproduce
from vicinal.cli.train import train

app = typer.Typer(
    name="vicinal",
    help="Train classifiers whose probabilities can be trusted, and prove it.",
    cls=SharedGroup,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"vicinal {__version__}")
        raise typer.Exit


_GREETING = """\
Vicinal trains classifiers whose probabilities can be trusted, and proves it. Three commands to try:

  vicinal train digits --report report.html    train and calibrate; then open report.html
  vicinal train FILE.csv --target COLUMN       the same on your own table, texts, images or sounds
  vicinal evaluate predictions.csv             how far to trust probabilities that you have

vicinal --help lists every command, vicinal methods the methods, and vicinal doctor what this machine has.
"""


@app.callback()
def _vicinal(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(_GREETING, nl=False)


for command in (train, predict, evaluate, calibrate, compare, audit, export, methods, reproduce, doctor):
    app.command(cls=SharedCommand)(command)
