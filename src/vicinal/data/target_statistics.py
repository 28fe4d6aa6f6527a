r"""Encode the values of a category by the targets of training rows that have them: ordered target statistics.

A column of a thousand codes is too wide for a feature of each. Instead a value has, for each class, the log-odds of its
share of training rows, less those of all rows,

.. math:: t_k(v) = \operatorname{logit} \frac{s_k(v) + p_k}{n(v) + 1} - \operatorname{logit} p_k

where n rows have the value, :math:`s_k` of them are of class k, and :math:`p_k` is the share of the class in all. It is
0 for a value that no row had. A training row must not see its own target, else a model would read it off rare values.
So its statistics are those of the rows before it alone, in an order that is drawn from a seed (Prokhorenkova et al.
2018). New rows have those of all training rows.

References
----------
Micci-Barreca, "A Preprocessing Scheme for High-Cardinality Categorical Attributes", SIGKDD Explorations 2001.
Prokhorenkova, Gusev, Vorobev, Dorogush & Gulin, "CatBoost: Unbiased Boosting with Categorical Features", NeurIPS 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vicinal import _random
from vicinal._atomic import Json
from vicinal._checks import ArgumentError

#: Rows more of each value, with the shares of all rows (CatBoost's prior has the same weight).
_PRIOR_ROWS = 1.0
#: Classes at most: each is a feature.
_MOST_TARGETS = 30
#: A share of all rows is at least this far from 0 and 1, so that its log-odds are finite.
_LEAST = 1e-6

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TargetStatistics:
    """The statistics of the values of a column."""

    values: tuple[str, ...]
    log_odds: tuple[tuple[float, ...], ...]
    """Of each value, those of each target."""

    @property
    def width(self) -> int:
        """The number of targets, each of which is a feature."""
        return len(self.log_odds[0])

    def to_dict(self) -> dict[str, list[float]]:
        """Return the record as JSON can hold it."""
        return {value: list(found) for value, found in zip(self.values, self.log_odds, strict=True)}

    @classmethod
    def from_dict(cls, record: Json) -> TargetStatistics:
        """Return what `to_dict` recorded, checked: a damaged model file must not give wrong features."""
        try:
            table = np.array(list(record.values()), np.float64)
        except (TypeError, ValueError, AttributeError):
            table = np.empty(0)
        if table.ndim != 2 or not table.size or not np.isfinite(table).all():
            raise ArgumentError("statistics", record, "as many finite numbers for each value, at least one")
        return cls(tuple(record), tuple(map(tuple, table.tolist())))


def targets_of(labels: NDArray[np.int64], n_classes: int) -> Floats | None:
    """Return what statistics are of, `[N, J]` of 0 and 1: class 1 of two, every class of more, or every label.

    It is None where there are too many. Rows without a class hold zeros; they are no training rows.

    >>> targets_of(np.array([0, 1, 1]), 2)
    array([[0.],
           [1.],
           [1.]])
    """
    if labels.ndim == 2:
        return labels.astype(np.float64) if labels.shape[1] <= _MOST_TARGETS else None
    if n_classes > _MOST_TARGETS:
        return None
    found: Floats = (labels[:, None] == np.arange(1 if n_classes == 2 else 0, n_classes)).astype(np.float64)
    return found


def statistics(values: tuple[str, ...], codes: NDArray[np.int64], targets: Floats) -> TargetStatistics:
    """Return the statistics of values: `codes` `[N]` are the places of the training rows' values, -1 for others."""
    known = codes >= 0
    counts = np.bincount(codes[known], minlength=len(values))
    sums = [np.bincount(codes[known], target[known], len(values)) for target in targets.T]
    found = _log_odds(np.array(sums, np.float64).T, counts, _prior(targets))
    return TargetStatistics(values, tuple(map(tuple, found.tolist())))


def ordered(codes: NDArray[np.int64], targets: Floats, seed: int) -> Floats:
    """Return the statistics of each training row, `[N, J]`, by the rows before it in an order drawn from the seed.

    Values that occur once tell a model nothing of their rows:

    >>> ordered(np.arange(4), np.array([[0.0], [1.0], [0.0], [1.0]]), seed=0).tolist()
    [[0.0], [0.0], [0.0], [0.0]]
    """
    order = _random.resampler(_random.seed_from("target statistics", seed)).permutation(len(codes))
    order = order[codes[order] >= 0]
    order = order[np.argsort(codes[order], kind="stable")]  # rows of a value side by side, in the order drawn
    code, target = codes[order], targets[order]
    starts = np.flatnonzero(np.diff(code, prepend=-1))
    first = np.repeat(starts, np.diff(starts, append=len(code)))
    before = np.cumsum(target, axis=0) - target
    found = np.zeros(targets.shape)
    if len(order):
        found[order] = _log_odds(before - before[first], np.arange(len(code)) - first, _prior(targets))
    return found


def _prior(targets: Floats) -> Floats:
    prior: Floats = np.clip(targets.mean(axis=0), _LEAST, 1 - _LEAST)
    return prior


def _log_odds(sums: Floats, counts: NDArray[np.signedinteger], prior: Floats) -> Floats:
    """Return the log-odds of shares, less those of all rows: `sums` `[V, J]` of `counts` `[V]` rows."""
    share = (sums + _PRIOR_ROWS * prior) / (counts[:, None] + _PRIOR_ROWS)
    found: Floats = np.log(share) - np.log1p(-share) - np.log(prior) + np.log1p(-prior)
    return found
