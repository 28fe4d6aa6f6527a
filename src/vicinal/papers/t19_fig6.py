"""T19 Figure 6: mixing features alone, with the label of the nearer sample, does not calibrate."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.papers import images
from vicinal.papers.base import Place, Scale, methods
from vicinal.papers.claims import Claim

ERM, MIXUP, FEATURES = "ERM()", "Mixup(alpha=0.4)", "Mixup(alpha=0.4, labels='nearest')"


def claims(at: Scale) -> Iterable[Claim]:
    gate = [on.cell(ERM) for on in at.pairs()]
    primary, other = images.claimed_epochs(at)
    for error, printed in (("ece", "ECE"), ("oe", "OE")):
        name = f"{primary.prefix}{error}"
        text = f"the {printed} of full mixup is below that of mixed features alone"
        falls = images.pooled_fall(at, name, FEATURES, MIXUP)
        yield Claim(f"{text}, on average", falls, primary=True, overconfident=gate)
        for on in at.pairs():
            yield Claim(f"{on}: {text}", on.fall(name, FEATURES, MIXUP), overconfident=[on.cell(ERM)])
        falls = images.pooled_fall(at, f"{other.prefix}{error}", FEATURES, MIXUP)
        yield Claim(f"{text}, on average,{other.said.replace('of', 'in')}", falls, overconfident=gate)


RECIPE = images.t19_figure(
    place=Place("T19", "Figure 6", "Mixing features alone against full mixup"),
    methods=methods(ERM, MIXUP, FEATURES),
    claims=claims,
    scales=images.t19_scales(minutes=(12, 330, 20_000)),
    reading=(
        "Below paper scale the last epoch is primary. The paper's, the one with the best validation accuracy, is "
        "secondary there and chosen on 2,000 images. Figure 6 shows bars without numbers.",
    ),
)
