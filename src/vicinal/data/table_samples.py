"""Tables to learn from: which columns hold what, which rows can be used, and what keeps rows together in a split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, Sentence
from vicinal.data.class_folders import check_bad_limit, listed, part_of
from vicinal.data.dates import date_parts, is_date
from vicinal.data.kind import Fit, NewData, Request, Samples
from vicinal.data.names import default_target
from vicinal.data.options import ReadOptions, SplitOptions, TableOptions, TextOptions, bad_limit
from vicinal.data.splitting import PARTS, Labels, Positions, as_positions, position_type
from vicinal.data.table_scan import Scan, kinds_of, names_and_parts, scan_table
from vicinal.tables import BadRow, Table, is_table, open_table
from vicinal.tables.column_values import distinct, names_of
from vicinal.tables.number_format import NumberFormat, read_numbers
from vicinal.tables.shards import joined_tables

Value = TypeVar("Value", bound=np.generic)

#: A target with more different numbers than this is a quantity, if some of them occur once.
_FEW = 20
#: If fewer than this share of the rows are different, rows are counts of combinations, and may be on both sides.
_FEW_DIFFERENT = 0.2
#: Duplicates among more rows than this are looked for in parts, to save memory.
_MANY = 2**20
#: A column that is filled in fewer rows than this share does not make a table of a file of texts.
_FEWEST_FILLED = 0.05


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


@dataclass(frozen=True, eq=False)
class ScannedTable:
    """A table after one pass over it: what each column holds, and what its rows are to be."""

    table: Table
    request: Request
    target: str
    scan: Scan
    kinds: Mapping[str, str]
    """What each column holds, or why it is not learned from."""
    notes: tuple[str, ...]

    @classmethod
    def of(cls, table: Table, request: Request) -> ScannedTable:
        """Read a table once to find its target and what each column holds."""
        _check_kind(table, request)
        notes = list(table.notes)
        target = request.target
        if target is None:
            target = default_target(table)
            notes.append(f"target: {target!r}")
        table.require_column(target, "target")
        scan = scan_table(table, target, request.labels, request.options(ReadOptions), request.readers)
        if not scan.readable.any():
            raise ValueError(f"{table.name!r} has no rows{f': {scan.bad[0]}' if scan.bad else ''}")
        if not request.known_classes:
            _check_classes(scan, target)
        found = kinds_of(scan.summaries)
        if request.fitted is not None:  # columns hold what they held when they were fitted
            found |= {name: kind for name, kind in request.fitted.column_kinds().items() if name in found}
        kinds = _marked(found, table, target, request)
        return cls(table, request, target, scan, kinds, (*notes, *scan.notes()))

    @property
    def texts_beside(self) -> list[str]:
        """The texts among other columns, which are learned from together; almost empty columns are no others."""

        def counts(name: str) -> bool:
            summary = self.scan.summaries[name]
            filled = summary.fixed_kind is not None or summary.filled >= _FEWEST_FILLED * summary.n
            return filled and self.kinds[name] in ("number", "category", "date")

        if self.request.published or not any(map(counts, self.kinds)):
            return []
        return [name for name, kind in self.kinds.items() if kind in ("text", "sparse")]

    @property
    def text_columns(self) -> list[str]:
        """The one or two columns of a text task; none for a tabular one."""
        asked = self.request.options(TextOptions)
        kind = self.request.kind
        columns = list(asked.columns)
        if columns:
            for name in columns:
                self.table.require_column(name, "text")
            for name in (self.target, *self.request.labels):
                if name in columns:
                    same = f" are the same column, {name!r}"
                    raise ValueError(Sentence(Argument("text"), " and ", Argument("target"), same))
        elif kind == "tabular" or (kind is None and asked.tokenizer is None and self.texts_beside):
            return []  # a tokenizer belongs to a network for texts, so texts are meant where one is named
        else:
            columns = [name for name, of in self.kinds.items() if of == "text"]
            if kind == "text" and not columns:
                strings = [repr(name) for name, of in self.kinds.items() if of in ("category", "id")]
                where = f"no column of {self.table.name!r} looks like text: pass "
                raise ValueError(Sentence(where, Argument("text"), f", one of {listed(strings, n=20)}"))
        if len(columns) > 2:
            rule = " must be one column, or two for pairs: choose among "
            raise ValueError(Sentence(Argument("text"), rule, listed([repr(name) for name in columns], n=20)))
        return columns

    def samples(
        self,
        kind: str,
        *,
        origins: Sequence[object],
        fit: Fit,
        bad: Sequence[BadRow],
        hashes: NDArray[np.int64],
        equal: str,
        notes: Sequence[str],
    ) -> Samples:
        """Return the rows as samples of some kind.

        Parameters
        ----------
        kind, origins, fit
            As in `Samples`.
        bad
            The rows that cannot be used, beside those without a class.
        hashes
            Equal for duplicates.
        equal
            What a note says of duplicates, after their number: "texts are duplicates".
        notes
            Sentences for the user.
        """
        labels, skipped = _usable(self.scan, self.target, bad, self.request.max_bad)
        splitting = _splitting(self, labels, hashes, equal)
        return Samples(
            kind=kind,
            origins=origins,
            labels=labels,
            classes=self.scan.names,
            fit=fit,
            fingerprint=self.request.readers.fingerprint(self.table),
            notes=[*self.notes, *notes, *skipped, *splitting.notes],
            parts=self.scan.parts,
            groups=splitting.groups,
            weights=_weights(self, labels),
            order=splitting.order,
        )


def new_rows(table: Table, new: NewData, bad: Sequence[BadRow], max_bad: float | int, target: str | None) -> NewData:
    """Return new data of a table with their classes, if there is a `target`, unless too many rows are bad."""
    n = len(new.items)
    if not n:
        raise ValueError(f"{table.name!r} has no rows")
    skipped = check_bad_limit(list(map(str, bad)), n, "rows", "could not be read", max_bad)
    names, parts = names_and_parts(table, target, n)
    return replace(new, names=names, parts=parts, notes=[*table.notes, *skipped, *new.notes])


def _check_kind(table: Table, request: Request) -> None:
    if request.kind not in (None, "tabular", "text"):
        fitting = f" does not fit the table {table.name!r}: pass 'tabular' or 'text'"
        raise ValueError(Sentence(Argument("kind", request.kind), fitting))
    text = request.options(TextOptions).text
    if request.kind == "tabular" and text is not None:
        one, other = Argument("text", text), Argument("kind", "tabular")
        raise ValueError(Sentence(one, " makes a text task, but ", other, " was asked for: leave one out"))


def _check_classes(scan: Scan, target: str) -> None:
    """Refuse a target that is a quantity, a date or a text: too many values, or numbers that occur once."""
    counts = np.bincount(scan.labels[scan.labels >= 0], minlength=len(scan.names))
    n, distinct = int(counts.sum()), len(scan.names)
    # Class names are few, so this costs nothing, whatever the number of rows.
    values = read_numbers(np.array(scan.names, dtype=str)).values
    numeric = not np.isnan(values).any()
    fractions = numeric and bool((values % 1).any())
    dates = not numeric and all(map(is_date, scan.names))
    # Few values are classes, however they look: ratings are numbers, and so are years of a short study.
    if distinct <= _FEW or not (fractions or dates or distinct > 0.5 * n or (numeric and (counts == 1).any())):
        return
    what = "numbers" if numeric else "dates" if dates else "values"
    advice = "put its values into a few groups first" + "; numbers are not predicted here, only classes" * numeric
    raise ValueError(
        f"the target {target!r} has {distinct} different {what} in {n} rows, so it cannot be a class: choose another "
        f"column, or {advice}"
    )


def _usable(scan: Scan, target: str, bad: Sequence[BadRow], max_bad: float | int) -> tuple[Labels, list[str]]:
    """Return the class of each row, -1 for rows that cannot be used, and a note on these if they are few enough."""
    # Rows without a target are counted apart from unreadable ones, since the remedy is another.
    missing = np.flatnonzero(scan.readable & (scan.labels < 0))
    if len(missing) > bad_limit(max_bad, scan.n_rows):
        rows = listed([f"row {i + 1:,}" for i in missing], n=3)
        raise ValueError(
            Sentence(
                f"the target {target!r} is missing in {len(missing)} of {scan.n_rows} rows ({rows}): fill it in, "
                "remove these rows (they can be predicted later, from their own file), or skip them with ",
                Argument("max_bad", len(missing)),
            )
        )
    why = "could not be read" if not len(missing) else "cannot be used" if bad else f"have no {target!r}"
    every = sorted([*bad, *(BadRow(int(i) + 1, "no class") for i in missing)], key=lambda row: row.row)
    shown = list(map(str, every)) if bad else [f"row {row.row:,}" for row in every]
    notes = check_bad_limit(shown, scan.n_rows, "rows", why, max_bad)
    labels = scan.labels.copy()
    labels[[row.row - 1 for row in every]] = -1
    return labels, notes


def _marked(kinds: dict[str, str], table: Table, target: str, request: Request) -> dict[str, str]:
    """Return the kinds of columns with those marked that are not to be learned from."""
    split = request.options(SplitOptions)
    marked: dict[str, str] = {}
    split_by = [(argument, name) for argument in ("group", "time") if (name := getattr(split, argument)) is not None]
    table_options = request.options(TableOptions)
    weights = [] if table_options.weight is None else [("weight", table_options.weight)]
    for argument, name in [*(("drop", name) for name in table_options.drop), *split_by, *weights]:
        table.require_column(name, argument)
        if name in (target, *request.labels):
            raise ValueError(Sentence(Argument(argument, name), " is the target: it cannot be both"))
        marked[name] = "unwanted" if argument == "drop" else argument
    if len(split_by) > 1:
        both = " cannot both split the rows: leave one out"
        raise ValueError(Sentence(Argument("group", split.group), " and ", Argument("time", split.time), both))
    return {name: marked.get(name, kind) for name, kind in kinds.items()}


@dataclass(frozen=True, eq=False)
class _Splitting:
    """What the split goes by, beside the classes."""

    groups: Positions | None
    order: NDArray[np.float64] | None
    notes: list[str]


def _splitting(source: ScannedTable, labels: Labels, hashes: NDArray[np.int64], equal: str) -> _Splitting:
    """Return what stays together in the split, the groups asked for or duplicates, or the order of time."""
    scan, split = source.scan, source.request.options(SplitOptions)
    usable = labels >= 0
    if split.group is not None:
        groups = row_groups(scan.rows(), split.group, scan.n_rows, scan)
        n_groups = len(np.unique(groups[usable]))
        return _Splitting(groups, None, [f"{n_groups} groups by {split.group!r}, each on one side of the split"])
    if split.time is not None:
        order, notes = _time(split.time, scan)
        return _Splitting(None, order, [f"split by {split.time!r}: the latest rows are the test set", *notes])
    n, n_different = int(usable.sum()), _n_distinct(hashes, usable)
    duplicates = n - n_different
    if not duplicates:
        return _Splitting(None, None, [])
    said = f"{duplicates:,} of {n:,} {equal if duplicates > 1 else equal.replace('are duplicates', 'is a duplicate')}"
    if source.request.published or scan.parts is not None:
        return _Splitting(None, None, [f"{said}: some may be on both sides of the split"])
    if n_different < _FEW_DIFFERENT * n:
        # Counts of a few combinations of values, such as Titanic by class, sex and age: whole combinations cannot be
        # held out, and to meet them again is what the model is for.
        return _Splitting(None, None, [f"{said}, of only {n_different:,} different ones: they are split freely"])
    return _Splitting(_duplicates(hashes, usable), None, [f"{said}: such rows stay on one side of the split"])


def _n_distinct(hashes: NDArray[np.int64], usable: NDArray[np.bool_]) -> int:
    """Return how many different values there are."""
    n_different = 0
    for chosen in _parts(hashes, usable):
        values = np.sort(hashes[chosen])
        n_different += int(np.count_nonzero(values[1:] != values[:-1])) + (len(values) > 0)
    return n_different


def _duplicates(hashes: NDArray[np.int64], usable: NDArray[np.bool_]) -> Positions:
    """Return for each row the first of its duplicates, in half the memory of the hashes."""
    first = np.arange(len(hashes), dtype=position_type(len(hashes)))
    for chosen in _parts(hashes, usable):
        rows = as_positions(np.flatnonzero(chosen))
        rows = rows[np.argsort(hashes[rows], kind="stable")]
        values = hashes[rows]
        starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]])) if len(rows) else rows
        first[rows] = np.repeat(rows[starts], np.diff(starts, append=len(rows)))
    return first


def _parts(hashes: NDArray[np.int64], usable: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    """Yield which rows have hashes in a part of their range: a sixteenth of it if there are many rows."""
    # Sorting needs a copy of the hashes. A part at a time bounds it to a sixteenth.
    step = 2**60 if len(hashes) > _MANY else 2**64
    for low in range(-(2**63), 2**63, step):
        yield usable & (hashes >= low) & (hashes <= low + step - 1)


def _weights(source: ScannedTable, labels: Labels) -> NDArray[np.float64] | None:
    """Return how much each row counts, `[N]`; None where no column says it."""
    column = source.request.options(TableOptions).weight
    if column is None:
        return None
    form = source.scan.format(column)["form"]
    return row_weights(source.scan.rows(), column, form, labels >= 0, source.scan)


def row_weights(
    table: Table, column: str, form: NumberFormat | None, usable: NDArray[np.bool_], scan: Scan | None = None
) -> NDArray[np.float64]:
    """Return how much each row counts, `[N]`: a number of at least 0 in every row that is `usable`.

    With a `scan` the table holds the rows of this process alone.
    """
    weights = np.zeros(len(usable))

    def read() -> None:
        for chunk in table.chunks([column], bad=[]):
            weights[chunk.rows - 1] = read_numbers(chunk[column], form).values

    weights = _of_all(scan, weights, read)
    bad = np.flatnonzero(~((weights >= 0) & (weights < np.inf)) & usable)
    if len(bad):
        got = "no number" if np.isnan(weights[bad[0]]) else f"{weights[bad[0]]:g}"
        more = f", and so in {len(bad) - 1:,} others" if len(bad) > 1 else ""
        held = f" must hold numbers of at least 0, got {got} in row {bad[0] + 1:,} of {table.name!r}{more}"
        raise ValueError(Sentence(Argument("weight", column), held))
    return weights


def _of_all(scan: Scan | None, values: NDArray[Value], read: Callable[[], None]) -> NDArray[Value]:
    """Return values of all rows `[N]`, given what reads those of this process into their places."""
    if scan is None:
        read()
        return values
    scan.readers.together(read)
    return scan.joined(values)


def row_groups(table: Table, column: str, n: int, scan: Scan | None = None) -> Positions:
    """Return the number of each row's group; a row without one is a group of its own. `scan` as in `row_weights`."""
    codes: dict[str, int] = {}
    # Numbers of groups come after those of rows, of which one without a group keeps its own.
    # A row without a group is alone. To put all of them into one group would hold them out together.
    groups = np.arange(n, dtype=position_type(2 * n))

    def read() -> list[str]:
        for chunk in table.chunks([column], bad=[]):
            place, values = distinct(chunk[column])
            known = [codes.setdefault(name, n + len(codes)) if name else -1 for name in names_of(values)]
            numbers = np.array([*known, -1], np.int64)[place]
            rows = chunk.rows - 1
            groups[rows] = np.where(numbers >= 0, numbers, groups[rows])
        return list(codes)

    if scan is None:
        read()
        return groups
    names = scan.readers.together(read)
    every = {name: n + k for k, name in enumerate(dict.fromkeys(name for some in names for name in some))}
    numbers = np.array([every[name] for name in codes], groups.dtype)
    named = groups >= n
    groups[named] = numbers[groups[named] - n]
    return scan.joined(groups)


def _time(column: str, scan: Scan) -> tuple[NDArray[np.float64], list[str]]:
    """Return where each row stands in time, from dates or numbers; one without goes first, to the training set."""
    order = np.full(scan.n_rows, -np.inf)
    summary, form = scan.summaries[column], scan.format(column)
    dated = summary.kind() == "date"
    if dated and form["times"]:
        why = " holds times of day without a date, which do not order rows: choose a column of dates"
        raise ValueError(Sentence(Argument("time", column), why))

    def read() -> None:
        for chunk in scan.rows().chunks([column], bad=[]):
            if dated:
                values = date_parts(chunk[column], day_first=form["day_first"]).parts["day"]
            else:
                values = read_numbers(chunk[column], form["form"]).values
            order[chunk.rows - 1] = np.where(np.isnan(values), -np.inf, values)

    order = _of_all(scan, order, read)
    missing = int(np.isneginf(order).sum())
    if missing == scan.n_rows or not (dated or 2 * summary.finite > summary.filled):
        raise ValueError(Sentence(Argument("time", column), " holds neither dates nor numbers: choose another column"))
    return order, [f"{missing} rows without {column!r} go to the training set"] if missing else []
