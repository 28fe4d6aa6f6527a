"""The evidence: an overview of all claims and a page for each recipe, written from the result files alone.

    docs/evidence.md                    the overview
    docs/evidence/overview.png          a forest plot of all primary claims
    docs/evidence/z18-tab2.md           a recipe: its claims, the paper's numbers beside ours, what differs
    docs/evidence/z18-tab2.png          its plot
    docs/evidence/z18-tab2-claims.png   a forest plot of its claims

`vicinal reproduce --pages docs --results results` writes them; `stale` says which are out of date.
"""

from __future__ import annotations

import hashlib
import io
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal._atomic import replacing
from vicinal._checks import require
from vicinal.papers import PAPERS, SCALES, Recipe, Result, calibratable, get, names
from vicinal.papers.claims import Judged
from vicinal.papers.deviations import deviations, ran_with, seed_varies
from vicinal.papers.overview import PLOT, overview, primaries
from vicinal.papers.page_tables import beside, claims_table, hours, markdown, paper_values, published_rows
from vicinal.papers.plots import forest, has_line
from vicinal.papers.sources import SOURCES, needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DIGEST = "vicinal result"


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
    """Write all pages from the results in a folder, remove those of results that are gone; return what was written."""
    every = results_in(results)
    (docs / "evidence").mkdir(parents=True, exist_ok=True)
    texts, plots = _texts(every), _plots(every)
    for name, text in texts.items():
        with replacing(docs / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    new = [docs / name for name, (digest, _) in plots.items() if _digest_in(docs / name) != digest]
    for path in new:
        digest, draw = plots[str(path.relative_to(docs).as_posix())]
        with _style():
            path.write_bytes(_png(draw(), digest))
    for name in _left_over(docs, {*texts, *plots}):
        (docs / name).unlink()
    return [*(docs / name for name in texts), *new]


def stale(results: Path, docs: Path) -> list[str]:
    """Return which pages are not what the results say."""
    every = results_in(results)
    texts, plots = _texts(every), _plots(every)
    wrong = [
        name
        for name, text in texts.items()
        if not (docs / name).exists() or (docs / name).read_text(encoding="utf-8") != text
    ]
    wrong += [name for name, (digest, _) in plots.items() if _digest_in(docs / name) != digest]
    return sorted({*wrong, *_left_over(docs, {*texts, *plots})})


def sources_page() -> str:
    """Return the page of all data and weights: size, place, and the recipes that need them at paper scale."""
    users: dict[str, list[str]] = {}
    for name in names():
        for source in needs(get(name), "paper").values():
            users.setdefault(source.title, []).append(name)
    rows = [
        [of.title, f"{of.gigabytes:g} GB", f"`{of.form}`" if of.form else "downloaded by itself", of.url,
         ", ".join(f"`{name}`" for name in users.get(of.title, []))]
        for of in SOURCES.values()
    ]  # fmt: skip
    return SOURCES_PAGE + markdown(["", "size", "below the data root", "from", "recipes at paper scale"], rows) + "\n"


SOURCES_PAGE = """# Data and weights of the papers

This page is generated from `papers/sources.tsv`. The data root is the folder in `VICINAL_DATA` or `--data-root`.
`vicinal reproduce NAME --scale paper --check` says what a recipe needs and what is there, before anything is trained.
A data set with fewer samples than were published is refused at paper scale. `--allow-slices` takes it and records it.

"""


def plot_png(recipe: Recipe, result: Result) -> bytes:
    """Return the plot of a result as PNG."""
    if recipe.draw is None:
        raise ValueError("this recipe has no plot")
    draw = recipe.draw
    with _style():
        return _png(draw(result), _digest(result.to_dict()))


def claims_png(result: Result) -> bytes:
    """Return the forest plot of a result's claims as PNG."""
    with _style():
        return _png(_claims_plot(result), _digest([one.to_dict() for one in result.verdicts]))


def _plots(every: Mapping[tuple[str, str], Result]) -> dict[str, tuple[str, Callable[[], Figure]]]:
    """Return the plots of all pages: what each shows, as a digest, and what draws it."""
    plots: dict[str, tuple[str, Callable[[], Figure]]] = {}
    for (name, scale), result in every.items():
        draw = get(name).draw
        if draw is not None:
            plots[f"evidence/{_plot_name(name, scale)}"] = _digest(result.to_dict()), _later(draw, result)
        if has_line([("", one) for one in result.verdicts]):
            digest = _digest([one.to_dict() for one in result.verdicts])
            plots[f"evidence/{_plot_name(name, scale, '-claims')}"] = digest, _later(_claims_plot, result)
    shown = has_line(primaries(every))
    if shown:
        digest = _digest([(text, one.to_dict()) for text, one in shown])
        plots[f"evidence/{PLOT}"] = digest, lambda: forest(shown, columns=2, seeds=False)
    return plots


def _later(draw: Callable[[Result], Figure], result: Result) -> Callable[[], Figure]:
    return lambda: draw(result)


def _claims_plot(result: Result) -> Figure:
    """Draw the claims of a result, primary ones first, with a dot for each seed."""
    ordered = sorted(result.verdicts, key=lambda one: one.family)
    return forest([(_label(one), one) for one in ordered])


def _label(one: Judged) -> str:
    return "\n".join(textwrap.wrap(one.claim, 70, max_lines=2, placeholder=" …"))


def _digest(record: object) -> str:
    """Return what distinguishes a record from others, for the plots that show it."""
    return hashlib.sha256(repr(record).encode()).hexdigest()[:16]


def _style() -> AbstractContextManager[None]:
    """Return what gives all plots one font size."""
    context: AbstractContextManager[None] = require("matplotlib", "train").rc_context({"font.size": 9})
    return context


def _png(figure: Figure, digest: str) -> bytes:
    """Return a plot as PNG, marked with the digest of what it shows."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=90, metadata={_DIGEST: digest, "Software": None})
    return file.getvalue()


def _digest_in(path: Path) -> str | None:
    if not path.exists():
        return None
    with require("PIL.Image", "train").open(path) as image:
        return str(image.text.get(_DIGEST))


def _plot_name(name: str, scale: str, part: str = "") -> str:
    return f"{name}{'' if scale == 'cpu' else f'-{scale}'}{part}.png"


def _left_over(docs: Path, kept: set[str]) -> list[str]:
    there = [f"evidence/{path.name}" for path in (docs / "evidence").glob("*.*")]
    return [name for name in there if name not in kept]


def _texts(every: Mapping[tuple[str, str], Result]) -> dict[str, str]:
    texts = {"evidence.md": overview(every), "sources.md": sources_page()}
    for name in names():
        texts[f"evidence/{name}.md"] = page(
            name, {scale: every[name, scale] for scale in SCALES if (name, scale) in every}
        )
    return texts


# A recipe


def page(name: str, results: Mapping[str, Result]) -> str:
    """Return the page of a recipe, with the results of the scales it was run at."""
    recipe = get(name)
    lines = [f"# {name}: {recipe.place.title}", "", f"{PAPERS[recipe.place.paper]}, {recipe.place.name}.", ""]
    if not results:
        lines += ["## Not run yet", "", f"At cpu scale it takes about {recipe.scales['cpu'].minutes:g} minutes.", ""]
    for scale, result in results.items():
        lines += _ran(name, recipe, scale, result)
    lines += [
        line for scale in SCALES if scale in (*results, "paper") for line in _differs(recipe, scale, results.get(scale))
    ]
    if recipe.published and not _all_beside(recipe, results):
        lines += ["## All numbers of the paper", "", markdown(*published_rows(recipe)), ""]
    if recipe.reading:
        lines += ["## How the paper was read", "", *(line for text in recipe.reading for line in (text, ""))]
    if recipe.findings:
        lines += ["## What a verdict against the paper comes from", ""]
        lines += [line for text in recipe.findings for line in (text, "")]
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
    about = f" {at.about.removesuffix('.')}." if at.about else ""
    return f"- `{scale}`: {len(at.seeds)} seed{'s' * (len(at.seeds) > 1)}, about {minutes} on {where}.{about}"


def _ran(name: str, recipe: Recipe, scale: str, result: Result) -> Iterator[str]:
    yield from (f"## Claims ({scale} scale)", "")
    said = ", ".join(f"{n} {verdict}" for verdict, n in counts(result).items())
    spent = hours(sum(cell.seconds for cell in result.cells))
    sizes = (
        f"{len(result.seeds)} seed{'s' * (len(result.seeds) > 1)}, {len(result.cells)} cells, {spent} of a processor"
    )
    yield from (f"Of {len(result.verdicts)} claims: {said}. There are {sizes}.", "")
    if has_line([("", one) for one in result.verdicts]):
        yield from (f"![Claims, with a dot for each seed]({_plot_name(name, scale, '-claims')})", "")
    yield from (claims_table(result), "", seed_varies(recipe.scales[scale]), "")
    yield from (f"## Paper and here ({scale} scale)", "", "Means over seeds with 95 % intervals.", "")
    yield from (markdown(*beside(recipe, result)), "")
    yield from calibratable.section(recipe, result)
    if recipe.draw is not None:
        yield from (f"![{recipe.place.title}]({_plot_name(name, scale)})", "")
    if result.failures:
        yield from (f"{len(result.failures)} cells failed: {', '.join(result.failures)}.", "")
    yield from ("Versions: " + ", ".join(f"{key} {value}" for key, value in result.environment.items()) + ".", "")


def _differs(recipe: Recipe, scale: str, result: Result | None) -> Iterator[str]:
    found = deviations(recipe, scale) + (ran_with(result.settings) if result is not None else [])
    if scale == "paper":
        yield from ("## What differs at paper scale", "")
        if not found:
            yield from ("Nothing that is known.", "")
    else:
        yield from (f"## What differs from the paper's setting ({scale} scale)", "")
    if found:
        yield from (markdown(["option", "here", "paper"], found), "")


def _all_beside(recipe: Recipe, results: Mapping[str, Result]) -> bool:
    """Return whether the tables of results show every number of the paper."""
    shown = set()
    for result in results.values():
        for key in result.keys:
            printed = recipe.printed(key) if recipe.printed is not None else {}
            shown |= {(printed[name].row, printed[name].column) for name in paper_values(recipe, key)}
    return shown >= {(row, column) for row, values in recipe.published.items() for column in values}
