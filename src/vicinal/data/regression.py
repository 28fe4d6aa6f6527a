"""Texts with a number to predict, such as the similarity of two sentences (STS-B): sets for `vicinal.fit`.

    sets = load_scores("glue:stsb", data_root=...)
    model = models.build(**sets.spec)
    how = {"collate_fn": sets.collate_fn, "target_type": "regression"}
    fit(model, SequenceMixup.input(alpha=1.0), sets.train, sets.val, **how)

The validation metrics are then the squared error and Spearman's correlation. `vicinal train glue:stsb` does this; all
else that the command does needs classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from vicinal import _random
from vicinal._atomic import Json
from vicinal._checks import ArgumentError
from vicinal._typing import Batch
from vicinal.data.options import Options, ReadOptions, SplitOptions, TextOptions, share_of
from vicinal.data.published_tables import NamedTable
from vicinal.data.sources import open_data
from vicinal.data.text import TextPreprocessing, fit_text, texts_of
from vicinal.tables import Table


class Scores(Dataset[tuple[Batch, float]]):
    """Texts with their numbers: `scores[i]` is the model input and the number of the i-th."""

    def __init__(self, preprocessing: TextPreprocessing, texts: Sequence[object], values: Sequence[float]) -> None:
        self.preprocessing, self.texts, self.values = preprocessing, list(texts), [float(v) for v in values]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: int) -> tuple[Batch, float]:
        return self.preprocessing(self.texts[i]), self.values[i]


@dataclass(frozen=True, eq=False)
class ScoredTexts:
    """Three sets of texts with numbers, and what reads new texts the same way."""

    train: Scores
    val: Scores
    test: Scores
    preprocessing: TextPreprocessing
    notes: tuple[str, ...] = ()

    @property
    def spec(self) -> Json:
        """What `models.build` needs to know: a network of one output."""
        return {"n_classes": 1, **self.preprocessing.spec}

    @property
    def collate_fn(self) -> Callable[..., tuple[Batch, Tensor]]:
        """What a `DataLoader` needs to make batches of any of the sets."""
        return self.preprocessing.collate


def load_scores(source: object, *options: Options, target: str | None = None) -> ScoredTexts:
    """Load texts, or pairs of texts, with a number each: a table, or a name such as `"glue:stsb"`.

    `target` is the column of numbers, and `TextOptions.text` names one or two columns of texts; a named data set knows
    them. The options are those of `vicinal.data.load`. Splits are drawn without regard to the numbers.
    """
    asked, split = TextOptions.given(options), SplitOptions.given(options)
    opened = open_data(source, "text", ReadOptions.given(options), target)
    columns = list(asked.columns)
    if isinstance(opened, NamedTable):
        target, columns = target or opened.target, columns or list(opened.text)
    if not isinstance(opened, Table) or target is None or not columns:
        raise ArgumentError("source", source, "a table, with target and text naming its columns")
    texts, values, parts = _read(opened, target, columns)
    rows = _parts(parts, split)
    preprocessing, notes = fit_text(texts, np.array(rows["train"]), columns, target, asked)
    sets = {name: Scores(preprocessing, [texts[i] for i in part], values[part].tolist()) for name, part in rows.items()}
    return ScoredTexts(**sets, preprocessing=preprocessing, notes=(*opened.notes, *notes))


def _read(
    table: Table, target: str, columns: Sequence[str]
) -> tuple[list[tuple[str, ...]], NDArray[np.float64], list[str]]:
    """Return the texts, the numbers and the part of each row."""
    for name, argument in ((target, "target"), *((name, "text") for name in columns)):
        table.require_column(name, argument)
    texts: list[tuple[str, ...]] = []
    values: list[float] = []
    parts: list[str] = []
    for chunk in table.chunks([target, *columns]):
        texts += texts_of(chunk, columns)
        cells = chunk[target].to_pylist()
        try:
            values += [math.nan if cell is None else float(cell) for cell in cells]
        except ValueError as error:
            raise ValueError(f"the target {target!r} must hold a number in every row: {error}") from error
        parts += list(chunk.parts or ["train"] * len(cells))
    if not np.isfinite(values).all():
        raise ArgumentError("target", target, "a column of finite numbers")
    return texts, np.array(values), parts


def _parts(given: Sequence[str], split: SplitOptions) -> dict[str, list[int]]:
    """Return the rows of each set: those the source gives, and what is missing drawn from its training rows."""
    parts = {name: [i for i, part in enumerate(given) if part == name] for name in ("train", "val", "test")}
    generator = torch.Generator().manual_seed(_random.seed_from("split", split.seed))
    order = [parts["train"][i] for i in _random.permutation(len(parts["train"]), generator=generator).tolist()]
    n = len(order)
    for name, value in (("test", split.test), ("val", split.val)):
        if parts[name]:
            continue
        if isinstance(value, str):  # the test set chooses
            parts[name] = parts["test"]
        else:
            size = round(share_of(name, value, n) * n)
            parts[name], order = sorted(order[:size]), order[size:]
    if not order:
        raise ArgumentError("val", split.val, "a share that leaves rows to train on")
    return {"train": sorted(order), "val": parts["val"], "test": parts["test"]}
