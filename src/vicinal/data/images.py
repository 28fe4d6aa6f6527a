"""Images of any mode and size: read as a viewer shows them, brought to one size, normalised by channel.

Where most have up to 128 px they have their own size, are kept in memory where they fit, and are augmented by a padded
random crop and a flip. Above, they are read when a sample is asked for: a random resized crop of 224 px and a flip to
train, the centre of the image resized to 256 to evaluate. A size that is given is the size that images are resized to.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal import _random
from vicinal._checks import Argument, ArgumentError, Sentence, integer, number, require
from vicinal._files import Json
from vicinal._typing import Batch
from vicinal.data.preprocessing import Preprocessing

__all__ = [
    "AUGMENTATIONS",
    "MOST_PIXELS",
    "ImagePreprocessing",
    "Pixels",
    "crop_and_flip",
    "geometry",
    "open_image",
    "resized_crop_box",
]

#: `"standard"`: crop and flip; `"crop"`: for what is not the same mirrored, such as characters; `"none"`.
AUGMENTATIONS = ("standard", "crop", "none")

#: The longest side of images that have their own size and are cropped with padding.
_SMALL = 128
#: The side of larger images, and of what they are first resized to for the centre crop.
_LARGE, _LARGE_RESIZED = 224, 256

#: The most pixels of an image that is decoded, unless more are asked for: what Pillow refuses too.
MOST_PIXELS = 178_956_970
#: How a JPEG file ends; some cameras write more behind it.
_JPEG_END, _BEHIND = b"\xff\xd9", 4096

_GREY = frozenset({"1", "L", "LA", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"})


@dataclass(frozen=True)
class Pixels:
    """What one look at a file tells: its size, whether it is grey, and its pixels if they are few."""

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
        """Return it with these statistics of red, green and blue; of grey images their means."""
        if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
            raise ArgumentError("normalisation", (mean, std), "three means and three standard deviations above 0")
        if self.channels == 1:
            return replace(self, mean=(sum(mean) / 3,), std=(sum(std) / 3,))
        return replace(self, mean=tuple(map(float, mean)), std=tuple(map(float, std)))

    @property
    def spec(self) -> Json:
        """The shape of an image."""
        return {"kind": self.kind, "input_shape": (self.channels, self.height, self.width)}

    @property
    def is_large(self) -> bool:
        """Whether images are read one by one, and cropped at random sizes to train."""
        return max(self.height, self.width) > _SMALL

    def __call__(self, item: object, *, augment: str = "none", generator: torch.Generator | None = None) -> Batch:
        """Return an image (a path, a uint8 array `[H, W]` or `[H, W, C]`, or a uint8 tensor `[C, H, W]`) normalised."""
        augmented = generator is not None and augment != "none"
        try:
            pixels = item if isinstance(item, Tensor) else self._drawn(item, generator if augmented else None)
        except (OSError, SyntaxError) as error:  # it was whole when the folder was looked through
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
    def _from_fields(cls, fields: Json) -> ImagePreprocessing:
        channels, height, width = (integer(name, fields[name], low=1) for name in ("channels", "height", "width"))
        if channels not in (1, 3):
            raise ValueError(f"images must have 1 or 3 channels, got {channels}")
        mean, std = (tuple(fields[name]) for name in ("mean", "std"))
        return cls(channels, height, width, number("cover", fields["cover"], low=1), mean, std)


def open_image(path: str | Path, *, max_pixels: int = MOST_PIXELS) -> Any:
    """Return an image as a viewer shows it: turned as its EXIF says, transparency on white, 8 bits, L or RGB.

    16-bit greys are divided by 257, floating-point ones are taken to lie in [0, 1].
    """
    image_module, operations = require("PIL.Image", "train"), require("PIL.ImageOps", "train")
    with _opened(path, max_pixels) as file:
        file.load()
        image = operations.exif_transpose(file)
    if image.mode.startswith("I"):
        # Also 16-bit PNG files, which older versions of Pillow open as 32-bit integers.
        return image_module.fromarray((np.clip(np.asarray(image).astype(np.int64), 0, 65_535) // 257).astype(np.uint8))
    if image.mode == "F":
        return image_module.fromarray((np.clip(np.nan_to_num(np.asarray(image)), 0, 1) * 255).round().astype(np.uint8))
    if image.mode in ("LA", "RGBA", "PA", "La", "RGBa") or "transparency" in image.info:
        grey = image.mode in ("L", "LA", "La")
        full = image.convert("RGBA")
        image = image_module.alpha_composite(image_module.new("RGBA", full.size, "white"), full)
        return image.convert("L" if grey else "RGB")
    return image.convert("L" if image.mode in _GREY else "RGB")


def _opened(path: str | Path, limit: int) -> Any:
    """Open an image file, of which the header alone is read, unless it claims too many pixels to decode."""
    image_module = require("PIL.Image", "train")
    if limit > MOST_PIXELS:  # as the user wants it
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
    """Choose the shape that all images are brought to, still without normalisation, and say what it is."""
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
    top, left = _random.integers(2 * padding + 1, 2, generator=generator).tolist()
    mirrored = bool(_random.coin(0.5, 1, generator=generator)) and flip
    height, width = image.shape[-2:]
    padded = torch.nn.functional.pad(image, (padding,) * 4)
    cropped = padded[..., top : top + height, left : left + width]
    return cropped.flip(-1) if mirrored else cropped


def resized_crop_box(height: int, width: int, generator: torch.Generator | None) -> tuple[float, float, float, float]:
    """Draw a box (left, top, right, bottom) of 8 to 100 % of the area and a ratio of sides from 3/4 to 4/3.

    As torchvision does: of ten draws the first that fits, else the largest centred box of an allowed ratio.
    """
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
    """Return 4 px, as is usual from 28 to 64 px, and an eighth of the side of tiny images and of those above."""
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
