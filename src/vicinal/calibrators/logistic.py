r"""Logistic regression on a few features, by Newton's method: the solver of quadratic scaling and beta calibration.

.. math::
    q_i = \sigma(o_i + \theta^\top f_i), \qquad
    \min_\theta\ \frac1n \sum_i w_i H(q_i, y_i) + \sum_j \lambda_j \theta_j^2
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from vicinal.calibrators.base import Floats, Labels
from vicinal.calibrators.newton import Local, newton_cg


def fit_logistic(
    features: Floats,
    offset: Floats,
    is_class: NDArray[np.bool_],
    weights: Floats,
    penalty: Floats,
    *,
    tol: float,
    max_iter: int,
) -> Floats:
    """Return θ `[D]` from features `[N, D]`, offsets `[N]`, whether each row is of the class, and weights `[N]`.

    >>> ones, labels = np.ones((4, 1)), np.array([True, True, True, False])
    >>> fit_logistic(ones, np.zeros(4), labels, np.ones(4), np.zeros(1), tol=1e-12, max_iter=50).round(4)  # log 3
    array([1.0986])
    """
    share = weights / weights.sum()

    def loss(theta: Floats) -> Local:
        odds = offset + features @ theta
        q = expit(odds)
        value = float(share @ (np.logaddexp(0, odds) - is_class * odds)) + float(penalty @ theta**2)
        gradient = features.T @ (share * (q - is_class)) + 2 * penalty * theta
        hessian = (features * (share * q * (1 - q))[:, None]).T @ features + np.diag(2 * penalty)
        return Local(value, gradient, hessian=hessian)

    return newton_cg(loss, np.zeros(features.shape[1]), tol=tol, max_iter=max_iter)


def fit_each(
    fit: Callable[[Floats, NDArray[np.bool_], Floats], Floats], odds: Floats, labels: Labels, weights: Floats
) -> Floats:
    """Return what `fit` finds for each row of `class_log_odds`, `[M, D]`: of two classes the second, else each."""
    classes = [1] if len(odds) == 1 else range(len(odds))
    return np.stack([fit(x, labels == k, weights) for k, x in zip(classes, odds, strict=True)])


def logistic_nll(odds: Floats, is_class: NDArray[np.bool_], weights: Floats) -> float:
    """Return the weighted mean loss of log-odds `[N]`."""
    return float(np.average(np.logaddexp(0, odds) - is_class * odds, weights=weights))
