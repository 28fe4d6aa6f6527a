"""Tables to learn from: which columns hold what, which rows can be used, and how they become features or texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vicinal._checks import Argument, Sentence, joined
from vicinal.data.files import give_up, limit_of, listed, part_of
from vicinal.data.kinds import Scan, columns_of, kinds_of, scan_table
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.rows import Rows
from vicinal.data.splitting import PARTS, Positions
from vicinal.data.tabular import fit_tabular
from vicinal.data.task import Unsplit
from vicinal.data.text import fit_text, texts_of
from vicinal.tables import BadRow, Table, is_table, joined_tables, open_table

__all__ = ["TableOptions", "from_table", "open_split_tables", "plain", "split_tables"]

#: What the target column is called when nobody says.
_USUAL_TARGETS = (("target", "label", "class"), ("y",))
#: A target of more different numbers than this is a quantity, if some of them occur once.
_FEW = 20


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


def from_table(table: Table, options: TableOptions) -> Unsplit:
    """Return the rows of a table, as texts or as features."""
    _check_kind(table, options)
    notes = list(table.notes)
    target = options.target
    if target is None:
        target = _usual_target(table)
        notes.append(f"target: {target!r}")
    scan = scan_table(table, table.require_column(target, "target"))
    if not scan.readable.any():
        raise ValueError(f"{table.name!r} has no rows{f': {scan.bad[0]}' if scan.bad else ''}")
    if not options.known_classes:
        _check_classes(scan, target)
    kinds = kinds_of(scan.summaries)
    commas = [name for name, summary in scan.summaries.items() if summary.decimal_commas]
    notes += [f"column {name!r} has decimal commas" for name in commas]
    columns = _text_columns(table, target, options, kinds)
    if columns:
        return _from_texts(table, scan, columns, target, options, notes)
    return _from_features(table, scan, kinds, target, options, notes)


def _from_features(
    table: Table, scan: Scan, kinds: Mapping[str, str], target: str, options: TableOptions, notes: list[str]
) -> Unsplit:
    used, more = columns_of(kinds)
    if not used:
        reasons = joined("; ", more) if more else "only the target"
        raise ValueError(Sentence(f"{table.name!r} has no column to learn from (", reasons, ")"))
    numeric = sum(kinds[name] == "number" for name in used)
    notes += [f"kind: tabular, {numeric} numeric and {len(used) - numeric} categorical columns", *more]
    labels, skipped = _usable(scan, target, scan.bad, options.max_bad)
    notes += [*skipped, *_copies(scan.hashes[labels >= 0])]

    def fit(train: Positions) -> tuple[Preprocessing, Sequence[Any] | Tensor, list[str]]:
        chosen = np.zeros(scan.n_rows, np.bool_)
        chosen[train] = True
        features, more = fit_tabular(table, chosen, used, kinds, target)
        encoded = features.encode(table, n=scan.n_rows)
        return features, encoded.features, [*more, *(note for note in encoded.notes if "count as missing" in note)]

    origins = Rows(table, scan.n_rows)
    return Unsplit("tabular", origins, labels, scan.names, fit, table.fingerprint(), notes, scan.parts)


def _from_texts(
    table: Table, scan: Scan, columns: Sequence[str], target: str, options: TableOptions, notes: list[str]
) -> Unsplit:
    texts: list[tuple[str, ...]] = [("",) * len(columns)] * scan.n_rows
    for chunk in table.chunks(columns, bad=[]):
        for row, fields in zip(chunk.rows.tolist(), texts_of(chunk, columns), strict=True):
            texts[row - 1] = fields
    what = "pairs of texts" if len(columns) == 2 else "text"
    notes.append(f"kind: {what}, from {listed([repr(name) for name in columns])}")
    others = [repr(name) for name in table.columns if name not in (*columns, target)]
    if others:
        instead = Argument("kind", "tabular"), " learns from such columns instead"
        notes.append(Sentence(f"ignored: {listed(others)}; ", *instead))
    empty = [i for i, fields in enumerate(texts) if scan.readable[i] and not all(field.strip() for field in fields)]
    labels, skipped = _usable(scan, target, [*scan.bad, *(BadRow(i + 1, "no text") for i in empty)], options.max_bad)
    used = [texts[i] for i in np.flatnonzero(labels >= 0)]
    notes += [*skipped, *_copies(np.array([hash(fields) for fields in used], np.int64))]

    def fit(train: Positions) -> tuple[Preprocessing, Sequence[Any] | Tensor, list[str]]:
        words, more = fit_text(texts, train.tolist(), columns, target, options.tokenizer, options.max_length)
        return words, texts, more

    return Unsplit("text", plain(texts), labels, scan.names, fit, table.fingerprint(), notes, scan.parts)


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
    """Refuse a target that is a quantity, or a text: too many values, or numbers that occur once."""
    counts = np.bincount(scan.labels[scan.labels >= 0], minlength=len(scan.names))
    n, distinct = int(counts.sum()), len(scan.names)
    values = [_number(name) for name in scan.names]
    numeric = not any(np.isnan(values))
    fractions = numeric and any(value % 1 for value in values)
    if distinct <= _FEW or not (fractions or distinct > 0.5 * n or (numeric and (counts == 1).any())):
        return
    what = "numbers" if numeric else "values"
    advice = "put its values into a few groups first" + "; numbers are not predicted here, only classes" * numeric
    raise ValueError(
        f"the target {target!r} has {distinct} different {what} in {n} rows, so it is no class: choose another column, "
        f"or {advice}"
    )


def _number(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return np.nan


def _usable(
    scan: Scan, target: str, bad: Sequence[BadRow], max_bad: float | int
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the class of each row, -1 for rows that cannot be used, and a note on these if they are few enough."""
    missing = np.flatnonzero(scan.readable & (scan.labels < 0))
    if len(missing) > limit_of(max_bad, scan.n_rows):
        rows = listed([f"row {i + 1:,}" for i in missing], n=3)
        raise ValueError(
            Sentence(
                f"the target {target!r} is missing in {len(missing)} of {scan.n_rows} rows ({rows}): fill it in, "
                "remove these rows (they can be predicted later, from their own file), or skip them with a larger ",
                Argument("max_bad"),
            )
        )
    bad = sorted([*bad, *(BadRow(int(i) + 1, "no class") for i in missing)], key=lambda row: row.row)
    notes = give_up(list(map(str, bad)), scan.n_rows, "rows", "could not be read", max_bad)
    labels = scan.labels.copy()
    labels[[row.row - 1 for row in bad]] = -1
    return labels, notes


def _copies(hashes: NDArray[Any]) -> list[str]:
    copies = int((np.diff(np.sort(hashes)) == 0).sum())
    if not copies:
        return []
    return [f"{copies} of {len(hashes)} rows are copies of others: a random split has some on both sides"]


def _text_columns(table: Table, target: str, options: TableOptions, kinds: Mapping[str, str]) -> list[str]:
    """Return the one or two columns of a text task; none for a tabular one."""
    if options.text is not None:
        columns = [options.text] if isinstance(options.text, str) else list(options.text)
        for name in columns:
            table.require_column(name, "text")
        if target in columns:
            raise ValueError(
                Sentence(Argument("text"), " and ", Argument("target"), f" are the same column, {target!r}")
            )
    elif options.kind == "tabular":
        columns = []
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
