"""The most confident mistakes, with what a person can look at: the text, the row, the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vicinal.data import Split
from vicinal.data.registry import KINDS


def confident_mistakes(split: Split, probs: Tensor, classes: Sequence[str], *, n: int = 20) -> list[dict[str, object]]:
    """Return at most n mistakes with the highest confidence, the most confident first, ready for JSON.

    `probs` are the probabilities `[N, K]` of the samples of the split.
    """
    confidence, predicted = probs.max(dim=1)
    wrong = (predicted != torch.tensor(split.labels)).nonzero()[:, 0]
    worst = wrong[confidence[wrong].argsort(descending=True, stable=True)[:n]].tolist()
    labels = split.labels or []
    return [
        {
            "index": split.indices[i],
            "label": classes[labels[i]],
            "prediction": classes[int(predicted[i])],
            "confidence": float(confidence[i]),
            "label_probability": float(probs[i, labels[i]]),
            **shown(split, i, original),
        }
        for i, original in zip(worst, split.originals(worst), strict=True)
    ]


def shown(split: Split, i: int, original: Any = None) -> dict[str, object]:
    """Return what to show of the i-th sample: `text`, `row` or `origin`, and a `picture` as a data address of a PNG."""
    original = split.original(i) if original is None else original
    return KINDS[split.preprocessing.kind].show(split, i, original).to_dict()
