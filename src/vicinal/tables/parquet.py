"""Parquet files, some rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vicinal._checks import require
from vicinal._memory import check_memory, memory_limit
from vicinal._remote import is_remote
from vicinal.tables.base import LARGEST_ROW, ROWS, BadRow, Chunk, Column, Table
from vicinal.tables.column_values import as_text, is_index
from vicinal.tables.file_access import content_fingerprint, readable_errors

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import DataType

SUFFIXES = (".parquet", ".pq")
#: Buffer size of a column, in bytes.
_BUFFER, _REMOTE_BUFFER = 2**17, 2**22
#: Bytes of rows at a time, as far as the file says how long its lists are.
_AT_ONCE = 2**28


@dataclass(frozen=True, eq=False)
class Parquet(Table):
    """A Parquet file, or some of its row groups."""

    row_groups: tuple[int, ...] | None = None
    """The row groups to read; all if None. Rows are then counted through these."""

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        parquet = require("pyarrow.parquet", "train")
        wanted = list(self.columns if names is None else names)
        # Columns are read some pages at a time, not a row group at once: that may be as large as the file.
        # A request to another machine costs more than a read of a disk, so its blocks are larger.
        options = {"buffer_size": _REMOTE_BUFFER if is_remote(self.path) else _BUFFER, "pre_buffer": False}
        first = 1
        with (
            readable_errors(self.path, "Parquet"),
            self.path.open("rb", buffering=0) as stream,
            parquet.ParquetFile(stream if is_remote(self.path) else self.path, **options) as file,
        ):
            groups = None if self.row_groups is None else list(self.row_groups)
            for batch in file.iter_batches(_few_rows(file, self.path, rows), row_groups=groups, columns=wanted):
                if n := batch.num_rows:
                    check_cells(batch, self.path)
                    columns = {name: as_text(batch.column(name)) for name in wanted}
                    yield Chunk(columns, np.arange(first, first + n), self.path)
                    first += n

    def fingerprint(self) -> str:
        """Return a hash of the file."""
        return content_fingerprint(self.path, SUFFIXES)

    def runs(self) -> list[Parquet]:
        """Return the file in runs of row groups that together have all rows, the shortest that are read alike.

        A run begins where the whole file has a multiple of `ROWS` rows before it: chunks are then those of the whole
        file, and sums of them have the same digits. Where no other run begins so, each row group is one.
        """
        parquet = require("pyarrow.parquet", "train")
        with readable_errors(self.path, "Parquet"), self.path.open("rb") as stream:
            metadata = parquet.ParquetFile(stream).metadata
            sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
        starts = list(accumulate(sizes, initial=0))[:-1]
        first = [k for k, start in enumerate(starts) if start % ROWS == 0 and sizes[k]]
        first = first if len(first) > 1 else list(range(len(sizes)))
        return [
            self.of_groups(range(a, b), sum(sizes[a:b])) for a, b in zip(first, [*first[1:], len(sizes)], strict=True)
        ]

    def of_groups(self, row_groups: Sequence[int], n_rows: int) -> Parquet:
        """Return some of its row groups, which have so many rows."""
        columns = {name: replace(column, n_rows=n_rows) for name, column in self.columns.items()}
        return replace(self, columns=columns, row_groups=tuple(row_groups))


def _few_rows(file: pq.ParquetFile, path: Path, rows: int) -> int:
    """Return how many rows to read at a time, fewer where rows hold long lists; too long lists are refused."""
    groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
    values = max(
        (group.column(k).num_values / max(group.num_rows, 1) for group in groups for k in range(group.num_columns)),
        default=0,
    )
    check_memory(f"a row of {str(path)!r}", int(8 * values), default=LARGEST_ROW)
    return max(min(rows, int(_AT_ONCE / (8 * max(values, 1)))), 1)


def check_cells(batch: pa.RecordBatch, path: Path) -> None:
    """Refuse texts that take more memory than a row may."""
    if batch.nbytes <= memory_limit(LARGEST_ROW):
        return
    pa, compute = require("pyarrow", "train"), require("pyarrow.compute", "train")
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_binary(column.type):
            longest = compute.max(compute.binary_length(column)).as_py() or 0
            check_memory(f"a cell of the column {name!r} of {str(path)!r}", longest, default=LARGEST_ROW)


def open_parquet(path: Path) -> Parquet:
    """Read what a Parquet file says of its columns."""
    parquet = require("pyarrow.parquet", "train")
    with readable_errors(path, "Parquet"), path.open("rb") as stream, parquet.ParquetFile(stream) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
    return Parquet(path, columns_of(schema, n_rows), repeated=repeated_names(schema))


def repeated_names(schema: pa.Schema) -> tuple[str, ...]:
    """Return the names that several columns have."""
    return tuple(sorted(name for name, n in Counter(schema.names).items() if n > 1))


def columns_of(schema: pa.Schema, n_rows: int | None) -> dict[str, Column]:
    """Return what a schema of Arrow says of each column, but for an index of pandas, which has no name."""
    pa = require("pyarrow", "train")

    def column(kind: DataType) -> Column:
        if pa.types.is_fixed_size_list(kind):
            return Column(True, int(kind.list_size), n_rows)
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        return Column(lists, None if lists else 1, n_rows)

    return {item.name: column(item.type) for item in schema if not is_index(item.name)}
