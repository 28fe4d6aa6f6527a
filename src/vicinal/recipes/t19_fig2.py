"""T19 Figure 2: calibration of mixup against plain training, label smoothing and the entropy-regularised loss."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.recipes import images
from vicinal.recipes.base import Network, Scale, methods
from vicinal.recipes.claims import Claim, figure

ERM, MIXUP = "ERM()", "Mixup(alpha=0.4)"
SMOOTHING = {
    "label smoothing (ε = 0.05)": "ERM(label_smoothing=0.05)",
    "label smoothing (ε = 0.1)": "ERM(label_smoothing=0.1)",
    "the entropy-regularised loss": "ERM(confidence_penalty=0.1)",
}


def claims(at: Scale) -> Iterable[Claim]:
    for data, network in at.pairs():
        for name in ("ece", "oe"):
            mixup, erm = (figure(name, data, network, method) for method in (MIXUP, ERM))
            yield Claim(
                text=f"{data}, {network}: mixup's {name.upper()} is below ERM's",
                contrast=erm - mixup,
                overconfident=(data, network, ERM),
            )
            for printed, method in SMOOTHING.items():
                yield Claim(
                    text=f"{data}, {network}: mixup's {name.upper()} is no worse than that of {printed}",
                    contrast=figure(name, data, network, method) - mixup,
                    margin=0.01,
                    overconfident=(data, network, ERM),
                )


RECIPE = images.calibration(
    paper="T19",
    place="Figure 2",
    title="Calibration of mixup and of label smoothing",
    methods=methods(ERM, MIXUP, *SMOOTHING.values()),
    claims=claims,
    scales=images.scales(
        "cifar10",
        "fashion-mnist",
        seeds=5,
        minutes=(10, 200, 30_000),
        paper={**images.T19_NETWORKS, "ResNet-18": Network("resnet18")},
        paper_data=images.T19_SETS,
        paper_networks_of=images.T19_NETWORKS_OF,
        paper_training=images.T19_TRAINING,
    ),
    reading=(
        "Figures are of the epoch with the best validation accuracy, as in the paper; the number of bins is not given "
        "there, 15 are used here. ε and the penalty are those that the paper found best. Figure 2 shows bars without "
        "numbers.",
    ),
)
