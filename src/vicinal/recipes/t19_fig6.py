"""T19 Figure 6: mixing features alone, with the label of the nearer sample, does not calibrate."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.recipes import images
from vicinal.recipes.base import Place, Scale, methods
from vicinal.recipes.claims import Claim

ERM, MIXUP, FEATURES = "ERM()", "Mixup(alpha=0.4)", "Mixup(alpha=0.4, labels='nearest')"


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        for name in ("ece", "oe"):
            yield Claim(
                f"{on}: the {name.upper()} of full mixup is below that of mixed features alone",
                on.fall(name, FEATURES, MIXUP),
                overconfident=on.cell(ERM),
            )
        yield Claim(
            f"{on}: mixing features alone lowers ERM's ECE less than half as much as full mixup",
            on.figure("ece", FEATURES) - (on.figure("ece", ERM) + on.figure("ece", MIXUP)) * 0.5,
            overconfident=on.cell(ERM),
        )


RECIPE = images.t19_figure(
    place=Place("T19", "Figure 6", "Mixing features alone against full mixup"),
    methods=methods(ERM, MIXUP, FEATURES),
    claims=claims,
    scales=images.t19_scales(minutes=(6, 120, 20_000)),
    reading=(
        "That mixing features alone does not give the benefit of full mixup is read as: at least half of the fall in "
        "ECE is lost. Figure 6 shows bars without numbers.",
    ),
)
