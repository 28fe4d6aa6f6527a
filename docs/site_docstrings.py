"""What the reference shows of docstrings and defaults, put right when griffe reads the sources.

A doctest without a heading belongs under "Examples", else it is read as a quotation or as part of the last parameter.
The default of a field that was added to a method later, `added_field(1.0)`, is 1.0.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

#: A doctest, with the sentences before it where they end with a colon.
_DOCTEST = re.compile(r"(?:^(?:\S.*\n)*\S.*:\n\n)?(?:^>>> .*\n(?:(?!\n).+\n)*\n*)+", re.MULTILINE)
_ADDED = re.compile(r"^added_field\((.*)\)$")


class Docstrings(griffe.Extension):
    """Repairs docstrings and defaults."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put the doctests of an object under a heading, at its end."""
        if (
            obj.docstring
            and ">>> " in obj.docstring.value
            and not re.search(r"^Examples\n-+$", obj.docstring.value, re.M)
        ):
            obj.docstring.value = with_examples(obj.docstring.value)

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Show the default of a field that was added later."""
        if found := _ADDED.match(str(attr.value)):
            attr.value = found[1]


def with_examples(text: str) -> str:
    """Return a docstring with its doctests under "Examples", at its end."""
    text += "\n"
    examples = "\n\n".join(found.strip() for found in _DOCTEST.findall(text))
    return f"{_DOCTEST.sub('', text).strip()}\n\nExamples\n--------\n{examples}"
