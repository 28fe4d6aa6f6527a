"""Whether one model is better than another on the same samples, beyond the luck of samples and seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from vicinal.metrics.chunks import Array
from vicinal.metrics.error_intervals import chance_gaps, part_deviation, squared_gaps
from vicinal.metrics.figures import FIGURES
from vicinal.metrics.intervals import coverage
from vicinal.metrics.reliability import BinSums
from vicinal.metrics.tally import Evaluation, Samples

__all__ = ["Comparison", "Difference", "compare"]


@dataclass(frozen=True)
class Difference:
    """A figure of two models and what separates them.

    Attributes
    ----------
    a, b
        The figure of either, the mean over seeds where there are several.
    value, low, high
        b − a, with the ends of its confidence interval.
    better
        `"a"`, `"b"`, or `None` where the interval contains 0: these samples cannot tell.
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
        Coverage of the intervals.
    differences
        By name of the figure.
    names
        What the models are called in print.
    """

    n: int
    n_seeds: int
    n_bins: int
    level: float
    differences: dict[str, Difference]
    names: tuple[str, str] = ("a", "b")

    def __getitem__(self, figure: str) -> Difference:
        return self.differences[figure]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for a JSON file."""
        sizes = {"n": self.n, "n_seeds": self.n_seeds, "n_bins": self.n_bins, "level": self.level}
        return {**sizes, "names": list(self.names), **{k: dict(vars(d)) for k, d in self.differences.items()}}

    def __str__(self) -> str:
        a, b = self.names
        seeds = f"{self.n_seeds} seeds" if self.n_seeds > 1 else "1 seed"
        head = f"{b} − {a}, paired on {self.n:,} samples, {seeds}, {self.n_bins} bins; {100 * self.level:g} % intervals"
        called = {"a": a, "b": b, None: "cannot tell"}
        wide = max(8, len(a), len(b))
        lines = [f"{'':<10}{a:>{wide}} {b:>{wide}}  {'difference':<30} better"]
        for name, d in self.differences.items():
            difference = f"{d.value:+.4f} [{d.low:+.4f}, {d.high:+.4f}]"
            lines.append(f"{name:<10}{d.a:>{wide}.4f} {d.b:>{wide}.4f}  {difference:<30} {called[d.better]}")
        return "\n".join([head, *lines])


def compare(
    a: Evaluation | Sequence[Evaluation],
    b: Evaluation | Sequence[Evaluation],
    *,
    level: float = 0.95,
    names: tuple[str, str] = ("a", "b"),
) -> Comparison:
    r"""Compare two models evaluated on the same samples, figure by figure.

    Every figure is a mean over samples of numbers whose spread is its sampling error: for accuracy, NLL and Brier score
    those of each sample, for MCC and the calibration errors the figure plus the sample's influence on it. With
    :math:`d_i` the difference of sample i between the models, what is hard for both cancels out, and

    .. math:: \bar d \pm t_{n-1} \sqrt{s_d^2 / n}

    is the interval that resampling the pairs converges to. Calibration errors lie above the truth by chance, more so
    for the model with the smaller gaps: the ends are moved outward by as much as that may be (the corrections
    of `vicinal.metrics.error_intervals`; where two models have nearly the same gaps, so have they nearly the same
    bias, and it cancels out). MCE is left out: its bias is not known.

    Given several runs (seeds) of each, in order, the difference is that of the means, and its interval speaks of other
    samples *and* other seeds. With :math:`\delta_s` the difference of seed s, S seeds, and v the variance of the mean
    over samples that all seeds share (the mean covariance of :math:`d_i` between seeds, over n), half its length is

    .. math:: \sqrt{t_{n-1}^2\, v + t_{S-1}^2\, s_\delta^2 / S}

    It never covers less than its level: the squared error is :math:`\chi^2_1` in units of its variance, of which
    samples have the share r and seeds 1 − r; the distribution function F of :math:`\chi^2_1` is concave, so
    :math:`F(r\, t_{n-1}^2 + (1 - r)\, t_{S-1}^2 \hat s^2/s^2)` is at least the mean of its values at either, and these
    have the level as their expectation. (Welch's approximation takes a small :math:`s_\delta` at its word.)

    Parameters
    ----------
    a, b
        `evaluate`'s results, or equally many of them for either (one a seed).
    level
        Coverage of the intervals, in (0, 1).
    names
        What to call the models in print.

    Examples
    --------
    >>> from vicinal.metrics import evaluate
    >>> labels = [0, 1] * 50
    >>> a = evaluate(labels, probs=[[0.6, 0.4]] * 100)
    >>> b = evaluate(labels, probs=[[0.9, 0.1], [0.1, 0.9]] * 50)
    >>> print(compare(a, b, names=("coin", "model")))
    model − coin, paired on 100 samples, 1 seed, 15 bins; 95 % intervals
                  coin    model  difference                     better
    accuracy    0.5000   1.0000  +0.5000 [+0.4003, +0.5997]     model
    ...
    """
    runs_a, runs_b = _runs("a", a), _runs("b", b)
    level = coverage(level)
    _check_same_samples(runs_a, runs_b)
    pairs = [(_Figures.of(run_a), _Figures.of(run_b)) for run_a, run_b in zip(runs_a, runs_b, strict=True)]
    differences = {name: _difference(name, pairs, level) for name in pairs[0][0].values}
    return Comparison(runs_a[0].n, len(pairs), runs_a[0].n_bins, level, differences, (str(names[0]), str(names[1])))


@dataclass(frozen=True, eq=False)
class _Figures:
    """The figures of a run: by name the values of the samples, `[N]`, whose mean each is; and its bins."""

    values: dict[str, Array]
    bins: BinSums
    squared: Array

    @classmethod
    def of(cls, run: Evaluation) -> _Figures:
        samples, table = _samples(run), run.table
        values: dict[str, Array] = {}
        for name, figure in FIGURES.items():
            if not figure.compared or run.figures.get(name) is None:
                continue
            if figure.of_pairs is not None:
                values[name] = figure.of_pairs(samples.labels, samples.predictions)[1]
            elif figure.contributions is not None:
                values[name] = figure.contributions(table, samples.confidence, samples.correct)
            else:
                values[name] = samples.values[name].astype(np.float64)
        return cls(values, table.bins, squared_gaps(table))


def _difference(name: str, pairs: list[tuple[_Figures, _Figures]], level: float) -> Difference:
    means = np.array([[float(side.values[name].mean()) for side in pair] for pair in pairs])
    mean_a, mean_b = (float(mean) for mean in means.mean(axis=0))
    if not (math.isfinite(mean_a) and math.isfinite(mean_b)):
        better = None if mean_a == mean_b else "a" if math.isfinite(mean_a) else "b"
        value = math.nan if better is None else mean_b - mean_a
        return Difference(mean_a, mean_b, value, -math.inf, math.inf, better)
    value = mean_b - mean_a
    half = _half_length([b.values[name] - a.values[name] for a, b in pairs], level)
    room_a, room_b = np.mean([_chance(name, a, b) for a, b in pairs], axis=0)
    low, high = value - float(room_b) - half, value + float(room_a) + half
    up, down = ("b", "a") if FIGURES[name].higher_is_better else ("a", "b")
    return Difference(mean_a, mean_b, value, low, high, up if low > 0 else down if high < 0 else None)


def _half_length(differences: list[Array], level: float) -> float:
    """Return half the length of the interval of a mean difference, of one array `[N]` of differences a seed."""
    n, n_seeds = len(differences[0]), len(differences)
    if n == 1:
        return math.inf  # nothing is known of the spread over samples
    samples = float(np.var(sum(differences) / n_seeds, ddof=1)) / n
    squared = 0.0
    if n_seeds > 1:
        # What differs from seed to seed for each sample is in the spread over seeds: it counts once.
        alone = float(np.mean([np.var(d, ddof=1) for d in differences])) / n / n_seeds
        samples = max(samples - alone, 0) * n_seeds / (n_seeds - 1)
        seeds = float(np.var([d.mean() for d in differences], ddof=1)) / n_seeds
        squared = float(stdtrit(n_seeds - 1, (1 + level) / 2)) ** 2 * seeds
    return math.sqrt(squared + float(stdtrit(n - 1, (1 + level) / 2)) ** 2 * samples)


def _chance(name: str, a: _Figures, b: _Figures) -> tuple[float, float]:
    """Return how far chance may have raised the figure of a more than that of b, and that of b more than that of a.

    Chance raises a part |G| by at most `chance_gaps`, and those of two models by amounts that differ by no more than
    their G and their standard deviations do.
    """
    if name not in ("ece", "oe", "rms"):
        return 0.0, 0.0
    sides, n = (a, b), a.bins.count.sum()
    parts = [(side.bins.confidence - side.bins.correct) / n for side in sides]
    deviations = [part_deviation(side.bins, side.squared) for side in sides]
    if name == "rms":
        roots = [np.sqrt(np.maximum(side.bins.count, 1) / n) for side in sides]
        return _chance_of_rms(
            [part / root for part, root in zip(parts, roots, strict=True)],
            [deviation / root for deviation, root in zip(deviations, roots, strict=True)],
        )
    apart = np.abs(parts[1] - parts[0]) + np.abs(deviations[1] - deviations[0])
    raised = []
    for side in sides:
        weight = 1.0 if name == "ece" else side.bins.confidence / np.maximum(side.bins.count, 1) / 2
        raised.append(float((weight * np.minimum(chance_gaps(side.bins, side.squared), apart)).sum()))
    return raised[0], raised[1]


def _chance_of_rms(parts: list[Array], deviations: list[Array]) -> tuple[float, float]:
    """Return the same for RMS, the norm of G/√p: chance adds the squares of the deviations to its square."""
    noise = [float(np.linalg.norm(deviation)) for deviation in deviations]
    apart = float(np.linalg.norm(parts[1] - parts[0])) + abs(noise[1] - noise[0])
    raised = []
    for part, added in zip(parts, noise, strict=True):
        value = float(np.linalg.norm(part))
        # Twice the square, since the sample's own may be below what it is on average.
        raised.append(min(value - math.sqrt(max(value**2 - 2 * added**2, 0)), apart))
    return raised[0], raised[1]


def _samples(run: Evaluation) -> Samples:
    if run.samples is None:
        raise ValueError("a comparison pairs samples, which this evaluation did not keep: use `evaluate`")
    return run.samples


def _runs(name: str, value: Evaluation | Sequence[Evaluation]) -> list[Evaluation]:
    runs = [value] if isinstance(value, Evaluation) else list(value)
    if not runs or not all(isinstance(run, Evaluation) for run in runs):
        raise TypeError(f"{name} must be an Evaluation or a list of them (what evaluate returns), got {value!r}")
    return runs


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
