"""New data to predict, some rows at a time: a table of any size takes the memory of a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._checks import Argument, Sentence, nearest_names, require
from vicinal.data import sources
from vicinal.data.files import give_up, limit_of
from vicinal.data.loading import read
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.published import NamedTable
from vicinal.data.tabular import TabularPreprocessing
from vicinal.data.task import Items, Split
from vicinal.data.text import TextPreprocessing
from vicinal.tables import BadRow, Table

__all__ = ["Stream", "stream"]

#: Rows of a block, about.
_ROWS = 2**16


class Stream:
    """New data in order, as blocks of samples; made by `stream`.

    Attributes
    ----------
    n_rows
        How many there are, None where only reading shows it.
    notes
        What was ignored or skipped, complete once all blocks were read.
    """

    def __init__(
        self,
        n_rows: int | None,
        notes: list[str],
        blocks: Iterator[tuple[NDArray[np.int64], Split]],
        kept: _Columns | None = None,
    ) -> None:
        self.n_rows, self.notes, self._blocks, self._kept = n_rows, notes, blocks, kept

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], Split]]:
        """Yield the positions of samples in the source, from 0, and the samples."""
        return self._blocks

    def kept(self, positions: NDArray[np.int64]) -> dict[str, Any]:
        """Return the cells of the columns to keep, as they are in the source, of these samples, as pyarrow arrays.

        Parameters
        ----------
        positions
            From 0; later calls must ask for later ones.
        """
        return {} if self._kept is None else self._kept.take(positions + 1)


def stream(
    source: object,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    max_bad: float | int = 0.05,
    encoding: str | None = None,
    header: bool = True,
    data_root: str | Path | None = None,
    keep: Sequence[str] = (),
) -> Stream:
    """Return new data as `read` does, unlabelled, but a table block by block.

    How many rows are bad is known at the end: that they are too many is an error after the last block.

    Parameters
    ----------
    source, preprocessing, max_bad, encoding, header, data_root
        As in `read`.
    batch_size
        Every block but the last holds a multiple of it: batches are those of all rows at once.
    keep
        Columns of a table, such as an identifier, that `Stream.kept` gives back.
    """
    limit_of(max_bad, 1)  # a wrong one is said before any work is done
    if isinstance(preprocessing, (TabularPreprocessing, TextPreprocessing)):
        opened = sources.open_data(source, preprocessing.kind, encoding, header, data_root, preprocessing.target)
        table = opened.table if isinstance(opened, NamedTable) else opened
        if isinstance(table, Table):
            notes = list(table.notes)
            rows = max(_ROWS // batch_size, 1) * batch_size
            kept = _Columns(table, keep) if keep else None
            return Stream(table.n_rows, notes, _blocks(table, preprocessing, rows, max_bad, notes), kept)
    if keep:
        what = f" names columns, but {str(source)!r} is not a table: leave it out"
        raise ValueError(Sentence(Argument("keep"), what))
    split = read(source, preprocessing, max_bad=max_bad, encoding=encoding, header=header, data_root=data_root)
    return Stream(len(split), list(split.notes), iter([(np.array(split.indices, np.int64), split)]))


class _Columns:
    """Columns of a table, read beside the features: rows that were asked for are let go."""

    def __init__(self, table: Table, names: Sequence[str]) -> None:
        for name in names:
            if name not in table.columns:
                known = nearest_names(name, table.columns)
                raise ValueError(Sentence(Argument("keep", name), f": {table.name!r} has no such column{known}"))
        self._chunks = table.chunks(list(names), bad=[])
        self._rows = np.zeros(0, np.int64)
        self._cells: dict[str, list[Any]] = {name: [] for name in names}

    def take(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Return the cells of rows, numbered from 1 and rising."""
        pa = require("pyarrow", "train")
        while not len(self._rows) or self._rows[-1] < rows[-1]:
            chunk = next(self._chunks)
            self._rows = np.concatenate([self._rows, chunk.rows])
            for name, pieces in self._cells.items():
                cells = chunk[name]
                pieces.append(pa.array(cells) if isinstance(cells, np.ndarray) else cells)
        at = np.searchsorted(self._rows, rows)
        columns = {name: _one_column(pieces) for name, pieces in self._cells.items()}
        done = int(at[-1]) + 1
        self._rows = self._rows[done:]
        self._cells = {name: [column.slice(done)] for name, column in columns.items()}
        return {name: column.take(pa.array(at)) for name, column in columns.items()}


def _one_column(pieces: list[Any]) -> Any:
    """Return the pieces of a column as one array, of text where files have it in several types."""
    pa = require("pyarrow", "train")
    plain = [piece.dictionary_decode() if pa.types.is_dictionary(piece.type) else piece for piece in pieces]
    several = len({str(piece.type) for piece in plain}) > 1
    return pa.concat_arrays([piece.cast(pa.string()) for piece in plain] if several else plain)


def _blocks(
    table: Table,
    preprocessing: TabularPreprocessing | TextPreprocessing,
    size: int,
    max_bad: float | int,
    notes: list[str],
) -> Iterator[tuple[NDArray[np.int64], Split]]:
    bad: list[BadRow] = []
    remarks: list[str] = []
    n = 0
    for rows, items in _regrouped(preprocessing.blocks(table, bad, remarks), size):
        n += len(rows)
        yield rows - 1, Split(preprocessing, items, items, None)
    n += len(bad)
    if not n:
        raise ValueError(f"{table.name!r} has no rows")
    notes += [*give_up(list(map(str, bad)), n, "rows", "could not be read", max_bad), *remarks]


def _regrouped(
    blocks: Iterable[tuple[NDArray[np.int64], Items]], size: int
) -> Iterator[tuple[NDArray[np.int64], Items]]:
    """Yield the same samples, `size` at a time."""
    rows: list[NDArray[np.int64]] = []
    items: list[Items] = []
    waiting = 0
    for more_rows, more_items in blocks:
        start = 0
        while start < len(more_rows):
            stop = min(start + size - waiting, len(more_rows))
            rows.append(more_rows[start:stop])
            items.append(more_items[start:stop])
            waiting += stop - start
            start = stop
            if waiting == size:
                yield np.concatenate(rows), _joined(items)
                rows, items, waiting = [], [], 0
    if waiting:
        yield np.concatenate(rows), _joined(items)


def _joined(items: list[Items]) -> Items:
    tensors = [part for part in items if isinstance(part, Tensor)]
    return torch.cat(tensors) if tensors else [item for part in items for item in part]
