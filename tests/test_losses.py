from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.nn.functional import one_hot

from vicinal import losses


def loop_cross_entropy(logits, targets):
    """−Σₖ tₖ log(exp zₖ / Σⱼ exp zⱼ), in Python floats."""
    result = []
    for z, t in zip(logits.tolist(), targets.tolist(), strict=True):
        top = max(z)
        log_sum = top + math.log(sum(math.exp(v - top) for v in z))
        result.append(-sum(tk * (zk - log_sum) for tk, zk in zip(t, z, strict=True)))
    return torch.tensor(result, dtype=torch.float64)


def loop_smooth(label, eps, k):
    return [1 - eps if j == label else eps / (k - 1) for j in range(k)]


@given(st.integers(1, 5), st.integers(2, 6), st.floats(0, 0.9), st.integers(0, 1000))
def test_smoothed_cross_entropy_against_loops(n, k, eps, seed):
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=g, dtype=torch.float64) * 5
    labels = torch.randint(k, (n,), generator=g)
    targets = torch.tensor([loop_smooth(label, eps, k) for label in labels.tolist()], dtype=torch.float64)
    expected = loop_cross_entropy(logits, targets)
    torch.testing.assert_close(losses.loss(logits, labels, label_smoothing=eps), expected)
    soft = losses.loss(logits, one_hot(labels, k).double(), label_smoothing=eps)
    torch.testing.assert_close(soft, expected)


@given(st.integers(1, 5), st.integers(2, 6), st.integers(2, 4), st.floats(0, 0.9), st.integers(0, 1000))
def test_mixed_loss_against_loops(n, k, sources, eps, seed):
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=g, dtype=torch.float64) * 5
    labels = torch.randint(k, (n,), generator=g)
    partners = torch.stack([torch.randperm(n, generator=g) for _ in range(sources)], 1)
    weights = torch.rand(n, sources, generator=g, dtype=torch.float64).softmax(1)
    expected = torch.zeros(n, dtype=torch.float64)
    for row in range(n):
        for j in range(sources):
            target = torch.tensor([loop_smooth(int(labels[partners[row, j]]), eps, k)], dtype=torch.float64)
            expected[row] += weights[row, j] * loop_cross_entropy(logits[row : row + 1], target)[0]
    mixed = losses.mixed_loss(logits, labels, weights, partners, label_smoothing=eps)
    torch.testing.assert_close(mixed, expected)
    soft = losses.mixed_loss(logits, one_hot(labels, k).double(), weights, partners, label_smoothing=eps)
    torch.testing.assert_close(soft, expected)


def test_mixed_loss_equals_soft_target_cross_entropy():
    g = torch.Generator().manual_seed(0)
    logits, lam = torch.randn(6, 4, generator=g), torch.rand(6, generator=g)
    a, b = torch.randint(4, (2, 6), generator=g)
    targets = lam[:, None] * one_hot(a, 4) + (1 - lam[:, None]) * one_hot(b, 4)
    expected = F.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(losses.mixed_cross_entropy(logits, a, b, lam), expected)


def test_regression_is_the_squared_error_to_the_mixed_target():
    y, logits = torch.tensor([1.0, 3.0]), torch.tensor([[0.5], [2.0]])
    torch.testing.assert_close(losses.loss(logits, y), torch.tensor([0.25, 1.0]))
    torch.testing.assert_close(losses.loss(logits[:, 0], y), torch.tensor([0.25, 1.0]))
    weights, partners = torch.tensor([[0.5, 0.5], [0.25, 0.75]]), torch.tensor([[0, 1], [1, 0]])
    expected = torch.tensor([(0.5 - 2.0) ** 2, (2.0 - 1.5) ** 2])
    torch.testing.assert_close(losses.mixed_loss(logits, y, weights, partners), expected)


def test_entropy_against_the_formula():
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = logits.softmax(1)
    expected = torch.tensor([-sum(v * math.log(v) for v in row) for row in p.tolist()], dtype=torch.float64)
    torch.testing.assert_close(losses.entropy(logits), expected)


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_huge_logits_stay_finite(scale):
    logits = torch.tensor([[scale, 0.0, -scale]])
    assert losses.loss(logits, torch.tensor([1]), label_smoothing=0.1).isfinite().all()
    assert losses.entropy(logits).isfinite().all()


def test_float64_logits_are_mixed_in_float64():
    z, a, b = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0]), torch.tensor([2, 2, 1, 0])
    expected = 0.3 * losses.loss(z, a) + 0.7 * losses.loss(z, b)
    torch.testing.assert_close(losses.mixed_cross_entropy(z, a, b, 0.3), expected, rtol=1e-14, atol=1e-14)


def test_bfloat16_logits_are_computed_in_float32():
    logits = torch.randn(4, 10, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.arange(4)
    result = losses.loss(logits, labels)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, F.cross_entropy(logits.float(), labels, reduction="none"))


def test_second_derivatives_are_right():
    logits = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels, weights = torch.tensor([0, 1, 3]), torch.tensor([[0.3, 0.7]] * 3, dtype=torch.float64)
    partners = torch.tensor([[0, 1], [1, 2], [2, 0]])
    torch.autograd.gradgradcheck(
        lambda z: losses.mixed_loss(z, labels, weights, partners, label_smoothing=0.1), (logits,)
    )


Z = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.loss(Z, torch.tensor([0, 3])), r"labels must be in \[0, 2\] for 3 logits, got 3"),
        (lambda: losses.loss(Z, torch.tensor([0, -100])), "got -100"),
        (lambda: losses.loss(Z, torch.tensor([0, 1, 2])), r"logits \[3, K\], got \[2, 3\]"),
        (lambda: losses.loss(Z, torch.zeros(2, 3)), "sum to one.*target_type='multilabel'"),
        (lambda: losses.loss(Z, torch.tensor([[2.0, -1.0, 0.0]] * 2)), "negative, got -1"),
        (lambda: losses.loss(Z, torch.full((2, 3), float("nan"))), "sum to one"),
        (lambda: losses.loss(Z, torch.zeros(2, 4)), r"shape \[2, 3\], got \[2, 4\]"),
        (lambda: losses.loss(Z, torch.zeros(2)), r"regression targets \[2\] need logits \[2\] or \[2, 1\]"),
        (lambda: losses.loss(torch.zeros(2, 1), torch.zeros(2), label_smoothing=0.1), "label_smoothing must be 0"),
        (lambda: losses.loss(Z, torch.zeros(2, 1, dtype=torch.int64)), r"integers \[B\].*target_type='multilabel'"),
        (lambda: losses.loss(Z, torch.tensor([True, False])), "bool"),
        (lambda: losses.loss(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)), "empty"),
        (
            lambda: losses.loss(torch.zeros(2, 3, 4), torch.tensor([0, 1])),
            r"got \[2, 3, 4\]: objectives are for models that",
        ),
        (
            lambda: losses.loss(torch.zeros(2, 1), torch.tensor([0, 0]), label_smoothing=0.1),
            "softmax needs at least two logits",
        ),
        (lambda: losses.mixed_cross_entropy(Z, torch.eye(3)[:2], torch.eye(3)[:2], 0.5), "integer labels"),
        (
            lambda: losses.mixed_cross_entropy(Z, torch.tensor([0, 1]), torch.tensor([1, 2]), torch.rand(2, 1)),
            "lam must",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
