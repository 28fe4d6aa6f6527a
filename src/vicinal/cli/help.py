"""What `--help` shows: the options that people use, with examples. `--help-all` shows all of them, by group."""

from __future__ import annotations

import shlex
import shutil
import textwrap
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from vicinal._checks import nearest_names
from vicinal.cli.errors import say
from vicinal.cli.usage import explained, option_names, usage

#: The options that `--help` shows, in this order. Commands that are not listed show all.
COMMON = {
    "train": ("target", "method", "model", "out", "report", "epochs", "batch_size", "lr", "val", "test", "group",
              "time", "slice", "seed"),
    "compare": ("method", "model", "run", "predictions", "target", "seeds", "out", "report", "epochs", "batch_size",
                "lr", "group", "workers", "backend"),
    "predict": ("out", "sets", "within_class", "max_risk", "keep", "batch_size", "max_bad"),
    "evaluate": ("report", "label", "kind", "classes", "group", "slice", "sets", "ood", "attack", "bins"),
    "calibrate": ("out", "calibrator", "label", "kind", "classes", "group", "save"),
    "reproduce": ("scale", "seeds", "more_seeds", "until", "hours", "dry_run", "workers", "out", "results"),
}  # fmt: skip
#: What people type first, and what it does.
EXAMPLES = {
    "train": (
        ("vicinal train churn.csv --target churned --report report.html", "a table; then open report.html"),
        ("vicinal train photos/ --epochs 50 --out runs/photos", "a folder with one folder of images a class"),
    ),
    "predict": (
        ("vicinal predict runs/churn new.csv --out predictions.csv", "probabilities for new rows"),
        ("vicinal predict runs/churn new.csv --sets 0.9 --out sets.csv", "sets that hold the class 9 times in 10"),
    ),
    "evaluate": (
        ("vicinal evaluate predictions.csv --report report.html", "columns label, prob_no, prob_yes"),
        ("vicinal evaluate runs/churn new.csv", "a trained run on new labelled rows"),
    ),
    "calibrate": (
        ("vicinal calibrate validation.csv test.csv --out calibrated.csv", "fit on the first file, repair the second"),
        (
            "vicinal calibrate val.csv test.csv --calibrator auto --out calibrated.csv",
            "choose the calibrator by cross-validated NLL",
        ),
    ),
    "compare": (
        ('vicinal compare churn.csv --method "ERM()" --method "Mixup(alpha=0.2)"', "two methods, five seeds each"),
        ("vicinal compare churn.csv --model mlp,hgb --report comparison.html", "two models on one split"),
    ),
    "audit": (("vicinal audit runs/churn --out suspects.csv", "rows of the run's data whose label may be wrong"),),
    "export": (("vicinal export runs/churn --out churn.onnx", "the network and its calibration as one ONNX file"),),
    "methods": (("vicinal methods LogitMix", "idea, equation, options, cost and source of a method"),),
    "reproduce": (
        ("vicinal reproduce z18-tab2", "a table of a paper, at a size for two cores"),
        ("vicinal reproduce", "the list of tables and figures"),
    ),
    "doctor": (("vicinal doctor", "versions, devices, and what is not installed"),),
}
#: Characters before the text of an option.
_INDENT = 30
_COMMAND_INDENT = 16
_WIDEST = 100


#: The words of the command that runs, as they were typed.
_TYPED: list[str] = []


def command_line() -> str:
    """Return the command as it was typed, which a report shows: the same words give it again."""
    return shlex.join(_TYPED)


class SharedCommand(TyperCommand):
    """A command with a short and a full help, in which `--pretrained` may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the full help if `--help-all` asks for it. Give `--pretrained` its default where no value follows."""
        if "--help-all" in args:
            typer.echo(help_text(self, ctx, full=True), nl=False)
            raise typer.Exit
        _TYPED[:] = [*str(ctx.command_path).split(), *args]
        complete: list[str] = []
        for i, word in enumerate(args, 1):
            complete.append(word)
            if word == "--pretrained" and (i == len(args) or args[i].startswith("--")):
                complete.append("default")
        with explained(self, ctx, complete):
            return super().parse_args(ctx, complete)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help that `--help` shows."""
        formatter.write(help_text(self, ctx, full=False))


class SharedGroup(TyperGroup):
    """The command itself: what follows is the name of another, or an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the name of a command."""
        with explained(self, ctx, args):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command of the name that was typed."""
        if args[0] not in self.commands:
            hint = nearest_names(args[0], self.commands)
            say(f"there is no command {args[0]!r}{hint}\nSee {ctx.command_path} --help.")
            raise typer.Exit(2)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        width = _width()
        lines = [f"Usage: {ctx.command_path} COMMAND [OPTIONS]", "", *_paragraphs(self.help or "", width), "Commands:"]
        for name, command in self.commands.items():
            lines += _entry(name, (command.help or "").partition("\n\n")[0], width, _COMMAND_INDENT)
        lines += ["", "Options:"]
        for one in self.get_params(ctx):
            lines += _entry(option_names(self, one), getattr(one, "help", ""), width, _COMMAND_INDENT)
        formatter.write(
            "\n".join([*lines, "", f"{ctx.command_path} COMMAND --help shows the options of a command.", ""])
        )


def _width() -> int:
    return min(shutil.get_terminal_size().columns, _WIDEST)


def help_text(command: Any, ctx: Any, *, full: bool) -> str:
    """Return the help of a command: usage, examples and options, in lines that fit the terminal."""
    width = _width()
    params = command.get_params(ctx)
    arguments = [one for one in params if one.param_type_name == "argument"]
    options = [one for one in params if one.param_type_name == "option"]
    lines = [f"Usage: {usage(command, ctx)}", "", *_paragraphs(command.help or "", width), "Examples:"]
    for typed, what in EXAMPLES.get(command.name, ()):
        lines += [f"  {typed}", f"      {what}"]
    lines += ["", *_group("Arguments", command, arguments, width)] if arguments else [""]
    if full or command.name not in COMMON:
        panels: dict[str, list[Any]] = {}
        for one in options:
            panels.setdefault(getattr(one, "rich_help_panel", None) or "Options", []).append(one)
        for title, members in panels.items():
            lines += _group(title, command, members, width)
    else:
        by_name = {one.name: one for one in options}
        shown = [by_name[name] for name in (*COMMON[command.name], "as_json", "help") if name in by_name]
        lines += _group("Options", command, shown, width)
        lines += [f"{len(options) - len(shown)} more options: {ctx.command_path} --help-all", ""]
    return "\n".join(lines[:-1]) + "\n"


def _paragraphs(text: str, width: int) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        yield from textwrap.wrap(" ".join(paragraph.split()), width)
        yield ""


def _group(title: str, command: Any, params: list[Any], width: int) -> Iterator[str]:
    yield f"{title}:"
    for one in params:
        yield from _entry(option_names(command, one), f"{one.help or ''}{_default(one)}", width, _INDENT)
    yield ""


def _entry(names: str, said: str, width: int, indent: int) -> Iterator[str]:
    text = textwrap.wrap(said.replace("`", ""), width - indent, break_long_words=False, break_on_hyphens=False)
    if len(names) > indent - 4:  # never cut off: the text begins on the next line
        yield f"  {names}"
        names = ""
    for i, line in enumerate(text):
        yield f"  {names if i == 0 else '':{indent - 2}}{line}"


def _default(one: Any) -> str:
    default = one.default
    stated = isinstance(default, int | float | str) and not isinstance(default, bool) and one.show_default is not False
    return f"  [default: {default}]" if stated else ""
