"""W21 Table 3: AG News with 32 examples, and with all."""

from __future__ import annotations

from vicinal.papers import texts
from vicinal.papers.base import Data, Place, three
from vicinal.papers.texts import BASE, CLS, INPUT, MANIFOLD

FEW, ALL = "AG News, 32 examples", "AG News"
#: Accuracy, loss and ECE, all times 100.
PAPER = {
    FEW: {
        BASE: three("81.9±0.6 72±9 9.9±1.9"),
        CLS: three("83.4±0.6 55±2 7.2±0.7"),
        INPUT: three("82.9±0.3 53±2 6.2±2.4"),
        MANIFOLD: three("82.3±0.4 52±1 4.8±1.8"),
    },
    ALL: {
        BASE: three("93.7±0.1 36±7 5.0±0.6"),
        CLS: three("93.7±0.1 28±1 4.3±0.3"),
        INPUT: three("93.8±0.1 25±1 4.1±0.3"),
        MANIFOLD: three("93.7±0.1 23±5 3.0±0.2"),
    },
}

RECIPE = texts.w21_table(
    place=Place("W21", "Table 3", "AG News with few examples"),
    source="agnews",
    paper=PAPER,
    cpu=texts.Below(
        data={FEW: Data("agnews", {**texts.SUBSET, "val": 0, "max_length": 48, "max_held_out": 1000})},
        training={"steps": 60},
        minutes=8,
        about="MiniLM, 60 steps at 1e-4, at most 48 tokens, 1,000 test items (others for every seed).",
    ),
    night=texts.Below(
        data={FEW: Data("agnews", {**texts.SUBSET, "val": 0, "max_length": 128})},
        training={"steps": 60},
        minutes=60,
        about="MiniLM, 60 steps at 1e-4, 128 tokens, the whole test set.",
    ),
    minutes=2_000,
    rate=2e-5,
    chosen_on="2,400 items",
    reading=(
        "The optimiser is not named (AdamW), nor are the layers that Manifold MixUp draws from (the embeddings and all "
        "encoder layers). Losses and ECE are printed times 100. The remark in Section 2.1 that a lower α makes λ and "
        "1 − λ more even is backwards: a higher one does.",
    ),
    pilot=texts.PILOT,
)
