"""What users may pass, checked once and refused with the argument's name, its value and what is allowed."""

from __future__ import annotations

import difflib
import importlib
import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["choice", "flag", "freeze", "integer", "nearest_names", "number", "require"]


def number(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float | None = None,
    infinite: bool = False,
) -> float:
    """Return `value` as a float in [low, high], and above `above` where that is given.

    >>> number("prob", 2, low=0, high=1)
    Traceback (most recent call last):
    ...
    ValueError: prob must be a number in [0, 1], got 2
    """
    if high < math.inf:
        allowed = f"a number in [{low:g}, {high:g}]" if above is None else f"a number in ({above:g}, {high:g}]"
    elif above is not None:
        allowed = f"a number above {above:g}"
    else:
        allowed = "a finite number" if low == -math.inf else f"a number of at least {low:g}"
    if infinite:
        allowed += " or inf"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {allowed}, got {value!r} ({type(value).__name__})")
    result = float(value)
    too_low = result < low or (above is not None and result <= above)
    if math.isnan(result) or too_low or result > high or (math.isinf(result) and not infinite):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return result


def integer(name: str, value: Any, *, low: int | None = None) -> int:
    """Return `value` as an int of at least `low`."""
    allowed = "an integer" if low is None else f"an integer of at least {low}"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be {allowed}, got {value!r} ({type(value).__name__})")
    if low is not None and int(value) < low:
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """Return `value` if it is a bool: `1` and `"no"` are mistakes, not truths."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r} ({type(value).__name__})")
    return value


def choice(name: str, value: Any, allowed: Sequence[str]) -> str:
    """Return `value` if it is one of `allowed`.

    >>> choice("labels", "hard", ("soft", "nearest"))
    Traceback (most recent call last):
    ...
    ValueError: labels must be one of 'soft', 'nearest', got 'hard'
    """
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return str(value)


def nearest_names(name: str, known: Iterable[str], *, n: int = 3) -> str:
    """Return the end of an error message: the real names that look most like `name`.

    >>> nearest_names("layr1", ["layer1", "layer2", "fc"])
    "; did you mean 'layer1' or 'layer2'?"
    """
    known = sorted(set(known))
    close = difflib.get_close_matches(name, known, n=n, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    if not known:
        return ""
    shown = ", ".join(map(repr, known[:20]))
    return f"; there are {shown}{', …' if len(known) > 20 else ''}"


def require(module: str, extra: str) -> Any:
    """Import `module`, or say which extra of vicinal installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        raise ImportError(f"this needs {top}, which is not installed: pip install 'vicinal[{extra}]'") from error


def freeze(record: object, **values: object) -> None:
    """Store normalised field values in a frozen dataclass, from its `__post_init__`."""
    for name, value in values.items():
        object.__setattr__(record, name, value)
