"""Calibration and refinement of each method of a comparison: which of them a calibrator can still repair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t

from vicinal.calibrators.base import Floats
from vicinal.calibrators.parts import LossParts, error_of_mean, refined_losses
from vicinal.calibrators.validation import HeldOut
from vicinal.metrics import Estimate
from vicinal.runs.summary_table import GridResult


@dataclass(frozen=True)
class MethodParts:
    """The parts of the NLL of one method's test predictions before calibration, means over seeds."""

    method: str
    n_seeds: int
    nll: LossParts
    difference: Estimate | None
    """Refinement less that of the first method, paired on samples and seeds; None for the first."""

    def to_dict(self) -> dict[str, object]:
        """Return them as JSON can hold them."""
        less = None if self.difference is None else self.difference.to_dict()
        return {"method": self.method, "n_seeds": self.n_seeds, "nll": self.nll.to_dict(), "difference": less}


def grid_parts(result: GridResult, *, method: str = "auto") -> list[MethodParts]:
    """Return the parts of each method that has results; intervals speak of other samples and other seeds.

    A method whose refinement is higher than another's leaves more that no calibrator can repair.
    """
    tests = {
        cell: HeldOut.of(one.test.labels, one.test.logits, sample_weight=one.test.weights, groups=one.test.groups)
        for cell, one in result.results.items()
    }
    losses = {cell: refined_losses(test, method)["nll"] for cell, test in tests.items()}
    found: list[MethodParts] = []
    for name in result.methods:
        seeds = [seed for seed in result.seeds if (name, seed) in losses]
        if not seeds:
            continue
        before, after = (np.stack([losses[name, seed][i] for seed in seeds]) for i in (0, 1))
        samples = tests[name, seeds[0]]  # the same for all
        nll = LossParts(*(over_seeds(each, samples) for each in (before, before - after, after)))
        first = found[0].method if found else name
        shared = [seed for seed in seeds if (first, seed) in losses]
        gaps = [losses[name, seed][1] - losses[first, seed][1] for seed in shared]
        less = over_seeds(gaps, samples) if found and gaps else None
        found.append(MethodParts(name, len(seeds), nll, less))
    return found


def over_seeds(values: Sequence[Floats] | Floats, samples: HeldOut, level: float = 0.95) -> Estimate:
    """Return the mean of `[S, N]` with an interval for other samples and, of two seeds or more, other seeds.

    >>> over_seeds(np.ones((2, 9)), HeldOut.of([0] * 9, np.zeros((9, 2))))
    Estimate(value=1.0, low=1.0, high=1.0)
    """
    array = np.asarray(values)
    by_seed = np.array([samples.mean(each) for each in array])
    value, tail = float(by_seed.mean()), (1 + level) / 2
    half = float(norm.ppf(tail)) * error_of_mean(array.mean(0), samples)
    if len(array) > 1:
        half = float(np.hypot(half, t.ppf(tail, len(array) - 1) * by_seed.std(ddof=1) / np.sqrt(len(array))))
    return Estimate(value, value - half, value + half)
