"""Histogram binning: for each class, the frequency of the class in the bin its probability falls into.

    p̂_ik ∝ max(θ_k[bin of p_ik], floor),    θ_k[b] = mean of 1[yⱼ = k] over the samples j with p_jk in bin b

References
----------
Zadrozny & Elkan (2001), Obtaining Calibrated Probability Estimates from Decision Trees and Naive Bayesian
Classifiers; one class against the rest as in Guo et al. (2017), On Calibration of Modern Neural Networks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from vicinal._arrays import equal_mass_edges
from vicinal._checks import flag, freeze, integer, number
from vicinal.calibrators.base import Calibrator, Floats, Labels, Logits, class_probs, learned_arrays, log_probs


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HistogramBinning(Calibrator):
    """Replace each class's probability by the frequency of the class in its bin, then normalise.

    Ties and the normalisation can change the predicted class. Bins are (lo, hi]; 0 belongs to the first.

    Parameters
    ----------
    n_bins : int
        Bins of each class.
    equal_mass : bool
        Bins of an equal number of samples each (Zadrozny & Elkan's, for two classes) instead of an equal width.
        With many classes nearly all probabilities of a class are close to 0, and so would be nearly all bins of
        equal mass: hence the default. Equal probabilities share a bin, which can leave fewer.
    floor : float
        Estimates below it are raised to it before they are normalised, so that no class is ruled out by the
        finite number of samples and every log-probability is finite.

    Attributes
    ----------
    edges_ : list of K float64 arrays
        The inner edges of each class's bins.
    values_ : list of K float64 arrays
        The estimate in each bin; a bin without samples keeps its middle.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.log([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]])
    >>> calibrator = HistogramBinning(n_bins=2).fit(logits, np.array([0, 1, 0, 1]))
    >>> calibrator.predict_proba(logits).round(3)
    array([[0.667, 0.333],
           [0.667, 0.333],
           [0.667, 0.333],
           [0.   , 1.   ]])
    """

    n_bins: int = 15
    equal_mass: bool = False
    floor: float = 1e-6

    edges_: list[Floats] = field(init=False, repr=False)
    values_: list[Floats] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        freeze(
            self,
            n_bins=integer("n_bins", self.n_bins, low=1),
            equal_mass=flag("equal_mass", self.equal_mass),
            floor=number("floor", self.floor, above=0, high=0.1),
        )

    def _solve(self, logits: Logits, labels: Labels, weights: Floats) -> dict[str, object]:
        edges, values = [], []
        for k, p in enumerate(class_probs(logits)):
            inner = (
                equal_mass_edges(p, self.n_bins, weights)
                if self.equal_mass
                else np.arange(1, self.n_bins) / self.n_bins
            )
            inner = inner[inner < p.max()] if self.equal_mass else inner  # above the largest there is no sample
            edges.append(inner)
            values.append(bin_frequencies(p, labels == k, inner, weights))
        return {"edges_": edges, "values_": values}

    def _calibrate(self, logits: Logits) -> Logits:
        maps = zip(class_probs(logits), self.edges_, self.values_, strict=True)
        return log_probs((value[np.searchsorted(edge, p)] for p, edge, value in maps), self.floor)

    def _restore(self, n_classes: int, **learned: object) -> dict[str, object]:
        edges, values = (learned_arrays(name, learned[name], n_classes) for name in ("edges_", "values_"))
        if any(len(e) + 1 != len(v) or np.any(np.diff(e) <= 0) for e, v in zip(edges, values, strict=True)):
            raise ValueError("edges_ must increase and be one fewer than values_")
        return {"edges_": edges, "values_": values}


def bin_frequencies(
    scores: Floats, outcomes: NDArray[np.bool_], edges: Floats, weights: Floats | None = None
) -> Floats:
    """Return the mean of `outcomes` in each bin between the inner `edges`; in an empty one, its middle.

    >>> bin_frequencies(np.array([0.1, 0.5, 0.9]), np.array([False, True, True]), np.array([0.5, 0.75]))
    array([0.5  , 0.625, 1.   ])
    """
    which = np.searchsorted(edges, scores)  # the number of edges below the score: bins are (lo, hi]
    w = np.ones(len(scores)) if weights is None else weights
    count = np.bincount(which, w, len(edges) + 1)
    hits = np.bincount(which, w * outcomes, len(edges) + 1)
    walls = np.concatenate([[0.0], edges, [1.0]])
    return np.where(count > 0, hits / np.where(count > 0, count, 1), (walls[:-1] + walls[1:]) / 2)
