"""What every layer speaks of: batches, models, plans, and what a call of an objective brings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

__all__ = ["Batch", "Constrained", "Model", "Plan", "Settling", "Step"]

#: A tensor, or a tokenised batch: a mapping of tensors that the model receives as keyword arguments.
Batch: TypeAlias = "Tensor | Mapping[str, Tensor]"

#: Anything that turns a batch into logits, or into an object with `.logits`.
Model: TypeAlias = "torch.nn.Module"


@dataclass(frozen=True, eq=False)
class Step:
    """What a call of an objective brings beside model, x and y; a method takes from it what it needs."""

    index: Tensor | None = None
    """Each sample's position in the training set, `[B]`."""
    epoch: float | None = None
    """How far training has come: 2.5 is halfway through the third epoch."""
    generator: torch.Generator | None = None
    """Where randomness comes from; torch's global generator if None."""
    weight: Tensor | None = None
    """How much each sample counts, `[B]`; all the same if None."""
    class_weights: Tensor | None = None
    """How much the samples of each class count, `[K]`; all the same if None."""


class Plan(Protocol):
    """One draw of a mixing objective: who is mixed with whom, and how much of each."""

    @property
    def mixed(self) -> bool:
        """False where this batch was left as it is (`alpha=0`, or `prob` decided against mixing)."""

    @property
    def weights(self) -> Tensor:
        """The share of each source in each row, `[B, k]`, summing to one; the first is the row itself."""

    @property
    def partners(self) -> Tensor:
        """The row numbers of those sources, `[B, k]`."""

    def combine(self, t: Tensor) -> Tensor:
        """Return Σₖ weightₖ · t[partnerₖ] for each row."""


@runtime_checkable
class Constrained(Protocol):
    """A network whose weights must stay within limits, as `SentenceCNN`'s."""

    def clip_norms(self) -> None:
        """Put the weights back within their limits; called after every optimizer step."""


@runtime_checkable
class Settling(Protocol):
    """A network that chooses something by held-out samples once it is trained, as `TwoViewMLP` the share of a view."""

    def settle(
        self, held_out: Iterable[tuple[Any, Tensor]], trained: Iterable[tuple[Any, Tensor, Tensor | None]]
    ) -> None:
        """Choose by the whole validation set; called in eval mode with the selected weights, on every rank.

        Parameters
        ----------
        held_out
            Batches of inputs as the network takes them, each with its labels.
        trained
            Those of the training set too, with what each sample counts, None where all count the same. Both can be read
            several times, and cost nothing where they are not.
        """
