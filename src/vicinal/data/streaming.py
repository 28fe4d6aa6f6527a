"""New data to predict, a block of rows at a time, so that a table of any size takes constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._checks import Argument, Sentence, nearest_names, require
from vicinal.data.class_folders import check_bad_limit
from vicinal.data.loading import adapted, read_opened
from vicinal.data.options import ReadOptions
from vicinal.data.preprocessing import Preprocessing, TablePreprocessing
from vicinal.data.sources import open_data
from vicinal.data.task import Items, Split
from vicinal.tables import BadRow, Columns, Table

if TYPE_CHECKING:
    import pyarrow as pa

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
    preprocessing
        How samples are read: as in training, but for numbers and dates that all cells of a table write otherwise.

    Examples
    --------
    >>> import pandas as pd
    >>> from vicinal.data import load
    >>> frame = pd.DataFrame({"x": [0.5, 1.5, 2.5, 3.5] * 5, "y": ["a", "b"] * 10})
    >>> new = stream(frame[["x"]], load(frame, target="y").preprocessing, batch_size=8)
    >>> new.n_rows, [positions.tolist()[:3] for positions, _ in new]
    (20, [[0, 1, 2]])
    """

    def __init__(
        self,
        n_rows: int | None,
        notes: list[str],
        blocks: Iterator[tuple[NDArray[np.int64], Split]],
        preprocessing: Preprocessing,
        kept: _Columns | None = None,
    ) -> None:
        self.n_rows, self.notes, self.preprocessing = n_rows, notes, preprocessing
        self._blocks, self._kept = blocks, kept

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], Split]]:
        """Yield the positions of samples in the source, from 0, and the samples."""
        return self._blocks

    def kept(self, positions: NDArray[np.int64]) -> Columns:
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
    options: ReadOptions | None = None,
    keep: Sequence[str] = (),
) -> Stream:
    """Return new data as `read` does, unlabelled, but a table block by block.

    The number of bad rows is known at the end, so too many of them are an error after the last block.

    Parameters
    ----------
    source, preprocessing, options
        As in `read`.
    batch_size
        Every block but the last holds a multiple of it: batches are those of all rows at once.
    keep
        Columns of a table, such as an identifier, that `Stream.kept` gives back.

    Returns
    -------
    Stream
        The blocks, in order.

    Examples
    --------
    >>> import pandas as pd
    >>> from vicinal.data import load
    >>> frame = pd.DataFrame({"x": [0.5, 1.5, 2.5, 3.5] * 5, "y": ["a", "b"] * 10})
    >>> blocks = stream(frame[["x"]], load(frame, target="y").preprocessing, batch_size=8)
    >>> [len(split) for _, split in blocks]
    [20]
    """
    options = options or ReadOptions()
    opened = open_data(source, preprocessing.kind, options, getattr(preprocessing, "target", None))
    opened, preprocessing, said = adapted(opened, preprocessing, options)
    if isinstance(opened, Table) and isinstance(preprocessing, TablePreprocessing):
        notes = [*opened.notes, *said]
        # Batches then hold the same rows as without blocks: kernels round differently by batch size.
        rows = max(_ROWS // batch_size, 1) * batch_size
        kept = _Columns(opened, keep) if keep else None
        blocks = _blocks(opened, preprocessing, rows, options.max_bad, notes)
        return Stream(opened.n_rows, notes, blocks, preprocessing, kept)
    if keep:
        what = f" names columns, but {str(source)!r} is not a table: leave it out"
        raise ValueError(Sentence(Argument("keep"), what))
    new = read_opened(opened, preprocessing, options.max_bad, labelled=False)
    split = Split(preprocessing, new.items, new.origins, None, new.readable)
    return Stream(len(split), new.notes, iter([(np.array(split.indices, np.int64), split)]), preprocessing)


class _Columns:
    """Columns of a table, read beside the features: rows that were asked for are let go."""

    def __init__(self, table: Table, names: Sequence[str]) -> None:
        for name in names:
            if name not in table.columns:
                known = nearest_names(name, table.columns)
                raise ValueError(Sentence(Argument("keep", name), f": {table.name!r} has no such column{known}"))
        self._chunks = table.chunks(list(names), bad=[])
        self._rows = np.zeros(0, np.int64)
        self._cells: dict[str, list[pa.Array]] = {name: [] for name in names}

    def take(self, rows: NDArray[np.int64]) -> Columns:
        """Return the cells of rows, numbered from 1 and rising."""
        pa = require("pyarrow", "train")
        while not len(self._rows) or self._rows[-1] < rows[-1]:
            chunk = next(self._chunks)
            self._rows = np.concatenate([self._rows, chunk.rows])
            for name, pieces in self._cells.items():
                cells = chunk[name]
                pieces.append(pa.array(cells) if isinstance(cells, np.ndarray) else cells)
        # Bad rows are in neither table pass, so positions are looked up by row number.
        at = np.searchsorted(self._rows, rows)
        columns = {name: _one_column(pieces) for name, pieces in self._cells.items()}
        done = int(at[-1]) + 1
        self._rows = self._rows[done:]
        self._cells = {name: [column.slice(done)] for name, column in columns.items()}
        return {name: column.take(pa.array(at)) for name, column in columns.items()}


def _one_column(pieces: list[pa.Array]) -> pa.Array:
    """Return the pieces of a column as one array, of text where files have it in several types."""
    pa = require("pyarrow", "train")
    plain = [piece.dictionary_decode() if pa.types.is_dictionary(piece.type) else piece for piece in pieces]
    several = len({str(piece.type) for piece in plain}) > 1
    return pa.concat_arrays([piece.cast(pa.string()) for piece in plain] if several else plain)


def _blocks(
    table: Table, preprocessing: TablePreprocessing, size: int, max_bad: float | int, notes: list[str]
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
    notes += [*check_bad_limit(list(map(str, bad)), n, "rows", "could not be read", max_bad), *remarks]


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
