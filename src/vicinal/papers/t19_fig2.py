"""T19 Figure 2: calibration of mixup against plain training, label smoothing and the entropy-regularised loss."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.papers import images
from vicinal.papers.base import Method, Place, Scale
from vicinal.papers.base import methods as by_expression
from vicinal.papers.claims import Claim, Pair

ERM, MIXUP = "ERM()", "Mixup(alpha=0.4)"
SMOOTHING = {
    "label smoothing (ε = 0.05)": "ERM(label_smoothing=0.05)",
    "label smoothing (ε = 0.1)": "ERM(label_smoothing=0.1)",
    "the entropy-regularised loss": "ERM(confidence_penalty=0.1)",
}
ERRORS = {"ece": "ECE", "oe": "OE"}


def methods(on: Pair, at: Scale) -> dict[str, Method]:
    return by_expression(ERM, MIXUP) if images.is_night_cifar10(at) else by_expression(ERM, MIXUP, *SMOOTHING.values())


def claims(at: Scale) -> Iterable[Claim]:
    gate = [on.cell(ERM) for on in at.pairs()]
    average = ", on average" if len(gate) > 1 else ""
    primary, other_epoch = images.claimed_epochs(at)
    errors = {f"{primary.prefix}{name}": printed for name, printed in ERRORS.items()}
    for name, printed in errors.items():
        falls = images.pooled_fall(at, name, ERM, MIXUP)
        yield Claim(f"mixup's {printed} is below ERM's{average}", falls, primary=True, overconfident=gate)
    if images.is_night_cifar10(at):
        return
    for name, printed in errors.items():
        for on in at.pairs():
            falls = on.fall(name, ERM, MIXUP)
            yield Claim(f"{on}: mixup's {printed} is below ERM's", falls, overconfident=[on.cell(ERM)])
        for other, method in SMOOTHING.items():
            yield Claim(
                f"mixup's {printed} is no worse than that of {other} by more than a point, on average",
                images.pooled_fall(at, name, method, MIXUP),
                kind="no worse",
                overconfident=gate,
            )
        falls = images.pooled_fall(at, f"{other_epoch.prefix}{name.removeprefix(primary.prefix)}", ERM, MIXUP)
        yield Claim(f"mixup's {printed}{other_epoch.said} is below ERM's, on average", falls, overconfident=gate)


RECIPE = images.t19_figure(
    place=Place("T19", "Figure 2", "Calibration of mixup and of label smoothing"),
    methods=methods,
    claims=claims,
    scales=images.at_night(images.t19_scales(minutes=(20, 0, 30_000)), methods=2),
    reading=(
        "The paper measures the epoch with the best validation accuracy, and so does the paper scale. Below it that "
        "epoch is secondary, chosen on 2,000 validation images. The last epoch is primary there, because the choice "
        "adds noise.",
        "The number of bins is not given in the paper; 15 are used here. ε and the penalty are those that the paper "
        "found best. That mixup generally performs best is read as: on average over data and networks, no worse than "
        "each other method by more than a point. Figure 2 shows bars without numbers.",
    ),
    pilot=f"{images.PILOT} {images.NIGHT_CIFAR10_PILOT}",
)
