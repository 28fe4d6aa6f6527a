"""NPZ archives of arrays, a chunk of rows at a time; the size that a header claims is checked first."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from vicinal._memory import check_memory
from vicinal.tables.base import LARGEST_ROW, ROWS, BadRow, Chunk, Column, Table
from vicinal.tables.file_access import DamagedArrayError, content_fingerprint, open_archive, readable_errors

SUFFIXES = (".npz",)
#: The number of dimensions of arrays with these names.
_KNOWN = {"label", "labels", "target", "probs", "logits"}
#: Deflate makes at most 1,032 bytes of one.
_MOST_INFLATED = 1032
#: Bytes of rows that are read at a time; at least one row.
_AT_ONCE = 2**28


@dataclass(frozen=True, eq=False)
class Npz(Table):
    """An NPZ file: a column for each array `[N]` or `[N, K]`."""

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        wanted = list(self.columns if names is None else names)
        lengths = {name: self.columns[name].n_rows for name in wanted}
        if len(set(lengths.values())) > 1:
            said = " and ".join(f"{name!r} {length:,}" for name, length in lengths.items())
            raise ValueError(f"the arrays of {str(self.path)!r} must have as many rows each, got {said}")
        widest = max((self.columns[name].width or 1 for name in wanted), default=1)
        rows, first = max(min(rows, _AT_ONCE // (8 * widest)), 1), 1
        with readable_errors(self.path, "NPZ"), open_archive(self.path) as archive:
            for parts in zip(*(_rows_of(archive, name, rows) for name in wanted), strict=True):
                n = len(parts[0])
                yield Chunk(dict(zip(wanted, parts, strict=True)), np.arange(first, first + n), self.path)
                first += n

    def fingerprint(self) -> str:
        """Return a hash of the file."""
        return content_fingerprint(self.path, SUFFIXES)


def open_npz(path: Path) -> Npz:
    """Read the headers of the arrays."""
    columns: dict[str, Column] = {}
    classes = None
    with readable_errors(path, "NPZ"), open_archive(path) as archive:
        for name in _members(archive):
            shape, _, dtype = _checked_header(archive, name)
            if name == "classes" and len(shape) == 1 and dtype.kind in "UiuS":
                values = np.concatenate([np.zeros(0, dtype), *_rows_of(archive, name, ROWS)]).tolist()
                classes = tuple(v.decode() if isinstance(v, bytes) else str(v) for v in values)
            elif len(shape) in (1, 2):
                columns[name] = Column(len(shape) == 2, shape[-1] if len(shape) == 2 else 1, shape[0])
            elif name in _KNOWN:
                raise ValueError(
                    f"the array {name!r} of {str(path)!r} has the shape {list(shape)}: labels must be [N], "
                    "probs and logits [N, K]"
                )
    return Npz(path, columns, classes=classes)


def read_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """Return all arrays of an NPZ file whole, if the machine's memory holds them.

    Returns
    -------
    dict[str, ndarray]
        The arrays by name.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "data.npz", x=[[1, 2]], y=[0])
    ...     arrays = read_arrays(Path(folder) / "data.npz")
    >>> arrays["x"].shape, arrays["y"].tolist()
    ((1, 2), [0])
    """
    with readable_errors(path, "NPZ"), open_archive(path) as archive:
        # All headers are checked before the first array is allocated.
        headers = {name: _checked_header(archive, name) for name in _members(archive)}
        total = sum(dtype.itemsize * math.prod(shape) for shape, _, dtype in headers.values())
        check_memory(f"what {str(path)!r} holds", total)
        return {
            name: np.concatenate([np.zeros((0, *shape[1:]), dtype), *_rows_of(archive, name, ROWS)])
            if shape
            else next(_rows_of(archive, name, 1))
            for name, (shape, _, dtype) in headers.items()
        }


def _members(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def _rows_of(archive: zipfile.ZipFile, name: str, rows: int) -> Iterator[NDArray[np.generic]]:
    """Yield an array from its place in the archive, without the rest of it in memory."""
    shape, by_column, dtype = _checked_header(archive, name)
    if dtype.hasobject:
        raise ValueError(
            f"the array {name!r} holds Python objects, which are not read (they could run code): save names as "
            "np.array(names, dtype=str)"
        )
    with archive.open(f"{name}.npy") as file:
        _header(file, name)
        if not shape or (by_column and len(shape) > 1):  # its rows are scattered: the one case that is read whole
            instead = "save np.ascontiguousarray of it, which is read some rows at a time"
            what = f"the array {name!r}, whose columns come first,"
            check_memory(what, dtype.itemsize * math.prod(shape), instead=instead)
            whole = np.frombuffer(file.read(), dtype).reshape(shape, order="F")
            yield from (whole[start : start + rows] for start in range(0, shape[0], rows)) if shape else [whole]
            return
        for start in range(0, shape[0], rows):
            # `np.load` would map or read the whole array; rows in sequence need no more than this.
            part = (min(rows, shape[0] - start), *shape[1:])
            size = dtype.itemsize * math.prod(part)
            content = file.read(size)
            if len(content) < size:
                raise EOFError(f"the array {name!r} ends before its last row")
            yield np.frombuffer(content, dtype).reshape(part)


def _checked_header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return shape, whether columns come first, and dtype, if the archive can hold that many values."""
    entry = archive.getinfo(f"{name}.npy")
    with archive.open(entry) as file:
        shape, by_column, dtype = _header(file, name)
        stored = entry.file_size - file.tell()
    size = dtype.itemsize * math.prod(shape)
    # A header of a few bytes can claim terabytes. What deflate can unpack to bounds what is there.
    possible = entry.compress_size * (_MOST_INFLATED if entry.compress_type else 1) + _MOST_INFLATED
    if not dtype.hasobject and (size != stored or entry.file_size > possible):
        raise DamagedArrayError(
            f"the array {name!r} of shape {list(shape)} takes {size:,} bytes, the file holds {stored:,}"
        )
    # Rows are read some at a time, so one row, not the array, must fit in memory.
    row = size // max(shape[0] if shape else 1, 1)
    check_memory(f"a row of the array {name!r} of shape {list(shape)}", row, default=LARGEST_ROW)
    return shape, by_column, dtype


def _header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return shape, whether columns come first, and dtype."""
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(file)
        return np.lib.format.read_array_header_2_0(file)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error):
        raise
    except Exception as error:  # what a damaged header raises is up to Python's parser
        raise DamagedArrayError(f"the array {name!r} has no header that can be read") from error
