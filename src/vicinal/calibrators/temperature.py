"""Temperature scaling: one number T that divides every logit.

    p = softmax(z / T),    T = argmin Σᵢ −log softmax(zᵢ / T)[yᵢ]

With β = 1/T and dᵢ = zᵢ − max zᵢ, the mean loss and its derivatives are

    L(β) = mean(log Σₖ exp(β dᵢₖ) − β dᵢ,yᵢ),   L′(β) = mean(E_p[dᵢ] − dᵢ,yᵢ),   L″(β) = mean(Var_p[dᵢ]) ≥ 0

so L is convex in β and unimodal in T. Newton runs in log β inside a bracket: T cannot turn negative, and a
step that leaves the bracket or fails to shrink is replaced by a bisection.

Where nothing is wrong, L only falls as T → 0, and with a mistake or two by a hair it nearly does; a small perfect set
would make every answer certain. But n samples cannot show that fewer than one in n + 2 is wrong (Laplace's rule of
succession for no mistakes among n). So T is lowered below 1 at most to where the samples that are classified right
are expected to hold as many mistakes, on average over all samples:

    mean([rightᵢ] (1 − max softmax(zᵢ / T))) ≥ 1 / (n + 2)

The left side rises with T, and at an optimum that many mistakes determine it lies far above: there T is the
optimum. T is never raised above 1 by this: that no mistake was seen does not show that the model is over-confident.

Where the logits say less than chance, L only falls as T → ∞, and every answer would become 1 / K. Nor can n samples
show that: T is raised above 1 at most to where the mean confidence is above chance by as much,

    mean(max softmax(zᵢ / T)) − 1 / K ≥ 1 / (n + 2)

References
----------
Guo, Pleiss, Sun & Weinberger (2017), On Calibration of Modern Neural Networks. The grid is that of Park &
Caragea (2022), On the Calibration of Pre-trained Language Models using Mixup Guided by AUM and Saliency, Section 4.3,
which does not say what is minimised on it: `criterion` has both readings.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from scipy.optimize import brentq

from vicinal._checks import choice, freeze, integer, number
from vicinal.calibrators.base import Calibrator, Floats, Labels, Logits, map_rows
from vicinal.metrics.reliability import ReliabilityTable

#: Park & Caragea's 0.01, 0.02, …, 5.00.
GRID: Floats = np.arange(1, 501) / 100

#: Newton squares its error: a last step of this size in log T leaves an error of about its square.
_LAST_STEP = 1e-4

#: Rows of the subsample that finds the start for the whole set: log T is then within a few per cent.
_WARM_ROWS = 2_000


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class TemperatureScaling(Calibrator):
    """Divide the logits by one temperature: `softmax(z / T)`.

    The predicted class of every sample stays the same (but where two logits are equal up to rounding), so
    accuracy is untouched; only the confidence changes.

    Parameters
    ----------
    search : {"newton", "grid"}
        Newton's method in log T, or the best of Park & Caragea's 0.01, 0.02, …, 5.00.
    criterion : {"nll", "ece"}
        What is minimised: the mean negative log-likelihood, or the expected calibration error. ECE jumps
        wherever a sample changes bin, so it needs `search="grid"`; of equals the lowest temperature is taken.
    n_bins : int
        Equal-width bins of the ECE; only `criterion="ece"` uses it.
    bounds : pair of floats
        Where Newton looks for T. If the logits say less than chance the likelihood only grows as T → ∞: T is then the
        highest that so many samples can show (see the module), or the bound if that is lower, with a warning. If
        (almost) every sample is classified correctly it only grows as T → 0: T is then the lowest that so many samples
        can show, or the bound if that is higher, with a warning.
        The grid keeps its own ends.

    Attributes
    ----------
    temperature_ : float
        Positive and finite. Above one the model was over-confident. Logits that are constant in every row
        give the same probabilities at any temperature: T is then 1, with a warning.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> labels = torch.tensor([0, 0, 1, 1])  # three of four are right, so the confidence should be 3/4
    >>> calibrator = TemperatureScaling().fit(logits, labels)
    >>> round(calibrator.temperature_, 4)  # 2 / log 3
    1.8205
    >>> calibrator.predict_proba(logits[:1])
    tensor([[0.7500, 0.2500]])
    """

    search: str = "newton"
    criterion: str = "nll"
    n_bins: int = 15
    bounds: tuple[float, float] = (1e-3, 1e3)

    temperature_: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        choice("search", self.search, ("newton", "grid"))
        choice("criterion", self.criterion, ("nll", "ece"))
        if self.criterion == "ece" and self.search != "grid":
            raise ValueError(f"criterion='ece' jumps with T and needs search='grid', got {self.search!r}")
        freeze(self, n_bins=integer("n_bins", self.n_bins, low=1), bounds=_bounds(self.bounds))

    @classmethod
    def of(cls, temperature: float, n_classes: int) -> TemperatureScaling:
        """Return the calibrator that divides the logits of so many classes by a known temperature."""
        calibrator, known = cls(), number("temperature", temperature, above=0)
        freeze(calibrator, temperature_=known, n_classes_=integer("n_classes", n_classes, low=2))
        return calibrator

    def _solve(self, logits: Logits, labels: Labels, weights: Floats) -> dict[str, object]:
        low, high = self.bounds if self.search == "newton" else (float(GRID[0]), float(GRID[-1]))
        if self.criterion == "ece":
            temperature = float(GRID[grid_ece(logits, labels, GRID, n_bins=self.n_bins, weights=weights).argmin()])
        else:
            temperature = newton_nll(logits, labels, low=low, high=high, weights=weights)
        if self.search == "grid" and self.criterion == "nll":
            temperature = _nearest_on_grid(logits, labels, temperature, weights)
        if self.search == "newton" and temperature < 1:
            lowest = lowest_shown(logits, labels, low=temperature, high=min(1.0, high), weights=weights)
            if lowest > temperature:
                _warn(f"{lowest:.4g}, the lowest that {len(labels):,} samples with so few mistakes can show: more")
                return {"temperature_": lowest}
        if self.search == "newton" and temperature > 1:
            highest = highest_shown(logits, low=max(1.0, low), high=temperature, weights=weights)
            if highest < temperature:
                _warn(f"{highest:.4g}, the highest that {len(labels):,} samples no better than chance can show: less")
                return {"temperature_": highest}
        if temperature in (low, high):
            end, change = ("lower", "more") if temperature == low else ("upper", "less")
            _warn(f"{temperature:g}, the {end} end of [{low:g}, {high:g}]: {change}")
        return {"temperature_": temperature}

    def _calibrate(self, logits: Logits) -> Logits:
        scaled: Logits = logits / self.temperature_
        return scaled

    def _restore(self, n_classes: int, **learned: object) -> dict[str, object]:
        return {"temperature_": number("temperature_", learned["temperature_"], above=0)}


def lowest_shown(logits: Logits, labels: Labels, *, low: float, high: float, weights: Floats | None = None) -> float:
    """Return the T in [low, high] at which the samples classified right hold 1 / (n + 2) of expected mistakes.

    >>> logits = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(lowest_shown(logits, np.array([1, 1, 0]), low=0.1, high=10), 4)  # 1 / (1 + exp(1 / T)) = 1 / 5
    0.7213
    """
    w = np.ones(len(labels)) if weights is None else weights
    n = float(w.sum())

    def excess(log_t: float) -> float:
        def mass(z: Logits, y: Labels, each: Floats) -> float:
            others = np.exp((z - z.max(axis=1, keepdims=True)) / z.dtype.type(math.exp(log_t))).sum(axis=1) - 1
            right = z[np.arange(len(y)), y] == z.max(axis=1)
            return float((each * (others / (1 + others)))[right].sum(dtype=np.float64))

        return sum(map_rows(mass, logits, labels, w)) / n - 1 / (n + 2)

    ends = math.log(low), math.log(high)
    if excess(ends[0]) >= 0 or low >= high:
        return low
    return high if excess(ends[1]) <= 0 else math.exp(brentq(excess, *ends, xtol=1e-6))


def highest_shown(logits: Logits, *, low: float, high: float, weights: Floats | None = None) -> float:
    """Return the T in [low, high] at which the mean confidence is above chance by 1 / (n + 2).

    >>> logits = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(highest_shown(logits, low=0.1, high=10), 4)  # 1 / (1 + exp(-1 / T)) = 1 / 2 + 1 / 5
    1.1802
    """
    w = np.ones(len(logits)) if weights is None else weights
    n = float(w.sum())

    def excess(log_t: float) -> float:
        def confidence(z: Logits, each: Floats) -> float:
            scaled = (z - z.max(axis=1, keepdims=True)) / z.dtype.type(math.exp(log_t))
            return float((each / np.exp(scaled).sum(axis=1)).sum(dtype=np.float64))

        return float(sum(map_rows(confidence, logits, w)) / n - 1 / logits.shape[1] - 1 / (n + 2))

    ends = math.log(low), math.log(high)
    if excess(ends[1]) >= 0 or low >= high:
        return high
    return low if excess(ends[0]) <= 0 else math.exp(brentq(excess, *ends, xtol=1e-6))


def _warn(reason: str) -> None:
    """Say that the temperature stopped, and which way these samples would have it go."""
    warnings.warn(
        f"the temperature stopped at {reason} confidence would suit these samples ever better; fit on more held-out "
        "samples",
        stacklevel=4,
    )


def newton_nll(logits: Logits, labels: Labels, *, low: float, high: float, weights: Floats | None = None) -> float:
    """Return the T in [low, high] that minimises the mean negative log-likelihood of `softmax(logits / T)`.

    >>> logits = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(newton_nll(logits, np.array([1, 1, 1]), low=0.1, high=10), 4)  # 1 / log 2
    1.4427
    """
    start = min(max(1.0, low), high)
    w = np.ones(len(labels)) if weights is None else weights
    top = np.concatenate(map_rows(lambda z: z.max(axis=1), logits))
    if np.array_equal(logits[np.arange(len(labels)), labels], top):
        if np.array_equal(logits.min(axis=1), top):
            warnings.warn("the logits are constant in every row: any temperature fits equally", stacklevel=4)
            return start
        return low  # nothing is wrong: the likelihood only grows as T falls
    if len(logits) > 4 * _WARM_ROWS:
        some = slice(None, None, len(logits) // _WARM_ROWS)
        start = _newton(logits[some], labels[some], top[some], w[some], start, low, high)
    return _newton(logits, labels, top, w, start, low, high)


def _newton(
    logits: Logits, labels: Labels, top: Logits, weights: Floats, start: float, low: float, high: float
) -> float:
    """Newton in u = log β; bisects where a step leaves the bracket or does not halve the one before."""
    least, most = -math.log(high), -math.log(low)
    left, right = -math.inf, math.inf  # where the slope was last negative, and positive
    u, last = -math.log(start), math.inf
    while True:
        beta = math.exp(u)
        _, slope, curvature = nll_derivatives(logits, labels, top, beta, weights)
        if slope == 0:
            return math.exp(-u)
        left, right = (u, right) if slope < 0 else (left, u)
        if left >= most or right <= least:
            return low if left >= most else high
        # dL/du = β L′, and d²L/du² = β² L″ + β L′, whose second term vanishes at the minimum: without it the
        # curvature is never negative and the convergence still quadratic.
        pull = beta * curvature
        step = -slope / pull if pull > 0 else -math.copysign(math.inf, slope)
        target = min(max(u + step, least), most)
        if left < target < right and abs(step) <= last / 2:
            if abs(step) < _LAST_STEP:
                return math.exp(-target)
        elif math.isinf(left) or math.isinf(right):  # not a bracket yet: try the bound itself
            target = most if slope < 0 else least
        else:
            target = (left + right) / 2
            if not left < target < right:  # they are neighbouring numbers
                return math.exp(-target)
        u, last = target, abs(target - u)


def nll_derivatives(
    logits: Logits, labels: Labels, top: Logits, beta: float, weights: Floats | None = None
) -> tuple[float, float, float]:
    """Return L, L′ and L″ at β in one pass; `top` `[N]` holds the highest logits. Sums are in float64."""
    w = np.ones(len(labels)) if weights is None else weights

    def sums(z: Logits, y: Labels, highest: Logits, each: Floats) -> list[float]:
        d = z - highest[:, None]
        weight = d * z.dtype.type(beta)
        np.exp(weight, out=weight)
        total = weight.sum(axis=1)
        mean = np.einsum("ij,ij->i", weight, d) / total
        weight *= d
        square = np.einsum("ij,ij->i", weight, d) / total
        of_label = d[np.arange(len(y)), y]
        terms = (np.log(total) - beta * of_label, mean - of_label, square - mean * mean)
        return [float((each * term).sum()) for term in terms]

    nll, slope, curvature = np.sum(map_rows(sums, logits, labels, top, w), axis=0) / w.sum()
    return float(nll), float(slope), float(curvature)


def _nearest_on_grid(logits: Logits, labels: Labels, temperature: float, weights: Floats) -> float:
    """Return the grid's best: as the loss is unimodal in T, it is one of the two beside the exact minimum."""
    above = int(np.searchsorted(GRID, temperature))
    beside = [float(t) for t in GRID[max(above - 1, 0) : above + 1]]
    top = logits.max(axis=1)
    return min(beside, key=lambda t: nll_derivatives(logits, labels, top, 1 / t, weights)[0])


def grid_ece(logits: Logits, labels: Labels, grid: Floats, *, n_bins: int, weights: Floats | None = None) -> Floats:
    """Return the ECE of `softmax(logits / T)` for every T of `grid`, in `n_bins` bins (lo, hi] of [0, 1].

    ECE = Σ_b |Σ_{i∈b} (correctᵢ − confidenceᵢ)| / N, so one sum a bin is all that is kept.
    """
    table = ReliabilityTable(n_bins)
    w = np.ones(len(labels)) if weights is None else weights

    def gaps(z: Logits, y: Labels, each: Floats) -> Floats:
        correct = z.argmax(axis=1) == y
        d = z - z.max(axis=1, keepdims=True)
        sums = np.empty((len(grid), n_bins))
        for row, t in zip(sums, grid, strict=True):
            scaled = d / z.dtype.type(t)
            confidence = 1 / np.exp(scaled, out=scaled).sum(axis=1, dtype=np.float64)
            row[:] = np.bincount(table.bin_index(confidence), each * (correct - confidence), n_bins)
        return sums

    total: Floats = sum(map_rows(gaps, logits, labels, w), np.zeros((len(grid), n_bins)))
    error: Floats = np.abs(total).sum(axis=1) / w.sum()
    return error


def _bounds(value: Sequence[float]) -> tuple[float, float]:
    try:
        low, high = value
    except (TypeError, ValueError):
        raise ValueError(f"bounds must be a pair of numbers (low, high), got {value!r}") from None
    low, high = number("bounds[0]", low, above=0), number("bounds[1]", high, above=0)
    if low >= high:
        raise ValueError(f"bounds must be increasing, got {value!r}")
    return low, high
