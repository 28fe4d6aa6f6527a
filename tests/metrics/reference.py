"""Every metric again, slowly: loops written from the formulas, with exact fractions where bins are decided."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction

import numpy as np


def first_argmax(row) -> int:
    best = 0
    for k in range(len(row)):
        if row[k] > row[best]:
            best = k
    return best


def bin_of(confidence, edges) -> int:
    """Compare the confidence, as the rational number it is, with each edge: (lo, hi], 0 in the first bin."""
    exact = Fraction(float(confidence))
    for b in range(len(edges) - 1):
        if exact <= Fraction(float(edges[b + 1])):
            return b
    raise AssertionError(f"{confidence} is above the last edge")


def bins(confidence, correct, edges):
    n = len(edges) - 1
    held = [[] for _ in range(n)]
    for c, a in zip(confidence, correct, strict=True):
        held[bin_of(c, edges)].append((float(c), bool(a)))
    return held


def errors(confidence, correct, edges) -> dict[str, float]:
    total = len(confidence)
    ece = mce = oe = square = debiased = unchanced = 0.0
    for samples in bins(confidence, correct, edges):
        n = len(samples)
        if n == 0:
            continue
        conf = math.fsum(c for c, _ in samples) / n
        acc = sum(a for _, a in samples) / n
        ece += n / total * abs(conf - acc)
        mce = max(mce, abs(conf - acc))
        oe += n / total * conf * max(conf - acc, 0)
        square += n / total * (conf - acc) ** 2
        if n > 1:
            debiased += n / total * ((conf - acc) ** 2 - acc * (1 - acc) / (n - 1))
            part, sigma = n / total * abs(conf - acc), n / total * math.sqrt(acc * (1 - acc) / (n - 1))
            below = 0.0  # E max(-X, 0), where E|X| = E X + 2 E max(-X, 0)
            if sigma:
                normal = statistics.NormalDist(part, sigma)
                below = sigma**2 * normal.pdf(0) - part * normal.cdf(0)
            unchanced += part - (1 + math.sqrt(2)) * 2 * below
    rms = {"rms": math.sqrt(square), "rms_debiased": math.sqrt(max(debiased, 0))}
    return {"ece": ece, "ece_debiased": max(unchanced, 0), "mce": mce, "oe": oe, **rms}


def classwise_ece(probs, labels, edges) -> float:
    n_classes = len(probs[0])
    per_class = [
        errors([row[k] for row in probs], [label == k for label in labels], edges)["ece"] for k in range(n_classes)
    ]
    return sum(per_class) / n_classes


def softmax(row) -> list[float]:
    top = max(map(float, row))
    exp = [math.exp(float(z) - top) for z in row]
    total = math.fsum(exp)
    return [e / total for e in exp]


def nll(probs, labels) -> float:
    return math.fsum(-math.log(float(row[label])) for row, label in zip(probs, labels, strict=True)) / len(labels)


def brier(probs, labels) -> float:
    return math.fsum(
        (float(p) - (k == label)) ** 2 for row, label in zip(probs, labels, strict=True) for k, p in enumerate(row)
    ) / len(labels)


def top_k(scores, labels, k) -> float:
    hits = 0
    for row, label in zip(scores, labels, strict=True):
        order = sorted(range(len(row)), key=lambda j: (-float(row[j]), j))
        hits += label in order[:k]
    return hits / len(labels)


def resampled(confidence, correct, n_bins, n_resamples, seed):
    """The naive bootstrap: draw samples, bin them, measure; again and again."""
    random = np.random.default_rng(seed)
    edges = np.arange(n_bins + 1) / n_bins
    n = len(confidence)
    out = {"ece": [], "oe": [], "rms": []}
    for _ in range(n_resamples):
        pick = random.integers(n, size=n)
        c, a = confidence[pick], correct[pick]
        index = np.clip(np.searchsorted(edges, c, side="left") - 1, 0, n_bins - 1)
        count = np.bincount(index, minlength=n_bins)
        gap = np.bincount(index, c, n_bins) - np.bincount(index, a, n_bins)
        mean = np.bincount(index, c, n_bins) / np.maximum(count, 1)
        out["ece"].append(np.abs(gap).sum() / n)
        out["oe"].append((mean * np.maximum(gap, 0)).sum() / n)
        out["rms"].append(np.sqrt((gap**2 / np.maximum(count, 1)).sum() / n))
    return {name: np.array(values) for name, values in out.items()}
