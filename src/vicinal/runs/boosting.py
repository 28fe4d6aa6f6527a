"""Gradient boosting with the split, calibration and report of networks: fitted by scikit-learn, kept as arrays."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._checks import require
from vicinal._files import Json
from vicinal.data import Split
from vicinal.metrics import Tally
from vicinal.metrics.figures import watched
from vicinal.models import Boosted
from vicinal.training import FitConfig, FitResult
from vicinal.training.batches import KeyedDataset, evaluation_batches
from vicinal.training.environment import joined_process, versions
from vicinal.training.folder import TrainingFolder
from vicinal.training.predicting import iter_logits

__all__ = ["boosted"]

#: Every so many trees the figures are kept, for the curves of the report.
_KEPT = 10


def boosted(
    model: Boosted,
    train: Split,
    val: Split | None,
    *,
    out: Path,
    config: FitConfig,
    method: str,
    about: Mapping[str, object],
    class_weights: Tensor | None = None,
) -> FitResult:
    """Fit trees, keep as many as suit the validation set best by NLL, and return them as a training.

    The model says how many trees, and how large, and takes them; without validation rows all are kept. Of the config
    the seed counts. `method` is recorded as the objective, `about` are the facts that a run in this folder must share,
    and `class_weights` say how much the rows of each class count, `[K]`. A fit that was stopped starts anew.
    """
    process = joined_process()
    folder = TrainingFolder(out, main=process.is_main_process)
    began = time.perf_counter()
    with folder.locked():
        folder.check_in({"method": method, "config": {"seed": config.seed}, "about": dict(about)})
        process.wait_for_everyone()
        fitted = _fitted(model, train, class_weights, config.seed)
        history = _history(fitted, train, val)
        n_trees = model.iterations if val is None else 1 + int(np.argmin([line["val_nll"] for line in history]))
        model.set_trees([[tree.nodes for tree in trees] for trees in fitted._predictors[:n_trees]],
                        fitted._baseline_prediction)  # fmt: skip
        model.eval()
        _check(model, fitted, train, n_trees)
        best, last = history[n_trees - 1], history[-1]
        kept = [line for line in history if line["epoch"] % _KEPT in (0, 1) or line is best or line is last]
        predictions = None if val is None else _predictions(model, val, config.evaluation_batch_size)
        info = {
            "method": method,
            "config": config.to_dict(),
            **_facts(model, n_trees),
            "seed": config.seed,
            "best": best,
            "last": last,
            "seconds": round(time.perf_counter() - began, 3),
            "about": dict(about),
        }
        if (done := folder.result()) is None:
            done = folder.finish(model.state_dict(), predictions, info, kept)
    return FitResult.of(model, done, kept, predictions, folder)


def _facts(model: Boosted, n_trees: int) -> dict[str, object]:
    size = f"of {model.leaves} leaves at most, learning rate {model.rate:g}"
    return {
        "training": f"{n_trees} of {model.iterations} trees a class {size}, by scikit-learn",
        "epochs": float(n_trees),
        "device": "cpu",
        "versions": {**versions(), "scikit-learn": require("sklearn", "train").__version__},
    }


def _fitted(model: Boosted, train: Split, class_weights: Tensor | None, seed: int) -> Any:
    ensemble = require("sklearn.ensemble", "train")
    labels = _labels(train)
    estimator = ensemble.HistGradientBoostingClassifier(
        max_iter=model.iterations,
        learning_rate=model.rate,
        max_leaf_nodes=model.leaves,
        max_depth=model.depth,
        l2_regularization=model.l2,
        early_stopping=False,
        random_state=seed,
    )
    weight = None if class_weights is None else class_weights.double().numpy()[labels]
    fitted = estimator.fit(train.features(), labels, sample_weight=weight)
    n_classes = max(model.outputs, 2)
    if len(fitted.classes_) < n_classes:
        raise ValueError(f"gradient boosting needs rows of all {n_classes} classes, got {len(fitted.classes_)}")
    return fitted


def _history(fitted: Any, train: Split, val: Split | None) -> list[Json]:
    """Return the figures after each tree."""
    labels = _labels(train)
    rows = np.arange(len(labels))
    losses = [
        float(-np.log(np.maximum(probs[rows, labels], 1e-12)).mean())
        for probs in fitted.staged_predict_proba(train.features())
    ]
    history: list[Json] = [{"step": k, "epoch": float(k), "loss": loss} for k, loss in enumerate(losses, start=1)]
    if val is not None:
        answers = _labels(val)
        for line, probs in zip(history, fitted.staged_predict_proba(val.features()), strict=True):
            tally = Tally(figures=watched()).update(answers, probs=probs)
            line |= {f"val_{name}": value for name, value in tally.values().items()}
    return history


def _check(model: Boosted, fitted: Any, train: Split, n_trees: int) -> None:
    """Compare the arrays with what scikit-learn says: where its trees are kept is not part of its promises."""
    few = train.features()[:500]
    theirs = next(probs for k, probs in enumerate(fitted.staged_predict_proba(few), start=1) if k == n_trees)
    ours = model(torch.from_numpy(few)).double().softmax(dim=1).numpy()
    if not np.allclose(ours, theirs, atol=1e-5):
        version = require("sklearn", "train").__version__
        raise RuntimeError(f"the trees of scikit-learn {version} are not as expected: hgb needs another version of it")


def _predictions(model: Boosted, val: Split, batch_size: int) -> dict[str, Tensor]:
    """Return logits and labels by the loop that serves them: every row holds its place in all trees at once."""
    keyed = KeyedDataset(val, 0, purpose="evaluation", collate_fn=val.collate_fn)
    batches = evaluation_batches(keyed, range(len(val)), batch_size=batch_size)
    logits, labels = zip(*iter_logits(model, batches, torch.device("cpu")), strict=True)
    return {"logits": torch.cat(logits), "labels": torch.cat(labels)}


def _labels(part: Split) -> NDArray[np.int64]:
    return np.array(part.labels, np.int64)
