"""Parse the numbers of a text table once and keep them in a temporary file.

NumberCache is most of the cost of reading a CSV file, and training reads one three times.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import require
from vicinal._memory import Scratch
from vicinal.tables.base import ROWS, BadRow, Chunk, Table

if TYPE_CHECKING:
    import pyarrow as pa

#: Tables of fewer bytes are parsed again instead: that takes no time.
_SMALL = 2**24
#: Tables of so many columns are kept, however small: each column takes time of its own.
_WIDE = 2_000
#: Free bytes on the disk needed per byte of the files: a number takes 8 bytes parsed, and perhaps 2 as text.
_ROOM = 4


class _Piece(NamedTuple):
    """A chunk in the file: where, of which types, and what else it was."""

    start: int
    size: int
    schema: pa.Schema
    chunk: Chunk


class NumberCache:
    """Takes the chunks of a table as they are parsed, in order; `table` is then the parsed table, if it is one.

    The file is temporary (`TMPDIR` says where), has no name, and is gone with the object. It is read, not mapped, so
    that it takes no memory. Small tables and tables with few numbers are not kept, nor any on a disk that is full.

    Parameters
    ----------
    table
        What is read.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._scratch: Scratch | None = None
        self._pieces: list[_Piece] = []
        self._numeric: set[str] = set()
        size = sum(file.stat().st_size for file in table.files) if table.is_text else 0
        with contextlib.suppress(OSError):  # no folder for temporary files
            large = size >= _SMALL or (size > 0 and len(table.columns) >= _WIDE)
            if large and shutil.disk_usage(tempfile.gettempdir()).free >= _ROOM * size:
                self._scratch = Scratch()

    def add(self, chunk: Chunk, numbers: Mapping[str, NDArray[np.float64] | None]) -> None:
        """Keep a chunk: the numbers of columns that hold nothing else, and the cells of the others."""
        if self._scratch is None:
            return
        pa = require("pyarrow", "train")
        known = {name: values for name, values in numbers.items() if values is not None}
        if not self._pieces and 2 * len(known) < len(numbers):
            self._scratch = None  # mostly text, which would only be copied
            return
        self._numeric.update(known)
        columns = [pa.array(known[name]) if name in known else chunk[name] for name in numbers]
        batch = pa.record_batch([pa.array(chunk.rows), *columns], names=["", *numbers])
        content = batch.serialize()
        try:
            start = self._scratch.file.tell()
            self._scratch.file.write(content)
            self._scratch.file.flush()
        except OSError:  # a full disk: the table is parsed again, as it would have been
            self._scratch = None
            return
        self._pieces.append(
            _Piece(start, content.size, batch.schema, replace(chunk, columns={}, rows=_NONE, parts=None))
        )

    def table(self, names: Sequence[str], kinds: Mapping[str, str], bad: Sequence[BadRow]) -> Table:
        """Return the parsed table, or the table itself where some column was kept as what it is not.

        Parameters
        ----------
        names, kinds
            The columns that will be read, and what each holds: a class may be written as a number, "01".
        bad
            The rows that could not be read.
        """
        if self._scratch is None or any(name in self._numeric and kinds[name] != "number" for name in names):
            return self._table
        return CachedTable(
            self._table.path, self._table.columns, scratch=self._scratch, pieces=tuple(self._pieces), bad=tuple(bad)
        )


_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class CachedTable(Table):
    """The same rows again, by `NumberCache`."""

    scratch: Scratch = field(kw_only=True, repr=False)
    pieces: tuple[_Piece, ...] = field(kw_only=True, repr=False)
    bad: tuple[BadRow, ...] = field(kw_only=True, repr=False)

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        pa = require("pyarrow", "train")
        for start, size, schema, chunk in self.pieces:
            self.scratch.file.seek(start)
            batch = pa.ipc.read_record_batch(pa.py_buffer(self.scratch.file.read(size)), schema)
            place = {name: k for k, name in enumerate(schema.names) if k}
            columns = {name: batch.column(place[name]) for name in (place if names is None else names)}
            yield from replace(chunk, columns=columns, rows=batch.column(0).to_numpy()).slices(rows)
        if bad is not None:
            bad += self.bad

    def fingerprint(self) -> str:
        """Not of a copy: that of the table is known."""
        raise NotImplementedError("a parsed table is a copy: ask the table itself")
