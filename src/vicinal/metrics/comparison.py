"""Whether one model is better than another on the same samples, beyond the luck of samples and seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from vicinal.metrics.chunks import Array
from vicinal.metrics.clusters import Groups
from vicinal.metrics.display import html_table, side_by_side
from vicinal.metrics.error_intervals import squared_gaps
from vicinal.metrics.intervals import clopper_pearson, confidence_level
from vicinal.metrics.registry import METRICS, Metric
from vicinal.metrics.reliability import BinSums, ReliabilityTable
from vicinal.metrics.tally import Evaluation, Samples


@dataclass(frozen=True)
class Difference:
    """A metric of two models and what separates them.

    Attributes
    ----------
    a, b
        The metric of either, the mean over seeds where there are several.
    value, low, high
        b − a, with the ends of its confidence interval.
    better
        `"a"`, `"b"`, or `None` where the interval contains 0: the difference is not significant.

    Examples
    --------
    >>> from vicinal import compare, evaluate
    >>> a = evaluate([0, 1] * 50, probs=[[0.6, 0.4]] * 100)
    >>> b = evaluate([0, 1] * 50, probs=[[0.9, 0.1], [0.1, 0.9]] * 50)
    >>> difference = compare(a, b).differences["nll"]
    >>> difference.better, difference.high < 0
    ('b', True)
    """

    a: float
    b: float
    value: float
    low: float
    high: float
    better: str | None


@dataclass(frozen=True)
class Comparison:
    """Paired differences of two models. Made by `compare`.

    Attributes
    ----------
    n, n_seeds, n_bins
        Samples, pairs of runs, and bins of the calibration errors.
    level
        Confidence level of the intervals.
    differences
        By name of the metric.
    names
        What the models are called in print.

    Examples
    --------
    >>> from vicinal import compare, evaluate
    >>> a = evaluate([0, 1] * 50, probs=[[0.6, 0.4]] * 100)
    >>> b = evaluate([0, 1] * 50, probs=[[0.9, 0.1], [0.1, 0.9]] * 50)
    >>> compare(a, b).differences["accuracy"].value
    0.5
    """

    n: int
    n_seeds: int
    n_bins: int
    level: float
    differences: dict[str, Difference]
    names: tuple[str, str] = ("a", "b")

    def __getitem__(self, metric: str) -> Difference:
        return self.differences[metric]

    def to_dict(self) -> dict[str, object]:
        """Return plain numbers for a JSON file."""
        sizes = {"n": self.n, "n_seeds": self.n_seeds, "n_bins": self.n_bins, "level": self.level}
        return {**sizes, "names": list(self.names), **{k: dict(vars(d)) for k, d in self.differences.items()}}

    def __str__(self) -> str:
        a, b = self.names
        seeds = f"{self.n_seeds} seeds" if self.n_seeds > 1 else "1 seed"
        head = f"{b} − {a}, paired on {self.n:,} samples, {seeds}, {self.n_bins} bins; {100 * self.level:g} % intervals"
        called = {"a": a, "b": b, None: "not significant"}
        wide = max(8, len(a), len(b))
        lines = [f"{'':<10}{a:>{wide}} {b:>{wide}}  {'difference':<30} better"]
        for name, d in self.differences.items():
            lines.append(f"{name:<10}{d.a:>{wide}.4f} {d.b:>{wide}.4f}  {_signed(d):<30} {called[d.better]}")
        return "\n".join([head, *lines])

    def _repr_html_(self) -> str:
        """Return the differences as a notebook shows them."""
        a, b = self.names
        called = {"a": a, "b": b, None: "not significant"}
        rows = [
            (METRICS[name].heading(self.n_bins), f"{d.a:.4f}", f"{d.b:.4f}", _signed(d), called[d.better])
            for name, d in self.differences.items()
        ]
        caption = f"{b} − {a}, paired on {self.n:,} samples; {100 * self.level:g} % intervals"
        return side_by_side(caption, html_table(["", a, b, "difference", "better"], rows))


def _signed(difference: Difference) -> str:
    return f"{difference.value:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]"


#: How much further the interval over two seeds reaches than Student's, about as much as three skewed ones bend it.
_TWO = 1.4

#: Mistakes of a kind from which on their own spread tells how many there may be.
_FEW = 5


def compare(
    a: Evaluation | Sequence[Evaluation],
    b: Evaluation | Sequence[Evaluation],
    *,
    level: float = 0.95,
    names: tuple[str, str] = ("a", "b"),
) -> Comparison:
    r"""Compare two models evaluated on the same samples, metric by metric.

    Every metric is a mean over samples of numbers whose spread is its sampling error: for accuracy, NLL and Brier score
    those of each sample, for MCC and the calibration errors the metric plus the sample's influence on it. With
    :math:`d_i` the difference of sample i between the models, what is hard for both cancels out, and

    .. math:: \bar d \pm t_{n-1} \sqrt{s_d^2 / n}

    is the interval that resampling the pairs converges to. Two things are added, since few samples tell the difference:
    to the sum of squares :math:`2\max_i d_i^2`, as if one more sample had been met that favours either model as much as
    any did (for accuracies that is Bonett & Price's rule of one more disagreement on either side: five against none
    are not enough; where the models agree on every sample, a disagreement counts 1, and 2 for MCC, since fifty samples
    without one do not show that there is none); and on the side to which the :math:`d_i` are skewed the allowance of
    `mean_interval`. Calibration errors lie above the truth by chance, more so for the model with the smaller gaps: the
    ends are moved outward by as much as that may be (the corrections of `vicinal.metrics.error_intervals`; where two
    models have nearly the same gaps, so have they nearly the same bias, and it cancels out). MCE is left out: its bias
    is not known. Mistakes that are too rare to be seen are allowed for: without any, confidence only helps. Where
    samples have groups, the ends are also those of as many independent numbers as there are groups.

    Given several runs (seeds) of each, in order, the difference is that of the means, and its interval speaks of other
    samples *and* other seeds. With :math:`\delta_s` the difference of seed s, S seeds, v the variance of the mean over
    samples that all seeds share (the mean covariance of :math:`d_i` between seeds, over n), :math:`m = \max_i |d_i|` of
    the means over seeds, :math:`\kappa = m_3/s^2` of these and of the :math:`\delta_s`, and on either side :math:`b =
    \max(\pm\kappa_d, 0)\,t_{n-1}^2 / 2n + \max(\pm\kappa_\delta, 0)\,t_{S-1}^2 / 2S`, it reaches

    .. math:: b + \sqrt{b^2 + t_{n-1}^2\, (v + 2 m^2/n^2) + t_{S-1}^2\, s_\delta^2 / S}

    For normal differences it never covers less than its level: the squared error is :math:`\chi^2_1` in units of its
    variance, of which samples have the share r and seeds 1 − r; the distribution function F of :math:`\chi^2_1` is
    concave, so :math:`F(r\, t_{n-1}^2 + (1 - r)\, t_{S-1}^2 \hat s^2/s^2)` is at least the mean of its values at
    either, and these have the level as their expectation. (Welch's approximation takes a small :math:`s_\delta` at its
    word.) Seeds are often skewed, in NLL above all, where one run that went wrong is far from the others: therefore the
    second part of b. Two seeds show no skewness at all, and :math:`s_\delta` counts 1.4 times there. That of OE, which
    is cut off at 0, is at least that of the same sum with the sign of its gaps.

    With several labels the metrics are means over labels, and so are the numbers of each sample, of which all else
    follows: what the labels of a sample share is in their spread.

    Parameters
    ----------
    a, b
        What `evaluate` returned, or equally many of them for either (one a seed).
    level
        Confidence level of the intervals, in (0, 1).
    names
        What to call the models in print.

    Returns
    -------
    Comparison
        The paired difference b − a of each metric, with its interval.

    Examples
    --------
    >>> from vicinal.metrics import evaluate
    >>> labels = [0, 1] * 50
    >>> a = evaluate(labels, probs=[[0.6, 0.4]] * 100)
    >>> b = evaluate(labels, probs=[[0.9, 0.1], [0.1, 0.9]] * 50)
    >>> print(compare(a, b, names=("coin", "model")))
    model − coin, paired on 100 samples, 1 seed, 15 bins; 95 % intervals
                  coin    model  difference                     better
    accuracy    0.5000   1.0000  +0.5000 [+0.3964, +0.6036]     model
    ...
    """
    runs_a, runs_b = _runs("a", a), _runs("b", b)
    level = confidence_level(level)
    questions = _questions(runs_a, runs_b)
    for of_a, of_b in questions:
        _check_same_samples(of_a, of_b)
    # One pair of sides for classes, one for each of several labels: all that follows takes means over these pairs.
    pairs = [(Side.of(of_a), Side.of(of_b)) for of_a, of_b in questions]
    every_run = [run for sides in questions for side in sides for run in side]
    common = [name for name in pairs[0][0].values if all(run.metrics.get(name) is not None for run in every_run)]
    every = (_samples(run).groups for run in every_run)
    groups = next((each for each in every if each is not None), None)
    differences = {name: _difference(name, pairs, level, groups) for name in common}
    return Comparison(runs_a[0].n, len(runs_a), runs_a[0].n_bins, level, differences, (str(names[0]), str(names[1])))


@dataclass(frozen=True, eq=False)
class Side:
    """One of two models: its S runs over N samples; leading axes are free.

    Attributes
    ----------
    values
        By name of a metric the values of the samples whose mean it is, `[..., S, N]`.
    bins, squared
        The reliability tables' sums, and the summed (confidence − [right])² of their bins, `[..., S, n_bins]`.
    """

    values: dict[str, Array]
    bins: BinSums
    squared: Array
    n_classes: int = 2
    left: Array | None = None
    """What the confidence of each sample leaves to the other classes, `[..., S, N]`, where the NLL is not known."""

    @property
    def gaps(self) -> Array:
        """What each sample of the first run contributes to ECE, or to accuracy, `[N]`."""
        each: Array = self.values["ece" if "ece" in self.values else "accuracy"][0]
        return each

    @property
    def doubt(self) -> Array | None:
        """Numbers that rise as the confidence of a right answer falls, `[..., S, N]`; None where none are known."""
        return self.values.get("nll", self.left)

    @property
    def left_over(self) -> Array:
        """What a right answer leaves to the other classes, `[..., S, N]`: it has the probability exp(−NLL)."""
        left: Array = np.maximum(-np.expm1(-self.values["nll"]) if self.left is None else self.left, 1e-30)
        return left

    def thinned(self, times: float) -> Side:
        """Return the same with the sums of the bins divided: as many independent samples as groups are worth."""
        bins = BinSums(*(np.asarray(getattr(self.bins, f.name)) / times for f in fields(self.bins)))
        return replace(self, bins=bins, squared=self.squared / times)

    def if_wrong(self, name: str) -> Array:
        """Return the NLL or Brier score of each sample that is right, `[..., S, N]`, were it wrong.

        What the answer leaves over is spread evenly on the other classes.
        """
        others, left = max(self.n_classes - 1, 1), self.left_over
        if name == "nll":
            wrong: Array = -np.log(left / others)
        else:
            wrong = self.values["brier"] + 2 * (1 - left) - 2 * left / others
        return wrong

    @classmethod
    def of(cls, runs: list[Evaluation]) -> Side:
        """Return the runs of a model side by side, with the metrics that all of them have.

        Right and wrong answers are among them in any case: all intervals allow for mistakes that were not seen.
        """
        tables, samples = [run.table for run in runs], [_samples(run) for run in runs]
        count, confidence, correct = (
            np.stack([getattr(table.bins, name) for table in tables]) for name in ("count", "confidence", "correct")
        )
        names = [
            name
            for name, metric in METRICS.items()
            if metric.compared and (name == "accuracy" or all(run.metrics.get(name) is not None for run in runs))
        ]
        values = {
            name: np.stack([_known(METRICS[name], table, each) for table, each in zip(tables, samples, strict=True)])
            for name in names
        }
        squared = np.stack([squared_gaps(table) for table in tables])
        left = None if "nll" in values else np.stack([1 - each.confidence.astype(np.float64) for each in samples])
        return cls(values, BinSums(count, confidence, correct), squared, runs[0].n_classes, left)


def _known(metric: Metric, table: ReliabilityTable, samples: Samples) -> Array:
    each = metric.of_each(table, samples)
    if each is None:
        raise ValueError(f"{metric.title} is not known of each sample")
    return each


def _difference(name: str, pairs: Sequence[tuple[Side, Side]], level: float, groups: Groups | None) -> Difference:
    mean_a, mean_b = (
        float(np.mean([_mean(side.values[name], groups) for side in sides])) for sides in zip(*pairs, strict=True)
    )
    # An infinite NLL has no interval. A model that never gives the truth probability 0 is still better than one that
    # does.
    if not (math.isfinite(mean_a) and math.isfinite(mean_b)):
        better = None if mean_a == mean_b else "a" if math.isfinite(mean_a) else "b"
        value = math.nan if better is None else mean_b - mean_a
        return Difference(mean_a, mean_b, value, -math.inf, math.inf, better)
    weighted = groups is not None and groups.weights is not None
    low, high = (float(end) for end in _ends(name, pairs, level, groups if weighted else None))
    if groups is not None:  # never narrower than of independent samples
        ends = _ends(name, pairs, level, groups)
        low, high = min(low, float(ends[0])), max(high, float(ends[1]))
    up, down = ("b", "a") if METRICS[name].higher_is_better else ("a", "b")
    return Difference(mean_a, mean_b, mean_b - mean_a, low, high, up if low > 0 else down if high < 0 else None)


def _mean(values: Array, groups: Groups | None) -> Array:
    """Return the mean of values `[..., N]` over samples, by their weights, `[...]`."""
    mean: Array = values.mean(axis=-1) if groups is None else groups.mean(values)[..., 0]
    return mean


def difference_ends(name: str, a: Side, b: Side, level: float) -> tuple[Array, Array]:
    """Return the ends (low, high) of the difference b − a of a metric, each `[...]`; see `compare`."""
    return _ends(name, [(a, b)], level)


def _ends(
    name: str, pairs: Sequence[tuple[Side, Side]], level: float, groups: Groups | None = None
) -> tuple[Array, Array]:
    """Return the ends of the difference of a metric's means over the pairs, one for each label."""
    # Sample by sample before anything is averaged: what is hard for both models cancels here, and nowhere else.
    differences = np.mean([b.values[name] - a.values[name] for a, b in pairs], axis=0)
    value = _mean(differences, groups).mean(axis=-1)
    n = differences.shape[-1] if groups is None else groups.effective
    if groups is not None:
        differences = groups.means(differences)
        times = [[groups.design_effect(side.gaps, level) for side in pair] for pair in pairs]
        pairs = [(a.thinned(t), b.thinned(u)) for (a, b), (t, u) in zip(pairs, times, strict=True)]
    below, above = _reach(differences, level, _unseen(name, pairs), _signed_spread(name, pairs), n - 1)
    moved = np.mean([_by_mistakes(name, a, b, n, level) for a, b in pairs], axis=0)
    low, high, chance = value - below, value + above, METRICS[name].raised_by_chance
    if chance is not None:
        raised = [chance((a.bins, b.bins), (a.squared, b.squared)) for a, b in pairs]
        raised_a, raised_b = (np.mean(of, axis=0) for of in zip(*raised, strict=True))
        # Chance that raised b more than a made the difference too large, so it moves the lower end, and the other way.
        low, high = low - raised_b, high + raised_a
    return np.minimum(low, value + moved.min(axis=0)), np.maximum(high, value + moved.max(axis=0))


def _by_mistakes(name: str, a: Side, b: Side, n: float, level: float) -> Array:
    """Return how far mistakes that were not seen may move the difference, `[3 or 4, ...]`: of both, of a, of b alone.

    Where fewer than 5 of n samples are such mistakes, as many more as Clopper and Pearson's upper end allows take the
    place of samples that both models have right. Calibration errors also allow for fewer. A mistake of one model alone
    is left out where all answers of the two are alike, and so is the order of their confidences, as before and after a
    temperature.
    """
    if "accuracy" not in a.values or "accuracy" not in b.values:
        return np.zeros((1, *a.bins.count.shape[:-2]))
    right_a, right_b = (side.values["accuracy"] > 0.5 for side in (a, b))
    both = right_a & right_b
    kinds = (~right_a & ~right_b, ~right_a & right_b, right_a & ~right_b)
    shares = np.stack([kind.mean(axis=-1).mean(axis=-1) for kind in kinds])
    least, most = clopper_pearson(shares * n, n, level)
    more, fewer = (np.where(shares * n < _FEW, room, 0) for room in (most - shares, shares - least))
    if a.doubt is not None and b.doubt is not None:
        more[1:] = np.where(_one_order(a, b, both), 0, more[1:])
    if name in ("nll", "brier"):
        return more * _cost_of_mistakes(name, a, b, (both, *kinds[1:]), n)
    of_bins = METRICS[name].of_bins
    if name == "accuracy" or of_bins is None:
        return np.zeros_like(more)  # `_reach` counts one more disagreement on either side

    def changed(side: Side, share: Array) -> Array:
        right = side.bins.correct * (1 - np.minimum(share, 1))[..., None, None]
        change: Array = (of_bins(replace(side.bins, correct=right)) - of_bins(side.bins)).mean(axis=-1)
        return change

    # An error falls with mistakes, or rises, up to where the gap is 0: fewer mistakes are another matter than more.
    none, less = np.zeros_like(more[0]), -fewer[0]
    each = ((more[0], more[0]), (more[1], none), (none, more[2]), (less, less))
    return np.stack([changed(b, of_b) - changed(a, of_a) for of_a, of_b in each])


def _cost_of_mistakes(name: str, a: Side, b: Side, kinds: Sequence[NDArray[np.bool_]], n: float) -> Array:
    """Return what a mistake of each kind, that was not seen, costs b more than a, `[3, ...]`.

    A mistake of both may be any sample that both have right, as wrong labels are: the cost is their mean. One model
    alone errs where the two differ. That is the mean of such mistakes that were seen, of what this model would pay
    where the other one alone errs, and of one more. The one more is like samples that both have right, which count by
    the root of what the confidences leave to other classes.
    """
    both, only_a, only_b = kinds
    now = b.values[name] - a.values[name]
    cost_a, cost_b = (side.if_wrong(name) - side.values[name] for side in (a, b))  # where the model is right
    even, doubt = np.ones_like(now), np.sqrt(a.left_over + b.left_over)
    certain = _mean_of(both, now, even)[..., None, None]

    def alone(seen: NDArray[np.bool_], swapped: NDArray[np.bool_], cost: Array) -> Array:
        known = np.where(seen, now - certain, 0) + np.where(swapped, cost, 0)
        count = (seen | swapped).mean(axis=(-2, -1)) * n
        mean: Array = (known.mean(axis=(-2, -1)) * n + _mean_of(both, cost, doubt)) / (count + 1)
        return mean

    of_both = _mean_of(both, cost_b - cost_a, even)
    return np.stack([of_both, alone(only_a, only_b, -cost_a), alone(only_b, only_a, cost_b)])


def _mean_of(where: NDArray[np.bool_], values: Array, weight: Array) -> Array:
    """Return the weighted mean over samples and seeds, `[...]`; 0 where there is none."""
    weight = np.where(where, weight, 0)
    mean: Array = (weight * values).sum(axis=(-2, -1)) / np.maximum(weight.sum(axis=(-2, -1)), 1e-300)
    return mean


def _one_order(a: Side, b: Side, both: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether two models are right on the same samples and rank them (nearly) the same by confidence, `[...]`."""
    doubts = [side.doubt for side in (a, b) if side.doubt is not None]
    x, y = (doubt.argsort(axis=-1, kind="stable").argsort(axis=-1) for doubt in doubts)
    n = x.shape[-1]
    alike = ((x - y) ** 2).sum(axis=-1) < 1e-4 * (n**3 - n) / 6  # Spearman's correlation is above 0.9999
    vary = np.ptp(doubts[0], axis=-1) > 1e-9
    same = (both == (a.values["accuracy"] > 0.5)) & (both == (b.values["accuracy"] > 0.5))
    order: NDArray[np.bool_] = (alike & vary).all(axis=-1) & same.all(axis=(-2, -1))
    return order


def _unseen(name: str, pairs: Sequence[tuple[Side, Side]]) -> Array:
    """Return how much one more sample may differ where none did, `[...]`: a model and itself do not."""
    metric, (low, high) = METRICS[name], METRICS[name].limits
    # A model compared with itself must give exactly 0 ± 0, else equal runs would look uncertain.
    apart = [(a.bins.confidence != b.bins.confidence).any(axis=(-2, -1)) for a, b in pairs]
    return np.where(np.any(apart, axis=0), high - low if metric.answers_only else 0.0, 0.0)


def _signed_spread(name: str, pairs: Sequence[tuple[Side, Side]]) -> Array:
    """Return the variance over seeds, `[...]`, of the difference of a metric that is cut off at 0 were it not; else 0.

    OE is cut off: where models are hardly over-confident, most seeds have next to none and one has much, which few
    seeds do not show. What is not cut off varies as much below 0 as above.
    """
    uncut = METRICS[name].uncut
    if uncut is None or pairs[0][0].bins.count.shape[-2] == 1:
        return np.zeros(())
    signed = [[uncut(side.bins) for side in pair] for pair in pairs]
    spread: Array = np.mean([b - a for a, b in signed], axis=0).var(axis=-1, ddof=1)
    return spread


def _reach(differences: Array, level: float, unseen: Array, least: Array, freedom: float) -> tuple[Array, Array]:
    """Return how far below and above a mean difference its interval reaches, `[...]`, of differences `[..., S, N]`.

    `unseen` is the difference of one more sample where all are 0, `least` the least variance over seeds, `freedom` that
    of Student's quantile.
    """
    n_seeds, n = differences.shape[-2:]
    if n == 1:
        unknown = np.full(differences.shape[:-2], math.inf)  # nothing is known of the spread over samples
        return unknown, unknown
    # The seeds are averaged first: their samples are the same, so that S · N differences are not independent.
    mean = differences.mean(axis=-2)
    away = mean - mean.mean(axis=-1, keepdims=True)
    spread = (away**2).sum(axis=-1)
    samples, seeds = spread / (n - 1) / n, np.zeros(spread.shape)
    t = float(stdtrit(freedom, (1 + level) / 2)) ** 2
    bends = [_bend(away, t)]
    if n_seeds > 1:
        # What differs from seed to seed for each sample is in the spread over seeds: it counts once.
        alone = differences.var(axis=-1, ddof=1).mean(axis=-1) / n / n_seeds
        samples = np.maximum(samples - alone, 0) * n_seeds / (n_seeds - 1)
        of_seeds = differences.mean(axis=-1)
        # The quantile of S − 1 degrees of freedom is for the part of seeds alone. Samples keep theirs, of n − 1.
        t_seeds = float(stdtrit(n_seeds - 1, (1 + level) / 2)) ** 2
        seeds = t_seeds * np.maximum(of_seeds.var(axis=-1, ddof=1), least) / n_seeds * (_TWO**2 if n_seeds == 2 else 1)
        bends.append(_bend(of_seeds - of_seeds.mean(axis=-1, keepdims=True), t_seeds))
    # As if one more sample as extreme as any had favoured either model: few samples rarely hold the rare disagreement.
    largest = np.abs(mean).max(axis=-1)
    samples = samples + 2 * np.where(largest > 0, largest, unseen) ** 2 / n**2
    room = [np.sum([np.maximum(sign * bend, 0) for bend in bends], axis=0) for sign in (-1, 1)]
    below, above = (side + np.sqrt(side**2 + seeds + t * samples) for side in room)
    return below, above


def _bend(away: Array, t_squared: float) -> Array:
    """Return t² m₃ / 2 s² n, `[...]`, of what is away from its mean, `[..., n]`: how far skewness moves an end."""
    squares = (away**2).sum(axis=-1)
    moved: Array = t_squared * (away**3).sum(axis=-1) / np.where(squares > 0, squares, 1) / away.shape[-1] / 2
    return moved


def _samples(run: Evaluation) -> Samples:
    if run.samples is None:
        raise ValueError("a comparison pairs samples, which this evaluation did not keep: use `evaluate`")
    return run.samples


def _runs(name: str, value: Evaluation | Sequence[Evaluation]) -> list[Evaluation]:
    runs = [value] if isinstance(value, Evaluation) else list(value)
    if not runs or not all(isinstance(run, Evaluation) for run in runs):
        raise TypeError(f"{name} must be an Evaluation or a list of them (what evaluate returns), got {value!r}")
    return runs


def _questions(
    runs_a: Sequence[Evaluation], runs_b: Sequence[Evaluation]
) -> list[tuple[list[Evaluation], list[Evaluation]]]:
    """Return the runs of either model as evaluations of classes: once, or for each of several labels."""
    names = [list(run.heads) for run in (*runs_a, *runs_b)]
    if any(name != names[0] for name in names):
        raise ValueError(f"a and b must have the same labels, or be of classes both, got {names[0]} and {names[-1]}")
    if not names[0]:
        return [(list(runs_a), list(runs_b))]
    return [([run.heads[label] for run in runs_a], [run.heads[label] for run in runs_b]) for label in names[0]]


def _check_same_samples(runs_a: list[Evaluation], runs_b: list[Evaluation]) -> None:
    if len(runs_a) != len(runs_b):
        raise ValueError(f"a and b must have as many runs (seeds), got {len(runs_a)} and {len(runs_b)}")
    first = runs_a[0]
    for run in [*runs_a, *runs_b]:
        if not np.array_equal(_samples(first).labels, _samples(run).labels):
            raise ValueError(
                f"a and b must be evaluated on the same samples in the same order, got different labels "
                f"({first.n} and {run.n} samples)"
            )
        if not np.array_equal(first.table.edges, run.table.edges):
            raise ValueError(f"a and b must have the same bins, got {first.n_bins} and {run.n_bins} bins")
