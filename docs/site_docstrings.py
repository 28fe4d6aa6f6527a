"""What the reference shows of docstrings and defaults, put right when griffe reads the sources.

A doctest without a heading belongs under "Examples", else it is read as a quotation or as part of the last parameter.
A sentence alone under "Returns" describes what the annotation names. Tables of reStructuredText become
Markdown. The default of a field that was added to a method later, `added_field(1.0)`, is 1.0.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

#: A doctest, with the sentences before it where they end with a colon.
_DOCTEST = re.compile(r"(?:^(?:\S.*\n)*\S.*:\n\n)?(?:^>>> .*\n(?:(?!\n).+\n)*\n*)+", re.MULTILINE)
#: A table of reStructuredText: a line of `=`, the head, another line, the rows and the last line.
_TABLE = re.compile(r"^(=+(?: +=+)+)\n(.*)\n\1\n((?:.*\S.*\n)+?)\1$", re.MULTILINE)
#: A sentence where a type would stand.
_RETURNS = re.compile(r"^(Returns\n-------\n)((?:\S.*\n)*\S.* .*\.)(?=\n\n|\Z)", re.MULTILINE)
_ADDED = re.compile(r"^added_field\((.*)\)$")


class Docstrings(griffe.Extension):
    """Repairs docstrings and defaults."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put the doctests of an object under a heading, at its end, and mend tables and descriptions."""
        if obj.docstring:
            obj.docstring.value = _TABLE.sub(as_markdown, obj.docstring.value)
            if obj.is_function:
                obj.docstring.value = _RETURNS.sub(
                    lambda found: described(found, str(obj.returns)), obj.docstring.value
                )
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


def as_markdown(found: re.Match[str]) -> str:
    """Return a table of reStructuredText in Markdown."""
    starts = [column.start() for column in re.finditer("=+", found[1])]
    lines = [found[2], *found[3].splitlines()]
    cells = [[line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)] for line in lines]
    head, *rows = (f"| {' | '.join(of)} |" for of in cells)
    return "\n".join([head, f"|{' --- |' * len(starts)}", *rows])


def described(found: re.Match[str], annotation: str) -> str:
    """Return a section in which a sentence describes what is returned, by its type."""
    lines = "\n".join(f"    {line}" for line in found[2].splitlines())
    return f"{found[1]}{annotation}\n{lines}"


def with_examples(text: str) -> str:
    """Return a docstring with its doctests under "Examples", at its end."""
    text += "\n"
    examples = "\n\n".join(found.strip() for found in _DOCTEST.findall(text))
    return f"{_DOCTEST.sub('', text).strip()}\n\nExamples\n--------\n{examples}"
