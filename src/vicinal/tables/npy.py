"""NPY files: a matrix, whose columns are numbered, or records, whose fields are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal._memory import TooLargeError, check_memory
from vicinal._remote import is_remote
from vicinal.tables.base import Column
from vicinal.tables.file_access import content_fingerprint
from vicinal.tables.in_memory import InMemory, column_of

SUFFIXES = (".npy",)
#: Bytes that the name and type of a column take, and the limit for all columns: more would take seconds in silence.
_COLUMN, _COLUMNS = 10_000, 10**9


def open_npy(path: Path) -> InMemory:
    """Return an array as a table: `[N, D]` has the columns "1", "2", …, records `[N]` have those of their fields.

    Parameters
    ----------
    path
        What `numpy.save` wrote. Arrays of Python objects are refused: they could run code.
    """
    try:
        array = _opened(path)
    except (OSError, TooLargeError):
        raise
    except Exception as error:  # what a damaged header raises is up to Python's parser
        raise ValueError(
            f"{str(path)!r} is no readable NPY file: numbers or text are read, no Python objects"
        ) from error
    check_memory(f"the array of {str(path)!r}", array.nbytes)
    width = array.shape[1] if array.ndim == 2 else len(array.dtype.names or ())
    what = f"the array of {str(path)!r} has {width:,} columns and"
    check_memory(what, width * _COLUMN, default=_COLUMNS, instead="choose among them or project them first")
    if array.ndim == 1 and array.dtype.names:
        columns = {name: array[name] for name in array.dtype.names}
    elif array.ndim == 2 and not array.dtype.names:
        columns = {str(k): column for k, column in enumerate(array.T, start=1)}
    else:
        columns = {}
    if not columns or any(column.ndim != 1 for column in columns.values()):
        raise ValueError(
            f"the array of {str(path)!r} has the shape {list(array.shape)}: a table is [N, D], or records [N] whose "
            "fields hold one value each; labels and matrices together go into an .npz file"
        )
    values = {name: column_of(np.ascontiguousarray(column)) for name, column in columns.items()}
    known = {name: Column(n_rows=len(array)) for name in values}
    return InMemory(path, known, values=values, digest=content_fingerprint(path, SUFFIXES))


def _opened(path: Path) -> NDArray[Any]:
    """Map an array into memory, or read one that lies elsewhere. `np.load` would open archives of arrays too."""
    if not is_remote(path):
        return np.lib.format.open_memmap(path, mode="r")
    check_memory(f"the array of {str(path)!r}", path.stat().st_size)
    with path.open("rb") as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array
