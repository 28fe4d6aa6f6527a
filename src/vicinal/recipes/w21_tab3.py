"""W21 Table 3: AG News with 32 examples, and with all."""

from __future__ import annotations

from vicinal.recipes import images, texts
from vicinal.recipes.base import Data, Recipe, Scale
from vicinal.recipes.drawing import bars
from vicinal.recipes.texts import BASE, CLS, INPUT, MANIFOLD

FEW, ALL = "AG News, 32 examples", "AG News"
#: Accuracy, loss and ECE, all times 100.
PAPER = {
    FEW: {BASE: (81.9, 72, 9.9), CLS: (83.4, 55, 7.2), INPUT: (82.9, 53, 6.2), MANIFOLD: (82.3, 52, 4.8)},
    ALL: {BASE: (93.7, 36, 5.0), CLS: (93.7, 28, 4.3), INPUT: (93.8, 25, 4.1), MANIFOLD: (93.7, 23, 3.0)},
}
SUBSET = {"train_size": 32, "subset": "random"}
#: Table 6.
TRAINING = {"epochs": 10, "batch_size": 16, "lr": 2e-5, "select": "accuracy"}

RECIPE = Recipe(
    paper="W21",
    place="Table 3",
    title="AG News with few examples",
    methods=lambda data, at: texts.w21_methods(1.0, at.settings["layers"]),
    measure=images.selected,
    claims=texts.w21_claims(PAPER),
    columns=texts.COLUMNS,
    published={
        f"{data}, {name}": {"accuracy": accuracy, "loss": loss, "ECE": ece}
        for data, rows in PAPER.items()
        for name, (accuracy, loss, ece) in rows.items()
    },
    scales={
        "cpu": Scale(
            seeds=range(5),
            minutes=6,
            data={FEW: Data("agnews", {**SUBSET, "val": 0, "max_length": 48, "max_held_out": 400})},
            networks=texts.MINILM,
            training={**texts.TRAINING, "steps": 60},
            settings={"layers": 6},
            about="MiniLM, 60 steps at 3e-4, at most 48 tokens, 400 test items (others for every seed).",
        ),
        "night": Scale(
            seeds=range(5),
            minutes=90,
            data={FEW: Data("agnews", {**SUBSET, "val": 0, "max_length": 128})},
            networks=texts.MINILM,
            training={**texts.TRAINING, "steps": 60},
            settings={"layers": 6},
            about="MiniLM, 60 steps at 3e-4, 128 tokens, the whole test set.",
        ),
        "paper": Scale(
            seeds=range(5),
            minutes=2_000,
            data={
                FEW: Data("agnews:w21", {**SUBSET, "max_length": 128}),
                ALL: Data("agnews:w21", {"max_length": 128}),
            },
            networks=texts.BERT,
            training=TRAINING,
            settings={"layers": 12},
            about="BERT-base, 10 epochs at 2e-5, the epoch with the best accuracy on 2,400 items of the test set.",
        ),
    },
    draw=bars({"nll": "NLL", "ece": "ECE (%)", "error": "error (%)"}),
    reading=(
        "The optimiser is not named (AdamW), nor are the layers that Manifold MixUp draws from (the embeddings and all "
        "encoder layers). Losses and ECE are printed times 100. The remark in Section 2.1 that a lower α makes λ and "
        "1 − λ more even is backwards: a higher one does.",
    ),
    pilot=texts.PILOT,
)
