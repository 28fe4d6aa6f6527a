"""Every method trains to a finite loss with the default config on every kind of data that it is for."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile
from PIL import Image

from vicinal import OBJECTIVES
from vicinal.runs import Experiment
from vicinal.runs.execute import train_bundle
from vicinal.runs.run import load_task

N = 24


def rows(folder: Path) -> str:
    rng = np.random.default_rng(0)
    x, colour = rng.normal(size=(4 * N, 2)), rng.choice(["red", "green"], 4 * N)
    y = np.where(x[:, 0] + (colour == "red") > 0, "yes", "no")
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "colour": colour, "y": y}).to_csv(folder / "t.csv", index=False)
    return str(folder / "t.csv")


def texts(folder: Path) -> str:
    words, rng = ["the", "film", "was", "long", "and", "quiet"], np.random.default_rng(1)
    classes = ["good", "bad", "mixed"]  # with two, GuidedMixup warns that its saliency is another
    text = [f"{' '.join(rng.permutation(words))} {classes[k % 3]}" for k in range(3 * N)]
    frame = pd.DataFrame({"text": text, "y": [classes[k % 3] for k in range(3 * N)]})
    frame.to_csv(folder / "t.csv", index=False)
    return str(folder / "t.csv")


def images(folder: Path) -> str:
    rng = np.random.default_rng(2)
    for k, name in enumerate(("dark", "light")):
        (folder / name).mkdir()
        for i in range(N):
            pixels = rng.integers(0, 90, (12, 12, 3)) + 120 * k
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")
    return str(folder)


def sounds(folder: Path) -> str:
    rng = np.random.default_rng(3)
    for k, name in enumerate(("low", "high")):
        (folder / name).mkdir()
        for i in range(N):
            wave = np.sin(np.arange(4000) * 0.1 * (k + 1)) + 0.1 * rng.normal(size=4000)
            soundfile.write(folder / name / f"{i}.wav", wave, 16_000)
    return str(folder)


KINDS: dict[str, Callable[[Path], str]] = {"tabular": rows, "text": texts, "image": images, "audio": sounds}
#: Options beside the defaults: texts need no pretrained network here.
ABOUT: dict[str, dict[str, object]] = {"text": {"model": "sentencecnn", "data": {"target": "y", "text": "text"}},
                                       "tabular": {"data": {"target": "y"}}}  # fmt: skip
EVERY = {
    "ERM": "ERM(label_smoothing=0.1, confidence_penalty=0.1)",
    "Focal": "Focal()",
    "Mixup": "Mixup(alpha=1.0)",
    "LogitMix": "LogitMix(Mixup(alpha=3.0))",
    "RegMixup": "RegMixup(Mixup(alpha=10.0))",
    "Warmup": "Warmup(Mixup(alpha=0.4), epochs=2)",
    "During": "During(LogitMix(Mixup(alpha=3.0)), start=1, stop=3)",
}
#: Methods that mix numbers need inputs that are numbers; boxes and puzzles need grids; sentences need words.
NUMBERS = {
    "KMixup": "KMixup(alpha=1.0, k=3)",
    "GaussianVicinity": "GaussianVicinity(sigma=0.1)",
    "ManifoldMixup": "ManifoldMixup(alpha=2.0, layers=['input', 'classifier'])",
    "RandomChoice": "RandomChoice(Mixup(alpha=0.4), KMixup(alpha=1.0, k=3))",
}
GRIDS = {
    "CutMix": "CutMix(alpha=1.0)",
    "ResizeMix": "ResizeMix()",
    "PuzzleMix": "PuzzleMix(block_counts=[2, 4])",
    "LogitMix of CutMix": "LogitMix(CutMix(alpha=1.0))",
    "LogitMix of PuzzleMix": "LogitMix(PuzzleMix(block_counts=[2, 4]))",
}
WORDS = {"SequenceMixup": "SequenceMixup.input(alpha=0.4)", "GuidedMixup": "GuidedMixup(alpha=0.4)"}
#: The network is a part of the default model for tables, beside its trees.
OF_ROWS = {"ManifoldMixup": "ManifoldMixup(alpha=2.0, layers=['input', 'network.classifier'])"}
OF_KIND = {
    "tabular": EVERY | NUMBERS | OF_ROWS,
    "text": EVERY | WORDS,
    "image": EVERY | NUMBERS | GRIDS,
    "audio": EVERY | NUMBERS | GRIDS,
}


def trained(kind: str, method: str, folder: Path) -> tuple[float, list[float]]:
    (folder / "data").mkdir()
    experiment = Experiment(source=KINDS[kind](folder / "data"), method=method, **ABOUT.get(kind, {}))
    _, fit = train_bundle(experiment, load_task(experiment), folder / "run", progress=False)
    return fit.best["val_nll"], [line["loss"] for line in fit.history if "loss" in line]


def test_every_public_method_has_a_case() -> None:
    named = {name for methods in OF_KIND.values() for name in methods}
    assert set(OBJECTIVES) <= named


@pytest.mark.parametrize("kind", KINDS)
def test_logitmix_trains_on_every_kind(kind: str, tmp_path: Path) -> None:
    nll, losses = trained(kind, "LogitMix(Mixup(alpha=3.0))", tmp_path)
    assert losses
    assert all(map(math.isfinite, [nll, *losses]))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "method"), [(kind, name) for kind, of in OF_KIND.items() for name in of])
def test_every_method_trains_to_a_finite_loss(kind: str, method: str, tmp_path: Path) -> None:
    nll, losses = trained(kind, OF_KIND[kind][method], tmp_path)
    assert losses
    assert all(map(math.isfinite, [nll, *losses]))
