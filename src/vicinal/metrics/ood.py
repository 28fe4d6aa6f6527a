r"""Out-of-distribution detection: how well a score tells familiar inputs from foreign ones.

**Every score here is higher for what looks in-distribution**, and every metric takes the scores of in-distribution
samples first. In-distribution is the positive class, except in `aupr_out`.

=====================  ==================================================================================
`max_probability`      :math:`\max_k p_k` (Hendrycks & Gimpel 2017)
`negative_entropy`     :math:`\sum_k p_k \log p_k`, minus the entropy
`energy`               :math:`T \log \sum_k \exp(z_k / T)`, minus the free energy (Liu et al. 2020)
`margin`               :math:`p_{(1)} - p_{(2)}`, the highest probability less the second
=====================  ==================================================================================

References
----------
Hendrycks & Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks", ICLR
2017 (AUROC, AUPR both ways).
Liang, Li & Srikant, "Enhancing the Reliability of Out-of-distribution Image Detection in Neural Networks", ICLR 2018
(FPR at 95 % TPR).
Liu, Wang, Owens & Li, "Energy-based Out-of-distribution Detection", NeurIPS 2020.
Thulasidasan et al., "On Mixup Training", NeurIPS 2019, Section 7, Figure 8 and Table 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._arrays import as_array, as_scores, sum_tolerance
from vicinal._checks import integer, number
from vicinal.metrics.chunks import CHUNK, Array
from vicinal.metrics.intervals import Estimate, clopper_pearson, confidence_level, quantiles
from vicinal.metrics.ranking import Counts, ranking_of_counts


def max_probability(logits: ArrayLike | None = None, *, probs: ArrayLike | None = None) -> Array:
    """Return the highest probability of each sample, `[N]`; higher is more in-distribution.

    Parameters
    ----------
    logits, probs
        `[N, K]`: exactly one of the two, here and in the other scores.

    Returns
    -------
    ndarray
        The scores, float64 `[N]`, in [1/K, 1].

    Examples
    --------
    >>> max_probability(probs=[[0.7, 0.2, 0.1]])
    array([0.7])
    """
    return _scored(lambda p: p.max(axis=1), logits, probs)


def negative_entropy(logits: ArrayLike | None = None, *, probs: ArrayLike | None = None) -> Array:
    """Return Σ p log p (in nats, at most 0) of each sample, `[N]`; higher is more in-distribution.

    Returns
    -------
    ndarray
        The scores, float64 `[N]`, in [−log K, 0].

    Examples
    --------
    >>> negative_entropy(probs=[[0.5, 0.5], [1.0, 0.0]]).round(4) + 0.0
    array([-0.6931,  0.    ])
    """
    return _scored(lambda p: (p * np.log(np.where(p > 0, p, 1))).sum(axis=1), logits, probs)


def margin(logits: ArrayLike | None = None, *, probs: ArrayLike | None = None) -> Array:
    """Return the highest probability less the second highest of each sample, `[N]`; higher is more in-distribution.

    Returns
    -------
    ndarray
        The scores, float64 `[N]`, in [0, 1].

    Examples
    --------
    >>> margin(probs=[[0.7, 0.2, 0.1]]).round(4)
    array([0.5])
    """

    def gap(p: Array) -> Array:
        if p.shape[1] < 2:
            raise ValueError(f"margin needs at least 2 classes, got {p.shape[1]}")
        top = np.partition(p, -2, axis=1)
        difference: Array = top[:, -1] - top[:, -2]
        return difference

    return _scored(gap, logits, probs)


def energy(logits: ArrayLike, *, temperature: float = 1.0) -> Array:
    r"""Return :math:`T \log \sum_k \exp(z_k / T)` of each sample, `[N]`; **higher is more in-distribution**.

    This is minus the free energy of Liu et al. (2020). Unlike the other scores it needs the logits as the model gave
    them: it changes when a constant is added to a row, and at T = 1 it is 0 for every row of log-probabilities, such as
    `MCDropout` and `Ensemble` return.

    Returns
    -------
    ndarray
        The scores, float64 `[N]`, of any sign.

    Examples
    --------
    >>> energy([[0.0, 0.0]]).round(4)
    array([0.6931])
    """
    heat = number("temperature", temperature, above=0)

    def free(z: Array) -> Array:
        top = z.max(axis=1)
        result: Array = top + heat * np.log(np.exp((z - top[:, None]) / heat).sum(axis=1))
        return result

    return _by_chunks(free, "logits", logits)


def fpr_at_tpr(in_scores: ArrayLike, out_scores: ArrayLike, *, tpr: float = 0.95) -> float:
    """Return the share of out-of-distribution samples taken for in-distribution where `tpr` of the latter are.

    The threshold is the highest score that at least the share `tpr` of in-distribution samples reach.

    Returns
    -------
    float
        The false positive rate, in [0, 1]; lower is better.

    Examples
    --------
    >>> fpr_at_tpr([0.9, 0.8, 0.7, 0.6], [0.75, 0.2], tpr=0.75)
    0.5
    """
    ordered = Counts.of(in_scores, out_scores, ("in_scores", "out_scores"))
    return float(_fpr(ordered, _rank_of(ordered, tpr)))


@dataclass(frozen=True)
class OODReport:
    """How well a score separates two sets of samples, each metric an `Estimate`. Made by `ood_report`.

    Examples
    --------
    >>> from vicinal import ood_report
    >>> report = ood_report([0.9, 0.8, 0.7], [0.6, 0.75])
    >>> report.n_in, report.n_out, round(report.auroc.value, 3)
    (3, 2, 0.833)
    """

    n_in: int
    """Samples in distribution."""
    n_out: int
    """Samples out of distribution."""
    level: float
    """Confidence level of the intervals."""
    tpr: float
    """The true positive rate of `fpr_at_tpr`."""
    auroc: Estimate
    """Area under the ROC curve; 0.5 is chance, below it the score points the wrong way."""
    aupr_in: Estimate
    """Average precision with samples in distribution as positive."""
    aupr_out: Estimate
    """Average precision with samples out of distribution as positive."""
    fpr_at_tpr: Estimate
    """Share of out-of-distribution samples accepted when `tpr` of the others are; lower is better."""
    edges: Array = field(repr=False, compare=False)
    """Of the bins of both histograms, `[n_bins + 1]`; the last bin holds its upper edge."""
    in_counts: NDArray[np.int64] = field(repr=False, compare=False)
    """The histogram of the scores in distribution, `[n_bins]`."""
    out_counts: NDArray[np.int64] = field(repr=False, compare=False)
    """The histogram of the scores out of distribution, `[n_bins]`."""

    @property
    def metrics(self) -> dict[str, Estimate]:
        """The estimates by name, in order."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Estimate)}

    def to_dict(self) -> dict[str, object]:
        """Return plain numbers for a JSON file: sizes, metrics and histograms."""
        sizes = {"n_in": self.n_in, "n_out": self.n_out, "level": self.level, "tpr": self.tpr}
        histograms = {name: getattr(self, name).tolist() for name in ("edges", "in_counts", "out_counts")}
        return {**sizes, **{name: value.to_dict() for name, value in self.metrics.items()}, **histograms}

    def __str__(self) -> str:
        head = f"{self.n_in:,} in-distribution, {self.n_out:,} out; {100 * self.level:g} % intervals"
        names = {"fpr_at_tpr": f"fpr at {100 * self.tpr:g} % tpr"}
        return "\n".join([head, *(f"{names.get(name, name):<16} {value}" for name, value in self.metrics.items())])


def ood_report(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    tpr: float = 0.95,
    n_bins: int = 50,
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> OODReport:
    """Return AUROC, AUPR both ways, FPR at 95 % TPR and histograms of the scores of two sets of samples.

    Parameters
    ----------
    in_scores, out_scores
        Scores of in-distribution samples `[N]` and of others `[M]`, **higher for what looks in-distribution**: those of
        `max_probability` and its neighbours, or any other finite numbers.
    tpr
        Share of in-distribution samples to accept, in (0, 1].
    n_bins
        Equal bins of the histograms, from the lowest score to the highest.
    level
        Confidence level of the intervals, in (0, 1).
    n_resamples, seed
        Of the bootstrap for `fpr_at_tpr`; the other intervals are in closed form.

    Returns
    -------
    OODReport
        The metrics, each an `Estimate`, and both histograms.

    Notes
    -----
    AUROC and AUPR have the intervals of `vicinal.metrics.ranking`. The bootstrap of `fpr_at_tpr` draws ranks, not
    samples: the k-th highest of a resample of n has the rank ⌊n·Beta(k, n − k + 1)⌋, which makes it exact at the cost
    of a few thousand draws; the interval is stretched to contain Clopper and Pearson's, which speaks where the rate is
    0.

    Examples
    --------
    >>> print(ood_report([0.9, 0.8, 0.95, 0.7, 0.85] * 20, [0.4, 0.75, 0.5, 0.6] * 20))
    100 in-distribution, 80 out; 95 % intervals
    auroc            0.9500 [0.8955, 0.9777]
    aupr_in          0.9667 [0.9003, 0.9854]
    aupr_out         0.9500 [0.8728, 0.9773]
    fpr at 95 % tpr  0.2500 [0.1599, 0.3594]
    """
    level = confidence_level(level)
    n_bins, n_resamples = integer("n_bins", n_bins, low=1), integer("n_resamples", n_resamples, low=1)
    ordered = Counts.of(in_scores, out_scores, ("in_scores", "out_scores"))
    area, aupr_in = ranking_of_counts([ordered], ordered.n_positive, ordered.n_negative, level)
    _, aupr_out = ranking_of_counts([ordered.turned()], ordered.n_negative, ordered.n_positive, level)
    from vicinal._random import resampler  # here, since it imports torch, which measuring does without

    random = resampler(integer("seed", seed, low=0))
    low, high = ordered.scores[0], ordered.scores[-1]
    edges = np.linspace(low, high, n_bins + 1) if low < high else np.linspace(low - 0.5, high + 0.5, n_bins + 1)
    return OODReport(
        n_in=ordered.n_positive,
        n_out=ordered.n_negative,
        level=level,
        tpr=number("tpr", tpr, above=0, high=1),
        auroc=area,
        aupr_in=aupr_in,
        aupr_out=aupr_out,
        fpr_at_tpr=_fpr_estimate(ordered, tpr, level, n_resamples, random),
        edges=edges,
        in_counts=_histogram(ordered.scores, ordered.positive, edges),
        out_counts=_histogram(ordered.scores, ordered.negative, edges),
    )


def _rank_of(counts: Counts, tpr: float) -> int:
    """Return the least number of positives that is a share `tpr` of them."""
    wanted = number("tpr", tpr, above=0, high=1) * counts.n_positive
    return max(1, math.ceil(wanted * (1 - 1e-12)))  # 0.07 · 100 is 7.000000000000001


def _fpr(counts: Counts, rank: Array | int) -> Array:
    """Return the share of negatives that reach the score of the positive with this rank from the top."""
    true, false = (np.cumsum(count[::-1])[::-1] for count in (counts.positive, counts.negative))
    place = len(true) - 1 - np.searchsorted(true[::-1], rank)
    share: Array = false[place] / counts.n_negative
    return share


def _fpr_estimate(ordered: Counts, tpr: float, level: float, n_resamples: int, random: np.random.Generator) -> Estimate:
    n, k = ordered.n_positive, _rank_of(ordered, tpr)
    value = float(_fpr(ordered, k))
    ranks = np.floor(n * random.beta(k, n - k + 1, n_resamples)).clip(0, n - 1) + 1
    drawn = random.binomial(ordered.n_negative, _fpr(ordered, ranks)) / ordered.n_negative
    low, high = quantiles(drawn, level)
    # The resamples of few negatives take few values. Clopper and Pearson's interval is the least that may be claimed.
    least, most = (float(end) for end in clopper_pearson(round(value * ordered.n_negative), ordered.n_negative, level))
    return Estimate(value, min(low, least), max(high, most))


def _histogram(scores: Array, counts: NDArray[np.int64], edges: Array) -> NDArray[np.int64]:
    shares: NDArray[np.int64] = np.histogram(scores, edges, weights=counts)[0].astype(np.int64)
    return shares


def _scored(score: Callable[[Array], Array], logits: object, probs: object) -> Array:
    """Return `score` of the probabilities `[M, K]` of each chunk of samples."""
    if (logits is None) == (probs is None):
        raise ValueError(f"pass exactly one of logits= and probs=, got {'both' if probs is not None else 'neither'}")
    if probs is not None:
        return _by_chunks(score, "probs", probs)

    def of_logits(z: Array) -> Array:
        # The maximum is taken off first: exp of a logit above 709 overflows.
        z = np.exp(z - z.max(axis=1, keepdims=True))
        return score(z / z.sum(axis=1, keepdims=True))

    return _by_chunks(of_logits, "logits", logits)


def _by_chunks(function: Callable[[Array], Array], name: str, value: object) -> Array:
    scores = as_scores(name, value)
    step, tolerance = max(1, CHUNK // scores.shape[1]), sum_tolerance(scores.dtype)
    parts = []
    for start in range(0, len(scores), step):
        rows: Array = as_array(name, scores[start : start + step]).astype(np.float64)
        if not np.isfinite(rows).all():
            raise ValueError(f"{name} must be finite, got NaN or inf")
        if name == "probs":
            low, high, total = rows.min(), rows.max(), rows.sum(axis=1)
            if low < 0 or high > 1:
                bad = low if low < 0 else high
                raise ValueError(f"probs must be in [0, 1], got {bad:g}; for unnormalised scores use logits=")
            # The row that is furthest off is the one worth naming.
            off = int(np.abs(total - 1).argmax())
            if abs(total[off] - 1) > tolerance:
                raise ValueError(
                    f"probs must sum to one in each row (within {tolerance:g}), got a row with sum {total[off]:.6g}"
                )
        parts.append(function(rows))
    return np.concatenate(parts)
