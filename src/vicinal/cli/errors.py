"""How a command ends: with one sentence and an exit code, in which arguments of the library are options."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shlex
import sys
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import ParamSpec

import typer

from vicinal._checks import Argument, Sentence, message_of
from vicinal._memory import max_memory
from vicinal.cli.options import flags_of

P = ParamSpec("P")

#: What a mistake of the user's, or of the machine's, raises; anything else is a fault of ours and shows a traceback.
_EXPECTED = (ValueError, TypeError, OSError, ImportError, RuntimeError, FloatingPointError, MemoryError)

#: The options of the command that runs, by the names of the arguments that they set.
_FLAGS: ContextVar[dict[str, str]] = ContextVar("flags")
#: Arguments of the library that an option of another name sets.
_OTHER_NAMES = {
    "n_bins": "--bins",
    "score": "--ood-score",
    "coverage": "--sets",
    "tokenizer": "--model",
    "methods": "--method",
    "columns": "--map",
    "class_names": "--map-class",
    "development": "--eval-development",
}


def handle_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Let a command end with one sentence instead of a traceback; VICINAL_TRACEBACK=1 shows that too."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        flags = flags_of(command)
        _FLAGS.set({**{name: flag for name, flag in _OTHER_NAMES.items() if flag in flags.values()}, **flags})
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show_warning
            try:
                # The limit holds for the whole command, so it is applied here and not passed on.
                size = kwargs.pop("max_memory", None)
                with contextlib.nullcontext() if size is None else max_memory(str(size)):
                    command(*args, **{name: _at_home(value) for name, value in kwargs.items()})  # type: ignore[arg-type]
            except KeyboardInterrupt as interruption:
                say(str(interruption).removeprefix("stopped ") or "nothing more is done", label="Stopped")
                raise typer.Exit(130) from None
            except SystemExit as ended:
                if str(ended).startswith("stopped "):  # by SIGTERM, with how to resume
                    say(str(ended).removeprefix("stopped "), label="Stopped")
                raise
            except (typer.Exit, BrokenPipeError):  # a RuntimeError too; and a reader such as `head` that has enough
                raise
            except _EXPECTED as error:
                if os.environ.get("VICINAL_TRACEBACK"):
                    raise
                say(_explained(error))
                raise typer.Exit(1) from None
            finally:
                _leave_process_group()

    return run


def _at_home(value: object) -> object:
    """Return a path with the home for its `~`, which a shell leaves where it stands in quotes or in `--out=~/x`."""
    return value.expanduser() if isinstance(value, Path) and value.parts[:1] == ("~",) else value


def as_options(text: str) -> str:
    """Return a sentence of the library with options where it names arguments: `rare='train'` becomes `--rare train`."""
    return text.worded(_option) if isinstance(text, Sentence) else text


def _option(argument: Argument) -> str:
    """Return an argument as this command takes it; one that is no option of it stays as Python has it."""
    flag = _FLAGS.get({}).get(argument.name)
    if flag is None:
        return str(argument)
    value = argument.value if argument.has_value else True
    if value is None or isinstance(value, bool):
        return f"--no-{flag[2:]}" if value is False else flag
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"{flag} {shlex.quote(str(one))}" for one in values)


def _explained(error: BaseException) -> str:
    """Return an error's message in the words of the command line."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # torch's is no MemoryError
        smaller = (
            "use a smaller --batch-size" if "batch_size" in _FLAGS.get({}) else "use less data, or end what else runs"
        )
        return f"out of memory: {smaller}"
    if isinstance(error, UnicodeEncodeError):
        around = error.object[max(error.start - 40, 0) : error.end + 40].splitlines()
        name = next(line for line in around if any("\ud800" <= c <= "\udfff" for c in line) or len(around) == 1)
        return f"{name!r} is not UTF-8, and cannot be written: rename the file or folder"
    if isinstance(error, OSError) and error.strerror is not None:
        where = f": {error.filename}" if error.filename is not None else ""
        hint = "; make room, then give the same command again" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        # Our own sentences say what to do already.
        return f"{error.strerror}{where}{hint if 'ake room' not in error.strerror else ''}"
    return as_options(message_of(error)) or type(error).__name__


def say(text: str, *, label: str = "Error", style: str = "bold red") -> None:
    """Print a sentence on standard error, after a word that says what it is."""
    from rich.console import Console
    from rich.text import Text

    rank = os.environ.get("RANK")
    where = "" if rank in (None, "0") else f" (process {rank})"
    # In a pipe rich would break lines at 80 characters, in the middle of what a program may look for.
    # Standard error: `--json` leaves a machine nothing but JSON on standard output.
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 1000)
    console.print(Text.assemble((f"{label}{where}: ", style), text), soft_wrap=True)


def _show_warning(message: Warning | str, category: type[Warning], *args: object, **kwargs: object) -> None:
    """Show a warning of ours as a sentence; those about code are for its authors."""
    if os.environ.get("RANK", "0") == "0" and issubclass(category, UserWarning):
        text = message_of(message) if isinstance(message, Warning) else message
        say(as_options(text), label="Warning", style="bold yellow")


def _leave_process_group() -> None:
    """Part from the other processes of torchrun, if there are any."""
    if "torch.distributed" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
