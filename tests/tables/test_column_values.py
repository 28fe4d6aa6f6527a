"""Columns as numbers and names, against the slow way: one cell at a time."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.tables.column_values import MISSING, as_numpy, distinct, names_of, numbers, strict_numbers
from vicinal.tables.number_format import NumberFormat, read_numbers

cells = st.one_of(
    st.sampled_from(
        ["1", " 2.5 ", "?", "", "NA", "nan", "many", "1_000", "+1", ".5", "5.", "1e-3", "inf", "１", "0x10"]
    ),
    st.floats(allow_nan=False).map(repr),
    st.text(max_size=4),
)


def slow_number(cell: str) -> tuple[float, bool]:
    """The value of a cell and whether it is none, by Python's own `float`."""
    text = cell.strip()
    if text in MISSING:
        return math.nan, False
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        value = math.nan
    return value, math.isnan(value)


@given(st.lists(cells, max_size=30))
def test_numbers_by_cells(column):
    values, odd = numbers(pa.array(column, pa.string()))
    expected = [slow_number(cell) for cell in column]
    np.testing.assert_array_equal(values, [value for value, _ in expected])
    assert odd.tolist() == [is_odd for _, is_odd in expected]


def test_decimal_commas():
    column = pa.array(["0,5", " -1,25 ", "3", "1,2,3", "x"])
    values, odd = numbers(column, decimal_comma=True)
    np.testing.assert_array_equal(values, [0.5, -1.25, 3, np.nan, np.nan])
    assert odd.tolist() == [False, False, False, True, True]
    assert numbers(column)[1].tolist() == [True, True, False, True, True]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None, 3], pa.int16()), [1, np.nan, 3]),
        (pa.array([1.5, None], pa.float32()), [1.5, np.nan]),
        (pa.array(["1", "2"]).dictionary_encode(), [1, 2]),
        (np.array([1, 2], ">i4"), [1, 2]),
        (pa.nulls(2), [np.nan, np.nan]),
    ],
)
def test_numbers_of_every_type(column, expected):
    values, odd = numbers(column)
    np.testing.assert_array_equal(values, expected)
    assert not odd.any()


def test_booleans_and_dates_are_no_numbers():
    assert numbers(pa.array([True, None]))[1].tolist() == [True, False]
    assert numbers(pa.array([0], pa.timestamp("s")))[1].all()
    assert strict_numbers(pa.array([True, False]), np.array([1, 2]), what="x").tolist() == [1, 0]


def test_names():
    place, values = distinct(pa.array([2.0, None, 2.5, 2.0]))
    assert place.tolist() == [0, -1, 1, 0]
    assert names_of(values) == ["2", "2.5"]
    assert names_of([True, " a", "NA", None, float("nan")]) == ["True", "a", "", "", ""]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("$29.85", 29.85),
        ("-$3", -3.0),
        ("- 5 €", -5.0),
        ("£.75", 0.75),
        ("1,234", 1234.0),
        ("$1,234,567.50", 1234567.5),
        ("1 234", 1234.0),
        ("1\u202f234\u202f567", 1234567.0),
        ("12.5 %", 0.125),
        ("12.5%", 0.125),
        ("1,23", None),
        ("12,34,567", 1234567.0),
        ("(1,200)", -1200.0),
        ("5.2M", 5.2e6),
        ("€3k", 3000.0),
        ("−7", -7.0),
        ("1'234.5", 1234.5),
        ("3-", None),
        ("1,234 567", None),
        ("98115-4820", None),
        ("$", None),
        ("5 kg", None),
        ("$1_000", None),
    ],
)
def test_numbers_as_people_write_them(cell, value):
    """Features take them; files of predictions, where a share must be one, do not."""
    values, odd, _ = read_numbers(pa.array([cell, "x"]))
    assert odd.tolist() == [value is None, True]
    assert values[0] == pytest.approx(math.nan if value is None else value, nan_ok=True)
    assert numbers(pa.array([cell]))[1].tolist() == [True]


@pytest.mark.parametrize(("cell", "value"), [("1.234,50 €", 1234.5), ("12,5 %", 0.125), ("1 234,5", 1234.5)])
def test_numbers_as_people_write_them_with_decimal_commas(cell, value):
    assert read_numbers(pa.array([cell]), NumberFormat(decimal=",")).values.tolist() == [value]


@pytest.mark.parametrize("kind", ["int8", "uint16", "int32", "int64", "uint64", "float32", "float64", "bool", "string"])
@pytest.mark.parametrize("gap", [False, True])
def test_columns_become_the_arrays_that_pyarrow_makes(kind, gap):
    numbers = ["0", "1", "0", "1", "1"] if kind == "string" else [0, 1, 0, 1, 1]
    column = pa.array([None if gap and i == 3 else value for i, value in enumerate(numbers)]).cast(kind)
    for part in (column, column.slice(2, 3), column.slice(5)):
        found, wanted = as_numpy(part), part.to_numpy(zero_copy_only=False)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
