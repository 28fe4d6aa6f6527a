"""W21 Table 2: IMDb with 32 examples, and with all."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.papers import texts
from vicinal.papers.base import Data, Place, Scale, three
from vicinal.papers.claims import Claim
from vicinal.papers.texts import BASE, CLS, INPUT, MANIFOLD

FEW, MORE, ALL = "IMDb, 32 examples", "IMDb, 4,000 examples", "IMDb"
#: Accuracy, loss and ECE, all times 100.
PAPER = {
    FEW: {
        BASE: three("68.2±1.6 180±19 29.0±1.5"),
        CLS: three("69.6±1.7 86±4 21.0±2.8"),
        INPUT: three("70.8±1.2 61±7 8.9±2.3"),
        MANIFOLD: three("72.3±1.0 55±2 3.4±0.9"),
    },
    ALL: {
        BASE: three("91.8±0.1 61±8 7.7±0.1"),
        CLS: three("92.0±0.1 29±1 5.8±0.2"),
        INPUT: three("92.1±0.1 37±2 6.8±0.2"),
        MANIFOLD: three("91.8±0.1 27±1 4.4±0.6"),
    },
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
    cpu=texts.Below(
        data={FEW: Data("imdb", {**texts.SUBSET, "val": 0, "max_length": 64, "max_held_out": 1000})},
        training={"steps": 32},
        minutes=12,
        about="MiniLM, 32 steps at 1e-4, the first 64 tokens, 1,000 test reviews (others for every seed).",
    ),
    night=texts.Below(
        data={MORE: Data("imdb", {"train_size": 4000, "val": 0, "max_length": 128, "max_held_out": 2000})},
        training={"epochs": 3},
        minutes=100,
        about="MiniLM, 4,000 reviews, three epochs at 1e-4, 128 tokens, 2,000 test reviews.",
        seeds=3,
        looks=(3, 5, 10, 20),
    ),
    minutes=1_000,
    rate=1e-5,
    chosen_on="3,200 reviews",
    reading=(
        "As in Table 3, optimiser and Manifold's layers are not named. With 32 examples the claim is that accuracy "
        "rises, with more that it does not fall: the paper's gains there are 0 to 0.3 points.",
    ),
    pilot=texts.PILOT,
)
