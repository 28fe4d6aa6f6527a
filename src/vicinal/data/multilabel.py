"""Multi-label targets: several columns of 0 and 1.

A derived column holds the combination of each row's labels. Splits are stratified by it, so that rows are split,
counted and left out as in any table. The network has an output for each label.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, Sentence, require
from vicinal.tables import BadRow, Chunk, Column, Table
from vicinal.tables.base import DerivedTable
from vicinal.tables.column_values import distinct, names_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Cells that mean 0 and 1.
_WRITTEN = {"0": "0", "0.0": "0", "false": "0", "no": "0", "1": "1", "1.0": "1", "true": "1", "yes": "1"}


@dataclass(frozen=True, eq=False)
class _Combined(DerivedTable):
    """A table with one column more: the labels of each row as a string of 0 and 1, missing where one is."""

    labels: tuple[str, ...] = field(kw_only=True)

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = 2**16, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        wanted = list(self.columns if names is None else names)
        target = combined_name(self.labels)
        if target not in wanted:
            yield from self.table.chunks(wanted, rows, bad=bad)
            return
        read = list(dict.fromkeys([*(name for name in wanted if name != target), *self.labels]))
        for chunk in self.table.chunks(read, rows, bad=bad):
            joined = _joined([_bits(chunk[name], name, self.name) for name in self.labels])
            yield replace(chunk, columns={name: joined if name == target else chunk[name] for name in wanted})


def combined_name(labels: Sequence[str]) -> str:
    """Return the name of the column of combinations."""
    return " + ".join(labels)


def combined(table: Table, labels: Sequence[str]) -> Table:
    """Return a table with the combination of some columns of 0 and 1 as one column more."""
    names = tuple(table.require_column(name, "target") for name in labels)
    if len(set(names)) != len(names):
        raise ValueError(Sentence(Argument("target"), f" names a column twice: {', '.join(map(repr, names))}"))
    columns = {**table.columns, combined_name(names): Column(n_rows=table.n_rows)}
    return _Combined(table.path, columns, classes=table.classes, notes=table.notes, table=table, labels=names)


def label_matrix(combinations: Sequence[str], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0 and 1 for each label, `[N, L]`, of samples with these numbers of combinations; -1 where there is none.

    >>> label_matrix(["00", "10"], np.array([1, 0, -1])).tolist()
    [[1, 0], [0, 0], [-1, -1]]
    """
    table = np.array([[int(bit) for bit in name] for name in combinations], np.int64)
    return np.concatenate([table, np.full((1, table.shape[1]), -1)])[numbers]


def label_notes(labels: Sequence[str], targets: NDArray[np.int64]) -> str:
    """Return a note that says how often each label is 1."""
    known = targets[targets[:, 0] >= 0]
    shown = ", ".join(f"{name!r} {100 * share:.1f} %" for name, share in zip(labels, known.mean(axis=0), strict=True))
    return f"{len(labels)} labels, each 0 or 1: {shown} are 1"


def refuse_constant(labels: Sequence[str], targets: NDArray[np.int64]) -> None:
    """Refuse training targets of which a label is always 0, or always 1: it could not be learned."""
    for name, column in zip(labels, targets.T, strict=True):
        if len(np.unique(column)) < 2:
            raise ValueError(
                f"the label {name!r} is {int(column[0])} in every training row: leave it out of the target"
            )


def _bits(values: object, name: str, table: str) -> NDArray[np.str_]:
    """Return the cells of a column as "0" and "1", "" where one is missing."""
    place, different = distinct(values)
    written = []
    for cell in names_of(different):
        if cell and cell.lower() not in _WRITTEN:
            raise ValueError(
                f"the column {name!r} of {table!r} holds {cell!r}: each target of a multi-label task must hold 0 and 1 "
                "only (or true and false, yes and no)"
            )
        written.append(_WRITTEN[cell.lower()] if cell else "")
    return np.array([*written, ""])[place]


def _joined(columns: Sequence[NDArray[np.str_]]) -> pa.Array:
    pa = require("pyarrow", "train")
    missing = np.any([column == "" for column in columns], axis=0)
    joined = columns[0]
    for column in columns[1:]:
        joined = np.char.add(joined, column)
    return pa.array(
        [None if gone else text for text, gone in zip(joined.tolist(), missing.tolist(), strict=True)], pa.string()
    )
