"""Tables to learn from: which columns hold what, which rows can be used, and how they become features or texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, Sentence, joined
from vicinal.data.dates import DATE, date_parts, is_day_first
from vicinal.data.files import give_up, limit_of, listed, part_of
from vicinal.data.kinds import Scan, columns_of, kinds_of, scan_table
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.rows import Rows
from vicinal.data.splitting import PARTS, Labels, Positions, as_positions, position_type
from vicinal.data.tabular import Category, Date, Number, TabularPreprocessing, fit_tabular
from vicinal.data.task import Fit, Fitted, Unsplit
from vicinal.data.text import fit_text, texts_of
from vicinal.data.text_columns import Text
from vicinal.tables import BadRow, Table, distinct, finite_numbers, is_table, joined_tables, names_of, open_table

__all__ = ["TableOptions", "from_table", "open_split_tables", "plain", "split_tables"]

#: What the target column is called when nobody says.
_USUAL_TARGETS = (("target", "label", "class"), ("y",))
#: A target of more different numbers than this is a quantity, if some of them occur once.
_FEW = 20
#: Where fewer than this share of the rows are different, rows are counts of combinations, and equal ones no copies.
_FEW_DIFFERENT = 0.2
#: Of more rows than this, copies are looked for in parts.
_MANY = 2**20
#: A column that is filled in fewer rows than this share does not make a table of a file of texts.
_FEWEST_FILLED = 0.05
#: What a column that was encoded before holds.
_KINDS: dict[type, str] = {Number: "number", Date: "date", Category: "category", Text: "text"}


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
class TableOptions:
    """What `load` was asked for, as far as it concerns tables."""

    target: str | None
    text: str | Sequence[str] | None
    kind: str | None
    max_bad: float | int
    tokenizer: str | None
    max_length: int
    known_classes: bool = False
    """Whether the target holds classes however it looks, as in data sets by name (Abalone: numbers of rings)."""
    published: bool = False
    """Whether it is a data set by name, treated as its papers do: dates and copies as they come, no limits."""
    features: str = "standard"
    drop: Sequence[str] = ()
    group: str | None = None
    time: str | None = None
    labels: Sequence[str] = ()
    """The columns of 0 and 1 whose combination the target is, which are not learned from."""
    fitted: Preprocessing | None = None
    """What encodes the rows, if it is not to be fitted anew."""


def from_table(table: Table, options: TableOptions) -> Unsplit:
    """Return the rows of a table, as texts or as features."""
    _check_kind(table, options)
    notes = list(table.notes)
    target = options.target
    if target is None:
        target = _usual_target(table)
        notes.append(f"target: {target!r}")
    scan = scan_table(table, table.require_column(target, "target"), options.labels)
    if not scan.readable.any():
        raise ValueError(f"{table.name!r} has no rows{f': {scan.bad[0]}' if scan.bad else ''}")
    if not options.known_classes:
        _check_classes(scan, target)
    found = kinds_of(scan.summaries)
    if isinstance(options.fitted, TabularPreprocessing):  # as it was when it was fitted
        found |= {column.name: _KINDS[type(column)] for column in options.fitted.columns if column.name in found}
    kinds = _asked(found, table, target, options)
    commas = [name for name, summary in scan.summaries.items() if summary.decimal_commas]
    if commas:
        named = listed([repr(name) for name in commas], n=20)
        notes.append(
            f"column {named} has decimal commas" if len(commas) == 1 else f"columns {named} have decimal commas"
        )
    written = {name: cell for name, summary in scan.summaries.items() if (cell := summary.written()) is not None}
    notes += [f"column {name!r} is read as numbers, written like {cell!r}" for name, cell in written.items()]
    columns = _text_columns(table, scan, target, options, kinds)
    if columns:
        samples = _texts(table, scan, columns, target, options, notes)
    else:
        samples = _features(table, scan, kinds, target, options, notes)
    labels, skipped = _usable(scan, target, samples.bad, options.max_bad)
    splitting = _splitting(table, scan, labels, samples, options)
    return Unsplit(
        kind=samples.kind,
        origins=samples.origins,
        labels=labels,
        classes=scan.names,
        fit=samples.fit,
        fingerprint=table.fingerprint(),
        notes=[*notes, *skipped, *splitting.notes],
        parts=scan.parts,
        groups=splitting.groups,
        order=splitting.order,
    )


@dataclass(frozen=True, eq=False)
class _Samples:
    """What the rows of a table are to the network."""

    kind: str
    origins: Sequence[object]
    fit: Fit
    bad: Sequence[BadRow]
    """The rows that cannot be used, beside those without a class."""
    hashes: NDArray[np.int64]
    """Equal for rows that are copies of each other."""
    equal: str
    """What copies are called, after their number: "texts are equal to others"."""


def _features(
    table: Table, scan: Scan, kinds: Mapping[str, str], target: str, options: TableOptions, notes: list[str]
) -> _Samples:
    texts = _texts_beside(scan, kinds, options)
    used, more = columns_of(kinds, dates=not options.published, texts=bool(texts))
    if not used:
        reasons = joined("; ", more) if more else "only the target"
        raise ValueError(Sentence(f"{table.name!r} has no column to learn from (", reasons, ")"))
    numeric, dated = (sum(kinds[name] == kind for name in used) for kind in ("number", "date"))
    others = "".join(f", {n} of {what}" for n, what in ((dated, "dates"), (len(texts), "text")) if n)
    categorical = len(used) - numeric - dated - len(texts)
    notes += [f"kind: tabular, {numeric} numeric and {categorical} categorical columns{others}", *more]
    if texts:
        alone = " learns from it alone, by a network for texts; ", Argument("drop", texts[0]), " leaves it out"
        notes.append(
            Sentence(
                f"the words of {listed([*map(repr, texts)])} count beside the other columns: ",
                Argument("text", texts[0]),
                *alone,
            )
        )
    n, parsed = scan.n_rows, scan.parsing.table(used, kinds, scan.bad)

    def fit(train: Positions) -> Fitted:
        chosen = np.zeros(n, np.bool_)
        chosen[train] = True
        if isinstance(options.fitted, TabularPreprocessing):
            encoded = options.fitted.encode(parsed, n=n, new=False)
            return options.fitted, encoded.features, encoded.notes
        how = "unlimited" if options.published and options.features == "standard" else options.features
        features, more = fit_tabular(parsed, chosen, used, kinds, target, features=how)
        encoded = features.encode(parsed, n=n, new=False)
        return features, encoded.features, [*more, *encoded.notes]

    equal = "rows are equal to others in all columns but the target"
    return _Samples("tabular", Rows(table, n), fit, scan.bad, scan.hashes.view(np.int64), equal)


def _texts(
    table: Table, scan: Scan, columns: Sequence[str], target: str, options: TableOptions, notes: list[str]
) -> _Samples:
    texts: list[tuple[str, ...]] = [("",) * len(columns)] * scan.n_rows
    for chunk in table.chunks(columns, bad=[]):
        for row, fields in zip(chunk.rows.tolist(), texts_of(chunk, columns), strict=True):
            texts[row - 1] = fields
    what = "pairs of texts" if len(columns) == 2 else "text"
    notes.append(f"kind: {what}, from {listed([repr(name) for name in columns])}")
    others = [repr(name) for name in table.columns if name not in (*columns, target, *options.labels)]
    if others:
        instead = Argument("kind", "tabular"), " learns from such columns, and from the words of texts"
        notes.append(Sentence(f"ignored: {listed(others)}; ", *instead))
    empty = [i for i, fields in enumerate(texts) if scan.readable[i] and not all(field.strip() for field in fields)]
    bad = [*scan.bad, *(BadRow(i + 1, "no text") for i in empty)]
    hashes = np.array([hash(fields) for fields in texts], np.int64)

    def fit(train: Positions) -> Fitted:
        words, more = fit_text(texts, train.tolist(), columns, target, options.tokenizer, options.max_length)
        return words, texts, more

    return _Samples("text", plain(texts), fit, bad, hashes, "texts are equal to others")


def plain(texts: Sequence[tuple[str, ...]]) -> list[Any]:
    """Return texts as they were: a string, or a tuple for a pair."""
    return [fields[0] if len(fields) == 1 else fields for fields in texts]


def _check_kind(table: Table, options: TableOptions) -> None:
    if options.kind not in (None, "tabular", "text"):
        fitting = f" does not fit the table {table.name!r}: pass 'tabular' or 'text'"
        raise ValueError(Sentence(Argument("kind", options.kind), fitting))
    if options.kind == "tabular" and options.text is not None:
        one, other = Argument("text", options.text), Argument("kind", "tabular")
        raise ValueError(Sentence(one, " makes a text task, but ", other, " was asked for: leave one out"))


def _usual_target(table: Table) -> str:
    for names in _USUAL_TARGETS:
        usual = [name for name in table.columns if name.lower() in names]
        if len(usual) == 1:
            return usual[0]
    columns = listed([repr(name) for name in table.columns], n=20)
    what = f", the column of {table.name!r} that holds the class: one of {columns}"
    raise ValueError(Sentence("pass ", Argument("target"), what, *table.header_hint()))


def _check_classes(scan: Scan, target: str) -> None:
    """Refuse a target that is a quantity, a date or a text: too many values, or numbers that occur once."""
    counts = np.bincount(scan.labels[scan.labels >= 0], minlength=len(scan.names))
    n, distinct = int(counts.sum()), len(scan.names)
    values, _ = finite_numbers(np.array(scan.names, dtype=str))
    numeric = not np.isnan(values).any()
    fractions = numeric and bool((values % 1).any())
    dates = not numeric and all(DATE.fullmatch(name) for name in scan.names)
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
    missing = np.flatnonzero(scan.readable & (scan.labels < 0))
    if len(missing) > limit_of(max_bad, scan.n_rows):
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
    notes = give_up(shown, scan.n_rows, "rows", why, max_bad)
    labels = scan.labels.copy()
    labels[[row.row - 1 for row in every]] = -1
    return labels, notes


def _asked(kinds: dict[str, str], table: Table, target: str, options: TableOptions) -> dict[str, str]:
    """Return the kinds of columns with those marked that are not to be learned from."""
    marked: dict[str, str] = {}
    split_by = [(argument, name) for argument in ("group", "time") if (name := getattr(options, argument)) is not None]
    for argument, name in [*(("drop", name) for name in options.drop), *split_by]:
        table.require_column(name, argument)
        if name in (target, *options.labels):
            raise ValueError(Sentence(Argument(argument, name), " is the target: it cannot be both"))
        marked[name] = "unwanted" if argument == "drop" else argument
    if len(split_by) > 1:
        both = " cannot both split the rows: leave one out"
        raise ValueError(Sentence(Argument("group", options.group), " and ", Argument("time", options.time), both))
    return {name: marked.get(name, kind) for name, kind in kinds.items()}


@dataclass(frozen=True, eq=False)
class _Splitting:
    """What the split goes by, beside the classes."""

    groups: Positions | None
    order: NDArray[np.float64] | None
    notes: list[str]


def _splitting(table: Table, scan: Scan, labels: Labels, samples: _Samples, options: TableOptions) -> _Splitting:
    """Return what stays together in the split: the groups asked for, or copies; or the order of time."""
    usable = labels >= 0
    distinct_rows = _n_different(samples.hashes, usable)
    n, copies = int(usable.sum()), int(usable.sum()) - distinct_rows
    if options.group is not None:
        groups = _groups(table, options.group, scan.n_rows)
        n_groups = len(np.unique(groups[usable]))
        return _Splitting(groups, None, [f"{n_groups} groups by {options.group!r}, each on one side of the split"])
    if options.time is not None:
        order, notes = _time(table, options.time, scan.n_rows)
        return _Splitting(None, order, [f"split by {options.time!r}: the latest rows are the test set", *notes])
    if not copies:
        return _Splitting(None, None, [])
    equal = samples.equal.replace("are", "is", 1) if copies == 1 else samples.equal
    said = f"{copies:,} of {n:,} {equal}"
    if options.published or scan.parts is not None:
        return _Splitting(None, None, [f"{said}: some may be on both sides of the split"])
    if distinct_rows < _FEW_DIFFERENT * n:
        # Counts of a few combinations of values, such as Titanic by class, sex and age: whole combinations cannot be
        # held out, and to meet them again is what the model is for.
        return _Splitting(None, None, [f"{said}, of only {distinct_rows:,} different ones: they are split freely"])
    return _Splitting(_copies(samples.hashes, usable), None, [f"{said}: such rows stay on one side of the split"])


def _n_different(hashes: NDArray[np.int64], usable: NDArray[np.bool_]) -> int:
    """Return how many different values there are."""
    n_different = 0
    for chosen in _parts(hashes, usable):
        values = np.sort(hashes[chosen])
        n_different += int(np.count_nonzero(values[1:] != values[:-1])) + (len(values) > 0)
    return n_different


def _copies(hashes: NDArray[np.int64], usable: NDArray[np.bool_]) -> Positions:
    """Return for each row the first that is equal to it, in half the memory of the hashes."""
    first = np.arange(len(hashes), dtype=position_type(len(hashes)))
    for chosen in _parts(hashes, usable):
        rows = as_positions(np.flatnonzero(chosen))
        rows = rows[np.argsort(hashes[rows], kind="stable")]
        values = hashes[rows]
        starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]])) if len(rows) else rows
        first[rows] = np.repeat(rows[starts], np.diff(starts, append=len(rows)))
    return first


def _parts(hashes: NDArray[np.int64], usable: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    """Yield which rows have hashes in a part of their range, of many rows a sixteenth of it, to spare memory."""
    step = 2**60 if len(hashes) > _MANY else 2**64
    for low in range(-(2**63), 2**63, step):
        yield usable & (hashes >= low) & (hashes <= low + step - 1)


def _groups(table: Table, column: str, n: int) -> Positions:
    """Return the number of each row's group; a row without one is a group of its own."""
    codes: dict[str, int] = {}
    # Numbers of groups come after those of rows, of which one without a group keeps its own.
    groups = np.arange(n, dtype=position_type(2 * n))
    for chunk in table.chunks([column], bad=[]):
        place, values = distinct(chunk[column])
        known = [codes.setdefault(name, n + len(codes)) if name else -1 for name in names_of(values)]
        numbers = np.array([*known, -1], np.int64)[place]
        rows = chunk.rows - 1
        groups[rows] = np.where(numbers >= 0, numbers, groups[rows])
    return groups


def _time(table: Table, column: str, n: int) -> tuple[NDArray[np.float64], list[str]]:
    """Return where each row stands in time, from dates or numbers; one without goes first, to the training set."""
    order = np.full(n, -np.inf)
    day_first: bool | None = None
    for chunk in table.chunks([column], bad=[]):
        values, odd = finite_numbers(chunk[column], decimal_comma=chunk.decimal_comma)
        if odd.mean() > 0.5:
            day_first = is_day_first(chunk[column]) if day_first is None else day_first
            values = date_parts(chunk[column], day_first=day_first)[0]["day"]
        order[chunk.rows - 1] = np.where(np.isnan(values), -np.inf, values)
    missing = int(np.isneginf(order).sum())
    if missing == n:
        raise ValueError(Sentence(Argument("time", column), " holds neither dates nor numbers: choose another column"))
    return order, [f"{missing} rows without {column!r} go to the training set"] if missing else []


def _texts_beside(scan: Scan, kinds: Mapping[str, str], options: TableOptions) -> list[str]:
    """Return the texts among other columns of a table, which are learned from together; almost empty ones are none."""

    def counts(name: str) -> bool:
        summary = scan.summaries[name]
        filled = summary.fixed_kind is not None or summary.filled >= _FEWEST_FILLED * summary.n
        return filled and kinds[name] in ("number", "category", "date")

    if options.published or not any(map(counts, kinds)):
        return []
    return [name for name, kind in kinds.items() if kind in ("text", "sparse")]


def _text_columns(table: Table, scan: Scan, target: str, options: TableOptions, kinds: Mapping[str, str]) -> list[str]:
    """Return the one or two columns of a text task; none for a tabular one."""
    if options.text is not None:
        columns = [options.text] if isinstance(options.text, str) else list(options.text)
        for name in columns:
            table.require_column(name, "text")
        for name in (target, *options.labels):
            if name in columns:
                raise ValueError(
                    Sentence(Argument("text"), " and ", Argument("target"), f" are the same column, {name!r}")
                )
    elif options.kind == "tabular":
        columns = []
    elif options.kind is None and options.tokenizer is None and _texts_beside(scan, kinds, options):
        columns = []  # a tokenizer is that of a network for texts, which was named
    else:
        columns = [name for name, of in kinds.items() if of == "text"]
        if options.kind == "text" and not columns:
            strings = [repr(name) for name, of in kinds.items() if of in ("category", "id")]
            where = f"no column of {table.name!r} looks like text: pass "
            raise ValueError(Sentence(where, Argument("text"), f", one of {listed(strings, n=20)}"))
    if len(columns) > 2:
        rule = " must be one column, or two for pairs: choose among "
        raise ValueError(Sentence(Argument("text"), rule, listed([repr(name) for name in columns], n=20)))
    return columns
