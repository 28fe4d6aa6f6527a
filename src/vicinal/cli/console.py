"""What a command prints: tables for people, lines of JSON for machines."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from vicinal import progress
from vicinal.cli.errors import as_options

#: Characters between two columns.
_GAP = 3
#: A table or a piece of code in Markdown.
_BLOCK = re.compile(r"(^```[^\n]*\n.*?^```$|(?:^\|[^\n]*\|$\n?)+)", re.MULTILINE | re.DOTALL)
#: Characters of a number with its interval, at most.
_LONGEST_NUMBER = 38
#: Words of a name, at most.
_FEW_WORDS = 4
#: A name of a method that is longer is broken at its brackets too.
_LONG_NAME = 30
#: The names of the columns of a table, and its rows.
_Cells = tuple[Sequence[str], Sequence[Sequence[str]]]


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

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> None:
        """Show a table; the first column holds names, the others numbers or words."""
        if not self._shown or self.as_json:
            return
        if title:  # rich would break a title where the table ends
            self.say(title)
        console = _rich()
        if not numbers:
            console.print(_table(columns, rows, numbers=False))
            return
        # The first of these that fits: names and numbers are never cut off.
        for layout in (_beside, _below, _turned, _without_intervals):
            laid_out = layout(columns, rows)
            if _width(laid_out) <= console.width:
                console.print(_table(*laid_out, numbers=True))
                return
        for part in _divided(*_turned(columns, rows), console.width):
            console.print(_table(*part, numbers=True))

    def markdown(self, text: str) -> None:
        """Show a page: laid out on a terminal, as it is in a pipe."""
        if not self._shown or self.as_json:
            return
        if not _on_terminal():
            self.say(text)
            return
        from rich.markdown import Markdown

        for part in _BLOCK.split(text):
            if part.startswith("|"):
                self._markdown_table(part)
            elif part.strip():
                _rich().print(Markdown(part))

    def _markdown_table(self, text: str) -> None:
        """Show a table of Markdown, which rich would cut off."""
        head, _, *rows = [[_plain(cell) for cell in line.strip("| ").split(" | ")] for line in text.splitlines()]
        rows = [[*row, *[""] * (len(head) - len(row))] for row in rows]
        cells = [cell for row in rows for cell in row[1:]]
        # Claims, whose names are sentences, are a table of words.
        sentences = any(len(row[0].partition("(")[0].split()) > _FEW_WORDS for row in rows)
        numbers = len(head) > 2 and not sentences and max(map(len, cells), default=0) <= _LONGEST_NUMBER
        self.table("", head, rows, numbers=numbers)
        _rich().print()

    def stages(self) -> AbstractContextManager[None]:
        """Let the stages of the work within show themselves: drawn on a terminal, else a line every few seconds."""
        if self._shown and (self.as_json or not progress.on_terminal()):
            return progress.reported(self._report)
        return progress.shown(self._shown)

    def _report(self, running: progress.Running) -> None:
        if self.as_json:
            self.event("progress", running.to_dict())
        else:
            sys.stderr.write(f"{running}\n")
            sys.stderr.flush()

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Show what is being done; give a function to call with how many more are done."""
        with self.stages(), progress.stage(title, total) as advance:
            yield advance


def percent(estimate: Any) -> str:
    """Return a share and its interval in per cent.

    >>> from vicinal.metrics import Estimate
    >>> percent(Estimate(0.9123, 0.9, 0.925))
    '91.2 % (90.0–92.5)'
    """
    return f"{100 * estimate.value:.1f} % ({100 * estimate.low:.1f}–{100 * estimate.high:.1f})"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    widths = _widths(columns, rows) if numbers else [None] * len(columns)
    for number, (column, width) in enumerate(zip(columns, widths, strict=True)):
        numeric = numbers and number > 0  # never broken: names make room
        table.add_column(
            Text(column), justify="right" if numeric else "left", overflow="fold", min_width=width, no_wrap=numeric
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the least width of each column: of the first its longest word, of the others their longest line."""
    cells = list(zip(columns, *rows, strict=True))
    lines = [" ".join(cells[0]).split(), *("\n".join(column).split("\n") for column in cells[1:])]
    return [max(map(len, of), default=0) for of in lines]


def _beside(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> _Cells:
    """Each interval beside its value."""
    return columns, rows


def _below(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> _Cells:
    """Each interval below its value."""
    return _broken(columns), [[row[0], *_broken(row[1:])] for row in rows]


def _broken(cells: Sequence[str]) -> list[str]:
    return [re.sub(r" (?=[(\[])", "\n", cell) for cell in cells]


def _turned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> _Cells:
    """Rows as columns: there are fewer of them."""
    names, *cells = zip(*rows, strict=True)
    head = [columns[0], *map(_name, names)]
    return head, [[column, *_broken(row)] for column, row in zip(columns[1:], cells, strict=True)]


def _without_intervals(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> _Cells:
    """Rows as columns, and values alone."""
    return _turned(columns, [[row[0], *(_broken([cell])[0].partition("\n")[0] for cell in row[1:])] for row in rows])


def _width(cells: _Cells) -> int:
    """Return the characters of the widest line of a table."""
    return sum(_widths(*cells)) + _GAP * (len(cells[0]) - 1)


def _divided(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[_Cells]:
    """Yield a table as several that fit: each has the first column, and as many of the others as there is room for."""
    start = 1
    while start < len(columns):
        for end in range(len(columns), start, -1):
            part = [[line[0], *line[start:end]] for line in (columns, *rows)]
            if _width((part[0], part[1:])) <= width or end == start + 1:
                break
        yield part[0], part[1:]
        start = end


def _name(text: str) -> str:
    """Return the name of a column in lines."""
    lines = text.replace(" ", "\n")
    return lines.replace("(", "(\n") if max(map(len, lines.split("\n"))) > _LONG_NAME else lines


def _plain(cell: str) -> str:
    """Return a cell of Markdown without its marks."""
    return re.sub(r"[`*]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell)).replace("\\|", "|").strip()


def _on_terminal() -> bool:
    return sys.stdout.isatty()


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
