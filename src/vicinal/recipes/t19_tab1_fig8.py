"""T19 Table 1 and Figure 8: telling other images and noise from the test set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vicinal import _random
from vicinal.data import Task, load, stratified_subset
from vicinal.metrics import auroc, max_probability
from vicinal.probes.noise import gaussian_like
from vicinal.probes.uncertainty import MCDropout
from vicinal.recipes import images
from vicinal.recipes.base import Data, Method, Network, Place, Recipe, Scale, Settings
from vicinal.recipes.claims import Claim
from vicinal.recipes.drawing import COLOURS, panels
from vicinal.recipes.trained import Part
from vicinal.runs import Bundle
from vicinal.runs.probes import Unlabelled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vicinal.recipes.results import Measured, Result
    from vicinal.recipes.trained import Trained

ERM, MIXUP, DROPOUT = "baseline", "mixup (α = 0.4)", "dropout (p = 0.3)"
METHODS = {ERM: Method("ERM()"), MIXUP: Method("Mixup(alpha=0.4)"), DROPOUT: Method("ERM()", {"dropout": 0.3})}
#: The paper's AUROC with other images and with noise; temperature scaling is the baseline's own run.
SCALED = "temperature"
PAPER = {ERM: (80.57, 73.28), MIXUP: (83.28, 95.93), SCALED: (56.2, 54.2), DROPOUT: (78.93, 70.57)}
EDGES = np.linspace(0, 1, 21)


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the AUROC of the highest probability: as it is, and after the temperature; with dropout over passes."""
    bundle, task = trained[0].bundle, trained[0].task
    chosen = stratified_subset(task.test.labels or [], settings["n"], seed=seed)
    other = bundle.read(settings["other"])
    generator = torch.Generator().manual_seed(_random.seed_from("noise", seed))
    plain = task.train.relabelled(task.train.labels or [], augment="none")
    sets: dict[str, Part | Unlabelled] = {
        "in": Part(task.test, chosen),
        "other": Part(other, range(settings["n_out"])),
        "noise": Unlabelled(gaussian_like(plain, settings["n_out"], generator=generator)),
    }
    dropout = any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in bundle.module.modules())
    passes = MCDropout(bundle.module, settings["passes"]) if dropout else None
    scores = {name: _logits(bundle, some, passes, seed) for name, some in sets.items()}
    measured: Measured = {}
    for suffix, temperature in (("", 1.0), (" after temperature", trained[0].temperature)):
        scaled = {name: max_probability(logits.double() / temperature) for name, logits in scores.items()}
        for name in ("other", "noise"):
            measured[f"{name}{suffix}"] = auroc(scaled["in"], scaled[name])
            counts = np.histogram(scaled[name], EDGES)[0]
            measured[f"{name} scores{suffix}"] = (counts / counts.sum()).tolist()
    return measured


def _logits(bundle: Bundle, dataset: Part | Unlabelled, passes: MCDropout | None, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(_random.seed_from("passes", seed))
    network = None if passes is None else partial(passes, generator=generator)
    return torch.cat(list(bundle.iter_logits(dataset, batch_size=250, network=network)))


def check(at: Scale) -> Task:
    """Return the other images, which no network is trained on."""
    other = at.settings["other"]
    try:
        return load(other)
    except (OSError, ValueError, ImportError) as error:
        raise FileNotFoundError(f"t19-tab1-fig8 needs {other}: {error}") from error


def claims(at: Scale) -> Iterable[Claim]:
    for on in at.pairs():
        for number, (name, printed) in enumerate((("other", at.settings["printed"]), ("noise", "noise"))):
            others = (
                (ERM, "the baseline", on.figure(name, ERM)),
                (SCALED, "the baseline after temperature scaling", on.figure(f"{name} after temperature", ERM)),
                (DROPOUT, "MC dropout", on.figure(name, DROPOUT)),
            )
            for row, other, auroc_of in others:
                yield Claim(
                    f"mixup tells {printed} better than {other}",
                    on.figure(name, MIXUP) - auroc_of,
                    paper=(PAPER[MIXUP][number] - PAPER[row][number]) / 100,
                )


def draw(result: Result) -> Figure:
    drawn, axes = panels(2, size=(4.2, 3.0))
    middle = (EDGES[1:] + EDGES[:-1]) / 2
    for ax, name in zip(axes, ("other", "noise"), strict=True):
        lines = [(key[-1], key, f"{name} scores") for key in result.keys]
        lines += [
            (f"{ERM}, temperature", key, f"{name} scores after temperature") for key in result.keys if key[-1] == ERM
        ]
        for m, (label, key, curve) in enumerate(lines):
            ax.plot(middle, 100 * result.curve(key, curve).mean(axis=0), color=COLOURS[m], label=label)
        ax.set(xlabel="highest probability", ylabel="samples (%)", title="other images" if name == "other" else "noise")
    axes[0].legend(fontsize="small", frameon=False)
    return drawn


RECIPE = Recipe(
    place=Place("T19", "Table 1 and Figure 8", "Detecting other images and noise"),
    methods=METHODS,
    measure=measure,
    check=check,
    claims=claims,
    columns={
        "other": "AUROC, other images (%)",
        "other after temperature": "… after temperature (%)",
        "noise": "AUROC, noise (%)",
        "noise after temperature": "… after temperature (%)",
    },
    published={
        name: {"AUROC, ImageNet": values[0], "AUROC, Gaussian noise": values[1]} for name, values in PAPER.items()
    },
    scales={
        **images.scales(
            "fashion-mnist",
            seeds=5,
            minutes=(6, 60, 0),
            paper=images.PREACT,
            settings={"n": 2000, "n_out": 1000, "passes": 10, "other": "cifar10", "printed": "CIFAR-10 in grey"},
        ),
        "paper": Scale(
            seeds=range(5),
            minutes=3_000,
            data={"STL-10": Data("stl10", {"val": 500})},
            networks={"VGG-16": Network("vgg16")},
            training=images.T19_TRAINING,
            settings={"n": 8000, "n_out": 8000, "passes": 10, "other": "tinyimagenet", "printed": "ImageNet"},
            about="VGG-16 on STL-10 against Tiny ImageNet, which the caption names; some of its classes are kinds of "
            "STL-10's.",
        ),
    },
    draw=draw,
    reading=(
        "The caption of Table 1 speaks of the DAC and of Tiny ImageNet, its columns of ImageNet and Gaussian noise, "
        "and the text of classes of ImageNet that training did not see. Noise has the mean and variance of each "
        "channel of the training set. Dropout stays on for ten passes whose probabilities are averaged; its network "
        "is trained with dropout in every block.",
    ),
    pilot=images.PILOT,
)
