"""The documentation as a site: every page of the folder is on it, and what it shows of the library exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONFIG = (ROOT / "mkdocs.yml").read_text()
NAMED = re.findall(r":\s([\w/-]+\.md)$", CONFIG, re.MULTILINE)


def test_every_page_is_on_the_site() -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    # Each recipe and each run of the gallery has a page that its overview leads to.
    own = {page for page in pages if not page.startswith(("evidence/", "gallery/"))}
    generated = {"cards/index.md", "contributing.md", "changelog.md"}
    assert own | generated == set(NAMED)
    assert len(NAMED) == len(set(NAMED))


def test_what_the_reference_names_exists() -> None:
    for page in sorted((DOCS / "api").glob("*.md")):
        modules = re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)
        assert modules
        for name in modules:
            assert importlib.import_module(name).__all__


def test_the_hook_finds_what_it_adds() -> None:
    pytest.importorskip("mkdocs")
    from mkdocs.config import load_config
    from mkdocs.structure.files import Files

    config = load_config(str(ROOT / "mkdocs.yml"))
    files = config.plugins.on_files(Files([]), config=config)
    added = {file.src_uri for file in files}
    assert {"cards/index.md", "cards/mixup.md", "contributing.md", "changelog.md"} <= added
