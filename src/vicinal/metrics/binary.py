"""Two classes: the probability of the second, "positive" one, as a diagram and as a ranking.

The metrics of confidence speak of the class that is answered. With two classes, and one of them rare, what is used is
often P(positive) itself, for a threshold or an order of one's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from vicinal._arrays import as_classes, as_vector
from vicinal.metrics.clusters import Groups
from vicinal.metrics.intervals import Estimate
from vicinal.metrics.ranking import grouped_ranking, ranking
from vicinal.metrics.reliability import ReliabilityTable

#: Bins of the fine table.
FINE_BINS = 10_000


@dataclass(frozen=True, eq=False)
class BinaryEvaluation:
    """How P(positive) fits and ranks.

    Examples
    --------
    >>> from vicinal.metrics import evaluate_binary
    >>> result = evaluate_binary([0, 1, 0, 1], [0.1, 0.8, 0.4, 0.3])
    >>> result.base_rate, result.auroc.value
    (0.5, 0.75)
    """

    table: ReliabilityTable
    """The reliability table of P(positive): how often samples with about this probability are positive."""
    auroc: Estimate
    """The chance that a positive sample has a higher probability than a negative one."""
    average_precision: Estimate
    """The area under precision over recall; at random it is the share of positives."""
    base_rate: float
    """The share of positives."""
    fine: ReliabilityTable | None = field(default=None, repr=False)
    """The same table of 10,000 bins, for curves over the threshold; None where it was not kept."""

    def to_dict(self) -> dict[str, object]:
        """Return the metrics as JSON can hold them."""
        metrics = {"auroc": self.auroc.to_dict(), "average_precision": self.average_precision.to_dict()}
        return {**metrics, "ece": self.table.ece(), "base_rate": self.base_rate}


def evaluate_binary(
    labels: object,
    positive_probs: object,
    *,
    n_bins: int = 15,
    level: float = 0.95,
    groups: ArrayLike | Groups | None = None,
) -> BinaryEvaluation:
    """Return how the probability of the positive class fits and ranks.

    Parameters
    ----------
    labels
        0 or 1 of each sample, `[N]`; both must occur.
    positive_probs
        P(1) of each, `[N]`.
    n_bins
        Of the reliability table.
    level
        Confidence level of the intervals.
    groups
        The group of each, `[N]`, where samples of a group are alike; see `evaluate`.

    Returns
    -------
    BinaryEvaluation
        The reliability table, AUROC and average precision, with intervals.

    Examples
    --------
    >>> evaluate_binary([0, 1, 0, 1], [0.1, 0.8, 0.4, 0.3]).auroc.value
    0.75
    """
    y, p = as_classes("labels", labels, n_classes=2), as_vector("positive_probs", positive_probs)
    if len(y) != len(p):
        raise ValueError(f"labels and positive_probs must have the same length, got {len(y)} and {len(p)}")
    if not 0 < int(y.sum()) < len(y):
        raise ValueError("labels must hold both classes")
    together = None if groups is None else Groups.of(groups, len(y))
    auroc, average_precision = ranking(p[y == 1], p[y == 0], level=level)
    if together is not None:
        auroc, average_precision = grouped_ranking(p, y == 1, together, (auroc, average_precision), level)
    table = ReliabilityTable.from_confidences(p, y == 1, n_bins=n_bins)
    fine = ReliabilityTable.from_confidences(p, y == 1, n_bins=FINE_BINS)
    return BinaryEvaluation(table, auroc, average_precision, float(np.mean(y)), fine)
