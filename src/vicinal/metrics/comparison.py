"""Whether one model is better than another on the same samples, beyond the luck of samples and seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from vicinal._checks import integer
from vicinal._random import resampler
from vicinal.metrics._predictions import Array
from vicinal.metrics.evaluation import Evaluation
from vicinal.metrics.intervals import coverage, quantiles
from vicinal.metrics.reliability import BinSums, calibration_mse, expected_error, overconfidence_error
from vicinal.metrics.scores import mcc_contributions

__all__ = ["Comparison", "Difference", "compare"]

#: Figures of which more is better; of the others less is.
HIGHER_IS_BETTER = frozenset({"accuracy", "mcc"})

#: Blocks of samples that are resampled together. With as many samples or fewer, each is a block of its own.
MAX_BLOCKS = 2048

_ERRORS: dict[str, Callable[[BinSums], Array]] = {
    "ece": expected_error,
    "oe": overconfidence_error,
    "rms": lambda bins: np.sqrt(calibration_mse(bins)),
}


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
    confidence
        Coverage of the intervals.
    differences
        By name of the figure.
    names
        What the models are called in print.
    """

    n: int
    n_seeds: int
    n_bins: int
    confidence: float
    differences: dict[str, Difference]
    names: tuple[str, str] = ("a", "b")

    def __getitem__(self, figure: str) -> Difference:
        return self.differences[figure]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for a JSON file."""
        sizes = {"n": self.n, "n_seeds": self.n_seeds, "n_bins": self.n_bins, "confidence": self.confidence}
        return {**sizes, "names": list(self.names), **{k: dict(vars(d)) for k, d in self.differences.items()}}

    def __str__(self) -> str:
        a, b = self.names
        seeds = f"{self.n_seeds} seeds" if self.n_seeds > 1 else "1 seed"
        head = (
            f"{b} − {a}, paired on {self.n:,} samples, {seeds}, {self.n_bins} bins; "
            f"{100 * self.confidence:g} % intervals"
        )
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
    confidence: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
    names: tuple[str, str] = ("a", "b"),
) -> Comparison:
    r"""Compare two models evaluated on the same samples, figure by figure.

    Both see the same resamples of the samples (paired bootstrap), so what is hard for both cancels out. Samples are
    resampled in at most 2,048 random blocks, which makes the cost independent of their number and the spread uncertain
    by 2 %; with fewer samples than that it is the ordinary bootstrap. The interval is the basic one, [2d − upper
    quantile, 2d − lower quantile] for a difference d. MCE is left out: no resampling tells its spread.

    Given several runs (seeds) of each, in order, the difference is that of the means, and its interval speaks of other
    samples *and* other seeds. With :math:`\delta_s` the difference of seed s, :math:`S` seeds, and :math:`v` the
    bootstrap variance of the mean difference over samples, it is :math:`d - \text{bias} \pm t\sqrt{v + s_\delta^2/S}`
    with Welch–Satterthwaite's degrees of freedom :math:`(S - 1)(v + s_\delta^2/S)^2 / (s_\delta^2/S)^2`.

    Parameters
    ----------
    a, b
        `evaluate`'s results, or equally many of them for either (one a seed).
    confidence
        Coverage of the intervals, in (0, 1).
    n_resamples, seed
        Of the bootstrap.
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
    accuracy    0.5000   1.0000  +0.5000 [+0.4000, +0.6000]     model
    ...
    """
    runs_a, runs_b = _runs("a", a), _runs("b", b)
    confidence = coverage(confidence)
    _check_same_samples(runs_a, runs_b)
    random = resampler(integer("seed", seed, low=0))
    n = runs_a[0].n
    n_blocks = min(n, MAX_BLOCKS)
    block = np.arange(n) if n_blocks == n else random.permutation(n) % n_blocks
    picks = random.integers(n_blocks, size=(integer("n_resamples", n_resamples, low=1), n_blocks))
    picks += np.arange(len(picks))[:, None] * n_blocks
    weights = np.bincount(picks.ravel(), minlength=picks.size).reshape(picks.shape).astype(np.float64)
    figures_a = [_figures(run, block, weights) for run in runs_a]
    figures_b = [_figures(run, block, weights) for run in runs_b]
    differences = {
        name: _difference(name, [f[name] for f in figures_a], [f[name] for f in figures_b], n, confidence)
        for name in figures_a[0]
    }
    return Comparison(n, len(runs_a), runs_a[0].n_bins, confidence, differences, (str(names[0]), str(names[1])))


def _figures(run: Evaluation, block: NDArray[np.int64], weights: Array) -> dict[str, tuple[float, Array]]:
    """Return each figure of a run and its value in every resample `[R]`; `weights` counts blocks, `[R, blocks]`."""
    samples, n_blocks = run.samples, weights.shape[1]
    correct = (samples.predictions == samples.labels).astype(np.float64)
    means = {
        "accuracy": correct,
        "mcc": mcc_contributions(samples.labels, samples.predictions)[1],
        "nll": samples.nll,
        "brier": samples.brier,
    }
    size = weights @ np.bincount(block, minlength=n_blocks)
    drawn: dict[str, tuple[float, Array]] = {}
    for name, values in means.items():
        sums = np.bincount(block, values, n_blocks).astype(np.float64)
        drawn[name] = (float(values.mean()), weights @ _finite(sums) / size)
    cell = block * run.n_bins + run.table.bin_index(samples.confidence)

    def binned(values: Any) -> Array:
        sums = np.bincount(cell, values, n_blocks * run.n_bins).reshape(n_blocks, run.n_bins)
        result: Array = weights @ sums
        return result

    bins = BinSums(binned(None), binned(samples.confidence), binned(correct))
    errors = {name: (float(error(run.table.bins)), error(bins)) for name, error in _ERRORS.items()}
    return {**drawn, **errors}


def _difference(
    name: str, a: list[tuple[float, Array]], b: list[tuple[float, Array]], n: int, confidence: float
) -> Difference:
    of_a, of_b = np.array([value for value, _ in a]), np.array([value for value, _ in b])
    mean_a, mean_b = float(of_a.mean()), float(of_b.mean())
    if not (math.isfinite(mean_a) and math.isfinite(mean_b)):
        better = None if mean_a == mean_b else "a" if math.isfinite(mean_a) else "b"
        value = math.nan if better is None else mean_b - mean_a
        return Difference(mean_a, mean_b, value, -math.inf, math.inf, better)
    value = mean_b - mean_a
    drawn = np.mean([draws for _, draws in b], axis=0) - np.mean([draws for _, draws in a], axis=0)
    if len(a) == 1 and n == 1:  # one sample, one seed: nothing is known of the spread
        return Difference(mean_a, mean_b, value, -math.inf, math.inf, None)
    if len(a) == 1:
        lower, upper = quantiles(drawn, confidence)
        low, high = 2 * value - upper, 2 * value - lower
    else:
        over_seeds = float(np.var(of_b - of_a, ddof=1)) / len(a)
        total = over_seeds + float(np.var(drawn, ddof=1))
        freedom = (len(a) - 1) * (total / over_seeds) ** 2 if over_seeds > 0 else math.inf
        half = float(stdtrit(min(freedom, 1e9), (1 + confidence) / 2)) * math.sqrt(total)
        centre = 2 * value - float(drawn.mean())
        low, high = centre - half, centre + half
    up, down = ("b", "a") if name in HIGHER_IS_BETTER else ("a", "b")
    return Difference(mean_a, mean_b, value, low, high, up if low > 0 else down if high < 0 else None)


def _finite(sums: Array) -> Array:
    """Replace infinite sums, which times a weight of 0 are NaN; their figure is infinite, so its draws go unused."""
    return np.where(np.isfinite(sums), sums, 0)


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
        if not np.array_equal(first.samples.labels, run.samples.labels):
            raise ValueError(
                f"a and b must be evaluated on the same samples in the same order, got different labels "
                f"({first.n} and {run.n} samples)"
            )
        if not np.array_equal(first.table.edges, run.table.edges):
            raise ValueError(f"a and b must have the same bins, got {first.n_bins} and {run.n_bins} bins")
