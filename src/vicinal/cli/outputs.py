"""The files that a command writes: never one of those it reads, and not one of somebody else's without being asked."""

from __future__ import annotations

import contextlib
import csv
import glob
import gzip
import json
import os
import shlex
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from vicinal._remote import RemotePath, as_path, is_remote

#: How every report begins, and what each calibrator's file and each result of a recipe has.
_REPORT = b'<meta name="generator" content="vicinal'
_CALIBRATOR = {"format", "calibrator", "params", "learned", "n_classes"}
_RESULT = {"format", "recipe", "scale", "seeds", "settings", "verdicts", "cells", "environment"}
_ONNX = {"classes", "preprocessing", "method"}


def check_outputs(
    outputs: Mapping[str, Path | None], inputs: Iterable[str | Path], *, overwrite: bool, data_root: str | None = None
) -> None:
    """Refuse, before any work is done, an output that cannot be written or that would destroy something.

    Parameters
    ----------
    outputs
        The files to write, by option.
    inputs
        Files, patterns and folders that the command reads; names of data sets are ignored.
    overwrite
        Replace a file that this command did not write.
    data_root
        Where names of files are looked for too.
    """
    paths = {option: path for option, path in outputs.items() if path is not None}
    sources = [path for name in inputs for path in _files_of(str(name), data_root)]
    for option, path in paths.items():
        _check_place(option, path)
        place = f"{option} {shlex.quote(str(path))}"
        for other, second in paths.items():
            if other != option and _same(path, second):
                raise ValueError(f"{other} and {option} are the same file, {str(path)!r}: choose two names")
        if not path.exists():
            continue
        for source in sources:
            if _reads(source, path):
                raise ValueError(f"{place} is an input of this command, which would be lost: choose another name")
        if not (overwrite or _is_ours(path, option)):
            raise ValueError(
                f"{place} exists, and vicinal did not write it: choose another name, or replace it with --overwrite"
            )


def check_report(
    path: Path | None, inputs: Iterable[str | Path], *, overwrite: bool, data_root: str | None = None
) -> None:
    """Refuse a report that could not be written, or that would replace something else than a report."""
    if path is not None and not path.is_dir() and path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--report must end in .html, got {str(path)!r}: it is a page for the browser")
    check_outputs({"--report": path}, inputs, overwrite=overwrite, data_root=data_root)


def _check_place(option: str, path: Path) -> None:
    """Refuse a file that could not be written; its folder may have to be made."""
    if isinstance(path, RemotePath):
        path.check_writable(option.removeprefix("--").replace("-", "_"))
    if path.is_dir():
        raise ValueError(f"{option} must be a file to write, and {str(path)!r} is a folder")
    if path.exists() and not path.is_file():
        raise ValueError(f"{option} must be a file to write, and {str(path)!r} is a device or a pipe")
    if path.is_symlink() and not path.exists():
        raise ValueError(f"{option} {shlex.quote(str(path))} is a link to {os.readlink(path)!r}, which is not there")
    if isinstance(path, RemotePath):
        return
    # The first folder that exists: the others are made when the file is written.
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ValueError(f"{option} {shlex.quote(str(path))} cannot be written: {str(above)!r} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ValueError(f"{option} {shlex.quote(str(path))} cannot be written: you may not write to {str(above)!r}")


def _files_of(name: str, data_root: str | None) -> list[Path]:
    """Return what a name given to a command stands for: a path here or below a root of data, or a pattern of paths."""
    if is_remote(name):
        remote = as_path(name)
        return [*remote.matching()] if isinstance(remote, RemotePath) and remote.is_pattern else [remote]
    name = os.path.expanduser(name)
    roots = (os.path.expanduser(root) for root in ("", data_root, os.environ.get("VICINAL_DATA")) if root is not None)
    places = [Path(root) / name for root in roots]
    there = [place for place in places if place.exists()]
    if there or not glob.has_magic(name):
        return there
    return [Path(path) for place in places for path in glob.glob(str(place), recursive=True)]


def _same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()


def _reads(source: Path, path: Path) -> bool:
    """Whether an existing file is what a command reads, by whatever links: the source itself, or a part of its folder.

    A report in a run's folder is no input of it.
    """
    if not source.is_dir():
        return source.samefile(path)
    if path.resolve().is_relative_to(source.resolve()):
        return not _is_report(path)
    # A hard link below the folder is the same file under another path, which `is_relative_to` misses.
    there = path.stat()
    return any(os.path.samestat(info, there) for info in _stats_below(source, there.st_ino))


def _stats_below(source: Path, number: int) -> Iterator[os.stat_result]:
    """Yield what the system says of each file below a folder, links followed, that may have this inode number."""
    waiting, seen = [source], set()
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(OSError):  # a link that leads nowhere, or what this user may not read
            info = folder.stat()
            # A link may lead back to a folder above it.
            if (info.st_dev, info.st_ino) in seen:
                continue
            seen.add((info.st_dev, info.st_ino))
            with os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if entry.is_dir():
                            waiting.append(Path(entry.path))
                        elif entry.is_symlink() or entry.inode() == number:
                            yield entry.stat()


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return _REPORT in file.read(2000)


def _is_ours(path: Path, option: str) -> bool:
    """Whether a file is of the kind that this option writes, by what it holds; an empty one has nothing to lose."""
    if path.stat().st_size == 0:
        return True
    name = path.name.lower()
    try:
        if name.endswith((".csv", ".csv.gz", ".tsv")):
            return _are_predictions(_header(path))
        if name.endswith((".parquet", ".pq")):
            from pyarrow import parquet

            with path.open("rb") as stream:
                return _are_predictions(parquet.read_schema(stream).names)
        if name.endswith(".npz"):
            with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
                return {"prediction.npy", "confidence.npy", "probs.npy", "classes.npy"} <= set(archive.namelist())
        if name.endswith(".onnx"):
            import onnx

            props = onnx.load(path, load_external_data=False).metadata_props
            return {entry.key for entry in props} >= _ONNX
        if name.endswith((".html", ".htm")):
            return _is_report(path)
        state = json.loads(path.read_text(encoding="utf-8"))
        return isinstance(state, dict) and set(state) - {"failures"} == (_CALIBRATOR if option == "--save" else _RESULT)
    except Exception:  # damaged, or of another kind: what a library raises then is up to it
        return False


def _header(path: Path) -> list[str]:
    with path.open("rb") as stream, gzip.open(stream) if path.suffix.lower() == ".gz" else stream as file:
        line = file.readline(1_000_000).decode()
    return next(csv.reader([line], delimiter="\t" if path.suffix.lower() == ".tsv" else ","))


def _are_predictions(columns: list[str]) -> bool:
    """Whether the last columns are those that `vicinal.predictions.write` ends with."""
    scores = [i for i, name in enumerate(columns) if name.startswith("prob_")]
    if not scores or scores != list(range(scores[0], len(columns))):
        return False
    return columns[scores[0] - 2 : scores[0]] == ["prediction", "confidence"]
