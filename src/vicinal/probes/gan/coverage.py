"""How well samples cover a mixture of Gaussians, and whether mixup helps over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from vicinal._checks import integer, number
from vicinal.metrics.comparison import Difference
from vicinal.metrics.intervals import Estimate, clopper_pearson
from vicinal.metrics.intervals import coverage as checked_level
from vicinal.probes.toys import GaussianMixture


@dataclass(frozen=True)
class Coverage:
    """What samples cover of a mixture. Made by `coverage`."""

    n: int
    """Samples."""
    n_modes: int
    """Modes there are."""
    modes: int
    """How many modes are covered."""
    high_quality: Estimate
    """The share of samples near a mode, with its Clopper–Pearson interval."""
    counts: tuple[int, ...]
    """High-quality samples of each mode."""

    def __str__(self) -> str:
        share = self.high_quality
        return (
            f"{self.modes} of {self.n_modes} modes, {100 * share.value:.1f} % "
            f"[{100 * share.low:.1f}, {100 * share.high:.1f}] of {self.n:,} samples of high quality"
        )

    def to_dict(self) -> dict[str, object]:
        """Return plain values for a JSON file."""
        return {**vars(self), "high_quality": self.high_quality.to_dict(), "counts": list(self.counts)}


def coverage(
    samples: Tensor, target: GaussianMixture, *, n_std: float = 3.0, at_least: int = 1, level: float = 0.95
) -> Coverage:
    """Return how many modes samples cover, and the share of high-quality samples.

    A sample is of high quality if it is within `n_std` standard deviations of its nearest mode, and a mode is covered
    if it has `at_least` such samples. In the plane, 98.9 % of the mixture's own samples are within 3.

    Parameters
    ----------
    samples
        `[N, 2]`; those that are not finite are of low quality.
    target
        The mixture.
    n_std, at_least
        3 and 1 in VEEGAN, with 2,500 samples.
    level
        Coverage of the interval.

    References
    ----------
    Srivastava et al., "VEEGAN: Reducing Mode Collapse in GANs using Implicit Variational Learning", NeurIPS 2017,
    Section 4.1.

    Examples
    --------
    >>> from vicinal.probes.gan import ring_of_gaussians
    >>> ring = ring_of_gaussians()
    >>> print(coverage(torch.cat([ring.centres[:3], torch.zeros(1, 2)]), ring))
    3 of 8 modes, 75.0 % [19.4, 99.4] of 4 samples of high quality
    """
    if samples.ndim != 2 or samples.shape[1:] != target.centres.shape[1:] or len(samples) == 0:
        raise ValueError(f"samples must have shape [N, {target.centres.shape[1]}], got {list(samples.shape)}")
    points = samples.detach().to("cpu", torch.float64)
    distance, nearest = torch.cdist(points, target.centres.double()).min(dim=1)
    good = distance <= number("n_std", n_std, above=0) * target.std  # False for NaN
    counts = torch.bincount(nearest[good], minlength=len(target.centres))
    low, high = clopper_pearson(int(good.sum()), len(points), level)
    return Coverage(
        n=len(points),
        n_modes=len(counts),
        modes=int((counts >= integer("at_least", at_least, low=1)).sum()),
        high_quality=Estimate(float(good.double().mean()), float(low), float(high)),
        counts=tuple(counts.tolist()),
    )


@dataclass(frozen=True)
class Verdict:
    """Whether mixup covers more than the plain GAN. Made by `verdict`."""

    n_seeds: int
    """Pairs of runs."""
    level: float
    """Coverage of the intervals."""
    modes: Difference
    """The difference in covered modes, mixup (b) − plain (a), paired by seed."""
    high_quality: Difference
    """The same of the share of high-quality samples."""

    @property
    def claims(self) -> dict[str, str]:
        """For each metric, whether "mixup is better" `holds`, is `reversed` or is `undecided`."""
        words = {"b": "holds", "a": "reversed", None: "undecided"}
        return {"modes": words[self.modes.better], "high_quality": words[self.high_quality.better]}

    def to_dict(self) -> dict[str, object]:
        """Return plain values for a JSON file; None where an end is infinite."""
        parts = {
            name: {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in vars(d).items()}
            for name, d in (("modes", self.modes), ("high_quality", self.high_quality))
        }
        return {"n_seeds": self.n_seeds, "level": self.level, **parts, "claims": self.claims}

    def __str__(self) -> str:
        lines = [f"mixup − plain, paired over {self.n_seeds} seeds; {100 * self.level:g} % intervals"]
        for name, d in (("modes", self.modes), ("high_quality", self.high_quality)):
            shown = f"{name:<13}{d.a:>8.4f} {d.b:>8.4f}  {d.value:+.4f} [{d.low:+.4f}, {d.high:+.4f}]"
            lines.append(f"{shown}  mixup is better: {self.claims[name]}")
        return "\n".join(lines)


def verdict(mixup: Sequence[Coverage], plain: Sequence[Coverage], *, level: float = 0.95) -> Verdict:
    r"""Compare mixup and plain GANs over seeds: mean difference with its interval, and what it says of the claim.

    With :math:`\delta_s` the difference of seed s and S seeds, the interval is Student's,
    :math:`\bar\delta \pm t_{S-1} s_\delta / \sqrt S`. Differences that are equal by chance make nothing certain, so
    :math:`s_\delta` is at least what one run leaves open: for modes, which are whole numbers, the
    :math:`1/\sqrt{12}` that rounding hides; for shares the binomial error of n samples. One seed says nothing of
    others: it is undecided.

    Parameters
    ----------
    mixup, plain
        What `coverage` returned for each seed, in the same order of seeds.
    level
        Coverage of the intervals.

    >>> estimate = Estimate(0.9, 0.8, 1.0)
    >>> good, bad = Coverage(10, 8, 8, estimate, (1,) * 8), Coverage(10, 8, 3, estimate, (3,) * 3)
    >>> verdict([good, good], [bad, bad]).claims
    {'modes': 'holds', 'high_quality': 'undecided'}
    """
    level = checked_level(level)
    if not mixup or len(mixup) != len(plain):
        raise ValueError(f"mixup and plain must have as many runs (seeds), got {len(mixup)} and {len(plain)}")
    if len({run.n_modes for run in [*mixup, *plain]}) != 1:
        raise ValueError("all runs must be of one mixture, got different numbers of modes")
    of_plain, of_mixup = ([run.high_quality.value for run in runs] for runs in (plain, mixup))
    sampling = sum(run.high_quality.value * (1 - run.high_quality.value) / run.n for run in [*mixup, *plain])
    return Verdict(
        n_seeds=len(mixup),
        level=level,
        modes=_paired([run.modes for run in plain], [run.modes for run in mixup], level, least_std=1 / math.sqrt(12)),
        high_quality=_paired(of_plain, of_mixup, level, least_std=math.sqrt(sampling / len(mixup))),
    )


def _paired(a: Sequence[float], b: Sequence[float], level: float, *, least_std: float) -> Difference:
    of_a, of_b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    delta = of_b - of_a
    value = float(delta.mean())
    half = math.inf
    if len(delta) > 1:
        t = float(stdtrit(len(delta) - 1, (1 + level) / 2))
        half = t * max(float(delta.std(ddof=1)), least_std) / math.sqrt(len(delta))
    low, high = value - half, value + half
    better = "b" if low > 0 else "a" if high < 0 else None
    return Difference(float(of_a.mean()), float(of_b.mean()), value, low, high, better)
