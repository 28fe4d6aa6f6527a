"""Z18 Section 2: alternative design choices, told in prose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vicinal.recipes import images
from vicinal.recipes.base import Recipe, Scale, methods
from vicinal.recipes.claims import Claim, figure
from vicinal.recipes.drawing import bars

ERM, MIXUP = "ERM()", "Mixup(alpha=1.0)"
THREE, SAME = "KMixup(alpha=1.0, k=3)", "Mixup(alpha=1.0, partners='same_class')"
AVERAGES, EACH = "Mixup(alpha=inf)", "Mixup(alpha=1.0, per_sample=True)"


def claims(at: Scale) -> Iterable[Claim]:
    for data, network in at.pairs():

        def error(method: str, data: str = data, network: str = network) -> Any:
            return figure("error", data, network, method)

        yield Claim(
            text=f"{data}: three samples (Dirichlet weights) are no better than two by more than a point",
            contrast=error(THREE) - error(MIXUP),
            margin=0.01,
        )
        yield Claim(
            text=f"{data}: pairs of the same class gain less than any pairs",
            contrast=error(SAME) - error(MIXUP),
        )
