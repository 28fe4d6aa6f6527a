r"""Structured matrix scaling (SMS): an affine map of the logits, held near one temperature.

.. math::
    x = \frac{\ln \operatorname{softmax}(z)}{T}, \qquad
    p = \operatorname{softmax}\big((I + \operatorname{diag} v + M)\,x + b\big), \qquad
    \min_{v, M, b}\ \mathrm{NLL} + \frac{K}{n}\big(\|v\|^2 + \|b\|^2\big) + \frac{K(K-1)}{n}\|M\|^2

M is zero on its diagonal, and T is the temperature that minimises the NLL alone. Each group is penalised by its number
of values over the number of samples: the map grows from one temperature over a scale and a bias a class to a whole
matrix as samples allow.

References
----------
Berta, Holzmüller, Jordan & Bach (2026), Structured Matrix Scaling for Multi-Class Calibration.

Deviation: logits are normalised, as in `structured_vector`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import final

import numpy as np

from vicinal.calibrators.base import Calibrator, Floats, Labels, Logits
from vicinal.calibrators.newton import fit_matrix, fit_vector, scaled_log_probs, thinned
from vicinal.calibrators.temperature import TemperatureScaling


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class StructuredMatrixScaling(Calibrator):
    """Map the logits by a matrix and a bias, regularised towards temperature scaling.

    It corrects classes that are taken for each other, which scales and biases cannot. The predicted class can change.
    It learns K² + K values: a Newton step takes N · K · (K + 1) products some ten times, and 1,000 classes would be a
    million values. Above `max_classes` it learns the diagonal and the bias alone, with a warning.

    Parameters
    ----------
    penalty
        What the ridge penalties are multiplied by; 1 in the paper.
    max_classes
        The most classes that a whole matrix is fitted for; of more it is structured vector scaling.
    tol
        Done when no entry of the gradient of the penalised loss is larger.
    max_iter
        Stop, with a warning, after so many Newton steps.

    Attributes
    ----------
    temperature_ : float
        T.
    matrix_ : float64 array of shape `[K, K]`
        I + diag v + M; of more than `max_classes` classes its diagonal, `[K]`.
    bias_ : float64 array of shape `[K]`
        b.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> logits = generator.normal(size=(20_000, 3))
    >>> truth = logits + 0.5 * logits[:, [0, 2, 1]]  # classes 1 and 2 are taken for each other
    >>> labels = (truth + generator.gumbel(size=truth.shape)).argmax(axis=1)
    >>> m = StructuredMatrixScaling().fit(logits, labels).matrix_
    >>> bool(min(m[1, 2], m[2, 1]) > 0.2 + max(m[0, 1], m[0, 2]))
    True
    """

    penalty: float = 1.0
    max_classes: int = 100
    tol: float = 1e-7
    max_iter: int = 100

    temperature_: float = field(init=False, repr=False)
    matrix_: Floats = field(init=False, repr=False)
    bias_: Floats = field(init=False, repr=False)

    def _solve(self, logits: Logits, labels: Labels, weights: Floats) -> dict[str, object]:
        temperature = TemperatureScaling().fit(logits, labels, sample_weight=weights).temperature_
        k, n = logits.shape[1], float(weights.sum())
        z, y, w = thinned(logits, labels, weights)
        x = scaled_log_probs(z, temperature)
        if k > self.max_classes:
            warnings.warn(
                f"a matrix of {k:,} classes has {k * k:,} values: only its diagonal and the bias are fitted; "
                f"max_classes={k} fits them all, in about {(k / 100) ** 2:.0f} times the time of 100 classes",
                stacklevel=3,
            )
            v, b = fit_vector(x, y, w, self.penalty * k / n, tol=self.tol, max_iter=self.max_iter)
            return {"temperature_": temperature, "matrix_": 1 + v, "bias_": b}
        penalty = np.full((k, k + 1), self.penalty * k * (k - 1) / n)
        penalty[np.arange(k), np.arange(k)] = penalty[:, k] = self.penalty * k / n
        d, b = fit_matrix(x, y, w, penalty, tol=self.tol, max_iter=self.max_iter)
        return {"temperature_": temperature, "matrix_": np.eye(k) + d, "bias_": b}

    def _calibrate(self, logits: Logits) -> Logits:
        x = scaled_log_probs(logits, self.temperature_)
        if self.matrix_.ndim == 1:
            return x * self.matrix_ + self.bias_
        # Not a matrix product of BLAS, whose last bits depend on the number of rows.
        mapped: Floats = np.einsum("nk,jk->nj", x, self.matrix_)
        return mapped + self.bias_

    def _shapes(self, n_classes: int) -> dict[str, tuple[int, ...]]:
        shape = (n_classes,) if n_classes > self.max_classes else (n_classes, n_classes)
        return {"matrix_": shape, "bias_": (n_classes,)}
