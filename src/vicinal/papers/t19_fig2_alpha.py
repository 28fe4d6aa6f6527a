"""T19 Figure 2h–j: ECE, overconfidence and accuracy as functions of α."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from vicinal.papers import images
from vicinal.papers.base import Place, Scale, methods
from vicinal.papers.claims import Claim, lowest, pooled, trend
from vicinal.papers.plots import sweep

ALPHAS = {
    "ERM()": 0.0,
    "Mixup(alpha=0.1)": 0.1,
    "Mixup(alpha=0.2)": 0.2,
    "Mixup(alpha=0.4)": 0.4,
    "Mixup(alpha=1.0)": 1.0,
    "Mixup(alpha=4.0)": 4.0,
}
BEST, LARGE = ("Mixup(alpha=0.2)", "Mixup(alpha=0.4)"), ("Mixup(alpha=1.0)", "Mixup(alpha=4.0)")


def claims(at: Scale) -> Iterable[Claim]:
    pairs = list(at.pairs())
    gate = [on.cell("ERM()") for on in pairs]
    prefix = images.claimed_epochs(at)[0].prefix
    ece = [{method: on.metric(f"{prefix}ece", method) for method in ALPHAS} for on in pairs]
    yield Claim(
        "the overconfidence error falls with α (mean step between the six values)",
        pooled([trend([on.metric(f"{prefix}oe", method) for method in ALPHAS]) * -1 for on in pairs]),
        margin=0.002,
        reason="the contrast is a mean step: five of 0.2 points are a point between the smallest and largest α",
        primary=True,
        overconfident=gate,
    )
    yield Claim(
        "the lowest ECE of α in 0.2–0.4 is below that of all other α",
        pooled([lowest([of[m] for m in ALPHAS if m not in BEST]) - lowest([of[m] for m in BEST]) for of in ece]),
        primary=True,
        overconfident=gate,
    )
    yield Claim(
        "the ECE rises again for large α (1 and 4 against 0.4)",
        pooled([lowest([of[m] for m in LARGE]) - of["Mixup(alpha=0.4)"] for of in ece]),
        overconfident=gate,
    )


SCALES = images.at_night(
    images.scales("cifar10", seeds=5, minutes=(0, 0, 20_000), paper=images.T19_NETWORKS,
                  paper_training=images.T19_TRAINING, paper_val=images.ORACLE,
                  settings=({}, {}, {images.MANY_BINS: 100})),
    methods=len(ALPHAS),
)  # fmt: skip
ABOUT = images.NIGHT_CIFAR10_ABOUT.replace("; the methods of the primary claims only", "")

RECIPE = images.t19_figure(
    place=Place("T19", "Figure 2h–j", "ECE, overconfidence and accuracy by α"),
    methods=methods(*ALPHAS),
    claims=claims,
    columns={**images.COLUMNS, **images.BEST, "ece 100": "ECE (%), 100 bins", "oe 100": "OE (%), 100 bins"},
    scales={**SCALES, **dict.fromkeys(("cpu", "night"), dataclasses.replace(SCALES["night"], about=ABOUT))},
    draw=sweep({"ece": "ECE (%)", "oe": "OE (%)", "error": "error (%)"}, ALPHAS),
    reading=(
        "The paper's values of α are in an image; these six span what its text speaks of. At paper scale the best "
        "epoch is measured, as in the rest of the figure, below it the last.",
        "The two smaller scales are one: mixup makes a network under-confident only where its error is low, which "
        "needs the night cell. Its trainings of ERM, α = 0.4 and α = 1 are those of Figure 2 and of Z18's Figure 3.",
    ),
    pilot=images.NIGHT_CIFAR10_PILOT,
)
