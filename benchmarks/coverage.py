"""How often 95 % intervals hold the truth, how often equal models are called different, how often a promise breaks.

    python -m benchmarks.coverage
    python -m benchmarks.coverage --only errors --seed 7 --cases 20    other populations, samples and cases

A population is a finite set of predictions with the chance that each is right, so that every metric of it is known;
samples are drawn from it with replacement. Logits z are normal with standard deviation `scale`, labels follow
softmax(z), and the model says softmax(z / T): T = 1 is calibrated, below it over-confident, above it under-confident.
A "constant" population has one confidence and one accuracy. The cases were fixed before the intervals were; another
seed draws other populations of the same cases, and `--cases` other cases too.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.special import bdtr, ndtr, ndtri

from benchmarks.timing import table
from vicinal import compare, evaluate
from vicinal.metrics import METRICS, BinSums, ReliabilityTable, RiskCoverage, risk_coverage, risk_threshold
from vicinal.metrics.comparison import Side, difference_ends
from vicinal.metrics.error_intervals import error_ends
from vicinal.metrics.intervals import Moments
from vicinal.metrics.ranking import ranking
from vicinal.metrics.registry import Sums

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
#: Of comparisons: the bins, the items of a population, classes, samples and seeds.
N_BINS = 15
ITEMS = 30_000
COMPARED_CLASSES = (2, 3, 10, 100)
COMPARED_SIZES = (50, 100, 1_000, 10_000)
SEEDS = (1, 2, 3, 5, 10)
#: Of equal models: the temperature and the noise in their logits: calibrated and nearly alike, nearly calibrated, badly
#: over- and under-confident.
EQUAL = ((1.0, 0.3), (1.1, 1), (0.3, 1), (3.0, 1))
#: Of two models that differ: their temperatures, and their noise.
PAIRS = (
    ((0.5, 1.0), (1, 1)),
    ((1.0, 1.5), (1, 0.3)),
    ((0.3, 0.5), (2, 1)),
    ((1.0, 1.2), (1, 2)),
    ((0.3, 3.0), (1, 1)),
)
COMPARED = ("accuracy", "top5_error", "mcc", "nll", "brier", *BIASED)
#: By metric, the share of intervals that hold the truth, and their mean length.
Shares = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Population:
    """Confidences and the chance that each is right, `[M]`; labelled logits where metrics need them."""

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
    """What is drawn: the trials of a case, the seed of all, cases in place of the fixed, and samples of comparisons."""

    trials: int
    seed: int = 0
    cases: int = 0
    sizes: tuple[int, ...] = COMPARED_SIZES

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


def settled(measure: Callable[[int], Shares], trials: int, least: float = 0.942) -> Shares:
    """Return coverage and length by metric; while one is below `least`, of 4 and then 16 times as many new trials.

    Of a hundred exact intervals a few fall below 94 % in 2,000 trials; the new ones, which alone count then, tell
    chance from a fault. Where trials are fewer than 2,000 it is below if its standard error does not explain it.
    """
    for more in (1, 4, 16):
        found = measure(more * trials)
        room = math.sqrt(0.05 * 0.95 / (more * trials)) if more * trials < 2_000 else 0.0
        if min(held for held, _ in found.values()) >= least - room:
            break
    return found


def summary(seen: dict[tuple[str, int], list[tuple[float, float, str]]]) -> str:
    """Return a row for each metric and size: coverage at worst and in the middle, the worst case, the middle length."""
    rows = []
    for (name, n), cases in seen.items():
        worst = min(cases)
        covered, length = (np.median([case[k] for case in cases]) for k in (0, 1))
        rows.append([name, f"{n:,}", f"{100 * worst[0]:.1f} %", worst[2], f"{100 * covered:.1f} %", f"{length:.3f}"])
    return table(["metric", "samples", "coverage, worst case", "which", "median", "length, median"], rows)


def metrics(draw: Draw) -> str:
    """Coverage of the metrics that are no errors of bins, and of AURC."""
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
        found = {name: METRICS[name].estimate(sums) for name in MEASURED[:-1]}
        return {**found, "aurc": curve.aurc_estimate()}


@dataclass(frozen=True, eq=False)
class Pool:
    """Runs of a model over a population of items: what each run says of each item, worked out once.

    Trials draw items and runs from it with replacement, so its own metrics are the truth, at the cost of a table's
    lookup for each prediction, whatever the number of classes.

    Attributes
    ----------
    entries
        `[R, M, 7]`: confidence, whether it is right, its bin, the class said, NLL, Brier score, and whether the label
        is not among the first five.
    labels
        `[M]`.
    n_classes
        K.
    alone
        Whether its runs are one model, with other noise: then each item of a trial has a run drawn by itself.
    """

    entries: Any
    labels: Any
    n_classes: int
    alone: bool = False

    @classmethod
    def of(cls, z: Any, labels: Any, heat: Any, noise: Any, random: Any, alone: bool = False) -> Pool:
        """Return runs that know the true logits z `[M, K]` but for temperatures `[R]` and noise of their own, `[R]`."""
        entries = np.empty((len(heat), len(z), 7), np.float32)
        rows = np.arange(len(z))
        for entry, t, e in zip(entries, heat, noise, strict=True):
            logits = random.standard_normal(z.shape, dtype=np.float32)
            logits *= np.float32(e)
            logits += z
            logits /= np.float32(t)
            said = np.exp(logits - logits.max(-1, keepdims=True), dtype=np.float64)
            said /= said.sum(-1, keepdims=True)
            guess, true = logits.argmax(-1), said[rows, labels]
            confidence = said[rows, guess]
            brier = np.einsum("nk,nk->n", said, said) - 2 * true + 1
            missed = (logits > logits[rows, labels][:, None]).sum(-1) >= 5
            index = np.maximum(np.ceil(confidence * N_BINS) - 1, 0)
            entry[:] = np.stack([confidence, guess == labels, index, guess, -np.log(true), brier, missed], axis=-1)
        return cls(entries, labels, z.shape[1], alone)

    def side(self, items: Any, runs: Any) -> Side:
        """Return what `compare` takes of these items `[T, N]` and runs `[T, S, 1]`, or `[T, 1, N]`: one an item."""
        picked = np.take(self.entries.reshape(-1, 7), runs * len(self.labels) + items[:, None], axis=0)
        confidence, right, index, guess, nll, brier, missed = np.moveaxis(picked, -1, 0)
        confidence, right = confidence.astype(np.float64), right.astype(bool)
        index, guess, labels = index.astype(np.intp), guess.astype(np.intp), self.labels[items]
        flat = index.reshape(-1, index.shape[-1])
        sums = binned(flat, N_BINS, right.reshape(flat.shape), confidence.reshape(flat.shape))
        *sums, squared = (each.reshape(*index.shape[:-1], N_BINS) for each in sums)
        bins = BinSums(*sums)
        values = {
            "mcc": mcc_of(labels[:, None], guess, self.n_classes),
            "nll": nll.astype(np.float64),
            "brier": brier.astype(np.float64),
        }
        if self.n_classes > 5:
            values["top5_error"] = missed.astype(np.float64)
        for name in ("accuracy", *BIASED):
            values[name] = METRICS[name].contributions(bins, index, confidence, right)
        return Side(values, bins, squared, self.n_classes)

    @cached_property
    def truth(self) -> dict[str, float]:
        """The metrics of the whole: of all that one model says, or the mean over runs."""
        runs, size = self.entries.shape[:2]
        if self.alone:
            one = Pool(self.entries.reshape(1, runs * size, 7), np.tile(self.labels, runs), self.n_classes)
            return one.truth
        whole = self.side(np.arange(size)[None], np.arange(runs)[None, :, None])
        return {name: float(values.mean()) for name, values in whole.values.items()}


def mcc_of(labels: Any, guess: Any, n_classes: int) -> Any:
    """Return what samples `[T, 1 or S, N]` contribute to MCC: `mcc_contributions` of many runs at once."""

    def shares(classes: Any) -> Any:
        cell = classes + n_classes * np.arange(math.prod(classes.shape[:-1])).reshape(*classes.shape[:-1], 1)
        count = np.bincount(cell.ravel(), minlength=n_classes * math.prod(classes.shape[:-1]))
        return count.reshape(*classes.shape[:-1], n_classes) / classes.shape[-1]

    def of(values: Any, classes: Any) -> Any:
        return np.take_along_axis(np.broadcast_to(values, (*guess.shape[:-1], n_classes)), classes, -1)

    t, p, right = shares(labels), shares(guess), labels == guess
    tp, tt, pp = ((a * b).sum(-1, keepdims=True) for a, b in ((t, p), (t, t), (p, p)))
    known = (tt < 1) & (pp < 1)
    size = np.sqrt(np.where(known, (1 - pp) * (1 - tt), 1))
    a = right.mean(-1, keepdims=True)
    value = (a - tp) / size
    said, true = guess, np.broadcast_to(labels, guess.shape)
    numerator = right - a - (of(t, said) + of(p, true) - 2 * tp)
    gone = (of(p, said) - pp) / np.where(known, 1 - pp, 1) + (of(t, true) - tt) / np.where(known, 1 - tt, 1)
    return np.where(known, value + numerator / size + value * gone, 0)


def models(n_classes: int, heat: Any, noise: Any, alone: bool, random: Any) -> list[Pool]:
    """Return models of one population with these temperatures and this noise, which vary by 20 % over runs.

    They do not where the models themselves are compared, by one seed: equal ones are equal then.
    """
    runs = 20 if alone else 100
    z = 3 * random.standard_normal((ITEMS, n_classes), dtype=np.float32)
    labels = (z + random.gumbel(size=z.shape)).argmax(-1)
    spread = np.exp((not alone) * 0.2 * random.standard_normal((len(heat), 2, runs)))
    return [Pool.of(z, labels, t * a, e * b, random, alone) for t, e, (a, b) in zip(heat, noise, spread, strict=True)]


def trials_of(pools: Sequence[Pool], n: int, seeds: int, trials: int, random: Any) -> Iterator[tuple[Side, Side]]:
    """Yield samples of two models, some trials at once: the same items for both, other runs."""
    runs, size = pools[0].entries.shape[:2]
    for rows in batches(trials, 2 * seeds * n):
        items = random.integers(size, size=(rows, n))
        a, b = random.integers(runs, size=(2, rows, seeds, n if pools[0].alone else 1))
        yield pools[0].side(items, a), pools[1].side(items, b)


def batches(trials: int, elements: int) -> Iterator[int]:
    """Yield numbers of trials that add up, with some 200,000 numbers at once, which stay in the cache."""
    at_once = max(200_000 // elements, 1)
    for start in range(0, trials, at_once):
        yield min(at_once, trials - start)


def held_shares(pools: Sequence[Pool], n: int, seeds: int, trials: int, random: Any) -> Shares:
    """Return by metric how often the interval of the difference holds the true one, and its mean length."""
    truth = {name: pools[1].truth[name] - value for name, value in pools[0].truth.items()}
    held, length = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0.0)
    for a, b in trials_of(pools, n, seeds, trials, random):
        for name, true in truth.items():
            low, high = difference_ends(name, a, b, 0.95)
            held[name] += int(((low <= true + 1e-9) & (true - 1e-9 <= high)).sum())
            length[name] += float((high - low).sum()) / trials
    return {name: (held[name] / trials, length[name]) for name in held}


def false_better(pool: Pool, n: int, seeds: int, trials: int, random: Any) -> dict[str, float]:
    """Return how often each metric calls one of two equal models better: items and runs of both from one pool."""
    return {name: 1 - held for name, (held, _) in held_shares((pool, pool), n, seeds, trials, random).items()}


def fewer(trials: int, n: int, seeds: int) -> int:
    """Return how many trials there are: fewer of many samples and seeds, which take long, and more of one seed.

    With several the intervals are wide; with one they are exact for many samples, and 5 % must be told from 5.5 %.
    """
    return round((4 if seeds == 1 else 1) * trials * min(1, math.sqrt(250 / (n * seeds))))


def equal_models(draw: Draw) -> str:
    """How often `compare` calls one of two equal models better, in %: mean of all populations (and the worst)."""
    random = draw.generator(3)
    seen: dict[tuple[int, int], dict[str, list[tuple[float, str]]]] = {(n, s): {} for n in draw.sizes for s in SEEDS}
    for n_classes, (heat, noise) in itertools.product(COMPARED_CLASSES, EQUAL):
        which = f"K = {n_classes}, T = {heat:g}, noise {noise:g}"
        pools = {alone: models(n_classes, [heat], [noise], alone, random)[0] for alone in (False, True)}
        for (n, seeds), found in seen.items():

            def measure(trials: int, n: int = n, seeds: int = seeds, pool: Pool = pools[seeds == 1]) -> Shares:
                false = false_better(pool, n, seeds, trials, random)
                return {name: (1 - share, 0.0) for name, share in false.items()}

            for name, (right, _) in settled(measure, fewer(draw.trials, n, seeds), 0.946).items():
                found.setdefault(name, []).append((1 - right, which))
                if right < 0.945:
                    print(
                        f"{n:,} samples, {seeds} seeds, {name}: {1 - right:.2%}, {which}", file=sys.stderr, flush=True
                    )
        print(f"done: {which}", file=sys.stderr, flush=True)
    rows = []
    for (n, seeds), found in seen.items():
        trials = fewer(draw.trials, n, seeds)
        (_, which), name = max((max(shares), name) for name, shares in found.items())
        cells = [
            f"{100 * np.mean([share for share, _ in found[name]]):.1f} ({100 * max(found[name])[0]:.1f})"
            for name in COMPARED
        ]
        error = f"{100 * math.sqrt(0.05 * 0.95 / trials):.1f}"
        rows.append([f"{n:,}", str(seeds), f"{trials:,}", error, *cells, f"{name}: {which}"])
    return table(["samples", "seeds", "trials", "± of one", *COMPARED, "largest"], rows)


def differences(draw: Draw) -> str:
    """Coverage of the differences of `compare` between two models that differ, by number of samples, 1 to 10 seeds."""
    random = draw.generator(5)
    seen: dict[tuple[str, int], list[tuple[float, float, str]]] = {
        (name, n): [] for name in COMPARED for n in draw.sizes
    }
    for n_classes, (heat, noise) in itertools.product(COMPARED_CLASSES, PAIRS):
        pools = {alone: models(n_classes, heat, noise, alone, random) for alone in (False, True)}
        for n, seeds in itertools.product(draw.sizes, SEEDS):

            def measure(trials: int, n: int = n, seeds: int = seeds, both: list[Pool] = pools[seeds == 1]) -> Shares:
                return held_shares(both, n, seeds, trials, random)

            which = f"K = {n_classes}, T = {heat[0]:g} and {heat[1]:g}, noise {noise[0]:g} and {noise[1]:g}"
            for name, share in settled(measure, fewer(draw.trials, n, seeds)).items():
                seen[name, n].append((*share, f"{which}, {seeds} seed{'s' if seeds > 1 else ''}"))
                if share[0] < 0.94:
                    print(f"{n:,} samples, {seeds} seeds, {name}: {share[0]:.2%}, {which}", file=sys.stderr, flush=True)
        print(f"done: {which}", file=sys.stderr, flush=True)
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


#: Shares of positives of a ranking.
SHARES = (0.03, 0.1, 0.5, 0.9, 0.97)


def ranked_populations() -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """Return by name the quantile functions of the scores of positives and of negatives.

    Normal scores from useless to nearly perfect and upside down, the same in 2 to 10 steps, exponential ones, and
    rankings that are perfect but for a few samples, which stand anywhere or in the worst place.
    """
    found: dict[str, Any] = {
        f"normal, d = {d:g}": (lambda u, d=d: ndtri(u) + d, ndtri) for d in (-0.5, 0, 0.5, 1.5, 3, 5)
    }
    for steps, d in ((2, 0), (2, 3), (4, 1.5), (10, 0), (10, 3)):

        def stepped(u: Any, d: float = 0.0, steps: int = steps) -> Any:
            return np.floor((np.clip(ndtri(u) + d, -3, 5.99) + 3) / 9 * steps)

        found[f"{steps} steps, d = {d:g}"] = (partial(stepped, d=d), stepped)
    found["exponential"] = (lambda u: -3 * np.log1p(-u), lambda u: -np.log1p(-u))
    for e in (0.01, 0.05):
        found[f"{e:.0%} of positives anywhere"] = (lambda u, e=e: np.where(u < e, u / e, 2 + u), lambda u: u)
        found[f"{e:.0%} of negatives on top"] = (lambda u: 2 + u, lambda u, e=e: np.where(u > 1 - e, 3 + u, u))
        found[f"{e:.0%} of positives last"] = (lambda u, e=e: np.where(u < e, u - 1, 2 + u), lambda u: u)
    return found


def true_ranking(positive: Any, negative: Any, share: float) -> tuple[float, float]:
    """Return AUROC and average precision of a population, from its scores at equally likely quantiles."""
    a, b = np.sort(positive), np.sort(negative)
    below, up_to = (np.searchsorted(b, a, side) / len(b) for side in ("left", "right"))
    above = 1 - (np.searchsorted(a, a, "left") + (0.5 if len(np.unique(a)) > len(a) // 2 else 0)) / len(a)
    true, false = share * above, (1 - share) * (1 - below)
    return float((below + up_to).mean() / 2), float((true / (true + false)).mean())


def rankings(draw: Draw) -> str:
    """Coverage of AUROC and average precision, 3 to 97 % positives, useless to nearly perfect, with ties."""
    random, names = draw.generator(9), ("auroc", "average precision")
    seen: dict[tuple[str, int], list[tuple[float, float, str]]] = {(name, n): [] for name in names for n in SIZES}
    grid = (np.arange(200_000) + 0.5) / 200_000
    for (which, (positive, negative)), share in itertools.product(ranked_populations().items(), SHARES):
        truth = true_ranking(positive(grid), negative(grid), share)
        for n in SIZES:

            def measure(
                trials: int, n: int = n, of: Any = (positive, negative), share: float = share, truth: Any = truth
            ) -> Shares:
                held, length = np.zeros(2), np.zeros(2)
                for _ in range(trials):
                    m = int(np.clip(random.binomial(n, share), 1, n - 1))  # without one of the classes there is none
                    found = ranking(of[0](random.random(m)), of[1](random.random(n - m)))
                    held += [e.low - 1e-9 <= true <= e.high + 1e-9 for e, true in zip(found, truth, strict=True)]
                    length += [e.high - e.low for e in found]
                return {name: (held[k] / trials, length[k] / trials) for k, name in enumerate(names)}

            for name, found in settled(measure, fewer_of(draw.trials, n)).items():
                seen[name, n].append((*found, f"{which}, {share:.0%} positive"))
    return summary(seen)


#: Of rare mistakes: accuracies, and what the model says of each sample.
RARE = (0.8, 0.95, 0.98, 0.995, 0.999)
SAID = (0.9, 0.99, 0.9995)


def rare_mistakes(draw: Draw) -> str:
    """Coverage of `compare` of a model and its softened self, where a sample may hold no mistake."""
    random, names, heat = draw.generator(10), ("nll", "brier"), 2.0
    seen: dict[tuple[str, int], list[tuple[float, float, str]]] = {(name, n): [] for name in names for n in SIZES}
    for accuracy, said in itertools.product(RARE, SAID):
        # Confidences vary a little, and the chance to be right does not depend on them.
        grid = np.log(said / (1 - said)) + 0.5 * ndtri((np.arange(2_000) + 0.5) / 2_000)
        truth = {name: np.mean(_softer(name, grid, accuracy, heat)) for name in names}
        for n in SIZES:

            def measure(
                trials: int, n: int = n, grid: Any = grid, accuracy: float = accuracy, truth: Any = truth
            ) -> Shares:
                held, length = np.zeros(2), np.zeros(2)
                for _ in range(trials):
                    z = random.choice(grid, n)
                    labels = (random.random(n) >= accuracy).astype(np.int64)  # class 0 is what the model says
                    logits = np.stack([z, np.zeros(n)], axis=1)
                    found = compare(evaluate(labels, logits=logits), evaluate(labels, logits=logits / heat))
                    held += [found[name].low <= truth[name] <= found[name].high for name in names]
                    length += [found[name].high - found[name].low for name in names]
                return {name: (held[k] / trials, length[k] / trials) for k, name in enumerate(names)}

            for name, found in settled(measure, fewer_of(draw.trials, n)).items():
                seen[name, n].append((*found, f"accuracy {accuracy:g}, confidence {said:g}"))
    return summary(seen)


def _softer(name: str, z: Any, accuracy: float, heat: float) -> Any:
    """Return the expected NLL or Brier score of logits z / heat less that of z, `[...]`."""
    means = []
    for scaled in (z / heat, z):
        right = 1 / (1 + np.exp(-scaled))
        of = (-np.log(right), -np.log1p(-right)) if name == "nll" else (2 * (1 - right) ** 2, 2 * right**2)
        means.append(accuracy * of[0] + (1 - accuracy) * of[1])
    return means[0] - means[1]


def grouped(draw: Draw) -> str:
    """Coverage of metrics of samples in groups, from 10 groups on: half the variance is between groups."""
    random = draw.generator(11)
    sizes = ((10, 45), (20, 10), (50, 4), (100, 20), (500, 2))
    names = ("accuracy", "nll", "brier")
    rows = []
    for (n_groups, of_each), even in itertools.product(sizes, (True, False)):
        held, length = np.zeros(len(names)), np.zeros(len(names))
        truth = _grouped_truth()
        trials = max(draw.trials // 4, 50)
        for _ in range(trials):
            groups = np.repeat(np.arange(n_groups), of_each)
            if not even:  # a few large groups
                groups = np.sort((n_groups * random.random(len(groups)) ** 2).astype(np.int64))
            logits, labels = _grouped_sample(groups, random)
            found = evaluate(labels, logits=logits, groups=groups)
            ends = [found.metrics[name] for name in names]
            held += [e.low <= true <= e.high for e, true in zip(ends, truth, strict=True)]
            length += [e.high - e.low for e in ends]
        shape = f"{n_groups} groups of {of_each}" if even else f"{n_groups} groups, uneven, {of_each} on average"
        shares = [f"{100 * h / trials:.1f} % ({width / trials:.3f})" for h, width in zip(held, length, strict=True)]
        rows.append([shape, *shares])
    return table(["samples", *names], rows)


def _grouped_sample(groups: Any, random: Any) -> tuple[Any, Any]:
    """Return logits of two classes and labels; how hard samples are depends on their group."""
    hard = random.standard_normal(groups.max() + 1)[groups]
    z = 2 + random.standard_normal(len(groups))
    wrong = random.random(len(groups)) < 1 / (1 + np.exp(2 + 1.5 * hard))
    return np.stack([z, np.zeros(len(groups))], axis=1), wrong.astype(np.int64)


def _grouped_truth() -> tuple[float, float, float]:
    """Return accuracy, NLL and Brier score of the population of `_grouped_sample`."""
    grid = ndtri((np.arange(20_000) + 0.5) / 20_000)
    right, wrong = 1 / (1 + np.exp(-(2 + grid))), float(np.mean(1 / (1 + np.exp(2 + 1.5 * grid))))
    mean = [(-np.log(right), -np.log1p(-right)), (2 * (1 - right) ** 2, 2 * right**2)]
    nll, brier = (float((1 - wrong) * np.mean(of[0]) + wrong * np.mean(of[1])) for of in mean)
    first = float(ndtr(2))  # how often the first class is predicted
    return (1 - wrong) * first + wrong * (1 - first), nll, brier


def fewer_of(trials: int, n: int) -> int:
    """Return how many trials of n samples there are: a third as many from 1,000 on."""
    return trials if n < 1_000 else trials // 3


PARTS = {
    part.__name__: part
    for part in (errors, odd, metrics, rankings, equal_models, differences, rare_mistakes, grouped, thresholds)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2_000)
    parser.add_argument("--only", choices=tuple(PARTS))
    parser.add_argument("--seed", type=int, default=0, help="of all populations and samples")
    parser.add_argument("--cases", type=int, default=0, help="of errors: so many drawn by the seed, not the fixed ones")
    parser.add_argument("--samples", type=int, nargs="+", default=COMPARED_SIZES, help="of comparisons: these alone")
    options = parser.parse_args()
    margin = 196 * math.sqrt(0.05 * 0.95 / options.trials)
    draw = Draw(options.trials, options.seed, options.cases, tuple(options.samples))
    print(f"{draw.trials:,} trials a case, seed {draw.seed}: 95 % are known to ± {margin:.1f} %\n")
    for name, part in PARTS.items():
        if options.only in (None, name):
            print(f"### {part.__doc__}\n\n{part(draw)}\n", flush=True)


if __name__ == "__main__":
    main()
