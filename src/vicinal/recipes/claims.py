r"""Claims of a paper, and whether they hold here: signed contrasts of figures of cells, paired over seeds.

A contrast is a number :math:`d_s` for each seed s, such as the error of ERM minus that of mixup; a claim says that its
mean is above −margin. With S seeds

.. math:: T = \frac{\bar d + m}{s_d / \sqrt S}, \qquad \bar d \pm t_{0.975,\,S-1}\, s_d / \sqrt S

with one run, the standard error comes from the intervals of the figures over samples instead (by the delta method,
as if figures were independent, which is wide for two models on the same samples). Two-sided p values of the claims of
one recipe are corrected by Holm's procedure; where the corrected p is at most 0.05 the claim *holds* or *does not
hold*, by the sign of T, and else these runs *cannot tell*.

References
----------
Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.
Schuirmann, "A comparison of the two one-sided tests procedure", 1987: claims that two things hardly differ.
Benjamini & Heller, "Screening for partial conjunction hypotheses", 2008: claims of the kind "on at least u of n sets".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import stdtr, stdtrit

from vicinal.metrics import Estimate

__all__ = [
    "CANNOT_TELL",
    "HOLDS",
    "HOLDS_NOT",
    "NOT_TESTED",
    "AtLeast",
    "Claim",
    "Contrast",
    "Key",
    "Judged",
    "Pair",
    "figure",
    "highest",
    "holm",
    "judge",
    "lowest",
    "trend",
]

#: What names a cell: its data, network and method, or whatever a recipe's rows are.
Key: TypeAlias = tuple[str, ...]
#: Gives the figure of a cell, for one seed.
Lookup: TypeAlias = Callable[[Key, str], float]
#: The figures of every cell: by key, then by seed, then by name.
Figures: TypeAlias = Mapping[Key, Mapping[int, Mapping[str, Estimate]]]

HOLDS, HOLDS_NOT, CANNOT_TELL, NOT_TESTED = "holds", "does not hold", "cannot tell", "not tested"
#: Of the corrected tests, and of what an interval misses.
ALPHA = 0.05
#: The figure that a baseline's over-confidence is read from: mean confidence minus accuracy.
GAP = "gap"


@dataclass(frozen=True, eq=False)
class Contrast:
    """A number for each seed, made of figures of cells by `+`, `-`, `*` and `lowest`."""

    value: Callable[[Lookup], float]
    needs: tuple[tuple[Key, str], ...]
    """The cells and figures it is made of."""

    def __add__(self, other: Contrast) -> Contrast:
        return Contrast(lambda look: self.value(look) + other.value(look), (*self.needs, *other.needs))

    def __sub__(self, other: Contrast) -> Contrast:
        return self + other * -1

    def __mul__(self, factor: float) -> Contrast:
        return Contrast(lambda look: factor * self.value(look), self.needs)


def figure(name: str, *key: str) -> Contrast:
    """Return the figure of a cell.

    >>> gain = figure("error", "CIFAR-10", "ERM()") - figure("error", "CIFAR-10", "Mixup(alpha=1.0)")
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


def trend(several: Sequence[Contrast]) -> Contrast:
    r"""Return the slope over several in order, :math:`\sum_i (i - \bar i) v_i / \sum_i (i - \bar i)^2`.

    >>> rising = trend([figure("oe", name) for name in ("a", "b", "c")])
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

    def figure(self, name: str, method: str) -> Contrast:
        """Return the figure of a method."""
        return figure(name, *self.cell(method))

    def fall(self, name: str, higher: str, lower: str) -> Contrast:
        """Return how far a figure falls from one method to another."""
        return self.figure(name, higher) - self.figure(name, lower)


@dataclass(frozen=True, eq=False)
class Claim:
    """What a paper says, as a contrast that should be above −`margin`."""

    text: str
    """The claim, in a sentence."""
    contrast: Contrast
    """Positive where the paper is right."""
    _: KW_ONLY
    margin: float = 0.0
    """What may be lost: 0.01 for "no worse by more than a point". Below 0 the contrast must exceed it."""
    hardly: bool = False
    """The claim is that the contrast is within ±`margin`."""
    paper: float | None = None
    """The paper's contrast, in the same unit; None where it shows a figure or says it in prose."""
    unit: str = "points"
    """`"points"` where figures are shares, which are shown times 100; else what to write behind a number."""
    overconfident: Key | None = None
    """A claim about calibration: the cell of the baseline, which must be over-confident for the claim to be tested."""

    @property
    def needs(self) -> tuple[tuple[Key, str], ...]:
        """The cells and figures it speaks of."""
        gate = () if self.overconfident is None else ((self.overconfident, GAP),)
        return (*self.contrast.needs, *gate)


@dataclass(frozen=True, kw_only=True, eq=False)
class AtLeast:
    """A claim that at least `least` of several contrasts are positive.

    With the one-sided p values in order, that of "at least u of n" is (n − u + 1)·p₍ᵤ₎ (Benjamini & Heller 2008).
    """

    text: str
    contrasts: Sequence[Contrast]
    least: int
    paper: float | None = None
    unit: str = "sets"

    @property
    def needs(self) -> tuple[tuple[Key, str], ...]:
        """The cells and figures it speaks of."""
        return tuple(need for contrast in self.contrasts for need in contrast.needs)


@dataclass(frozen=True)
class Judged:
    """A claim and its verdict, as a result file holds it."""

    claim: str
    verdict: str
    effect: float | None
    low: float | None
    high: float | None
    p: float | None
    """Two-sided, after Holm's correction."""
    n_seeds: int
    paper: float | None
    margin: float
    unit: str
    reason: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""
        return {name: _rounded(value) if isinstance(value, float) else value for name, value in vars(self).items()}


@dataclass(frozen=True)
class _Tested:
    effect: float
    low: float
    high: float
    p_for: float
    p_against: float
    n_seeds: int


def judge(claims: Sequence[Claim | AtLeast], figures: Figures) -> list[Judged]:
    """Return the verdicts of a recipe's claims, corrected for their number.

    A claim that is not tested counts in that number: whether it is tested depends on the data.
    """
    tested: list[_Tested | str] = [_tested(claim, figures) for claim in claims]
    corrected = holm([1.0 if isinstance(t, str) else min(1.0, t.p_for, t.p_against) for t in tested])
    judged = []
    for claim, test, p in zip(claims, tested, corrected, strict=True):
        margin = getattr(claim, "margin", 0.0)
        if isinstance(test, str):
            judged.append(
                Judged(claim.text, NOT_TESTED, None, None, None, None, 0, claim.paper, margin, claim.unit, test)
            )
            continue
        verdict = CANNOT_TELL if p > ALPHA else HOLDS if test.p_for < test.p_against else HOLDS_NOT
        judged.append(
            Judged(
                claim.text, verdict, test.effect, test.low, test.high, p, test.n_seeds, claim.paper, margin, claim.unit
            )
        )
    return judged


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected by Holm's step-down procedure.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    corrected, so_far = np.empty(len(p_values)), 0.0
    for rank, at in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[at]))
        corrected[at] = so_far
    return [float(p) for p in corrected]


def _tested(claim: Claim | AtLeast, figures: Figures) -> _Tested | str:
    """Return what the runs say of a claim, or why it is not tested."""
    absent = sorted({" · ".join(key) for key, _ in claim.needs if key not in figures})
    if absent:
        return f"there is no cell {absent[0]}"
    seeds = _shared_seeds(claim.needs, figures)
    if not seeds:
        return "no seed has all of its cells"
    for key, name in claim.needs:
        for seed in seeds:
            if not math.isfinite(figures[key][seed][name].value):
                # To leave such a seed out would be to choose among runs by how they came out.
                return f"{name} of {' · '.join(key)} with seed {seed} is not a finite number"
    if isinstance(claim, AtLeast):
        return _at_least(claim, figures, seeds)
    if claim.overconfident is not None:
        gap = _Mean.of(figure(GAP, *claim.overconfident), figures, seeds)
        if gap.low <= 0:
            shown = f"{100 * gap.value:+.1f} points [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]".replace("-", "−")
            return f"the baseline is not over-confident (confidence − accuracy is {shown})"
    mean = _Mean.of(claim.contrast, figures, seeds)
    if mean.error == 0 and len(seeds) == 1:
        return "one run says nothing of how it varies, and its figures have no intervals over samples: run more seeds"
    if claim.hardly:
        above, below = mean.chance_below(-claim.margin), 1 - mean.chance_below(claim.margin)
        p_for, p_against = 2 * max(above, below), 2 * min(1 - above, 1 - below)
    else:
        p_for = 2 * mean.chance_below(-claim.margin)
        p_against = 2 * (1 - mean.chance_below(-claim.margin))
    return _Tested(mean.value, mean.low, mean.high, p_for, p_against, len(seeds))


def _at_least(claim: AtLeast, figures: Figures, seeds: list[int]) -> _Tested:
    means = [_Mean.of(contrast, figures, seeds) for contrast in claim.contrasts]
    n, u = len(means), claim.least
    for_it = sorted(mean.chance_below(0.0) for mean in means)
    against = sorted(1 - p for p in for_it)
    return _Tested(
        effect=sum(mean.value > 0 for mean in means),
        low=sum(mean.low > 0 for mean in means),
        high=sum(mean.high > 0 for mean in means),
        p_for=2 * (n - u + 1) * for_it[u - 1],
        p_against=2 * u * against[n - u],
        n_seeds=len(seeds),
    )


def _shared_seeds(needs: Sequence[tuple[Key, str]], figures: Figures) -> list[int]:
    every = [{seed for seed, row in figures[key].items() if name in row} for key, name in needs]
    return sorted(set.intersection(*every))


def _lookup(figures: Figures, seed: int) -> Lookup:
    return lambda key, name: figures[key][seed][name].value


@dataclass(frozen=True)
class _Mean:
    """The mean of a contrast over seeds, or its value in one run, with the distribution of its error."""

    value: float
    error: float
    """Its standard error."""
    freedom: float
    constant: int = 1
    """How many seeds agree, if they all do: then there is no standard error to speak of."""
    rounding: float = 0.0
    """How far apart numbers are that rounding alone tells apart."""

    @classmethod
    def of(cls, contrast: Contrast, figures: Figures, seeds: Sequence[int]) -> _Mean:
        values = np.array([contrast.value(_lookup(figures, seed)) for seed in seeds])
        if len(seeds) == 1:
            return cls(float(values[0]), _error_over_samples(contrast, figures, seeds[0]), math.inf)
        # Figures are kept to seven digits: differences of counts that are equal may not be so to the last bit, and a
        # standard error made of rounding would be taken for certainty.
        rounding = 1e-6 * max(abs(figures[key][seed][name].value) for key, name in contrast.needs for seed in seeds)
        if np.ptp(values) <= rounding:
            return cls(float(values.mean()), 0.0, len(seeds) - 1, len(seeds), rounding)
        return cls(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(seeds)), len(seeds) - 1)

    @property
    def low(self) -> float:
        return self.value - self._half()

    @property
    def high(self) -> float:
        return self.value + self._half()

    def _half(self) -> float:
        return float(stdtrit(min(self.freedom, 1e9), 1 - ALPHA / 2)) * self.error

    def chance_below(self, bound: float) -> float:
        """Return the one-sided p value of the mean being above `bound`."""
        distance = self.value - bound
        if self.error == 0:
            if abs(distance) <= self.rounding:
                return 0.5
            p = 0.5**self.constant  # seeds that agree (counts do) are as many tosses of a coin
            return p if distance > 0 else 1 - p
        return float(stdtr(min(self.freedom, 1e9), -distance / self.error))


def _error_over_samples(contrast: Contrast, figures: Figures, seed: int) -> float:
    """Return the standard error of a contrast in one run, from the intervals of its figures (delta method)."""

    def value(shifted: tuple[Key, str] | None, by: float) -> float:
        return contrast.value(lambda key, name: figures[key][seed][name].value + by * ((key, name) == shifted))

    total = 0.0
    for need in set(contrast.needs):
        estimate = figures[need[0]][seed][need[1]]
        error = (estimate.high - estimate.low) / (2 * float(stdtrit(1e9, 1 - ALPHA / 2)))
        if error > 0:
            total += ((value(need, error) - value(need, -error)) / 2) ** 2
    return math.sqrt(total)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
