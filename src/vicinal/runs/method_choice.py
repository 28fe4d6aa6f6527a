"""`--method auto`: plain training or mixup, whichever has the lower NLL on validation rows.

Each candidate is trained as the run would be, with its own temperature. The lowest NLL of the validation set decides,
and what was chosen and by how much is said. Validation rows decide when to stop, too, so a gain on them is optimistic.
Over many tables no method differs much from plain training (`benchmarks/README.md`).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from vicinal._atomic import Json
from vicinal.data import Task
from vicinal.experiment import Experiment, default_method
from vicinal.metrics import Evaluation, compare
from vicinal.metrics.comparison import Difference

#: The method that stands for a choice.
AUTO = "auto"
#: What is tried: plain training, and mixup at two strengths.
CANDIDATES = ("ERM()", "Mixup(alpha=0.2)", "Mixup(alpha=1.0)")
#: Rows of a table are few networks' work; above so many, and for other data, trying takes too long.
_MOST_ROWS = 50_000


@dataclass(frozen=True)
class MethodChoice:
    """What was chosen, and what the validation set shows of each candidate."""

    method: str
    nll: Mapping[str, float]
    """By method; empty where nothing was tried."""
    difference: Difference | None
    """The NLL of what was chosen less that of plain training, with a paired interval."""
    why: str = ""
    """Why nothing was tried."""

    def __str__(self) -> str:
        if self.difference is None and not self.nll:
            return f"method {self.method}: {self.why}"
        tried = ", ".join(f"{name} {nll:.4f}" for name, nll in self.nll.items())
        said = f"method {self.method}, by the NLL of validation rows ({tried})"
        if self.difference is None:
            return said
        gap = self.difference
        return f"{said}; less than plain training by {-gap.value:.4f} (95 % CI {-gap.high:.4f} to {-gap.low:.4f})"

    def to_dict(self) -> Json:
        """Return the record as JSON can hold it."""
        return dataclasses.asdict(self)


def choice_without_trial(experiment: Experiment, task: Task) -> MethodChoice | None:
    """Return the method where nothing is to be tried; None where candidates are."""
    default = default_method(experiment.model)
    if default == "ERM()":
        return MethodChoice(default, {}, None, "trees mix no rows")
    if not len(task.val):
        return MethodChoice(default, {}, None, "there is no validation set to choose by, so it is the default")
    if task.kind != "tabular" or len(task.train) > _MOST_ROWS:
        size = f"{len(task.train):,} {'rows' if task.kind == 'tabular' else 'samples'}"
        return MethodChoice(default, {}, None, f"to try others would take long with {size}, so it is the default")
    return None


def choice_among(evaluations: Mapping[str, Evaluation]) -> MethodChoice:
    """Return the method whose evaluation on validation rows has the lowest NLL; plain training is the first."""
    nll = {method: found.nll.value for method, found in evaluations.items()}
    plain, best = next(iter(nll)), min(nll, key=lambda method: nll[method])
    if best == plain:
        return MethodChoice(best, nll, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few samples
        return MethodChoice(best, nll, compare(evaluations[plain], evaluations[best]).differences["nll"])
