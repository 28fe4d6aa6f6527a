r"""Perceptrons and boosted trees of several libraries that answer together, weighted on validation rows.

.. math:: \bar p = \sum_m w_m\, p_m, \qquad w = \mathop{\mathrm{argmax}}_{w \ge 0,\, \sum w = 1} \sum_i \log
    \sum_m w_m\, p_m(y_i | x_i) + a \sum_m \log w_m

over rows that no part was trained on, and a rows more that each part alone gets right: few rows leave the parts near
equal shares. It is found by expectation maximisation, and the objective is concave. It is the linear opinion pool of
Wolpert's stacking, where one number a part is learned.

References
----------
Wolpert, "Stacked Generalization", Neural Networks 1992. Breiman, "Stacked Regressions", Machine Learning 1996.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from vicinal._checks import choice
from vicinal.models.boosted import Boosted
from vicinal.models.tree_fitting import gather, grow
from vicinal.models.tree_libraries import CatBoostTrees, LibraryTrees, LightGBMTrees
from vicinal.models.two_views import TwoViewMLP
from vicinal.probes.uncertainty import mean_logits

#: The trees that may stand beside the perceptrons.
TREES: dict[str, type[Boosted | LibraryTrees]] = {
    "hgb": Boosted,
    "lightgbm": LightGBMTrees,
    "catboost": CatBoostTrees,
}
#: Rows more that each part alone gets right.
_ROWS_MORE = 3.0
#: Rounds of expectation maximisation, and how little a share moves in the last.
_ROUNDS, _PRECISION = 5_000, 1e-6


def trees_at_hand() -> list[str]:
    """Return the trees whose libraries are installed; scikit-learn always is."""
    return [name for name in TREES if name == "hgb" or find_spec(name) is not None]


class Stack(nn.Module):
    """Two perceptrons and several boosted trees: features `[B, …]`, flattened, to logits `[B, n_classes]`.

    It is trained as the perceptrons alone; `after_fit` grows the trees and weights all.

    Parameters
    ----------
    parts
        The trees beside the perceptrons: `"hgb"` (scikit-learn's), `"lightgbm"` and `"catboost"`.
    plain, hidden, dropout
        As in `TwoViewMLP`.
    numbers, categories
        As in `TreeColumns`.
    iterations, leaves
        Of the trees of scikit-learn, as in `MLPAndTrees`; the others have their own defaults.

    Attributes
    ----------
    shares
        w, how much the perceptrons and each of the trees count. Saved with the weights.

    Examples
    --------
    >>> Stack(8, 3, parts=["hgb"]).eval()(torch.randn(5, 8)).shape
    torch.Size([5, 3])
    """

    shares: Tensor

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        parts: Sequence[str] = ("hgb", "lightgbm", "catboost"),
        plain: Sequence[int] | None = None,
        hidden: Sequence[int] = (128, 128),
        dropout: float = 0.1,
        numbers: Sequence[int] | None = None,
        categories: Sequence[Sequence[int]] = (),
        iterations: int = 100,
        leaves: int = 15,
    ) -> None:
        super().__init__()
        self.network = TwoViewMLP(n_features, n_classes, plain=plain, hidden=hidden, dropout=dropout)
        seen: Mapping[str, Any] = {"numbers": numbers, "categories": categories}
        own: dict[str, dict[str, Any]] = {"hgb": {"iterations": iterations, "leaves": leaves, "l2": 1.0}}
        names = [choice("parts", name, tuple(TREES)) for name in parts]
        self.trees = nn.ModuleDict(
            {name: TREES[name](n_features, n_classes, **seen, **own.get(name, {})) for name in names}
        )
        self.register_buffer("shares", torch.tensor([1.0] + [0.0] * len(self.trees)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the perceptrons in training and before there are trees, else those of the mean."""
        logits: Tensor = self.network(x)
        if self.training or float(self.shares[0]) == 1:
            return logits
        each = torch.stack([logits, *(trees(x) for trees in self.trees.values())])
        return mean_logits(each, 0, weights=self.shares.view(-1, 1, 1))

    @torch.no_grad()
    def after_fit(
        self, train: Iterable[tuple[Tensor, Tensor, Tensor | None]], val: Iterable[tuple[Tensor, Tensor]]
    ) -> None:
        """Choose the share of the perceptrons' views, grow the trees, and choose how much each counts.

        Call it in eval mode. Where the training rows lack a class, which trees need, the perceptrons stay alone.
        """
        self.network.after_fit(train, val)
        of_truth = [_of_truth(self.network, val)]
        for trees in self.trees.values():
            trees = cast("Boosted | LibraryTrees", trees)
            seen = gather(trees, train)
            if len(np.unique(seen.labels)) < max(trees.outputs, 2):
                return
            grow(trees, seen, gather(trees, ((x, y, None) for x, y in val)))
            of_truth.append(_of_truth(trees, val))
        self.shares.copy_(best_shares(torch.stack(of_truth)))

    def share_of(self) -> dict[str, float]:
        """Return how much each part counts, by name."""
        return dict(zip(["network", *self.trees], self.shares.tolist(), strict=True))


def best_shares(of_truth: Tensor, rows_more: float = _ROWS_MORE) -> Tensor:
    """Return how much each of M models should count in a mean of probabilities, by rows not trained on, `[M]`.

    `of_truth` `[M, N]` are the probabilities of what was true.

    >>> best_shares(torch.tensor([[0.9, 0.9], [0.9, 0.9]])).tolist()
    [0.5, 0.5]
    """
    p = of_truth.double().clamp_min(1e-12)
    shares = torch.full((len(p), 1), 1 / len(p), dtype=torch.float64)
    for _ in range(_ROUNDS):
        part = shares * p
        counts = (part / part.sum(dim=0)).sum(dim=1, keepdim=True) + rows_more
        moved, shares = shares, counts / counts.sum()
        if float((shares - moved).abs().max()) < _PRECISION:
            break
    return shares[:, 0]


def _of_truth(model: nn.Module, val: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the probability that a model gives to each row's class, `[N]`."""
    found = [model(x).cpu().double().softmax(dim=1)[torch.arange(len(y)), y.cpu()] for x, y in val]
    return torch.cat(found)
