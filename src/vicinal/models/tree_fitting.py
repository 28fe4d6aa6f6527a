"""Fit boosted trees with their library, and keep as many of them as give held-out rows the lowest NLL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._atomic import Json
from vicinal._checks import require
from vicinal.models.boosted import Boosted
from vicinal.models.tree_columns import Seen
from vicinal.models.tree_libraries import LibraryTrees
from vicinal.progress import stage

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

#: Above twice this many rows, only every second, fourth, … of each class is fitted to.
_MOST_ROWS = 2**20
#: The same for rows times trees of an iteration: scikit-learn holds three numbers for each.
_MOST_SCORES = 2**25
#: Growing stops once so many further trees for each class have not lowered the NLL of validation rows. So few trees
#: are all grown: they cost little, and the NLL of few rows is uneven.
_PATIENCE, _FEW_TREES = 30, 100
#: Rows by which the loss of training is shown, and rows whose answers are compared with scikit-learn's.
_SHOWN, _COMPARED = 10_000, 500


def gather(trees: Boosted | LibraryTrees, batches: Iterable[tuple[Tensor, Tensor, Tensor | None]]) -> Seen:
    """Return what trees see of batches: features `[B, …]`, classes `[B]`, and weights `[B]` unless all count the same.

    Rows with soft targets `[B, K]` count as their most probable class. Memory is bounded: above a million rows, fewer
    if there are many classes, every second, fourth, … row of each class is taken, so that no class is lost.
    """
    parts: list[Seen] = []
    # At least as many rows as classes, else trees cannot be fitted at all.
    most = min(_MOST_ROWS, max(_MOST_SCORES // trees.outputs, trees.outputs))
    step, n, met = 1, 0, np.zeros(max(trees.outputs, 2), np.int64)
    for x, y, weight in batches:
        labels = (y if y.ndim == 1 else y.argmax(dim=1)).cpu().numpy().astype(np.int64)
        # Counted by class and across batches, so that the choice does not depend on the batch size.
        some = _every(step, labels, met)
        met += np.bincount(labels, minlength=len(met))
        of_rows = np.ones(len(labels)) if weight is None else weight.double().cpu().numpy()
        parts.append(Seen(trees.columns(x[some]).T.cpu().numpy(), labels[some], of_rows[some]))
        n += len(some)
        while n > 2 * most:
            seen, step = _joined(parts), 2 * step
            kept = _every(2, seen.labels, np.zeros_like(met))
            parts, n = [Seen(seen.x[kept], seen.labels[kept], seen.weight[kept])], len(kept)
    return _joined(parts)


def _every(step: int, labels: NDArray[np.int64], met: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of every so many rows of each class, where so many of each were met before."""
    if step == 1:
        return np.arange(len(labels))
    chosen = [np.flatnonzero(labels == k)[-met[k] % step :: step] for k in np.unique(labels)]
    return np.sort(np.concatenate(chosen))


def _joined(parts: list[Seen]) -> Seen:
    return Seen(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


class Grown(NamedTuple):
    """What growing trees showed."""

    history: list[Json]
    """The mean loss on training rows and the NLL on validation rows after each tree."""
    n_trees: int
    """How many trees for each class are kept."""

    @classmethod
    def of(cls, losses: Sequence[float], val_nll: Sequence[float] | None) -> Grown:
        """Return the record of losses after each tree; all trees are kept without validation rows."""
        history: list[Json] = [{"step": k, "epoch": float(k), "loss": loss} for k, loss in enumerate(losses, start=1)]
        if val_nll is None:
            return cls(history, len(history))
        for line, nll in zip(history, val_nll, strict=True):
            line["val_nll"] = nll
        return cls(history, 1 + int(np.argmin(val_nll)))


def grow(trees: Boosted | LibraryTrees, train: Seen, val: Seen | None, *, seed: int = 0) -> Grown:
    """Fit trees to some rows, and keep as many as give others the lowest NLL.

    The model says how many trees at most, and how large. Growing stops once further trees do not lower the NLL. Without
    validation rows all are taken.
    """
    check_classes(max(trees.outputs, 2), train)
    with stage("gradient boosting"):
        if isinstance(trees, LibraryTrees):
            return Grown.of(*trees.fit_trees(train, val, seed))
        fitted = _fitted(trees, train, val, seed)
        # The first score is that of no tree.
        losses, scores = -fitted.train_score_[1:], -fitted.validation_score_[1:]
        grown = Grown.of(losses.tolist(), None if val is None else scores.tolist())
        # scikit-learn has no public way to its trees. pyproject.toml bounds its version, and `_check` compares answers.
        trees.set_trees([[tree.nodes for tree in each] for each in fitted._predictors[: grown.n_trees]],
                        fitted._baseline_prediction)  # fmt: skip
        _check(trees, fitted, train.x[:_COMPARED], grown.n_trees)
    return grown


def check_classes(n_classes: int, train: Seen) -> None:
    """Refuse training rows that lack a class: libraries of trees number the classes they see."""
    if (n_met := len(np.unique(train.labels))) < n_classes:
        raise ValueError(f"gradient boosting needs rows of all {n_classes} classes, got {n_met}")


def _fitted(trees: Boosted, train: Seen, val: Seen | None, seed: int) -> HistGradientBoostingClassifier:
    # Without validation rows some training rows stand in for them, so that the loss is recorded, and nothing stops.
    step = -(-len(train.labels) // _SHOWN)
    watched = train.x[::step], train.labels[::step]
    estimator = require("sklearn.ensemble", "train").HistGradientBoostingClassifier(
        max_iter=trees.iterations,
        learning_rate=trees.rate,
        max_leaf_nodes=trees.leaves,
        max_depth=trees.depth,
        l2_regularization=trees.l2,
        early_stopping=True,
        scoring="loss",
        n_iter_no_change=trees.iterations if val is None or trees.iterations <= _FEW_TREES else _PATIENCE,
        tol=0.0,
        random_state=seed % 2**32,  # scikit-learn takes none that is larger
    )
    same = bool((train.weight == 1).all())
    x_val, y_val = watched if val is None else (val.x, val.labels)
    weight = None if same else train.weight
    return estimator.fit(train.x, train.labels, sample_weight=weight, X_val=x_val, y_val=y_val)


def _check(trees: Boosted, fitted: HistGradientBoostingClassifier, x: NDArray[np.float32], n_trees: int) -> None:
    """Compare our answers with scikit-learn's: where it keeps its trees is not guaranteed."""
    theirs = next(probs for k, probs in enumerate(fitted.staged_predict_proba(x), start=1) if k == n_trees)
    columns = torch.from_numpy(x.T.copy()).to(trees.baseline.device)
    ours = trees.logits_of(columns).cpu().double().softmax(dim=1).numpy()
    if not np.allclose(ours, theirs, atol=1e-5):
        version = require("sklearn", "train").__version__
        raise RuntimeError(f"the trees of scikit-learn {version} are not as expected: another version of it is needed")
