"""Texts, pairs of texts, and texts with answers to choose from, in columns of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._atomic import Json
from vicinal._checks import Argument, Sentence, nearest_names, require
from vicinal._typing import Batch
from vicinal.data.class_folders import listed
from vicinal.data.kind import Baseline, Fitted, Kind, NewData, Request, Samples, Shown
from vicinal.data.options import TextOptions
from vicinal.data.preprocessing import TablePreprocessing
from vicinal.data.splitting import Labels, Positions
from vicinal.data.table_samples import ScannedTable, new_rows
from vicinal.data.task import Split, Task
from vicinal.data.tokens import Subwords, Words, default_tokenizer
from vicinal.models.specification import Inputs
from vicinal.tables import BadRow, Chunk, Table

#: Characters of a text that a report shows.
_LONGEST_SHOWN = 600

#: Pieces of words that the baseline counts, the most frequent ones.
_MOST_PIECES = 50_000


@dataclass(frozen=True)
class TextPreprocessing(TablePreprocessing):
    """How a text becomes token ids; tokenised when a sample is asked for, padded when a batch is."""

    kind: ClassVar[str] = "text"
    has_tokens: ClassVar[bool] = True

    columns: tuple[str, ...]
    """The columns of texts, in their order."""
    target: str
    """The column of classes."""
    tokenizer: Words | Subwords
    """What turns a text into ids."""
    max_length: int = 256
    """The most tokens of a text."""
    choice: tuple[str, ...] = ()
    """The columns of answers to choose from, or the one column of lists of them."""
    n_choices: int = 0
    """How many answers there are; 0 where there is nothing to choose."""

    def inputs(self, n_classes: int) -> Inputs:
        """Return the number of token ids, whose they are, and how many answers there are to choose from."""
        size, name = self.tokenizer.size, self.tokenizer.name
        return Inputs(kind=self.kind, n_classes=n_classes, vocab_size=size, tokenizer=name, choices=self.n_choices)

    @property
    def n_texts(self) -> int:
        """How many texts a sample has: those of its columns, and the answers."""
        return len(self.columns) + self.n_choices

    def __call__(self, item: Any, *, augment: str = "none", generator: torch.Generator | None = None) -> Batch:
        """Return a text (or a pair, a context with its answers, or a mapping from column names) as ids.

        Each field is a vector `[L]`; with answers to choose from `[C, L]`, the context before each of them.
        """
        if isinstance(item, Mapping):
            answers = _answers([item[name] for name in self.choice])
            item = (*(str(item[name]) for name in self.columns), *answers)
        texts = (item,) if isinstance(item, str) else tuple(item)
        if len(texts) != self.n_texts:
            what = f"{listed(self.columns)}, then {self.n_choices} answers" if self.n_choices else listed(self.columns)
            raise ValueError(f"the model reads {self.n_texts} texts at a time ({what}), got {len(texts)}")
        if not self.n_choices:
            return self._encoded(texts)
        pairs = [self._encoded((texts[0], answer)) for answer in texts[1:]]
        return self._together(pairs)

    def _encoded(self, texts: Sequence[str]) -> dict[str, Tensor]:
        return {name: torch.tensor(ids) for name, ids in self.tokenizer.encode(texts, self.max_length).items()}

    def collate(self, batch: Sequence[tuple[Batch, int]]) -> tuple[Batch, Tensor]:
        """Return samples as one batch, padded to the longest of them."""
        rows = [x for x, _ in batch if isinstance(x, Mapping)]
        return self._together(rows), torch.tensor([y for _, y in batch])

    def _together(self, rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return rows of ids as one tensor for each field, padded to the longest."""
        longest = max(row["input_ids"].shape[-1] for row in rows)
        return {
            name: torch.stack([self._padded(row[name], longest, self.tokenizer.padding.get(name, 0)) for row in rows])
            for name in rows[0]
        }

    def _padded(self, ids: Tensor, length: int, value: int) -> Tensor:
        missing = length - ids.shape[-1]
        sides = (missing, 0) if self.tokenizer.side == "left" else (0, missing)
        return torch.nn.functional.pad(ids, sides, value=value)

    def texts(self, table: Table) -> tuple[list[tuple[str, ...]], list[bool], list[BadRow], list[str]]:
        """Return the texts of each row of a table, which rows could be read, those that could not, and notes."""
        texts: list[tuple[str, ...]] = []
        bad: list[BadRow] = []
        notes: list[str] = []
        nothing = ("",) * (len(self.columns) + self.n_choices)
        for rows, block in self.blocks(table, bad, notes):
            for row, fields in zip(rows.tolist(), block, strict=True):
                # Positions must match the file, as saved splits count all of its rows.
                texts += [nothing] * (row - 1 - len(texts))  # rows that could not be read keep their places
                texts.append(fields)
        unreadable = {row.row for row in bad}
        return texts, [row not in unreadable for row in range(1, len(texts) + 1)], bad, notes

    def blocks(
        self, table: Table, bad: list[BadRow], notes: list[str]
    ) -> Iterator[tuple[NDArray[np.int64], list[tuple[str, ...]]]]:
        """Yield numbers of rows, from 1, and their texts, some rows at a time; see `TabularPreprocessing.blocks`."""
        for name in (*self.columns, *self.choice):
            if name not in table.columns:
                hint = nearest_names(name, table.columns)
                raise ValueError(f"the data lack the column {name!r} that the model reads{hint}")
        empty = 0
        for chunk in table.chunks([*self.columns, *self.choice], bad=bad):
            texts = texts_of(chunk, self.columns)
            if self.n_choices:
                answers = answers_of(chunk, self.choice)
                for row, choices in zip(chunk.rows.tolist(), answers, strict=True):
                    if len(choices) != self.n_choices:
                        several = f"the model chooses among {self.n_choices} answers, row {row} has {len(choices)}"
                        raise ValueError(several)
                texts = [(*fields, *choices) for fields, choices in zip(texts, answers, strict=True)]
            empty += sum(not all(text.strip() for text in fields) for fields in texts)
            yield chunk.rows, texts
        notes += [f"{empty} row{'s have' if empty > 1 else ' has'} no text"] if empty else []

    def _fields(self) -> dict[str, object]:
        return {
            "columns": list(self.columns),
            "target": self.target,
            "tokenizer": self.tokenizer.to_dict(),
            "max_length": self.max_length,
            **({"choice": list(self.choice), "n_choices": self.n_choices} if self.n_choices else {}),
        }

    @classmethod
    def _from_fields(cls, record: Json) -> TextPreprocessing:
        tokens = record["tokenizer"]
        tokenizer = Words(tuple(tokens["words"])) if "words" in tokens else Subwords.from_dict(tokens)
        answers = tuple(record.get("choice", ())), record.get("n_choices", 0)
        return cls(tuple(record["columns"]), record["target"], tokenizer, record["max_length"], *answers)


def texts_of(chunk: Chunk, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the texts of each row, `""` where there is none."""
    fields = [["" if value is None else str(value) for value in chunk[name].to_pylist()] for name in columns]
    return list(zip(*fields, strict=True))


def answers_of(chunk: Chunk, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the answers of each row, from several columns or from one column of lists (or lists in JSON)."""
    return [_answers(cells) for cells in zip(*(chunk[name].to_pylist() for name in columns), strict=True)]


def _answers(cells: Sequence[object]) -> tuple[str, ...]:
    if len(cells) == 1:
        return tuple(str(entry) for entry in list_in(cells[0]) or ())
    return tuple("" if cell is None or cell != cell else str(cell) for cell in cells)  # NaN is no answer


def list_in(cell: object) -> list[object] | None:
    """Return what a cell lists: a list, an array, or a list written in JSON; None where it is none."""
    if isinstance(cell, (list, tuple, np.ndarray)):
        return list(cell)
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            listed_in = json.loads(cell)
        except ValueError:
            return None
        return listed_in if isinstance(listed_in, list) else None
    return None


def fit_text(
    texts: Sequence[tuple[str, ...]],
    train: Positions,
    columns: Sequence[str],
    target: str,
    options: TextOptions,
    *,
    choice: Sequence[str] = (),
    n_choices: int = 0,
) -> tuple[TextPreprocessing, list[str]]:
    """Build the vocabulary on the training texts, or load a tokenizer, and return notes."""
    max_length = options.max_length
    name = default_tokenizer() if options.tokenizer is None else options.tokenizer.removeprefix("hf:")
    tokens = Words.build(texts[i] for i in train.tolist()) if name == "words" else Subwords.load(name)
    if isinstance(tokens, Words):
        notes = [f"tokens: {tokens.size:,} lower-case words of the training texts"]
    else:
        notes = [f"tokens: those of {name}"]
        positions = tokens.positions
        if positions is not None and positions < max_length:
            notes.append(
                Sentence(Argument("max_length"), f": {positions} instead of {max_length}, all that {name} has")
            )
            max_length = positions
    # With answers to choose from, the context stands before each of them.
    lengths = ([len(text.split()) for text in fields] for fields in texts)
    long = sum((words[0] + max(words[1:]) if n_choices else sum(words)) > max_length for words in lengths)
    if long:
        cut = f"{long} of {len(texts)} texts have more than {max_length} words and are cut ("
        notes.append(Sentence(cut, Argument("max_length"), " changes that)"))
    return TextPreprocessing(tuple(columns), target, tokens, max_length, tuple(choice), n_choices), notes


class TextKind(Kind[ScannedTable, TextPreprocessing]):
    """Texts, or pairs of texts, in columns of a table."""

    name = "text"
    preprocessing = TextPreprocessing
    plural = "texts"

    def open(self, source: ScannedTable, request: Request) -> Samples:
        """Return the texts of a table, which are tokenised when a sample is asked for."""
        columns, scan = source.text_columns, source.scan
        size = scan.sizes[scan.readers.rank]

        def read() -> list[tuple[str, ...]]:
            texts = [("",) * len(columns)] * size
            for chunk in scan.mine.table.chunks(columns, bad=[]):
                for row, fields in zip(chunk.rows.tolist(), texts_of(chunk, columns), strict=True):
                    texts[row - 1] = fields
            return texts

        texts = [fields for some in scan.readers.together(read) for fields in some]
        what = "pairs of texts" if len(columns) == 2 else "text"
        notes = [f"kind: {what}, from {listed([repr(name) for name in columns])}"]
        others = [repr(name) for name in source.table.columns if name not in (*columns, source.target, *request.labels)]
        if others:
            instead = Argument("kind", "tabular"), " learns from such columns, and from the words of texts"
            notes.append(Sentence(f"ignored: {listed(others)}; ", *instead))
        empty = [i for i, fields in enumerate(texts) if scan.readable[i] and not all(field.strip() for field in fields)]

        def fit(train: Positions, labels: Labels) -> Fitted:
            words, more = fit_text(texts, train, columns, source.target, request.options(TextOptions))
            return words, texts, more

        return source.samples(
            self.name,
            origins=_plain(texts),
            fit=fit,
            bad=[*scan.bad, *(BadRow(i + 1, "no text") for i in empty)],
            # Equal texts stay on one side of the split, whatever their other columns are.
            hashes=np.array([hash(fields) for fields in texts], np.int64),
            equal="texts are duplicates",
            notes=notes,
        )

    def read(self, source: Table, preprocessing: TextPreprocessing, max_bad: float | int, *, labelled: bool) -> NewData:
        """Return the texts of a table."""
        texts, readable, bad, notes = preprocessing.texts(source)
        target = preprocessing.target if labelled else None
        new = NewData(texts, _plain(texts), np.flatnonzero(readable).tolist(), None, None, notes)
        return new_rows(source, new, bad, max_bad, target)

    def show(self, split: Split, i: int, original: Any) -> Shown:
        """Return the texts, cut where they are long."""
        texts = [original] if isinstance(original, str) else list(original)
        return Shown(text=[t if len(t) <= _LONGEST_SHOWN else f"{t[:_LONGEST_SHOWN]}…" for t in texts])

    def baseline(self, task: Task) -> Baseline | None:
        """Return TF-IDF of words, pairs of words and pieces of words; None for answers to choose from."""
        if isinstance(task.preprocessing, TextPreprocessing) and task.preprocessing.choice:
            return None
        texts = [
            [text if isinstance(text, str) else " ".join(text) for text in part.originals(range(len(part)))]
            for part in (task.train, task.val, task.test)
        ]
        tfidf = require("sklearn.feature_extraction.text", "train").TfidfVectorizer
        vectors = require("sklearn.pipeline", "train").make_union(
            tfidf(ngram_range=(1, 2), sublinear_tf=True),
            tfidf(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, max_features=_MOST_PIECES),
        )
        train = vectors.fit_transform(texts[0])
        return Baseline(train, vectors.transform(texts[1]) if texts[1] else None, vectors.transform(texts[2]))


def _plain(texts: Sequence[tuple[str, ...]]) -> list[Any]:
    """Return texts as they were: a string, or a tuple for a pair."""
    return [fields[0] if len(fields) == 1 else fields for fields in texts]
