"""What images and spectrograms share, since both are grids of numbers: samples of a folder, pictures, baselines."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from vicinal._checks import require
from vicinal.data.class_folders import Folder, folder_fingerprint
from vicinal.data.kind import Baseline, Fit, NewData, Samples
from vicinal.data.splitting import part_numbers
from vicinal.data.task import Items, Split, Task

#: Waveforms and small images are kept in memory while they fit in this many bytes.
MEMORY = 2 * 2**30
#: The side of a picture in pixels: small ones are enlarged without smoothing, large ones made smaller.
_SIDE = 96
#: Logistic regression learns from at most so many pictures.
_MOST_PICTURES = 2_000


def class_names(folder: Folder, plural: str) -> list[str]:
    """Return the class of each file, or say that there are no class folders."""
    if folder.classes is None:
        raise ValueError(
            f"{str(folder.root)!r} holds {plural} but no class folders: put those of each class in a folder of its own"
        )
    return folder.classes


def folder_samples(
    folder: Folder, kind: str, good: Sequence[int], names: Sequence[str], fit: Fit, notes: list[str]
) -> Samples:
    """Return the readable files of a folder, `good`, as samples."""
    classes, labels = np.unique(np.array([names[i] for i in good]), return_inverse=True)
    return Samples(
        kind=kind,
        origins=[str(folder.paths[i]) for i in good],
        labels=labels.astype(np.int64),
        classes=tuple(classes.tolist()),
        fit=fit,
        fingerprint=folder_fingerprint(folder.root, folder.paths),
        notes=notes,
        parts=None if folder.parts is None else part_numbers([folder.parts[i] for i in good]),
        augment="standard",
    )


def new_files(folder: Folder, good: Sequence[int], items: Items, notes: Sequence[str]) -> NewData:
    """Return the readable files of a folder as new data."""
    origins = [str(folder.paths[i]) for i in good]
    names, parts = (None if kept is None else [kept[i] for i in good] for kept in (folder.classes, folder.parts))
    return NewData(items, origins, range(len(good)), names, parts, [*folder.notes, *notes])


def small_grids(task: Task, largest: tuple[int, int]) -> Baseline | None:
    """Return inputs `[C, H, W]` as rows of numbers, averaged to at most `largest` rows and columns.

    Waveforms are no grids: None.
    """
    if len(task.preprocessing.spec["input_shape"]) != 3:
        return None
    step = -(-len(task.train) // _MOST_PICTURES)
    plain = task.train.relabelled(task.train.labels or [], augment="none")
    val = _rows(task.val, 1, largest) if len(task.val) else None
    return Baseline(_rows(plain, step, largest), val, _rows(task.test, 1, largest), step)


def _rows(part: Split, step: int, largest: tuple[int, int]) -> NDArray[np.float64]:
    rows = []
    for i in range(0, len(part), step):
        picture: Any = part[i][0]
        size = min(picture.shape[1], largest[0]), min(picture.shape[2], largest[1])
        rows.append(adaptive_avg_pool2d(picture, size).flatten().double().numpy())
    return np.stack(rows)


def png_address(pixels: Tensor) -> str:
    """Return pixels in [0, 1], `[1, H, W]` or `[3, H, W]`, as the data address of a small PNG."""
    array = (pixels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).squeeze(2 if len(pixels) == 1 else ()).numpy()
    image_module = require("PIL.Image", "train")
    image = image_module.fromarray(array)
    scale = _SIDE / max(image.size)
    method = image_module.Resampling.NEAREST if scale > 1 else image_module.Resampling.LANCZOS
    image = image.resize(tuple(max(1, round(side * scale)) for side in image.size), method)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
