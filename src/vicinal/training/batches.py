"""Which samples make which micro-batch: a function of the seed and the number, never of earlier draws.

The micro-batches of a run are numbered from 0 through all epochs. Epoch e is a permutation of the training set
drawn from (seed, e), cut into equal parts; micro-batch g is part g mod M of epoch g div M. A resumed run therefore
starts at any micro-batch without loading those before it, and rank r of W simply takes every W-th.
"""

from __future__ import annotations

import functools
import math
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, Subset, TensorDataset, default_collate

from vicinal import _random
from vicinal._typing import Batch
from vicinal.objectives.forward import n_rows
from vicinal.objectives.guided.sampler import BalancedBatchSampler

Collate = Callable[[list[Any]], object]


class MapDataset(Protocol):
    """A map-style dataset of `(x, y)`."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def __getitem__(self, index: int, /) -> object:
        """Return a sample."""


class EpochPlan:
    """How each epoch is ordered and cut.

    Parameters
    ----------
    n_samples
        The size of the training set.
    batch_size
        Samples in a micro-batch, at most.
    micro_batches_per_step
        The number of micro-batches in a step, over all ranks.
    seed
        The order is a function of the seed and the epoch.
    high
        Bool `[N]`, or None: batches then hold both categories alike (`BalancedBatchSampler`), for
        `GuidedMixup(pool="batch")`.
    lengths
        Integers `[N]`, or None: micro-batches then have samples of similar length. The order is cut into stretches of
        at most 50 micro-batches, each is sorted by length, and the micro-batches of the epoch are shuffled.

    >>> plan = EpochPlan(10, batch_size=4, micro_batches_per_step=2, seed=0)
    >>> plan.steps, [len(plan.indices(0, part)) for part in range(plan.parts)]
    (2, [2, 3, 2, 3])
    """

    def __init__(
        self,
        n_samples: int,
        *,
        batch_size: int,
        micro_batches_per_step: int,
        seed: int,
        high: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> None:
        self.n_samples, self.seed, self.batch_size, self.lengths = n_samples, seed, batch_size, lengths
        self._balanced = None
        self._length = n_samples
        if high is not None:
            self._length = 2 * max(int(high.sum()), int((~high).sum()))
            self._balanced = BalancedBatchSampler(high, batch_size=self._length, seed=seed)  # one batch: the order
        self.per_step = micro_batches_per_step
        self.steps = math.ceil(self._length / (batch_size * micro_batches_per_step))
        self.parts = self.steps * micro_batches_per_step
        # Two epochs: loaders ahead of the training ask for the next one while this one is in use.
        self._order = functools.lru_cache(maxsize=2)(self._draw)

    def size(self, micro: int) -> int:
        """Return the number of samples in a micro-batch, counted from the start of the run."""
        start, stop = part(self._length, self.parts, micro % self.parts)
        return stop - start

    def share(self, micro: int) -> float:
        """Return the share of its step's samples, over all ranks, that a micro-batch has."""
        if self.per_step == 1:
            return 1.0
        first = micro - micro % self.per_step
        return self.size(micro) / sum(self.size(first + k) for k in range(self.per_step))

    def indices(self, epoch: int, number: int) -> Tensor:
        """Return the samples of one part of an epoch."""
        start, stop = part(self._length, self.parts, number)
        return self._order(epoch)[start:stop].long()

    def _draw(self, epoch: int) -> Tensor:
        if self._balanced is not None:
            self._balanced.set_epoch(epoch)
            return torch.tensor(next(iter(self._balanced)))
        generator = torch.Generator().manual_seed(_random.seed_from("order", self.seed, epoch))
        small = torch.int32 if self.n_samples < 2**31 else torch.int64  # half the memory for the order of a large set
        order = _random.permutation(self.n_samples, generator=generator, dtype=small)
        if self.lengths is None or self.n_samples < self.parts:
            return order
        # A stretch is at most a quarter of the samples, so that a small set is not sorted as a whole.
        stretch = self.batch_size * min(50, max(1, self.n_samples // (4 * self.batch_size)))
        order = torch.cat([some[self.lengths[some].argsort(stable=True)] for some in order.split(stretch)])
        parts = [order[slice(*part(self.n_samples, self.parts, number))] for number in range(self.parts)]
        return torch.cat([parts[number] for number in _random.permutation(self.parts, generator=generator).tolist()])


def part(n: int, parts: int, number: int) -> tuple[int, int]:
    """Return start and stop of one of `parts` equal parts of `n`; with fewer samples than parts, some get the same.

    >>> [part(3, 4, number) for number in range(4)]
    [(0, 1), (0, 1), (1, 2), (2, 3)]
    """
    start = number * n // parts
    return start, max((number + 1) * n // parts, start + 1)


#: The samples of a micro-batch, `[B]`, and the epoch for which they are loaded.
Key: TypeAlias = tuple[int, Tensor]


class MicroBatches(Sampler[Key]):
    """The micro-batches of one rank, from micro-batch `start` to before `stop`, each as (epoch, indices)."""

    def __init__(self, plan: EpochPlan, *, start: int, stop: int, rank: int, world: int) -> None:
        self.plan = plan
        self.numbers = range(start + rank, stop, world)

    def __iter__(self) -> Iterator[Key]:
        """Yield one micro-batch after the other, through all epochs."""
        for number in self.numbers:
            epoch, position = divmod(number, self.plan.parts)
            yield epoch, self.plan.indices(epoch, position)

    def __len__(self) -> int:
        return len(self.numbers)


class KeyedDataset:
    """A dataset whose draws depend on (seed, epoch, index) alone, and which yields whole batches.

    A dataset with a method `set_epoch(epoch, seed)` is told the epoch and draws by itself. For any other the global
    generators of torch, Python and NumPy are seeded before each sample is loaded, which makes common transforms
    repeatable in any process. Tensors and encoded rows of tables draw nothing, and are indexed at once.

    Parameters
    ----------
    dataset
        Map-style, of `(x, y)`.
    seed, purpose
        The key of the draws.
    collate_fn
        Makes `(x, y)` of a list of samples; torch's default if None.
    """

    def __init__(self, dataset: MapDataset, seed: int, *, purpose: str, collate_fn: Collate | None = None) -> None:
        self.dataset, self.seed, self.purpose = dataset, seed, purpose
        self.collate_fn = default_collate if collate_fn is None else collate_fn
        owner: object = dataset
        rows: Tensor | None = None
        # Look through nested subsets for the dataset that owns the tensors or the augmentation.
        while type(owner) is Subset and not hasattr(owner, "set_epoch"):
            picked = torch.as_tensor(owner.indices)
            owner, rows = owner.dataset, picked if rows is None else picked[rows]
        self._set_epoch = getattr(owner, "set_epoch", None)
        self._epoch: int | None = None
        # A subclass may transform its samples, so that only torch's own class may be indexed past its __getitem__.
        self._tensors = owner.tensors if type(owner) is TensorDataset and collate_fn is None else None
        self._rows = rows
        self._take = getattr(dataset, "take", None) if getattr(dataset, "is_encoded", False) else None
        self._seeds = self._set_epoch is None and type(owner) is not TensorDataset

    def __len__(self) -> int:
        return len(self.dataset)

    def set_epoch(self, epoch: int) -> None:
        """Tell the dataset the epoch, if it changed."""
        if self._set_epoch is not None and epoch != self._epoch:
            self._set_epoch(epoch, self.seed)
        self._epoch = epoch

    def forget_epoch(self) -> None:
        """Tell the dataset again next time: training and validation may be parts of one dataset."""
        self._epoch = None

    @property
    def is_at_hand(self) -> bool:
        """Whether a batch is made by indexing alone, without a loader."""
        # A loader costs more than a small batch: tensors that are there already are indexed in this process.
        return self._tensors is not None or self._take is not None

    def __getitems__(self, key: Key) -> tuple[Tensor, object]:
        """Return the indices and the batch of a micro-batch."""
        epoch, index = key
        if self._tensors is not None:
            rows = index if self._rows is None else self._rows[index]
            return index, tuple(t[rows] for t in self._tensors)
        if self._take is not None:
            return index, self._take(index)
        return index, self.collate_fn([self._sample(epoch, i) for i in index.tolist()])

    def _sample(self, epoch: int, index: int) -> object:
        self.set_epoch(epoch)
        if self._seeds:
            # Before each sample, not each batch: a sample's augmentation must not depend on its neighbours or on the
            # worker.
            _random.seed_globals(_random.seed_from(self.purpose, self.seed, epoch, index))
        return self.dataset[index]


def training_batches(
    dataset: KeyedDataset, sampler: MicroBatches, *, num_workers: int, pin_memory: bool
) -> Iterator[tuple[Tensor, Batch, Tensor]]:
    """Yield (index, x, y) of each micro-batch; workers live as long as the run and load ahead across epochs."""
    return _loaded(dataset, sampler, num_workers, pin_memory)


def evaluation_batches(
    dataset: KeyedDataset, rows: range, *, batch_size: int, num_workers: int = 0, pin_memory: bool = False
) -> Iterator[tuple[Tensor, Batch, Tensor]]:
    """Yield (index, x, y) of these rows, in order."""
    every = torch.arange(rows.start, rows.stop, rows.step)
    return _loaded(dataset, [(0, index) for index in every.split(batch_size)], num_workers, pin_memory)


def listed_batches(
    dataset: KeyedDataset, batches: Iterable[Tensor], *, num_workers: int = 0
) -> Iterator[tuple[Tensor, Batch, Tensor]]:
    """Yield (index, x, y) of these rows, a batch for each tensor of them."""
    return _loaded(dataset, [(0, index) for index in batches], num_workers, pin_memory=False)


def _loaded(
    dataset: KeyedDataset, keys: Iterable[Key], num_workers: int, pin_memory: bool
) -> Iterator[tuple[Tensor, Batch, Tensor]]:
    # Pinned memory is made by the loader's thread, which copies while the GPU computes.
    if dataset.is_at_hand and not pin_memory:
        return (_checked(dataset.__getitems__(key)) for key in keys)
    loader: DataLoader[tuple[Tensor, Batch, Tensor]] = DataLoader(
        dataset,  # type: ignore[arg-type]  # it has __getitems__, for what the sampler yields
        batch_sampler=keys,  # type: ignore[arg-type]  # lists, for a DataLoader; it only passes them on
        collate_fn=_checked,  # type: ignore[arg-type]  # it gets what __getitems__ returns, not a list of samples
        num_workers=num_workers,
        pin_memory=pin_memory,
        worker_init_fn=_ignore_interrupts,
        # Without this the base seed of workers would be drawn from the global generator.
        generator=torch.Generator().manual_seed(0),
    )
    return iter(loader)


def _checked(loaded: tuple[Tensor, object]) -> tuple[Tensor, Batch, Tensor]:
    index, batch = loaded
    if not isinstance(batch, Sequence) or isinstance(batch, str) or len(batch) != 2:
        raise TypeError(f"a batch must be (x, y), got {type(batch).__name__}: let dataset[i] be (x, y)")
    x, y = batch
    if not isinstance(x, Tensor | Mapping):
        raise TypeError(f"x must be a tensor or a mapping of tensors, got {type(x).__name__}")
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a tensor, got {type(y).__name__}: let dataset[i] give an int, or pass collate_fn")
    n = index.shape[0]
    if y.ndim == 0 or y.shape[0] != n or n_rows(x) % n:
        raise ValueError(f"a batch of {n} samples has {n_rows(x)} rows of x and y {list(y.shape)}")
    return index, x, y


def _ignore_interrupts(worker: int) -> None:
    """Ignore Ctrl-C in workers: the training process needs them to finish the step."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
