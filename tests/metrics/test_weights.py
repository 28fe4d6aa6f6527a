"""Weights of samples in metrics and intervals: whole weights are repeated rows, and intervals cover."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal import evaluate
from vicinal.metrics import METRICS, Tally, compare
from vicinal.metrics.clusters import checked_weights

_WEIGHTED = [name for name, metric in METRICS.items() if metric.of_classes is None and metric.of_numbers is None]


def _drawn(seed: int, n: int, k: int = 3):
    draws = np.random.default_rng(seed)
    logits = draws.normal(size=(n, k)) * 2
    labels = (logits + draws.gumbel(size=(n, k))).argmax(axis=1)
    return draws, logits, labels


@pytest.mark.parametrize("k", [2, 7])
def test_a_weight_of_two_is_a_row_that_is_there_twice(k):
    draws, logits, labels = _drawn(0, 400, k)
    times = draws.integers(0, 4, 400)
    names = [name for name in _WEIGHTED if METRICS[name].more_classes_than < k]
    weighted = evaluate(labels, logits=logits, metrics=names, sample_weight=times)
    # Counts are scaled to 400 samples, so that what depends on their number, such as a correction, differs a little.
    repeated = evaluate(labels.repeat(times), logits=logits.repeat(times, axis=0), metrics=names)
    exact = [name for name in names if "debiased" not in name]
    assert "nll" in exact
    assert "mcc" in exact
    assert "ece" in exact
    for name in exact:
        assert weighted.metrics[name].value == pytest.approx(repeated.metrics[name].value, rel=1e-9), name
    assert weighted.base_rate.majority == repeated.base_rate.majority
    assert weighted.base_rate.nll == pytest.approx(repeated.base_rate.nll)
    assert weighted.n == 400


def test_equal_weights_change_no_value():
    _, logits, labels = _drawn(1, 300)
    plain, equal = (evaluate(labels, logits=logits, sample_weight=w) for w in (None, np.full(300, 7.0)))
    for name, estimate in plain.metrics.items():
        assert equal.metrics[name].value == pytest.approx(estimate.value, rel=1e-12)
        assert equal.metrics[name].low == pytest.approx(estimate.low, abs=2e-3), name
        assert equal.metrics[name].high == pytest.approx(estimate.high, abs=2e-3), name


def test_the_design_effect_is_that_of_the_formula():
    draws, logits, labels = _drawn(2, 200)
    weights = draws.exponential(size=200)
    each = evaluate(labels, logits=logits, sample_weight=weights).samples
    v, w = each.values["nll"].astype(float), weights / weights.mean()
    mean = sum(w * v) / 200
    variance = sum((w[i] * (v[i] - mean)) ** 2 for i in range(200)) * 200
    kish = sum(w) ** 2 / sum(w**2)
    alone = sum(w[i] * (v[i] - mean) ** 2 for i in range(200)) * 200 * 200 / 199
    from scipy.stats import t

    ratio = (t.ppf(0.975, kish - 1) / t.ppf(0.975, 199)) ** 2
    times = max(variance / 200 * kish / (kish - 1) / (alone / 200), 1) * ratio
    assert each.groups.design_effect(v, 0.95) == pytest.approx(200 / round(200 / times))


@pytest.mark.parametrize("n", [100, 400])
def test_intervals_cover_what_they_say(n):
    names, trials = ["accuracy", "nll", "brier"], 300
    hits = dict.fromkeys(names, 0)

    def drawn(draws, n):
        # Heavy samples are harder, so that the weighted truth differs from the plain one.
        hard = draws.random(n)
        logits = draws.normal(size=(n, 2)) * 2
        labels = (logits * (1.5 - hard[:, None]) + draws.gumbel(size=(n, 2))).argmax(axis=1)
        return labels, logits, 0.2 + 2 * hard**2

    labels, logits, weights = drawn(np.random.default_rng(9), 400_000)
    truth = evaluate(labels, logits=logits, metrics=names, sample_weight=weights)
    for seed in range(trials):
        labels, logits, weights = drawn(np.random.default_rng(seed), n)
        found = evaluate(labels, logits=logits, metrics=names, sample_weight=weights)
        for name in names:
            hits[name] += found.metrics[name].low <= truth.metrics[name].value <= found.metrics[name].high
    # 95 % less three standard deviations of 300 trials
    assert min(hits.values()) / trials > 0.95 - 3 * (0.95 * 0.05 / trials) ** 0.5, hits


def test_groups_and_weights_together_are_never_narrower():
    draws, logits, labels = _drawn(3, 240)
    weights, groups = draws.exponential(size=240), np.repeat(np.arange(40), 6)
    alone = evaluate(labels, logits=logits, sample_weight=weights)
    both = evaluate(labels, logits=logits, sample_weight=weights, groups=groups)
    assert both.nll.value == alone.nll.value
    assert both.notes[0] == alone.notes[0]
    assert "samples are weighted" in both.notes[0]


def test_labels_and_slices_are_weighted():
    draws, _, _ = _drawn(4, 1)
    probs, targets, weights = draws.random((300, 2)), draws.integers(0, 2, (300, 2)), draws.integers(0, 3, 300)
    rows = np.repeat(np.arange(300), weights)
    found = evaluate(targets, probs=probs, target_type="multilabel", sample_weight=weights)
    again = evaluate(targets[rows], probs=probs[rows], target_type="multilabel")
    assert found.nll.value == pytest.approx(again.nll.value)
    assert found.accuracy.value == pytest.approx(again.accuracy.value)
    part = np.array(["a", "b"] * 150)
    two = np.stack([1 - probs[:, 0], probs[:, 0]], axis=1)
    a = evaluate(targets[:, 0], probs=two, slices=part, sample_weight=weights).slices
    b = evaluate(targets[rows, 0], probs=two[rows], slices=part[rows]).slices
    values = [{one.name: (one.accuracy.value, one.gap.value, one.nll.value) for one in each} for each in (a, b)]
    for name in ("a", "b"):
        assert values[0][name] == pytest.approx(values[1][name])


def test_an_infinite_loss_of_weight_zero_does_not_count():
    probs = [[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]]
    assert evaluate([1, 0, 1], probs=probs, sample_weight=[0, 1, 1]).nll.value == pytest.approx(np.log(2))
    assert evaluate([1, 0, 1], probs=probs, sample_weight=[1, 1, 1]).nll.value == np.inf


def test_weighted_differences_are_those_of_repeated_rows_and_wider():
    draws, logits, labels = _drawn(5, 300)
    times = draws.integers(0, 5, 300)
    rows = np.repeat(np.arange(300), times)
    ours, theirs = (
        (evaluate(labels, logits=z, sample_weight=times), evaluate(labels[rows], logits=z[rows]))
        for z in (logits, logits + draws.normal(size=logits.shape))
    )
    weighted, repeated = compare(ours[0], theirs[0]), compare(ours[1], theirs[1])
    for name in ("accuracy", "nll", "brier", "mcc"):
        one, other = weighted.differences[name], repeated.differences[name]
        assert one.value == pytest.approx(other.value), name
        assert one.high - one.low > other.high - other.low, name


class TestRefusals:
    @pytest.mark.parametrize(
        ("weights", "said"),
        [
            ([1, -1, 2], r"sample_weight must be numbers of at least 0, got .*-1 in row 2"),
            ([1, 2, np.nan], "sample_weight must be numbers of at least 0|finite"),
            ([1, 2, np.inf], "sample_weight must be numbers of at least 0|finite"),
            ([0, 0, 0], "some are above 0"),
            ([1, 2], "one for each of the 3 samples"),
        ],
    )
    def test_bad_weights(self, weights, said):
        with pytest.raises(ValueError, match=said):
            checked_weights(weights, 3)

    def test_what_has_no_weights(self):
        with pytest.raises(ValueError, match="regression"):
            evaluate([1.0, 2.0], logits=[1.0, 2.0], target_type="regression", sample_weight=[1, 2])
        with pytest.raises(ValueError, match="keep_samples"):
            Tally().update([0, 1], probs=[[0.5, 0.5]] * 2).evaluation(sample_weight=[1, 2])
