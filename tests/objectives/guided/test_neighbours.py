"""The exact partner search, against brute force."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from vicinal.objectives.guided import neighbours as _neighbours
from vicinal.objectives.guided.neighbours import arc_extremes, cosine_extremes, directions

seeds = st.integers(0, 2**31)


def brute(queries, candidates):
    """All cosines by loops, in float64; 0 for a zero vector."""
    table = torch.zeros(len(queries), len(candidates), dtype=torch.float64)
    for i, q in enumerate(queries.double()):
        for j, c in enumerate(candidates.double()):
            length = q.norm() * c.norm()
            table[i, j] = q @ c / length if length > 0 else 0.0
    return table


def check(found, queries, candidates, tolerance=1e-12):
    """The cosine of what was found is the largest (smallest) there is."""
    table, (nearest, farthest) = brute(queries, candidates), found
    rows = torch.arange(len(queries))
    torch.testing.assert_close(table[rows, nearest], table.amax(1), atol=tolerance, rtol=0)
    torch.testing.assert_close(table[rows, farthest], table.amin(1), atol=tolerance, rtol=0)


def saliencies(n, k, scale, generator):
    logits = scale * torch.randn(n, k, generator=generator)
    labels = torch.randint(k, (n,), generator=generator)
    return directions(logits, labels).abs(), labels


@given(n=st.integers(1, 12), k=st.integers(2, 7), scale=st.sampled_from([0.1, 1.0, 5.0]), seed=seeds)
def test_directions_are_those_of_the_gradient_by_autograd(n, k, scale, seed):
    g = torch.Generator().manual_seed(seed)
    logits = (scale * torch.randn(n, k, generator=g, dtype=torch.float64)).requires_grad_()
    labels = torch.randint(k, (n,), generator=g)
    F.cross_entropy(logits, labels, reduction="sum").backward()
    digits = logits.grad.norm(dim=1) > 1e-6  # below, autograd's own 1 - p has too few to compare with
    found, by_autograd = directions(logits.detach(), labels)[digits], logits.grad[digits]
    torch.testing.assert_close(found, F.normalize(by_autograd, dim=1))
    of_softmax = (logits.detach().softmax(1) - F.one_hot(labels, k)).abs()[digits]
    torch.testing.assert_close(found.abs(), F.normalize(of_softmax, dim=1))


def test_directions_survive_any_confidence():
    logits = torch.tensor([[400.0, 1.0, 0.0], [4.0, 1.0, 0.0]])  # softmax of the first is one-hot in float64 too
    a, b = directions(logits, torch.tensor([0, 0]))
    torch.testing.assert_close(a, b)
    assert a.isfinite().all()


@given(n=st.integers(1, 9), m=st.integers(1, 15), k=st.integers(2, 8), seed=seeds, chunk=st.sampled_from([1, 7, 2**24]),
       tile=st.sampled_from([1, 4, 1024]))  # fmt: skip
def test_the_product_finds_the_true_extremes(n, m, k, seed, chunk, tile):
    g = torch.Generator().manual_seed(seed)
    queries = torch.randn(n, k, generator=g, dtype=torch.float64)
    candidates = torch.randn(m, k, generator=g, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_neighbours, "_CHUNK", chunk)
        patch.setattr(_neighbours, "_TILE", tile)
        found = cosine_extremes(queries, candidates)
    check(found, queries, candidates)
    table = brute(queries, candidates)
    assert torch.equal(found[0], table.argmax(1))
    assert torch.equal(found[1], table.argmin(1))


@given(n=st.integers(1, 15), m=st.integers(1, 40), scale=st.sampled_from([0.01, 1.0, 30.0]), seed=seeds)
def test_the_arcs_find_the_true_extremes(n, m, scale, seed):
    g = torch.Generator().manual_seed(seed)
    queries, _ = saliencies(n, 3, scale, g)
    candidates, labels = saliencies(m, 3, scale, g)
    check(arc_extremes(queries, candidates, labels), queries, candidates)
    check(arc_extremes(queries.float(), candidates.float(), labels), queries, candidates, tolerance=1e-6)


@given(m=st.integers(1, 20), label=st.integers(0, 2), seed=seeds)
def test_the_arcs_work_when_only_one_label_is_there_and_with_ties(m, label, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.full((m,), label)
    candidates = directions(torch.randint(-1, 2, (m, 3), generator=g).float(), labels).abs()  # many equal
    queries, _ = saliencies(5, 3, 1.0, g)
    check(arc_extremes(queries, candidates, labels), queries, candidates)
    check(arc_extremes(candidates, candidates, labels), candidates, candidates)


def test_ties_go_to_the_first_and_zero_vectors_have_cosine_zero():
    candidates = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 3.0]])
    nearest, farthest = cosine_extremes(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), candidates)
    assert nearest.tolist() == [1, 0]
    assert farthest.tolist() == [0, 0]
    nearest, farthest = cosine_extremes(torch.tensor([[1.0, 1.0]]), candidates)
    assert farthest.tolist() == [3]


def test_of_equal_saliencies_the_first_is_found_by_either_search():
    """Copies of few samples, as of duplicated training samples, in every order and at odd counts."""
    generator = torch.Generator().manual_seed(0)
    few = directions(torch.randn(7, 3, generator=generator), torch.arange(7) % 3).abs()
    for m in (8, 33, 1001):
        which = torch.randint(7, (m,), generator=generator)
        candidates, labels = few[which], which % 3
        for found in arc_extremes(few, candidates, labels):
            for chosen in found.tolist():
                assert chosen == int((which == which[chosen]).nonzero()[0, 0])


def test_tiny_vectors_keep_their_direction():
    tiny = torch.tensor([[1e-30, 2e-30], [2e-30, 1e-30]])
    nearest, farthest = cosine_extremes(tiny, 1e35 * tiny)
    assert nearest.tolist() == [0, 1]
    assert farthest.tolist() == [1, 0]


def test_both_searches_agree_on_many():
    g = torch.Generator().manual_seed(0)
    queries, _ = saliencies(3000, 3, 3.0, g)
    candidates, labels = saliencies(4000, 3, 3.0, g)
    for a, b in zip(arc_extremes(queries, candidates, labels), cosine_extremes(queries, candidates), strict=True):
        cosines = ((queries * candidates[a]).sum(1), (queries * candidates[b]).sum(1))
        torch.testing.assert_close(*cosines, atol=1e-13, rtol=0)


@pytest.mark.parametrize("search", [cosine_extremes, lambda q, c: arc_extremes(q, c, torch.zeros(len(c)).long())])
def test_bad_shapes_are_named(search):
    with pytest.raises(ValueError, match="must not be empty"):
        search(torch.ones(1, 3), torch.ones(0, 3))
    with pytest.raises(ValueError, match=r"\[2, 3\] and \[2, 4\]"):
        search(torch.ones(2, 3), torch.ones(2, 4))
    assert [len(t) for t in search(torch.ones(0, 3), torch.ones(2, 3))] == [0, 0]
