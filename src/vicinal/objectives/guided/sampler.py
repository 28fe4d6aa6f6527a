"""Batches that hold both AUM categories."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Sampler

from vicinal import _random
from vicinal._checks import flag, integer


class BalancedBatchSampler(Sampler[list[int]]):
    """Batches with as many high-AUM as low-AUM samples, for `GuidedMixup(pool="batch")`.

    High and low samples alternate, in a new random order in each epoch; a batch of odd size has one more of
    either. Every sample comes at least once per epoch: of unequal categories, the smaller one starts again,
    newly shuffled.

    Parameters
    ----------
    high
        Which samples are of the high category, bool `[N]`: the bound objective's `high`.
    batch_size
        At least 2.
    seed
        The order is a function of the seed and the epoch.
    drop_last
        Leave out a last batch that is not full.
    num_replicas, rank
        In distributed training, how many processes share the batches, and which one this is. All get equally
        many batches: the first ones are repeated at the end if need be.

    Examples
    --------
    >>> high = torch.tensor([True, True, False, False, False])
    >>> sampler = BalancedBatchSampler(high, batch_size=4)
    >>> sampler.set_epoch(1)
    >>> [high[batch].tolist() for batch in sampler]
    [[True, False, True, False], [True, False]]
    """

    def __init__(
        self,
        high: Tensor,
        batch_size: int,
        *,
        seed: int = 0,
        drop_last: bool = False,
        num_replicas: int = 1,
        rank: int = 0,
    ) -> None:
        if not isinstance(high, Tensor):
            raise TypeError(f"high must be a bool tensor [N], got {type(high).__name__}")
        if high.dtype != torch.bool or high.ndim != 1:
            raise ValueError(f"high must be a bool mask [N], got {high.dtype} {list(high.shape)}")
        self._categories = [high.cpu().nonzero()[:, 0], (~high.cpu()).nonzero()[:, 0]]
        if not all(len(members) for members in self._categories):
            raise ValueError("high must name samples of both categories: all are of one")
        self.batch_size = integer("batch_size", batch_size, low=2)
        self.seed = integer("seed", seed, low=0)
        self.drop_last = flag("drop_last", drop_last)
        self.num_replicas = integer("num_replicas", num_replicas, low=1)
        self.rank = integer("rank", rank, low=0)
        if self.rank >= self.num_replicas:
            raise ValueError(f"rank must be below num_replicas={num_replicas}, got {rank}")
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass."""
        self.epoch = integer("epoch", epoch, low=0)

    @property
    def sampler(self) -> BalancedBatchSampler:
        """Itself: where Lightning, and accelerate on several processes, look for the `set_epoch` to call."""
        return self

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of this rank, each a list of indices."""
        generator = torch.Generator().manual_seed(_random.seed_from("balanced", self.seed, self.epoch))
        longest = max(map(len, self._categories))
        columns = [_cycled(members, longest, generator) for members in self._categories]
        order = torch.stack(columns, dim=1).flatten().tolist()  # high, low, high, low, …
        for batch in range(self.rank, len(self) * self.num_replicas, self.num_replicas):
            start = batch % self._n_batches * self.batch_size
            yield order[start : start + self.batch_size]

    def __len__(self) -> int:
        return math.ceil(self._n_batches / self.num_replicas)

    @property
    def _n_batches(self) -> int:
        n = 2 * max(map(len, self._categories))
        return n // self.batch_size if self.drop_last else math.ceil(n / self.batch_size)


def _cycled(members: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Return `n` members: shuffled, then as often as needed shuffled again."""
    rounds = math.ceil(n / len(members))
    shuffled = [members[_random.permutation(len(members), generator=generator)] for _ in range(rounds)]
    return torch.cat(shuffled)[:n]
