"""Processes that read a table together: each reads a piece of it, and all know the whole.

Under `torchrun` every process needs the same classes, split and encoding. Each counts its own rows; the counts are
joined in the order of the rows, so that they are those of one process. Encoded rows go to one file a node, which all
processes of the node map into memory. A row's place in the training order does not depend on who has read it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import accumulate
from typing import IO, Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from vicinal._memory import Scratch
from vicinal.data.feature_matrix import FeatureMatrix, allocate
from vicinal.tables import Table
from vicinal.tables.base import DerivedTable
from vicinal.tables.pieces import piece
from vicinal.tables.shards import Shards

T = TypeVar("T")
Kind = TypeVar("Kind", bound=np.generic)

#: A process may have to wait this long for others that read, or for storage.
_PATIENCE = timedelta(days=7)
#: Seconds between looks at whether the others are there.
_LOOK = 0.005
#: Bytes that one node sends to the others at a time.
_SENT = 2**24


class Readers:
    """The processes that read a table together. Without arguments it is this process alone.

    Parameters
    ----------
    rank, world
        Which process this is, of how many.
    group
        Their group in `torch.distributed`, of the backend gloo.

    Examples
    --------
    >>> Readers().together(lambda: "read")
    ['read']
    """

    def __init__(self, rank: int = 0, world: int = 1, group: Any = None) -> None:
        self.rank, self.world, self._group = rank, world, group

    @classmethod
    def joined(cls) -> Readers:
        """Return all processes of the job, which all must call this; a process that was started alone is alone."""
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return cls()
        # Tables are read on the CPU, whatever device the processes train on.
        return cls(dist.get_rank(), dist.get_world_size(), dist.new_group(backend="gloo", timeout=_PATIENCE))

    @property
    def are_several(self) -> bool:
        """Whether there is another process."""
        return self.world > 1

    def piece(self, table: Table) -> Table:
        """Return the rows of a table that this process reads, counted from 1."""
        return piece(table, self.rank, self.world)

    def together(self, work: Callable[[], T]) -> list[T]:
        """Return what each process makes of its rows, in their order. An error of one is raised in all."""
        if not self.are_several:
            return [work()]
        mine: tuple[T | None, Exception | None]
        try:
            mine = work(), None
        except Exception as error:
            mine = None, error
        answers: list[Any] = [None] * self.world
        self._meet()
        dist.all_gather_object(answers, mine, group=self._group)
        for _, failed in answers:
            if failed is not None:
                raise failed
        return [answer for answer, _ in answers]

    def join(self, mine: NDArray[Kind], sizes: Sequence[int]) -> NDArray[Kind]:
        """Return the arrays of all processes as one; they have these lengths, and one type."""
        if not self.are_several:
            return mine
        whole = np.empty((sum(sizes), *mine.shape[1:]), mine.dtype)
        self._meet()
        for rank, (stop, size) in enumerate(zip(accumulate(sizes), sizes, strict=True)):
            if size:
                part = whole[stop - size : stop]
                if rank == self.rank:
                    part[:] = mine
                dist.broadcast(torch.from_numpy(part.view(np.uint8)), src=rank, group=self._group)
        return whole

    def fingerprint(self, table: Table) -> str:
        """Return the fingerprint of a table, of whose files each process hashes some."""
        if not self.are_several:
            return table.fingerprint()
        while isinstance(table, DerivedTable):
            table = table.table
        parts = table.parts if isinstance(table, Shards) and table.digest is None else (table,)
        mine = range(self.rank, len(parts), self.world)
        found = self.together(lambda: [parts[k].fingerprint() for k in mine])
        texts = [found[k % self.world][k // self.world] for k in range(len(parts))]
        return table.fingerprint_of(texts) if isinstance(table, Shards) and table.digest is None else texts[0]

    @contextmanager
    def features(self, sizes: Sequence[int], width: int) -> Iterator[FeatureMatrix]:
        """Give a matrix for the features of all rows. Each process puts its own into it; afterwards it has all.

        Parameters
        ----------
        sizes
            How many rows each process has.
        width
            How many features a row has.
        """
        if not self.are_several:
            yield FeatureMatrix(sum(sizes), width)
            return
        leaders, scratch = self._file_of_node(4 * sum(sizes) * width)
        yield FeatureMatrix(sum(sizes), width, scratch)
        self.together(scratch.file.flush)
        if len(set(leaders)) > 1:
            self._spread([4 * size * width for size in sizes], leaders, scratch.file)

    def _meet(self) -> None:
        """Wait until all processes are here. Signals are heard meanwhile, unlike within a collective of gloo."""
        here = dist.barrier(group=self._group, async_op=True)
        while not here.is_completed():
            time.sleep(_LOOK)
        try:
            here.wait()
        except RuntimeError:
            raise RuntimeError("another process ended while the data were read: its own message says why") from None

    def _file_of_node(self, size: int) -> tuple[list[int], Scratch]:
        """Return the first process of each process's node, and a file that the processes of this node share."""
        handle, name = tempfile.mkstemp(prefix="vicinal-")
        os.close(handle)
        try:
            node = os.environ.get("GROUP_RANK", "")  # torchrun's number of the node
            offered = self.together(lambda: (node, name))
            # A file that can be opened here is on this node, or on storage that all see.
            leader = next(r for r, (at, path) in enumerate(offered) if at == node and os.path.exists(path))
            leaders = self.together(lambda: leader)

            def make() -> None:
                if leader == self.rank:
                    with open(name, "r+b") as file:
                        allocate(file, size)

            self.together(make)
            scratch = Scratch(offered[leader][1])
            self.together(lambda: None)  # all have opened their file, which needs a name no more
            return leaders, scratch
        finally:
            os.unlink(name)

    def _spread(self, sizes: Sequence[int], leaders: Sequence[int], file: IO[bytes]) -> None:
        """Send what the processes of each node wrote to the files of the others; each has so many bytes."""
        nodes = sorted(set(leaders))
        group: Any = dist.new_group(nodes, backend="gloo", timeout=_PATIENCE)
        if self.rank in nodes:
            for leader, stop, size in zip(leaders, accumulate(sizes), sizes, strict=True):
                for start in range(stop - size, stop, _SENT):
                    block = np.zeros(min(_SENT, stop - start), np.uint8)
                    file.seek(start)
                    if leader == self.rank:
                        file.readinto(block)  # type: ignore[attr-defined]  # a file has it
                    dist.broadcast(torch.from_numpy(block), src=leader, group=group)
                    if leader != self.rank:
                        file.write(block.data)
            file.flush()
        self.together(lambda: None)
