"""The one reader of tables: CSV, TSV, JSON lines, Parquet, Excel, NPY, NPZ, and folders of shards, a chunk at a time.

`open_table(path)` finds out the columns; `Table.chunks` reads rows, with their numbers in the file. Training data and
predictions come through here alike: one rule for separators, encodings, names of columns and missing values.
"""

from vicinal.tables.base import LARGEST_ROW, BadRow, Chunk, Column, Columns, DerivedTable, Table, quoted, renamed
from vicinal.tables.column_values import (
    LARGEST,
    MISSING,
    as_numpy,
    distinct,
    finite_numbers,
    is_text,
    matrix,
    names_of,
    numbers,
    strict_numbers,
)
from vicinal.tables.file_access import (
    fingerprint,
    fingerprint_of,
    identity,
    lines_of,
    links_left_out,
    regular,
    suffix_of,
)
from vicinal.tables.formats import is_table, open_table
from vicinal.tables.in_memory import from_frame, from_rows
from vicinal.tables.npz import read_arrays
from vicinal.tables.number_cache import NumberCache
from vicinal.tables.shards import is_pattern, joined_tables

__all__ = ["LARGEST", "LARGEST_ROW", "MISSING", "BadRow", "Chunk", "Column", "Columns", "DerivedTable", "NumberCache",
           "Table", "as_numpy", "distinct", "finite_numbers", "fingerprint", "fingerprint_of", "from_frame",
           "from_rows", "identity", "is_pattern", "is_table", "is_text", "joined_tables", "lines_of",
           "links_left_out", "matrix", "names_of", "numbers", "open_table", "quoted", "read_arrays", "regular",
           "renamed", "strict_numbers", "suffix_of"]  # fmt: skip
