"""The rows of a table to show again, read when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from vicinal.tables import Table

#: A table of up to this many cells is kept in memory once one of its rows is shown.
_KEPT = 2**22


#: A row as a mapping from column names.
Row: TypeAlias = "dict[str, object]"


class Rows(Sequence[Any]):
    """The rows of a table as dictionaries, read when asked for."""

    def __init__(self, table: Table, n: int) -> None:
        self._table, self._n = table, n
        self._kept: dict[int, Row] | None = None

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: Any) -> Any:
        return self.fetch([int(i)])[0]

    def fetch(self, positions: Sequence[int]) -> list[Row]:
        """Return some rows, counted from 0, in one pass over the table; a small table is read once."""
        if self._kept is None and self._n * len(self._table.columns) <= _KEPT:
            self._kept = self._read(np.arange(self._n))
        rows = self._read(np.array(positions)) if self._kept is None else self._kept
        return [rows[i] for i in positions]

    def _read(self, wanted: Any) -> dict[int, Row]:
        rows: dict[int, Row] = {}
        last = int(wanted.max(initial=-1))
        for chunk in self._table.chunks(bad=[]):
            here = np.flatnonzero(np.isin(chunk.rows - 1, wanted))
            columns = {name: values.take(here).to_pylist() for name, values in chunk.columns.items()}
            for k, i in enumerate(here.tolist()):
                rows[int(chunk.rows[i]) - 1] = {name: values[k] for name, values in columns.items()}
            if chunk.rows[-1] > last:
                break
        return rows

    def __getstate__(self) -> dict[str, object]:
        return {"_table": self._table, "_n": self._n, "_kept": None}  # workers read for themselves
