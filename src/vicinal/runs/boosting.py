"""Gradient boosting with the split, calibration and report of networks: fitted by scikit-learn, kept as arrays."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vicinal._checks import require
from vicinal.data import Split
from vicinal.models import Boosted
from vicinal.models.growing import gather, grow
from vicinal.training import FitConfig, FitResult
from vicinal.training.batches import KeyedDataset, evaluation_batches
from vicinal.training.environment import joined_process, versions
from vicinal.training.folder import TrainingFolder
from vicinal.training.predicting import iter_logits

__all__ = ["boosted"]

#: Every so many trees the figures are kept, for the curves of the report.
_KEPT = 10
#: Rows that are made ready at a time.
_ROWS = 2**16


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
        rows = gather(model, _batches(train, class_weights))
        history = grow(model, rows, None if val is None else gather(model, _batches(val)), seed=config.seed)
        n_trees = len(history) if val is None else 1 + int(np.argmin([line["val_nll"] for line in history]))
        model.eval()
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


def _batches(part: Split, class_weights: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    for rows in torch.arange(len(part)).split(_ROWS):
        x, y = part.take(rows)
        yield x, y, None if class_weights is None else class_weights[y]


def _predictions(model: Boosted, val: Split, batch_size: int) -> dict[str, Tensor]:
    """Return logits and labels by the loop that serves them: every row holds its place in all trees at once."""
    keyed = KeyedDataset(val, 0, purpose="evaluation", collate_fn=val.collate_fn)
    batches = evaluation_batches(keyed, range(len(val)), batch_size=batch_size)
    logits, labels = zip(*iter_logits(model, batches, torch.device("cpu")), strict=True)
    return {"logits": torch.cat(logits), "labels": torch.cat(labels)}
