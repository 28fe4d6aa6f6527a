"""What turns an original (a row, a text, a file) into what a model takes, fitted once and saved with the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import torch
from torch import Tensor

from vicinal._checks import nearest_names
from vicinal._files import Json
from vicinal._typing import Batch

__all__ = ["Preprocessing"]


class Preprocessing(ABC):
    """A fitted, frozen record that JSON can hold; one subclass per kind of data.

    `preprocessing(item)` is the model input of one sample; `vicinal.data.read(source, preprocessing)` reads a whole new
    source with it.
    """

    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Preprocessing]]] = {}

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        Preprocessing._kinds[cls.kind] = cls

    @property
    @abstractmethod
    def spec(self) -> Json:
        """What a network must know of its input: `models.build(**preprocessing.spec, n_classes=…)`."""

    @abstractmethod
    def __call__(self, item: object, *, augment: str = "none", generator: torch.Generator | None = None) -> Batch:
        """Return the model input of one item; with a `generator` the augmented one that it draws."""

    @abstractmethod
    def _fields(self) -> dict[str, object]:
        """Return what to record, as JSON can hold it."""

    @classmethod
    @abstractmethod
    def _from_fields(cls, fields: dict[str, object]) -> Preprocessing:
        """Return what `_fields` recorded."""

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
        fields = dict(record)
        kind = fields.pop("kind", None)
        if kind not in Preprocessing._kinds:
            raise ValueError(
                f"there is no preprocessing of kind {kind!r}{nearest_names(str(kind), Preprocessing._kinds)}"
            )
        return Preprocessing._kinds[kind]._from_fields(fields)
