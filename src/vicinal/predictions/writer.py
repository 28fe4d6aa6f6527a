"""Writing predictions as they come: CSV, Parquet or NPZ by the suffix, whole or not at all, in constant memory."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vicinal._arrays import Values
from vicinal._atomic import parts_of, replacing
from vicinal._checks import require
from vicinal._remote import RemotePath, as_path
from vicinal.predictions.class_names import checked_names, whole
from vicinal.tables import Columns
from vicinal.tables.column_values import name_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Suffixes that can be written. The first of a file's name that is among them counts.
_FORMS = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq", ".npz")
#: Values in a row group of a Parquet file, at least, but for the last.
_ROW_GROUP = 2**20
#: Up to here every integer is a float64.
_EXACT = 2**53
#: How a text begins that a spreadsheet takes for a formula.
_FORMULA = r"^[=+\-@\t\r]"


def write(
    path: str | os.PathLike[str],
    classes: Sequence[str],
    chunks: Iterable[tuple[Columns, Any]],
    *,
    safe_csv: bool = False,
    exclusive: bool = True,
) -> int:
    """Write predictions chunk by chunk and return the number of rows.

    The file has the columns it is given, then `prediction`, `confidence` and `prob_<class>` for each class, which
    `open_file` reads. `prediction` is the name of the class with the highest probability (the first of equals), a whole
    number where all names are. In an NPZ file the probabilities are one matrix `probs`, and `classes` holds the names.

    The file appears under its name when it is complete; one that was there is replaced. Memory is that of a chunk.

    Parameters
    ----------
    path
        Where to; .csv, .csv.gz, .tsv, .parquet or .npz.
    classes
        The names of the K classes.
    chunks
        Pairs of columns to keep (a mapping of names to arrays or lists `[M]`, the same names each time) and
        probabilities `[M, K]`.
    safe_csv
        In a CSV or TSV file, put ' before names and texts that begin with =, +, -, @ or a control character: a
        spreadsheet would take them for formulas. Such a name is then no longer the same when the file is read again.
    exclusive
        False for multi-label predictions: `prediction` is then a JSON list of the labels whose probability is above
        one half, and there is no `confidence`.

    Returns
    -------
    int
        The number of rows.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = write(Path(folder) / "out.csv", ["cat", "dog"], [({"id": [7]}, np.array([[0.25, 0.75]]))])
    ...     print((Path(folder) / "out.csv").read_text())
    "id","prediction","confidence","prob_cat","prob_dog"
    7,"dog",0.75,0.25,0.75
    """
    target, names = check_output(path), checked_names(classes)
    numbered = all(whole(name) is not None for name in names)
    table = np.array([int(name) for name in names]) if numbered else np.array(names)
    probs_of = ["probs"] if _form(target) == ".npz" else [f"prob_{name}" for name in names]
    written = {"prediction", "confidence", *probs_of}
    n = 0
    with replacing(target) as draft, _sink(draft, _form(target), names, safe_csv) as sink:
        for kept, given in chunks:
            probs = np.asarray(given)
            if probs.ndim != 2 or probs.shape[1] != len(names):
                raise ValueError(f"probabilities must have shape [M, {len(names)}], got {list(probs.shape)}")
            if twice := written & set(kept):
                raise ValueError(
                    f"the column {sorted(twice)[0]!r} would be written twice: rename or leave out the given one"
                )
            sink.add({**kept, **(_best(table, probs) if exclusive else _above_half(names, probs))}, probs)
            n += len(probs)
        if not n:
            raise ValueError(f"there are no rows to write to {str(target)!r}")
    return n


def _best(table: NDArray[np.floating], probs: NDArray[np.floating]) -> dict[str, object]:
    best = probs.argmax(axis=1)
    return {"prediction": table[best], "confidence": probs[np.arange(len(probs)), best]}


def _above_half(names: Sequence[str], probs: NDArray[np.floating]) -> dict[str, object]:
    table = np.array(names, dtype=object)
    return {"prediction": [json.dumps(table[row > 0.5].tolist(), ensure_ascii=False) for row in probs]}


def check_output(path: str | os.PathLike[str]) -> Path:
    """Return the path if something can be written there, so that this is known before any work is done."""
    target = as_path(path)
    if _form(target) is None:
        raise ValueError(f"{str(target)!r} must end in one of {', '.join(_FORMS)}: that decides how it is written")
    if isinstance(target, RemotePath):
        target.check_writable()
    elif not target.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {str(target.parent)!r} to write {target.name!r} to: create it first"
        )
    if target.is_dir():
        raise IsADirectoryError(f"{str(target)!r} is a folder: pass the name of a file")
    return target


def _form(path: Path) -> str | None:
    name = path.name.lower()
    return next((form for form in _FORMS if name.endswith(form)), None)


class _Sink(Protocol):
    def add(self, columns: Columns, probs: NDArray[np.floating]) -> None: ...


@contextmanager
def _sink(path: Path, form: str | None, names: Sequence[str], safe_csv: bool) -> Iterator[_Sink]:
    if form == ".npz":
        with parts_of(path) as folder:
            sink = _NpzSink(folder, names)
            yield sink
            sink.finish(path)
    elif form in (".parquet", ".pq"):
        table = _ParquetSink(path, names)
        try:
            yield table
            table.flush()
        finally:
            table.close()
    else:
        with gzip.open(path, "wb") if form == ".csv.gz" else open(path, "wb") as file:
            yield _CsvSink(file, "\t" if form == ".tsv" else ",", names, safe_csv)


class _CsvSink:
    def __init__(self, file: io.BufferedIOBase, separator: str, names: Sequence[str], safe: bool) -> None:
        self.file, self.separator, self.names, self.safe = file, separator, names, safe
        self.columns: list[str] = []

    def add(self, columns: Columns, probs: NDArray[np.floating]) -> None:
        text = require("pyarrow.csv", "train")
        table = _arrow(columns, probs, self.names)
        if self.safe:
            table = _without_formulas(table)
        if not self.columns:
            self.columns = list(table.schema.names)
            # pyarrow writes its header once a file, and chunks come one by one: the header is written here.
            header = io.StringIO(newline="")
            csv.writer(header, delimiter=self.separator, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(
                self.columns
            )
            self.file.write(header.getvalue().encode())
        _require_same(self.columns, table.schema.names)
        for item in table.schema:
            if require("pyarrow", "train").types.is_nested(item.type):
                raise ValueError(
                    f"column {item.name!r} holds {item.type}, which CSV cannot: choose .parquet, or drop it"
                )
        text.write_csv(table, self.file, text.WriteOptions(include_header=False, delimiter=self.separator))


def _without_formulas(table: pa.Table) -> pa.Table:
    """Return the table with ' before every text that a spreadsheet would compute, in names of columns too."""
    pa, compute = require("pyarrow", "train"), require("pyarrow.compute", "train")
    columns = []
    for column in table.columns:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            text = column.cast(pa.string())
            quoted = compute.binary_join_element_wise("'", text, "")
            column = compute.if_else(compute.match_substring_regex(text, _FORMULA), quoted, text)
        columns.append(column)
    return pa.table(columns, [f"'{name}" if re.match(_FORMULA, name) else name for name in table.schema.names])


class _ParquetSink:
    """Small chunks are gathered: a row group of a few rows costs more than the rows."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, names
        self.writer: Any = None
        self.waiting: list[pa.Table] = []
        self.n_waiting = 0

    def add(self, columns: Columns, probs: NDArray[np.floating]) -> None:
        parquet = require("pyarrow.parquet", "train")
        table = _arrow(columns, probs, self.names)
        if self.writer is None:
            self.writer = parquet.ParquetWriter(self.path, table.schema)
        _require_same(self.writer.schema.names, table.schema.names)
        # Types of later chunks may differ, such as a column that was empty at first.
        self.waiting.append(table.cast(self.writer.schema))
        self.n_waiting += len(table)
        if self.n_waiting * len(table.schema.names) >= _ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        if self.waiting:
            self.writer.write_table(require("pyarrow", "train").concat_tables(self.waiting))
            self.waiting, self.n_waiting = [], 0

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class _NpzSink:
    """Arrays in pieces, one file each; their common type and length, which come first, are known at the end."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.names = folder, names
        self.types: dict[str, np.dtype[np.generic]] = {}
        self.order: list[str] = []
        self.large: set[str] = set()
        """Columns with integers that no float holds."""
        self.n = 0

    def add(self, columns: Columns, probs: NDArray[np.floating]) -> None:
        arrays = {name: _numpy(name, values) for name, values in {**columns, "probs": probs}.items()}
        self.order = self.order or list(arrays)
        _require_same(self.order, list(arrays))
        for i, (name, values) in enumerate(arrays.items()):
            # Texts of later chunks may be longer than the first ones: the widest type is known at the end.
            self.types[name] = np.result_type(self.types.get(name, values.dtype), values.dtype)
            if values.dtype.kind in "iu" and len(values) and (values.max() >= _EXACT or values.min() <= -_EXACT):
                self.large.add(name)
            with (self.folder / str(i)).open("ab") as file:
                np.save(file, np.ascontiguousarray(values), allow_pickle=False)
        self.n += len(probs)

    def finish(self, path: Path) -> None:
        with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
            for i, name in enumerate(self.order):
                shape = (self.n, len(self.names)) if name == "probs" else (self.n,)
                # A ZIP archive takes one member at a time, and arrays grow together: hence a file for each.
                with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
                    # A chunk with a gap made floats of integers that others hold exactly: then all are text.
                    kind = self.types[name]
                    kind = np.dtype("U24") if kind.kind == "f" and name in self.large else kind
                    _npy_header(out, shape, kind)
                    for piece in _pieces(self.folder / str(i)):
                        exact = _texts(piece.tolist()) if kind.kind == "U" != piece.dtype.kind else piece
                        out.write(exact.astype(kind).tobytes())
            with archive.open("classes.npy", "w") as out:
                np.lib.format.write_array(out, np.array(self.names), allow_pickle=False)


def _pieces(path: Path) -> Iterator[NDArray[np.floating]]:
    with path.open("rb") as file:
        while file.peek(1):
            yield np.load(file, allow_pickle=False)


def _npy_header(out: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, described)


def _numpy(name: str, values: object) -> NDArray[np.floating]:
    kind = str(getattr(values, "type", ""))
    if kind.startswith(("int", "uint")) and bool(getattr(values, "null_count", False)):
        numbers = values.to_pylist()  # type: ignore[attr-defined]  # a pyarrow array
        # NumPy's integers have no gap, and a float would round beyond 2^53: text is exact.
        is_large = any(abs(number) >= _EXACT for number in numbers if number is not None)
        return _texts(numbers) if is_large else np.array([np.nan if n is None else n for n in numbers], np.float64)
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    if isinstance(array, np.ma.MaskedArray):
        array = array.filled("" if array.dtype.kind in "US" else np.nan) if array.mask.any() else array.data
    if array.dtype == object:
        if not all(isinstance(value, str) or value is None for value in array.tolist()):
            raise ValueError(f"column {name!r} cannot be written to an NPZ file: choose .parquet or .csv, or drop it")
        array = np.array(["" if value is None else value for value in array.tolist()], dtype=str)
    return array


def _texts(numbers: Sequence[object]) -> Values:
    """Return numbers as text, `""` where there is none."""
    return np.array(["" if n is None or n != n else name_of(n) for n in numbers], dtype=str)


def _arrow(columns: Columns, probs: NDArray[np.floating], names: Sequence[str]) -> pa.Table:
    pa = require("pyarrow", "train")
    values_of = dict(columns)
    values_of |= {f"prob_{name}": np.ascontiguousarray(probs[:, k]) for k, name in enumerate(names)}
    return pa.table(
        {name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in values_of.items()}
    )


def _require_same(expected: Sequence[str], given: Sequence[str]) -> None:
    if list(expected) != list(given):
        raise ValueError(f"every chunk must have the same columns: {list(expected)}, then {list(given)}")
