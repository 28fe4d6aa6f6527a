"""The interface of every table: named columns, numbered rows, read a chunk at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, Sentence, nearest_names

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns by name, each a numpy or a pyarrow array, of as many rows.
Columns = Mapping[str, "pa.Array"]

#: Default number of rows at a time.
ROWS = 2**16
#: Default memory limit of a row or a cell, in bytes. Larger ones come from damaged or hostile files.
LARGEST_ROW = 2**27


@dataclass(frozen=True)
class Column:
    """What is known of a column before its rows are read.

    Examples
    --------
    >>> from vicinal.tables import from_rows
    >>> from_rows([{"x": 1}, {"x": 2}]).columns["x"].n_rows
    2
    """

    nested: bool = False
    """Whether each row holds a list."""
    width: int | None = 1
    """The number of values in each row, None where each row has its own."""
    n_rows: int | None = None
    """The number of rows, None where only reading shows it."""


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be read, such as one with too many cells.

    Examples
    --------
    >>> print(BadRow(3, "no object"))
    row 3 (no object)
    """

    row: int
    reason: str

    def __str__(self) -> str:
        return f"row {self.row:,} ({self.reason})"


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a table.

    Examples
    --------
    >>> from vicinal.tables import from_rows
    >>> chunk = next(from_rows([{"x": 1}, {"x": 2}]).chunks())
    >>> chunk["x"].to_pylist(), chunk.rows.tolist()
    ([1, 2], [1, 2])
    """

    columns: Columns
    """The cells by the name of the column, as pyarrow arrays."""
    rows: NDArray[np.int64]
    """The numbers of the rows in the table, from 1; the line of column names is not counted, bad rows are."""
    path: Path
    """The file in which they are."""
    before: int = 0
    """How many rows the files before it have, where a table is made of several."""
    decimal_comma: bool = False
    """Whether text may write 0,5 for a half."""
    parts: Sequence[str] | None = None
    """Which part of the table each row belongs to, where it has named parts: train, val, test."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> pa.Array:
        return self.columns[name]

    def slices(self, rows: int) -> Iterator[Chunk]:
        """Yield the same rows, at most `rows` at a time."""
        if len(self) <= rows:
            yield self
            return
        for start in range(0, len(self), rows):
            stop = start + rows
            columns = {name: values[start:stop] for name, values in self.columns.items()}
            parts = None if self.parts is None else self.parts[start:stop]
            yield replace(self, columns=columns, rows=self.rows[start:stop], parts=parts)


@dataclass(frozen=True, eq=False)
class Table(ABC):
    """A table whose columns are known and whose rows are read when asked for.

    Examples
    --------
    >>> from vicinal.tables import from_rows
    >>> table = from_rows([{"x": 1}, {"x": 2}])
    >>> isinstance(table, Table), list(table.columns), table.name
    (True, ['x'], 'the rows')
    """

    path: Path
    """The file, or the folder or pattern of several."""
    columns: Mapping[str, Column]
    """The columns by name, in the order of the file."""
    classes: tuple[str, ...] | None = field(default=None, kw_only=True)
    """The names of classes, where the file holds them beside its columns."""
    repeated: tuple[str, ...] = field(default=(), kw_only=True)
    """Names that several columns had: the later ones are called `x.1`, `x.2`, …"""
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    """What was decided when it was opened, one sentence each."""

    @abstractmethod
    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order.

        Parameters
        ----------
        names
            The columns to read; all if not given.
        rows
            The most rows at a time.
        bad
            Where given, rows that cannot be read are left out and added here; else the first of them is an error.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of the content. It does not depend on the path or the compression."""

    @property
    def name(self) -> str:
        """What errors call it."""
        return str(self.path)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files it is read from."""
        return (self.path,)

    @property
    def is_text(self) -> bool:
        """Whether cells are text that is parsed whenever it is read."""
        return False

    @property
    def n_rows(self) -> int | None:
        """The number of rows, None where only reading shows it."""
        return next((column.n_rows for column in self.columns.values()), 0)

    def count_rows(self) -> int:
        """Return the number of rows, bad ones too, by reading where the file does not say it."""
        if self.n_rows is not None:
            return self.n_rows
        bad: list[BadRow] = []
        last = [int(chunk.rows[-1]) for chunk in self.chunks(list(self.columns)[:1], bad=bad)]
        return max([0, *last[-1:], *(row.row for row in bad[-1:])])

    def require_column(self, name: str, argument: str) -> str:
        """Return a column's name, or say which names there are."""
        if name in self.columns:
            return name
        hint = nearest_names(name, self.columns)
        raise ValueError(
            Sentence(Argument(argument, name), f" is no column of {str(self.path)!r}{hint}", *self.header_hint())
        )

    def header_hint(self) -> tuple[str | Argument, ...]:
        """Return the end of an error about columns, where some are called like numbers."""
        if not any(is_number(name) for name in self.columns) or "1" in self.columns:
            return ()
        end = ": columns are then '1', '2', …"
        return ". If its first line holds data, not names, pass ", Argument("header", False), end


@dataclass(frozen=True, eq=False)
class DerivedTable(Table):
    """A table computed from another one while it is read."""

    table: Table = field(kw_only=True)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files it is read from."""
        return self.table.files

    @property
    def is_text(self) -> bool:
        """Whether cells are text that is parsed whenever it is read."""
        return self.table.is_text

    def fingerprint(self) -> str:
        """Return the fingerprint of the other table."""
        return self.table.fingerprint()


@dataclass(frozen=True, eq=False)
class _Renamed(DerivedTable):
    """A table with some columns under other names."""

    old_names: Mapping[str, str] = field(kw_only=True, repr=False)

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        wanted = list(self.columns if names is None else names)
        old = [self.old_names.get(name, name) for name in wanted]
        for chunk in self.table.chunks(old, rows, bad=bad):
            yield replace(chunk, columns={new: chunk[name] for new, name in zip(wanted, old, strict=True)})


def renamed(table: Table, names: Mapping[str, str]) -> Table:
    """Return a table with columns under other names; one that has such a name already gives way.

    Parameters
    ----------
    table
        The table.
    names
        From a column's name to its new one.
    """
    kept = {name: names.get(name, name) for name in table.columns if name in names or name not in names.values()}
    columns = {new: table.columns[name] for name, new in kept.items()}
    old_names = {new: name for name, new in kept.items()}
    return _Renamed(table.path, columns, classes=table.classes, notes=table.notes, table=table, old_names=old_names)


def is_number(name: str) -> bool:
    """Return whether a text spells a number."""
    try:
        float(name)
    except ValueError:
        return False
    return True


def quoted(names: Sequence[str], n: int = 6) -> str:
    """Return names as an error lists them, the first few.

    >>> quoted(["a", "b", "c"], n=2)
    "'a', 'b', … (3)"
    """
    if not names:
        return "none"
    shown = ", ".join(map(repr, names[:n]))
    return f"{shown}, … ({len(names)})" if len(names) > n else shown
