"""Tables in memory: a pandas DataFrame, or rows as Python has them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import require
from vicinal._memory import check_memory
from vicinal.tables.base import ROWS, BadRow, Chunk, Column, Columns, Table
from vicinal.tables.column_values import as_text, is_index, names_of, plain_text
from vicinal.tables.file_access import fingerprint

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

#: Above this many cells at least one in `_FULL` must hold a value. Rows with keys of their own would make columns
#: without end.
_CELLS = 10_000_000
_FULL = 1_000

_NESTED = (list, dict, tuple, set, np.ndarray, bytes)


@dataclass(frozen=True, eq=False)
class InMemory(Table):
    """Columns that are in memory."""

    values: Columns = field(default_factory=dict, repr=False)
    """pyarrow arrays by name."""
    digest: str = ""
    parts: tuple[str, ...] | None = field(default=None, repr=False)
    """Which part each row belongs to."""

    @property
    def files(self) -> tuple[Path, ...]:
        """No files."""
        return ()

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        wanted = {name: self.values[name] for name in (self.columns if names is None else names)}
        if self.n_rows:
            yield from Chunk(wanted, np.arange(1, self.n_rows + 1), self.path, parts=self.parts).slices(rows)

    def fingerprint(self) -> str:
        """Return a hash of names and values."""
        return self.digest


def from_frame(
    frame: pd.DataFrame, name: str = "the table", *, parts: Sequence[str] | None = None, notes: Sequence[str] = ()
) -> InMemory:
    """Return a pandas DataFrame as a table.

    Parameters
    ----------
    frame
        The frame. Its index is ignored.
    name
        What errors call it.
    parts
        Which part (train, val, test) each row belongs to.
    notes
        Sentences for the user.

    Returns
    -------
    InMemory
        The table, whose rows stay in memory.

    Examples
    --------
    >>> import pandas as pd
    >>> table = from_frame(pd.DataFrame({"x": [1, 2], "y": ["a", "b"]}))
    >>> list(table.columns), len(next(table.chunks()))
    (['x', 'y'], 2)
    """
    pandas = require("pandas", "train")
    frame = frame.reset_index(drop=True)
    names = [str(label) for label in frame.columns]
    frame.columns = names
    repeated = sorted(repr(label) for label, n in Counter(names).items() if n > 1)
    if repeated:
        raise ValueError(f"{name!r} has several columns called {', '.join(repeated)}: rename them")
    hashed = pandas.util.hash_pandas_object(frame.astype(str), index=False).to_numpy().tobytes()
    values = {label: column_of(frame[label]) for label in names}
    return _in_memory(values, len(frame), name, json.dumps(names).encode() + hashed, parts, notes)


def from_arrow(source: object, name: str = "the table") -> InMemory:
    """Return a table of pyarrow, polars or whatever else hands out Arrow columns (`__arrow_c_stream__`)."""
    pa = require("pyarrow", "train")
    table = pa.table(source)
    if len(set(table.column_names)) < table.num_columns:
        raise ValueError(f"{name!r} has several columns of one name: rename them")
    labels = [label for label in table.column_names if not is_index(label)]
    values = {label: plain_text(table.column(label).combine_chunks()) for label in labels}
    return _in_memory(values, table.num_rows, name, repr(table.to_pydict()).encode(), None, ())


def from_arrays(arrays: Mapping[str, NDArray[np.generic]], name: str) -> InMemory:
    """Return arrays of one dimension and the same length as the columns of a table."""
    lengths = {label: array.shape for label, array in arrays.items()}
    if len(set(lengths.values())) != 1 or any(len(shape) != 1 for shape in lengths.values()):
        said = ", ".join(f"{label!r} {list(shape)}" for label, shape in lengths.items())
        raise ValueError(f"the arrays of {name!r} must be columns [N] of one length, or images x_train, got {said}")
    values = {label: column_of(array) for label, array in arrays.items()}
    content = b"".join(label.encode() + np.ascontiguousarray(array).tobytes() for label, array in arrays.items())
    return _in_memory(values, len(next(iter(arrays.values()))), name, content, None, ())


def from_rows(
    rows: Sequence[Mapping[str, object]],
    name: str = "the rows",
    content: bytes = b"",
    *,
    parts: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> InMemory:
    """Return rows, each a mapping from column names, as a table.

    Parameters
    ----------
    rows
        The rows. A key that a row lacks is a missing value.
    content
        What its fingerprint is made of.
    name, parts, notes
        As in `from_frame`.

    Returns
    -------
    InMemory
        The table.

    Examples
    --------
    >>> table = from_rows([{"x": 1, "y": "a"}, {"x": 2}])
    >>> next(table.chunks())["y"].to_pylist()
    ['a', None]
    """
    labels = dict.fromkeys(chain.from_iterable(rows))
    refuse_scattered(name, len(rows), len(labels), sum(map(len, rows)))
    check_memory(f"{name!r} has {len(labels):,} columns of {len(rows):,} rows and", 8 * len(labels) * len(rows))
    values = {str(label): column_of([row.get(label) for row in rows]) for label in labels}
    return _in_memory(values, len(rows), name, content, parts, notes)


def refuse_scattered(name: str, n: int, n_keys: int, full: int, *, keys: str = "columns", rows: str = "rows") -> None:
    """Refuse rows that share hardly any column, before each column becomes as long as the table.

    Parameters
    ----------
    name
        What errors call the table.
    n, n_keys, full
        The numbers of rows, of different columns in them, and of values.
    keys, rows
        What columns and rows are called there.
    """
    if n * n_keys > _CELLS and full * _FULL < n * n_keys:
        raise ValueError(
            f"{name!r} has {n_keys:,} different {keys} in {n:,} {rows}, but only {full / n:.1f} values in each: "
            "as columns these would be all but empty. Write what differs from one to the next as a value"
        )


def _in_memory(
    values: Columns, n: int, name: str, content: bytes, parts: Sequence[str] | None, notes: Sequence[str]
) -> InMemory:
    return InMemory(
        Path(name),
        {label: Column(n_rows=n) for label in values},
        notes=tuple(notes),
        values=values,
        digest=fingerprint(content),
        parts=None if parts is None else tuple(parts),
    )


def column_of(values: Iterable[object]) -> pa.Array:
    """Return Python values or a pandas series as a pyarrow array; values of several types become their names."""
    pa = require("pyarrow", "train")
    if isinstance(values, np.ma.MaskedArray):
        values = pa.array(values.data, mask=np.ma.getmaskarray(values), from_pandas=True)
    try:
        array = pa.array(values, from_pandas=True)
        array = as_text(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array)
        return pa.array(values, from_pandas=True, type=pa.string()) if pa.types.is_null(array.type) else array
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError):
        items = values.tolist() if hasattr(values, "tolist") else list(values)
        if any(isinstance(item, _NESTED) for item in items):
            return pa.array([[str(item)] for item in items])
        return pa.array([name or None for name in names_of(items)], pa.string())
