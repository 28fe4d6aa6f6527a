"""Predictions of a run on a set of samples with their figures, before and after the temperature: classes, or labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor

from vicinal.calibrators.labels import two_logits
from vicinal.metrics import (
    BinaryEvaluation,
    Evaluation,
    MultilabelEvaluation,
    evaluate,
    evaluate_binary,
    evaluate_multilabel,
)

__all__ = ["LabelsScored", "Scored", "ScoredSet", "scored", "scored_labels"]

E = TypeVar("E", Evaluation, MultilabelEvaluation)


@dataclass(frozen=True, eq=False)
class ScoredSet(Generic[E]):
    """What classes and several labels share."""

    name: str
    """`"val"`, `"test"`, or the source of a further set."""
    logits: Tensor
    """`[N, K]`, before the temperature."""
    labels: Tensor
    """The classes, `[N]`; of several labels 0 and 1, `[N, L]`."""
    before: E
    """The evaluation of the logits as they are."""
    after: E
    """The evaluation after the temperature."""
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    """Of a further set: which part of it was evaluated, what was left out."""

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON can hold them."""
        return {
            "name": self.name,
            **self._fitted(),
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            **({"notes": list(self.notes)} if self.notes else {}),
        }

    @abstractmethod
    def _fitted(self) -> dict[str, object]: ...


@dataclass(frozen=True, eq=False)
class Scored(ScoredSet[Evaluation]):
    """The predictions of a run on one set of samples, before the temperature, and their figures before and after."""

    temperature: float
    """That of the run, or the set's own, where a development set was given for it."""

    def _fitted(self) -> dict[str, object]:
        return {"temperature": self.temperature}

    def binary(self) -> BinaryEvaluation | None:
        """Return how the probability of the second of two classes fits and ranks; None of more, or of one alone."""
        if self.logits.shape[1] != 2 or len(self.labels.unique()) < 2:
            return None
        positive = (self.logits.double() / self.temperature).softmax(dim=1)[:, 1]
        return evaluate_binary(self.labels, positive, n_bins=self.after.n_bins)


@dataclass(frozen=True, eq=False)
class LabelsScored(ScoredSet[MultilabelEvaluation]):
    """The predictions of several labels on one set of samples, and their figures before and after the temperatures."""

    temperatures: Mapping[str, float]
    """By label."""

    @property
    def temperature(self) -> float:
        """The mean over labels."""
        return sum(self.temperatures.values()) / len(self.temperatures)

    def _fitted(self) -> dict[str, object]:
        return {"temperatures": dict(self.temperatures)}

    def binary(self, label: str) -> BinaryEvaluation | None:
        """Return how the probability of a label fits and ranks; None where it is always 0, or always 1."""
        return self.of_label(label).binary()

    def of_label(self, label: str) -> Scored:
        """Return one label alone, as if it were one of two classes, no and yes."""
        k = list(self.temperatures).index(label)
        return Scored(
            self.name,
            two_logits(self.logits[:, k]),
            self.labels[:, k],
            self.before.labels[label],
            self.after.labels[label],
            self.temperatures[label],
            notes=self.notes,
        )


def scored(
    name: str, logits: Tensor, labels: Tensor, temperature: float, n_bins: int = 15, *, notes: Sequence[str] = ()
) -> Scored:
    """Return the figures of predictions before and after a temperature."""
    before = evaluate(labels, logits=logits, n_bins=n_bins)
    after = evaluate(labels, logits=logits.double() / temperature, n_bins=n_bins)
    return Scored(name, logits, labels, before, after, temperature, notes=tuple(notes))


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
    return LabelsScored(name, logits, labels, before, after, temperatures, notes=tuple(notes))
