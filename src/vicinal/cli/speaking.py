"""What a command says, and how: tables for people, lines of JSON for machines, errors that say what to do."""

from __future__ import annotations

import errno
import functools
import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ParamSpec, TextIO

import typer

from vicinal._checks import Argument, Sentence, message_of
from vicinal.cli.options import flags_of

__all__ = ["Speaker", "check_place", "check_report", "kindly", "percent"]

P = ParamSpec("P")

#: What a mistake of the user's, or of the machine's, raises; anything else is a fault of ours and shows a traceback.
_EXPECTED = (ValueError, TypeError, OSError, ImportError, RuntimeError, FloatingPointError, MemoryError)

#: The options of the command that runs, by their names in Python, in which the library speaks.
_FLAGS: ContextVar[dict[str, str] | None] = ContextVar("flags", default=None)
#: Characters of a line that is long enough for a table of figures with their intervals.
_WIDE = 120
#: Arguments of the library that an option of another name sets.
_OTHER_NAMES = {
    "n_bins": "--bins",
    "score": "--ood-score",
    "tokenizer": "--model",
    "methods": "--method",
}


def is_main() -> bool:
    """Whether this process speaks: the only one, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def kindly(command: Callable[P, None]) -> Callable[P, None]:
    """Let a command end with one sentence instead of a traceback; VICINAL_TRACEBACK=1 shows that too."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        flags = flags_of(command)
        _FLAGS.set(flags | {name: flag for name, flag in _OTHER_NAMES.items() if flag in flags.values()})
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show_warning
            try:
                command(*args, **kwargs)
            except KeyboardInterrupt as interruption:
                _say_error(str(interruption).removeprefix("stopped ") or "nothing more is done", label="Stopped")
                raise typer.Exit(130) from None
            except SystemExit as ended:
                if str(ended).startswith("stopped "):  # by SIGTERM, with how to go on
                    _say_error(str(ended).removeprefix("stopped "), label="Stopped")
                raise
            except (typer.Exit, BrokenPipeError):  # a RuntimeError too; and a reader such as `head` that has enough
                raise
            except _EXPECTED as error:
                if os.environ.get("VICINAL_TRACEBACK"):
                    raise
                _say_error(_explained(error))
                raise typer.Exit(1) from None
            finally:
                _leave_process_group()

    return run


class Speaker:
    """Where a command's words go.

    Parameters
    ----------
    as_json
        Print one JSON object a line, for machines, and nothing else.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._shown = is_main()

    def note(self, text: str) -> None:
        """Say something worth knowing."""
        text = in_options(text)
        if self.as_json:
            self.event("note", {"text": text})
        elif self._shown:
            _console().print(text, style="dim", markup=False, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Say a line that belongs to the answer; a machine has it in the result."""
        if self._shown and not self.as_json:
            _console().print(text, markup=False, highlight=False, soft_wrap=True)

    def event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Print a line of JSON, if that is asked for."""
        if self._shown and self.as_json:
            sys.stdout.write(json.dumps({"event": kind, **_json_ready(fields)}, ensure_ascii=False) + "\n")
            sys.stdout.flush()

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, figures: bool = True) -> None:
        """Show a table; the first column holds names, the others figures or words."""
        if not self._shown or self.as_json:
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        if title:  # rich would break a title where the table ends
            self.say(title)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for number, column in enumerate(columns):
            figure = figures and number > 0  # never broken in two: names make room
            table.add_column(Text(column), justify="right" if figure else "left", overflow="fold", no_wrap=figure)
        console = _console()
        narrow = figures and console.width < _WIDE
        for row in rows:
            # An interval goes below its figure where there is no room beside it.
            table.add_row(*(Text(cell.replace(" (", "\n(") if n and narrow else cell) for n, cell in enumerate(row)))
        console.print(table)

    def markdown(self, text: str) -> None:
        """Show a page: laid out on a terminal, as it is in a pipe."""
        if not self._shown or self.as_json:
            return
        if not sys.stdout.isatty():
            self.say(text)
            return
        from rich.markdown import Markdown

        _console().print(Markdown(text))

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Give a function to call with how many are done; shown on a terminal only."""
        if not self._shown or self.as_json or not sys.stderr.isatty():
            yield lambda n: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        text = TextColumn("{task.description}", markup=False)
        with Progress(
            text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True)
        ) as bar:
            task = bar.add_task(title, total=total)
            yield lambda n: bar.advance(task, n)


def percent(estimate: Any) -> str:
    """Return a share and its interval in per cent.

    >>> from vicinal.metrics import Estimate
    >>> percent(Estimate(0.9123, 0.9, 0.925))
    '91.2 % (90.0–92.5)'
    """
    return f"{100 * estimate.value:.1f} % ({100 * estimate.low:.1f}–{100 * estimate.high:.1f})"


def _console(file: TextIO | None = None) -> Any:
    from rich.console import Console

    # In a pipe rich would break lines at 80 characters, in the middle of what a program may look for.
    width = None if (file or sys.stdout).isatty() else 1000
    return Console(file=file or sys.stdout, width=width)


def check_place(option: str, path: Path | None) -> None:
    """Refuse a file that could not be written, before any work is done; its folder may have to be made."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{option} must be a file to write, and {str(path)!r} is a folder")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ValueError(f"{option} {shlex.quote(str(path))} cannot be written: {str(above)!r} is no folder")


def check_report(path: Path | None) -> None:
    """Refuse a report that could not be written, or that would replace something else than a page."""
    check_place("--report", path)
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--report must end in .html, got {str(path)!r}: it is a page for the browser")


def _explained(error: BaseException) -> str:
    """Return an error's message in the words of the command line."""
    if isinstance(error, MemoryError):
        return "out of memory: use a smaller --batch-size"
    if isinstance(error, OSError) and error.strerror is not None:
        named = f": {error.filename}" if error.filename is not None else ""
        hint = "; make room, then give the same command again" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        # Our own sentences say what to do already.
        return f"{error.strerror}{named}{hint if 'ake room' not in error.strerror else ''}"
    return in_options(message_of(error)) or type(error).__name__


def in_options(text: str) -> str:
    """Return a sentence of the library with options where it names arguments: `rare='train'` becomes `--rare train`."""
    return text.worded(_option) if isinstance(text, Sentence) else text


def _option(argument: Argument) -> str:
    """Return an argument as this command takes it; one that is no option of it stays as Python has it."""
    flag = (_FLAGS.get() or {}).get(argument.name)
    if flag is None:
        return str(argument)
    value = argument.value if argument.has_value else True
    if value is None or isinstance(value, bool):
        return f"--no-{flag[2:]}" if value is False else flag
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"{flag} {shlex.quote(str(one))}" for one in values)


def _say_error(text: str, *, label: str = "Error") -> None:
    from rich.text import Text

    rank = os.environ.get("RANK")
    where = "" if rank in (None, "0") else f" (process {rank})"
    _console(sys.stderr).print(Text.assemble((f"{label}{where}: ", "bold red"), text), soft_wrap=True)


def _show_warning(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
    """Show a warning of ours as a sentence; those about code are for its authors."""
    if is_main() and issubclass(category, UserWarning):
        from rich.text import Text

        said = in_options(message_of(message) if isinstance(message, Warning) else message)
        _console(sys.stderr).print(Text.assemble(("Warning: ", "bold yellow"), said), soft_wrap=True)


def _json_ready(value: Any) -> Any:
    """Return numbers that JSON has: what is not finite is None."""
    if isinstance(value, Mapping):
        return {str(key): _json_ready(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(entry) for entry in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _leave_process_group() -> None:
    """Say goodbye to the other processes of torchrun, if there are any."""
    if "torch.distributed" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
