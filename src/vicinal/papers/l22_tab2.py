"""L22 Table 2: accuracy and calibration of mixing methods, with LogitMix and without."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from statistics import mean

from vicinal.papers import images
from vicinal.papers.base import Data, Method, Network, Place, Scale, where_printed
from vicinal.papers.claims import Claim, Key, Pair, pooled
from vicinal.papers.plots import bars
from vicinal.papers.published_l22 import CUTMIX, MANIFOLD, MIXUP, PAPER, PUZZLE, VANILLA, over

LAYERS = "layers=('input', 'layer1', 'layer2')"
#: The base on its own, and LogitMix over it.
BASES = {
    MIXUP: ("Mixup(alpha=0.4)", "LogitMix(Mixup(alpha=3.0))"),
    CUTMIX: ("CutMix(alpha=1.0, prob=0.5)", "LogitMix(CutMix(alpha=3.0, prob=0.5))"),
    PUZZLE: ("PuzzleMix()", "LogitMix(PuzzleMix())"),
    MANIFOLD: (f"ManifoldMixup(alpha=2.0, {LAYERS})", f"LogitMix(ManifoldMixup(alpha=2.0, {LAYERS}))"),
}


def bases(at: Scale) -> list[str]:
    """Return the bases of a scale: Manifold Mixup is not in the table, and PuzzleMix costs too much at night."""
    if images.is_night_cifar10(at):
        return [MIXUP, CUTMIX]
    return [MIXUP, CUTMIX, PUZZLE] if "MobileNetV2" in at.networks else list(BASES)


def methods(on: Pair, at: Scale) -> dict[str, Method]:
    by_name = {VANILLA: Method("ERM()")}
    for name in bases(at):
        alone, above = (text.replace("PuzzleMix()", images.puzzlemix(on.data)) for text in BASES[name])
        above = above.replace(", clean_weight=1.0", "")  # LogitMix has the clean loss already
        if on.data == "ILSVRC2015":  # every batch is cut
            alone, above = (text.replace("prob=0.5", "prob=1.0") for text in (alone, above))
        training = images.puzzlemix_training(on.data, at) if name == PUZZLE else {}
        by_name |= {name: Method(alone, training=training), over(name): Method(above, training=training)}
    return by_name


def falls(name: str) -> Callable[[tuple[str, str], str, str], float]:
    """Return what gives the paper's fall of the error or of the ECE, for a network of its own or their mean."""

    def fall(pair: tuple[str, str], higher: str, lower: str) -> float:
        printed = [PAPER[pair]] if pair in PAPER else [of for (data, _), of in PAPER.items() if data == "CIFAR-100"]
        if name == "error":
            return mean(of[lower][0] - of[higher][0] for of in printed) / 100
        return mean(of[higher][1] - of[lower][1] for of in printed)

    return fall


def claims(at: Scale) -> Iterable[Claim]:
    of_table = [base for base in bases(at) if base != MANIFOLD]
    calibrated = [base for base in of_table if base != PUZZLE]
    error, ece = falls("error"), falls("ece")
    pairs = list(at.pairs())
    yield Claim(
        f"LogitMix lowers the error of its base: mean over {', '.join(of_table)}",
        pooled(on.fall("error", base, over(base)) for on in pairs for base in of_table),
        primary=True,
        paper=mean(error(on, base, over(base)) for on in pairs for base in of_table),
    )
    yield Claim(
        f"LogitMix lowers the ECE of its base: mean over {', '.join(calibrated)}",
        pooled(on.fall("ece", base, over(base)) for on in pairs for base in calibrated),
        primary=True,
        paper=mean(ece(on, base, over(base)) for on in pairs for base in calibrated),
        overconfident=[on.cell(VANILLA) for on in pairs],
    )
    for on in pairs:
        for base in bases(at):
            yield Claim(
                f"{on}: LogitMix lowers the error of {base}",
                on.fall("error", base, over(base)),
                paper=None if base == MANIFOLD else error(on, base, over(base)),
            )
        for higher in (VANILLA, MIXUP):
            yield Claim(
                f"{on}: the ECE of LogitMix over Mixup is below that of {higher}",
                on.fall("ece", higher, over(MIXUP)),
                paper=ece(on, higher, over(MIXUP)),
                overconfident=[on.cell(VANILLA)],
            )


#: Light networks are trained as in their own papers (Section 5), which are about ImageNet: rate, its decay, batch and
#: weight decay are Sandler et al.'s (2018) and Ma et al.'s (2018). The number of epochs stays CutMix's.
LIGHT = {
    "MobileNetV2": {
        "batch_size": 96,
        "lr": 0.045,
        "milestones": list(range(1, images.L22_TRAINING["epochs"])),
        "factor": 0.98,
        "weight_decay": 4e-5,
    },
    "ShuffleNetV2": {"batch_size": 1024, "lr": 0.5, "schedule": "linear", "milestones": [], "weight_decay": 4e-5},
}
NETWORKS = ("VGG16", "ResNet50", "ResNeXt50", *LIGHT)

_SCALES = images.l22_scales(
    seeds=5,
    minutes=(15, 7 * 5 * images.NIGHT_CIFAR10_MINUTES, 500_000),
    paper={name: Network(name.lower(), training=LIGHT.get(name, {})) for name in NETWORKS},
)


#: CutMix's training on ImageNet (Yun et al. 2019): 300 epochs from 0.1, divided by 10 at 75, 150 and 225.
ILSVRC = {"batch_size": 256, "lr": 0.1, "milestones": [75, 150, 225]}

MEAN = "CIFAR-100, mean of the five networks"


def row(key: Key) -> str:
    """Return the row of the table; the mean of its networks stands beside others."""
    return f"{', '.join(key[:2]) if key[:2] in PAPER else MEAN}, {key[-1]}"


def means() -> dict[str, tuple[float, ...]]:
    """Return the mean of the paper's networks on CIFAR-100, for each method."""
    rows = [of for (data, _), of in PAPER.items() if data == "CIFAR-100"]
    return {f"{MEAN}, {name}": tuple(round(mean(of[name][i] for of in rows), 4) for i in range(3)) for name in rows[0]}


RECIPE = images.l22_table(
    printed=where_printed(row, images.L22_COLUMNS),
    place=Place("L22", "Table 2", "Mixing methods with LogitMix and without"),
    methods=methods,
    claims=claims,
    published=images.l22_printed(
        {
            **{f"{data}, {network}, {name}": row for (data, network), of in PAPER.items() for name, row in of.items()},
            **means(),
        }
    ),
    scales={
        "cpu": _SCALES["cpu"],
        "night": dataclasses.replace(
            _SCALES["night"],
            **images.night_cifar10(),
            about=f"CIFAR-10 in place of CIFAR-100. {images.NIGHT_CIFAR10_ABOUT} PuzzleMix is left out.",
        ),
        "paper": dataclasses.replace(
            _SCALES["paper"],
            data={
                **_SCALES["paper"].data,
                "TinyImageNet": Data("tinyimagenet", {"val": 0}),
                "ILSVRC2015": Data("imagenet", {"val": 0}, ILSVRC),
            },
            networks_of={"TinyImageNet": ("ResNet50", "MobileNetV2"), "ILSVRC2015": ("ResNet50",)},
            about="CIFAR-100, TinyImageNet and ILSVRC2015; Manifold Mixup is left out. CutMix's training, that of "
            "PuzzleMix's public code for its rows on small images, and those of the light networks' own papers.",
        ),
    },
    original={
        "training of PuzzleMix on ILSVRC2015": "PuzzleMix's fast training: 100 epochs of images that grow from 128 to "
        "288 pixels a side",
    },
    draw=bars({"error": "error (%)", "ece": "ECE (%)", "oe": "OE (%)"}),
    reading=(
        "Section 5.4 gives the weights of the similarity term and Section 5.5 LogitMix's α = 3. The authors' code has "
        "α = 0.4 for Mixup, α = 1 for CutMix and α = 3 for LogitMix over either; half of CIFAR's batches are cut. It "
        "has no PuzzleMix, which keeps the α of its own paper. The table has no Manifold Mixup, which the abstract "
        "and Section 5 name as a base: α and layers are those of Verma et al. (2019).",
        "A network that the table does not have stands beside the mean of its five networks on CIFAR-100. The mean "
        "ECE leaves PuzzleMix out: LogitMix raises its ECE on three of five networks, and Section 5.1 says so.",
        "Light networks follow their original papers, which train on ImageNet: MobileNetV2 from 0.045, × 0.98 after "
        "every epoch, in batches of 96; ShuffleNetV2 from 0.5, falling linearly to 0, in batches of 1,024. The number "
        "of epochs on smaller images is not given: 300, as for the others. PuzzleMix's rows have its own training on "
        "every network. On TinyImageNet its code adds the clean loss, which LogitMix has already.",
        "Slips: the ECE of ILSVRC's vanilla row, 0.370, cannot stand beside an OE of 0.030 (0.037?); ResNet50's Mixup, "
        "79.82, is above every accuracy of Table 5, at most 79.32; the OE of its LogitMix over Mixup is 0.003 here and "
        "0.002 there, of the same run by its accuracy; TinyImageNet has 200 classes, not 100.",
    ),
)
