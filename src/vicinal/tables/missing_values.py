"""A table in which cells that the user names, such as -999 or "unknown", are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vicinal._checks import require
from vicinal.tables.base import ROWS, BadRow, Chunk, DerivedTable, Table
from vicinal.tables.column_values import is_text

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class _WithoutMarkers(DerivedTable):
    markers: tuple[str, ...] = field(kw_only=True)

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        for chunk in self.table.chunks(names, rows, bad=bad):
            yield replace(chunk, columns={name: _cleared(cells, self.markers) for name, cells in chunk.columns.items()})


def without_markers(table: Table, markers: Sequence[str]) -> Table:
    """Return a table whose cells are missing where they hold one of `markers`, as text or as that number."""
    if not markers:
        return table
    known = {"classes": table.classes, "repeated": table.repeated, "notes": table.notes}
    return _WithoutMarkers(table.path, table.columns, **known, table=table, markers=tuple(markers))  # type: ignore[arg-type]  # by name


def _cleared(column: pa.Array, markers: Sequence[str]) -> pa.Array:
    pa, compute = require("pyarrow", "train"), require("pyarrow.compute", "train")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(column):
        wanted = pa.array(markers, column.type)
        cells = compute.utf8_trim_whitespace(column)
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        numbers = [value for marker in markers for value in _as_type(marker, column.type)]
        wanted, cells = pa.array(numbers, column.type), column
    else:
        return column
    return compute.if_else(compute.is_in(cells, wanted), pa.scalar(None, column.type), column)


def _as_type(marker: str, kind: pa.DataType) -> list[pa.Scalar]:
    """Return a marker as a number of this type, none where it is none."""
    pa = require("pyarrow", "train")
    for text in (marker, marker.removesuffix(".0")):
        try:
            return [pa.scalar(text).cast(kind).as_py()]
        except pa.ArrowInvalid:
            continue
    return []
