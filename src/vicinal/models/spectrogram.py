r"""The spectrogram as a network's first layer, for models that take waveforms, and mix them.

.. math::
    S_{f,t} = \log\Bigl(1 + \bigl|\sum_n w_n\, x_{tH+n}\, e^{-2\pi i f n / N}\bigr|\Bigr), \qquad
    \tilde S = (S - \bar S) / \operatorname{std}(S)

With windows of 20 ms every 10 ms at 16 kHz (N = 320, H = 160), one second becomes 160 × 101, the size in Zhang et al.
(2018, Section 3.3), who call mixing waveforms reasonable too. Data are read as spectrograms unless
`front_end="waveform"` asks for this; here a waveform is padded before it is normalised, since a layer sees no lengths.
`ManifoldMixup(layers=["spectrogram"])` mixes the spectrograms of such a model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vicinal._checks import integer


class Spectrogram(nn.Module):
    """Turn waveforms `[B, T]` into normalised log spectrograms `[B, 1, n_fft // 2, 1 + T // hop]`.

    The constant component (frequency 0) is left out: it is no sound. Each spectrogram has mean 0 and standard
    deviation 1, so loudness is no feature; silence stays 0.

    Parameters
    ----------
    n_fft, hop
        The length of a window, and how far the next one begins, in samples.

    Examples
    --------
    >>> Spectrogram()(torch.randn(2, 16_000)).shape
    torch.Size([2, 1, 160, 101])
    """

    window: Tensor

    def __init__(self, *, n_fft: int = 320, hop: int = 160) -> None:
        super().__init__()
        self.n_fft, self.hop = integer("n_fft", n_fft, low=2), integer("hop", hop, low=1)
        # Not saved with the weights: it follows from n_fft.
        self.register_buffer("window", torch.hamming_window(self.n_fft), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the spectrograms of waveforms `[B, T]`."""
        if x.ndim != 2:
            raise ValueError(f"waveforms must have shape [B, T], got {list(x.shape)}")
        wide = x if x.dtype == torch.float64 else x.float()  # half-precision Fourier transforms overflow
        waves = torch.stft(
            wide,
            self.n_fft,
            self.hop,
            window=self.window.to(wide.dtype),
            center=True,
            pad_mode="constant",
            return_complex=True,
        )
        magnitude = waves[:, 1:].abs().log1p()
        mean, deviation = magnitude.mean((1, 2), keepdim=True), magnitude.std((1, 2), keepdim=True)
        normalised = (magnitude - mean) / deviation.clamp_min(1e-6)
        return normalised[:, None].to(x.dtype)

    def shape(self, length: int) -> tuple[int, int, int]:
        """Return the shape (C, H, W) that a waveform of `length` samples becomes."""
        return 1, self.n_fft // 2, 1 + length // self.hop


class OnSpectrogram(nn.Module):
    """A network for images that hears: the spectrogram first, then the network.

    >>> OnSpectrogram(nn.Sequential(nn.Flatten(), nn.Linear(160 * 101, 10)))(torch.randn(2, 16_000)).shape
    torch.Size([2, 10])
    """

    def __init__(self, network: nn.Module, *, n_fft: int = 320, hop: int = 160) -> None:
        super().__init__()
        self.spectrogram = Spectrogram(n_fft=n_fft, hop=hop)
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of waveforms `[B, T]`."""
        logits: Tensor = self.network(self.spectrogram(x))
        return logits
