"""The most confident mistakes, with what a person can look at: the text, the row, the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vicinal.data import Split
from vicinal.data.registry import KINDS

#: Mistakes that are shown; of each label and prediction at least, so that a filter by class finds some; and in all.
SHOWN, OF_EACH, _MOST = 20, 5, 60


def confident_mistakes(
    split: Split, probs: Tensor, classes: Sequence[str], *, n: int = SHOWN, of_each: int = OF_EACH
) -> list[dict[str, object]]:
    """Return the n mistakes with the highest confidence, and at least `of_each` of each class, ready for JSON.

    The most confident come first. A mistake is of its label and of its prediction. There are at most 60.
    `probs` are the probabilities `[N, K]` of the samples of the split.
    """
    confidence, predicted = probs.max(dim=1)
    labels = split.labels or []
    wrong = (predicted != torch.tensor(labels)).nonzero()[:, 0]
    worst: list[int] = []
    seen = [[0] * len(classes) for _ in range(2)]
    for k, i in enumerate(wrong[confidence[wrong].argsort(descending=True, stable=True)].tolist()):
        of = labels[i], int(predicted[i])
        if k < n or (len(worst) < _MOST and any(counts[c] < of_each for counts, c in zip(seen, of, strict=True))):
            worst.append(i)
            for counts, c in zip(seen, of, strict=True):
                counts[c] += 1
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
