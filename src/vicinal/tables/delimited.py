"""CSV, TSV and other separated text, on pyarrow's reader.

This module adds what pyarrow lacks. It finds the separator, and names columns that have no name or share one. It
handles quotation marks after a space or left open, counts the rows that pyarrow skips, and suggests an encoding.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, Sentence, require
from vicinal._memory import beyond_memory, memory_limit
from vicinal.tables.base import LARGEST_ROW, ROWS, BadRow, Chunk, Column, Table
from vicinal.tables.file_access import (
    content_fingerprint,
    detect_encoding,
    known_encoding,
    lines_of,
    readable_errors,
    text_block,
    unpacked,
    wrong_encoding,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv as pa_csv

#: Suffixes, and the separator where the suffix fixes it.
SUFFIXES: Mapping[str, str | None] = {
    ".csv": None,
    ".data": None,
    ".test": None,
    ".txt": None,
    ".tsv": "\t",
    ".tab": "\t",
}

#: UTF-8 that is decoded before it is parsed: else Arrow prints a traceback of its own for a row that is wrong in its
#: number of cells and no text besides.
_CHECKED = "utf-8-sig"
#: The separator is found in this many bytes: the names of many classes may be long.
_HEAD = 2**20
#: A line above the names that says what separates cells.
_SEPARATOR = re.compile('"?sep=([,;\t|])"?(?:\r\n?|\n)', re.IGNORECASE)
#: The separator is found in this many rows.
_LOOK = 20


@dataclass(frozen=True, eq=False)
class Delimited(Table):
    """A text file of separated cells. Every column is text: what cells mean depends on the column."""

    separator: str = ","
    encoding: str = "utf-8"
    header: bool = True
    quotes: bool = True
    """Whether quotation marks enclose cells."""
    spaced: bool = False
    """Whether spaces stand between separators and quotation marks."""
    skipped_lines: int = 0
    """Empty lines above the names."""
    _names: tuple[str, ...] = field(default=(), repr=False)

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        wanted = list(self.columns if names is None else names)
        if self.n_rows == 0:
            return
        skipped: list[BadRow] = []
        n = 0
        for batch in self._batches(wanted, skipped, strict=bad is None):
            chunk = Chunk(
                {name: batch.column(name) for name in wanted},
                _numbers_in_file(n, batch.num_rows, skipped),
                self.path,
                decimal_comma=self.separator == ";",
            )
            n += batch.num_rows
            if len(chunk):
                yield from chunk.slices(rows)
        if bad is not None:
            bad += skipped

    @property
    def is_text(self) -> bool:
        """Always true."""
        return True

    def fingerprint(self) -> str:
        """Return a hash of the uncompressed content."""
        return content_fingerprint(self.path, SUFFIXES)

    def _batches(self, wanted: list[str], skipped: list[BadRow], *, strict: bool) -> Iterator[pa.RecordBatch]:
        """Yield pyarrow's record batches; rows with another number of cells are skipped, or the first is an error."""
        text = require("pyarrow.csv", "train")

        def wrong_row(row: pa_csv.InvalidRow) -> str:
            # pyarrow counts the line of names as the first row.
            reason = f"Expected {row.expected_columns} columns, got {row.actual_columns}"
            skipped.append(BadRow(row.number - self.header - self.skipped_lines, reason))
            return "error" if strict else "skip"

        last = self._names[-1]
        # The last column is read too: only its last cell shows a quotation mark that was never closed.
        included = list(dict.fromkeys([*wanted, last]))
        try:
            with readable_errors(self.path, "CSV"), unpacked(self.path, SUFFIXES) as stream:
                reader = text.open_csv(
                    _WithoutSpaces(stream, self.separator) if self.spaced else stream,
                    read_options=text.ReadOptions(
                        use_threads=False,  # with threads rows have no numbers
                        block_size=text_block(),
                        encoding=_CHECKED if self.encoding.lower() in ("utf-8", "utf8") else self.encoding,
                        column_names=list(self._names),
                        skip_rows=self.skipped_lines,
                        skip_rows_after_names=int(self.header),
                    ),
                    parse_options=text.ParseOptions(
                        delimiter=self.separator,
                        quote_char='"' if self.quotes else False,
                        newlines_in_values=self.quotes,
                        invalid_row_handler=wrong_row,
                    ),
                    convert_options=text.ConvertOptions(
                        column_types=dict.fromkeys(included, require("pyarrow", "train").string()),
                        include_columns=included,
                    ),
                )
                batch = None
                for batch in reader:
                    yield batch
                self._check_end(batch, last)
        except UnicodeDecodeError as error:
            raise self._wrong_encoding() from error
        except ValueError as error:
            if "UTF8" in str(error):
                raise self._wrong_encoding() from error
            if skipped and strict and "CSV parse error" in str(error):
                said = f"row {skipped[0].row:,}: {skipped[0].reason}"
                raise ValueError(f"{str(self.path)!r} cannot be read as a table: {said}") from error
            raise

    def _check_end(self, batch: pa.RecordBatch, last: str) -> None:
        """Raise if the last cell is all that follows a quotation mark: pyarrow closes it where the file ends."""
        cell = batch.column(last)[-1].as_py() if batch is not None and batch.num_rows and self.quotes else ""
        if "\n" in cell and cell.endswith("\n") and not _ends_in_quote(self.path):
            raise ValueError(
                f"{str(self.path)!r} cannot be read as a table: a quotation mark before {cell.strip()[:20]!r} is not "
                "closed"
            )

    def _wrong_encoding(self) -> ValueError:
        given = None if self.encoding == "utf-8" else self.encoding
        with unpacked(self.path, SUFFIXES) as stream:
            return wrong_encoding(self.path, stream, given)


def open_delimited(path: Path, separator: str | None, *, encoding: str | None, header: bool) -> Delimited:
    """Read the first rows of a text file: how cells are separated and what columns are called."""
    found = _detect_encoding(path) if encoding is None else None
    codec = known_encoding(encoding or found)
    with readable_errors(path, "CSV"), unpacked(path, SUFFIXES) as stream:
        head = _first_rows(path, stream)
    # Zero bytes are damage. pyarrow would read them as part of the cells.
    if encoding is found is None and b"\0" in head:
        raise wrong_encoding(path, io.BytesIO(head), encoding)
    text = head.decode("utf-8-sig" if codec == "utf-8" else codec, "replace").lstrip("\ufeff")
    if not text.strip():
        raise ValueError(f"{str(path)!r} is empty: it has no line of column names")
    # Empty lines above the names are not rows; pyarrow is told to skip as many.
    body = text.lstrip("\r\n")
    # UCI's C4.5 files begin with a comment, `|1x3 Cross validator`. One bar alone separates nothing.
    comment = re.match(r"\|[^|\r\n]*[\r\n]+", body)
    body = body if comment is None else body[comment.end() :]
    if mark := _SEPARATOR.match(body):  # Excel's own line above the names
        separator, body = mark[1], body[mark.end() :]
    lines = re.sub("\r\n?", "\n", body)  # Python's csv module knows no bare carriage return
    separator = separator or find_separator(lines)
    first = next(csv.reader(io.StringIO(lines), delimiter=separator, skipinitialspace=True), [])
    names, repeated = (
        _unique([name.strip() for name in first]) if header else ([str(k + 1) for k in range(len(first))], [])
    )
    # Only the line with the names, which pyarrow takes for an empty file.
    alone = header and "\n" not in lines.strip("\n")
    table = Delimited(
        path,
        {name: Column(n_rows=0 if alone else None) for name in names},
        repeated=tuple(repeated),
        separator=separator,
        encoding=codec,
        header=header,
        spaced=re.search(re.escape(separator) + ' +"', lines) is not None,
        skipped_lines=len(text[: len(text) - len(body)].splitlines()),
        notes=(
            *(() if found is None else (_read_as(found),)),
            *(() if comment is None else (f"the first line is a comment and skipped: {comment[0].strip()!r}",)),
        ),
        _names=tuple(names),
    )
    if separator == "\t" and _has_lone_quote(path) and not _is_quoted(lines):
        # An unbalanced quotation mark would swallow all rows that follow; tab-separated files rarely quote.
        note = "quotation marks are taken as they are: there is an odd number of them in a line"
        return replace(table, quotes=False, notes=(*table.notes, note))
    return table


def _first_rows(path: Path, stream: IO[bytes]) -> bytes:
    """Return the first bytes, with the whole line of names: 100,000 columns may have longer ones."""
    head = stream.read(_HEAD)
    limit = memory_limit(LARGEST_ROW)
    while block := b"" if head.strip().count(b"\n") or b"\r" in head.strip() else stream.read(_HEAD):
        head += block
        if len(head) > limit:
            raise beyond_memory(f"the first line of {str(path)!r}", limit)
    return head


def find_separator(text: str) -> str:
    r"""Return the character that splits the first rows into the most, equally many, cells.

    A name or a cell may hold the other marks; they do not split every row alike.

    >>> find_separator("label,prob_a|b|c|d,prob_e\na,0.5,0.5\n"), find_separator("x;y\n0,5;1,5\n")
    (',', ';')
    """
    lines = [line for line in text[:_HEAD].split("\n") if line.strip()][:_LOOK]

    def consistency(separator: str) -> tuple[int, int]:
        counts = [len(cells) for cells in csv.reader(lines, delimiter=separator, skipinitialspace=True)]
        first = counts[0] if counts else 1
        return (sum(count == first for count in counts) if first > 1 else 0), first

    # Python's limit of 128 KiB a cell is for hostile files, which `_HEAD` bounds already.
    csv.field_size_limit(max(csv.field_size_limit(), _HEAD))
    # The comma comes first, so that it wins a tie.
    best = max([",", ";", "\t", "|"], key=consistency)
    return best if consistency(best)[1] > 1 else ","


def _detect_encoding(path: Path) -> str | None:
    with readable_errors(path, "CSV"), unpacked(path, SUFFIXES) as stream:
        return detect_encoding(stream)


def _read_as(encoding: str) -> Sentence:
    name = {"cp1252": "Windows-1252 (Western European)"}.get(encoding, encoding.upper())
    return Sentence(f"it is not UTF-8 and is read as {name}: ", Argument("encoding"), " names another")


def _unique(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return different names, as pandas makes them, and those that were there more than once.

    >>> _unique(["x", "", "x", "x.1"])
    (['x', 'Unnamed: 1', 'x.2', 'x.1'], ['x'])
    """
    filled = [name or f"Unnamed: {k}" for k, name in enumerate(names)]
    given, used, result = Counter(filled), set[str](), []
    last = dict.fromkeys(given, 0)  # the number that each name was given last
    for name in filled:
        free = name
        while free in used:
            last[name] += 1
            free = f"{name}.{last[name]}" if f"{name}.{last[name]}" not in given else free
        used.add(free)
        result.append(free)
    return result, sorted(name for name, n in given.items() if n > 1)


def _numbers_in_file(n: int, size: int, skipped: Sequence[BadRow]) -> NDArray[np.int64]:
    """Return the numbers of `size` rows after `n` good ones, where some rows between them were skipped.

    The k-th skipped row, number b_k, has b_k - 1 - k good ones before it: a good row lies behind it from there on.
    """
    # pyarrow reports skipped rows by their number, and good rows not at all: theirs follow from the count.
    position = np.arange(n, n + size)
    if not skipped:
        return position + 1
    good_before = np.array([row.row - 1 - k for k, row in enumerate(skipped)])
    return position + 1 + np.searchsorted(good_before, position, side="right")


def _has_lone_quote(path: Path) -> bool:
    with readable_errors(path, "CSV"), unpacked(path, SUFFIXES) as stream:
        return any(line.count(b'"') % 2 for line in lines_of(path, stream))


def _is_quoted(text: str) -> bool:
    r"""Return whether rows of tab-separated cells are whole only if quotation marks enclose cells of several lines.

    >>> _is_quoted('a\tb\n1\t"two\nlines"\n'), _is_quoted('a\tb\n1\t5" pipe\n2\t"x\n')
    (True, False)
    """
    n_cells = len(text.split("\n", 1)[0].split("\t"))

    def whole(rows: Iterable[list[str]]) -> int:
        return sum(1 if len(cells) == n_cells else -1 for cells in rows)

    quoted = whole(csv.reader(io.StringIO(text), delimiter="\t"))
    return quoted > whole(csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE))


def _ends_in_quote(path: Path) -> bool:
    """Return whether the last character but for line ends is a quotation mark, in any encoding of ASCII's kind."""
    end = b""
    with unpacked(path, SUFFIXES) as stream:
        # A compressed file has to be read to its end; a plain one has its end looked at.
        if stream.seekable() and path.suffix.lower() in SUFFIXES:
            stream.seek(max(0, path.stat().st_size - 1024))
        while block := stream.read(_HEAD):
            end = (end + block)[-1024:]
    return end.rstrip(b"\r\n\0 ").endswith(b'"')


class _WithoutSpaces(io.RawIOBase):
    """Bytes without the spaces in `a, "b, c"`: pyarrow knows a quotation mark only where a cell begins."""

    def __init__(self, stream: IO[bytes], separator: str) -> None:
        super().__init__()
        self._stream, self._waiting = stream, b""
        mark = re.escape(separator.encode())
        self._spaces, self._open_end = re.compile(mark + b' +(?=")'), re.compile(mark + b" *$")
        self._mark = separator.encode()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(size)
        data = self._waiting + block
        # A space or separator at the end may belong to a pair that the next block completes.
        # Without this a separator and its quotation mark in two blocks would stay apart.
        cut = self._open_end.search(data) if block else None
        data, self._waiting = (data[: cut.start()], data[cut.start() :]) if cut else (data, b"")
        cleaned = self._spaces.sub(self._mark, data)
        return cleaned if cleaned or not block else self.read(size)
