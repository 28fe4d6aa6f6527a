"""JSON lines, on pyarrow's reader.

Python's reader takes the blocks that pyarrow refuses: a line that is no object, or values of several types in a
column. pyarrow neither skips a line nor says which one is bad. It also parses text that looks like a date; here text
stays text.
"""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import require
from vicinal._memory import beyond_memory, memory_limit
from vicinal.tables.base import LARGEST_ROW, ROWS, BadRow, Chunk, Column, Columns, Table
from vicinal.tables.file_access import content_fingerprint, known_encoding, readable_errors, unpacked, wrong_encoding
from vicinal.tables.in_memory import column_of, refuse_scattered

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".jsonl", ".ndjson")
_BLOCK = 2**22
#: Up to here every integer is a double.
_EXACT = 2.0**53
#: So many lines of a block are checked before it is parsed.
_LOOK = 200
#: Python refuses to convert more digits, whose time grows with their square.
_MOST_DIGITS = 4300


@dataclass(frozen=True, eq=False)
class JsonLines(Table):
    """A file with an object in each line. Rows are numbered by lines; empty ones are not counted."""

    encoding: str = "utf-8"

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        wanted = list(self.columns if names is None else names)
        skipped: list[BadRow] = []
        for block, numbers in _blocks(self.path, self.encoding, skipped):
            if skipped and bad is None:
                raise ValueError(f"{str(self.path)!r} cannot be read as a table: {skipped[0]}")
            nothing = require("pyarrow", "train").nulls(len(numbers))
            columns = {name: block.get(name, nothing) for name in wanted}
            yield from Chunk(columns, numbers, self.path).slices(rows)
        if bad is not None:
            bad += skipped

    def fingerprint(self) -> str:
        """Return a hash of the uncompressed content."""
        return content_fingerprint(self.path, SUFFIXES)


def open_json_lines(path: Path, *, encoding: str | None) -> JsonLines:
    """Read the file once for the names of its columns: each line may bring new ones."""
    codec = known_encoding(encoding)
    types = require("pyarrow", "train").types
    nested: dict[str, bool] = {}
    n = full = 0
    for block, numbers in _blocks(path, codec, []):
        n += len(numbers)
        for name, values in block.items():
            nested[name] = nested.get(name, False) or bool(types.is_list(values.type))
            full += len(values) - values.null_count
        refuse_scattered(str(path), n, len(nested), full, keys="keys", rows="lines")
    columns = {name: Column(lists, None if lists else 1, n) for name, lists in nested.items()}
    return JsonLines(path, columns, encoding=codec)


def _blocks(path: Path, encoding: str, skipped: list[BadRow]) -> Iterator[tuple[Columns, NDArray[np.int64]]]:
    """Yield the columns of some lines, and the numbers of their rows."""
    first = 1
    with readable_errors(path, "JSON-lines"), unpacked(path, SUFFIXES) as stream:
        for lines in _whole_lines(path, stream, encoding):
            lines = [line for line in lines if line.strip(b" \t\r\n\xef\xbb\xbf")]
            bad = len(skipped)
            _check_keys(path, lines)
            try:
                columns = _by_arrow(b"".join(lines))
                numbers = np.arange(first, first + len(lines))
            except UnicodeDecodeError as error:
                raise _wrong_encoding(path, encoding) from error
            except ValueError:
                try:
                    columns, numbers = _by_line(lines, first, skipped)
                except UnicodeDecodeError as error:
                    raise _wrong_encoding(path, encoding) from error
            first += len(numbers) + len(skipped) - bad
            if len(numbers):
                yield columns, numbers
            elif len(skipped) > bad:
                yield {}, numbers


def _whole_lines(path: Path, stream: IO[bytes], encoding: str) -> Iterator[list[bytes]]:
    """Yield some lines at a time, in UTF-8; a line may take no more memory than a row."""
    limit = memory_limit(LARGEST_ROW)
    is_utf8 = encoding.lower() in ("utf-8", "utf8")
    reader = None if is_utf8 else codecs.getreader(encoding)(stream)
    rest = b""
    while block := stream.read(_BLOCK) if reader is None else reader.read(_BLOCK).encode():
        *lines, rest = (rest + block).split(b"\n")
        if max(len(rest), max(map(len, lines), default=0)) > limit:
            raise beyond_memory(f"a line of {str(path)!r}", limit)
        if lines:
            yield [line + b"\n" for line in lines]
    if rest:
        yield [rest]


def _check_keys(path: Path, lines: Sequence[bytes]) -> None:
    """Refuse lines that share hardly any key, before each key becomes a column as long as the file."""
    _, n_keys, full = _keys(lines[:: max(1, len(lines) // _LOOK)])
    if full * 10 < _LOOK * n_keys:  # else no need to count
        refuse_scattered(str(path), *_keys(lines), keys="keys", rows="lines")


def _keys(lines: Sequence[bytes]) -> tuple[int, int, int]:
    """Return the numbers of lines, of different keys in them, and of values."""
    keys: set[str] = set()
    full = 0
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):  # the reader will say it
            continue
        if isinstance(row, dict):
            keys.update(row)
            full += len(row)
    return len(lines), len(keys), full


def _wrong_encoding(path: Path, encoding: str) -> ValueError:
    with unpacked(path, SUFFIXES) as stream:
        return wrong_encoding(path, stream, None if encoding == "utf-8" else encoding)


def _by_arrow(content: bytes) -> Columns:
    pa, reader = require("pyarrow", "train"), require("pyarrow.json", "train")
    content.decode()  # pyarrow does not look whether text is UTF-8
    options = reader.ReadOptions(use_threads=False, block_size=max(len(content), 1))
    table = reader.read_json(io.BytesIO(content), read_options=options)
    names = table.schema.names
    if any(pa.types.is_floating(item.type) and _holds_large(table.column(item.name)) for item in table.schema):
        raise ValueError("integers that are no doubles")  # Python's reader keeps them
    if any(pa.types.is_temporal(item.type) for item in table.schema):
        schema = pa.schema([(i.name, pa.string() if pa.types.is_temporal(i.type) else i.type) for i in table.schema])
        table = reader.read_json(
            io.BytesIO(content), read_options=options, parse_options=reader.ParseOptions(explicit_schema=schema)
        )
    return {name: table.column(name).combine_chunks() for name in names}


def _holds_large(column: pa.Array) -> bool:
    """Return whether some numbers are beyond 2^53, where doubles skip integers."""
    compute = require("pyarrow.compute", "train")
    return bool(compute.any(compute.greater_equal(compute.abs(column), _EXACT)).as_py())


def _whole(digits: str) -> int | str:
    """Return a whole number, as text where it has more digits than Python converts."""
    return int(digits) if len(digits) <= _MOST_DIGITS else digits


def _by_line(lines: Sequence[bytes], first: int, skipped: list[BadRow]) -> tuple[Columns, NDArray[np.int64]]:
    rows: list[dict[str, object]] = []
    numbers: list[int] = []
    for number, line in enumerate(lines, start=first):
        try:
            row = json.loads(line.decode("utf-8-sig"), parse_int=_whole)
        except json.JSONDecodeError as error:
            skipped.append(BadRow(number, error.msg))
            continue
        except RecursionError:
            skipped.append(BadRow(number, "nested too deeply"))
            continue
        if isinstance(row, dict):
            rows.append(row)
            numbers.append(number)
        else:
            skipped.append(BadRow(number, "no object"))
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: column_of([row.get(name) for row in rows]) for name in names}, np.array(numbers, np.int64)
