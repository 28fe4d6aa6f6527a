"""What turns an original (a row, a text, a file) into what a model takes, fitted once and saved with the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._atomic import Json
from vicinal._checks import nearest_names
from vicinal._typing import Batch
from vicinal.data.options import ReadOptions
from vicinal.models.specification import Inputs
from vicinal.tables import BadRow, Table


class Preprocessing(ABC):
    """A fitted, frozen record that JSON can hold; one subclass per kind of data.

    `preprocessing(item)` is the model input of one sample; `vicinal.data.read(source, preprocessing)` reads a whole new
    source with it.

    Examples
    --------
    >>> import pandas as pd
    >>> from vicinal.data import load
    >>> frame = pd.DataFrame({"x": [0.5, 1.5, 2.5, 3.5] * 5, "y": ["a", "b"] * 10})
    >>> record = load(frame, target="y").preprocessing.to_dict()
    >>> Preprocessing.from_dict(record)({"x": 2.0}).shape
    torch.Size([1])
    """

    kind: ClassVar[str]
    has_tokens: ClassVar[bool] = False
    """Whether a sample is a sequence of tokens, of which batches are padded."""
    keeps_tensors: ClassVar[bool] = False
    """Whether an item that is a tensor already is the model input, so that many can be taken at once."""
    _kinds: ClassVar[dict[str, type[Preprocessing]]] = {}

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "kind"):
            Preprocessing._kinds[cls.kind] = cls

    @abstractmethod
    def inputs(self, n_classes: int) -> Inputs:
        """Return what a network with `n_classes` outputs must know of its input."""

    @final
    @property
    def spec(self) -> Json:
        """What is not the default of `inputs`, for `models.build(**preprocessing.spec, n_classes=…)`."""
        inputs = self.inputs(2)
        given = {one.name: getattr(inputs, one.name) for one in fields(inputs)}
        defaults = {one.name: one.default for one in fields(inputs)} | {"n_classes": 2}
        return {name: value for name, value in given.items() if value != defaults[name]}

    @abstractmethod
    def __call__(self, item: object, *, augment: str = "none", generator: torch.Generator | None = None) -> Batch:
        """Return the model input of one item; with a `generator` the augmented one that it draws."""

    def column_kinds(self) -> dict[str, str]:
        """Return what each column of a table holds, where columns are encoded one by one."""
        return {}

    def _fields(self) -> dict[str, object]:
        """Return what to record, as JSON can hold it: every field of the dataclass."""
        record: Any = self
        return {one.name: getattr(self, one.name) for one in fields(record)}

    @classmethod
    def _from_fields(cls, record: Json) -> Preprocessing:
        """Return what `_fields` recorded."""
        return cls(**record)

    def collate(self, batch: Sequence[tuple[Batch, int]]) -> tuple[Batch, Tensor]:
        """Return a list of samples as one batch: the `collate_fn` of a `DataLoader`."""
        return torch.stack([x for x, _ in batch if isinstance(x, Tensor)]), torch.tensor([y for _, y in batch])

    @final
    def to_dict(self) -> dict[str, object]:
        """Return the record as JSON can hold it."""
        return {"kind": self.kind, **self._fields()}

    @final
    @staticmethod
    def from_dict(record: Mapping[str, object]) -> Preprocessing:
        """Return what `to_dict` recorded, of whichever kind."""
        others = dict(record)
        kind = others.pop("kind", None)
        if kind not in Preprocessing._kinds:
            raise ValueError(
                f"there is no preprocessing of kind {kind!r}{nearest_names(str(kind), Preprocessing._kinds)}"
            )
        return Preprocessing._kinds[kind]._from_fields(others)


class TablePreprocessing(Preprocessing):
    """A preprocessing whose samples are rows of a table, which it can read block by block."""

    target: str
    """The column of classes."""
    missing_values: tuple[str, ...] = ()
    """Cells that mean missing."""

    def adapted(self, table: Table, how: ReadOptions, notes: list[str]) -> Preprocessing:
        """Return what reads a table whose numbers or dates are written otherwise; notes on that are added."""
        return self

    @abstractmethod
    def blocks(self, table: Table, bad: list[BadRow], notes: list[str]) -> Iterator[tuple[NDArray[np.int64], Any]]:
        """Yield numbers of rows, from 1, and their items, some rows at a time.

        Parameters
        ----------
        table
            The table.
        bad
            Where rows that cannot be read are added.
        notes
            Where notes are added, those on values after the last block.
        """
