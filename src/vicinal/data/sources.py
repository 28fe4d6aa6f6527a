"""Open what a path or a name stands for: a table, the files of a folder, or images in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from vicinal._checks import ArgumentTypeError
from vicinal._remote import as_path, is_remote
from vicinal.data import class_folders, named_datasets
from vicinal.data.class_folders import Folder
from vicinal.data.image import Arrays
from vicinal.data.names import NAMES, roots
from vicinal.data.options import ReadOptions
from vicinal.data.published_folders import with_published_split
from vicinal.data.registry import FILE_KINDS
from vicinal.data.table_samples import open_split_tables, split_tables
from vicinal.tables import Table, from_frame, is_pattern, is_table, open_table, read_arrays
from vicinal.tables.file_access import regular
from vicinal.tables.in_memory import from_arrays, from_arrow

if TYPE_CHECKING:
    import pandas as pd

#: What a source turns out to be. Tables hold rows or texts; a folder and arrays say their kind.
Opened: TypeAlias = Table | Folder | Arrays


def open_data(source: object, kind: str | None, options: ReadOptions, target: str | None) -> Opened:
    """Return what a path or a name holds.

    Parameters
    ----------
    source
        As in `load`.
    kind
        The kind of data that is expected, if any: it decides what a folder of tables and images is.
    options
        How to read it.
    target
        The column of the class, whose names a Hugging Face data set keeps elsewhere.
    """
    if hasattr(source, "collect_schema") and hasattr(source, "collect"):
        source = source.collect()  # polars reads a lazy frame only now
    if hasattr(source, "to_table") and hasattr(source, "scanner"):
        source = source.to_table()  # a data set of pyarrow
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return from_frame(cast("pd.DataFrame", source))
    if hasattr(source, "__arrow_c_stream__"):
        return from_arrow(source)
    if not isinstance(source, (str, Path)) or not str(source):
        raise ArgumentTypeError("source", source, "a path, a name or a DataFrame")
    if is_remote(source) or "://" in str(source):
        return _open_remote(as_path(source), options)
    if isinstance(source, str):
        if source.startswith("hf:"):
            return named_datasets.from_hub(source.removeprefix("hf:"), target)
        if source.lower().replace("_", "-") in NAMES:
            opened = _named(source, options.data_root)
            if not isinstance(opened, Path):
                return opened
            source = opened
    path = class_folders.find(str(source), roots(options.data_root))
    if path is None:
        if is_pattern(Path(source).expanduser()):
            return open_table(source, encoding=options.encoding, header=options.header)
        raise class_folders.missing(str(source), NAMES)
    return _open_folder(path, kind, options) if path.is_dir() else _open_file(path, options)


def _open_remote(path: Path, options: ReadOptions) -> Opened:
    """Return a table that lies elsewhere, or the arrays of an NPZ file. Images and sounds must be local."""
    if path.is_dir() and split_tables(path):
        return open_split_tables(path, encoding=options.encoding, header=options.header)
    if path.suffix.lower() == ".npz":
        return _open_file(path, options)
    return open_table(path, encoding=options.encoding, header=options.header)


def _open_file(path: Path, options: ReadOptions) -> Opened:
    regular(path)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        arrays = read_arrays(path)
        if arrays and not {"x_train", "y_train"} & arrays.keys():
            return from_arrays(arrays, str(path))
        return named_datasets.from_npz(path)
    for kind in FILE_KINDS.values():
        if suffix in kind.suffixes:
            return Folder(path.parent, kind.name, [path], None, None, [])
    return open_table(path, encoding=options.encoding, header=options.header)


def _open_folder(path: Path, kind: str | None, options: ReadOptions) -> Table | Folder:
    """Return a folder of tables as one table, or the files of a folder of images or sounds."""
    takes_tables = kind not in FILE_KINDS
    if takes_tables and split_tables(path):
        return open_split_tables(path, encoding=options.encoding, header=options.header)
    suffixes = {name: one.suffixes for name, one in FILE_KINDS.items()}
    folder = class_folders.scan(path, None if takes_tables else kind, suffixes)
    if folder.kind is not None:
        return with_published_split(folder)
    if takes_tables and any(is_table(entry) for entry in path.iterdir()):
        return open_table(path, encoding=options.encoding, header=options.header)
    wanted = " or of ".join(one.plural for name, one in FILE_KINDS.items() if kind not in FILE_KINDS or name == kind)
    if takes_tables and (found := next((file for file in sorted(path.rglob("*")) if is_table(file)), None)):
        raise _deeper(path, found)
    raise ValueError(f"{str(path)!r} holds no class folders of {wanted}, and no tables")


def _deeper(path: Path, found: Path) -> ValueError:
    """Return the error for tables that lie in folders of a folder."""
    folders = found.relative_to(path).parts[:-1]
    if any("=" in name for name in folders):  # cells of a column are in the names of folders alone
        pandas = f"pandas.read_parquet({str(path)!r})"
        return ValueError(f"{str(path)!r} is a table split by {folders[0]!r}: read it with {pandas} and pass the frame")
    pattern = str(path / "**" / f"*{found.suffix}")
    return ValueError(f"{str(path)!r} holds tables in its folders: pass the pattern {pattern!r}")


def _named(source: str, data_root: str | Path | None) -> Opened | Path:
    """Return a data set by its name. If it cannot be loaded, say how to pass a file or folder of that name."""
    try:
        return named_datasets.from_name(source.lower().replace("_", "-"), data_root)
    except (FileNotFoundError, ValueError, ImportError) as error:
        if not Path(source).exists():
            raise
        taken = f"{source!r} is the name of a data set, which cannot be loaded here"
        raise ValueError(f"{taken}; for the file or folder of that name pass './{source}'") from error
