"""The features of all rows as one matrix, in memory or, where it would fill memory, in a temporary file."""

from __future__ import annotations

import os
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._memory import MEMORY, Scratch

#: Bytes of features that are kept in memory: a quarter of the machine's.
_IN_MEMORY = MEMORY // 4


class FeatureMatrix:
    """A matrix of zeros, float32 `[n, width]`, to put rows into; in a file where it would fill memory.

    The file is temporary (`TMPDIR` says where). It is written, then mapped into memory, so that unused pages stay on
    the disk. It has no name, and is gone with the process. Several processes may share a file, `scratch`, of that size.
    """

    def __init__(self, n: int, width: int, scratch: Scratch | None = None) -> None:
        self._shape = n, width
        self._scratch = scratch
        # What one process writes into its features must not reach the others.
        self._mode = "r+" if scratch is None else "c"
        n_bytes = 4 * n * width
        if scratch is None and n_bytes <= _IN_MEMORY:
            self._memory = np.zeros(self._shape, np.float32)
        elif scratch is None:
            self._scratch = Scratch()
            allocate(self._scratch.file, n_bytes)

    def buffer_for(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return zeros to write the features of rows into, before `put`: the matrix itself where they are adjacent."""
        n, width = self._shape
        if self._scratch is None and rows[-1] - rows[0] == len(rows) - 1 and rows[-1] <= n:
            return self._memory[rows[0] - 1 : rows[-1]]
        return np.zeros((len(rows), width), np.float32)

    def put(self, rows: NDArray[np.int64], block: NDArray[np.float32]) -> None:
        """Put the features of rows in their places; rows are numbered from 1 and rising."""
        if self._scratch is None and np.may_share_memory(block, self._memory):
            return  # that is where they were written
        # Runs of adjacent rows are written at once; a bad row between them ends a run.
        ends = np.flatnonzero(np.diff(rows) > 1) + 1  # where bad rows lie between
        for start, some in zip(rows[np.r_[0, ends]] - 1, np.split(block, ends), strict=True):
            if self._scratch is None:
                self._memory[start : start + len(some)] = some
            else:
                self._scratch.file.seek(4 * int(start) * self._shape[1])
                self._scratch.file.write(some.data)

    def tensor(self) -> Tensor:
        """Return the matrix, once all rows are there."""
        if self._scratch is not None:
            self._scratch.file.flush()
            self._memory = np.memmap(self._scratch.file, np.float32, self._mode, shape=self._shape)  # type: ignore[call-overload]  # one of two modes
        return torch.from_numpy(self._memory)


def allocate(file: IO[bytes], n_bytes: int) -> None:
    """Give a file this size: a full disk is an error now, not after minutes."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, n_bytes)
    file.truncate(n_bytes)
