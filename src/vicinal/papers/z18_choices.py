"""Z18 Section 2: alternative design choices, told in prose."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from vicinal import _random, losses
from vicinal._typing import Model, Step
from vicinal.data import Split
from vicinal.mixing import mix, move
from vicinal.objectives.base import Objective
from vicinal.objectives.forward import call
from vicinal.papers import images
from vicinal.papers.base import Method, Place, Scale, Settings, experiment, methods
from vicinal.papers.claims import Claim, Key
from vicinal.papers.results import Measured
from vicinal.papers.trained import Trained, evaluation_of, metrics_of, train_with
from vicinal.runs import Experiment

ERM, MIXUP = "ERM()", "Mixup(alpha=1.0)"
THREE, SAME = "KMixup(alpha=1.0, k=3)", "Mixup(alpha=1.0, partners='same_class')"
TWO_LOADERS = "two loaders, α = 1"


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        for other, text, kind in (
            (SAME, "pairs of the same class gain less than any pairs", "above"),
            (THREE, "the errors of three samples (Dirichlet weights) and of two differ by less than a point", "equal"),
            (TWO_LOADERS, "the errors of one loader, shuffled, and of two differ by less than a point", "equal"),
        ):
            falls = on.fall("error", other, MIXUP)
            yield Claim(f"{on.data}: {text}", falls, kind=kind, primary=other == SAME)


class TwoLoaders(Objective):
    """mixup whose partners come from a batch of their own, drawn from the whole training set."""

    def __init__(self, alpha: float, dataset: Split) -> None:
        self.alpha, self.dataset = alpha, dataset
        self.collate_fn: Any = dataset.collate_fn

    def compute_terms(self, model: Model, x: Any, y: Tensor, step: Step) -> dict[str, Tensor]:
        lam = float(_random.beta(self.alpha, 1, generator=step.generator))
        chosen = _random.permutation(len(self.dataset), generator=step.generator)[: len(y)].tolist()
        x2, y2 = move(self.collate_fn([self.dataset[i] for i in chosen]), x.device)
        return {"mixed": losses.mixed_cross_entropy(call(model, mix(x, x2, lam)), y, y2, lam).mean()}

    def __repr__(self) -> str:
        return f"TwoLoaders(alpha={self.alpha})"


def cells(at: Scale) -> Iterable[tuple[Key, Settings]]:
    for on in at.pairs():
        yield on.cell(TWO_LOADERS), {"experiment": experiment(at, on, Method(MIXUP), 0).to_dict()}


def _experiment(settings: Settings, seed: int) -> Experiment:
    asked = Experiment.from_dict({**settings["experiment"], "seed": seed})
    training = {**asked.training, "select": "last"}
    return dataclasses.replace(asked, data={**asked.data, "seed": seed}, training=training)


def train(settings: Settings, seed: int, folder: Path) -> None:
    """Train with two loaders, which are no objective of their own."""
    train_with(_experiment(settings, seed), folder, objective=partial(TwoLoaders, 1.0))


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Measure the last epoch on the test set."""
    if "experiment" not in settings:
        return images.last_epoch(trained, settings, seed)
    return {**metrics_of(evaluation_of(_experiment(settings, seed), trained[0].folder))}


RECIPE = images.z18_table(
    place=Place("Z18", "Section 2", "Design choices: number of samples, loaders, pairs of the same class"),
    methods=methods(ERM, MIXUP, THREE, SAME),
    cells=cells,
    train=train,
    measure=measure,
    claims=claims,
    scales=images.scales("cifar10", seeds=5, minutes=(9, 450, 3_000), paper=images.PREACT),
    reading=(
        "The paper says these in prose, without numbers. That more samples work similarly well and one loader equally "
        "well is read as errors that differ by less than a point. That pairs of equal labels did not lead to the gains "
        "is read as a higher error.",
    ),
)
