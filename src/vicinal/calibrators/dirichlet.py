r"""Dirichlet calibration: an affine map of the logarithms of the probabilities.

.. math::
    p = \operatorname{softmax}(W \ln q + b), \quad q = \operatorname{softmax}(z), \qquad
    \min_{W, b}\ \mathrm{NLL} + \frac{\lambda}{K(K-1)} \sum_{i \ne j} W_{ij}^2 + \frac{\mu}{K} \sum_i b_i^2

If the probabilities of each class were Dirichlet distributed, this would be the posterior. The penalty leaves the
diagonal of W alone (off-diagonal and intercept regularisation, ODIR).

References
----------
Kull, Perello-Nieto, Kängsepp, Silva Filho, Song & Flach (2019), Beyond temperature scaling: Obtaining well-calibrated
multiclass probabilities with Dirichlet calibration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from scipy.special import log_softmax

from vicinal.calibrators.base import Calibrator, Floats, Labels, Logits
from vicinal.calibrators.newton import fit_matrix, thinned

#: Logarithms of probabilities are raised to this: one of exp(-700) would rule the fit alone.
_LEAST = -700.0


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DirichletCalibration(Calibrator):
    """Map the log-probabilities by a matrix and a bias, of which all but the diagonal are regularised (ODIR).

    It learns K² + K values; the predicted class can change. `StructuredMatrixScaling` needs no strength to be chosen.

    Parameters
    ----------
    off_diagonal, intercept
        λ and μ. The paper chooses both by cross-validation from powers of ten; 1 suits ten classes and thousands of
        samples.
    tol
        Done when no entry of the gradient of the penalised loss is larger. This also ends the search on data that the
        diagonal can separate, where no minimum exists.
    max_iter
        Stop, with a warning, after so many Newton steps.

    Attributes
    ----------
    matrix_ : float64 array of shape `[K, K]`
        W.
    bias_ : float64 array of shape `[K]`
        b.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]] * 100)
    >>> calibrator = DirichletCalibration().fit(logits, np.array([0, 0, 1, 1] * 100))
    >>> calibrator.predict_proba(logits[:1]).round(2)
    array([[0.67, 0.33]])
    """

    off_diagonal: float = 1.0
    intercept: float = 1.0
    tol: float = 1e-6
    max_iter: int = 100

    matrix_: Floats = field(init=False, repr=False)
    bias_: Floats = field(init=False, repr=False)

    def _solve(self, logits: Logits, labels: Labels, weights: Floats) -> dict[str, object]:
        z, y, w = thinned(logits, labels, weights)
        k = z.shape[1]
        penalty = np.full((k, k + 1), self.off_diagonal / (k * (k - 1)))
        penalty[np.arange(k), np.arange(k)] = 0.0
        penalty[:, k] = self.intercept / k
        d, b = fit_matrix(_log_probs(z), y, w, penalty, tol=self.tol, max_iter=self.max_iter)
        return {"matrix_": np.eye(k) + d, "bias_": b}

    def _calibrate(self, logits: Logits) -> Logits:
        mapped: Floats = np.einsum("nk,jk->nj", _log_probs(logits), self.matrix_)
        return mapped + self.bias_

    def _shapes(self, n_classes: int) -> dict[str, tuple[int, ...]]:
        return {"matrix_": (n_classes, n_classes), "bias_": (n_classes,)}


def _log_probs(logits: Logits) -> Floats:
    logs: Floats = np.maximum(log_softmax(logits.astype(np.float64), axis=1), _LEAST)
    return logs
