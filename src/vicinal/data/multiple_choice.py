"""Answers to choose from: a column of contexts, and columns of answers or one column of lists of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from vicinal._checks import Argument, ArgumentError, Sentence
from vicinal.data import tables
from vicinal.data.files import give_up, listed
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.sources import Samples, class_names
from vicinal.data.tables import Table
from vicinal.data.text import answers_of, fit_text, list_in, texts_of

__all__ = ["from_choices", "refuse_lists"]


def from_choices(
    table: Table,
    target: str | None,
    text: str | Sequence[str] | None,
    choice: str | Sequence[str],
    max_bad: float | int,
    tokenizer: str | None,
    max_length: int,
) -> Samples:
    """Return the rows of a table as a context with its answers; the class is the number of the right one, from 0."""
    context, answers = _columns(table, text, choice)
    target = "label" if target is None else target
    names = class_names(tables.column(table, target, "target"))
    contexts, choices = texts_of(table.frame, context), answers_of(table.frame, answers)
    n_choices = len(answers) if len(answers) > 1 else Counter(map(len, choices)).most_common(1)[0][0]
    if n_choices < 2:
        raise ArgumentError("choice", listed(answers), "columns, or a column of lists, of at least two answers")
    numbers = tuple(str(k) for k in range(n_choices))
    bad: dict[int, str] = {}
    for i, (fields, row, name) in enumerate(zip(contexts, choices, names, strict=True)):
        if len(row) != n_choices:
            bad[i] = f"row {i + 1} ({len(row)} answers, not {n_choices})"
        elif not all(part.strip() for part in (*fields, *row)):
            bad[i] = f"row {i + 1} (no text)"
        elif name not in numbers:
            bad[i] = f"row {i + 1} (the right answer is {name!r}, not a number from 0 to {n_choices - 1})"
    notes = [*table.notes, f"kind: {n_choices} answers to choose from, after {context[0]!r}"]
    notes += give_up([*table.bad, *bad.values()], len(names) + len(table.bad), "rows", "could not be read", max_bad)
    keep = [i for i in range(len(names)) if i not in bad]
    items = [(*contexts[i], *choices[i]) for i in keep]

    def fit(train: list[int]) -> tuple[Preprocessing, Sequence[Any] | Tensor, list[str]]:
        preprocessing, more = fit_text(
            items, train, context, target, tokenizer, max_length, choice=answers, n_choices=n_choices
        )
        return preprocessing, items, more

    return Samples(
        kind="text",
        origins=items,
        names=[str(names[i]) for i in keep],
        fit=fit,
        fingerprint=table.fingerprint,
        notes=notes,
        classes=numbers,
        parts=None if table.parts is None else [table.parts[i] for i in keep],
    )


def refuse_lists(table: Table, text: str | Sequence[str] | None, kind: str | None) -> None:
    """Raise where a text would be a printed list: its entries are answers to choose from."""
    if kind == "tabular":
        return
    named = [text] if isinstance(text, str) else list(text or table.frame.columns)
    for name in named:
        if name in table.frame.columns and _holds_lists(table.frame[name]):
            where = f"the column {name!r} of {table.name!r} holds lists: pass "
            otherwise = " to learn which entry is right, or name other columns with "
            raise ValueError(Sentence(where, Argument("choice", name), otherwise, Argument("text")))


def _holds_lists(series: Any) -> bool:
    cells = [cell for cell in series.head(20) if list_in(cell) is not None or str(cell).strip()]
    return bool(cells) and all(list_in(cell) is not None for cell in cells)


def _columns(
    table: Table, text: str | Sequence[str] | None, choice: str | Sequence[str]
) -> tuple[list[str], tuple[str, ...]]:
    answers = (choice,) if isinstance(choice, str) else tuple(choice)
    context = [text] if isinstance(text, str) else list(text or ())
    if len(context) != 1:
        raise ArgumentError("text", text, "one column, what comes before the answers of choice")
    for name in context:
        tables.column(table, name, "text")
    for name in answers:
        series = tables.column(table, name, "choice")
        if len(answers) == 1 and not _holds_lists(series):
            raise ArgumentError("choice", name, "a column of lists of answers, or a column for each answer")
    return context, answers
