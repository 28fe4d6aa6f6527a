"""What the small image recipes share at `cpu` and `night` scale, so that their trainings are shared too.

The common cell is a PreAct ResNet with one block a stage and 8 channels (78,000 weights). It is trained on 1,000 images
(CIFAR-100: 2,000) without augmentation for 20 epochs of SGD in batches of 64, which takes about half a minute on one
core. Plain training fits its training set there and is over-confident on the test set, which the papers' claims need.

The night cell (`night_cifar10`) is a PreAct ResNet-18 of width 16, trained on 10,000 images of CIFAR-10 with the
standard augmentation for 30 epochs. Recipes of three papers share its trainings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from vicinal.metrics import evaluate, top_k
from vicinal.papers.base import NOTHING, Data, Each, Network, Recipe, Scale, Settings, three_scales, where_printed
from vicinal.papers.calibratable import parts_of
from vicinal.papers.claims import FIRST_SEED, Contrast, pooled
from vicinal.papers.plots import bars
from vicinal.papers.results import Measured
from vicinal.papers.trained import Trained, metrics_of

#: PreAct ResNet-10 of width 8, as published in everything else.
TINY = {"PreAct ResNet-10": Network("preactresnet10", {"width": 8, "final_norm": False})}
NIGHT = {"PreAct ResNet-18": Network("preactresnet18", {"width": 16, "final_norm": False})}
PREACT = {"PreAct ResNet-18": Network("preactresnet18", {"final_norm": False})}

TRAINING: Settings = {
    "epochs": 20,
    "batch_size": 64,
    "channels_last": True,
    "eval_batch_size": 256,
    "optimizer": "sgd",
    "lr": 0.05,
    "nesterov": True,
    "weight_decay": 5e-4,
    "schedule": "cosine",
    "select": "accuracy",
    "eval_every": 2,
    "keep_predictions_at": [1, 5, 10, 20],
}
NIGHT_TRAINING: Settings = {**TRAINING, "epochs": 60, "keep_predictions_at": [1, 5, 20, 60]}

#: The night cell: all images are trained on, so its last epoch is measured.
NIGHT_CIFAR10 = {"CIFAR-10": Data("cifar10", {"train_size": 10_000, "val": 0, "augment": "standard"})}
NIGHT_CIFAR10_TRAINING: Settings = {**TRAINING, "epochs": 30, "select": "last", "keep_predictions_at": []}
NIGHT_CIFAR10_ABOUT = (
    "10,000 training images of CIFAR-10 with the standard augmentation, PreAct ResNet-18 of width 16, 30 epochs of SGD "
    "(0.05, cosine, weight decay 5e-4, batches of 64), the last epoch, 2,000 test images; the methods of the primary "
    "claims only."
)
NIGHT_CIFAR10_PILOT = "The night cell was sized by the time of a step, 0.27 s on one core; nothing was trained before."
#: Of one training on two cores: half of its processor minutes.
NIGHT_CIFAR10_MINUTES = 10.5

#: Z18 Section 3.2: 200 epochs from 0.1, divided by 10 after 100 and 150, batches of 128, weight decay 1e-4. The
#: authors' public code has no Nesterov momentum.
CIFAR: Settings = {
    "epochs": 200,
    "batch_size": 128,
    "optimizer": "sgd",
    "lr": 0.1,
    "nesterov": False,
    "schedule": "milestones",
    "milestones": [100, 150],
    "factor": 0.1,
    "weight_decay": 1e-4,
    "select": "last",
}

#: T19 Section 3.1: 200 epochs of Nesterov from 0.1, halved at 2, 60, 120 and 160, weight decay 5e-4.
T19_TRAINING: Settings = {
    "epochs": 200,
    "batch_size": 128,
    "optimizer": "sgd",
    "lr": 0.1,
    "nesterov": True,
    "schedule": "milestones",
    "milestones": [2, 60, 120, 160],
    "factor": 0.5,
    "weight_decay": 5e-4,
    "select": "accuracy",
}
T19_NETWORKS = {"VGG-16": Network("vgg16"), "ResNet-34": Network("resnet34")}
#: T19 Section 3.1: which sets, and which networks on each.
T19_SETS = ("cifar10", "cifar100", "fashion-mnist", "stl10")
T19_NETWORKS_OF = {
    "CIFAR-10": ("VGG-16", "ResNet-34"),
    "CIFAR-100": ("VGG-16", "ResNet-34"),
    "Fashion-MNIST": ("ResNet-18",),
    "STL-10": ("VGG-16",),
}

#: What the objectives that work on pixels are told of each data set, CIFAR's unless it is named.
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
STATISTICS = {
    "TinyImageNet": ((0.4802, 0.4481, 0.3975), (0.277, 0.2691, 0.2821)),
    "ILSVRC2015": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
#: What PuzzleMix's public code changes on a data set: the clean loss is added, and blocks move as they were cut.
PUZZLEMIX_OPTIONS = {"TinyImageNet": ", transport_blocks=2, clean_weight=1.0"}

#: L22 Section 5 trains as CutMix (Yun et al. 2019) does: 300 epochs from 0.25, divided by 10 at 150 and 225.
L22_TRAINING: Settings = {
    "epochs": 300,
    "batch_size": 64,
    "optimizer": "sgd",
    "lr": 0.25,
    "nesterov": True,
    "schedule": "milestones",
    "milestones": [150, 225],
    "factor": 0.1,
    "weight_decay": 1e-4,
    "select": "last",
}

#: L22 Section 5 trains PuzzleMix, and LogitMix over it, as PuzzleMix's public code does: 1,200 epochs on small images.
_PUZZLEMIX: Settings = {
    "epochs": 1200,
    "batch_size": 100,
    "nesterov": True,
    "schedule": "milestones",
    "factor": 0.1,
    "weight_decay": 1e-4,
}
PUZZLEMIX_TRAINING: Mapping[str, Settings] = {
    "CIFAR-100": {**_PUZZLEMIX, "lr": 0.1, "milestones": [400, 800]},
    "TinyImageNet": {**_PUZZLEMIX, "lr": 0.2, "milestones": [600, 900]},
}

#: All training images are trained on. The test set is ImageNet's val/.
IMAGENET = {"ImageNet": Data("imagenet", {"val": 0})}
#: `val="test"`: the test set chooses the epoch, or when to stop, as in T19. Such an epoch is called an oracle's.
ORACLE = "test"


def imagenet(epochs: int) -> dict[str, object]:
    """Return Z18 Section 3.1: batches of 1,024, warm-up to 0.4 in 5 epochs, divided by 10 at 30/60/80 of 90 epochs."""
    milestones = [30, 60, 80] if epochs == 90 else [60, 120, 180]
    return {
        "epochs": epochs,
        "batch_size": 1024,
        "optimizer": "sgd",
        "lr": 0.4,
        "nesterov": True,
        "weight_decay": 1e-4,
        "warmup_epochs": 5,
        "warmup_start": 0.1,
        "schedule": "milestones",
        "milestones": milestones,
        "select": "last",
    }


def on_imagenet(*, minutes: float, networks: Mapping[str, Network], about: str, **parts: Any) -> Scale:
    """Return a scale of five runs on ImageNet, of 90 epochs unless `parts` say otherwise."""
    defaults: Settings = {"training": imagenet(90), "data": IMAGENET, **parts}
    seeds = range(FIRST_SEED, FIRST_SEED + 5)
    return Scale(seeds=seeds, minutes=minutes, networks=networks, about=about, **defaults)


#: What was looked at before the sizes and rates were fixed.
PILOT = (
    "ERM alone, seeds 100 and 101, which no result uses: test errors of 64.5 and 65.5 % on CIFAR-10 (1,000 images), "
    "20.2 and 22.0 % on Fashion-MNIST (1,000), 89.3 and 89.8 % on CIFAR-100 (2,000); confidence exceeds accuracy by 36 "
    "and 37, 11 and 11, 16 and 28 points. A first look with 2,000 images of CIFAR-10 (seed 100: 60.5 %, 34 points) "
    "took twice the time, which decided for 1,000."
)

NIGHT_ABOUT = "Four times the images, PreAct ResNet-18 of width 16, 60 epochs; else as at cpu scale."
ABOUT = (
    "1,000 training images (CIFAR-100: 2,000; others for every seed) without augmentation, PreAct ResNet-10 of width "
    "8, 20 epochs of SGD "
    "(0.05, cosine, weight decay 5e-4, batches of 64)"
)


#: Of the paper scale, by what chooses the epoch.
_PAPER_ABOUT = {
    0: "The paper's own setting: all training images, the last epoch.",
    ORACLE: "The paper's own setting: all training images; the best epoch is an oracle's, chosen on the test set.",
}
#: Printed names; training and validation images at cpu scale. An epoch chosen on fewer images is mostly noise.
_SETS = {
    "cifar10": ("CIFAR-10", 1000, 2000),
    "cifar100": ("CIFAR-100", 2000, 2000),
    "fashion-mnist": ("Fashion-MNIST", 1000, 2000),
    "stl10": ("STL-10", 1000, 500),
}


def small(*sources: str, factor: int = 1) -> dict[str, Data]:
    """Return subsets of data sets, by their printed names; a factor makes them larger."""
    subsets = {}
    for source in sources:
        printed, train_size, val = _SETS[source]
        subsets[printed] = Data(source, {"train_size": factor * train_size, "val": val, "augment": "none"})
    return subsets


def whole(*sources: str, val: int | str = 0) -> dict[str, Data]:
    """Return data sets as published, with the standard augmentation; all training images are trained on."""
    return {_SETS[source][0]: Data(source, {"val": val}) for source in sources}


def night_cifar10() -> Settings:
    """Return data, networks and training of a scale that has the night cell."""
    return {"data": NIGHT_CIFAR10, "networks": NIGHT, "training": NIGHT_CIFAR10_TRAINING}


def is_night_cifar10(at: Scale) -> bool:
    """Return whether a scale has the night cell, and with it the methods of the primary claims alone."""
    return at.data == NIGHT_CIFAR10


def at_night(of: Mapping[str, Scale], *, methods: int) -> dict[str, Scale]:
    """Return the scales of a recipe with the night cell at `night`, for so many methods."""
    minutes = methods * len(of["night"].seeds) * NIGHT_CIFAR10_MINUTES
    night = dataclasses.replace(of["night"], **night_cifar10(), minutes=minutes, about=NIGHT_CIFAR10_ABOUT)
    return {**of, "night": night}


def scales(
    *sources: str,
    seeds: int,
    minutes: tuple[float, float, float],
    paper: Mapping[str, Network],
    paper_data: Sequence[str] | None = None,
    paper_training: Settings = CIFAR,
    paper_val: int | str = 0,
    paper_networks_of: Mapping[str, Sequence[str]] = NOTHING,
    settings: Each[Settings] = NOTHING,
) -> dict[str, Scale]:
    """Return the scales of a recipe on small images: the common cell, a larger one, and the paper's own setting."""
    return three_scales(
        seeds=seeds,
        minutes=minutes,
        data=(small(*sources), small(*sources, factor=4), whole(*(paper_data or sources), val=paper_val)),
        networks=(TINY, NIGHT, paper),
        networks_of=({}, {}, paper_networks_of),
        training=(TRAINING, NIGHT_TRAINING, paper_training),
        settings=settings,
        about=(ABOUT, NIGHT_ABOUT, _PAPER_ABOUT[paper_val]),
    )


def t19_scales(*, minutes: tuple[float, float, float]) -> dict[str, Scale]:
    """Return the scales of T19's figures on two small sets; at paper scale the sets and networks of Section 3.1."""
    return scales(
        "cifar10",
        "fashion-mnist",
        seeds=5,
        minutes=minutes,
        paper={**T19_NETWORKS, "ResNet-18": Network("resnet18")},
        paper_data=T19_SETS,
        paper_networks_of=T19_NETWORKS_OF,
        paper_training=T19_TRAINING,
        paper_val=ORACLE,
        settings=({}, {}, {MANY_BINS: 100}),
    )


def l22_scales(*, seeds: int, minutes: tuple[float, float, float], paper: Mapping[str, Network]) -> dict[str, Scale]:
    """Return the scales of L22's recipes, with ten bins: CIFAR-10 at cpu scale, and CIFAR-100 as in the paper above."""
    shared: Settings = {"paper": paper, "paper_training": L22_TRAINING, "settings": {"n_bins": 10}}
    few, many = (scales(source, seeds=seeds, minutes=minutes, **shared) for source in ("cifar10", "cifar100"))
    replaced = f"CIFAR-10 in place of CIFAR-100, of which 2,000 images leave an error of 89 %. {ABOUT}; the last epoch."
    larger: Settings = {"data": small("cifar100", factor=2), "networks": TINY, "training": TRAINING}
    return {
        "cpu": dataclasses.replace(few["cpu"], about=replaced),
        "night": dataclasses.replace(many["night"], **larger, about="CIFAR-100, 4,000 images; else as at cpu scale."),
        "paper": dataclasses.replace(
            many["paper"], about="The paper's network and CutMix's training, of its last epoch."
        ),
    }


def puzzlemix(data: str) -> str:
    """Return PuzzleMix with the statistics of a data set and the options of its public code."""
    mean, std = STATISTICS.get(data, (CIFAR_MEAN, CIFAR_STD))
    return f"PuzzleMix(alpha=1.0, mean={mean}, std={std}{PUZZLEMIX_OPTIONS.get(data, '')})"


def puzzlemix_training(data: str, at: Scale) -> Settings:
    """Return what PuzzleMix's training changes on a data set: nothing below the scale of L22's own training."""
    return PUZZLEMIX_TRAINING.get(data, {}) if at.training["epochs"] == L22_TRAINING["epochs"] else {}


#: What the tables of recipes show that are about errors, and about calibration.
ERRORS = {"error": "error (%)", "nll": "NLL", "ece": "ECE (%), 15 bins"}
COLUMNS = {"error": "error (%)", "ece": "ECE (%), 15 bins", "oe": "OE (%), 15 bins", "gap": "confidence − accuracy (%)"}


#: What T19's tables show of the best epoch.
BEST = {f"best {name}": f"{COLUMNS[name].partition(' (')[0]} of the best epoch (%)" for name in ("error", "ece", "oe")}


def selected(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Measure the epoch with the best validation accuracy on the test set (T19 Section 3.1)."""
    return {**metrics_of(trained[0].test(n_bins=settings.get("n_bins", 15))), **parts_of(*trained[0].test_logits())}


def both_epochs(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Measure the last epoch on the test set and, as `best …`, the one with the best validation accuracy."""
    run, n_bins = trained[0], settings.get("n_bins", 15)
    measured: Measured = {}
    if run.result.experiment.training.get("select") != "last":
        measured = {f"best {name}": value for name, value in metrics_of(run.test(n_bins=n_bins)).items()}
        if MANY_BINS in settings:
            measured |= {f"best {name}": value for name, value in many_bins(*run.test_logits(), settings).items()}
    measured |= metrics_of(run.test_of_last(n_bins=n_bins)) | parts_of(*run.last_logits)
    return {**measured, **(many_bins(*run.last_logits, settings) if MANY_BINS in settings else {})}


#: The setting of as many bins as T19's authors' code has, 100. Its scatter plots show them.
MANY_BINS = "many bins"


def many_bins(logits: Tensor, labels: Tensor, settings: Settings) -> Measured:
    """Return ECE and OE of many bins, and confidence, accuracy and share of each bin that is not empty."""
    evaluation = evaluate(labels, logits=logits, n_bins=settings[MANY_BINS])
    table = evaluation.table
    filled = table.bin_count > 0
    rows = (table.bin_confidence, table.bin_accuracy, table.bin_count / table.n)
    found: Measured = {"ece 100": evaluation.ece, "oe 100": evaluation.oe}
    return {**found, "bins": [values[filled].tolist() for values in rows]}


def last_epoch(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Measure the last epoch on the test set, and the validation error of every epoch."""
    logits, labels = trained[0].last_logits
    evaluation = trained[0].test_of_last(n_bins=settings.get("n_bins", 15))
    metrics: Measured = {**metrics_of(evaluation), **parts_of(logits, labels)}
    if settings.get("top-5"):
        metrics["top-5"] = 1 - top_k(labels, 5, logits=logits)
    return {**metrics, "course": [1 - line["val_accuracy"] for line in trained[0].history if "val_accuracy" in line]}


def z18_table(**parts: Any) -> Recipe:
    """Return a recipe of Z18 about the errors of the last epoch, which `parts` make up or change."""
    drawn = bars({"error": "error (%)"})
    return Recipe(**{"measure": last_epoch, "columns": ERRORS, "draw": drawn, "pilot": PILOT, **parts})


def t19_figure(**parts: Any) -> Recipe:
    """Return a recipe of T19 about calibration, of the last and of the best epoch, which `parts` make up or change."""
    drawn = bars({"ece": "ECE (%)", "oe": "OE (%)"}, scatter="bins")
    columns = {**COLUMNS, **BEST, "ece 100": "ECE (%), 100 bins", "oe 100": "OE (%), 100 bins"}
    defaults = {"measure": both_epochs, "columns": columns, "draw": drawn, "pilot": PILOT, "curves": ("bins",)}
    return Recipe(**{**defaults, **parts})


class Epoch(NamedTuple):
    """An epoch of which a metric is claimed."""

    prefix: str
    """Of the metric's name."""
    said: str
    """In a claim's text, if it is not the epoch of the primary claims."""


def claimed_epochs(at: Scale) -> tuple[Epoch, Epoch]:
    """Return the epoch of the primary claims of T19, and the other one.

    The primary one is the last where validation images are few. The paper's own is the best on its test set.
    """
    last, best = Epoch("", " of the last epoch"), Epoch("best ", " of the best epoch")
    oracle = any(of.options.get("val") == ORACLE for of in at.data.values())
    return (best, last) if oracle and at.training["select"] != "last" else (last, best)


def pooled_fall(at: Scale, name: str, higher: str, lower: str) -> Contrast:
    """Return how far a metric falls from one method to another, as the mean over a scale's data and networks."""
    return pooled([on.fall(name, higher, lower) for on in at.pairs()])


#: Where L22 prints metrics.
L22_COLUMNS = {"error": ("accuracy (%)", "accuracy"), "ece": ("ECE", "share"), "oe": ("OE", "share")}


def l22_printed(rows: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Return what L22 prints of each row: the accuracy (%) and, where they are given, ECE and OE."""
    return {name: dict(zip(("accuracy (%)", "ECE", "OE"), row, strict=False)) for name, row in rows.items()}


def l22_table(**parts: Any) -> Recipe:
    """Return a recipe of L22 about the last epoch, measured with ten bins, which `parts` make up or change."""
    columns = {name: title.replace("15 bins", "10 bins") for name, title in COLUMNS.items()}
    drawn = bars({"error": "error (%)", "ece": "ECE (%)"})
    defaults = {"measure": last_epoch, "columns": columns, "draw": drawn, "pilot": PILOT}
    return Recipe(**{**defaults, "printed": where_printed(lambda key: key[-1], L22_COLUMNS), **parts})
