"""What the site shows beside the files of this folder: the cards of the methods, how to contribute, what changed.

`mkdocs.yml` names it as a hook; see https://www.mkdocs.org/user-guide/configuration/#hooks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CARDS = ROOT / "src" / "vicinal" / "cards"
PAGES = {"contributing.md": ROOT / "CONTRIBUTING.md", "changelog.md": ROOT / "CHANGELOG.md"}


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """Add pages that lie elsewhere in the repository."""
    from mkdocs.structure.files import File

    def add(uri: str, content: str | bytes) -> None:
        files.append(File.generated(config, uri, content=content))

    titles = {}
    for path in sorted(CARDS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        titles[path.name] = re.sub(r"^#+ *", "", text.splitlines()[0])
        add(f"cards/{path.name}", text)
    listed = "\n".join(f"- [{title}]({name})" for name, title in titles.items())
    add("cards/index.md", f"# Methods\n\nOne card a method: `vicinal methods NAME` prints the same.\n\n{listed}\n")
    for picture in sorted((CARDS / "img").glob("*.png")):
        add(f"cards/img/{picture.name}", picture.read_bytes())
    for uri, path in PAGES.items():
        add(uri, path.read_text(encoding="utf-8"))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links lead to the pages of the site, and name what the reference of the package shows."""
    if page.file.src_uri == "api/vicinal.md":
        return f"{markdown.rstrip()}\n      members: [{', '.join(public_names())}]\n"
    if page.file.src_uri == "api/training.md":
        return f"{markdown.rstrip()}\n\n## Options of `FitConfig`\n\n{training_options()}\n"
    if page.file.src_uri == "api/data.md":
        return f"{markdown.rstrip()}\n\n## Options of `load`\n\n{data_options()}\n"
    if page.file.src_uri in PAGES:
        return re.sub(r"\]\(docs/", "](", markdown)
    return markdown.replace("](../CONTRIBUTING.md", "](contributing.md")


def public_names() -> list[str]:
    """Return the public classes and functions, which mkdocstrings cannot see: they are imported on first use."""
    import vicinal

    files = {path.stem for path in (ROOT / "src" / "vicinal").iterdir()}
    return [name for name in vicinal.__all__ if name not in files and name != "__version__"]


def training_options() -> str:
    """Return the options of training as a table, made of the fields that state them."""
    from vicinal.training.config import options

    rows = ["| field | default | what it does |", "| --- | --- | --- |"]
    for option in options():
        allowed = f" One of {', '.join(f'`{name}`' for name in option.choices)}." if option.choices else ""
        alone = "" if option.in_command else " Python only."
        rows.append(f"| `{option.name}` | `{option.default!r}` | {option.help}{allowed}{alone} |")
    return "\n".join(rows)


def data_options() -> str:
    """Return the options of `load` as a table, made of the fields that state them."""
    from dataclasses import fields

    from vicinal.data.options import RECORDS

    rows = ["| record | field | default | what it does |", "| --- | --- | --- | --- |"]
    for record in RECORDS:
        for one in fields(record):
            rows.append(f"| `{record.__name__}` | `{one.name}` | `{one.default!r}` | {one.metadata['help']} |")
    return "\n".join(rows)
