"""Tables as people keep them: CSV, TSV, JSON lines and Parquet, plain or compressed, in any encoding.

Cells of text files stay strings here. What they mean is decided column by column (`tabular.py`), since a reader that
decides cell by cell turns a class called "None" or "NA" into a missing value.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicinal._checks import Argument, Sentence, nearest_names, require
from vicinal.data.files import fingerprint, listed, part_of
from vicinal.data.splitting import PARTS

__all__ = ["MISSING", "Table", "column", "from_frame", "is_table", "read_split_tables", "read_table", "split_tables"]

#: Cells that hold nothing.
MISSING = frozenset({"", "?", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "null", "NULL", "None", "#N/A"})

_DELIMITED = {".csv": None, ".data": None, ".txt": None, ".tsv": "\t", ".tab": "\t"}
_SUFFIXES = {*_DELIMITED, ".parquet", ".pq", ".jsonl", ".ndjson"}
_COMPRESSIONS = {".gz", ".bz2", ".xz", ".zip"}


@dataclass(frozen=True, eq=False)
class Table:
    """A table with named columns; rows are counted from 1, as people do."""

    name: str
    frame: Any
    """A pandas DataFrame, its index 0 … n-1."""
    fingerprint: str
    notes: list[str]
    bad: list[str]
    """The lines that could not be read, each by number and reason."""
    parts: list[str] | None = None
    """The split of each row, where the source is already split."""


def is_table(path: Path) -> bool:
    """Return whether a file's name says that it is a table."""
    return _suffix(path) in _SUFFIXES


def read_table(path: Path, *, encoding: str | None = None, header: bool = True) -> Table:
    """Read one file.

    Parameters
    ----------
    path
        A CSV, TSV, JSON-lines or Parquet file; text files may be compressed (.gz, .bz2, .xz, .zip).
    encoding
        How the text is encoded; UTF-8 if not given.
    header
        Whether the first line of a CSV names the columns; else they are called "1", "2", ….
    """
    if path.stat().st_size == 0:
        raise ValueError(f"{str(path)!r} is empty")
    suffix = _suffix(path)
    if suffix not in _SUFFIXES:
        raise ValueError(
            f"{str(path)!r} is no table that can be read: pass a .csv, .tsv, .jsonl or .parquet file, or a folder"
        )
    content = _unpacked(path)
    if suffix in (".parquet", ".pq"):
        try:
            frame = require("pandas", "train").read_parquet(io.BytesIO(content))
        except ImportError:
            raise
        except Exception as error:  # whatever pyarrow raises for a broken file
            raise ValueError(f"{str(path)!r} is no readable Parquet file: {error}") from error
        return from_frame(frame, str(path), content)
    text = _decoded(content, path, encoding)
    if suffix in (".jsonl", ".ndjson"):
        return _json_lines(text, path, content)
    return _delimited(text, path, content, _DELIMITED[suffix], header)


def from_frame(frame: Any, name: str = "the table", content: bytes | None = None) -> Table:
    """Return a pandas DataFrame as a table."""
    pandas = require("pandas", "train")
    frame = frame.reset_index(drop=True)
    frame.columns = [str(label) for label in frame.columns]
    if content is None:
        hashed = pandas.util.hash_pandas_object(frame.astype(str), index=False).to_numpy().tobytes()
        content = json.dumps(list(frame.columns)).encode() + hashed
    return _checked(Table(name, frame, fingerprint(content), [], []))


def split_tables(folder: Path) -> dict[str, Path]:
    """Return the tables of a folder that is already split: `train.csv` and `val.csv`, `test.csv` or both."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        part = part_of(path.name.partition(".")[0])
        if part and path.is_file() and is_table(path):
            if part in found:
                raise ValueError(f"{found[part].name!r} and {path.name!r} both hold the {part} split: remove one")
            found[part] = path
    ordered = {part: found[part] for part in PARTS if part in found}
    return ordered if "train" in ordered and len(ordered) > 1 else {}


def read_split_tables(folder: Path, *, encoding: str | None = None, header: bool = True) -> Table:
    """Read a folder that is already split into one table that knows the parts."""
    pandas = require("pandas", "train")
    tables = {part: read_table(path, encoding=encoding, header=header) for part, path in split_tables(folder).items()}
    columns = list(tables["train"].frame.columns)
    for table in tables.values():
        lacking = [name for name in columns if name not in table.frame.columns]
        if lacking:
            raise ValueError(f"{table.name!r} lacks the column {lacking[0]!r} of the training table")
    return Table(
        str(folder),
        pandas.concat([table.frame[columns] for table in tables.values()], ignore_index=True),
        fingerprint(*(part.encode() + table.fingerprint.encode() for part, table in tables.items())),
        [note for table in tables.values() for note in table.notes],
        [f"{Path(table.name).name}: {line}" for table in tables.values() for line in table.bad],
        [part for part, table in tables.items() for _ in range(len(table.frame))],
    )


def column(table: Table, name: str, argument: str) -> Any:
    """Return a column by its name, or say which names there are."""
    if name not in table.frame.columns:
        hint = nearest_names(name, table.frame.columns)
        absent = f" is no column of {table.name!r}{hint}"
        raise ValueError(Sentence(Argument(argument, name), absent, header_hint(table)))
    return table.frame[name]


def header_hint(table: Table) -> str:
    """Return the end of an error about columns, where some are called like numbers."""
    if not any(_is_number(label) for label in table.frame.columns) or "1" in table.frame.columns:
        return ""
    advice = ". If its first line holds data, not names, pass "
    return Sentence(advice, Argument("header", False), ": columns are then '1', '2', …")


def _suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    try:
        match path.suffix.lower():
            case ".gz":
                return gzip.decompress(content)
            case ".bz2":
                return bz2.decompress(content)
            case ".xz":
                return lzma.decompress(content)
            case ".zip":
                with zipfile.ZipFile(io.BytesIO(content)) as archive:
                    names = [name for name in archive.namelist() if is_table(Path(name))]
                    if len(names) != 1:
                        raise ValueError(f"{str(path)!r} must hold exactly one table, got {names or 'none'}: unpack it")
                    return archive.read(names[0])
            case _:
                return content
    except (OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise ValueError(f"{str(path)!r} cannot be unpacked ({error}): is it complete?") from error


def _decoded(content: bytes, path: Path, encoding: str | None) -> str:
    """Return the text, or say which encoding to pass."""
    used = encoding or "utf-8-sig"  # UTF-8, and what Excel writes
    try:
        return content.decode(used)
    except LookupError as error:
        raise ValueError(
            Sentence(Argument("encoding", encoding), " is not known: pass 'utf-8', 'latin-1', 'cp1252', 'utf-16', …")
        ) from error
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        guess = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "cp1252"
        try:
            content.decode(guess)
        except UnicodeDecodeError:
            guess = "latin-1"
        raise ValueError(
            Sentence(
                f"{str(path)!r} is not {encoding or 'UTF-8'}: line {line} holds the byte "
                f"0x{content[error.start]:02x}. Pass the encoding it was written in, probably ",
                Argument("encoding", guess),
            )
        ) from error


def _delimited(text: str, path: Path, content: bytes, separator: str | None, header: bool) -> Table:
    pandas = require("pandas", "train")
    notes: list[str] = []
    if "\0" in text[:10_000]:
        zeros = f"{str(path)!r} is no text: it holds zero bytes. Is it UTF-16? Then pass "
        raise ValueError(Sentence(zeros, Argument("encoding", "utf-16")))
    separator = separator or _separator(text)
    quoting = csv.QUOTE_MINIMAL
    if separator == "\t" and any(line.count('"') % 2 for line in text.split("\n")):
        # A lone quotation mark would swallow all that follows; tab-separated files rarely quote.
        quoting = csv.QUOTE_NONE
        notes.append("quotation marks are taken as they are: there is an odd number of them in a line")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            frame = pandas.read_csv(
                io.StringIO(text, newline=""),
                sep=separator,
                header=0 if header else None,
                dtype=str,
                keep_default_na=False,
                skipinitialspace=True,
                on_bad_lines="warn",
                quoting=quoting,
                index_col=False,
            )
        except (pandas.errors.ParserError, pandas.errors.EmptyDataError) as error:
            raise ValueError(f"{str(path)!r} cannot be read as a table: {error}") from error
    bad = [
        f"line {number} ({reason})"
        for warning in caught
        if issubclass(warning.category, pandas.errors.ParserWarning)
        for number, reason in re.findall(r"line (\d+): (.+)", str(warning.message))
    ]
    frame = frame.fillna("")
    frame.columns = [str(label).strip() if header else str(int(label) + 1) for label in frame.columns]
    if separator == ";":
        for name in frame.columns[: 0 if frame.columns.duplicated().any() else None]:
            cells = frame[name].str.strip()
            if cells.str.fullmatch(r"-?\d*,?\d*").all() and cells.str.contains(",").any():
                frame[name] = cells.str.replace(",", ".")
                notes.append(f"column {name!r} has decimal commas")
    return _checked(Table(str(path), frame, fingerprint(content), notes, bad))


def _separator(text: str) -> str:
    """Return the character that splits the first lines into the most, equally many, fields."""
    lines = [line for line in text[:100_000].split("\n") if line.strip()][:20]

    def consistency(separator: str) -> tuple[int, int]:
        counts = [len(fields) for fields in csv.reader(lines, delimiter=separator)]
        first = counts[0] if counts else 1
        return (sum(count == first for count in counts) if first > 1 else 0), first

    best = max([",", ";", "\t", "|"], key=consistency)
    return best if consistency(best)[1] > 1 else ","


def _json_lines(text: str, path: Path, content: bytes) -> Table:
    pandas = require("pandas", "train")
    rows: list[dict[str, Any]] = []
    bad: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            bad.append(f"line {number} ({error.msg})")
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            bad.append(f"line {number} (no object)")
    frame = pandas.DataFrame(rows)
    frame.columns = [str(label) for label in frame.columns]
    return _checked(Table(str(path), frame, fingerprint(content), [], bad))


def _checked(table: Table) -> Table:
    columns = table.frame.columns
    if columns.duplicated().any():
        twice = sorted({repr(name) for name in columns[columns.duplicated()]})
        raise ValueError(f"{table.name!r} has several columns called {listed(twice)}: rename them")
    if not len(table.frame):
        raise ValueError(f"{table.name!r} has no rows")
    return table


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


def names_of(values: Sequence[Any]) -> list[str]:
    """Return values as the names of categories: a whole number is written without its decimals.

    >>> names_of([1.0, "a ", True])
    ['1', 'a', 'True']
    """
    return [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v).strip() for v in values]
