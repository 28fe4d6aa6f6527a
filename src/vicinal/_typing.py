"""Types that all layers share: batches, models, plans, and the arguments of an objective's call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

#: A tensor, or a tokenised batch: a mapping of tensors that the model receives as keyword arguments.
Batch: TypeAlias = "Tensor | Mapping[str, Tensor]"

#: Anything that turns a batch into logits, or into an object with `.logits`.
Model: TypeAlias = "torch.nn.Module"


@dataclass(frozen=True, eq=False)
class Step:
    """The arguments of an objective's call beside model, x and y; a method takes those it needs."""

    index: Tensor | None = None
    """Each sample's position in the training set, `[B]`."""
    epoch: float | None = None
    """How far training has come: 2.5 is halfway through the third epoch."""
    generator: torch.Generator | None = None
    """The random generator; torch's global one if None."""
    weight: Tensor | None = None
    """How much each sample counts, `[B]`; all the same if None."""
    class_weights: Tensor | None = None
    """How much the samples of each class count, `[K]`; all the same if None."""
    drawn: Any = None
    """The plan or the noise that the loop drew before the step (`Objective.draw_ahead`); drawn in it if None."""


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
class AfterFit(Protocol):
    """A network with a step after training, as `TwoViewMLP`, which chooses how much each view counts."""

    def after_fit(self, train: Iterable[tuple[Any, Tensor, Tensor | None]], val: Iterable[tuple[Any, Tensor]]) -> None:
        """Finish the network; called in eval mode, with the selected weights, on every rank.

        Parameters
        ----------
        train
            Batches of inputs as the network takes them, with their labels and with what each sample counts, None where
            all count the same.
        val
            Batches of inputs and labels. Both can be read several times, and cost nothing where they are not.
        """
