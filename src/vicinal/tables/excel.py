"""Excel workbooks: the first sheet, whose first row names the columns."""

from __future__ import annotations

import zipfile
from collections import Counter
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal._checks import require
from vicinal._memory import TooLargeError, beyond_memory, check_memory, memory_limit
from vicinal.tables.file_access import open_archive, readable_errors
from vicinal.tables.in_memory import InMemory, from_rows

if TYPE_CHECKING:
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

SUFFIXES = (".xlsx", ".xlsm")
#: The most rows of an Excel sheet. A damaged file can claim more.
_MOST_ROWS = 2**20
#: Bytes of memory per byte of a workbook once it is unpacked and parsed, and per cell.
_UNPACKED, _CELL = 8, 400
#: What to do with a workbook that is too large.
_INSTEAD = "save the sheet as CSV"


def open_excel(path: Path, *, header: bool = True) -> InMemory:
    """Return the first sheet of a workbook as a table; formulas are their last values, and dates ISO text.

    Parameters
    ----------
    path
        The workbook.
    header
        Whether the first row names the columns; else they are called "1", "2", ….
    """
    sheet, rows, others = _first_sheet(path)
    if not rows:
        raise ValueError(f"the first sheet of {str(path)!r} is empty")
    width = max(map(len, rows))
    names = [str(cell).strip() if cell is not None else "" for cell in rows[0]] if header else []
    names = names + [""] * (width - len(names))
    names = [name or str(k) for k, name in enumerate(names, start=1)]
    if repeated := sorted(repr(name) for name, n in Counter(names).items() if n > 1):
        raise ValueError(f"{str(path)!r} has several columns called {', '.join(repeated)}: rename them")
    cells = [dict(zip(names, map(_plain, row), strict=False)) for row in islice(rows, int(header), None)]
    notes = [f"sheet {sheet!r}; not read: {', '.join(map(repr, others))}"] if others else []
    return from_rows(cells, str(path), path.read_bytes(), notes=notes)


def _first_sheet(path: Path) -> tuple[str, list[tuple[object, ...]], list[str]]:
    """Return the name of the first sheet, its rows that hold anything, and the names of the others."""
    openpyxl = require("openpyxl", "excel")
    broken = f"{str(path)!r} is no readable Excel workbook"
    with readable_errors(path, "Excel"), path.open("rb") as stream:
        _check_unpacked(path)
        try:
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
            if not book.worksheets:
                raise ValueError("it has no sheet of cells")
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # what a file claims of its size may be too little, or too much
            rows = _filled_rows(sheet, path)
            others = book.sheetnames[1:]
            book.close()
        except (OSError, MemoryError, TooLargeError):
            raise
        except Exception as error:  # what is wrong within a workbook raises about anything
            raise ValueError(f"{broken} ({str(error) or type(error).__name__}): is it complete?") from error
    return sheet.title, rows, others


def _filled_rows(sheet: ReadOnlyWorksheet, path: Path) -> list[tuple[object, ...]]:
    """Return the rows that hold anything, unless they are more than a workbook has or than memory holds."""
    rows, cells, most = [], 0, memory_limit() // _CELL
    for number, row in enumerate(sheet.iter_rows(values_only=True)):
        cells += len(row)
        if number >= _MOST_ROWS:
            raise TooLargeError(f"{str(path)!r} has more than {_MOST_ROWS:,} rows, which Excel has not: {_INSTEAD}")
        if cells > most:
            what = f"{str(path)!r} has more than {most:,} cells and"
            raise beyond_memory(what, _CELL * most, instead=_INSTEAD)
        if any(cell is not None for cell in row):
            rows.append(row)
    return rows


def _check_unpacked(path: Path) -> None:
    """Refuse a workbook that unpacks to more than memory holds; no more than it claims is ever unpacked."""
    try:
        with open_archive(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile as error:
        raise ValueError(f"{str(path)!r} is no readable Excel workbook: is it complete?") from error
    check_memory(f"{str(path)!r} unpacks to {size:,} bytes and", _UNPACKED * size, instead=_INSTEAD)


def _plain(cell: object) -> object:
    """Return a cell as a CSV file would have it: dates as ISO text."""
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == datetime.min.time() else cell.isoformat(sep=" ")
    return cell.isoformat() if isinstance(cell, date) else cell
