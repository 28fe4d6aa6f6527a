"""Public names that a package imports on first use, so that `import` and `--help` do not pay for torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def on_first_use(
    package: str, homes: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> Callable[[str], Any]:  # fmt: skip
    """Return the `__getattr__` of a package: its names and modules are imported when they are asked for.

    Parameters
    ----------
    package
        The package's `__name__`.
    homes
        The names of each module. A module that begins with a dot is the package's own.
    modules
        Modules of the package that are public themselves.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def imported(name: str) -> Any:
        if name in home_of:
            return getattr(importlib.import_module(home_of[name], package), name)
        if name in modules:
            return importlib.import_module(f".{name}", package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return imported
