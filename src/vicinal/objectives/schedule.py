r"""Objectives that change over time: plain cross-entropy outside a window of epochs.

`Warmup(objective, epochs=5)` trains plainly for the first epochs; `Between(objective, start=…, stop=…)` uses
the objective in the window [start, stop) only.

References
----------
Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, Section 3.3 (speech): a warm-up of five
epochs on the original examples.
Sun et al., "Mixup-Transformer: Dynamic Data Augmentation for NLP Tasks", COLING 2020: mixup in the last half of
training.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import Tensor

from vicinal import losses
from vicinal._checks import freeze, number
from vicinal._typing import Batch, Model, ObjectiveLike
from vicinal.objectives.base import CompositeObjective, Objective
from vicinal.objectives.forward import call

__all__ = ["Between", "Warmup", "unscheduled"]


@dataclass(frozen=True, kw_only=True, repr=False)
class _Windowed(CompositeObjective):
    """An objective that is used while `epoch` is in [start, stop), with plain cross-entropy outside."""

    objective: ObjectiveLike = field(kw_only=False)

    @abstractmethod
    def _window(self) -> tuple[float, float]:
        """Return start and stop, in epochs."""

    @final
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
        """Return the terms of the objective, or `{"plain": …}` outside its window; their sum is the loss."""
        if epoch is None:
            raise ValueError(f"{type(self).__name__} needs to know the time: pass epoch=, a float, in each call")
        start, stop = self._window()
        if not start <= epoch < stop:
            return {"plain": losses.loss(call(model, x), y).mean()}
        inner = getattr(self.objective, "terms", None)
        if inner is not None:
            terms: dict[str, Tensor] = inner(model, x, y, index=index, epoch=epoch, generator=generator)
            return terms
        return {"loss": self.objective(model, x, y, index=index, epoch=epoch, generator=generator)}

    @final
    def bind(self, *args: Any, **kwargs: Any) -> _Windowed:
        """Return this schedule over the bound objective, for one that needs training state."""
        if not hasattr(self.objective, "bind"):
            raise TypeError(f"{self.objective!r} keeps no training state: there is nothing to bind")
        return replace(self, objective=self.objective.bind(*args, **kwargs))

    @final
    def state_dict(self) -> dict[str, Any]:
        """Return the training state of the objective, empty if it keeps none."""
        save = getattr(self.objective, "state_dict", None)
        return {} if save is None else dict(save())

    @final
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the training state of the objective."""
        load = getattr(self.objective, "load_state_dict", None)
        if load is not None:
            load(state)
        elif state:
            raise ValueError(f"{self.objective!r} keeps no training state, got {list(state)}")


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Warmup(_Windowed):
    """Plain cross-entropy for the first epochs, then the objective.

    Parameters
    ----------
    objective
        What to use after the warm-up.
    epochs
        Its length; fractions are allowed. Zhang et al. use 5 on speech commands.

    >>> from vicinal import Mixup
    >>> objective = Warmup(Mixup(alpha=0.1), epochs=5)
    >>> model = torch.nn.Linear(4, 3)
    >>> loss = objective(model, torch.randn(8, 4), torch.randint(3, (8,)), epoch=0.5)
    """

    epochs: float

    def __post_init__(self) -> None:
        freeze(
            self,
            objective=_check_objective(self.objective),
            epochs=number("epochs", self.epochs, low=0),
        )

    def _window(self) -> tuple[float, float]:
        return self.epochs, float("inf")


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Between(_Windowed):
    """The objective from epoch `start` to before epoch `stop`, plain cross-entropy outside.

    Parameters
    ----------
    objective
        What to use inside the window.
    start, stop
        The window in epochs; `stop` may be `inf`.

    >>> from vicinal import Mixup
    >>> objective = Between(Mixup(alpha=1.0), start=2, stop=4)
    >>> model = torch.nn.Linear(4, 3)
    >>> loss = objective(model, torch.randn(8, 4), torch.randint(3, (8,)), epoch=2.5)
    """

    start: float
    stop: float

    def __post_init__(self) -> None:
        start = number("start", self.start, low=0)
        freeze(
            self,
            objective=_check_objective(self.objective),
            start=start,
            stop=number("stop", self.stop, above=start, infinite=True),
        )

    def _window(self) -> tuple[float, float]:
        return self.start, self.stop


def unscheduled(objective: Any) -> Any:
    """Return the objective inside schedules: the one that may keep training state."""
    while isinstance(objective, _Windowed):
        objective = objective.objective
    return objective


def _check_objective(objective: Any) -> ObjectiveLike:
    if isinstance(objective, type) or not isinstance(objective, Objective):
        raise TypeError(f"objective must be an objective such as Mixup(alpha=1.0), got {objective!r}")
    return objective
