"""What every objective shares: the call, and a `repr` that is the Python that builds it."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, final

import torch
from torch import Tensor

from vicinal._typing import Batch, MixingObjectiveLike, Model
from vicinal.objectives.forward import call

__all__ = ["CompositeObjective", "MixingObjective", "Objective", "check_mixing", "clean_and_mixed"]


class Objective(ABC):
    """A frozen record of hyper-parameters that turns a model and a batch into a loss."""

    @abstractmethod
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
        """Return the scalar loss of one batch.

        Parameters
        ----------
        model
            Called as `model(x)`, or `model(**x)` for a mapping; returns logits or an object with `.logits`.
        x
            A tensor, or a mapping of tensors.
        y
            Labels `[B]`, soft targets `[B, K]` that sum to one, or floats `[B]` for regression.
        index
            Each sample's position in the training set, for objectives that track samples.
        epoch
            How far training has come (2.5 = halfway through the third epoch), for those that change over time.
        generator
            Where randomness comes from; torch's global generator if not given.
        """

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # every objective is a dataclass
        parts = [f"{f.name}={getattr(self, f.name)!r}" if f.kw_only else repr(getattr(self, f.name)) for f in fields]
        return f"{type(self).__name__}({', '.join(parts)})"


class CompositeObjective(Objective):
    """An objective whose loss is a sum of terms that can be logged one by one."""

    @abstractmethod
    def terms(
        self,
        model: Model,
        x: Batch,
        y: Tensor,
        *,
        index: Tensor | None = None,
        epoch: float | None = None,
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """Return the terms by name, weights included; the arguments are those of every objective."""

    @final
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
        """Return the sum of the terms."""
        terms = self.terms(model, x, y, index=index, epoch=epoch, generator=generator)
        return torch.stack(list(terms.values())).sum()


class MixingObjective(Objective):
    """An objective made of three public steps: draw a plan, forward the mixed batch, take the loss."""

    label_smoothing: float

    @abstractmethod
    def draw(self, model: Model, x: Batch, y: Tensor, *, generator: torch.Generator | None = None) -> Any:
        """Draw the plan: every random choice of this step."""

    @abstractmethod
    def forward(self, model: Model, x: Batch, plan: Any) -> Tensor:
        """Mix as planned and return the logits.

        For `plan.beside_clean()` it takes `[x; x]`, or just `x`, and returns the clean logits before the mixed.
        """

    @abstractmethod
    def loss(self, logits: Tensor, y: Tensor, plan: Any) -> Tensor:
        """Return the loss of each mixed row, `[B]`."""

    @final
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
        """Draw, mix, forward, mean loss; the arguments are those of every objective."""
        plan = self.draw(model, x, y, generator=generator)
        logits = self.forward(model, x, plan)
        return self.loss(logits, y, plan).mean()


def check_mixing(base: Any) -> MixingObjectiveLike:
    """Return `base` if it has the three steps that composites are written over."""
    if isinstance(base, type) or not isinstance(base, MixingObjectiveLike):
        raise TypeError(
            f"base must be a mixing objective such as Mixup(alpha=1.0), one with draw, forward and loss, got {base!r}"
        )
    return base


def clean_and_mixed(
    base: MixingObjectiveLike, model: Model, x: Batch, plan: Any, *, split_forward: bool
) -> tuple[Tensor, Tensor]:
    """Return the logits of the clean and of the mixed batch, from one forward unless `split_forward`."""
    if split_forward:
        return call(model, x), base.forward(model, x, plan)
    clean, mixed = base.forward(model, x, plan.beside_clean()).chunk(2)
    return clean, mixed
