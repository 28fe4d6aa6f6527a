r"""A text column among other columns of a table, encoded by its weighted words (TF-IDF).

.. math:: v_w = (1 + \ln f_w) \Big( 1 + \ln \frac{1 + n}{1 + n_w} \Big), \qquad x = v / \lVert v \rVert_2

where the text has the word w :math:`f_w` times, and :math:`n_w` of n training rows have it; other words are 0. A linear
layer over this learns a weighted mean of word vectors, and a mixture of rows has the mixture of their texts. The most
frequent words count. A missing text is zeros, and marked where training rows had missing ones.

References
----------
Salton & Buckley, "Term-weighting approaches in automatic text retrieval", Information Processing & Management 1988.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from vicinal.data.tokens import split_words
from vicinal.tables import Chunk
from vicinal.tables.column_values import names_of

#: The most words of a column that have a feature.
_MOST_WORDS = 512
#: Words in fewer training rows have no feature: they would be learned by heart.
_FEWEST_ROWS = 3


@dataclass(frozen=True)
class Text:
    """A column of texts: a number for each word, and a mark for missing texts if training rows had some."""

    kind: ClassVar[str] = "text"

    name: str
    words: tuple[str, ...]
    weights: tuple[float, ...]
    """1 + ln((1 + n) / (1 + n_w)) of each word."""
    missing: bool

    @property
    def width(self) -> int:
        """How many numbers of the input it is."""
        return len(self.words) + self.missing

    def encode(self, chunk: Chunk, out: NDArray[np.float32], remarks: object) -> None:
        """Write the column as numbers into `out` `[M, width]`, which holds zeros."""
        place = {word: k for k, word in enumerate(self.words)}
        weights = np.array(self.weights)
        for i, text in enumerate(names_of(chunk[self.name].to_pylist())):
            if not text:
                if self.missing:
                    out[i, -1] = 1
                continue
            counts = Counter(place[word] for word in split_words(text) if word in place)
            if counts:
                at = np.array(list(counts))
                values = (1 + np.log(list(counts.values()))) * weights[at]
                out[i, at] = values / np.linalg.norm(values)

    def notes(self, remarks: object) -> list[str]:
        """Return no notes: any text can be read."""
        return []

    def feature_names(self) -> list[str]:
        """Return what each number is."""
        names = [f"{self.name}: word {word!r}" for word in self.words]
        return [*names, f"{self.name} is missing"] if self.missing else names

    def to_dict(self) -> dict[str, object]:
        """Return the record as JSON can hold it."""
        words, weights = list(self.words), list(self.weights)
        return {"name": self.name, "missing": self.missing, "words": words, "weights": weights}


@dataclass(eq=False)
class WordCounts:
    """In how many rows of a column of texts each word is."""

    name: str
    n: int = 0
    missing: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, chunk: Chunk, chosen: NDArray[np.bool_]) -> None:
        """Count the words of the chosen rows."""
        for text in names_of(chunk[self.name].take(np.flatnonzero(chosen)).to_pylist()):
            self.missing |= not text
            self.n += bool(text)
            self.counts.update(set(split_words(text)))

    def merge(self, other: WordCounts) -> None:
        """Add what was counted of later rows."""
        self.n, self.missing = self.n + other.n, self.missing or other.missing
        self.counts.update(other.counts)

    def column(self, budget: object) -> tuple[Text | None, str | None]:
        """Return the column, or why it is left out."""
        ordered = sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))
        kept = [(word, n) for word, n in ordered[:_MOST_WORDS] if n >= _FEWEST_ROWS]
        if not kept:
            return None, f"left out: {self.name!r} (texts that share no words)"
        weights = tuple(1 + math.log((1 + self.n) / (1 + n)) for _, n in kept)
        return Text(self.name, tuple(word for word, _ in kept), weights, self.missing), None
