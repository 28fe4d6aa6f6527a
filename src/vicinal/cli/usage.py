"""Mistakes in the words of a command, in sentences of our own: typer's depend on its version."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import typer

from vicinal._checks import ArgumentError, integer, nearest_names, number
from vicinal.cli.errors import say
from vicinal.training.config import Check, check_options, options

#: What typer raises for words that it cannot read. It exports the kinds of it alone.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

#: What stands for a value that has no name of its own.
_METAVARS = {int: "N", float: "X", Path: "FILE", str: "TEXT"}


def usage(command: Any, ctx: Any) -> str:
    """Return how a command is written, such as `vicinal predict RUN DATA [OPTIONS]`."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    words = [one.metavar if one.required or one.metavar[0] == "[" else f"[{one.metavar}]" for one in arguments]
    return " ".join([ctx.command_path, *words, "[OPTIONS]"])


def declared(command: Any, name: str) -> tuple[Any, Any]:
    """Return the type of one value of an option, `int` of `list[int] | None`, and what else its command says of it."""
    parameters = inspect.signature(command.callback, eval_str=True).parameters
    kind = parameters[name].annotation if name in parameters else str  # `--help` is typer's own
    info = next(iter(getattr(kind, "__metadata__", ())), None)
    while parts := [part for part in get_args(kind) if part is not type(None)]:  # Annotated, a union, a list
        kind = parts[0]
    return kind, info


def option_names(command: Any, one: Any) -> str:
    """Return an option's names, the short one first, and what stands for its value."""
    if one.param_type_name == "argument":
        return str(one.metavar)
    names = ", ".join(sorted([*one.opts, *one.secondary_opts], key=lambda name: name.startswith("--")))
    return names if one.is_flag else f"{names} {one.metavar or _METAVARS[declared(command, one.name)[0]]}"


@contextlib.contextmanager
def explained(command: Any, ctx: Any, args: Sequence[str]) -> Iterator[None]:
    """Say what is wrong with the words that follow a command, and end with code 2."""
    words = list(args)  # typer takes them out of the list that it reads
    try:
        yield
    except UsageError as error:
        say(f"{_sentence(command, ctx, words, error)}\nSee {ctx.command_path} --help.")
        raise typer.Exit(2) from None


def _sentence(command: Any, ctx: Any, args: list[str], error: Any) -> str:
    options = {name: one for one in command.params for name in (*one.opts, *one.secondary_opts)}
    if hasattr(error, "possibilities"):
        known = [name for name in options if name.startswith("-")]
        return f"there is no option {error.option_name}{nearest_names(error.option_name, known, n=1)}"
    if hasattr(error, "option_name"):
        one = options[error.option_name]
        return f"{error.option_name} takes no value" if one.is_flag else f"give a value: {option_names(command, one)}"
    given, rest, _ = command.make_parser(ctx).parse_args(args=args)
    if (param := getattr(error, "param", None)) is None:
        extra = " ".join(map(repr, rest))
        return f"{extra} is too much: {usage(command, ctx)}" if extra else str(error)
    name, value = _written(param), given.get(param.name)
    texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    for text in texts:
        if (wrong := _refused(param.name, name, text, *declared(command, param.name))) is not None:
            return str(wrong)
    return f"{name} is missing: {usage(command, ctx)}"


def _written(param: Any) -> str:
    return str(param.metavar if param.param_type_name == "argument" else param.opts[0])


def _refused(argument: str, name: str, text: str, kind: Any, info: Any) -> ArgumentError | None:
    """Return what is wrong with the text of a value, if it is."""
    if kind is Path:
        return ArgumentError(name, text, "a file or folder that you may read")
    if kind not in (int, float):
        return None
    ends = {end: value for end, value in (("low", info.min), ("high", info.max)) if value is not None}
    check: Check = partial(integer if kind is int else number, **ends)
    try:
        check(name, kind(text))
    except ArgumentError as error:
        return error
    except ValueError:
        return ArgumentError(name, text, _allowed(argument, text, check))
    return None


def _allowed(argument: str, text: str, check: Check) -> str:
    """Return what may stand in place of a text, as the option's own check says it, else as its type does."""
    own = {one.name: (text,) if one.repeated else text for one in options()}
    try:
        check_options({argument: own[argument]} if argument in own else {})
        check(argument, text)
    except ArgumentError as error:
        return error.allowed
    raise AssertionError(f"{argument} takes any text")
