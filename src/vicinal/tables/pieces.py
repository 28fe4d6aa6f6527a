"""A table in consecutive pieces, one for each of several processes: whole files, and row groups of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby

from vicinal.tables.base import ROWS, BadRow, Chunk, Column, DerivedTable, Table
from vicinal.tables.parquet import Parquet
from vicinal.tables.shards import Shards


def piece(table: Table, number: int, of: int) -> Table:
    """Return one of several pieces of a table. Pieces follow one another, and have about as many bytes each.

    Rows are counted from 1 in each piece. A piece may have no rows: a file that is no Parquet is not cut.

    Parameters
    ----------
    table
        The table.
    number, of
        Which piece, from 0, of how many.

    Examples
    --------
    >>> from vicinal.tables import from_rows
    >>> [sum(map(len, piece(from_rows([{"x": 1}] * 3), k, 2).chunks())) for k in range(2)]
    [0, 3]
    """
    if of == 1:
        return table
    if isinstance(table, DerivedTable):
        return replace(table, table=piece(table.table, number, of))
    parts = table.parts if isinstance(table, Shards) else (table,)
    names = table.part_names if isinstance(table, Shards) and table.part_names else ("",) * len(parts)
    smallest = [(k, run, size) for k, part in enumerate(parts) for run, size in _runs(part)]
    total = sum(size for *_, size in smallest) or 1
    ends = accumulate(size for *_, size in smallest)
    # A run belongs to the piece in which its middle lies.
    mine = [
        (k, run)
        for (k, run, size), end in zip(smallest, ends, strict=True)
        if min(int((end - size / 2) / total * of), of - 1) == number
    ]
    kept = [(k, _joined([run for _, run in runs])) for k, runs in groupby(mine, key=lambda pair: pair[0])]
    if kept and not isinstance(table, Shards):
        return kept[0][1]
    columns = {name: Column(column.nested, column.width) for name, column in table.columns.items()}
    return Shards(
        table.path,
        columns,
        classes=table.classes,
        repeated=table.repeated,
        parts=tuple(run for _, run in kept),
        part_names=tuple(names[k] for k, _ in kept) if any(names) else (),
    )


def _runs(part: Table) -> list[tuple[Table, float]]:
    """Return a file, or its row groups, with the size of each."""
    size = float(sum(file.stat().st_size for file in part.files)) or 1.0
    if not isinstance(part, Parquet) or not part.n_rows:
        return [(part, size)]
    return [(run, size * (run.n_rows or 0) / part.n_rows) for run in part.runs()]


def _joined(runs: Sequence[Table]) -> Table:
    """Return runs of one file as one: chunks then reach over their ends, as in the whole file."""
    first = runs[0]
    if len(runs) == 1 or not isinstance(first, Parquet):
        return first
    groups = [group for run in runs if isinstance(run, Parquet) for group in run.row_groups or ()]
    return first.of_groups(groups, sum(run.n_rows or 0 for run in runs))


@dataclass(frozen=True, eq=False)
class Renumbered(DerivedTable):
    """A piece whose rows have the numbers that they have in the whole."""

    before: int = field(kw_only=True)
    """How many rows the whole has before it."""

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        skipped: list[BadRow] | None = None if bad is None else []
        for chunk in self.table.chunks(names, rows, bad=skipped):
            yield replace(chunk, rows=chunk.rows + self.before, before=chunk.before + self.before)
        if bad is not None:
            bad += shifted(skipped or (), self.before)


def renumbered(table: Table, before: int) -> Table:
    """Return a piece with the numbers of rows of the whole, of which so many are before it."""
    return table if before == 0 else Renumbered(table.path, table.columns, table=table, before=before)


def shifted(bad: Sequence[BadRow], before: int) -> list[BadRow]:
    """Return bad rows of a piece as those of the whole."""
    return [replace(row, row=row.row + before) for row in bad]
