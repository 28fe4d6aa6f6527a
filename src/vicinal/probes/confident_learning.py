r"""Finding mislabelled samples by the probabilities of models that did not see them: confident learning.

Let :math:`\hat p_j(x)` be the probability of class j by a model that was trained without x, and

.. math:: t_j = \frac{1}{|X_j|} \sum_{x \in X_j} \hat p_j(x)

its mean over the samples :math:`X_j` that are labelled j. A sample counts as one of class j with confidence where
:math:`\hat p_j(x) \ge t_j`; the most probable such class counts. :math:`C_{ij}` counts those labelled i. With rows
scaled to the number of samples of each label, it estimates how many samples labelled i belong to j. So many are taken,
those with the largest margin :math:`\hat p_j(x) - \hat p_i(x)`, unless their label is the most probable class. It
holds for two classes as for many.

Classes that overlap have the same counts without a wrong label. So a second model separates the two. Each label is
right with the calibrated probability of its class, and changed with probability ε:

.. math:: P(y \mid x) = (1 - \varepsilon)\, q_y + \varepsilon\, \frac{1 - q_y}{K - 1}, \qquad
    q = \mathrm{softmax}(\log \hat p / T)

T and ε have the largest likelihood, with log T ~ N(0, 0.25²), since probabilities of held-out samples are about
calibrated. ε has the interval of the profile likelihood. Class overlap moves T alone, so ε is the noise beyond overlap.

Candidates for review are those that the counts take, or as many with the highest probability of a wrong label by the
second model, if it expects more wrong ones among them by two standard deviations:

.. math:: w = \varepsilon\, \frac{1 - q_y}{K - 1} \Big/ P(y \mid x)

The sum of 1 − w over the candidates is the expected number of false alarms; the ends of ε's interval give its. That
labels are wrong is claimed only where ε = 0 is rejected (one-sided, 1 %); then the candidates are suspicious. Where
classes overlap much, a few hundred labels cannot reject it, and the candidates are for review alone.

References
----------
Northcutt, Jiang & Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", JAIR 2021, Sections 3.1 and
3.2 ("prune by noise rate").
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._arrays import as_labels, as_tensor
from vicinal.metrics import Estimate

#: Twice the difference of log likelihoods that rejects ε = 0, one-sided at 1 %, and that bounds a 95 % interval.
_REJECTS, _INTERVAL = 5.412, 3.841
#: Standard deviation of log T before anything is seen. Where classes overlap, labels alone do not separate T and ε.
_SPREAD = 0.25
#: Standard deviations by which the second model must expect more wrong labels to replace the choice of the counts.
_CLEARLY = 2.0
#: The largest ε: with two classes, more than half wrong labels are the other way round.
_LARGEST = 0.45

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LabelIssues:
    """Which labels look wrong. Made by `label_issues`.

    Examples
    --------
    >>> issues = label_issues([0, 0, 1, 1], probs=[[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.1, 0.9]])
    >>> issues.prediction.tolist()
    [0, 1, 1, 1]
    """

    candidates: Tensor
    """Which samples to review, bool `[N]`."""
    significant: bool
    """Whether the labels show noise beyond class overlap."""
    prediction: Tensor
    """The most probable class, int64 `[N]`."""
    margin: Tensor
    """The probability of the most probable other class less that of the label, float64 `[N]`."""
    joint: Tensor
    """How many samples of each label (rows) belong to each class (columns) by the counts, float64 `[K, K]`."""
    noise: Estimate
    """ε, the share of labels that are wrong beyond class overlap, with its 95 % interval."""
    clean_prob: Tensor
    """The probability of each label were there no noise, q of the label, float64 `[N]`."""

    @property
    def suspicious(self) -> Tensor:
        """Which labels are claimed to be wrong, bool `[N]`: the candidates where noise is significant, else none."""
        return self.candidates if self.significant else torch.zeros_like(self.candidates)

    @property
    def wrong(self) -> Tensor:
        """The probability that each label is wrong, float64 `[N]`."""
        return self._wrong(self.noise.value)

    def _wrong(self, noise: float) -> Tensor:
        flip = noise * (1 - self.clean_prob) / (len(self.joint) - 1)
        return flip / ((1 - noise) * self.clean_prob + flip).clamp(min=1e-300)

    @property
    def false_alarms(self) -> Estimate:
        """The expected number of right labels among the candidates, with the ends that those of ε give."""
        ends = (self.noise.value, self.noise.high, self.noise.low)
        return Estimate(*(float((1 - self._wrong(noise)[self.candidates]).sum()) for noise in ends))

    @property
    def ranking(self) -> Tensor:
        """All samples, the candidates first, within each the most probably wrong first; int64 `[N]`."""
        # The margin orders labels whose probability of being wrong is the same, such as 0.
        order = self.margin.argsort(descending=True, stable=True)
        order = order[self.wrong[order].argsort(descending=True, stable=True)]
        return order[self.candidates[order].long().argsort(descending=True, stable=True)]

    def __str__(self) -> str:
        n, flagged = len(self.margin), int(self.candidates.sum())
        low, high = 100 * self.noise.low, 100 * self.noise.high
        noise = f"{100 * self.noise.value:.1f} % of labels (95 % CI {low:.1f}–{high:.1f} %)"
        expected = self.false_alarms
        alarms = f"about {expected.value:.0f} (95 % CI {expected.low:.0f}–{expected.high:.0f})"
        if not self.significant:
            none = f"No label noise beyond class overlap is significant among {n:,} labels: {noise}."
            listed = f" Of {flagged:,} candidates for review, {alarms} are expected to be right."
            return none + listed * bool(flagged)
        return (
            f"{flagged:,} of {n:,} labels ({100 * flagged / n:.1f} %) look wrong; {alarms} of them are expected to be "
            f"false alarms. Label noise beyond class overlap: {noise}."
        )


def confident_joint(labels: object, *, probs: object) -> Tensor:
    r"""Return :math:`C_{ij}` with each row scaled to the number of samples labelled i, float64 `[K, K]`.

    A class in which no sample is confident is taken to be right: its row is on the diagonal.

    Parameters
    ----------
    labels
        Class numbers `[N]`.
    probs
        Out-of-sample probabilities, `[N, K]`.

    Returns
    -------
    Tensor
        The joint counts, float64 `[K, K]`. Rows are labels and columns are classes.

    Examples
    --------
    >>> confident_joint([0, 0, 1, 0], probs=[[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9]])
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


def label_issues(labels: object, *, probs: object) -> LabelIssues:
    """Return which labels look wrong by probabilities of models that were trained without the sample.

    Parameters
    ----------
    labels
        Class numbers `[N]`.
    probs
        Out-of-sample probabilities, `[N, K]`, such as those of cross-validation.

    Returns
    -------
    LabelIssues
        Which labels look wrong, their margins, and the share of wrong labels.

    Examples
    --------
    A tenth of the labels are flipped here. Confidence that varies is what tells a flipped label from a hard sample:

    >>> random = np.random.default_rng(0)
    >>> positive = random.beta(0.2, 0.2, 2000)
    >>> flipped = random.random(2000) < 0.1
    >>> labels = (random.random(2000) < positive) ^ flipped
    >>> issues = label_issues(labels.astype(int), probs=np.stack([1 - positive, positive], axis=1))
    >>> round(issues.noise.value, 2), 0.8 < float(issues.suspicious[flipped].double().mean())
    (0.11, True)
    """
    p, y = _checked(probs, labels)
    joint, rows = confident_joint(y, probs=p), torch.arange(len(y))
    noise, rejected, q = _fitted(p.numpy(), y.numpy())
    prediction = p.argmax(dim=1)
    others = p.clone()
    others[rows, y] = -1.0
    margin = others.amax(dim=1) - p[rows, y]
    counted = _pruned(p, y, joint) & (prediction != y)
    issues = LabelIssues(counted, rejected, prediction, margin, joint, noise, torch.from_numpy(q))
    order = torch.where(prediction != y, issues.wrong, -1.0).argsort(descending=True, stable=True)
    ranked = torch.zeros_like(counted)
    ranked[order[: int(counted.sum())]] = True
    gained, lost = issues.wrong[ranked & ~counted], issues.wrong[counted & ~ranked]
    spread = math.sqrt(float((gained * (1 - gained)).sum() + (lost * (1 - lost)).sum()))
    more = float(gained.sum() - lost.sum()) > _CLEARLY * spread
    return dataclasses.replace(issues, candidates=ranked) if more else issues


def _pruned(p: Tensor, y: Tensor, joint: Tensor) -> Tensor:
    """Return the samples with the largest margins of each pair of classes, as many as the counts say; bool `[N]`."""
    pruned = torch.zeros(len(y), dtype=torch.bool)
    for i, row in enumerate(joint.floor()):
        # Whole numbers with the same sum: the largest remainders are rounded up.
        short = round(float(joint[i].sum() - row.sum()))
        row[(joint[i] - row).argsort(descending=True, stable=True)[:short]] += 1
        members = (y == i).nonzero()[:, 0]
        for j in [int(j) for j in row.nonzero()[:, 0] if j != i]:
            largest = (p[members, j] - p[members, i]).topk(min(int(row[j]), len(members)))
            pruned[members[largest.indices]] = True
    return pruned


def _fitted(p: Floats, y: NDArray[np.int64]) -> tuple[Estimate, bool, Floats]:
    """Return ε with its interval, whether ε = 0 is rejected, and the probability q of each label without noise."""
    from scipy.optimize import brentq, minimize_scalar

    z = np.log(np.maximum(p, 1e-12))
    k = p.shape[1]

    def of_label(log_t: float) -> Floats:
        scaled = z / math.exp(log_t)
        scaled -= scaled.max(axis=1, keepdims=True)
        odds = np.exp(scaled)
        q: Floats = odds[np.arange(len(y)), y] / odds.sum(axis=1)
        return q

    def profile(noise: float) -> tuple[float, float]:
        """Return the smallest negative log likelihood with this ε, and its log T."""

        def cost(log_t: float) -> float:
            q = of_label(log_t)
            likelihood = np.log(np.maximum((1 - noise) * q + noise * (1 - q) / (k - 1), 1e-300)).sum()
            return log_t**2 / (2 * _SPREAD**2) - float(likelihood)

        found = minimize_scalar(cost, bounds=(-3.0, 3.0), method="bounded", options={"xatol": 1e-4})
        return float(found.fun), float(found.x)

    best = minimize_scalar(lambda noise: profile(noise)[0], bounds=(0.0, _LARGEST), method="bounded")
    none = profile(0.0)[0]
    value, least = (float(best.x), float(best.fun)) if best.fun < none else (0.0, none)

    def beyond(noise: float) -> float:
        return 2 * (profile(noise)[0] - least) - _INTERVAL

    low = brentq(beyond, 0.0, value, xtol=1e-5) if value > 0 and beyond(0.0) > 0 else 0.0
    high = brentq(beyond, value, _LARGEST, xtol=1e-5) if beyond(_LARGEST) > 0 else _LARGEST
    return Estimate(value, float(low), float(high)), 2 * (none - least) > _REJECTS, of_label(profile(value)[1])


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
