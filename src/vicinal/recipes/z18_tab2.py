"""Z18 Table 2: memorisation of corrupted labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vicinal.metrics import Estimate
from vicinal.metrics.intervals import clopper_pearson
from vicinal.probes.label_noise import best_and_last
from vicinal.recipes import images
from vicinal.recipes.base import Data, Method, Recipe, Scale, Settings
from vicinal.recipes.claims import Claim, Contrast, figure
from vicinal.recipes.drawing import bars

if TYPE_CHECKING:
    from vicinal.recipes.results import Measured
    from vicinal.recipes.trained import Trained

ERM, DROPOUT, MIXUP = "ERM", "ERM + dropout", "mixup"
#: By the share of corrupted labels: mixup's α, the paper's dropout, its last errors of ERM, dropout and mixup, ERM's
#: best error, and the training errors of ERM and mixup on corrupted labels.
LEVELS: dict[str, Settings] = {
    "20 %": {
        "share": 0.2,
        "alpha": 8.0,
        "dropout": 0.7,
        "last": (16.6, 10.4, 6.4),
        "best": 12.7,
        "corrupted": (0.28, 86.32),
    },
    "50 %": {
        "share": 0.5,
        "alpha": 32.0,
        "dropout": 0.8,
        "last": (44.6, 15.5, 12.7),
        "best": 18.8,
        "corrupted": (0.64, 85.71),
    },
    "80 %": {
        "share": 0.8,
        "alpha": 32.0,
        "dropout": 0.8,
        "last": (73.9, 35.1, 30.9),
        "best": 36.5,
        "corrupted": (0.83, 85.44),
    },
}


def levels(options: Settings) -> dict[str, Data]:
    return {name: Data("cifar10", options, corrupt=level["share"]) for name, level in LEVELS.items()}


def methods(level: str, at: Scale) -> dict[str, Method]:
    return {
        ERM: Method("ERM()"),
        DROPOUT: Method("ERM()", {"dropout": at.settings.get("dropout", LEVELS[level]["dropout"])}),
        MIXUP: Method(f"Mixup(alpha={LEVELS[level]['alpha']})"),
    }


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the best and the last error on held-out images with true labels, and the last training errors.

    The best is chosen by the images it is measured on: an oracle's, as in the paper.
    """
    errors = [1 - line["val_accuracy"] for line in trained[0].history if "val_accuracy" in line]
    seen, noise = best_and_last(errors), trained[0].label_noise["last"]
    train, corrupted = len(trained[0].task.train), trained[0].outcome.experiment.corrupt
    counts = {"best": len(trained[0].task.val), "last": len(trained[0].task.val)}
    counts |= {"real": round((1 - corrupted) * train), "corrupted": round(corrupted * train)}
    shares = {"best": seen.best, "last": seen.last, "real": noise["train_real"], "corrupted": noise["train_corrupted"]}
    figures = {name: _share(share, counts[name]) for name, share in shares.items()}
    return {**figures, "course": errors}


def _share(share: float, n: int) -> Estimate:
    low, high = clopper_pearson(share * n, n)
    return Estimate(share, float(low), float(high))


def claims(at: Scale) -> Iterable[Claim]:
    for data, network in at.pairs():
        erm, dropout, mixup = LEVELS[data]["last"]
        learned, resisted = LEVELS[data]["corrupted"]

        def last(method: str, name: str = "last", data: str = data, network: str = network) -> Contrast:
            return figure(name, data, network, method)

        yield Claim(
            text=f"{data}: mixup's last error is below dropout's",
            contrast=last(DROPOUT) - last(MIXUP),
            paper=(dropout - mixup) / 100,
        )
        yield Claim(
            text=f"{data}: dropout's last error is below ERM's",
            contrast=last(ERM) - last(DROPOUT),
            paper=(erm - dropout) / 100,
        )
        yield Claim(
            text=f"{data}: ERM's last error is more than a point above its best",
            contrast=last(ERM) - last(ERM, "best"),
            margin=-0.01,
            paper=(erm - LEVELS[data]["best"]) / 100,
        )
        yield Claim(
            text=f"{data}: mixup learns fewer corrupted labels by heart than ERM",
            contrast=last(MIXUP, "corrupted") - last(ERM, "corrupted"),
            paper=(resisted - learned) / 100,
        )


TRAINING = {
    **images.TRAINING,
    "epochs": 40,
    "weight_decay": 1e-4,
    "keep_predictions_at": [],
}

RECIPE = Recipe(
    paper="Z18",
    place="Table 2",
    title="Memorisation of corrupted labels",
    methods=methods,
    measure=measure,
    claims=claims,
    columns={
        "best": "best error, oracle (%)",
        "last": "last error (%)",
        "real": "training error, real labels (%)",
        "corrupted": "training error, corrupted labels (%)",
    },
    published={
        "20 %, ERM": {"best": 12.7, "last": 16.6, "real": 0.05, "corrupted": 0.28},
        "20 %, dropout 0.7": {"best": 8.8, "last": 10.4, "real": 5.26, "corrupted": 83.55},
        "20 %, mixup α = 8": {"best": 5.9, "last": 6.4, "real": 2.27, "corrupted": 86.32},
        "50 %, ERM": {"best": 18.8, "last": 44.6, "real": 0.26, "corrupted": 0.64},
        "50 %, dropout 0.8": {"best": 14.1, "last": 15.5, "real": 12.71, "corrupted": 86.98},
        "50 %, mixup α = 32": {"best": 11.3, "last": 12.7, "real": 5.84, "corrupted": 85.71},
        "80 %, ERM": {"best": 36.5, "last": 73.9, "real": 0.62, "corrupted": 0.83},
        "80 %, dropout 0.8": {"best": 30.9, "last": 35.1, "real": 29.84, "corrupted": 86.37},
        "80 %, mixup α = 32": {"best": 25.3, "last": 30.9, "real": 18.92, "corrupted": 85.44},
    },
    scales={
        "cpu": Scale(
            seeds=range(3),
            minutes=10,
            data=levels({"train_size": 1000, "val": 1000, "augment": "none"}),
            networks=images.TINY,
            training=TRAINING,
            settings={"dropout": 0.5},
            about="1,000 training images without augmentation, PreAct ResNet-10 of width 8, 40 epochs (0.05, cosine, "
            "weight decay 1e-4). Dropout is 0.5, the least of the paper's grid: 0.7 leaves two of eight channels.",
        ),
        "night": Scale(
            seeds=range(5),
            minutes=120,
            data=levels({"train_size": 4000, "val": 1000, "augment": "none"}),
            networks=images.NIGHT,
            training={**TRAINING, "epochs": 80},
            about="4,000 images, PreAct ResNet-18 of width 16, 80 epochs.",
        ),
        "paper": Scale(
            seeds=range(1),
            minutes=6_000,
            data=levels({"val": 5000}),
            networks=images.PREACT,
            training={**images.CIFAR, "eval_every": 1},
            about="200 epochs on CIFAR-10; errors on 5,000 held-out images in place of the test set.",
        ),
    },
    draw=bars({"last": "last error (%)", "corrupted": "training error on corrupted labels (%)"}),
    reading=(
        "α and dropout are the best of the paper's grids for each level, as its table names them. Errors are on "
        "held-out images with true labels that training never sees; the best epoch is chosen on the same images, as "
        "in the paper. No last error is below the best of its own course, so ERM's is asked to be more than a point "
        "above.",
        "A corrupted label is drawn over all ten classes, the true one included, so a model that ignores the noise "
        "has a "
        "training error of 90 % on corrupted labels, not 100 %.",
    ),
    pilot=(
        "Without mixup, seed 100, which no result uses: ERM learns all of its training labels by heart (0 % training "
        "error, corrupted labels included) and ends at 72, 83 and 86 % test error with 20, 50 and 80 % of the labels "
        "corrupted, 0.5, 8.9 and 1.3 points above its best; with dropout it ends at 66, 72 and 82 %."
    ),
)
