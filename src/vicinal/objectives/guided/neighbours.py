r"""Who is most and least like whom: exact search by cosine, and the saliencies that are compared.

The saliency of a sample at its logits is the magnitude of the cross-entropy's gradient,
:math:`|\partial H/\partial z| = |p - \mathrm{onehot}(y)|` with :math:`p = \mathrm{softmax}(z)`. With
:math:`q = \mathrm{softmax}(z_{k \ne y})`, the softmax over the *other* classes,

.. math:: p - \mathrm{onehot}(y) = (1 - p_y)\,(q - \mathrm{onehot}(y)),

so its direction, all that a cosine sees, is :math:`q` with a 1 at the label. Two things follow. The direction
is computed without the cancellation of :math:`1 - p_y`, and exists however confident the model is. And with
three classes :math:`q = (t, 1-t)`: the saliencies of one label lie on one great-circle arc, on which sorting
and a binary search find the nearest exactly, and the two ends are the farthest.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_CHUNK = 2**24  # scores held at once: 64 MB in float32, and small enough to stay near the cache
_TILE = 1024
_SQRT2, _SQRT6 = math.sqrt(2), math.sqrt(6)


def directions(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return the unit vector along :math:`\partial H/\partial z = \mathrm{softmax}(z) - \mathrm{onehot}(y)`.

    It is float64 `[B, K]`, of logits `[B, K]` and labels `[B]`, negative at the label and positive elsewhere; its
    absolute value is the direction of the saliency. It is exact even where softmax(z) has long rounded to a one-hot.

    >>> directions(torch.tensor([[1000.0, 0.0, 0.0]]), torch.tensor([0])).abs()
    tensor([[0.8165, 0.4082, 0.4082]], dtype=torch.float64)
    """
    column = labels[:, None]
    others = logits.double().scatter(1, column, -math.inf).softmax(1)
    return torch.nn.functional.normalize(others.scatter(1, column, -1.0), dim=1)


def cosine_extremes(queries: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for each query, which candidate has the highest and which the lowest cosine.

    A matrix product in chunks of queries: exact up to the rounding of the vectors' type, for any K, in
    memory that does not grow with the number of queries.

    Parameters
    ----------
    queries, candidates
        `[n, K]` and `[m, K]`, of one floating type. The cosine to a zero vector is 0.

    Returns
    -------
    tuple[Tensor, Tensor]
        Row numbers of candidates, int64 `[n]` each: the nearest and the farthest. Ties go to the first.

    >>> a, b = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0], [3.0, 3.0], [1.0, 0.1]])
    >>> cosine_extremes(a, b)
    (tensor([2]), tensor([0]))
    """
    _check(queries, candidates)
    queries, candidates = _unit(queries), _unit(candidates)
    m, tile = len(candidates), min(_TILE, len(candidates))
    # Whole tiles: the last one is filled with copies of the first candidate, which stand for it.
    columns = torch.cat([candidates, candidates[:1].expand(-m % tile, -1)]).T
    rows = max(1, _CHUNK // m)
    buffer = queries.new_empty(min(rows, len(queries)), columns.shape[1])
    nearest = torch.empty(len(queries), dtype=torch.int64, device=queries.device)
    farthest = torch.empty_like(nearest)
    for start in range(0, len(queries), rows):
        chunk = queries[start : start + rows]
        # One buffer for all chunks: fresh memory would cost more than the product.
        scores = torch.mm(chunk, columns, out=buffer[: len(chunk)]).view(len(chunk), -1, tile)
        nearest[start : start + rows] = _first(scores, torch.amax, torch.argmax)
        farthest[start : start + rows] = _first(scores, torch.amin, torch.argmin)
    return torch.where(nearest < m, nearest, 0), torch.where(farthest < m, farthest, 0)


def arc_extremes(queries: Tensor, candidates: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return what `cosine_extremes` does, for the saliencies of three classes, in O((n + m) log m).

    The saliency of a sample with label y is a multiple of :math:`\mathrm{onehot}(y) + q`: a point of the plane
    :math:`v_y = v_a + v_b`, on the 60° arc around :math:`(2, 1, 1)`. On an arc, the cosine to a query falls off
    on both sides of the query's projection, so the nearest candidate is one of the two that enclose it, and
    the farthest is one of the arc's ends.

    Parameters
    ----------
    queries
        Non-negative vectors `[n, 3]`.
    candidates, labels
        Saliencies `[m, 3]`, none of them zero, and the labels `[m]` that they belong to.

    Returns
    -------
    tuple[Tensor, Tensor]
        As from `cosine_extremes`; computed in float64. Of equal candidates of one label the first is found; of others
        that tie to rounding any one, always the same.

    >>> q = torch.tensor([0.0, 0.2, 1.0])
    >>> arc = torch.stack([torch.ones(3), q, 1 - q], dim=1)
    >>> arc_extremes(torch.tensor([[1.0, 0.3, 0.7]]), arc, torch.zeros(3, dtype=torch.int64))
    (tensor([1]), tensor([2]))
    """
    _check(queries, candidates)
    queries, candidates = _unit(queries.double()), _unit(candidates.double())
    nearest = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    farthest = torch.zeros_like(nearest)
    high = queries.new_full([len(queries)], -math.inf)
    low = queries.new_full([len(queries)], math.inf)
    for label in range(3):
        members = (labels == label).nonzero()[:, 0]
        if len(members) == 0:
            continue
        # The arc's plane: its middle (2, 1, 1)/√6 and, across it, (0, 1, -1)/√2, the 2 and 0 at the label.
        middle = torch.full([3], 1 / _SQRT6, dtype=torch.float64, device=queries.device)
        middle[label] = 2 / _SQRT6
        across = torch.full_like(middle, -1 / _SQRT2)
        across[label], across[(label + 1) % 3] = 0, 1 / _SQRT2
        plane = torch.stack([middle, across], dim=1)
        place = candidates[members] @ plane  # (cos t, sin t) along the arc, |t| ≤ 30°
        slope, order = (place[:, 1] / place[:, 0]).sort(stable=True)
        # Equal candidates keep their order; the first of them stands for all.
        first = torch.searchsorted(slope, slope)
        place, members = place[order][first], members[order][first]
        shadow = queries @ plane
        after = torch.searchsorted(slope, shadow[:, 1] / shadow[:, 0]).clamp_(max=len(members) - 1)
        for at in (after, (after - 1).clamp_(min=0)):
            score = (shadow * place[at]).sum(1)
            better = score > high
            high, nearest = torch.where(better, score, high), torch.where(better, members[at], nearest)
        for end in (0, -1):
            score = shadow @ place[end]
            worse = score < low
            low, farthest = torch.where(worse, score, low), torch.where(worse, members[end], farthest)
    return nearest, farthest


def _first(scores: Tensor, best: Callable[..., Tensor], where: Callable[..., Tensor]) -> Tensor:
    """Return where in each row of tiles `[n, tiles, tile]` the best score is: which tile first, then where in it.

    The best of a tile is found by vector instructions; asking every score for its place as well would take
    longer than the product that made the scores.
    """
    tile = where(best(scores, 2), 1)
    return tile * scores.shape[2] + where(scores[torch.arange(len(scores), device=scores.device), tile], 1)


def _unit(vectors: Tensor) -> Tensor:
    """Return the vectors at length one, and zero vectors as they are; squares of tiny entries do not underflow."""
    largest = vectors.abs().amax(1, keepdim=True)
    scaled = vectors / torch.where(largest > 0, largest, 1)
    length: Tensor = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / length.clamp_min(1)  # a vector scaled to a maximum of 1 has norm ≥ 1


def _check(queries: Tensor, candidates: Tensor) -> None:
    if len(candidates) == 0:
        raise ValueError("candidates must not be empty")
    if queries.ndim != 2 or candidates.ndim != 2 or queries.shape[1] != candidates.shape[1]:
        raise ValueError(
            f"queries and candidates must be [n, K] and [m, K], got {list(queries.shape)} and {list(candidates.shape)}"
        )
