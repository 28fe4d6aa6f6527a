"""Texts and pairs of texts: rows of a table of which one or two columns are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from vicinal._checks import Argument, Sentence, integer, nearest_names
from vicinal._typing import Batch
from vicinal.data.files import listed
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.tokens import Subwords, Words, default_tokenizer

__all__ = ["TextPreprocessing", "fit_text", "texts_of"]


@dataclass(frozen=True)
class TextPreprocessing(Preprocessing):
    """How a text becomes token ids; tokenised when a sample is asked for, padded when a batch is."""

    kind: ClassVar[str] = "text"

    columns: tuple[str, ...]
    target: str
    tokenizer: Words | Subwords
    max_length: int = 256

    @property
    def spec(self) -> dict[str, Any]:
        """The number of token ids, and whose they are."""
        return {"kind": self.kind, "vocab_size": self.tokenizer.size, "tokenizer": self.tokenizer.name}

    def __call__(self, item: Any, *, augment: str = "none", generator: torch.Generator | None = None) -> Batch:
        """Return a text (or a pair, or a mapping from column names) as ids, each field a vector `[L]`."""
        if isinstance(item, Mapping):
            item = tuple(str(item[name]) for name in self.columns)
        texts = (item,) if isinstance(item, str) else tuple(item)
        if len(texts) != len(self.columns):
            raise ValueError(
                f"the model reads {len(self.columns)} texts at a time ({listed(self.columns)}), got {len(texts)}"
            )
        return {name: torch.tensor(ids) for name, ids in self.tokenizer.encode(texts, self.max_length).items()}

    def collate(self, batch: Sequence[tuple[Batch, int]]) -> tuple[Batch, Tensor]:
        """Return samples as one batch, padded to the longest of them."""
        rows = [x for x, _ in batch if isinstance(x, Mapping)]
        longest = max(len(row["input_ids"]) for row in rows)
        padded = {
            name: torch.stack([self._padded(row[name], longest, self.tokenizer.padding.get(name, 0)) for row in rows])
            for name in rows[0]
        }
        return padded, torch.tensor([y for _, y in batch])

    def _padded(self, ids: Tensor, length: int, value: int) -> Tensor:
        lacking = length - len(ids)
        sides = (lacking, 0) if self.tokenizer.side == "left" else (0, lacking)
        return torch.nn.functional.pad(ids, sides, value=value)

    def texts(self, frame: Any) -> tuple[list[tuple[str, ...]], list[str]]:
        """Return the texts of each row of a DataFrame, and what there is to say about them."""
        for name in self.columns:
            if name not in frame.columns:
                hint = nearest_names(name, [str(label) for label in frame.columns])
                raise ValueError(f"the data lack the column {name!r} that the model reads{hint}")
        texts = texts_of(frame, self.columns)
        empty = sum(not all(text.strip() for text in fields) for fields in texts)
        return texts, [f"{empty} row{'s have' if empty > 1 else ' has'} no text"] if empty else []

    def _fields(self) -> dict[str, Any]:
        return {
            "columns": list(self.columns),
            "target": self.target,
            "tokenizer": self.tokenizer.to_dict(),
            "max_length": self.max_length,
        }

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> TextPreprocessing:
        record = fields["tokenizer"]
        tokenizer = Words(tuple(record["words"])) if "words" in record else Subwords.from_dict(record)
        return cls(tuple(fields["columns"]), fields["target"], tokenizer, fields["max_length"])


def texts_of(frame: Any, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the texts of each row, `""` where there is none."""
    fields = [["" if gone else str(v) for v, gone in zip(frame[c], frame[c].isna(), strict=True)] for c in columns]
    return list(zip(*fields, strict=True))


def fit_text(
    texts: Sequence[tuple[str, ...]],
    train: Sequence[int],
    columns: Sequence[str],
    target: str,
    tokenizer: str | None,
    max_length: int,
) -> tuple[TextPreprocessing, list[str]]:
    """Build the vocabulary on the training texts, or load a tokenizer, and return notes."""
    max_length = integer("max_length", max_length, low=8)
    name = default_tokenizer() if tokenizer is None else tokenizer.removeprefix("hf:")
    tokens = Words.build(texts[i] for i in train) if name == "words" else Subwords.load(name)
    notes = [
        f"tokens: {tokens.size:,} lower-case words of the training texts"
        if isinstance(tokens, Words)
        else f"tokens: those of {name}"
    ]
    long = sum(sum(len(text.split()) for text in fields) > max_length for fields in texts)
    if long:
        cut = f"{long} of {len(texts)} texts have more than {max_length} words and are cut ("
        notes.append(Sentence(cut, Argument("max_length"), ")"))
    return TextPreprocessing(tuple(columns), target, tokens, max_length), notes
