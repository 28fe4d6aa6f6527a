"""Toy points have the shapes of their names, and their draws come from the generator given."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.papers import toy_points


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("draw", [toy_points.spirals, toy_points.disc_in_ring])
@given(n=st.integers(1, 50), seed=st.integers(0, 99))
def test_classes_are_even_and_the_generator_alone_decides(draw, n, seed):
    before = torch.get_rng_state()
    points, labels = draw(n, generator=seeded(seed))
    again, _ = draw(n, generator=seeded(seed))
    assert torch.equal(points, again)
    assert torch.equal(torch.get_rng_state(), before)
    assert (points.dtype, points.shape, labels.dtype) == (torch.float32, (n, 2), torch.int64)
    assert abs(int((labels == 0).sum()) - int((labels == 1).sum())) <= 1


def test_spirals_wind_with_the_radius():
    points, labels = toy_points.spirals(300, n_classes=3, turns=1.5, noise=0, generator=seeded())
    for (x, y), label in zip(points.tolist(), labels.tolist(), strict=True):
        r = math.hypot(x, y)
        angle = 2 * math.pi * (1.5 * r + label / 3)
        assert (x, y) == pytest.approx((r * math.cos(angle), r * math.sin(angle)), abs=1e-5)
        assert 0.1 - 1e-6 <= r <= 1 + 1e-6


def test_the_disc_is_uniform_in_area_and_the_ring_around_it():
    points, labels = toy_points.disc_in_ring(8000, generator=seeded())
    r = points.norm(dim=1)
    assert float((r[labels == 1] < 0.25).double().mean()) == pytest.approx(0.25, abs=0.03)
    assert 0.8 - 1e-5 <= float(r[labels == 0].min()) <= float(r[labels == 0].max()) <= 1.2 + 1e-5


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: toy_points.spirals(0), "n must be"),
        (lambda: toy_points.spirals(5, n_classes=0), "n_classes"),
        (lambda: toy_points.disc_in_ring(5, noise=-1), "noise"),
    ],
)
def test_bad_arguments_are_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()
