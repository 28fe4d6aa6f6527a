"""Isotonic calibration: for each class, the best non-decreasing function of its probability.

    f_k = argmin over non-decreasing f of Σᵢ (1[yᵢ = k] − f(p_ik))²,    p̂_ik ∝ max(f_k(p_ik), floor)

Pool-adjacent-violators solves it exactly; f_k is linear between the samples' probabilities, constant outside.

References
----------
Zadrozny & Elkan (2002), Transforming Classifier Scores into Accurate Multiclass Probability Estimates: one
class against the rest, then normalised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from vicinal._checks import freeze, number
from vicinal.calibrators.base import Calibrator, Floats, Labels, Logits, class_probs, learned_arrays, log_probs

__all__ = ["IsotonicCalibration"]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class IsotonicCalibration(Calibrator):
    """Map each class's probability through a non-decreasing function, then normalise.

    It assumes no shape and needs many samples: from about a thousand on it does better than a fitted curve
    (Niculescu-Mizil & Caruana 2005). Ties and the normalisation can change the predicted class.

    Parameters
    ----------
    floor : float
        Estimates below it are raised to it, as in `HistogramBinning`.

    Attributes
    ----------
    thresholds_, values_ : lists of K float64 arrays
        The corners of each class's function: it is `values_[k][j]` at probability `thresholds_[k][j]`.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.log([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]])
    >>> calibrator = IsotonicCalibration().fit(logits, np.array([0, 1, 0, 1]))
    >>> calibrator.predict_proba(logits).round(3)
    array([[1. , 0. ],
           [0.5, 0.5],
           [0.5, 0.5],
           [0. , 1. ]])
    """

    floor: float = 1e-6

    thresholds_: list[Floats] = field(init=False, repr=False)
    values_: list[Floats] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        freeze(self, floor=number("floor", self.floor, above=0, high=0.1))

    def _solve(self, logits: Logits, labels: Labels) -> dict[str, object]:
        corners = [isotonic_corners(p, labels == k) for k, p in enumerate(class_probs(logits))]
        return {"thresholds_": [x for x, _ in corners], "values_": [f for _, f in corners]}

    def _calibrate(self, logits: Logits) -> Logits:
        maps = zip(class_probs(logits), self.thresholds_, self.values_, strict=True)
        return log_probs((np.interp(p, x, f) for p, x, f in maps), self.floor)

    def _restore(self, n_classes: int, **learned: object) -> dict[str, object]:
        x, f = (learned_arrays(name, learned[name], n_classes) for name in ("thresholds_", "values_"))
        if any(
            len(a) != len(b) or np.any(np.diff(a) <= 0) or np.any(np.diff(b) < 0) for a, b in zip(x, f, strict=True)
        ):
            raise ValueError("thresholds_ and values_ must increase and have the same lengths")
        return {"thresholds_": x, "values_": f}


def isotonic_corners(scores: Floats, outcomes: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the corners (x, f) of the non-decreasing least-squares fit of `outcomes` to `scores` (`[N]`).

    >>> isotonic_corners(np.array([0.1, 0.2, 0.3, 0.4]), np.array([False, True, False, True]))
    (array([0.1, 0.2, 0.3, 0.4]), array([0. , 0.5, 0.5, 1. ]))
    """
    x, where, count = np.unique(scores, return_inverse=True, return_counts=True)
    mean = np.bincount(where, weights=outcomes) / count  # equal scores are one point
    f = np.clip(isotonic_regression(mean, weights=count).x, 0, 1)
    corner = np.ones(len(x), dtype=bool)
    corner[1:-1] = (f[1:-1] != f[:-2]) | (f[1:-1] != f[2:])  # inside a flat stretch a point says nothing
    return x[corner], f[corner]
