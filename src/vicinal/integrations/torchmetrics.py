"""torchmetrics: calibration errors as `Metric` classes over one exact reliability table.

They stream, reset, sync across processes and go into a `MetricCollection` like any other metric. Unlike torchmetrics'
own `CalibrationError`, they sum in float64, count a confidence of exactly 1.0 in the last bin, and are told what they
get: `logits=` or `probs=`, never guessed from the values.

A metric that was moved to a GPU counts there, and the host does not wait until `compute`. Confidences of logits are
float32 there, so that one within 1e-7 of an edge may be counted on its other side.

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

from vicinal import losses
from vicinal._arrays import at_least_float32, sum_tolerance
from vicinal._checks import choice, integer, require
from vicinal.metrics import METRICS, ReliabilityTable
from vicinal.metrics.registry import Sums
from vicinal.objectives.forward import has_float64

require("torchmetrics", "integrations")
from torchmetrics import Metric  # noqa: E402


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

    Examples
    --------
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
    fixed: Tensor

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
        # Sums and squares of what was counted on a device, as integers: they add up in any order, without float64.
        self.add_state("fixed", torch.zeros(2, self.n_bins, 2, dtype=torch.int64), dist_reduce_fx="sum")

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
        if not labels.is_cpu and labels.device == self.counts.device:
            self._count_on_device(labels, logits, probs)
            return
        if self.ignore_index is not None:
            kept = labels != self.ignore_index
            labels, logits, probs = labels[kept], *(None if t is None else t[kept] for t in (logits, probs))
            if not len(labels):
                return
        batch = ReliabilityTable(self.n_bins).update(labels, logits=logits, probs=probs)
        self.counts = self.counts + torch.from_numpy(batch.counts).to(self.counts.device)
        self.sums = self.sums + torch.from_numpy(batch.sums).to(self.sums.device)
        self.squares = self.squares + torch.from_numpy(batch.squares).to(self.squares.device)

    def _count_on_device(self, labels: Tensor, logits: Tensor | None, probs: Tensor | None) -> None:
        """Add predictions by operations that neither wait nor need float64."""
        if (logits is None) == (probs is None):
            raise ValueError(
                f"pass exactly one of logits= and probs=, got {'both' if probs is not None else 'neither'}"
            )
        scores = (logits if probs is None else probs).detach()  # type: ignore[union-attr]  # one of the two is given
        n_classes = scores.shape[1]
        kept = torch.ones_like(labels) if self.ignore_index is None else (labels != self.ignore_index).long()
        known = (labels >= 0) & (labels < n_classes)
        losses.check_later((known | (kept == 0)).all(), f"labels must be in [0, {n_classes - 1}]")
        if probs is None:
            z = scores.float()
            top, guess = z.max(1)
            losses.check_later(z.isfinite().all(), "logits must be finite, got NaN or inf")
            confidence = 1 / (z - top[:, None]).exp().sum(1)
        else:
            confidence, guess = scores.max(1)
            tolerance = sum_tolerance(scores.dtype)
            near = (scores.float().sum(1) - 1).abs() <= tolerance
            losses.check_later(
                (near & (scores >= 0).all(1)).all(), "probs must be in [0, 1] and sum to one in each row"
            )
        # Integers compare with an edge exactly: 2⁻⁴⁰ is finer than any float32 confidence of 2⁻¹⁷ or more.
        units = (at_least_float32(confidence) * 2.0**40).long()
        place = ((units * self.n_bins + (2**40 - 1)) >> 40).clamp(1, self.n_bins) - 1
        cell = 2 * place + (guess == labels)
        self.counts = self.counts.flatten().scatter_add(0, cell, kept).view_as(self.counts)
        # 36 bits of the confidence and of its square: 2⁶³ / 2³⁶ leaves room for a hundred million samples a cell, and
        # integers add up in any order to the same bits.
        added = torch.stack([units >> 4, (units >> 9).square() >> 26]) * kept
        both = self.fixed.flatten(1).scatter_add(1, cell.expand(2, -1), added)
        self.fixed = both.view_as(self.fixed)

    def compute(self) -> Any:
        """Return the table of everything seen, in all processes."""
        table = ReliabilityTable(self.n_bins)
        # The one wait for the device: everything before only queues work on it.
        sums, squares = self.fixed.cpu().numpy() / 2.0**36
        table.counts += self.counts.cpu().numpy()
        table.sums += self.sums.cpu().numpy() + sums
        table.squares += self.squares.cpu().numpy() + squares
        return table

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw the reliability diagram of the table, or of the one given; return figure and axes."""
        from vicinal.plots import reliability_diagram

        axes = reliability_diagram(self.compute() if val is None else val, ax=ax)
        return axes.figure, axes

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Any:
        """Move with the model but keep the types of the sums: `model.to(torch.bfloat16)` must not round them."""

        def move(t: Tensor) -> Tensor:
            device = fn(t.new_empty(0, dtype=torch.float32)).device
            stays = t.dtype == torch.float64 and not has_float64(device)  # nothing is added to it there
            return t if stays else t.to(device)

        return super()._apply(move, exclude_state)


def _rows(preds: Tensor, target: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Return what torchmetrics takes as scores `[N, K]` and class numbers `[N]`."""
    if preds.ndim == target.ndim == 1:
        return torch.stack([torch.zeros_like(preds) if kind == "logits" else 1 - preds, preds], dim=1), target
    return (preds.movedim(1, -1).flatten(0, -2), target.flatten()) if preds.ndim > 2 else (preds, target)


class _BinMetric(ReliabilityMetric):
    """A metric of the reliability table."""

    higher_is_better = False
    metric: ClassVar[str]

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw the value, or several, as torchmetrics does; return figure and axes."""
        return self._plot(val, ax)

    def compute(self) -> Tensor:
        """Return the metric of everything seen, in all processes."""
        value = METRICS[self.metric].value(Sums(super().compute()))
        exact = torch.float64 if has_float64(self.counts.device) else torch.float32
        return torch.tensor(value, dtype=exact, device=self.counts.device)


class ECE(_BinMetric):
    """Expected calibration error: the mean gap between confidence and accuracy over bins of confidence.

    Examples
    --------
    >>> metric = ECE(n_bins=10)
    >>> metric(torch.tensor([0, 0]), probs=torch.tensor([[1.0, 0.0], [0.2, 0.8]]))
    tensor(0.4000, dtype=torch.float64)
    """

    metric = "ece"


class OE(_BinMetric):
    """Overconfidence error (Thulasidasan et al. 2019): gaps of overconfident bins only, weighted by confidence.

    Examples
    --------
    >>> metric = OE(n_bins=10)
    >>> metric(torch.tensor([0, 0]), probs=torch.tensor([[1.0, 0.0], [0.2, 0.8]]))
    tensor(0.3200, dtype=torch.float64)
    """

    metric = "oe"
