"""Sounds of any rate, length and number of channels."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile
import torch

from tests.data import make
from vicinal import CutMix, LogitMix, Mixup, data
from vicinal.data import Preprocessing
from vicinal.data.audio import AudioPreprocessing, mel_filters, read_sound


def test_a_folder_of_sounds(tmp_path):
    one = data.AudioOptions(seconds=1)
    task = data.load(make.sound_folder(tmp_path, n=8), one)
    assert task.kind == "audio"
    assert task.classes == ("high", "low")
    assert task.spec == {"n_classes": 2, "kind": "audio", "input_shape": (1, 160, 101)}
    assert "kind: audio, 1 s of mono at 16 kHz, as spectrogram" in task.notes
    assert any("8 of 16 sounds are longer than 1 s and are cut" in note for note in task.notes)
    for split in (task.train, task.val, task.test):
        for x, y in split:
            assert x.shape == (1, 160, 101)
            assert x.dtype == torch.float32
            loudest = 50 * (1 + x[0].mean(1).argmax().item())  # bands of 16,000 / 320 Hz, from the first
            assert loudest == {"low": 300, "high": 600}[task.classes[y]]
    again = Preprocessing.from_dict(json.loads(json.dumps(task.preprocessing.to_dict())))
    for i in range(len(task.test)):
        assert torch.equal(again(task.test.original(i)), task.test[i][0])
    new = data.read(tmp_path / "low", again)
    assert len(new) == 8
    assert new[0][0].shape == (1, 160, 101)
    assert data.load(tmp_path, data.AudioOptions(seconds=0.25)).spec["input_shape"] == (1, 160, 26)
    assert data.load(tmp_path, data.AudioOptions(seconds=1, front_end="mel")).train[0][0].shape == (1, 64, 101)
    assert data.load(tmp_path, data.AudioOptions(seconds=1, front_end="waveform")).train[0][0].shape == (16_000,)
    with pytest.raises(ValueError, match=r"front_end must be .*got 'mfcc'"):
        data.load(tmp_path, data.AudioOptions(front_end="mfcc"))
    with pytest.raises(ValueError, match=r"augment must be .*'specaugment'.*got 'crop'"):
        data.load(tmp_path, augment="crop")


def slow_spectrogram(wave, n_fft=320, hop=160):
    """Frame by frame from the formula, with zeros before and after, normalised over all frames."""
    padded = np.concatenate([np.zeros(n_fft // 2), wave, np.zeros(n_fft // 2)])
    n = np.arange(n_fft)
    window = 0.54 - 0.46 * np.cos(2 * np.pi * n / n_fft)
    columns = []
    for t in range(1 + len(wave) // hop):
        frame = window * padded[t * hop : t * hop + n_fft]
        columns.append([np.log1p(abs(np.sum(frame * np.exp(-2j * np.pi * f * n / n_fft)))) for f in range(1, 161)])
    levels = np.array(columns).T
    return (levels - levels.mean()) / levels.std(ddof=1)


def test_spectrograms_are_normalised_and_then_padded_with_zeros():
    wave = np.random.default_rng(0).normal(size=4000) * np.sin(np.arange(4000) / 9)
    x = AudioPreprocessing()(torch.from_numpy(wave).float())
    want = slow_spectrogram(wave)
    assert want.shape == (160, 26)
    np.testing.assert_allclose(x[0, :, :26], want, atol=2e-4)
    assert (x[0, :, 26:] == 0).all()
    assert not AudioPreprocessing()(torch.zeros(16_000)).any()  # silence


@pytest.mark.parametrize("objective", [Mixup(alpha=1.0), LogitMix(Mixup(alpha=1.0)), CutMix(alpha=1.0)], ids=repr)
def test_whatever_the_objective_spectrograms_are_mixed(tmp_path, objective):
    """What the network sees while training is λ S + (1 - λ) S', with S as the slow transform has it."""
    task = data.load(make.sound_folder(tmp_path, n=6), data.AudioOptions(seconds=1), augment="none")
    x, y = task.collate_fn([task.train[i] for i in range(4)])
    slow = np.zeros((4, 160, 101))
    for i in range(4):
        wave = read_sound(task.train.original(i))
        start = max(len(wave) - 16_000, 0) // 2
        levels = slow_spectrogram(wave[start : start + 16_000])
        slow[i, :, : levels.shape[1]] = levels
    seen = []
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(160 * 101, 2))
    network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach().clone()))
    objective(network, x, y, generator=torch.Generator().manual_seed(3))
    base = getattr(objective, "base", objective)
    plan = base.draw(network, x, y, generator=torch.Generator().manual_seed(3))
    mixed = seen[0][-4:, 0].numpy()
    assert plan.lam[0] < 0.99
    for row, (partner, lam) in enumerate(zip(plan.partner.tolist(), plan.lam.tolist(), strict=True)):
        if isinstance(base, Mixup):
            np.testing.assert_allclose(mixed[row], lam * slow[row] + (1 - lam) * slow[partner], atol=1e-3)
        else:  # every value comes from one of the two
            distance = np.minimum(abs(mixed[row] - slow[row]), abs(mixed[row] - slow[partner]))
            assert distance.max() < 1e-3


def test_waveforms_end_in_zeros_and_long_sounds_are_cut(tmp_path):
    asked = data.AudioOptions(seconds=1, front_end="waveform")
    task = data.load(make.sound_folder(tmp_path, n=8), asked)
    preprocessing = task.preprocessing
    wave = torch.arange(1.0, 20_001.0)
    assert preprocessing(wave[:5]).tolist() == [1, 2, 3, 4, 5] + [0] * 15_995
    assert preprocessing(wave)[0] == 2001  # the middle
    pieces = {
        preprocessing(wave, augment="standard", generator=torch.Generator().manual_seed(k))[0].item() for k in range(9)
    }
    assert len(pieces) > 5
    assert min(pieces) >= 1
    assert max(pieces) <= 4001
    train = data.load(tmp_path).train
    first = [train[i][0] for i in range(len(train))]
    train.set_epoch(1, 0)
    assert any(not torch.equal(x, train[i][0]) for i, x in enumerate(first))
    train.set_epoch(0, 0)
    assert all(torch.equal(x, train[i][0]) for i, x in enumerate(first))


def test_mel_bands_are_those_of_transformers():
    audio_utils = pytest.importorskip("transformers.audio_utils")
    want = audio_utils.mel_filter_bank(161, 64, 0.0, 8000.0, 16_000, norm=None, mel_scale="htk")
    np.testing.assert_allclose(mel_filters(64, 320, 16_000), want.T[:, 1:], atol=1e-9)
    wave = torch.sin(2 * torch.pi * 1000 * torch.arange(16_000) / 16_000)
    x = AudioPreprocessing(front_end="mel")(wave)
    band = int(mel_filters(64, 320, 16_000)[:, 19].argmax())  # the filter that 1,000 Hz falls into
    assert abs(int(x[0].mean(1).argmax()) - band) <= 1


def test_specaugment_blanks_bands():
    preprocessing = AudioPreprocessing()
    wave = torch.randn(16_000, generator=torch.Generator().manual_seed(0))
    plain = preprocessing(wave)
    draws = [preprocessing(wave, augment="specaugment", generator=torch.Generator().manual_seed(k)) for k in range(20)]
    rows = [int((x[0] == 0).all(1).sum()) for x in draws]
    columns = [int((x[0] == 0).all(0).sum()) for x in draws]
    assert max(rows) <= 2 * 32
    assert max(columns) <= 2 * 20
    assert len(set(rows)) > 5
    assert len(set(columns)) > 5
    for x in draws:
        kept = x != 0
        assert torch.equal(x[kept], plain[kept])
    again = preprocessing(wave, augment="specaugment", generator=torch.Generator().manual_seed(0))
    assert torch.equal(again, draws[0])


def test_channels_are_averaged_and_rates_changed(tmp_path):
    t = np.arange(8000) / 8000
    stereo = np.stack([np.sin(2 * np.pi * 200 * t), np.zeros_like(t)], axis=1)
    soundfile.write(tmp_path / "s.wav", stereo, 8000, subtype="FLOAT")
    wave = read_sound(tmp_path / "s.wav")
    assert len(wave) == 16_000
    want = 0.5 * np.sin(2 * np.pi * 200 * np.arange(16_000) / 16_000)
    np.testing.assert_allclose(wave[500:-500], want[500:-500], atol=2e-3)


def test_unreadable_sounds_are_named_counted_and_limited(tmp_path):
    folder = make.sound_folder(tmp_path, n=12)
    (folder / "low" / "broken.wav").write_bytes(b"RIFF no sound")
    soundfile.write(folder / "high" / "nothing.wav", np.zeros(0), 16_000)
    task = data.load(folder, data.ReadOptions(max_bad=2))
    (note,) = [note for note in task.notes if note.startswith("skipped")]
    assert "2 of 26 audio files could not be read" in note
    assert "broken.wav" in note
    assert "nothing.wav (it holds no samples)" in note
    with pytest.raises(ValueError, match=r"more than max_bad=0.05 allows"):
        data.load(folder)


def test_large_sets_stay_on_disk(tmp_path, monkeypatch):
    make.sound_folder(tmp_path)
    held = data.load(tmp_path, augment="none")
    monkeypatch.setattr("vicinal.data.grid_inputs.MEMORY", 1000)
    read = data.load(tmp_path, augment="none")
    for i in range(len(held.train)):
        assert torch.equal(held.train[i][0], read.train[i][0])


def test_seconds_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="seconds must be a number above 0, got 0"):
        data.load(make.sound_folder(tmp_path), data.AudioOptions(seconds=0))


def test_a_folder_with_the_name_of_a_data_set_is_pointed_out(tmp_path, monkeypatch):
    make.sound_folder(tmp_path / "fsdd")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VICINAL_DATA", raising=False)
    with pytest.raises(ValueError, match=r"for the file or folder of that name pass './fsdd'"):
        data.load("fsdd", data.SplitOptions(val=0.2, test=0.2))
    assert data.load("./fsdd", data.SplitOptions(val=0.2, test=0.2)).classes == ("high", "low")


@pytest.mark.parametrize("size", [1e38, 3e9])
def test_a_sound_of_huge_samples_is_a_bad_file(tmp_path, size):
    wave = np.where(np.arange(8_000) % 2, size, -size).astype(np.float32)
    soundfile.write(tmp_path / "loud.wav", wave, 16_000, subtype="FLOAT")
    with pytest.raises(ValueError, match=r"its samples reach .*, and those of a sound are at most 1 in size"):
        read_sound(tmp_path / "loud.wav")


@pytest.mark.parametrize(
    ("lengths", "seconds"), [([0.5, 2.0, 3.007], 2.0), ([0.02, 0.03, 0.04], 0.1), ([20.0, 31.0], 10.0)]
)
def test_sounds_take_their_median_length_up_to_ten_seconds(tmp_path, lengths, seconds):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i, length in enumerate(lengths * 2):
            soundfile.write(tmp_path / name / f"{i}.wav", np.zeros(round(8000 * length)), 8000)
    task = data.load(tmp_path)
    assert task.preprocessing.length == round(16_000 * seconds)
    assert any(f"{seconds:g} s (their median length)" in str(note) for note in task.notes)
    # A run that was trained on another length keeps it when its data are read again.
    again = data.load_from_config(str(tmp_path), {}, fitted=AudioPreprocessing(length=16_000))
    assert again.preprocessing.length == 16_000
