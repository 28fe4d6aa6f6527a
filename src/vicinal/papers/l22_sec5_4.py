"""L22 Section 5.4: which weight of the similarity term suits which base."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from vicinal.papers import images
from vicinal.papers.base import Method, Network, Place, Scale
from vicinal.papers.claims import Claim, Pair, pooled

WEIGHTS = (0.1, 0.5, 1.0, 2.0)
#: The base and the weight that the paper found best for it.
BASES = {
    "Mixup": ("Mixup(alpha=3.0)", 1.0),
    "CutMix": ("CutMix(alpha=3.0, prob=0.5)", 0.1),
    "PuzzleMix": (images.puzzlemix("CIFAR"), 0.5),
}


def row(base: str, weight: float) -> str:
    return f"{base}, weight {weight:g}"


def methods(on: Pair, at: Scale) -> dict[str, Method]:
    """Return the rows. The paper's weights are the defaults, so that these are rows of the other recipes."""
    by_name = {}
    for (name, (base, best)), weight in product(BASES.items(), WEIGHTS):
        text = f"LogitMix({base})" if weight == best else f"LogitMix({base}, weight={weight})"
        training = images.puzzlemix_training(on.data, at) if name == "PuzzleMix" else {}
        by_name[row(name, weight)] = Method(text, training=training)
    return by_name


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        gains = {
            (name, best, weight): on.fall("error", row(name, weight), row(name, best))
            for name, (_, best) in BASES.items()
            for weight in WEIGHTS
            if weight != best
        }
        yield Claim(
            f"{on}: the paper's weights have a lower error than the others, on average over the three bases",
            pooled(gains.values()),
            primary=True,
        )
        for (name, best, weight), gain in gains.items():
            yield Claim(
                f"{on}: over {name} the weight {best:g} is no worse than {weight:g} by more than a point",
                gain,
                kind="no worse",
            )


RECIPE = images.l22_table(
    printed=None,
    place=Place("L22", "Section 5.4", "The weight of the similarity term"),
    methods=methods,
    claims=claims,
    published={name: {"best of 0.1, 0.5, 1 and 2": best} for name, (_, best) in BASES.items()},
    scales=images.l22_scales(seeds=5, minutes=(27, 90, 80_000), paper={"ResNet-50": Network("resnet50")}),
    reading=(
        "The paper names the best weights without their accuracies, found by testing all four on CIFAR-100, on which "
        "it also reports. That a weight is the best of four is read twice. The primary claim is that the error at the "
        "paper's weights is below the mean of the errors at the others. The secondary claims are that no other weight "
        "is better by more than a point.",
        "Over CutMix α is 3, as in the authors' code.",
    ),
)
