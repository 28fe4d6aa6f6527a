"""Every table and figure of the papers as a recipe: one file each, run by `vicinal reproduce NAME`.

`base` says what a recipe is, `claims` how its claims are judged, `execute` runs it, `results` keeps its result, and
`pages` writes the evidence. `trained` is how a recipe sees a run. `gan` has mixup's losses for GANs.

Names are imported on first use: `vicinal.papers.gan` needs no more than torch.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING

from vicinal._checks import nearest_names
from vicinal._lazy import on_first_use

if TYPE_CHECKING:
    from vicinal.papers.base import Recipe
    from vicinal.papers.results import Result
    from vicinal.papers.titles import PAPERS, SCALES

__all__ = ["PAPERS", "SCALES", "Recipe", "Result", "get", "names"]

__getattr__ = on_first_use(__name__, {".base": ["Recipe"], ".results": ["Result"], ".titles": ["PAPERS", "SCALES"]})


@functools.cache
def names() -> tuple[str, ...]:
    """Return the names of all recipes, paper by paper in the order in which the papers show them.

    >>> "z18-tab2" in names()
    True
    """
    from vicinal.papers.titles import PAPERS

    every = [module.name for module in pkgutil.iter_modules(__path__) if module.name[:3].upper() in PAPERS]
    order = list(PAPERS)
    return tuple(
        sorted((name.replace("_", "-") for name in every), key=lambda name: (order.index(name[:3].upper()), name))
    )


def check_name(name: str) -> None:
    """Refuse a name that is no recipe's."""
    if name not in names():
        raise ValueError(f"there is no recipe {name!r}{nearest_names(name, names())}")


def get(name: str) -> Recipe:
    """Return a recipe by its name."""
    from vicinal.papers.base import Recipe

    check_name(name)
    recipe = importlib.import_module(f"vicinal.papers.{name.replace('-', '_')}").RECIPE
    if not isinstance(recipe, Recipe):
        raise TypeError(f"RECIPE of {name} must be a Recipe, got {type(recipe).__name__}")
    return recipe
