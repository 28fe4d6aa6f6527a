r"""Encode the columns of a table as numbers, a chunk of rows at a time.

A numeric column is standardised by the training rows' mean and standard deviation. A missing value becomes the mean;
one more feature marks it, where training rows had missing values too. Values beyond those of the training rows, or more
than ten standard deviations from the mean, are clipped: far from its data a network answers nonsense.

Piecewise-linear features can be added (Gorishniy et al. 2022). Their edges :math:`b_0 < … < b_T` are quantiles of the
training rows; a value that many rows share is an edge of its own.

.. math:: e_t = \min\Big(1, \max\Big(0, \frac{x - b_{t-1}}{b_t - b_{t-1}}\Big)\Big), \qquad t = 1 … T

A linear layer over them is any function that is linear between edges. The rank can be added too: the share of training
rows that are lower, plus half of those that are equal, scaled to mean 0 and variance 1. It spreads the bulk of a
long-tailed number, whose standardised values are nearly equal. A date becomes several numbers (`dates.PARTS`), each
encoded like that; parts that do not vary are left out.

A categorical column has one feature per value seen in training. A value not seen there sets none of them. So does a
missing one, unless training rows had missing ones. The most frequent values have a feature each, and all others share
one. A linear layer is then an embedding of the value, and a mixture of rows has the mixture of their embeddings. If
there are too many values, the statistics of targets by value (`target_statistics.py`) are features beside these.
`text_columns.py` encodes texts by their words.

scikit-learn's imputers and encoders do the same to arrays in memory, but are saved by pickling; these are JSON.

References
----------
Gorishniy, Rubachev & Babenko, "On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS 2022.
"""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vicinal._atomic import Json
from vicinal._checks import ArgumentError, flag, number
from vicinal.data.class_folders import listed
from vicinal.data.dates import PARTS, date_parts
from vicinal.data.table_scan import MAX_VALUES
from vicinal.data.target_statistics import TargetStatistics
from vicinal.data.text_columns import Text, WordCounts
from vicinal.tables import Chunk
from vicinal.tables.column_values import LARGEST, distinct, names_of
from vicinal.tables.number_format import POINTS, NumberFormat, read_numbers

#: How a cell is shown: one may be megabytes long.
_CELL = reprlib.Repr()
_CELL.maxstring = _CELL.maxother = 60

#: A category with more values than this forgets which rare ones it has seen, so that it stays small.
_MAX_KNOWN = 10_000
#: Values more standard deviations than this from the mean are clipped.
_FARTHEST = 10.0
#: Piecewise-linear features of a number, and of all numbers together.
_PIECES, _MOST_PIECES = 16, 2048
#: Values of a number whose ranks are kept, and of all numbers together; between them ranks are interpolated.
_RANKED, _MOST_RANKED = 128, 2**16
#: A rank is uniform between 0 and 1, with this mean and standard deviation.
_RANK_MEAN, _RANK_STD = 0.5, 12**-0.5
#: The fewest training rows of a piece, and of a piece of the rows beside a frequent value.
_ROWS_OF_PIECE, _ROWS_OF_PIECE_OF_REST = 20, 50
#: So many values are kept to find quantiles; beyond that, every second, fourth, … one.
_KEPT = 2**17

Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Features: TypeAlias = NDArray[np.float32]


@dataclass(eq=False)
class _Cells:
    """How many cells of a column are remarkable, and the first three."""

    n: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, chunk: Chunk, name: str, chosen: Mask) -> None:
        """Count the chosen cells of some rows."""
        if chosen.any():
            self.n += int(chosen.sum())
            for i in np.flatnonzero(chosen)[: 3 - len(self.first)].tolist():
                self.first.append(f"row {chunk.rows[i]:,} ({_CELL.repr(chunk[name][i].as_py())})")

    def merge(self, other: _Cells) -> None:
        """Add the cells of later rows."""
        self.n, self.first = self.n + other.n, [*self.first, *other.first][:3]

    def __str__(self) -> str:
        return listed([*self.first, *[""] * (self.n - len(self.first))], n=3)


@dataclass(eq=False)
class Remarks:
    """What encoding found in a column, over all chunks."""

    odd: _Cells = field(default_factory=_Cells)
    """Cells that do not hold what the column holds."""
    far: _Cells = field(default_factory=_Cells)
    """Numbers farther beyond those of training than these are from each other."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Values not seen in training."""

    def merge(self, other: Remarks) -> None:
        """Add what was found in later rows."""
        self.odd.merge(other.odd)
        self.far.merge(other.far)
        self.unknown.update(other.unknown)

    def odd_cells_note(self, name: str, what: str) -> list[str]:
        """Return a note on the odd cells, which are no `what`."""
        if not self.odd.n:
            return []
        if self.odd.n == 1:
            return [f"column {name!r}: 1 value is no {what.removesuffix('s')} and counts as missing: {self.odd}"]
        return [f"column {name!r}: {self.odd.n} values are no {what} and count as missing: {self.odd}"]


@dataclass(frozen=True)
class Number:
    """A numeric column: (value - mean) / std, pieces, rank, and a mark for missing values if training rows had some."""

    kind: ClassVar[str] = "number"

    name: str
    mean: float
    std: float
    missing: bool
    limits: tuple[float, float] | None = None
    """The lowest and the highest value; those beyond are clipped."""
    edges: tuple[float, ...] = ()
    """The edges of the pieces, one more than there are pieces."""
    ranks: tuple[tuple[float, float], ...] = ()
    """Values and their ranks, both rising."""
    seen: tuple[float, float] | None = None
    """The lowest and the highest value of the table that it was fitted to; limits may be narrower."""
    format: NumberFormat = POINTS
    """How its numbers are written as text."""

    @property
    def width(self) -> int:
        """The number of features."""
        return 1 + self.n_pieces + bool(self.ranks) + self.missing

    @property
    def n_pieces(self) -> int:
        """The number of pieces."""
        return max(len(self.edges) - 1, 0)

    def encode(self, chunk: Chunk, out: Features, remarks: Remarks) -> Mask | None:
        """Write the column as numbers into `out` `[M, width]`, which holds zeros; return cells in another format."""
        values, odd, contrary = read_numbers(chunk[self.name], self.format)
        if self.limits is None:
            far = np.abs((values - self.mean) / self.std) > LARGEST  # in a column that hardly varies
            odd, values = odd | far, np.where(far, np.nan, values)
        if self.seen is not None:
            low, high = self.seen
            remarks.far.add(chunk, self.name, (values > 2 * high - low) | (values < 2 * low - high))
        remarks.odd.add(chunk, self.name, odd)
        self.write(values, out)
        return contrary if contrary.any() else None

    def write(self, values: Floats, out: Features) -> None:
        """Write values, NaN where they are missing, as numbers into `out` `[M, width]`."""
        missing = np.isnan(values)
        if self.limits is not None:
            values = np.clip(values, *self.limits)
        out[:, 0] = np.where(missing, 0.0, (values - self.mean) / self.std)
        if self.edges:
            edges = np.array(self.edges)[:, None]
            pieces = np.where(missing, self.mean, values) - edges[:-1]  # piece by piece: long loops are faster
            pieces /= edges[1:] - edges[:-1]  # in place: new memory costs more than the division
            out[:, 1 : len(edges)] = np.clip(pieces, 0, 1, out=pieces).T
        if self.ranks:
            ranks = np.interp(values, *np.array(self.ranks).T)
            out[:, 1 + self.n_pieces] = np.where(missing, 0.0, (ranks - _RANK_MEAN) / _RANK_STD)
        if self.missing:
            out[:, -1] = missing

    def notes(self, remarks: Remarks) -> list[str]:
        """Return notes on cells that are no numbers."""
        return remarks.odd_cells_note(self.name, "finite numbers")

    def beyond(self, remarks: Remarks) -> list[str]:
        """Return a note on values far beyond those of training."""
        if not remarks.far.n or self.seen is None:
            return []
        low, high = self.seen
        lie, count = ("1 value lies", "counts") if remarks.far.n == 1 else (f"{remarks.far.n:,} values lie", "count")
        return [f"column {self.name!r}: {lie} far beyond {low:g} to {high:g} and {count} as the nearer: {remarks.far}"]

    def feature_names(self) -> list[str]:
        """Return what each feature is."""
        names = [self.name, *(f"{self.name}, piece {k} of {self.n_pieces}" for k in range(1, self.n_pieces + 1))]
        names += [f"{self.name}, rank"] if self.ranks else []
        return [*names, f"{self.name} is missing"] if self.missing else names

    def to_dict(self) -> dict[str, object]:
        """Return the record as JSON can hold it; what is absent is left out."""
        return {
            "name": self.name,
            "missing": self.missing,
            "mean": self.mean,
            "std": self.std,
            **({} if self.limits is None else {"limits": list(self.limits)}),
            **({"edges": list(self.edges)} if self.edges else {}),
            **({"ranks": [list(pair) for pair in self.ranks]} if self.ranks else {}),
            **({} if self.seen is None else {"seen": list(self.seen)}),
            **({} if self.format == POINTS else {"format": self.format.to_dict()}),
        }

    @classmethod
    def from_dict(cls, record: Json) -> Number:
        """Return what `to_dict` recorded, checked: a damaged model file must not give wrong features."""
        mean, std = number("mean", record["mean"]), number("std", record["std"], above=0)
        edges, ranks = (_finite(record.get(name, ())) for name in ("edges", "ranks"))
        if "edges" in record and (edges.ndim != 1 or not (np.diff(edges) > 0).all()):
            raise ArgumentError("edges", record["edges"], "numbers that rise")
        if "ranks" in record and not _valid_ranks(ranks):
            raise ArgumentError("ranks", record["ranks"], "pairs of a value and its rank in [0, 1], both rising")
        return cls(
            record["name"],
            mean,
            std,
            bool(record["missing"]),
            _range(record, "limits"),
            tuple(edges.tolist()),
            tuple((value, rank) for value, rank in ranks.tolist()),
            _range(record, "seen"),
            NumberFormat.from_dict(record["format"]) if "format" in record else POINTS,
        )


def _finite(values: object) -> Floats:
    """Return what a record holds as an array, or a single NaN where it is no array of finite numbers."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array(np.nan)
    return array if np.isfinite(array).all() else np.array(np.nan)


def _range(record: Json, name: str) -> tuple[float, float] | None:
    """Return two numbers of a record, None where they are not there."""
    if name not in record:
        return None
    ends = _finite(record[name])
    if ends.shape != (2,) or ends[0] > ends[1]:
        raise ArgumentError(name, record[name], "two numbers, the lower one first")
    return float(ends[0]), float(ends[1])


def _valid_ranks(pairs: Floats) -> bool:
    """Return whether these are values that rise, with ranks between 0 and 1 that do not fall."""
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        return False
    values, ranks = pairs.T
    return bool((np.diff(values) > 0).all() and (np.diff(ranks) >= 0).all() and ranks[0] >= 0 and ranks[-1] <= 1)


@dataclass(frozen=True)
class Date:
    """A column of dates: several numbers, and a mark for missing values if training rows had some."""

    kind: ClassVar[str] = "date"

    name: str
    parts: tuple[Number, ...]
    """By the names in `dates.PARTS`."""
    missing: bool
    day_first: bool | None
    """Whether the day comes before the month; None where no training row told."""
    times: bool = False
    """Whether it holds times of day without a date."""

    @property
    def width(self) -> int:
        """The number of features."""
        return sum(part.width for part in self.parts) + self.missing

    def encode(self, chunk: Chunk, out: Features, remarks: Remarks) -> Mask | None:
        """Write the column as numbers into `out` `[M, width]`, which holds zeros; return dates in the other order."""
        values, odd, contrary = date_parts(chunk[self.name], day_first=self.day_first, times=self.times)
        remarks.odd.add(chunk, self.name, odd)
        start = 0
        for part in self.parts:
            part.write(values[part.name], out[:, start : start + part.width])
            start += part.width
        if self.missing:
            out[:, -1] = np.isnan(values[self.parts[0].name])
        return contrary if contrary.any() else None

    def notes(self, remarks: Remarks) -> list[str]:
        """Return notes on cells that are no dates."""
        return remarks.odd_cells_note(self.name, "dates")

    def feature_names(self) -> list[str]:
        """Return what each feature is."""
        names = [f"{self.name}: {name}" for part in self.parts for name in part.feature_names()]
        return [*names, f"{self.name} is missing"] if self.missing else names

    def to_dict(self) -> dict[str, object]:
        """Return the record as JSON can hold it."""
        parts = [part.to_dict() for part in self.parts]
        times = {"times": True} if self.times else {}
        return {"name": self.name, "missing": self.missing, "parts": parts, "day_first": self.day_first, **times}


@dataclass(frozen=True)
class Category:
    """A categorical column: one feature per value, one for missing ones, one for all others if there were too many."""

    kind: ClassVar[str] = "category"

    name: str
    values: tuple[str, ...]
    missing: bool
    pooled: bool = False
    """Whether rarer values of the training rows share a feature."""
    rarer: tuple[str, ...] = ()
    """These values, to tell new ones from them; none where they are too many to keep."""
    statistics: TargetStatistics | None = None
    """Where there are too many values: what targets the training rows of each had."""

    @property
    def width(self) -> int:
        """The number of features."""
        return self.n_one_hot + (0 if self.statistics is None else self.statistics.width)

    @property
    def n_one_hot(self) -> int:
        """The number of features that tell values apart by zeros and a one; they come first."""
        return len(self.values) + self.missing + self.pooled

    def encode(self, chunk: Chunk, out: Features, remarks: Remarks) -> None:
        """Write the column as numbers into `out` `[M, width]`, which holds zeros."""
        place, values = distinct(chunk[self.name])
        position = {value: k for k, value in enumerate(self.values)}
        names = [*names_of(values), ""]  # a missing value's place is -1, the last
        position[""] = len(self.values) if self.missing else -1
        other = len(self.values) + self.missing if self.pooled else -1
        columns = np.array([position.get(name, other) for name in names], np.intp)[place]
        rows = np.flatnonzero(columns >= 0)
        out[rows, columns[rows]] = 1
        if self.statistics is not None:
            of_value = dict(zip(self.statistics.values, self.statistics.log_odds, strict=True))
            nothing = (0.0,) * self.statistics.width
            out[:, self.n_one_hot :] = np.array([of_value.get(name, nothing) for name in names])[place]
        known = {*position, *self.rarer}
        strange = [i for i, name in enumerate(names) if name not in known]
        # A pooled column that forgot its rare values cannot say which are new.
        if strange and (self.rarer or not self.pooled):
            counts = np.bincount(place[place >= 0], minlength=len(names))
            remarks.unknown.update({names[i]: int(counts[i]) for i in strange})

    def notes(self, remarks: Remarks) -> list[str]:
        """Return a note on values not seen in training."""
        if not remarks.unknown:
            return []
        values = listed([repr(name) for name, _ in remarks.unknown.most_common()], n=3)
        n = remarks.unknown.total()
        hold = "1 row holds a value" if n == 1 else f"{n:,} rows hold values"
        return [f"column {self.name!r}: {hold} not seen in training: {values}"]

    def feature_names(self) -> list[str]:
        """Return what each feature is."""
        names = [f"{self.name} = {value}" for value in self.values]
        names += [f"{self.name} is missing"] if self.missing else []
        names += [f"{self.name} is another value"] if self.pooled else []
        n = 0 if self.statistics is None else self.statistics.width
        return [*names, *(f"{self.name}, target statistic {k} of {n}" for k in range(1, n + 1))]

    def to_dict(self) -> dict[str, object]:
        """Return the record as JSON can hold it; what is absent is left out."""
        return {
            "name": self.name,
            "missing": self.missing,
            "values": list(self.values),
            **({"pooled": True} if self.pooled else {}),
            **({"rarer": list(self.rarer)} if self.rarer else {}),
            **({} if self.statistics is None else {"statistics": self.statistics.to_dict()}),
        }

    @classmethod
    def from_dict(cls, record: Json) -> Category:
        """Return what `to_dict` recorded."""
        found = TargetStatistics.from_dict(record["statistics"]) if "statistics" in record else None
        pooled, rarer = record.get("pooled", False), tuple(record.get("rarer", ()))
        return cls(record["name"], tuple(record["values"]), record["missing"], pooled, rarer, found)


def codes_of(cells: Any, values: Sequence[str]) -> NDArray[np.int64]:
    """Return the place among some values of each cell, `[N]`, -1 for others."""
    place, different = distinct(cells)
    known = {value: k for k, value in enumerate(values)}
    return np.array([*(known.get(name, -1) for name in names_of(different)), -1], np.int64)[place]


#: How one column is encoded.
Column: TypeAlias = Number | Date | Category | Text


def column_from(record: Json) -> Column:
    """Return the column that a `to_dict` recorded."""
    name, missing = record["name"], record["missing"]
    if "mean" in record:
        return Number.from_dict(record)
    if "parts" in record:
        return Date(
            name,
            tuple(Number.from_dict(part) for part in record["parts"]),
            missing,
            None if record["day_first"] is None else flag("day_first", record["day_first"]),
            flag("times", record.get("times", False)),
        )
    if "words" in record:
        return Text(name, tuple(record["words"]), tuple(record["weights"]), missing)
    return Category.from_dict(record)


def numbers_from(start: int, column: Number | Date) -> list[tuple[int, Number]]:
    """Return each number of a column with the place of its first feature, where the column begins at `start`."""
    parts = column.parts if isinstance(column, Date) else (column,)
    places: list[int] = np.cumsum([start, *(part.width for part in parts[:-1])]).tolist()
    return list(zip(places, parts, strict=True))


@dataclass(frozen=True)
class Budget:
    """How many features a number may have."""

    pieces: int
    """Pieces of each number, 0 for none."""
    ranked: int
    """Values of each number whose ranks are kept, 0 for none."""
    limited: bool
    """Whether values are clipped."""

    @classmethod
    def of(cls, features: str, n_rows: int, n_numbers: int) -> Budget:
        """Return the budget of each of `n_numbers` columns with `n_rows` training rows."""
        most_pieces = min(_PIECES, n_rows // _ROWS_OF_PIECE, _MOST_PIECES // max(n_numbers, 1))
        most_ranked = min(_RANKED, _MOST_RANKED // max(n_numbers, 1))
        return cls(
            pieces=most_pieces if features in ("piecewise", "ranked") else 0,
            ranked=most_ranked if features == "ranked" else 0,
            limited=features != "unlimited",
        )


class ColumnFit(Protocol):
    """What is measured of a column of the training rows."""

    def add(self, chunk: Chunk, chosen: Mask) -> None:
        """Take the chosen rows of a chunk."""

    def merge(self, other: Any) -> None:
        """Add what was measured of later rows, by a fit of the same class."""

    def column(self, budget: Budget) -> tuple[Column | None, str | None]:
        """Return the column, None where it is left out, and a note if there is anything to say."""


def column_fit(
    kind: str,
    name: str,
    *,
    keeps: bool,
    form: NumberFormat = POINTS,
    day_first: bool | None = None,
    times: bool = False,
) -> ColumnFit:
    """Return what fits a column of some kind.

    Parameters
    ----------
    kind, name
        What the column holds, and its name.
    keeps
        Whether values are kept for quantiles.
    form
        How its numbers are written.
    day_first, times
        Whether its dates begin with the day, and whether they are times of day.
    """
    if kind == "number":
        return _Moments(name, keeps, form)
    if kind == "date":
        return _Dates(name, keeps, day_first, times)
    return _Counts(name) if kind == "category" else WordCounts(name)


@dataclass(eq=False)
class _Moments:
    """Mean and variance of a numeric column, chunk by chunk.

    Let parts a and b have shares w_a and w_b of the values, and d = mean_b - mean_a. Then the whole has the mean
    mean_a + w_b d and the variance w_a v_a + w_b v_b + w_a w_b d² (Chan et al. 1979). Chunks are joined in their order
    at the end, so that the digits do not depend on which process has read them.
    """

    name: str
    keeps: bool
    """Whether values are kept for quantiles."""
    format: NumberFormat = POINTS
    chunks: list[tuple[int, float, float]] = field(default_factory=list)
    """The number of values of each chunk, their mean and their variance."""
    missing: bool = False
    low: float = np.inf
    high: float = -np.inf
    kept: list[Floats] = field(default_factory=list)
    stride: int = 1

    seen: tuple[float, float] | None = None

    def add(self, chunk: Chunk, chosen: Mask) -> None:
        values = read_numbers(chunk[self.name], self.format).values
        self.see(values)
        self.add_values(values[chosen])

    def see(self, values: Floats) -> None:
        """Take the range of all rows: only what lies beyond them is unlike the table."""
        there = values[~np.isnan(values)]
        if len(there):
            self._widen((float(there.min()), float(there.max())))

    def _widen(self, ends: tuple[float, float]) -> None:
        low, high = self.seen or (np.inf, -np.inf)
        self.seen = min(low, ends[0]), max(high, ends[1])

    def add_values(self, values: Floats) -> None:
        there = values[~np.isnan(values)]
        self.missing |= len(there) < len(values)
        if not len(there):
            return
        self.chunks.append((len(there), float(np.mean(there)), float(np.var(there))))
        self.low, self.high = min(self.low, float(there.min())), max(self.high, float(there.max()))
        if self.keeps:
            self.kept.append(there[:: self.stride].copy())  # a view would keep all of them
            self._thin_out()

    def merge(self, other: _Moments) -> None:
        self.chunks += other.chunks
        self.missing |= other.missing
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        if other.seen is not None:
            self._widen(other.seen)
        # Of each chunk every `stride`-th value is kept, whatever the strides were on the way.
        stride = max(self.stride, other.stride)
        parts = [part[:: stride // fit.stride] for fit in (self, other) for part in fit.kept]
        self.kept, self.stride = parts, stride
        self._thin_out()

    def _thin_out(self) -> None:
        while sum(map(len, self.kept)) > _KEPT:
            self.kept, self.stride = [part[::2].copy() for part in self.kept], 2 * self.stride

    def moments(self) -> tuple[float, float]:
        """Return mean and variance of all values."""
        n, mean, variance = 0, 0.0, 0.0
        for more, its_mean, its_variance in self.chunks:
            share, gap = more / (n + more), its_mean - mean
            variance = (1 - share) * variance + share * its_variance + share * (1 - share) * gap**2
            mean += share * gap
            n += more
        return mean, variance

    def column(self, budget: Budget) -> tuple[Number | None, str | None]:
        if not self.chunks:
            return None, f"left out: {self.name!r} (missing in every training row)"
        mean, variance = self.moments()
        std = float(np.sqrt(variance)) or 1.0
        far = _FARTHEST * std
        limits = (max(self.low, mean - far), min(self.high, mean + far)) if budget.limited else None
        values = np.sort(np.concatenate(self.kept)) if self.keeps else np.empty(0)
        edges, ranks = _edges(values, budget.pieces), _ranks(values, budget.ranked)
        seen = self.seen if budget.limited else None
        return Number(self.name, mean, std, self.missing, limits, edges, ranks, seen, self.format), None


def _edges(values: Floats, pieces: int) -> tuple[float, ...]:
    """Return the edges of at most so many pieces of sorted values; none where one piece would do.

    A value that is more frequent than a piece is an edge, and the other edges are quantiles of the rest. Otherwise
    nearly all quantiles of a number that is zero in most rows would be zero.
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


def _ranks(values: Floats, ranked: int) -> tuple[tuple[float, float], ...]:
    """Return quantiles of sorted values with their ranks; none where there are two values, which ranks only rescale."""
    chosen = _quantiles(values, ranked) if ranked >= 2 else np.empty(0)
    if len(chosen) < 3:
        return ()
    lower, not_higher = (np.searchsorted(values, chosen, side) for side in ("left", "right"))
    ranks = (lower + not_higher) / (2 * len(values))
    return tuple(zip(chosen.tolist(), ranks.tolist(), strict=True))


def _quantiles(values: Floats, n: int) -> Floats:
    """Return the different ones of n + 1 quantiles, or every value where there are no more."""
    few = np.unique(values)
    return few if len(few) <= n + 1 else np.unique(np.quantile(values, np.linspace(0, 1, n + 1)))


@dataclass(eq=False)
class _Dates:
    """The parts of a column of dates."""

    name: str
    keeps: bool
    day_first: bool | None = None
    times: bool = False
    parts: dict[str, _Moments] = field(init=False)

    def __post_init__(self) -> None:
        self.parts = {part: _Moments(part, self.keeps) for part in PARTS}

    def add(self, chunk: Chunk, chosen: Mask) -> None:
        for part, values in date_parts(chunk[self.name], day_first=self.day_first, times=self.times).parts.items():
            self.parts[part].add_values(values[chosen])

    def merge(self, other: _Dates) -> None:
        for name, fit in self.parts.items():
            fit.merge(other.parts[name])

    def column(self, budget: Budget) -> tuple[Date | None, str | None]:
        parts = {"hour": self.parts["hour"]} if self.times else self.parts
        varying = [fit.column(budget)[0] for fit in parts.values() if fit.low < fit.high]
        # One mark for the whole date: its parts are missing together.
        numbers = tuple(replace(number, missing=False) for number in varying if number is not None)
        if not numbers:
            return None, f"left out: {self.name!r} (the same date in every training row, or none)"
        return Date(self.name, numbers, self.parts[PARTS[0]].missing, self.day_first, self.times), None


@dataclass(eq=False)
class _Counts:
    """How often each value of a categorical column occurs."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, chunk: Chunk, chosen: Mask) -> None:
        place, values = distinct(chunk[self.name])
        names = names_of(values)
        counts = np.bincount(place[chosen] + 1, minlength=len(values) + 1).tolist()
        for name, n in zip(["", *names], counts, strict=True):
            if n:
                self.counts[name] += n

    def merge(self, other: _Counts) -> None:
        self.counts.update(other.counts)

    def column(self, budget: Budget) -> tuple[Category, str | None]:
        missing = self.counts.pop("", 0) > 0
        ordered = sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))
        few = len(ordered) <= MAX_VALUES
        kept = tuple(sorted(value for value, n in ordered[:MAX_VALUES] if few or n > 1))
        if few:
            return Category(self.name, kept, missing), None
        # Where no value comes twice the column holds identifiers, and new ones are nothing to remark on.
        rarer = tuple(sorted(self.counts.keys() - set(kept))) if kept and len(ordered) <= _MAX_KNOWN else ()
        note = f"the {len(kept)} most frequent of {len(ordered)} values have a feature each, the others share one"
        if not kept:
            note = f"none of its {len(ordered)} values comes twice, so only whether there is one counts"
        return Category(self.name, kept, missing, pooled=True, rarer=rarer), f"column {self.name!r}: {note}"
