r"""Beta calibration: the log-odds of a class from the logarithms of its probability and of that of the rest.

.. math:: q = \sigma\big(a \ln p - b \ln(1 - p) + c\big), \qquad a, b \ge 0, \qquad \min_{a, b, c} \mathrm{NLL}

If the probabilities of the two classes were beta distributed, this would be the posterior. With a = b it is Platt
scaling of the log-odds. The loss is convex, so a minimum under the two bounds is the best of those with either, both or
none at 0 that is allowed.

Of two classes it is fitted to the second. Of more, each class has its own, against the rest, and the answers are
normalised.

References
----------
Kull, Silva Filho & Flach (2017), Beta calibration: a well-founded and easily implemented improvement on logistic
calibration for binary classifiers. Deviation: a ridge of 1 / n on a − 1, b − 1 and c over the mean loss, without which
data that can be separated have no minimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from vicinal.calibrators.base import Calibrator, Floats, Labels, Logits, class_log_odds, joined_log_odds
from vicinal.calibrators.logistic import fit_each, fit_logistic, logistic_nll


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class BetaCalibration(Calibrator):
    """Map a probability p to σ(a ln p − b ln(1 − p) + c), a function that never falls.

    For two classes and a few hundred samples or more, also where probabilities are not confident enough at one end and
    too confident at the other. Of two classes it changes the predicted class only at a new threshold.

    Parameters
    ----------
    penalty
        What the ridge penalty 1 / n is multiplied by.
    tol
        Done when no entry of the gradient of the loss is larger.
    max_iter
        Stop, with a warning, after so many Newton steps.

    Attributes
    ----------
    coefficients_ : float64 array of shape `[M, 3]`
        a, b and c; M is 1 for two classes, else K.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> labels = generator.integers(2, size=50_000)
    >>> p = np.where(labels == 1, generator.beta(3, 1, 50_000), generator.beta(1, 2, 50_000))
    >>> calibrator = BetaCalibration().fit(np.log(np.stack([1 - p, p], axis=1)), labels)
    >>> calibrator.coefficients_[0, :2].round(1)  # 3 − 1 and 2 − 1
    array([2., 1.])
    """

    penalty: float = 1.0
    tol: float = 1e-8
    max_iter: int = 200

    coefficients_: Floats = field(init=False, repr=False)

    def _solve(self, logits: Logits, labels: Labels, weights: Floats) -> dict[str, object]:
        return {"coefficients_": fit_each(self._fit, class_log_odds(logits), labels, weights)}

    def _fit(self, x: Floats, is_class: NDArray[np.bool_], weights: Floats) -> Floats:
        wide = np.concatenate([_features(x), np.ones((len(x), 1))], axis=1)
        at_one, ridge = np.array([1.0, 1.0, 0.0]), self.penalty / float(weights.sum())
        found: list[tuple[float, Floats]] = []
        for free in ([0, 1, 2], [0, 2], [1, 2], [2]):
            # θ is the difference from (1, 1, 0), or from 0 where a coefficient is held there.
            base = np.where(np.isin(np.arange(3), free), at_one, 0.0)
            penalty = np.full(len(free), ridge)
            theta = fit_logistic(
                wide[:, free], wide @ base, is_class, weights, penalty, tol=self.tol, max_iter=self.max_iter
            )
            full = base.copy()
            full[free] += theta
            if (full[:2] >= 0).all():
                cost = logistic_nll(wide @ full, is_class, weights) + ridge * float(((full - at_one) ** 2).sum())
                found.append((cost, full))
            if len(free) == 3 and found:  # the minimum without bounds is allowed
                break
        return min(found, key=lambda one: one[0])[1]

    def _calibrate(self, logits: Logits) -> Logits:
        odds = class_log_odds(logits)
        features = _features(odds)
        a, b, c = (self.coefficients_[:, i, None] for i in range(3))
        return joined_log_odds(a * features[..., 0] + b * features[..., 1] + c)

    def _restore(self, n_classes: int, **learned: object) -> dict[str, object]:
        restored: dict[str, Any] = super()._restore(n_classes, **learned)
        if (restored["coefficients_"][:, :2] < 0).any():
            raise ValueError("coefficients_ must have a and b of at least 0")
        return restored

    def _shapes(self, n_classes: int) -> dict[str, tuple[int, ...]]:
        return {"coefficients_": (1 if n_classes == 2 else n_classes, 3)}


def _features(odds: Floats) -> Floats:
    """Return ln p and −ln(1 − p) of log-odds, `[..., 2]`."""
    both: Floats = np.stack([-np.logaddexp(0, -odds), np.logaddexp(0, odds)], axis=-1)
    return both
