"""Every table and figure of the papers as a recipe: one file each, run by `vicinal reproduce NAME`.

`base` says what a recipe is, `claims` how its claims are judged, `running` runs it, `results` keeps what it led to,
`pages` writes the evidence. `trained` is how a recipe sees a run.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from vicinal._checks import nearest_names
from vicinal.papers.base import PAPERS, SCALES, Recipe, Scale
from vicinal.papers.claims import Judged
from vicinal.papers.results import Result

__all__ = ["PAPERS", "SCALES", "Judged", "Recipe", "Result", "Scale", "get", "names"]


@functools.cache
def names() -> tuple[str, ...]:
    """Return the names of all recipes, paper by paper in the order in which the papers show them.

    >>> "z18-tab2" in names()
    True
    """
    every = [module.name for module in pkgutil.iter_modules(__path__) if module.name[:3].upper() in PAPERS]
    order = list(PAPERS)
    return tuple(
        sorted((name.replace("_", "-") for name in every), key=lambda name: (order.index(name[:3].upper()), name))
    )


def get(name: str) -> Recipe:
    """Return a recipe by its name."""
    if name not in names():
        raise ValueError(f"there is no recipe {name!r}{nearest_names(name, names())}")
    recipe = importlib.import_module(f"vicinal.papers.{name.replace('-', '_')}").RECIPE
    if not isinstance(recipe, Recipe):
        raise TypeError(f"RECIPE of {name} must be a Recipe, got {type(recipe).__name__}")
    return recipe
