r"""Rows of a table: how each column becomes numbers, a whole chunk at a time.

A numeric column is standardised by the training rows' mean and standard deviation; a missing value becomes the mean,
marked by another number where training rows had missing values too. Values beyond those of the training rows, or more
than ten standard deviations from the mean, are put at that limit: a network says absurd things far from its data.

Piecewise-linear features stand beside it where they are asked for (Gorishniy et al. 2022): with the edges
:math:`b_0 < … < b_T`, quantiles of the training rows (a value that many share is one, the others are of the rest),

.. math:: e_t = \min\Big(1, \max\Big(0, \frac{x - b_{t-1}}{b_t - b_{t-1}}\Big)\Big), \qquad t = 1 … T

so that a linear layer is any function that is linear between edges. So does, where it is asked for too, the rank: the
share of training rows that are lower, half of those that are equal among them, scaled to mean 0 and variance 1. Of a
number with a long tail the standardised values of most rows are next to each other, and their ranks are not. A date
becomes several numbers (`dates.PARTS`), each encoded like that, those that do not vary left out.

A categorical column becomes one number per value seen in training; a value not seen there, or a missing one where none
was missing in training, sets none of them. Of many values the most frequent have a number each, and all others share
one. A linear layer is then an embedding of the value, and a mixture of rows has the mixture of their embeddings. A text
is encoded by its words (`text_columns.py`).

scikit-learn's imputers and encoders do the same to arrays in memory, but are saved by pickling; these are JSON.

References
----------
Gorishniy, Rubachev & Babenko, "On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS 2022.
"""

from __future__ import annotations

import os
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._checks import ArgumentError, nearest_names, number, require
from vicinal._files import MEMORY, Json, Scratch
from vicinal._typing import Batch
from vicinal.data.dates import PARTS, date_parts, is_day_first
from vicinal.data.files import listed
from vicinal.data.kinds import MAX_VALUES
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.text_columns import Text, WordCounts
from vicinal.tables import LARGEST, BadRow, Chunk, Table, distinct, finite_numbers, from_rows, names_of

__all__ = ["FEATURES", "Category", "Date", "Number", "TabularPreprocessing", "Text", "fit_tabular"]

#: How numbers are encoded: standardised within limits; these with piecewise-linear features; these with ranks besides;
#: or standardised alone.
FEATURES = ("standard", "piecewise", "ranked", "unlimited")

#: How a cell is shown: one may be megabytes long.
_CELL = reprlib.Repr()
_CELL.maxstring = _CELL.maxother = 60

#: Of more values it is not remembered which ones there were beside the most frequent.
_MAX_KNOWN = 10_000
#: Bytes of features that are kept in memory: a quarter of the machine's.
_IN_MEMORY = MEMORY // 4
#: Standard deviations from the mean beyond which a value is put at the limit.
_FARTHEST = 10.0
#: Piecewise-linear features of a number, and of all numbers together.
_PIECES, _MOST_PIECES = 16, 2048
#: Values of a number whose ranks are kept, and of all numbers together; between them ranks are interpolated.
_RANKED, _MOST_RANKED = 128, 2**16
#: A rank is uniform between 0 and 1, with this mean and standard deviation.
_RANK_MEAN, _RANK_STD = 0.5, 12**-0.5
#: Training rows a piece should have at least, and one of the rows beside a frequent value.
_ROWS_OF_PIECE, _ROWS_OF_PIECE_OF_REST = 20, 50
#: Values kept to find quantiles; of more, every second, fourth, … one.
_KEPT = 2**17
#: Rows encoded at a time: their features should fit in a processor's cache.
_ROWS = 2**13


@dataclass(eq=False)
class _Cells:
    """Cells of a column that are remarkable: how many, and the first."""

    n: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, chunk: Chunk, name: str, chosen: NDArray[np.bool_]) -> None:
        """Count the chosen cells of some rows."""
        if chosen.any():
            self.n += int(chosen.sum())
            for i in np.flatnonzero(chosen)[: 3 - len(self.first)].tolist():
                self.first.append(f"row {chunk.rows[i]:,} ({_CELL.repr(chunk[name][i].as_py())})")

    def __str__(self) -> str:
        return listed([*self.first, *[""] * (self.n - len(self.first))], n=3)


@dataclass(eq=False)
class _Remarks:
    """What there is to say of a column after encoding some chunks."""

    odd: _Cells = field(default_factory=_Cells)
    """Cells that are not what the column holds."""
    far: _Cells = field(default_factory=_Cells)
    """Numbers farther beyond those of training than these are from each other."""
    unknown: Counter[str] = field(default_factory=Counter)


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
class Number:
    """A numeric column: (value - mean) / std, pieces, rank, and a mark for missing values if training rows had some."""

    name: str
    mean: float
    std: float
    missing: bool
    limits: tuple[float, float] | None = None
    """The lowest and the highest value; those beyond are put there."""
    edges: tuple[float, ...] = ()
    """Of the pieces, one more than there are of them."""
    ranks: tuple[tuple[float, float], ...] = ()
    """Values and their ranks, both rising."""

    @property
    def width(self) -> int:
        """How many numbers of the input it is."""
        return 1 + self.n_pieces + bool(self.ranks) + self.missing

    @property
    def n_pieces(self) -> int:
        """How many pieces there are."""
        return max(len(self.edges) - 1, 0)

    def encode(self, chunk: Chunk, out: NDArray[np.float32], remarks: _Remarks) -> None:
        """Write the column as numbers into `out` `[M, width]`, which holds zeros."""
        values, odd = finite_numbers(chunk[self.name], decimal_comma=chunk.decimal_comma)
        if self.limits is None:
            far = np.abs((values - self.mean) / self.std) > LARGEST  # of a column that hardly varies
            odd, values = odd | far, np.where(far, np.nan, values)
        else:
            low, high = self.limits
            remarks.far.add(chunk, self.name, (values > 2 * high - low) | (values < 2 * low - high))
        remarks.odd.add(chunk, self.name, odd)
        self.write(values, out)

    def write(self, values: NDArray[np.float64], out: NDArray[np.float32]) -> None:
        """Write values, NaN where they are missing, as numbers into `out` `[M, width]`."""
        missing = np.isnan(values)
        if self.limits is not None:
            values = np.clip(values, *self.limits)
        out[:, 0] = np.where(missing, 0.0, (values - self.mean) / self.std)
        if self.edges:
            edges = np.array(self.edges)[:, None]
            pieces = np.where(missing, self.mean, values) - edges[:-1]  # piece by piece: long loops are faster
            pieces /= edges[1:] - edges[:-1]  # in place: to take new memory costs more than the division
            out[:, 1 : len(edges)] = np.clip(pieces, 0, 1, out=pieces).T
        if self.ranks:
            ranks = np.interp(values, *np.array(self.ranks).T)
            out[:, 1 + self.n_pieces] = np.where(missing, 0.0, (ranks - _RANK_MEAN) / _RANK_STD)
        if self.missing:
            out[:, -1] = missing

    def notes(self, remarks: _Remarks) -> list[str]:
        """Return what new rows were like."""
        return _odd_cells(self.name, remarks, "finite numbers")

    def beyond(self, remarks: _Remarks) -> list[str]:
        """Return which new values are far beyond those of training."""
        if not remarks.far.n or self.limits is None:
            return []
        low, high = self.limits
        one = remarks.far.n == 1
        lie, count = ("1 value lies", "counts") if one else (f"{remarks.far.n:,} values lie", "count")
        return [f"column {self.name!r}: {lie} far beyond {low:g} to {high:g} and {count} as the nearer: {remarks.far}"]


@dataclass(frozen=True)
class Date:
    """A column of dates: several numbers, and a mark for missing values if training rows had some."""

    name: str
    parts: tuple[Number, ...]
    """By the names in `dates.PARTS`."""
    missing: bool
    day_first: bool

    @property
    def width(self) -> int:
        """How many numbers of the input it is."""
        return sum(part.width for part in self.parts) + self.missing

    def encode(self, chunk: Chunk, out: NDArray[np.float32], remarks: _Remarks) -> None:
        """Write the column as numbers into `out` `[M, width]`, which holds zeros."""
        values, odd = date_parts(chunk[self.name], day_first=self.day_first)
        remarks.odd.add(chunk, self.name, odd)
        start = 0
        for part in self.parts:
            part.write(values[part.name], out[:, start : start + part.width])
            start += part.width
        if self.missing:
            out[:, -1] = np.isnan(values[self.parts[0].name])

    def notes(self, remarks: _Remarks) -> list[str]:
        """Return what new rows were like."""
        return _odd_cells(self.name, remarks, "dates")


def _odd_cells(name: str, remarks: _Remarks, what: str) -> list[str]:
    odd = remarks.odd
    if not odd.n:
        return []
    if odd.n == 1:
        return [f"column {name!r}: 1 value is no {what.removesuffix('s')} and counts as missing: {odd}"]
    return [f"column {name!r}: {odd.n} values are no {what} and count as missing: {odd}"]


@dataclass(frozen=True)
class Category:
    """A categorical column: one number per value, one for all others if there were too many, one for missing ones."""

    name: str
    values: tuple[str, ...]
    missing: bool
    pooled: bool = False
    """Whether rarer values of the training rows share a number."""
    rarer: tuple[str, ...] = ()
    """These values, to tell new ones from them; none where they are too many to keep."""

    @property
    def width(self) -> int:
        """How many numbers of the input it is."""
        return len(self.values) + self.missing + self.pooled

    def encode(self, chunk: Chunk, out: NDArray[np.float32], remarks: _Remarks) -> None:
        """Write the column as numbers into `out` `[M, width]`, which holds zeros."""
        place, values = distinct(chunk[self.name])
        names = [*names_of(values), ""]  # the place of a missing value is -1, the last
        position = {value: k for k, value in enumerate(self.values)}
        position[""] = len(self.values) if self.missing else -1
        other = len(self.values) + self.missing if self.pooled else -1
        columns = np.array([position.get(name, other) for name in names], np.intp)[place]
        rows = np.flatnonzero(columns >= 0)
        out[rows, columns[rows]] = 1
        known = {*position, *self.rarer}
        strange = [i for i, name in enumerate(names) if name not in known]
        if strange and (self.rarer or not self.pooled):
            counts = np.bincount(place[place >= 0], minlength=len(names))
            remarks.unknown.update({names[i]: int(counts[i]) for i in strange})

    def notes(self, remarks: _Remarks) -> list[str]:
        """Return what new rows were like."""
        if not remarks.unknown:
            return []
        values = listed([repr(name) for name, _ in remarks.unknown.most_common()], n=3)
        n = remarks.unknown.total()
        hold = "1 row holds a value" if n == 1 else f"{n:,} rows hold values"
        return [f"column {self.name!r}: {hold} not seen in training: {values}"]


@dataclass(frozen=True)
class TabularPreprocessing(Preprocessing):
    """How a row becomes the features of a model, by column names."""

    kind: ClassVar[str] = "tabular"

    columns: tuple[Number | Date | Category | Text, ...]
    """How each column is encoded, in the order of the features."""
    target: str
    """The column of classes."""
    ignored: tuple[str, ...] = ()
    """The columns that were left out on purpose: no note is made of them."""

    @property
    def width(self) -> int:
        """The number of features D."""
        return sum(column.width for column in self.columns)

    @property
    def spec(self) -> Json:
        """The number of features, which of them are no pieces (ranks are none), where some are, and what trees see."""
        smooth = sorted([*self.plain, *self._ranks])
        pieces = {} if len(smooth) == self.width else {"plain": smooth}
        of_categories = {place for start, stop in self.categories for place in range(start, stop)}
        numbers = [place for place in self.plain if place not in of_categories]
        trees = {"numbers": numbers, "categories": self.categories}
        return {"kind": self.kind, "input_shape": (self.width,), **pieces, **trees}

    @property
    def feature_names(self) -> list[str]:
        """What each number of the input is, in order: `age`, `age, piece 1 of 16`, `colour = red`, `born: year`."""
        return [name for column in self.columns for name in _feature_names(column)]

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
                places += [place for place, _ in _numbers_from(start, column)]
                places += [stop - 1] if column.missing else []
            start = stop
        return places

    @property
    def categories(self) -> list[tuple[int, int]]:
        """The first place of the features of each category, and the one after its last."""
        stops = np.cumsum([column.width for column in self.columns]).tolist()
        ends = zip(self.columns, stops, strict=True)
        return [(stop - column.width, stop) for column, stop in ends if isinstance(column, Category)]

    @property
    def _ranks(self) -> list[int]:
        """The places of the ranks."""
        starts = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
        dated = [(start, c) for start, c in zip(starts, self.columns, strict=False) if isinstance(c, Number | Date)]
        numbers = [pair for start, column in dated for pair in _numbers_from(start, column)]
        return [place + 1 + number.n_pieces for place, number in numbers if number.ranks]

    def __call__(self, item: Any, *, augment: str = "none", generator: torch.Generator | None = None) -> Batch:
        """Return one row as features `[D]`; a row is a mapping from column names, or encoded already."""
        if isinstance(item, Tensor):
            return item
        return self.encode(from_rows([dict(item)]), n=1).features[0]

    def encode(self, table: Table, *, n: int | None = None, new: bool = True) -> Encoded:
        """Return the rows of a table as features.

        Columns are found by name. New ones are ignored and named; one that the table lacks counts as missing in every
        row and is named, unless another is called nearly like it. Memory is that of the features and of a chunk.

        Parameters
        ----------
        table
            The table.
        n
            The number of its rows, bad ones too, if it is known.
        new
            Whether it is another table than the one that this was fitted to: then what it has that the other had not is
            noted too.
        """
        if n is None:
            n = table.count_rows()
        features = FeatureMatrix(n, self.width)
        readable = np.zeros(n, np.bool_)
        bad: list[BadRow] = []
        notes: list[str] = []
        for rows, block in self.blocks(table, bad, notes, new=new, into=features):
            readable[rows - 1] = True
            features.put(rows, block.numpy())
        return Encoded(features.tensor(), readable, bad, notes)

    def blocks(
        self,
        table: Table,
        bad: list[BadRow],
        notes: list[str],
        *,
        new: bool = True,
        into: FeatureMatrix | None = None,
    ) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Yield numbers of rows, from 1, and their features, float32 `[M, D]`, some rows at a time.

        Parameters
        ----------
        table
            The table.
        bad
            Where rows that cannot be read are added.
        notes
            Where all that there is to say is added, the values of columns after the last block.
        new
            As in `encode`.
        into
            The matrix that they will be put into, if they will: most are then written there at once.
        """
        absent = self._absent(table)
        remarks = {column.name: _Remarks() for column in self.columns}
        for read in table.chunks([name for name in remarks if name not in absent], _ROWS, bad=bad):
            chunk = _without_values(read, absent)
            block = np.zeros((len(chunk), self.width), np.float32) if into is None else into.room(chunk.rows)
            start = 0
            for column in self.columns:
                column.encode(chunk, block[:, start : start + column.width], remarks[column.name])
                start += column.width
            yield chunk.rows, torch.from_numpy(block)
        if new:
            unseen = [note for c in self.columns if isinstance(c, Category) for note in c.notes(remarks[c.name])]
            beyond = [note for c in self.columns if isinstance(c, Number) for note in c.beyond(remarks[c.name])]
            notes += _unlike(absent, self._extra(table), unseen, beyond)
        for column in self.columns:
            notes += [] if isinstance(column, Category) else column.notes(remarks[column.name])

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

    def _fields(self) -> dict[str, object]:
        columns = [_record(column) for column in self.columns]
        return {"columns": columns, "target": self.target, "ignored": list(self.ignored)}

    @classmethod
    def _from_fields(cls, fields: Json) -> TabularPreprocessing:
        columns = tuple(_from_record(record) for record in fields["columns"])
        return cls(columns, fields["target"], tuple(fields["ignored"]))


def _without_values(chunk: Chunk, names: Sequence[str]) -> Chunk:
    """Return the same rows with columns that are missing in each."""
    if not names:
        return chunk
    pa = require("pyarrow", "train")
    return replace(chunk, columns={**chunk.columns, **dict.fromkeys(names, pa.nulls(len(chunk), pa.string()))})


def _numbers_from(start: int, column: Number | Date) -> list[tuple[int, Number]]:
    """Return where the features of each number of a column begin, and the number."""
    parts = column.parts if isinstance(column, Date) else (column,)
    places: list[int] = np.cumsum([start, *(part.width for part in parts[:-1])]).tolist()
    return list(zip(places, parts, strict=True))


def _unlike(absent: Sequence[str], extra: Sequence[str], unseen: Sequence[str], beyond: Sequence[str]) -> list[str]:
    """Return in one line how new rows differ from those of training: how many columns, and which."""
    kinds = {"missing column{}": absent, "extra column{}": extra, "column{} with values not seen in training": unseen}
    kinds["column{} with numbers far beyond those of training"] = beyond
    counts = [f"{len(names)} {what.format('s' * (len(names) > 1))}" for what, names in kinds.items() if names]
    lacking, new = (listed([repr(name) for name in names]) for names in (absent, extra))
    parts = [f"missing in every row: {lacking}"] if absent else []
    parts += [f"ignored: {new}, which the model was not trained with"] if extra else []
    parts += [*unseen, *beyond]
    return [f"unlike the training data: {listed(counts)} ({'; '.join(parts)})"] if counts else []


def _feature_names(column: Number | Date | Category | Text) -> list[str]:
    if isinstance(column, Text):
        return column.feature_names()
    if isinstance(column, Category):
        names = [f"{column.name} = {value}" for value in column.values]
        missing = [f"{column.name} is missing"] if column.missing else []
        return names + missing + ([f"{column.name} is another value"] if column.pooled else [])
    if isinstance(column, Date):
        names = [f"{column.name}: {name}" for part in column.parts for name in _feature_names(part)]
    else:
        n_pieces = column.n_pieces
        names = [column.name, *(f"{column.name}, piece {k} of {n_pieces}" for k in range(1, n_pieces + 1))]
        names += [f"{column.name}, rank"] if column.ranks else []
    return names + ([f"{column.name} is missing"] if column.missing else [])


def _record(column: Number | Date | Category | Text) -> dict[str, object]:
    """Return a column as JSON can hold it, without what is as in the first version."""
    record: dict[str, object] = {"name": column.name, "missing": column.missing}
    if isinstance(column, Number):
        record |= {"mean": column.mean, "std": column.std}
        record |= {} if column.limits is None else {"limits": list(column.limits)}
        record |= {"edges": list(column.edges)} if column.edges else {}
        return {**record, "ranks": [list(pair) for pair in column.ranks]} if column.ranks else record
    if isinstance(column, Date):
        return {**record, "parts": [_record(part) for part in column.parts], "day_first": column.day_first}
    if isinstance(column, Text):
        return {**record, "words": list(column.words), "weights": list(column.weights)}
    record["values"] = list(column.values)
    record |= {"pooled": True} if column.pooled else {}
    return {**record, "rarer": list(column.rarer)} if column.rarer else record


def _from_record(record: Mapping[str, Any]) -> Number | Date | Category | Text:
    name, missing = record["name"], record["missing"]
    if "mean" in record:
        return _number(record)
    if "parts" in record:
        return Date(name, tuple(_number(part) for part in record["parts"]), missing, record["day_first"])
    if "words" in record:
        return Text(name, tuple(record["words"]), tuple(record["weights"]), missing)
    return Category(name, tuple(record["values"]), missing, record.get("pooled", False), tuple(record.get("rarer", ())))


def _number(record: Mapping[str, Any]) -> Number:
    mean, std = number("mean", record["mean"]), number("std", record["std"], above=0)
    limits, edges, ranks = (_finite(record.get(name, ())) for name in ("limits", "edges", "ranks"))
    if "limits" in record and (limits.shape != (2,) or limits[0] > limits[1]):
        raise ArgumentError("limits", record["limits"], "two numbers, the lower one first")
    if "edges" in record and (edges.ndim != 1 or not (np.diff(edges) > 0).all()):
        raise ArgumentError("edges", record["edges"], "numbers that rise")
    if "ranks" in record and not _are_ranks(ranks):
        allowed = "pairs of a value and its rank in [0, 1], both rising"
        raise ArgumentError("ranks", record["ranks"], allowed)
    return Number(
        record["name"],
        mean,
        std,
        bool(record["missing"]),
        (float(limits[0]), float(limits[1])) if "limits" in record else None,
        tuple(edges.tolist()),
        tuple((value, rank) for value, rank in ranks.tolist()),
    )


def _finite(values: object) -> NDArray[np.float64]:
    """Return what a record holds as an array, or a single NaN where it is no array of finite numbers."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array(np.nan)
    return array if np.isfinite(array).all() else np.array(np.nan)


def _are_ranks(pairs: NDArray[np.float64]) -> bool:
    """Whether these are values that rise, with ranks between 0 and 1 that do not fall."""
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        return False
    values, ranks = pairs.T
    return bool((np.diff(values) > 0).all() and (np.diff(ranks) >= 0).all() and ranks[0] >= 0 and ranks[-1] <= 1)


def fit_tabular(
    table: Table,
    train: NDArray[np.bool_],
    names: Sequence[str],
    kinds: Mapping[str, str],
    target: str,
    *,
    features: str = "standard",
) -> tuple[TabularPreprocessing, list[str]]:
    """Fit each column on the training rows alone, in one pass, and return notes on those that were cut short.

    Parameters
    ----------
    table
        The table.
    train
        Which of its rows are training rows.
    names, kinds
        The columns to learn from, and what each holds.
    target
        The column with the class.
    features
        One of `FEATURES`.
    """
    keeps = features in ("piecewise", "ranked")
    fits: dict[str, _Moments | _Dates | _Counts | WordCounts] = {
        name: _MEASURED[kind](name, keeps) if (kind := kinds[name]) in _MEASURED else _COUNTED[kind](name)
        for name in names
    }
    for chunk in table.chunks(names, bad=[]):
        chosen = train[chunk.rows - 1]
        if chosen.any():
            for fit in fits.values():
                fit.add(chunk, chosen)
    columns, notes = [], []
    n_numbers = sum(kinds[name] in ("number", "date") for name in names)
    n_rows = int(train.sum())
    pieces = min(_PIECES, n_rows // _ROWS_OF_PIECE, _MOST_PIECES // max(n_numbers, 1)) if keeps else 0
    ranked = min(_RANKED, _MOST_RANKED // max(n_numbers, 1)) if features == "ranked" else 0
    for fit in fits.values():
        column, note = fit.column(pieces, ranked, limited=features != "unlimited")
        columns += [] if column is None else [column]
        notes += [] if note is None else [note]
    if not columns:
        raise ValueError("there is no column to learn from: all were left out")
    used = {column.name for column in columns}
    ignored = tuple(name for name in table.columns if name not in used and name != target)
    return TabularPreprocessing(tuple(columns), target, ignored), notes


@dataclass(eq=False)
class _Moments:
    """Mean and variance of a numeric column, chunk by chunk.

    Of two parts a and b with shares w_a and w_b of the values and d = mean_b - mean_a, the whole has the mean
    mean_a + w_b d and the variance w_a v_a + w_b v_b + w_a w_b d² (Chan et al. 1979).
    """

    name: str
    keeps: bool
    """Whether values are kept for quantiles."""
    n: int = 0
    mean: float = 0.0
    variance: float = 0.0
    missing: bool = False
    low: float = np.inf
    high: float = -np.inf
    kept: list[NDArray[np.float64]] = field(default_factory=list)
    stride: int = 1

    def add(self, chunk: Chunk, chosen: NDArray[np.bool_]) -> None:
        self.add_values(finite_numbers(chunk[self.name], decimal_comma=chunk.decimal_comma)[0][chosen])

    def add_values(self, values: NDArray[np.float64]) -> None:
        there = values[~np.isnan(values)]
        self.missing |= len(there) < len(values)
        if not len(there):
            return
        share = len(there) / (self.n + len(there))
        gap = float(np.mean(there)) - self.mean
        self.variance = (1 - share) * self.variance + share * float(np.var(there)) + share * (1 - share) * gap**2
        self.mean += share * gap
        self.n += len(there)
        self.low, self.high = min(self.low, float(there.min())), max(self.high, float(there.max()))
        if self.keeps:
            self.kept.append(there[:: self.stride].copy())  # a view would keep all of them
            while sum(map(len, self.kept)) > _KEPT:
                self.kept, self.stride = [part[::2].copy() for part in self.kept], 2 * self.stride

    def column(self, pieces: int, ranked: int, *, limited: bool) -> tuple[Number | None, str | None]:
        if not self.n:
            return None, f"left out: {self.name!r} (missing in every training row)"
        std = float(np.sqrt(self.variance)) or 1.0
        far = _FARTHEST * std
        limits = (max(self.low, self.mean - far), min(self.high, self.mean + far)) if limited else None
        values = np.sort(np.concatenate(self.kept)) if self.keeps else np.empty(0)
        edges, ranks = _edges(values, pieces), _ranks(values, ranked)
        return Number(self.name, self.mean, std, self.missing, limits, edges, ranks), None


def _edges(values: NDArray[np.float64], pieces: int) -> tuple[float, ...]:
    """Return the different ones of so many quantiles; of few values, each of them. One piece says nothing new.

    A value that is more frequent than a piece is an edge, and the other edges are quantiles of the rest: of a number
    that is zero in most rows, all quantiles but one or two would be zero.
    """
    if pieces < 2:
        return ()
    edges, counts = np.unique(values, return_counts=True)
    frequent = counts * pieces > len(values)
    if len(edges) > pieces + 1 and frequent.any():
        rest = np.repeat(edges[~frequent], counts[~frequent])
        n = min(pieces - int(frequent.sum()), len(rest) // _ROWS_OF_PIECE_OF_REST)
        edges = np.unique([edges[0], edges[-1], *edges[frequent], *_quantiles(rest, max(n, 1))])
    elif len(edges) > pieces + 1:
        edges = _quantiles(values, pieces)
    return tuple(edges.tolist()) if len(edges) > 2 else ()


def _ranks(values: NDArray[np.float64], ranked: int) -> tuple[tuple[float, float], ...]:
    """Return quantiles of sorted values with their ranks; of two values the rank says nothing new."""
    chosen = _quantiles(values, ranked) if ranked >= 2 else np.empty(0)
    if len(chosen) < 3:
        return ()
    lower, not_higher = (np.searchsorted(values, chosen, side) for side in ("left", "right"))
    ranks = (lower + not_higher) / (2 * len(values))
    return tuple(zip(chosen.tolist(), ranks.tolist(), strict=True))


def _quantiles(values: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return the different ones of n + 1 quantiles, or every value where there are no more."""
    few = np.unique(values)
    return few if len(few) <= n + 1 else np.unique(np.quantile(values, np.linspace(0, 1, n + 1)))


@dataclass(eq=False)
class _Dates:
    """The parts of a column of dates."""

    name: str
    keeps: bool
    day_first: bool | None = None
    """As the first rows have it."""
    parts: dict[str, _Moments] = field(init=False)

    def __post_init__(self) -> None:
        self.parts = {part: _Moments(part, self.keeps) for part in PARTS}

    def add(self, chunk: Chunk, chosen: NDArray[np.bool_]) -> None:
        if self.day_first is None:
            self.day_first = is_day_first(chunk[self.name])
        for part, values in date_parts(chunk[self.name], day_first=self.day_first)[0].items():
            self.parts[part].add_values(values[chosen])

    def column(self, pieces: int, ranked: int, *, limited: bool) -> tuple[Date | None, str | None]:
        varying = [fit.column(pieces, ranked, limited=limited)[0] for fit in self.parts.values() if fit.low < fit.high]
        numbers = tuple(replace(number, missing=False) for number in varying if number is not None)
        if not numbers:
            return None, f"left out: {self.name!r} (the same date in every training row, or none)"
        missing = self.parts[PARTS[0]].missing
        return Date(self.name, numbers, missing, bool(self.day_first)), None


@dataclass(eq=False)
class _Counts:
    """How often each value of a categorical column occurs."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, chunk: Chunk, chosen: NDArray[np.bool_]) -> None:
        place, values = distinct(chunk[self.name])
        counts = np.bincount(place[chosen] + 1, minlength=len(values) + 1).tolist()
        for name, n in zip(["", *names_of(values)], counts, strict=True):
            if n:
                self.counts[name] += n

    def column(self, pieces: int, ranked: int, *, limited: bool) -> tuple[Category, str | None]:
        missing = self.counts.pop("", 0) > 0
        ordered = sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))
        few = len(ordered) <= MAX_VALUES
        kept = tuple(sorted(value for value, n in ordered[:MAX_VALUES] if few or n > 1))
        if few:
            return Category(self.name, kept, missing), None
        # New identifiers are nothing to remark on.
        rarer = tuple(sorted(self.counts.keys() - set(kept))) if kept and len(ordered) <= _MAX_KNOWN else ()
        note = f"of {len(ordered)} values the {len(kept)} most frequent are told apart, the others count as one"
        if not kept:
            note = f"none of its {len(ordered)} values comes twice, so only whether there is one counts"
        return Category(self.name, kept, missing, pooled=True, rarer=rarer), f"column {self.name!r}: {note}"


class FeatureMatrix:
    """A matrix of zeros, float32 `[n, width]`, to put rows into; in a file where it would fill memory.

    The file is one of the system's temporary files (`TMPDIR` says where), written, and then mapped into memory: what is
    not in use lies on the disk. It has no name, and is gone with the process.
    """

    def __init__(self, n: int, width: int) -> None:
        self._shape = n, width
        self._scratch: Scratch | None = None
        n_bytes = 4 * n * width
        if n_bytes <= _IN_MEMORY:
            self._memory = np.zeros(self._shape, np.float32)
            return
        self._scratch = Scratch()
        if hasattr(os, "posix_fallocate"):  # room for all of it now, rather than an error after minutes
            os.posix_fallocate(self._scratch.file.fileno(), 0, n_bytes)
        self._scratch.file.truncate(n_bytes)

    def room(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return zeros for the features of rows, to be filled and `put`: their own place where it is in one piece."""
        n, width = self._shape
        if self._scratch is None and rows[-1] - rows[0] == len(rows) - 1 and rows[-1] <= n:
            return self._memory[rows[0] - 1 : rows[-1]]
        return np.zeros((len(rows), width), np.float32)

    def put(self, rows: NDArray[np.int64], block: NDArray[np.float32]) -> None:
        """Put the features of rows in their places; rows are numbered from 1 and rising."""
        if self._scratch is None and np.may_share_memory(block, self._memory):
            return  # that is where they were written
        ends = np.flatnonzero(np.diff(rows) > 1) + 1  # where bad rows lie between
        for start, some in zip(rows[np.r_[0, ends]] - 1, np.split(block, ends), strict=True):
            if self._scratch is None:
                self._memory[start : start + len(some)] = some
            else:
                self._scratch.file.seek(4 * int(start) * self._shape[1])
                self._scratch.file.write(some.data)

    def tensor(self) -> Tensor:
        """Return the matrix, once all rows are there."""
        if self._scratch is not None:
            self._scratch.file.flush()
            self._memory = np.memmap(self._scratch.file, np.float32, "r+", shape=self._shape)
        return torch.from_numpy(self._memory)


_MEASURED: dict[str, type[_Moments | _Dates]] = {"number": _Moments, "date": _Dates}
_COUNTED: dict[str, type[_Counts | WordCounts]] = {"category": _Counts, "text": WordCounts, "sparse": WordCounts}
