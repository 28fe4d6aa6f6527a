"""Focal loss: the equation by loops, its limits, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch

from vicinal import ERM, Focal


def slow(logits, labels, gamma=3.0, low_gamma=5.0, threshold=0.2):
    out = []
    for z, y in zip(logits.tolist(), labels.tolist(), strict=True):
        p = math.exp(z[y]) / sum(math.exp(v) for v in z)
        out.append(-((1 - p) ** (low_gamma if p < threshold else gamma)) * math.log(p))
    return torch.tensor(out)


@pytest.mark.parametrize("given", [{}, {"gamma": 2.0, "low_gamma": 2.0}, {"gamma": 0.5, "threshold": 0.6}])
def test_the_loss_of_each_row_is_the_slow_one(given):
    generator = torch.Generator().manual_seed(0)
    logits, labels = 2 * torch.randn(50, 4, generator=generator), torch.randint(4, (50,), generator=generator)
    torch.testing.assert_close(Focal(**given).loss(logits, labels), slow(logits, labels, **given))
    one_hot = torch.nn.functional.one_hot(labels, 4).float()
    torch.testing.assert_close(Focal(**given).loss(logits, one_hot), slow(logits, labels, **given))


def test_no_exponent_is_cross_entropy_and_labels_of_their_own_are_two_classes():
    generator = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(9, 3, generator=generator), torch.randint(3, (9,), generator=generator)
    torch.testing.assert_close(Focal(gamma=0, low_gamma=0).loss(logits, labels), ERM().loss(logits, labels))
    yes = torch.randint(2, (9, 3), generator=generator)
    both = torch.stack([1 - yes, yes], dim=-1).float()
    alone = [slow(torch.stack([torch.zeros(9), logits[:, k]], 1), yes[:, k]) for k in range(3)]
    torch.testing.assert_close(Focal().loss(logits, both), torch.stack(alone).mean(0))


def test_a_certain_prediction_has_a_finite_slope():
    logits = torch.tensor([[200.0, 0.0], [0.0, 200.0]], requires_grad=True)
    Focal(gamma=0.5).loss(logits, torch.tensor([0, 0])).sum().backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("given", [{"gamma": -1}, {"low_gamma": -0.1}, {"threshold": 2}])
def test_bad_hyper_parameters_are_refused(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        Focal(**given)


def test_regression_has_the_squared_error():
    z, y = torch.randn(4, 1), torch.randn(4)
    torch.testing.assert_close(Focal().loss(z, y), ERM().loss(z, y))
