"""L22 Figure 1: probabilities on two spirals, sure of the training points and soft between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vicinal.papers import toy_perceptron
from vicinal.papers.base import Place, Recipe, Scale, Settings
from vicinal.papers.claims import Claim, Key, metric, pooled
from vicinal.papers.toy_points import spirals

if TYPE_CHECKING:
    from vicinal.papers.results import Measured
    from vicinal.papers.trained import Trained

ERM, MIXUP, MANIFOLD = "vanilla", "Mixup", "Manifold Mixup"
CODE, PRINTED = "LogitMix (the authors' code)", "LogitMix (Eq. 3 as printed)"
METHODS = {
    ERM: "ERM()",
    MIXUP: "Mixup(alpha=3.0)",
    MANIFOLD: "ManifoldMixup(alpha=3.0, layers=('input', 'layers.0'))",
    CODE: "LogitMix(Mixup(alpha=3.0))",
    PRINTED: "LogitMix(Mixup(alpha=3.0), cls_weight=2.0, similarity='l2')",
}
EXTENT = 1.2


def cells(at: Scale) -> Iterable[tuple[Key, Settings]]:
    return [((name,), {"method": method}) for name, method in METHODS.items()]


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the mean confidence on the training points, and the share of the square that is between 0.3 and 0.7."""
    of = toy_perceptron.learn(spirals, settings, seed, extent=EXTENT, lr=3e-3)
    confidence, predicted = of.logits.softmax(1).max(1)
    return {
        "confidence": float(confidence.double().mean()),
        "error": float((predicted != of.labels).double().mean()),
        "band": float(((of.square > 0.3) & (of.square < 0.7)).double().mean()),
        **of.drawn(seed),
    }


def claims(at: Scale) -> Iterable[Claim]:
    falls = {
        name: (metric("confidence", name) - metric("confidence", MIXUP), metric("band", name) - metric("band", ERM))
        for name in (CODE, PRINTED)
    }
    for i, text in enumerate(
        ("is more confident on training points than Mixup", "has a wider transition (0.3 to 0.7) than vanilla training")
    ):
        yield Claim(f"LogitMix {text}", pooled(of[i] for of in falls.values()), primary=True)
        for name, of in falls.items():
            yield Claim(f"{name} {text}", of[i])


RECIPE = Recipe(
    place=Place("L22", "Figure 1", "Probabilities on two spirals"),
    cells=cells,
    measure=measure,
    claims=claims,
    curves=("map",),
    columns={
        "confidence": "confidence on training points (%)",
        "band": "between 0.3 and 0.7 (% of the square)",
        "error": "training error (%)",
    },
    scales=toy_perceptron.scales(minutes=(3, 20), points=(400, 1000), epochs=(100, 300)),
    draw=toy_perceptron.maps(EXTENT, size=(2.9, 2.8)),
    reading=(
        "The spirals, the network and its training are not given: an MLP of 2 × 128 and Adam stand in for them, with "
        "α = 3 (Section 5.5) for all methods. Section 4.1 speaks of the transition from 0.3 to 0.7. Eq. 3 has two "
        "classification terms and the norm itself where the authors' code has one term and the mean of squares: both "
        "are run, and the primary claims are about the mean of the two.",
    ),
    pilot=(
        "Vanilla training alone, seed 100, which no result uses: after 100 epochs at 3e-3 it makes no error on 400 "
        "points and is 99.9 % confident, with one turn of the spirals and with one and a half, which are taken."
    ),
)
