"""T19, end of Section 5 and supplement: Manifold Mixup calibrates too."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.papers import images
from vicinal.papers.base import Network, Place, Scale, methods
from vicinal.papers.claims import Claim

ERM, MIXUP = "ERM()", "Mixup(alpha=0.4)"
RESNET = {"ResNet-34": Network("resnet34")}
MANIFOLD = "ManifoldMixup(alpha=2.0, layers=('input', 'layer1', 'layer2'))"


def claims(at: Scale) -> Iterable[Claim]:
    primary, other = images.claimed_epochs(at)
    for on in at.pairs():
        for prefix, where in ((primary.prefix, ""), other):
            text, falls = f"{on}: Manifold Mixup's ECE{where} is below ERM's", on.fall(f"{prefix}ece", ERM, MANIFOLD)
            yield Claim(text, falls, primary=not where, overconfident=[on.cell(ERM)])


RECIPE = images.t19_figure(
    place=Place("T19", "supplement", "Calibration of Manifold Mixup"),
    methods=methods(ERM, MIXUP, MANIFOLD),
    claims=claims,
    scales=images.scales(
        "cifar10",
        seeds=5,
        minutes=(6, 160, 10_000),
        paper=RESNET,
        paper_training=images.T19_TRAINING,
        paper_val=images.ORACLE,
        settings=({}, {}, {images.MANY_BINS: 100}),
    ),
    reading=(
        "The paper's text refers to its supplement, which is not at hand; α = 2 and the first layers are those of "
        "Verma et al. (2018). Below paper scale the last epoch is primary, and the best one is chosen on 2,000 "
        "validation images.",
    ),
)
