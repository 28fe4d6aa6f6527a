"""Z18 Figure 1b: the decision boundary of a toy problem, sharp under ERM and soft under mixup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch.utils.data import TensorDataset

from vicinal import _random, models, parse
from vicinal.probes.toys import disc_in_ring
from vicinal.recipes.base import Recipe, Scale, Settings, is_drawn
from vicinal.recipes.claims import Claim, Key, figure
from vicinal.recipes.drawing import panels
from vicinal.training import FitConfig, fit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vicinal.recipes.results import Measured, Result
    from vicinal.recipes.trained import Trained

ERM, MIXUP = "ERM()", "Mixup(alpha=1.0)"
EXTENT, SIDE = 1.4, 41


def cells(at: Scale) -> Iterable[tuple[Key, Settings]]:
    return [((method,), {"method": method}) for method in (ERM, MIXUP)]


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the share of the shown square in which the probability is between 0.1 and 0.9, and the training error."""
    generator = torch.Generator().manual_seed(_random.seed_from("toy", seed))
    points, labels = disc_in_ring(settings["points"], generator=generator)
    _random.seed_globals(_random.seed_from("weights", seed))
    model = models.build("mlp", kind="tabular", n_classes=2, input_shape=(2,))
    config = FitConfig(epochs=settings["epochs"], batch_size=64, optimizer="adam", seed=seed, trackers=())
    fit(model, parse(settings["method"]), TensorDataset(points, labels), config=config, progress=False)
    line = torch.linspace(-EXTENT, EXTENT, SIDE)
    with torch.inference_mode():
        shown = model(torch.cartesian_prod(line, line)).softmax(1)[:, 1]
        wrong = model(points).argmax(1) != labels
    band = ((shown > 0.1) & (shown < 0.9)).double().mean()
    measured = {"band": float(band), "error": float(wrong.double().mean())}
    return {
        **measured,
        **({"map": shown.view(SIDE, SIDE).T.tolist(), "points": points[:200].tolist()} if is_drawn(seed) else {}),
    }


def claims(at: Scale) -> Iterable[Claim]:
    yield Claim(
        text="the band in which the probability is between 0.1 and 0.9 is wider under mixup",
        contrast=figure("band", MIXUP) - figure("band", ERM),
    )


def draw(result: Result) -> Figure:
    drawn, axes = panels(len(result.keys), size=(3.4, 3.2))
    for ax, key in zip(axes, result.keys, strict=True):
        if shown := result.first(key, "map"):
            ax.imshow(shown, origin="lower", extent=(-EXTENT, EXTENT) * 2, cmap="RdBu", vmin=0, vmax=1)
            ax.plot(*zip(*result.first(key, "points"), strict=True), ".", ms=2, color="#222222")
        ax.set_title(key[0])
    return drawn


RECIPE = Recipe(
    paper="Z18",
    place="Figure 1b",
    title="A toy problem: how wide the transition between two classes is",
    cells=cells,
    measure=measure,
    claims=claims,
    columns={"band": "band (% of the square)", "error": "training error (%)"},
    scales={
        "cpu": Scale(seeds=range(10), minutes=2, settings={"points": 600, "epochs": 60}),
        "night": Scale(seeds=range(20), minutes=10, settings={"points": 2000, "epochs": 200}),
        "paper": Scale(seeds=range(20), minutes=10, settings={"points": 2000, "epochs": 200}),
    },
    draw=draw,
    reading=(
        "The data and the network of the figure are not given: a disc inside a ring and an MLP of 2 × 128 stand in for "
        "them, with α = 1.",
    ),
    pilot="None is recorded: the sizes were set by the time they take.",
)
