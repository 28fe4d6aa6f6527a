"""W21 Table 3: AG News with 32 examples, and with all."""

from __future__ import annotations

from vicinal.papers import texts
from vicinal.papers.base import Data, Place
from vicinal.papers.texts import BASE, CLS, INPUT, MANIFOLD

FEW, ALL = "AG News, 32 examples", "AG News"
#: Accuracy, loss and ECE, all times 100.
PAPER = {
    FEW: {BASE: (81.9, 72, 9.9), CLS: (83.4, 55, 7.2), INPUT: (82.9, 53, 6.2), MANIFOLD: (82.3, 52, 4.8)},
    ALL: {BASE: (93.7, 36, 5.0), CLS: (93.7, 28, 4.3), INPUT: (93.8, 25, 4.1), MANIFOLD: (93.7, 23, 3.0)},
}

RECIPE = texts.w21_table(
    place=Place("W21", "Table 3", "AG News with few examples"),
    source="agnews",
    paper=PAPER,
    minutes=(8, 60, 2_000),
    here={"max_length": 48, "max_held_out": 1000},
    steps=60,
    night={FEW: Data("agnews", {**texts.SUBSET, "val": 0, "max_length": 128})},
    night_training={"steps": 60},
    rate=2e-5,
    chosen_on="2,400 items",
    about=(
        "MiniLM, 60 steps at 1e-4, at most 48 tokens, 1,000 test items (others for every seed).",
        "MiniLM, 60 steps at 1e-4, 128 tokens, the whole test set.",
    ),
    reading=(
        "The optimiser is not named (AdamW), nor are the layers that Manifold MixUp draws from (the embeddings and all "
        "encoder layers). Losses and ECE are printed times 100. The remark in Section 2.1 that a lower α makes λ and "
        "1 − λ more even is backwards: a higher one does.",
    ),
    pilot=texts.PILOT,
)
