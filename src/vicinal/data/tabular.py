"""Rows of a table: the preprocessing that encodes them column by column, and the tabular kind of data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._atomic import Json
from vicinal._checks import Argument, Sentence, joined, nearest_names, require
from vicinal._typing import Batch
from vicinal.data.class_folders import listed
from vicinal.data.column_encoders import (
    Budget,
    Category,
    Column,
    ColumnFit,
    Date,
    Number,
    Remarks,
    codes_of,
    column_fit,
    column_from,
    numbers_from,
)
from vicinal.data.dates import day_first_of, order_notes
from vicinal.data.feature_matrix import FeatureMatrix
from vicinal.data.kind import Baseline, Fitted, Kind, NewData, Request, Samples, Shown
from vicinal.data.leakage import leakage_warning, leaking_columns
from vicinal.data.options import ReadOptions, SplitOptions, TableOptions
from vicinal.data.preprocessing import TablePreprocessing
from vicinal.data.readers import Readers
from vicinal.data.splitting import Labels, Positions
from vicinal.data.table_rows import Rows
from vicinal.data.table_samples import ScannedTable, new_rows
from vicinal.data.table_scan import Scan, Summary, columns_of
from vicinal.data.target_statistics import ordered, statistics, targets_of
from vicinal.data.task import Split, Task
from vicinal.data.text_columns import Text
from vicinal.models.specification import Inputs
from vicinal.tables import BadRow, Chunk, Table, from_rows
from vicinal.tables.column_values import is_text
from vicinal.tables.missing_values import without_markers
from vicinal.tables.number_format import assumed, decide

#: Rows encoded at a time: their features should fit in a processor's cache.
_ROWS = 2**13
#: The encodings in which categories of too many values have target statistics: not that of published data.
_WITH_STATISTICS = ("standard", "piecewise", "ranked")


class Encoded(NamedTuple):
    """The rows of a table as features."""

    features: Tensor
    """float32 `[N, D]`, zeros for rows that could not be read."""
    readable: NDArray[np.bool_]
    """Which rows could be read, `[N]`."""
    bad: list[BadRow]
    notes: list[str]
    """What there is to say about them."""


@dataclass(frozen=True)
class TabularPreprocessing(TablePreprocessing):
    """How a row becomes the features of a model, by column names."""

    kind: ClassVar[str] = "tabular"
    keeps_tensors: ClassVar[bool] = True

    columns: tuple[Column, ...]
    """How each column is encoded, in the order of the features."""
    target: str
    """The column of classes."""
    ignored: tuple[str, ...] = ()
    """The columns that were left out on purpose: no note is made of them."""
    missing_values: tuple[str, ...] = ()
    """Cells that mean missing."""

    @property
    def width(self) -> int:
        """The number of features D."""
        return sum(column.width for column in self.columns)

    def inputs(self, n_classes: int) -> Inputs:
        """Return the number of features, the places of those that are no pieces, and what trees see."""
        smooth = sorted([*self.plain, *self._ranks])
        of_categories = {place for start, stop in self.categories for place in range(start, stop)}
        return Inputs(
            kind=self.kind,
            n_classes=n_classes,
            input_shape=(self.width,),
            plain=None if len(smooth) == self.width else smooth,
            numbers=[place for place in self.plain if place not in of_categories],
            categories=self.categories,
        )

    @property
    def feature_names(self) -> list[str]:
        """What each number of the input is, in order: `age`, `age, piece 1 of 16`, `colour = red`, `born: year`."""
        return [name for column in self.columns for name in column.feature_names()]

    @property
    def plain(self) -> list[int]:
        """The places of the features without pieces and ranks: standardised numbers, categories, words, missing."""
        places: list[int] = []
        start = 0
        for column in self.columns:
            stop = start + column.width
            if isinstance(column, Category | Text):
                places += range(start, stop)
            else:
                places += [place for place, _ in numbers_from(start, column)]
                places += [stop - 1] if column.missing else []
            start = stop
        return places

    @property
    def categories(self) -> list[tuple[int, int]]:
        """The first place of the features of each category, and the one after its last."""
        starts = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
        begun = zip(starts, self.columns, strict=False)
        return [(start, start + column.n_one_hot) for start, column in begun if isinstance(column, Category)]

    @property
    def _ranks(self) -> list[int]:
        """The places of the ranks."""
        starts = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
        dated = [(start, c) for start, c in zip(starts, self.columns, strict=False) if isinstance(c, Number | Date)]
        numbers = [pair for start, column in dated for pair in numbers_from(start, column)]
        return [place + 1 + number.n_pieces for place, number in numbers if number.ranks]

    def __call__(self, item: Any, *, augment: str = "none", generator: torch.Generator | None = None) -> Batch:
        """Return one row as features `[D]`; a row is a mapping from column names, or encoded already."""
        if isinstance(item, Tensor):
            return item
        table, notes = from_rows([dict(item)]), list[str]()
        encoded = self.adapted(table, ReadOptions(), notes).encode(without_markers(table, self.missing_values))
        if encoded.bad:
            raise ValueError(f"the row cannot be read: {encoded.bad[0].reason}")
        return encoded.features[0]

    def adapted(self, table: Table, how: ReadOptions, notes: list[str]) -> TabularPreprocessing:
        """Return the same encoding for a table whose numbers or dates are written otherwise, and add notes on that.

        The formats of the training data hold unless all cells of the table tell otherwise; see `decide`. Dates keep
        the order of the training data, if these had one.
        """
        read = [column for column in self.columns if isinstance(column, Number | Date) and column.name in table.columns]
        summaries = {column.name: Summary(column.name) for column in read}
        semicolons = False
        for chunk in table.chunks(list(summaries), bad=[]):
            semicolons = chunk.decimal_comma
            if not any(is_text(chunk[name]) for name in summaries):
                break  # typed columns of a typed table
            for name, summary in summaries.items():
                if is_text(chunk[name]):
                    summary.add(chunk[name])
        trained = {column.name: column.format for column in read if isinstance(column, Number)}
        evidence = {name: summaries[name].evidence for name in trained}
        given = {"decimal": how.decimal, "thousands": how.thousands}
        formats = decide(evidence, **given, trained=trained, semicolons=semicolons)
        orders = {column.name: column.day_first for column in read if isinstance(column, Date)}
        found = day_first_of({name: summaries[name].dates for name in orders}, how.day_first)
        for name, order in orders.items():
            if order is None or how.day_first is not None:
                notes += order_notes(name, summaries[name].dates, found[name], how.day_first is not None)
                orders[name] = found[name]
        for name, form in formats.items():
            if form != trained[name] and evidence[name].n_numbers > evidence[name].plain:
                notes += assumed(name, evidence[name], form, given=how.decimal is not None)
        columns = [
            replace(column, format=formats[column.name])
            if isinstance(column, Number) and column.name in formats
            else replace(column, day_first=orders[column.name])
            if isinstance(column, Date) and column.name in orders
            else column
            for column in self.columns
        ]
        return replace(self, columns=tuple(columns))

    def encode(self, table: Table) -> Encoded:
        """Return the rows of a new table as features.

        Columns are found by name. New ones are ignored and named; one that the table lacks counts as missing in every
        row and is named, unless another is called nearly like it. Memory is that of the features and of a chunk.
        """
        n = table.count_rows()
        features = FeatureMatrix(n, self.width)
        readable = np.zeros(n, np.bool_)
        bad: list[BadRow] = []
        notes: list[str] = []
        for rows, block in self.blocks(table, bad, notes, into=features):
            readable[rows - 1] = True
            features.put(rows, block.numpy())
        return Encoded(features.tensor(), readable, bad, notes)

    def encode_scanned(self, table: Table, scan: Scan) -> tuple[Tensor, list[str]]:
        """Return the rows of the table that this was fitted to as features, zeros for those that could not be read.

        Parameters
        ----------
        table
            The rows that this process reads.
        scan
            What is known of all rows.
        """
        remarks = self._no_remarks()
        with scan.readers.features(scan.sizes, self.width) as features:

            def encode() -> dict[str, Remarks]:
                for rows, block in self._encoded(table, [], remarks, new=False, into=features):
                    features.put(rows, block.numpy())
                return remarks

            remarks, *others = scan.readers.together(encode)
        for other in others:
            for name, remark in remarks.items():
                remark.merge(other[name])
        return features.tensor(), self._notes(remarks)

    def blocks(
        self, table: Table, bad: list[BadRow], notes: list[str], *, into: FeatureMatrix | None = None
    ) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Yield numbers of rows, from 1, and their features, float32 `[M, D]`, some rows at a time.

        Parameters
        ----------
        table
            Another table than the one that this was fitted to.
        bad
            Where rows that cannot be read are added.
        notes
            Where all that there is to say is added, the values of columns after the last block.
        into
            The matrix that they will be put into, if they will: most are then written there at once.
        """
        remarks = self._no_remarks()
        yield from self._encoded(table, bad, remarks, new=True, into=into)
        unseen = [note for c in self.columns if isinstance(c, Category) for note in c.notes(remarks[c.name])]
        beyond = [note for c in self.columns if isinstance(c, Number) for note in c.beyond(remarks[c.name])]
        notes += _column_mismatch(self._absent(table), self._extra(table), unseen, beyond)
        notes += self._notes(remarks)

    def _no_remarks(self) -> dict[str, Remarks]:
        return {column.name: Remarks() for column in self.columns}

    def _notes(self, remarks: Mapping[str, Remarks]) -> list[str]:
        """Return notes on cells that do not hold what their column holds."""
        return [note for c in self.columns if not isinstance(c, Category) for note in c.notes(remarks[c.name])]

    def _encoded(
        self,
        table: Table,
        bad: list[BadRow],
        remarks: Mapping[str, Remarks],
        *,
        new: bool,
        into: FeatureMatrix | None,
    ) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Yield what `blocks` does; cells of a `new` table that contradict the format of training make bad rows."""
        absent = self._absent(table)
        for read in table.chunks([name for name in remarks if name not in absent], _ROWS, bad=bad):
            chunk = _without_values(read, absent)
            block = np.zeros((len(chunk), self.width), np.float32) if into is None else into.buffer_for(chunk.rows)
            start, kept = 0, np.ones(len(chunk), np.bool_)
            for column in self.columns:
                contrary = column.encode(chunk, block[:, start : start + column.width], remarks[column.name])
                start += column.width
                if new and contrary is not None:
                    bad += _contrary(chunk, column, contrary & kept)
                    kept &= ~contrary
            if kept.all():
                yield chunk.rows, torch.from_numpy(block)
            elif kept.any():
                yield chunk.rows[kept], torch.from_numpy(block[kept])

    def order_statistics(
        self,
        features: Tensor,
        table: Table,
        scan: Scan,
        train: Positions,
        targets: NDArray[np.float64],
        seed: int,
    ) -> None:
        """Give training rows, in place, target statistics that do not know their own target (`ordered`)."""
        starts = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
        for start, column in zip(starts, self.columns, strict=False):
            if not isinstance(column, Category) or column.statistics is None:
                continue
            # A reader that is used again may know other classes.
            if column.statistics.width == targets.shape[1]:
                codes = _codes(table, column.name, column.statistics.values, scan)
                found = ordered(codes[train], targets[train], seed).astype(np.float32)
                place = slice(start + column.n_one_hot, start + column.width)
                features[torch.from_numpy(train.astype(np.int64)), place] = torch.from_numpy(found)

    def _absent(self, table: Table) -> list[str]:
        """Return the columns that a table lacks, if they seem to be left out and not only to be called otherwise."""
        absent = [column.name for column in self.columns if column.name not in table.columns]
        if len(absent) == len(self.columns):
            wanted, given = (listed([repr(name) for name in names], n=20) for names in (absent, table.columns))
            raise ValueError(f"the data have {given}, and no column that the model was trained with: {wanted}")
        unknown = self._extra(table)  # a column that the model knows is no other one by another name
        for name in absent:
            near = nearest_names(name, unknown, key=str.casefold)
            if near.endswith("?"):
                missing = f"the data lack the column {name!r} that the model was trained with"
                raise ValueError(f"{missing}{near} If it is not known, add it without values")
        return absent

    def _extra(self, table: Table) -> list[str]:
        """Return the columns of new data that the model was not trained with."""
        known = {self.target, *self.ignored, *(column.name for column in self.columns)}
        return [name for name in table.columns if name not in known]

    def column_kinds(self) -> dict[str, str]:
        """Return what each encoded column holds."""
        return {column.name: column.kind for column in self.columns}

    def _fields(self) -> dict[str, object]:
        columns = [column.to_dict() for column in self.columns]
        record = {"columns": columns, "target": self.target, "ignored": list(self.ignored)}
        return {**record, **({"missing_values": list(self.missing_values)} if self.missing_values else {})}

    @classmethod
    def _from_fields(cls, record: Json) -> TabularPreprocessing:
        columns = tuple(column_from(column) for column in record["columns"])
        return cls(columns, record["target"], tuple(record["ignored"]), tuple(record.get("missing_values", ())))


def _contrary(chunk: Chunk, column: Column, chosen: NDArray[np.bool_]) -> list[BadRow]:
    """Return the rows whose cells are written in another format than the column's."""
    what = "another decimal mark or unit" if isinstance(column, Number) else "no date in the order of the others"
    return [
        BadRow(int(chunk.rows[i]), f"{what}: {chunk[column.name][i].as_py()!r} in column {column.name!r}")
        for i in np.flatnonzero(chosen).tolist()
    ]


def _without_values(chunk: Chunk, names: Sequence[str]) -> Chunk:
    """Return the same rows with columns that are missing in each."""
    if not names:
        return chunk
    pa = require("pyarrow", "train")
    return replace(chunk, columns={**chunk.columns, **dict.fromkeys(names, pa.nulls(len(chunk), pa.string()))})


def _column_mismatch(
    absent: Sequence[str], extra: Sequence[str], unseen: Sequence[str], beyond: Sequence[str]
) -> list[str]:
    """Return in one line how new rows differ from those of training: how many columns, and which."""
    kinds = {"missing column{}": absent, "extra column{}": extra, "column{} with values not seen in training": unseen}
    kinds["column{} with numbers far beyond those of training"] = beyond
    counts = [f"{len(names)} {what.format('s' * (len(names) > 1))}" for what, names in kinds.items() if names]
    lacking, new = (listed([repr(name) for name in names]) for names in (absent, extra))
    parts = [f"missing in every row: {lacking}"] if absent else []
    parts += [f"ignored: {new}, which the model was not trained with"] if extra else []
    parts += [*unseen, *beyond]
    return [f"unlike the training data: {listed(counts)} ({'; '.join(parts)})"] if counts else []


def fit_tabular(
    table: Table,
    train: NDArray[np.bool_],
    names: Sequence[str],
    kinds: Mapping[str, str],
    target: str,
    *,
    features: str = "standard",
    scan: Scan | None = None,
    targets: NDArray[np.float64] | None = None,
) -> tuple[TabularPreprocessing, list[str]]:
    """Fit each column on the training rows alone, in one pass, and return notes on those that were cut short.

    Parameters
    ----------
    table
        The table, or the rows that this process reads of the one that was scanned.
    train
        Which of the rows of the whole are training rows.
    names, kinds
        The columns to learn from, and what each holds.
    target
        The column with the class.
    features
        One of `FEATURES`.
    scan
        How numbers and dates are written; with decimal points and the month first if not given.
    targets
        The targets of all rows, `[N, J]`, where categories of too many values have statistics of them.
    """
    keeps = features in ("piecewise", "ranked")

    def count() -> dict[str, ColumnFit]:
        fits = {
            name: column_fit(kinds[name], name, keeps=keeps, **({} if scan is None else scan.format(name)))
            for name in names
        }
        for chunk in table.chunks(names, bad=[]):
            chosen = train[chunk.rows - 1]
            if chosen.any():
                for fit in fits.values():
                    fit.add(chunk, chosen)
        return fits

    fits, *others = (Readers() if scan is None else scan.readers).together(count)
    for other in others:
        for name, fit in fits.items():
            fit.merge(other[name])
    n_numbers = sum(kinds[name] in ("number", "date") for name in names)
    budget = Budget.of(features, int(train.sum()), n_numbers)
    fitted = [fit.column(budget) for fit in fits.values()]
    if targets is not None and scan is not None:
        about = table, scan, train, targets
        fitted = [_with_statistics(c, note, *about) if isinstance(c, Category) else (c, note) for c, note in fitted]
    columns = tuple(column for column, _ in fitted if column is not None)
    if not columns:
        raise ValueError("there is no column to learn from: all were left out")
    used = {column.name for column in columns}
    ignored = tuple(name for name in table.columns if name not in used and name != target)
    missing = () if scan is None else tuple(scan.how.missing_values)
    return TabularPreprocessing(columns, target, ignored, missing), [note for _, note in fitted if note is not None]


def _with_statistics(
    column: Category, note: str | None, table: Table, scan: Scan, train: NDArray[np.bool_], targets: NDArray[np.float64]
) -> tuple[Category, str | None]:
    """Return a category of too many values with what targets the training rows of each had, and its note."""
    if not column.pooled or not column.values:
        return column, note
    values = (*column.values, *column.rarer)
    codes = _codes(table, column.name, values, scan)
    found = statistics(values, codes[train], targets[train])
    return replace(column, statistics=found), f"{note}; the targets of {len(values)} values are statistics beside them"


def _codes(table: Table, name: str, values: Sequence[str], scan: Scan) -> NDArray[np.int64]:
    """Return which of some values each row of a scanned table holds, `[N]`, -1 for others."""
    codes = np.full(scan.n_rows, -1, np.int64)
    for chunk in table.chunks([name], bad=[]):
        codes[chunk.rows - 1] = codes_of(chunk[name], values)
    return scan.joined(codes)


class TabularKind(Kind[ScannedTable, TabularPreprocessing]):
    """Rows of a table that become features."""

    name = "tabular"
    preprocessing = TabularPreprocessing
    plural = "rows"

    def open(self, source: ScannedTable, request: Request) -> Samples:
        """Return the rows of a table, whose columns are encoded once they are split."""
        kinds, texts, scan = source.kinds, source.texts_beside, source.scan
        entities = [name for name, summary in scan.summaries.items() if summary.names_entities()]
        used, left_out = columns_of(kinds, dates=not request.published, texts=bool(texts), entities=entities)
        if not used:
            reasons = joined("; ", left_out) if left_out else "only the target"
            raise ValueError(Sentence(f"{source.table.name!r} has no column to learn from (", reasons, ")"))
        numeric, dated = (sum(kinds[name] == kind for name in used) for kind in ("number", "date"))
        others = "".join(f", {n} of {what}" for n, what in ((dated, "dates"), (len(texts), "text")) if n)
        categorical = len(used) - numeric - dated - len(texts)
        notes = [f"kind: tabular, {numeric} numeric and {categorical} categorical columns{others}", *left_out]
        split = request.options(SplitOptions)
        dates = [name for name in used if kinds[name] == "date" and not scan.format(name)["times"]]
        if dates and split.time is None and split.group is None and scan.parts is None:
            hint = f"{listed([*map(repr, dates)])} holds dates: if the model will predict later rows, "
            notes.append(Sentence(hint, Argument("time", dates[0]), " tests it on the latest ones"))
        if texts:
            words = f"the words of {listed([*map(repr, texts)])} count beside the other columns: "
            alone = " learns from it alone, by a network for texts; "
            leave = Argument("drop", texts[0]), " leaves it out"
            notes.append(Sentence(words, Argument("text", texts[0]), alone, *leave))
        parsed = scan.parsed(used, kinds)
        how = request.options(TableOptions).features
        if request.published and how == "standard":
            how = "unlimited"

        def fit(train: Positions, labels: Labels) -> Fitted:
            chosen = np.zeros(scan.n_rows, np.bool_)
            chosen[train] = True
            more: list[str] = []
            reader = self.reused(request.fitted)
            targets = targets_of(labels, int(labels.max()) + 1) if how in _WITH_STATISTICS else None
            if reader is None:
                reader, more = fit_tabular(
                    parsed, chosen, used, kinds, source.target, features=how, scan=scan, targets=targets
                )
            features, notes = reader.encode_scanned(parsed, scan)
            if targets is not None:
                reader.order_statistics(features, parsed, scan, np.sort(train), targets, request.seed)
            return reader, features, [*more, *notes]

        return source.samples(
            self.name,
            origins=Rows(source.table, scan.n_rows),
            fit=fit,
            bad=scan.bad,
            hashes=scan.hashes.view(np.int64),
            equal="rows are duplicates in all columns but the target",
            notes=notes,
        )

    def read(
        self, source: Table, preprocessing: TabularPreprocessing, max_bad: float | int, *, labelled: bool
    ) -> NewData:
        """Return the rows of a table, encoded."""
        features, readable, bad, notes = preprocessing.encode(source)
        target = preprocessing.target if labelled else None
        new = NewData(features, Rows(source, len(features)), np.flatnonzero(readable).tolist(), None, None, notes)
        return new_rows(source, new, bad, max_bad, target)

    def show(self, split: Split, i: int, original: Any) -> Shown:
        """Return the row."""
        return Shown(row={str(name): _plain(value) for name, value in dict(original).items()})

    def baseline(self, task: Task) -> Baseline | None:
        """Return standardised numbers and categories, without pieces and ranks."""
        reader = task.preprocessing
        if not isinstance(reader, TabularPreprocessing):
            return None
        train, val, test = (part.features()[:, reader.plain] for part in (task.train, task.val, task.test))
        return Baseline(train, val if len(task.val) else None, test)

    def warnings(
        self, preprocessing: TabularPreprocessing, items: Any, labels: Iterable[NDArray[np.int64]], train: Positions
    ) -> tuple[str, ...]:
        """Return a sentence on each column that leaks the target."""
        return tuple(
            leakage_warning(name, auroc)
            for column in labels
            for name, auroc in leaking_columns(preprocessing.columns, items, column, train).items()
        )


def _plain(value: object) -> object:
    """Return a cell as JSON can hold it; a missing one is None."""
    value = value.item() if hasattr(value, "item") else value
    if value is None or value != value:  # NaN, NaT
        return None
    return value if isinstance(value, bool | int | float | str) else str(value)
