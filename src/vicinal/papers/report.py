"""The report of a recipe: a table of ours beside the paper's, the figure, and the verdict on every claim."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.papers import pages
from vicinal.papers.base import PAPERS, Recipe
from vicinal.papers.results import Result
from vicinal.report.page import write_page


@dataclass(frozen=True)
class Rows:
    """A table as it is shown: titles of the columns, and rows whose first cell is their name."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class RecipePage:
    """What the report of a recipe shows, in words."""

    name: str
    title: str
    source: str
    sizes: str
    summary: Sequence[str]
    """How many claims hold, and so on."""
    reading: Sequence[str]
    published: Rows | None
    figures: Rows
    claims: Sequence[Mapping[str, str]]
    """Each with `claim`, `paper`, `here`, `verdict` and `reason`."""
    picture: bytes | None
    """The figure, as PNG."""
    failures: Mapping[str, str] = field(default_factory=dict)
    command: str
    provenance: Sequence[tuple[str, str]] = ()


def write_recipe(page: RecipePage, path: str | os.PathLike[str]) -> Path:
    """Write the report of a recipe to an HTML file, which is replaced as a whole, and return it."""
    picture = None if page.picture is None else f"data:image/png;base64,{base64.b64encode(page.picture).decode()}"
    context = {**vars(page), "heading": page.title, "title": f"{page.name}: {page.title}", "picture": picture}
    return write_page("recipe.html.j2", context, path, package="vicinal.papers")


def recipe_page(recipe: Recipe, result: Result) -> RecipePage:
    """Return what the report of a result shows."""
    seeds = f"{len(result.seeds)} seed{'s' * (len(result.seeds) > 1)}"
    said = ", ".join(f"{n} {verdict}" for verdict, n in pages.counts(result).items())
    return RecipePage(
        name=result.recipe,
        title=recipe.place.title,
        source=f"{PAPERS[recipe.place.paper]}, {recipe.place.name}",
        sizes=f"{result.scale} scale, {len(result.cells)} cells, {seeds}",
        summary=[f"Of {len(result.verdicts)} claims: {said}."],
        reading=recipe.reading,
        published=Rows(*pages.published_rows(recipe)) if recipe.published else None,
        figures=Rows(*pages.figure_rows(recipe, result)),
        claims=pages.claim_rows(result),
        picture=None if recipe.draw is None or not result.cells else pages.figure_png(recipe, result),
        failures=result.failures,
        command=f"vicinal reproduce {result.recipe} --scale {result.scale}",
        provenance=tuple(result.environment.items()),
    )
