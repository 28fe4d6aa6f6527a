"""Z18 Figure 5: mixup steadies the training of a GAN on two toys."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vicinal.papers.base import Place, Recipe, Scale, Settings, keeps_plot_data, three_scales
from vicinal.papers.claims import Claim, Contrast, Key, metric, pooled
from vicinal.papers.gan import GanConfig, coverage, fit_gan, grid_of_gaussians, ring_of_gaussians
from vicinal.papers.plots import panels
from vicinal.training.environment import chosen_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vicinal.papers.results import Measured, Result
    from vicinal.papers.trained import Trained

#: Those of the authors' public example.
TARGETS = {
    "ring of 8": ring_of_gaussians(radius=1.0, std=0.01),
    "grid of 25": grid_of_gaussians(spacing=0.5, std=0.01),
}
PLAIN, MIXUP = "GAN", "mixup GAN, α = 0.2"
#: Samples of a panel that are kept.
SHOWN = 200


def cells(at: Scale) -> Iterable[tuple[Key, Settings]]:
    return [
        ((target, name), {"target": target, "alpha": alpha})
        for target in TARGETS
        for name, alpha in ((PLAIN, 0.0), (MIXUP, 0.2))
    ]


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the modes that the samples cover, and the share of samples within three standard deviations of one."""
    config = GanConfig(
        alpha=settings["alpha"],
        pairs="any",
        generator_loss="saturating",
        iterations=settings["panels"][-1],
        hidden=[settings["width"]] * 3,
    )
    device = chosen_device(os.environ.get("VICINAL_DEVICE"))
    fit = fit_gan(TARGETS[settings["target"]], config, keep_at=settings["panels"], seed=seed, device=device)
    seen = coverage(fit.last, fit.target)
    covered = seen.modes / seen.n_modes
    measured: Measured = {"modes": float(seen.modes), "covered": covered, "good": seen.high_quality}
    if keeps_plot_data(seed):
        measured |= {f"samples {i}": samples[:SHOWN].tolist() for i, samples in fit.samples.items()}
    return measured


COUNTED = "modes are counted; one of the ring's eight is 12.5 points"


def claims(at: Scale) -> Iterable[Claim]:
    def gain(name: str, target: str) -> Contrast:
        return metric(name, target, MIXUP) - metric(name, target, PLAIN)

    for name, text, margin, reason in (
        ("covered", "the mixup GAN covers more of the modes", 0.05, COUNTED),
        ("good", "the mixup GAN has more good samples", 0.01, ""),
    ):
        gains = {target: gain(name, target) for target in TARGETS}
        average = pooled(list(gains.values()))
        yield Claim(f"{text}, on average", average, margin=margin, reason=reason, primary=True)
        for target, one in gains.items():
            yield Claim(f"{target}: {text}", one, margin=margin, reason=reason)


def draw(result: Result) -> Figure:
    """Draw the panels of the figure: a row for each toy and GAN, a column for each iteration."""
    iterations = result.settings["settings"]["panels"]
    drawn, axes = panels(len(result.keys) * len(iterations), size=(1.8, 1.9), across=len(iterations))
    for row, key in enumerate(result.keys):
        centres = TARGETS[key[0]].centres
        for column, iteration in enumerate(iterations):
            ax = axes[row * len(iterations) + column]
            ax.plot(*centres.T.tolist(), "x", color="#0072B2", ms=4)
            if samples := result.first(key, f"samples {iteration}"):
                ax.plot(*zip(*samples, strict=True), ".", ms=2, color="#D55E00")
            ax.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), xticks=[], yticks=[], aspect="equal")
            ax.set_title(f"iteration {iteration:,}" if row == 0 else "", fontsize="small")
        axes[row * len(iterations)].set_ylabel("\n".join(key), fontsize="small")
    return drawn


SMALL = {"panels": [10, 100, 1000, 3000], "width": 256}
PUBLISHED: Settings = {"panels": [10, 100, 1000, 10_000, 20_000], "width": 512}

RECIPE = Recipe(
    place=Place("Z18", "Figure 5", "Effect of mixup on the training of GANs"),
    cells=cells,
    measure=measure,
    claims=claims,
    curves=tuple(f"samples {i}" for i in PUBLISHED["panels"]),
    columns={"modes": "modes covered", "covered": "modes covered (%)", "good": "good samples (%)"},
    scales=three_scales(
        seeds=5,
        minutes=(32, 800, 800),
        settings=(SMALL, PUBLISHED, PUBLISHED),
        about=(
            "Three hidden layers of 256 units, 3,000 iterations.",
            "The paper's own size: 512 units, 20,000 iterations.",
            "512 units, 20,000 iterations of five discriminator steps and one generator step.",
        ),
    ),
    draw=draw,
    reading=(
        "The figure gives no numbers: modes covered and the share of samples within three standard deviations of a "
        "mode (Srivastava et al. 2017) stand for what it shows.",
        "The training is that of the authors' public example (github.com/hongyi-zhang/mixup). The discriminator learns "
        "from mixtures of any two samples, real or generated, each with a λ of its own from U(0, 0.2). The generator's "
        "step mixes nothing. The toys are a ring of radius 1 and a grid in [−1, 1], with a standard deviation of 0.01.",
        "The equation of Section 3.7 mixes a real with a generated sample in both steps, with λ ~ Beta(0.2, 0.2). The "
        "library has that form too; on these toys its samples leave the data.",
    ),
    pilot="The plain GAN alone on the ring, seed 100, which no result uses: with 256 units it covers no mode after "
    "1,000 iterations, which take 50 s on one core.",
)
