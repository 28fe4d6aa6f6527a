"""From what was opened to samples: origins, classes, the source's own splits, and how to fit the preprocessing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vicinal._checks import Argument, Sentence, number
from vicinal._random import permutation, seed_from
from vicinal.data import files, images, named, tables, tabular
from vicinal.data.audio import AudioPreprocessing, read_sound
from vicinal.data.collections import with_published_split
from vicinal.data.files import Folder, give_up, listed, read_all
from vicinal.data.images import ImagePreprocessing
from vicinal.data.named import Arrays
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.published import NamedTable
from vicinal.data.tables import Table
from vicinal.data.text import fit_text, texts_of

__all__ = ["Rows", "Samples", "at_shape", "class_names", "from_arrays", "from_images", "from_sounds", "from_table",
           "numbered", "open_source", "plain"]  # fmt: skip

#: What the target column is called when nobody says.
_USUAL_TARGETS = (("target", "label", "class"), ("y",))
#: Cells of the target that hold nothing; "None" and "?" are names that classes have.
_NO_CLASS = tables.MISSING - {"None", "?"}
#: Waveforms and small images are kept in memory while they fit in this many bytes.
_MEMORY = 2 * 2**30
#: Normalisation of large images is measured on this many of the training images.
_MEASURED = 1000

#: From the training positions to the preprocessing, what it takes for every sample, and notes.
Fit = Callable[[list[int]], tuple[Preprocessing, "Sequence[Any] | Tensor", list[str]]]


@dataclass(frozen=True, eq=False)
class Samples:
    """What a source holds, before it is split."""

    kind: str
    origins: Sequence[Any]
    names: list[str]
    """The class of each sample."""
    fit: Fit
    fingerprint: str
    notes: list[str]
    classes: tuple[str, ...] | None = None
    parts: list[str] | None = None
    augment: str = "none"


class Rows(Sequence[Any]):
    """The rows of a DataFrame as dictionaries, each made when asked for."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __len__(self) -> int:
        return len(self._frame)

    def __getitem__(self, i: Any) -> Any:
        return self._frame.iloc[i].to_dict()


def open_source(
    source: Any, kind: str | None, encoding: str | None, header: bool, data_root: str | Path | None, target: str | None
) -> Table | NamedTable | Folder | Arrays:
    """Return what a path or a name holds, of whichever sort."""
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return tables.from_frame(source)
    if not isinstance(source, (str, Path)) or not str(source):
        raise TypeError(f"source must be a path, a name or a DataFrame, got {source!r} ({type(source).__name__})")
    if isinstance(source, str):
        if source.startswith("hf:"):
            return named.from_hub(source.removeprefix("hf:"), target)
        if source.lower().replace("_", "-") in named.NAMES:
            opened = named.from_name(source.lower().replace("_", "-"), data_root)
            if not isinstance(opened, Path):
                return opened
            source = opened
    path = files.find(str(source), named.roots(data_root))
    if path is None:
        raise files.missing(str(source), named.NAMES)
    if path.is_file():
        if path.suffix.lower() == ".npz":
            return named.from_npz(path)
        if path.suffix.lower() in files.IMAGES | files.SOUNDS:
            sort = "image" if path.suffix.lower() in files.IMAGES else "audio"
            return Folder(path.parent, sort, [path], None, None, [])
        return tables.read_table(path, encoding=encoding, header=header)
    if kind not in ("image", "audio") and tables.split_tables(path):
        return tables.read_split_tables(path, encoding=encoding, header=header)
    folder = files.scan(path, kind if kind in ("image", "audio") else None)
    if folder.kind is None:
        wanted = {"image": "images", "audio": "WAV or FLAC sounds"}.get(kind or "", "images or of WAV or FLAC sounds")
        raise ValueError(f"{str(path)!r} holds no class folders of {wanted}, and no train and test tables")
    return with_published_split(folder)


def from_table(
    table: Table,
    target: str | None,
    text: str | Sequence[str] | None,
    kind: str | None,
    max_bad: float | int,
    tokenizer: str | None,
    max_length: int,
) -> Samples:
    """Return the rows of a table, as texts or as features."""
    if kind not in (None, "tabular", "text"):
        fitting = f" does not fit the table {table.name!r}: pass 'tabular' or 'text'"
        raise ValueError(Sentence(Argument("kind", kind), fitting))
    if kind == "tabular" and text is not None:
        one, other = Argument("text", text), Argument("kind", "tabular")
        raise ValueError(Sentence(one, " makes a text task, but ", other, " was asked for: leave one out"))
    notes = list(table.notes)
    if target is None:
        target = _usual_target(table)
        notes.append(f"target: {target!r}")
    names = _target_names(table, target)
    kinds = tabular.kinds_of(table, target)
    columns = _text_columns(table, target, text, kind, kinds)
    if columns:
        bad, more = _bad_texts(table, columns, target)
    else:
        bad, more = _bad_features(table, kinds)
    notes += more
    reasons = [*table.bad, *bad.values()]
    notes += give_up(reasons, len(table.frame) + len(table.bad), "rows", "could not be read", max_bad)
    keep = [i for i in range(len(table.frame)) if i not in bad]
    frame = table.frame.iloc[keep].reset_index(drop=True)
    used = columns or tabular.columns_of(kinds)[0]
    texts = texts_of(frame, columns) if columns else []
    copies = len(texts) - len(set(texts)) if columns else int(frame[used].duplicated().sum())
    if copies:
        notes.append(f"{copies} of {len(frame)} rows are copies of others: a random split has some on both sides")

    def fit(train: list[int]) -> tuple[Preprocessing, Sequence[Any] | Tensor, list[str]]:
        if columns:
            words, more = fit_text(texts, train, columns, target, tokenizer, max_length)
            return words, texts, more
        features, more = tabular.fit_tabular(frame, train, used, kinds, target)
        return features, features.encode(frame)[0], more

    return Samples(
        kind="text" if columns else "tabular",
        origins=plain(texts) if columns else Rows(frame),
        names=[names[i] for i in keep],
        fit=fit,
        fingerprint=table.fingerprint,
        notes=notes,
        parts=None if table.parts is None else [table.parts[i] for i in keep],
    )


def from_arrays(arrays: Arrays, image_size: int | None) -> Samples:
    """Return images that are in memory."""
    channels, height, width = arrays.images.shape[1:]
    look = [images.Pixels(height, width, channels == 1, np.zeros(0))]
    shape, notes = images.geometry(look, image_size)
    pixels = at_shape(shape, arrays.images)

    def fit(train: list[int]) -> tuple[Preprocessing, Sequence[Any] | Tensor, list[str]]:
        mean, std = images.channel_statistics([pixels[i] for i in train])
        return replace(shape, mean=mean, std=std), pixels, []

    return Samples(
        kind="image",
        origins=numbered(arrays.name, len(arrays.labels)),
        names=[arrays.classes[k] for k in arrays.labels],
        fit=fit,
        fingerprint=arrays.fingerprint,
        notes=[*arrays.notes, f"kind: {notes[0]}"],
        classes=arrays.classes,
        parts=arrays.parts,
        augment=arrays.augment,
    )


def from_images(folder: Folder, max_bad: float | int, image_size: int | None, seed: int) -> Samples:
    """Return the images of a folder: small ones read already, large ones as paths."""
    names = _folder_classes(folder)
    decode = len(folder.paths) <= files.MANY
    good, looks, notes = read_all(folder.paths, lambda path: images.look(path, decode=decode), "image", max_bad)
    shape, more = images.geometry(looks, image_size)
    paths = [folder.paths[i] for i in good]

    def fit(train: list[int]) -> tuple[Preprocessing, Sequence[Any] | Tensor, list[str]]:
        n_bytes = len(paths) * shape.channels * shape.height * shape.width
        if shape.is_large or n_bytes > _MEMORY:
            order = permutation(len(train), generator=torch.Generator().manual_seed(seed_from("measure", seed)))
            measured = [shape.pixels(paths[train[i]]) for i in order[:_MEASURED].tolist()]
            mean, std = images.channel_statistics(measured)
            return replace(shape, mean=mean, std=std), paths, []
        held = [
            shape.pixels(path if look.values is None else look.values) for path, look in zip(paths, looks, strict=True)
        ]
        mean, std = images.channel_statistics([held[i] for i in train])
        return replace(shape, mean=mean, std=std), torch.stack(held), []

    return Samples(
        kind="image",
        origins=[str(path) for path in paths],
        names=[names[i] for i in good],
        fit=fit,
        fingerprint=files.folder_fingerprint(folder.root, folder.paths),
        notes=[f"kind: {more[0]}", *folder.notes, *notes],
        parts=None if folder.parts is None else [folder.parts[i] for i in good],
        augment="standard",
    )


def from_sounds(folder: Folder, max_bad: float | int, seconds: float, front_end: str) -> Samples:
    """Return the sounds of a folder: read already while they fit in memory, else as paths."""
    names = _folder_classes(folder)
    length = round(16_000 * number("seconds", seconds, above=0))
    preprocessing = AudioPreprocessing(length=length, front_end=front_end)
    in_memory = 4 * preprocessing.length * len(folder.paths) <= _MEMORY

    def take(path: Path) -> tuple[int, Any]:
        wave = read_sound(path, preprocessing.rate)
        return len(wave), wave if in_memory else path

    good, taken, notes = read_all(folder.paths, take, "audio", max_bad)
    kept = [folder.paths[i] for i in good]
    longer = sum(length > preprocessing.length for length, _ in taken)
    if longer:
        long = f"{longer} of {len(good)} sounds are longer than {seconds:g} s and are cut ("
        notes.append(Sentence(long, Argument("seconds"), ")"))

    def fit(train: list[int]) -> tuple[Preprocessing, Sequence[Any] | Tensor, list[str]]:
        return preprocessing, [item for _, item in taken], []

    return Samples(
        kind="audio",
        origins=[str(path) for path in kept],
        names=[names[i] for i in good],
        fit=fit,
        fingerprint=files.folder_fingerprint(folder.root, folder.paths),
        notes=[f"kind: audio, {seconds:g} s of mono at 16 kHz, as {front_end}", *folder.notes, *notes],
        parts=None if folder.parts is None else [folder.parts[i] for i in good],
        augment="standard",
    )


def _text_columns(
    table: Table, target: str, text: str | Sequence[str] | None, kind: str | None, kinds: Mapping[str, str]
) -> list[str]:
    """Return the one or two columns of a text task; none for a tabular one."""
    if text is not None:
        columns = [text] if isinstance(text, str) else list(text)
        for name in columns:
            tables.column(table, name, "text")
        if target in columns:
            raise ValueError(
                Sentence(Argument("text"), " and ", Argument("target"), f" are the same column, {target!r}")
            )
    elif kind == "tabular":
        columns = []
    else:
        columns = [name for name, of in kinds.items() if of == "text"]
        if kind == "text" and not columns:
            strings = [repr(name) for name, of in kinds.items() if of in ("category", "id")]
            where = f"no column of {table.name!r} looks like text: pass "
            raise ValueError(Sentence(where, Argument("text"), f", one of {listed(strings, n=20)}"))
    if len(columns) > 2:
        rule = " must be one column, or two for pairs: choose among "
        raise ValueError(Sentence(Argument("text"), rule, listed([repr(name) for name in columns], n=20)))
    return columns


def _usual_target(table: Table) -> str:
    for names in _USUAL_TARGETS:
        usual = [str(name) for name in table.frame.columns if name.lower() in names]
        if len(usual) == 1:
            return usual[0]
    columns = listed([repr(name) for name in table.frame.columns], n=20)
    hint = tables.header_hint(table)
    what = f", the column of {table.name!r} that holds the class: one of {columns}"
    raise ValueError(Sentence("pass ", Argument("target"), what, hint))


def _target_names(table: Table, target: str) -> list[str]:
    """Return the class of each row; none may be missing, and there must be fewer classes than rows."""
    series = tables.column(table, target, "target")
    names = class_names(series)
    lacking = [i for i, name in enumerate(names) if name is None]
    if lacking:
        rows = listed([f"row {i + 1}" for i in lacking], n=3)
        raise ValueError(
            f"the target {target!r} is missing in {len(lacking)} of {len(names)} rows ({rows}): fill it in or remove "
            "these rows; rows without a class can be predicted later, from a file of their own"
        )
    distinct = len(set(names))
    numbers, odd = tabular.as_numbers(series)
    fractions = not odd.any() and bool(np.any(numbers % 1))
    if distinct > 20 and (fractions or distinct > 0.5 * len(names)):
        what = "numbers" if fractions else "values"
        raise ValueError(
            f"the target {target!r} has {distinct} different {what} in {len(names)} rows, so it is no class: choose "
            "another column, or put its values into a few groups first"
        )
    return [str(name) for name in names]


def _bad_texts(table: Table, columns: Sequence[str], target: str) -> tuple[dict[int, str], list[str]]:
    """Return the rows without text, and notes on the columns."""
    texts = texts_of(table.frame, columns)
    bad = {i: f"row {i + 1} (no text)" for i, fields in enumerate(texts) if not all(field.strip() for field in fields)}
    what = "pairs of texts" if len(columns) == 2 else "text"
    notes = [f"kind: {what}, from {listed([repr(name) for name in columns])}"]
    others = [repr(name) for name in table.frame.columns if name not in (*columns, target)]
    if others:
        instead = Argument("kind", "tabular"), " learns from such columns instead"
        notes.append(Sentence(f"ignored: {listed(others)}; ", *instead))
    return bad, notes


def _bad_features(table: Table, kinds: Mapping[str, str]) -> tuple[dict[int, str], list[str]]:
    """Return the rows with unreadable numbers, and notes on the columns."""
    used, notes = tabular.columns_of(kinds)
    if not used:
        raise ValueError(f"{table.name!r} has no column to learn from ({'; '.join(notes) or 'only the target'})")
    numeric = sum(kinds[name] == "number" for name in used)
    summary = f"kind: tabular, {numeric} numeric and {len(used) - numeric} categorical columns"
    return tabular.bad_rows(table.frame, used, kinds), [summary, *notes]


def class_names(series: Any) -> list[str | None]:
    """Return a target column as the names of classes, None where it is missing."""
    lacking = series.isna().tolist()
    names = tables.names_of(series.tolist())
    return [None if gone or name in _NO_CLASS else name for gone, name in zip(lacking, names, strict=True)]


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


def plain(texts: Sequence[tuple[str, ...]]) -> list[Any]:
    """Return texts as they were: a string, or a tuple for a pair."""
    return [fields[0] if len(fields) == 1 else fields for fields in texts]
