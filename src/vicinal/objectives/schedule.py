r"""Objectives that change over time: plain cross-entropy outside a window of epochs.

`Warmup(objective, epochs=5)` trains plainly for the first epochs; `During(objective, start=…, stop=…)` uses
the objective in the window [start, stop) only.

References
----------
Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, Section 3.3 (speech): a warm-up of five
epochs on the original examples.
Sun et al., "Mixup-Transformer: Dynamic Data Augmentation for NLP Tasks", COLING 2020: mixup in the last half of
training (so Zhang & Vaidya 2021, Section 4).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import torch.distributed as dist
from torch import Tensor

from vicinal import losses
from vicinal._checks import freeze, number
from vicinal._typing import Batch, Model, Step
from vicinal.objectives.base import Objective, mean_loss
from vicinal.objectives.forward import call

if TYPE_CHECKING:
    from vicinal.objectives.guided.aum import AUM


@dataclass(frozen=True, kw_only=True, repr=False)
class _Windowed(Objective):
    """An objective that is used while `epoch` is in [start, stop), with plain cross-entropy outside."""

    objective: Objective = field(kw_only=False)

    @abstractmethod
    def _window(self) -> tuple[float, float]:
        """Return start and stop, in epochs."""

    @final
    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        """Return the terms of the objective, or `{"plain": …}` outside its window; their sum is the loss."""
        if step.epoch is None:
            raise ValueError(f"{type(self).__name__} needs to know the time: pass epoch=, a float, in each call")
        if not self._inside(step.epoch):
            logits = call(model, x)
            return {"plain": mean_loss(losses.loss(logits, y), logits, y, step)}
        return self.objective.compute_terms(model, x, y, step)

    @final
    def forwards(self, step: Step, *, sharded: bool) -> set[int]:
        """Return how often the model may run in a step."""
        inside = step.epoch is None or self._inside(step.epoch)
        return self.objective.forwards(step, sharded=sharded) if inside else {1}

    @final
    def draw_ahead(self, x: Batch, y: Tensor, step: Step, model: Model | None = None) -> Callable[[], object] | None:
        """Return what draws for the objective, inside its window."""
        return self.objective.draw_ahead(x, y, step, model) if self.draws(step) else None

    @final
    def draws(self, step: Step) -> bool:
        """Whether the objective may draw, and this is inside its window."""
        return step.epoch is not None and self._inside(step.epoch) and self.objective.draws(step)

    def _inside(self, epoch: float) -> bool:
        start, stop = self._window()
        return start <= epoch < stop

    # The training state is the objective's.

    @final
    def tracker(self, n_samples: int) -> AUM | None:
        """Return what the objective's first run has to record."""
        return self.objective.tracker(n_samples)

    @final
    def bind(self, *args: Any, **kwargs: Any) -> Objective:
        """Return this schedule over the bound objective."""
        return replace(self, objective=self.objective.bind(*args, **kwargs))

    @property
    def balanced(self) -> Tensor | None:
        """The categories that the objective wants in each batch."""
        return self.objective.balanced

    @final
    def state_dict(self) -> dict[str, Tensor]:
        """Return the training state of the objective, empty if it keeps none."""
        return self.objective.state_dict()

    @final
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the training state of the objective."""
        self.objective.load_state_dict(state)

    @final
    def summary(self) -> dict[str, float]:
        """Return the metrics of the objective's training state."""
        return self.objective.summary()

    @final
    def all_reduce(self, group: dist.ProcessGroup | None = None) -> None:
        """Merge the training state of the objective over all ranks."""
        self.objective.all_reduce(group)


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

    Examples
    --------
    >>> import torch
    >>> from vicinal import Mixup
    >>> objective = Warmup(Mixup(alpha=0.1), epochs=5)
    >>> model = torch.nn.Linear(4, 3)
    >>> loss = objective(model, torch.randn(8, 4), torch.randint(3, (8,)), epoch=0.5)
    """

    epochs: float

    def __post_init__(self) -> None:
        freeze(self, objective=_check_objective(self.objective), epochs=number("epochs", self.epochs, low=0))

    def _window(self) -> tuple[float, float]:
        return self.epochs, float("inf")


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class During(_Windowed):
    """The objective from epoch `start` to before epoch `stop`, plain cross-entropy outside.

    Parameters
    ----------
    objective
        What to use inside the window.
    start, stop
        The window in epochs; `stop` may be `inf`.

    Examples
    --------
    >>> import torch
    >>> from vicinal import Mixup
    >>> objective = During(Mixup(alpha=1.0), start=2, stop=4)
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


def _check_objective(objective: object) -> Objective:
    if not isinstance(objective, Objective):
        raise TypeError(f"objective must be an objective such as Mixup(alpha=1.0), got {objective!r}")
    return objective
