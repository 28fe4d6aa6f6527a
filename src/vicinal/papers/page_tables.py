"""Tables of results: the paper's numbers beside ours, claims with their verdicts, what differs in the setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vicinal.metrics import Estimate
from vicinal.papers.base import Recipe, Reported
from vicinal.papers.claims import UNDECIDED, Judged
from vicinal.papers.results import Result
from vicinal.papers.scheduling import Cost, claim_costs

if TYPE_CHECKING:
    from vicinal.papers.scheduling import OpenClaim


def beside(recipe: Recipe, result: Result) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of the paper's numbers beside ours, in one unit: mean over seeds, 95 % interval."""
    papers = {key: paper_values(recipe, key) for key in result.keys}
    with_paper = {name for values in papers.values() for name, (_, number) in values.items() if number is not None}
    heads = ["here", *(["in the paper"] if with_paper else [])]
    measured = {name for key in result.keys for name in recipe.columns if result.estimate(key, name) is not None}
    columns = {name: title for name, title in recipe.columns.items() if name in measured}
    for name, title in columns.items():
        heads += [f"{title}: paper", "here"] if name in with_paper else [title]
    rows = []
    for key in result.keys:
        row = [" · ".join(key)]
        if with_paper:
            row.append("; ".join(dict.fromkeys(place for place, number in papers[key].values() if number is not None)))
        for name, title in columns.items():
            if name in with_paper:
                number = papers[key].get(name, ("", None))[1]
                row.append(
                    "" if number is None else f"{_factor(title) * number:.4g}{_deviation(recipe, key, name, title)}"
                )
            row.append(_shown(result.estimate(key, name), title))
        rows.append(row)
    return heads, rows


def paper_values(recipe: Recipe, key: tuple[str, ...]) -> dict[str, tuple[str, float | None]]:
    """Return the paper's row and value of each metric of a cell, in our unit; None where nothing is printed."""
    found: dict[str, tuple[str, float | None]] = {}
    for name, place in (recipe.printed(key) if recipe.printed is not None else {}).items():
        number = recipe.published.get(place.row, {}).get(place.column)
        found[name] = place.row, place.value(number) if isinstance(number, (int, float)) else None
    return found


def _deviation(recipe: Recipe, key: tuple[str, ...], name: str, title: str) -> str:
    """Return the deviation that the paper prints beside a number, in the unit of a column."""
    place = recipe.printed(key)[name] if recipe.printed is not None else None
    number = None if place is None else recipe.published[place.row].get(place.column)
    if place is None or not isinstance(number, Reported):
        return ""
    return f" ± {_factor(title) * abs(place.value(number.deviation) - place.value(0)):.2g}"


def published_rows(recipe: Recipe) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of the paper's numbers as printed there."""
    heads = list(dict.fromkeys(name for row in recipe.published.values() for name in row))
    rows = [[name, *(_plain(row.get(head, "")) for head in heads)] for name, row in recipe.published.items()]
    return ["", *heads], rows


def claims_table(result: Result) -> str:
    """Return the claims of a result, the primary ones first, with their verdicts."""
    heads = ["claim", "", "paper", "here", "seeds", "cost", "verdict"]
    return markdown(heads, [[*row[:-2], _bold(*row[-2:])] for row in claim_rows(result)])


def claim_rows(result: Result) -> list[list[str]]:
    """Return each claim in words, primary ones first: text, family, paper, here, seeds, cost, verdict, and why."""
    pairs = sorted(zip(result.verdicts, claim_costs(result), strict=True), key=lambda pair: pair[0].family)
    return [
        [
            one.claim,
            one.family,
            paper_effect(one),
            effect(one),
            seeds(one),
            hours(cost.spent),
            one.verdict,
            why(one, cost),
        ]
        for one, cost in pairs
    ]


def seeds(one: Judged) -> str:
    """Return the seeds so far, and those of the last look where these are fewer."""
    if one.look == one.n_seeds:
        return str(one.n_seeds)
    return f"{one.n_seeds} ({f'look at {one.look}' if one.look else 'before the first look'})"


def hours(seconds: float) -> str:
    """Return processor time in minutes or hours."""
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def why(one: Judged, cost: Cost) -> str:
    """Return what a claim still needs, or why it is not tested."""
    if one.verdict != UNDECIDED:
        return one.reason
    if one.needs_seeds is None or cost.left is None:
        need = "no look is expected to decide it"
    else:
        need = f"needs {one.needs_seeds} seeds, {hours(cost.left)} more"
    return f"{one.reason}; {need}" if one.reason else need


def _bold(verdict: str, reason: str) -> str:
    return f"**{verdict}**{reason and ': ' + reason}"


def open_table(open_claims: Sequence[OpenClaim]) -> str:
    """Return the claims that are not decided: where each stands, and what it still needs."""
    rows = []
    for one in open_claims:
        judged = one.judged
        hours = "–" if one.seconds is None else f"{one.seconds / 3600:.2f}"
        needed = "–" if judged.needs_seeds is None else str(judged.needs_seeds)
        rows.append([one.recipe, judged.claim, judged.family, effect(judged), str(judged.n_seeds), needed, hours])
    return markdown(["recipe", "claim", "family", "here", "seeds", "needs", "hours"], rows)


def effect(one: Judged) -> str:
    """Return the effect of a claim with its interval."""
    if one.effect is None:
        return "–"
    factor, digits = (100, 2) if one.unit == "points" else (1, 3)

    def shown(value: float) -> str:
        return f"{value:g}" if one.kind == "at least" else _signed(factor * value, digits)

    asked = "" if one.kind == "at least" else f"; margin {factor * one.margin:g}"
    if one.kind == "above" and one.threshold:
        asked += f", more than {factor * one.threshold:g} asked for"
    ends = "" if one.low is None or one.high is None else f" [{shown(one.low)}, {shown(one.high)}]"
    return f"{shown(one.effect)} {one.unit}".rstrip() + ends + asked


def paper_effect(one: Judged) -> str:
    """Return the paper's effect, where it gives a number."""
    if one.paper is None:
        return "–"
    if one.kind == "at least":
        return f"{one.paper:g} {one.unit}"
    factor, digits = (100, 1) if one.unit == "points" else (1, 3)
    return f"{_signed(factor * one.paper, digits)} {one.unit}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _shown(estimate: Estimate | None, title: str) -> str:
    if estimate is None:
        return ""
    factor, digits = _factor(title), 2 if "%" in title else 3
    half = factor * (estimate.high - estimate.low) / 2
    value = f"{factor * estimate.value:.{digits}f}".replace("-", "−")
    return value + (f" ± {half:.{digits}f}" if half else "")


def _factor(title: str) -> int:
    """Return what a metric is shown times: shares are kept, percentages are shown."""
    return 100 if "%" in title else 1


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)
