"""T19 Figure 3: calibration with many classes (ImageNet in the paper)."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.papers import images
from vicinal.papers.base import Data, Method, Network, Place, Scale
from vicinal.papers.base import methods as by_expression
from vicinal.papers.claims import Claim, Pair

ERM, SMOOTHED, MIXUP = "ERM()", "ERM(label_smoothing=0.1)", "Mixup(alpha=0.4)"
PENALISED = "ERM(confidence_penalty=0.1)"


def methods(on: Pair, at: Scale) -> dict[str, Method]:
    """Return the entropy-regularised loss too, where ImageNet is trained on."""
    return by_expression(ERM, SMOOTHED, MIXUP, *([PENALISED] if on.data == "ImageNet" else []))


def claims(at: Scale) -> Iterable[Claim]:
    gate = [on.cell(ERM) for on in at.pairs()]
    for name, printed in (("ece", "ECE"), ("oe", "OE")):
        falls = images.pooled_fall(at, name, ERM, MIXUP)
        yield Claim(f"mixup lowers the {printed}", falls, primary=True, overconfident=gate)
        falls = images.pooled_fall(at, name, ERM, SMOOTHED)
        yield Claim(f"label smoothing lowers the {printed}", falls, overconfident=gate)
        if at.training["select"] != "last":
            falls = images.pooled_fall(at, f"best {name}", ERM, MIXUP)
            yield Claim(f"mixup lowers the {printed} of the best epoch", falls, overconfident=gate)
    for on in at.pairs():
        if on.network == "ResNeXt-101":
            text = f"{on}: mixup's ECE is below that of label smoothing"
            yield Claim(text, on.fall("ece", SMOOTHED, MIXUP), overconfident=[on.cell(ERM)])
    yield Claim("mixup lowers the error", images.pooled_fall(at, "error", ERM, MIXUP), paper=0.004)


RECIPE = images.t19_figure(
    place=Place("T19", "Figure 3", "Calibration with many classes"),
    methods=methods,
    claims=claims,
    scales={
        **images.scales("cifar100", seeds=5, minutes=(9, 280, 0), paper=images.T19_NETWORKS),
        "paper": images.on_imagenet(
            minutes=1_000_000,
            networks={"ResNet-50": Network("resnet50"), "ResNeXt-101": Network("resnext101")},
            data={"ImageNet": Data("imagenet", {"val": images.ORACLE})},
            training={**images.imagenet(90), "stop_at": ("top5_error", 0.07)},
            settings={images.MANY_BINS: 100},
            about="ImageNet, until the top 5 hold the class of 93 % of ImageNet's validation images, for at most 90 "
            "epochs. These images are the test set: when to stop is an oracle's choice.",
        ),
    },
    reading=(
        "CIFAR-100 stands for ImageNet below paper scale. The paper gives one number, about 0.4 points of accuracy "
        "gained by mixup; on ResNet-50 it found mixup no better calibrated than label smoothing.",
        "The last epoch is primary. The epoch with the best accuracy on 2,000 validation images is secondary.",
    ),
)
