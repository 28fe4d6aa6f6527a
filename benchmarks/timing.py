"""Interleaved timing: every contender once per round, in turn, so that the machine's noise hits all alike."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable

import numpy as np
import torch

#: What stands in each row that misses its goal.
MISSED = "**missed**"


def interleaved(
    contenders: dict[str, Callable[[], object]],
    *,
    rounds: int,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, np.ndarray]:
    """Return the seconds each contender took in each round; by `time.process_time` where one thread is timed."""
    for _ in range(warmup):
        for run in contenders.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            start = clock()
            result = run()
            seconds[name].append(clock() - start)
            del result  # freed outside the clock, alike for all
    return {name: np.array(values) for name, values in seconds.items()}


def ratio(a: np.ndarray, b: np.ndarray, *, resamples: int = 1000) -> tuple[float, float, float]:
    """Return the median of the per-round ratios a / b with its bootstrap 95 % interval."""
    ratios = a / b
    draws = np.random.default_rng(0).choice(ratios, (resamples, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return float(np.median(ratios)), float(low), float(high)


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def milliseconds(seconds: np.ndarray) -> str:
    """Return the median, readable."""
    return f"{np.median(seconds) * 1000:.3g} ms"


def shown(value: tuple[float, float, float], sign: str = "×") -> str:
    """Return a ratio with its interval."""
    mid, low, high = value
    return f"{mid:.3g}{sign} ({low:.3g}–{high:.3g})"


def goal(value: tuple[float, float, float], *, at_most: float | None = None, at_least: float | None = None) -> str:
    """Return the goal of a ratio, marked where it is missed."""
    if at_most is not None:
        return marked(f"≤ {at_most:g}×", value[0] <= at_most)
    return marked(f"≥ {at_least:g}×", value[0] >= (at_least or 0))


def marked(wanted: str, met: bool) -> str:
    """Return a goal, marked where it is missed; `python -m benchmarks` lists these rows at its end."""
    return wanted if met else f"{wanted} {MISSED}"


def versions(*packages: str) -> str:
    """Return what was measured: packages, Python, threads."""
    parts = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", *packages)]
    return ", ".join([*parts, f"Python {platform.python_version()}", f"{torch.get_num_threads()} threads"])
