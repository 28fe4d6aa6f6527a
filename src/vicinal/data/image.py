"""Images of any mode and size: read as a viewer shows them, brought to one size, normalised by channel.

If most images have up to 128 px, they keep their size and are kept in memory where they fit. Their augmentation is a
padded random crop and a flip. Larger images are read when a sample is asked for. Training takes a random resized crop
of 224 px and a flip, evaluation the centre of the image resized to 256. A given size overrides both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal import _random
from vicinal._atomic import Json
from vicinal._checks import Argument, Sentence, integer, number, require
from vicinal._random import permutation, seed_from
from vicinal._typing import Batch
from vicinal.data import class_folders, grid_inputs
from vicinal.data.class_folders import Folder, read_all
from vicinal.data.kind import Baseline, Fitted, Kind, NewData, Request, Samples, Shown
from vicinal.data.options import MOST_PIXELS, ImageOptions
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.splitting import Labels, Positions, part_numbers
from vicinal.data.task import Split, Task
from vicinal.models.specification import Inputs

#: `"standard"`: crop and flip; `"crop"`: for what is not the same mirrored, such as characters; `"none"`.
AUGMENTATIONS = ("standard", "crop", "none")

#: The longest side of images that have their own size and are cropped with padding.
_SMALL = 128
#: The side of larger images, and of what they are first resized to for the centre crop.
_LARGE, _LARGE_RESIZED = 224, 256

#: The normalisation of large images is measured on this many of the training images.
_MEASURED = 1000
#: How a JPEG file ends; some cameras write more behind it.
_JPEG_END, _BEHIND = b"\xff\xd9", 4096

_GREY = frozenset({"1", "L", "LA", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"})


@dataclass(frozen=True, eq=False)
class Arrays:
    """Images that are in memory."""

    name: str
    images: Tensor
    """uint8 `[N, C, H, W]`."""
    labels: list[int]
    classes: tuple[str, ...]
    parts: list[str] | None
    augment: str
    """What augmentation suits them."""
    fingerprint: str
    notes: tuple[str, ...] = ()

    kind: ClassVar[str] = "image"
    holds: ClassVar[str] = "holds images"


@dataclass(frozen=True)
class Pixels:
    """The size of an image file, whether it is grey, and its pixels if they are few."""

    height: int
    width: int
    grey: bool
    values: NDArray[np.number] | None
    """uint8 `[H, W]` or `[H, W, 3]`."""


@dataclass(frozen=True)
class ImagePreprocessing(Preprocessing):
    """How an image becomes a normalised tensor (C, H, W)."""

    kind: ClassVar[str] = "image"

    channels: int
    """C: 1 or 3."""
    height: int
    """H, in pixels."""
    width: int
    """W, in pixels."""
    cover: float
    """An image is resized to cover this many times (H, W), and the centre is cropped."""
    mean: tuple[float, ...]
    """What is subtracted from each channel, whose values are between 0 and 1."""
    std: tuple[float, ...]
    """What each channel is divided by then."""
    max_pixels: int = MOST_PIXELS
    """The most pixels of an image that is read. It is not saved with a model: who reads new images says it."""

    def limited(self, max_pixels: int) -> ImagePreprocessing:
        """Return it with another limit, if images of its own size are within it."""
        limit = integer("max_pixels", max_pixels, low=1)
        if self.height * self.width * self.cover**2 > limit:
            size = (
                f"images of {self.height} × {self.width}, {self.cover:g} times covered, are more than {limit:,} pixels"
            )
            raise ValueError(Sentence(f"{size}: ", Argument("max_pixels"), " raises that"))
        return replace(self, max_pixels=limit)

    def normalised_by(self, mean: Sequence[float], std: Sequence[float]) -> ImagePreprocessing:
        """Return it with these statistics of red, green and blue. Grey images get their means."""
        if self.channels == 1:
            return replace(self, mean=(sum(mean) / 3,), std=(sum(std) / 3,))
        return replace(self, mean=tuple(map(float, mean)), std=tuple(map(float, std)))

    def inputs(self, n_classes: int) -> Inputs:
        """Return the shape of an image."""
        shape = (self.channels, self.height, self.width)
        return Inputs(kind=self.kind, n_classes=n_classes, input_shape=shape)

    @property
    def is_large(self) -> bool:
        """Whether images are read one by one, and cropped at random sizes to train."""
        return max(self.height, self.width) > _SMALL

    def __call__(self, item: object, *, augment: str = "none", generator: torch.Generator | None = None) -> Batch:
        """Return an image (a path, a uint8 array `[H, W]` or `[H, W, C]`, or a uint8 tensor `[C, H, W]`) normalised."""
        augmented = generator is not None and augment != "none"
        try:
            pixels = item if isinstance(item, Tensor) else self._drawn(item, generator if augmented else None)
        except (OSError, SyntaxError) as error:  # the file was intact when the folder was scanned
            raise ValueError(f"{item} cannot be read any more: {error}") from error
        if augmented:
            padding = 0 if self.is_large else _padding(self.height)
            pixels = crop_and_flip(pixels, padding, flip=augment == "standard", generator=generator)
        mean, std = self._statistics
        return (pixels - mean) / std

    def _drawn(self, item: object, generator: torch.Generator | None) -> Tensor:
        """Return an image at the model's size; with a generator, and where it is large, a random part of it."""
        if generator is None or not self.is_large:
            return self.pixels(item)
        image = self._image(item)
        box = resized_crop_box(image.height, image.width, generator)
        return _as_tensor(image.resize((self.width, self.height), _bilinear(), box=box))

    @cached_property
    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation in units of uint8 pixels, `[C, 1, 1]`."""
        mean, std = (255 * torch.tensor(values)[:, None, None] for values in (self.mean, self.std))
        return mean, std

    def pixels(self, item: object) -> Tensor:
        """Return an image at the model's size, not normalised: uint8 `[C, H, W]`."""
        image = self._image(item)
        # The larger of both ratios: the image covers the target, and the rest is cropped.
        scale = max(self.height * self.cover / image.height, self.width * self.cover / image.width)
        size = max(round(image.width * scale), self.width), max(round(image.height * scale), self.height)
        if size != (image.width, image.height):
            image = image.resize(size, _bilinear())
        left, top = (size[0] - self.width) // 2, (size[1] - self.height) // 2
        return _as_tensor(image.crop((left, top, left + self.width, top + self.height)))

    def _image(self, item: object) -> Any:
        if isinstance(item, (str, Path)):
            image = open_image(item, max_pixels=self.max_pixels)
        else:
            image = _image_of(np.asarray(item))
        return image.convert("L" if self.channels == 1 else "RGB")

    def _fields(self) -> dict[str, object]:
        return {
            "channels": self.channels,
            "height": self.height,
            "width": self.width,
            "cover": self.cover,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @classmethod
    def _from_fields(cls, record: Json) -> ImagePreprocessing:
        channels, height, width = (integer(name, record[name], low=1) for name in ("channels", "height", "width"))
        if channels not in (1, 3):
            raise ValueError(f"images must have 1 or 3 channels, got {channels}")
        mean, std = (tuple(record[name]) for name in ("mean", "std"))
        return cls(channels, height, width, number("cover", record["cover"], low=1), mean, std)


def open_image(path: str | Path, *, max_pixels: int = MOST_PIXELS) -> Any:
    """Return an image as a viewer shows it: turned as its EXIF says, transparency on white, 8 bits, L or RGB.

    16-bit greys are divided by 257, floating-point ones are taken to lie in [0, 1].
    """
    image_module, operations = require("PIL.Image", "train"), require("PIL.ImageOps", "train")
    with _opened(path, max_pixels) as file:
        file.load()
        image = operations.exif_transpose(file)
    # Pillow's own conversion of 16-bit greys to 8 bits clips them at 255 instead of scaling.
    if image.mode.startswith("I"):
        # Also 16-bit PNG files, which older versions of Pillow open as 32-bit integers.
        return image_module.fromarray((np.clip(np.asarray(image).astype(np.int64), 0, 65_535) // 257).astype(np.uint8))
    if image.mode == "F":
        return image_module.fromarray((np.clip(np.nan_to_num(np.asarray(image)), 0, 1) * 255).round().astype(np.uint8))
    # Transparent pixels have any colour; on white they look as in a browser.
    if image.mode in ("LA", "RGBA", "PA", "La", "RGBa") or "transparency" in image.info:
        grey = image.mode in ("L", "LA", "La")
        full = image.convert("RGBA")
        image = image_module.alpha_composite(image_module.new("RGBA", full.size, "white"), full)
        return image.convert("L" if grey else "RGB")
    return image.convert("L" if image.mode in _GREY else "RGB")


def _opened(path: str | Path, limit: int) -> Any:
    """Open an image file and read its header alone, unless it claims too many pixels to decode."""
    image_module = require("PIL.Image", "train")
    if limit > MOST_PIXELS:  # Pillow's own limit is lower
        image_module.MAX_IMAGE_PIXELS = limit
    try:
        file = image_module.open(path)
    except image_module.DecompressionBombError:
        file = None
    if file is None or file.width * file.height > limit:
        if file is not None:
            file.close()
        raise ValueError(Sentence(f"it has more than {limit:,} pixels: raise ", Argument("max_pixels"), " to read it"))
    return file


def look(path: Path, *, decode: bool, max_pixels: int = MOST_PIXELS) -> Pixels:
    """Return what a file holds; without `decode` only what its header says, and that its end is there."""
    if not decode:
        with _opened(path, max_pixels) as file:
            # Orientations 5 to 8 of EXIF swap height and width.
            turned = file.getexif().get(0x0112, 1) >= 5
            width, height = file.size[::-1] if turned else file.size
            seen, form = Pixels(height, width, file.mode in _GREY, None), file.format
        _check_end(path, form, max_pixels)
        return seen
    image = open_image(path, max_pixels=max_pixels)
    small = max(image.size) <= _SMALL
    return Pixels(image.height, image.width, image.mode == "L", np.asarray(image) if small else None)


def _check_end(path: Path, form: str | None, max_pixels: int) -> None:
    """Raise if a file is cut short: by the marker at its end, by checksums, or else by reading all of it."""
    if form == "PNG":
        with _opened(path, max_pixels) as file:
            file.verify()  # the checksums of all chunks, to the last
        return
    if form in ("JPEG", "MPO"):
        with open(path, "rb") as file:
            file.seek(max(file.seek(0, 2) - _BEHIND, 0))
            if _JPEG_END in file.read():
                return
    open_image(path, max_pixels=max_pixels)


def geometry(pixels: Sequence[Pixels], image_size: int | None) -> tuple[ImagePreprocessing, list[str]]:
    """Return the shape that all images are brought to, without normalisation, and a note on it."""
    channels = 1 if all(p.grey for p in pixels) else 3
    sizes = Counter((p.height, p.width) for p in pixels)
    colour = "grey" if channels == 1 else "colour"
    if image_size is None and np.median([max(p.height, p.width) for p in pixels]) <= _SMALL:  # most of them are small
        side = round(float(np.median([min(p.height, p.width) for p in pixels])))
        height, width = next(iter(sizes)) if len(sizes) == 1 else (side, side)
    else:
        height = width = integer("image_size", image_size, low=8) if image_size is not None else _LARGE
    cover = _LARGE_RESIZED / _LARGE if image_size is None and max(height, width) > _SMALL else 1.0
    shape = f"{colour} images of {height} × {width} px"
    notes = [shape if list(sizes) == [(height, width)] else f"{shape}, from {len(sizes)} different sizes"]
    if all(p.values is None for p in pixels):
        notes[0] = Sentence(f"{notes[0]} (", Argument("image_size"), " changes it)")
    nothing = (0.0,) * channels, (1.0,) * channels
    return ImagePreprocessing(channels, height, width, cover, *nothing), notes


def channel_statistics(images: Sequence[Tensor]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel over uint8 images `[C, H, W]`, in units of 255."""
    # In float64: single precision loses the variance of a million pixels.
    count, total, squares = 0, torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for image in images:
        values = image.flatten(1).double() / 255
        count += values.shape[1]
        total, squares = total + values.sum(1), squares + values.square().sum(1)
    mean = total / count
    std = (squares / count - mean.square()).clamp_min(0).sqrt()
    return tuple(mean.tolist()), tuple(s if s > 1e-6 else 1.0 for s in std.tolist())


def crop_and_flip(image: Tensor, padding: int, *, flip: bool, generator: torch.Generator | None) -> Tensor:
    """Return a random crop of the image padded with black, mirrored in half of the cases."""
    # Both draws are made in any case, so that `flip` does not change the crops.
    top, left = _random.integers(2 * padding + 1, 2, generator=generator).tolist()
    mirrored = bool(_random.coin(0.5, 1, generator=generator)) and flip
    height, width = image.shape[-2:]
    padded = torch.nn.functional.pad(image, (padding,) * 4)
    cropped = padded[..., top : top + height, left : left + width]
    return cropped.flip(-1) if mirrored else cropped


def resized_crop_box(height: int, width: int, generator: torch.Generator | None) -> tuple[float, float, float, float]:
    """Draw a box (left, top, right, bottom) of 8 to 100 % of the area and a ratio of sides from 3/4 to 4/3.

    The first of ten draws that fits counts, else the largest centred box of an allowed ratio, as in torchvision.
    """
    # All ten draws at once: the number of random numbers must not depend on their values.
    draws = _random.uniform_like(torch.empty(10, 4, dtype=torch.float64), generator=generator).tolist()
    for scale, shape, down, right in draws:
        area = height * width * (0.08 + 0.92 * scale)
        ratio = math.exp((2 * shape - 1) * math.log(4 / 3))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top, left = int(down * (height - h + 1)), int(right * (width - w + 1))
            return left, top, left + w, top + h
    ratio = min(max(width / height, 3 / 4), 4 / 3)
    w, h = min(width, round(height * ratio)), min(height, round(width / ratio))
    top, left = (height - h) // 2, (width - w) // 2
    return left, top, left + w, top + h


def _padding(side: int) -> int:
    """Return the padding of a random crop: 4 px from 24 to 64 px as on CIFAR, else an eighth of the side."""
    return 4 if 24 <= side <= 64 else max(1, side // 8)


def _bilinear() -> Any:
    return require("PIL.Image", "train").Resampling.BILINEAR


def _image_of(array: NDArray[np.uint8]) -> Any:
    if array.dtype != np.uint8 or array.ndim not in (2, 3):
        raise ValueError(f"an image must be a path or uint8 [H, W] or [H, W, C], got {array.dtype} {list(array.shape)}")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    return require("PIL.Image", "train").fromarray(array)


def _as_tensor(image: object) -> Tensor:
    array = np.array(image)
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())


class ImageKind(Kind[Folder | Arrays, ImagePreprocessing]):
    """Images: files of class folders, or arrays."""

    name = "image"
    preprocessing = ImagePreprocessing
    plural = "images"
    suffixes = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"})
    augmentations = AUGMENTATIONS

    def open(self, source: Folder | Arrays, request: Request) -> Samples:
        """Return images of a folder or in memory."""
        asked = request.options(ImageOptions)
        return self._arrays(source, asked) if isinstance(source, Arrays) else self._files(source, request, asked)

    def _arrays(self, arrays: Arrays, asked: ImageOptions) -> Samples:
        channels, height, width = arrays.images.shape[1:]
        shape, notes = geometry([Pixels(height, width, channels == 1, np.zeros(0))], asked.image_size)
        pixels = _at_shape(shape, arrays.images)

        def fit(train: Positions, labels: Labels) -> Fitted:
            return _normalised(shape, asked, lambda: [pixels[i] for i in train]), pixels, []

        return Samples(
            kind=self.name,
            origins=_numbered(arrays),
            labels=np.array(arrays.labels, np.int64),
            classes=arrays.classes,
            is_ordered=True,
            fit=fit,
            fingerprint=arrays.fingerprint,
            notes=[*arrays.notes, f"kind: {notes[0]}"],
            parts=None if arrays.parts is None else part_numbers(arrays.parts),
            augment=arrays.augment,
        )

    def _files(self, folder: Folder, request: Request, asked: ImageOptions) -> Samples:
        """Return the images of a folder: small ones read already, large ones as paths."""
        names = grid_inputs.class_names(folder, self.plural)
        # Decoding finds every damaged file, but a million of them would take hours before training starts.
        decode = len(folder.paths) <= class_folders.MANY
        take = partial(look, decode=decode, max_pixels=asked.max_pixels)
        good, looks, notes = read_all(folder.paths, take, self.name, request.max_bad)
        shape, more = geometry(looks, asked.image_size)
        shape = (self.reused(request.fitted) or shape).limited(asked.max_pixels)
        paths = [folder.paths[i] for i in good]

        def measured(train: Positions) -> list[Tensor]:
            order = permutation(len(train), generator=torch.Generator().manual_seed(seed_from("measure", request.seed)))
            return [shape.pixels(paths[train[i]]) for i in order[:_MEASURED].tolist()]

        def fit(train: Positions, labels: Labels) -> Fitted:
            # Small images are decoded once and kept; large ones would fill memory and are decoded in every epoch.
            n_bytes = len(paths) * shape.channels * shape.height * shape.width
            if shape.is_large or n_bytes > grid_inputs.MEMORY:
                return _normalised(shape, asked, lambda: measured(train)), paths, []
            small = [
                shape.pixels(path if seen.values is None else seen.values)
                for path, seen in zip(paths, looks, strict=True)
            ]
            return _normalised(shape, asked, lambda: [small[i] for i in train]), torch.stack(small), []

        first = f"kind: {more[0]}"
        return grid_inputs.folder_samples(folder, self.name, good, names, fit, [first, *folder.notes, *notes])

    def read(
        self, source: Folder | Arrays, preprocessing: ImagePreprocessing, max_bad: float | int, *, labelled: bool
    ) -> NewData:
        """Return the images of a folder, one image, or arrays."""
        if isinstance(source, Arrays):
            names = [source.classes[k] for k in source.labels]
            items = _at_shape(preprocessing, source.images)
            return NewData(items, _numbered(source), range(len(names)), names, source.parts, list(source.notes))

        def take(path: Path) -> Tensor | Path:
            """Return small pixels. Only check that a large image can be read."""
            if not preprocessing.is_large:
                return preprocessing.pixels(path)
            open_image(path, max_pixels=preprocessing.max_pixels)
            return path

        good, taken, notes = read_all(source.paths, take, self.name, max_bad)
        return grid_inputs.new_files(source, good, taken, notes)

    def show(self, split: Split, i: int, original: Any) -> Shown:
        """Return the path and the image as the model sees it."""
        x, _ = split[i]
        reader = split.preprocessing
        if not isinstance(x, Tensor) or not isinstance(reader, ImagePreprocessing):
            return Shown(origin=str(original))
        mean, std = (torch.tensor(values)[:, None, None] for values in (reader.mean, reader.std))
        return Shown(origin=str(original), picture=grid_inputs.png_address(x * std + mean))

    def baseline(self, task: Task) -> Baseline | None:
        """Return images, made small."""
        return grid_inputs.small_grids(task, (16, 16))


def _normalised(
    shape: ImagePreprocessing, asked: ImageOptions, images: Callable[[], Sequence[Tensor]]
) -> ImagePreprocessing:
    """Return the preprocessing with the statistics that were given, or with those of training images."""
    if asked.normalisation is not None:
        return shape.normalised_by(*asked.normalisation)
    mean, std = channel_statistics(images())
    return replace(shape, mean=mean, std=std)


def _at_shape(shape: ImagePreprocessing, pixels: Tensor) -> Tensor:
    """Return uint8 images `[N, C, H, W]` at the shape of a preprocessing."""
    if tuple(pixels.shape[1:]) == (shape.channels, shape.height, shape.width):
        return pixels
    return torch.stack([shape.pixels(image.permute(1, 2, 0).numpy()) for image in pixels])


def _numbered(arrays: Arrays) -> list[str]:
    """Return what a report calls samples that have no file of their own: `digits[0]`."""
    return [f"{Path(arrays.name).name}[{i}]" for i in range(len(arrays.labels))]
