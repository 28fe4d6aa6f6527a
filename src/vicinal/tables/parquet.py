"""Parquet files, some rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vicinal._checks import require
from vicinal.tables.base import ROWS, BadRow, Chunk, Column, Table
from vicinal.tables.storage import content_fingerprint, explained

__all__ = ["SUFFIXES", "Parquet", "open_parquet"]

SUFFIXES = (".parquet", ".pq")
#: Bytes by which a column is read.
_BUFFER = 2**20


@dataclass(frozen=True, eq=False)
class Parquet(Table):
    """A Parquet file."""

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        parquet = require("pyarrow.parquet", "train")
        wanted = list(self.columns if names is None else names)
        # Columns are read some pages at a time, not a row group at once: that may be as large as the file.
        options = {"buffer_size": _BUFFER, "pre_buffer": False}
        first = 1
        with explained(self.path, "Parquet"), parquet.ParquetFile(self.path, **options) as file:
            for batch in file.iter_batches(rows, columns=wanted):
                if n := batch.num_rows:
                    columns = {name: batch.column(name) for name in wanted}
                    yield Chunk(columns, np.arange(first, first + n), self.path)
                    first += n

    def fingerprint(self) -> str:
        """Return a hash of the file."""
        return content_fingerprint(self.path, SUFFIXES)


def open_parquet(path: Path) -> Parquet:
    """Read what a Parquet file says of its columns."""
    pa, parquet = require("pyarrow", "train"), require("pyarrow.parquet", "train")
    with explained(path, "Parquet"), parquet.ParquetFile(path) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
    names = list(schema.names)
    repeated = tuple(sorted(name for name, n in Counter(names).items() if n > 1))

    def column(kind: Any) -> Column:
        if pa.types.is_fixed_size_list(kind):
            return Column(True, int(kind.list_size), n_rows)
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        return Column(lists, None if lists else 1, n_rows)

    return Parquet(path, {item.name: column(item.type) for item in schema}, repeated=repeated)
