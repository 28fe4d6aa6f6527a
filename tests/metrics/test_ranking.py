"""AUROC and average precision: slow versions of value and influence, blocks, and how often intervals hold the truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import norm

from vicinal.metrics import evaluate_binary, ood_report
from vicinal.metrics.intervals import Influences, influence_reach
from vicinal.metrics.ranking import Counts, _places, average_precision, ranking, ranking_of_counts

# Few distinct scores, so that ties are the rule.
scores = st.lists(st.integers(-4, 4).map(lambda s: s / 3), min_size=2, max_size=20)


def slow_auroc(s, y, w):
    """AUROC of samples with weights, by loops over pairs."""
    pos, neg = [i for i, each in enumerate(y) if each], [i for i, each in enumerate(y) if not each]
    won = sum(w[i] * w[j] * ((s[i] > s[j]) + 0.5 * (s[i] == s[j])) for i in pos for j in neg)
    return won / sum(w[i] for i in pos) / sum(w[j] for j in neg)


def slow_precision(s, y, w):
    """Average precision of samples with weights."""
    total = 0.0
    for i in range(len(s)):
        if y[i]:
            above = [j for j in range(len(s)) if s[j] >= s[i]]
            total += w[i] * sum(w[j] for j in above if y[j]) / sum(w[j] for j in above)
    return total / sum(w[i] for i in range(len(s)) if y[i])


@given(scores, scores)
def test_the_spread_is_that_of_each_samples_pull(positive, negative):
    """The influence of a sample is the derivative of the metric by its weight, here by differences."""
    s, y, one = positive + negative, [1] * len(positive) + [0] * len(negative), np.ones(len(positive) + len(negative))
    counts = Counts.of(positive, negative)
    ((block, place),) = _places([counts], len(positive), len(negative))
    at = np.searchsorted(block.scores, s)
    p, n = len(positive), len(negative)
    a, found = slow_auroc(s, y, one), slow_precision(s, y, one)
    quick = {
        slow_auroc: np.where(y, (place.twice_below / 2 / n - a)[at] / p, (place.twice_above / 2 / p - a)[at] / n),
        slow_precision: np.where(
            y, (place.true / (place.true + place.false) - found + place.gain)[at] / p, -place.loss[at] / p
        ),
    }
    for slow, expected in quick.items():
        for i in range(len(s)):
            more, less = one.copy(), one.copy()
            more[i], less[i] = 1 + 1e-5, 1 - 1e-5
            assert (slow(s, y, more) - slow(s, y, less)) / 2e-5 == pytest.approx(expected[i], abs=1e-7)


@given(scores, scores, st.integers(1, 5))
def test_blocks_of_any_size_give_the_same_intervals(positive, negative, size):
    counts, sizes = Counts.of(positive, negative), (len(positive), len(negative))
    blocks = [
        Counts(counts.scores[k : k + size], counts.positive[k : k + size], counts.negative[k : k + size])
        for k in range(0, len(counts.scores), size)
    ]
    for once, split in zip(ranking_of_counts([counts], *sizes), ranking_of_counts(blocks, *sizes), strict=True):
        assert vars(split) == pytest.approx(vars(once), abs=1e-9)


def coverage(draw_positive, draw_negative, area, precision, n, share, trials=250):
    """Return how often the two intervals hold the truth, where the number of positives is random."""
    random, held = np.random.default_rng(n), np.zeros(2)
    for _ in range(trials):
        m = int(np.clip(random.binomial(n, share), 1, n - 1))
        found = ranking(draw_positive(random, m), draw_negative(random, n - m))
        held += [each.low <= truth <= each.high for each, truth in zip(found, (area, precision), strict=True)]
    return held / trials


def binormal_precision(d, share):
    s = np.linspace(-9, 9 + d, 40_001)
    true, false = share * norm.sf(s - d), (1 - share) * norm.sf(s)
    return float((norm.pdf(s - d) * true / np.maximum(true + false, 1e-300)).sum() * (s[1] - s[0]))


@pytest.mark.parametrize(("d", "n", "share"), [(0, 200, 0.1), (1.5, 200, 0.05), (3, 400, 0.5), (1.5, 100, 0.95)])
def test_intervals_hold_the_truth_with_few_positives(d, n, share):
    area, precision = float(ndtr(d / math.sqrt(2))), binormal_precision(d, share)
    held = coverage(
        lambda random, m: random.normal(d, 1, m), lambda random, m: random.normal(0, 1, m), area, precision, n, share
    )
    assert (held >= 0.92).all(), held  # 250 trials: 0.95 less two standard errors


def test_intervals_hold_the_truth_where_a_rare_mistake_was_not_seen():
    """Three in a hundred positives are below all negatives: 38 % of samples of 32 positives hold none."""
    held = coverage(
        lambda random, m: np.where(random.random(m) < 0.03, -1.0, 2.0) + random.random(m) / 2,
        lambda random, m: random.random(m),
        0.97,
        1 - 0.03 * (1 - 0.05 * 0.985 / (0.05 * 0.985 + 0.95)),
        650,
        0.05,
    )
    assert (held >= 0.92).all(), held


def test_one_sample_of_a_class_says_nothing_and_equal_scores_little():
    for positive, negative in (([1.0], [0.0]), ([1.0], [0.0, 1.0, 2.0])):
        for found in ranking(positive, negative):
            assert (found.low, found.high) == (0, 1)
    for found in ranking([1.0] * 5, [1.0] * 5):
        assert found.high - found.low > 0.8


def test_an_interval_narrows_to_the_usual_one():
    """With many samples nothing but the variance counts: 1.96 standard deviations."""
    random = np.random.default_rng(0)
    area, _ = ranking(random.normal(1, 1, 40_000), random.normal(0, 1, 60_000))
    moments = Influences(2, 0.5e-6, 0.0), Influences(2, 0.5e-6, 0.0)
    assert influence_reach(moments, (0, 0), 1, 0.95) > 4.3 * 1e-3  # few: Student's quantile
    # Hanley and McNeil's variance of normal scores, by their placements.
    p, q = random.normal(1, 1, 4_000), random.normal(0, 1, 6_000)
    deviation = math.sqrt(np.var(ndtr(p)) / 40_000 + np.var(ndtr(1 - q)) / 60_000)
    assert (area.high - area.low) / 2 == pytest.approx(1.96 * deviation, rel=0.04)


def test_perfect_separation_of_very_many_is_not_taken_for_spread():
    """The rounding of a trillion samples' mean is no deviation."""
    held = Counts(np.array([0.0, 0.5, 1.0]), np.array([0, 1, 2]), np.array([10**12 + 7, 0, 0]))
    with np.errstate(all="raise"):
        _, found = ranking_of_counts([held], 3, 10**12 + 7)
    assert found.value == 1 == found.high
    assert 0 <= found.low < 1


def test_every_report_has_the_same_interval():
    random = np.random.default_rng(1)
    y, p = random.random(80) < 0.3, random.random(80)
    area, precision = ranking(p[y], p[~y])
    binary, report = evaluate_binary(y.astype(int), p), ood_report(p[y], p[~y], n_resamples=1)
    assert binary.auroc == area == report.auroc
    assert binary.average_precision == precision == report.aupr_in
    assert precision.value == average_precision(p[y], p[~y])
