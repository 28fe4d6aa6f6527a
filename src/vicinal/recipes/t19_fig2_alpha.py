"""T19 Figure 2h–j: ECE, overconfidence and accuracy as functions of α."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.recipes import images
from vicinal.recipes.base import Place, Scale, methods
from vicinal.recipes.claims import Claim, lowest, trend
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
    for on in at.pairs():
        ece = {method: on.figure("ece", method) for method in ALPHAS}
        best, others = [ece[m] for m in BEST], [ece[m] for m in ALPHAS if m not in BEST]
        large = [ece["Mixup(alpha=1.0)"], ece["Mixup(alpha=4.0)"]]
        yield Claim(
            f"{on}: the overconfidence error falls with α (mean step between the six values)",
            trend([on.figure("oe", method) for method in ALPHAS]) * -1,
            overconfident=on.cell("ERM()"),
        )
        yield Claim(
            f"{on}: the lowest ECE of α in 0.2–0.4 is below that of all other α",
            lowest(others) - lowest(best),
            overconfident=on.cell("ERM()"),
        )
        yield Claim(
            f"{on}: ECE rises again for large α (1 and 4 against 0.4)",
            lowest(large) - ece["Mixup(alpha=0.4)"],
            overconfident=on.cell("ERM()"),
        )


RECIPE = images.t19_figure(
    place=Place("T19", "Figure 2h–j", "ECE, overconfidence and accuracy by α"),
    methods=methods(*ALPHAS),
    claims=claims,
    scales=images.scales(
        "cifar10", seeds=4, minutes=(5, 100, 20_000), paper=images.T19_NETWORKS, paper_training=images.T19_TRAINING
    ),
    draw=sweep({"ece": "ECE (%)", "oe": "OE (%)", "error": "error (%)"}, ALPHAS),
    reading=("The paper's values of α are in an image; these six span what its text speaks of.",),
)
