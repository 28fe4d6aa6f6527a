"""Calibration and refinement parts by loops, and what their intervals cover."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vicinal.calibrators import TemperatureScaling, loss_parts
from vicinal.calibrators.validation import stratified_folds


def planted(n, scale=2.0, seed=0, k=3):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, k))
    return scale * truth, (truth + rng.gumbel(size=(n, k))).argmax(axis=1)


def test_parts_by_loops():
    logits, labels = planted(60)
    fold = stratified_folds(labels, 3)
    sums = {"nll": [0.0, 0.0], "brier": [0.0, 0.0]}
    for i in range(60):
        rest = [j for j in range(60) if fold[j] != fold[i]]
        t = TemperatureScaling().fit(logits[rest], labels[rest]).temperature_
        for which, heat in enumerate((1.0, t)):
            e = [math.exp(v / heat) for v in logits[i]]
            p = [v / sum(e) for v in e]
            sums["nll"][which] -= math.log(p[labels[i]]) / 60
            sums["brier"][which] += sum((p[c] - (c == labels[i])) ** 2 for c in range(3)) / 60
    found = loss_parts(labels, logits=logits, method="temperature", folds=3)
    for name, (loss, refinement) in sums.items():
        assert found[name].loss.value == pytest.approx(loss)
        assert found[name].refinement.value == pytest.approx(refinement)
        assert found[name].calibration.value == pytest.approx(loss - refinement)


def test_intervals_of_parts_cover():
    """100 draws; the population's parts are known: the temperature of 2 restores the truth."""
    big, y = planted(200_000, seed=9)
    log_p = (big / 2) - np.log(np.exp(big / 2).sum(axis=1, keepdims=True))
    log_q = big - np.log(np.exp(big).sum(axis=1, keepdims=True))
    refinement, loss = (-v[np.arange(len(y)), y].mean() for v in (log_p, log_q))
    missed = 0
    for seed in range(100):
        logits, labels = planted(300, seed=seed)
        found = loss_parts(labels, logits=logits, method="temperature")["nll"]
        missed += not found.refinement.low <= refinement <= found.refinement.high
        missed += not found.calibration.low <= loss - refinement <= found.calibration.high
    assert missed <= 20  # of 200 at 95 %


def test_auto_and_errors():
    logits, labels = planted(120)
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    one, other = loss_parts(labels, logits=logits), loss_parts(labels, probs=probs)
    assert one["brier"].loss.value == pytest.approx(other["brier"].loss.value)
    with pytest.raises(ValueError, match="exactly one"):
        loss_parts(labels)
    with pytest.raises(ValueError, match="same length"):
        loss_parts(labels[:5], logits=logits)


def test_weights_and_groups_of_the_parts_by_loops():
    logits, labels = planted(90)
    weights, groups, fold = np.arange(90) % 3, np.arange(90) // 2, np.arange(90) % 5
    found = loss_parts(
        labels, logits=logits, method="temperature", sample_weight=weights, groups=groups, folds=fold, level=0.95
    )["nll"]
    losses, total = {}, float(weights.sum())
    for i in (i for i in range(90) if weights[i]):
        rest = [j for j in range(90) if fold[j] != fold[i] and weights[j]]
        t = TemperatureScaling().fit(logits[rest], labels[rest], sample_weight=weights[rest]).temperature_
        losses[i] = math.log(sum(math.exp(v / t) for v in logits[i])) - logits[i][labels[i]] / t
    mean = sum(weights[i] * loss for i, loss in losses.items()) / total
    sums = {}
    for i, loss in losses.items():
        sums[groups[i]] = sums.get(groups[i], 0.0) + weights[i] * (loss - mean)
    error = math.sqrt(sum(s**2 for s in sums.values()) * len(sums) / (len(sums) - 1)) / total
    assert found.refinement.value == pytest.approx(mean)
    assert found.refinement.high - mean == pytest.approx(1.959964 * error)
    with pytest.raises(ValueError, match="at least 2 folds"):
        loss_parts(labels, logits=logits, folds=np.zeros(90))
