"""The report of a recipe: every claim with its verdict, the paper's numbers beside ours, what differs."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.papers import pages
from vicinal.papers.base import Recipe
from vicinal.papers.deviations import deviations, ran_with, seed_varies
from vicinal.papers.page_tables import beside, claim_rows
from vicinal.papers.plots import has_line
from vicinal.papers.results import Result
from vicinal.papers.titles import PAPERS
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
    claims: Sequence[Sequence[str]]
    """Each with its text, family, effect in the paper, effect here, seeds, cost, verdict, and why."""
    varies: str
    """What a seed draws, and what a verdict speaks of."""
    beside: Rows
    """The paper's numbers beside ours."""
    deviations: Rows | None
    """What differs from the paper's setting."""
    reading: Sequence[str]
    forest: bytes | None
    """The forest plot of the claims, as PNG."""
    plot: bytes | None
    """The plot of the recipe, as PNG."""
    failures: Mapping[str, str] = field(default_factory=dict)
    command: str
    provenance: Sequence[tuple[str, str]] = ()


def write_recipe(page: RecipePage, path: str | os.PathLike[str]) -> Path:
    """Write the report of a recipe to an HTML file, which is replaced as a whole, and return it."""
    images = {"plot": _inline(page.plot), "forest": _inline(page.forest)}
    context = {**vars(page), "heading": page.title, "title": f"{page.name}: {page.title}", **images}
    return write_page("recipe.html.j2", context, path, package="vicinal.papers")


def _inline(png: bytes | None) -> str | None:
    return None if png is None else f"data:image/png;base64,{base64.b64encode(png).decode()}"


def recipe_page(recipe: Recipe, result: Result) -> RecipePage:
    """Return what the report of a result shows."""
    seeds = f"{len(result.seeds)} seed{'s' * (len(result.seeds) > 1)}"
    said = ", ".join(f"{n} {verdict}" for verdict, n in pages.counts(result).items())
    found = deviations(recipe, result.scale) + ran_with(result.settings)
    lines = has_line([("", one) for one in result.verdicts])
    return RecipePage(
        name=result.recipe,
        title=recipe.place.title,
        source=f"{PAPERS[recipe.place.paper]}, {recipe.place.name}",
        sizes=f"{result.scale} scale, {len(result.cells)} cells, {seeds}",
        summary=[f"Of {len(result.verdicts)} claims: {said}."],
        claims=claim_rows(result),
        varies=seed_varies(recipe.scales[result.scale]),
        beside=Rows(*beside(recipe, result)),
        deviations=Rows(["option", "here", "paper"], found) if found else None,
        reading=recipe.reading,
        forest=pages.claims_png(result) if lines else None,
        plot=None if recipe.draw is None or not result.cells else pages.plot_png(recipe, result),
        failures=result.failures,
        command=f"vicinal reproduce {result.recipe} --scale {result.scale}",
        provenance=tuple(result.environment.items()),
    )
