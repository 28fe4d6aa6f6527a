"""Target leakage: single columns that predict the class almost perfectly.

Such a column is often made from the target, or known only after it. Training rows are grouped by equal categories, or
by quantiles of a number. The share of each class in a group is estimated on every other row. On the rest that share
tells each class from the others, and the score is the mean AUROC over classes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vicinal._checks import Argument, Sentence
from vicinal.data.column_encoders import Category, Column
from vicinal.data.text_columns import Text

#: How a warning of a leak begins, before the column.
_HEAD = "target leakage: the column "
#: The AUROC above which a column leaks, and above which it almost does. The second needs so many training rows: the
#: petals of a few flowers alone tell the species.
ALMOST_ALL, _MUCH, _ENOUGH = 0.999, 0.99, 500
#: The AUROC above which a column with as many values as there are classes is a copy of the target.
_COPY = 0.95
#: Fewer training rows separate by chance. Beyond the other number every n-th row is used.
_FEWEST, _MOST = 50, 20_000
#: Groups that a numeric column is cut into.
_GROUPS = 64


def leakage_warning(column: str, auroc: float) -> Sentence:
    """Return the sentence on a column that leaks the target."""
    return Sentence(
        f"{_HEAD}{column!r} alone {'' if auroc > ALMOST_ALL else 'almost '}tells the classes apart "
        f"(AUROC {auroc:.4f}): if it is not known when the model is used, leave it out, ",
        Argument("drop", column),
    )


def leaks_in(warnings: Iterable[str]) -> dict[str, str]:
    """Return what was measured of each column that warnings on data name as a leak.

    >>> leaks_in([leakage_warning("refund", 0.9998), "another warning"])
    {'refund': "target leakage: the column 'refund' alone tells the classes apart (AUROC 0.9998)"}
    """
    heads = (text.partition("): if it is not known")[0] + ")" for text in warnings if text.startswith(_HEAD))
    return {str(ast.literal_eval(head[len(_HEAD) :].rpartition(" alone ")[0])): head for head in heads}


def leaking_columns(
    columns: Sequence[Column], features: Tensor, labels: NDArray[np.int64], train: NDArray[np.generic]
) -> dict[str, float]:
    """Return the columns that leak the target, with their AUROC.

    Parameters
    ----------
    columns
        How each column was encoded.
    features
        The rows, encoded, `[N, D]`.
    labels
        The class number of each row.
    train
        The training rows.
    """
    # A fixed stride, not a random subset: the warning must not depend on a seed.
    rows = train[:: -(-len(train) // _MOST)]
    if len(rows) < _FEWEST:
        return {}
    y, encoded = labels[rows], features.numpy()
    aurocs, start = {}, 0
    for column in columns:
        block = encoded[rows, start : start + column.width]
        start += column.width
        if isinstance(column, Text):
            continue
        if isinstance(column, Category):
            block = block[:, : column.n_one_hot]
            groups = np.where(block.any(axis=1), block.argmax(axis=1), column.n_one_hot)
        else:
            edges = np.unique(np.quantile(block[:, 0], np.linspace(0, 1, _GROUPS + 1)[1:-1]))
            groups = np.searchsorted(edges, block[:, 0])
            if column.missing:  # that nothing is there may tell as much: a date of what has happened
                groups = np.where(block[:, -1] > 0, len(edges) + 1, groups)
        score = group_auroc(groups, y)
        # As many values as classes, nearly one to one: a copy of the target with a few changes.
        is_copy = len(np.unique(groups)) == len(np.unique(y)) and score > _COPY
        if is_copy or score > (_MUCH if len(rows) >= _ENOUGH else ALMOST_ALL):
            aurocs[column.name] = score
    return aurocs


def group_auroc(groups: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Return how well groups predict the class: the mean AUROC over classes, each scored by its share in the group.

    Shares are of the even samples, with one sample more in each group that has the shares of all; AUROC of the others.

    >>> rows = np.arange(400)
    >>> group_auroc(rows % 7, (rows % 7 > 3).astype(int)), round(group_auroc(rows % 7, rows // 8 % 2), 1)
    (1.0, 0.5)
    """
    n_groups, n_classes = int(groups.max()) + 1, int(labels.max()) + 1
    # Two halves: measured on the rows that gave the shares, any identifier would leak.
    fitted, tried = (_counts(groups[part::2], labels[part::2], n_groups, n_classes) for part in (0, 1))
    prior = fitted.sum(axis=0) / fitted.sum()
    # One sample more in each group, with the shares of all: a group of one row says little.
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
