from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from vicinal.objectives.guided.aum import AUM
from vicinal.probes import corrupt_labels, find_mislabelled, suspects, threshold_samples


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@given(st.integers(1, 6), st.integers(0, 60), st.integers(0, 99))
def test_the_two_sets_are_disjoint_and_as_large_as_a_class(k, more, seed):
    n = k + 1 + more
    first, second = threshold_samples(torch.arange(n) % k, k, generator=seeded(seed))
    assert int(first.sum()) == int(second.sum()) == n // (k + 1)
    assert not bool((first & second).any())


def test_every_sample_is_as_likely_a_threshold_sample():
    generator = seeded()
    draws = torch.stack([threshold_samples([0, 1] * 6, 2, generator=generator)[0] for _ in range(3000)])
    share = draws.double().mean(0)
    assert float((share - 1 / 3).abs().max()) < 5 * math.sqrt(2 / 9 / 3000)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30), st.floats(0, 100), st.integers(0, 99))
def test_suspects_are_those_of_a_loop(values, percentile, seed):
    aum = np.array(values)
    chosen = np.random.default_rng(seed).random(len(aum)) < 0.5
    chosen[0] = True
    found, threshold = suspects(aum, chosen, percentile=percentile)
    ordered = sorted(aum[chosen])
    place = percentile / 100 * (len(ordered) - 1)
    low = ordered[math.floor(place)]
    expected = low + (place - math.floor(place)) * (ordered[math.ceil(place)] - low)
    assert threshold == pytest.approx(expected, abs=1e-9)
    assert found.tolist() == [not c and a <= threshold for a, c in zip(aum, chosen, strict=True)]


def test_each_sample_is_judged_by_a_run_whose_threshold_sample_it_is_not():
    labels = torch.arange(40) % 3
    calls = []

    def train(given_labels, n_outputs, run):
        fake = given_labels == 3
        assert n_outputs == 4
        assert torch.equal(given_labels[~fake], labels[~fake])
        calls.append((run, fake))
        # Each run has a scale of its own: what is above its threshold is what counts.
        margins = torch.linspace(-1, 1, 40) * (run + 1)
        margins[fake] = -0.5 * (run + 1)
        return margins

    audit = find_mislabelled(train, labels, 3, generator=seeded())
    assert [run for run, _ in calls] == [0, 1]
    first, second = (fake for _, fake in calls)
    assert int(first.sum()) == int(second.sum()) == 10
    assert not bool((first & second).any())
    assert audit.thresholds == (-0.5, -1.0)
    assert torch.equal(audit.run, first.long())
    base = torch.linspace(-1, 1, 40)
    assert torch.equal(audit.suspicious, base <= -0.5)
    torch.testing.assert_close(audit.aum, (base * (audit.run + 1)).double())
    above = audit.above_threshold
    assert torch.equal(audit.suspicious, above <= 0)
    assert torch.equal(above[audit.ranking], above.sort().values)
    assert f"{int(audit.suspicious.sum())} of 40 samples" in str(audit)


def test_planted_mislabelled_samples_are_found():
    """A real network, a real tracker: clusters of which a tenth has a wrong label."""
    n, k = 600, 3
    true = torch.arange(n) % k
    x = 4 * torch.eye(k)[true] + torch.randn(n, k, generator=seeded())
    labels, _ = corrupt_labels(true, 0.1, k, include_true=False, generator=seeded(1))

    def train(given_labels, n_outputs, run):
        torch.manual_seed(run)
        model = nn.Sequential(nn.Linear(k, 64), nn.ReLU(), nn.Linear(64, n_outputs))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        aum = AUM(n)
        for epoch in range(15):
            for index in torch.randperm(n).split(64):
                logits = model(x[index])
                aum.update(logits, given_labels[index], index, epoch=epoch)
                optimizer.zero_grad()
                nn.functional.cross_entropy(logits, given_labels[index]).backward()
                optimizer.step()
        return aum.values()

    audit = find_mislabelled(train, labels, k, generator=seeded(2))
    wrong = labels != true
    assert float(audit.suspicious[wrong].double().mean()) > 0.9  # recall
    assert float(wrong[audit.suspicious].double().mean()) > 0.7  # precision
    worst = audit.ranking[: int(wrong.sum())]
    assert float(wrong[worst].double().mean()) > 0.85


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: threshold_samples([0, 1], 2), "2 classes need at least 3 samples"),
        (lambda: threshold_samples([0, 5, 1], 2), "labels must be in"),
        (lambda: suspects([1.0, math.nan], [True, False]), "aum must be finite"),
        (lambda: suspects([1.0, 2.0], [False, False]), "names no sample"),
        (lambda: suspects([1.0, 2.0], [0, 1]), "is_threshold must be bool"),
        (lambda: suspects([1.0, 2.0], [True, False], percentile=101), "percentile"),
        (lambda: suspects([[1.0]], [[True]]), "aum must have shape"),
        (lambda: find_mislabelled(lambda *_: [1.0], [0, 1] * 5, 2), "the AUM of all 10 samples, got"),
        (lambda: find_mislabelled(lambda *_: [1.0], [0, 1] * 5, 2, percentile=-1), "percentile"),
    ],
)
def test_bad_arguments_are_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()
