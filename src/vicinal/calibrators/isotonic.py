r"""Isotonic calibration: for each class, a non-decreasing function of its log-odds that is never sure.

Pool-adjacent-violators finds the blocks of the best non-decreasing step function,

.. math:: f = \arg\min_{f \text{ non-decreasing}} \sum_i w_i \big(1[y_i = k] - f(x_i)\big)^2

A block of m samples, s of them of the class, is given the Laplace estimate :math:`(s + 1)/(m + K)`, as if one sample of
each class had been seen in it: 0 of 5 does not show that a class is impossible. Where that makes a small block fall
below the one before, the two are pooled. The log-odds of the estimates are joined by straight lines between the centres
(mean log-odds) of the blocks, and are constant outside.

Of two classes it is fitted to the second. Of more, each class has its own, against the rest, and the answers are
normalised.

References
----------
Zadrozny & Elkan (2002), Transforming Classifier Scores into Accurate Multiclass Probability Estimates: one class
against the rest. Deviation: the estimates of blocks, which there may be 0 and 1, and the lines between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from vicinal.calibrators.base import (
    Calibrator,
    Floats,
    Labels,
    Logits,
    class_log_odds,
    joined_log_odds,
    learned_arrays,
)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class IsotonicCalibration(Calibrator):
    """Map each class's log-odds through a non-decreasing function, then normalise.

    It assumes no shape and needs many samples: from about a thousand on it does better than a fitted curve
    (Niculescu-Mizil & Caruana 2005). Flat stretches and the normalisation can change the predicted class.

    Attributes
    ----------
    centres_, values_ : lists of M float64 arrays
        The corners of each function: log-odds `centres_[k][j]` become `values_[k][j]`. M is 1 for two classes, else K.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.log([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]])
    >>> calibrator = IsotonicCalibration().fit(logits, np.array([0, 1, 0, 1]))
    >>> calibrator.predict_proba(logits).round(3)  # blocks of 0 of 1, 1 of 2 and 1 of 1
    array([[0.667, 0.333],
           [0.543, 0.457],
           [0.469, 0.531],
           [0.333, 0.667]])
    """

    centres_: list[Floats] = field(init=False, repr=False)
    values_: list[Floats] = field(init=False, repr=False)

    def _solve(self, logits: Logits, labels: Labels, weights: Floats) -> dict[str, object]:
        odds, k = class_log_odds(logits), logits.shape[1]
        classes = [1] if len(odds) == 1 else range(len(odds))
        corners = [smooth_corners(x, labels == c, weights, k) for c, x in zip(classes, odds, strict=True)]
        return {"centres_": [x for x, _ in corners], "values_": [f for _, f in corners]}

    def _calibrate(self, logits: Logits) -> Logits:
        maps = zip(class_log_odds(logits), self.centres_, self.values_, strict=True)
        return joined_log_odds(np.stack([np.interp(odds, x, f) for odds, x, f in maps]))

    def _restore(self, n_classes: int, **learned: object) -> dict[str, object]:
        m = 1 if n_classes == 2 else n_classes
        x, f = (learned_arrays(name, learned[name], m) for name in ("centres_", "values_"))
        if any(
            len(a) != len(b) or not len(a) or np.any(np.diff(a) <= 0) or np.any(np.diff(b) < 0)
            for a, b in zip(x, f, strict=True)
        ):
            raise ValueError("centres_ and values_ must increase and have the same lengths")
        return {"centres_": x, "values_": f}


def smooth_corners(
    scores: Floats, outcomes: NDArray[np.bool_], weights: Floats, n_classes: int
) -> tuple[Floats, Floats]:
    """Return the corners (centres, log-odds) of the smoothed non-decreasing fit of `outcomes` to `scores` (`[N]`).

    >>> x, f = smooth_corners(np.arange(4.0), np.array([False, True, False, True]), np.ones(4), 2)
    >>> x, (1 / (1 + np.exp(-f))).round(3)
    (array([0. , 1.5, 3. ]), array([0.333, 0.5  , 0.667]))
    """
    x, where = np.unique(scores, return_inverse=True)
    count = np.bincount(where, weights)
    hits = np.bincount(where, weights * outcomes)
    starts = isotonic_regression(hits / count, weights=count).blocks[:-1]
    while True:
        m, s = np.add.reduceat(count, starts), np.add.reduceat(hits, starts)
        estimates = (s + 1) / (m + n_classes)
        # Pooled blocks have a mean between theirs before smoothing, not after it: look again until none falls.
        kept = isotonic_regression(estimates, weights=m).blocks[:-1]
        if len(kept) == len(starts):
            break
        starts = starts[kept]
    centres = np.add.reduceat(count * x, starts) / m
    values: Floats = np.log(estimates) - np.log1p(-estimates)
    rising = np.concatenate([[True], np.diff(centres) > 0])  # scores that differ in the last digit may share a mean
    return centres[rising], np.maximum.accumulate(values[rising])
