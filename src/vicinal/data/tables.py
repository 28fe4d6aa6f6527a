"""Tables to learn from: which files of a folder belong together, and the rows to show again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.data.files import part_of
from vicinal.data.splitting import PARTS
from vicinal.tables import Table, is_table, joined_tables, open_table

__all__ = ["Rows", "open_split_tables", "split_tables"]

#: Cells of a table that is kept in memory once a row of it is shown.
_KEPT = 2**22


def split_tables(folder: Path) -> dict[str, Path]:
    """Return the tables of a folder that is already split: `train.csv` and `val.csv`, `test.csv` or both.

    In place of a file there may be a folder of shards, `train/`.
    """
    parts: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        part = part_of(path.name.partition(".")[0])
        if part and (_holds_shards(path) if path.is_dir() else is_table(path)):
            if part in parts:
                raise ValueError(f"{parts[part].name!r} and {path.name!r} both hold the {part} split: remove one")
            parts[part] = path
    ordered = {part: parts[part] for part in PARTS if part in parts}
    return ordered if "train" in ordered and len(ordered) > 1 else {}


def open_split_tables(folder: Path, *, encoding: str | None = None, header: bool = True) -> Table:
    """Open a folder that is already split as one table that knows the parts."""
    parts = {part: open_table(path, encoding=encoding, header=header) for part, path in split_tables(folder).items()}
    return joined_tables(folder, list(parts.values()), names=list(parts))


def _holds_shards(folder: Path) -> bool:
    return any(is_table(path) for path in folder.iterdir() if not path.name.startswith("."))


class Rows(Sequence[Any]):
    """The rows of a table as dictionaries, read when asked for."""

    def __init__(self, table: Table, n: int) -> None:
        self._table, self._n = table, n
        self._kept: dict[int, dict[str, Any]] | None = None

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: Any) -> Any:
        return self.fetch([int(i)])[0]

    def fetch(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """Return some rows, counted from 0, in one pass over the table; a small table is read once."""
        if self._kept is None and self._n * len(self._table.columns) <= _KEPT:
            self._kept = self._read(np.arange(self._n))
        rows = self._read(np.array(positions)) if self._kept is None else self._kept
        return [rows[i] for i in positions]

    def _read(self, wanted: Any) -> dict[int, dict[str, Any]]:
        rows: dict[int, dict[str, Any]] = {}
        last = int(wanted.max(initial=-1))
        for chunk in self._table.chunks(bad=[]):
            here = np.flatnonzero(np.isin(chunk.rows - 1, wanted))
            columns = {name: values.take(here).to_pylist() for name, values in chunk.columns.items()}
            for k, i in enumerate(here.tolist()):
                rows[int(chunk.rows[i]) - 1] = {name: values[k] for name, values in columns.items()}
            if chunk.rows[-1] > last:
                break
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return {"_table": self._table, "_n": self._n, "_kept": None}  # workers read for themselves
