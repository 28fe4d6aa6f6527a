"""Small sources of every kind, written where a test wants them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import soundfile
from PIL import Image

#: Names that break what is not careful.
HOSTILE = ['it\'s "quoted"', "<script>alert(1)</script>", "Zoë und Jürgen 日本"]


def people(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "height cm": rng.normal(170, 10, n).round(1),
            "colour": rng.choice(["red", "green", "blue"], n),
            "member": rng.choice([True, False], n),
            "born": pd.date_range("1990-01-01", periods=n).strftime("%Y-%m-%d"),
            "id": np.arange(n) + 7,
            "planet": "earth",
            "kind": np.where(np.arange(n) % 3 == 0, "a", "b"),
        }
    )
    frame.loc[3::10, "height cm"] = None
    frame.loc[5::10, "colour"] = None
    return frame


def reviews(n: int = 40) -> pd.DataFrame:
    words = ["the", "film", "was", "long", "and", "the", "actors", "were", "there"]
    rng = np.random.default_rng(1)
    text = [f"{' '.join(rng.permutation(words))}, {'great' if k % 2 else 'awful'} number {k}" for k in range(n)]
    moods = ["good" if k % 2 else "bad" for k in range(n)]
    return pd.DataFrame({"review": text, "stars": rng.integers(1, 6, n), "mood": moods})


def image_folder(root: Path, *, classes: Sequence[str] = ("cat", "dog"), n: int = 6, size: int = 12) -> Path:
    """Folders of colour images, class k with level 60·k."""
    rng = np.random.default_rng(2)
    for k, name in enumerate(classes):
        folder = root / name.replace("/", "_")
        folder.mkdir(parents=True)
        for i in range(n):
            pixels = rng.integers(0, 60, (size, size, 3)) + 60 * k
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"picture {i}.png")
    return root


def sound_folder(root: Path, *, classes: Sequence[str] = ("low", "high"), n: int = 5) -> Path:
    """Tones of 300 Hz · (k + 1): WAV and FLAC, several rates, mono and stereo, short and long."""
    for k, name in enumerate(classes):
        folder = root / name
        folder.mkdir(parents=True)
        for i in range(n):
            rate = [8000, 16_000, 22_050][i % 3]
            t = np.arange(int(rate * (0.4 + 0.2 * i))) / rate
            wave = 0.5 * np.sin(2 * np.pi * 300 * (k + 1) * t)
            samples = np.stack([wave, 0 * wave], axis=1) if i % 2 else wave
            soundfile.write(folder / f"take {i}.{'flac' if i % 2 else 'wav'}", samples, rate)
    return root
