"""Find files, list class folders, hash contents, and skip files that cannot be read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vicinal._checks import Argument, Sentence, joined, message_of, nearest_names
from vicinal.data.options import bad_limit
from vicinal.progress import stage
from vicinal.tables.file_access import fingerprint_of, identity, links_left_out

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

#: Folders of more files are fingerprinted by names and sizes alone, not by contents.
MANY = 20_000
#: A file of more bytes is fingerprinted by its size alone.
_HUGE = 2**30

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

    @property
    def name(self) -> str:
        """What errors call it."""
        return str(self.root)

    @property
    def holds(self) -> str:
        """What an error says of it."""
        return f"holds {self.kind} files"


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
    neighbours: list[str] = []
    with contextlib.suppress(OSError):  # a folder that cannot be read has no names to suggest
        neighbours = [str(entry) for entry in parent.iterdir() if not entry.name.startswith(".")]
    hint = nearest_names(source, [*neighbours, *known], key=lambda name: Path(name).stem)
    return FileNotFoundError(f"there is no file or folder {source!r}, and no data set of that name{hint}")


def part_of(name: str) -> str | None:
    """Return the split that a file or folder of this name holds, if it is one."""
    return _PART_NAMES.get(name.lower())


def scan(root: Path, kind: str | None, suffixes: Mapping[str, frozenset[str]]) -> Folder:
    """List the files of a folder of class folders, or of one split into train, val and test.

    Files of other types are left out and counted; hidden ones are ignored. Each real file counts once, whatever links
    lead to it. Links that lead back are not followed: torchvision's `DatasetFolder` would follow them without end.

    Parameters
    ----------
    root
        The folder.
    kind
        The kind of data to look for, if it is known.
    suffixes
        The suffixes of the files of each kind.
    """
    kind_of = {suffix: name for name, known in suffixes.items() for suffix in known}
    if root.resolve() == Path(root.resolve().anchor):
        raise ValueError(f"{str(root)!r} is the whole file system: pass the folder that holds the data")
    tops, notes = _split_roots(root)
    classes = [(folder, part) for top, part in tops for folder in _visible(top) if folder.is_dir()]
    entries = [_Entry(*file, folder.name, part) for folder, part in classes for file in _files_below(folder, root)]
    loose = [path for top, _ in tops for path in _visible(top) if path.is_file()]
    is_flat = not any(entry.path.suffix.lower() in kind_of for entry in entries)
    if is_flat:  # no class folder holds such a file: the folder's own files are meant, without classes
        entries = [_Entry(path, identity(path, path.resolve()), path.is_symlink(), "", None) for path in loose]
    kind = kind or _only_kind(root, {kind_of.get(entry.path.suffix.lower()) for entry in entries})
    wanted = [entry for entry in entries if kind and kind_of.get(entry.path.suffix.lower()) == kind]
    once = _without_links(wanted)
    if once:
        others = len(entries) - len(wanted) + (0 if is_flat else len(loose))
        unused = {folder.name for folder, _ in classes} - {entry.name for entry in once}
        notes += _left_out(others, len(wanted) - len(once), [] if is_flat else sorted(unused), kind)
    return Folder(
        root,
        kind if once else None,
        [entry.path for entry in once],
        None if is_flat else [entry.name for entry in once],
        [entry.part or "" for entry in once] if tops[0][1] is not None and not is_flat else None,
        notes,
    )


@dataclass(frozen=True)
class _Entry:
    """A file below a class folder."""

    path: Path
    real: object
    """Equal for two names of one file."""
    is_linked: bool
    """Whether a link led to it."""
    name: str
    """The class folder."""
    part: str | None


def _split_roots(root: Path) -> tuple[list[tuple[Path, str | None]], list[str]]:
    """Return the folders that hold class folders, each with its part: those of the splits, or the root itself."""
    folders = [path for path in _visible(root) if path.is_dir()]
    split = {path: part for path in folders if (part := part_of(path.name))}
    # A class may be called "test": it is a split only if there is a training part, and class folders below.
    is_split = "train" in split.values() and len(split) > 1 and any(p.is_dir() for f in split for p in _visible(f))
    if not is_split:
        return [(root, None)], []
    others = [path.name for path in folders if path not in split]
    notes = [f"left out: {listed(others)}, beside the folders of the splits"] if others else []
    tops: list[tuple[Path, str | None]] = [*split.items()]
    return tops, notes


def _files_below(folder: Path, root: Path) -> list[tuple[Path, object, bool]]:
    """Return all visible regular files in a folder and in those inside it: path, identity, whether by a link."""

    def below(here: Path, chain: tuple[Path, ...], is_linked: bool) -> list[tuple[Path, object, bool]]:
        real = here.resolve()
        # Compared with the folders above only: two links to one folder are listed, then counted once.
        if real in chain:  # a link that leads back
            return []
        is_linked = is_linked or here.is_symlink()
        entries = _visible(here)
        files = [
            (
                path,
                identity(path, path.resolve() if path.is_symlink() else real / path.name),
                is_linked or path.is_symlink(),
            )
            for path in entries
            if path.is_file()
        ]
        return files + [file for path in entries if path.is_dir() for file in below(path, (*chain, real), is_linked)]

    return below(folder, (root.resolve(), folder.parent.resolve()), False)


def _without_links(entries: Sequence[_Entry]) -> list[_Entry]:
    """Return one entry for each real file, in order: the file itself before any link to it."""
    chosen: dict[object, _Entry] = {}
    for entry in entries:
        if entry.real not in chosen or (chosen[entry.real].is_linked and not entry.is_linked):
            chosen[entry.real] = entry
    return [entry for entry in entries if chosen[entry.real] is entry]


def _left_out(others: int, links: int, empty: Sequence[str], kind: str | None) -> list[str]:
    notes = []
    if others:
        notes.append(f"left out: {others} file{'s' * (others > 1)} of other types")
    if links:
        notes.append(links_left_out(links))
    if empty:
        notes.append(f"left out: {listed(empty)}, without any {kind} file")
    return notes


def folder_fingerprint(root: Path, paths: Sequence[Path]) -> str:
    """Return the hash of names and contents (of many or huge files: names and sizes), wherever the folder lies."""

    def entries() -> Iterator[bytes]:
        for path in paths:
            yield os.fsencode(path.relative_to(root).as_posix())
            try:
                size = path.stat().st_size
                yield path.read_bytes() if len(paths) <= MANY and size <= _HUGE else str(size).encode()
            except OSError:  # `read_all` counts it as bad
                yield b"unreadable"

    return fingerprint_of(entries())


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
        except Exception as error:  # libraries raise anything for a broken file
            return error

    results: list[Result | Exception] = []
    # Threads, not processes: decoders release the lock, and results need no copy.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool, stage(f"reading {what} files", len(paths)) as advance:
        for result in pool.map(attempt, paths):
            results.append(result)
            advance(1)
    bad = [
        Sentence(f"{path} (", _reason(result), ")")
        for path, result in zip(paths, results, strict=True)
        if isinstance(result, Exception)
    ]
    notes = check_bad_limit(bad, len(paths), f"{what} files", "could not be read", max_bad)
    good = [(i, result) for i, result in enumerate(results) if not isinstance(result, Exception)]
    return [i for i, _ in good], [result for _, result in good], notes


def _reason(error: Exception) -> str:
    said = message_of(error)
    return said if "\n" not in said and said.strip() else said.strip().partition("\n")[0] or type(error).__name__


def check_bad_limit(bad: Sequence[str], n: int, what: str, why: str, max_bad: float | int) -> list[str]:
    """Return a note that names what was skipped, or raise where it is more than `max_bad`."""
    if not bad:
        return []
    sentence = Sentence(f"{len(bad)} of {n} {what} {why}: ", listed(bad, n=3))
    # If nothing can be read, no limit makes that a success.
    if len(bad) > bad_limit(max_bad, n) or len(bad) == n:
        raise ValueError(
            Sentence(
                sentence,
                "; that is more than ",
                Argument("max_bad", max_bad),
                " allows: repair or remove them, or raise ",
                Argument("max_bad"),
                " (a share below 1, or a number)",
            )
        )
    return [Sentence("skipped: ", sentence)]


def listed(names: Sequence[object], *, n: int = 5) -> Sentence:
    """Return the first `n` names as part of a sentence.

    >>> print(listed(["a", "b", "c"], n=2))
    a, b and 1 more
    """
    shown = [name if isinstance(name, str) else str(name) for name in names[:n]]
    last = f"{len(names) - n} more" if len(names) > n else shown.pop() if shown else ""
    return joined(" and ", [joined(", ", shown), last] if shown else [last])


def _visible(folder: Path) -> list[Path]:
    return sorted((path for path in folder.iterdir() if not path.name.startswith(".")), key=lambda path: path.name)


def _only_kind(root: Path, kinds: set[str | None]) -> str | None:
    """Return the one kind of data that a folder holds, None where it holds none."""
    found = sorted(kind for kind in kinds if kind is not None)
    if len(found) > 1:
        choices = joined(" or ", [Sentence(Argument("kind", kind)) for kind in found])
        raise ValueError(Sentence(f"{str(root)!r} holds files of several kinds: pass ", choices))
    return found[0] if found else None
