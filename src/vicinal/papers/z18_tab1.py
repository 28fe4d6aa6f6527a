"""Z18 Table 1: validation errors on ImageNet; mixup gains more with capacity and with longer training."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.papers import images
from vicinal.papers.base import Method, Network, Place, Printed, Scale, three_scales
from vicinal.papers.base import methods as by_expression
from vicinal.papers.claims import Claim, Key, Pair, pooled

ERM, MIXUP = "ERM()", "Mixup(alpha=0.2)"


def mixup(network: str) -> str:
    """Return mixup with the α of a network."""
    return "Mixup(alpha=0.4)" if network.startswith("ResNeXt") else MIXUP


def methods(on: Pair, at: Scale) -> dict[str, Method]:
    return by_expression(ERM, mixup(on.network))


def claims(at: Scale) -> Iterable[Claim]:
    gain = {on.network: on.fall("error", ERM, mixup(on.network)) for on in at.pairs()}
    yield Claim("mixup lowers the error, on average", pooled(list(gain.values())), primary=True, paper=MEAN)
    for network, gained in gain.items():
        yield Claim(f"{network}: mixup lowers the error", gained, paper=at.settings["paper"].get(network))
    for (less, more), paper in ((at.settings["capacity"], 0.004), (at.settings["length"], 0.013)):
        yield Claim(f"the gain is larger with {more} than with {less}", gain[more] - gain[less], paper=paper)


#: The rows of the table here: two widths, two lengths.
HERE = {
    f"width {width}, {epochs} epochs": Network(
        "preactresnet10", {"width": width, "final_norm": False}, {"epochs": epochs} if epochs != 20 else {}
    )
    for width in (8, 16)
    for epochs in (10, 20)
}
RESNEXT = {"ResNeXt-101 32×4d": Network("resnext101"), "ResNeXt-101 64×4d": Network("resnext101", {"groups": 64})}
NETWORKS = {"ResNet-50": Network("resnet50"), "ResNet-101": Network("resnet101"), **RESNEXT}
#: The paper's own.
THERE = {
    f"{name}, {epochs} epochs": Network(of.name, of.options, images.imagenet(epochs))
    for epochs in (90, 200)
    for name, of in NETWORKS.items()
    if (name, epochs) != ("ResNeXt-101 64×4d", 200)
}
ROWS = {
    "capacity": ["width 8, 20 epochs", "width 16, 20 epochs"],
    "length": ["width 8, 10 epochs", "width 8, 20 epochs"],
    "paper": {},
}
PUBLISHED = {
    "capacity": ["ResNet-50, 90 epochs", "ResNet-101, 90 epochs"],
    "length": ["ResNet-50, 90 epochs", "ResNet-50, 200 epochs"],
    "paper": {
        "ResNet-50, 90 epochs": 0.002,
        "ResNet-101, 90 epochs": 0.006,
        "ResNeXt-101 32×4d, 90 epochs": 0.005,
        "ResNeXt-101 64×4d, 90 epochs": 0.006,
        "ResNet-50, 200 epochs": 0.015,
        "ResNet-101, 200 epochs": 0.012,
        "ResNeXt-101 32×4d, 200 epochs": 0.012,
    },
    "top-5": True,
}


#: The mean of the seven differences in top-1 error below.
MEAN = (0.2 + 0.6 + 0.5 + 0.6 + 1.5 + 1.2 + 1.2) / 7 / 100


def printed(erm: float, erm5: float | str, mixup: float, mixup5: float) -> dict[str, float | str]:
    return {"ERM top-1": erm, "ERM top-5": erm5, "mixup top-1": mixup, "mixup top-5": mixup5}


#: What the networks below paper scale stand for: more channels for depth, and epochs.
STAND_FOR = {
    "width 8, 10 epochs": "ResNet-50, 90 epochs",
    "width 16, 10 epochs": "ResNet-101, 90 epochs",
    "width 8, 20 epochs": "ResNet-50, 200 epochs",
    "width 16, 20 epochs": "ResNet-101, 200 epochs",
}


def row_printed(key: Key) -> dict[str, Printed]:
    row, method = STAND_FOR.get(key[1], key[1]), "ERM" if key[-1] == ERM else "mixup"
    return {"error": Printed(row, f"{method} top-1"), "top-5": Printed(row, f"{method} top-5")}


RECIPE = images.z18_table(
    printed=row_printed,
    place=Place("Z18", "Table 1", "Validation errors by capacity and length of training"),
    methods=methods,
    claims=claims,
    columns={"error": "error (%)", "top-5": "top-5 error (%)", "nll": "NLL"},
    published={
        "ResNet-50, 90 epochs": printed(23.5, "–", 23.3, 6.6),
        "ResNet-101, 90 epochs": printed(22.1, "–", 21.5, 5.6),
        "ResNeXt-101 32×4d, 90 epochs": printed(21.2, 5.6, 20.7, 5.3),
        "ResNeXt-101 64×4d, 90 epochs": printed(20.4, 5.3, 19.8, 4.9),
        "ResNet-50, 200 epochs": printed(23.6, 7.0, 22.1, 6.1),
        "ResNet-101, 200 epochs": printed(22.0, 6.1, 20.8, 5.4),
        "ResNeXt-101 32×4d, 200 epochs": printed(21.3, 5.9, 20.1, 5.0),
    },
    scales=three_scales(
        seeds=5,
        minutes=(16, 60, 1_000_000),
        data=(images.small("cifar100"), images.small("cifar100", factor=4), images.IMAGENET),
        networks=(HERE, HERE, THERE),
        training=(images.TRAINING, images.TRAINING, {}),
        settings=(ROWS, ROWS, PUBLISHED),
        about=(
            f"CIFAR-100 in place of ImageNet: {images.ABOUT}, or 10 epochs, or width 16.",
            "CIFAR-100, 8,000 images.",
            "ImageNet, all networks and lengths of the table.",
        ),
    ),
    original={"ERM of ResNeXt-101 64×4d": "quoted from Xie et al. (2016): 100 epochs"},
    reading=(
        "The ERM errors of 90 epochs for ResNet-50 and ResNet-101 are other authors' (Goyal et al. 2017), as is that "
        "of 100 epochs for ResNeXt-101 64×4d (Xie et al. 2016), which is trained for 90 here. "
        "α is 0.2 for ResNets and 0.4 for ResNeXts.",
        "The paper's average is over the seven networks and lengths of its table, 0.8 points of top-1 error.",
        "The paper's effects of capacity and length are those of ResNet-101 against ResNet-50 at 90 epochs (0.6 and "
        "0.2 points gained), and of ResNet-50 at 200 epochs against 90 (1.5 and 0.2).",
    ),
)
