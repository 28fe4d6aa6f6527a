r"""Claims of a paper, and their verdicts: signed contrasts of metrics of cells, paired over seeds that are added.

A contrast is a number :math:`d_s` for each seed s, such as the error of ERM minus that of mixup. A claim speaks of its
mean :math:`\mu` over all seeds that could be drawn.

**Looks.** Seeds are added, so claims are read more than once, at K looks that are fixed before the first seed: at 5,
10, 20 and 40 seeds by default. The look at n seeds uses the first n seeds and no others. Between looks the verdict is
that of the last look. Whoever adds seeds until something is decided errs far more often (Armitage et al. 1969).

**Families.** The primary claims of a recipe at one scale are a family, and the secondary ones are another. Each of the
m claims of a family has at each look the interval

.. math:: \bar d_n \pm t_{1 - a/2,\, n-1}\; s_n / \sqrt n, \qquad a = \frac{0.05}{K m}

so that all intervals of a family, at all looks, hold their means at once with a probability of at least 95 %
(Bonferroni; Dunn 1961). A claim that is not tested counts in m, since whether it is tested depends on the data. The t
interval is exact for normal seeds. `benchmarks/looks.py` measures others: heavy tails err less often, and skewed
contrasts err in more than 5 % of families.

**Verdicts.** They are read off the interval [L, H], and are right whenever it holds :math:`\mu`, which is why three
verdicts need no further correction (Goeman et al. 2010; "equal" and "no difference" are Schuirmann's two one-sided
tests). With threshold c and margin δ:

========== ============ ================== ============================ ===============
kind       it says      holds              reversed                     no difference
========== ============ ================== ============================ ===============
"above"    μ > c        L > c              H < c                        [L, H] within c ± δ
"no worse" μ > −δ       L > −δ             H < −δ
"equal"    \|μ\| < δ    [L, H] within ±δ   L > δ or H < −δ
========== ============ ================== ============================ ===============

Anything else is undecided, as is every claim before its first look. A claim is not tested if a cell is missing
altogether, if a metric is not a finite number, or if it is about calibration and the baseline is not over-confident.

**Seeds that agree exactly** have a standard error of zero, which is no certainty: counts of a small test set often
agree. Metrics are kept to seven digits, so a spread that rounding explains counts as agreement. The interval is then
that of the median by order statistics (Thompson 1936): n equal seeds hold it with a probability of
:math:`1 - 2^{1-n}`. If that reaches the level the interval is the common value, give or take the rounding; else it is
unbounded, and the claim is undecided. With four looks, five equal seeds never decide, and ten do for m up to 6.

References
----------
Thompson, "On Confidence Ranges for the Median and Other Expectation Distributions", 1936.
Dunn, "Multiple Comparisons among Means", 1961.
Armitage, McPherson & Rowe, "Repeated Significance Tests on Accumulating Data", 1969.
Schuirmann, "A Comparison of the Two One-Sided Tests Procedure and the Power Approach", 1987.
Benjamini & Heller, "Screening for Partial Conjunction Hypotheses", 2008: claims of the kind "on at least u of n sets".
Goeman, Solari & Stijnen, "Three-sided Hypothesis Testing", 2010.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv, ndtri, stdtrit

from vicinal._atomic import Json
from vicinal._checks import ArgumentError, choice, integer, number
from vicinal.metrics import Estimate

#: What names a cell: its data, network and method, or whatever a recipe's rows are.
Key: TypeAlias = tuple[str, ...]
#: Gives the value of a metric of a cell, for one seed.
Lookup: TypeAlias = Callable[[Key, str], float]
#: The metrics of every cell: by key, then by seed, then by name.
Metrics: TypeAlias = Mapping[Key, Mapping[int, Mapping[str, Estimate]]]

HOLDS, REVERSED, NO_DIFFERENCE, UNDECIDED, NOT_TESTED = "holds", "reversed", "no difference", "undecided", "not tested"
KINDS = ("above", "no worse", "equal")
PRIMARY, SECONDARY = "primary", "secondary"
#: The chance that a family has a wrong verdict, over all its claims and looks.
ALPHA = 0.05
#: One point: the margin of a claim that gives no reason for another.
MARGIN = 0.01
#: The numbers of seeds at which verdicts are read.
LOOKS = (5, 10, 20, 40)
#: The first of the seeds that count. Those below it are for pilots.
FIRST_SEED = 1000
#: The first seed of recipes that were declared after results of some of their cells were known.
LATER_SEED = 2000
#: The metric that a baseline's over-confidence is read from: mean confidence minus accuracy.
GAP = "gap"
#: The chance of a decision that `Judged.needs_seeds` asks for.
POWER = 0.8
#: Parts of a distribution that `Sample.looks` goes through.
_PARTS = 80


@dataclass(frozen=True, eq=False)
class Contrast:
    """A number for each seed, made of metrics of cells by `+`, `-`, `*` and `lowest`."""

    value: Callable[[Lookup], float]
    needs: tuple[tuple[Key, str], ...]
    """The cells and metrics it is made of."""

    def __add__(self, other: Contrast) -> Contrast:
        return Contrast(lambda look: self.value(look) + other.value(look), (*self.needs, *other.needs))

    def __sub__(self, other: Contrast) -> Contrast:
        return self + other * -1

    def __mul__(self, factor: float) -> Contrast:
        return Contrast(lambda look: factor * self.value(look), self.needs)


def metric(name: str, *key: str) -> Contrast:
    """Return a metric of a cell.

    >>> gain = metric("error", "CIFAR-10", "ERM()") - metric("error", "CIFAR-10", "Mixup(alpha=1.0)")
    >>> gain.needs[0]
    (('CIFAR-10', 'ERM()'), 'error')
    """
    return Contrast(lambda look: look(key, name), ((key, name),))


def lowest(several: Sequence[Contrast]) -> Contrast:
    """Return the lowest of several, for each seed."""
    return Contrast(
        lambda look: min(one.value(look) for one in several), tuple(need for one in several for need in one.needs)
    )


def highest(several: Sequence[Contrast]) -> Contrast:
    """Return the highest of several, for each seed."""
    return lowest([one * -1 for one in several]) * -1


def pooled(contrasts: Iterable[Contrast]) -> Contrast:
    """Return the mean of several, for each seed.

    >>> both = pooled(metric("error", name) for name in ("a", "b"))
    >>> both.value(lambda key, name: {"a": 1.0, "b": 2.0}[key[0]])
    1.5
    """
    several = list(contrasts)
    if not several:
        raise ArgumentError("contrasts", several, "at least one contrast")
    return Contrast(
        lambda look: math.fsum(one.value(look) for one in several) / len(several),
        tuple(need for one in several for need in one.needs),
    )


def trend(several: Sequence[Contrast]) -> Contrast:
    r"""Return the slope over several in order, :math:`\sum_i (i - \bar i) v_i / \sum_i (i - \bar i)^2`.

    >>> rising = trend([metric("oe", name) for name in ("a", "b", "c")])
    >>> rising.value(lambda key, name: {"a": 1.0, "b": 2.0, "c": 3.0}[key[0]])
    1.0
    """
    ranks = [i - (len(several) - 1) / 2 for i in range(len(several))]
    squares = sum(rank**2 for rank in ranks)
    total = several[0] * (ranks[0] / squares)
    for one, rank in zip(several[1:], ranks[1:], strict=True):
        total = total + one * (rank / squares)
    return total


class Pair(NamedTuple):
    """A data set with one of its networks: what the methods of a recipe are compared on.

    >>> on = Pair("CIFAR-10", "ResNet-18")
    >>> str(on), on.cell("ERM()")
    ('CIFAR-10, ResNet-18', ('CIFAR-10', 'ResNet-18', 'ERM()'))
    """

    data: str
    network: str

    def __str__(self) -> str:
        return f"{self.data}, {self.network}"

    def cell(self, method: str) -> Key:
        """Return the key of a method's cell."""
        return (self.data, self.network, method)

    def metric(self, name: str, method: str) -> Contrast:
        """Return a metric of a method."""
        return metric(name, *self.cell(method))

    def fall(self, name: str, higher: str, lower: str) -> Contrast:
        """Return how far a metric falls from one method to another."""
        return self.metric(name, higher) - self.metric(name, lower)


@dataclass(frozen=True, eq=False)
class Claim:
    """What a paper says of a contrast: that it is above a threshold, no worse than a margin, or within it."""

    text: str
    """The claim, in a sentence."""
    contrast: Contrast
    """Positive where the paper is right."""
    _: KW_ONLY
    kind: str = "above"
    """`"above"` the threshold, `"no worse"` than −`margin`, or `"equal"`, which is within ±`margin`."""
    threshold: float = 0.0
    """What an `"above"` must exceed: 0.01 for "more than a point"."""
    margin: float = MARGIN
    """The largest difference that does not matter, in the contrast's unit."""
    reason: str = ""
    """Why the margin is not 0.01. It is required then, and refused else."""
    primary: bool = False
    """Whether the claim is the paper's headline."""
    paper: float | None = None
    """The paper's contrast, in the same unit; None where it shows a plot or says it in prose."""
    unit: str = "points"
    """`"points"` where metrics are shares, which are shown times 100; else what to write behind a number."""
    overconfident: Sequence[Key] = ()
    """A claim about calibration: the cells of its baselines, one for each set that is pooled. Their confidence must
    exceed their accuracy, on average over the sets, for the claim to be tested."""

    def __post_init__(self) -> None:
        choice("kind", self.kind, KINDS)
        number("margin", self.margin, above=0)
        number("threshold", self.threshold)
        if self.kind != "above" and self.threshold != 0:
            raise ArgumentError("threshold", self.threshold, f"0 for a claim of the kind {self.kind!r}")
        if self.margin != MARGIN and not self.reason.strip():
            raise ArgumentError("reason", self.reason, f"why the margin is {self.margin:g} and not {MARGIN:g}")
        if self.margin == MARGIN and self.reason:
            raise ArgumentError("reason", self.reason, f"empty, since the margin is the default of {MARGIN:g}")

    @property
    def needs(self) -> tuple[tuple[Key, str], ...]:
        """The cells and metrics it speaks of."""
        return (*self.contrast.needs, *((key, GAP) for key in self.overconfident))

    @property
    def contrasts(self) -> Sequence[Contrast]:
        """The contrast, as the only one."""
        return (self.contrast,)

    def value(self, values: Sequence[float]) -> float:
        """Return what a seed says, from its value of the contrast."""
        return values[0]

    def read(self, samples: Sequence[Sample], level: float) -> Reading:
        """Return what a look says, from its seeds of the contrast."""
        low, high = samples[0].interval(level)
        verdict = read_interval(low, high, kind=self.kind, threshold=self.threshold, margin=self.margin)
        return Reading(str(verdict), samples[0].mean, low, high)

    def chance(self, samples: Sequence[Sample], n: int, level: float) -> float:
        """Return the probability that a look at n seeds like these decides."""
        return chance_decided(samples[0], n, level, kind=self.kind, threshold=self.threshold, margin=self.margin)


@dataclass(frozen=True, kw_only=True, eq=False)
class AtLeast:
    """A claim that at least `least` of several contrasts are positive.

    With the one-sided p values in order, that of "at least u of n" is (n − u + 1)·p₍ᵤ₎ (Benjamini & Heller 2008). Read
    off intervals, with the family's level 1 − a: the claim holds if at least u of the intervals at level
    1 − a/(n − u + 1) lie above 0. It is reversed, so that fewer than u are positive, if at least n − u + 1 of the
    intervals at level 1 − a/u lie below 0.
    """

    text: str
    contrasts: Sequence[Contrast]
    least: int
    primary: bool = False
    paper: float | None = None
    unit: str = "sets"
    kind: ClassVar[str] = "at least"
    margin: ClassVar[float] = 0.0
    overconfident: ClassVar[Sequence[Key]] = ()

    def __post_init__(self) -> None:
        if not self.contrasts:
            raise ArgumentError("contrasts", self.contrasts, "at least one contrast")
        integer("least", self.least, low=1, high=len(self.contrasts))

    @property
    def needs(self) -> tuple[tuple[Key, str], ...]:
        """The cells and metrics it speaks of."""
        return tuple(need for contrast in self.contrasts for need in contrast.needs)

    @property
    def threshold(self) -> float:
        """How many contrasts must be positive."""
        return float(self.least)

    def value(self, values: Sequence[float]) -> float:
        """Return how many contrasts are positive for a seed."""
        return float(sum(value > 0 for value in values))

    def read(self, samples: Sequence[Sample], level: float) -> Reading:
        """Return what a look says, from its seeds of each contrast."""
        above, below = self._levels(level)
        low = sum(sample.interval(above)[0] > 0 for sample in samples)
        high = sum(sample.interval(below)[1] >= 0 for sample in samples)
        positive = sum(sample.mean > 0 for sample in samples)
        return Reading(str(read_count(low, high, least=self.least)), positive, low, high)

    def chance(self, samples: Sequence[Sample], n: int, level: float) -> float:
        """Return the probability that a look at n seeds like these decides, if contrasts are independent."""
        above, below = self._levels(level)
        high_enough = _at_least(self.least, [float((sample.looks(n, above)[0] > 0).mean()) for sample in samples])
        others = len(samples) - self.least + 1
        low_enough = _at_least(others, [float((sample.looks(n, below)[1] < 0).mean()) for sample in samples])
        return high_enough + low_enough

    def _levels(self, level: float) -> tuple[float, float]:
        """Return the levels of the intervals that show that contrasts are above 0, and that they are below it."""
        return 1 - (1 - level) / (len(self.contrasts) - self.least + 1), 1 - (1 - level) / self.least


class Reading(NamedTuple):
    """What a look says of a claim."""

    verdict: str
    effect: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim and its verdict, as a result file holds it."""

    claim: str
    """The claim in words."""
    family: str
    """`"primary"` or `"secondary"`."""
    kind: str
    """That of the claim, or `"at least"`."""
    verdict: str
    """Holds, reversed, no difference, undecided or not tested."""
    effect: float | None
    """The mean of the contrast over the seeds of the look, before the first look over the seeds so far. Of "at least":
    how many contrasts have a mean above 0. None if the claim is not tested or has no seed."""
    low: float | None
    """The lower end of the interval. None where there is no interval, or an unbounded one. Of "at least": how many
    contrasts lie above 0 with their intervals."""
    high: float | None
    """The upper end, likewise. Of "at least": how many contrasts do not lie below 0 with their intervals."""
    level: float
    """The confidence level of the interval."""
    look: int
    """The seeds of the look that the verdict is read at; 0 before the first look."""
    n_seeds: int
    """The seeds so far that have all metrics which the claim needs."""
    paper: float | None
    """The paper's own contrast, if it prints one."""
    margin: float
    """Of the claim; 0 of "at least"."""
    threshold: float
    """Of the claim; of "at least" how many contrasts must be positive."""
    unit: str
    """The unit of the contrast."""
    reason: str = ""
    """Why it is not tested, or why it has no interval at its look."""
    values: tuple[float | None, ...] = ()
    """The contrast of each seed so far, in order of seeds; None if a metric is not a finite number. Of "at least": how
    many contrasts are positive."""
    needs_seeds: int | None = None
    """The smallest look at which it is decided with a probability of 80 %, if mean and spread are those so far. None if
    there is no such look, and if the claim is decided or not tested. With fewer than two seeds it is the first look."""

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""
        record = {name: _rounded(value) if isinstance(value, float) else value for name, value in vars(self).items()}
        return record | {"values": [value if value is None else _rounded(value) for value in self.values]}

    @classmethod
    def from_dict(cls, record: Json) -> Judged:
        """Return what `to_dict` recorded."""
        return cls(**{**record, "values": tuple(record["values"])})


# The verdicts, as functions of arrays


def family_level(m: int, looks: Sequence[int] = LOOKS) -> float:
    """Return the confidence level of the intervals of a family of m claims.

    >>> family_level(5)
    0.9975
    """
    return 1 - ALPHA / (len(looks) * m)


def interval(
    mean: ArrayLike, error: ArrayLike, n: int, level: float, *, rounding: ArrayLike = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of the interval of a look at n seeds from means and standard errors.

    Seeds whose standard deviation is at most `rounding` agree; the module says what their interval is.

    >>> [round(float(end), 3) for end in interval(1.0, 0.5, 5, 0.95)]
    [-0.388, 2.388]
    """
    mean, error, rounding = (np.asarray(one, dtype=np.float64) for one in (mean, error, rounding))
    half = stdtrit(n - 1, (1 + level) / 2) * error
    agreed = rounding if 2.0 ** (1 - n) <= 1 - level else np.inf
    half = np.where(error * math.sqrt(n) <= rounding, agreed, half)
    return mean - half, mean + half


def read_interval(
    low: ArrayLike, high: ArrayLike, *, kind: str = "above", threshold: float = 0.0, margin: float = MARGIN
) -> NDArray[np.str_]:
    """Return the verdicts of intervals, by the table of the module.

    >>> read_interval([0.5, -0.5, -0.005, -0.5], [1.0, -0.1, 0.002, 0.5]).tolist()
    ['holds', 'reversed', 'no difference', 'undecided']
    """
    low, high = np.asarray(low), np.asarray(high)
    if kind == "above":
        within = (low > threshold - margin) & (high < threshold + margin)
        rules = {HOLDS: low > threshold, REVERSED: high < threshold, NO_DIFFERENCE: within}
    elif kind == "no worse":
        rules = {HOLDS: low > -margin, REVERSED: high < -margin}
    else:
        rules = {HOLDS: (low > -margin) & (high < margin), REVERSED: (low > margin) | (high < -margin)}
    return np.select(list(rules.values()), list(rules), UNDECIDED)


def read_count(low: ArrayLike, high: ArrayLike, *, least: int) -> NDArray[np.str_]:
    """Return the verdicts of "at least", from how many contrasts lie above 0 and how many do not lie below it.

    >>> read_count([4, 0, 2], [6, 3, 5], least=4).tolist()
    ['holds', 'reversed', 'undecided']
    """
    return np.select([np.asarray(low) >= least, np.asarray(high) < least], [HOLDS, REVERSED], UNDECIDED)


class Sample(NamedTuple):
    """What seeds say of a contrast: their number, mean, standard deviation, and what rounding does to them."""

    n: int
    mean: float
    spread: float
    rounding: float = 0.0

    @classmethod
    def of(cls, contrast: Contrast, metrics: Metrics, seeds: Sequence[int]) -> Sample:
        """Return what these seeds say."""
        values = np.array([contrast.value(_lookup(metrics, seed)) for seed in seeds])
        # Rounding to seven digits moves a metric by half a millionth at most, so two sums of k equal metrics differ by
        # at most k millionths.
        rounding = 1e-6 * sum(
            max(abs(metrics[key][seed][name].value) for seed in seeds) for key, name in contrast.needs
        )
        return cls(len(seeds), float(values.mean()), float(values.std(ddof=1)), rounding)

    def interval(self, level: float) -> tuple[float, float]:
        """Return the interval of these seeds."""
        error = self.spread / math.sqrt(self.n)
        low, high = interval(self.mean, error, self.n, level, rounding=self.rounding)
        return float(low), float(high)

    def looks(self, n: int, level: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return intervals of looks at n normal seeds with this mean and spread, all equally probable.

        Mean and standard deviation of normal seeds are independent: each takes the middles of equally probable parts.
        """
        middles = (np.arange(_PARTS) + 0.5) / _PARTS
        error = self.spread / math.sqrt(n)
        means = self.mean + error * ndtri(middles)[:, None]
        errors = error * np.sqrt(gammaincinv((n - 1) / 2, middles) * 2 / (n - 1))
        return interval(means, errors, n, level, rounding=self.rounding)


def chance_decided(
    seeds: Sample, n: int, level: float, *, kind: str = "above", threshold: float = 0.0, margin: float = MARGIN
) -> float:
    """Return the probability that a look at n new seeds decides, if they are normal with the mean and spread of these.

    >>> round(chance_decided(Sample(5, mean=0.02, spread=0.02), 10, family_level(1)), 2)
    0.55
    """
    low, high = seeds.looks(n, level)
    return float((read_interval(low, high, kind=kind, threshold=threshold, margin=margin) != UNDECIDED).mean())


class ErrorRate(NamedTuple):
    """What the level of each family means over all of them, as upper bounds for normal seeds."""

    families: int
    wrong: float
    """The expected number of claims that ever have a wrong verdict."""
    any_wrong: float
    """The chance that there is at least one, if families are independent."""

    def __str__(self) -> str:
        return (
            f"The {self.families} families of claims have an error rate of {100 * ALPHA:g} % each. At most "
            f"{self.wrong:.2g} wrong verdicts are expected over all recipes. The chance of at least one is at most "
            f"{100 * self.any_wrong:.0f} % if families are independent. Both bounds are for normal seeds, and skewed "
            f"seeds can exceed them."
        )


def error_rate(recipes: Iterable[Sequence[Judged]]) -> ErrorRate:
    r"""Return the error rate over the verdicts of all recipes.

    A claim of a family of m ever has a wrong verdict with a probability of at most 0.05/m. A family therefore has at
    most 0.05 wrong verdicts in expectation, and F families have 0.05·F, dependent or not. The chance of at least one is
    at most :math:`1 - 0.95^F` if families are independent, and at most 0.05·F in any case.
    """
    families = sum(len({one.family for one in judged}) for judged in recipes)
    return ErrorRate(families, ALPHA * families, 1 - (1 - ALPHA) ** families)


# From metrics to verdicts


def judge(
    claims: Sequence[Claim | AtLeast],
    metrics: Metrics,
    *,
    looks: Sequence[int] = LOOKS,
    first_seed: int = FIRST_SEED,
) -> list[Judged]:
    """Return the verdicts of a recipe's claims at one scale."""
    numbers = [integer("looks", n, low=2) for n in looks]
    if not numbers or numbers != sorted(set(numbers)):
        raise ArgumentError("looks", looks, "rising numbers of seeds")
    sizes = Counter(_family(claim) for claim in claims)
    return [
        _judged(claim, metrics, numbers, first_seed, family_level(sizes[_family(claim)], numbers)) for claim in claims
    ]


def _family(claim: Claim | AtLeast) -> str:
    return PRIMARY if claim.primary else SECONDARY


def _judged(claim: Claim | AtLeast, metrics: Metrics, looks: Sequence[int], first_seed: int, level: float) -> Judged:
    seeds = _complete_seeds(claim.needs, metrics, first_seed)
    # Seeds are sorted and none is below the first: n of them end at first + n − 1 only if none is missing.
    reached = [n for n in looks if len(seeds) >= n and seeds[n - 1] == first_seed + n - 1]
    look = max(reached, default=0)
    finite = [seed for seed in seeds if not _not_finite(claim.needs, metrics, [seed])]
    values = {s: claim.value([one.value(_lookup(metrics, s)) for one in claim.contrasts]) for s in finite}
    reason = _not_tested(claim, metrics, seeds[:look])
    if reason:
        read = None
    elif look:
        read = claim.read(_samples(claim, metrics, seeds[:look]), level)
        if math.isinf(read.high):
            reason = f"all {look} seeds agree, which is no certainty at this level"
    else:
        effect = next(iter(values.values()), math.nan)
        if len(finite) > 1:
            effect = claim.read(_samples(claim, metrics, finite), level).effect
        read = Reading(UNDECIDED, effect, math.nan, math.nan)
    needs_seeds = None
    if read is not None and read.verdict == UNDECIDED and finite == seeds:  # a seed that diverged is in all later looks
        needs_seeds = _needs_seeds(claim, metrics, seeds, [n for n in looks if n > look], level)
    return Judged(
        claim=claim.text,
        family=_family(claim),
        kind=claim.kind,
        verdict=NOT_TESTED if read is None else read.verdict,
        effect=None if read is None else _or_none(read.effect),
        low=None if read is None else _or_none(read.low),
        high=None if read is None else _or_none(read.high),
        level=level,
        look=look,
        n_seeds=len(seeds),
        paper=claim.paper,
        margin=claim.margin,
        threshold=claim.threshold,
        unit=claim.unit,
        reason=reason,
        values=tuple(values.get(seed) for seed in seeds),
        needs_seeds=needs_seeds,
    )


def samples(claim: Claim | AtLeast, metrics: Metrics, *, first_seed: int = FIRST_SEED) -> list[Sample]:
    """Return what the seeds so far say of each contrast of a claim; nothing of fewer than two finite ones."""
    seeds = _complete_seeds(claim.needs, metrics, first_seed)
    finite = [seed for seed in seeds if not _not_finite(claim.needs, metrics, [seed])]
    return _samples(claim, metrics, finite) if len(finite) > 1 else []


def _complete_seeds(needs: Sequence[tuple[Key, str]], metrics: Metrics, first_seed: int) -> list[int]:
    """Return the seeds that count and have all metrics, in order."""
    every = [{seed for seed, row in metrics.get(key, {}).items() if name in row} for key, name in needs]
    return sorted(seed for seed in set.intersection(*every) if seed >= first_seed)


def _not_tested(claim: Claim | AtLeast, metrics: Metrics, seeds: Sequence[int]) -> str:
    """Return why a claim is not tested at a look with these seeds; nothing if it is, or if there is no look yet."""
    for key, name in claim.needs:
        if not any(name in row for row in metrics.get(key, {}).values()):
            return f"there is no {'cell' if key not in metrics else f'{name} of'} {' · '.join(key)}"
    # To leave such a seed out would be to choose among runs by how they came out.
    reason = _not_finite(claim.needs, metrics, seeds)
    if reason or not claim.overconfident or not seeds:
        return reason
    gap = Sample.of(pooled(metric(GAP, *key) for key in claim.overconfident), metrics, seeds)
    low, high = gap.interval(1 - ALPHA)
    if low > 0:
        return ""
    shown = f"{100 * gap.mean:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]".replace("-", "−")
    return f"the baseline is not over-confident (confidence − accuracy is {shown})"


def _not_finite(needs: Sequence[tuple[Key, str]], metrics: Metrics, seeds: Sequence[int]) -> str:
    """Return which metric is not a finite number; nothing if all are."""
    for key, name in needs:
        for seed in seeds:
            if not math.isfinite(metrics[key][seed][name].value):
                return f"{name} of {' · '.join(key)} with seed {seed} is not a finite number"
    return ""


def _needs_seeds(
    claim: Claim | AtLeast, metrics: Metrics, seeds: Sequence[int], looks: Sequence[int], level: float
) -> int | None:
    if len(seeds) < 2:  # nothing is known of their spread
        return looks[0]
    samples = _samples(claim, metrics, seeds)
    return next((n for n in looks if claim.chance(samples, n, level) >= POWER), None)


def _samples(claim: Claim | AtLeast, metrics: Metrics, seeds: Sequence[int]) -> list[Sample]:
    return [Sample.of(contrast, metrics, seeds) for contrast in claim.contrasts]


def _lookup(metrics: Metrics, seed: int) -> Lookup:
    return lambda key, name: metrics[key][seed][name].value


def _at_least(least: int, chances: Sequence[float]) -> float:
    """Return the probability that at least so many of independent events happen."""
    counts = np.ones(1)
    for chance in chances:
        counts = np.convolve(counts, [1 - chance, chance])
    return float(counts[least:].sum())


def _or_none(value: float) -> float | None:
    """Return what JSON can hold."""
    return float(value) if math.isfinite(value) else None


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
