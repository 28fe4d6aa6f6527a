"""A predictions file of two classes: how the probability of the second one fits and ranks."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from vicinal.metrics import BinaryEvaluation, evaluate_binary
from vicinal.predictions.predictions_file import PredictionsFile, as_file

#: A ranking keeps every row in memory, so it is left out above this many.
_MOST_ROWS = 20_000_000


def binary_of_file(
    file: str | os.PathLike[str] | PredictionsFile, *, n_bins: int = 15, level: float = 0.95
) -> BinaryEvaluation | None:
    """Return how the probability of the second of two classes fits and ranks.

    None where there are more classes, one of them never occurs, only confidences are known, or there are more than 20
    million rows: a ranking keeps the probability of each.
    """
    opened = as_file(file)
    if opened.kind == "confidence" or (opened.n_rows or 0) > _MOST_ROWS:
        return None
    probs: list[NDArray[np.float64]] = []
    labels: list[NDArray[np.int8]] = []
    n = 0
    for chunk in opened.chunks():
        if len(chunk.classes) != 2 or (n := n + len(chunk)) > _MOST_ROWS:
            return None
        scores = np.asarray(chunk.scores, np.float64)
        probs.append(expit(scores[:, 1] - scores[:, 0]) if opened.kind == "logits" else scores[:, 1])
        labels.append(np.asarray(chunk.labels).astype(np.int8))
    y = np.concatenate(labels) if labels else np.zeros(0, np.int8)
    if not 0 < int(y.sum(dtype=np.int64)) < len(y):
        return None
    return evaluate_binary(y, np.concatenate(probs), n_bins=n_bins, level=level)
