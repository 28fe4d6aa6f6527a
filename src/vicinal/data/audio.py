r"""Sounds of any rate, length and number of channels: brought to mono, 16 kHz, one length, and to log-spectrograms.

.. math::
    S_{f,t} = \log\Bigl(1 + \bigl|\sum_n w_n\, x_{tH+n}\, e^{-2\pi i f n / N}\bigr|\Bigr), \qquad
    \tilde S = (S - \bar S) / \operatorname{std}(S)

The model's input is the spectrogram, so methods that mix inputs mix spectrograms, as in Zhang et al. (2018, Section
3.3). Spectrograms are normalised, then padded with zeros to 160 × 101 for one second. The paper gives neither window
nor hop. A Hamming window w of 20 ms every 10 ms (N = 320, H = 160) gives its size without frequency 0.
`front_end="mel"` has 64 triangular bands of the mel scale in place of frequencies. `front_end="waveform"` leaves the
transform to the network's first layer (`OnSpectrogram`), so that waveforms are mixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal import _random
from vicinal._checks import Argument, Sentence, choice, require
from vicinal._memory import check_memory
from vicinal._typing import Batch
from vicinal.data import grid_inputs
from vicinal.data.class_folders import Folder, read_all
from vicinal.data.kind import Baseline, Fitted, Kind, NewData, Request, Samples, Shown
from vicinal.data.options import FRONT_ENDS, AudioOptions
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.splitting import Labels, Positions
from vicinal.data.task import Split, Task
from vicinal.models import Spectrogram
from vicinal.models.specification import Inputs

#: `"standard"`: a random piece of longer sounds; `"specaugment"`: besides, blanked bands of frequencies and of time.
AUGMENTATIONS = ("standard", "specaugment", "none")

#: Bands of each direction that SpecAugment blanks, and the share of that side that a band may have at most.
_MASKS, _MASK_SHARE = 2, 0.2
#: The seconds of a sound that are taken where nothing was asked for: the median length within these ends.
_SHORTEST, _LONGEST = 0.1, 10.0
#: Samples of each channel that are read at a time, and the default memory limit of a sound in bytes.
_BLOCK, _LARGEST = 2**16, 2**31
#: Float samples may be unscaled integers of 32 bits; larger ones overflow in a spectrogram.
_LOUDEST = 2.0**31
#: Bytes of `resample_poly`'s filter for each step of the larger rate.
_FILTER = 20 * 8


@dataclass(frozen=True)
class AudioPreprocessing(Preprocessing):
    """How a sound becomes a spectrogram `[1, F, T]`. Shorter sounds are padded with zeros, longer ones are cut.

    Evaluation takes the middle of a longer sound, training a random piece. Every spectrogram has mean 0 and standard
    deviation 1 before it is padded, so loudness is no feature; silence is 0.
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

    def inputs(self, n_classes: int) -> Inputs:
        """Return the shape of a spectrogram, or the length of a waveform."""
        bands = self.n_mels if self.front_end == "mel" else self.n_fft // 2
        shape = (self.length,) if self.front_end == "waveform" else (1, bands, 1 + self.length // self.hop)
        return Inputs(kind=self.kind, n_classes=n_classes, input_shape=shape)

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
        # Frequency 0 is the mean of the samples, which is no sound.
        levels = waves[1:].abs()
        if self.front_end == "mel":
            # Powers of bands, on the scale on which magnitudes are added to 1.
            levels = (self._filters @ levels.square()).sqrt()
        levels = levels.log1p()
        return (levels - levels.mean()) / levels.std().clamp_min(1e-6)

    def _piece(self, wave: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the waveform, or of a longer one a piece of the model's length."""
        # Short sounds are padded after the spectrogram, so that silence does not enter its mean.
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
        # The length after resampling, and the filter: its taps grow with the larger rate over the common divisor.
        resampled = 4 * file.frames * rate // file_rate + _FILTER * max(rate, file_rate) // common
        check_memory("it", 4 * file.frames + (resampled if file_rate != rate else 0), default=_LARGEST)
        # Block by block: a file may claim thousands of channels, of which only the mean is kept.
        parts = [part.mean(axis=1) for part in file.blocks(_BLOCK, dtype="float32", always_2d=True)]
    if not parts:
        raise ValueError("it holds no samples")
    mono = np.concatenate(parts)
    if not np.isfinite(mono).all():
        raise ValueError("it holds NaN or infinite samples")
    if (loudest := float(np.abs(mono).max(initial=0))) > _LOUDEST:
        raise ValueError(f"its samples reach {loudest:.3g}, and those of a sound are at most 1 in size")
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


class AudioKind(Kind[Folder, AudioPreprocessing]):
    """Sounds: files of class folders."""

    name = "audio"
    preprocessing = AudioPreprocessing
    plural = "sounds"
    suffixes = frozenset({".wav", ".flac", ".ogg"})
    augmentations = AUGMENTATIONS

    def open(self, source: Folder, request: Request) -> Samples:
        """Return the sounds of a folder: read already while they fit in memory, else as paths."""
        names = grid_inputs.class_names(source, self.plural)
        asked = request.options(AudioOptions)
        kept = 0

        def take(path: Path) -> tuple[int, Any]:
            nonlocal kept
            wave = read_sound(path, AudioPreprocessing.rate)
            # Threads may exceed the limit by a few files, which does no harm.
            kept += wave.nbytes  # whole: training takes pieces of it
            return len(wave), wave if kept <= grid_inputs.MEMORY else path

        good, taken, notes = read_all(source.paths, take, self.name, request.max_bad)
        preprocessing = self.reused(request.fitted) or _chosen(asked, [length for length, _ in taken])
        seconds = preprocessing.length / preprocessing.rate
        longer = sum(length > preprocessing.length for length, _ in taken)
        if longer:
            cut = f"{longer} of {len(good)} sounds are longer than {seconds:g} s and are cut ("
            notes.append(Sentence(cut, Argument("seconds"), " changes that)"))

        def fit(train: Positions, labels: Labels) -> Fitted:
            return preprocessing, [item for _, item in taken], []

        median = "" if asked.seconds is not None or request.fitted is not None else " (their median length)"
        first = f"kind: audio, {seconds:g} s{median} of mono at 16 kHz, as {preprocessing.front_end}"
        return grid_inputs.folder_samples(source, self.name, good, names, fit, [first, *source.notes, *notes])

    def read(
        self, source: Folder, preprocessing: AudioPreprocessing, max_bad: float | int, *, labelled: bool
    ) -> NewData:
        """Return the sounds of a folder, or one sound."""
        good, waves, notes = read_all(source.paths, read_sound, self.name, max_bad)
        return grid_inputs.new_files(source, good, waves, notes)

    def show(self, split: Split, i: int, original: Any) -> Shown:
        """Return the path and the spectrogram, low tones at the bottom."""
        x, _ = split[i]
        if not isinstance(x, Tensor):
            return Shown(origin=str(original))
        levels = (Spectrogram()(x[None])[0] if x.ndim == 1 else x).flip(1)  # a waveform, or a spectrogram already
        pixels = (levels - levels.min()) / (levels.max() - levels.min()).clamp_min(1e-6)
        return Shown(origin=str(original), picture=grid_inputs.png_address(pixels))

    def baseline(self, task: Task) -> Baseline | None:
        """Return spectrograms, made small."""
        return grid_inputs.small_grids(task, (32, 16))


def _chosen(asked: AudioOptions, lengths: Sequence[int]) -> AudioPreprocessing:
    """Return the preprocessing that is asked for, or that the median length decides, in hundredths of a second."""
    rate = AudioPreprocessing.rate
    # To the next hundredth, which is the hop of the spectrogram: a median is then never cut.
    median = math.ceil(100 * float(np.median(lengths)) / rate) / 100 if lengths else 1.0
    seconds = min(max(median, _SHORTEST), _LONGEST) if asked.seconds is None else asked.seconds
    return AudioPreprocessing(length=round(rate * seconds), front_end=asked.front_end)
