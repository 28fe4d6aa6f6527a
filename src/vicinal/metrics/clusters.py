r"""Samples that come in groups, such as images of one patient: how many independent ones they are worth.

Samples of a group are alike, so n of them say less than n independent ones. Let :math:`v_i` be what sample i adds to a
metric, which is their mean, and :math:`S_g` the sum of :math:`v_i - \bar v` over the :math:`n_g` samples of group g.

.. math::
    \text{design effect} = \frac{\frac{G}{G - 1} \sum_g S_g^2}{\frac{n}{n - 1} \sum_i (v_i - \bar v)^2}
    \left(\frac{t_{G - 1}}{t_{n - 1}}\right)^2, \qquad G = \frac{n^2}{\sum_g n_g^2}

is how much the variance of the metric grows, at least 1. G is the number of groups if all have one size, and less if a
few are large. All sums that a metric derives from are divided by the design effect, and its interval is that of so many
fewer samples. For an accuracy this is the interval of Korn & Graubard (1998). Where no prediction is wrong, samples do
not show how mistakes cluster, and each group counts as one sample.

**Weights** :math:`w_i`, with mean 1, fit in here. The mean is :math:`\bar v = \frac1n \sum_i w_i v_i`, and each
:math:`v_i - \bar v` and each sample of :math:`n_g` counts :math:`w_i` times. Without groups each sample is one, and G
is the effective sample size of Kish (1965), :math:`n^2 / \sum_i w_i^2`.

References
----------
Korn & Graubard, "Confidence intervals for proportions with small expected number of positive counts estimated from
survey data", Survey Methodology 1998.
Carter, Schnepel & Steigerwald, "Asymptotic behavior of a t-test robust to cluster heterogeneity", Review of Economics
and Statistics 2017 (the effective number of groups).
Kish, "Survey Sampling", Wiley 1965 (the effective sample size of weights).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from vicinal._arrays import as_vector
from vicinal._checks import ArgumentError
from vicinal.metrics.chunks import Array


@dataclass(frozen=True, eq=False)
class Groups:
    """Which samples belong together, and how much each counts.

    >>> groups = Groups.of(["ann", "bob", "ann"], 3)
    >>> groups.codes, groups.n
    (array([0, 1, 0]), 2)
    """

    codes: NDArray[np.int64]
    """The number of each sample's group, from 0, `[N]`."""
    weights: Array | None = None
    """How much each sample counts, with mean 1, `[N]`; None where all count the same."""

    @classmethod
    def of(cls, groups: ArrayLike | Groups | None, n: int, sample_weight: ArrayLike | None = None) -> Groups:
        """Take the name or number of each sample's group, `[n]`, and how much each sample counts, `[n]`."""
        if isinstance(groups, Groups):
            return groups
        weights = None if sample_weight is None else checked_weights(sample_weight, n)
        if groups is None:
            return cls(np.arange(n), weights)
        names = np.asarray(groups)
        if names.shape != (n,):
            raise ArgumentError("groups", f"shape {list(names.shape)}", f"one for each of the {n:,} samples")
        codes = np.unique(names, return_inverse=True)[1].astype(np.int64)
        if n and not codes.any():
            raise ArgumentError("groups", f"{names[0]!r} for all samples", "at least two groups")
        return cls(codes, weights)

    @property
    def n(self) -> int:
        """The number of groups."""
        return len(self.sizes)

    @cached_property
    def sizes(self) -> NDArray[np.number]:
        """The number of samples of each group, or the sum of their weights."""
        return np.bincount(self.codes, self.weights)

    @cached_property
    def effective(self) -> float:
        """The number of groups of one size that would say as much."""
        return float(self.sizes.sum() ** 2 / (self.sizes.astype(np.float64) ** 2).sum())

    def mean(self, values: Array) -> Array:
        """Return the mean of values `[..., N]`, by weight, `[..., 1]`."""
        mean: Array = np.average(values, axis=-1, weights=self.weights, keepdims=True)
        return mean

    def totals(self, values: Array) -> Array:
        """Return the sum of what values `[..., N]` are away from their mean, over each group, `[..., G]`."""
        away = values - self.mean(values)
        away = away if self.weights is None else self.weights * away
        flat = away.reshape(-1, away.shape[-1])
        sums: Array = np.stack([np.bincount(self.codes, row, self.n) for row in flat]).astype(np.float64)
        return sums.reshape(*away.shape[:-1], self.n)

    def means(self, values: Array) -> Array:
        """Return numbers `[..., G]` of groups, whose mean is that of values `[..., N]` and whose spread its error."""
        mean: Array = self.mean(values) + self.totals(values) * self.n / values.shape[-1]
        return mean

    def design_effect(self, values: Array, level: float, *, any_wrong: bool = True) -> float:
        """Return by how much the variance of the mean of values `[N]` grows as groups are alike, at least 1."""
        n, groups = len(values), self.effective
        squares = (values - self.mean(values)) ** 2
        alone = float(squares.sum() if self.weights is None else self.weights @ squares) * n / (n - 1)
        least = 1.0 if any_wrong else n / groups
        if alone <= 0:
            return n / max(round(groups), 2)
        together = float((self.totals(values) ** 2).sum()) * groups / (groups - 1)
        t, usual = (float(stdtrit(k - 1, (1 + level) / 2)) for k in (groups, n))
        times = max(together / alone, least) * (t / usual) ** 2
        return n / max(round(n / times), 2)


def checked_weights(sample_weight: ArrayLike, n: int, name: str = "sample_weight") -> Array:
    """Return weights `[n]` of samples, scaled to a mean of 1; they are at least 0, and some are above it.

    >>> checked_weights([1, 3], 2).tolist()
    [0.5, 1.5]
    """
    given = as_vector(name, sample_weight)
    if len(given) != n:
        raise ArgumentError(name, f"{len(given):,} numbers", f"one for each of the {n:,} samples")
    # Written with `not`, so that NaN is refused too.
    bad = np.flatnonzero(~((given >= 0) & (given < np.inf)))
    if len(bad):
        raise ArgumentError(name, f"{given[bad[0]]:g} in row {bad[0] + 1:,}", "numbers of at least 0")
    if not given.any():
        raise ArgumentError(name, "zero in every row", "numbers of which some are above 0")
    weights: Array = given / given.mean()
    return weights
