"""Random choice between objectives, and the share of batches that each mixes."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

import vicinal
from vicinal import (
    ERM,
    CutMix,
    GuidedMixup,
    KMixup,
    LogitMix,
    ManifoldMixup,
    Mixup,
    PuzzleMix,
    RandomChoice,
    RegMixup,
    Warmup,
)
from vicinal._typing import Step


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_each_objective_is_drawn_as_often_as_its_probability_says():
    model, x, y = nn.Linear(4, 3), torch.randn(6, 4), torch.arange(6) % 3
    objective = RandomChoice(
        ERM(), ERM(label_smoothing=0.1), Mixup(alpha=0.0, label_smoothing=0.5), probs=[0.2, 0.5, 0.3]
    )
    by_loss = {round(o(model, x, y).item(), 5): k for k, o in enumerate(objective.objectives)}
    n = 2000
    counts = Counter(by_loss[round(objective(model, x, y, generator=seeded(s)).item(), 5)] for s in range(n))
    for k, prob in enumerate(objective.probs):
        assert abs(counts[k] - n * prob) < 4 * (n * prob * (1 - prob)) ** 0.5


def test_what_is_written_builds_it_again():
    objective = RandomChoice(Mixup(alpha=0.8), CutMix(alpha=1.0))
    assert objective.probs == (0.5, 0.5)
    assert vicinal.parse(repr(objective)) == objective
    assert "prob=" not in repr(Mixup(alpha=0.8))  # as older runs recorded it
    assert vicinal.parse(repr(Mixup(alpha=0.8, prob=0.25))).prob == 0.25


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomChoice(), "RandomChoice takes objectives"),
        (lambda: RandomChoice(Mixup), "RandomChoice takes objectives"),
        (lambda: RandomChoice(GuidedMixup()), "without training state"),
        (lambda: RandomChoice(ERM(), probs=[0.5, 0.5]), "probs must be 1 numbers"),
        (lambda: RandomChoice(ERM(), ERM(), probs=[0.5, 0.6]), "probs must be numbers that sum to one"),
        (lambda: Mixup(alpha=1.0, prob=1.5), r"prob must be a number in \[0, 1\]"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


@pytest.mark.parametrize(
    "kind",
    [
        lambda **kw: Mixup(alpha=1.0, **kw),
        lambda **kw: KMixup(alpha=1.0, k=3, **kw),
        lambda **kw: CutMix(alpha=1.0, **kw),
        lambda **kw: ManifoldMixup(layers=["1"], **kw),
        lambda **kw: PuzzleMix(block_counts=(2,), **kw),
    ],
)
def test_the_share_of_batches_that_is_mixed(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Linear(8, 3))
    x, y = torch.randn(6, 1, 4, 4), torch.arange(6) % 3
    plain = ERM()(model, x, y)
    torch.testing.assert_close(kind(prob=0.0)(model, x, y), plain)
    plans = [kind(prob=0.3).draw(model, x, y, generator=seeded(s)) for s in range(100)]
    mixed = sum(plan.mixed for plan in plans)
    assert 15 <= mixed <= 45
    assert all((plan.weights[:, 0] == 1).all() for plan in plans if not plan.mixed)
    if "PuzzleMix" not in repr(kind(prob=1.0)):
        rows = kind(prob=0.3, per_sample=True).draw(model, *(t.repeat(100, *[1] * (t.ndim - 1)) for t in (x, y)))
        share = (rows.weights[:, 0] < 1).float().mean()
        assert 0.2 < share < 0.4


def test_a_composite_goes_inside():
    with pytest.raises(TypeError, match=r"put it inside, RandomChoice\(LogitMix\(Mixup\(.*\)\), ERM\(.*\), …\)"):
        LogitMix(RandomChoice(Mixup(alpha=1.0), ERM()))
    with pytest.raises(TypeError, match=r"put it inside, Warmup\(RegMixup\(Mixup\(.*\)\), …\)"):
        RegMixup(Warmup(Mixup(alpha=1.0), epochs=1))
    with pytest.raises(TypeError, match=r"got ERM\(label_smoothing=0.0, confidence_penalty=0.0\)$"):
        LogitMix(ERM())


@pytest.mark.parametrize(
    ("text", "wrapped", "sharded"),
    [
        ("RandomChoice(Mixup(alpha=1.0), CutMix(prob=0.5))", {1}, {1}),
        ("RandomChoice(Mixup(alpha=1.0), PuzzleMix())", {1}, {1, 2}),
        ("RandomChoice(Mixup(alpha=1.0), PuzzleMix(), probs=[1.0, 0.0])", {1}, {1}),
        ("PuzzleMix(prob=0.5)", {1}, {1, 2}),
        ("RegMixup(PuzzleMix(), split_forward=True)", {2}, {3}),
        ("RegMixup(Mixup(alpha=1.0, prob=0.5))", {1}, {1}),
        ("RegMixup(Mixup(alpha=1.0, prob=0.5), split_forward=True)", {1, 2}, {1, 2}),
        ("RegMixup(Mixup(alpha=0.0), split_forward=True)", {1}, {1}),
        ("Warmup(RegMixup(Mixup(alpha=1.0), split_forward=True), epochs=1)", {2}, {2}),
        ("Warmup(RegMixup(Mixup(alpha=1.0), split_forward=True), epochs=3)", {1}, {1}),
    ],
)
def test_how_often_the_model_may_run(text, wrapped, sharded):
    objective, step = vicinal.parse(text), Step(epoch=2.0)
    assert objective.forwards(step, sharded=False) == wrapped
    assert objective.forwards(step, sharded=True) == sharded
