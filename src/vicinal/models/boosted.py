r"""Trees of gradient boosting as arrays: what scikit-learn fitted, evaluated by torch and saved as safetensors.

The logits of class k are a constant and the sum of the leaves that a row falls into,

.. math:: z_k = b_k + \sum_{t=1}^{T} v_{t,k}(x)

With two classes there is one tree a step, for the second class; the logit of the first is 0. A category that features
hold as zeros and a one is a single number to the trees, that of its value: they need no order to tell values apart, and
a test for each value of each category takes them many times as long.

Rows do not go down the trees. The leaves of a tree are numbered from left to right and stand for the bits of a word; a
test that fails, :math:`x_f > \theta`, rules out the leaves on its left, and a row's leaf is the lowest bit that all its
failed tests leave (Lucchese et al. 2015). So every row meets every test in the same order, which arrays do well. If
trees have more leaves than a word has bits, rows do go down, all trees and a level at a time.

References
----------
Friedman, "Greedy Function Approximation: A Gradient Boosting Machine", Annals of Statistics 2001.
Lucchese, Nardini, Orlando, Perego, Tonellotto & Venturini, "QuickScorer: A Fast Algorithm to Rank Documents with
Additive Ensembles of Regression Trees", SIGIR 2015.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vicinal._checks import integer, number
from vicinal.models.tree_columns import TreeColumns

#: The arrays of trees, `[trees, outputs, nodes]`.
_ARRAYS = ("feature", "threshold", "left", "right", "value")
#: Leaves that a word has bits for, the sign left alone; and a word of them all.
_BITS = 31
_ALL = 2**_BITS - 1
#: Trees times rows that are looked at together: more would not stay in the processor's cache.
_CELLS = 2**20


class Boosted(TreeColumns):
    """Boosted trees: features `[B, …]`, which are flattened, to logits `[B, n_classes]`; constant before `set_trees`.

    There are at most `iterations` trees for each class, of at most `leaves` leaves and a depth of `depth`. The
    validation set decides how many are used. Each counts by `rate`, and `l2` is the penalty on the values of leaves.

    Parameters
    ----------
    numbers, categories
        As in `TreeColumns`.

    Examples
    --------
    >>> Boosted(8, 3, iterations=5)(torch.randn(4, 8)).shape
    torch.Size([4, 3])
    """

    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    baseline: Tensor
    _features: Tensor
    _thresholds: Tensor
    _masks: Tensor
    _values: Tensor

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        numbers: Sequence[int] | None = None,
        categories: Sequence[Sequence[int]] = (),
        iterations: int = 100,
        rate: float = 0.1,
        leaves: int = 31,
        depth: int = 10,
        l2: float = 0.0,
    ) -> None:
        super().__init__(n_features, numbers, categories)
        self.iterations, self.leaves = integer("iterations", iterations, low=1), integer("leaves", leaves, low=2)
        self.rate, self.depth = number("rate", rate, above=0), integer("depth", depth, low=1)
        self.l2 = number("l2", l2, low=0)
        self.outputs = 1 if integer("n_classes", n_classes, low=2) == 2 else n_classes
        shape = (1, self.outputs, 2 * self.leaves - 1)  # of one tree, until there are more
        # Node 0 of zeros leads to itself and is worth nothing: a tree that is not there.
        for name in ("feature", "left", "right"):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.int64))
        for name in ("threshold", "value"):  # not float64, which some devices lack
            self.register_buffer(name, torch.zeros(shape))
        self.register_buffer("baseline", torch.zeros(self.outputs))
        self._take(  # a test that every row passes, of trees that are worth nothing
            torch.zeros(1, self.outputs, dtype=torch.int64),
            torch.full((1, self.outputs, 1), torch.inf),
            torch.full((1, self.outputs, 1), _ALL, dtype=torch.int32),
            torch.zeros(self.outputs, 1),
        )
        nn.Module.register_load_state_dict_post_hook(self, _check_trees)

    def set_trees(self, trees: Sequence[Sequence[Any]], baseline: Any) -> None:
        """Take trees that were fitted to `columns`: the nodes of each iteration and output, as scikit-learn has them.

        The nodes are structured arrays with the fields feature_idx, num_threshold, left, right, value and is_leaf; the
        baseline has a constant for each output.
        """
        self._hold(max(len(trees), 1))
        # In place, so that the buffers stay on the device of the module.
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
                self.threshold[t, k, :n] = torch.where(leaf, 0.0, _rounded_down(torch.tensor(threshold)))
                self.value[t, k, :n] = torch.tensor(nodes["value"].astype("float64"))
        self._arrange()

    def _hold(self, n_trees: int) -> None:
        """Make the arrays those of so many trees for each class, all zeros: `iterations` may be many more."""
        for name in _ARRAYS:
            array = getattr(self, name)
            setattr(self, name, array.new_zeros(n_trees, *array.shape[1:]))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """Make room for the trees that were saved, if they are no more than `iterations`."""
        saved = state_dict.get(f"{prefix}feature")
        if isinstance(saved, Tensor) and saved.ndim and 1 <= len(saved) <= self.iterations:
            self._hold(len(saved))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits `[B, n_classes]`."""
        return self.logits_of(self.columns(x))

    def logits_of(self, columns: Tensor) -> Tensor:
        """Return the logits of rows by what trees see of them, `[n_columns, B]`."""
        most = max(_CELLS // (len(self.feature) * self.outputs), 16)
        # A graph that is exported takes batches of any size, and must not hold this one's.
        if columns.device.type == "cpu" and not torch.compiler.is_compiling() and columns.shape[1] > most:
            return torch.cat([self.logits_of(some) for some in columns.split(most, dim=1)])
        values = self._by_tests(columns) if self.leaves <= _BITS else self._by_levels(columns)
        logits: Tensor = values.unflatten(0, (-1, self.outputs)).sum(dim=0).T + self.baseline
        # Two classes have one output, the log-odds of the second: a zero beside it makes them logits.
        if self.outputs == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        return logits

    def _by_tests(self, columns: Tensor) -> Tensor:
        """Return the value of each row's leaf, `[trees, B]`: the lowest that no failed test has ruled out."""
        # QuickScorer (Lucchese et al. 2015): each failed test clears the bits of the leaves to its left.
        # All tests run without branches, so a batch of rows takes one vector operation for each test.
        left = torch.full_like(columns.index_select(0, self._features[0]), _ALL, dtype=torch.int32)
        for test in range(len(self._features)):
            fails = columns.index_select(0, self._features[test]) > self._thresholds[test]
            left = left & torch.where(fails, self._masks[test], _ALL)
        leaf = (left & -left).float().log2().round().long()  # the place of a bit is the logarithm of its power of two
        return self._values.gather(1, leaf)

    def _by_levels(self, columns: Tensor) -> Tensor:
        """Return the same by going down, all rows and trees a level at a time."""
        n_nodes = self.feature.shape[2]
        root = (n_nodes * torch.arange(len(self.feature) * self.outputs, device=columns.device))[:, None]
        feature, threshold, left, right, value = (
            nodes.flatten() for nodes in (self.feature, self.threshold, self.left, self.right, self.value)
        )
        # A leaf leads to itself, so rows that arrive early stay where they are.
        at = root.expand(-1, columns.shape[1])
        for _ in range(min(self.depth, self.leaves - 1)):  # a tree of so many leaves is no deeper
            below = columns.gather(0, feature[at]) <= threshold[at]
            at = root + torch.where(below, left[at], right[at])
        return value[at]

    def _arrange(self) -> None:
        """Compute what `_by_tests` reads: tests of all trees, `[tests, trees]`, the leaves that each leaves, values."""
        # Trees after the last used one are zeros, and are not evaluated.
        there = ((self.left[:, :, 0] > 0) | (self.value[:, :, 0] != 0)).any(dim=1)  # a tree can be a single leaf
        n_kept = 1 + int(there.nonzero().max()) if bool(there.any()) else 1
        feature, threshold, left, right, value = (
            nodes[:n_kept].flatten(0, 1) for nodes in (self.feature, self.threshold, self.left, self.right, self.value)
        )
        is_test, n_leaves, start = _numbered(left, right)
        if int(n_leaves[:, 0].max()) > self.leaves:
            raise ValueError(f"the trees are damaged: one has more than {self.leaves} leaves")
        if self.leaves > _BITS:
            return
        # Nodes that are no leaves scatter into one column more, which is cut off.
        values = value.new_zeros(len(value), self.leaves + 1)  # the last is of nodes that are no leaves
        values.scatter_(1, torch.where(is_test | (start < 0), self.leaves, start), value)
        n_tests = max(int(is_test.sum(dim=1).max()), 1)
        tests = is_test.int().sort(dim=1, descending=True, stable=True).indices[:, :n_tests]
        passed, first = ~is_test.gather(1, tests), start.gather(1, tests)
        # The leaves of the left subtree are adjacent: as many ones, shifted to the first of them.
        ruled_out = ((1 << n_leaves.gather(1, left.gather(1, tests))) - 1) << first.clamp_min(0)
        limit = threshold.gather(1, tests).masked_fill(passed, torch.inf)
        self._take(
            feature.gather(1, tests).masked_fill(passed, 0).T.contiguous(),
            limit.T[..., None].contiguous(),
            (_ALL - ruled_out.masked_fill(passed, 0)).int().T[..., None].contiguous(),
            values[:, : self.leaves].contiguous(),
        )

    def _take(self, *arrays: Tensor) -> None:
        """Keep what `_by_tests` reads; it is computed from what is saved."""
        for name, array in zip(("_features", "_thresholds", "_masks", "_values"), arrays, strict=True):
            self.register_buffer(name, array, persistent=False)


def _numbered(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return which nodes are tests, how many leaves each has below it, and the number of the first of them.

    Nodes are `[trees, nodes]`, and children come after their parents; the number is -1 for nodes that are not there.
    """
    is_test = left > torch.arange(left.shape[1], device=left.device)
    n_leaves, start = torch.ones_like(left), torch.full_like(left, -1)
    # Children come after their parents, so one pass backwards counts the leaves below each node.
    for node in reversed(range(left.shape[1])):
        below = n_leaves.gather(1, left[:, [node]]) + n_leaves.gather(1, right[:, [node]])
        n_leaves[:, node] = torch.where(is_test[:, node], below[:, 0], 1)
    start[:, 0] = 0
    for node in range(left.shape[1]):
        at, here = start[:, [node]], is_test[:, [node]] & (start[:, [node]] >= 0)
        for child, first in ((left, at), (right, at + n_leaves.gather(1, left[:, [node]]))):
            place = child[:, [node]]
            start.scatter_(1, place, torch.where(here, first, start.gather(1, place)))
    return is_test & (start >= 0), n_leaves, start


def _rounded_down(numbers: Tensor) -> Tensor:
    """Return the largest float32 that is not above each number: features, float32 too, are above both or neither."""
    if numbers.dtype != torch.float64:
        return numbers
    # Rounding to the nearest could lift a threshold over a feature that lies exactly on it.
    near = numbers.float()
    return torch.where(near.double() > numbers, near.nextafter(torch.full_like(near, -torch.inf)), near)


def _check_trees(model: Boosted, incompatible: object) -> None:
    """Refuse loaded trees that lead out of themselves or back, or ask for columns that there are not."""
    limits = {"feature": model.n_columns, "left": model.feature.shape[2], "right": model.feature.shape[2]}
    for name, limit in limits.items():
        numbers = getattr(model, name)
        if not bool(((numbers >= 0) & (numbers < limit)).all()):
            raise ValueError(f"the trees are damaged: {name} must be in [0, {limit - 1}], got {int(numbers.min())} to "
                             f"{int(numbers.max())}")  # fmt: skip
    # Children after their parents exclude cycles: a damaged file must not loop without end.
    place = torch.arange(model.left.shape[2], device=model.left.device)
    if bool(((model.left > place) != (model.right > place)).any()):
        raise ValueError("the trees are damaged: a node leads back")
    model._arrange()
