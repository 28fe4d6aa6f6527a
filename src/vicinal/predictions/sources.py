"""Where predictions come from: Parquet, CSV and NPZ files of any size, read some rows at a time."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, Sentence, require

__all__ = ["Batch", "Column", "Source", "matrix", "numbers", "open_source", "suffix_of"]

#: Columns by name, each a numpy array or a pyarrow array, of as many rows.
Batch = Mapping[str, Any]

_PARQUET = {".parquet", ".pq"}
_DELIMITED = {".csv": None, ".txt": None, ".tsv": "\t", ".tab": "\t"}
_COMPRESSIONS: Mapping[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)

#: Bytes of text parsed at a time, and bytes by which a column of a Parquet file is read.
_BLOCK = 2**22
_BUFFER = 2**20
#: Bytes of text that are looked at for the separator: the names of many classes may be long.
_HEAD = 2**20
#: Arrays of an NPZ file whose shape is known by their name; others may have any.
_KNOWN = {"label", "labels", "target", "probs", "logits"}
#: Cells of text that hold no number.
_NOTHING = ["", "?", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "null", "NULL", "None", "#N/A"]


@dataclass(frozen=True)
class Column:
    """What a file says of a column before it is read.

    Attributes
    ----------
    nested
        Whether each row holds a list.
    width
        The number of values in each row, None where each row tells its own.
    n_rows
        The number of rows, None where the file does not say it.
    """

    nested: bool
    width: int | None
    n_rows: int | None


class Source(Protocol):
    """A file with named columns."""

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns by name, in order."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, where the file holds them beside the predictions."""

    @property
    def decimal_comma(self) -> bool:
        """Whether numbers are text with a comma for the decimal point."""

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Batch]:
        """Yield these columns, at most so many rows at a time, in order."""


def open_source(path: Path, *, encoding: str | None) -> Source:
    """Open a file by its suffix."""
    suffix = suffix_of(path)
    if suffix not in {*_PARQUET, *_DELIMITED, ".npz"}:
        raise ValueError(
            f"{str(path)!r} is no predictions file: pass a .csv, .tsv, .parquet or .npz file, or the folder of a run"
        )
    if path.stat().st_size == 0:
        raise ValueError(f"{str(path)!r} is empty (0 bytes): was it written completely?")
    if suffix in _PARQUET:
        return _parquet(path)
    return _npz(path) if suffix == ".npz" else _csv(path, _DELIMITED[suffix], encoding)


def suffix_of(path: Path) -> str:
    """Return what a file's name says it is, without its compression.

    >>> suffix_of(Path("a.b.CSV.gz"))
    '.csv'
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in {*_COMPRESSIONS, ".zip"}:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


# Values


def numbers(column: Any, *, what: str, first: int, decimal_comma: bool = False) -> NDArray[np.floating[Any]]:
    """Return a column as floats `[M]`, NaN where a value is missing; float32 stays float32.

    Parameters
    ----------
    column
        A numpy or pyarrow array of numbers, or of text that spells them.
    what, first
        The column's name, and the number of its first row, for errors.
    decimal_comma
        Whether text writes 0,5 for a half.
    """
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "fiub":
            return _floats(column)
        column = require("pyarrow", "train").array(column.astype(str))
    pa = require("pyarrow", "train")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _parsed(column, what, first, decimal_comma)
    elif not pa.types.is_floating(column.type):
        try:
            column = column.cast(pa.float64(), safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(f"column {what!r} must hold numbers, got {column.type}") from error
    return _floats(column.to_numpy(zero_copy_only=False))


def matrix(column: Any, *, width: int, what: str, first: int) -> NDArray[np.floating[Any]]:
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
            f"row {first + row:,} has {int(length[row])} values in {what!r}, but there are {width} classes: "
            "every row needs one value for each class"
        )
    flat = numbers(column.flatten(), what=what, first=first)
    found = flat.reshape(-1, width)
    if there.all():
        return found
    result = np.full((len(there), width), np.nan, flat.dtype)
    result[there] = found
    return result


def _floats(values: NDArray[Any]) -> NDArray[np.floating[Any]]:
    if values.dtype.kind == "f" and values.dtype.itemsize <= 8 and values.dtype.isnative:
        return values
    return values.astype(np.float32 if values.dtype.str[1:] == "f4" else np.float64)


def _parsed(cells: Any, what: str, first: int, decimal_comma: bool) -> Any:
    """Return text as float64; clean text is parsed at once, anything else is looked at."""
    pa, compute = require("pyarrow", "train"), require("pyarrow.compute", "train")
    if decimal_comma:
        cells = compute.replace_substring(cells, ",", ".")
    try:
        return cells.cast(pa.float64())
    except pa.ArrowInvalid:
        cells = compute.utf8_trim_whitespace(cells)
    cells = compute.if_else(compute.is_in(cells, pa.array(_NOTHING, cells.type)), pa.scalar(None, cells.type), cells)
    try:
        return cells.cast(pa.float64())
    except pa.ArrowInvalid:
        for row, cell in enumerate(cells.to_pylist(), start=first):
            try:
                float(cell if cell is not None else "nan")
            except ValueError:
                hint = "; CSV files hold one column for each class (prob_<class>), not lists" * cell.startswith("[")
                hint += ": write percentages as shares, 0.25 for 25 %" * cell.endswith("%")
                raise ValueError(f"row {row:,} has {cell!r} in column {what!r}, which is no number{hint}") from None
        return pa.array([None if cell is None else float(cell) for cell in cells.to_pylist()], pa.float64())


# Parquet


@dataclass(frozen=True, eq=False)
class _Parquet:
    path: Path
    columns: Mapping[str, Column]
    classes: None = None
    decimal_comma: bool = False

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Batch]:
        parquet = require("pyarrow.parquet", "train")
        # Columns are read some pages at a time, not a row group at once: that may be as large as the file.
        options = {"buffer_size": _BUFFER, "pre_buffer": False}
        with _explained(self.path, "Parquet"), parquet.ParquetFile(self.path, **options) as file:
            for batch in file.iter_batches(rows, columns=list(names)):
                if batch.num_rows:
                    yield {name: batch.column(name) for name in names}


def _parquet(path: Path) -> _Parquet:
    pa, parquet = require("pyarrow", "train"), require("pyarrow.parquet", "train")
    with _explained(path, "Parquet"), parquet.ParquetFile(path) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
    _refuse_twice(path, schema.names)

    def column(kind: Any) -> Column:
        if pa.types.is_fixed_size_list(kind):
            return Column(True, int(kind.list_size), n_rows)
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        return Column(lists, None if lists else 1, n_rows)

    return _Parquet(path, {item.name: column(item.type) for item in schema})


# CSV


@dataclass(frozen=True, eq=False)
class _Csv:
    path: Path
    columns: Mapping[str, Column]
    separator: str
    encoding: str | None
    classes: None = None

    @property
    def decimal_comma(self) -> bool:
        return self.separator == ";"

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Batch]:
        if all(column.n_rows == 0 for column in self.columns.values()):
            return
        text = require("pyarrow", "train").string()
        # Cells stay text here: what they mean depends on the column, and a bad one can be named.
        options = {"column_types": dict.fromkeys(names, text), "include_columns": list(names)}
        with _csv_reader(self.path, self.separator, self.encoding, options) as reader:
            for block in reader:
                for start in range(0, block.num_rows, rows):
                    yield {name: block.column(name).slice(start, rows) for name in names}


def _csv(path: Path, separator: str | None, encoding: str | None) -> _Csv:
    if encoding is not None:
        try:
            codecs.lookup(encoding)
        except LookupError as error:
            raise ValueError(
                Sentence(
                    Argument("encoding", encoding), " is not known: pass 'utf-8', 'latin-1', 'cp1252', 'utf-16', …"
                )
            ) from error
    with _explained(path, "CSV"), _unpacked(path) as stream:
        head = stream.read(_HEAD)
    if encoding is None and (head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in head):
        zeros = f"{str(path)!r} is no UTF-8 text: it holds zero bytes. If it is UTF-16, pass "
        raise ValueError(Sentence(zeros, Argument("encoding", "utf-16")))
    text = head.decode(encoding or "utf-8-sig", "replace")
    if not text.strip():
        raise ValueError(f"{str(path)!r} is empty: it has no line of column names")
    separator = separator or max(",;\t|", key=lambda mark: len(_first_record(text, mark)))
    names = _first_record(text, separator)
    if len(head) < _HEAD and "\n" not in text.strip("\r\n").replace("\r", "\n"):
        # Only the line with the names, which pyarrow takes for an empty file.
        return _Csv(path, {name: Column(False, 1, 0) for name in names}, separator, encoding)
    with _csv_reader(path, separator, encoding, {}) as reader:
        names = list(reader.schema.names)
    _refuse_twice(path, names)
    return _Csv(path, {name: Column(False, 1, None) for name in names}, separator, encoding)


def _first_record(text: str, separator: str) -> list[str]:
    """Return the column names if the text is separated like this, else nothing; a name may hold the other marks."""
    try:
        return next((row for row in csv.reader(io.StringIO(text), delimiter=separator, strict=True) if row), [])
    except csv.Error:
        return []


@contextmanager
def _csv_reader(path: Path, separator: str, encoding: str | None, options: Mapping[str, Any]) -> Iterator[Any]:
    csv_files = require("pyarrow.csv", "train")
    with _explained(path, "CSV"), _unpacked(path) as stream:
        yield csv_files.open_csv(
            stream,
            read_options=csv_files.ReadOptions(use_threads=False, block_size=_BLOCK, encoding=encoding or "utf8"),
            parse_options=csv_files.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=csv_files.ConvertOptions(**options),
        )


@contextmanager
def _unpacked(path: Path) -> Iterator[IO[bytes]]:
    suffix = path.suffix.lower()
    with ExitStack() as stack:
        if suffix == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(path))
            held = [name for name in archive.namelist() if suffix_of(Path(name)) in _DELIMITED]
            if len(held) != 1:
                raise ValueError(f"{str(path)!r} must hold exactly one CSV file, got {held or 'none'}: unpack it")
            yield stack.enter_context(archive.open(held[0]))
        else:
            opener: Callable[[Path, str], IO[bytes]] = _COMPRESSIONS.get(suffix, open)
            yield stack.enter_context(opener(path, "rb"))


# NPZ


@dataclass(frozen=True, eq=False)
class _Npz:
    path: Path
    columns: Mapping[str, Column]
    classes: tuple[str, ...] | None
    decimal_comma: bool = False

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Batch]:
        lengths = {name: self.columns[name].n_rows for name in names}
        if len(set(lengths.values())) > 1:
            said = " and ".join(f"{name!r} {length:,}" for name, length in lengths.items())
            raise ValueError(f"the arrays of {str(self.path)!r} must have as many rows each, got {said}")
        with _explained(self.path, "NPZ"), zipfile.ZipFile(self.path) as archive:
            arrays = [_rows_of(archive, name, rows) for name in names]
            for parts in zip(*arrays, strict=True):
                yield dict(zip(names, parts, strict=True))


def _npz(path: Path) -> _Npz:
    columns: dict[str, Column] = {}
    classes = None
    with _explained(path, "NPZ"), zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            name = member.removesuffix(".npy")
            if name == member:
                continue
            with archive.open(member) as file:
                shape, _, dtype = _header(file, name)
                if name == "classes" and len(shape) == 1 and dtype.kind in "UiuS":
                    values = np.frombuffer(file.read(), dtype).tolist()
                    classes = tuple(v.decode() if isinstance(v, bytes) else str(v) for v in values)
                elif len(shape) in (1, 2):
                    columns[name] = Column(len(shape) == 2, shape[-1] if len(shape) == 2 else 1, shape[0])
                elif name in _KNOWN:
                    raise ValueError(
                        f"the array {name!r} of {str(path)!r} has the shape {list(shape)}: labels must be [N], "
                        "probs and logits [N, K]"
                    )
    return _Npz(path, columns, classes)


def _rows_of(archive: zipfile.ZipFile, name: str, rows: int) -> Iterator[NDArray[Any]]:
    """Yield an array from its place in the archive, without the rest of it in memory."""
    with archive.open(f"{name}.npy") as file:
        shape, by_column, dtype = _header(file, name)
        if dtype.hasobject:
            raise ValueError(
                f"the array {name!r} holds Python objects, which are not read (they could run code): save names as "
                "np.array(names, dtype=str)"
            )
        if by_column and len(shape) == 2:  # its rows are scattered: the one case that must be read whole
            whole = np.frombuffer(file.read(), dtype).reshape(shape, order="F")
            yield from (whole[start : start + rows] for start in range(0, shape[0], rows))
            return
        for start in range(0, shape[0], rows):
            part = (min(rows, shape[0] - start), *shape[1:])
            size = dtype.itemsize * math.prod(part)
            content = file.read(size)
            if len(content) < size:
                raise EOFError(f"the array {name!r} ends before its last row")
            yield np.frombuffer(content, dtype).reshape(part)


def _header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether columns come first, and dtype."""
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(file)
        return np.lib.format.read_array_header_2_0(file)
    except ValueError as error:
        raise EOFError(f"the array {name!r}: {error}") from error


# Errors


def _refuse_twice(path: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        numeric = twice[0].replace(".", "", 1).strip().isdigit()
        hint = ". If its first line holds data, put a line of column names above it" if numeric else ""
        raise ValueError(f"{str(path)!r} has several columns called {twice[0]!r}: rename them{hint}")


@contextmanager
def _explained(path: Path, form: str) -> Iterator[None]:
    """Turn what libraries raise for a broken file into a sentence that names the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(_other_encoding(path, str(error))) from error
    except _BROKEN as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's own error names the file already
        raise ValueError(f"{str(path)!r} is no readable {form} file ({error}): is it complete?") from error
    except ValueError as error:  # pyarrow's ArrowInvalid is one
        if not type(error).__module__.startswith("pyarrow"):
            raise
        if "UTF8" in str(error):
            raise ValueError(_other_encoding(path, str(error))) from error
        if form == "Parquet":
            raise ValueError(f"{str(path)!r} is no readable Parquet file ({error}): is it complete?") from error
        if "straddling" in str(error):
            raise ValueError(
                f"{str(path)!r} has a row of more than {_BLOCK >> 20} MB: is a quotation mark not closed?"
            ) from error
        raise ValueError(f"{str(path)!r} cannot be read as a table: {error}") from error


def _other_encoding(path: Path, reason: str) -> str:
    return Sentence(
        f"{str(path)!r} is not text in the encoding it is read in (UTF-8 unless you say another): {reason}. "
        "Pass the encoding it was written in, probably ",
        Argument("encoding", "cp1252"),
    )
