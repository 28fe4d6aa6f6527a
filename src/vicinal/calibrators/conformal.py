r"""Prediction sets with a coverage guarantee: split conformal prediction from held-out logits.

A score :math:`s_k(x)` says how badly class k fits x. With the scores :math:`s_{y_i}(x_i)` of n held-out samples,

.. math::
    q = \text{the } \lceil (n+1)\,c \rceil\text{-th smallest of them}, \qquad C(x) = \{k : s_k(x) \le q\}

holds the true class with probability at least c for a new sample that is exchangeable with the held-out ones,
whatever the model (and at most :math:`c + 1/(n+1)` where no scores are equal). By class, with a q for each from its own
samples, it holds within each class. Fewer than :math:`c/(1-c)` samples cannot show it: q is then infinite and every
class is in the set.

References
----------
Vovk, Gammerman & Shafer, *Algorithmic Learning in a Random World*, 2005 (split conformal prediction).
Sadinle, Lei & Wasserman, "Least Ambiguous Set-Valued Classifiers with Bounded Error Levels", JASA 2019.
Romano, Sesia & Candès, "Classification with Valid and Adaptive Coverage", NeurIPS 2020.

Deviation from Romano et al.: by default (`randomised=False`) no random number breaks into the last class, so that a
prediction is reproducible. The score is the probability of all classes before k, which is 0 for the first: a set is
never empty, and where the first class alone is right more often than c, it covers more than c. With a uniform number u
for each row the score is :math:`s_k = \sum_{j \text{ before } k} p_j + u\,p_k`, no two are equal, and the coverage is c
to within :math:`1/(n+1)`.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from vicinal import _random
from vicinal._arrays import as_array, as_labels, as_matrix
from vicinal._checks import ArgumentError, flag, freeze, integer, number
from vicinal.calibrators.base import Floats, softmax

Self = TypeVar("Self", bound="PredictionSets")


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictionSets(abc.ABC):
    """A map from logits to sets of classes, fitted on held-out logits and labels; it never sees a model.

    A subclass writes `scores`.
    """

    coverage: float = 0.9
    by_class: bool = False
    thresholds_: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        coverage = number("coverage", self.coverage, above=0, high=1)
        if coverage == 1:
            raise ArgumentError("coverage", self.coverage, "a number in (0, 1)")
        freeze(self, coverage=coverage, by_class=flag("by_class", self.by_class))

    @abc.abstractmethod
    def scores(self, probs: Floats, uniform: Floats | None = None) -> Floats:
        """Return how badly each class fits each row, `[N, K]`, from probabilities `[N, K]` and random numbers `[N]`."""

    def fit(self: Self, logits: object, labels: object, *, generator: torch.Generator | None = None) -> Self:
        """Learn the threshold from held-out predictions, which neither training nor calibration has seen.

        Parameters
        ----------
        logits
            Calibrated or not, `[N, K]`: the guarantee holds for both, and sets of calibrated ones are more even.
        labels
            Class numbers `[N]`.
        generator
            Where the random numbers of randomised sets come from; torch's global generator if not given.
        """
        probs = _probs(logits)
        return self.fit_scores(self.scores_of_truth(logits, labels, generator=generator), labels, probs.shape[1])

    def scores_of_truth(self, logits: object, labels: object, *, generator: torch.Generator | None = None) -> Floats:
        """Return how badly the true class fits each row, `[N]`."""
        probs = _probs(logits)
        y = as_labels("labels", labels, n_classes=probs.shape[1]).numpy()
        if len(y) != len(probs):
            raise ValueError(f"logits and labels must have the same length, got {len(probs)} and {len(y)}")
        of_truth: Floats = self.scores(probs, self._uniform(len(y), generator))[np.arange(len(y)), y]
        return of_truth

    def fit_scores(self: Self, of_truth: Floats, labels: object, n_classes: int) -> Self:
        """Learn the threshold from what `scores_of_truth` returned, piece by piece, of all held-out rows."""
        y = as_array("labels", labels)
        groups = [of_truth[y == k] for k in range(n_classes)] if self.by_class else [of_truth]
        thresholds = np.array([conformal_quantile(group, self.coverage) for group in groups])
        freeze(self, thresholds_=thresholds if self.by_class else thresholds.repeat(n_classes))
        return self

    def _uniform(self, n: int, generator: torch.Generator | None) -> Floats | None:
        """Return a random number for each row, where the sets are randomised."""
        return None

    def __call__(self, logits: object, *, generator: torch.Generator | None = None) -> NDArray[np.bool_]:
        """Return which classes are in each row's set, bool `[N, K]`."""
        if not hasattr(self, "thresholds_"):
            raise RuntimeError(f"this {type(self).__name__} is not fitted: call fit(logits, labels) first")
        probs = _probs(logits)
        if probs.shape[1] != len(self.thresholds_):
            raise ValueError(f"logits must have {len(self.thresholds_)} classes, got shape {list(probs.shape)}")
        inside: NDArray[np.bool_] = self.scores(probs, self._uniform(len(probs), generator)) <= self.thresholds_
        return inside


@dataclass(frozen=True, kw_only=True, eq=False)
class LeastAmbiguousSets(PredictionSets):
    """The smallest sets on average (Sadinle et al.): classes whose probability is high enough; some sets are empty.

    Parameters
    ----------
    coverage
        c, the share of sets that hold the true class.
    by_class
        Whether it holds within each class.

    Attributes
    ----------
    thresholds_ : float64 array of shape `[K]`
        A class is in the set where its probability is at least one minus this.

    Examples
    --------
    >>> logits, labels = [[2.0, 0.0], [1.0, 0.0], [0.0, 3.0], [0.0, 0.5]], [0, 0, 1, 1]
    >>> LeastAmbiguousSets(coverage=0.75).fit(logits, labels)([[3.0, 0.0], [0.1, 0.0]])
    array([[ True, False],
           [False, False]])
    """

    def scores(self, probs: Floats, uniform: Floats | None = None) -> Floats:
        """Return one minus the probability of each class."""
        return 1 - probs


@dataclass(frozen=True, kw_only=True, eq=False)
class _RankedSets(PredictionSets):
    """Sets that take classes in the order of probability."""

    randomised: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze(self, randomised=flag("randomised", self.randomised))

    def _uniform(self, n: int, generator: torch.Generator | None) -> Floats | None:
        if not self.randomised:
            return None
        return _random.uniform_like(torch.empty(n, dtype=torch.float64), generator=generator).numpy()


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptiveSets(_RankedSets):
    """Larger sets where the model is less certain (Romano et al.): the most probable classes, until they hold enough.

    Parameters
    ----------
    coverage
        c, the share of sets that hold the true class.
    by_class
        Whether it holds within each class.
    randomised
        Whether a random number decides about the last class, for a coverage of exactly c. Sets can then be empty.

    Attributes
    ----------
    thresholds_ : float64 array of shape `[K]`
        A class is in the set where the classes before it hold at most this.

    Examples
    --------
    >>> logits, labels = [[2.0, 0.0], [1.0, 0.0], [0.0, 3.0], [0.5, 0.0]], [0, 0, 1, 1]
    >>> AdaptiveSets(coverage=0.75).fit(logits, labels)([[3.0, 0.0], [0.1, 0.0]])
    array([[ True, False],
           [ True,  True]])
    """

    def scores(self, probs: Floats, uniform: Floats | None = None) -> Floats:
        """Return the probability of all classes before each, and of u times its own."""
        return _before(probs, uniform)[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class RegularisedSets(_RankedSets):
    r"""Adaptive sets that are rarely large (RAPS): each class beyond the first `free` ones costs `penalty`.

    .. math:: s_k = \sum_{j \text{ before } k} p_j + \lambda \max(0, \text{rank}_k - k_{\text{free}})

    Angelopoulos, Bates, Malik & Jordan, "Uncertainty Sets for Image Classifiers using Conformal Prediction", ICLR 2021;
    without the random number by default, as in `AdaptiveSets`.

    Parameters
    ----------
    coverage
        c, the share of sets that hold the true class.
    by_class
        Whether it holds within each class.
    randomised
        As for `AdaptiveSets`.
    penalty
        λ ≥ 0; 0 gives adaptive sets.
    free
        How many classes cost nothing; the most probable has rank 1.

    Examples
    --------
    >>> logits, labels = [[2.0, 0.0], [1.0, 0.0], [0.0, 3.0], [0.5, 0.0]], [0, 0, 1, 1]
    >>> RegularisedSets(coverage=0.75).fit(logits, labels)([[3.0, 0.0], [0.1, 0.0]])
    array([[ True, False],
           [ True,  True]])
    """

    penalty: float = 0.01
    free: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze(self, penalty=number("penalty", self.penalty, low=0), free=integer("free", self.free, low=0))

    def scores(self, probs: Floats, uniform: Floats | None = None) -> Floats:
        """Return the probability of all classes before each, of u times its own, and the penalty of its rank."""
        before, rank = _before(probs, uniform)
        penalised: Floats = before + self.penalty * np.maximum(rank - self.free, 0)
        return penalised


def _before(probs: Floats, uniform: Floats | None) -> tuple[Floats, NDArray[np.int64]]:
    """Return the probability of the classes before each (and u times its own), and its rank from 1."""
    order = np.argsort(-probs, axis=1, kind="stable")
    falling = np.take_along_axis(probs, order, axis=1)
    before, rank = np.empty_like(falling), np.empty(probs.shape, np.int64)
    np.put_along_axis(before, order, np.cumsum(falling, axis=1) - falling, axis=1)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(1, probs.shape[1] + 1), probs.shape), axis=1)
    return before if uniform is None else before + uniform[:, None] * probs, rank


#: The kinds of sets by the names that the command takes.
SETS: dict[str, Callable[..., PredictionSets]] = {
    "least-ambiguous": LeastAmbiguousSets,
    "adaptive": AdaptiveSets,
    "adaptive-randomised": partial(AdaptiveSets, randomised=True),
    "regularised": RegularisedSets,
}


def kinds_of_sets(coverage: float, n_classes: int) -> dict[str, PredictionSets]:
    """Return the kinds of sets that are measured, not fitted yet, by what a table calls them."""
    raps = RegularisedSets(coverage=coverage)
    # With so few classes that none costs anything, regularised sets are the adaptive ones.
    regularised = {"regularised": raps} if n_classes > raps.free else {}
    return {
        "least ambiguous": LeastAmbiguousSets(coverage=coverage),
        "adaptive": AdaptiveSets(coverage=coverage),
        "adaptive, randomised": AdaptiveSets(coverage=coverage, randomised=True),
        **regularised,
        "least ambiguous, within each class": LeastAmbiguousSets(coverage=coverage, by_class=True),
    }


def conformal_quantile(scores: Floats, coverage: float) -> float:
    """Return the ⌈(n + 1)·c⌉-th smallest of n scores, infinity where there are too few.

    >>> conformal_quantile(np.array([0.3, 0.1, 0.2]), 0.5), conformal_quantile(np.array([0.3]), 0.9)
    (0.2, inf)
    """
    n = len(scores)
    rank = math.ceil((n + 1) * coverage - 1e-9)  # 10 · 0.9 is 9, whatever its last bit
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= n else math.inf


def _probs(logits: object) -> Floats:
    z = as_matrix("logits", logits)
    array = z.detach().cpu().double().numpy() if hasattr(z, "detach") else np.asarray(z, dtype=np.float64)
    if array.shape[1] < 2 or not np.isfinite(array).all():
        raise ValueError(f"logits must be finite numbers [N, K] of at least 2 classes, got shape {list(array.shape)}")
    return softmax(array)
