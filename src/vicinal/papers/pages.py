"""The evidence: a scoreboard of all claims and a page for each recipe, written from the result files alone.

    docs/evidence.md              every claim, the paper's effect, ours with its interval, the verdict
    docs/evidence/z18-tab2.md     a recipe: how it was run, its table beside the paper's, its figure, its claims
    docs/evidence/z18-tab2.png

`vicinal reproduce --pages docs` writes them; `stale` says which are out of date.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal._atomic import replacing
from vicinal._checks import require
from vicinal.metrics import Estimate
from vicinal.papers import PAPERS, SCALES, Recipe, Result, get, names
from vicinal.papers.claims import HOLDS, NO_DIFFERENCE, NOT_TESTED, REVERSED, UNDECIDED, Judged, error_rate

if TYPE_CHECKING:
    from vicinal.papers.scheduling import OpenClaim

_DIGEST = "vicinal result"
_VERDICTS = (HOLDS, REVERSED, NO_DIFFERENCE, UNDECIDED, NOT_TESTED)


def results_in(folder: Path) -> dict[tuple[str, str], Result]:
    """Return the results of a folder of scales, by recipe and scale, in the order of the recipes."""
    every = {}
    for name in names():
        for scale in SCALES:
            path = folder / scale / f"{name}.json"
            if path.exists():
                every[name, scale] = Result.read(path)
    return every


def counts(result: Result) -> dict[str, int]:
    """Return how many claims have each verdict."""
    return dict(Counter(one.verdict for one in result.verdicts))


def write(results: Path, docs: Path) -> list[Path]:
    """Write all pages from the results in a folder; return what was written."""
    every = results_in(results)
    (docs / "evidence").mkdir(parents=True, exist_ok=True)
    texts = _texts(every)
    for name, text in texts.items():
        with replacing(docs / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    pictures = []
    for (name, scale), result in every.items():
        path = docs / "evidence" / _picture(name, scale)
        if get(name).draw is not None and _digest_in(path) != digest(result):
            path.write_bytes(figure_png(get(name), result))
            pictures.append(path)
    return [*(docs / name for name in texts), *pictures]


def stale(results: Path, docs: Path) -> list[str]:
    """Return which pages are not what the results say."""
    every = results_in(results)
    texts = _texts(every)
    wrong = [
        name
        for name, text in texts.items()
        if not (docs / name).exists() or (docs / name).read_text(encoding="utf-8") != text
    ]
    pictures = {f"evidence/{_picture(name, scale)}": result for (name, scale), result in every.items()}
    wrong += [name for name, result in pictures.items() if _digest_in(docs / name) != digest(result)]
    kept = {*texts, *pictures}
    there = [f"evidence/{path.name}" for path in (docs / "evidence").glob("*.*")]
    return sorted({*wrong, *(name for name in there if name not in kept)})


def digest(result: Result) -> str:
    """Return what tells a result from another, for the pictures that were drawn of it."""
    return hashlib.sha256(repr(result.to_dict()).encode()).hexdigest()[:16]


def figure_png(recipe: Recipe, result: Result) -> bytes:
    """Return the figure of a recipe, marked with the result it shows."""
    if recipe.draw is None:
        raise ValueError("this recipe has no figure")
    with require("matplotlib", "train").rc_context({"font.size": 9}):
        file = io.BytesIO()
        recipe.draw(result).savefig(file, format="png", dpi=90, metadata={_DIGEST: digest(result), "Software": None})
    return file.getvalue()


def _digest_in(path: Path) -> str | None:
    if not path.exists():
        return None
    with require("PIL.Image", "train").open(path) as image:
        return str(image.text.get(_DIGEST))


def _picture(name: str, scale: str) -> str:
    return f"{name}.png" if scale == "cpu" else f"{name}-{scale}.png"


def _texts(every: Mapping[tuple[str, str], Result]) -> dict[str, str]:
    texts = {"evidence.md": scoreboard(every)}
    for name in names():
        texts[f"evidence/{name}.md"] = page(
            name, {scale: every[name, scale] for scale in SCALES if (name, scale) in every}
        )
    return texts


# The scoreboard


def scoreboard(every: Mapping[tuple[str, str], Result]) -> str:
    """Return docs/evidence.md."""
    lines = [
        "# Evidence",
        "",
        "Tables and figures of the papers, run again with `vicinal reproduce`. Every claim is a contrast of figures, "
        "paired over seeds, positive where the paper is right. Verdicts are read off t intervals at the last look. "
        "Their level is corrected for the looks and for the claims of a family. The interval of a count of sets says "
        "how many lie above 0 with their intervals, and how many do not lie below it. A claim about calibration is "
        "tested only where the baseline is over-confident. "
        f"{error_rate(result.verdicts for result in every.values())} "
        "This file is written by `vicinal reproduce --pages docs` from `results/`.",
        "",
        "## Scoreboard",
        "",
    ]
    verdicts = [(name, scale, one) for (name, scale), result in every.items() for one in result.verdicts]
    lines += _agreement(verdicts)
    heads = ["recipe", "claim", "paper", "here", "verdict"]
    rows = [
        [
            f"[{name}](evidence/{name}.md)" + ("" if scale == "cpu" else f" ({scale})"),
            one.claim,
            paper_effect(one),
            effect(one),
            f"**{one.verdict}**",
        ]
        for name, scale, one in verdicts
    ]
    lines += [markdown(heads, rows), ""]
    lines += ["## Recipes", ""]
    rows = []
    for name in names():
        recipe = get(name)
        counts = Counter(one.verdict for key, _, one in verdicts if key == name)
        said = ", ".join(f"{counts[v]} {v}" for v in _VERDICTS if counts[v]) or "not run yet"
        minutes = recipe.scales["cpu"].minutes
        rows.append([f"[{name}](evidence/{name}.md)", *recipe.place, f"{minutes:g}", said])
    lines += [markdown(["recipe", "paper", "place", "what it shows", "minutes (cpu)", "verdicts"], rows), ""]
    return "\n".join(lines)


def _agreement(verdicts: Sequence[tuple[str, str, Judged]]) -> list[str]:
    rows = []
    for paper, title in PAPERS.items():
        of = Counter(one.verdict for name, _, one in verdicts if name.startswith(paper.lower()))
        if of.total():
            rows.append([paper, title, *(str(of[v]) for v in _VERDICTS), str(of.total())])
    if not rows:
        return ["Nothing has been run yet.", ""]
    every = Counter(one.verdict for _, _, one in verdicts)
    decided = every[HOLDS] + every[REVERSED] + every[NO_DIFFERENCE]
    said = f"Of {every.total()} claims {decided} are decided, and {every[HOLDS]} of these agree with the papers."
    declared = sum(1 for name in names() for _ in get(name).claims(get(name).scales["cpu"]))
    said += f" All recipes together declare {declared} claims at cpu scale."
    return [said, "", markdown(["", "paper", *_VERDICTS, "claims"], rows), ""]


# A recipe


def page(name: str, results: Mapping[str, Result]) -> str:
    """Return the page of a recipe, with the results of the scales it was run at."""
    recipe = get(name)
    lines = [f"# {name}: {recipe.place.title}", "", f"{PAPERS[recipe.place.paper]}, {recipe.place.name}.", ""]
    for text in recipe.reading:
        lines += [text, ""]
    if recipe.published:
        lines += ["## The paper's numbers", "", published_table(recipe), ""]
    if not results:
        lines += ["## Not run yet", "", f"At cpu scale it takes about {recipe.scales['cpu'].minutes:g} minutes.", ""]
    for scale, result in results.items():
        lines += _ran(name, recipe, scale, result)
    if recipe.findings:
        lines += ["### What this comes from", "", *(line for text in recipe.findings for line in (text, ""))]
    if recipe.pilot:
        lines += ["## Pilot", "", recipe.pilot, ""]
    lines += ["## Run it", "", "```bash", f"vicinal reproduce {name}"]
    lines += [f"vicinal reproduce {name} --scale {scale}" for scale in SCALES[1:]]
    lines += ["```", ""]
    lines += [_scale_line(recipe, scale) for scale in SCALES]
    return "\n".join([*lines, ""])


def _scale_line(recipe: Recipe, scale: str) -> str:
    at = recipe.scales[scale]
    minutes = f"{at.minutes:g} minutes" if at.minutes < 90 else f"{at.minutes / 60:.0f} hours"
    where = "a GPU" if scale == "paper" else "two cores"
    data = ", ".join(at.data)
    of = f"{data}: " if data else ""
    about = f" {at.about.removesuffix('.')}." if at.about else ""
    return f"- `{scale}`: {of}{len(at.seeds)} seed{'s' * (len(at.seeds) > 1)}, about {minutes} on {where}.{about}"


def _ran(name: str, recipe: Recipe, scale: str, result: Result) -> Iterator[str]:
    yield from (f"## Here ({scale} scale)", "")
    seeds = f"{len(result.seeds)} seed{'s' * (len(result.seeds) > 1)}"
    yield from (f"{seeds}; {len(result.cells)} cells.", "")
    yield from (table(recipe, result), "")
    if recipe.draw is not None:
        yield from (f"![{recipe.place.title}]({_picture(name, scale)})", "")
    yield from ("### Claims", "", claims_table(result), "")
    if result.failures:
        yield from (f"{len(result.failures)} cells failed: {', '.join(result.failures)}.", "")
    yield from ("Versions: " + ", ".join(f"{key} {value}" for key, value in result.environment.items()) + ".", "")


def table(recipe: Recipe, result: Result) -> str:
    """Return the figures of every row: mean over seeds and its 95 % interval."""
    return markdown(*figure_rows(recipe, result))


def figure_rows(recipe: Recipe, result: Result) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of the table of figures."""
    rows = []
    for key in result.keys:
        estimates = [result.estimate(key, name) for name in recipe.columns]
        cells = [_shown(e, title) for e, title in zip(estimates, recipe.columns.values(), strict=True)]
        rows.append([" · ".join(key), *cells])
    return ["", *recipe.columns.values()], rows


def published_table(recipe: Recipe) -> str:
    """Return the paper's numbers as printed there."""
    return markdown(*published_rows(recipe))


def published_rows(recipe: Recipe) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of the paper's numbers."""
    heads = list(dict.fromkeys(name for row in recipe.published.values() for name in row))
    rows = [[name, *(_plain(row.get(head, "")) for head in heads)] for name, row in recipe.published.items()]
    return ["", *heads], rows


def claims_table(result: Result) -> str:
    """Return the claims of a result with their verdicts."""
    rows = [
        [
            one["claim"],
            one["paper"],
            one["here"],
            f"**{one['verdict']}**{one['reason'] and ': ' + one['reason']}",
        ]
        for one in claim_rows(result)
    ]
    return markdown(["claim", "paper", "here", "verdict"], rows)


def open_table(open_claims: Sequence[OpenClaim]) -> str:
    """Return the claims that are not decided: where each stands, and what it still needs."""
    rows = []
    for one in open_claims:
        judged = one.judged
        hours = "–" if one.seconds is None else f"{one.seconds / 3600:.2f}"
        needed = "–" if judged.needs_seeds is None else str(judged.needs_seeds)
        rows.append([one.recipe, judged.claim, judged.family, effect(judged), str(judged.n_seeds), needed, hours])
    return markdown(["recipe", "claim", "family", "here", "seeds", "needs", "hours"], rows)


def claim_rows(result: Result) -> list[dict[str, str]]:
    """Return the claims of a result in words."""
    return [
        {
            "claim": one.claim,
            "paper": paper_effect(one),
            "here": effect(one),
            "verdict": one.verdict,
            "reason": one.reason,
        }
        for one in result.verdicts
    ]


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
    factor, digits = (100, 2) if "%" in title else (1, 3)
    half = factor * (estimate.high - estimate.low) / 2
    value = f"{factor * estimate.value:.{digits}f}".replace("-", "−")
    return value + (f" ± {half:.{digits}f}" if half else "")


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)
