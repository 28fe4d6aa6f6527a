r"""Training dynamics: what a model did with each training sample while it learned.

The area under the margin of a sample is its margin, averaged over the epochs of a training run:

.. math::
    \mathrm{AUM}(x, y) = \frac1T \sum_{t=1}^{T} M^{(t)}(x, y), \qquad
    M^{(t)}(x, y) = z^{(t)}_y - \max_{k \ne y} z^{(t)}_k

A low AUM marks a sample that is hard, ambiguous or mislabelled.

References
----------
Pleiss, Zhang, Elenberg & Weinberger, "Identifying Mislabeled Data using the Area Under the Margin Ranking",
NeurIPS 2020.
Park & Caragea, "On the Calibration of Pre-trained Language Models using Mixup Guided by Area Under the Margin
and Saliency", ACL 2022 (`GuidedMixup`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import final

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from vicinal import losses
from vicinal._checks import flag, integer, number
from vicinal._typing import Batch, Model, Step
from vicinal.mixing import fetched
from vicinal.objectives.base import Objective, mean_loss
from vicinal.objectives.erm import ERM
from vicinal.objectives.forward import call, untraced
from vicinal.objectives.guided.neighbours import directions
from vicinal.objectives.guided.saliency import (
    SaliencyTable,
    all_reduce_newest,
    any_outside,
    index_array,
    integer_array,
    keep_newest,
)

#: Up to this many classes a batch of more rows is compared on its side.
_FEW_CLASSES = 32


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return the margin :math:`z_y - \max_{k \ne y} z_k` of each row, `[B]`.

    Parameters
    ----------
    logits
        `[B, K]` with K ≥ 2.
    labels
        Integers `[B]`.

    >>> margins(torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]]), torch.tensor([0, 1]))
    tensor([ 1., -2.])
    """
    return torch.from_numpy(_margins(logits, labels))


def _margins(logits: Tensor, labels: Tensor) -> NDArray[np.floating]:
    """Return the margins as an array: at the size of a batch the time goes into calls, and NumPy's are half as dear."""
    if not logits.is_floating_point() or logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(f"logits must be floats [B, K] with K of at least 2, got {logits.dtype} {list(logits.shape)}")
    z, columns = _float_array(logits), integer_array(labels)
    n_rows, n_classes = z.shape
    if columns is None or columns.shape != (n_rows,):
        raise ValueError(f"labels must be integers [{n_rows}], got {labels.dtype} {list(labels.shape)}")
    if any_outside(columns, n_classes):
        bad = columns.min() if columns.min() < 0 else columns.max()
        raise ValueError(f"labels must be in [0, {n_classes - 1}] for {n_classes} logits, got {bad}")
    # A copy; of few classes and many rows on its side, so that the maximum runs along the rows.
    if n_classes <= _FEW_CLASSES < n_rows:
        others, places, shape, axis = z.flatten("F"), columns * n_rows, (n_classes, n_rows), 0
        places += _steps(n_rows, 1)
    else:
        others, places, shape, axis = z.flatten(), columns + _steps(n_rows, n_classes), (n_rows, n_classes), 1
    of_label = others[places]
    others[places] = -math.inf
    margin: NDArray[np.floating] = of_label - np.maximum.reduce(others.reshape(shape), axis)
    return margin


@lru_cache(maxsize=8)
def _steps(n: int, step: int) -> NDArray[np.int64]:
    """Return 0, step, 2·step, …, n numbers, which batches of one size share."""
    return np.arange(0, n * step, step)


def _float_array(t: Tensor) -> NDArray[np.floating]:
    """Return floats as an array, at least float32, without their graph and without a copy where possible."""
    if t.requires_grad:
        t = t.detach()
    if not (t.dtype == torch.float32 and t.is_cpu):
        t = t.to("cpu", torch.float64 if t.dtype == torch.float64 else torch.float32)
    array: NDArray[np.floating] = t.numpy()
    return array


class AUM:
    """The area under the margin of every training sample, from the logits of a training run.

    Feed it the logits that training computes anyway, in train mode, as Pleiss et al. do.

    Parameters
    ----------
    n_samples
        N, the size of the training set; `index` counts its samples from 0 to N − 1.
    saliency
        Also keep each sample's latest gradient direction at the logits, `[N, K]`, from which
        `GuidedMixup(pool="set")` starts.

    Notes
    -----
    A sample counts once per epoch, however often it is met (distributed samplers pad with duplicates): its
    latest margin of the epoch stays. Margins are kept per epoch, 4 bytes per sample and epoch, which makes
    every merge exact and repeatable.

    Examples
    --------
    >>> aum = AUM(n_samples=4)
    >>> for epoch in range(2):
    ...     logits, y, index = torch.eye(3)[[0, 1, 2]], torch.tensor([0, 1, 0]), torch.tensor([2, 0, 1])
    ...     aum.update(logits * (epoch + 1), y, index, epoch=epoch)
    >>> aum.values([0, 1, 2])
    tensor([ 1.5000, -1.5000,  1.5000], dtype=torch.float64)
    >>> aum.values()
    Traceback (most recent call last):
    ...
    ValueError: 1 of 4 samples was never seen and has no AUM: index 3; `seen` is the mask of those that have one
    """

    def __init__(self, n_samples: int, *, saliency: bool = False) -> None:
        self.n_samples = integer("n_samples", n_samples, low=1)
        self.saliency = flag("saliency", saliency)
        self.table: SaliencyTable | None = None
        """The gradient directions, once a batch has been seen with `saliency=True`."""
        self._margins: dict[int, NDArray[np.float32]] = {}  # epoch -> [N], NaN where a sample was not met

    @untraced
    def update(self, logits: Tensor, labels: Tensor, index: Tensor, *, epoch: float) -> None:
        """Record one batch.

        Parameters
        ----------
        logits
            `[B, K]`.
        labels
            Integers `[B]`.
        index
            Each sample's position in the training set, integers `[B]`.
        epoch
            When this is, from 0 on; fractions are of the epoch they are in.
        """
        now = math.floor(number("epoch", epoch, low=0))
        # Where the table is. Of a batch on a device all arrives in one copy, since the host waits for each.
        logits, labels, index = fetched([logits.detach(), losses.host_copy(labels), index])
        margin = _margins(logits, labels)
        if margin.dtype != np.float32:
            margin = margin.astype(np.float32)
        where = index_array(index, len(margin), self.n_samples, needed_by="AUM")
        # The product is the faster sum; where it overflows the other one, in float64, decides.
        if not math.isfinite(margin.dot(margin)) and not math.isfinite(margin.sum(dtype=np.float64)):
            raise ValueError("logits must be finite: the margins of this batch are not")
        # NumPy, since its assignment keeps the last of several equal indices; torch's order is undefined.
        self._row(now)[where] = margin
        if self.saliency:
            if self.table is None:
                self.table = SaliencyTable(self.n_samples, logits.shape[1])
            self.table.write(torch.from_numpy(where), directions(logits, labels.long()), labels, now)

    @property
    def counts(self) -> Tensor:
        """In how many epochs each sample was seen, int64 `[N]`."""
        return (~self._stacked().isnan()).sum(0)

    @property
    def seen(self) -> Tensor:
        """Which samples have an AUM, bool `[N]`."""
        return self.counts > 0

    def values(self, index: Tensor | list[int] | None = None) -> Tensor:
        """Return the AUM of the samples in `index`, or of all, in float64; an unseen one is a `ValueError`."""
        every = torch.arange(self.n_samples, device="cpu")
        chosen = every if index is None else every[torch.as_tensor(index)]
        recorded = self._stacked()[:, chosen].double()
        missing = chosen[recorded.isnan().all(0)]
        if len(missing):
            shown = ", ".join(str(int(i)) for i in missing[:10]) + (", …" if len(missing) > 10 else "")
            raise ValueError(
                f"{len(missing)} of {len(chosen)} samples {'was' if len(missing) == 1 else 'were'} never seen and "
                f"{'has' if len(missing) == 1 else 'have'} no AUM: index {shown}; `seen` is the mask of those that "
                "have one"
            )
        return recorded.nanmean(0)

    def __add__(self, other: AUM) -> AUM:
        """Return the merged tracker; where both met a sample in one epoch, the left one counts."""
        if not isinstance(other, AUM):
            return NotImplemented
        if (other.n_samples, other.saliency) != (self.n_samples, self.saliency):
            raise ValueError(f"only trackers of the same samples can be merged, got {self!r} and {other!r}")
        result = AUM(self.n_samples, saliency=self.saliency)
        result.load_state_dict(self.state_dict())
        for epoch, theirs in other._margins.items():
            row, margin = torch.from_numpy(result._row(epoch)), torch.from_numpy(theirs)
            keep_newest((~row.isnan()).long(), [row], (~margin.isnan()).long(), [margin])
        if other.table is not None:
            result.table = result.table or SaliencyTable(*other.table.directions.shape)
            result.table.merge(other.table)
        return result

    def all_reduce(self, group: dist.ProcessGroup | None = None) -> None:
        """Merge the trackers of all ranks in place, so that each has every sample.

        Call it on every rank, at the end of each epoch or of training; calling it again changes nothing. A
        sample that several ranks met in one epoch counts once, as the lowest of them saw it. Without
        torch.distributed nothing happens.
        """
        if not (dist.is_available() and dist.is_initialized()):
            return
        shapes: list[tuple[list[int], int]] = [([], 0)] * dist.get_world_size(group)
        dist.all_gather_object(shapes, (list(self._margins), self._n_classes()), group)
        for epoch in sorted({e for epochs, _ in shapes for e in epochs}):
            row = torch.from_numpy(self._row(epoch))
            all_reduce_newest((~row.isnan()).long(), [row], group)
        n_classes = max(k for _, k in shapes)
        if n_classes:
            self.table = self.table or SaliencyTable(self.n_samples, n_classes)
            self.table.all_reduce(group)

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything as tensors, to be saved with the checkpoint."""
        state = {
            "epochs": torch.tensor(sorted(self._margins), dtype=torch.int64, device="cpu"),
            "margins": self._stacked(),
        }
        if self.table is not None:
            state |= {f"table.{name}": t for name, t in self.table.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        rows = state["margins"]
        if rows.ndim != 2 or rows.shape[1] != self.n_samples or len(rows) != len(state["epochs"]):
            raise ValueError(f"the saved AUM is not one of {self.n_samples} samples: margins are {list(rows.shape)}")
        given = rows.float().cpu().numpy()
        self._margins = {int(e): row.copy() for e, row in zip(state["epochs"], given, strict=True)}
        self.table = None
        if "table.directions" in state:
            self.table = SaliencyTable(*state["table.directions"].shape)
            self.table.load_state_dict({n.removeprefix("table."): t for n, t in state.items() if n[:6] == "table."})

    def __repr__(self) -> str:
        return f"AUM(n_samples={self.n_samples}, saliency={self.saliency})"

    def _row(self, epoch: int) -> NDArray[np.float32]:
        if epoch not in self._margins:
            self._margins[epoch] = np.full(self.n_samples, math.nan, np.float32)
        return self._margins[epoch]

    def _stacked(self) -> Tensor:
        """Return the margins of all epochs in their order, so that sums do not depend on who was merged first."""
        rows = [torch.from_numpy(self._margins[epoch]) for epoch in sorted(self._margins)]
        return torch.stack(rows) if rows else torch.empty(0, self.n_samples, device="cpu")

    def _n_classes(self) -> int:
        return 0 if self.table is None else self.table.directions.shape[1]


@final
@dataclass(frozen=True, eq=False, repr=False)
class AUMRecorder(Objective):
    """Plain training that records each sample's margin in `aum`: the first run of `GuidedMixup`.

    Examples
    --------
    >>> recorder = AUMRecorder(AUM(n_samples=4))
    >>> model, x, y = torch.nn.Linear(2, 3), torch.randn(4, 2), torch.tensor([0, 1, 2, 0])
    >>> loss = recorder(model, x, y, index=torch.arange(4), epoch=0.0)
    >>> bool(recorder.aum.seen.all())
    True
    """

    aum: AUM
    """The tracker; it is what this objective keeps as training state."""
    objective: Objective = field(default_factory=ERM)
    """What is minimised. Margins are of clean samples, so it has to be an `ERM`."""

    def __post_init__(self) -> None:
        _plain(self.objective)

    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        """Return the objective's loss and note the margins, from one forward."""
        if step.index is None or step.epoch is None:
            raise ValueError("recording the AUM needs index= and epoch=")
        logits = call(model, x)
        self.aum.update(logits, y, step.index, epoch=step.epoch)
        return {"loss": mean_loss(_plain(self.objective).loss(logits, y), logits, y, step)}

    def state_dict(self) -> dict[str, Tensor]:
        """Return the AUM."""
        return self.aum.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the AUM."""
        self.aum.load_state_dict(state)

    def all_reduce(self, group: dist.ProcessGroup | None = None) -> None:
        """Merge the AUM of all ranks."""
        self.aum.all_reduce(group)

    def __repr__(self) -> str:
        return repr(self.objective)


def _plain(objective: Objective) -> ERM:
    if not isinstance(objective, ERM):
        raise ValueError(f"aum records clean samples, so the objective must be ERM(), got {objective!r}")
    return objective
