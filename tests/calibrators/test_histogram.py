from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from vicinal import metrics
from vicinal._arrays import equal_mass_edges
from vicinal.calibrators import HistogramBinning


def planted(n=300, k=3, seed=0):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(n, k))
    labels = np.array([rng.choice(k, p=p) for p in softmax(logits / 2, axis=1)])
    return logits, labels


def slow_binning(logits, labels, n_bins, floor):
    """Equal-width bins (lo, hi] by loops; a bin without samples keeps its middle."""
    probs = softmax(logits, axis=1)
    n, k = probs.shape
    out = np.zeros((n, k))
    for c in range(k):
        hits, count = [0] * n_bins, [0] * n_bins
        which = [max(sum(p > b / n_bins for b in range(n_bins)) - 1, 0) for p in probs[:, c]]
        for i in range(n):
            count[which[i]] += 1
            hits[which[i]] += labels[i] == c
        for i in range(n):
            out[i, c] = max(hits[which[i]] / count[which[i]], floor)
    return out / out.sum(1, keepdims=True)


@pytest.mark.parametrize(("k", "n_bins"), [(2, 1), (2, 10), (3, 15), (5, 100)])
def test_equal_width_bins_are_those_of_the_loops(k, n_bins):
    logits, labels = planted(k=k)
    found = HistogramBinning(n_bins=n_bins).fit(logits, labels).predict_proba(logits)
    np.testing.assert_allclose(found, slow_binning(logits, labels, n_bins, 1e-6), atol=1e-12)


def test_edges_belong_to_the_bin_below():
    # softmax of (0, 0) is exactly ½, an edge of two bins: it falls in (0, ½] for both classes.
    logits, labels = np.array([[0.0, 0.0], [0.0, 0.0], [9.0, 0.0]]), np.array([0, 1, 0])
    calibrator = HistogramBinning(n_bins=2).fit(logits, labels)
    assert calibrator.values_[0].tolist() == [0.5, 1.0]
    assert calibrator.values_[1].tolist() == [1 / 3, 0.75]  # the second is empty: its middle


def test_zero_and_one_count():
    logits = np.array([[1e4, 0.0], [1e4, 0.0], [0.0, 1e4]])  # probabilities exactly 1 and 0
    calibrator = HistogramBinning(n_bins=4).fit(logits, np.array([0, 1, 1]))
    assert calibrator.values_[0].tolist() == [0.0, 0.375, 0.625, 0.5]


def test_mass_edges_give_equal_counts():
    rng = np.random.default_rng(0)
    scores = rng.random(1000)
    which = np.searchsorted(equal_mass_edges(scores, 8), scores)
    assert np.bincount(which).tolist() == [125] * 8


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40), st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_mass_bins_are_never_empty_and_never_split_ties(values, n_bins):
    scores = np.array(values) / 8
    edges = equal_mass_edges(scores, n_bins)
    edges = edges[edges < scores.max()]
    assert np.all(np.diff(edges) > 0)
    counts = np.bincount(np.searchsorted(edges, scores), minlength=len(edges) + 1)
    assert (counts > 0).all()
    assert len(counts) <= n_bins


def test_equal_mass_means_are_those_of_sorted_slices():
    logits, labels = planted(n=240, k=2)
    calibrator = HistogramBinning(n_bins=6, equal_mass=True).fit(logits, labels)
    order = np.argsort(softmax(logits, axis=1)[:, 1])
    expected = [(labels[part] == 1).mean() for part in np.split(order, 6)]
    np.testing.assert_allclose(calibrator.values_[1], expected)


def test_the_calibrator_and_the_reliability_table_cut_at_the_same_places():
    """An edge is the smallest value that a share of k / n_bins does not exceed: the third of five for halves."""
    p = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    assert equal_mass_edges(p, 2).tolist() == [0.3]
    assert metrics.equal_mass_edges(p, 2).tolist() == [0.0, 0.3, 1.0]
    logits = np.log(np.stack([1 - p, p], axis=1))
    calibrator = HistogramBinning(n_bins=2, equal_mass=True).fit(logits, np.array([0, 1, 0, 1, 1]))
    np.testing.assert_allclose(calibrator.edges_[1], [0.3])
    table = metrics.ReliabilityTable.from_confidences(p, p > 0.2, n_bins=2, equal_mass=True)
    assert table.bin_count.tolist() == [3, 2]


def test_more_bins_than_samples():
    calibrator = HistogramBinning(n_bins=50, equal_mass=True).fit(*planted(n=3))
    assert all(len(values) == 3 for values in calibrator.values_)


def test_each_class_is_calibrated_in_each_of_its_bins_for_two_classes():
    # For two classes with mirrored bins nothing is left to normalise: the estimate is the frequency.
    logits, labels = planted(n=5_000, k=2)
    probs = HistogramBinning(n_bins=10).fit(logits, labels).predict_proba(logits)[:, 1]
    for value in np.unique(probs.round(9)):
        mask = np.isclose(probs, value, atol=1e-8)
        assert (labels[mask] == 1).mean() == pytest.approx(value, abs=2e-6)


@pytest.mark.parametrize("arguments", [{"n_bins": 0}, {"equal_mass": "yes"}, {"floor": 0}, {"floor": 1.0}])
def test_bad_hyper_parameters_are_refused(arguments):
    with pytest.raises((ValueError, TypeError), match=next(iter(arguments))):
        HistogramBinning(**arguments)


def test_inconsistent_edges_are_not_loaded():
    state = HistogramBinning().fit(*planted()).state_dict()
    state["learned"]["edges_"][0] = [0.5]
    with pytest.raises(ValueError, match="one fewer than values_"):
        HistogramBinning.from_state_dict(state)
