"""A task: data, split and ready to train on, with the fitted preprocessing that new data need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from vicinal._atomic import Json
from vicinal._random import seed_from
from vicinal._typing import Batch
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.splitting import Labels, Positions, as_positions
from vicinal.data.table_rows import Rows
from vicinal.progress import stage

#: Samples as a preprocessing takes them: rows of a tensor, or one object each.
Items: TypeAlias = "Sequence[Any] | Tensor"


class Split(Dataset[tuple[Batch, Any]]):
    """Some samples of a source: `split[i]` is the model input and the class number of the i-th.

    Augmentation is drawn from (seed, epoch, index) and nothing else, so that a resumed run sees the same samples.

    Parameters
    ----------
    preprocessing
        Turns an item into model input.
    items
        What the preprocessing takes, for every sample of the source.
    origins
        The original of every sample, for reports: a row, a text, a path.
    labels
        The class number of every sample of the source, or 0 and 1 for each label of a multi-label task, `[N, L]`.
        None for unlabelled data; each label is then -1.
    indices
        Which samples of the source are in this split, in order; all of them if not given.
    augment
        How the preprocessing may augment; `"none"` for evaluation.
    seed
        Random seed of the augmentation, until `set_epoch` sets another.
    notes
        What was ignored or skipped in reading, one sentence each.
    fingerprint
        The hash of a table's content, where it is one.

    Examples
    --------
    >>> import pandas as pd
    >>> from vicinal.data import load
    >>> frame = pd.DataFrame({"x": [0.5, 1.5, 2.5, 3.5] * 5, "y": ["a", "b"] * 10})
    >>> split = load(frame, target="y").train
    >>> x, y = split[0]
    >>> x.shape, y
    (torch.Size([1]), 0)
    """

    def __init__(
        self,
        preprocessing: Preprocessing,
        items: Items,
        origins: Items,
        labels: Sequence[int] | Labels | None,
        indices: Sequence[int] | Positions | None = None,
        *,
        augment: str = "none",
        seed: int = 0,
        notes: Sequence[str] = (),
        fingerprint: str = "",
    ) -> None:
        self.preprocessing = preprocessing
        self.positions = as_positions(np.arange(len(items)) if indices is None else indices)
        self._labels = None if labels is None else np.asarray(labels)[self.positions]
        self.augment, self.epoch, self.seed, self.notes = augment, 0, seed, tuple(notes)
        self._items, self._origins, self.fingerprint = items, origins, fingerprint
        #: The number of each sample's group, `[len(self)]`, where new data have groups.
        self.groups: Positions | None = None
        #: How much each sample counts, `[len(self)]`, where that was given.
        self.weights: NDArray[np.float64] | None = None

    @cached_property
    def indices(self) -> list[int]:
        """Which samples of the source are in this split, in order."""
        positions: list[int] = self.positions.tolist()
        return positions

    @cached_property
    def labels(self) -> list[Any] | None:
        """The class number of each, or 0 and 1 for each label; None where there are none."""
        return None if self._labels is None else self._labels.tolist()

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, i: int) -> tuple[Batch, Any]:
        item = self._items[int(self.positions[i])]
        generator = None
        if self.augment != "none":
            # Not from a global state: workers and resumed runs must draw the same.
            generator = torch.Generator().manual_seed(seed_from("augment", self.seed, self.epoch, int(i)))
        x = self.preprocessing(item, augment=self.augment, generator=generator)
        return x, -1 if self._labels is None else self._labels[i].tolist()

    @cached_property
    def lengths(self) -> list[int] | None:
        """The number of tokens of each text; None for other kinds of data."""
        if not self.preprocessing.has_tokens:
            return None
        lengths = []
        with stage("counting tokens", len(self)) as advance:
            for i in range(len(self)):
                lengths.append(self._n_tokens(i))
                advance(1)
        return lengths

    def _n_tokens(self, i: int) -> int:
        x, _ = self[i]
        return len(x) if isinstance(x, Tensor) else x["input_ids"].shape[-1]

    @property
    def is_encoded(self) -> bool:
        """Whether samples are rows of numbers, as the network takes them: `take` then gives many at once."""
        return self.preprocessing.keeps_tensors and isinstance(self._items, Tensor)

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return a batch of encoded samples, as `collate_fn` does but without a loop over them."""
        if not isinstance(self._items, Tensor):
            raise TypeError("only encoded samples can be taken at once")
        chosen = rows.numpy()
        x = self._items[torch.from_numpy(self.positions[chosen].astype(np.int64))]
        if self._labels is None:
            return x, torch.full((len(rows),), -1)
        return x, torch.from_numpy(self._labels[chosen].astype(np.int64))

    def original(self, i: int) -> object:
        """Return the original of the i-th sample: the row, the text or the path it came from."""
        return self._origins[int(self.positions[i])]

    def originals(self, positions: Sequence[int]) -> list[Any]:
        """Return the originals of several samples. One pass over a large table gives them all."""
        places = self.positions[list(positions)].tolist()
        if isinstance(self._origins, Rows):
            return self._origins.fetch(places)
        return [self._origins[i] for i in places]

    def digests(self) -> NDArray[np.uint64] | None:
        """Return a hash of the input and the label of each row or text, None for other kinds of data."""
        if not (self.is_encoded or self.preprocessing.has_tokens):
            return None
        found = np.empty(len(self), np.uint64)
        for i, place in enumerate(self.positions.tolist()):
            item = self._items[place]
            content = item.numpy().tobytes() if isinstance(item, Tensor) else repr(item).encode()
            label = b"" if self._labels is None else repr(self._labels[i].tolist()).encode()
            found[i] = int.from_bytes(hashlib.blake2b(content + label, digest_size=8).digest(), "little")
        return found

    def features(self) -> NDArray[np.float64]:
        """Return encoded rows of a table as one array `[len(self), D]`."""
        if not isinstance(self._items, Tensor):
            raise TypeError("only rows of a table are encoded as a whole")
        return self._items[self.indices].double().numpy()

    def relabelled(self, labels: Sequence[int], *, augment: str | None = None) -> Split:
        """Return the same samples with other labels, `[len(self)]`, and perhaps another augmentation."""
        if len(labels) != len(self):
            raise ValueError(f"labels must be {len(self)}, one for each sample, got {len(labels)}")
        given = np.asarray(labels, np.int64)
        # Positions refer to the source, so the labels of its other samples are filled up with -1.
        every = np.full((len(self._items), *given.shape[1:]), -1, np.int64)
        every[self.positions] = given
        split = Split(
            self.preprocessing,
            self._items,
            self._origins,
            every,
            self.positions,
            augment=self.augment if augment is None else augment,
            seed=self.seed,
            notes=self.notes,
        )
        split.weights = self.weights
        return split

    def set_epoch(self, epoch: int, seed: int) -> None:
        """Set the epoch that begins, so that its augmentation differs from the last one's."""
        self.epoch, self.seed = epoch, seed

    @property
    def collate_fn(self) -> Callable[..., tuple[Batch, Tensor]]:
        """What a `DataLoader` needs to make batches of these samples."""
        return self.preprocessing.collate


@dataclass(frozen=True, eq=False)
class Task:
    """Data to train a classifier on.

    `summary` is the record that a run keeps.

    Examples
    --------
    >>> import pandas as pd
    >>> from vicinal.data import load
    >>> frame = pd.DataFrame({"x": [0.5, 1.5, 2.5, 3.5] * 5, "y": ["a", "b"] * 10})
    >>> task = load(frame, target="y")
    >>> task.kind, task.classes, task.target_type
    ('tabular', ('a', 'b'), 'multiclass')
    """

    name: str
    """What was loaded."""
    kind: str
    """`"tabular"`, `"text"`, `"image"` or `"audio"`."""
    classes: tuple[str, ...]
    """The names of the classes, or of the labels of a multi-label task, in the order of the model's outputs."""
    train: Split = field(repr=False)
    """The samples to train on."""
    val: Split = field(repr=False)
    """The samples to select and calibrate on; may be empty."""
    test: Split = field(repr=False)
    """The samples to evaluate on; may be empty."""
    preprocessing: Preprocessing = field(repr=False)
    """Turns a sample into the input of a model; fitted on the training samples."""
    fingerprint: str
    """A hash of the content: equal data have equal fingerprints, wherever they lie."""
    notes: tuple[str, ...] = ()
    """Notes on what was inferred, left out and skipped, one sentence each."""
    warnings: tuple[str, ...] = ()
    """What may make the metrics too good to be true, one sentence each."""
    groups: Positions | None = field(default=None, repr=False)
    """The group of each sample of the source. A group stays on one side of a split."""
    target_type: str = "multiclass"
    """`"multiclass"`, or `"multilabel"` where a sample has 0 or 1 for each of `classes`."""

    @property
    def spec(self) -> Json:
        """The arguments of `models.build`: `models.build(**task.spec)` is the default network for this task."""
        several = {"exclusive": False} if self.target_type == "multilabel" else {}
        return {"n_classes": len(self.classes), **self.preprocessing.spec, **several}

    @property
    def collate_fn(self) -> Callable[..., tuple[Batch, Tensor]]:
        """What a `DataLoader` needs to make batches of any of the splits."""
        return self.preprocessing.collate

    @property
    def splits(self) -> dict[str, list[int]]:
        """Which samples of the source are in which split; `load(…, splits=…)` takes it back."""
        return {name: positions.tolist() for name, positions in self.positions.items()}

    @property
    def positions(self) -> dict[str, Positions]:
        """The splits as arrays, which take an eighth of the memory."""
        return {"train": self.train.positions, "val": self.val.positions, "test": self.test.positions}

    def counts(self) -> Mapping[str, list[int]]:
        """Return how many samples of each class, or with each label, each split has."""

        def count(split: Split) -> list[int]:
            labels = np.asarray(split.labels, np.int64)
            of_each = labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels, minlength=len(self.classes))
            counts: list[int] = of_each.tolist()
            return counts

        return {name: count(split) for name, split in (("train", self.train), ("val", self.val), ("test", self.test))}

    def summary(self) -> dict[str, object]:
        """Return all but the data, as JSON can hold it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "classes": list(self.classes),
            "fingerprint": self.fingerprint,
            "sizes": {"train": len(self.train), "val": len(self.val), "test": len(self.test)},
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            **({} if self.target_type == "multiclass" else {"task": self.target_type}),
        }
