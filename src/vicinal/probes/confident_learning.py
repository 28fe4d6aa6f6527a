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
calibrated. ε has the interval of the profile likelihood. Class overlap moves T alone, so ε is noise beyond overlap.

A model that was trained on these labels may have learned a part of their noise, so that q holds it. With a share δ,

.. math:: q = \Big( 1 - \frac{\delta K}{K - 1} \Big)\, r + \frac{\delta}{K - 1}

where r is the probability of the class without noise. Labels follow q whatever δ is. Only small q that labels confirm
exclude large δ, since r is at least 0. So the interval of the noise, which is ε and δ together, ends at the largest δ
that the likelihood does not reject (two-sided, 5 %).

Candidates for review are those that the counts take, or as many with the highest probability of a wrong label by the
second model, if it expects more wrong ones among them by two standard deviations:

.. math:: w = 1 - (1 - \eta)\, r_y \big/ P(y \mid x), \qquad
    1 - \frac{\eta K}{K - 1} = \Big( 1 - \frac{\varepsilon K}{K - 1} \Big) \Big( 1 - \frac{\delta K}{K - 1} \Big)

The sum of 1 − w over the candidates is the expected number of false alarms, with δ = 0. The ends of the interval of the
noise η give its. That labels are wrong is claimed only where ε = 0 is rejected (one-sided, 1 %); then the candidates
are suspicious. Where classes overlap much, a few hundred labels cannot reject it, and candidates are for review alone.

References
----------
Northcutt, Jiang & Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", JAIR 2021, Sections 3.1 and
3.2 ("prune by noise rate").
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._arrays import as_labels, as_tensor
from vicinal.metrics import Estimate
from vicinal.metrics.chunks import class_numbers, two_columns

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
    """η, the share of labels that are wrong beyond class overlap, with its 95 % interval."""
    wrong: Tensor
    """The probability that each label is wrong, float64 `[N]`."""
    wrong_ends: tuple[Tensor, Tensor]
    """The same with the least and the most noise that the interval allows."""

    @property
    def suspicious(self) -> Tensor:
        """Which labels are claimed to be wrong, bool `[N]`: the candidates where noise is significant, else none."""
        return self.candidates if self.significant else torch.zeros_like(self.candidates)

    @property
    def false_alarms(self) -> Estimate:
        """The expected number of right labels among the candidates, with the ends that those of the noise give."""
        least, most = self.wrong_ends
        return Estimate(*(float((1 - wrong)[self.candidates].sum()) for wrong in (self.wrong, most, least)))

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
    noise, rejected, wrong = _fitted(_Mixture(p.numpy(), y.numpy()))
    prediction = p.argmax(dim=1)
    others = p.clone()
    others[rows, y] = -1.0
    margin = others.amax(dim=1) - p[rows, y]
    counted = _pruned(p, y, joint) & (prediction != y)
    issues = LabelIssues(counted, rejected, prediction, margin, joint, noise, wrong[0], (wrong[1], wrong[2]))
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


class _Mixture:
    """The second model of some labels: their likelihood by temperature T, noise ε and noise δ that was learned."""

    def __init__(self, p: Floats, y: NDArray[np.int64]) -> None:
        self.k: int = p.shape[1]
        self.z, self.at = np.log(np.maximum(p, 1e-12)), (np.arange(len(y)), y)

    def tempered(self, log_t: float) -> Floats:
        """Return q, `[N, K]`."""
        scaled = self.z / math.exp(log_t)
        scaled -= scaled.max(axis=1, keepdims=True)
        odds: Floats = np.exp(scaled)
        odds /= odds.sum(axis=1, keepdims=True)
        return odds

    def mixed(self, q: Floats, noise: float) -> Floats:
        """Return the probability of each label with noise, by that without, `[N]`."""
        p: Floats = np.maximum((1 - noise) * q + noise * (1 - q) / (self.k - 1), 1e-300)
        return p

    def unlearned(self, q: Floats, learned: float) -> Floats:
        """Return r of each label, `[N]`: what is left of q without the noise that was learned."""
        r = np.maximum(q - learned / (self.k - 1), 0)
        return np.asarray(r[self.at] / np.maximum(r.sum(axis=1), 1e-300))

    def profile(self, noise: float) -> tuple[float, float]:
        """Return the smallest negative log likelihood with this ε, and its log T."""
        from scipy.optimize import minimize_scalar

        def cost(log_t: float) -> float:
            return log_t**2 / (2 * _SPREAD**2) - float(np.log(self.mixed(self.tempered(log_t)[self.at], noise)).sum())

        found = minimize_scalar(cost, bounds=(-3.0, 3.0), method="bounded", options={"xatol": 1e-4})
        return float(found.fun), float(found.x)

    def most_learned(self, noise: float, q: Floats) -> float:
        """Return the largest δ that the likelihood does not reject."""

        def cost(learned: float) -> float:
            return -float(np.log(self.mixed(self.mixed(self.unlearned(q, learned), learned), noise)).sum())

        best, least = _minimum(cost)
        return _crossing(lambda learned: 2 * (cost(learned) - least) - _INTERVAL, best, _LARGEST)

    def wrong(self, noise: float, log_t: float, learned: float = 0.0) -> Tensor:
        """Return the probability that each label is wrong, `[N]`."""
        r = self.unlearned(self.tempered(log_t), learned)
        right = (1 - self.together(noise, learned)) * r / self.mixed(self.mixed(r, learned), noise)
        return torch.from_numpy(1 - right)

    def together(self, noise: float, learned: float) -> float:
        """Return η of ε and δ."""
        c: float = self.k / (self.k - 1)
        return (1 - (1 - noise * c) * (1 - learned * c)) / c


def _minimum(cost: Callable[[float], float]) -> tuple[float, float]:
    """Return where a function on [0, the largest noise] is smallest, and its value there."""
    from scipy.optimize import minimize_scalar

    found, none = minimize_scalar(cost, bounds=(0.0, _LARGEST), method="bounded"), cost(0.0)
    return (float(found.x), float(found.fun)) if found.fun < none else (0.0, none)


def _crossing(beyond: Callable[[float], float], inside: float, end: float) -> float:
    """Return where a function, negative inside, becomes positive on the way to an end, or the end."""
    from scipy.optimize import brentq

    if inside == end or beyond(end) <= 0:
        return end
    return float(brentq(beyond, min(inside, end), max(inside, end), xtol=1e-5))


def _fitted(model: _Mixture) -> tuple[Estimate, bool, list[Tensor]]:
    """Return the noise, whether ε = 0 is rejected, and which labels are wrong with this, the least and most noise."""
    value, least = _minimum(lambda noise: model.profile(noise)[0])

    def beyond(noise: float) -> float:
        return 2 * (model.profile(noise)[0] - least) - _INTERVAL

    low, high = _crossing(beyond, value, 0.0), _crossing(beyond, value, _LARGEST)
    log_t = {noise: model.profile(noise)[1] for noise in (value, low, high)}
    learned = model.most_learned(high, model.tempered(log_t[high]))
    wrong = [model.wrong(value, log_t[value]), model.wrong(low, log_t[low]), model.wrong(high, log_t[high], learned)]
    estimate = Estimate(value, low, model.together(high, learned))
    return estimate, 2 * (model.profile(0.0)[0] - least) > _REJECTS, wrong


def _checked(probs: Any, labels: Any) -> tuple[Tensor, Tensor]:
    p = as_tensor("probs", two_columns(probs, are_probs=True)).double()
    if p.ndim != 2 or p.shape[1] < 2 or len(p) == 0:
        raise ValueError(f"probs must have shape [N, K] with at least two classes, got {list(p.shape)}")
    if not bool(p.isfinite().all()) or float(p.min()) < 0 or not torch.allclose(p.sum(1), p.new_ones(()), atol=1e-4):
        raise ValueError("probs must be finite and at least 0, and each row must sum to 1")
    y = as_labels("labels", class_numbers(labels, None, p), n_classes=p.shape[1])
    if len(y) != len(p):
        raise ValueError(f"labels must be {len(p)}, one for each row of probs, got {len(y)}")
    return p, y
