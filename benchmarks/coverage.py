"""How often 95 % intervals hold the truth, how often equal models are called different, how often a promise breaks.

    python -m benchmarks.coverage
    python -m benchmarks.coverage --only errors --seed 7 --cases 20    other populations, samples and cases

A population is a finite set of predictions with the chance that each is right, so that every figure of it is known;
samples are drawn from it with replacement. Logits z are normal with standard deviation `scale`, labels follow
softmax(z), and the model says softmax(z / T): T = 1 is calibrated, below it over-confident, above it under-confident.
A "constant" population has one confidence and one accuracy. The cases were fixed before the intervals were; another
seed draws other populations of the same cases, and `--cases` other cases too.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import bdtr

from benchmarks.timing import table
from vicinal import evaluate
from vicinal.metrics import FIGURES, BinSums, ReliabilityTable, RiskCoverage, risk_coverage, risk_threshold
from vicinal.metrics.comparison import Side, difference_ends
from vicinal.metrics.error_intervals import error_ends
from vicinal.metrics.figures import Sums
from vicinal.metrics.intervals import Moments
from vicinal.metrics.scores import mcc_contributions

SIZES = (50, 100, 300, 1_000, 10_000)
CLASSES = (2, 10, 100)
TEMPERATURES = (0.3, 0.7, 1.0, 1.5, 3.0)
BINS = (1, 2, 15, 100)
CONSTANT = ((0.8, 0.0), (0.8, 0.02), (0.8, 0.05), (0.8, 0.2), (0.95, 0.02), (0.99, 0.0), (0.99, 0.03), (0.7, -0.1))
POPULATION = 100_000
ERRORS = ("ece", "oe", "rms", "mce")
#: The errors of bins have cases of their own.
MEASURED = ("accuracy", "mcc", "nll", "brier", "aurc")
BIASED = ("ece", "oe", "rms")
#: Of two models that differ: classes, their temperatures, and the noise in their logits.
PAIRS = (
    (3, (0.5, 1.0), (1, 1)),
    (10, (1.0, 1.5), (1, 0.3)),
    (10, (0.3, 0.5), (2, 1)),
    (2, (1, 1.2), (1, 2)),
)
COMPARED = ("accuracy", "mcc", "nll", "brier", *BIASED)
#: By figure, the share of intervals that hold the truth, and their mean length.
Shares = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Population:
    """Confidences and the chance that each is right, `[M]`; labelled logits where figures need them."""

    name: str
    confidence: Any
    chance: Any
    correct: Any = None
    logits: Any = None
    labels: Any = None

    @cached_property
    def rising(self) -> tuple[Any, Any]:
        """Confidences from the lowest to the highest, and their chances."""
        order = np.argsort(self.confidence, kind="stable")
        return self.confidence[order], self.chance[order]

    @cached_property
    def totals(self) -> list[Any]:
        """Running sums over rising confidences, from 0: of 1, of the gaps, and of the confidences."""
        sure, chance = self.rising
        return [np.concatenate([[0], np.cumsum(v)]) for v in (np.ones(POPULATION), sure - chance, sure)]

    @classmethod
    def normal(cls, n_classes: int, temperature: float, scale: float = 3.0, seed: int = 0) -> Population:
        """Return the predictions of a model that knows the truth but for a temperature."""
        random = np.random.default_rng([n_classes, round(100 * temperature), round(10 * scale), seed])
        z = (scale * random.standard_normal((POPULATION, n_classes))).astype(np.float32)
        chance = np.exp(z - z.max(1, keepdims=True))
        chance /= chance.sum(1, keepdims=True)
        labels = np.minimum((chance.cumsum(1) < random.random((POPULATION, 1))).sum(1), n_classes - 1)
        logits = z / np.float32(temperature)
        said = np.exp((logits - logits.max(1, keepdims=True)).astype(np.float64))
        guess = logits.argmax(1)
        name = f"K = {n_classes}, T = {temperature:g}" + (f", scale {scale:g}" if scale != 3 else "")
        own = chance[np.arange(POPULATION), guess].astype(np.float64)
        return cls(name, 1 / said.sum(1), own, (guess == labels).astype(np.float64), logits, labels)

    @classmethod
    def constant(cls, confidence: float, gap: float) -> Population:
        """Return predictions of one confidence that are right less often by `gap`."""
        name = f"constant {confidence:g}, gap {gap:g}"
        return cls(name, np.full(POPULATION, confidence), np.full(POPULATION, confidence - gap))


def binned(index: Any, n_bins: int, right: Any, confidence: Any) -> tuple[Any, ...]:
    """Return sums by bin, `[R, n_bins]`: counts, confidences, numbers right, and (confidence − [right])²."""
    rows = len(index)
    cell = (2 * index + right + np.arange(rows)[:, None] * 2 * n_bins).ravel()
    c = confidence.ravel()
    count, said, squares = (np.bincount(cell, v, rows * 2 * n_bins).reshape(rows, -1, 2) for v in (None, c, c * c))
    hits = count[..., 1].astype(np.float64)
    gaps = squares.sum(-1) - 2 * said[..., 1] + hits  # (c − 1)² = c² − 2c + 1
    return count.sum(-1).astype(np.float64), said.sum(-1), hits, gaps


def errors_of(count: Any, gap: Any, confidence: Any, filled: Any) -> dict[str, Any]:
    """Return the four errors of bins with these sums, `[...]`; MCE over the filled ones."""
    share, each = count / count.sum(-1, keepdims=True), gap / np.maximum(count, 1)
    return {
        "ece": (share * np.abs(each)).sum(-1),
        "oe": (share * confidence / np.maximum(count, 1) * np.maximum(each, 0)).sum(-1),
        "rms": np.sqrt((share * each**2).sum(-1)),
        "mce": np.where(filled, np.abs(each), 0).max(-1),
    }


def misses(pop: Population, n: int, n_bins: int, equal_mass: bool, trials: int, random: Any) -> dict[str, Any]:
    """Return by error the shares of intervals that lie above and below the truth, and their mean length."""
    sure, chance = pop.rising
    pick = random.integers(POPULATION, size=(trials, n), dtype=np.int32)
    if equal_mass:
        pick.sort(axis=1)  # so that confidences rise
        c = sure[pick]
        inner = c[:, (np.arange(1, n_bins) * n + n_bins - 1) // n_bins - 1]
        index = np.stack([np.searchsorted(edges, row) for edges, row in zip(inner, c, strict=True)])
    else:
        edges = np.arange(1, n_bins) / n_bins
        c, inner, index = sure[pick], np.tile(edges, (trials, 1)), np.searchsorted(edges, sure)[pick]
    right = random.random((trials, n)) < chance[pick]
    counts, said, hits, squared = binned(index, n_bins, right, c)
    ends = error_ends(BinSums(counts, said, hits), squared, 0.95)
    # The truth of the same bins: cumulative sums of the population at their edges.
    place = np.concatenate(
        [np.zeros((trials, 1), int), np.searchsorted(sure, inner, "right"), np.full((trials, 1), POPULATION)], axis=1
    )
    truth = errors_of(*(np.diff(total[place], axis=1) for total in pop.totals), counts > 0)
    return {
        name: (
            float((ends[name][0] > truth[name] + 1e-9).mean()),
            float((ends[name][1] < truth[name] - 1e-9).mean()),
            float((ends[name][1] - ends[name][0]).mean()),
        )
        for name in ERRORS
    }


@dataclass(frozen=True)
class Draw:
    """What is drawn: the trials of a case, the seed of all populations and samples, and cases in place of the fixed."""

    trials: int
    seed: int = 0
    cases: int = 0

    def generator(self, part: int) -> Any:
        """Return the generator of a part of the tables."""
        return np.random.default_rng([part, self.seed])


def drawn_cases(draw: Draw) -> Iterator[tuple[Population, int, bool]]:
    """Yield cases within the bounds of the fixed ones; every fourth has one confidence and one accuracy."""
    random = draw.generator(6)
    for k in range(draw.cases):
        n_bins, mass = int(np.exp(random.uniform(0, math.log(100.99)))), bool(random.random() < 0.5)
        if k % 4 == 3:
            confidence = round(random.uniform(0.5, 0.99), 3)
            gap = round(min(random.choice([-1, 1]) * 10 ** random.uniform(-3, -0.7), confidence), 4)
            yield Population.constant(confidence, max(gap, confidence - 1)), n_bins, False
        else:
            n_classes = int(np.exp(random.uniform(math.log(2), math.log(100.99))))
            temperature = round(float(np.exp(random.uniform(math.log(0.3), math.log(3)))), 2)
            scale = round(random.uniform(1, 8), 1)
            yield Population.normal(n_classes, temperature, scale, draw.seed), n_bins, mass and n_bins > 1


def error_cases(draw: Draw) -> Iterator[tuple[Population, int, bool]]:
    """Yield every population with its bins."""
    if draw.cases:
        yield from drawn_cases(draw)
        return
    for n_classes in CLASSES:
        for temperature in TEMPERATURES:
            pop = Population.normal(n_classes, temperature, seed=draw.seed)
            for n_bins in BINS:
                yield from ((pop, n_bins, mass) for mass in (False, True) if n_bins > 1 or not mass)
    for confidence, gap in CONSTANT:
        yield from ((Population.constant(confidence, gap), n_bins, False) for n_bins in (1, 2))


def odd_cases(draw: Draw) -> Iterator[tuple[Population, int, bool]]:
    """Yield populations whose confidences are no softmax of normal logits: tied, at edges of bins, with a long tail."""
    random = draw.generator(7)
    u = random.random(POPULATION)
    at_edges = np.ceil(15 * u) / 15
    few = np.array([0.2, 0.5, 0.50000001, 0.8, 0.8, 1.0])[(6 * u).astype(int)]
    tail = 1 - np.minimum(1e-4 * (1 - u) ** -1.2, 0.9)  # mostly sure, some not at all
    said = {
        "at the edges of 15 bins": (at_edges, (0.0, 0.03)),
        "five values, ties": (few, (0.0, 0.05)),
        "long tail": (tail, (0.0, 0.02)),
        "all certain": (np.ones(POPULATION), (0.0, 0.01, 0.1)),
        "all one edge": (np.full(POPULATION, 9 / 15), (0.0, 0.05, -0.05)),
        "almost certain or a guess": (np.where(u < 0.95, 0.9999, 0.5), (0.0, 0.01)),
        "low, as of 100 classes": (0.01 + 0.04 * u, (0.0, 0.005)),
    }
    for name, (confidence, gaps) in said.items():
        for gap in gaps:
            pop = Population(f"{name}, gap {gap:g}", confidence, np.clip(confidence - gap, 0, 1))
            yield from ((pop, n_bins, mass) for n_bins, mass in ((1, False), (10, True), (15, False)))


def odd(draw: Draw) -> str:
    """Coverage of ECE, OE, RMS and MCE where confidences are tied, at edges of bins, or have a long tail."""
    return _errors(draw, odd_cases(draw), draw.generator(8))


def errors(draw: Draw) -> str:
    """Coverage of ECE, OE, RMS and MCE over all cases, by number of samples."""
    return _errors(draw, error_cases(draw), draw.generator(1))


def _errors(draw: Draw, cases: Iterator[tuple[Population, int, bool]], random: Any) -> str:
    seen: dict[tuple[str, int], list[tuple[float, float, str]]] = {(name, n): [] for name in ERRORS for n in SIZES}
    for pop, n_bins, mass in cases:
        for n in SIZES:
            kind = f"{n_bins} {'equal-mass ' if mass else ''}bin{'s' if n_bins > 1 else ''}"

            def measure(
                trials: int, pop: Population = pop, n: int = n, bins: tuple[int, bool] = (n_bins, mass)
            ) -> Shares:
                rounds = list(batches(trials, n))
                parts = [misses(pop, n, *bins, rows, random) for rows in rounds]
                mean = {name: np.average([part[name] for part in parts], axis=0, weights=rounds) for name in ERRORS}
                return {name: (1 - above - below, length) for name, (above, below, length) in mean.items()}

            for name, share in settled(measure, draw.trials).items():
                seen[name, n].append((*share, f"{pop.name}, {kind}"))
    return summary(seen)


def settled(measure: Callable[[int], Shares], trials: int) -> Shares:
    """Return coverage and length by figure, and where one is below 94.2 %, those of four times as many new trials.

    Of a hundred exact intervals a few fall below 94 % in 2,000 trials; the new ones, which alone count then, tell
    chance from a fault.
    """
    found = measure(trials)
    return found if min(covered for covered, _ in found.values()) >= 0.942 else measure(4 * trials)


def summary(seen: dict[tuple[str, int], list[tuple[float, float, str]]]) -> str:
    """Return a row for each figure and size: coverage at worst and in the middle, the worst case, the middle length."""
    rows = []
    for (name, n), cases in seen.items():
        worst = min(cases)
        covered, length = (np.median([case[k] for case in cases]) for k in (0, 1))
        rows.append([name, f"{n:,}", f"{100 * worst[0]:.1f} %", worst[2], f"{100 * covered:.1f} %", f"{length:.3f}"])
    return table(["figure", "samples", "coverage, worst case", "which", "median", "length, median"], rows)


def figures(draw: Draw) -> str:
    """Coverage of the figures that are no errors of bins, and of AURC."""
    random, seen = draw.generator(2), {(name, n): [] for name in MEASURED for n in SIZES}
    cases = [(k, t, 3.0) for k in CLASSES for t in (0.3, 1.0, 3.0)] + [(2, 1.0, 8.0), (2, 0.3, 8.0), (10, 1.0, 8.0)]
    for case in cases:
        pop = Population.normal(*case, draw.seed)
        whole = evaluate(pop.labels, logits=pop.logits)
        truth = {name: getattr(whole, name).value for name in MEASURED[:-1]}
        truth["aurc"] = risk_coverage(pop.confidence, pop.correct).aurc
        samples = Known.of(whole.samples, case[0])
        for n in SIZES:

            def measure(trials: int, n: int = n, samples: Known = samples, truth: dict[str, float] = truth) -> Shares:
                held, length = dict.fromkeys(MEASURED, 0), dict.fromkeys(MEASURED, 0.0)
                for _ in range(trials):
                    pick = np.sort(random.integers(POPULATION, size=n, dtype=np.int32))
                    for name, found in samples.estimates(pick).items():
                        held[name] += found.low - 1e-9 <= truth[name] <= found.high + 1e-9
                        length[name] += (found.high - found.low) / trials
                return {name: (held[name] / trials, length[name]) for name in MEASURED}

            for name, share in settled(measure, draw.trials).items():
                seen[name, n].append((*share, pop.name))
    return summary(seen)


@dataclass(frozen=True)
class Known:
    """What is worked out once for a population, the surest first: `estimates` of samples of it then cost little."""

    n_classes: int
    confidence: Any
    pair: Any
    wrong: Any
    nll: Any
    brier: Any

    @classmethod
    def of(cls, samples: Any, n_classes: int) -> Known:
        """Take the predictions of an evaluation."""
        order = np.argsort(-samples.confidence, kind="stable")
        labels, guess = samples.labels[order], samples.predictions[order]
        losses = (samples.values[name][order].astype(np.float64) for name in ("nll", "brier"))
        return cls(n_classes, samples.confidence[order], labels * n_classes + guess, labels != guess, *losses)

    def estimates(self, pick: Any) -> dict[str, Any]:
        """Return what `evaluate` and `risk_coverage` say of these samples, in rising order; a test compares."""
        confidence, wrong = self.confidence[pick], self.wrong[pick]
        counts = np.bincount(self.pair[pick], minlength=self.n_classes**2)
        cells = np.flatnonzero(counts)
        bins = ReliabilityTable(15)
        bins.add(confidence, ~wrong)
        sums = Sums(
            bins,
            n_classes=self.n_classes,
            moments={name: Moments.of(getattr(self, name)[pick]) for name in ("nll", "brier")},
            pairs=(cells // self.n_classes, cells % self.n_classes, counts[cells]),
        )
        first = np.flatnonzero(np.diff(confidence, prepend=2.0))  # of each level
        curve = RiskCoverage(
            confidence[first], np.diff(first, append=len(pick)), np.add.reduceat(wrong, first, dtype=np.int64)
        )
        found = {name: FIGURES[name].estimate(sums) for name in MEASURED[:-1]}
        return {**found, "aurc": curve.aurc_estimate()}


def model(z: Any, labels: Any, heat: Any, noise: float, random: Any, n_bins: int = 15) -> Side:
    """Return the runs of a model that knows the true logits z `[R, N, K]` but for noise of its own in each seed.

    `heat` are the temperatures `[R, S]` of its seeds. The figures are worked out for all trials at once; a test
    compares with `vicinal.compare`.
    """
    trials, seeds = heat.shape
    logits = z[:, None] + noise * random.standard_normal((trials, seeds, *z.shape[1:]), dtype=np.float32)
    logits /= heat[..., None, None].astype(np.float32)
    said = np.exp((logits - logits.max(-1, keepdims=True)).astype(np.float64))
    said /= said.sum(-1, keepdims=True)
    guess, confidence = logits.argmax(-1), said.max(-1)
    right, true = guess == labels[:, None], np.take_along_axis(said, labels[:, None, :, None], -1)[..., 0]
    index = np.maximum(np.ceil(confidence * n_bins).astype(int) - 1, 0)
    flat = index.reshape(trials * seeds, -1)
    sums = binned(flat, n_bins, right.reshape(flat.shape), confidence.reshape(flat.shape))
    *sums, squared = (each.reshape(trials, seeds, n_bins) for each in sums)
    bins = BinSums(*sums)
    pairs = [[mcc_contributions(y, g)[1] for g in row] for y, row in zip(labels, guess, strict=True)]
    values = {"mcc": np.array(pairs), "nll": -np.log(true), "brier": (said**2).sum(-1) - 2 * true + 1}
    for name in ("accuracy", *BIASED):
        values[name] = FIGURES[name].contributions(bins, index, confidence, right)
    return Side(values, bins, squared)


def task(trials: int, n: int, n_classes: int, random: Any) -> tuple[Any, Any]:
    """Return true logits `[trials, n, K]` and labels drawn from them."""
    z = 3 * random.standard_normal((trials, n, n_classes), dtype=np.float32)
    return z, (z + random.gumbel(size=z.shape)).argmax(-1)


def batches(trials: int, elements: int) -> Iterator[int]:
    """Yield numbers of trials that add up, with some 200,000 numbers at once, which stay in the cache."""
    at_once = max(200_000 // elements, 1)
    for start in range(0, trials, at_once):
        yield min(at_once, trials - start)


def false_better(n: int, n_classes: int, temperature: float, seeds: int, trials: int, random: Any) -> dict[str, int]:
    """Return how often each figure calls one of two equal models better: same noise, same spread of temperatures."""
    count = dict.fromkeys(COMPARED, 0)
    for rows in batches(trials, 2 * seeds * n * n_classes):
        z, labels = task(rows, n, n_classes, random)
        # With one seed the models themselves are compared: they are equal only at the same temperature.
        heat = temperature * np.exp((seeds > 1) * 0.2 * random.standard_normal((2, rows, seeds)))
        sides = [model(z, labels, each, 1.0, random) for each in heat]
        for name in COMPARED:
            low, high = difference_ends(name, *sides, 0.95)
            count[name] += int(((low > 0) | (high < 0)).sum())
    return count


def equal_models(draw: Draw) -> str:
    """How often `compare` calls one of two equal models better, of 20 times the trials over the number of seeds."""
    random, rows = draw.generator(3), []
    for n, n_classes, temperature in ((50, 3, 1.0), (100, 3, 1.0), (100, 10, 0.5), (1_000, 3, 1.0)):
        for seeds in (1, 2, 3, 5, 10):
            of = 20 * draw.trials // seeds
            false = false_better(n, n_classes, temperature, seeds, of, random)
            shares = [f"{100 * false[name] / of:.1f} %" for name in COMPARED]
            rows.append([f"{n:,}", f"K = {n_classes}, T = {temperature:g}", str(seeds), f"{of:,}", *shares])
    return table(["samples", "models", "seeds", "trials", *COMPARED], rows)


def differences(draw: Draw) -> str:
    """Coverage of the differences of `compare` between two models that differ, by number of samples, one seed."""
    trials, random = draw.trials, draw.generator(5)
    seen: dict[tuple[str, int], list[tuple[float, float, str]]] = {
        (name, n): [] for name in COMPARED for n in SIZES[:-1]
    }
    for k, heat, noise in PAIRS:

        def pair(rows: int, n: int, k: int = k, heat: Any = heat, noise: Any = noise) -> list[Side]:
            z, labels = task(rows, n, k, random)
            return [model(z, labels, np.full((rows, 1), t), e, random) for t, e in zip(heat, noise, strict=True)]

        a, b = pair(1, 1_000_000)
        total = {name: float(b.values[name].mean() - a.values[name].mean()) for name in COMPARED}
        for n in SIZES[:-1]:
            held, length = dict.fromkeys(COMPARED, 0), dict.fromkeys(COMPARED, 0.0)
            for rows in batches(trials, 2 * n * k):
                a, b = pair(rows, n)
                for name in COMPARED:
                    low, high = difference_ends(name, a, b, 0.95)
                    held[name] += int(((low <= total[name]) & (total[name] <= high)).sum())
                    length[name] += float((high - low).sum()) / trials
            for name in COMPARED:
                which = f"K = {k}, T = {heat[0]:g} and {heat[1]:g}, noise {noise[0]:g} and {noise[1]:g}"
                seen[name, n].append((held[name] / trials, length[name], which))
    return summary(seen)


PROFILES = {
    "steep": lambda u: 0.5 * (1 - u) ** 4,
    "linear": lambda u: 0.25 * (1 - u),
    "flat top": lambda u: 0.03 + 0.15 * (1 - u) ** 2,
    "easy": lambda u: 0.01 + 0.06 * (1 - u),
    "too hard": lambda u: 0.06 + 0 * u,
    "not monotone": lambda u: 0.05 + 0.025 * np.cos(12 * u),
}


def thresholds(draw: Draw) -> str:
    """How often the risk of `risk_threshold` is above the one asked for, and how much it answers."""
    random, grid = draw.generator(4), np.linspace(0, 1, 10_001)[:-1]
    rows = []
    for n in (200, 1_000, 5_000):
        for max_risk in (0.05, 0.1):
            for name, rate in PROFILES.items():
                # The mean of the errors above each point; midpoints, since to accept everything may be just allowed.
                risk = np.cumsum(rate(grid + 0.5 / len(grid))[::-1])[::-1] / np.arange(len(grid), 0, -1) - 1e-7
                rules = []
                for _ in range(draw.trials):
                    confidence = random.random(n)
                    rules.append(risk_threshold(confidence, random.random(n) >= rate(confidence), max_risk))
                broken = [r.n_accepted > 0 and risk[int(max(r.threshold, 0) * len(grid))] > max_risk for r in rules]
                answers, answered = np.mean([(r.n_accepted > 0, r.coverage) for r in rules], axis=0)
                best = 1 - grid[risk <= max_risk].min(initial=1)
                shares = [f"{100 * share:.0f} %" for share in (answers, answered, best)]
                most = f"{100 * largest_share(risk, n, max_risk):.1f} %"
                rows.append([f"{n:,}", f"{max_risk:g}", name, f"{100 * np.mean(broken):.1f} %", most, *shares])
    titles = ["samples", "risk asked", "errors", "promise broken", "one test at 5 %", "answers", "answered", "at best"]
    return table(titles, rows)


def largest_share(risk: Any, n: int, max_risk: float, n_rules: int = 200, delta: float = 0.05) -> float:
    """Return how often, at most, a single test at level δ passes a rule that breaks the promise.

    Errors are whole numbers, and the first such rule has a risk above `max_risk` by its step: so the share is below δ.
    `risk` is the true one of accepting what lies above each point of a grid in [0, 1].
    """
    shares = [0.0]
    for k in sorted({j * n // n_rules for j in range(1, n_rules + 1)} - {0}):
        true = risk[int((1 - k / n) * (len(risk) - 1))]
        most = int((bdtr(np.arange(k), k, max_risk) <= delta).sum()) - 1
        if true > max_risk and most >= 0:
            shares.append(float(bdtr(most, k, true)))
    return max(shares)


PARTS = {part.__name__: part for part in (errors, odd, figures, equal_models, differences, thresholds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2_000)
    parser.add_argument("--only", choices=tuple(PARTS))
    parser.add_argument("--seed", type=int, default=0, help="of all populations and samples")
    parser.add_argument("--cases", type=int, default=0, help="of errors: so many drawn by the seed, not the fixed ones")
    options = parser.parse_args()
    margin = 196 * math.sqrt(0.05 * 0.95 / options.trials)
    draw = Draw(options.trials, options.seed, options.cases)
    print(f"{draw.trials:,} trials a case, seed {draw.seed}: 95 % are known to ± {margin:.1f} %\n")
    for name, part in PARTS.items():
        if options.only in (None, name):
            print(f"### {part.__doc__}\n\n{part(draw)}\n", flush=True)


if __name__ == "__main__":
    main()
