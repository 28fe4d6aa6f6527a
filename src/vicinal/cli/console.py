"""What a command prints: tables for people, lines of JSON for machines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from vicinal import progress
from vicinal.cli.errors import as_options

__all__ = ["Console", "percent"]

#: Characters of a line that is long enough for a table of figures with their intervals.
_WIDE = 120


class Console:
    """Where a command's answer goes: with `as_json` one JSON object a line, for machines, and nothing else."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        #: Of the processes that torchrun started, the first prints.
        self._shown = os.environ.get("RANK", "0") == "0"

    def note(self, text: str) -> None:
        """Say something worth knowing."""
        text = as_options(text)
        if self.as_json:
            self.event("note", {"text": text})
        elif self._shown:
            _rich().print(text, style="dim", markup=False, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Say a line that belongs to the answer; a machine has it in the result."""
        if self._shown and not self.as_json:
            text = text.replace("\u00a0", " ")  # a program may look for the sentence
            _rich().print(text, markup=False, highlight=False, soft_wrap=True)

    def event(self, kind: str, fields: Mapping[str, object]) -> None:
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
        console = _rich()
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

        _rich().print(Markdown(text))

    def stages(self) -> AbstractContextManager[None]:
        """Let the stages of the work within show themselves, on a terminal only."""
        return progress.shown(self._shown and not self.as_json)

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Show what is being done, on a terminal only; give a function to call with how many more are done."""
        with self.stages(), progress.stage(title, total) as advance:
            yield advance


def percent(estimate: Any) -> str:
    """Return a share and its interval in per cent.

    >>> from vicinal.metrics import Estimate
    >>> percent(Estimate(0.9123, 0.9, 0.925))
    '91.2 % (90.0–92.5)'
    """
    return f"{100 * estimate.value:.1f} % ({100 * estimate.low:.1f}–{100 * estimate.high:.1f})"


def _rich() -> Any:
    from rich.console import Console as RichConsole

    # In a pipe rich would break lines at 80 characters, in the middle of what a program may look for.
    return RichConsole(width=None if sys.stdout.isatty() else 1000)


def _json_ready(value: object) -> Any:
    """Return numbers that JSON has: what is not finite is None."""
    if isinstance(value, Mapping):
        return {str(key): _json_ready(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(entry) for entry in value]
    if isinstance(value, str):
        return as_options(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
