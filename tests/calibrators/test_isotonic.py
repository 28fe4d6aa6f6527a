from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.isotonic import IsotonicRegression

from vicinal.calibrators import IsotonicCalibration
from vicinal.calibrators.isotonic import isotonic_corners


def planted(n=500, k=3, seed=0):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(n, k))
    labels = np.array([rng.choice(k, p=p) for p in softmax(logits / 2, axis=1)])
    return logits, labels


def slow_pool(values):
    """Pool adjacent violators by hand: merge neighbouring blocks until their means increase."""
    blocks = [[v] for v in values]
    while True:
        for i in range(len(blocks) - 1):
            if np.mean(blocks[i]) > np.mean(blocks[i + 1]):
                blocks[i : i + 2] = [blocks[i] + blocks[i + 1]]
                break
        else:
            return [np.mean(block) for block in blocks for _ in block]


@given(st.lists(st.booleans(), min_size=1, max_size=25))
@settings(max_examples=60, deadline=None)
def test_it_pools_adjacent_violators(outcomes):
    scores = np.linspace(0, 1, len(outcomes))
    x, f = isotonic_corners(scores, np.array(outcomes))
    np.testing.assert_allclose(np.interp(scores, x, f), slow_pool([float(o) for o in outcomes]), atol=1e-12)
    assert np.all(np.diff(f) >= 0)


@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_the_function_is_scikit_learns_also_between_and_beyond_the_samples(n, levels, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels + 1, n) / levels  # many ties
    outcomes = rng.random(n) < scores
    peer = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, outcomes.astype(float))
    anywhere = np.linspace(-0.2, 1.2, 97)
    np.testing.assert_allclose(
        np.interp(anywhere, *isotonic_corners(scores, outcomes)), peer.predict(anywhere), atol=1e-9
    )


@pytest.mark.parametrize("k", [2, 3, 7])
def test_one_against_the_rest_then_normalised(k):
    logits, labels = planted(k=k)
    probs = softmax(logits, axis=1)
    columns = [
        IsotonicRegression(out_of_bounds="clip").fit(probs[:, c], (labels == c).astype(float)).predict(probs[:, c])
        for c in range(k)
    ]
    expected = np.maximum(np.stack(columns, 1), 1e-6)
    expected /= expected.sum(1, keepdims=True)
    calibrator = IsotonicCalibration().fit(logits, labels)
    np.testing.assert_allclose(calibrator.predict_proba(logits), expected, atol=1e-9)
    np.testing.assert_allclose(calibrator(logits), np.log(expected), atol=1e-8)


def test_a_row_where_every_class_got_zero_is_uniform():
    logits = np.log([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])
    calibrator = IsotonicCalibration().fit(logits, np.array([0, 1, 2]))
    np.testing.assert_allclose(calibrator.predict_proba(np.log([[0.2, 0.2, 0.2]])), 1 / 3)  # softmax: thirds
    unsure = IsotonicCalibration().fit(np.zeros((2, 3)), np.array([0, 0]))
    np.testing.assert_allclose(unsure.predict_proba(np.zeros((1, 3))), [[1, 0, 0]], atol=3e-6)


def test_the_floor_bounds_the_loss_of_a_surprise():
    logits, labels = np.array([[5.0, 0.0], [0.0, 5.0]]), np.array([0, 1])
    for floor in (1e-6, 1e-2):
        worst = IsotonicCalibration(floor=floor).fit(logits, labels)(logits).min()
        assert worst == pytest.approx(np.log(floor / (1 + floor)))


def test_saturated_float32_probabilities_are_still_told_apart():
    logits = np.array([[20.0, 0.0], [25.0, 0.0], [30.0, 0.0]], dtype=np.float32)  # all 1.0 in float32
    calibrator = IsotonicCalibration().fit(logits, np.array([1, 0, 0]))
    assert calibrator.predict_proba(logits)[:, 0] == pytest.approx([0, 1, 1], abs=1e-5)


@pytest.mark.parametrize("floor", [0, -1.0, 0.5, float("nan")])
def test_bad_hyper_parameters_are_refused(floor):
    with pytest.raises(ValueError, match=r"floor must be a number in \(0, 0.1\]"):
        IsotonicCalibration(floor=floor)


def test_a_decreasing_function_is_not_loaded():
    state = IsotonicCalibration().fit(*planted()).state_dict()
    state["learned"]["values_"][0].reverse()
    with pytest.raises(ValueError, match="must increase"):
        IsotonicCalibration.from_state_dict(state)
