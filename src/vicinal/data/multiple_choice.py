"""Answers to choose from: a column of contexts, and columns of answers or one column of lists of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vicinal._checks import Argument, ArgumentError, Sentence
from vicinal.data.class_folders import check_bad_limit, listed
from vicinal.data.kind import Fitted, Request, Samples
from vicinal.data.options import TableOptions, TextOptions
from vicinal.data.splitting import Labels, Positions, part_numbers
from vicinal.data.table_scan import names_and_parts
from vicinal.data.text import answers_of, fit_text, list_in, texts_of
from vicinal.tables import BadRow, Table
from vicinal.tables.column_values import is_text

if TYPE_CHECKING:
    import pyarrow as pa


def from_choices(table: Table, request: Request) -> Samples:
    """Return the rows of a table as a context with its answers; the class is the number of the right one, from 0."""
    options = request.options(TextOptions)
    context, answers = _columns(table, options)
    target = "label" if request.target is None else request.target
    table.require_column(target, "target")
    bad: list[BadRow] = []
    rows: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for chunk in table.chunks([*context, *answers], bad=bad):
        read = zip(texts_of(chunk, context), answers_of(chunk, answers), strict=True)
        rows.update(zip((chunk.rows - 1).tolist(), read, strict=True))
    n = max([-1, *rows, *(row.row - 1 for row in bad)]) + 1
    # The most frequent number of answers counts; rows with another are bad.
    counted = Counter(len(choices) for _, choices in rows.values()).most_common(1)
    n_choices = len(answers) if len(answers) > 1 else counted[0][0] if counted else 0
    if n_choices < 2:
        raise ArgumentError("choice", listed(answers), "columns, or a column of lists, of at least two answers")
    numbers = tuple(str(k) for k in range(n_choices))
    names, parts = names_and_parts(table, target, n)
    labels = np.full(n, -1, np.int64)
    for i, (fields, row) in rows.items():
        name = (names or [])[i]
        if len(row) != n_choices:
            bad.append(BadRow(i + 1, f"{len(row)} answers, not {n_choices}"))
        elif not all(part.strip() for part in (*fields, *row)):
            bad.append(BadRow(i + 1, "no text"))
        elif name not in numbers:
            bad.append(BadRow(i + 1, f"the right answer is {name!r}, not a number from 0 to {n_choices - 1}"))
        else:
            labels[i] = int(name)
    bad.sort(key=lambda row: row.row)
    notes = [*table.notes, f"kind: {n_choices} answers to choose from, after {context[0]!r}"]
    notes += check_bad_limit(list(map(str, bad)), n, "rows", "could not be read", request.max_bad)
    nothing = ("",) * (len(context) + n_choices)
    items = [(*rows[i][0], *rows[i][1]) if labels[i] >= 0 else nothing for i in range(n)]

    def fit(train: Positions, labels: Labels) -> Fitted:
        preprocessing, more = fit_text(items, train, context, target, options, choice=answers, n_choices=n_choices)
        return preprocessing, items, more

    numbered = None if parts is None else part_numbers(parts)
    return Samples("text", items, labels, numbers, fit, table.fingerprint(), notes, numbered, is_ordered=True)


def refuse_lists(table: Table, request: Request) -> None:
    """Raise where a text would be a printed list: its entries are answers to choose from."""
    if request.kind == "tabular":
        return
    drop = (*request.options(TableOptions).drop, request.target)
    named = request.options(TextOptions).columns or tuple(table.columns)
    for name in _columns_of_lists(table, [name for name in named if name in table.columns and name not in drop]):
        where = f"the column {name!r} of {table.name!r} holds lists: pass "
        otherwise = " to learn which entry is right, "
        others = " to leave it out, or name other columns with "
        how = Argument("choice", name), otherwise, Argument("drop", name), others, Argument("text")
        raise ValueError(Sentence(where, *how))


def _columns_of_lists(table: Table, names: Sequence[str]) -> list[str]:
    """Return the columns whose first cells are lists, or lists written in JSON."""
    first = next(iter(table.chunks(names, 20, bad=[])), None)
    return [name for name in names if first is not None and _are_lists(first[name])]


def _are_lists(column: pa.Array) -> bool:
    if not (is_text(column) or column.type.num_fields):  # numbers, of which a table may have thousands of columns
        return False
    filled = (cell for cell in column.to_pylist() if list_in(cell) is not None or str(cell or "").strip())
    first = next(filled, None)  # of most columns one cell is enough to know
    return list_in(first) is not None and all(list_in(cell) is not None for cell in filled)


def _columns(table: Table, options: TextOptions) -> tuple[list[str], tuple[str, ...]]:
    choice = options.choice or ()
    answers = (choice,) if isinstance(choice, str) else tuple(choice)
    context = list(options.columns)
    if len(context) != 1:
        raise ArgumentError("text", options.text, "one column, what comes before the answers of choice")
    for name in context:
        table.require_column(name, "text")
    for name in answers:
        table.require_column(name, "choice")
    if len(answers) == 1 and not _columns_of_lists(table, answers):
        raise ArgumentError("choice", answers[0], "a column of lists of answers, or a column for each answer")
    return context, answers
