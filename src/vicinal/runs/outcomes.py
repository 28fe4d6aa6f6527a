"""What every run leads to, and what one of several labels does: a temperature and figures for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from vicinal.metrics import BinaryEvaluation, MultilabelEvaluation, evaluate_binary, evaluate_multilabel
from vicinal.runs.experiment import Experiment

__all__ = ["Finished", "LabelsOutcome", "LabelsScored", "scored_labels"]


@dataclass(frozen=True, eq=False)
class Finished:
    """What an experiment led to, whatever its targets are."""

    experiment: Experiment
    out: Path
    facts: dict[str, Any]
    """What the data turned out to be, the network, and everything worth saying: the rest of experiment.json."""
    fit: dict[str, Any]
    """result.json of the training."""
    history: list[dict[str, Any]]

    def objective_summary(self) -> str:
        """Return what the objective has to report, such as the AUM threshold of `GuidedMixup`; "" if nothing."""
        reported: Mapping[str, float] = self.fit.get("objective") or {}
        return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in reported.items())


@dataclass(frozen=True, eq=False)
class LabelsScored:
    """The predictions of several labels on one set of samples, and their figures before and after the temperatures."""

    name: str
    """`"val"`, `"test"`, or the source of a further set."""
    logits: Tensor
    """`[N, L]`, before the temperatures."""
    labels: Tensor
    """0 and 1, `[N, L]`."""
    temperatures: Mapping[str, float]
    """By label."""
    before: MultilabelEvaluation
    after: MultilabelEvaluation
    notes: tuple[str, ...] = ()
    """Of a further set: which part of it was evaluated, what was left out."""

    @property
    def temperature(self) -> float:
        """The mean over labels."""
        return sum(self.temperatures.values()) / len(self.temperatures)

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON can hold them."""
        return {
            "name": self.name,
            "temperatures": dict(self.temperatures),
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            **({"notes": list(self.notes)} if self.notes else {}),
        }

    def binary(self, label: str) -> BinaryEvaluation | None:
        """Return how the probability of a label fits and ranks; None where it is always 0, or always 1."""
        k = list(self.temperatures).index(label)
        if len(self.labels[:, k].unique()) < 2:
            return None
        probs = (self.logits[:, k].double() / self.temperatures[label]).sigmoid()
        return evaluate_binary(self.labels[:, k], probs, n_bins=self.after.n_bins)


@dataclass(frozen=True, eq=False)
class LabelsOutcome(Finished):
    """What an experiment with several columns of 0 and 1 as its target led to."""

    temperatures: dict[str, float]
    """By label, in the order of the outputs."""
    sets: dict[str, LabelsScored]
    """`"val"`, `"test"`, and `"also-1"`, …"""

    label_noise: ClassVar[None] = None
    """None: labels are drawn anew of classes only."""

    @property
    def test(self) -> LabelsScored:
        """The test set; an error where none was held out."""
        if "test" not in self.sets:
            raise ValueError(f"{str(self.out)!r} has no test set: train with test above 0")
        return self.sets["test"]

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON can hold them."""
        return {
            "method": self.fit["method"],
            "temperatures": self.temperatures,
            "seed": self.experiment.seed,
            "seconds": self.fit["seconds"],
            "sets": {key: s.to_dict() for key, s in self.sets.items()},
            **({"objective": self.fit["objective"]} if self.fit.get("objective") else {}),
        }


def scored_labels(
    name: str,
    logits: Tensor,
    labels: Tensor,
    temperatures: Mapping[str, float],
    n_bins: int = 15,
    *,
    notes: Sequence[str] = (),
) -> LabelsScored:
    """Return the figures of several labels before and after their temperatures."""
    scale = torch.tensor(list(temperatures.values()), dtype=torch.float64)
    names = list(temperatures)
    before = evaluate_multilabel(labels, logits=logits, names=names, n_bins=n_bins)
    after = evaluate_multilabel(labels, logits=logits.double() / scale, names=names, n_bins=n_bins)
    return LabelsScored(name, logits, labels, temperatures, before, after, tuple(notes))
