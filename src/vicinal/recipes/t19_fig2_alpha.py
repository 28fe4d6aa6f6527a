"""T19 Figure 2h–j: ECE, overconfidence and accuracy as functions of α."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.recipes import images
from vicinal.recipes.base import Scale, methods
from vicinal.recipes.claims import Claim, figure, lowest, trend
from vicinal.recipes.drawing import sweep

ALPHAS = {
    "ERM()": 0.0,
    "Mixup(alpha=0.1)": 0.1,
    "Mixup(alpha=0.2)": 0.2,
    "Mixup(alpha=0.4)": 0.4,
    "Mixup(alpha=1.0)": 1.0,
    "Mixup(alpha=4.0)": 4.0,
}
BEST = ("Mixup(alpha=0.2)", "Mixup(alpha=0.4)")


def claims(at: Scale) -> Iterable[Claim]:
    for data, network in at.pairs():
        baseline = (data, network, "ERM()")
        yield Claim(
            text=f"{data}, {network}: the overconfidence error falls with α (mean step between the six values)",
            contrast=trend([figure("oe", data, network, method) for method in ALPHAS]) * -1,
            overconfident=baseline,
        )
        others = [figure("ece", data, network, method) for method in ALPHAS if method not in BEST]
        yield Claim(
            text=f"{data}, {network}: the lowest ECE of α in 0.2–0.4 is below that of all other α",
            contrast=lowest(others) - lowest([figure("ece", data, network, method) for method in BEST]),
            overconfident=baseline,
        )
        yield Claim(
            text=f"{data}, {network}: ECE rises again for large α (1 and 4 against 0.4)",
            contrast=lowest([figure("ece", data, network, m) for m in ("Mixup(alpha=1.0)", "Mixup(alpha=4.0)")])
            - figure("ece", data, network, "Mixup(alpha=0.4)"),
            overconfident=baseline,
        )


RECIPE = images.calibration(
    paper="T19",
    place="Figure 2h–j",
    title="ECE, overconfidence and accuracy by α",
    methods=methods(*ALPHAS),
    claims=claims,
    scales=images.scales(
        "cifar10",
        seeds=4,
        minutes=(5, 100, 20_000),
        paper=images.T19_NETWORKS,
        paper_training=images.T19_TRAINING,
    ),
    draw=sweep({"ece": "ECE (%)", "oe": "OE (%)", "error": "error (%)"}, ALPHAS),
    reading=("The paper's values of α are in an image; these six span what its text speaks of.",),
)
