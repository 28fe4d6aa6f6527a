"""Sounds of any rate, length and number of channels."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile
import torch

from tests.data import make
from vicinal import data
from vicinal.data import Preprocessing
from vicinal.data.audio import read_sound


def test_a_folder_of_sounds(tmp_path):
    task = data.load(make.sound_folder(tmp_path, n=8))
    assert task.kind == "audio"
    assert task.classes == ("high", "low")
    assert task.spec == {"n_classes": 2, "kind": "audio", "input_shape": (16_000,)}
    assert "kind: audio, 1 s of mono at 16 kHz" in task.notes
    assert any("8 of 16 sounds are longer than 1 s and are cut" in note for note in task.notes)
    for split in (task.train, task.val, task.test):
        for x, y in split:
            assert x.shape == (16_000,)
            assert x.dtype == torch.float32
            spectrum = torch.fft.rfft(x).abs()
            frequency = spectrum.argmax().item() * 16_000 / len(x)
            assert frequency == pytest.approx({"low": 300, "high": 600}[task.classes[y]], abs=3)
    again = Preprocessing.from_dict(json.loads(json.dumps(task.preprocessing.to_dict())))
    for i in range(len(task.test)):
        assert torch.equal(again(task.test.raw(i)), task.test[i][0])
    new = data.read(tmp_path / "low", again)
    assert len(new) == 8
    assert new[0][0].shape == (16_000,)
    assert data.load(tmp_path, seconds=0.25).spec["input_shape"] == (4000,)


def test_short_sounds_end_in_zeros_and_long_ones_are_cut(tmp_path):
    task = data.load(make.sound_folder(tmp_path, n=8))
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
    train = task.train
    first = [train[i][0] for i in range(len(train))]
    train.set_epoch(1, 0)
    assert any(not torch.equal(x, train[i][0]) for i, x in enumerate(first))
    train.set_epoch(0, 0)
    assert all(torch.equal(x, train[i][0]) for i, x in enumerate(first))


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
    task = data.load(folder, max_bad=2)
    (note,) = [note for note in task.notes if note.startswith("skipped")]
    assert "2 of 26 audio files could not be read" in note
    assert "broken.wav" in note
    assert "nothing.wav (it holds no samples)" in note
    with pytest.raises(ValueError, match=r"more than max_bad=0.05 allows"):
        data.load(folder)


def test_large_sets_stay_on_disk(tmp_path, monkeypatch):
    make.sound_folder(tmp_path)
    held = data.load(tmp_path, augment="none")
    monkeypatch.setattr("vicinal.data.sources._MEMORY", 1000)
    read = data.load(tmp_path, augment="none")
    for i in range(len(held.train)):
        assert torch.equal(held.train[i][0], read.train[i][0])


def test_seconds_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="seconds must be a number above 0, got 0"):
        data.load(make.sound_folder(tmp_path), seconds=0)
