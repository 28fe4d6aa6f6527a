r"""Finding mislabelled samples by the probabilities of models that did not see them: confident learning.

Let :math:`\hat p_j(x)` be the probability of class j by a model that was trained without x, and

.. math:: t_j = \frac{1}{|X_j|} \sum_{x \in X_j} \hat p_j(x)

its mean over the samples :math:`X_j` that are labelled j. A sample counts as one of class j with confidence where
:math:`\hat p_j(x) \ge t_j`; the most probable such class counts. :math:`C_{ij}` counts those labelled i. With rows
scaled to the number of samples of each label, it estimates how many samples labelled i belong to j. So many are taken,
those with the largest margin :math:`\hat p_j(x) - \hat p_i(x)`, unless their label is the most probable class. It
holds for two classes as for many.

The estimate is of how many, and of as many suspects not all are wrong. So that more wrong labels are found, a sample is
taken, too, where :math:`\hat p_j(x) - \hat p_i(x) > 0.1` for some j: with two classes, where the other has more than
0.55. With `margin=1` the estimate alone counts, which is cleanlab's choice: fewer suspects, of which more are wrong.

References
----------
Northcutt, Jiang & Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", JAIR 2021, Sections 3.1 and
3.2 ("prune by noise rate").
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal._arrays import as_labels, as_tensor
from vicinal._checks import number

#: A margin that is suspicious whatever the estimate; `benchmarks/audit.py` shows what it gains.
MARGIN = 0.1


@dataclass(frozen=True, eq=False)
class LabelIssues:
    """Which labels look wrong. Made by `label_issues`."""

    suspicious: Tensor
    """Which samples, bool `[N]`."""
    prediction: Tensor
    """The most probable class, int64 `[N]`."""
    margin: Tensor
    """The probability of the most probable other class less that of the label, float64 `[N]`."""
    joint: Tensor
    """How many samples of each label (rows) belong to each class (columns) by the estimate, float64 `[K, K]`."""

    @property
    def ranking(self) -> Tensor:
        """All samples, the suspicious ones first, within each the largest margin first; int64 `[N]`."""
        order = self.margin.argsort(descending=True, stable=True)
        return order[self.suspicious[order].long().argsort(descending=True, stable=True)]

    def __str__(self) -> str:
        n, flagged = len(self.margin), int(self.suspicious.sum())
        wrong = float((self.joint.sum() - self.joint.trace()) / self.joint.sum())
        return (
            f"{flagged:,} of {n:,} samples ({100 * flagged / n:.2f} %) look mislabelled to models that did not see "
            f"them; estimated share of wrong labels {100 * wrong:.1f} %"
        )


def confident_joint(probs: object, labels: object) -> Tensor:
    r"""Return :math:`C_{ij}` with each row scaled to the number of samples labelled i, float64 `[K, K]`.

    A class in which no sample is confident is taken to be right: its row is on the diagonal.

    Parameters
    ----------
    probs
        Out-of-sample probabilities, `[N, K]`.
    labels
        Class numbers `[N]`.

    >>> confident_joint([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9]], [0, 0, 1, 0])
    tensor([[2., 1.],
            [0., 1.]], dtype=torch.float64)
    """
    p, y = _checked(probs, labels)
    n_classes = p.shape[1]
    counts = torch.bincount(y, minlength=n_classes).double()
    thresholds = torch.zeros(n_classes, dtype=torch.float64).index_add_(0, y, p.gather(1, y[:, None])[:, 0])
    # No sample can be confident of a class that no sample is labelled with.
    thresholds = torch.where(counts > 0, thresholds / counts, torch.inf)
    candidates = torch.where(p >= thresholds, p, -1.0)
    best, likely = candidates.max(dim=1)
    confident = best >= 0
    joint = torch.zeros(n_classes, n_classes, dtype=torch.float64)
    joint.index_put_((y[confident], likely[confident]), torch.ones(1, dtype=torch.float64), accumulate=True)
    empty = joint.sum(dim=1) == 0
    joint[empty, empty] = 1
    return joint * (counts / joint.sum(dim=1))[:, None]


def label_issues(probs: object, labels: object, *, margin: float = MARGIN) -> LabelIssues:
    """Return which labels look wrong by probabilities of models that were trained without the sample.

    Parameters
    ----------
    probs
        Out-of-sample probabilities, `[N, K]`, such as those of cross-validation.
    labels
        Class numbers `[N]`.
    margin
        A label is suspicious beyond the estimated number, too, where another class is more probable by more than this;
        1: none is.

    >>> issues = label_issues([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9]], [0, 0, 1, 0])
    >>> issues.suspicious
    tensor([False, False, False,  True])
    """
    p, y = _checked(probs, labels)
    clear = number("margin", margin, low=0, high=1)
    joint = confident_joint(p, y)
    rows = torch.arange(len(y))
    of_label = p[rows, y]
    others = p.clone()
    others[rows, y] = -1.0
    prediction = p.argmax(dim=1)
    suspicious = torch.zeros(len(y), dtype=torch.bool)
    for i in range(p.shape[1]):
        members = (y == i).nonzero()[:, 0]
        for j in range(p.shape[1]):
            n = min(round(float(joint[i, j])), len(members))
            if i != j and n:
                largest = (p[members, j] - p[members, i]).topk(n)
                suspicious[members[largest.indices]] = True
    suspicious &= prediction != y
    behind = others.amax(dim=1) - of_label
    return LabelIssues(suspicious | (behind > clear), prediction, behind, joint)


def _checked(probs: object, labels: object) -> tuple[Tensor, Tensor]:
    p = as_tensor("probs", probs).double()
    if p.ndim != 2 or p.shape[1] < 2 or len(p) == 0:
        raise ValueError(f"probs must have shape [N, K] with at least two classes, got {list(p.shape)}")
    if not bool(p.isfinite().all()) or float(p.min()) < 0 or not torch.allclose(p.sum(1), p.new_ones(()), atol=1e-4):
        raise ValueError("probs must be finite and at least 0, and each row must sum to 1")
    y = as_labels("labels", labels, n_classes=p.shape[1])
    if len(y) != len(p):
        raise ValueError(f"labels must be {len(p)}, one for each row of probs, got {len(y)}")
    return p, y
