"""T19 Figure 2: calibration of mixup against plain training, label smoothing and the entropy-regularised loss."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.recipes import images
from vicinal.recipes.base import Place, Scale, methods
from vicinal.recipes.claims import Claim

ERM, MIXUP = "ERM()", "Mixup(alpha=0.4)"
SMOOTHING = {
    "label smoothing (ε = 0.05)": "ERM(label_smoothing=0.05)",
    "label smoothing (ε = 0.1)": "ERM(label_smoothing=0.1)",
    "the entropy-regularised loss": "ERM(confidence_penalty=0.1)",
}


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        for name in ("ece", "oe"):
            mixups = f"{on}: mixup's {name.upper()} is"
            yield Claim(f"{mixups} below ERM's", on.fall(name, ERM, MIXUP), overconfident=on.cell(ERM))
            for printed, method in SMOOTHING.items():
                yield Claim(
                    f"{mixups} no worse than that of {printed}",
                    on.fall(name, method, MIXUP),
                    margin=0.01,
                    overconfident=on.cell(ERM),
                )


RECIPE = images.t19_figure(
    place=Place("T19", "Figure 2", "Calibration of mixup and of label smoothing"),
    methods=methods(ERM, MIXUP, *SMOOTHING.values()),
    claims=claims,
    scales=images.t19_scales(minutes=(10, 200, 30_000)),
    reading=(
        "Figures are of the epoch with the best validation accuracy, as in the paper; the number of bins is not given "
        "there, 15 are used here. ε and the penalty are those that the paper found best. Figure 2 shows bars without "
        "numbers.",
    ),
)
