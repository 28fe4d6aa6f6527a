"""The progress bar of a training, on a terminal only; elsewhere it is a stage."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from vicinal.metrics import METRICS
from vicinal.progress import on_terminal, stage


class Progress:
    """A line with the epoch, the loss, the latest validation metrics and the time left.

    Parameters
    ----------
    shown
        Whether to show it; it is shown only where standard error is a terminal and rich is installed.
    title
        What the line begins with.
    step, n_steps, n_epochs
        Where the run begins and ends.
    """

    def __init__(self, *, shown: bool, title: str, step: int, n_steps: int, n_epochs: float) -> None:
        self._n_epochs = n_epochs
        self._bar: Any = None
        self._fields: dict[str, str] = {"loss": "", "val": ""}
        self._step, self._stage = 0, stage(title, n_steps)
        # Nothing is drawn into a log file: a line that is overwritten would be a thousand lines there.
        if not (shown and on_terminal()):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
        from rich.table import Column
        from rich.text import Text

        class Metrics(TextColumn):
            """What gives way where the terminal is narrow, besides the bar: the time left stays."""

            def render(self, task: Task) -> Text:
                text = super().render(task)
                text.no_wrap, text.overflow = True, "ellipsis"
                return text

        whole = Column(no_wrap=True)
        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[epoch]}"),
            TimeElapsedColumn(whole),
            TextColumn("left"),
            TimeRemainingColumn(table_column=whole.copy()),
            Metrics("{task.fields[loss]} {task.fields[val]}", table_column=Column()),
        ]
        self._bar = Bar(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(title, total=n_steps, completed=step, epoch="", **self._fields)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        else:
            self._advance = self._stage.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        else:
            self._stage.__exit__(kind, value, trace)

    def evaluating(self, name: str) -> None:
        """Say that a set is being evaluated, for which training stands still."""
        if self._bar is not None:
            self._bar.update(self._task, epoch=f"evaluating: {name}")

    def update(self, step: int, epoch: float, metrics: Mapping[str, object] | None = None) -> None:
        """Move to `step`; where there are new metrics, show them from now on."""
        if self._bar is None:
            self._advance(step - self._step)
            self._step = step
            return
        if metrics is not None:
            self._fields["loss"] = f"loss {metrics['loss']:.4f}"
            shown = {name: metric.heading(15) for name, metric in METRICS.items() if metric.headline}
            known = [f"{head} {metrics[f'val_{n}']:.3f}" for n, head in shown.items() if f"val_{n}" in metrics]
            self._fields["val"] = "val " + ", ".join(known) if known else self._fields["val"]
        self._bar.update(self._task, completed=step, epoch=f"epoch {epoch:.1f}/{self._n_epochs:g}", **self._fields)
