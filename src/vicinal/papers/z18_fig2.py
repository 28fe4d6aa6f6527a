"""Z18 Figure 2: what a network does between training samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from vicinal import _random
from vicinal.papers import images
from vicinal.papers.base import Place, Recipe, Scale, Settings, methods
from vicinal.papers.claims import Claim
from vicinal.papers.plots import COLOURS, panels
from vicinal.probes.between import between_samples

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vicinal.papers.results import Measured, Result
    from vicinal.papers.trained import Trained

ERM, MIXUP = "ERM()", "Mixup(alpha=1.0)"
LAMBDAS = [i / 10 for i in range(11)]


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the share of misses and the norm of the logits' gradient along segments, and at their middle."""
    train = trained[0].task.train
    module = trained[0].last().module
    plain = train.relabelled(train.labels or [], augment="none")
    measured: Measured = {}
    for name, pairs, gradient in (("misses", settings["pairs"], "none"), ("norm", settings["gradients"], "logits")):
        generator = torch.Generator().manual_seed(_random.seed_from("pairs", seed))
        seen = between_samples(module, plain, pairs=pairs, lambdas=LAMBDAS, gradient=gradient, generator=generator)
        curve = seen.misses if seen.gradient_norm is None else seen.gradient_norm
        measured |= {name: float(curve.value.mean()), f"{name} at λ": curve.value.tolist()}
    return measured


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        between = f"{on.data}: between training samples mixup"
        yield Claim(f"{between} misses fewer labels", on.fall("misses", ERM, MIXUP), primary=True)
        yield Claim(
            f"{between} has smaller gradients",
            on.fall("norm", ERM, MIXUP),
            margin=1.0,
            reason="a norm is not a share; one is about a twenty-fifth of ERM's",
            primary=True,
            unit="",
        )


def draw(result: Result) -> Figure:
    drawn, axes = panels(2, size=(4.2, 3.4))
    for ax, (name, label, factor) in zip(
        axes, (("misses", "misses (%)", 100), ("norm", "gradient norm", 1)), strict=True
    ):
        for m, key in enumerate(result.keys):
            lines = factor * result.curve(key, f"{name} at λ")
            ax.plot(LAMBDAS, lines.mean(axis=0), color=COLOURS[m % 7], label=key[-1])
            ax.fill_between(LAMBDAS, lines.min(axis=0), lines.max(axis=0), color=COLOURS[m % 7], alpha=0.15, lw=0)
        ax.set(xlabel="λ", ylabel=label, ylim=(0, None))
    handles, labels = axes[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=2, fontsize="small", frameon=False)
    return drawn


LONGER = images.ABOUT.replace("20 epochs", "60 epochs") + "."

RECIPE = Recipe(
    place=Place("Z18", "Figure 2", "Behaviour between training samples"),
    methods=methods(ERM, MIXUP),
    measure=measure,
    claims=claims,
    curves=("misses at λ", "norm at λ"),
    columns={"misses": "misses (%)", "norm": "gradient norm"},
    scales={
        scale: dataclasses.replace(at, training={**at.training, "epochs": 60, "keep_predictions_at": []}, about=LONGER)
        if scale == "cpu"
        else at
        for scale, at in images.scales(
            "cifar10", seeds=5, minutes=(9, 160, 600), paper=images.PREACT, settings={"pairs": 1000, "gradients": 100}
        ).items()
    },
    draw=draw,
    reading=(
        "A miss is a prediction that is neither label of the pair. The paper does not say which norm of which gradient "
        "it shows: here it is the Frobenius norm of the logits' Jacobian, averaged over λ = 0, 0.1, …, 1 and pairs.",
    ),
    pilot="None of its own: the common cell for 60 epochs. Of the common cell: " + images.PILOT,
)
