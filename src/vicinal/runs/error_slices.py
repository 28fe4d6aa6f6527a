r"""Find error slices: words, values and ranges in which the model errs more often than elsewhere.

Let W of N samples be wrong, and w of the n samples that have a property. If the property did not matter, w would be
hypergeometric. The p-value is

.. math:: p = P(X \ge w), \qquad X \sim \mathrm{Hypergeometric}(N, W, n)

Slices have :math:`p \cdot m \le 0.05`, with m the number of properties that were tested (Bonferroni).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, Sentence, choice
from vicinal.data import Split
from vicinal.data.tabular import TabularPreprocessing
from vicinal.metrics.slices import FEWEST, column_slices

#: Of more samples a part is taken.
_MOST = 20_000
_LEVEL = 0.05
#: Slices of more test samples are measured on request only, since all rows are read.
MOST_SLICED = 100_000

_WORD = re.compile(r"[^\W\d_][\w'’-]+")


def error_slices(split: Split, wrong: Sequence[bool] | NDArray[np.bool_], *, n: int = 8) -> list[dict[str, object]]:
    """Return at most n error slices of texts or rows, the most significant first, ready for JSON."""
    step = -(-len(split) // _MOST)
    every = range(0, len(split), step) if step else range(0)
    errors = np.asarray(wrong, np.bool_)[:: step or 1]
    if not errors.any() or errors.all():
        return []
    looked_at = [(name, has) for name, has in _properties(split, every) if FEWEST <= int(has.sum()) < len(errors)]
    if not looked_at:
        return []
    from scipy.stats import hypergeom  # half a second of imports, which most commands do without

    telling = []
    for name, has in looked_at:
        n_with, n_wrong = int(has.sum()), int(errors[has].sum())
        p = float(hypergeom.sf(n_wrong - 1, len(errors), int(errors.sum()), n_with))
        if p * len(looked_at) <= _LEVEL:
            rest = int(errors.sum()) - n_wrong
            elsewhere = {"n_elsewhere": len(errors) - n_with, "wrong_elsewhere": rest}
            telling.append((p, {"property": name, "n": n_with, "wrong": n_wrong, **elsewhere}))
    return [entry for _, entry in sorted(telling, key=lambda pair: pair[0])[:n]]


def slice_masks(split: Split, columns: Sequence[str] = ()) -> dict[str, NDArray[np.bool_]]:
    """Return which samples are in each slice: values of columns, quartiles of numbers and of the length of texts.

    Slices of fewer than 10 samples are left out. `columns` are the only ones looked at where they are given.
    """
    if split.preprocessing.kind == "text" and not columns:
        lengths = [len((t if isinstance(t, str) else " ".join(t)).split()) for t in split.originals(range(len(split)))]
        pairs = list(column_slices("number of words", lengths))
    elif isinstance(split.preprocessing, TabularPreprocessing):
        known = [column.name for column in split.preprocessing.columns]
        rows = split.originals(range(len(split)))
        seen = rows[0].keys() if len(rows) and isinstance(rows[0], Mapping) else known
        for name in columns:
            choice("slice", name, tuple(seen))
        pairs = [pair for name in columns or known for pair in column_slices(name, [row.get(name) for row in rows])]
    elif columns:
        raise ValueError(Sentence(Argument("slice"), " needs rows of a table: these data have no columns"))
    else:
        return {}
    return {name: mask for name, mask in pairs if columns or FEWEST <= int(mask.sum()) < len(mask)}


def _properties(split: Split, every: range) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield the properties of samples by name, and which samples have them."""
    if split.preprocessing.kind == "text":
        yield from _words(split.originals(every))
    elif isinstance(split.preprocessing, TabularPreprocessing):
        rows = split.originals(every)
        for column in split.preprocessing.columns:
            yield from column_slices(column.name, [row.get(column.name) for row in rows if isinstance(row, Mapping)])


def _words(texts: Sequence[Any]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield the words of texts, in lower case, and which texts have them; and whether a text is short or long."""
    joined = [text if isinstance(text, str) else " ".join(text) for text in texts]
    places: dict[str, list[int]] = {}
    for i, text in enumerate(joined):
        for word in {match.lower() for match in _WORD.findall(text)}:
            places.setdefault(word, []).append(i)
    for word, where in places.items():
        if len(where) >= FEWEST:
            has = np.zeros(len(joined), np.bool_)
            has[where] = True
            yield f"the word “{word}”", has
    lengths = np.array([len(text.split()) for text in joined])
    short, long = np.quantile(lengths, [0.25, 0.75])
    yield f"at most {short:.0f} words", lengths <= short
    yield f"at least {long:.0f} words", lengths >= long
