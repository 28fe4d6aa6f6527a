"""Every example of the README, the docs and the cards runs, and the page shows what it prints and draws."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import runpy
import sys
import types
from pathlib import Path

import pytest
import typer
from benchmarks import prose

import vicinal
from tests import docs_blocks
from tests.contracts import test_objectives as contract
from tests.docs_blocks import BLOCK
from vicinal.cli.app import app

ROOT = Path(__file__).parents[1]
CARDS = sorted((ROOT / "src" / "vicinal" / "cards").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), *CARDS]
COMMANDS = typer.main.get_command(app).commands


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


#: Their commands take hours; what they gave is on the page.
EXAMPLES = [page for page in PAGES if not page_name(page).startswith(prose.GENERATED)]
#: Pages whose blocks train several models, probe them or export.
LONG = {"compare", "abstain", "deploy", "ensembles", "reproducing", "wrong-labels", "robustness"}
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
#: Pages that `docs/site_pages.py` makes.
MADE = {"cards/index.md", *(f"project/{name}.md" for name in ("benchmarks", "changelog", "contributing"))}
MADE |= {f"cards/{card.name}" for card in CARDS}
METHOD_PAGE = ROOT / "docs" / "howto" / "add-method.md"


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder that the processes of a test run share, where pages that others continue are run once."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "docs-pages"
    root.mkdir(exist_ok=True)
    return root


@pytest.mark.filterwarnings("ignore:.*isinstance\\(treespec, LeafSpec\\).*:FutureWarning")  # of Lightning itself
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if page.stem in LONG else page for page in EXAMPLES],
    ids=page_name,
)
def test_examples_print_and_draw_what_the_page_shows(page, shared):
    if absent := docs_blocks.missing(page):  # those that no extra brings
        pytest.skip(f"pip install {' '.join(absent)}")
    text = page.read_text()
    ran = docs_blocks.run(page, shared)
    for block, printed, drawn in zip(BLOCK.finditer(text), ran.printed, ran.drawn, strict=True):
        place = f"{page.name}:{text[: block.start()].count(chr(10)) + 1}"
        assert printed or drawn, f"{place} shows nothing: print a result, or join it with the next block"
        if printed:
            assert block["expected"] is not None, f"{place} has no output block: python -m tests.docs_blocks {page}"
            assert docs_blocks.difference(block["expected"], printed) is None, place
        for name in drawn:
            assert f"img/{name})" in text, f"{place} draws {name}, which the page does not show"
            assert docs_blocks.same_plot(name, ran.folder), f"{place}: {name} differs"


@pytest.mark.parametrize("page", EXAMPLES, ids=page_name)
def test_commands_that_are_not_run_have_options_that_exist(page):
    known = {
        name: {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}
        for name, command in COMMANDS.items()
    }
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        for words in docs_blocks.commands(block):
            if "vicinal" in words and (rest := words[words.index("vicinal") + 1 :]):
                flags = {word.partition("=")[0] for word in rest[1:] if word.startswith("--")}
                assert flags - {"--help", "--help-all"} <= known[rest[0]], words


def test_pages_have_no_example_that_is_not_run():
    """Blocks are `python` or `bash`, which are run, `sh`, whose options are checked, or no program at all."""
    for page in EXAMPLES:
        languages = re.findall(r"^```(\w*)\n.*?^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        assert set(languages) <= {"python", "bash", "sh", "output", "text", "diff", "toml", "json", "csv"}, page


def test_prose_is_easy_to_read():
    """`python -m benchmarks.prose` prints the same for each page."""
    measured = {page: prose.measure(page.read_text()) for page in prose.pages()}
    measured[ROOT] = sum(measured.values(), prose.Prose((), 0))
    for page, found in measured.items():
        assert found.mean <= 16, page
        if len(found.words) >= 10:  # of fewer sentences one would be too many
            assert found.long <= 4, page
            assert found.marks_rate <= 1.5, page
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_prose_leaves_out_what_is_no_prose():
    text = "---\na: b\n---\n# Head: x\n\nOne two: `three four`. Five (six)!\n\n| a: b |\n\n"
    text += "```\nx: y;\n```\n\n- seven; [eight](u:v)\n"
    assert prose.measure(text) == prose.Prose((3, 2, 2), 2)


#: Of the contract, what needs no name in the package.
CONTRACT = [
    name
    for name, check in vars(contract).items()
    if name.startswith("test_") and list(inspect.signature(check).parameters) == ["objective"] and "repr" not in name
]


@pytest.mark.parametrize("name", CONTRACT)
def test_the_method_of_the_guide_keeps_the_contract(name, monkeypatch):
    block = BLOCK.search(METHOD_PAGE.read_text())
    module = types.ModuleType("docs_page")
    monkeypatch.setitem(sys.modules, "docs_page", module)
    exec(compile(block["code"], "add-method.md", "exec"), module.__dict__)
    getattr(contract, name)(module.VerticalConcat())


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        path = (page.parent / target).resolve()
        assert path.exists() or str(path.relative_to(ROOT / "docs")) in MADE, target


@pytest.mark.parametrize("page", CARDS, ids=lambda page: page.stem)
def test_cards_have_every_part(page):
    text = page.read_text()
    for part in ("Idea", "Equation", "Use", "Hyper-parameters", "Cost", "When it hurts", "Differences", "Source"):
        assert re.search(rf"^(\*\*|#+ ){part}", text, re.MULTILINE), part


def card_table(page: Path) -> dict[str, str]:
    """Return the default of each field in a card's table of hyper-parameters, as it is written there."""
    defaults: dict[str, str] = {}
    for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]*) \|", page.read_text(), re.MULTILINE):
        names = re.findall(r"`(\w+)`", row[0])
        if len(names) == 1 or row[1] == "none":
            defaults |= dict.fromkeys(names, row[1])
        else:
            defaults |= dict(zip(names, row[1].split(", "), strict=True))
    return defaults


@pytest.mark.parametrize("name", sorted(vicinal.OBJECTIVES))
def test_cards_give_the_defaults_of_the_dataclass(name):
    """A field that must be given is `none`; every other has the default as Python writes it."""
    expected = {
        field.name: "none" if field.default is dataclasses.MISSING else repr(field.default)
        for field in dataclasses.fields(getattr(vicinal, name))
    }
    table = card_table(ROOT / "src" / "vicinal" / "cards" / f"{name.lower()}.md")
    assert {field: text.replace("`", "").replace('"', "'") for field, text in table.items()} == expected


@pytest.mark.parametrize("page", CARDS, ids=lambda page: page.stem)
def test_cards_quote_nobody(page):
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    assert not re.findall(r"[\"“][^\"“”]{20,}[\"”]", text), "facts stand in our own words"


def test_the_homes_of_the_architecture_exist():
    text = (ROOT / "docs" / "project" / "architecture.md").read_text()
    homes = re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", text)
    assert len(homes) > 40
    for home in homes:
        assert (ROOT / "src" / "vicinal" / home).exists() or (ROOT / home).exists(), home


def test_the_names_of_the_architecture_are_in_their_homes():
    """In a row of a walk, what is named beside files is defined in one of them."""
    text, checked = (ROOT / "docs" / "project" / "architecture.md").read_text(), 0
    for row in re.findall(r"^\| (?!step|---).*", text, re.MULTILINE):
        sources = [(ROOT / "src" / "vicinal" / home).read_text() for home in re.findall(r"`((?:\w+/)*\w+\.py)`", row)]
        for name in re.findall(r"`(?!\w+\.py`)(?:\w+\.)?([a-zA-Z]\w+)`", row.rpartition("| ")[2]):
            assert any(re.search(rf"(def|class) {name}\b", source) for source in sources), row
            checked += 1
    assert checked >= 6


def test_notebooks_are_their_pages():
    notebooks = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))
    for name, page in notebooks["NOTEBOOKS"].items():
        expected = notebooks["notebook"]((ROOT / "docs" / page).read_text())
        assert (ROOT / "examples" / f"{name}.ipynb").read_text() == expected, "run python docs/notebooks.py"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loop", "csv", "paper"])
def test_notebooks_run(name, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)
    ran = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.get("text", "") for cell in ran.cells for output in cell.get("outputs", ())]
    assert sum(map(bool, shown)) >= 4
    assert not any("Error" in text or "not found" in text for text in shown), shown
