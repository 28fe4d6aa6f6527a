"""Smooth ECE: the integral by loops over samples and images of the kernel, and its fixed point."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vicinal.metrics import Tally, evaluate
from vicinal.metrics.reliability import ReliabilityTable
from vicinal.metrics.smooth import smooth_band, smooth_curve, smooth_ece, smooth_error


def slow(confidence, correct, sigma, steps=2_000):
    """The definition: reflect each Gaussian at 0 and 1, add up, integrate the absolute value."""
    total = 0.0
    for step in range(steps):
        t, gap = (step + 0.5) / steps, 0.0
        for f, y in zip(confidence, correct, strict=True):
            images = [sign * f + 2 * j for j in range(-4, 5) for sign in (1, -1)]
            kernel = sum(math.exp(-((t - c) ** 2) / (2 * sigma**2)) for c in images) / (sigma * math.sqrt(2 * math.pi))
            gap += (y - f) * kernel
        total += abs(gap) / len(confidence)
    return total / steps


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1, 12)
    return confidence, rng.random(12) < confidence**3


@pytest.mark.parametrize("sigma", [0.03, 0.2, 0.8])
def test_the_integral_is_the_slow_one(planted, sigma):
    confidence, correct = planted
    cells = np.bincount(np.ceil(confidence * 10_000).astype(int) - 1, correct - confidence, 10_000) / 12
    assert smooth_error(cells, sigma) == pytest.approx(slow(confidence, correct, sigma), abs=2e-4)


def test_it_is_where_the_error_at_a_width_is_that_width(planted):
    value = smooth_ece(*planted).value
    assert slow(*planted, value) == pytest.approx(value, abs=3e-4)


def test_one_sided_gaps_do_not_depend_on_the_width_and_opposite_ones_cancel_when_near():
    assert smooth_ece([0.9] * 100, [True] * 70 + [False] * 30).value == pytest.approx(0.2, abs=1e-5)
    near = smooth_ece([0.70] * 50 + [0.72] * 50, [True] * 40 + [False] * 10 + [True] * 31 + [False] * 19).value
    far = smooth_ece([0.55] * 50 + [0.95] * 50, [True] * 33 + [False] * 17 + [True] * 42 + [False] * 8).value
    assert near < 0.04 < far  # ECE is 0.1 in both


def test_it_is_a_metric_of_every_evaluation_and_adds_up():
    rng = np.random.default_rng(1)
    probs = rng.dirichlet(np.ones(3), 400)
    labels = np.array([rng.choice(3, p=p) for p in probs])
    whole = evaluate(labels, probs=probs)
    parts = sum((Tally().update(labels[i::3], probs=probs[i::3]) for i in range(3)), Tally()).evaluation()
    assert parts.smooth_ece.value == pytest.approx(whole.smooth_ece.value, abs=1e-9)
    assert whole.smooth_ece.low <= whole.smooth_ece.value <= whole.smooth_ece.high
    direct = smooth_ece(probs.max(axis=1), probs.argmax(axis=1) == labels)
    assert direct.value == pytest.approx(whole.smooth_ece.value, abs=2e-4)


def test_a_weight_of_two_is_a_sample_that_is_there_twice(planted):
    confidence, correct = planted
    times = np.arange(12) % 3
    weighted = smooth_ece(confidence, correct, sample_weight=times)
    assert weighted.value == pytest.approx(smooth_ece(confidence.repeat(times), correct.repeat(times)).value, abs=1e-5)
    assert math.isnan(weighted.low)


def test_the_curve_is_the_accuracy_around_each_confidence():
    right = [True] * 60 + [False] * 40 + [True] * 90 + [False] * 10
    table = ReliabilityTable.from_confidences([0.3] * 100 + [0.9] * 100, right, n_bins=10_000)
    t, accuracy, density = smooth_curve(table, 0.02)
    assert accuracy[3_000] == pytest.approx(0.6, abs=0.01)
    assert accuracy[9_000] == pytest.approx(0.9, abs=0.01)
    assert density.mean() == pytest.approx(1)
    assert len(t) == 10_000


@pytest.mark.parametrize("n", [50, 400])
def test_the_interval_covers(n):
    """150 draws of an over-confident model; benchmarks/smooth_coverage.py has more."""
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(150):
        confidence = rng.choice([0.6, 0.75, 0.9, 0.99], n)
        estimate = smooth_ece(confidence, rng.random(n) < confidence - 0.08)
        missed += not estimate.low <= 0.08 <= estimate.high
    assert missed <= 14  # of 150 at 95 %: more has a probability below 2 %


def test_the_band_of_the_curve_covers():
    """150 draws of a model that is over-confident by 0.08: around any inner t the accuracy is t less that."""
    rng = np.random.default_rng(4)
    missed = 0
    for _ in range(150):
        confidence = rng.uniform(0.5, 1, 500)
        table = ReliabilityTable.from_confidences(confidence, rng.random(500) < confidence - 0.08, n_bins=1_000)
        t, accuracy, density = smooth_curve(table, 0.04)
        low, high = smooth_band(accuracy, density, 500, 0.04)
        missed += sum(not low[k] <= t[k] - 0.08 <= high[k] for k in (650, 800))
    assert missed <= 27  # of 300 at 95 %: more has a probability below 1 %
