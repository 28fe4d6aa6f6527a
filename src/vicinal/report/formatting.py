"""Numbers in print: percentages, counts, intervals and thresholds."""

from __future__ import annotations

import math
import os

from vicinal.metrics import Estimate
from vicinal.metrics.selective import RiskThreshold

_NBSP = "\u00a0"


def percent(share: float, decimals: int = 1) -> str:
    r"""Return a share as a percentage.

    >>> percent(0.9926)
    '99.3\xa0%'
    """
    if not math.isfinite(share):
        return "–"
    return f"{100 * share:.0f}{_NBSP}%" if share in (0, 1) else f"{100 * share:.{decimals}f}{_NBSP}%"


def number(value: float) -> str:
    """Return a number with four decimals, or the sign of infinity."""
    return (
        f"{value:.4f}".replace("-", "−")
        if math.isfinite(value)
        else "–"
        if math.isnan(value)
        else "∞"
        if value > 0
        else "−∞"
    )


def count(n: int, one: str, many: str | None = None) -> str:
    r"""Return a number with its noun.

    >>> count(1, "mistake"), count(1200, "class", "classes")
    ('1\xa0mistake', '1,200\xa0classes')
    """
    return f"{n:,}{_NBSP}{one if n == 1 else many or one + 's'}"


def with_interval(estimate: Estimate, *, share: bool) -> tuple[str, str]:
    """Return an estimate and its interval as text; none where that is not known."""
    text = percent if share else number
    if math.isnan(estimate.low):
        return text(estimate.value), ""
    low, between = text(estimate.low).removesuffix(_NBSP + "%"), " to " if estimate.low < 0 else "–"
    return text(estimate.value), f"{low}{between}{text(estimate.high)}"


def span(low: float, high: float, decimals: int) -> str:
    r"""Return an interval of shares, rounded outward so that it promises no more than it holds.

    >>> span(0.8812, 0.9188, 0)
    '88–92\xa0%'
    """
    scale = 10**decimals
    down = math.floor(100 * low * scale + 1e-9) / scale
    up = math.ceil(100 * high * scale - 1e-9) / scale
    shown = [f"{end:.0f}" if end in (0, 100) else f"{end:.{decimals}f}" for end in (down, up)]
    return f"{shown[0]}–{shown[1]}{_NBSP}%"


def threshold(chosen: RiskThreshold) -> str:
    r"""Return a threshold in percent, rounded up: the printed one must promise what the chosen one does.

    >>> from vicinal.metrics.selective import risk_threshold
    >>> threshold(risk_threshold([0.9501] * 300 + [0.123456] * 300, [True] * 300 + [False] * 300, 0.05))
    '12.35\xa0%'
    """
    if chosen.threshold == -math.inf:
        return "any confidence"
    decimals = 2 if chosen.threshold < 0.999 else 4
    return f"{math.ceil(100 * chosen.threshold * 10**decimals - 1e-9) / 10**decimals:.{decimals}f}{_NBSP}%"


def from_here(text: str) -> str:
    """Return paths below the working directory relative to it: a report is read elsewhere, too."""
    return text.replace(f"{os.getcwd()}{os.sep}", "")
