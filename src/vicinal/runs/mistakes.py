"""The most confident mistakes, and what a person can look at of each: the text, the row, the picture."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vicinal._checks import require
from vicinal.data import ImagePreprocessing, Split
from vicinal.models import Spectrogram

__all__ = ["confident_mistakes", "shown"]

#: The side of a picture in pixels: small ones are enlarged without smoothing, large ones made smaller.
_SIDE = 96
_LONGEST_TEXT = 600


def confident_mistakes(split: Split, probs: Tensor, classes: Sequence[str], *, n: int = 20) -> list[dict[str, object]]:
    """Return at most n mistakes with the highest confidence, the most confident first, ready for JSON.

    `probs` are the probabilities `[N, K]` of the samples of the split.
    """
    confidence, predicted = probs.max(dim=1)
    wrong = (predicted != torch.tensor(split.labels)).nonzero()[:, 0]
    worst = wrong[confidence[wrong].argsort(descending=True, stable=True)[:n]].tolist()
    labels = split.labels or []
    return [
        {
            "index": split.indices[i],
            "label": classes[labels[i]],
            "prediction": classes[int(predicted[i])],
            "confidence": float(confidence[i]),
            "label_probability": float(probs[i, labels[i]]),
            **shown(split, i, original),
        }
        for i, original in zip(worst, split.raws(worst), strict=True)
    ]


def shown(split: Split, i: int, original: Any = None) -> dict[str, object]:
    """Return what to show of the i-th sample: `text`, `row` or `origin`, and a `picture` as a data address of a PNG."""
    original = split.raw(i) if original is None else original
    if split.preprocessing.kind == "text":
        texts = [original] if isinstance(original, str) else list(original)
        return {"text": [text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…" for text in texts]}
    if isinstance(original, Mapping):
        return {"row": {str(name): _plain(value) for name, value in original.items()}}
    picture = _picture(split, i)
    return {"origin": str(original), **({} if picture is None else {"picture": picture})}


def _picture(split: Split, i: int) -> str | None:
    """Return an image as the model sees it, or a sound's spectrogram (low tones at the bottom)."""
    x, _ = split[i]
    if not isinstance(x, Tensor):
        return None
    if isinstance(split.preprocessing, ImagePreprocessing):
        mean, std = (torch.tensor(v)[:, None, None] for v in (split.preprocessing.mean, split.preprocessing.std))
        pixels = x * std + mean
    elif split.preprocessing.kind == "audio":
        levels = (Spectrogram()(x[None])[0] if x.ndim == 1 else x).flip(1)  # a waveform, or a spectrogram already
        pixels = (levels - levels.min()) / (levels.max() - levels.min()).clamp_min(1e-6)
    else:
        return None
    array = (pixels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).squeeze(2 if len(pixels) == 1 else ()).numpy()
    image_module = require("PIL.Image", "train")
    image = image_module.fromarray(array)
    scale = _SIDE / max(image.size)
    method = image_module.Resampling.NEAREST if scale > 1 else image_module.Resampling.LANCZOS
    image = image.resize(tuple(max(1, round(side * scale)) for side in image.size), method)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _plain(value: object) -> object:
    """Return a cell as JSON can hold it; a missing one is None."""
    value = value.item() if hasattr(value, "item") else value
    if value is None or value != value:  # NaN, NaT
        return None
    return value if isinstance(value, bool | int | float | str) else str(value)
