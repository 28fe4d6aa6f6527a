r"""Structured vector scaling (SVS): a scale and a bias for each class, held near one temperature.

.. math::
    x = \frac{\ln \operatorname{softmax}(z)}{T}, \qquad
    p = \operatorname{softmax}\big((I + \operatorname{diag} v)\,x + b\big), \qquad
    \min_{v, b}\ \mathrm{NLL} + \frac{K}{n}\big(\|v\|^2 + \|b\|^2\big)

T is the temperature that minimises the NLL alone. With few samples v and b stay near 0 and what is left is temperature
scaling. Two classes have a scale for ln p and one for ln(1 − p): it is beta calibration, held near a temperature.

References
----------
Berta, Holzmüller, Jordan & Bach (2026), Structured Matrix Scaling for Multi-Class Calibration.

Deviation: logits are normalised to logarithms of probabilities. Without it the fit would depend on a constant that
softmax does not see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from vicinal.calibrators.base import Calibrator, Floats, Labels, Logits
from vicinal.calibrators.newton import fit_vector, scaled_log_probs, thinned
from vicinal.calibrators.temperature import TemperatureScaling


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class StructuredVectorScaling(Calibrator):
    """Scale and shift the logit of each class, regularised towards temperature scaling.

    The predicted class can change. It costs about what vector scaling costs, and does not overfit small sets.

    Parameters
    ----------
    penalty
        What the ridge penalty K / n is multiplied by; 1 in the paper.
    tol
        Done when no entry of the gradient of the penalised loss is larger.
    max_iter
        Stop, with a warning, after so many Newton steps.

    Attributes
    ----------
    temperature_ : float
        T.
    scale_, bias_ : float64 arrays of shape `[K]`
        1 + v and b.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]] * 200)
    >>> labels = np.array([0, 0, 1, 1, 1] * 200)  # the first class is right in two of three cases, the second always
    >>> calibrator = StructuredVectorScaling().fit(logits, labels)
    >>> calibrator.predict_proba(logits[[0, 3]]).round(2)
    array([[0.66, 0.34],
           [0.01, 0.99]])
    """

    penalty: float = 1.0
    tol: float = 1e-7
    max_iter: int = 100

    temperature_: float = field(init=False, repr=False)
    scale_: Floats = field(init=False, repr=False)
    bias_: Floats = field(init=False, repr=False)

    def _solve(self, logits: Logits, labels: Labels, weights: Floats) -> dict[str, object]:
        temperature = TemperatureScaling().fit(logits, labels, sample_weight=weights).temperature_
        strength = self.penalty * logits.shape[1] / float(weights.sum())
        z, y, w = thinned(logits, labels, weights)
        v, b = fit_vector(scaled_log_probs(z, temperature), y, w, strength, tol=self.tol, max_iter=self.max_iter)
        return {"temperature_": temperature, "scale_": 1 + v, "bias_": b}

    def _calibrate(self, logits: Logits) -> Logits:
        return scaled_log_probs(logits, self.temperature_) * self.scale_ + self.bias_

    def _shapes(self, n_classes: int) -> dict[str, tuple[int, ...]]:
        return {"scale_": (n_classes,), "bias_": (n_classes,)}
