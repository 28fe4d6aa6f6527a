r"""Perceptrons and boosted trees that answer together: the default model for rows of a table.

.. math:: \bar p = w \operatorname{softmax}(f(x)) + (1 - w) \operatorname{softmax}(g(x))

f is `TwoViewMLP`, g is `Boosted`. They are trained apart, first f, and their mistakes differ: a network is smooth in
the numbers, trees are steps. Rows that neither was trained on choose the share :math:`w` (`averaged.best_share`), and
how many trees there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from vicinal.models.averaged import best_share
from vicinal.models.boosted import Boosted
from vicinal.models.tree_fitting import gather, grow
from vicinal.models.two_views import TwoViewMLP
from vicinal.probes.uncertainty import mean_logits

#: Prior rows for either in the choice of the share: trees learn less from few rows, and have to show that they help.
_ROWS_MORE = (10.0, 1.0)


class MLPAndTrees(nn.Module):
    """Two perceptrons and boosted trees: features `[B, …]`, which are flattened, to logits `[B, n_classes]`.

    It is trained as the perceptrons alone; `after_fit` grows the trees. They are smaller than those of `Boosted` by
    default, and the values of their leaves are shrunk: beside a network they need not be the best by themselves
    (`benchmarks/README.md`).

    Parameters
    ----------
    plain, hidden, dropout
        As in `TwoViewMLP`.
    numbers, categories, iterations, rate, leaves, depth, l2
        As in `Boosted`.

    Attributes
    ----------
    share
        w, how much the perceptrons count; 1, all, before there are trees. Saved with the weights.

    Examples
    --------
    >>> MLPAndTrees(8, 3).eval()(torch.randn(5, 8)).shape
    torch.Size([5, 3])
    """

    share: Tensor

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        plain: Sequence[int] | None = None,
        hidden: Sequence[int] = (128, 128),
        dropout: float = 0.1,
        numbers: Sequence[int] | None = None,
        categories: Sequence[Sequence[int]] = (),
        iterations: int = 100,
        rate: float = 0.1,
        leaves: int = 15,
        depth: int = 10,
        l2: float = 1.0,
    ) -> None:
        super().__init__()
        self.network = TwoViewMLP(n_features, n_classes, plain=plain, hidden=hidden, dropout=dropout)
        self.trees = Boosted(
            n_features,
            n_classes,
            numbers=numbers,
            categories=categories,
            iterations=iterations,
            rate=rate,
            leaves=leaves,
            depth=depth,
            l2=l2,
        )
        self.register_buffer("share", torch.tensor(1.0))
        self._has_trees = False
        nn.Module.register_load_state_dict_post_hook(self, _look_for_trees)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the perceptrons in training and before there are trees, else those of the mean."""
        logits: Tensor = self.network(x)
        if self.training or not self._has_trees:
            return logits
        weights = torch.stack([self.share, 1 - self.share]).view(2, 1, 1)
        return mean_logits(torch.stack([logits, self.trees(x)]), 0, weights=weights)

    @torch.no_grad()
    def after_fit(
        self, train: Iterable[tuple[Tensor, Tensor, Tensor | None]], val: Iterable[tuple[Tensor, Tensor]]
    ) -> None:
        """Choose the share of the perceptrons' views, grow the trees, and choose how much they count.

        Call it in eval mode. Where the training rows lack a class, which trees need, the perceptrons stay alone.
        """
        self.network.after_fit(train, val)
        seen = gather(self.trees, train)
        # scikit-learn numbers the classes it sees; with one missing the outputs would shift.
        if len(np.unique(seen.labels)) < max(self.trees.outputs, 2):
            return
        grow(self.trees, seen, gather(self.trees, ((x, y, None) for x, y in val)))
        of_truth = torch.cat([self._of_truth(x, y) for x, y in val], dim=1)
        self.share.fill_(best_share(of_truth[0], of_truth[1], _ROWS_MORE))
        self._has_trees = True

    def _of_truth(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the probabilities of the true classes by both, `[2, B]`."""
        both = torch.stack([self.network(x), self.trees(x)]).cpu().double().softmax(dim=2)
        return both[:, torch.arange(len(y)), y.cpu()]


def _look_for_trees(model: MLPAndTrees, incompatible: object) -> None:
    share = float(model.share)
    if not 0 < share <= 1:
        raise ValueError(f"the weights are damaged: share must be in (0, 1], got {share}")
    model._has_trees = share < 1
