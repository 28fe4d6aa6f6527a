"""Arrow IPC files (Feather), Arrow streams and ORC files, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vicinal._checks import require
from vicinal._remote import is_remote
from vicinal.tables.base import ROWS, BadRow, Chunk, Table
from vicinal.tables.column_values import plain_text
from vicinal.tables.file_access import content_fingerprint, readable_errors
from vicinal.tables.parquet import check_cells, columns_of, repeated_names

if TYPE_CHECKING:
    import pyarrow as pa

#: Suffixes, and what the form is called.
SUFFIXES = {".feather": "Arrow", ".arrow": "Arrow", ".arrows": "Arrow", ".ipc": "Arrow", ".orc": "ORC"}
#: The first bytes of an Arrow file, which a stream lacks, and of Feather's first version.
_FILE, _FIRST_VERSION = b"ARROW1", b"FEA1"


@dataclass(frozen=True, eq=False)
class ArrowFile(Table):
    """An Arrow or ORC file."""

    form: str = "Arrow"

    def chunks(
        self, names: Sequence[str] | None = None, rows: int = ROWS, *, bad: list[BadRow] | None = None
    ) -> Iterator[Chunk]:
        """Yield rows in order; see `Table.chunks`."""
        wanted = list(self.columns if names is None else names)
        first = 1
        with readable_errors(self.path, self.form):
            for batch in _stripes(self.path, wanted) if self.form == "ORC" else _batches(self.path):
                if n := batch.num_rows:
                    batch.validate(full=True)  # offsets that point anywhere would end the process
                    check_cells(batch, self.path)
                    columns = {name: plain_text(batch.column(name)) for name in wanted}
                    yield from Chunk(columns, np.arange(first, first + n), self.path).slices(rows)
                    first += n

    def fingerprint(self) -> str:
        """Return a hash of the file."""
        return content_fingerprint(self.path, SUFFIXES)


def open_arrow(path: Path, form: str) -> ArrowFile:
    """Read what an Arrow or ORC file says of its columns."""
    n_rows = None
    with readable_errors(path, form):
        if form == "ORC":
            with _source(path) as source:
                file = require("pyarrow.orc", "train").ORCFile(source)
                schema, n_rows = file.schema, file.nrows
        else:
            with path.open("rb") as stream:
                if stream.read(4) == _FIRST_VERSION:
                    raise ValueError(f"{str(path)!r} is Feather of version 1, which is not read: write version 2")
            with _source(path) as source:
                schema = _reader(path, source).schema
    return ArrowFile(path, columns_of(schema, n_rows), repeated=repeated_names(schema), form=form)


def _source(path: Path) -> pa.NativeFile:
    """Map a local file into memory; read one that lies elsewhere when asked."""
    arrow = require("pyarrow", "train")
    return arrow.PythonFile(path.open("rb"), "r") if is_remote(path) else arrow.memory_map(str(path))


def _reader(path: Path, source: pa.NativeFile) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    ipc = require("pyarrow.ipc", "train")
    with path.open("rb") as stream:
        is_file = stream.read(len(_FILE)) == _FILE
    return ipc.open_file(source) if is_file else ipc.open_stream(source)


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with _source(path) as source:
        reader = _reader(path, source)
        if hasattr(reader, "num_record_batches"):
            yield from (reader.get_batch(k) for k in range(reader.num_record_batches))
        else:
            yield from reader


def _stripes(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _source(path) as source:
        file = require("pyarrow.orc", "train").ORCFile(source)
        yield from (file.read_stripe(k, columns=list(names)) for k in range(file.nstripes))
