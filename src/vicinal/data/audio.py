r"""Sounds of any rate, length and number of channels: brought to mono, 16 kHz, one length, and to log-spectrograms.

.. math::
    S_{f,t} = \log\Bigl(1 + \bigl|\sum_n w_n\, x_{tH+n}\, e^{-2\pi i f n / N}\bigr|\Bigr), \qquad
    \tilde S = (S - \bar S) / \operatorname{std}(S)

The spectrogram is what a model gets, so whatever mixes inputs mixes spectrograms, as in Zhang et al. (2018, Section
3.3): they are normalised first, then padded with zeros to 160 × 101 for one second. The paper gives neither window nor
hop: 20 ms every 10 ms (N = 320, H = 160) and a Hamming window w are ours, and give that size without frequency 0.
`front_end="mel"` has 64 triangular bands of the mel scale in place of frequencies; `front_end="waveform"` leaves the
transform to the network's first layer (`models.OnSpectrogram`), so that waveforms are mixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal import _random
from vicinal._checks import choice, require
from vicinal._files import Json, check_memory
from vicinal._typing import Batch
from vicinal.data.preprocessing import Preprocessing

__all__ = ["AUGMENTATIONS", "FRONT_ENDS", "AudioPreprocessing", "mel_filters", "read_sound"]

FRONT_ENDS = ("spectrogram", "mel", "waveform")

#: `"standard"`: a random piece of longer sounds; `"specaugment"`: besides, blanked bands of frequencies and of time.
AUGMENTATIONS = ("standard", "specaugment", "none")

#: Bands of each direction that SpecAugment blanks, and the share of that side that a band may have at most.
_MASKS, _MASK_SHARE = 2, 0.2
#: Samples of each channel that are read at a time, and bytes that a sound may take unless `max_memory` says otherwise.
_BLOCK, _LARGEST = 2**16, 2**31
#: Bytes of `resample_poly`'s filter for each step of the larger rate.
_FILTER = 20 * 8


@dataclass(frozen=True)
class AudioPreprocessing(Preprocessing):
    """How a sound becomes a spectrogram `[1, F, T]`: shorter ones end in zeros, longer sounds are cut.

    To evaluate, the middle of a longer sound is taken; to train, a random piece. Every spectrogram has mean 0 and
    standard deviation 1 before it is padded, so loudness is no feature; silence is 0.
    """

    kind: ClassVar[str] = "audio"

    rate: int = 16_000
    length: int = 16_000
    front_end: str = "spectrogram"
    n_fft: int = 320
    hop: int = 160
    n_mels: int = 64

    def __post_init__(self) -> None:
        choice("front_end", self.front_end, FRONT_ENDS)

    @property
    def spec(self) -> Json:
        """The shape of a spectrogram, or the length of a waveform."""
        if self.front_end == "waveform":
            return {"kind": self.kind, "input_shape": (self.length,)}
        bands = self.n_mels if self.front_end == "mel" else self.n_fft // 2
        return {"kind": self.kind, "input_shape": (1, bands, 1 + self.length // self.hop)}

    def __call__(self, item: object, *, augment: str = "none", generator: torch.Generator | None = None) -> Batch:
        """Return the model input of a sound (a path, or a waveform `[T]` at this rate)."""
        wave = torch.from_numpy(read_sound(item, self.rate)) if isinstance(item, (str, Path)) else torch.as_tensor(item)
        wave = self._piece(wave, generator if augment != "none" else None)
        if self.front_end == "waveform":
            return torch.nn.functional.pad(wave, (0, self.length - len(wave)))
        levels = self.spectrogram(wave)
        if augment == "specaugment" and generator is not None:
            levels = _masked(levels, generator)
        return torch.nn.functional.pad(levels, (0, 1 + self.length // self.hop - levels.shape[-1]))[None]

    def spectrogram(self, wave: Tensor) -> Tensor:
        """Return the normalised log-spectrogram `[F, 1 + T // hop]` of a waveform `[T]`."""
        waves = torch.stft(
            wave, self.n_fft, self.hop, window=self._window, center=True, pad_mode="constant", return_complex=True
        )
        levels = waves[1:].abs()
        if self.front_end == "mel":
            # Powers of bands, on the scale on which magnitudes are added to 1.
            levels = (self._filters @ levels.square()).sqrt()
        levels = levels.log1p()
        return (levels - levels.mean()) / levels.std().clamp_min(1e-6)

    def _piece(self, wave: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the waveform, or of a longer one a piece of the model's length."""
        extra = len(wave) - self.length
        if extra <= 0:
            return wave
        start = extra // 2 if generator is None else int(_random.integers(extra + 1, 1, generator=generator))
        return wave[start : start + self.length]

    @cached_property
    def _window(self) -> Tensor:
        return torch.hamming_window(self.n_fft)

    @cached_property
    def _filters(self) -> Tensor:
        return torch.from_numpy(mel_filters(self.n_mels, self.n_fft, self.rate)).float()

    def _fields(self) -> dict[str, object]:
        names = ("rate", "length", "front_end", "n_fft", "hop", "n_mels")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def _from_fields(cls, fields: Json) -> AudioPreprocessing:
        # Models saved before there was a choice take waveforms.
        return cls(**{"front_end": "waveform", **fields})


def mel_filters(n_mels: int, n_fft: int, rate: int) -> NDArray[np.float64]:
    """Return triangles `[n_mels, n_fft // 2]` that weight the frequencies above 0, each band from 0 to 1 and back.

    Their corners are equally spaced on the mel scale, 2595 · log10(1 + f / 700), between 0 and half the rate.

    >>> mel_filters(3, 16, 16_000).round(2)
    array([[0.67, 0.  , 0.  , 0.  , 0.  , 0.  , 0.  , 0.  ],
           [0.33, 0.89, 0.43, 0.  , 0.  , 0.  , 0.  , 0.  ],
           [0.  , 0.11, 0.57, 0.98, 0.74, 0.49, 0.25, 0.  ]])
    """
    mels = np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), n_mels + 2)
    corners = 700 * (10 ** (mels / 2595) - 1)
    frequencies = np.arange(1, n_fft // 2 + 1) * rate / n_fft
    low, centre, high = (corners[k : k + n_mels, None] for k in range(3))
    rising, falling = (frequencies - low) / (centre - low), (high - frequencies) / (high - centre)
    return np.minimum(rising, falling).clip(0)


def read_sound(path: str | Path, rate: int = 16_000) -> NDArray[np.float32]:
    """Return a file's waveform as float32 `[T]`: the mean of its channels, resampled to `rate`."""
    with require("soundfile", "audio").SoundFile(str(path)) as file:
        file_rate = file.samplerate
        common = gcd(rate, file_rate)
        resampled = 4 * file.frames * rate // file_rate + _FILTER * max(rate, file_rate) // common
        check_memory("it", 4 * file.frames + (resampled if file_rate != rate else 0), usual=_LARGEST)
        # Of many channels their mean alone is kept.
        parts = [part.mean(axis=1) for part in file.blocks(_BLOCK, dtype="float32", always_2d=True)]
    if not parts:
        raise ValueError("it holds no samples")
    mono = np.concatenate(parts)
    if not np.isfinite(mono).all():
        raise ValueError("it holds NaN or infinite samples")
    if file_rate != rate:
        from scipy.signal import resample_poly  # takes a second to import, which only sounds are worth

        mono = resample_poly(mono, rate // common, file_rate // common)
    return np.ascontiguousarray(mono, dtype=np.float32)


def _masked(levels: Tensor, generator: torch.Generator) -> Tensor:
    """Return a spectrogram with bands of both directions set to its mean, 0 (SpecAugment, Park et al. 2019).

    Two bands each, of a uniform width up to a fifth of the side. Their warping of time is left out.
    """
    levels = levels.clone()
    for side in (0, 1):
        n = levels.shape[side]
        widths = _random.integers(int(_MASK_SHARE * n) + 1, _MASKS, generator=generator).tolist()
        for width in widths:
            start = int(_random.integers(n - width + 1, 1, generator=generator))
            levels.narrow(side, start, width).zero_()
    return levels
