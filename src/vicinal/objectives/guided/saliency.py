"""Tables with one row per training sample, written batch by batch and merged: of two rows the newer is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor


class SaliencyTable:
    """The direction of each sample's gradient at the logits, its label, and when it was last seen.

    It is made on the CPU, and goes where it is searched.

    Parameters
    ----------
    n_samples
        N, the size of the training set.
    n_classes
        K.
    """

    def __init__(self, n_samples: int, n_classes: int) -> None:
        self.directions = torch.zeros(n_samples, n_classes, device="cpu")
        self.labels = torch.zeros(n_samples, dtype=torch.int64, device="cpu")
        self.stamp = torch.full((n_samples,), -1, dtype=torch.int64, device="cpu")

    def write(self, index: Tensor, directions: Tensor, labels: Tensor, stamp: int) -> None:
        """Replace the rows of one batch; `stamp` grows with time."""
        self.directions[index] = directions.to(self.directions)
        self.labels[index] = labels.to(self.labels)
        self.stamp[index] = stamp

    def to(self, device: torch.device) -> SaliencyTable:
        """Move the table, in place, and return it."""
        if self.stamp.device != device:
            moved = (t.to(device) for t in (self.directions, self.labels, self.stamp))
            self.directions, self.labels, self.stamp = moved
        return self

    def copy(self) -> SaliencyTable:
        """Return a table of its own memory."""
        result = SaliencyTable(*self.directions.shape)
        result.load_state_dict(self.state_dict())
        return result

    def merge(self, other: SaliencyTable) -> None:
        """Take the rows that are newer in `other`."""
        keep_newest(self.stamp, self._values(), other.stamp, other._values())

    def all_reduce(self, group: dist.ProcessGroup | None = None) -> None:
        """Give every rank the newest row of each sample."""
        self.to(torch.device("cpu"))
        all_reduce_newest(self.stamp, self._values(), group)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the table as tensors of their own memory."""
        named = {"directions": self.directions, "labels": self.labels, "stamp": self.stamp}
        return {name: t.to("cpu", copy=True) for name, t in named.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        for name, stored in (("directions", self.directions), ("labels", self.labels), ("stamp", self.stamp)):
            if state[name].shape != stored.shape:
                raise ValueError(f"{name} must have shape {list(stored.shape)}, got {list(state[name].shape)}")
            stored.copy_(state[name])

    def _values(self) -> list[Tensor]:
        return [self.directions, self.labels]


def keep_newest(stamp: Tensor, values: Sequence[Tensor], other_stamp: Tensor, others: Sequence[Tensor]) -> None:
    """Take, in place, the entries with the greater stamp; of equal ones the own stay.

    >>> stamp, value = torch.tensor([0, 3]), torch.tensor([10.0, 13.0])
    >>> keep_newest(stamp, [value], torch.tensor([1, 3]), [torch.tensor([21.0, 23.0])])
    >>> value
    tensor([21., 13.])
    """
    newer = other_stamp > stamp
    for value, other in zip(values, others, strict=True):
        value[newer] = other[newer]
    stamp[newer] = other_stamp[newer]


def all_reduce_newest(stamp: Tensor, values: Sequence[Tensor], group: dist.ProcessGroup | None = None) -> None:
    """Give every rank, in place, the entries with the greatest stamp; of equal ones those of the lowest rank.

    Nothing happens where torch.distributed is not initialised. Memory is that of the table, however many
    ranks there are.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    newest = stamp.clone()
    _reduce(newest, dist.ReduceOp.MAX, group)
    owner = torch.where(stamp == newest, rank, world)
    _reduce(owner, dist.ReduceOp.MIN, group)
    for value in values:
        mine = (owner == rank).view(*owner.shape, *[1] * (value.ndim - owner.ndim))
        share = torch.where(mine, value, torch.zeros_like(value))  # exactly one rank adds something else than 0
        _reduce(share, dist.ReduceOp.SUM, group)
        value.copy_(share)
    stamp.copy_(newest)


def check_index(index: Tensor | None, n_rows: int, n_samples: int, *, needed_by: str) -> Tensor:
    """Return the samples' positions on the CPU, int64 `[B]`."""
    return torch.from_numpy(index_array(index, n_rows, n_samples, needed_by=needed_by))


def index_array(index: Tensor | None, n_rows: int, n_samples: int, *, needed_by: str) -> NDArray[np.int64]:
    """Return the samples' positions as an array, int64 `[B]`."""
    if index is None:
        raise ValueError(f"{needed_by} tracks samples: pass index=, each sample's position in the training set [B]")
    if not isinstance(index, Tensor):
        raise TypeError(f"index must be a tensor of integers [{n_rows}], got {type(index).__name__}")
    array = integer_array(index)
    if array is None or array.shape != (n_rows,):
        raise ValueError(f"index must be integers [{n_rows}], got {index.dtype} {list(index.shape)}")
    if any_outside(array, n_samples):
        bad = array[(array < 0) | (array >= n_samples)][0]
        raise ValueError(f"index must be in [0, {n_samples - 1}] for {n_samples} samples, got {int(bad)}")
    return array


def integer_array(t: Tensor) -> NDArray[np.int64] | None:
    """Return integers as an array of int64, and None for floats and booleans."""
    if t.dtype == torch.int64 and t.is_cpu:
        same: NDArray[np.int64] = t.numpy()
        return same
    if t.is_floating_point() or t.dtype == torch.bool:
        return None
    moved: NDArray[np.int64] = t.to("cpu", torch.int64).numpy()
    return moved


def any_outside(numbers: NDArray[np.int64], n: int) -> bool:
    """Return whether any number is not in [0, n)."""
    if not len(numbers):
        return False
    unsigned = numbers.view(np.uint64)  # in which -1 is too large as well
    return bool(unsigned[unsigned.argmax()] >= n)  # `max` is a reduction, whose start costs three times as much


def _reduce(t: Tensor, op: dist.ReduceOp.RedOpType, group: dist.ProcessGroup | None) -> None:
    """All-reduce a CPU tensor in place, through the GPU where the backend knows nothing else."""
    if dist.get_backend(group) == "nccl":
        there = t.cuda()
        dist.all_reduce(there, op, group)
        t.copy_(there)
    else:
        dist.all_reduce(t, op, group)
