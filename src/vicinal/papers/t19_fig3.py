"""T19 Figure 3: calibration with many classes (ImageNet in the paper)."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.papers import images
from vicinal.papers.base import Network, Place, Scale, methods
from vicinal.papers.claims import Claim

ERM, SMOOTHED, MIXUP = "ERM()", "ERM(label_smoothing=0.1)", "Mixup(alpha=0.4)"


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
    yield Claim("mixup lowers the error", images.pooled_fall(at, "error", ERM, MIXUP), paper=0.004)


RECIPE = images.t19_figure(
    place=Place("T19", "Figure 3", "Calibration with many classes"),
    methods=methods(ERM, SMOOTHED, MIXUP),
    claims=claims,
    scales={
        **images.scales("cifar100", seeds=5, minutes=(9, 280, 0), paper=images.T19_NETWORKS),
        "paper": images.on_imagenet(
            minutes=1_000_000,
            networks={"ResNet-50": Network("resnet50"), "ResNeXt-101": Network("resnext101")},
            training={**images.imagenet(90), "stop_at": ("top5_error", 0.07)},
            about="ImageNet, until 93 % of the validation images are among the top 5, for at most 90 epochs.",
        ),
    },
    reading=(
        "CIFAR-100 stands for ImageNet below paper scale. The paper gives one number, about 0.4 points of accuracy "
        "gained by mixup; on ResNet-50 it found mixup no better calibrated than label smoothing.",
        "The last epoch is primary. The epoch with the best accuracy on 2,000 validation images is secondary.",
    ),
)
