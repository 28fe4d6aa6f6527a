"""What users may pass, checked once and refused with the argument's name, its value and what is allowed.

Errors are data: a sentence that names arguments keeps them as `Argument`s, so that the command can word them as its
options while Python users read them as they wrote them.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import math
import numbers
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_NO_VALUE: object = ...  # pickles to itself

#: What targets are: one of K classes; 0 or 1 from one logit; several of these; a number.
TARGET_TYPES = ("multiclass", "binary", "multilabel", "regression")


@dataclass(frozen=True)
class Argument:
    """An argument that a sentence names, alone or with a value to pass.

    >>> str(Argument("target")), str(Argument("rare", "train"))
    ('target', "rare='train'")
    """

    name: str
    value: Any = _NO_VALUE

    @property
    def has_value(self) -> bool:
        """Whether the sentence gives the value too."""
        return self.value is not _NO_VALUE

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}" if self.has_value else self.name


class Sentence(str):
    """A message whose named arguments can be reworded; as a plain string it reads as Python.

    >>> sentence = Sentence("a class has one row: pass ", Argument("rare", "train"))
    >>> print(sentence)
    a class has one row: pass rare='train'
    >>> print(sentence.worded(lambda argument: f"--{argument.name} {argument.value}"))
    a class has one row: pass --rare train
    """

    parts: tuple[str | Argument, ...]

    def __new__(cls, *parts: str | Argument) -> Sentence:
        sentence = super().__new__(cls, "".join(map(str, parts)))
        # A part may be a sentence itself: what it names stays named.
        sentence.parts = tuple(
            piece for part in parts for piece in (part.parts if isinstance(part, Sentence) else (part,))
        )
        return sentence

    def worded(self, word: Callable[[Argument], str]) -> str:
        """Return the sentence with each argument as `word` says it."""
        return "".join(word(part) if isinstance(part, Argument) else part for part in self.parts)


def joined(separator: str, sentences: Iterable[str]) -> Sentence:
    """Return sentences as one, with the arguments that each of them names.

    >>> joined("; ", [Sentence(Argument("lr"), " is 0"), "no rows"]).parts
    (Argument(name='lr', value=Ellipsis), ' is 0', '; ', 'no rows')
    """
    return Sentence(*[part for sentence in sentences for part in (separator, sentence)][1:])


def message_of(error: BaseException) -> Sentence:
    """Return what an error or a warning says, with the arguments that it names.

    >>> message_of(ArgumentError("lr", 0, "a number above 0")).parts[0]
    Argument(name='lr', value=Ellipsis)
    """
    said = error.args[0] if len(error.args) == 1 else None
    return said if isinstance(said, Sentence) else Sentence(str(error))


def first_line(error: BaseException) -> str:
    """Return what an error of a library says, without the lines that list its details; its kind if it says nothing."""
    return str(error).strip().partition("\n")[0].rstrip(" .:") or type(error).__name__


#: A value that is longer than this is not shown whole in an error.
_LONGEST_VALUE = 400


class ArgumentError(ValueError):
    """A refused argument: its name, its value and what is allowed.

    >>> error = ArgumentError("prob", 2, "a number in [0, 1]")
    >>> print(error)
    prob must be a number in [0, 1], got 2
    """

    def __init__(self, name: str, value: object, allowed: str, *, hint: str = "") -> None:
        self.name, self.value, self.allowed, self.hint = name, value, allowed, hint
        got = repr(value)
        if len(got) > _LONGEST_VALUE:  # rows given as lists, for one
            got = f"{got[: _LONGEST_VALUE // 2]} … {got[-_LONGEST_VALUE // 4 :]}"
        super().__init__(Sentence(Argument(name), " must be ", allowed, f", got {got}", self._kind(), hint))

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross processes in a grid.
        return functools.partial(type(self), hint=self.hint), (self.name, self.value, self.allowed)

    def _kind(self) -> str:
        return ""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of the wrong type.

    >>> print(ArgumentTypeError("prob", "2", "a number in [0, 1]"))
    prob must be a number in [0, 1], got '2' (str)
    """

    def _kind(self) -> str:
        return f" ({type(self.value).__name__})"


def number(
    name: str,
    value: object,
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
    vicinal._checks.ArgumentError: prob must be a number in [0, 1], got 2
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ArgumentTypeError(name, value, _range(low, high, above, infinite))
    result = float(value)
    too_low = result < low or (above is not None and result <= above)
    if math.isnan(result) or too_low or result > high or (math.isinf(result) and not infinite):
        raise ArgumentError(name, value, _range(low, high, above, infinite))
    return result


def _range(low: float, high: float, above: float | None, infinite: bool) -> str:
    """Return what `number` allows, in words."""
    if high < math.inf:
        allowed = f"a number in [{low:g}, {high:g}]" if above is None else f"a number in ({above:g}, {high:g}]"
    elif above is not None:
        allowed = f"a number above {above:g}"
    else:
        allowed = "a finite number" if low == -math.inf else f"a number of at least {low:g}"
    return allowed + " or inf" if infinite else allowed


def integer(name: str, value: object, *, low: int | None = None, high: int | None = None) -> int:
    """Return `value` as an int of at least `low`, and at most `high` where that is given too.

    >>> integer("ensemble", 100_000, low=1, high=1_000)
    Traceback (most recent call last):
    ...
    vicinal._checks.ArgumentError: ensemble must be an integer from 1 to 1,000, got 100000
    """
    allowed = "an integer" if low is None else f"an integer of at least {low}"
    if high is not None:
        allowed = f"an integer from {low} to {high:,}"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ArgumentTypeError(name, value, allowed)
    if (low is not None and int(value) < low) or (high is not None and int(value) > high):
        raise ArgumentError(name, value, allowed)
    return int(value)


def flag(name: str, value: object) -> bool:
    """Return `value` if it is a bool: `1` and `"no"` are mistakes, not truths."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(name, value, "True or False")
    return value


def choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """Return `value` if it is one of `allowed`.

    >>> choice("labels", "hard", ("soft", "nearest"))
    Traceback (most recent call last):
    ...
    vicinal._checks.ArgumentError: labels must be one of 'soft', 'nearest', got 'hard'
    """
    if value not in allowed:
        raise ArgumentError(name, value, f"one of {', '.join(map(repr, allowed))}")
    return str(value)


#: Characters of a name that a sentence shows, and beyond which names are not compared.
_LONG = 100


def nearest_names(name: str, known: Iterable[str], *, n: int = 3, key: Callable[[str], str] = str) -> str:
    """Return the end of an error message: the real names that look most like `name`.

    Names are compared by `key`: of files, say, without the folder and the ending that they share.

    >>> nearest_names("layr1", ["layer1", "layer2", "fc"])
    "; did you mean 'layer1' or 'layer2'?"
    """
    known = sorted(set(known))
    short: dict[str, list[str]] = {}  # the time to compare grows with the square of the length
    for other in known:
        if len(other) <= _LONG:
            short.setdefault(key(other), []).append(other)
    found = difflib.get_close_matches(key(name), short, n=n, cutoff=0.5) if len(name) <= _LONG else []
    close = [other for one in found for other in short[one]][:n]
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    if not known:
        return ""
    shown = ", ".join(repr(shortened(other)) for other in known[:20])
    return f"; there are {shown}{', …' if len(known) > 20 else ''}"


def scores_by_name(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function whose scores have names answer `evaluate(labels, probs)` with what to write instead."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if len(args) > 1:
            name = function.__name__
            raise TypeError(f"pass the scores by name: {name}(labels, probs=…) or {name}(labels, logits=…)")
        return function(*args, **kwargs)

    return call


def shortened(name: str) -> str:
    """Return a name, cut where it is too long for a sentence."""
    return name if len(name) <= _LONG else f"{name[:_LONG]}…"


def require(module: str, extra: str) -> Any:
    """Import `module`, or say which extra of vicinal installs it, or why it cannot be loaded though it is installed."""
    loaded = sys.modules.get(module)  # this is called for every column of a table
    # Another thread may be half way through the import: `import_module` waits for it.
    if loaded is not None and not getattr(getattr(loaded, "__spec__", None), "_initializing", False):
        return loaded
    top = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == top:
            missing = f"this needs {top}, which is not installed: pip install 'vicinal[{extra}]'"
            raise ModuleNotFoundError(missing) from error
        again = f"; pip install 'vicinal[{extra}]' may repair it"
        raise ImportError(f"this needs {top}, which cannot be loaded: {first_line(error)}{again}") from error
    except (ImportError, OSError, MemoryError) as error:  # too little memory for its code, a damaged file
        raise ImportError(f"this needs {top}, which cannot be loaded: {first_line(error)}") from error


def added_field(default: object) -> Any:
    """Return the default of a dataclass field that came after the first release.

    `repr` prints it only where it differs, so that what older runs recorded is what their method still prints as.
    """
    return dataclasses.field(default=default, metadata={"added": True})


def freeze(record: object, **values: object) -> None:
    """Store normalised field values in a frozen dataclass, from its `__post_init__`."""
    for name, value in values.items():
        object.__setattr__(record, name, value)
