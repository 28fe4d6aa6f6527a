r"""Trees of gradient boosting as arrays: what scikit-learn fitted, evaluated by torch and saved as safetensors.

The logits of class k are a constant and the sum of the leaves that a row falls into,

.. math:: z_k = b_k + \sum_{t=1}^{T} v_{t,k}(x)

With two classes there is one tree a step, for the second class; the logit of the first is 0.

References
----------
Friedman, "Greedy Function Approximation: A Gradient Boosting Machine", Annals of Statistics 2001.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vicinal._checks import integer, number

__all__ = ["Boosted"]


class Boosted(nn.Module):
    """Boosted trees: features `[B, …]`, which are flattened, to logits `[B, n_classes]`; constant before `set_trees`.

    There are at most `iterations` trees for each class (scikit-learn's usual number; the validation set says how many)
    of at most so many leaves and such a depth; each counts by `rate`, and `l2` is the penalty on the values of leaves.

    >>> Boosted(8, 3, iterations=5)(torch.randn(4, 8)).shape
    torch.Size([4, 3])
    """

    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    baseline: Tensor

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        iterations: int = 100,
        rate: float = 0.1,
        leaves: int = 31,
        depth: int = 10,
        l2: float = 0.0,
    ) -> None:
        super().__init__()
        self.n_features = integer("n_features", n_features, low=1)
        self.iterations, self.leaves = integer("iterations", iterations, low=1), integer("leaves", leaves, low=2)
        self.rate, self.depth = number("rate", rate, above=0), integer("depth", depth, low=1)
        self.l2 = number("l2", l2, low=0)
        self.outputs = 1 if integer("n_classes", n_classes, low=2) == 2 else n_classes
        shape = (self.iterations, self.outputs, 2 * self.leaves - 1)
        # Node 0 of zeros leads to itself and is worth nothing: a tree that is not there.
        for name in ("feature", "left", "right"):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.int64))
        for name in ("threshold", "value"):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("baseline", torch.zeros(self.outputs, dtype=torch.float64))
        nn.Module.register_load_state_dict_post_hook(self, _check_trees)

    def set_trees(self, trees: Sequence[Sequence[Any]], baseline: Any) -> None:
        """Take fitted trees: for each iteration and output the nodes, as scikit-learn's predictors have them.

        The nodes are structured arrays with the fields feature_idx, num_threshold, left, right, value and is_leaf; the
        baseline has a constant for each output.
        """
        for name in ("feature", "threshold", "left", "right", "value"):
            getattr(self, name).zero_()
        self.baseline.copy_(torch.as_tensor(baseline).flatten())
        for t, of_iteration in enumerate(trees):
            for k, nodes in enumerate(of_iteration):
                n = len(nodes)
                leaf, place = torch.tensor(nodes["is_leaf"].astype(bool)), torch.arange(n)
                for name, field in (("left", "left"), ("right", "right")):
                    children = torch.tensor(nodes[field].astype("int64"))
                    getattr(self, name)[t, k, :n] = torch.where(leaf, place, children)
                feature, threshold = nodes["feature_idx"].astype("int64"), nodes["num_threshold"].astype("float64")
                self.feature[t, k, :n] = torch.where(leaf, 0, torch.tensor(feature))
                self.threshold[t, k, :n] = torch.where(leaf, 0.0, torch.tensor(threshold))
                self.value[t, k, :n] = torch.tensor(nodes["value"].astype("float64"))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits `[B, n_classes]`: every row goes down all trees at once, a level at a time."""
        rows = torch.flatten(x, 1).double()
        n_nodes = self.feature.shape[2]
        root = n_nodes * torch.arange(self.iterations * self.outputs, device=rows.device)
        feature, threshold, left, right, value = (
            nodes.flatten() for nodes in (self.feature, self.threshold, self.left, self.right, self.value)
        )
        at = root.expand(rows.shape[0], -1)  # len() would fix the number of rows of an exported graph
        for _ in range(min(self.depth, self.leaves - 1)):  # a tree of so many leaves is no deeper
            below = rows.gather(1, feature[at]) <= threshold[at]
            at = root + torch.where(below, left[at], right[at])
        logits: Tensor = value[at].unflatten(1, (self.iterations, self.outputs)).sum(dim=1) + self.baseline
        if self.outputs == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        return logits.float()


def _check_trees(model: Boosted, incompatible: object) -> None:
    """Refuse loaded trees that lead out of themselves, or ask for features that rows do not have."""
    limits = {"feature": model.n_features, "left": model.feature.shape[2], "right": model.feature.shape[2]}
    for name, limit in limits.items():
        numbers = getattr(model, name)
        if not bool(((numbers >= 0) & (numbers < limit)).all()):
            raise ValueError(f"the trees are damaged: {name} must be in [0, {limit - 1}], got {int(numbers.min())} to "
                             f"{int(numbers.max())}")  # fmt: skip
