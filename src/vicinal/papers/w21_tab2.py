"""W21 Table 2: IMDb with 32 examples, and with all."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.papers import texts
from vicinal.papers.base import Data, Place, Scale
from vicinal.papers.claims import LOOKS, Claim
from vicinal.papers.texts import BASE, CLS, INPUT, MANIFOLD

FEW, MORE, ALL = "IMDb, 32 examples", "IMDb, 4,000 examples", "IMDb"
#: Accuracy, loss and ECE, all times 100.
PAPER = {
    FEW: {BASE: (68.2, 180, 29.0), CLS: (69.6, 86, 21.0), INPUT: (70.8, 61, 8.9), MANIFOLD: (72.3, 55, 3.4)},
    ALL: {BASE: (91.8, 61, 7.7), CLS: (92.0, 29, 5.8), INPUT: (92.1, 37, 6.8), MANIFOLD: (91.8, 27, 4.4)},
}
#: 4,000 examples stand beside the paper's 25,000.
BESIDE = {**PAPER, MORE: PAPER[ALL]}


def claims(at: Scale) -> Iterable[Claim]:
    yield from texts.w21_claims(BESIDE)(at)
    for on in at.pairs():
        yield Claim(
            f"{on}: Mani's ECE is below that of CLS",
            on.fall("ece", CLS, MANIFOLD),
            paper=(BESIDE[on.data][CLS][2] - BESIDE[on.data][MANIFOLD][2]) / 100,
            overconfident=[on.cell(BASE)],
        )


RECIPE = texts.w21_table(
    place=Place("W21", "Table 2", "IMDb with few examples"),
    source="imdb",
    paper=PAPER,
    claims=claims,
    seeds=(5, 3, 5),
    looks=(LOOKS, (3, 5, 10, 20), LOOKS),
    minutes=(12, 100, 1_000),
    here={"max_length": 64, "max_held_out": 1000},
    steps=32,
    night={MORE: Data("imdb", {"train_size": 4000, "val": 0, "max_length": 128, "max_held_out": 2000})},
    night_training={"epochs": 3},
    rate=1e-5,
    chosen_on="3,200 reviews",
    about=(
        "MiniLM, 32 steps at 1e-4, the first 64 tokens, 1,000 test reviews (others for every seed).",
        "MiniLM, 4,000 reviews, three epochs at 1e-4, 128 tokens, 2,000 test reviews.",
    ),
    reading=(
        "As in Table 3, optimiser and Manifold's layers are not named. With 32 examples the claim is that accuracy "
        "rises, with more that it does not fall: the paper's gains there are 0 to 0.3 points.",
    ),
    pilot=texts.PILOT,
)
