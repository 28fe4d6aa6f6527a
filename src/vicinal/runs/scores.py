"""Predictions of a run on one set of samples, with the metrics of each head before and after its calibrator.

A multi-class model has one head. A multi-label model has a head for each label, which is a question of two classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from vicinal.calibrators.two_logits import two_logits
from vicinal.metrics import BinaryEvaluation, Evaluation, evaluate, evaluate_binary
from vicinal.runs.calibration import ONLY_HEAD, HeadCalibrators


@dataclass(frozen=True, eq=False)
class Scores:
    """Predictions on one set of samples, and their metrics.

    Examples
    --------
    >>> import torch
    >>> fitted = HeadCalibrators.of_temperatures({ONLY_HEAD: 2.0}, 2)
    >>> scores = score("test", torch.tensor([[4.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 1]), fitted)
    >>> round(scores.before.nll.value, 3), round(scores.after.nll.value, 3)
    (0.018, 0.127)
    """

    name: str
    """`"val"`, `"test"`, or the source of an extra evaluation set."""
    logits: Tensor
    """Before calibration, `[N, K]`; of a multi-label model `[N, L]`."""
    labels: Tensor
    """The classes, `[N]`; of a multi-label model 0 and 1, `[N, L]`."""
    calibrators: HeadCalibrators
    """Those of the run, or the set's own where a development set was given for it."""
    uncalibrated: Evaluation
    """Of the logits as they are."""
    calibrated: Evaluation
    """Of the calibrated logits."""
    groups: NDArray[np.int64] | None = field(default=None, kw_only=True)
    """The number of each sample's group, where the run has groups."""
    weights: NDArray[np.float64] | None = field(default=None, kw_only=True)
    """How much each sample counts, where the run has weights."""
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    """Of an extra evaluation set: which part of it was evaluated, what was left out."""

    @property
    def heads(self) -> dict[str, Evaluation]:
        """The evaluation of each head after its calibrator."""
        return dict(self.calibrated.heads) or {ONLY_HEAD: self.calibrated}

    @property
    def is_multilabel(self) -> bool:
        """Whether each head is a label."""
        return bool(self.calibrated.heads)

    @property
    def before(self) -> Evaluation:
        """The evaluation of the only head, before calibration."""
        return _only(self.uncalibrated)

    @property
    def after(self) -> Evaluation:
        """The evaluation of the only head, after calibration."""
        return _only(self.calibrated)

    @property
    def temperature(self) -> float:
        """The mean temperature of all heads, of which multi-class has one; NaN with other calibrators."""
        return self.calibrators.temperature

    def head(self, name: str) -> Scores:
        """Return one label alone, as if it were one of two classes, no and yes; the only head is all there is."""
        if not self.is_multilabel:
            return self
        before, after = self.uncalibrated.heads[name], self.calibrated.heads[name]
        k, alone = list(self.calibrators.by_head).index(name), self.calibrators.head(name)
        logits, labels = two_logits(self.logits[:, k]), self.labels[:, k]
        about: dict[str, Any] = {"groups": self.groups, "weights": self.weights, "notes": self.notes}
        return Scores(self.name, logits, labels, alone, before, after, **about)

    def binary(self, head: str | None = None) -> BinaryEvaluation | None:
        """Return how the probability of the second of two classes, or of a label, fits and ranks.

        It is None with more than two classes, with weights, which ranks do not know, and where all samples are of one
        class.
        """
        if head is not None:
            return self.head(head).binary()
        if self.weights is not None or self.is_multilabel or self.logits.shape[1] != 2 or len(self.labels.unique()) < 2:
            return None
        positive = self.calibrators(self.logits).softmax(dim=1)[:, 1]
        return evaluate_binary(self.labels, positive, n_bins=self.after.n_bins, groups=self.groups)

    def to_dict(self) -> dict[str, object]:
        """Return the metrics as JSON can hold them."""
        return {
            "name": self.name,
            **self.calibrators.to_dict(),
            "before": self.uncalibrated.to_dict(),
            "after": self.calibrated.to_dict(),
            **({"notes": list(self.notes)} if self.notes else {}),
        }


def score(
    name: str,
    logits: Tensor,
    labels: Tensor,
    calibrators: HeadCalibrators,
    n_bins: int = 15,
    *,
    groups: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    notes: Sequence[str] = (),
) -> Scores:
    """Return the metrics of predictions before and after the calibrator of each head."""
    together = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1].astype(np.int64)
    together = None if together is None or not together.any() else together  # one group says nothing of others
    target_type = "multiclass" if labels.ndim == 1 else "multilabel"
    names, counted = list(calibrators.by_head), None if weights is None else np.asarray(weights, np.float64)
    how: dict[str, Any] = {"names": names, "n_bins": n_bins, "groups": together, "sample_weight": counted}
    before, after = (evaluate(labels, logits=z, target_type=target_type, **how) for z in (logits, calibrators(logits)))
    about: dict[str, Any] = {"groups": together, "weights": counted, "notes": tuple(notes)}
    return Scores(name, logits, labels, calibrators, before, after, **about)


def _only(evaluation: Evaluation) -> Evaluation:
    if evaluation.heads:
        raise ValueError(f"this needs classes, and there are {len(evaluation.heads)} labels: take one head of them")
    return evaluation
