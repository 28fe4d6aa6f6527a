"""Z18 Figure 1b: the decision boundary of a toy problem, sharp under ERM and soft under mixup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vicinal.papers import toy_perceptron
from vicinal.papers.base import Place, Recipe, Scale, Settings
from vicinal.papers.claims import Claim, Key, metric
from vicinal.papers.toy_points import disc_in_ring

if TYPE_CHECKING:
    from vicinal.papers.results import Measured
    from vicinal.papers.trained import Trained

ERM, MIXUP = "ERM()", "Mixup(alpha=1.0)"
EXTENT = 1.4


def cells(at: Scale) -> Iterable[tuple[Key, Settings]]:
    return [((method,), {"method": method}) for method in (ERM, MIXUP)]


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the share of the shown square in which the probability is between 0.1 and 0.9, and the training error."""
    of = toy_perceptron.learn(disc_in_ring, settings, seed, extent=EXTENT)
    return {
        "band": float(((of.square > 0.1) & (of.square < 0.9)).double().mean()),
        "error": float((of.logits.argmax(1) != of.labels).double().mean()),
        **of.drawn(seed, most=200),
    }


def claims(at: Scale) -> Iterable[Claim]:
    yield Claim(
        "the band in which the probability is between 0.1 and 0.9 is wider under mixup",
        metric("band", MIXUP) - metric("band", ERM),
        primary=True,
    )


RECIPE = Recipe(
    place=Place("Z18", "Figure 1b", "A toy problem: how wide the transition between two classes is"),
    cells=cells,
    measure=measure,
    claims=claims,
    curves=("map",),
    columns={"band": "band (% of the square)", "error": "training error (%)"},
    scales=toy_perceptron.scales(minutes=(1, 5), points=(600, 2000), epochs=(60, 200)),
    draw=toy_perceptron.maps(EXTENT, size=(3.4, 3.2)),
    reading=(
        "The data and the network of the figure are not given: a disc inside a ring and an MLP of 2 × 128 stand in for "
        "them, with α = 1.",
    ),
    pilot="None is recorded: the sizes were set by the time they take.",
)
