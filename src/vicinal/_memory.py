"""Memory: limits for what files claim to hold, scratch files, and the allocator's settings for training.

A size is checked against the limit before memory is allocated for it; `max_memory` raises or lowers the limit.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from vicinal._checks import Argument, ArgumentError, ArgumentTypeError, Sentence

#: Bytes of memory that this machine has.
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**34
#: Where `max_memory` is set: in the environment, so that the processes which this one starts have it too.
MAX_MEMORY = "VICINAL_MAX_MEMORY"
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?) ?(?P<unit>[kmgt]?)(?P<binary>i?)b?", re.IGNORECASE)
#: Of malloc.h: beyond which free end of the heap, and from which size on, memory is given back, and how many blocks.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4


class TooLargeError(ValueError):
    """A file claims to hold more than the memory limit."""


@contextmanager
def max_memory(size: int | str) -> Iterator[None]:
    """Set the memory limit for what files claim to hold, as `--max-memory` does.

    Without it an array, the weights of a model or a workbook may take as much as this machine has, and a single row or
    cell of a table much less: see the page on scale. It is set for the whole process and those that it starts.

    Parameters
    ----------
    size
        In bytes, or as text such as `"64GB"` or `"512MiB"`.

    Returns
    -------
    context manager
        Inside its `with` block the limit holds.

    Examples
    --------
    >>> with max_memory("64GB"):
    ...     memory_limit()
    64000000000
    """
    before = os.environ.get(MAX_MEMORY)
    os.environ[MAX_MEMORY] = str(_bytes("max_memory", size))
    try:
        yield
    finally:
        if before is None:
            del os.environ[MAX_MEMORY]
        else:
            os.environ[MAX_MEMORY] = before


def memory_limit(default: int = MEMORY) -> int:
    """Return the memory limit in bytes: that of `max_memory`, or the default."""
    given = os.environ.get(MAX_MEMORY)
    return default if given is None else _bytes(MAX_MEMORY, given)


def check_memory(what: str, needed: int, *, default: int = MEMORY, instead: str = "") -> None:
    """Raise if something takes more memory than `memory_limit`, and say what would allow it.

    Parameters
    ----------
    what
        The beginning of the sentence.
    needed
        The bytes that it takes.
    default
        As for `memory_limit`.
    instead
        What to do instead, if anything.

    >>> check_memory("the array 'x'", 3_000_000, default=2_000_000)
    Traceback (most recent call last):
    ...
    vicinal._memory.TooLargeError: the array 'x' takes 3 MB of memory, and 2 MB are allowed: max_memory='3MB' allows it
    """
    limit = memory_limit(default)
    if needed > limit:
        allowed = f"{what} takes {_in_words(needed)} of memory, and {_in_words(limit, math.floor)} are allowed: "
        raise TooLargeError(Sentence(allowed, *([instead, ", or "] if instead else []), _room(needed), " allows it"))


def beyond_memory(what: str, limit: int, *, share: int = 1, instead: str = "") -> TooLargeError:
    """Return the error for something above a limit whose size is not known.

    Parameters
    ----------
    what, instead
        As for `check_memory`.
    limit
        The bytes that are allowed.
    share
        `max_memory` is this many times the limit.
    """
    more = f"{what} takes more than {_in_words(limit, math.floor)}: "
    return TooLargeError(
        Sentence(more, *([instead, ", or "] if instead else []), _room(2 * share * limit), " allows twice that")
    )


def _room(n: int) -> Argument:
    """Return the `max_memory` of so many bytes, as users write it."""
    return Argument("max_memory", _in_words(n).replace(" ", "").removesuffix("bytes"))


def _bytes(name: str, size: object) -> int:
    """Return a size as a number of bytes."""
    allowed = "a size such as '64GB', '512MiB' or 10000000"
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise ArgumentTypeError(name, size, allowed)
    parsed = _SIZE.fullmatch(str(size).strip())
    if parsed is None:
        raise ArgumentError(name, size, allowed)
    power = " kmgt".index(parsed["unit"].lower() or " ")
    number = float(parsed["number"]) * (1024 if parsed["binary"] else 1000) ** power
    if not 1 <= number < math.inf:
        raise ArgumentError(name, size, allowed)
    return int(number)


def _in_words(n: int, rounded: Callable[[float], int] = math.ceil) -> str:
    """Return a number of bytes with its unit.

    >>> _in_words(999), _in_words(25_320_000_000), _in_words(25_320_000_000, math.floor)
    ('999 bytes', '25.4 GB', '25.3 GB')
    """
    power = min((len(str(n)) - 1) // 3, 4)
    number = f"{rounded(10 * n / 1000**power) / 10:.1f}".removesuffix(".0")
    return f"{number} {('bytes', 'KB', 'MB', 'GB', 'TB')[power]}"


def check_size(path: Path, times: int = 1) -> None:
    """Refuse a file that takes more memory than is allowed before it is read: one of holes may have any size.

    Not one that was just written: what is trained is bounded by no file.
    """
    if path.exists():
        check_memory(str(path), times * path.stat().st_size)


class Scratch:
    """A temporary file without a name, in the folder `TMPDIR`; it is removed with its last reference.

    One that several processes share has had a name, by which it is opened.
    """

    def __init__(self, name: str | None = None) -> None:
        unnamed = name is None
        self.file: IO[bytes] = tempfile.TemporaryFile(prefix="vicinal-") if unnamed else open(str(name), "r+b")  # noqa: SIM115  # closed below

    def __del__(self) -> None:
        self.file.close()


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep memory that freed tensors leave on the CPU for the next ones, instead of returning it to the system.

    Returned memory must be requested again, page by page, and the system fills it with zeros. That is a tenth of a
    training step. These are settings of glibc's `malloc`, for the whole process. Other systems, and settings of the
    user (`MALLOC_TRIM_THRESHOLD_`, …, `GLIBC_TUNABLES`), are left alone. At the end free memory is returned, and the
    thresholds are those that glibc reaches by itself when large tensors are freed.

    Returns
    -------
    context manager
        Inside its `with` block memory is kept.

    Examples
    --------
    >>> with kept_memory():
    ...     pass  # for batch in batches: …
    """
    theirs = [n for n in os.environ if n == "GLIBC_TUNABLES" or (n.startswith("MALLOC_") and n.endswith("_"))]
    if platform.libc_ver()[0] != "glibc" or theirs:
        yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_MAX, 0)  # large blocks come from the heap too, which keeps them when they are freed
    libc.mallopt(_TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_MAX, 2**16)
        libc.mallopt(_MMAP_THRESHOLD, 2**25)
        libc.mallopt(_TRIM_THRESHOLD, 2**26)
        libc.malloc_trim(0)


def n_threads() -> int:
    """Return how many threads to measure with: torch's number where torch is in use, else OpenMP's or that of cores."""
    if "torch" in sys.modules:
        threads: int = sys.modules["torch"].get_num_threads()
        return threads
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else os.cpu_count() or 1
