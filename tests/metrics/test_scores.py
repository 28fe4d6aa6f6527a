from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.metrics import accuracy, brier, mcc, nll, spearman, spearman_estimate, top_k
from vicinal.metrics import chunks as passes
from vicinal.metrics.scores import mcc_contributions

from . import reference

sizes = st.tuples(st.integers(1, 40), st.integers(2, 6), st.integers(0, 10_000))


def predictions(n, k, seed=0):
    random = np.random.default_rng(seed)
    logits = 2 * random.standard_normal((n, k))
    probs = np.array([reference.softmax(row) for row in logits])
    return logits, probs, random.integers(k, size=n)


@given(sizes)
def test_scores_equal_loops_written_from_the_formulas(size):
    logits, probs, labels = predictions(*size)
    for held in ({"logits": logits}, {"probs": probs}):
        assert nll(labels, **held) == pytest.approx(reference.nll(probs, labels), abs=1e-12)
        assert brier(labels, **held) == pytest.approx(reference.brier(probs, labels), abs=1e-12)
        hits = [reference.first_argmax(row) == label for row, label in zip(probs, labels, strict=True)]
        assert accuracy(labels, **held) == pytest.approx(np.mean(hits))
        for k in range(1, size[1] + 1):
            assert top_k(labels, k, **held) == pytest.approx(reference.top_k(probs, labels, k))


@pytest.mark.filterwarnings("ignore:A single label")
@given(sizes)
def test_scikit_learn_agrees(size):
    metrics = pytest.importorskip("sklearn.metrics")
    _, probs, labels = predictions(*size)
    guess = probs.argmax(1)
    classes = np.arange(probs.shape[1])
    assert mcc(labels, probs=probs) == pytest.approx(metrics.matthews_corrcoef(labels, guess), abs=1e-12)
    assert mcc(labels, predictions=guess) == mcc(labels, probs=probs)
    assert nll(labels, probs=probs) == pytest.approx(metrics.log_loss(labels, probs, labels=classes), abs=1e-9)
    assert accuracy(labels, predictions=guess) == pytest.approx(metrics.accuracy_score(labels, guess))
    if probs.shape[1] > 2:
        theirs = metrics.brier_score_loss(labels, probs, labels=classes)
        assert brier(labels, probs=probs) == pytest.approx(theirs, abs=1e-9)


def test_order_and_chunks_do_not_matter(monkeypatch):
    logits, probs, labels = predictions(500, 4)
    order = np.random.default_rng(0).permutation(500)
    before = [f(labels, logits=logits) for f in (nll, brier, accuracy, mcc)] + [top_k(labels, 2, probs=probs)]
    monkeypatch.setattr(passes, "CHUNK", 40)
    monkeypatch.setattr(passes, "BLOCK", 200)
    shuffled = [f(labels[order], logits=logits[order]) for f in (nll, brier, accuracy, mcc)]
    assert [*shuffled, top_k(labels[order], 2, probs=probs[order])] == pytest.approx(before, abs=1e-12)


@pytest.mark.parametrize(("dtype", "sizes"), [(np.float32, [11, 10]), (np.float64, [6, 6, 6, 3])])
def test_chunks_are_of_like_size_in_bytes(monkeypatch, dtype, sizes):
    _, probs, labels = predictions(21, 4)
    monkeypatch.setattr(passes, "CHUNK", 40)
    given = passes.open_predictions(labels, probs=probs.astype(dtype))
    assert [len(chunk) for chunk in given.chunks()] == sizes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_type_goes_in(dtype):
    logits, probs, labels = predictions(100, 5)
    tolerance = 4 * torch.finfo(dtype).eps
    for score in (nll, brier):
        exact = score(labels, logits=logits)
        assert score(labels, logits=torch.tensor(logits).to(dtype)) == pytest.approx(exact, abs=5 * tolerance + 1e-12)
        assert score(labels, probs=torch.tensor(probs).to(dtype)) == pytest.approx(exact, abs=5 * tolerance + 1e-12)


def test_nll_keeps_the_digits_of_a_sure_model():
    # log(1 + e^-40) is 4e-18: nothing in float32, and lost in 1 + e^-40 in float64.
    assert nll([0], logits=[[40.0, 0.0]]) == pytest.approx(math.exp(-40), rel=1e-12)
    assert nll([1], logits=[[1000.0, 0.0]]) == 1000


def test_nll_of_an_impossible_label_is_infinite_and_of_a_certain_one_zero():
    assert nll([1], probs=[[1.0, 0.0]]) == math.inf
    assert math.copysign(1, nll([0], probs=[[1.0, 0.0]])) == 1


def test_ties_are_won_by_the_first():
    probs = np.full((3, 3), 1 / 3)
    assert accuracy([0, 1, 2], probs=probs) == pytest.approx(1 / 3)
    assert top_k([0, 1, 2], 2, probs=probs) == pytest.approx(2 / 3)


def test_mcc_of_one_class_is_zero():
    assert mcc([0, 0, 0], predictions=[0, 0, 0]) == 0
    assert mcc([0, 1, 0], predictions=[1, 1, 1]) == 0


def test_mcc_contributions_average_to_mcc_and_are_its_derivative():
    random = np.random.default_rng(0)
    labels = random.integers(3, size=200)
    guess = np.where(random.random(200) < 0.6, labels, random.integers(3, size=200))
    value, parts = mcc_contributions(labels, guess)
    assert parts.mean() == pytest.approx(value, abs=1e-12)
    # One more copy of a sample among n moves MCC by its influence / n, to first order.
    tiled = np.tile(labels, 50), np.tile(guess, 50)
    for i in range(5):
        more = mcc_contributions(np.append(tiled[0], labels[i]), np.append(tiled[1], guess[i]))[0]
        assert (more - value) * (len(tiled[0]) + 1) == pytest.approx(parts[i] - value, abs=2e-3)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(-10, 10)), min_size=3, max_size=30),
)
def test_spearman_equals_scipy(pairs):
    stats = pytest.importorskip("scipy.stats")
    a, b = np.array(pairs, float).T
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert math.isnan(spearman(a, b))
    else:
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)


def test_spearman_interval_covers_and_has_edges():
    random = np.random.default_rng(0)
    hits = 0
    truth = 6 / math.pi * math.asin(0.6 / 2)  # of a bivariate normal with correlation 0.6
    for _ in range(300):
        x = random.standard_normal(100)
        y = 0.6 * x + 0.8 * random.standard_normal(100)
        estimate = spearman_estimate(x, y)
        hits += estimate.low <= truth <= estimate.high
    assert 0.9 <= hits / 300 <= 0.99
    perfect = spearman_estimate(np.arange(10.0), np.arange(10.0))
    assert perfect.value == perfect.high == 1
    assert spearman_estimate([1.0, 2.0], [1.0, 2.0]).low == -1
    assert math.isnan(spearman_estimate(np.ones(9), np.arange(9.0)).value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: top_k([0], 3, probs=[[0.5, 0.5]]), r"k must be in \[1, 2\] for 2 classes, got 3"),
        (lambda: top_k([0], 0, probs=[[0.5, 0.5]]), "k must be an integer of at least 1, got 0"),
        (lambda: nll([0]), "got neither"),
        (lambda: brier([0], probs=[[0.5, 0.5]], logits=[[0.5, 0.5]]), "got both"),
        (lambda: accuracy([0], predictions=[0], probs=[[0.5, 0.5]]), "predictions= and another"),
        (lambda: mcc([0, 1], predictions=[0]), "the same length, got 2 and 1"),
        (lambda: mcc([0, -1], predictions=[0, 0]), "labels must be at least 0, got -1"),
        (lambda: nll([2], logits=[[0.5, 0.5]]), r"labels must be in \[0, 1\]"),
        (lambda: nll([0], logits=[[math.nan, 0.5]]), "logits must be finite"),
        (lambda: spearman([1.0], [1.0, 2.0]), "the same length, got 1 and 2"),
        (lambda: spearman([math.nan], [1.0]), "targets must be finite"),
        (lambda: spearman([], []), "N of at least 1"),
        (lambda: spearman([[1.0]], [[1.0]]), r"targets must have shape \[N\]"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
