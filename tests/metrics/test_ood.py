from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.metrics import (
    auroc,
    average_precision,
    energy,
    fpr_at_tpr,
    margin,
    max_probability,
    negative_entropy,
    ood,
    ood_report,
)
from vicinal.metrics import chunks as passes

from . import reference

# Few distinct scores, so that ties are the rule.
scores = st.lists(st.integers(-4, 4).map(lambda s: s / 3), min_size=1, max_size=30)


def slow_auroc(inside, outside):
    return np.mean([(a > b) + 0.5 * (a == b) for a in inside for b in outside])


def slow_fpr(inside, outside, tpr):
    for level in sorted(inside, reverse=True):
        if sum(a >= level for a in inside) >= tpr * len(inside) - 1e-9:
            return np.mean([b >= level for b in outside])
    raise AssertionError("some level accepts all")


@given(scores, scores)
def test_auroc_and_aupr_equal_scikit_learns_on_ties_too(inside, outside):
    metrics = pytest.importorskip("sklearn.metrics")
    truth, values = [1] * len(inside) + [0] * len(outside), np.array(inside + outside)
    assert auroc(inside, outside) == pytest.approx(metrics.roc_auc_score(truth, values), abs=1e-12)
    turned = 1 - np.array(truth)
    report = ood_report(inside, outside)
    for found, expected in (
        (average_precision(inside, outside), metrics.average_precision_score(truth, values)),
        (report.aupr_in.value, metrics.average_precision_score(truth, values)),
        (report.aupr_out.value, metrics.average_precision_score(turned, -values)),
        (average_precision([-s for s in outside], [-s for s in inside]), report.aupr_out.value),
    ):
        assert found == pytest.approx(expected, abs=1e-12)


@given(scores, scores, st.sampled_from([0.05, 0.07, 0.5, 0.95, 1.0]))
def test_metrics_equal_loops_over_pairs(inside, outside, tpr):
    assert auroc(inside, outside) == pytest.approx(slow_auroc(inside, outside), abs=1e-12)
    assert fpr_at_tpr(inside, outside, tpr=tpr) == pytest.approx(slow_fpr(inside, outside, tpr))


@given(scores, scores)
def test_the_report_repeats_the_metrics_and_its_intervals_hold_them(inside, outside):
    report = ood_report(inside, outside, n_bins=7, n_resamples=50)
    assert report.auroc.value == auroc(inside, outside)
    assert report.fpr_at_tpr.value == fpr_at_tpr(inside, outside)
    for estimate in report.metrics.values():
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    for counts, values in ((report.in_counts, inside), (report.out_counts, outside)):
        np.testing.assert_array_equal(counts, np.histogram(values, report.edges)[0])
        assert counts.sum() == len(values)


def test_seven_per_cent_of_a_hundred_are_seven():
    inside = np.arange(100) / 100
    assert fpr_at_tpr(inside, [0.925, 0.935], tpr=0.07) == 0.5


def test_the_interval_of_fpr_is_that_of_resampling():
    random = np.random.default_rng(0)
    inside, outside = random.normal(1.2, 1, 900).round(1), random.normal(0, 1, 400).round(1)
    report = ood_report(inside, outside, n_resamples=4000)
    drawn = [
        fpr_at_tpr(inside[random.integers(900, size=900)], outside[random.integers(400, size=400)]) for _ in range(400)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert report.fpr_at_tpr.low == pytest.approx(low, abs=0.02)
    assert report.fpr_at_tpr.high == pytest.approx(high, abs=0.02)


def test_perfect_separation_claims_no_certainty():
    report = ood_report(np.arange(60) + 100.0, np.arange(30) * 1.0)
    assert report.auroc.value == report.aupr_in.value == report.aupr_out.value == 1
    assert report.fpr_at_tpr.value == 0
    assert 0.85 < report.auroc.low < 0.99
    assert 0.05 < report.fpr_at_tpr.high < 0.2


def test_a_score_that_points_the_wrong_way_shows():
    assert auroc([0.1, 0.2], [0.8, 0.9]) == 0
    assert ood_report([0.1, 0.2], [0.8, 0.9]).fpr_at_tpr.value == 1


LOGITS = 3 * np.random.default_rng(0).standard_normal((40, 5))


def test_scores_equal_loops_and_are_higher_for_the_surer():
    for row, top, entropy, gap, free in zip(
        LOGITS, max_probability(LOGITS), negative_entropy(LOGITS), margin(LOGITS), energy(LOGITS), strict=True
    ):
        probs = reference.softmax(row)
        first, second = sorted(probs, reverse=True)[:2]
        assert top == pytest.approx(first)
        assert gap == pytest.approx(first - second)
        assert entropy == pytest.approx(sum(p * math.log(p) for p in probs))
        assert free == pytest.approx(math.log(sum(math.exp(z) for z in row)))
    sure, unsure = [[9.0, 0.0, 0.0]], [[0.1, 0.0, 0.0]]
    for score in (max_probability, negative_entropy, margin, energy):
        assert score(sure) > score(unsure)


@pytest.mark.parametrize("temperature", [0.5, 2.0, 1000.0])
def test_energy_has_a_temperature(temperature):
    expected = [temperature * math.log(sum(math.exp(z / temperature) for z in row)) for row in LOGITS]
    np.testing.assert_allclose(energy(LOGITS, temperature=temperature), expected)


def test_probabilities_and_logits_give_the_same_scores_in_chunks_of_any_size(monkeypatch):
    probs = torch.tensor(LOGITS).softmax(1)
    before = [score(LOGITS) for score in (max_probability, negative_entropy, margin)]
    monkeypatch.setattr(ood, "CHUNK", 15)
    for score, expected in zip((max_probability, negative_entropy, margin), before, strict=True):
        np.testing.assert_allclose(score(LOGITS), expected, rtol=1e-13)
        np.testing.assert_allclose(score(probs=probs), expected, atol=1e-12)
    assert passes.CHUNK > 15


def test_extreme_logits_do_not_overflow():
    wild = np.array([[1e4, -1e4, 0.0], [-1e300, 1e300, 0.0]])
    assert energy(wild).tolist() == [1e4, 1e300]
    assert max_probability(wild).tolist() == margin(wild).tolist() == [1, 1]
    assert (negative_entropy(wild) == 0).all()


def test_float_types_tensors_and_gradients_are_taken():
    held = torch.tensor(LOGITS, dtype=torch.bfloat16, requires_grad=True)
    exact = held.detach().double().numpy()
    for score in (max_probability, negative_entropy, margin, energy):
        assert score(held).dtype == np.float64
        np.testing.assert_array_equal(score(held), score(exact))


def test_the_report_prints_and_is_json():
    report = ood_report([0.9, 0.8, 0.7], [0.3, 0.75], n_bins=4)
    lines = str(report).splitlines()
    assert lines[0] == "3 in-distribution, 2 out; 95 % intervals"
    assert lines[-1].startswith("fpr at 95 % tpr")
    kept = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert kept["auroc"]["value"] == report.auroc.value
    assert len(kept["edges"]) == 5
    assert kept["in_counts"] == report.in_counts.tolist()


def test_the_same_seed_gives_the_same_report():
    random = np.random.default_rng(0)
    inside, outside = random.normal(1, 1, 50), random.normal(0, 1, 50)
    assert ood_report(inside, outside, seed=1) == ood_report(inside, outside, seed=1)


HOSTILE = {
    "nan": (lambda: auroc([math.nan], [0.0]), "in_scores must be finite"),
    "inf": (lambda: ood_report([1.0], [math.inf]), "out_scores must be finite"),
    "empty": (lambda: auroc([1.0], []), r"out_scores must have shape \[N\]"),
    "2-d": (lambda: fpr_at_tpr([[1.0]], [0.0]), r"in_scores must have shape \[N\]"),
    "positive": (lambda: average_precision([], [0.0]), "positive_scores must have shape"),
    "tpr": (lambda: fpr_at_tpr([1.0], [0.0], tpr=0), "tpr must be"),
    "bins": (lambda: ood_report([1.0], [0.0], n_bins=0), "n_bins must be"),
    "level": (lambda: ood_report([1.0], [0.0], level=1), "level must be"),
    "neither": (lambda: max_probability(), "exactly one of logits= and probs=, got neither"),
    "both": (lambda: margin(LOGITS, probs=LOGITS), "got both"),
    "not probabilities": (lambda: max_probability(probs=LOGITS), r"probs must be in \[0, 1\]"),
    "sums": (lambda: negative_entropy(probs=[[0.2, 0.2]]), "probs must sum to one"),
    "nan logits": (lambda: energy([[math.nan, 0.0]]), "logits must be finite"),
    "1-d": (lambda: energy([0.0]), r"logits must have shape \[N, K\]"),
    "one class": (lambda: margin([[1.0]]), "margin needs at least 2 classes"),
    "temperature": (lambda: energy(LOGITS, temperature=0), "temperature must be"),
    "text": (lambda: auroc(["a"], [0.0]), "in_scores must hold numbers"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_refused_by_name(name):
    call, match = HOSTILE[name]
    with pytest.raises((ValueError, TypeError), match=match):
        call()
