r"""Quadratic scaling: the log-odds of a class become a quadratic function of themselves.

.. math::
    q = \sigma(a + b\,x + c\,x^2), \qquad
    \min_{a, b, c}\ \mathrm{NLL} + \frac{2}{n}\big(a^2 + (b - 1)^2 + (c s)^2\big)

Here x are the log-odds after an unregularised temperature, and s their root mean square. If the log-odds of the two
classes are normally distributed with different variances, the posterior has this form. Beyond the log-odds that were
seen the curve continues as a straight line: a parabola would turn and call the clearest cases unlikely.

Of two classes it is fitted to the second. Of more, each class has its own, against the rest, and the answers are
normalised.

References
----------
Berta, Holzmüller, Jordan & Bach (2026), Structured Matrix Scaling for Multi-Class Calibration. The penalty, and the
straight ends, are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from vicinal.calibrators.base import Calibrator, Floats, Labels, Logits, class_log_odds, joined_log_odds
from vicinal.calibrators.logistic import fit_each, fit_logistic
from vicinal.calibrators.temperature import TemperatureScaling


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class QuadraticScaling(Calibrator):
    """Map the log-odds of a class by a quadratic function, regularised towards temperature scaling.

    For two classes, and where errors are one-sided or confidence is wrong in another way at its ends. The predicted
    class can change.

    Parameters
    ----------
    penalty
        What the ridge penalty 2 / n is multiplied by.
    tol
        Done when no entry of the gradient of the penalised loss is larger.
    max_iter
        Stop, with a warning, after so many Newton steps.

    Attributes
    ----------
    temperature_ : float
        What logits are divided by first.
    coefficients_ : float64 array of shape `[M, 3]`
        a, b and c; M is 1 for two classes, else K.
    range_ : float64 array of shape `[M, 2]`
        The lowest and highest log-odds that were seen, between which the curve is quadratic.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> labels = generator.integers(2, size=20_000)
    >>> x = np.where(labels == 1, generator.normal(2, 2, 20_000), generator.normal(-1, 1, 20_000))
    >>> calibrator = QuadraticScaling().fit(np.stack([0 * x, x], axis=1), labels)
    >>> (calibrator.coefficients_[0] / calibrator.temperature_ ** np.arange(3)).round(1)  # −0.69, 1.5, 0.375
    array([-0.7,  1.5,  0.4])
    """

    penalty: float = 1.0
    tol: float = 1e-8
    max_iter: int = 100

    temperature_: float = field(init=False, repr=False)
    coefficients_: Floats = field(init=False, repr=False)
    range_: Floats = field(init=False, repr=False)

    def _solve(self, logits: Logits, labels: Labels, weights: Floats) -> dict[str, object]:
        temperature = TemperatureScaling().fit(logits, labels, sample_weight=weights).temperature_
        odds = class_log_odds(logits.astype(np.float64) / temperature)
        ends = np.stack([odds.min(axis=1), odds.max(axis=1)], axis=1)
        return {
            "temperature_": temperature,
            "coefficients_": fit_each(self._fit, odds, labels, weights),
            "range_": ends,
        }

    def _fit(self, x: Floats, is_class: NDArray[np.bool_], weights: Floats) -> Floats:
        scale = max(float(np.sqrt(np.average(x**2, weights=weights))), 1e-300)
        features = np.stack([np.ones_like(x), x, x * (x / scale)], axis=1)
        penalty = np.full(3, 2 * self.penalty / float(weights.sum()))
        a, b, c = fit_logistic(features, x, is_class, weights, penalty, tol=self.tol, max_iter=self.max_iter)
        return np.array([a, 1 + b, c / scale])

    def _calibrate(self, logits: Logits) -> Logits:
        odds = class_log_odds(logits.astype(np.float64) / self.temperature_)
        inside = np.clip(odds, self.range_[:, :1], self.range_[:, 1:])
        a, b, c = (self.coefficients_[:, i, None] for i in range(3))
        return joined_log_odds(a + b * inside + c * inside**2 + (odds - inside) * np.maximum(b + 2 * c * inside, 0))

    def _restore(self, n_classes: int, **learned: object) -> dict[str, object]:
        restored: dict[str, Any] = super()._restore(n_classes, **learned)
        if (restored["range_"][:, 0] > restored["range_"][:, 1]).any():
            raise ValueError("range_ must hold a lower and a higher end for each class")
        return restored

    def _shapes(self, n_classes: int) -> dict[str, tuple[int, ...]]:
        m = 1 if n_classes == 2 else n_classes
        return {"coefficients_": (m, 3), "range_": (m, 2)}
