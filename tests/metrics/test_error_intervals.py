"""Intervals of the calibration errors: their formulas as loops, the inequality they rest on, and what they cover."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from vicinal.metrics import BinSums, ReliabilityTable, error_estimates, evaluate
from vicinal.metrics.error_intervals import chance_gaps, error_ends, squared_gaps

Z = stats.norm.ppf(0.975)


def samples(n=300, seed=0, shift=0.05):
    random = np.random.default_rng(seed)
    confidence = 1 - random.beta(1, 5, n) * 0.8
    return confidence, random.random(n) < np.clip(confidence - shift, 0, 1)


def slow_bins(confidence, correct, n_bins):
    """Each filled bin as (count, its D's, its right ones, mean confidence)."""
    bins = []
    for b in range(n_bins):
        inside = [i for i, c in enumerate(confidence) if b / n_bins < c <= (b + 1) / n_bins]
        if inside:
            d = np.array([confidence[i] - correct[i] for i in inside])
            right = sum(bool(correct[i]) for i in inside)
            bins.append((len(inside), d, right, np.mean([confidence[i] for i in inside])))
    return bins


def slow_variance(n, d, right):
    """The variance of n numbers beside four of variance 1/4 around an accuracy of 1/2 (law of total variance)."""
    within = (n * d.var() + 4 * 0.25) / (n + 4)
    centre = (right + 2) / (n + 4)
    return within + (n * (right / n - centre) ** 2 + 4 * (0.5 - centre) ** 2) / (n + 4)


def slow_upper(value, second, n):
    """The error at which the estimate is just z standard deviations too low."""

    def off(e):
        return (e - value) - Z * math.sqrt(max(second + (e - value) - e**2, 0) / n)

    return 1.0 if off(1) < 0 else min(brentq(off, value, 1) + 1 / (2 * n), 1)


def slow_lower(bins, total, weight, part, share):
    """Σ (part − correction) − z·deviation, the correction by numerical integration of E|G + σε| − |G|."""
    value, lost, second = 0.0, 0.0, 0.0
    for n, d, right, mean in bins:
        gap, variance = d.sum() / total, slow_variance(n, d, right)
        sigma = math.sqrt(n * variance) / total * (1 + 1 / n)
        folded = stats.foldnorm.mean(abs(gap) / sigma, scale=sigma)
        value += weight(mean) * part(gap)
        lost += weight(mean) * share * (1 + math.sqrt(2)) * (folded - abs(gap))
        second += n / total * weight(mean) ** 2 * (variance + d.mean() ** 2)
    return max(value - lost - Z * math.sqrt(max(second - value**2, 0) / total) - 1 / (2 * total), 0)


@pytest.mark.parametrize(("n", "n_bins"), [(300, 15), (60, 100), (5, 3), (2, 1)])
def test_ends_of_ece_and_oe_are_the_formulas_in_the_docstring(n, n_bins):
    confidence, correct = samples(n)
    table = ReliabilityTable.from_confidences(confidence, correct, n_bins=n_bins)
    bins = slow_bins(confidence, correct, n_bins)
    ends = error_ends(table.bins, squared_gaps(table), 0.95)
    low = slow_lower(bins, n, lambda c: 1, abs, 1)
    assert ends["ece"][0] == pytest.approx(low, abs=1e-12)
    assert ends["ece"][1] == pytest.approx(slow_upper(table.ece(), np.mean((confidence - correct) ** 2), n), abs=1e-9)
    low = slow_lower(bins, n, lambda c: c, lambda g: max(g, 0), 0.5)
    assert ends["oe"][0] == pytest.approx(low, abs=1e-12)
    second = sum(mean**2 * (d**2).sum() for _, d, _, mean in bins) / n
    assert ends["oe"][1] == pytest.approx(slow_upper(table.oe(), second, n), abs=1e-9)


def test_ends_of_rms_invert_a_non_central_chi_square_and_bound_a_mean():
    confidence, correct = samples(400, shift=0.15)
    table = ReliabilityTable.from_confidences(confidence, correct, n_bins=10)
    bins = slow_bins(confidence, correct, 10)
    v = np.array([slow_variance(n, d, right) for n, d, right, _ in bins])
    count, gap = np.array([n for n, *_ in bins]), np.array([d.mean() for _, d, *_ in bins])
    weight = v + count * gap**2
    uneven = 400 * (np.average(gap**4, weights=count) - np.average(gap**2, weights=count) ** 2) / weight.sum()
    scale = np.average(v, weights=weight) + uneven / 4
    total = (count * gap**2).sum()
    low, high = error_ends(table.bins, squared_gaps(table), 0.95)["rms"]
    noncentrality = 400 * (low + 1 / 800) ** 2 / scale
    assert stats.ncx2.cdf(total / scale, v.sum() / scale, noncentrality) == pytest.approx(0.975, abs=1e-6)
    assert high == pytest.approx(slow_upper(table.rms(), scale + table.rms() ** 2, 400), abs=1e-9)


def test_ends_of_mce_are_clopper_and_pearsons():
    right, count, sure = np.array([70.0, 3.0]), np.array([100.0, 4.0]), np.array([0.75, 0.95])
    squared = right * (1 - sure) ** 2 + (count - right) * sure**2
    low, high = error_ends(BinSums(count, count * sure, right), squared, 0.95)["mce"]
    all_at_once = [stats.binomtest(int(k), int(n)).proportion_ci(0.975) for k, n in zip(right, count, strict=True)]
    alone = [stats.binomtest(int(k), int(n)).proportion_ci(0.95) for k, n in zip(right, count, strict=True)]
    least = max(max(ci.low - c, c - ci.high, 0) for ci, c in zip(all_at_once, sure, strict=True))
    most = max(max(ci.high - c, c - ci.low) for ci, c in zip(alone, sure, strict=True))
    assert (float(low), float(high)) == (pytest.approx(least, abs=1e-9), pytest.approx(most, abs=1e-9))


@pytest.mark.parametrize("n", [50, 200, 500])
def test_mce_allows_for_confidences_where_all_answers_are_right(n):
    # The accuracy shows no spread at all; the gap is that of the confidences, whose mean is known no better than this.
    random = np.random.default_rng(n)
    confidence = random.beta(20, 1, (4000, n))
    count = np.full((4000, 1), float(n))
    squared = ((confidence - 1) ** 2).sum(axis=1, keepdims=True)
    low, high = error_ends(BinSums(count, confidence.sum(axis=1, keepdims=True), count), squared, 0.95)["mce"]
    truth = 1 / 21
    assert ((low <= truth) & (truth <= high)).mean() >= 0.94


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 15, 40])
def test_the_corrected_gap_is_never_too_large_on_average(n):
    # Exactly, by the binomial distribution, for bins of n samples of one confidence.
    right = np.arange(n + 1.0)
    for c in np.linspace(0.02, 0.98, 25):
        sums = BinSums(np.full((n + 1, 1), float(n)), np.full((n + 1, 1), n * c), right[:, None])
        squared = right[:, None] * (1 - c) ** 2 + (n - right[:, None]) * c**2
        corrected = np.abs(n * c - right) / n - chance_gaps(sums, squared)[:, 0]
        for chance in np.linspace(0, 1, 51):
            assert stats.binom.pmf(right, n, chance) @ corrected <= abs(c - chance) + 1e-4


def test_many_tables_at_once_are_one_by_one():
    tables = [ReliabilityTable.from_confidences(*samples(200, seed)) for seed in range(5)]
    stacked = BinSums(
        *(np.stack([getattr(t.bins, name) for t in tables]) for name in ("count", "confidence", "correct"))
    )
    together = error_ends(stacked, np.stack([squared_gaps(t) for t in tables]), 0.9)
    for row, table in enumerate(tables):
        for name, (low, high) in error_ends(table.bins, squared_gaps(table), 0.9).items():
            assert (low, high) == (pytest.approx(together[name][0][row]), pytest.approx(together[name][1][row]))


def test_estimates_hold_their_values_and_stream():
    confidence, correct = samples(2000)
    whole = ReliabilityTable.from_confidences(confidence, correct)
    parts = sum(ReliabilityTable.from_confidences(confidence[i::3], correct[i::3]) for i in range(3))
    estimates = error_estimates(whole)
    assert list(estimates) == ["ece", "oe", "mce", "rms", "ece_debiased", "rms_debiased"]
    for name, estimate in estimates.items():
        assert estimate.value == getattr(whole, name)()
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
        streamed = error_estimates(parts)[name]
        assert (streamed.low, streamed.high) == (pytest.approx(estimate.low), pytest.approx(estimate.high))
    wide, narrow = error_estimates(whole, 0.99)["ece"], error_estimates(whole, 0.5)["ece"]
    assert wide.low < narrow.low < narrow.high < wide.high


def misses(level, chance, count, trials=4000, seed=1):
    """The share of intervals (below, above) that miss the truth, of bins with one confidence and one accuracy each."""
    random = np.random.default_rng(seed)
    n, share = sum(count), np.array(count) / sum(count)
    counts = random.multinomial(n, share, trials).astype(np.float64)
    level, chance = np.array(level), np.array(chance)
    right = random.binomial(counts.astype(int), chance).astype(np.float64)
    bins = BinSums(counts, counts * level, right)
    ends = error_ends(bins, right * (1 - level) ** 2 + (counts - right) * level**2, 0.95)
    gap = level - chance
    truth = {
        "ece": share @ np.abs(gap),
        "oe": share * level @ np.maximum(gap, 0),
        "rms": math.sqrt(share @ gap**2),
        "mce": np.abs(gap).max(),
    }
    return {k: float(((ends[k][0] > truth[k] + 1e-9) | (ends[k][1] < truth[k] - 1e-9)).mean()) for k in truth}


CASES = {
    "one bin, a gap of 0.05": ([0.8], [0.75], [100]),
    "one bin, a gap of 0.02": ([0.8], [0.78], [1000]),
    "one bin, calibrated": ([0.9], [0.9], [50]),
    "nearly always right": ([0.99], [0.96], [50]),
    "badly miscalibrated": ([0.99, 0.9, 0.7], [0.6, 0.5, 0.5], [200, 50, 50]),
    "ten bins, half of them off": (np.linspace(0.5, 0.95, 10), np.linspace(0.5, 0.85, 10), [20] * 10),
    "a hundred calibrated bins": (np.linspace(0.5, 0.99, 100), np.linspace(0.5, 0.99, 100), [3] * 100),
}


@pytest.mark.parametrize("n", [50, 73, 100, 300])
def test_coverage_of_one_bin_is_exact_for_any_confidence_and_accuracy(n):
    # By the binomial distribution, without simulation.
    right, count = np.arange(n + 1.0)[:, None], np.full((n + 1, 1), float(n))
    for c in (0.5, 0.7, 0.8, 0.9, 0.95, 0.99):
        bins = BinSums(count, count * c, right)
        ends = error_ends(bins, right * (1 - c) ** 2 + (count - right) * c**2, 0.95)
        for chance in np.linspace(0.5, 1, 51):
            gap, weight = c - chance, stats.binom.pmf(right[:, 0], n, chance)
            for name, truth in (("ece", abs(gap)), ("oe", c * max(gap, 0)), ("rms", abs(gap)), ("mce", abs(gap))):
                low, high = ends[name]
                assert weight @ ((low <= truth + 1e-9) & (high >= truth - 1e-9)) >= 0.945, (name, c, chance)


@pytest.mark.parametrize("case", CASES)
def test_95_percent_intervals_hold_the_truth(case):
    # 4,000 trials tell a share of 5 % to within 0.35 %; at most 6 % may miss.
    assert max(misses(*CASES[case]).values()) <= 0.06, misses(*CASES[case])


def test_the_interval_shrinks_to_the_truth():
    confidence, correct = samples(100_000, shift=0.1)
    ece = evaluate(correct.astype(int), probs=np.stack([1 - confidence, confidence], 1)).ece
    assert ece.high - ece.low < 0.012
