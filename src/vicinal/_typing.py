"""The protocols every layer speaks: batches, plans and objectives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

__all__ = ["Batch", "MixingObjectiveLike", "Model", "ObjectiveLike", "Plan"]

#: A tensor, or a tokenised batch: a mapping of tensors that the model receives as keyword arguments.
Batch: TypeAlias = "Tensor | Mapping[str, Tensor]"

#: Anything that turns a batch into logits, or into an object with `.logits`.
Model: TypeAlias = "torch.nn.Module"


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

    def beside_clean(self) -> Plan:
        """Return the plan for `[x; x]` that leaves the first half alone and mixes the second."""


@runtime_checkable
class ObjectiveLike(Protocol):
    """What a training loop calls instead of a loss."""

    def __call__(
        self,
        model: Model,
        x: Batch,
        y: Tensor,
        *,
        index: Tensor | None = None,
        epoch: float | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the scalar loss of one batch."""


@runtime_checkable
class MixingObjectiveLike(ObjectiveLike, Protocol):
    """An objective made of three public steps, over which LogitMix and RegMixup are written."""

    label_smoothing: float

    def draw(self, model: Model, x: Batch, y: Tensor, *, generator: torch.Generator | None = None) -> Any:
        """Draw the plan: every random choice of this step."""

    def forward(self, model: Model, x: Batch, plan: Any) -> Tensor:
        """Mix as planned and return the logits."""

    def loss(self, logits: Tensor, y: Tensor, plan: Any) -> Tensor:
        """Return the loss of each row, `[B]`."""
