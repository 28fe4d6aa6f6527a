"""Progress on a terminal, or as an event every few seconds.

Reading, encoding and evaluating announce themselves as stages. They are shown only inside `shown` or `reported`, so a
library call prints nothing by itself.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_SHOWN: ContextVar[bool] = ContextVar("shown", default=False)
#: The lines on the screen; a stage within a stage is shown below it.
_LINES: ContextVar[Progress | None] = ContextVar("lines", default=None)
#: Seconds between two events of `reported`.
EVERY = 5.0


@dataclass
class Running:
    """A stage that is under way."""

    title: str
    total: int | None = None
    """The number of items, if known."""
    done: int = 0
    began: float = field(default_factory=time.monotonic)

    def advance(self, n: int) -> None:
        """Count items that are done."""
        self.done += n

    def to_dict(self) -> dict[str, object]:
        """Return how far it is, as JSON can hold it."""
        seconds = round(time.monotonic() - self.began, 1)
        return {"stage": self.title, "done": self.done, "total": self.total, "seconds": seconds}

    def __str__(self) -> str:
        amount = f": {self.done:,}" if self.done else ""
        of = f" of {self.total:,}" if self.done and self.total is not None else ""
        return f"{self.title}{amount}{of}, {time.monotonic() - self.began:.0f} s"


#: The stages under way inside `reported`, the innermost last.
_RUNNING: ContextVar[list[Running] | None] = ContextVar("running", default=None)


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
def reported(tell: Callable[[Running], None]) -> Iterator[None]:
    """Call `tell` with the innermost stage within every few seconds, from another thread: some calls take minutes."""
    if _RUNNING.get() is not None:
        yield
        return
    running: list[Running] = []
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(EVERY):
            with suppress(IndexError, OSError, ValueError):  # a stage that has just ended; a reader that is gone
                tell(running[-1])

    token = _RUNNING.set(running)
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _RUNNING.reset(token)


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
    if (running := _RUNNING.get()) is not None:
        running.append(now := Running(title, total))
        try:
            yield now.advance
        finally:
            running.remove(now)
        return
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
