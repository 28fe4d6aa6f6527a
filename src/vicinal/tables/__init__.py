"""The one reader of tables: CSV, JSON lines, Parquet, Arrow, ORC, Excel, NPY, NPZ, and folders of shards, in chunks.

`open_table(path)` finds out the columns; `Table.chunks` reads rows, with their numbers in the file. Training data and
predictions come through here alike: one rule for separators, encodings, names of columns and missing values.
"""

from vicinal.tables.base import BadRow, Chunk, Column, Columns, Table
from vicinal.tables.formats import is_table, open_table
from vicinal.tables.in_memory import from_frame, from_rows
from vicinal.tables.npz import read_arrays
from vicinal.tables.shards import is_pattern

__all__ = ["open_table", "from_frame", "from_rows", "read_arrays", "is_table", "is_pattern", "Table", "Chunk", "Column",
           "Columns", "BadRow"]  # fmt: skip
