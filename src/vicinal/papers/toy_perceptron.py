"""What the recipes on two-dimensional toys share: a perceptron trained on points, and maps of its probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from vicinal import _random, models, parse
from vicinal.papers.base import Scale, Settings, keeps_plot_data, three_scales
from vicinal.papers.plots import panels
from vicinal.training import FitConfig, fit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vicinal.papers.results import Measured, Result

#: Points on a side of the square in which probabilities are asked for.
SIDE = 41


class Learned(NamedTuple):
    """What a perceptron says of its training points, and of the square around them."""

    points: Tensor
    labels: Tensor
    logits: Tensor
    square: Tensor
    """The probability of the second class, `[SIDE²]`."""

    def drawn(self, seed: int, *, most: int | None = None) -> Measured:
        """Return what the plot shows, for the seeds that keep it: the map, and so many points."""
        if not keeps_plot_data(seed):
            return {}
        return {"map": self.square.view(SIDE, SIDE).T.tolist(), "points": self.points[:most].tolist()}


def learn(
    toy: Callable[..., tuple[Tensor, Tensor]], settings: Settings, seed: int, *, extent: float, **training: Any
) -> Learned:
    """Train a perceptron on a toy with the method and for the epochs of `settings`."""
    generator = torch.Generator().manual_seed(_random.seed_from("toy", seed))
    points, labels = toy(settings["points"], generator=generator)
    _random.seed_globals(_random.seed_from("weights", seed))
    model = models.build("mlp", kind="tabular", n_classes=2, input_shape=(2,))
    config = FitConfig(epochs=settings["epochs"], batch_size=64, optimizer="adam", seed=seed, trackers=(), **training)
    fit(model, parse(settings["method"]), TensorDataset(points, labels), config=config, progress=False)
    line = torch.linspace(-extent, extent, SIDE)
    with torch.inference_mode():
        return Learned(points, labels, model(points), model(torch.cartesian_prod(line, line)).softmax(1)[:, 1])


def scales(*, minutes: tuple[float, float], points: tuple[int, int], epochs: tuple[int, int]) -> dict[str, Scale]:
    """Return five seeds of a few points, and five of more, which is the papers' scale too: they give no sizes."""
    few, many = ({"points": n, "epochs": length} for n, length in zip(points, epochs, strict=True))
    return three_scales(seeds=5, minutes=(*minutes, minutes[1]), settings=(few, many, many))


def maps(extent: float, *, size: tuple[float, float]) -> Callable[[Result], Figure]:
    """Return what draws the map of each method, and the points."""

    def draw(result: Result) -> Figure:
        drawn, axes = panels(len(result.keys), size=size)
        for ax, key in zip(axes, result.keys, strict=True):
            if shown := result.first(key, "map"):
                ax.imshow(shown, origin="lower", extent=(-extent, extent) * 2, cmap="RdBu", vmin=0, vmax=1)
                ax.plot(*zip(*result.first(key, "points"), strict=True), ".", ms=1.5, color="#222222")
            ax.grid(False)
            ax.set_title(key[0], fontsize="small")
        return drawn

    return draw
