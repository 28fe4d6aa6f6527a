"""Data sets by name: scikit-learn's digits, torchvision's image sets, Hugging Face's, and image arrays in NPZ files.

Tables and texts are in `published_tables.py`, folders of images and of sounds in `published_folders.py`.

Files that are already there come first: under `data_root` (or the folder that VICINAL_DATA names), and where
Linux distributions install data sets (`share/datasets`). Only then is anything downloaded.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vicinal._checks import Argument, Sentence, nearest_names, require
from vicinal.data.class_folders import Folder, part_of
from vicinal.data.image import Arrays
from vicinal.data.names import TEN, TORCHVISION, NamedImages, roots
from vicinal.data.published_folders import FOLDERS, cache, read_collection
from vicinal.data.published_tables import PUBLISHED, NamedTable, read_published
from vicinal.tables import Table, from_frame, read_arrays
from vicinal.tables.file_access import fingerprint


def from_name(name: str, data_root: str | Path | None = None) -> Arrays | NamedTable | Folder | Path:
    """Return a data set by its name, from files that are there or else, for images, from torchvision."""
    if name == "digits":
        return _digits()
    if name in PUBLISHED:
        return read_published(name, roots(data_root))
    if name in FOLDERS:
        return read_collection(name, roots(data_root))
    entry = TORCHVISION[name]
    for folder in _homes(name, entry, data_root):
        for path in sorted(folder.glob(f"{name}*.npz")):
            arrays = from_npz(path)
            classes = entry.classes if len(entry.classes) == len(arrays.classes) else arrays.classes
            note = f"{name} from {path.name}: {len(arrays.labels):,} images"
            return replace(arrays, name=name, classes=classes, augment=entry.augment, notes=(note,))
        if entry.idx and _idx_file(folder, "train", "images"):
            return _from_idx(name, folder, entry)
        if name == "stl10" and (folder / "train_X.bin").is_file():
            return _from_stl10(folder, entry)
    return _from_torchvision(name, entry, data_root)


def from_npz(path: Path) -> Arrays:
    """Read `x_train`, `y_train` and optionally `x_val`, `y_val`, `x_test`, `y_test`, `classes` from an NPZ file.

    Images are uint8, `[N, H, W]` or `[N, H, W, C]`; labels are class numbers.
    """
    arrays = read_arrays(path)
    if "x_train" not in arrays or "y_train" not in arrays:
        raise ValueError(f"{str(path)!r} must hold x_train and y_train, got {', '.join(sorted(arrays)) or 'nothing'}")
    parts = [part for part in ("train", "val", "test") if f"x_{part}" in arrays and f"y_{part}" in arrays]
    names = arrays.get("classes")
    given = None if names is None else tuple(str(label) for label in names)
    data = {part: (arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in parts}
    return _from_arrays(str(path), data, given, "standard")


def from_hub(name: str, target: str | None) -> Table:
    """Return a data set of the Hugging Face hub, `NAME`, `NAME:CONFIG` or one split of it, `NAME:CONFIG:SPLIT`.

    Of MNLI's two validation sets the matched one is the validation set; the other is `glue:mnli:validation_mismatched`.
    """
    try:
        datasets = require("datasets", "text")
    except ModuleNotFoundError as error:
        raise ImportError(f"'hf:{name}' needs the datasets library: pip install datasets") from error
    pandas = require("pandas", "train")
    path, config, wanted = [*name.split(":", 2), "", ""][:3]
    try:
        loaded = datasets.load_dataset(path, *([config] if config else []))
    except Exception as error:  # the library raises many kinds, for names, networks and configurations alike
        raise ValueError(f"'hf:{name}' could not be loaded: {_why(error)}") from error
    if not isinstance(loaded, Mapping):
        loaded = {"train": loaded}
    if wanted:
        if wanted not in loaded:
            raise ValueError(f"'hf:{path}:{config}' has no split {wanted!r}{nearest_names(wanted, loaded)}")
        loaded = {wanted: loaded[wanted]}
    frames, parts, notes = [], [], []
    for split, dataset in loaded.items():
        part = "train" if wanted else part_of(split.removesuffix("_matched"))
        frame = dataset.to_pandas()
        column = target or "label"
        names = getattr(getattr(dataset, "features", {}).get(column), "names", None)
        unlabelled = names is not None and bool((frame[column] < 0).all())
        # The hub marks hidden labels of test sets as -1.
        if part is None or unlabelled:
            reason = "without labels" if unlabelled else "neither train, validation nor test"
            notes.append(f"left out: the split {split!r}, {reason}")
            continue
        if names is not None:
            frame[column] = [names[k] if k >= 0 else None for k in frame[column]]
        frames.append(frame)
        parts += [part] * len(frame)
    if not frames:
        raise ValueError(f"'hf:{name}' has no split to learn from, got {list(loaded)}")
    frame = pandas.concat(frames, ignore_index=True)
    return from_frame(frame, f"hf:{name}", notes=notes, parts=parts if len(set(parts)) > 1 else None)


def _digits() -> Arrays:
    bunch = require("sklearn.datasets", "train").load_digits()
    images = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    arrays = _from_arrays("digits", {"train": (images, bunch.target)}, TEN, "none")
    return replace(arrays, parts=None)


def _homes(name: str, entry: NamedImages, data_root: str | Path | None) -> Iterator[Path]:
    """Yield the folders that may hold a data set's files."""
    for root in roots(data_root):
        for folder in (
            root,
            root / name,
            root / "images" / name,
            root / entry.torchvision / "raw",
            root / f"{name}_binary",
        ):
            if folder.is_dir():
                yield folder
    for share in (os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":"):
        folder = Path(share) / "datasets" / name
        if folder.is_dir():
            yield folder


def _idx_file(folder: Path, part: str, what: str) -> Path | None:
    prefix, dimensions = {"train": "train", "test": "t10k"}[part], {"images": 3, "labels": 1}[what]
    for name in (f"{prefix}-{what}-idx{dimensions}-ubyte", f"{prefix}-{what}.idx{dimensions}-ubyte"):
        for path in (folder / f"{name}.gz", folder / name):
            if path.is_file():
                return path
    return None


def _from_idx(name: str, folder: Path, entry: NamedImages) -> Arrays:
    data = {}
    for part in ("train", "test"):
        images, labels = _idx_file(folder, part, "images"), _idx_file(folder, part, "labels")
        if images is None or labels is None:
            raise ValueError(f"{name} in {str(folder)!r} lacks the {part} images or labels (IDX files)")
        data[part] = (_read_idx(images), _read_idx(labels))
    return _from_arrays(name, data, entry.classes, entry.augment)


def _why(error: Exception) -> str:
    """Return why a data set could not be fetched, in our own words."""
    causes = [error, error.__cause__, error.__context__]
    if any(isinstance(one, OSError) and not isinstance(one, FileNotFoundError) for one in causes):
        return "its server does not answer"
    return "its server has no such data, or does not give them"


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an IDX file of bytes: a magic number with the rank, the sides, the values."""
    try:
        # An IDX file is small, so it is read whole and its length compared with its header.
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise ValueError(f"{str(path)!r} cannot be unpacked: is it complete?") from error
    rank = content[3] if content[:3] == b"\x00\x00\x08" else 0
    shape = np.frombuffer(content, ">u4", count=rank, offset=4).astype(int)
    if not rank or len(content) != 4 + 4 * rank + int(shape.prod()):
        raise ValueError(f"{str(path)!r} is not a complete IDX file of bytes")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def _from_stl10(folder: Path, entry: NamedImages) -> Arrays:
    """Read the published files: 3 × 96 × 96 bytes an image, each channel column by column; labels from 1."""
    data = {}
    for part in ("train", "test"):
        try:
            pixels, labels = (np.fromfile(folder / f"{part}_{what}.bin", np.uint8) for what in "Xy")
            images = pixels.reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
        except (OSError, ValueError) as error:
            raise ValueError(f"stl10 in {str(folder)!r} is not complete: get it again") from error
        data[part] = (images, labels.astype(np.int64) - 1)
    return _from_arrays("stl10", data, entry.classes, entry.augment)


def _from_torchvision(name: str, entry: NamedImages, data_root: str | Path | None) -> Arrays:
    datasets = require("torchvision.datasets", "train")
    root = next(iter(roots(data_root)), cache())
    data, classes = {}, entry.classes
    for part in ("train", "test"):
        choice: dict[str, object] = {"split": part} if entry.split else {"train": part == "train"}
        try:
            try:
                dataset = getattr(datasets, entry.torchvision)(str(root), download=False, **choice)
            except RuntimeError:  # not there yet
                dataset = getattr(datasets, entry.torchvision)(str(root), download=True, **choice)
        except (OSError, RuntimeError, AttributeError) as error:
            raise ValueError(
                Sentence(
                    f"{name} is not on this machine and could not be downloaded to {str(root)!r}: {_why(error)}. Pass ",
                    Argument("data_root", "FOLDER"),
                    ", or set VICINAL_DATA, where a folder holds it as torchvision keeps it",
                )
            ) from error
        images = np.asarray(dataset.data)
        if images.ndim == 4 and images.shape[1] in (1, 3) and entry.split:
            images = images.transpose(0, 2, 3, 1)  # SVHN and STL-10 keep channels first
        labels = dataset.targets if hasattr(dataset, "targets") else dataset.labels
        data[part] = (images, np.asarray(labels))
        classes = classes or tuple(dataset.classes)
    return _from_arrays(name, data, classes, entry.augment)


def _from_arrays(
    name: str,
    data: Mapping[str, tuple[NDArray[np.generic], NDArray[np.generic]]],
    classes: Sequence[str] | None,
    augment: str,
) -> Arrays:
    """Return checked arrays as one: uint8 images NHW or NHWC, integer labels."""
    images, labels, parts = [], [], []
    for part, (x, y) in data.items():
        if x.dtype != np.uint8 or x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] not in (1, 3)):
            raise ValueError(
                f"images of {name!r} must be uint8 [N, H, W] or [N, H, W, C], C 1 or 3, got {x.dtype} {list(x.shape)}"
            )
        if y.dtype.kind not in "iu" or y.shape != (len(x),) or (len(y) and y.min() < 0):
            raise ValueError(f"labels of {name!r} must be class numbers [{len(x)}], got {y.dtype} {list(y.shape)}")
        batch = torch.from_numpy(x.copy())
        images.append(batch[:, None] if batch.ndim == 3 else batch.permute(0, 3, 1, 2).contiguous())
        labels += y.tolist()
        parts += [part] * len(y)
    if len({t.shape[1:] for t in images}) > 1:
        raise ValueError(f"images of {name!r} differ in shape: {', '.join(str(list(t.shape[1:])) for t in images)}")
    names = tuple(classes) if classes else tuple(str(k) for k in range(max(labels, default=-1) + 1))
    if labels and max(labels) >= len(names):
        raise ValueError(f"labels of {name!r} must be below {len(names)}, the number of classes, got {max(labels)}")
    every = torch.cat(images)
    digest = fingerprint(every.numpy().tobytes(), np.asarray(labels, dtype=np.int64).tobytes())
    return Arrays(name, every, labels, names, parts if len(data) > 1 else None, augment, digest)
