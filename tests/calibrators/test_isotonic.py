"""Isotonic calibration: blocks by hand, smoothed and joined."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, softmax

from vicinal.calibrators import IsotonicCalibration
from vicinal.calibrators.base import class_log_odds, joined_log_odds
from vicinal.calibrators.isotonic import smooth_corners


def planted(n=500, k=3, seed=0):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(n, k))
    labels = np.array([rng.choice(k, p=p) for p in softmax(logits / 2, axis=1)])
    return logits, labels


def slow_blocks(pairs, n_classes):
    """Pool neighbours whose means fall, then neighbours whose smoothed estimates fall, one pair at a time."""

    def pooled(blocks, estimate):
        while True:
            for i in range(len(blocks) - 1):
                if estimate(blocks[i]) >= estimate(blocks[i + 1]):
                    blocks[i : i + 2] = [blocks[i] + blocks[i + 1]]
                    break
            else:
                return blocks

    by_score = {}
    for score, hit in sorted(pairs):
        by_score.setdefault(score, []).append((score, hit))
    blocks = pooled(list(by_score.values()), lambda b: sum(h for _, h in b) / len(b))
    return blocks, lambda b: (sum(h for _, h in b) + 1) / (len(b) + n_classes)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=30), st.integers(2, 5))
@settings(max_examples=80, deadline=None)
def test_blocks_by_hand_have_laplace_estimates_that_rise(pairs, k):
    scores, hits = np.array([p[0] for p in pairs], float), np.array([p[1] for p in pairs])
    x, f = smooth_corners(scores, hits, np.ones(len(pairs)), k)
    blocks, estimate = slow_blocks([(float(s), bool(h)) for s, h in pairs], k)
    assert np.all(np.diff(f) >= 0)
    assert ((expit(f) > 0) & (expit(f) < 1)).all()
    if all(estimate(a) < estimate(b) for a, b in itertools.pairwise(blocks)):  # smoothing pooled none
        np.testing.assert_allclose(x, [np.mean([s for s, _ in b]) for b in blocks])
        np.testing.assert_allclose(expit(f), [estimate(b) for b in blocks])


def test_a_small_block_that_smoothing_moves_below_its_neighbour_is_pooled_with_it():
    scores = np.array([0.0, *np.arange(1.0, 11.0)])
    hits = np.array([False, *[i % 5 == 0 for i in range(9)], True])  # 0 of 1, 1 of 5, 1 of 4, 1 of 1
    x, f = smooth_corners(scores, hits, np.ones(11), 2)
    np.testing.assert_allclose(x, [2.5, 7.5, 10])  # 0 of 1 and 1 of 5 are pooled: 1/3 would lie above 2/7
    np.testing.assert_allclose(expit(f), [2 / 8, 2 / 6, 2 / 3])


@pytest.mark.parametrize("k", [2, 3, 7])
def test_lines_between_centres_then_normalised(k):
    logits, labels = planted(k=k)
    calibrator = IsotonicCalibration().fit(logits, labels)
    logs = log_softmax(logits, axis=1)
    expected = []
    for i in range(20):
        row = []
        for c in [1] if k == 2 else range(k):
            odds = logs[i, c] - math.log(sum(math.exp(logs[i, j]) for j in range(k) if j != c))
            x, f = smooth_corners(class_log_odds(logits)[0 if k == 2 else c], labels == c, np.ones(len(labels)), k)
            row.append(1 / (1 + math.exp(-np.interp(odds, x, f))))
        row = [1 - row[0], row[0]] if k == 2 else row
        expected.append([p / sum(row) for p in row])
    np.testing.assert_allclose(calibrator.predict_proba(logits[:20]), expected, rtol=1e-9)


def test_no_probability_is_0_or_1_and_a_surprise_is_bounded():
    logits, labels = np.array([[5.0, 0.0], [0.0, 5.0]] * 50), np.array([0, 1] * 50)
    probs = IsotonicCalibration().fit(logits, labels).predict_proba(logits * 100)
    np.testing.assert_allclose(probs.min(), 1 / 52)


def test_saturated_float32_probabilities_are_still_told_apart():
    logits = np.array([[20.0, 0.0], [25.0, 0.0], [30.0, 0.0]] * 30, dtype=np.float32)  # all 1.0 in float32
    calibrator = IsotonicCalibration().fit(logits, np.array([1, 0, 0] * 30))
    low, middle, high = calibrator.predict_proba(logits[:3])[:, 0]
    assert low == pytest.approx(1 / 32)
    assert high == pytest.approx(61 / 62)
    assert low < middle < high  # on the line between the centres of the blocks


def test_log_odds_are_exact_for_the_clearest_rows():
    odds = class_log_odds(np.array([[800.0, 0.0, -5.0], [0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(odds[:, 0], [800 - math.log1p(math.exp(-5)), -800, -805])
    np.testing.assert_allclose(odds[:, 1], -math.log(2))
    np.testing.assert_allclose(np.exp(joined_log_odds(odds)).sum(axis=1), 1)


def test_a_decreasing_function_is_not_loaded():
    state = IsotonicCalibration().fit(*planted()).state_dict()
    state["learned"]["values_"][0].reverse()
    with pytest.raises(ValueError, match="must increase"):
        IsotonicCalibration.from_state_dict(state)
