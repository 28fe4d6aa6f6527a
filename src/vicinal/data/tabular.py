"""Rows of a table: what each column holds, and how a row becomes numbers.

A numeric column is standardised by the training rows' mean and standard deviation; a missing value becomes the mean,
marked by a second number where training rows lacked values too. A categorical column becomes one number per value
seen in training; a value not seen there, or a missing one where none was missing in training, sets none of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from vicinal._checks import Argument, Sentence, nearest_names, require
from vicinal._typing import Batch
from vicinal.data.files import listed
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.tables import MISSING, Table, names_of

__all__ = ["Category", "Number", "TabularPreprocessing", "columns_of", "fit_tabular", "kinds_of"]

#: The share of a column's values that must be numbers (or dates) for it to be numeric (or dates).
_MOST = 0.9
#: A categorical column keeps this many values, the most frequent ones.
_MAX_VALUES = 100

_TIME = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp][Mm])?"
_DATE = re.compile(
    rf"(\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}"
    rf"|\d{{1,2}}[ -][A-Za-z]{{3,9}}[ -,]+\d{{2,4}}|[A-Za-z]{{3,9}} \d{{1,2}}, \d{{4}})"
    rf"([T ]+{_TIME}( ?(Z|UTC|[+-]\d{{2}}:?\d{{2}}))?)?|{_TIME}"
)


@dataclass(frozen=True)
class Number:
    """A numeric column: (value - mean) / std, and a mark for missing values if training rows lacked some."""

    name: str
    mean: float
    std: float
    missing: bool

    @property
    def width(self) -> int:
        """How many numbers of the input it is."""
        return 1 + self.missing

    def encode(self, series: Any) -> tuple[np.ndarray[Any, Any], list[str]]:
        """Return the column as numbers `[N, width]`, and notes."""
        numbers, odd = as_numbers(series)
        notes = []
        if odd.any():
            rows = listed([f"row {i + 1} ({series.iloc[i]!r})" for i in np.flatnonzero(odd)], n=3)
            notes.append(f"column {self.name!r}: {odd.sum()} values are no numbers and count as missing: {rows}")
        lacking = np.isnan(numbers)
        values = np.where(lacking, 0.0, (numbers - self.mean) / self.std)
        return np.stack([values, lacking] if self.missing else [values], axis=1), notes


@dataclass(frozen=True)
class Category:
    """A categorical column: one number per value, and one for missing values if training rows lacked some."""

    name: str
    values: tuple[str, ...]
    missing: bool

    @property
    def width(self) -> int:
        """How many numbers of the input it is."""
        return len(self.values) + self.missing

    def encode(self, series: Any) -> tuple[np.ndarray[Any, Any], list[str]]:
        """Return the column as numbers `[N, width]`, and notes."""
        names = as_names(series)
        position = {value: k for k, value in enumerate(self.values)}
        if self.missing:
            position[""] = len(self.values)
        encoded = np.zeros((len(names), self.width))
        unknown: Counter[str] = Counter()
        for i, name in enumerate(names):
            if name in position:
                encoded[i, position[name]] = 1
            elif name:
                unknown[name] += 1
        if not unknown:
            return encoded, []
        values = listed([repr(name) for name, _ in unknown.most_common()], n=3)
        return encoded, [
            f"column {self.name!r}: {sum(unknown.values())} rows hold values not seen in training: {values}"
        ]


@dataclass(frozen=True)
class TabularPreprocessing(Preprocessing):
    """How a row becomes the features of a model, by column names."""

    kind: ClassVar[str] = "tabular"

    columns: tuple[Number | Category, ...]
    target: str
    ignored: tuple[str, ...] = ()
    """The columns that were left out on purpose: no note is made of them."""

    @property
    def spec(self) -> dict[str, Any]:
        """The number of features."""
        return {"kind": self.kind, "input_shape": (sum(column.width for column in self.columns),)}

    def __call__(self, item: Any, *, augment: str = "none", generator: torch.Generator | None = None) -> Batch:
        """Return one row as features `[D]`; a row is a mapping from column names, or encoded already."""
        if isinstance(item, Tensor):
            return item
        return self.encode(require("pandas", "train").DataFrame([dict(item)]))[0][0]

    def encode(self, frame: Any) -> tuple[Tensor, list[str]]:
        """Return the rows of a DataFrame as features `[N, D]`, and what there is to say about them.

        Columns are found by name. New ones are ignored and named; a missing one is an error.
        """
        for column in self.columns:
            if column.name not in frame.columns:
                hint = nearest_names(column.name, [str(name) for name in frame.columns])
                raise ValueError(f"the data lack the column {column.name!r} that the model was trained with{hint}")
        known = {self.target, *self.ignored, *(column.name for column in self.columns)}
        new = [repr(str(name)) for name in frame.columns if name not in known]
        notes = [f"ignored: {listed(new)}, which the model was not trained with"] if new else []
        blocks = []
        for column in self.columns:
            block, more = column.encode(frame[column.name])
            blocks.append(block)
            notes += more
        return torch.from_numpy(np.concatenate(blocks, axis=1).astype(np.float32)), notes

    def _fields(self) -> dict[str, Any]:
        columns = [
            {"name": c.name, "mean": c.mean, "std": c.std, "missing": c.missing}
            if isinstance(c, Number)
            else {"name": c.name, "values": list(c.values), "missing": c.missing}
            for c in self.columns
        ]
        return {"columns": columns, "target": self.target, "ignored": list(self.ignored)}

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> TabularPreprocessing:
        columns = tuple(
            Number(**c) if "mean" in c else Category(c["name"], tuple(c["values"]), c["missing"])
            for c in fields["columns"]
        )
        return cls(columns, fields["target"], tuple(fields["ignored"]))


def kinds_of(table: Table, target: str) -> dict[str, str]:
    """Return what each column but the target holds.

    `"number"`, `"category"`, `"text"` (long free strings) or why it is left out: `"date"`, `"constant"` (the same
    everywhere), `"id"` (a number or name for each row), `"nested"` (lists and the like).
    """
    kinds = {name: _kind_of(table.frame[name], str(name)) for name in table.frame.columns if name != target}
    strings = [name for name, kind in kinds.items() if kind in ("id", "category") and _is_short_text(table.frame[name])]
    if not any(kind in ("number", "category", "text") for name, kind in kinds.items() if name not in strings):
        # Nothing else to learn from: strings of their own for each row are short texts, not names.
        kinds.update(dict.fromkeys(strings, "text"))
    return kinds


def columns_of(kinds: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the columns to learn from, and notes that name the others with the reason."""
    reasons = {
        "date": "dates",
        "constant": "the same in every row",
        "id": "a value of its own in almost every row",
        "nested": "neither numbers nor strings",
        "text": Sentence("free text; ", Argument("kind", "text"), " learns from it instead"),
    }
    notes: list[str] = []
    for kind, reason in reasons.items():
        names = [repr(name) for name, of in kinds.items() if of == kind]
        if names:
            notes.append(Sentence(f"left out: {listed(names, n=20)} (", reason, ")"))
    return [name for name, kind in kinds.items() if kind in ("number", "category")], notes


def bad_rows(frame: Any, names: Sequence[str], kinds: Mapping[str, str]) -> dict[int, str]:
    """Return the rows with something else than a number in a numeric column, and what it is."""
    bad: dict[int, str] = {}
    for name in names:
        if kinds[name] == "number":
            _, odd = as_numbers(frame[name])
            for i in np.flatnonzero(odd).tolist():
                bad.setdefault(i, f"row {i + 1} ({name!r} is {frame[name].iloc[i]!r})")
    return dict(sorted(bad.items()))


def fit_tabular(
    frame: Any, train: Sequence[int], names: Sequence[str], kinds: Mapping[str, str], target: str
) -> tuple[TabularPreprocessing, list[str]]:
    """Fit each column on the training rows alone, and return notes on those that were cut short."""
    notes: list[str] = []
    columns: list[Number | Category] = []
    rows = frame.iloc[list(train)]
    for name in names:
        if kinds[name] == "number":
            numbers, _ = as_numbers(rows[name])
            lacking = np.isnan(numbers)
            if lacking.all():
                notes.append(f"left out: {name!r} (missing in every training row)")
                continue
            std = float(np.std(numbers[~lacking]))
            columns.append(Number(name, float(np.mean(numbers[~lacking])), std or 1.0, bool(lacking.any())))
        else:
            counts = Counter(as_names(rows[name]))
            missing = counts.pop("", 0) > 0
            kept = [value for value, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:_MAX_VALUES]]
            if len(kept) < len(counts):
                notes.append(f"column {name!r}: the {len(kept)} most frequent of {len(counts)} values are told apart")
            columns.append(Category(name, tuple(sorted(kept)), missing))
    if not columns:
        raise ValueError("there is no column to learn from: all were left out")
    used = {column.name for column in columns}
    ignored = tuple(str(name) for name in frame.columns if name not in used and name != target)
    return TabularPreprocessing(tuple(columns), target, ignored), notes


def as_numbers(series: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return a column as float64 with NaN for what is missing, and a mask of cells that are no finite numbers."""
    if _is_numeric(series):
        numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
        odd = np.isinf(numbers)
    else:
        names = as_names(series)
        numbers = np.array([_float(name) for name in names], dtype=np.float64)
        odd = ~np.isfinite(numbers) & np.array([bool(name) for name in names])
    return np.where(odd, np.nan, numbers), odd


def as_names(series: Any) -> list[str]:
    """Return a column as stripped strings, `""` for what is missing."""
    lacking = series.isna().tolist()
    names = names_of(series.tolist())
    return ["" if gone or name in MISSING else name for gone, name in zip(lacking, names, strict=True)]


def _kind_of(series: Any, name: str) -> str:
    held = series.dropna()
    if str(series.dtype).startswith(("datetime", "timedelta", "period")):
        return "date"
    if any(isinstance(value, (list, dict, tuple, set, np.ndarray, bytes)) for value in held.head(100)):
        return "nested"
    if len(held) and all(hasattr(value, "isoformat") for value in held.head(100)):
        return "date"  # date objects, as Parquet holds them
    filled = [value for value in as_names(series) if value]
    distinct = len(set(filled))
    if not filled or (distinct == 1 and len(filled) == len(series)):
        return "constant"
    if not _is_numeric(series) and _share(filled, _DATE.fullmatch) >= _MOST:
        return "date"
    numbers, odd = as_numbers(series)
    if np.isfinite(numbers).sum() >= _MOST * len(filled):
        return "id" if _is_counter(numbers, name) and not odd.any() else "number"
    if distinct >= 0.5 * len(filled) and _mean_words(filled) >= 6:
        return "text"
    return "id" if distinct > max(20, 0.5 * len(filled)) else "category"


def _is_numeric(series: Any) -> bool:
    dtype = str(series.dtype).lower()
    return dtype.startswith(("int", "uint", "float", "double", "decimal")) and "bool" not in dtype


def _is_counter(numbers: np.ndarray[Any, Any], name: str) -> bool:
    """Return whether a numeric column just numbers the rows."""
    if np.isnan(numbers).any() or (numbers % 1).any() or len(np.unique(numbers)) < len(numbers):
        return False
    if re.fullmatch(r"(?i)(.*[_ ])?(id|index|idx|nr|no|number|key)|Unnamed: 0|", name):
        return True
    return len(numbers) >= 20 and len(steps := np.unique(np.diff(numbers))) == 1 and abs(steps[0]) == 1


def _share(values: Sequence[str], test: Callable[[str], object]) -> float:
    """Return the share of the first thousand values that pass a test."""
    return float(np.mean([bool(test(value)) for value in values[:1000]]))


def _mean_words(values: Sequence[str]) -> float:
    return float(np.mean([len(value.split()) for value in values[:1000]])) if values else 0.0


def _is_short_text(series: Any) -> bool:
    """Return whether a column of strings could be texts, if there is nothing else to learn from."""
    values = [value for value in as_names(series) if value]
    return len(set(values)) >= 0.5 * len(values) and _mean_words(values) >= 2


def _float(value: str) -> float:
    try:
        return float(value) if "_" not in value else np.nan  # Python reads "1_000" as a number, tables do not
    except ValueError:
        return np.nan
