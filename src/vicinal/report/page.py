"""Filling a template in: everything that users wrote is escaped, and the file is there whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vicinal import __version__
from vicinal._atomic import Json, replacing
from vicinal._checks import require
from vicinal._remote import as_path


def contents(sections: Iterable[tuple[str, str, object]]) -> list[tuple[str, str]]:
    """Return the identifiers and titles of the sections that there is something to put in."""
    return [(identifier, title) for identifier, title, content in sections if content]


def now() -> str:
    """Return the date and time in print."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def write_page(
    template: str, context: Mapping[str, object], path: str | os.PathLike[str], *, package: str = "vicinal.report"
) -> Path:
    """Write a page and return where it is. `package` has the template; those of this package are found beside it."""
    jinja2 = require("jinja2", "train")
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in (package, "vicinal.report")]),
        autoescape=True,  # for every file: what users wrote is text, never markup
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = _unbroken
    script = _script(environment)
    text = environment.get_template(template).render(version=__version__, script=script, now=now(), **context)
    target = as_path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as temporary:
        # A file's name may hold bytes that are no text; they are shown as question marks.
        temporary.write_bytes(text.encode("utf-8", errors="replace"))
    return target


def _script(environment: Any) -> Json:
    """Return the one script that a page holds, and its hash: the page's policy lets no other run."""
    text = environment.loader.get_source(environment, "page.js")[0]
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {"text": require("markupsafe", "train").Markup(text), "hash": f"sha256-{digest}"}


def _unbroken(text: str) -> str:
    """Keep the ends of an interval on one line (U+2060 is a joint where no line may break)."""
    return re.sub(r"(?<=[\d%])–(?=\d)", "\u2060–\u2060", text)
