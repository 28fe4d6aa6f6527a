"""The spectrogram layer against SciPy's slow one, and mixing on either side of it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal
import torch

from vicinal import ManifoldMixup, Mixup, models
from vicinal.models import Spectrogram
from vicinal.models.spectrogram import OnSpectrogram


def by_scipy(wave: np.ndarray) -> np.ndarray:
    window = scipy.signal.get_window("hamming", 320)
    _, _, z = scipy.signal.stft(wave, nperseg=320, noverlap=160, window=window, boundary="zeros", padded=False)
    magnitude = np.log1p(np.abs(z[1:]) * window.sum())  # SciPy divides by the sum of the window
    return (magnitude - magnitude.mean()) / magnitude.std(ddof=1)


def by_loops(wave: np.ndarray, frame: int) -> np.ndarray:
    """One column of the unnormalised spectrogram from the formula."""
    n = np.arange(320)
    window = 0.54 - 0.46 * np.cos(2 * np.pi * n / 320)
    padded = np.concatenate([np.zeros(160), wave, np.zeros(160)])
    piece = padded[160 * frame : 160 * frame + 320] * window
    return np.array([np.log1p(abs(np.sum(piece * np.exp(-2j * np.pi * f * n / 320)))) for f in range(1, 161)])


def test_one_second_is_160_by_101_and_equals_scipy():
    waves = np.random.default_rng(0).standard_normal((3, 16_000))
    got = Spectrogram()(torch.from_numpy(waves))
    assert got.shape == (3, 1, 160, 101)
    for k, wave in enumerate(waves):
        np.testing.assert_allclose(got[k, 0].numpy(), by_scipy(wave), atol=1e-5)
    raw = np.stack([by_loops(waves[0], frame) for frame in (0, 7, 100)], axis=1)
    whole = np.stack([by_loops(waves[0], frame) for frame in range(101)], axis=1)
    want = (raw - whole.mean()) / whole.std(ddof=1)
    np.testing.assert_allclose(got[0, 0, :, [0, 7, 100]].numpy(), want, atol=1e-5)


def test_spectrograms_are_normalised_and_silence_is_zero():
    waves = torch.stack([torch.randn(16_000), 0.01 * torch.randn(16_000), torch.zeros(16_000)])
    got = Spectrogram()(waves)
    torch.testing.assert_close(got[:2].mean((1, 2, 3)), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(got[:2].std((1, 2, 3)), torch.ones(2))
    assert (got[2] == 0).all()
    waves.requires_grad_(True)
    Spectrogram()(waves).square().sum().backward()
    assert waves.grad.isfinite().all()


def test_padding_a_waveform_pads_its_spectrogram_with_one_level():
    wave = torch.cat([torch.randn(1, 8000), torch.zeros(1, 8000)], dim=1)
    got = Spectrogram()(wave)[0, 0]
    silent = got[:, 52:]
    assert (silent == silent[0, 0]).all()
    assert (silent[0, 0] == got.min()).item()


def test_half_precision_and_shapes():
    layer = Spectrogram(n_fft=64, hop=32)
    x = torch.randn(2, 640, dtype=torch.bfloat16)
    assert layer(x).dtype == torch.bfloat16
    assert layer(x).shape == (2, *layer.shape(640)) == (2, 1, 32, 21)
    assert not layer.state_dict()
    with pytest.raises(ValueError, match=r"waveforms must have shape \[B, T\], got \[2, 1, 640\]"):
        layer(torch.randn(2, 1, 640))


@pytest.mark.parametrize("name", ["lenet", "vgg11"])
def test_sounds_are_mixed_at_the_waveform_or_at_the_spectrogram(name):
    torch.manual_seed(0)
    options = {"hidden": 16} if name == "lenet" else {"width": 4, "hidden": [16]}
    model = models.build(name, kind="audio", n_classes=3, input_shape=(8000,), **options).eval()
    x, y = torch.randn(4, 8000), torch.tensor([0, 1, 2, 0])
    waveform, spectrogram = Mixup(alpha=1.0), ManifoldMixup(alpha=1.0, layers=["spectrogram"])
    plan = waveform.draw(model, x, y)
    lam = plan.lam[:, None]
    torch.testing.assert_close(waveform.forward(model, x, plan), model(lam * x + (1 - lam) * x[plan.partner]))
    plan = spectrogram.draw(model, x, y)
    s, lam = model.spectrogram(x), plan.lam[:, None, None, None]
    mixed = model.network(lam * s + (1 - lam) * s[plan.partner])
    torch.testing.assert_close(spectrogram.forward(model, x, plan), mixed)
    spectrogram(model.train(), x, y).backward()
    assert isinstance(model, OnSpectrogram)


def test_the_speech_networks_have_the_papers_sizes():
    with torch.device("meta"):
        lenet = models.build("lenet", kind="audio", n_classes=30, input_shape=(16_000,))
        vgg = models.build("vgg11", kind="audio", n_classes=30, input_shape=(16_000,))
        deep = models.build("vgg11", kind="audio", n_classes=30, input_shape=(16_000,), stages=5)
    assert lenet.network.hidden[0].in_features == 16_280
    assert vgg.network.hidden[0].in_features == 128 * (160 // 4) * (101 // 4)
    assert deep.network.hidden[0].in_features == 512 * (160 // 32) * (101 // 32)
