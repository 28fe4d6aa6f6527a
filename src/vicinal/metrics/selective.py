r"""Selective prediction: answer where confidence is high, abstain elsewhere; how often the answers are wrong.

A rule accepts every sample whose confidence lies **above** a threshold. Its coverage is the share of samples it
accepts, its risk the share of wrong predictions among these:

.. math::
    \phi(t) = \frac1n \sum_i [c_i > t], \qquad r(t) = \frac{\sum_i [c_i > t]\,[\text{wrong}_i]}{\sum_i [c_i > t]}

Samples of equal confidence are accepted or rejected together, since no threshold separates them. Confidence may be
any finite number of which more means more confident: the highest probability, or a score of `vicinal.metrics.ood`.

References
----------
El-Yaniv & Wiener, "On the foundations of noise-free selective classification", JMLR 2010.
Geifman & El-Yaniv, "Selective Classification for Deep Neural Networks", NeurIPS 2017.
Geifman, Uziel & El-Yaniv, "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers", ICLR 2019 (AURC and
excess AURC).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, betaincinv, digamma

from vicinal._arrays import as_array, as_vector
from vicinal._checks import ArgumentError, integer, number
from vicinal.metrics.chunks import Array
from vicinal.metrics.intervals import Estimate, Moments, clopper_pearson, mean_interval
from vicinal.metrics.reliability import ReliabilityTable, checked_correct

Counts = NDArray[np.int64]

#: Shares of the samples at which `risk_threshold` starts to test, and what part of δ it has there.
_STARTS = ((1 / 8, 0.3), (1 / 4, 0.3), (1 / 2, 0.3), (1, 0.1))


def risk_coverage(confidence: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """Return the risk–coverage curve of confidences `[N]` and whether each prediction was right `[N]`.

    Parameters
    ----------
    confidence
        Any finite numbers; more means more confident. From predictions: `evaluate(…).samples.confidence`.
    correct
        True or False (1 or 0) each.

    Returns
    -------
    RiskCoverage
        The curve, with `coverage`, `risk`, `thresholds` and the area below it.

    Examples
    --------
    >>> curve = risk_coverage([0.9, 0.8, 0.8, 0.6], [True, True, False, False])
    >>> curve.coverage.tolist(), curve.risk.round(4).tolist()
    ([0.25, 0.75, 1.0], [0.0, 0.3333, 0.5])
    >>> curve.thresholds.tolist()  # accept confidence > threshold
    [0.8, 0.6, -inf]
    """
    confidences, right = as_vector("confidence", confidence), checked_correct(correct)
    if len(confidences) != len(right):
        raise ValueError(f"confidence and correct must have the same length, got {len(confidences)} and {len(right)}")
    # Samples of one confidence are accepted together or not at all: a rule that split them would depend on their order.
    distinct, place = np.unique(confidences, return_inverse=True)
    n_correct = np.bincount(place[right], minlength=len(distinct))
    return RiskCoverage.from_counts(distinct, np.bincount(place, minlength=len(distinct)), n_correct)


@dataclass(frozen=True, eq=False, repr=False)
class RiskCoverage:
    """Every rule that a threshold on the confidence can make, from the strictest to the one that accepts all.

    Made by `risk_coverage` from samples, by `from_counts` from counts by confidence, or by `from_table` from a
    reliability table of many bins, which streams and merges in constant memory.

    Attributes
    ----------
    confidences
        The distinct ones that occur, falling, `[G]`.
    counts, errors
        Samples at each, and how many of them are wrong, `[G]`.

    Examples
    --------
    >>> from vicinal import risk_coverage
    >>> curve = risk_coverage([0.9, 0.8, 0.6, 0.5], [True, True, False, True])
    >>> curve.confidences.tolist(), curve.errors.tolist()
    ([0.9, 0.8, 0.6, 0.5], [0, 0, 1, 0])
    """

    confidences: Array
    counts: Counts
    errors: Counts

    @classmethod
    def from_counts(cls, confidences: ArrayLike, counts: ArrayLike, n_correct: ArrayLike) -> RiskCoverage:
        """Build the curve from the number of samples, and of right ones, at each confidence.

        For a histogram with bins (lo, hi] give the upper edges: the samples of a bin are accepted together, so the
        curve has a point per bin, and each of its points is exactly that of the samples.

        Parameters
        ----------
        confidences
            Strictly increasing finite numbers, `[G]`.
        counts, n_correct
            Whole numbers `[G]` with 0 ≤ n_correct ≤ counts. Confidences without a sample are left out.

        Examples
        --------
        >>> RiskCoverage.from_counts([0.6, 0.8, 0.9], [1, 2, 1], [0, 1, 1])
        RiskCoverage(n=4, n_confidences=3, aurc=0.2917)
        """
        rising = as_vector("confidences", confidences)
        if not bool((np.diff(rising) > 0).all()):
            raise ValueError("confidences must increase strictly")
        count, right = _whole("counts", counts, len(rising)), _whole("n_correct", n_correct, len(rising))
        if bool((right > count).any()):
            at = int((right > count).argmax())
            raise ValueError(f"n_correct must be at most counts, got {right[at]} of {count[at]} at {rising[at]:g}")
        # Falling, so that cumulative sums run from the strictest rule to the one that accepts all.
        filled = np.flatnonzero(count)[::-1]
        if not len(filled):
            raise ValueError("counts are all 0: there is nothing to measure")
        return cls(rising[filled], count[filled], (count - right)[filled])

    @classmethod
    def from_table(cls, table: ReliabilityTable) -> RiskCoverage:
        """Build the curve from a reliability table, a point per bin; the more bins, the closer to that of the samples.

        >>> table = ReliabilityTable(10_000).update_confidences([0.9, 0.8, 0.8, 0.6], [1, 1, 0, 0])
        >>> RiskCoverage.from_table(table).risk.round(4).tolist()
        [0.0, 0.3333, 0.5]
        """
        if not isinstance(table, ReliabilityTable):
            raise TypeError(f"table must be a ReliabilityTable, got {type(table).__name__}")
        # Upper edges: bins are (lo, hi], so that a threshold at an edge accepts the bins above it and no part of one.
        return cls.from_counts(table.edges[1:], table.bin_count, table.counts[:, 1])

    def __repr__(self) -> str:
        return f"RiskCoverage(n={self.n}, n_confidences={len(self.confidences)}, aurc={self.aurc:.4g})"

    @property
    def n(self) -> int:
        """The number of samples."""
        return int(self.counts.sum())

    @property
    def n_accepted(self) -> Counts:
        """How many samples each rule accepts, rising, `[G]`."""
        accepted: Counts = np.cumsum(self.counts)
        return accepted

    @property
    def coverage(self) -> Array:
        """The share of samples each rule accepts, rising to 1, `[G]`."""
        share: Array = self.n_accepted / self.n
        return share

    @property
    def risk(self) -> Array:
        """The share of wrong predictions among those each rule accepts, `[G]`."""
        share: Array = np.cumsum(self.errors) / self.n_accepted
        return share

    @property
    def thresholds(self) -> Array:
        """Each rule accepts confidence > threshold; falling, −inf for the rule that accepts all, `[G]`."""
        return np.append(self.confidences[1:], -np.inf)

    @property
    def aurc(self) -> float:
        r"""The area under the risk–coverage curve: the mean, over samples, of the risk at their confidence or above.

        .. math:: \frac1n \sum_i \frac{\sum_j [c_j \ge c_i]\,[\text{wrong}_j]}{\sum_j [c_j \ge c_i]}
        """
        return float(self.counts @ self.risk / self.n)

    @property
    def excess_aurc(self) -> float:
        r"""AURC less that of the best order for as many errors E, in which all right predictions come first.

        .. math:: \mathrm{AURC}^* = \frac1n \sum_{j=1}^{E} \frac{j}{n - E + j}

        It measures the confidence alone, while AURC grows with the error rate too.
        """
        wrong = int(self.errors.sum())
        return max(self.aurc - _sum_of_ratios(wrong, self.n - wrong) / self.n, 0.0)

    def aurc_estimate(self, level: float = 0.95) -> Estimate:
        r"""Return AURC with its confidence interval, which costs a pass over the confidences.

        The delta method: a sample with confidence c and error e moves AURC, when its weight grows, by

        .. math:: r(c) - \mathrm{AURC} + \frac1n \sum_{i:\,c_i \le c} \frac{e - r(c_i)}{\phi(c_i)}

        (with r and φ of the samples at its confidence or above), and AURC has the interval of a mean of these
        influences, among them that of one more mistake anywhere (`mean_interval`). Where all predictions are right, or
        all wrong, they show no spread: the other end is then that of the error rate's interval, which is the AURC of a
        curve that is flat at that rate.

        >>> print(risk_coverage([0.9, 0.8, 0.8, 0.6] * 50, [True, True, False, False] * 50).aurc_estimate())
        0.2917 [0.2220, 0.3612]
        """
        n, wrong = self.n, int(self.errors.sum())
        # Without both kinds of answers no influence differs from another, and a mean of them would have no width.
        if wrong in (0, n):
            low, high = clopper_pearson(wrong, n, level)
            return Estimate(self.aurc, float(low), float(high))
        risk, share = self.risk, self.counts / n
        # Sums over the samples of this confidence and less: from the last up.
        weight = np.cumsum((share / self.coverage)[::-1])[::-1]
        pull = np.cumsum((share * risk / self.coverage)[::-1])[::-1]
        # A sample's influence depends on its confidence and on whether it is right, so two numbers a confidence
        # suffice.
        right, false = (risk - self.aurc + e * weight - pull for e in (0, 1))
        well = self.counts - self.errors
        moments = Moments(
            n,
            self.aurc,
            float(well @ right**2 + self.errors @ false**2),
            cubes=float(well @ right**3 + self.errors @ false**3),
        )
        return mean_interval(moments, level, low=0.0, high=1.0, mistake=self.aurc + float(share @ false))

    def coverage_at_risk(self, risk: float) -> float:
        """Return the largest coverage at which the risk of these samples is at most `risk`; 0 where there is none.

        It looks back at these samples. For a guarantee about new ones, use `risk_threshold`.

        >>> risk_coverage([0.9, 0.8, 0.8, 0.6], [True, True, False, False]).coverage_at_risk(0.4)
        0.75
        """
        wanted = number("risk", risk, low=0, high=1)
        return float(self.coverage[self.risk <= wanted].max(initial=0.0))

    def risk_at_coverage(self, coverage: float) -> float:
        """Return the risk of the strictest rule that accepts at least this share of the samples.

        >>> risk_coverage([0.9, 0.8, 0.8, 0.6], [True, True, False, False]).risk_at_coverage(0.25)
        0.0
        """
        wanted = number("coverage", coverage, above=0, high=1)
        # Rounding must not reject a rule that accepts exactly this share: 0.07 · 100 is 7.000000000000001.
        return float(self.risk[int((self.n_accepted >= wanted * self.n * (1 - 1e-12)).argmax())])

    def risk_threshold(self, max_risk: float, *, level: float = 0.95, n_rules: int = 200) -> RiskThreshold:
        """Return the threshold with a guarantee; see the function `risk_threshold`."""
        wanted = number("max_risk", max_risk, low=0, high=1)
        if not 0 < number("level", level) < 1:
            raise ArgumentError("level", level, "a number in (0, 1)")
        m, n = integer("n_rules", n_rules, low=1), self.n
        # Rule j rejects the sample of this rank and all that are no more confident; the last rule rejects none.
        ranks = np.arange(1, m, dtype=np.int64) * n // m + 1
        # A rule ends before the confidence of the sample it rejects, so equal confidences are rejected together.
        last = np.append(np.searchsorted(self.n_accepted, ranks), len(self.confidences))
        accepted = np.concatenate([[0], self.n_accepted])[last]
        wrong = np.concatenate([[0], np.cumsum(self.errors)])[last]
        tail = np.where(accepted > 0, bdtr(wrong, accepted, wanted), 1.0)  # P(so few errors) at the risk asked for
        passed = _fallback(tail, _shares(accepted, wanted, 1 - level))
        # No rule passed: the guarantee still holds, since a rule that accepts nothing is never wrong.
        if not len(passed):
            return RiskThreshold(math.inf, 0.0, math.nan, math.nan, 0, n, wanted, level)
        best, spent = passed[-1]  # each rule accepts at least what the one before accepts
        k, e = int(accepted[best]), int(wrong[best])
        threshold = float(np.append(self.confidences, -np.inf)[last[best]])
        # At the level that this rule's test has spent, not at the whole level: the other rules were tested too.
        bound = float(binomial_upper(e, k, 1 - spent))
        return RiskThreshold(threshold, k / n, e / k, bound, k, n, wanted, level)


@dataclass(frozen=True)
class RiskThreshold:
    """A rule whose risk on new data is bounded: accept confidence > `threshold`. Made by `risk_threshold`.

    Attributes
    ----------
    threshold
        `inf` where no rule reaches the risk: abstain always. `-inf` where it is reached by accepting everything.
    coverage, risk, n_accepted
        Of the rule on the held-out samples; the risk is NaN where none is accepted.
    upper_bound
        What the risk on new data stays below, with probability `level`; NaN where none is accepted.
    n, max_risk, level
        Held-out samples, and what was asked.

    Examples
    --------
    >>> from vicinal import risk_threshold
    >>> rule = risk_threshold(np.arange(1000) / 1000, np.arange(1000) > 300, max_risk=0.05)
    >>> rule.threshold, rule.coverage, rule.upper_bound < 0.05
    (0.274, 0.725, True)
    """

    threshold: float
    coverage: float
    risk: float
    upper_bound: float
    n_accepted: int
    n: int
    max_risk: float
    level: float

    def accepts(self, confidence: ArrayLike) -> NDArray[np.bool_]:
        """Return which confidences `[N]` the rule accepts, `[N]`."""
        accepted: NDArray[np.bool_] = as_vector("confidence", confidence) > self.threshold
        return accepted

    def to_dict(self) -> dict[str, float | int | None]:
        """Return plain numbers for a JSON file, None where one is infinite or unknown; `n_accepted` tells which."""
        return {name: value if math.isfinite(value) else None for name, value in vars(self).items()}

    def __str__(self) -> str:
        asked = f"risk of at most {self.max_risk:g} at confidence level {100 * self.level:g} %"
        if not self.n_accepted:
            return f"no threshold reaches a {asked} on {self.n:,} held-out samples: abstain on everything"
        rule = "accept everything" if self.threshold == -math.inf else f"accept confidence > {self.threshold:.6g}"
        return (
            f"{rule}: {asked} (bound {self.upper_bound:.4f}); of {self.n:,} held-out samples it accepts "
            f"{100 * self.coverage:.1f} % at risk {self.risk:.4f}"
        )


def risk_threshold(
    confidence: ArrayLike, correct: ArrayLike, max_risk: float, *, level: float = 0.95, n_rules: int = 200
) -> RiskThreshold:
    r"""Return the loosest threshold whose risk on new data is at most `max_risk`, with a guarantee.

    With probability `level` over the held-out samples, the risk :math:`R = P(\text{wrong} \mid c > t)` of
    the threshold t it returns is at most `max_risk`. That holds for any model, any confidence (ties too) and any
    number of samples, provided that these are independent draws from what new data will be, and were used neither to
    train nor to calibrate the model. Where no rule can guarantee it, the threshold is `inf`: abstain on everything.

    With m = `n_rules`, rule j < m rejects the (⌊jn/m⌋ + 1)-th most confident of the n samples and all that are no more
    confident; rule m accepts everything. A rule with e errors among the k it accepts is tested by

    .. math:: P(\mathrm{Bin}(k, \text{max\_risk}) \le e) \le \delta_j

    from the strictest to the loosest, and the loosest that passes is returned. The levels :math:`\delta_j` are those of
    the fallback procedure: of :math:`\delta = 1 -` `level` three tenths each start at the rules that accept an eighth,
    a quarter and half of the samples, the last tenth at the one that accepts all; a rule that passes hands its
    :math:`\delta_j` on to the next, one that fails loses it. So δ is not divided by the number of rules, and bad luck
    among the very surest does not end it all. A start with so few samples that a single error would fail it hands its
    part on untested: that depends on numbers of samples only.

    *Why it holds although the same samples choose the threshold.* The rules are set by ranks, not by errors: given the
    confidence t at a rank and the number k of samples above it, those k are independent draws with confidence above t,
    and their errors are Bin(k, R(t)). Let the risk R(t) not fall as t does. Then the rules that break the guarantee are
    those from some rule J on, and J depends on confidences only. The first of them passes with probability at
    most what it is tested at, the shares of the starts up to J; if it fails, another needs to pass at a later start, of
    which each does with probability at most its share: together at most δ. Where R(t) rises and falls, J may
    depend on where the confidences lie, by a rule or so; the tests simulate such cases. The guarantee is for one
    `max_risk`; for several at once divide 1 − `level` among them.

    Parameters
    ----------
    confidence, correct
        Of held-out samples, `[N]` each, as for `risk_coverage`.
    max_risk
        In [0, 1].
    level
        1 − δ, in (0, 1).
    n_rules
        m: coverage comes in steps of 1/m. To guarantee a risk r at all takes log(1/δ) / r accepted samples
        without an error: 59 for r = 0.05, 299 for r = 0.01.

    Returns
    -------
    RiskThreshold
        The threshold, with the coverage and the risk that it has on the held-out samples.

    References
    ----------
    Clopper & Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", 1934.
    Geifman & El-Yaniv, "Selective Classification for Deep Neural Networks", NeurIPS 2017.
    Wiens & Dmitrienko, "The fallback procedure for evaluating a single family of hypotheses", Journal of
    Biopharmaceutical Statistics 2005.
    Angelopoulos et al., "Learn then Test: Calibrating Predictive Algorithms to Achieve Risk Control", 2021 (fixed
    sequences of tests, with several starts).

    Examples
    --------
    >>> confidence = np.arange(1000) / 1000
    >>> correct = confidence > 0.3  # wrong exactly where confidence is lowest
    >>> print(risk_threshold(confidence, correct, 0.05))
    accept confidence > 0.274: risk of at most 0.05 at confidence level 95 % (bound 0.0498); of 1,000 held-out samples
    it accepts 72.5 % at risk 0.0359
    >>> risk_threshold(confidence[:50], correct[:50], 0.05).threshold
    inf
    """
    curve = risk_coverage(confidence, correct)
    return curve.risk_threshold(max_risk, level=level, n_rules=n_rules)


def _shares(accepted: Counts, max_risk: float, delta: float) -> Array:
    """Return the part of δ that starts at each rule, `[m]`, given how many samples each accepts."""
    shares, carried = np.zeros(len(accepted)), 0.0
    for start, part in _STARTS:
        rule = math.ceil(start * len(accepted)) - 1
        carried += delta * part
        k = int(accepted[rule])
        if start == 1 or (k > 1 and bdtr(1, k, max_risk) <= carried):
            shares[rule] += carried
            carried = 0.0
    return shares


def _fallback(tail: Array, share: Array) -> list[tuple[int, float]]:
    """Return the rules that pass, in order, each with the level it passed at, from p-values and shares of δ, `[m]`."""
    passed: list[tuple[int, float]] = []
    level = 0.0
    for rule, (p, new) in enumerate(zip(tail, share, strict=True)):
        level += new
        if p <= level:
            passed.append((rule, float(level)))
        else:
            level = 0.0
    return passed


def binomial_upper(errors: ArrayLike, n: ArrayLike, level: float) -> Array:
    """Return the one-sided Clopper–Pearson upper bound of a proportion, elementwise; 1 where all are errors or n is 0.

    >>> binomial_upper([0, 10], 10, 0.95).round(4).tolist()
    [0.2589, 1.0]
    """
    e, k = np.broadcast_arrays(np.asarray(errors, np.float64), np.asarray(n, np.float64))
    bound: Array = np.where(e >= k, 1.0, betaincinv(e + 1, np.maximum(k - e, 1), level))
    return bound


def _sum_of_ratios(n: int, offset: float) -> float:
    """Return Σ_{j=1}^{n} j / (offset + j), in constant time and memory."""
    return n - offset * float(digamma(offset + n + 1) - digamma(offset + 1))


def _whole(name: str, value: object, n: int) -> Counts:
    numbers = as_array(name, value).astype(np.float64)
    if numbers.shape != (n,):
        raise ValueError(f"{name} must have shape [{n}] like confidences, got {list(numbers.shape)}")
    bad = numbers[~((numbers >= 0) & (numbers == np.floor(numbers)) & (numbers < 2**53))]
    if len(bad):
        raise ValueError(f"{name} must be whole numbers of at least 0, got {bad[0]:g}")
    whole: Counts = numbers.astype(np.int64)
    return whole
