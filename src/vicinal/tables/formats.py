"""From a path to a table, by its suffix: one file, a folder of shards, or a pattern."""

from __future__ import annotations

import os
from pathlib import Path

from vicinal._remote import as_path
from vicinal.tables import arrow_files, delimited, excel, json_lines, npy, npz, parquet, shards
from vicinal.tables.base import Table
from vicinal.tables.file_access import regular, suffix_of, text_file

_SUFFIXES = {*delimited.SUFFIXES, *json_lines.SUFFIXES, *parquet.SUFFIXES, *arrow_files.SUFFIXES, *excel.SUFFIXES,
             *npy.SUFFIXES}  # fmt: skip
#: What errors name.
_KNOWN = ".csv, .tsv, .jsonl, .parquet, .feather, .orc, .xlsx"


def is_table(path: Path) -> bool:
    """Return whether a file's name says that it is a table.

    Returns
    -------
    bool
        True for a suffix that `open_table` knows.

    Examples
    --------
    >>> is_table(Path("data.csv.gz")), is_table(Path("photo.png"))
    (True, False)
    """
    return suffix_of(path) in _SUFFIXES


def open_table(
    path: str | os.PathLike[str], *, encoding: str | None = None, header: bool = True, arrays_too: bool = False
) -> Table:
    r"""Open a table; its rows are read when asked for.

    Parameters
    ----------
    path
        A CSV, TSV, JSON-lines, Parquet, Feather (Arrow), ORC, Excel or NPY file; text may be compressed (.gz, .bz2,
        .xz, .zip). A folder of such files, or a pattern (`part-*.csv`), is one table. It may lie elsewhere: `s3://`,
        `gs://`, `hf://`, `https://`, `memory://`.
    encoding
        How text is encoded; UTF-8 if not given.
    header
        Whether the first line of a CSV file names the columns; else they are called "1", "2", ….
    arrays_too
        Whether NPZ files are tables too.

    Returns
    -------
    Table
        The table, with the names of its columns; its rows are not read yet.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "data.csv"
    ...     _ = path.write_text("x,y\n1,a\n2,b\n")
    ...     table = open_table(path)
    ...     rows = [len(chunk) for chunk in table.chunks()]
    >>> list(table.columns), rows
    (['x', 'y'], [2])
    """
    place = as_path(path)

    def accepts(file: Path) -> bool:
        return is_table(file) or (arrays_too and suffix_of(file) in npz.SUFFIXES)

    def open_one(file: Path) -> Table:
        suffix = suffix_of(regular(file))
        if suffix in delimited.SUFFIXES:
            text_file(file)
            return delimited.open_delimited(file, delimited.SUFFIXES[suffix], encoding=encoding, header=header)
        if suffix in json_lines.SUFFIXES:
            return json_lines.open_json_lines(text_file(file), encoding=encoding)
        if suffix in arrow_files.SUFFIXES:
            return arrow_files.open_arrow(file, arrow_files.SUFFIXES[suffix])
        if suffix in excel.SUFFIXES:
            return excel.open_excel(file, header=header)
        if suffix in npy.SUFFIXES:
            return npy.open_npy(file)
        return npz.open_npz(file) if suffix in npz.SUFFIXES else parquet.open_parquet(file)

    if place.is_dir() or shards.is_pattern(place):
        files = shards.shard_files(place, accepts) if place.is_dir() else shards.matches(place, accepts)
        if not files:
            raise FileNotFoundError(f"{str(place)!r} holds no table: {_KNOWN} or .npy files")
        return shards.open_shards(place, files, open_one)
    if not accepts(place):
        if place.suffix.lower() == ".zip" and place.is_file():
            raise ValueError(
                f"{str(place)!r} is an archive: name it after its table, as in 'data.csv.zip', or unpack it"
            )
        if place.suffix.lower() == ".json":
            lines = "to_json(…, orient='records', lines=True)"
            raise ValueError(f"{str(place)!r} is no table: write an object a line to a .jsonl file; pandas: {lines}")
        forms = f"{_KNOWN}{', .npy or .npz' if arrays_too else ' or .npy'}"
        raise ValueError(f"{str(place)!r} is no table that can be read: pass a {forms} file, or a folder")
    return open_one(place)
