"""A table that lies in several files: the shards of a folder, or all that match a pattern."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from vicinal._remote import RemotePath, is_remote
from vicinal.tables.base import ROWS, BadRow, Chunk, Column, Table
from vicinal.tables.file_access import fingerprint, identity, links_left_out, suffix_of


@dataclass(frozen=True, eq=False)
class Shards(Table):
    """Tables with the same columns, one after the other; rows are counted through all of them."""

    parts: tuple[Table, ...] = field(default=(), repr=False)
    part_names: tuple[str, ...] = ()
    """What each part is called, where they have names."""
    digest: str | None = None
    """The fingerprint, where it is not that of the parts."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files it is read from."""
        return tuple(file for part in self.parts for file in part.files)

    @property
    def is_text(self) -> bool:
        """Whether cells are text that is parsed whenever it is read."""
        return all(part.is_text for part in self.parts)

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        wanted = list(self.columns if names is None else names)
        before = 0
        for part, name in zip(self.parts, self.part_names or [""] * len(self.parts), strict=True):
            skipped: list[BadRow] | None = None if bad is None else []
            last = 0
            for chunk in part.chunks(wanted, rows, bad=skipped):
                last = int(chunk.rows[-1])
                parts = [name] * len(chunk) if name else chunk.parts
                yield replace(chunk, rows=chunk.rows + before, before=chunk.before + before, parts=parts)
            if bad is not None and skipped:
                last = max(last, skipped[-1].row)
                bad += [BadRow(row.row + before, f"{part.path.name}: {row.reason}") for row in skipped]
            before += last

    def fingerprint(self) -> str:
        """Return a hash of the contents in order."""
        return self.digest or self.fingerprint_of([part.fingerprint() for part in self.parts])

    def fingerprint_of(self, parts: Sequence[str]) -> str:
        """Return the hash, given those of its parts."""
        names = self.part_names or [""] * len(self.parts)
        return fingerprint(*((name + part).encode() for name, part in zip(names, parts, strict=True)))


def is_pattern(path: Path) -> bool:
    """Return whether a path is a pattern: it has wildcards, and no such file exists.

    Returns
    -------
    bool
        True for a pattern such as `part-*.csv`.

    Examples
    --------
    >>> is_pattern(Path("part-*.csv")), is_pattern(Path("part-1.csv"))
    (True, False)
    """
    if isinstance(path, RemotePath):
        return path.is_pattern
    return glob.has_magic(str(path)) and not path.exists()


def matches(pattern: Path, is_table: Callable[[Path], bool]) -> list[Path]:
    """Return the tables that a pattern matches."""
    if isinstance(pattern, RemotePath):
        return [path for path in pattern.matching() if is_table(path)]
    paths = [Path(name) for name in sorted(glob.glob(str(pattern), recursive=True))]
    return [path for path in paths if is_table(path)]


def shard_files(folder: Path, is_table: Callable[[Path], bool]) -> list[Path]:
    """Return the tables of a folder if it holds tables of one form; notes in .txt files are left aside."""
    visible = [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "_"))]
    files = [path for path in visible if is_table(path) and not path.is_dir()]
    forms = {suffix_of(path) for path in files}
    forms = forms - {".txt"} or forms
    if len(forms) > 1:
        said = ", ".join(sorted(forms))
        raise ValueError(f"{str(folder)!r} holds tables of several forms ({said}): pass a pattern such as '*.csv'")
    return [path for path in files if suffix_of(path) in forms]


def open_shards(path: Path, files: Sequence[Path], opener: Callable[[Path], Table]) -> Table:
    """Open several files as one table: the columns of the first, which all must have. Each real file counts once."""
    once = _real_files(files)
    parts = [opener(file) for file in once]
    table = parts[0] if len(parts) == 1 else joined_tables(path, parts)
    links = len(files) - len(once)
    return replace(table, notes=(*table.notes, links_left_out(links))) if links else table


def joined_tables(
    path: Path, parts: Sequence[Table], *, names: Sequence[str] = (), digest: str | None = None
) -> Shards:
    """Return tables as one: the columns of the first, which all must have.

    Parameters
    ----------
    path
        What the whole is called.
    parts, names
        The tables, and what each is called.
    digest
        The fingerprint, where it is not that of the parts.
    """
    first = parts[0]
    for part in parts[1:]:
        missing = next(islice((name for name in first.columns if name not in part.columns), 1), None)
        if missing is not None:
            raise ValueError(f"{str(part.path)!r} lacks the column {missing!r} of {first.path.name!r}")
        if part.classes != first.classes:
            raise ValueError(f"{str(part.path)!r} names other classes than {first.path.name!r}")
    return Shards(
        path,
        {name: _common([part.columns[name] for part in parts]) for name in first.columns},
        classes=first.classes,
        repeated=first.repeated,
        notes=(
            *(() if names else (f"{len(parts)} files are read as one table",)),
            *dict.fromkeys(note for part in parts for note in part.notes),
        ),
        parts=tuple(parts),
        part_names=tuple(names),
        digest=digest,
    )


def _common(columns: Sequence[Column]) -> Column:
    widths, rows = {column.width for column in columns}, [column.n_rows for column in columns]
    known = [n for n in rows if n is not None]
    return Column(
        any(column.nested for column in columns),
        widths.pop() if len(widths) == 1 else None,
        sum(known) if len(known) == len(rows) else None,
    )


def _real_files(paths: Sequence[Path]) -> list[Path]:
    """Return the paths without further names of the same file."""
    first: dict[object, Path] = {}
    for path in paths:
        if is_remote(path):
            first[str(path)] = path
            continue
        real = Path(os.path.realpath(path))
        first.setdefault(identity(path, real) if os.path.exists(path) else real, path)  # else the opener says why not
    return list(first.values())
