"""Z18 Table 1: validation errors on ImageNet; mixup gains more with capacity and with longer training."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.recipes import images
from vicinal.recipes.base import Data, Network, Recipe, Scale, methods
from vicinal.recipes.claims import Claim, Contrast, figure
from vicinal.recipes.drawing import bars

ERM, MIXUP = "ERM()", "Mixup(alpha=0.2)"


def gain(data: str, network: str) -> Contrast:
    return figure("error", data, network, ERM) - figure("error", data, network, MIXUP)


def claims(at: Scale) -> Iterable[Claim]:
    (data,) = at.data
    small, large = at.settings["capacity"]
    short, long = at.settings["length"]
    paper = at.settings["paper"]
    for network in at.networks:
        yield Claim(text=f"{network}: mixup lowers the error", contrast=gain(data, network), paper=paper.get(network))
    yield Claim(
        text=f"the gain is larger with {large} than with {small}",
        contrast=gain(data, large) - gain(data, small),
        paper=0.004,
    )
    yield Claim(
        text=f"the gain is larger with {long} than with {short}",
        contrast=gain(data, long) - gain(data, short),
        paper=0.013,
    )


#: The rows of the table here: two widths, two lengths.
HERE = {
    f"width {width}, {epochs} epochs": Network(
        "preactresnet10", {"width": width, "final_norm": False}, {"epochs": epochs} if epochs != 20 else {}
    )
    for width in (8, 16)
    for epochs in (10, 20)
}
ROWS = {
    "capacity": ["width 8, 20 epochs", "width 16, 20 epochs"],
    "length": ["width 8, 10 epochs", "width 8, 20 epochs"],
}

RECIPE = Recipe(
    paper="Z18",
    place="Table 1",
    title="Validation errors by capacity and length of training",
    methods=methods(ERM, MIXUP),
    measure=images.last_epoch,
    claims=claims,
    columns={"error": "error (%)", "nll": "NLL"},
    published={
        "ResNet-50, 90 epochs": {"ERM top-1": 23.5, "ERM top-5": "–", "mixup top-1": 23.3, "mixup top-5": 6.6},
        "ResNet-101, 90 epochs": {"ERM top-1": 22.1, "ERM top-5": "–", "mixup top-1": 21.5, "mixup top-5": 5.6},
        "ResNeXt-101 32×4d, 90 epochs": {"ERM top-1": 21.2, "ERM top-5": 5.6, "mixup top-1": 20.7, "mixup top-5": 5.3},
        "ResNeXt-101 64×4d, 90 (ERM 100) epochs": {
            "ERM top-1": 20.4,
            "ERM top-5": 5.3,
            "mixup top-1": 19.8,
            "mixup top-5": 4.9,
        },
        "ResNet-50, 200 epochs": {"ERM top-1": 23.6, "ERM top-5": 7.0, "mixup top-1": 22.1, "mixup top-5": 6.1},
        "ResNet-101, 200 epochs": {"ERM top-1": 22.0, "ERM top-5": 6.1, "mixup top-1": 20.8, "mixup top-5": 5.4},
        "ResNeXt-101 32×4d, 200 epochs": {"ERM top-1": 21.3, "ERM top-5": 5.9, "mixup top-1": 20.1, "mixup top-5": 5.0},
    },
    scales={
        "cpu": Scale(
            seeds=range(3),
            minutes=12,
            data=images.small("cifar100"),
            networks=HERE,
            training=images.TRAINING,
            settings={**ROWS, "paper": {}},
            about=f"CIFAR-100 in place of ImageNet: {images.ABOUT}, or 10 epochs, or width 16.",
        ),
        "night": Scale(
            seeds=range(5),
            minutes=110,
            data=images.small("cifar100", factor=4),
            networks=HERE,
            training=images.TRAINING,
            settings={**ROWS, "paper": {}},
            about="CIFAR-100, 8,000 images, five seeds.",
        ),
        "paper": Scale(
            seeds=range(1),
            minutes=200_000,
            data={"ImageNet": Data("imagenet", where=images.IMAGENET)},
            networks={
                "ResNet-50, 90 epochs": Network("resnet50", training=images.imagenet(90)),
                "ResNet-101, 90 epochs": Network("resnet101", training=images.imagenet(90)),
                "ResNet-50, 200 epochs": Network("resnet50", training=images.imagenet(200)),
            },
            settings={
                "capacity": ["ResNet-50, 90 epochs", "ResNet-101, 90 epochs"],
                "length": ["ResNet-50, 90 epochs", "ResNet-50, 200 epochs"],
                "paper": {
                    "ResNet-50, 90 epochs": 0.002,
                    "ResNet-101, 90 epochs": 0.006,
                    "ResNet-50, 200 epochs": 0.015,
                },
            },
            about="ImageNet, the three networks of the claims; one run each, so that intervals are over samples.",
        ),
    },
    draw=bars({"error": "error (%)"}),
    reading=(
        "The ERM errors of 90 epochs for ResNet-50 and ResNet-101 are other authors' (Goyal et al. 2017), as is that "
        "of 100 epochs for ResNeXt-101 64×4d (Xie et al. 2016). α is 0.2 for ResNets and 0.4 for ResNeXts.",
        "The paper's effects below are those of ResNet-101 against ResNet-50 at 90 epochs (0.6 and 0.2 points gained), "
        "and of ResNet-50 at 200 epochs against 90 (1.5 and 0.2).",
    ),
    pilot=images.PILOT,
)
