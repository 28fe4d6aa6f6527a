from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from vicinal.metrics import ReliabilityTable, RiskCoverage, evaluate, risk_coverage, risk_threshold
from vicinal.metrics.selective import binomial_upper

# Few distinct confidences, so that ties are the rule.
samples = st.lists(st.tuples(st.integers(-3, 6), st.booleans()), min_size=1, max_size=40)


def split(pairs):
    return np.array([c / 7 for c, _ in pairs]), np.array([right for _, right in pairs])


def rules(confidence, correct):
    """Every rule again, slowly: accept what is at least as sure as each confidence that occurs."""
    for level in sorted(set(confidence), reverse=True):
        taken = [right for c, right in zip(confidence, correct, strict=True) if c >= level]
        yield len(taken) / len(confidence), sum(not right for right in taken) / len(taken)


@given(samples)
def test_the_curve_equals_a_loop_over_rules(pairs):
    confidence, correct = split(pairs)
    curve = risk_coverage(confidence, correct)
    coverage, risk = zip(*rules(confidence, correct), strict=True)
    np.testing.assert_allclose(curve.coverage, coverage)
    np.testing.assert_allclose(curve.risk, risk)
    for threshold, share in zip(curve.thresholds, coverage, strict=True):
        assert (confidence > threshold).mean() == pytest.approx(share)


@given(samples)
def test_aurc_is_the_mean_risk_among_those_at_least_as_sure(pairs):
    confidence, correct = split(pairs)
    slow = [1 - np.mean(correct[confidence >= own]) for own in confidence]
    curve = risk_coverage(confidence, correct)
    assert curve.aurc == pytest.approx(np.mean(slow), abs=1e-12)
    # The best order puts every right prediction first.
    ideal = np.sort(~correct)
    best = np.mean([ideal[: i + 1].mean() for i in range(len(ideal))])
    assert curve.excess_aurc == pytest.approx(np.mean(slow) - best, abs=1e-12)
    estimate = curve.aurc_estimate()
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


def test_without_ties_aurc_is_geifmans_mean_over_prefixes():
    random = np.random.default_rng(0)
    confidence, correct = random.permutation(200) / 200, random.random(200) < 0.7
    ordered = ~correct[np.argsort(-confidence)]
    expected = np.mean(np.cumsum(ordered) / np.arange(1, 201))
    assert risk_coverage(confidence, correct).aurc == pytest.approx(expected, abs=1e-12)


def test_a_perfect_order_has_no_excess_and_the_worst_the_most():
    correct = np.array([True] * 70 + [False] * 30)
    best, worst = risk_coverage(-np.arange(100.0), correct), risk_coverage(np.arange(100.0), correct)
    assert best.excess_aurc == pytest.approx(0, abs=1e-12)
    assert worst.excess_aurc > risk_coverage(np.zeros(100), correct).excess_aurc > 0.1


def test_the_interval_of_aurc_is_that_of_resampling():
    random = np.random.default_rng(0)
    confidence = random.random(800).round(2)
    correct = random.random(800) < 0.5 + confidence / 2
    drawn = []
    for _ in range(600):
        pick = random.integers(800, size=800)
        drawn.append(risk_coverage(confidence[pick], correct[pick]).aurc)
    estimate = risk_coverage(confidence, correct).aurc_estimate(0.9)
    assert (estimate.high - estimate.low) / 2 == pytest.approx(1.6449 * np.std(drawn), rel=0.1)


def test_all_right_or_all_wrong_claims_no_certainty():
    confidence = np.arange(50) / 50
    right, wrong = (risk_coverage(confidence, np.full(50, flag)).aurc_estimate() for flag in (True, False))
    clopper_pearson = binomtest(0, 50).proportion_ci(0.95, method="exact")
    assert (right.value, right.low) == (0, 0)
    assert right.high == pytest.approx(clopper_pearson.high)
    assert (wrong.value, wrong.high) == (1, 1)
    assert wrong.low == pytest.approx(1 - clopper_pearson.high)


def test_coverage_at_risk_and_risk_at_coverage_read_the_curve():
    curve = risk_coverage([0.9, 0.8, 0.7, 0.6, 0.5], [True, False, True, True, False])
    # Risks 0, 1/2, 1/3, 1/4, 2/5: not monotone, so the largest coverage is not the first to pass.
    assert [curve.coverage_at_risk(r) for r in (0, 0.2, 0.25, 0.39, 0.4, 1)] == [0.2, 0.2, 0.8, 0.8, 1.0, 1.0]
    assert risk_coverage([0.5], [False]).coverage_at_risk(0.5) == 0
    assert [curve.risk_at_coverage(c) for c in (0.1, 0.2, 0.21, 1)] == [0, 0, 0.5, 0.4]
    # 0.07 · 100 is a little more than 7, and must not ask for 8 samples.
    assert risk_coverage(-np.arange(100.0), np.arange(100) != 7).risk_at_coverage(0.07) == 0


@given(samples)
def test_counts_give_the_same_curve_as_samples(pairs):
    confidence, correct = split(pairs)
    levels = np.unique(confidence)
    counts = [int((confidence == level).sum()) for level in levels]
    right = [int(correct[confidence == level].sum()) for level in levels]
    # A level that nobody has changes nothing.
    made = RiskCoverage.from_counts([-9, *levels], [0, *counts], [0, *right])
    curve = risk_coverage(confidence, correct)
    for name in ("coverage", "risk", "thresholds"):
        np.testing.assert_array_equal(getattr(made, name), getattr(curve, name))
    assert made.risk_threshold(0.4) == curve.risk_threshold(0.4)


def test_a_streamed_table_of_many_bins_comes_close_and_its_points_are_exact():
    random = np.random.default_rng(0)
    confidence = random.beta(5, 1, 20_000)
    correct = random.random(20_000) < confidence
    parts = [ReliabilityTable(5_000).update_confidences(confidence[i::7], correct[i::7]) for i in range(7)]
    coarse, curve = RiskCoverage.from_table(sum(parts)), risk_coverage(confidence, correct)
    assert len(coarse.confidences) < 5_000
    assert coarse.aurc == pytest.approx(curve.aurc, abs=2e-4)
    for threshold, coverage, risk in list(zip(coarse.thresholds, coarse.coverage, coarse.risk, strict=True))[::500]:
        taken = confidence > threshold
        assert coverage == pytest.approx(taken.mean(), abs=1e-12)
        assert risk == pytest.approx(1 - correct[taken].mean(), abs=1e-12)


def test_evaluate_has_what_the_curve_needs():
    logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(50) % 3
    held = evaluate(labels, logits=logits).samples
    curve = risk_coverage(held.confidence, held.predictions == held.labels)
    assert curve.risk[-1] == pytest.approx(1 - evaluate(labels, logits=logits).accuracy.value)


@given(st.integers(1, 60), st.data())
def test_the_bound_is_clopper_and_pearsons(n, data):
    errors = data.draw(st.integers(0, n))
    bound = float(binomial_upper(errors, n, 0.9))
    assert bound == pytest.approx(binomtest(errors, n, alternative="less").proportion_ci(0.9, method="exact").high)
    if errors < n:
        assert binom.cdf(errors, n, bound) == pytest.approx(0.1)


def slow_threshold(confidence, correct, max_risk, level, m):
    """The definition again: rule by rule, what lies above a rank, at a level that passes on or is lost."""
    n, best, at, waiting = len(confidence), (math.inf, 0), Fraction(0), Fraction(0)
    ordered = sorted(confidence, reverse=True)
    starts = [math.ceil(m * share) for share in (Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(1))]
    parts = [Fraction(part, 10) for part in (3, 3, 3, 1)]
    for j in range(1, m + 1):
        threshold = -math.inf if j == m else ordered[j * n // m]
        taken = [right for c, right in zip(confidence, correct, strict=True) if c > threshold]
        wrong = sum(not right for right in taken)
        for i, (start, part) in enumerate(zip(starts, parts, strict=True)):
            if start == j:
                waiting += part
                # Where one error would be too many, the next start has it.
                if i == 3 or (len(taken) > 1 and binom.cdf(1, len(taken), max_risk) <= (1 - level) * float(waiting)):
                    at, waiting = at + waiting, Fraction(0)
        if taken and binom.cdf(wrong, len(taken), max_risk) <= (1 - level) * float(at):
            best = (threshold, len(taken))
        else:
            at = Fraction(0)
    return best


@given(st.integers(1, 300), st.integers(1, 25), st.integers(0, 10_000), st.floats(0.02, 0.6))
def test_the_threshold_equals_the_slow_one(n, m, seed, max_risk):
    random = np.random.default_rng(seed)
    confidence = random.random(n).round(random.integers(1, 4))
    correct = random.random(n) < 0.6 + 0.4 * confidence
    found = risk_threshold(confidence, correct, max_risk, level=0.8, n_rules=m)
    threshold, accepted = slow_threshold(confidence, correct, max_risk, 0.8, m)
    assert (found.threshold, found.n_accepted) == (threshold, accepted)
    taken = found.accepts(confidence)
    assert taken.sum() == found.n_accepted
    assert found.coverage == pytest.approx(taken.mean())
    if accepted:
        assert found.risk == pytest.approx(1 - correct[taken].mean())
        assert found.risk <= found.upper_bound <= max_risk


def naive(confidence, correct, max_risk, delta):
    """What people do: try all thresholds, each with a bound of its own."""
    curve = risk_coverage(confidence, correct)
    bound = binomial_upper(np.cumsum(curve.errors), curve.n_accepted, 1 - delta)
    passing = np.flatnonzero(bound <= max_risk)
    return curve.thresholds[passing[-1]] if len(passing) else math.inf


# The true error rate as a function of confidence c, uniform on a grid of `levels` in (0, 1]: many, or few with ties.
WORLDS = {
    "flat, just above": (lambda c: 0.11 + 0 * c, 1_000_000),
    "rising, as it should": (lambda c: 0.4 * (1 - c) ** 2 + 0.02, 1_000_000),
    "with ties": (lambda c: 0.5 * (1 - c), 8),
    "not monotone": (lambda c: 0.1 + 0.05 * np.cos(12 * c), 1_000_000),
    "wrong way round": (lambda c: 0.05 + 0.1 * c, 50),
}


#: The first can fail, the second shows that the rule answers.
FIRST = ("flat, just above", "rising, as it should")


@pytest.mark.parametrize(
    "world", [*FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in WORLDS if name not in FIRST)]
)
def test_the_realised_risk_exceeds_the_asked_one_in_at_most_the_stated_share(world):
    rate, levels = WORLDS[world]
    grid = (np.arange(levels) + 1) / levels
    true_risk = np.append((np.cumsum(rate(grid)[::-1]) / np.arange(1, levels + 1))[::-1], 0)  # of c > k / levels

    def exceeds(threshold):
        if threshold == math.inf:
            return False
        below = 0 if threshold == -math.inf else round(threshold * levels)
        return true_risk[below] > max_risk

    max_risk, delta, trials, n = 0.1, 0.1, 2_000, 400
    random = np.random.default_rng(1)
    place = random.integers(levels, size=(trials, n))
    confidence, correct = grid[place], random.random((trials, n)) >= rate(grid[place])
    found = [
        risk_threshold(c, r, max_risk, level=1 - delta).threshold for c, r in zip(confidence, correct, strict=True)
    ]
    assert sum(map(exceeds, found)) <= delta * trials
    if world == "flat, just above":  # the test can fail: bounds that ignore the choice break the promise here
        assert sum(exceeds(naive(c, r, max_risk, delta)) for c, r in zip(confidence, correct, strict=True)) > 300
    if world == "rising, as it should":  # and the promise is not kept by abstaining
        assert np.mean([t < math.inf for t in found]) > 0.6


def test_the_promise_is_used_to_the_full():
    # Errors of a fifth of a percent among the surest to 20 % at the end: the best rule accepts 81 % at a risk of 5 %.
    random = np.random.default_rng(2)
    confidence = random.random((1_000, 1_000))
    correct = random.random((1_000, 1_000)) >= 0.2 * (1 - confidence) ** 2 + 0.3 * (1 - confidence) ** 8 + 0.002
    grid = np.linspace(0, 1, 10_001)
    rate = 0.2 * (1 - grid) ** 2 + 0.3 * (1 - grid) ** 8 + 0.002
    risk = np.cumsum(rate[::-1])[::-1] / np.arange(len(grid), 0, -1)
    rules = [risk_threshold(c, r, 0.05) for c, r in zip(confidence, correct, strict=True)]
    broken = np.mean([rule.n_accepted > 0 and risk[int(max(rule.threshold, 0) * 10_000)] > 0.05 for rule in rules])
    assert 0.02 <= broken <= 0.05
    assert np.mean([rule.n_accepted > 0 for rule in rules]) > 0.99
    assert np.mean([rule.coverage for rule in rules]) > 0.55


def test_abstaining_and_accepting_all_are_said_plainly():
    confidence = np.arange(100) / 100
    none, every = (risk_threshold(confidence, np.full(100, flag), 0.1) for flag in (False, True))
    assert none.threshold == math.inf
    assert none.coverage == 0
    assert math.isnan(none.risk)
    assert not none.accepts([1e300]).any()
    assert "no threshold reaches a risk of at most 0.1" in str(none)
    assert "abstain on everything" in str(none)
    assert every.threshold == -math.inf
    assert every.accepts([-1e300]).all()
    assert str(every).startswith("accept everything")
    for result in (none, every):
        assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["threshold"] is None


def test_scores_of_any_range_and_type_go_in():
    energy = torch.tensor([-30.0, 2.0, 2.0, 500.0], dtype=torch.bfloat16)
    curve = risk_coverage(energy, torch.tensor([0, 1, 1, 1]))
    assert curve.thresholds.tolist() == [2.0, -30.0, -math.inf]
    assert risk_coverage(energy.tolist(), [False, True, True, True]).aurc == curve.aurc


HOSTILE = {
    "nan": (lambda: risk_coverage([math.nan], [True]), "confidence must be finite"),
    "inf": (lambda: risk_coverage([math.inf], [True]), "confidence must be finite"),
    "empty": (lambda: risk_coverage([], []), r"confidence must have shape \[N\]"),
    "2-d": (lambda: risk_coverage([[0.5]], [True]), r"confidence must have shape \[N\]"),
    "lengths": (lambda: risk_coverage([0.5, 0.6], [True]), "the same length, got 2 and 1"),
    "correct": (lambda: risk_coverage([0.5], [2]), "correct must be True or False"),
    "confidences": (lambda: RiskCoverage.from_counts([0.5, 0.5], [1, 1], [1, 1]), "confidences must increase strictly"),
    "counts": (lambda: RiskCoverage.from_counts([0.5], [1.5], [1]), "counts must be whole numbers"),
    "nan counts": (lambda: RiskCoverage.from_counts([0.5], [math.nan], [1]), "counts must be whole numbers"),
    "negative": (lambda: RiskCoverage.from_counts([0.5], [1], [-1]), "n_correct must be whole numbers"),
    "too many": (lambda: RiskCoverage.from_counts([0.5], [1], [2]), "n_correct must be at most counts, got 2 of 1"),
    "shape": (lambda: RiskCoverage.from_counts([0.5], [1, 2], [1]), r"counts must have shape \[1\]"),
    "no samples": (lambda: RiskCoverage.from_counts([0.5], [0], [0]), "counts are all 0"),
    "table": (lambda: RiskCoverage.from_table([1]), "table must be a ReliabilityTable, got list"),
    "empty table": (lambda: RiskCoverage.from_table(ReliabilityTable()), "counts are all 0"),
    "max_risk": (lambda: risk_threshold([0.5], [True], 2), "max_risk must be"),
    "level": (lambda: risk_threshold([0.5], [True], 0.1, level=1), "level must be"),
    "rules": (lambda: risk_threshold([0.5], [True], 0.1, n_rules=0), "n_rules must be"),
    "risk": (lambda: risk_coverage([0.5], [True]).coverage_at_risk(-1), "risk must be"),
    "coverage": (lambda: risk_coverage([0.5], [True]).risk_at_coverage(0), "coverage must be"),
    "level of AURC": (lambda: risk_coverage([0.5], [True]).aurc_estimate(95), "level must be"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_refused_by_name(name):
    call, match = HOSTILE[name]
    with pytest.raises((ValueError, TypeError), match=match):
        call()
