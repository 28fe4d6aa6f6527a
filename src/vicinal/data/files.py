"""Files on a disk: finding them, hashing what they hold, and what to do when some cannot be read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from vicinal._checks import Argument, Sentence, nearest_names, number

__all__ = ["IMAGES", "MANY", "SOUNDS", "Folder", "find", "fingerprint", "folder_fingerprint", "give_up", "limit_of",
           "listed", "missing", "part_of", "read_all", "scan"]  # fmt: skip

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"})
SOUNDS = frozenset({".wav", ".flac", ".ogg"})

#: What the folders of a source that is already split may be called.
_PART_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}

#: Above this many files content is no longer hashed, only names and sizes.
MANY = 20_000

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Folder:
    """The files of a folder of class folders."""

    root: Path
    kind: str | None
    """`"image"` or `"audio"`; None where there are no such files."""
    paths: list[Path]
    classes: list[str] | None
    """The class of each file, the name of its folder; None where the files lie in the folder itself."""
    parts: list[str] | None
    """The split of each file, where the folder is already split."""
    notes: list[str]


def find(source: str, roots: Sequence[Path]) -> Path | None:
    """Return the file or folder that `source` names, in the working directory or under one of `roots`."""
    for path in (Path(source).expanduser(), *(root / source for root in roots)):
        if path.exists():
            return path
    return None


def missing(source: str, known: Iterable[str]) -> FileNotFoundError:
    """Return the error for a source that is neither a file nor a name, with what looks like it."""
    path = Path(source).expanduser()
    parent = path.parent
    neighbours = [str(parent / entry.name) for entry in parent.iterdir()] if parent.is_dir() else []
    neighbours = [name for name in neighbours if not Path(name).name.startswith(".")]
    hint = nearest_names(source, [*neighbours, *known])
    return FileNotFoundError(f"there is no file or folder {source!r}, and no data set of that name{hint}")


def part_of(name: str) -> str | None:
    """Return the split that a file or folder of this name holds, if it is one."""
    return _PART_NAMES.get(name.lower())


def scan(root: Path, kind: str | None) -> Folder:
    """List a folder of class folders (or one split into train, val and test) of images or sounds.

    Files of other types are left out and counted; hidden ones do not exist.
    """
    held = _visible(root)
    folders = [path for path in held if path.is_dir()]
    split = {path: part for path in folders if (part := part_of(path.name))}
    is_split = "train" in split.values() and len(split) > 1 and any(p.is_dir() for f in split for p in _visible(f))
    tops = [(path, split.get(path)) for path in folders if path in split] if is_split else [(root, None)]
    notes: list[str] = []
    if is_split and len(tops) < len(folders):
        left = [path.name for path in folders if path not in split]
        notes.append(f"left out: {listed(left)}, beside the folders of the splits")
    found = [
        (path, folder.name, part)
        for top, part in tops
        for folder in _visible(top)
        if folder.is_dir()
        for path in _files_below(folder)
    ]
    loose = [path for top, _ in tops for path in _visible(top) if path.is_file()]
    flat = not any(_suffix_kind(path) for path, _, _ in found)
    candidates = [(path, "", None) for path in loose] if flat else found
    kind = kind or _kind_of(root, [path for path, _, _ in candidates])
    wanted = [entry for entry in candidates if kind and _suffix_kind(entry[0]) == kind]
    others = len(candidates) - len(wanted) + (0 if flat else len(loose))
    if wanted and others:
        notes.append(f"left out: {others} file{'s' * (others > 1)} of other types")
    if wanted and not flat:
        used = {name for _, name, _ in wanted}
        empty = sorted({f.name for top, _ in tops for f in _visible(top) if f.is_dir() and f.name not in used})
        if empty:
            notes.append(f"left out: {listed(empty)}, without any {kind} file")
    return Folder(
        root,
        kind if wanted else None,
        [path for path, _, _ in wanted],
        None if flat else [name for _, name, _ in wanted],
        [part or "" for _, _, part in wanted] if is_split and not flat else None,
        notes,
    )


def fingerprint(*chunks: bytes) -> str:
    """Return the hash of some bytes, as every result records it."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(len(chunk).to_bytes(8, "big"))  # so that a chunk cannot end where another begins
        digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def folder_fingerprint(root: Path, paths: Sequence[Path]) -> str:
    """Return the hash of names and contents (of many files: names and sizes), wherever the folder lies."""
    entries = []
    for path in paths:
        entries.append(os.fsencode(path.relative_to(root).as_posix()))
        entries.append(path.read_bytes() if len(paths) <= MANY else str(path.stat().st_size).encode())
    return fingerprint(*entries)


def read_all(
    paths: Sequence[Path], read: Callable[[Path], Result], what: str, max_bad: float | int
) -> tuple[list[int], list[Result], list[str]]:
    """Read every file, in threads; skip those that cannot be read, up to a limit.

    Returns the positions of the readable files, what they held, and a note if any was skipped.
    """

    def attempt(path: Path) -> Result | Exception:
        try:
            return read(path)
        except ImportError:
            raise
        except Exception as error:  # what a broken file raises is up to the library that reads it
            return error

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        results = list(pool.map(attempt, paths))
    bad = [
        f"{path} ({str(result).strip().partition(chr(10))[0] or type(result).__name__})"
        for path, result in zip(paths, results, strict=True)
        if isinstance(result, Exception)
    ]
    notes = give_up(bad, len(paths), f"{what} files", "could not be read", max_bad)
    good = [(i, result) for i, result in enumerate(results) if not isinstance(result, Exception)]
    return [i for i, _ in good], [result for _, result in good], notes


def give_up(bad: Sequence[str], n: int, what: str, why: str, max_bad: float | int) -> list[str]:
    """Return a note that names what was skipped, or raise where it is more than `max_bad`."""
    if not bad:
        return []
    sentence = f"{len(bad)} of {n} {what} {why}: {listed(bad, n=3)}"
    if len(bad) > limit_of(max_bad, n) or len(bad) == n:
        raise ValueError(
            Sentence(
                f"{sentence}; that is more than ",
                Argument("max_bad", max_bad),
                " allows: repair or remove them, or raise ",
                Argument("max_bad"),
                " (a share below 1, or a number)",
            )
        )
    return [f"skipped: {sentence}"]


def limit_of(max_bad: float | int, n: int) -> float:
    """Return how many of `n` may be bad: an integer is a number, a float a share."""
    if isinstance(max_bad, int) and not isinstance(max_bad, bool):
        return number("max_bad", max_bad, low=0)
    return number("max_bad", max_bad, low=0, high=1) * n


def listed(names: Sequence[Any], *, n: int = 5) -> str:
    """Return names as a sentence has them, the first `n` of them.

    >>> listed(["a", "b", "c"], n=2)
    'a, b and 1 more'
    """
    shown = [str(name) for name in names[:n]]
    if len(names) > n:
        return f"{', '.join(shown)} and {len(names) - n} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _visible(folder: Path) -> list[Path]:
    return sorted((path for path in folder.iterdir() if not path.name.startswith(".")), key=lambda path: path.name)


def _files_below(folder: Path) -> list[Path]:
    """Return all visible files in a folder and in the folders inside it, by name."""
    held = _visible(folder)
    below = [path for inner in held if inner.is_dir() for path in _files_below(inner)]
    return [path for path in held if path.is_file()] + below


def _suffix_kind(path: Path) -> str | None:
    suffix = path.suffix.lower()
    return "image" if suffix in IMAGES else "audio" if suffix in SOUNDS else None


def _kind_of(root: Path, paths: Sequence[Path]) -> str | None:
    kinds = {kind for path in paths if (kind := _suffix_kind(path))}
    if len(kinds) > 1:
        choices = Argument("kind", "image"), " or ", Argument("kind", "audio")
        raise ValueError(Sentence(f"{str(root)!r} holds images and sounds: pass ", *choices))
    return kinds.pop() if kinds else None
