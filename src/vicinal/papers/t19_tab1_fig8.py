"""T19 Table 1 and Figure 8: telling other images and noise from the test set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vicinal import _random
from vicinal.data import Split, Task, load, read, stratified_subset
from vicinal.metrics import auroc, max_probability
from vicinal.papers import images
from vicinal.papers.base import Data, Method, Network, Place, Printed, Recipe, Scale, Settings
from vicinal.papers.claims import FIRST_SEED, Claim, Contrast, Key, pooled
from vicinal.papers.plots import COLOURS, panels
from vicinal.papers.trained import Part
from vicinal.probes.noise import gaussian_like
from vicinal.probes.uncertainty import MCDropout
from vicinal.runs import Bundle
from vicinal.runs.probes import Unlabelled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vicinal.papers.results import Measured, Result
    from vicinal.papers.trained import Trained

ERM, MIXUP, DROPOUT = "baseline", "mixup (α = 0.4)", "dropout (p = 0.3)"
METHODS = {ERM: Method("ERM()"), MIXUP: Method("Mixup(alpha=0.4)"), DROPOUT: Method("ERM()", {"dropout": 0.3})}
#: The paper's AUROC with other images and with noise; temperature scaling is the baseline's own run.
SCALED = "temperature"
PAPER = {ERM: (80.57, 73.28), MIXUP: (83.28, 95.93), SCALED: (56.2, 54.2), DROPOUT: (78.93, 70.57)}
OTHERS = {ERM: "the baseline", SCALED: "the baseline after temperature scaling", DROPOUT: "MC dropout"}
EDGES = np.linspace(0, 1, 21)


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the AUROC of the highest probability: as it is, and after the temperature; with dropout over passes."""
    bundle, task = trained[0].bundle, trained[0].task
    chosen = stratified_subset(task.test.labels or [], min(settings["n"], len(task.test)), seed=seed)
    other = _other(bundle, settings["other"])
    n_out = min(settings["n_out"], len(other))
    generator = torch.Generator().manual_seed(_random.seed_from("noise", seed))
    plain = task.train.relabelled(task.train.labels or [], augment="none")
    sets: dict[str, Part | Unlabelled] = {
        "in": Part(task.test, chosen),
        "other": Part(other, stratified_subset(other.labels or [], n_out, seed=seed)),
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


def _other(bundle: Bundle, source: str) -> Split:
    """Return the other images as the network takes them, with classes of their own."""
    return read(source, bundle.preprocessing, classes=load(source).classes)


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
    on, *_ = at.pairs()

    def gain(name: str, row: str) -> Contrast:
        other = on.metric(f"{name} after temperature", ERM) if row == SCALED else on.metric(name, row)
        return on.metric(name, MIXUP) - other

    for row, than in OTHERS.items():
        papers = [(mixup - other) / 100 for mixup, other in zip(PAPER[MIXUP], PAPER[row], strict=True)]
        yield Claim(
            f"mixup detects other images and noise better than {than}, on average",
            pooled([gain("other", row), gain("noise", row)]),
            primary=True,
            paper=sum(papers) / 2,
        )
        for name, printed, paper in (("other", at.settings["printed"], papers[0]), ("noise", "noise", papers[1])):
            yield Claim(f"mixup detects {printed} better than {than}", gain(name, row), paper=paper)


def draw(result: Result) -> Figure:
    drawn, axes = panels(2, size=(4.2, 3.0), share=True)
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


SMALL = {"n": 2000, "n_out": 1000, "passes": 10, "other": "cifar10", "printed": "CIFAR-10 in grey"}


def row_printed(key: Key) -> dict[str, Printed]:
    columns = {"other": "AUROC, ImageNet", "noise": "AUROC, Gaussian noise"}
    found = {name: Printed(key[-1], column) for name, column in columns.items()}
    if key[-1] == ERM:
        found |= {f"{name} after temperature": Printed("temperature", column) for name, column in columns.items()}
    return found


RECIPE = Recipe(
    place=Place("T19", "Table 1 and Figure 8", "Detecting other images and noise"),
    methods=METHODS,
    measure=measure,
    check=check,
    claims=claims,
    curves=("other scores", "noise scores", "other scores after temperature", "noise scores after temperature"),
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
        "cpu": Scale(
            seeds=range(FIRST_SEED, FIRST_SEED + 5),
            minutes=50,
            data=images.small("fashion-mnist", factor=4),
            networks=images.NIGHT,
            training=images.TRAINING,
            settings=SMALL,
            about="Fashion-MNIST in place of STL-10, 4,000 images without augmentation, against CIFAR-10 in grey; "
            "PreAct ResNet-18 of width 16, 20 epochs of SGD (0.05, cosine, weight decay 5e-4, batches of 64).",
        ),
        "night": Scale(
            seeds=range(FIRST_SEED, FIRST_SEED + 5),
            minutes=140,
            data=images.small("fashion-mnist", factor=4),
            networks=images.NIGHT,
            training=images.NIGHT_TRAINING,
            settings=SMALL,
            about="60 epochs; else as at cpu scale.",
        ),
        "paper": Scale(
            seeds=range(FIRST_SEED, FIRST_SEED + 5),
            minutes=3_000,
            data={"STL-10": Data("stl10", {"val": 500})},
            networks={"VGG-16": Network("vgg16")},
            training=images.T19_TRAINING,
            settings={"n": 8000, "n_out": 8000, "passes": 10, "other": "tinyimagenet", "printed": "ImageNet"},
            about="VGG-16 on STL-10 against Tiny ImageNet, which the caption names; some of its classes are kinds of "
            "STL-10's.",
        ),
    },
    original={"val": 0},
    printed=row_printed,
    draw=draw,
    reading=(
        "The caption of Table 1 speaks of the DAC and of Tiny ImageNet, its columns of ImageNet and Gaussian noise, "
        "and the text of classes of ImageNet that training did not see. Noise has the mean and variance of each "
        "channel of the training set. The other images are drawn from all of their classes, others for every seed.",
        "Dropout stays on for ten passes whose probabilities are averaged. A PreAct ResNet has a dropout layer in "
        "every block, VGG-16 has one, before its classifier; the paper does not say where its network has it.",
    ),
    pilot="None of its own: the night network on as many images as STL-10 has, about. Of the common cell: "
    + images.PILOT,
)
