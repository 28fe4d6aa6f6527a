"""Columns that give the answer away: one feature that alone tells the classes apart almost perfectly.

Such a column is often made from the target, or known only after it. For each column the training rows are put into
groups (of equal categories, or of quantiles), the share of each class in a group is estimated on every other row, and
on the rest each class is told from the others by it; the score is the mean AUROC over classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vicinal.data.tabular import Category, TabularPreprocessing, Text

__all__ = ["ALMOST_ALL", "giving_away"]

#: The AUROC above which a column counts as giving the answer away, and as almost giving it away where there are enough
#: training rows: of few flowers the petals alone tell the species.
ALMOST_ALL, _MUCH, _ENOUGH = 0.999, 0.99, 500
#: With fewer training rows chance does it; of more than the other number every n-th is looked at.
_FEWEST, _MOST = 50, 20_000
#: Groups that a numeric column is cut into.
_GROUPS = 64


def giving_away(
    preprocessing: TabularPreprocessing, features: Tensor, labels: NDArray[np.int64], train: NDArray[np.int64]
) -> dict[str, float]:
    """Return the columns that give the answer away, or almost, with their AUROC.

    Rows were encoded by `preprocessing` as `features` `[N, D]`; `labels` are their class numbers.
    """
    rows = train[:: -(-len(train) // _MOST)]
    if len(rows) < _FEWEST:
        return {}
    y, encoded = labels[rows], features.numpy()
    aurocs, start = {}, 0
    for column in preprocessing.columns:
        block = encoded[rows, start : start + column.width]
        start += column.width
        if isinstance(column, Text):
            continue
        if isinstance(column, Category):
            groups = np.where(block.any(axis=1), block.argmax(axis=1), column.width)
        else:
            edges = np.unique(np.quantile(block[:, 0], np.linspace(0, 1, _GROUPS + 1)[1:-1]))
            groups = np.searchsorted(edges, block[:, 0])
            if column.missing:  # that nothing is there may tell as much: a date of what has happened
                groups = np.where(block[:, -1] > 0, len(edges) + 1, groups)
        score = group_auroc(groups, y)
        if score > (_MUCH if len(rows) >= _ENOUGH else ALMOST_ALL):
            aurocs[column.name] = score
    return aurocs


def group_auroc(groups: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Return how well groups tell classes apart: the mean AUROC over classes, each told by its share in the group.

    Shares are of the even samples, with one sample more in each group that has the shares of all; AUROC of the others.

    >>> rows = np.arange(400)
    >>> group_auroc(rows % 7, (rows % 7 > 3).astype(int)), round(group_auroc(rows % 7, rows // 8 % 2), 1)
    (1.0, 0.5)
    """
    n_groups, n_classes = int(groups.max()) + 1, int(labels.max()) + 1
    fitted, tried = (_counts(groups[part::2], labels[part::2], n_groups, n_classes) for part in (0, 1))
    prior = fitted.sum(axis=0) / fitted.sum()
    share = (fitted + prior) / (fitted.sum(axis=1, keepdims=True) + 1)
    scores = []
    for k in range(n_classes):
        positive, negative = tried[:, k], tried.sum(axis=1) - tried[:, k]
        if positive.sum() and negative.sum():
            _, level = np.unique(share[:, k], return_inverse=True)
            above, below = np.bincount(level, positive), np.bincount(level, negative)
            lower = np.cumsum(below) - below
            scores.append(float(above @ (lower + below / 2)) / (positive.sum() * negative.sum()))
    return float(np.mean(scores)) if scores else 0.0


def _counts(groups: NDArray[np.int64], labels: NDArray[np.int64], n_groups: int, n_classes: int) -> NDArray[np.float64]:
    pairs = np.bincount(groups * n_classes + labels, minlength=n_groups * n_classes)
    return pairs.reshape(n_groups, n_classes).astype(np.float64)
