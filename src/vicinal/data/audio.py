"""Sounds of any rate, length and number of channels: brought to mono, 16 kHz and one length.

What a model gets is the waveform; the spectrogram is its first layer, so that sounds can be mixed before it or after.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from vicinal import _random
from vicinal._checks import require
from vicinal._typing import Batch
from vicinal.data.preprocessing import Preprocessing

__all__ = ["AudioPreprocessing", "read_sound"]


@dataclass(frozen=True)
class AudioPreprocessing(Preprocessing):
    """How a sound becomes a waveform `[T]`: shorter ones end in zeros, longer ones are cut.

    To evaluate, the middle of a longer sound is taken; to train, a random piece.
    """

    kind: ClassVar[str] = "audio"

    rate: int = 16_000
    length: int = 16_000

    @property
    def spec(self) -> dict[str, Any]:
        """The length of a waveform."""
        return {"kind": self.kind, "input_shape": (self.length,)}

    def __call__(self, item: Any, *, augment: str = "none", generator: torch.Generator | None = None) -> Batch:
        """Return a sound (a path, or a waveform `[T]` at this rate) at the model's length."""
        wave = torch.from_numpy(read_sound(item, self.rate)) if isinstance(item, (str, Path)) else torch.as_tensor(item)
        return self.cut(wave, generator if augment != "none" else None)

    def cut(self, wave: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the waveform at the model's length."""
        extra = len(wave) - self.length
        if extra <= 0:
            return torch.nn.functional.pad(wave, (0, -extra))
        start = extra // 2 if generator is None else int(_random.integers(extra + 1, 1, generator=generator))
        return wave[start : start + self.length]

    def _fields(self) -> dict[str, Any]:
        return {"rate": self.rate, "length": self.length}

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> AudioPreprocessing:
        return cls(**fields)


def read_sound(path: str | Path, rate: int = 16_000) -> np.ndarray[Any, Any]:
    """Return a file's waveform as float32 `[T]`: the mean of its channels, resampled to `rate`."""
    samples, own_rate = require("soundfile", "audio").read(str(path), dtype="float32", always_2d=True)
    if not len(samples):
        raise ValueError("it holds no samples")
    mono = samples.mean(axis=1)
    if not np.isfinite(mono).all():
        raise ValueError("it holds NaN or infinite samples")
    common = gcd(rate, own_rate)
    if own_rate != rate:
        from scipy.signal import resample_poly  # takes a second to import, which only sounds are worth

        mono = resample_poly(mono, rate // common, own_rate // common)
    return np.ascontiguousarray(mono, dtype=np.float32)
