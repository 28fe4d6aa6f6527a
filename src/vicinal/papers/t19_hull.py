"""T19, end of Section 7 and supplement: confidence outside the convex hull of the training images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from vicinal import _random
from vicinal.papers import images
from vicinal.papers.base import Network, Place, Scale, Settings, methods, with_later_seeds
from vicinal.papers.claims import Claim
from vicinal.papers.plots import curves
from vicinal.papers.trained import metrics_of
from vicinal.probes.between import between_samples

if TYPE_CHECKING:
    from vicinal.papers.results import Measured
    from vicinal.papers.trained import Trained

ERM, MIXUP = "ERM()", "Mixup(alpha=0.4)"
#: Shares of the first image. Those below 0 and above 1 lie beyond the pair.
LAMBDAS = [i / 4 for i in range(-4, 9)]


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the mean confidence along lines through pairs of training images, between them and beyond."""
    run = trained[0]
    gap = metrics_of(run.test_of_last())["gap"]
    plain = run.task.train.relabelled(run.task.train.labels or [], augment="none")
    generator = torch.Generator().manual_seed(_random.seed_from("pairs", seed))
    seen = between_samples(
        run.last().module, plain, pairs=settings["pairs"], lambdas=LAMBDAS, gradient="none", generator=generator
    )
    confidence = seen.mean_confidence.value
    beyond = [value for share, value in zip(LAMBDAS, confidence, strict=True) if not 0 <= share <= 1]
    between = [value for share, value in zip(LAMBDAS, confidence, strict=True) if 0 < share < 1]
    means = {name: float(sum(of) / len(of)) for name, of in (("beyond", beyond), ("between", between))}
    return {**means, "gap": gap, "confidence": confidence.tolist()}


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        for name, where in (("beyond", "outside the hull"), ("between", "between training images")):
            text, falls = f"{on}: {where} mixup's confidence is below ERM's", on.fall(name, ERM, MIXUP)
            yield Claim(text, falls, primary=name == "beyond", overconfident=[on.cell(ERM)])


RECIPE = images.t19_figure(
    place=Place("T19", "supplement, convex hull", "Confidence outside the convex hull of the training images"),
    methods=methods(ERM, MIXUP),
    measure=measure,
    claims=claims,
    curves=("confidence",),
    columns={
        "beyond": "confidence beyond pairs (%)",
        "between": "confidence between pairs (%)",
        "gap": "confidence − accuracy (%)",
    },
    scales=with_later_seeds(
        images.scales(
            "cifar10",
            seeds=5,
            minutes=(6, 160, 10_000),
            paper={"VGG-16": Network("vgg16")},
            paper_data=("stl10",),
            paper_training={**images.T19_TRAINING, "select": "last"},
            settings={"pairs": 1000},
        )
    ),
    draw=curves({"confidence": ("confidence (%)", 100.0)}, xlabel="λ = −1, −0.75, …, 2"),
    reading=(
        "The text refers to its supplement, which is not at hand. A point outside the hull is read as "
        "λx + (1 − λ)x′ of two training images with λ from −1 to 0 or from 1 to 2. Network and data are those of "
        "Section 7, and α is 0.4.",
    ),
)
