"""Vector scaling: a scale and a bias for each class.

    p = softmax(w ∘ z + b),    (w, b) = argmin L,    L = mean(−log softmax(w ∘ zᵢ + b)[yᵢ])
    ∂L/∂b = mean(pᵢ − onehot(yᵢ)),    ∂L/∂w = mean((pᵢ − onehot(yᵢ)) ∘ zᵢ)

L is convex. It is minimised by L-BFGS over standardised columns of z: the same family, as w and b absorb the
change, and one whose conditioning does not depend on the scale and the offset of the logits.

References
----------
Guo, Pleiss, Sun & Weinberger (2017), On Calibration of Modern Neural Networks, Section 4.2.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import final

import numpy as np
from scipy.optimize import minimize

from vicinal.calibrators.base import Calibrator, Floats, Labels, Logits, map_rows


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class VectorScaling(Calibrator):
    """Scale and shift the logit of each class: `softmax(w ∘ z + b)`.

    Corrects classes that are predicted too often or too boldly, which one temperature cannot; with 2K numbers
    to learn it wants several samples of every class. The predicted class can change.

    Parameters
    ----------
    tol : float
        Done when no entry of the gradient of the mean loss is larger (with respect to the scale and bias of
        standardised logits). This also ends the search where no minimum exists: on data it can separate, and
        for the bias of a class without samples.
    max_iter : int
        Give up, with a warning, after so many iterations.

    Attributes
    ----------
    scale_, bias_ : float64 arrays of shape `[K]`
        `bias_` sums to zero: softmax does not see a common shift.

    Examples
    --------
    >>> import torch
    >>> generator = torch.Generator().manual_seed(0)
    >>> logits = torch.randn(20_000, 3, generator=generator)
    >>> truth = logits * torch.tensor([0.5, 1.0, 2.0]) + torch.tensor([1.0, 0.0, -1.0])
    >>> labels = torch.multinomial(truth.softmax(1), 1, generator=generator)[:, 0]
    >>> calibrator = VectorScaling().fit(logits, labels)
    >>> calibrator.scale_.round(1), calibrator.bias_.round(1)
    (array([0.5, 1. , 2. ]), array([ 1.,  0., -1.]))
    """

    tol: float = 1e-6
    max_iter: int = 1_000

    scale_: Floats = field(init=False, repr=False)
    bias_: Floats = field(init=False, repr=False)

    def _solve(self, logits: Logits, labels: Labels, weights: Floats) -> dict[str, object]:
        scale, bias = lbfgs_nll(logits, labels, weights, tol=self.tol, max_iter=self.max_iter)
        return {"scale_": scale, "bias_": bias}

    def _calibrate(self, logits: Logits) -> Logits:
        scaled: Logits = logits * self.scale_ + self.bias_
        return scaled

    def _shapes(self, n_classes: int) -> dict[str, tuple[int, ...]]:
        return {"scale_": (n_classes,), "bias_": (n_classes,)}


def lbfgs_nll(logits: Logits, labels: Labels, weights: Floats, *, tol: float, max_iter: int) -> tuple[Floats, Floats]:
    """Return the scale and the bias, `[K]` each, that minimise the mean negative log-likelihood."""
    mean, spread = _column_moments(logits, weights)

    def loss(flat: Floats) -> tuple[float, Floats]:
        value, gradient = nll_gradient(logits, labels, flat.reshape(2, -1), mean, spread, weights)
        return value, gradient.ravel()

    start = np.concatenate([spread, mean])  # scale 1 and bias 0
    solution = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": tol, "ftol": 0, "maxcor": 20},
    )
    worst = float(np.abs(solution.jac).max())
    if worst > tol:
        warnings.warn(
            f"stopped after {solution.nit} iterations with a gradient of {worst:.1e}, above tol={tol:g}", stacklevel=4
        )
    scale, bias = solution.x.reshape(2, -1)
    scale = scale / spread
    bias = bias - scale * mean
    return scale, bias - bias.mean()


def nll_gradient(
    logits: Logits, labels: Labels, params: Floats, mean: Floats, spread: Floats, weights: Floats | None = None
) -> tuple[float, Floats]:
    """Return the mean loss of (scale, bias) `[2, K]` over standardised logits, and its gradient, in float64."""
    scale, bias = params
    w = np.ones(len(labels)) if weights is None else weights

    def sums(chunk: Logits, y: Labels, each: Floats) -> tuple[float, Floats]:
        z = (chunk - mean) / spread
        log_p = z * scale + bias
        log_p -= log_p.max(axis=1, keepdims=True)
        error = np.exp(log_p)
        total = error.sum(axis=1, keepdims=True)
        labelled = np.arange(len(y)), y
        value = float((each * np.log(total[:, 0])).sum() - (each * log_p[labelled]).sum())
        error /= total
        error[labelled] -= 1
        error *= each[:, None]
        return value, np.stack([np.einsum("ij,ij->j", error, z), error.sum(axis=0)])

    parts = map_rows(sums, logits, labels, w)
    gradient: Floats = np.sum([part for _, part in parts], axis=0) / w.sum()
    return sum(value for value, _ in parts) / float(w.sum()), gradient


def _column_moments(logits: Logits, weights: Floats) -> tuple[Floats, Floats]:
    """Return each column's mean and standard deviation; 1 for a constant one, whose scale stays as it is."""
    total = weights.sum()
    mean = (
        np.sum(map_rows(lambda z, w: (z * w[:, None]).sum(axis=0, dtype=np.float64), logits, weights), axis=0) / total
    )
    square = np.sum(map_rows(lambda z, w: ((z - mean) ** 2 * w[:, None]).sum(axis=0), logits, weights), axis=0) / total
    return mean, np.where(square > 0, np.sqrt(square), 1.0)
