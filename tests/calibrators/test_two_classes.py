"""Quadratic scaling, beta calibration and Venn–Abers: each equation again, slowly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from vicinal.calibrators import BetaCalibration, QuadraticScaling, TemperatureScaling, VennAbersCalibration
from vicinal.calibrators.venn_abers import venn_abers


def planted(n=400, seed=0, swapped=False):
    rng = np.random.default_rng(seed)
    x = 2 * rng.normal(size=n)
    labels = (rng.random(n) < expit(0.5 + (-1 if swapped else 1) * 0.7 * x + 0.1 * x**2)).astype(int)
    return np.stack([-x / 2, x / 2], axis=1), labels, x


def test_quadratic_is_the_minimum_of_its_equation():
    logits, labels, x = planted()
    fitted = QuadraticScaling().fit(logits, labels)
    t = TemperatureScaling().fit(logits, labels).temperature_
    s = math.sqrt(sum((v / t) ** 2 for v in x) / len(x))

    def loss(theta):
        a, b, c = theta
        total = 0.0
        for v, y in zip(x / t, labels, strict=True):
            u = a + b * v + c * v * v
            total += math.log1p(math.exp(u)) - y * u
        return total / len(x) + 2 / len(x) * (a * a + (b - 1) ** 2 + (c * s) ** 2)

    found = minimize(loss, [0, 1, 0], method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(fitted.coefficients_[0], found.x, atol=1e-5)
    a, b, c = found.x
    probs = [1 / (1 + math.exp(-(a + b * v + c * v * v))) for v in x[:20] / t]
    np.testing.assert_allclose(fitted.predict_proba(logits[:20])[:, 1], probs, atol=1e-5)


def test_beyond_what_was_seen_a_parabola_goes_on_as_a_line_that_does_not_fall():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 5000)
    labels = (rng.random(5000) < expit(1 + x - 0.3 * x**2)).astype(int)  # turns at x = 5/3
    fitted = QuadraticScaling().fit(np.stack([0 * x, x], axis=1), labels)
    far = np.linspace(3, 60, 50)
    probs = fitted.predict_proba(np.stack([0 * far, far], axis=1))[:, 1]
    assert np.all(np.diff(probs) >= 0)
    at_end = expit(1 + 3 - 0.3 * 9)
    assert probs[0] == pytest.approx(at_end, abs=0.06)


def slow_beta(theta, p, labels):
    a, b, c = theta
    total = 0.0
    for q, y in zip(p, labels, strict=True):
        u = a * math.log(q) - b * math.log(1 - q) + c
        total += math.log1p(math.exp(u)) - y * u
    return (total + (a - 1) ** 2 + (b - 1) ** 2 + c**2) / len(p)


@pytest.mark.parametrize("swapped", [False, True])
def test_beta_is_the_minimum_under_its_bounds(swapped):
    logits, labels, x = planted(swapped=swapped)
    fitted = BetaCalibration().fit(logits, labels).coefficients_[0]
    found = minimize(
        slow_beta, [1, 1, 0], args=(expit(x), labels), method="L-BFGS-B", bounds=[(0, None), (0, None), (None, None)],
        options={"ftol": 1e-14, "gtol": 1e-9},
    )  # fmt: skip
    np.testing.assert_allclose(fitted, found.x, atol=1e-4)
    assert (fitted[:2] >= 0).all()
    assert not swapped or fitted[:2].min() == 0  # where falling would fit better, the bounds hold


def slow_isotonic(pairs):
    """Pool adjacent violators by hand; return the value of each score."""
    by_score = {}
    for score, hit in sorted(pairs):
        by_score.setdefault(score, []).append(hit)
    blocks = [([score], hits) for score, hits in by_score.items()]
    while True:
        for i in range(len(blocks) - 1):
            if np.mean(blocks[i][1]) > np.mean(blocks[i + 1][1]):
                blocks[i : i + 2] = [(blocks[i][0] + blocks[i + 1][0], blocks[i][1] + blocks[i + 1][1])]
                break
        else:
            return {score: float(np.mean(hits)) for scores, hits in blocks for score in scores}


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=25))
@settings(max_examples=80, deadline=None)
def test_venn_abers_fits_with_the_new_sample_once_as_either_class(pairs):
    scores, hits = np.array([p[0] for p in pairs], float), np.array([p[1] for p in pairs])
    x, p0, p1 = venn_abers(scores, hits, np.ones(len(pairs)))
    for place, value in enumerate([v for s in x for v in (s - 0.5, s)] + [x[-1] + 0.5]):
        before = [s for s in x if s < value]
        value = (before[-1] + 1e-3) if place % 2 == 0 and before else value  # between neighbours
        for label, got in ((0, p0[place]), (1, p1[place])):
            assert got == pytest.approx(slow_isotonic([*zip(scores, hits, strict=True), (value, label)])[value])
        assert p0[place] < 1
        assert p1[place] > 0
        assert p0[place] <= p1[place]


def test_venn_abers_gives_the_point_between():
    logits, labels, x = planted(n=200)
    fitted = VennAbersCalibration().fit(logits, labels)
    pairs = list(zip(x.tolist(), labels.tolist(), strict=True))
    new = np.array([-3.0, 0.01, 2.5])
    probs = fitted.predict_proba(np.stack([0 * new, new], axis=1))[:, 1]
    for value, p in zip(new, probs, strict=True):
        p0, p1 = (slow_isotonic([*pairs, (value, label)])[value] for label in (0, 1))
        assert p == pytest.approx(p1 / (1 - p0 + p1))


def test_venn_abers_holds_no_probability_outside_its_range():
    state = VennAbersCalibration().fit(*planted()[:2]).state_dict()
    state["learned"]["upper_"][0][0] = 0.0
    with pytest.raises(ValueError, match="upper_"):
        VennAbersCalibration.from_state_dict(state)
