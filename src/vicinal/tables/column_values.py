"""Columns as numbers, as names and as matrices, with one rule for missing values.

Cells of text files stay text until a column's use is known: a reader that decides cell by cell turns a class called
"None" or "NA" into a missing value.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vicinal._arrays import Values
from vicinal._checks import require

if TYPE_CHECKING:
    import pyarrow as pa

#: The largest number of float32.
LARGEST = float(np.finfo(np.float32).max)

#: Text that people and programs write for a missing value.
MISSING = frozenset({"", "?", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "null", "NULL", "None", "#N/A", "\\N"})

#: A column is tried as numbers if these first cells are numbers.
_LOOK = 16
#: What pyarrow calls numpy's numbers.
_NUMBERS = {name: np.dtype(name) for size in (8, 16, 32, 64) for name in (f"int{size}", f"uint{size}")}
_NUMBERS |= {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}
#: A whole number with a point; its digits are not converted, as there may be thousands of them.
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)\.0*")
#: What pandas calls an index without a name in Parquet and Arrow files.
_INDEX = re.compile("__index_level_[0-9]+__")
#: True and false as R and JSON write them.
_BOOLEANS = frozenset({"TRUE", "FALSE", "true", "false"})
_DECIMAL_COMMA = r"^(\s*[+-]?[0-9]*),([0-9]*\s*)$"

Floats = NDArray[np.floating]


def numbers(column: pa.Array, *, decimal_comma: bool = False) -> tuple[Floats, NDArray[np.bool_]]:
    """Return a column as floats `[M]`, NaN where it is missing or no number, and a mask of the cells that are none.

    float32 stays float32; all else is float64. Scores are read like this; `read_numbers` reads what people write.

    Parameters
    ----------
    column
        A numpy or pyarrow array of numbers, or of text that spells them.
    decimal_comma
        Whether text may write 0,5 for a half.

    >>> values, odd = numbers(np.array(["1", " 2.5", "?", "many"]))
    >>> values.tolist(), odd.tolist()
    ([1.0, 2.5, nan, nan], [False, False, False, True])
    """
    if isinstance(column, np.ndarray) and column.dtype.kind not in "fiub":
        column = require("pyarrow", "train").array(column.astype(str))
    if isinstance(column, np.ndarray) or not is_text(column):
        return typed_numbers(column)
    return _parsed(column.dictionary_decode() if hasattr(column, "dictionary") else column, decimal_comma)


def typed_numbers(column: pa.Array) -> tuple[Floats, NDArray[np.bool_]]:
    """Return what `numbers` does of a column that is no text."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "fiu":
        return _floats(column), np.zeros(len(column), np.bool_)
    pa = require("pyarrow", "train")
    if isinstance(column, np.ndarray):
        column = pa.array(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64()) if pa.types.is_decimal(kind) else column
        return _floats(as_numpy(column)), np.zeros(len(column), np.bool_)
    # Booleans and dates are no numbers, whatever the file's type says.
    return np.full(len(column), np.nan), column.is_valid().to_numpy(zero_copy_only=False)


def strict_numbers(column: pa.Array, rows: NDArray[np.int64], *, what: str, decimal_comma: bool = False) -> Floats:
    """Return a column as floats `[M]`, NaN where it is missing; a cell that is no number is an error with its row.

    Parameters
    ----------
    column, decimal_comma
        As in `numbers`; booleans count as 0 and 1 here.
    rows, what
        The numbers of the rows and the column's name, for errors.
    """
    if isinstance(column, np.ndarray) and column.dtype.kind == "b":
        return column.astype(np.float64)
    if not isinstance(column, np.ndarray) and str(column.type) == "bool":
        column = column.cast("int8")
    values, odd = numbers(column, decimal_comma=decimal_comma)
    if odd.any():
        first = int(odd.argmax())
        cell = column[first] if isinstance(column, np.ndarray) else column[first].as_py()
        if not isinstance(cell, str):
            raise ValueError(f"column {what!r} must hold numbers, got {column.type}")
        cell = cell.strip()
        hint = "; CSV files hold one column for each class (prob_<class>), not lists" * cell.startswith("[")
        hint += ": write percentages as shares, 0.25 for 25 %" * cell.endswith("%")
        raise ValueError(f"row {rows[first]:,} has {cell!r} in column {what!r}, which is no number{hint}")
    return values


def matrix(column: pa.Array, rows: NDArray[np.int64], *, width: int, what: str) -> Floats:
    """Return a column of lists as a matrix `[M, width]`, a row of NaN where a list is missing."""
    if isinstance(column, np.ndarray):
        if column.dtype.kind not in "fiub":
            raise ValueError(f"{what!r} must hold numbers, got an array of {column.dtype}")
        return _floats(column)
    compute = require("pyarrow.compute", "train")
    there = column.is_valid().to_numpy(zero_copy_only=False)
    length = compute.list_value_length(column).fill_null(width).to_numpy(zero_copy_only=False)
    if (wrong := np.flatnonzero(length != width)).size:
        row = int(wrong[0])
        raise ValueError(
            f"row {rows[row]:,} has {int(length[row])} values in {what!r}, but there are {width} classes: "
            "every row needs one value for each class"
        )
    flat = strict_numbers(column.flatten(), rows[there].repeat(width), what=what)
    if there.all():
        return flat.reshape(-1, width)
    result = np.full((len(there), width), np.nan, flat.dtype)
    result[there] = flat.reshape(-1, width)
    return result


def distinct(column: pa.Array | Values) -> tuple[NDArray[np.intp], list[Any]]:
    """Return each value's place among the distinct ones, -1 where it is missing, and the distinct ones.

    >>> place, values = distinct(np.array(["b", "a", "b"]))
    >>> [values[i] for i in place]
    ['b', 'a', 'b']
    """
    if isinstance(column, np.ndarray):
        values, place = np.unique(column, return_inverse=True)
        return place, values.tolist()
    pa = require("pyarrow", "train")
    if pa.types.is_nested(column.type):
        raise ValueError(f"a label or category must be one value, got a column of type {column.type}")
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    indices = column.indices
    if indices.null_count:  # naming a value to fill in imports pandas, which takes longer than a small file
        indices = indices.fill_null(-1)
    return as_numpy(indices).astype(np.intp), column.dictionary.to_pylist()


def name_of(value: object) -> str:
    r"""Return a value as the name of a class or category, by the one rule for all commands; `""` where it is None.

    Spaces at the ends do not count. A whole number has no decimals, as a number and as text: a file with a missing
    label holds `1.0` where another holds `1`. True and false are written as in Python, whatever program wrote them.
    Letters are composed (NFC), and bytes are UTF-8; others are written as in Python, so that different bytes stay
    different names.

    >>> [name_of(value) for value in (1.0, "1.0", "a ", "TRUE", "cafe\u0301", b"high", b"\xff", None)]
    ['1', '1', 'a', 'True', 'café', 'high', '\\xff', '']
    """
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, Decimal) and value.is_finite():  # 2.50 is the 2.5 of a file of floats
        value = format(value.normalize(), "f")
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    name = unicodedata.normalize("NFC", text).strip()
    if _WHOLE.fullmatch(name):
        name = name.partition(".")[0]
    if name in _BOOLEANS:
        return name.capitalize()
    return "0" if name == "-0" else name


def names_of(values: Sequence[object], missing: Collection[str] = MISSING) -> list[str]:
    """Return values as the names of categories, `""` for what is missing.

    >>> names_of([1.0, "a ", True, "?", None])
    ['1', 'a', 'True', '', '']
    """
    return ["" if name in missing else name for name in map(name_of, values)]


def merged_notes(spellings: Mapping[str, Collection[str]]) -> list[str]:
    """Return a note on each name that is written in several ways, given how each is written.

    >>> merged_notes({"1": {"1", "1.0"}, "a": {"a"}})
    ["'1' and '1.0' are one class, '1'"]
    """
    several = {name: sorted(written) for name, written in spellings.items() if len(written) > 1}
    notes = [f"{' and '.join(map(ascii, written[:4]))} are one class, {name!r}" for name, written in several.items()]
    rest = [f"{len(notes) - 3:,} more classes are written in several ways"] if len(notes) > 3 else []
    return [*notes[:3], *rest]


def is_index(name: str) -> bool:
    """Return whether a column is the index of a DataFrame that has no name: pandas does not show it as a column.

    >>> is_index("__index_level_0__"), is_index("id")
    (True, False)
    """
    return _INDEX.fullmatch(name) is not None


def plain_text(column: pa.Array) -> pa.Array:
    """Return text of other layouts, and categories of it, as plain text."""
    pa, column = require("pyarrow", "train"), _without_views(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string()) if pa.types.is_large_string(column.type) else as_text(column)


def _without_views(column: pa.Array) -> pa.Array:
    """Return views of text or bytes, and categories of them, in the layout that Arrow's functions take."""
    pa = require("pyarrow", "train")
    if pa.types.is_dictionary(column.type):
        values = _without_views(column.dictionary)
        same = values is column.dictionary
        return column if same else pa.DictionaryArray.from_arrays(column.indices, values, ordered=column.type.ordered)
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(column.type)
    return column if plain is None else column.cast(plain)


def as_text(column: pa.Array) -> pa.Array:
    """Return a pyarrow column of bytes as text, if it is UTF-8, and an extension type as what it stores.

    Any other is returned as it is. A UUID becomes its text, and bool8 true and false.
    """
    pa = require("pyarrow", "train")
    if isinstance(column.type, pa.BaseExtensionType):
        name = getattr(column.type, "extension_name", "")
        if name == "arrow.uuid":
            return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
        if name == "pandas.period":  # its storage counts months or days
            column = pa.array(column.to_pandas().dt.to_timestamp())
        else:
            column = column.storage.cast(pa.bool_()) if name == "arrow.bool8" else column.storage
    column = _without_views(column)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
        return column
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    try:
        return plain.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return column


def is_text(column: pa.Array) -> bool:
    """Return whether a pyarrow column holds text."""
    types = require("pyarrow", "train").types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def as_numpy(column: pa.Array) -> Values:
    """Return a pyarrow column as numpy's; whole and floating numbers without gaps are its own memory.

    `to_numpy` would import pandas, which takes longer than all else with a small file.
    """
    kind = _NUMBERS.get(str(column.type))
    if kind is None or column.null_count or not len(column):
        given: Values = column.to_numpy(zero_copy_only=False)
        return given
    return np.frombuffer(column.buffers()[1], kind, len(column), column.offset * kind.itemsize)


def _floats(values: Values) -> Floats:
    if values.dtype.kind == "f" and values.dtype.itemsize in (4, 8) and values.dtype.isnative:
        return values
    return values.astype(np.float32 if values.dtype.str[1:] == "f4" else np.float64)


def _parsed(cells: pa.Array, decimal_comma: bool) -> tuple[Floats, NDArray[np.bool_]]:
    """Return text as float64: where the first cells are numbers the whole column at once, else each different value."""
    pa, compute = require("pyarrow", "train"), require("pyarrow.compute", "train")
    if decimal_comma:
        cells = compute.replace_substring_regex(cells, _DECIMAL_COMMA, r"\1.\2")
    look = [_number(cell) for cell in cells.slice(0, _LOOK).to_pylist()]
    # pyarrow builds an error for every cell that is no number, which takes longer than all the rest.
    if 2 * sum(odd for _, odd in look) <= len(look):
        for is_clean in (True, False):
            try:
                text = cells if is_clean else _without_missing(cells)
                values: Floats = as_numpy(text.cast(pa.float64()))
                return values, np.zeros(len(cells), np.bool_)
            except pa.ArrowInvalid:
                pass
    place, different = distinct(cells)
    known = [*map(_number, different), (np.nan, False)]  # the place of a missing cell is -1
    return np.array([value for value, _ in known])[place], np.array([odd for _, odd in known])[place]


def _without_missing(cells: pa.Array) -> pa.Array:
    pa, compute = require("pyarrow", "train"), require("pyarrow.compute", "train")
    cells = compute.utf8_trim_whitespace(cells)
    missing = compute.is_in(cells, pa.array(sorted(MISSING), cells.type))
    return compute.if_else(missing, pa.scalar(None, cells.type), cells)


def _number(cell: str | None) -> tuple[float, bool]:
    """Return a cell's number, NaN if there is none, and whether something else is there instead."""
    text = "" if cell is None else cell.strip()
    if text in MISSING:
        return np.nan, False
    try:
        # Python reads "1_000" as a number, tables do not.
        return (float(text), False) if "_" not in text else (np.nan, True)
    except ValueError:
        return np.nan, True
