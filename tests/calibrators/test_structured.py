"""Structured and Dirichlet scaling: the penalised loss by loops, its minimum, and its limits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from vicinal.calibrators import (
    DirichletCalibration,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
)
from vicinal.calibrators import newton as solver


def planted(n=600, k=3, seed=0):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, k))
    truth = logits * np.linspace(0.4, 1.2, k) + 0.3 * np.roll(logits, 1, axis=1) + np.linspace(-1, 1, k)
    labels = np.array([rng.choice(k, p=p) for p in softmax(truth, axis=1)])
    return logits, labels


def slow_loss(logits, labels, temperature, matrix, bias):
    """The equation of SMS, sample by sample and class by class; SVS has no entry off the diagonal."""
    n, k = logits.shape
    total = 0.0
    for z, y in zip(logits, labels, strict=True):
        x = [(v - math.log(sum(math.exp(w) for w in z))) / temperature for v in z]
        u = [sum(matrix[i][j] * x[j] for j in range(k)) + bias[i] for i in range(k)]
        total += math.log(sum(math.exp(v) for v in u)) - u[y]
    ridge = sum(b * b for b in bias) * k / n
    for i, j in itertools.product(range(k), repeat=2):
        ridge += (matrix[i][j] - 1) ** 2 * k / n if i == j else matrix[i][j] ** 2 * k * (k - 1) / n
    return total / n + ridge


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_minimum_of_the_slow_loss(k):
    logits, labels = planted(n=120, k=k)
    temperature = TemperatureScaling().fit(logits, labels).temperature_
    svs, sms = (c.fit(logits, labels) for c in (StructuredVectorScaling(), StructuredMatrixScaling()))
    assert svs.temperature_ == sms.temperature_ == pytest.approx(temperature)
    rng = np.random.default_rng(1)
    for matrix, bias, free in (
        (np.diag(svs.scale_), svs.bias_, np.eye(k)),
        (sms.matrix_, sms.bias_, np.ones((k, k))),
    ):
        least = slow_loss(logits, labels, temperature, matrix, bias)
        for _ in range(6):  # a convex loss that rises in every direction tried, by second order
            d, e = rng.normal(size=(k, k)) * free, rng.normal(size=k)
            for size in (1e-3, -1e-3):
                there = slow_loss(logits, labels, temperature, matrix + size * d, bias + size * e)
                assert 0 < there - least < 1e-3


@pytest.mark.parametrize("dense", [256, 0])
@pytest.mark.parametrize("k", [3, 12])
def test_both_solvers_reach_what_scipy_reaches(k, dense, monkeypatch):
    monkeypatch.setattr(solver, "_DENSE", dense)
    logits, labels = planted(n=300, k=k)
    x = solver.scaled_log_probs(logits, 1.3)
    penalty = np.full((k, k + 1), 0.01)
    d, b = solver.fit_matrix(x, labels, np.ones(300), penalty, tol=1e-9, max_iter=100)
    v, c = solver.fit_vector(x, labels, np.ones(300), 0.01, tol=1e-9, max_iter=100)

    def whole(flat):
        m = flat.reshape(k, k + 1)
        logs = log_softmax(x + x @ m[:, :k].T + m[:, k], axis=1)
        return -logs[np.arange(300), labels].mean() + 0.01 * (flat**2).sum()

    def diagonal(flat):
        logs = log_softmax(x * (1 + flat[:k]) + flat[k:], axis=1)
        return -logs[np.arange(300), labels].mean() + 0.01 * (flat**2).sum()

    ours = whole(np.concatenate([d, b[:, None]], axis=1).ravel()), diagonal(np.concatenate([v, c]))
    peers = (
        minimize(whole, np.zeros(k * (k + 1)), method="L-BFGS-B", options={"maxfun": 10**6}).fun if k == 3 else ours[0],
        minimize(diagonal, np.zeros(2 * k), method="L-BFGS-B", options={"maxfun": 10**6}).fun,
    )
    assert ours[0] <= peers[0] + 1e-9
    assert ours[1] <= peers[1] + 1e-9


def test_few_samples_leave_the_temperature_and_many_become_vector_scaling():
    logits, labels = planted(n=40_000)
    few = StructuredMatrixScaling(penalty=1e6).fit(logits[:200], labels[:200])
    t = TemperatureScaling().fit(logits[:200], labels[:200])
    np.testing.assert_allclose(few.predict_proba(logits[:50]), t.predict_proba(logits[:50]), atol=1e-4)
    many = StructuredVectorScaling(penalty=1e-9).fit(logits, labels)
    x = log_softmax(logits, axis=1)
    np.testing.assert_allclose(
        many.predict_proba(logits[:50]), VectorScaling().fit(x, labels).predict_proba(x[:50]), atol=1e-4
    )


def test_logits_and_log_probabilities_give_the_same_answer():
    logits, labels = planted()
    logs = log_softmax(logits, axis=1)
    for build in (StructuredVectorScaling, StructuredMatrixScaling, DirichletCalibration):
        one, other = build().fit(logits, labels), build().fit(logs, labels)
        np.testing.assert_allclose(one.predict_proba(logits), other.predict_proba(logs), atol=1e-6)


def test_too_many_classes_for_a_matrix_have_its_diagonal_and_a_warning_says_what_it_costs():
    logits, labels = planted(k=5)
    with pytest.warns(UserWarning, match="25 values.*max_classes=5"):
        sms = StructuredMatrixScaling(max_classes=4).fit(logits, labels)
    svs = StructuredVectorScaling().fit(logits, labels)
    np.testing.assert_allclose(sms(logits), svs(logits))
    assert sms.matrix_.shape == (5,)


def test_more_numbers_than_fit_are_thinned_out(monkeypatch):
    logits, labels = planted(n=900)
    monkeypatch.setattr(solver, "MOST_NUMBERS", 900)
    z, y, w = solver.thinned(logits, labels, np.ones(900))
    np.testing.assert_array_equal(z, logits[::3])
    np.testing.assert_array_equal(y, labels[::3])
    assert len(w) == 300


def test_a_fit_that_is_stopped_early_says_so():
    logits, labels = planted(k=5)
    with pytest.warns(UserWarning, match="above tol"):
        StructuredMatrixScaling(max_iter=1).fit(logits, labels)


def slow_dirichlet(logits, labels, matrix, bias, strength):
    n, k = logits.shape
    total = 0.0
    for z, y in zip(logits, labels, strict=True):
        logs = [v - math.log(sum(math.exp(u) for u in z)) for v in z]
        u = [sum(matrix[i][j] * logs[j] for j in range(k)) + bias[i] for i in range(k)]
        total += math.log(sum(math.exp(v) for v in u)) - u[y]
    off = sum(matrix[i][j] ** 2 for i in range(k) for j in range(k) if i != j)
    return total / n + strength * off / (k * (k - 1)) + strength * sum(b * b for b in bias) / k


def test_dirichlet_is_the_minimum_of_its_slow_loss():
    logits, labels = planted(n=150)
    fitted = DirichletCalibration(off_diagonal=0.1, intercept=0.1).fit(logits, labels)
    least = slow_dirichlet(logits, labels, fitted.matrix_, fitted.bias_, 0.1)
    rng = np.random.default_rng(2)
    for _ in range(6):
        d, e = rng.normal(size=(3, 3)), rng.normal(size=3)
        for size in (1e-3, -1e-3):
            assert slow_dirichlet(logits, labels, fitted.matrix_ + size * d, fitted.bias_ + size * e, 0.1) > least


@pytest.mark.parametrize("build", [StructuredVectorScaling, StructuredMatrixScaling])
@pytest.mark.parametrize(("name", "value"), [("penalty", 0), ("tol", 0.0), ("max_iter", 0)])
def test_bad_hyper_parameters_are_refused(build, name, value):
    with pytest.raises(ValueError, match=name):
        build(**{name: value})
