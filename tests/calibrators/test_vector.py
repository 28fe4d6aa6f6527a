from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from vicinal.calibrators import TemperatureScaling, VectorScaling
from vicinal.calibrators.vector import nll_gradient

SCALE, BIAS = torch.tensor([0.5, 1.0, 1.5]), torch.tensor([0.7, -0.2, -0.5])


def planted(n=3_000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits * SCALE + BIAS).softmax(1), 1, generator=generator)[:, 0]
    return logits, labels


def slow_loss(params, logits, labels):
    """The loss sample by sample, in Python's floats."""
    w, b = params.reshape(2, -1).tolist()
    total = 0.0
    for row, y in zip(logits, labels, strict=True):
        z = [scale * value + bias for scale, value, bias in zip(w, row, b, strict=True)]
        total += max(z) + math.log(sum(math.exp(value - max(z)) for value in z)) - z[y]
    return total / len(labels)


def test_planted_scale_and_bias_are_recovered():
    calibrator = VectorScaling().fit(*planted(n=100_000))
    np.testing.assert_allclose(calibrator.scale_, SCALE, atol=0.03)
    np.testing.assert_allclose(calibrator.bias_, BIAS, atol=0.03)
    assert calibrator.bias_.sum() == pytest.approx(0, abs=1e-12)


def test_exactly_realisable_frequencies_are_reproduced():
    # Two rows whose label frequencies are 0.6/0.3/0.1 and 0.2/0.2/0.6: the family can hit both.
    rows = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.5, 3.0]], dtype=torch.float64)
    labels = torch.tensor([0] * 6 + [1] * 3 + [2] * 1 + [0] * 2 + [1] * 2 + [2] * 6)
    logits = rows.repeat_interleave(10, 0)
    probs = VectorScaling(tol=1e-9).fit(logits, labels).predict_proba(rows)
    np.testing.assert_allclose(probs, [[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]], atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_optimum_is_scipys(dtype):
    logits, labels = planted(n=300)
    found = VectorScaling(tol=1e-8).fit(logits.to(dtype), labels)
    start = np.array([1.0, 1, 1, 0, 0, 0])
    slow = minimize(slow_loss, start, args=(logits.tolist(), labels.tolist()), method="BFGS", options={"gtol": 1e-7})
    w, b = slow.x.reshape(2, -1)
    np.testing.assert_allclose(found.scale_, w, atol=2e-4)
    np.testing.assert_allclose(found.bias_, b - b.mean(), atol=2e-4)


def test_gradient_agrees_with_autograd():
    logits, labels = planted(n=50)
    params = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mean, spread = logits.mean(0), logits.std(0)
    leaf = params.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy((logits - mean) / spread * leaf[0] + leaf[1], labels)
    loss.backward()
    value, gradient = nll_gradient(*(t.numpy() for t in (logits, labels, params, mean, spread)))
    assert value == pytest.approx(loss.item())
    np.testing.assert_allclose(gradient, leaf.grad)


def test_the_gradient_at_the_solution_is_within_tol():
    logits, labels = planted()
    fitted = VectorScaling(tol=1e-7).fit(logits, labels)
    params = np.stack([fitted.scale_, fitted.bias_])
    _, gradient = nll_gradient(logits.numpy(), labels.numpy(), params, np.zeros(3), np.ones(3))
    assert np.abs(gradient).max() < 1e-6


def test_it_fits_at_least_as_well_as_a_temperature():
    loss = torch.nn.functional.cross_entropy
    for seed in range(5):
        logits, labels = planted(n=100, seed=seed)
        vector, temperature = VectorScaling().fit(logits, labels), TemperatureScaling().fit(logits, labels)
        assert loss(vector(logits), labels) <= loss(temperature(logits), labels) + 1e-7


def test_class_frequencies_are_matched():
    # ∂L/∂b = 0 says so: the mean probability of each class is its frequency.
    logits, labels = planted()
    mean = VectorScaling().fit(logits, labels).predict_proba(logits).mean(0)
    np.testing.assert_allclose(mean, labels.bincount() / len(labels), atol=2e-6)


def test_the_fit_does_not_depend_on_scale_and_offset_of_the_columns():
    logits, labels = planted()
    expected = VectorScaling().fit(logits, labels).predict_proba(logits)
    moved = 1e4 * logits + torch.tensor([1e6, -1e6, 0.0])
    torch.testing.assert_close(VectorScaling().fit(moved, labels).predict_proba(moved), expected, atol=1e-4, rtol=0)


def test_calling_is_scale_and_bias():
    logits, labels = planted(n=50)
    fitted = VectorScaling().fit(logits, labels)
    np.testing.assert_allclose(fitted(logits.numpy()), logits.numpy() * fitted.scale_ + fitted.bias_)


def test_running_out_of_iterations_is_said():
    with pytest.warns(UserWarning, match="1 iterations .*tol=1e-06"):
        VectorScaling(max_iter=1).fit(*planted())


@pytest.mark.parametrize("arguments", [{"tol": 0}, {"tol": -1.0}, {"max_iter": 0}, {"tol": float("nan")}])
def test_bad_hyper_parameters_are_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        VectorScaling(**arguments)
