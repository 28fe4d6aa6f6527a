"""T19 Figure 5: how the entropy of mixed labels is distributed, by α."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betainc, psi

from vicinal import _random
from vicinal.papers.base import Place, Recipe, Scale, Settings, three_scales
from vicinal.papers.claims import Claim, Key, metric, trend
from vicinal.papers.plots import COLOURS, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vicinal.papers.results import Measured, Result
    from vicinal.papers.trained import Trained

ALPHAS = (0.1, 0.2, 0.3, 0.4, 1.0, 4.0)


def row(alpha: float) -> Key:
    return (f"α = {alpha:g}",)


def cells(at: Scale) -> Iterable[tuple[Key, Settings]]:
    return [(row(alpha), {"alpha": alpha}) for alpha in ALPHAS]


def measure(trained: Sequence[Trained], settings: Settings, seed: int) -> Measured:
    """Return the mean entropy of two different labels mixed by the λ that the objectives draw, and what it should be.

    E H(λ) = 2 E[−λ log λ] = ψ(2α + 1) − ψ(α + 1).
    """
    alpha = settings["alpha"]
    lam = _random.beta(alpha, settings["draws"], generator=torch.Generator().manual_seed(seed))
    entropy = torch.special.entr(lam) + torch.special.entr(1 - lam)
    return {"entropy": float(entropy.mean()), "exact": float(psi(2 * alpha + 1) - psi(alpha + 1))}


def claims(at: Scale) -> Iterable[Claim]:
    rise = trend([metric("entropy", *row(alpha)) for alpha in ALPHAS])
    text = "mixed labels have more entropy with a larger α (mean step between the six values)"
    yield Claim(text, rise, primary=True, unit="nats")
    for lower, higher in itertools.pairwise(ALPHAS):
        yield Claim(
            f"labels mixed with α = {higher:g} have more entropy than with α = {lower:g}",
            metric("entropy", *row(higher)) - metric("entropy", *row(lower)),
            unit="nats",
        )


def entropy_cdf(entropy: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Return P(H(λ) ≤ entropy) = 2 I_x(α, α), where x ≤ ½ has this entropy and λ ~ Beta(α, α).

    >>> entropy_cdf(np.array([0.0, 0.5, np.log(2)]), 1.0).round(4)  # λ uniform
    array([0.    , 0.3994, 1.    ])
    """
    # All at once: scipy's root finders take one equation at a time.
    low, high = np.zeros_like(entropy), np.full_like(entropy, 0.5)
    for _ in range(60):  # bisect, since the entropy grows with λ up to ½
        middle = (low + high) / 2
        found = -(middle * np.log(middle) + (1 - middle) * np.log1p(-middle))
        low, high = np.where(found < entropy, middle, low), np.where(found < entropy, high, middle)
    return np.where(entropy >= math.log(2), 1.0, 2 * betainc(alpha, alpha, low))


def draw(result: Result) -> Figure:
    """Draw the exact share of labels in each of 40 bins of entropy, for each α."""
    drawn, (ax,) = panels(1, size=(6.0, 3.4))
    edges = math.log(2) * np.linspace(0, 1, 41)
    for alpha, colour in zip(ALPHAS, COLOURS, strict=False):
        shares = 100 * np.diff(entropy_cdf(edges, alpha))
        ax.stairs(shares, edges, baseline=None, color=colour, lw=1.6, label=f"α = {alpha:g}")
    ax.set(xlim=(0, math.log(2)), yscale="log", ylim=(0.01, 100))
    ax.set(xlabel="entropy of the mixed label (nats)", ylabel="share of mixed labels (%)")
    drawn.legend(loc="outside upper center", ncols=6, fontsize="small", frameon=False)
    return drawn


RECIPE = Recipe(
    place=Place("T19", "Figure 5", "Entropy of mixed labels as a function of α"),
    cells=cells,
    measure=measure,
    claims=claims,
    columns={"entropy": "mean entropy (nats)", "exact": "ψ(2α + 1) − ψ(α + 1)"},
    scales=three_scales(
        seeds=5,
        minutes=(0.2, 0.5, 0.5),
        settings=({"draws": 20_000}, {"draws": 1_000_000}, {"draws": 1_000_000}),
    ),
    draw=draw,
    reading=(
        "The text names no values of α for this figure; these span those of the paper's experiments. The drawn bars "
        "are exact, the table is of the λ that the objectives draw.",
    ),
    pilot="None: nothing is trained.",
)
