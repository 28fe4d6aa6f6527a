"""From what was opened to samples: origins, classes, the source's own splits, and how to fit the preprocessing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vicinal._checks import Argument, ArgumentTypeError, Sentence, integer, number
from vicinal._random import permutation, seed_from
from vicinal.data import files, images, named, tables
from vicinal.data.audio import AudioPreprocessing, read_sound
from vicinal.data.collections import with_published_split
from vicinal.data.files import Folder, read_all
from vicinal.data.images import ImagePreprocessing
from vicinal.data.named import Arrays
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.published import NamedTable
from vicinal.data.splitting import Positions, part_numbers
from vicinal.data.task import Fit, Fitted, Unsplit
from vicinal.tables import Table, from_frame, is_pattern, is_table, open_table, regular

__all__ = ["at_shape", "from_files", "numbered", "open_data"]

#: Waveforms and small images are kept in memory while they fit in this many bytes.
_MEMORY = 2 * 2**30
#: Normalisation of large images is measured on this many of the training images.
_MEASURED = 1000


def open_data(
    source: object,
    kind: str | None,
    encoding: str | None,
    header: bool,
    data_root: str | Path | None,
    target: str | None,
) -> Table | NamedTable | Folder | Arrays:
    """Return what a path or a name holds, of whichever sort."""
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return from_frame(source)
    if not isinstance(source, (str, Path)) or not str(source):
        raise ArgumentTypeError("source", source, "a path, a name or a DataFrame")
    if isinstance(source, str):
        if source.startswith("hf:"):
            return named.from_hub(source.removeprefix("hf:"), target)
        if source.lower().replace("_", "-") in named.NAMES:
            opened = _named(source, data_root)
            if not isinstance(opened, Path):
                return opened
            source = opened
    path = files.find(str(source), named.roots(data_root))
    if path is None:
        if is_pattern(Path(source).expanduser()):
            return open_table(source, encoding=encoding, header=header)
        raise files.missing(str(source), named.NAMES)
    if not path.is_dir():
        regular(path)
        if path.suffix.lower() == ".npz":
            return named.from_npz(path)
        if path.suffix.lower() in files.IMAGES | files.SOUNDS:
            sort = "image" if path.suffix.lower() in files.IMAGES else "audio"
            return Folder(path.parent, sort, [path], None, None, [])
        return open_table(path, encoding=encoding, header=header)
    if kind not in ("image", "audio") and tables.split_tables(path):
        return tables.open_split_tables(path, encoding=encoding, header=header)
    return _open_folder(path, kind, encoding, header)


def _named(source: str, data_root: str | Path | None) -> Arrays | NamedTable | Folder | Path:
    """Return a data set by its name; where it is not to be had, say how a file or folder of that name is meant."""
    try:
        return named.from_name(source.lower().replace("_", "-"), data_root)
    except (FileNotFoundError, ValueError, ImportError) as error:
        if not Path(source).exists():
            raise
        taken = f"{source!r} is the name of a data set, which is not to be had here"
        raise ValueError(f"{taken}; for the file or folder of that name pass './{source}'") from error


def _open_folder(path: Path, kind: str | None, encoding: str | None, header: bool) -> Table | Folder:
    """Return the images or sounds of a folder, or else its tables as one."""
    folder = files.scan(path, kind if kind in ("image", "audio") else None)
    if folder.kind is None:
        if kind not in ("image", "audio") and any(is_table(entry) for entry in path.iterdir()):
            return open_table(path, encoding=encoding, header=header)
        wanted = {"image": "images", "audio": "WAV or FLAC sounds"}.get(kind or "", "images or of WAV or FLAC sounds")
        raise ValueError(f"{str(path)!r} holds no class folders of {wanted}, and no tables")
    return with_published_split(folder)


def from_files(
    opened: Arrays | Folder,
    max_bad: float | int,
    image_size: int | None,
    seed: int,
    seconds: float,
    front_end: str,
    max_pixels: int,
    normalisation: tuple[Sequence[float], Sequence[float]] | None,
    fitted: Preprocessing | None = None,
) -> Unsplit:
    """Return what is no table: arrays of images, or the images or sounds of a folder."""
    if isinstance(opened, Arrays):
        return _from_arrays(opened, image_size, normalisation)
    if opened.kind == "image":
        limit = integer("max_pixels", max_pixels, low=1)
        return _from_images(opened, max_bad, image_size, seed, limit, normalisation, fitted)
    return _from_sounds(opened, max_bad, seconds, front_end)


def _from_arrays(
    arrays: Arrays, image_size: int | None, normalisation: tuple[Sequence[float], Sequence[float]] | None
) -> Unsplit:
    """Return images that are in memory."""
    channels, height, width = arrays.images.shape[1:]
    look = [images.Pixels(height, width, channels == 1, np.zeros(0))]
    shape, notes = images.geometry(look, image_size)
    pixels = at_shape(shape, arrays.images)

    def fit(train: Positions) -> Fitted:
        if normalisation is not None:
            return shape.normalised_by(*normalisation), pixels, []
        mean, std = images.channel_statistics([pixels[i] for i in train])
        return replace(shape, mean=mean, std=std), pixels, []

    return Unsplit(
        kind="image",
        origins=numbered(arrays.name, len(arrays.labels)),
        labels=np.array(arrays.labels, np.int64),
        classes=arrays.classes,
        is_ordered=True,
        fit=fit,
        fingerprint=arrays.fingerprint,
        notes=[*arrays.notes, f"kind: {notes[0]}"],
        parts=None if arrays.parts is None else part_numbers(arrays.parts),
        augment=arrays.augment,
    )


def _from_images(
    folder: Folder,
    max_bad: float | int,
    image_size: int | None,
    seed: int,
    max_pixels: int,
    normalisation: tuple[Sequence[float], Sequence[float]] | None,
    fitted: Preprocessing | None,
) -> Unsplit:
    """Return the images of a folder: small ones read already, large ones as paths."""
    names = _folder_classes(folder)
    decode = len(folder.paths) <= files.MANY

    def look(path: Path) -> images.Pixels:
        return images.look(path, decode=decode, max_pixels=max_pixels)

    good, looks, notes = read_all(folder.paths, look, "image", max_bad)
    shape, more = images.geometry(looks, image_size)
    shape = (fitted if isinstance(fitted, ImagePreprocessing) else shape).limited(max_pixels)
    paths = [folder.paths[i] for i in good]

    def fit(train: Positions) -> Fitted:
        n_bytes = len(paths) * shape.channels * shape.height * shape.width
        if shape.is_large or n_bytes > _MEMORY:
            if normalisation is not None:
                return shape.normalised_by(*normalisation), paths, []
            order = permutation(len(train), generator=torch.Generator().manual_seed(seed_from("measure", seed)))
            measured = [shape.pixels(paths[train[i]]) for i in order[:_MEASURED].tolist()]
            mean, std = images.channel_statistics(measured)
            return replace(shape, mean=mean, std=std), paths, []
        arrays = [
            shape.pixels(path if look.values is None else look.values) for path, look in zip(paths, looks, strict=True)
        ]
        if normalisation is not None:
            return shape.normalised_by(*normalisation), torch.stack(arrays), []
        mean, std = images.channel_statistics([arrays[i] for i in train])
        return replace(shape, mean=mean, std=std), torch.stack(arrays), []

    return _of_folder(folder, "image", good, names, fit, [f"kind: {more[0]}", *folder.notes, *notes])


def _from_sounds(folder: Folder, max_bad: float | int, seconds: float, front_end: str) -> Unsplit:
    """Return the sounds of a folder: read already while they fit in memory, else as paths."""
    names = _folder_classes(folder)
    length = round(16_000 * number("seconds", seconds, above=0))
    preprocessing = AudioPreprocessing(length=length, front_end=front_end)
    kept = 0

    def take(path: Path) -> tuple[int, Any]:
        nonlocal kept
        wave = read_sound(path, preprocessing.rate)
        kept += wave.nbytes  # whole: training takes pieces of it
        return len(wave), wave if kept <= _MEMORY else path

    good, taken, notes = read_all(folder.paths, take, "audio", max_bad)
    longer = sum(length > preprocessing.length for length, _ in taken)
    if longer:
        long = f"{longer} of {len(good)} sounds are longer than {seconds:g} s and are cut ("
        notes.append(Sentence(long, Argument("seconds"), " changes that)"))

    def fit(train: Positions) -> Fitted:
        return preprocessing, [item for _, item in taken], []

    first = f"kind: audio, {seconds:g} s of mono at 16 kHz, as {front_end}"
    return _of_folder(folder, "audio", good, names, fit, [first, *folder.notes, *notes])


def _of_folder(
    folder: Folder, kind: str, good: Sequence[int], names: Sequence[str], fit: Fit, notes: list[str]
) -> Unsplit:
    """Return the readable files of a folder, `good`, as samples."""
    classes, labels = np.unique(np.array([names[i] for i in good]), return_inverse=True)
    return Unsplit(
        kind=kind,
        origins=[str(folder.paths[i]) for i in good],
        labels=labels.astype(np.int64),
        classes=tuple(classes.tolist()),
        fit=fit,
        fingerprint=files.folder_fingerprint(folder.root, folder.paths),
        notes=notes,
        parts=None if folder.parts is None else part_numbers([folder.parts[i] for i in good]),
        augment="standard",
    )


def _folder_classes(folder: Folder) -> list[str]:
    if folder.classes is None:
        what = {"image": "images", "audio": "sounds"}[str(folder.kind)]
        raise ValueError(
            f"{str(folder.root)!r} holds {what} but no class folders: put those of each class in a folder of its own"
        )
    return folder.classes


def at_shape(shape: ImagePreprocessing, pixels: Tensor) -> Tensor:
    """Return uint8 images `[N, C, H, W]` at the shape of a preprocessing."""
    if tuple(pixels.shape[1:]) == (shape.channels, shape.height, shape.width):
        return pixels
    return torch.stack([shape.pixels(image.permute(1, 2, 0).numpy()) for image in pixels])


def numbered(name: str, n: int) -> list[str]:
    """Return what a report calls samples that have no file of their own: `digits[0]`."""
    return [f"{Path(name).name}[{i}]" for i in range(n)]
