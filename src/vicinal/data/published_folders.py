"""Folders of images and sounds as they were published, with the splits that came with them."""

from __future__ import annotations

import contextlib
import os
import re
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from vicinal._checks import Argument, Sentence
from vicinal.data.class_folders import Folder

#: What the folder of each collection is called, below the data root.
FOLDERS = {
    "imagenet": ("imagenet", "ImageNet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC"),
    "tinyimagenet": ("tiny-imagenet-200", "tinyimagenet"),
    "speechcommands": ("speech_commands_v0.01", "speech_commands_v0.02", "speech_commands", "speechcommands"),
    "fsdd": ("fsdd", "free-spoken-digit-dataset"),
    "fsdd:takes": ("fsdd", "free-spoken-digit-dataset"),
}

#: What ImageNet's class folders are called.
_SYNSET = re.compile(r"n\d{8}")
_RECORDING = re.compile(r"(\d)_([a-z]+)_(\d+)\.wav")
#: Held-out speakers: the last two of the six by name.
_SPEAKERS = {"theo": "val", "yweweler": "test"}


def cache() -> Path:
    """Return where downloads and unpacked archives are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vicinal"


def not_there(name: str, roots: Sequence[Path], wanted: str) -> FileNotFoundError:
    """Return the error for a named data set that none of these folders holds."""
    if roots:
        return FileNotFoundError(f"{name} is not there: looked in {', '.join(map(str, roots))} for {wanted}")
    how = "pass ", Argument("data_root", "FOLDER"), f", or set VICINAL_DATA, to a folder with {wanted}"
    return FileNotFoundError(Sentence(f"{name} is not there: ", *how))


def read_collection(name: str, roots: Sequence[Path]) -> Path | Folder:
    """Return the folder of a collection, or its files where they do not lie in class folders."""
    for root in roots:
        for folder in FOLDERS[name]:
            for path in (root / folder, *sorted(root.glob(f"*/{folder}"))):
                if path.is_dir():
                    return _spoken_digits(path, by_take=name == "fsdd:takes") if name.startswith("fsdd") else path
    raise not_there(name, roots, f"a folder {' or '.join(FOLDERS[name])}")


def with_published_split(folder: Folder) -> Folder:
    """Return the files with the split that lists in the folder give them, where it has such lists.

    Speech Commands: `validation_list.txt` and `testing_list.txt` name files, all others are for training; the folder
    of background noise is no class. Tiny ImageNet: `val/val_annotations.txt` has the class of each file of `val`, which
    is the test set here, since labels of its test set were not published. ImageNet, known by the names of its classes
    such as n01440764: `val` is the test set for the same reason. In any other folder `val` stays the validation set.
    """
    root = folder.root
    if folder.kind == "audio" and (root / "validation_list.txt").is_file() and (root / "testing_list.txt").is_file():
        return _speech_commands(folder)
    if folder.kind == "image" and (root / "val" / "val_annotations.txt").is_file():
        return _tiny_imagenet(folder)
    synsets = all(_SYNSET.fullmatch(name) for name in set(folder.classes or ()))
    if folder.kind == "image" and synsets and set(folder.parts or ()) == {"train", "val"}:
        note = "ImageNet's val is the test set here: labels of its test set were not published"
        parts = ["test" if part == "val" else part for part in folder.parts or ()]
        return replace(folder, parts=parts, notes=[*folder.notes, note])
    return folder


def _speech_commands(folder: Folder) -> Folder:
    part_of = {
        PurePosixPath(line.strip()): part
        for part, name in (("val", "validation_list.txt"), ("test", "testing_list.txt"))
        for line in (folder.root / name).read_text(encoding="utf-8").splitlines()
        if line.strip()
    }
    pairs = zip(folder.paths, folder.classes or (), strict=True)
    words = [(path, name) for path, name in pairs if not name.startswith("_")]
    named = [PurePosixPath(path.relative_to(folder.root).as_posix()) for path, _ in words]
    missing = len(set(part_of) - set(named))
    notes = [f"{missing} files of validation_list.txt and testing_list.txt are not there"] if missing else []
    return replace(
        folder,
        paths=[path for path, _ in words],
        classes=[name for _, name in words],
        parts=[part_of.get(name, "train") for name in named],
        notes=[*folder.notes, "splits: those of validation_list.txt and testing_list.txt", *notes],
    )


def _tiny_imagenet(folder: Folder) -> Folder:
    rows = (folder.root / "val" / "val_annotations.txt").read_text(encoding="utf-8").splitlines()
    class_of = {cells[0]: cells[1] for cells in (row.split("\t") for row in rows) if len(cells) > 1}
    files: list[tuple[Path, str, str]] = []
    for path in folder.paths:
        part, inside = path.relative_to(folder.root).parts[:2]
        if part == "train":
            files.append((path, inside, "train"))
        elif part == "val" and path.name in class_of:
            files.append((path, class_of[path.name], "test"))
    paths, classes, parts = (list(column) for column in zip(*files, strict=True))
    note = "Tiny ImageNet's val is the test set here: labels of its test set were not published"
    return replace(folder, paths=paths, classes=classes, parts=parts, notes=[note])


def _spoken_digits(folder: Path, *, by_take: bool) -> Folder:
    """Return the recordings, split by speaker, or as its authors do: takes 0 to 4 of everybody are the test set."""
    recordings = folder / "recordings"
    if not recordings.is_dir():
        recordings = _unpacked(folder / "recordings.tar.xz")
    named = [(path, match) for path in sorted(recordings.iterdir()) if (match := _RECORDING.fullmatch(path.name))]
    if by_take:
        parts = ["test" if int(match[3]) < 5 else "train" for _, match in named]
        note = "splits: takes 0 to 4 of every speaker are the test set"
    else:
        parts = [_SPEAKERS.get(match[2], "train") for _, match in named]
        note = f"splits: by speaker; {', '.join(f'{name} is {part}' for name, part in _SPEAKERS.items())}"
    return Folder(recordings, "audio", [path for path, _ in named], [match[1] for _, match in named], parts, [note])


def _unpacked(archive: Path) -> Path:
    """Return the folder of an archive's recordings in the cache, unpacked if they are not there yet."""
    if not archive.is_file():
        raise FileNotFoundError(f"there is neither {str(archive.with_suffix('').with_suffix(''))!r} nor {archive.name}")
    folder = cache() / f"fsdd-{archive.stat().st_size}"
    if not folder.is_dir():
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache()) as temporary, tarfile.open(archive) as members:
            whole = Path(temporary) / "recordings"
            whole.mkdir()
            for member in members:
                # Only the last part of a name is used, so that no member can land anywhere else.
                name = PurePosixPath(member.name).name
                content = members.extractfile(member) if member.isfile() and _RECORDING.fullmatch(name) else None
                if content is not None:
                    (whole / name).write_bytes(content.read())
            with contextlib.suppress(OSError):  # another process was faster
                whole.rename(folder)
    return folder
