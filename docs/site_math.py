r"""Formulas of the site as MathML, which browsers draw by themselves: no script, no network.

Pages have `$$…$$` blocks; docstrings have the directive `.. math::` and the role :math:`…`. `mkdocs.yml` names this
file as a hook; it adds a Markdown extension, so that pages and the reference are treated alike.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

#: What latex2mathml does not know, by what it does.
_SAME = {r"\arg\min": r"\operatorname{arg\,min}", r"\_": "_"}
_BLOCK = re.compile(r"^\$\$(.+?)\$\$\s*$", re.MULTILINE | re.DOTALL)
_DIRECTIVE = re.compile(r"^( *)\.\. math::[ ]*(.*)\n((?:\1 +\S.*\n|[ ]*\n(?=\1 +\S))*)", re.MULTILINE)
_ROLE = r":math:`([^`]+)`"


def mathml(latex: str, *, block: bool = False) -> str:
    """Return a formula as MathML; one that cannot be drawn is an error."""
    from latex2mathml.converter import convert

    formula = " ".join(latex.split())
    for ours, theirs in _SAME.items():
        formula = formula.replace(ours, theirs)
    drawn: str = convert(formula, display="block" if block else "inline")
    words = [e.text or "" for e in ElementTree.fromstring(drawn).iter()]
    if unknown := [word for word in words if "\\" in word and len(word) > 1]:
        raise ValueError(f"latex2mathml does not know {', '.join(unknown)} in {latex!r}")
    return drawn


def on_config(config: Any, **_: Any) -> Any:
    """Add the extension to those of the pages, which docstrings have too."""
    config.markdown_extensions.append(Formulas())
    return config


class Formulas(Extension):
    """Draws formulas: blocks after fenced code is put aside, roles before code spans are."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Register the parts."""
        md.preprocessors.register(_Blocks(md), "formula-blocks", 20)
        md.inlinePatterns.register(_Role(_ROLE, md), "formula-roles", 195)


class _Blocks(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        """Return the lines with a place for each formula."""
        text = "\n".join(lines) + "\n"
        text = _BLOCK.sub(lambda found: self._put(found[1], ""), text)
        text = _DIRECTIVE.sub(lambda found: self._put(f"{found[2]} {found[3]}", found[1]), text)
        return text.split("\n")

    def _put(self, latex: str, indent: str) -> str:
        drawn = self.md.htmlStash.store(mathml(latex, block=True))
        return f"\n{indent}{drawn}\n\n"


class _Role(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # type: ignore[override]  # noqa: N802
        """Return the formula's place."""
        return self.md.htmlStash.store(mathml(m[1])), m.start(0), m.end(0)
