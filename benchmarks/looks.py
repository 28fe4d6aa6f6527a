"""How often a family of claims has a wrong verdict when seeds are added, and how many seeds an effect needs.

    python -m benchmarks.looks
    python -m benchmarks.looks --families 2000 --only errors --seed 7

A family has m claims, whose contrasts are drawn for 40 seeds with a standard deviation of 1: effects and margins are in
standard deviations. Verdicts come from `vicinal.papers.claims`, at the looks and levels that recipes use. A verdict is
wrong if it says of the true mean μ what is not so; a family errs if any of its claims has a wrong verdict at any look.
Seeds are normal, skewed a little (log-normal with a skewness of 1), skewed (exponential, skewness 2), the difference of
two independent exponentials, or heavy-tailed (t with 3 degrees of freedom). Claims of a family are correlated, since
they share cells: ρ is the correlation of the normal numbers that contrasts are made of.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import platform
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr

from benchmarks.timing import table
from vicinal.papers.claims import (
    ALPHA,
    HOLDS,
    LOOKS,
    NO_DIFFERENCE,
    REVERSED,
    family_level,
    interval,
    read_interval,
)

SIZES = (1, 3, 6, 18)
CORRELATIONS = (0.0, 0.5, 0.9)
EFFECTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
MARGINS = (0.5, 0.75, 1.0, 1.5, 2.0)
#: The margin of the table of errors.
MARGIN = 0.5
#: Where a verdict is wrong most easily: columns of a kind of claim and true means. "No worse" at μ = −δ is "above" at
#: μ = 0, moved.
EDGES = {
    "above, μ = 0": ("above", (0.0,)),
    "above, μ = ±δ": ("above", (MARGIN, -MARGIN)),
    "equal, μ = ±δ": ("equal", (MARGIN, -MARGIN)),
}
#: The naive rule: from 3 seeds on one more until something is decided.
NAIVE = tuple(range(3, LOOKS[-1] + 1))
#: Families that are drawn at once.
BATCH = 1000

Array = NDArray[np.float64]


def _log_normal_scale(skewness: float) -> float:
    """Return the σ of a log-normal distribution of this skewness, (e^σ² + 2) √(e^σ² − 1)."""
    return float(brentq(lambda s: (math.exp(s * s) + 2) * math.sqrt(math.expm1(s * s)) - skewness, 0.01, 1))


_SIGMA = _log_normal_scale(1.0)


def _log_normal(z: Array, rng: np.random.Generator) -> Array:
    square = _SIGMA**2
    return (np.exp(_SIGMA * z) - math.exp(square / 2)) / math.sqrt(math.expm1(square) * math.exp(square))


def _exponential(z: Array, rng: np.random.Generator) -> Array:
    return -log_ndtr(-z) - 1  # −log(1 − Φ(z))


def _heavy(z: Array, rng: np.random.Generator) -> Array:
    return z / np.sqrt(rng.chisquare(3, z.shape))  # t with 3 degrees, divided by its standard deviation of √3


def _difference(z: Array, rng: np.random.Generator) -> Array:
    return (_exponential(z, rng) - rng.standard_exponential(z.shape) + 1) / math.sqrt(2)


SHAPES: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "normal": lambda z, rng: z,
    "skewed a little": _log_normal,
    "skewed": _exponential,
    "difference of two skewed": _difference,
    "heavy-tailed": _heavy,
}


def draws(shape: str, m: int, rho: float, families: int, rng: np.random.Generator) -> Iterator[Array]:
    """Yield contrasts `[families, m, seeds]` of mean 0 and standard deviation 1, some families at a time."""
    for start in range(0, families, BATCH):
        size = min(BATCH, families - start)
        shared, own = rng.standard_normal((size, 1, LOOKS[-1])), rng.standard_normal((size, m, LOOKS[-1]))
        yield SHAPES[shape](math.sqrt(rho) * shared + math.sqrt(1 - rho) * own, rng)


def summaries(contrasts: Array, looks: tuple[int, ...]) -> Iterator[tuple[int, Array, Array]]:
    """Yield n, means and standard errors of the first n seeds."""
    sums, squares = np.cumsum(contrasts, axis=-1), np.cumsum(contrasts**2, axis=-1)
    for n in looks:
        mean = sums[..., n - 1] / n
        yield n, mean, np.sqrt((squares[..., n - 1] - n * mean**2) / (n - 1) / n)


def wrong(verdicts: NDArray[np.str_], mean: float, *, kind: str, margin: float) -> NDArray[np.bool_]:
    """Return which verdicts say of the true mean what is not so."""
    true = {
        "above": {HOLDS: mean > 0, REVERSED: mean < 0, NO_DIFFERENCE: abs(mean) < margin},
        "no worse": {HOLDS: mean > -margin, REVERSED: mean < -margin},
        "equal": {HOLDS: abs(mean) < margin, REVERSED: abs(mean) > margin},
    }[kind]
    return np.isin(verdicts, [verdict for verdict, so in true.items() if not so])


def errors_of(m: int, contrasts: Array) -> dict[str, int]:
    """Return how many families have a wrong verdict at any look; for μ = 0 also at each look and on each side."""
    counts = {}
    for column, (kind, means) in EDGES.items():
        for true in means:
            erred = np.zeros((len(LOOKS), len(contrasts)), dtype=bool)
            sides = {verdict: np.zeros(len(contrasts), dtype=bool) for verdict in (HOLDS, REVERSED)}
            for i, (n, mean, error) in enumerate(summaries(contrasts, LOOKS)):
                low, high = interval(mean + true, error, n, family_level(m))
                verdicts = read_interval(low, high, kind=kind, margin=MARGIN)
                erred[i] = wrong(verdicts, true, kind=kind, margin=MARGIN).any(axis=1)
                if true == 0:
                    counts[f"at {n}"] = int(erred[i].sum())
                    for verdict, said in sides.items():
                        said |= (verdicts == verdict).any(axis=1)
            counts[f"{column} {true:+g}"] = int(erred.any(axis=0).sum())
            if true == 0:
                counts |= {verdict: int(said.sum()) for verdict, said in sides.items()}
    return counts


def naive_errors(m: int, contrasts: Array) -> int:
    """Return how many families without effect err if seeds are added until their claims are decided.

    Their intervals are corrected for the number of claims, but not for looks.
    """
    erred = np.zeros(contrasts.shape[:2], dtype=bool)
    for n, mean, error in summaries(contrasts, NAIVE):
        # A claim is decided for good by its first interval that leaves out 0, and 0 is what is true.
        verdicts = read_interval(*interval(mean, error, n, 1 - ALPHA / m), margin=MARGIN)
        erred |= wrong(verdicts, 0.0, kind="above", margin=MARGIN)
    return int(erred.any(axis=1).sum())


def errors(families: int, rng: np.random.Generator) -> str:
    """Families with a wrong verdict at any look, δ = 0.5 standard deviations"""
    rows = []
    for shape in SHAPES:
        for m in SIZES:
            for rho in CORRELATIONS if m > 1 else (0.0,):
                counts: Counter[str] = Counter()
                for contrasts in draws(shape, m, rho, families, rng):
                    counts.update(errors_of(m, contrasts))
                    counts["naive"] += naive_errors(m, contrasts)
                # Of two edges the worse: of a skewed contrast one may be safe.
                worst = [max(counts[f"{name} {true:+g}"] for true in means) for name, (_, means) in EDGES.items()]
                by_look = " · ".join(f"{100 * counts[f'at {n}'] / families:.1f}" for n in LOOKS) + " %"
                sides = " · ".join(f"{100 * counts[verdict] / families:.1f}" for verdict in (HOLDS, REVERSED)) + " %"
                shares = [f"{100 * count / families:.1f} %" for count in (*worst, counts["naive"])]
                rows.append([shape, str(m), f"{rho:g}" if m > 1 else "", shares[0], by_look, sides, *shares[1:]])
    first, *others = EDGES
    looks = " · ".join(map(str, LOOKS))
    heads = [first, f"… at {looks} seeds", f"… {HOLDS} · {REVERSED}", *others, "μ = 0, a seed more until decided"]
    return table(["seeds", "m", "ρ", *heads], rows)


def by_look(
    m: int, claims: int, rng: np.random.Generator, *, shape: str, effect: float, margin: float, verdict: str
) -> str:
    """Return the share of claims of a family of m that have a verdict at each look, or had it before."""
    counts = np.zeros(len(LOOKS))
    for contrasts in draws(shape, 1, 0.0, claims, rng):
        decided = np.zeros(contrasts.shape[:2], dtype=bool)
        for i, (n, mean, error) in enumerate(summaries(contrasts, LOOKS)):
            low, high = interval(mean + effect, error, n, family_level(m))
            decided |= read_interval(low, high, margin=margin) == verdict
            counts[i] += decided.sum()
    return " · ".join(f"{100 * share:.0f}" for share in counts / claims) + " %"


def power(claims: int, rng: np.random.Generator) -> str:
    """Claims "above" that hold at 5 · 10 · 20 · 40 seeds or before, by effect, if the margin is small"""
    rows = [
        [shape, f"{effect:g}"]
        + [by_look(m, claims, rng, shape=shape, effect=effect, margin=0.001, verdict=HOLDS) for m in SIZES]
        for shape in ("normal", "skewed", "heavy-tailed")
        for effect in EFFECTS
    ]
    return table(["seeds", "effect (sd)", *(f"m = {m}" for m in SIZES)], rows)


def no_difference(claims: int, rng: np.random.Generator) -> str:
    """Claims "above" without effect that show no difference at 5 · 10 · 20 · 40 seeds or before, by margin"""
    rows = [
        [shape, f"{margin:g}"]
        + [by_look(m, claims, rng, shape=shape, effect=0.0, margin=margin, verdict=NO_DIFFERENCE) for m in SIZES]
        for shape in ("normal", "skewed", "heavy-tailed")
        for margin in MARGINS
    ]
    return table(["seeds", "margin (sd)", *(f"m = {m}" for m in SIZES)], rows)


PARTS = {"errors": errors, "power": power, "no-difference": no_difference}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=int, default=10_000, help="families drawn for each row")
    parser.add_argument("--only", choices=list(PARTS), help="one of the tables")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    options = parser.parse_args(argv)
    known = 196 * math.sqrt(ALPHA * (1 - ALPHA) / options.families)
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "scipy"))
    print(f"{packages}, Python {platform.python_version()}. {options.families:,} families a row, seed {options.seed}:")
    print(f"5 % are known to ± {known:.1f} points.\n")
    for name, part in PARTS.items():
        if options.only in (None, name):
            print(f"### {part.__doc__}\n\n{part(options.families, np.random.default_rng(options.seed))}\n", flush=True)


if __name__ == "__main__":
    main()
