"""Rules by which `auto` could choose a calibrator, on sets of real scores (see `benchmarks.scores`).

    python -m benchmarks.calibrator_rules [--scores FOLDER] [--seeds 1 2] [--sets 500]

Each rule reads the held-out losses of the candidates and is judged by the test losses of what it takes. The published
logits count once.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench_calibrators import prepared
from benchmarks.scores import Scores, all_scores
from vicinal.calibrators.auto import candidates, logits_of_probs
from vicinal.calibrators.names import named
from vicinal.calibrators.validation import HeldOut

Floats = NDArray[np.float64]
PLAIN = "temperature"


@dataclass(frozen=True)
class Tried:
    """A candidate: how much more it loses than the best, held out, and what it loses on each test row."""

    name: str
    behind: float
    error: float
    test: Floats


def tried(scores: Scores) -> list[Tried]:
    """Return the candidates of `auto` on a set, the simplest first."""
    val, test = prepared(scores)
    z, rows = np.log(test), np.arange(len(test))
    found = candidates(HeldOut.of(scores.val_labels, logits_of_probs(val)))
    probs: dict[str, Floats] = {}
    for one in found[:-1]:
        calibrator = named(one.name, z.shape[1])
        if one.name != "none":
            calibrator.fit(np.log(val), scores.val_labels)
        probs[one.name] = calibrator.predict_proba(z)[rows, scores.test_labels]
    probs["mixture"] = sum(one.share * probs[one.name] for one in found[:-1])
    return [Tried(c.name, c.behind, c.standard_error, -np.log(np.maximum(probs[c.name], 1e-12))) for c in found]


def first_of(names: tuple[str, ...], errors: float) -> Callable[[list[Tried]], Tried]:
    """Return the rule that takes the first of these candidates within so many standard errors of the best."""

    def rule(found: list[Tried]) -> Tried:
        by_name = {one.name: one for one in found}
        some = [by_name[name] for name in names if name in by_name]
        return next((one for one in some if one.behind <= errors * one.error), some[-1])

    return rule


SINGLES = ("svs", "sms", "quadratic", "isotonic", "mixture")
RULES = {
    "temperature within 1 standard error of the best, else the mixture (`auto`)": first_of((PLAIN, "mixture"), 1),
    "the same, 0.5": first_of((PLAIN, "mixture"), 0.5),
    "the same, 1.5": first_of((PLAIN, "mixture"), 1.5),
    "the first within 1 of: none, temperature, SVS, SMS, …": first_of(("none", PLAIN, *SINGLES), 1),
    "the first within 1 of: temperature, none, SVS, SMS, …": first_of((PLAIN, "none", *SINGLES), 1),
    "the first within 1 of: temperature, SVS, SMS, …": first_of((PLAIN, *SINGLES), 1),
    "always SMS": first_of(("sms",), 1),
    "always the mixture": first_of(("mixture",), 1),
    "always a temperature": first_of((PLAIN,), 1),
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scores", type=Path, default=Path(tempfile.gettempdir()) / "vicinal-scores")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sets", type=int, default=500, help="at most so many sets of each seed")
    args = parser.parse_args(argv)
    every: dict[str, list[Tried]] = {}
    for seed in args.seeds:
        for scores in itertools.islice(all_scores(args.scores, seed), args.sets):
            name = scores.name if scores.kind == "logits" else f"{scores.name} {seed}"
            if name not in every:
                every[name] = tried(scores)
    print(table(list(every.values())))


def table(sets: list[list[Tried]]) -> str:
    """Return the mean NLL of each rule, less that of SMS, and where it is worse than a temperature."""
    lines = [
        f"{len(sets)} sets",
        "",
        "| rule | NLL | NLL less that of SMS (95 % interval) | worse than a temperature by one standard error |",
        "|---|---:|---:|---:|",
    ]
    sms = np.array([RULES["always SMS"](found).test.mean() for found in sets])
    for name, rule in RULES.items():
        taken = [rule(found).test for found in sets]
        nll = np.array([each.mean() for each in taken])
        gaps = [each - first_of((PLAIN,), 1)(found).test for each, found in zip(taken, sets, strict=True)]
        worse = sum(bool(gap.mean() > gap.std() / math.sqrt(len(gap)) > 0) for gap in gaps)
        less, half = (nll - sms).mean(), 1.96 * (nll - sms).std(ddof=1) / math.sqrt(len(nll))
        share = f"{worse} of {len(sets)} ({100 * worse / len(sets):.1f} %)"
        lines.append(f"| {name} | {nll.mean():.5f} | {less:+.5f} ± {half:.5f} | {share} |")
    return "\n".join(lines)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
