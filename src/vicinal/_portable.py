"""Digits that do not change with the newer instructions of a processor: torch held at AVX2.

oneDNN (convolutions) and ATen (most of the rest of torch) choose their instructions by the processor, and other
instructions take sums in another order. Two environment variables hold both at AVX2. They count only if they are set
before torch is imported, and processes that are started later inherit them. MKL, which multiplies matrices, has limits
of its own and is left alone: they mean other things on processors of AMD and of Intel.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import platform
import sys

#: What holds both at AVX2.
VARIABLES = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
#: The CPU capability of results whose digits are portable.
PORTABLE = {"aten": "AVX2", "onednn": "AVX2"}

#: Whether the limit of oneDNN was set after torch had been imported, so that nobody knows whether it counts.
_late = False


def make_portable() -> str | None:
    """Hold torch at AVX2, in this process and in those it starts; call it before torch is imported.

    Returns
    -------
    str
        Why the digits of this process are not portable all the same; None where they are. Without AVX2 nothing is set:
        ATen would obey the variable, and the process would end with an illegal instruction.
    """
    global _late
    if not _has_avx2():
        return _without_avx2()
    if "torch" in sys.modules and not is_asked():
        _late = True
    os.environ.update(VARIABLES)
    return shortfall() if "torch" in sys.modules else None


def is_asked() -> bool:
    """Return whether the environment of this process asks for portable digits."""
    return all(os.environ.get(name) == value for name, value in VARIABLES.items())


def shortfall() -> str | None:
    """Return why the digits of this process are not portable; None where they are. This imports torch."""
    if not _has_avx2():
        return _without_avx2()
    if (capability := cpu_capability()) == PORTABLE:
        return None
    variables = " ".join(f"{name}={value}" for name, value in VARIABLES.items())
    return (
        f"torch is not held at AVX2 in this process (ATen: {capability['aten']}, oneDNN: {capability['onednn']}), so "
        f"digits may differ on other processors: start it with {variables} in its environment"
    )


def cpu_capability() -> dict[str, str]:
    """Return the instructions that torch uses in this process, for results to record.

    `"aten"` is what ATen says that it uses: `"DEFAULT"`, `"AVX2"`, `"AVX512"`, …. oneDNN cannot be asked, so `"onednn"`
    is the limit that it was started with: `"AVX2"`, …; `"unlimited"` where it takes the best that the processor has;
    `"unknown"` where the limit was set after torch had been imported.
    """
    import torch

    limit = os.environ.get("ONEDNN_MAX_CPU_ISA")
    known = "unlimited" if limit is None else "unknown" if _late else limit.upper()
    return {"aten": torch.backends.cpu.get_cpu_capability(), "onednn": known}


def _without_avx2() -> str:
    return (
        f"this processor ({platform.machine() or 'of an unknown kind'}) has no AVX2, so digits differ from those of "
        "processors that have it"
    )


def _has_avx2() -> bool:
    """Return whether the processor has what ATen's code for AVX2 needs, by NumPy: torch must not be imported yet."""
    try:
        module = importlib.import_module("numpy._core._multiarray_umath")
    except ImportError:  # NumPy 1
        module = importlib.import_module("numpy.core._multiarray_umath")
    features: dict[str, bool] = module.__cpu_features__
    return features.get("AVX2", False) and features.get("FMA3", False)


@functools.cache
def _version(package: str) -> str:
    return importlib.metadata.version(package)  # it reads a file of some thousand lines


def versions() -> dict[str, str]:
    """Return the versions of the libraries that a result depends on."""
    names = ("vicinal", "torch", "accelerate", "numpy")
    return {"python": platform.python_version(), "system": sys.platform} | {name: _version(name) for name in names}
