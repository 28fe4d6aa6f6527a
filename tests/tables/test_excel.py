from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest

from tests.data import make
from vicinal import data
from vicinal.tables import open_table

openpyxl = pytest.importorskip("openpyxl")


def book(path: Path, rows: list[list[object]], *others: str) -> Path:
    workbook = openpyxl.Workbook()
    for row in rows:
        workbook.active.append(row)
    for name in others:
        workbook.create_sheet(name)
    workbook.save(path)
    return path


def test_a_workbook_is_the_table_that_a_csv_file_is(tmp_path: Path) -> None:
    frame = make.people()
    frame.to_csv(tmp_path / "people.csv", index=False)
    rows = [list(frame.columns), *frame.astype(object).where(frame.notna(), None).to_numpy().tolist()]
    book(tmp_path / "people.xlsx", rows)
    one, other = (data.load(str(tmp_path / f"people.{form}"), target="kind") for form in ("csv", "xlsx"))
    assert one.splits == other.splits
    np.testing.assert_allclose(one.train.features(), other.train.features(), atol=1e-6)


def test_dates_gaps_other_sheets_and_empty_rows(tmp_path: Path) -> None:
    rows: list[list[object]] = [
        ["when", None, "n"],
        [datetime.date(2024, 2, 29), "a", 1],
        [None, None, None],
        [datetime.datetime(2024, 3, 1, 12, 30), "b", None],
    ]
    table = open_table(book(tmp_path / "t.xlsx", rows, "notes"))
    assert list(table.columns) == ["when", "2", "n"]
    (chunk,) = table.chunks()
    assert chunk["when"].to_pylist() == ["2024-02-29", "2024-03-01 12:30:00"]
    assert chunk["n"].to_pylist() == [1, None]
    assert table.notes == ("sheet 'Sheet'; not read: 'notes'",)
    assert list(open_table(tmp_path / "t.xlsx", header=False).columns) == ["1", "2", "3"]


def test_what_is_no_workbook(tmp_path: Path) -> None:
    (tmp_path / "t.xlsx").write_bytes(b"not a workbook")
    with pytest.raises(ValueError, match="is no readable Excel"):
        open_table(tmp_path / "t.xlsx")
    with pytest.raises(ValueError, match="is empty"):
        open_table(book(tmp_path / "e.xlsx", []))
    with pytest.raises(ValueError, match="several columns called 'a'"):
        open_table(book(tmp_path / "r.xlsx", [["a", "a"], [1, 2]]))
