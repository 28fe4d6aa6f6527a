"""L22 Table 5: how accuracy and calibration vary with α."""

from __future__ import annotations

from collections.abc import Iterable

from vicinal.recipes import images
from vicinal.recipes.base import Method, Network, Place, Scale
from vicinal.recipes.claims import Claim, highest, lowest
from vicinal.recipes.drawing import bars

ALPHAS = (0.4, 1.0, 3.0)
MIXUP, NO_CLS, LOGITMIX = "Mixup", "LogitMix (−) cls", "LogitMix"
EXPRESSIONS = {
    MIXUP: "Mixup(alpha={})",
    NO_CLS: "LogitMix(Mixup(alpha={}), cls_weight=0.0)",
    LOGITMIX: "LogitMix(Mixup(alpha={}))",
}
#: The paper's accuracy, ECE and OE at these α.
PAPER = {
    MIXUP: {0.4: (79.32, 0.040, 0.008), 1.0: (79.07, 0.056, 0.000), 3.0: (77.92, 0.099, 0.000)},
    NO_CLS: {0.4: (79.74, 0.024, 0.002), 1.0: (79.66, 0.071, 0.000), 3.0: (79.76, 0.110, 0.000)},
    LOGITMIX: {0.4: (81.10, 0.025, 0.014), 1.0: (80.34, 0.013, 0.005), 3.0: (81.59, 0.014, 0.002)},
}


def row(method: str, alpha: float) -> str:
    return f"{method}, α = {alpha:g}"


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        errors = {name: [on.figure("error", row(name, alpha)) for alpha in ALPHAS] for name in EXPRESSIONS}
        spread = {name: highest(of) - lowest(of) for name, of in errors.items()}
        yield Claim(
            f"{on}: over the three α LogitMix's error varies less than Mixup's",
            spread[MIXUP] - spread[LOGITMIX],
            paper=0.0140 - 0.0125,
        )
        rises = on.fall("error", row(MIXUP, 3.0), row(MIXUP, 0.4))
        yield Claim(f"{on}: Mixup's error is higher at α = 3 than at α = 0.4", rises, paper=0.0140)
        text = f"{on}: LogitMix's error at α = 3 is no more than a point above that at α = 0.4"
        yield Claim(text, on.fall("error", row(LOGITMIX, 0.4), row(LOGITMIX, 3.0)), margin=0.01, paper=0.0049)
        falls = on.fall("ece", row(MIXUP, 3.0), row(LOGITMIX, 3.0))
        yield Claim(f"{on}: at α = 3 LogitMix's ECE is below Mixup's", falls, paper=0.085)


RECIPE = images.l22_table(
    place=Place("L22", "Table 5", "The effect of α"),
    methods={row(n, a): Method(expression.format(a)) for n, expression in EXPRESSIONS.items() for a in ALPHAS},
    claims=claims,
    published=images.l22_printed({row(name, alpha): of[alpha] for name, of in PAPER.items() for alpha in ALPHAS}),
    scales=images.l22_scales(seeds=3, minutes=(6, 50, 20_000), paper={"ResNet-50": Network("resnet50")}),
    draw=bars({"error": "error (%)", "ece": "ECE (%)", "oe": "OE (%)"}),
    reading=(
        "Three of the table's seven values of α. Its ECE of Mixup at α = 0.6, 0.400 beside an OE of 0.001 and between "
        "0.040 and 0.056, is a slip (0.040?). That accuracy varies less is read as: the highest minus the lowest error "
        "over α is smaller; with these three α the paper's own numbers hardly say so (1.40 against 1.25 points), with "
        "all seven they do (2.51 against 1.25).",
        "Unlike others, the claim about ECE asks for no over-confident baseline: Mixup, to which LogitMix is compared, "
        "is under-confident in the paper (at α = 3 an ECE of 0.099 beside an OE of 0.000).",
    ),
    findings=(
        "At α = 3 LogitMix's ECE is above Mixup's with all three seeds, against the paper. Confidence minus accuracy "
        "says why. The classification term adds 11 to 15 points to it at every α (the rows with the term and without). "
        "In the paper Mixup at α = 3 is under-confident, and that puts it right; here, where plain training "
        "exceeds its accuracy by 37 points, Mixup at α = 3 is about right (+2.5 ± 4.6), and LogitMix is too sure (+7.9 "
        "± 1.4). The paper's other findings on calibration are seen: OE falls as α rises in all three methods.",
        "LogitMix gains from a higher α with all three seeds (3.0, 1.6 and 2.6 points from 0.4 to 3), as in the paper. "
        "Whether Mixup loses depends on the seed (+1.7, −2.2, +2.2). The highest minus the lowest of three errors is "
        "mostly what one run differs from another by, here 2 points, where the paper's difference is 0.15.",
    ),
)
