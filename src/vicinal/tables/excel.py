"""Excel workbooks: the first sheet, whose first row names the columns."""

from __future__ import annotations

import zipfile
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from vicinal._checks import require
from vicinal.tables.memory import InMemory, from_rows
from vicinal.tables.storage import explained

__all__ = ["SUFFIXES", "open_excel"]

SUFFIXES = (".xlsx", ".xlsm")


def open_excel(path: Path, *, header: bool = True) -> InMemory:
    """Return the first sheet of a workbook as a table; formulas are their last values, and dates ISO text.

    Parameters
    ----------
    path
        The workbook.
    header
        Whether the first row names the columns; else they are called "1", "2", ….
    """
    openpyxl = require("openpyxl", "excel")
    with explained(path, "Excel"):
        try:
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        except (KeyError, zipfile.BadZipFile, openpyxl.utils.exceptions.InvalidFileException) as error:
            raise ValueError(f"{str(path)!r} is no readable Excel workbook ({error}): is it complete?") from error
        sheet = book.worksheets[0]
        rows = [row for row in sheet.iter_rows(values_only=True) if any(cell is not None for cell in row)]
        others = book.sheetnames[1:]
        book.close()
    if not rows:
        raise ValueError(f"the first sheet of {str(path)!r} is empty")
    width = max(map(len, rows))
    names = [str(cell).strip() if cell is not None else "" for cell in rows[0]] if header else []
    names = names + [""] * (width - len(names))
    names = [name or str(k) for k, name in enumerate(names, start=1)]
    if repeated := sorted({repr(name) for name in names if names.count(name) > 1}):
        raise ValueError(f"{str(path)!r} has several columns called {', '.join(repeated)}: rename them")
    cells = [dict(zip(names, map(_plain, row), strict=False)) for row in islice(rows, int(header), None)]
    notes = [f"sheet {sheet.title!r}; not read: {', '.join(map(repr, others))}"] if others else []
    return from_rows(cells, str(path), path.read_bytes(), notes=notes)


def _plain(cell: Any) -> Any:
    """Return a cell as a CSV file would have it: dates as ISO text."""
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == datetime.min.time() else cell.isoformat(sep=" ")
    return cell.isoformat() if isinstance(cell, date) else cell
