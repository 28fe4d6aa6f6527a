"""Prediction sets: what they promise over many splits, and their scores by loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vicinal.calibrators.conformal import AdaptiveSets, LeastAmbiguousSets, RegularisedSets, conformal_quantile
from vicinal.metrics import evaluate_sets

KINDS = [
    LeastAmbiguousSets(coverage=0.9),
    AdaptiveSets(coverage=0.9),
    LeastAmbiguousSets(coverage=0.8, by_class=True),
    AdaptiveSets(coverage=0.8, by_class=True),
]


def drawn(n: int, *, seed: int = 0, k: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of an over-confident model, right for about three in four, with one rare class."""
    draw = np.random.default_rng(seed)
    truth = draw.normal(size=(n, k)) * 2 - np.array([0.0, 0.0, 0.5, 1.5])[:k]
    gumbel = -np.log(-np.log(draw.random((n, k))))
    return 2 * truth, (truth + gumbel).argmax(axis=1)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_coverage_over_a_thousand_splits(kind):
    splits, n_fit, n_test = 1000, 100, 100
    logits, labels = drawn(splits * (n_fit + n_test))
    scores = kind.scores(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
    own = scores[np.arange(len(labels)), labels].reshape(splits, -1)
    y = labels.reshape(splits, -1)
    # All splits at once, by the formula; the class itself is compared with it below.
    for members in [y == k for k in range(4)] if kind.by_class else [np.ones_like(y, dtype=bool)]:
        fit = np.where(members[:, :n_fit], own[:, :n_fit], np.inf)
        counts = members[:, :n_fit].sum(axis=1)
        ranks = np.ceil((counts + 1) * kind.coverage - 1e-9).astype(int)
        ordered = np.sort(fit, axis=1)
        q = np.where(ranks <= counts, ordered[np.arange(splits), np.minimum(ranks, n_fit) - 1], np.inf)
        held = (own[:, n_fit:] <= q[:, None]) & members[:, n_fit:]
        hits, tested = int(held.sum()), int(members[:, n_fit:].sum())
        # Of the share over splits: both the threshold and the tested samples vary.
        by_split = held.sum(axis=1) / np.maximum(members[:, n_fit:].sum(axis=1), 1)
        error = by_split[members[:, n_fit:].any(axis=1)].std() / math.sqrt(splits)
        coverage = hits / tested
        assert coverage >= kind.coverage - 3 * error
        if isinstance(kind, LeastAmbiguousSets):  # no scores are equal, so it is not above either
            above = float(np.mean(np.where(ranks <= counts, ranks / (counts + 1), 1.0)))
            assert coverage <= above + 4 * error + 1e-3


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_the_sets_by_loops(kind):
    logits, labels = drawn(60)
    new, _ = drawn(10, seed=1)
    fitted = kind.fit(torch.from_numpy(logits), torch.from_numpy(labels))

    def score(row: np.ndarray, k: int) -> float:
        p = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        if isinstance(kind, LeastAmbiguousSets):
            return 1 - p[k]
        return sum(p[j] for j in range(4) if p[j] > p[k])

    for i in range(10):
        for k in range(4):
            group = sorted(score(z, y) for z, y in zip(logits, labels, strict=True) if not kind.by_class or y == k)
            rank = math.ceil((len(group) + 1) * kind.coverage - 1e-9)
            q = group[rank - 1] if rank <= len(group) else math.inf
            assert fitted(new)[i, k] == (score(new[i], k) <= q + 1e-12)


def test_adaptive_sets_are_never_empty_and_grow_with_the_coverage():
    logits, labels = drawn(300)
    few, many = (AdaptiveSets(coverage=c).fit(logits, labels)(logits) for c in (0.5, 0.95))
    assert few.any(axis=1).all()
    assert (few <= many).all()
    assert (few.argmax(axis=1) >= 0).all()


def test_too_few_samples_give_every_class():
    assert conformal_quantile(np.array([0.1, 0.2]), 0.9) == math.inf
    assert LeastAmbiguousSets().fit([[1.0, 0.0]], [0])([[5.0, 0.0]]).all()


def test_metrics_of_sets_by_loops():
    logits, labels = drawn(400)
    sets = LeastAmbiguousSets().fit(logits[:200], labels[:200])(logits[200:])
    metrics = evaluate_sets(labels[200:], sets=sets)
    hits = [bool(s[y]) for s, y in zip(sets, labels[200:], strict=True)]
    assert metrics.coverage.value == pytest.approx(sum(hits) / 200)
    assert metrics.coverage.low < 0.9 < metrics.coverage.high + 0.1
    assert metrics.size.value == pytest.approx(sum(int(s.sum()) for s in sets) / 200)
    assert metrics.empty.value + metrics.single.value <= 1
    for k in range(4):
        mine = [h for h, y in zip(hits, labels[200:], strict=True) if y == k]
        assert metrics.class_coverage[k].value == pytest.approx(sum(mine) / len(mine))
    assert evaluate_sets([0], sets=[[True, False]]).class_coverage[1] is None
    assert set(metrics.to_dict()) >= {"coverage", "size", "class_coverage", "class_size"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LeastAmbiguousSets(coverage=1.0), r"coverage must be a number in \(0, 1\)"),
        (lambda: LeastAmbiguousSets(coverage=0), "coverage must be a number"),
        (lambda: AdaptiveSets()([[1.0, 0.0]]), "not fitted"),
        (lambda: AdaptiveSets().fit([[1.0, 0.0]], [0])([[1.0, 0.0, 0.0]]), "must have 2 classes"),
        (lambda: AdaptiveSets().fit([[1.0, 0.0]], [0, 1]), "same length"),
        (lambda: AdaptiveSets().fit([[1.0, float("nan")]], [0]), "finite"),
        (lambda: evaluate_sets([0], sets=[[1, 0]]), "sets must be bools"),
        (lambda: evaluate_sets([2], sets=[[True, False]]), r"labels must be in \[0, 1\]"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        call()


def test_regularised_sets_by_hand_and_in_their_limit():
    from vicinal.calibrators.conformal import AdaptiveSets, RegularisedSets

    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(6), 40)
    sets = RegularisedSets(coverage=0.8, penalty=0.1, free=2)
    for row, scores in zip(probs, sets.scores(probs), strict=True):
        for k in range(6):
            above = [p for p in row if p > row[k]]
            assert scores[k] == pytest.approx(sum(above) + 0.1 * max(0, len(above) + 1 - 2))
    np.testing.assert_allclose(RegularisedSets(penalty=0).scores(probs), AdaptiveSets().scores(probs))


def test_regularised_sets_cover_and_are_smaller_where_sets_are_large():
    from vicinal.calibrators.conformal import AdaptiveSets, RegularisedSets

    rng = np.random.default_rng(1)
    logits = rng.normal(size=(6_000, 20)) * 1.5
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    sizes = {}
    for kind in (AdaptiveSets(), RegularisedSets(penalty=0.2, free=3)):
        inside = kind.fit(logits[:3_000], labels[:3_000])(logits[3_000:])
        covered = inside[np.arange(3_000), labels[3_000:]].mean()
        assert 0.88 < covered < 0.95
        sizes[type(kind).__name__] = inside.sum(axis=1).max()
    assert sizes["RegularisedSets"] < sizes["AdaptiveSets"]


def test_randomised_scores_by_loops():
    generator = np.random.default_rng(0)
    probs = generator.dirichlet(np.ones(4), size=30)
    uniform = generator.random(30)
    got = {0.0: AdaptiveSets(randomised=True), 0.3: RegularisedSets(randomised=True, penalty=0.3, free=2)}
    for penalty, sets in got.items():
        scores = sets.scores(probs, uniform)
        for i in range(30):
            order = sorted(range(4), key=lambda k: -probs[i, k])
            for rank, k in enumerate(order, start=1):
                before = sum(probs[i, j] for j in order[: rank - 1])
                want = before + uniform[i] * probs[i, k] + penalty * max(0, rank - 2)
                assert scores[i, k] == pytest.approx(want)


@pytest.mark.parametrize("kind", [AdaptiveSets, RegularisedSets])
def test_randomised_sets_cover_exactly_where_plain_ones_cover_too_much(kind):
    generator = np.random.default_rng(0)
    logits = 3 * generator.normal(size=(40_000, 5))
    labels = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    half = slice(None, 20_000), slice(20_000, None)
    covered = {}
    for randomised in (False, True):
        sets = kind(coverage=0.7, randomised=randomised).fit(logits[half[0]], labels[half[0]], generator=seeded(1))
        inside = sets(logits[half[1]], generator=seeded(2))
        assert np.array_equal(inside, sets(logits[half[1]], generator=seeded(2)))
        found = evaluate_sets(labels[half[1]], sets=inside, level=0.999)
        covered[randomised] = found.coverage
        assert (found.empty.value > 0) is randomised
    assert covered[True].low < 0.7 < covered[True].high
    assert covered[False].low > 0.7  # its first class alone is right more often


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_coverage_by_size_by_loops():
    generator = np.random.default_rng(3)
    inside, labels = generator.random((200, 4)) < 0.4, generator.integers(4, size=200)
    found = evaluate_sets(labels, sets=inside)
    for size in range(5):
        hits = [bool(inside[i, labels[i]]) for i in range(200) if inside[i].sum() == size]
        assert found.size_n.get(size, 0) == len(hits)
        if hits:
            assert found.size_coverage[size].value == pytest.approx(np.mean(hits))
            assert found.size_coverage[size].low <= np.mean(hits) <= found.size_coverage[size].high
    assert sum(found.size_n.values()) == 200
    assert found.to_dict()["size_coverage"]["1"]["n"] == found.size_n[1]


def test_a_rare_class_is_covered_within_class_only() -> None:
    """One threshold for all classes covers 90 % overall, and a rare class that is hard far less."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(8000, generator=generator) < 0.04).long()
    margin = 1.2 * (2 * labels - 1) - 1.5 + torch.randn(8000, generator=generator)
    logits = torch.stack([-margin, margin], dim=1)
    held_out, new = slice(4000), slice(4000, None)
    covered = {}
    for by_class in (False, True):
        sets = LeastAmbiguousSets(coverage=0.9, by_class=by_class).fit(logits[held_out], labels[held_out])
        covered[by_class] = evaluate_sets(labels[new], sets=sets(logits[new]))
    assert abs(covered[False].coverage.value - 0.9) < 0.02
    assert covered[False].class_coverage[1].value < 0.6
    assert covered[False].worst_class == 1
    assert covered[True].class_coverage[1].high > 0.9
    assert abs(covered[True].coverage.value - 0.9) < 0.02
