r"""RandomChoice: one of several objectives, drawn for each batch.

.. math:: \mathcal{L} = \mathcal{L}_j, \qquad j \sim \mathrm{Categorical}(p_1, \dots, p_m)

As timm's `Mixup(…, switch_prob=…)` and torchvision's `RandomChoice([MixUp(…), CutMix(…)])` do for two; here any
objectives, with probabilities of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from torch import Tensor

from vicinal import _random
from vicinal._checks import ArgumentError, freeze, number
from vicinal._typing import Batch, Model, Step
from vicinal.objectives.base import Objective
from vicinal.objectives.forward import untraced


@final
@dataclass(frozen=True, kw_only=True, repr=False, init=False)
class RandomChoice(Objective):
    """Draw one of the objectives for each batch.

    Parameters
    ----------
    objectives
        What to choose from, one after the other, or as one list by its name.
    probs
        The probability of each; all the same if not given.

    Examples
    --------
    >>> import torch
    >>> from vicinal import CutMix, Mixup
    >>> objective = RandomChoice(Mixup(alpha=0.8), CutMix(alpha=1.0), probs=[0.5, 0.5])
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> loss = objective(model, torch.randn(8, 1, 8, 8), torch.randint(10, (8,)))
    """

    objectives: tuple[Objective, ...] = field(kw_only=False)
    probs: Sequence[float] = None  # type: ignore[assignment]  # filled in: all the same

    def __init__(
        self, *given: Objective, objectives: Sequence[Objective] = (), probs: Sequence[float] | None = None
    ) -> None:
        # By its name for LightningCLI, which knows no positional arguments.
        objectives = (*given, *objectives)
        if not objectives or not all(isinstance(objective, Objective) for objective in objectives):
            raise TypeError(f"RandomChoice takes objectives such as Mixup(alpha=1.0), got {list(objectives)}")
        for objective in objectives:
            if objective.tracker(1) is not None or objective.state_dict():
                raise TypeError(f"RandomChoice takes objectives without training state, got {objective!r}")
        freeze(self, objectives=objectives, probs=_checked(probs, len(objectives)))

    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        """Return the terms of the objective that was drawn."""
        k, drawn = (self._chosen(step), None) if step.drawn is None else step.drawn
        return self.objectives[k].compute_terms(model, x, y, replace(step, drawn=drawn))

    def draw_ahead(self, x: Batch, y: Tensor, step: Step, model: Model | None = None) -> Callable[[], object] | None:
        """Return what draws for the objective that is drawn, with its number."""
        k = self._chosen(step)
        draw = self.objectives[k].draw_ahead(x, y, step, model)
        if draw is None:  # for a loop, whose step draws again from where its generator starts
            return None if model is None else lambda: (k, None)
        return lambda: (k, draw())

    @untraced
    def _chosen(self, step: Step) -> int:
        return _random.categorical(self.probs, generator=step.generator)

    def forwards(self, step: Step, *, sharded: bool) -> set[int]:
        """Return how often the model may run in a step."""
        drawn = [o for o, p in zip(self.objectives, self.probs, strict=True) if p > 0]
        return {n for objective in drawn for n in objective.forwards(step, sharded=sharded)}

    def __repr__(self) -> str:
        return f"RandomChoice({', '.join(map(repr, self.objectives))}, probs={self.probs!r})"


def _checked(probs: object, n: int) -> tuple[float, ...]:
    if probs is None:
        return (1 / n,) * n
    if isinstance(probs, str) or not isinstance(probs, Sequence) or len(probs) != n:
        raise ArgumentError("probs", probs, f"{n} numbers, one for each objective")
    values = tuple(number("probs", p, low=0, high=1) for p in probs)
    if abs(sum(values) - 1) > 1e-6:
        raise ArgumentError("probs", probs, "numbers that sum to one")
    return values
