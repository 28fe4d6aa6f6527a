"""T19 Figure 6: mixing features alone, with the label of the nearer sample, does not calibrate."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.recipes import images
from vicinal.recipes.base import Network, Scale, methods
from vicinal.recipes.claims import Claim, figure

ERM, MIXUP, FEATURES = "ERM()", "Mixup(alpha=0.4)", "Mixup(alpha=0.4, labels='nearest')"


def claims(at: Scale) -> Iterable[Claim]:
    for data, network in at.pairs():
        for name in ("ece", "oe"):
            yield Claim(
                text=f"{data}, {network}: the {name.upper()} of full mixup is below that of mixed features alone",
                contrast=figure(name, data, network, FEATURES) - figure(name, data, network, MIXUP),
                overconfident=(data, network, ERM),
            )
        yield Claim(
            text=f"{data}, {network}: mixing features alone lowers ERM's ECE less than half as much as full mixup",
            contrast=figure("ece", data, network, FEATURES)
            - (figure("ece", data, network, ERM) + figure("ece", data, network, MIXUP)) * 0.5,
            overconfident=(data, network, ERM),
        )


RECIPE = images.calibration(
    paper="T19",
    place="Figure 6",
    title="Mixing features alone against full mixup",
    methods=methods(ERM, MIXUP, FEATURES),
    claims=claims,
    scales=images.scales(
        "cifar10",
        "fashion-mnist",
        seeds=5,
        minutes=(6, 120, 20_000),
        paper={**images.T19_NETWORKS, "ResNet-18": Network("resnet18")},
        paper_data=images.T19_SETS,
        paper_networks_of=images.T19_NETWORKS_OF,
        paper_training=images.T19_TRAINING,
    ),
    reading=(
        "That mixing features alone does not give the benefit of full mixup is read as: at least half of the fall in "
        "ECE is "
        "lost. Figure 6 shows bars without numbers.",
    ),
)
