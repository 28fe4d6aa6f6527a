"""What a kind of data must offer; `tabular.py`, `text.py`, `image.py` and `audio.py` have one each.

A fifth kind is a file with a `Preprocessing`, a `Kind` and its options, and a line in `registry.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from vicinal.data.options import Options, ReadOptions
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.readers import Readers
from vicinal.data.splitting import Labels, Positions
from vicinal.data.task import Items, Split, Task

Source = TypeVar("Source")
Reader = TypeVar("Reader", bound=Preprocessing)
Record = TypeVar("Record", bound=Options)

#: A preprocessing, what it takes for every sample, and notes.
Fitted: TypeAlias = "tuple[Preprocessing, Items, list[str]]"
#: From the training positions and the labels of all samples, `[N]` or `[N, L]`, to the preprocessing, what it takes for
#: every sample, and notes.
Fit: TypeAlias = Callable[[Positions, Labels], "Fitted"]


@dataclass(frozen=True, eq=False)
class Request:
    """What `load` was asked for."""

    target: str | None
    """The column of the class. For several targets it is the column of their combinations."""
    labels: tuple[str, ...] = ()
    """The columns of 0 and 1 of a multi-label target."""
    kind: str | None = None
    records: tuple[Options, ...] = ()
    fitted: Preprocessing | None = None
    """A preprocessing to use again instead of fitting one."""
    seed: int = 0
    known_classes: bool = False
    """Whether the target holds classes however it looks, as in named data sets (Abalone: numbers of rings)."""
    readers: Readers = field(default_factory=Readers)
    """The processes that read it."""
    published: bool = False
    """Whether it is a named data set, treated as its papers do: dates and duplicates as they come, no clipping."""

    def options(self, record: type[Record]) -> Record:
        """Return the options of one class, the defaults where none were given."""
        return record.given(self.records)

    @property
    def max_bad(self) -> float | int:
        """How many rows or files may be unreadable."""
        return self.options(ReadOptions).max_bad


@dataclass(frozen=True, eq=False)
class Samples:
    """What a source holds before it is split. A sample's position is its place in the source."""

    kind: str
    origins: Sequence[object]
    labels: Labels
    """The class of each sample, a number of `classes`; -1 for what cannot be used."""
    classes: tuple[str, ...]
    fit: Fit
    fingerprint: str
    notes: list[str]
    parts: NDArray[np.int8] | None = None
    """Which of `PARTS` each sample is in, where the source is already split; -1 for none."""
    groups: Positions | None = None
    """Samples of one number stay on one side of the split."""
    weights: NDArray[np.float64] | None = None
    """How much each sample counts, where a column says it."""
    order: NDArray[np.float64] | None = None
    """Each sample's place in time, where the split goes by it."""
    augment: str = "none"
    is_ordered: bool = False
    """Whether the order of the classes means something and is kept."""


@dataclass(frozen=True, eq=False)
class NewData:
    """New data, read as a fitted preprocessing prescribes."""

    items: Items
    origins: Sequence[object]
    readable: Sequence[int]
    """The positions of samples that could be read."""
    names: Sequence[str | None] | None
    """The class of each sample; None where there are none."""
    parts: Sequence[str] | None
    """Which part of a source that is split already each sample belongs to."""
    notes: list[str]


@dataclass(frozen=True)
class Shown:
    """What a report shows of one sample: its texts, its row, or where it came from and a picture."""

    text: list[str] | None = None
    row: dict[str, object] | None = None
    origin: str | None = None
    picture: str | None = None
    """A PNG as a data address."""

    def to_dict(self) -> dict[str, object]:
        """Return what there is, as JSON can hold it."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, eq=False)
class Baseline:
    """What logistic regression learns from: matrices of each split's samples, dense or sparse."""

    train: Any
    val: Any
    """None without validation samples."""
    test: Any
    step: int = 1
    """`train` has every `step`-th training sample."""


class Kind(ABC, Generic[Source, Reader]):
    """A kind of data: how it is opened, fitted, read, shown, and what it is compared with.

    `Source` is what `open` takes: the files of a folder, arrays, or a scanned table.

    Examples
    --------
    >>> from vicinal.data.registry import KINDS
    >>> {name: kind.augmentations for name, kind in KINDS.items()}
    {'tabular': (), 'text': (), 'image': ('standard', 'crop', 'none'), 'audio': ('standard', 'specaugment', 'none')}
    """

    name: ClassVar[str]
    """What `load(kind=…)` and config.json call it."""
    preprocessing: ClassVar[type[Preprocessing]]
    """The class of its fitted preprocessing."""
    plural: ClassVar[str]
    """What a message calls its samples."""
    suffixes: ClassVar[frozenset[str]] = frozenset()
    """The suffixes of its files; none for what tables hold."""
    augmentations: ClassVar[tuple[str, ...]] = ()
    """What `augment` may be; none where training samples are never varied."""

    @abstractmethod
    def open(self, source: Source, request: Request) -> Samples:
        """Return the samples of a source, and how a preprocessing is fitted to them (`Samples.fit`)."""

    @abstractmethod
    def read(self, source: Any, preprocessing: Reader, max_bad: float | int, *, labelled: bool) -> NewData:
        """Return new data as the preprocessing prescribes, with classes where they are `labelled`."""

    @abstractmethod
    def show(self, split: Split, i: int, original: Any) -> Shown:
        """Return what a person can look at of the i-th sample, given its original."""

    @abstractmethod
    def baseline(self, task: Task) -> Baseline | None:
        """Return what logistic regression learns from, None where it cannot."""

    def warnings(
        self, preprocessing: Reader, items: Any, labels: Iterable[NDArray[np.int64]], train: Positions
    ) -> tuple[str, ...]:
        """Return what may make the metrics too good to be true, one sentence each."""
        return ()

    @final
    @final
    def reused(self, fitted: Preprocessing | None) -> Any:
        """Return a fitted preprocessing if it is of this kind, to be used again."""
        return fitted if isinstance(fitted, self.preprocessing) else None
