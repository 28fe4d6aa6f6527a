"""Progress on a terminal.

Reading, encoding and evaluating announce themselves as stages. They are shown only inside `shown`, so a library call
prints nothing by itself.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_SHOWN: ContextVar[bool] = ContextVar("shown", default=False)
#: The lines on the screen; a stage within a stage is shown below it.
_LINES: ContextVar[Progress | None] = ContextVar("lines", default=None)


def on_terminal() -> bool:
    """Return whether standard error is a terminal and rich is installed."""
    return sys.stderr is not None and sys.stderr.isatty() and importlib.util.find_spec("rich") is not None


@contextmanager
def shown(on: bool = True) -> Iterator[None]:
    """Show the stages within, if standard error is a terminal."""
    token = _SHOWN.set(on and on_terminal())
    try:
        yield
    finally:
        _SHOWN.reset(token)


@contextmanager
def stage(title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a stage and its time; give a function to call with the number of items done since.

    Parameters
    ----------
    title
        What is being done: "reading".
    total
        The number of items, if known: then there is a bar and the time left.

    >>> with stage("counting", 3) as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if not _SHOWN.get():
        yield lambda n: None
        return
    lines = _LINES.get()
    token = None
    if lines is None:
        lines = _new_lines()
        lines.start()
        token = _LINES.set(lines)
    task = lines.add_task(title, total=total)
    try:
        yield lambda n: lines.advance(task, n)
    finally:
        lines.remove_task(task)
        if token is not None:
            lines.stop()
            _LINES.reset(token)


def _new_lines() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Amount(ProgressColumn):
        """How many are done and how long the rest takes, where it is known how many there are."""

        left = TimeRemainingColumn()

        def render(self, task: Task) -> Text:
            if task.total is None:
                return Text(f"{task.completed:,.0f}" if task.completed else "")
            return Text(f"{task.completed:,.0f} of {task.total:,.0f}, left ") + self.left.render(task)

    title = TextColumn("{task.description}", markup=False)
    columns = SpinnerColumn(), title, BarColumn(bar_width=20), Amount(), TimeElapsedColumn()
    return Progress(*columns, console=Console(stderr=True), transient=True)
