"""Turn columns of class names into class numbers: by name, never by sorted order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, Sentence, nearest_names
from vicinal.tables.column_values import MISSING, as_numpy, distinct, name_of

if TYPE_CHECKING:
    import pyarrow as pa

#: The code of a missing value.
ABSENT = -1
#: More different classes than this are refused: the column is not one of classes, and memory must stay bounded.
MOST_CLASSES = 100_000

#: Whole numbers from 0 up to this are looked up in an array, others by name.
_TABLE = 2**16


class ClassCodes:
    """Turns columns of class names, or of class numbers, into numbers from 0.

    Parameters
    ----------
    names
        The classes, or None: then each new name becomes a new class.
    by_position
        Whether a whole number that is no name means a position in `names`. This holds only where no name is a whole
        number itself; else `1` could mean two classes.
    numbered
        Whether the names are only the places of values in a list, for the advice to give.

    Examples
    --------
    >>> codes = ClassCodes(["dog", "cat"])
    >>> codes.encode(np.array(["cat", "dog", "cat"]), what="label", rows=np.arange(1, 4)).tolist()
    [1, 0, 1]
    >>> ClassCodes(["10", "2"]).encode(np.array([2, 10]), what="label", rows=np.arange(1, 3)).tolist()
    [1, 0]
    """

    def __init__(self, names: Sequence[str] | None, *, by_position: bool = False, numbered: bool = False) -> None:
        self._numbered = numbered
        self.names: list[str] = list(names or ())
        self._grows = names is None
        self._codes = {name: i for i, name in enumerate(self.names)}
        canonical: dict[str, int] = {}
        for name, code in self._codes.items():
            canonical[name_of(name)] = ABSENT if name_of(name) in canonical else code
        self._canonical = {name: code for name, code in canonical.items() if code != ABSENT}
        self.spellings: dict[str, set[str]] = {}
        """How classes are written, where that is not their name."""
        self._some_whole = any(whole(name) is not None for name in self.names)
        self._by_position = by_position and not self._some_whole
        self._table = np.full(_TABLE, ABSENT, np.int64)
        for name, code in self._codes.items():
            self._remember(name, code)
        if self._by_position:
            self._table[: len(self.names)] = np.arange(min(len(self.names), _TABLE))

    def encode(self, column: pa.Array, *, what: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of each value's class, `ABSENT` where there is none.

        Parameters
        ----------
        column
            A numpy or pyarrow array of names, whole numbers or booleans, `[M]`.
        what, rows
            The column's name, and the numbers of its rows, for errors.
        """
        if not isinstance(column, np.ndarray):
            kind = str(column.type)
            if kind.startswith(("list", "large_list", "fixed_size_list", "struct")):
                raise ValueError(f"a column of classes must hold names or whole numbers, got {kind}")
            if kind.startswith(("int", "uint")) and not column.null_count:
                column = as_numpy(column)
        if isinstance(column, np.ndarray) and column.dtype.kind in "iu" and len(column):
            low, high = int(column.min()), int(column.max())
            if low >= 0 and high < _TABLE:
                codes: NDArray[np.int64] = self._table.take(column)
                if codes.min() != ABSENT:
                    return codes
        place, values = distinct(column)
        codes = np.full(len(values) + 1, ABSENT, np.int64)  # the place of a missing value is -1
        there = np.bincount(place + 1, minlength=len(values) + 1)[1:]  # a categorical column may list unused values
        for i in np.flatnonzero(there).tolist():
            value = values[i]
            code = self._code(value)
            if code is None:
                row = int(rows[np.flatnonzero(place == i)[0]])
                raise ValueError(self._unknown(value, what, row))
            codes[i] = code
        result: NDArray[np.int64] = codes.take(place)
        return result

    def _code(self, value: object) -> int | None:
        """Return a value's class, `ABSENT` if it is missing, None if it is unknown."""
        if value is None or (isinstance(value, float) and np.isnan(value)):
            return ABSENT
        if str(value) in self._codes:
            return self._codes[str(value)]
        if isinstance(value, bool) and str(int(value)) in self._codes:
            return self._codes[str(int(value))]  # a column of booleans beside the classes 0 and 1
        plain = name_of(value)
        if plain in MISSING and plain not in self._canonical:
            return ABSENT
        if plain not in self._canonical and self._grows and self._add(plain) is None:
            return None
        if plain in self._canonical:
            code = self._canonical[plain]
            if isinstance(value, str | bytes) and value != self.names[code]:
                self.spellings.setdefault(self.names[code], {self.names[code]}).add(str(value))
            return code
        if self._by_position and (position := whole(plain)) is not None and 0 <= position < len(self.names):
            return position
        return None

    def _add(self, name: str) -> int | None:
        if len(self.names) >= MOST_CLASSES:
            return None
        code = self._codes[name] = len(self.names)
        self._canonical[name] = code
        self.names.append(name)
        self._remember(name, code)
        return code

    def _remember(self, name: str, code: int) -> None:
        number = whole(name)
        if number is not None and 0 <= number < _TABLE:
            self._table[number] = code

    def _unknown(self, value: object, what: str, row: int) -> Sentence:
        if self._grows:
            return Sentence(
                f"column {what!r} holds more than {MOST_CLASSES:,} different values, the last of them {value!r} in row "
                f"{row:,}: classes are wanted. Name the column of the classes with ",
                Argument("label"),
            )
        text = name_of(value)
        if len(self.names) == 1:
            return Sentence(
                f"row {row:,} has {what} {value!r}, but there is only the class {self.names[0]!r}: for the "
                "probability p of a binary task two columns are needed, 1 - p and p, or one column y_prob"
            )
        start = f"row {row:,} has {what} {value!r}, which is none of the {len(self.names)} classes"
        if self._numbered:
            return Sentence(
                f"{start}: the values in each row are those of the classes 0 to {len(self.names) - 1}. If {what} "
                "holds names, or other numbers, pass ",
                Argument("classes"),
                " with them in the order of the values",
            )
        if whole(text) is not None and not self._some_whole:
            if self._by_position:
                return Sentence(f"{start}: class numbers go from 0 to {len(self.names) - 1}")
            shown = ", ".join(map(repr, self.names[:4])) + (", …" if len(self.names) > 4 else "")
            return Sentence(
                f"{start} {shown}. If {what} holds class numbers, pass ",
                Argument("classes"),
                " with the names in the order of these numbers",
            )
        hint = nearest_names(text, self.names)
        end = "" if hint.endswith("?") else "."
        return Sentence(
            f"{start}{hint}{end} If the columns of scores have other names than the classes, pass ",
            Argument("columns"),
            " and ",
            Argument("classes"),
        )


def whole(name: str) -> int | None:
    """Return the whole number that a name spells in canonical form, else None.

    >>> whole("12"), whole("012"), whole("a")
    (12, None, None)
    """
    return int(name) if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", name) else None


def checked_names(names: Sequence[object]) -> tuple[str, ...]:
    """Return `classes=` as distinct names."""
    if isinstance(names, str) or not all(isinstance(name, str | int | np.integer) for name in names):
        raise TypeError(f"classes must be a list of names, got {names!r}")
    result = tuple(str(name) for name in names)
    twice = sorted(name for name, n in Counter(result).items() if n > 1)
    if twice or not result:
        raise ValueError(f"classes must be different names, got {twice[0]!r} twice" if twice else "classes is empty")
    return result
