"""torchmetrics: calibration errors as `Metric` classes over one exact reliability table.

They stream, reset, sync across processes and go into a `MetricCollection` like any other metric. Unlike torchmetrics'
own `CalibrationError`, they sum in float64, count a confidence of exactly 1.0 in the last bin, and are told what they
get: `logits=` or `probs=`, never guessed from the values.

>>> import torch
>>> metric = ECE(n_bins=15)
>>> metric.update(torch.tensor([1, 1]), probs=torch.tensor([[0.0, 1.0], [0.95, 0.05]]))
>>> metric.compute()
tensor(0.4750, dtype=torch.float64)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from vicinal._checks import choice, integer, require
from vicinal.metrics import FIGURES, ReliabilityTable
from vicinal.metrics.figures import Sums

require("torchmetrics", "integrations")
from torchmetrics import Metric  # noqa: E402

__all__ = ["ECE", "OE", "ReliabilityMetric"]


class ReliabilityMetric(Metric):
    """The reliability table; `compute` returns a `vicinal.ReliabilityTable`, for its errors and its diagram.

    Parameters
    ----------
    n_bins
        The number of equal-width bins.
    preds
        What the first argument of `update(preds, target)` holds, `"probs"` or `"logits"`, beside the metrics of
        torchmetrics in a `MetricCollection`.
    ignore_index
        A label whose samples do not count.
    **kwargs
        What every `Metric` takes.

    >>> metric = ReliabilityMetric(n_bins=10)
    >>> metric.update(torch.tensor([0, 1]), logits=torch.tensor([[2.0, 0.0], [3.0, 0.0]]))
    >>> metric.compute()
    ReliabilityTable(n=2, n_bins=10, ece=0.5359)
    """

    is_differentiable = False
    full_state_update = False

    counts: Tensor
    sums: Tensor
    squares: Tensor

    def __init__(
        self, n_bins: int = 15, *, preds: str = "probs", ignore_index: int | None = None, **kwargs: object
    ) -> None:
        super().__init__(**kwargs)
        self.preds = choice("preds", preds, ("probs", "logits"))
        self.ignore_index = ignore_index
        self.n_bins = integer("n_bins", n_bins, low=1)
        empty = ReliabilityTable(self.n_bins)
        self.add_state("counts", torch.from_numpy(empty.counts), dist_reduce_fx="sum")
        self.add_state("sums", torch.from_numpy(empty.sums), dist_reduce_fx="sum")
        self.add_state("squares", torch.from_numpy(empty.squares), dist_reduce_fx="sum")

    def update(
        self, labels: Tensor, target: Tensor | None = None, *, logits: Tensor | None = None, probs: Tensor | None = None
    ) -> None:
        """Add class numbers `[N]` with logits or probabilities `[N, K]`; or, as torchmetrics, `(preds, target)`.

        `preds` may then be `[N, K, …]` with a target `[N, …]`, such as pixels, or of two classes the score `[N]` of the
        second.
        """
        if target is not None:
            if logits is not None or probs is not None:
                raise ValueError("give (preds, target), or labels with logits= or probs=, not both")
            scores, labels = _rows(labels, target, self.preds)
            logits, probs = (scores, None) if self.preds == "logits" else (None, scores)
        if self.ignore_index is not None:
            kept = labels != self.ignore_index
            labels, logits, probs = labels[kept], *(None if t is None else t[kept] for t in (logits, probs))
            if not len(labels):
                return
        batch = ReliabilityTable(self.n_bins).update(labels, logits=logits, probs=probs)
        self.counts = self.counts + torch.from_numpy(batch.counts).to(self.counts.device)
        self.sums = self.sums + torch.from_numpy(batch.sums).to(self.sums.device)
        self.squares = self.squares + torch.from_numpy(batch.squares).to(self.squares.device)

    def compute(self) -> Any:
        """Return the table of everything seen, in all processes."""
        table = ReliabilityTable(self.n_bins)
        table.counts += self.counts.cpu().numpy()
        table.sums += self.sums.cpu().numpy()
        table.squares += self.squares.cpu().numpy()
        return table

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw the reliability diagram of the table, or of the one given; return figure and axes."""
        from vicinal.plots import reliability_diagram

        axes = reliability_diagram(self.compute() if val is None else val, ax=ax)
        return axes.figure, axes

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Any:
        """Move with the model but keep the types of the sums: `model.to(torch.bfloat16)` must not round them."""

        def move(t: Tensor) -> Tensor:
            return t.to(fn(t).device)

        return super()._apply(move, exclude_state)


def _rows(preds: Tensor, target: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Return what torchmetrics takes as scores `[N, K]` and class numbers `[N]`."""
    if preds.ndim == target.ndim == 1:
        return torch.stack([torch.zeros_like(preds) if kind == "logits" else 1 - preds, preds], dim=1), target
    return (preds.movedim(1, -1).flatten(0, -2), target.flatten()) if preds.ndim > 2 else (preds, target)


class _BinFigure(ReliabilityMetric):
    """A figure of the reliability table."""

    higher_is_better = False
    figure: ClassVar[str]

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw the value, or several, as torchmetrics does; return figure and axes."""
        return self._plot(val, ax)

    def compute(self) -> Tensor:
        """Return the figure of everything seen, in all processes."""
        value = FIGURES[self.figure].value(Sums(super().compute()))
        return torch.tensor(value, dtype=torch.float64, device=self.counts.device)


class ECE(_BinFigure):
    """Expected calibration error: the mean gap between confidence and accuracy over bins of confidence.

    >>> metric = ECE(n_bins=10)
    >>> metric(torch.tensor([0, 0]), probs=torch.tensor([[1.0, 0.0], [0.2, 0.8]]))
    tensor(0.4000, dtype=torch.float64)
    """

    figure = "ece"


class OE(_BinFigure):
    """Overconfidence error (Thulasidasan et al. 2019): gaps of overconfident bins only, weighted by confidence.

    >>> metric = OE(n_bins=10)
    >>> metric(torch.tensor([0, 0]), probs=torch.tensor([[1.0, 0.0], [0.2, 0.8]]))
    tensor(0.3200, dtype=torch.float64)
    """

    figure = "oe"
