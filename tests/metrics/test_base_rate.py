"""What is reached without a model, and two classes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vicinal.metrics import base_rate, evaluate, evaluate_binary


def test_the_base_rate_is_that_of_the_best_constant_answer():
    labels = [0] * 5 + [1] * 3 + [3] * 2
    found = base_rate(np.bincount(labels))
    assert (found.majority, found.share) == (0, 0.5)
    assert found.nll == pytest.approx(-sum(math.log({0: 0.5, 1: 0.3, 3: 0.2}[y]) for y in labels) / 10)
    shares = evaluate(labels, probs=[[0.5, 0.3, 0.0, 0.2]] * 10)
    assert shares.base_rate == found
    assert shares.nll.value == pytest.approx(found.nll)
    with pytest.raises(ValueError, match="counts must hold"):
        base_rate([0, 0])


def test_two_classes_by_loops():
    random = np.random.default_rng(0)
    p = random.random(60).round(1)
    y = (random.random(60) < p).astype(int)
    found = evaluate_binary(y, p, n_bins=10)
    wins = [(a > b) + 0.5 * (a == b) for a in p[y == 1] for b in p[y == 0]]
    assert found.auroc.value == pytest.approx(np.mean(wins))
    assert found.table.confidence == pytest.approx(p.mean())
    assert found.table.accuracy == found.base_rate == pytest.approx(y.mean())
    precision = [y[p >= level].mean() for level in sorted(set(p), reverse=True)]
    gain = np.diff([0, *(y[p >= level].sum() / y.sum() for level in sorted(set(p), reverse=True))])
    assert found.average_precision.value == pytest.approx(float(gain @ precision))
    with pytest.raises(ValueError, match="both classes"):
        evaluate_binary([1, 1], [0.5, 0.6])
