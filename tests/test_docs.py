"""Every Python block of the README and the docs runs; the blocks of one file share a namespace."""

from __future__ import annotations

import os
import re
import sys
import types
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
CARDS = sorted((ROOT / "src" / "vicinal" / "cards").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), *CARDS]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_run(page, tmp_path, monkeypatch):
    text = page.read_text()
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", CARDS, ids=lambda page: page.stem)
def test_cards_have_every_part(page):
    text = page.read_text()
    for part in ("Idea", "Equation", "Use", "Hyper-parameters", "Cost", "When it hurts", "Differences", "Source"):
        assert re.search(rf"^(\*\*|#+ ){part}", text, re.MULTILINE), part
