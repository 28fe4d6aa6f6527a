"""Z18 Table 2: memorisation of corrupted labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from vicinal.metrics import Estimate
from vicinal.metrics.intervals import clopper_pearson
from vicinal.papers import images
from vicinal.papers.base import Data, Method, Place, Printed, Recipe, Scale, Settings, three_scales
from vicinal.papers.claims import Claim, Key, Pair
from vicinal.papers.plots import bars
from vicinal.probes.label_noise import best_and_last

if TYPE_CHECKING:
    from vicinal.papers.results import Measured
    from vicinal.papers.trained import Trained

ERM, DROPOUT, MIXUP = "ERM", "ERM + dropout", "mixup"
#: The share of corrupted labels, mixup's α and the paper's dropout.
LEVELS = {"20 %": (0.2, 8.0, 0.7), "50 %": (0.5, 32.0, 0.8), "80 %": (0.8, 32.0, 0.8)}
#: The best and the last test error, the training errors on real and on corrupted labels (%).
PAPER = {
    "20 %": {ERM: (12.7, 16.6, 0.05, 0.28), DROPOUT: (8.8, 10.4, 5.26, 83.55), MIXUP: (5.9, 6.4, 2.27, 86.32)},
    "50 %": {ERM: (18.8, 44.6, 0.26, 0.64), DROPOUT: (14.1, 15.5, 12.71, 86.98), MIXUP: (11.3, 12.7, 5.84, 85.71)},
    "80 %": {ERM: (36.5, 73.9, 0.62, 0.83), DROPOUT: (30.9, 35.1, 29.84, 86.37), MIXUP: (25.3, 30.9, 18.92, 85.44)},
}
METRICS = ("best", "last", "real", "corrupted")


def levels(options: Settings) -> dict[str, Data]:
    return {name: Data("cifar10", options, corrupt=share) for name, (share, _, _) in LEVELS.items()}


#: Section 3.4: what α and dropout were chosen from.
GRID = {"α": (1.0, 2.0, 8.0, 32.0), "dropout": (0.5, 0.7, 0.8, 0.9)}


def methods(on: Pair, at: Scale) -> dict[str, Method]:
    """Return the rows of the table and, at paper scale, the rest of the grids that they were chosen from."""
    _, alpha, dropout = LEVELS[on.data]
    rows = {
        ERM: Method("ERM()"),
        DROPOUT: Method("ERM()", {"dropout": at.settings.get("dropout", dropout)}),
        MIXUP: Method(f"Mixup(alpha={alpha})"),
    }
    if at.settings.get("grid"):
        rows |= {f"{DROPOUT}, p = {p:g}": Method("ERM()", {"dropout": p}) for p in GRID["dropout"] if p != dropout}
        rows |= {f"{MIXUP}, α = {a:g}": Method(f"Mixup(alpha={a})") for a in GRID["α"] if a != alpha}
    return rows


def published() -> Iterator[tuple[str, dict[str, float]]]:
    for level, (_, alpha, dropout) in LEVELS.items():
        for method, name in ((ERM, "ERM"), (DROPOUT, f"dropout {dropout}"), (MIXUP, f"mixup α = {alpha:g}")):
            yield f"{level}, {name}", dict(zip(METRICS, PAPER[level][method], strict=True))


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the best and the last error on held-out images with true labels, and the last training errors.

    The best is chosen by the images it is measured on: an oracle's, as in the paper.
    """
    errors = [1 - line["val_accuracy"] for line in trained[0].history if "val_accuracy" in line]
    seen, noise = best_and_last(errors), trained[0].label_noise["last"]
    train, corrupted = len(trained[0].task.train), trained[0].result.experiment.corrupt
    counts = {"best": len(trained[0].task.val), "last": len(trained[0].task.val)}
    counts |= {"real": round((1 - corrupted) * train), "corrupted": round(corrupted * train)}
    shares = {"best": seen.best, "last": seen.last, "real": noise["train_real"], "corrupted": noise["train_corrupted"]}
    metrics = {name: _share(share, counts[name]) for name, share in shares.items()}
    return {**metrics, "course": errors}


def _share(share: float, n: int) -> Estimate:
    low, high = clopper_pearson(share * n, n)
    return Estimate(share, float(low), float(high))


def paper(metric: str, higher: str, lower: str, level: str) -> float:
    """Return the paper's contrast of two methods."""
    column = METRICS.index(metric)
    return (PAPER[level][higher][column] - PAPER[level][lower][column]) / 100


#: Text, metric, and the methods with the higher and the lower value.
HEADLINES = (
    ("mixup's last error is below ERM's", "last", ERM, MIXUP),
    ("mixup's last error is below dropout's", "last", DROPOUT, MIXUP),
    ("mixup fits fewer corrupted labels than ERM", "corrupted", MIXUP, ERM),
)
BY_LEVEL = (
    ("mixup's last error is below dropout's", "last", DROPOUT, MIXUP),
    ("mixup's best error is below dropout's", "best", DROPOUT, MIXUP),
    ("dropout's last error is below ERM's", "last", ERM, DROPOUT),
    ("mixup fits fewer corrupted labels than ERM", "corrupted", MIXUP, ERM),
)


def claims(at: Scale) -> Iterable[Claim]:
    for text, metric, higher, lower in HEADLINES:
        papers = [paper(metric, higher, lower, level) for level in LEVELS]
        falls = images.pooled_fall(at, metric, higher, lower)
        yield Claim(f"{text}, on average", falls, primary=True, paper=sum(papers) / len(papers))
    for on in at.pairs():
        for text, metric, higher, lower in BY_LEVEL:
            falls = on.fall(metric, higher, lower)
            yield Claim(f"{on.data}: {text}", falls, paper=paper(metric, higher, lower, on.data))
        best, last, *_ = PAPER[on.data][ERM]
        yield Claim(
            f"{on.data}: ERM's last error is more than a point above its best",
            on.metric("last", ERM) - on.metric("best", ERM),
            threshold=0.01,
            paper=(last - best) / 100,
        )


TRAINING = {**images.TRAINING, "epochs": 160, "weight_decay": 1e-4, "keep_predictions_at": []}


def row_printed(key: Key) -> dict[str, Printed]:
    if key[-1] not in (ERM, DROPOUT, MIXUP):  # the rest of the grid
        return {}
    row = next(name for name in RECIPE.published if name.startswith(f"{key[0]}, {key[-1].removeprefix('ERM + ')}"))
    return {name: Printed(row, name) for name in METRICS}


RECIPE = Recipe(
    place=Place("Z18", "Table 2", "Memorisation of corrupted labels"),
    methods=methods,
    measure=measure,
    claims=claims,
    columns={
        "best": "best error, oracle (%)",
        "last": "last error (%)",
        "real": "training error, real labels (%)",
        "corrupted": "training error, corrupted labels (%)",
    },
    published=dict(published()),
    scales=three_scales(
        seeds=5,
        minutes=(65, 3_600, 90_000),
        data=(
            levels({"train_size": 1000, "val": 2000, "augment": "none"}),
            levels({"train_size": 4000, "val": 2000, "augment": "none"}),
            levels({"val": images.ORACLE}),
        ),
        networks=(images.TINY, images.NIGHT, images.PREACT),
        training=(TRAINING, TRAINING, {**images.CIFAR, "eval_every": 1}),
        settings=({"dropout": 0.5}, {}, {"grid": True}),
        about=(
            "1,000 training images without augmentation, PreAct ResNet-10 of width 8, 160 epochs (0.05, cosine, "
            "weight decay 1e-4), errors on 2,000 held-out images. Dropout is 0.5, the least of the paper's grid: 0.7 "
            "leaves two of eight channels.",
            "4,000 images, PreAct ResNet-18 of width 16; else as at cpu scale.",
            "200 epochs on all of CIFAR-10; errors on the test set after every epoch, the best of them an oracle's.",
        ),
    ),
    printed=row_printed,
    draw=bars({"last": "last error (%)", "corrupted": "training error on corrupted labels (%)"}),
    reading=(
        "α and dropout are the best of the paper's grids for each level, as its table names them. Errors are on "
        "held-out images with true labels that training never sees; the best epoch is chosen on the same images, as "
        "in the paper. No last error is below the best of its own course, so ERM's is asked to be more than a point "
        "above.",
        "A corrupted label is drawn over all ten classes, the true one included, so a model that ignores the noise "
        "has a training error of 90 % on corrupted labels, not 100 %.",
    ),
    pilot=(
        "Without mixup, seed 100, which no result uses, 40 epochs and 1,000 held-out images: ERM fits all of its "
        "training labels, corrupted ones included, and ends at 72, 83 and 86 % test error with 20, 50 and 80 % of the "
        "labels corrupted, 0.5, 8.9 and 1.3 points above its best; with dropout it ends at 66, 72 and 82 %."
    ),
)
