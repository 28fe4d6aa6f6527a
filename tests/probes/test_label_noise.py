from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vicinal.probes import best_and_last, corrupt_labels, noise_errors

N, K = 20_000, 5


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def labels(n=N, k=K):
    return torch.arange(n) % k


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8])
def test_each_label_is_redrawn_with_this_probability_uniformly_over_all_classes(fraction):
    old = labels()
    new, mask = corrupt_labels(old, fraction, K, generator=seeded())
    assert stats.binomtest(int(mask.sum()), N, fraction).pvalue > 1e-4
    assert torch.equal(new[~mask], old[~mask])
    for true in range(K):  # whatever the true label was, the true one among them
        counts = torch.bincount(new[mask & (old == true)], minlength=K).numpy()
        assert stats.chisquare(counts).pvalue > 1e-4
    wrong = int((new != old).sum())
    assert stats.binomtest(wrong, N, fraction * (K - 1) / K).pvalue > 1e-4


def test_without_the_true_label_all_others_are_alike_and_every_redrawn_one_is_wrong():
    old = labels()
    new, mask = corrupt_labels(old, 0.5, K, include_true=False, generator=seeded())
    assert torch.equal(mask, new != old)
    shift = (new - old)[mask] % K
    assert stats.chisquare(torch.bincount(shift, minlength=K)[1:].numpy()).pvalue > 1e-4


@given(st.integers(1, 30), st.integers(1, 6), st.floats(0, 1), st.booleans(), st.integers(0, 99))
def test_labels_stay_classes_and_what_a_smaller_fraction_redraws_a_larger_one_does_too(n, k, fraction, true, seed):
    if not true and k == 1:
        return
    old = labels(n, k)
    before = old.clone()
    new, mask = corrupt_labels(old, fraction, k, include_true=true, generator=seeded(seed))
    again, mask_again = corrupt_labels(old, fraction, k, include_true=true, generator=seeded(seed))
    assert torch.equal(old, before)
    assert torch.equal(new, again)
    assert torch.equal(mask, mask_again)
    assert new.dtype == torch.int64
    assert 0 <= int(new.min()) <= int(new.max()) < k
    all_new, all_mask = corrupt_labels(old, 1.0, k, include_true=true, generator=seeded(seed))
    assert bool(all_mask.all())
    assert torch.equal(new[mask], all_new[mask])
    assert not bool(corrupt_labels(old, 0.0, k, include_true=true)[1].any())


def test_the_global_generator_serves_without_one_and_lists_and_arrays_are_labels():
    torch.manual_seed(0)
    a = corrupt_labels([0, 1, 2] * 10, 0.5, 3)
    torch.manual_seed(0)
    b = corrupt_labels(np.array([0, 1, 2] * 10, dtype=np.uint8), 0.5, 3)
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (([0, 1], 1.5, 2), r"fraction must be a number in \[0, 1\], got 1.5"),
        (([0, 1], math.nan, 2), "fraction"),
        (([0, 2], 0.5, 2), "labels must be in"),
        (([], 0.5, 2), "labels is empty"),
        (([0.0, 1.0], 0.5, 2), "integer class numbers"),
        (([0, 0], 0.5, 0), "n_classes"),
    ],
)
def test_bad_arguments_are_refused(arguments, match):
    with pytest.raises((ValueError, TypeError), match=match):
        corrupt_labels(*arguments)


def test_one_class_has_no_other_label():
    with pytest.raises(ValueError, match="at least two classes"):
        corrupt_labels([0, 0], 0.5, 1, include_true=False)


@given(st.integers(1, 40), st.integers(2, 4), st.integers(0, 99))
def test_the_errors_are_those_of_a_loop(n, k, seed):
    random = np.random.default_rng(seed)
    true, guess = random.integers(k, size=n), random.integers(k, size=n)
    trained, mask = corrupt_labels(true, 0.5, k, generator=seeded(seed))
    found = noise_errors(true, trained, mask, predictions=guess)
    sums = {"real": [], "corrupted": [], "recovered": []}
    for i in range(n):
        if mask[i]:
            sums["corrupted"].append(guess[i] != int(trained[i]))
            sums["recovered"].append(guess[i] != true[i])
        else:
            sums["real"].append(guess[i] != true[i])
    for name, wrong in sums.items():
        estimate = getattr(found, name)
        if not wrong:
            assert math.isnan(estimate.value)
            assert (estimate.low, estimate.high) == (0, 1)
            assert found.to_dict()[name]["value"] is None
            continue
        assert estimate.value == pytest.approx(np.mean(wrong))
        ends = stats.binomtest(int(np.sum(wrong)), len(wrong)).proportion_ci(method="exact")
        assert (estimate.low, estimate.high) == pytest.approx((ends.low, ends.high))


def test_a_model_that_ignores_the_noise_errs_on_the_wrong_labels_only():
    trained, mask = corrupt_labels(labels(), 0.5, K, generator=seeded())
    found = noise_errors(labels(), trained, mask, predictions=labels())
    assert found.real.value == found.recovered.value == 0
    assert found.corrupted.low < (K - 1) / K < found.corrupted.high


def test_a_mask_of_other_labels_is_noticed():
    with pytest.raises(ValueError, match="the mask is not that of these labels"):
        noise_errors([0, 1], [1, 1], [False, True], predictions=[0, 1])
    with pytest.raises(ValueError, match="mask must be bool"):
        noise_errors([0, 1], [0, 1], [0, 1], predictions=[0, 1])
    with pytest.raises(ValueError, match=r"the same length, got predictions \[1\], labels \[2\]"):
        noise_errors([0, 1], [0, 1], [False, False], predictions=[0])


def test_best_and_last():
    found = best_and_last(torch.tensor([0.9, 0.4, 0.4, 0.7]).tolist())
    assert (found.best_at, found.last) == (1, pytest.approx(0.7))
    with pytest.raises(ValueError, match="errors is empty"):
        best_and_last([])
    with pytest.raises(ValueError, match="errors"):
        best_and_last([0.5, math.nan])
