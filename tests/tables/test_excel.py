from __future__ import annotations

import datetime
import zipfile
from collections.abc import Callable
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


def repacked(path: Path, change: Callable[[str], str], name: str = "xl/worksheets/sheet1.xml") -> Path:
    """Change a part of a workbook as text."""
    with zipfile.ZipFile(path) as archive:
        parts = {part: archive.read(part) for part in archive.namelist()}
    parts[name] = change(parts[name].decode()).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    return path


ROWS: list[list[object]] = [["x", "y"], [1, "a"], [2, "b"]]


@pytest.mark.parametrize("claimed", ["A1", "A1:B2", "A1:XFD1048576"])
def test_rows_are_those_that_are_there_whatever_a_workbook_claims(tmp_path: Path, claimed: str) -> None:
    path = repacked(book(tmp_path / "t.xlsx", ROWS), lambda xml: xml.replace("A1:B3", claimed))
    (chunk,) = open_table(path).chunks()
    assert chunk["x"].to_pylist() == [1, 2]
    assert chunk["y"].to_pylist() == ["a", "b"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("</sheetData>", ""),
        ('t="inlineStr"><is><t>a</t></is>', 't="s"><v>99</v>'),
        ('t="n"><v>2<', 't="n"><v>x<'),
        ('r="B2"', 'r="ZZZZ2"'),
        ('r="B2"', 'r="2"'),
    ],
)
def test_a_damaged_sheet_is_a_sentence(tmp_path: Path, old: str, new: str) -> None:
    path = book(tmp_path / "t.xlsx", ROWS)

    def change(xml: str) -> str:
        assert old in xml
        return xml.replace(old, new)

    with pytest.raises(ValueError, match="is no readable Excel"):
        open_table(repacked(path, change))


def test_a_workbook_of_which_one_row_is_wide_and_the_others_are_not_is_refused_before_it_is_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vicinal.tables.in_memory._CELLS", 10_000)
    path = book(
        tmp_path / "t.xlsx", [[f"c{k}" for k in range(3_000)], list(range(3_000)), *([k] for k in range(2_999))]
    )
    with pytest.raises(ValueError, match=r"3,000 different columns in 3,000 rows, but only 2\.0 values in each"):
        open_table(path)


def test_a_workbook_of_more_rows_than_there_can_be_is_refused(tmp_path: Path) -> None:
    path = repacked(
        book(tmp_path / "t.xlsx", ROWS),
        lambda xml: xml.replace('<row r="3"', '<row r="9999999999"').replace('3"><v>', '9999999999"><v>'),
    )
    with pytest.raises(ValueError, match="has more than 1,048,576 rows"):
        open_table(path)
