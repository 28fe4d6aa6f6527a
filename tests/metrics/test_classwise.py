from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.metrics import ClasswiseTable, classwise_ece
from vicinal.metrics import chunks as passes

from . import reference


def predictions(n, k, seed=0):
    random = np.random.default_rng(seed)
    probs = random.dirichlet(np.ones(k) * 0.5, n)
    return probs, random.integers(k, size=n)


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 20), st.integers(0, 1000))
def test_it_equals_the_loop_written_from_the_formula(n, k, n_bins, seed):
    probs, labels = predictions(n, k, seed)
    edges = np.arange(n_bins + 1) / n_bins
    expected = reference.classwise_ece(probs.tolist(), labels.tolist(), edges)
    assert classwise_ece(labels, probs=probs, n_bins=n_bins) == pytest.approx(expected, abs=1e-12)


def test_streams_merges_and_ignores_order(monkeypatch):
    probs, labels = predictions(300, 6)
    whole = ClasswiseTable(6).update(labels, probs=probs)
    monkeypatch.setattr(passes, "CHUNK", 60)
    monkeypatch.setattr(passes, "BLOCK", 300)
    shards = [
        ClasswiseTable(6).update(y, probs=p) for p, y in zip(np.split(probs, 5), np.split(labels, 5), strict=True)
    ]
    order = np.random.default_rng(0).permutation(300)
    for other in (sum(shards), sum(reversed(shards)), ClasswiseTable(6).update(labels[order], probs=probs[order])):
        assert np.array_equal(other.counts, whole.counts)
        assert np.array_equal(other.correct, whole.correct)
        np.testing.assert_allclose(other.sums, whole.sums, rtol=1e-12)
    assert whole.n == 300
    assert whole.per_class().mean() == whole.ece()


def test_logits_and_probabilities_agree():
    probs, labels = predictions(100, 4)
    assert classwise_ece(labels, logits=np.log(probs)) == pytest.approx(classwise_ece(labels, probs=probs), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_float_type_goes_in(dtype):
    probs, labels = predictions(100, 4)
    held = torch.tensor(probs).to(dtype)
    assert classwise_ece(labels, probs=held) == pytest.approx(classwise_ece(labels, probs=probs), abs=0.05)


def test_other_edges():
    probs, labels = predictions(100, 3)
    edges = [0, 0.1, 0.5, 1]
    expected = reference.classwise_ece(probs.tolist(), labels.tolist(), edges)
    assert classwise_ece(labels, probs=probs, edges=edges) == pytest.approx(expected, abs=1e-12)


def test_errors_name_what_is_wrong():
    table = ClasswiseTable(3)
    assert repr(table) == "ClasswiseTable(n=0, n_classes=3, n_bins=15)"
    with pytest.raises(ValueError, match="the table is empty"):
        table.ece()
    with pytest.raises(ValueError, match="3 classes, got predictions of 2"):
        table.update([0], probs=[[0.5, 0.5]])
    with pytest.raises(ValueError, match="same classes and edges"):
        table + ClasswiseTable(4)
    with pytest.raises(TypeError):
        table + 1
