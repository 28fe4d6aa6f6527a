"""Rows of a table: how each column becomes numbers, a whole chunk at a time.

A numeric column is standardised by the training rows' mean and standard deviation; a missing value becomes the mean,
marked by a second number where training rows had missing values too. A categorical column becomes one number per value
seen in training; a value not seen there, or a missing one where none was missing in training, sets none of them. Of
many values the most frequent have a number each, and all others share one.

scikit-learn's imputers and encoders do the same to arrays in memory, but are saved by pickling; these are JSON.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._checks import nearest_names, number
from vicinal._typing import Batch
from vicinal.data.files import listed
from vicinal.data.preprocessing import Preprocessing
from vicinal.tables import LARGEST, BadRow, Chunk, Table, distinct, finite_numbers, from_rows, names_of

__all__ = ["Category", "Number", "TabularPreprocessing", "fit_tabular"]

#: A categorical column keeps this many values, the most frequent ones.
_MAX_VALUES = 100
#: Bytes of features that are kept in memory: a quarter of the machine's.
_IN_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 if hasattr(os, "sysconf") else 2**32
#: Rows encoded at a time: their features should fit in a processor's cache.
_ROWS = 2**13


@dataclass(eq=False)
class _Remarks:
    """What there is to say of a column after encoding some chunks."""

    n_odd: int = 0
    odd: list[str] = field(default_factory=list)
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
    """A numeric column: (value - mean) / std, and a mark for missing values if training rows had some."""

    name: str
    mean: float
    std: float
    missing: bool

    @property
    def width(self) -> int:
        """How many numbers of the input it is."""
        return 1 + self.missing

    def encode(self, chunk: Chunk, out: NDArray[np.float32], remarks: _Remarks) -> None:
        """Write the column as numbers into `out` `[M, width]`, which holds zeros."""
        values, odd = finite_numbers(chunk[self.name], decimal_comma=chunk.decimal_comma)
        scaled = (values - self.mean) / self.std
        far = np.abs(scaled) > LARGEST  # of a column that hardly varies
        odd, scaled = odd | far, np.where(far, np.nan, scaled)
        if odd.any():
            remarks.n_odd += int(odd.sum())
            for i in np.flatnonzero(odd)[: 3 - len(remarks.odd)].tolist():
                remarks.odd.append(f"row {chunk.rows[i]:,} ({chunk[self.name][i].as_py()!r})")
        missing = np.isnan(scaled)
        out[:, 0] = np.where(missing, 0.0, scaled)
        if self.missing:
            out[:, 1] = missing

    def notes(self, remarks: _Remarks) -> list[str]:
        """Return what new rows were like."""
        if not remarks.n_odd:
            return []
        more = [""] * (remarks.n_odd - len(remarks.odd))
        rows = listed([*remarks.odd, *more], n=3)
        return [f"column {self.name!r}: {remarks.n_odd} values are no finite numbers and count as missing: {rows}"]


@dataclass(frozen=True)
class Category:
    """A categorical column: one number per value, one for all others if there were too many, one for missing ones."""

    name: str
    values: tuple[str, ...]
    missing: bool
    pooled: bool = False
    """Whether rarer values of the training rows share a number."""

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
        strange = [i for i, name in enumerate(names) if name not in position]
        if strange and not self.pooled:
            counts = np.bincount(place[place >= 0], minlength=len(names))
            remarks.unknown.update({names[i]: int(counts[i]) for i in strange})

    def notes(self, remarks: _Remarks) -> list[str]:
        """Return what new rows were like."""
        if not remarks.unknown:
            return []
        values = listed([repr(name) for name, _ in remarks.unknown.most_common()], n=3)
        n = remarks.unknown.total()
        return [f"column {self.name!r}: {n} rows hold values not seen in training: {values}"]


@dataclass(frozen=True)
class TabularPreprocessing(Preprocessing):
    """How a row becomes the features of a model, by column names."""

    kind: ClassVar[str] = "tabular"

    columns: tuple[Number | Category, ...]
    target: str
    ignored: tuple[str, ...] = ()
    """The columns that were left out on purpose: no note is made of them."""

    @property
    def width(self) -> int:
        """The number of features D."""
        return sum(column.width for column in self.columns)

    @property
    def spec(self) -> dict[str, Any]:
        """The number of features."""
        return {"kind": self.kind, "input_shape": (self.width,)}

    def __call__(self, item: Any, *, augment: str = "none", generator: torch.Generator | None = None) -> Batch:
        """Return one row as features `[D]`; a row is a mapping from column names, or encoded already."""
        if isinstance(item, Tensor):
            return item
        return self.encode(from_rows([dict(item)]), n=1).features[0]

    def encode(self, table: Table, *, n: int | None = None) -> Encoded:
        """Return the rows of a table as features.

        Columns are found by name. New ones are ignored and named; a missing one is an error. Memory is that of the
        features and of a chunk.

        Parameters
        ----------
        table
            The table.
        n
            The number of its rows, bad ones too, if it is known.
        """
        if n is None:
            n = table.count_rows()
        features = feature_matrix(n, self.width)
        readable = np.zeros(n, np.bool_)
        bad: list[BadRow] = []
        notes: list[str] = []
        for rows, block in self.blocks(table, bad, notes):
            readable[rows - 1] = True
            if rows[-1] - rows[0] + 1 == len(rows):
                features[rows[0] - 1 : rows[-1]] = block
            else:  # bad rows lie between
                features[rows - 1] = block
        return Encoded(features, readable, bad, notes)

    def blocks(self, table: Table, bad: list[BadRow], notes: list[str]) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Yield numbers of rows, from 1, and their features, float32 `[M, D]`, some rows at a time.

        Parameters
        ----------
        table
            The table.
        bad
            Where rows that cannot be read are added.
        notes
            Where all that there is to say is added, the values of columns after the last block.
        """
        notes += self._compare(table)
        remarks = {column.name: _Remarks() for column in self.columns}
        for chunk in table.chunks([column.name for column in self.columns], _ROWS, bad=bad):
            block, start = np.zeros((len(chunk), self.width), np.float32), 0
            for column in self.columns:
                column.encode(chunk, block[:, start : start + column.width], remarks[column.name])
                start += column.width
            yield chunk.rows, torch.from_numpy(block)
        for column in self.columns:
            notes += column.notes(remarks[column.name])

    def _compare(self, table: Table) -> list[str]:
        for column in self.columns:
            if column.name not in table.columns:
                hint = nearest_names(column.name, table.columns)
                raise ValueError(f"the data lack the column {column.name!r} that the model was trained with{hint}")
        known = {self.target, *self.ignored, *(column.name for column in self.columns)}
        new = [repr(name) for name in table.columns if name not in known]
        return [f"ignored: {listed(new)}, which the model was not trained with"] if new else []

    def _fields(self) -> dict[str, object]:
        columns = [_record(column) for column in self.columns]
        return {"columns": columns, "target": self.target, "ignored": list(self.ignored)}

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> TabularPreprocessing:
        columns = tuple(
            Number(c["name"], number("mean", c["mean"]), number("std", c["std"], above=0), bool(c["missing"]))
            if "mean" in c
            else Category(c["name"], tuple(c["values"]), c["missing"], c.get("pooled", False))
            for c in fields["columns"]
        )
        return cls(columns, fields["target"], tuple(fields["ignored"]))


def _record(column: Number | Category) -> dict[str, object]:
    if isinstance(column, Number):
        return {"name": column.name, "mean": column.mean, "std": column.std, "missing": column.missing}
    record = {"name": column.name, "values": list(column.values), "missing": column.missing}
    return {**record, "pooled": True} if column.pooled else record


def fit_tabular(
    table: Table, train: NDArray[np.bool_], names: Sequence[str], kinds: Mapping[str, str], target: str
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
    """
    fits: dict[str, _Moments | _Counts] = {
        name: _Moments(name) if kinds[name] == "number" else _Counts(name) for name in names
    }
    for chunk in table.chunks(names, bad=[]):
        chosen = train[chunk.rows - 1]
        if chosen.any():
            for fit in fits.values():
                fit.add(chunk, chosen)
    columns, notes = [], []
    for fit in fits.values():
        column, note = fit.column()
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
    n: int = 0
    mean: float = 0.0
    variance: float = 0.0
    missing: bool = False

    def add(self, chunk: Chunk, chosen: NDArray[np.bool_]) -> None:
        values = finite_numbers(chunk[self.name], decimal_comma=chunk.decimal_comma)[0][chosen]
        there = values[~np.isnan(values)]
        self.missing |= len(there) < len(values)
        if not len(there):
            return
        share = len(there) / (self.n + len(there))
        gap = float(np.mean(there)) - self.mean
        self.variance = (1 - share) * self.variance + share * float(np.var(there)) + share * (1 - share) * gap**2
        self.mean += share * gap
        self.n += len(there)

    def column(self) -> tuple[Number | None, str | None]:
        if not self.n:
            return None, f"left out: {self.name!r} (missing in every training row)"
        return Number(self.name, self.mean, float(np.sqrt(self.variance)) or 1.0, self.missing), None


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

    def column(self) -> tuple[Category, str | None]:
        missing = self.counts.pop("", 0) > 0
        ordered = sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))
        kept = tuple(sorted(value for value, _ in ordered[:_MAX_VALUES]))
        if len(kept) == len(self.counts):
            return Category(self.name, kept, missing), None
        note = f"column {self.name!r}: of {len(self.counts)} values the {len(kept)} most frequent are told apart"
        return Category(self.name, kept, missing, pooled=True), f"{note}, the others count as one"


def feature_matrix(n: int, width: int) -> Tensor:
    """Return zeros, float32 `[n, width]`, in a file where they would fill memory.

    The file is one of the system's temporary files (`TMPDIR` says where), mapped into memory: what is not in use lies
    on the disk. It has no name, and is gone with the process.
    """
    n_bytes = 4 * n * width
    if n_bytes <= _IN_MEMORY:
        return torch.zeros(n, width)
    with tempfile.TemporaryFile(prefix="vicinal-") as file:
        if hasattr(os, "posix_fallocate"):  # room for all of it now, rather than a crash at the first page without
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        file.truncate(n_bytes)
        return torch.from_numpy(np.memmap(file, np.float32, "r+", shape=(n, width)))
