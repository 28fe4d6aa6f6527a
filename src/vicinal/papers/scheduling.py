"""What to run next: the seeds that are expected to decide most claims for their cost.

A step brings the cells of a recipe's undecided claims to a later look. Its cost is the processor time of the cells that
are missing. Its gain is the expected number of decisions, by the mean and the spread of the seeds so far, in which a
primary claim counts twice. Before there are seeds, the standardised effect is taken to be the median of the pilots.

The order of running has no bearing on the verdicts: these are read at the looks alone, whichever came first.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vicinal.papers import get
from vicinal.papers.base import Recipe, Scale
from vicinal.papers.claims import NOT_TESTED, UNDECIDED, AtLeast, Claim, Judged, Key, Sample, samples
from vicinal.papers.execute import Plan, plan, reproduce
from vicinal.papers.results import Result
from vicinal.runs.scheduler import Pool

#: The median of the pilots' standardised effects.
_PILOT_EFFECT = 1.43
#: A primary claim counts as so many others.
_PRIMARY_WEIGHT = 2.0
#: Stop where so many processor hours are expected to decide fewer claims than this.
_HORIZON_HOURS, _FEWEST_DECISIONS = 10.0, 3.0
#: Results are written about every so many processor seconds.
_CHUNK_SECONDS = 900.0


@dataclass(frozen=True)
class Step:
    """Cells that bring undecided claims of a recipe to a look."""

    recipe: str
    look: int
    rows: tuple[Key, ...]
    seconds: float
    """Processor time of what is missing."""
    decisions: float
    """How many claims it is expected to decide."""
    gain: float
    """The same, with primary claims counted twice."""


class Cost(NamedTuple):
    """The processor time of a claim's cells."""

    spent: float
    """Seconds so far; cells that several claims need count for each of them."""
    left: float | None
    """Seconds of the cells that are missing at the look which probably decides; None where no look is expected to."""


@dataclass(frozen=True)
class OpenClaim:
    """A claim that is not decided, and the processor time until it probably is."""

    recipe: str
    judged: Judged
    seconds: float | None
    """None where the last look is not expected to decide it."""


@dataclass(frozen=True)
class Progress:
    """Where all recipes stand."""

    decided: int
    claims: int
    hours: float
    """Processor hours of all cells so far."""

    def __str__(self) -> str:
        return f"{self.decided} of {self.claims} claims decided, {self.hours:.1f} processor hours so far"


@dataclass(frozen=True)
class _State:
    """A recipe, its claims with their verdicts, and what its cells cost."""

    name: str
    recipe: Recipe
    at: Scale
    claims: Sequence[Claim | AtLeast]
    verdicts: Sequence[Judged]
    result: Result | None

    @classmethod
    def read(cls, name: str, scale: str, out: Path, recipe: Recipe | None = None) -> _State:
        path = out / f"{name}.json"
        return cls.of(name, scale, Result.read(path) if path.exists() else None, recipe)

    @classmethod
    def of(cls, name: str, scale: str, result: Result | None, recipe: Recipe | None = None) -> _State:
        recipe = recipe or get(name)
        at = recipe.scales[scale]
        claims = list(recipe.claims(at))
        empty = Result(name, scale, (), {"looks": list(at.looks)}, [], (), {})
        return cls(name, recipe, at, claims, (result or empty).judged(claims), result)

    @property
    def undecided(self) -> list[tuple[Claim | AtLeast, Judged]]:
        return [(claim, one) for claim, one in zip(self.claims, self.verdicts, strict=True) if _is_open(one)]

    def chance(self, claim: Claim | AtLeast, one: Judged, look: int) -> float:
        """Return how likely a look is to decide a claim, by its seeds so far."""
        known = samples(claim, {} if self.result is None else self.result.metrics, first_seed=self.at.seeds[0])
        return claim.chance(known or [Sample(2, _PILOT_EFFECT, 1.0)] * len(claim.contrasts), look, one.level)

    def seconds(self, key: Key) -> float:
        """Return what a cell of a row costs: as measured, else as the recipe's others, else as declared."""
        cells = [] if self.result is None else list(self.result.cells)
        own = [cell.seconds for cell in cells if cell.key == key]
        if own or cells:
            return float(np.mean(own or [cell.seconds for cell in cells]))
        rows = {cell.key for cell in self.recipe.rows_of_seed(self.at, self.at.seeds[0])}
        return 2 * 60 * self.at.minutes / (len(rows) * len(self.at.seeds))  # of two processes

    def missing(self, rows: Collection[Key], look: int) -> list[tuple[Key, int]]:
        there = set() if self.result is None else {(cell.key, cell.seed) for cell in self.result.cells}
        seeds = range(self.at.seeds[0], self.at.seeds[0] + look)
        return [(key, seed) for seed in seeds for key in rows if (key, seed) not in there]

    def cost(self, claim: Claim | AtLeast, one: Judged) -> Cost:
        """Return what a claim has cost, and what it still costs."""
        rows = tuple(dict.fromkeys(key for key, _ in claim.needs))
        spent = 0.0 if self.result is None else sum(cell.seconds for cell in self.result.cells if cell.key in rows)
        left = None
        if one.needs_seeds is not None:
            left = sum(self.seconds(key) for key, _ in self.missing(rows, one.needs_seeds))
        return Cost(spent, left)


def claim_costs(result: Result) -> list[Cost]:
    """Return what the claims of a result have cost so far, and what they still cost."""
    state = _State.of(result.recipe, result.scale, result)
    return [state.cost(claim, one) for claim, one in zip(state.claims, state.verdicts, strict=True)]


def until_decided(
    plans: Sequence[Plan],
    pool: Pool,
    *,
    hours: float,
    progress: bool = True,
    say: Callable[[str], None] = print,
) -> Progress:
    """Run what decides most for its cost, again and again, for so many hours or until little is left to decide.

    Plans say which recipes, on which hardware and with which slices; the seeds are chosen here. It may be stopped at
    any time, and resumes when it is called again.
    """
    deadline = time.time() + 3600 * hours
    given_up: set[str] = set()
    while True:
        states = [_State.read(one.name, one.scale, one.out, one.recipe) for one in plans]
        where = _progress(states)
        steps = list(_ranked([state for state in states if state.name not in given_up]))
        expected = _decisions_within(steps, 3600 * _HORIZON_HOURS)
        if not steps or expected < _FEWEST_DECISIONS:
            say(f"{where}; the next {_HORIZON_HOURS:g} processor hours are expected to decide {expected:.1f} claims")
            return where
        if time.time() >= deadline:
            return where
        step = steps[0]
        say(
            f"{where}; next: {step.recipe} to {step.look} seeds, {step.seconds / 3600:.2f} processor hours, "
            f"{step.decisions:.1f} decisions expected; {max(deadline - time.time(), 0):.0f} s left"
        )
        wanted = next(one for one in plans if one.name == step.recipe)
        if not _take(step, wanted, pool, deadline, progress, say) and time.time() < deadline:
            given_up.add(step.recipe)  # its cells fail: what they say was shown


def _take(step: Step, of: Plan, pool: Pool, deadline: float, progress: bool, say: Callable[[str], None]) -> bool:
    """Run a step in chunks of seeds, each of which is written when it is done; return whether anything was added."""
    state = _State.read(of.name, of.scale, of.out, of.recipe)
    missing = state.missing(step.rows, step.look)
    seeds = sorted({seed for _, seed in missing})
    chunk = max(1, min(5, int(_CHUNK_SECONDS * len(seeds) / max(step.seconds, 1.0))))
    added = False
    for i in range(0, len(seeds), chunk):
        wanted = plan(of.name, of.recipe, of.scale, of.out, seeds=seeds[i : i + chunk], rows=step.rows)
        wanted = dataclasses.replace(wanted, slices=of.slices)
        result = reproduce(wanted, pool, progress=progress, deadline=deadline)
        added |= len(result.cells) > len(wanted.kept)
        for key, error in result.failures.items():
            say(f"{step.recipe}: {key} failed: {error}")
        if time.time() >= deadline or result.failures:
            break
    return added


def still_open(names: Sequence[str], scale: str, out: Path) -> list[OpenClaim]:
    """Return the claims that are not decided, with what they still need, cheapest first."""
    every: list[OpenClaim] = []
    for state in (_State.read(name, scale, out) for name in names):
        every += [OpenClaim(state.name, one, state.cost(claim, one).left) for claim, one in state.undecided]
    return sorted(every, key=lambda one: float("inf") if one.seconds is None else one.seconds)


def next_step(names: Sequence[str], scale: str, out: Path) -> Step | None:
    """Return what to run next; None where nothing is undecided."""
    return next(_ranked([_State.read(name, scale, out) for name in names]), None)


def _ranked(states: Sequence[_State]) -> Iterator[Step]:
    """Return the best step of each recipe, most decisions for its cost first."""
    best = []
    for state in states:
        steps = list(_steps(state))
        if steps:
            best.append(max(steps, key=_rate))
    return iter(sorted(best, key=_rate, reverse=True))


def _rate(step: Step) -> float:
    return step.gain / step.seconds


def _steps(state: _State) -> Iterator[Step]:
    """Yield a step for every look that undecided claims have not reached."""
    for look in state.at.looks:
        reached_later = [(claim, one) for claim, one in state.undecided if one.look < look]
        if not reached_later:
            continue
        rows = tuple(dict.fromkeys(key for claim, _ in reached_later for key, _ in claim.needs))
        seconds = sum(state.seconds(key) for key, _ in state.missing(rows, look))
        chances = [state.chance(claim, one, look) for claim, one in reached_later]
        weights = [_PRIMARY_WEIGHT if one.family == "primary" else 1.0 for _, one in reached_later]
        gain = sum(chance * weight for chance, weight in zip(chances, weights, strict=True))
        if gain > 0 and seconds > 0:
            yield Step(state.name, look, rows, seconds, sum(chances), gain)


def _is_open(one: Judged) -> bool:
    """Return whether more seeds can decide a claim: one that its baseline keeps from being tested stays so."""
    return one.verdict == UNDECIDED or (one.verdict == NOT_TESTED and one.n_seeds == 0)


def _decisions_within(steps: Sequence[Step], seconds: float) -> float:
    """Return how many decisions are expected of so much processor time, best steps first; the last one in part."""
    total = 0.0
    for step in steps:
        if seconds <= 0:
            break
        total += step.decisions * min(1.0, seconds / step.seconds)
        seconds -= step.seconds
    return total


def _progress(states: Sequence[_State]) -> Progress:
    verdicts = [one.verdict for state in states for one in state.verdicts]
    decided = sum(verdict not in (UNDECIDED, NOT_TESTED) for verdict in verdicts)
    cells = {cell.id: cell.seconds for s in states if s.result is not None for cell in s.result.cells}
    return Progress(decided, len(verdicts), sum(cells.values()) / 3600)
