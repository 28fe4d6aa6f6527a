"""The overview of all claims, `docs/evidence.md`: a forest plot of the primary ones and a table of all."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping

from vicinal.papers import PAPERS, Result, get, names
from vicinal.papers.claims import HOLDS, NO_DIFFERENCE, NOT_TESTED, PRIMARY, REVERSED, UNDECIDED, Judged, error_rate
from vicinal.papers.page_tables import effect, hours, markdown, paper_effect, seeds, why
from vicinal.papers.plots import has_line
from vicinal.papers.scheduling import claim_costs

VERDICTS = (HOLDS, REVERSED, NO_DIFFERENCE, UNDECIDED, NOT_TESTED)
PLOT = "overview.png"


def overview(every: Mapping[tuple[str, str], Result]) -> str:
    """Return docs/evidence.md."""
    verdicts = [one for result in every.values() for one in result.verdicts]
    lines = ["# Evidence", "", _summary(verdicts), ""]
    lines += [f"- {sentence}" for sentence in against(every)]
    lines += [""] * bool(against(every))
    if has_line(primaries(every)):
        lines += [f"![Effects of the primary claims, with their intervals](evidence/{PLOT})", ""]
    if verdicts:
        lines += ["## All claims", "", _claims(every), ""]
    lines += ["## Recipes", "", _recipes(every), ""]
    lines += [
        "## How verdicts are read",
        "",
        "Every claim is a contrast of metrics, paired over seeds, positive where the paper is right. Verdicts are read "
        "off t intervals at the last look. Their level is corrected for the looks and for the claims of a family. The "
        "interval of a count of sets says how many lie above 0 with their intervals, and how many do not lie below it. "
        "A claim about calibration is tested only where the baseline is over-confident. "
        f"{error_rate(result.verdicts for result in every.values())} "
        "`make evidence` writes this page and those of the recipes from `results/`.",
        "",
    ]
    return "\n".join(lines)


def primaries(every: Mapping[tuple[str, str], Result]) -> list[tuple[str, Judged]]:
    """Return the primary claims of all results, each with a short text."""
    found = []
    for (name, scale), result in every.items():
        where = name if scale == "cpu" else f"{name} ({scale})"
        of = [one for one in result.verdicts if one.family == PRIMARY]
        found += [(textwrap.shorten(f"{where}: {one.claim}", 78, placeholder=" …"), one) for one in of]
    return found


def against(every: Mapping[tuple[str, str], Result]) -> list[str]:
    """Return a sentence for each claim whose reverse was found."""
    said = []
    for (name, scale), result in every.items():
        paper, place, _ = get(name).place
        for one in result.verdicts:
            if one.verdict == REVERSED:
                there = "" if one.paper is None else f", in the paper {paper_effect(one)}"
                said.append(
                    f"Against [{paper} {place}](evidence/{name}.md) at {scale} scale: “{one.claim}” is reversed. The "
                    f"effect is {effect(one).partition(';')[0]}{there}."
                )
    return said


def _summary(verdicts: list[Judged]) -> str:
    declared = sum(1 for name in names() for _ in get(name).claims(get(name).scales["cpu"]))
    said = f"Tables and figures of five papers, run again with `vicinal reproduce`: {declared} claims at cpu scale."
    if not verdicts:
        return f"{said} Nothing has been run yet."
    of = Counter(one.verdict for one in verdicts)
    first = [one for one in verdicts if one.family == PRIMARY]
    decided, decided_first = (
        sum(one.verdict not in (UNDECIDED, NOT_TESTED) for one in some) for some in (verdicts, first)
    )
    shown = ", ".join(f"{of[verdict]} {verdict}" for verdict in VERDICTS if of[verdict])
    return (
        f"{said} {len(verdicts)} claims have results, and {decided} are decided: {shown}. Of the {len(first)} primary "
        f"claims among them, which are the papers' headlines, {decided_first} are decided."
    )


def _claims(every: Mapping[tuple[str, str], Result]) -> str:
    rows = []
    for (name, scale), result in every.items():
        link = f"[{name}](evidence/{name}.md)" + ("" if scale == "cpu" else f" ({scale})")
        for one, cost in zip(result.verdicts, claim_costs(result), strict=True):
            still = f", {why(one, cost)}" if one.verdict == UNDECIDED else ""
            row = [link, get(name).place.paper, one.family, one.claim, paper_effect(one), effect(one), seeds(one)]
            rows.append([*row, hours(cost.spent), f"**{one.verdict}**{still}"])
    heads = ["recipe", "paper", "family", "claim", "in the paper", "here", "seeds", "cost", "verdict"]
    return markdown(heads, sorted(rows, key=lambda row: row[2]))


def _recipes(every: Mapping[tuple[str, str], Result]) -> str:
    rows = []
    for name in names():
        recipe = get(name)
        of = Counter(one.verdict for (key, _), result in every.items() if key == name for one in result.verdicts)
        said = ", ".join(f"{of[v]} {v}" for v in VERDICTS if of[v]) or "not run yet"
        rows.append([f"[{name}](evidence/{name}.md)", *recipe.place, f"{recipe.scales['cpu'].minutes:g}", said])
    papers = "\n".join(f"- {paper}: {title}" for paper, title in PAPERS.items())
    heads = ["recipe", "paper", "place", "what it shows", "minutes (cpu)", "verdicts"]
    return f"{papers}\n\n{markdown(heads, rows)}"
