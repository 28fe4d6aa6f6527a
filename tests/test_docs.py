"""Every Python block of the README and the docs runs; the blocks of one file share a namespace."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import sys
import types
from pathlib import Path

import pytest
import torch

import vicinal
from tests.contracts import test_objectives as contract

ROOT = Path(__file__).parents[1]
CARDS = sorted((ROOT / "src" / "vicinal" / "cards").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), *CARDS]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"^<!-- needs: (\w+) -->", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


@pytest.mark.filterwarnings("ignore:.*isinstance\\(treespec, LeafSpec\\).*:FutureWarning")  # of Lightning itself
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_run(page, tmp_path, monkeypatch):
    text = page.read_text()
    for package in NEEDS.findall(text):  # those that no extra brings
        pytest.importorskip(package, reason=f"needs {package}: pip install {package}")
    blocks = list(BLOCK.finditer(text))
    if not blocks and page in CARDS:
        pytest.fail("a card shows its method in use")
    monkeypatch.chdir(tmp_path)  # what a block writes stays out of the tree
    monkeypatch.setitem(os.environ, "MPLBACKEND", "Agg")
    torch.manual_seed(0)
    # A real module, so that dataclasses defined in a block find their own namespace.
    module = types.ModuleType("docs_page")
    monkeypatch.setitem(sys.modules, "docs_page", module)
    for block in blocks:
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(page), "exec"), module.__dict__)


#: Of the contract, what needs no name in the package.
CONTRACT = [
    name
    for name, check in vars(contract).items()
    if name.startswith("test_") and list(inspect.signature(check).parameters) == ["objective"] and "repr" not in name
]


@pytest.mark.parametrize("name", CONTRACT)
def test_the_method_of_contributing_keeps_the_contract(name, monkeypatch):
    block = BLOCK.search((ROOT / "CONTRIBUTING.md").read_text())
    module = types.ModuleType("docs_page")
    monkeypatch.setitem(sys.modules, "docs_page", module)
    exec(compile(block[1], "CONTRIBUTING.md", "exec"), module.__dict__)
    getattr(contract, name)(module.VerticalConcat())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


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
    text = (ROOT / "docs" / "architecture.md").read_text()
    homes = re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", text)
    assert len(homes) > 40
    for home in homes:
        assert (ROOT / "src" / "vicinal" / home).exists() or (ROOT / home).exists(), home


def test_the_names_of_the_architecture_are_in_their_homes():
    """In a row of a walk, what is named beside files is defined in one of them."""
    text, checked = (ROOT / "docs" / "architecture.md").read_text(), 0
    for row in re.findall(r"^\| (?!step|---).*", text, re.MULTILINE):
        sources = [(ROOT / "src" / "vicinal" / home).read_text() for home in re.findall(r"`((?:\w+/)*\w+\.py)`", row)]
        for name in re.findall(r"`(?!\w+\.py`)(?:\w+\.)?([a-zA-Z]\w+)`", row.rpartition("| ")[2]):
            assert any(re.search(rf"(def|class) {name}\b", source) for source in sources), row
            checked += 1
    assert checked >= 6
