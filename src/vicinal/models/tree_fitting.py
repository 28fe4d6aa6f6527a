"""Fit boosted trees with scikit-learn, and keep as many of them as give held-out rows the lowest NLL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._atomic import Json
from vicinal._checks import require
from vicinal.metrics import Tally
from vicinal.metrics.registry import watched
from vicinal.models.boosted import Boosted
from vicinal.progress import stage

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

#: Above twice this many rows, only every second, fourth, … of each class is fitted to.
_MOST_ROWS = 2**20
#: The same for rows times trees of an iteration: scikit-learn holds three numbers for each.
_MOST_SCORES = 2**25
#: Rows by which the loss of training is shown, and rows whose answers are compared with scikit-learn's.
_SHOWN, _COMPARED = 10_000, 500


class Seen(NamedTuple):
    """What trees see of some rows."""

    x: NDArray[np.float32]
    """`[N, columns]`."""
    labels: NDArray[np.int64]
    """The classes, `[N]`."""
    weight: NDArray[np.float64]
    """How much each row counts, `[N]`."""


def gather(trees: Boosted, batches: Iterable[tuple[Tensor, Tensor, Tensor | None]]) -> Seen:
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


def grow(trees: Boosted, train: Seen, val: Seen | None, *, seed: int = 0) -> list[Json]:
    """Fit trees to some rows, keep as many as give others the lowest NLL, and return the metrics after each.

    The model says how many trees at most, and how large. Without validation rows all are taken.
    """
    n_classes = max(trees.outputs, 2)
    if (n_met := len(np.unique(train.labels))) < n_classes:
        raise ValueError(f"gradient boosting needs rows of all {n_classes} classes, got {n_met}")
    with stage("gradient boosting"):
        fitted = _fitted(trees, train, seed)
        history = _history(fitted, train, val)
        n_trees = trees.iterations if val is None else 1 + int(np.argmin([line["val_nll"] for line in history]))
        # scikit-learn has no public way to its trees. pyproject.toml bounds its version, and `_check` compares answers.
        trees.set_trees([[tree.nodes for tree in each] for each in fitted._predictors[:n_trees]],
                        fitted._baseline_prediction)  # fmt: skip
        _check(trees, fitted, train.x[:_COMPARED], n_trees)
    return history


def _fitted(trees: Boosted, train: Seen, seed: int) -> HistGradientBoostingClassifier:
    estimator = require("sklearn.ensemble", "train").HistGradientBoostingClassifier(
        max_iter=trees.iterations,
        learning_rate=trees.rate,
        max_leaf_nodes=trees.leaves,
        max_depth=trees.depth,
        l2_regularization=trees.l2,
        early_stopping=False,
        random_state=seed % 2**32,  # scikit-learn takes none that is larger
    )
    same = bool((train.weight == 1).all())
    return estimator.fit(train.x, train.labels, sample_weight=None if same else train.weight)


def _history(fitted: HistGradientBoostingClassifier, train: Seen, val: Seen | None) -> list[Json]:
    """Return the metrics after each tree."""
    # The curve of the training loss is for looking at: some thousand rows are enough.
    step = -(-len(train.labels) // _SHOWN)
    shown, labels = train.x[::step], train.labels[::step]
    rows = np.arange(len(labels))
    losses = [
        float(-np.log(np.maximum(probs[rows, labels], 1e-12)).mean()) for probs in fitted.staged_predict_proba(shown)
    ]
    history: list[Json] = [{"step": k, "epoch": float(k), "loss": loss} for k, loss in enumerate(losses, start=1)]
    if val is not None:
        for line, probs in zip(history, fitted.staged_predict_proba(val.x), strict=True):
            tally = Tally(metrics=watched()).update(val.labels, probs=probs)
            line |= {f"val_{name}": value for name, value in tally.values().items()}
    return history


def _check(trees: Boosted, fitted: HistGradientBoostingClassifier, x: NDArray[np.float32], n_trees: int) -> None:
    """Compare our answers with scikit-learn's: where it keeps its trees is not guaranteed."""
    theirs = next(probs for k, probs in enumerate(fitted.staged_predict_proba(x), start=1) if k == n_trees)
    columns = torch.from_numpy(x.T.copy()).to(trees.baseline.device)
    ours = trees.logits_of(columns).cpu().double().softmax(dim=1).numpy()
    if not np.allclose(ours, theirs, atol=1e-5):
        version = require("sklearn", "train").__version__
        raise RuntimeError(f"the trees of scikit-learn {version} are not as expected: another version of it is needed")
