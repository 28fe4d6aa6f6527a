r"""Newton's method for convex losses of softmax models: the solver of the structured, Dirichlet and two-class scalings.

A loss is given by its value, its gradient g and its Hessian H, or products with H where there are many parameters. The
step d solves H d = −g exactly, or by conjugate gradients, preconditioned with the diagonal of H, to a residual that
shrinks with the gradient. It is halved until the loss falls (Armijo). Convergence is superlinear (Dembo, Eisenstat &
Steihaug 1982).

For logits :math:`u = u(\theta)` that are linear in θ, p = softmax(u) and weights w that sum to n,

.. math::
    L = \frac1n \sum_i w_i (-\log p_{i y_i}), \qquad \frac{\partial L}{\partial u_i} = \frac{w_i}{n} (p_i - e_{y_i}),
    \qquad \frac{\partial^2 L}{\partial u_i^2} \dot u_i = \frac{w_i}{n} p_i \circ (\dot u_i - p_i^\top \dot u_i)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from vicinal.calibrators.base import Floats, Labels, Logits

#: Numbers of logits that are worked on at once. Of more an evenly spaced part of the rows is taken, which is still
#: thousands of rows for each class.
MOST_NUMBERS = 2**25

#: Up to so many parameters the Hessian is formed: a few large matrix products in place of many small ones.
_DENSE = 256
#: Rows whose part of a Hessian is worked out at a time.
_ROWS = 8_192

#: What a step must gain of what its slope says (Armijo).
_GAIN = 1e-4


@dataclass(frozen=True, eq=False)
class Local:
    """A convex loss around a point."""

    value: float
    gradient: Floats
    product: Callable[[Floats], Floats] | None = None
    """The Hessian times a vector of the gradient's shape."""
    diagonal: Floats | None = None
    """Of the Hessian; positive numbers."""
    hessian: Floats | None = None
    """The Hessian itself, in place of the two."""


Loss: TypeAlias = Callable[[Floats], Local]


def newton_cg(loss: Loss, start: Floats, *, tol: float, max_iter: int) -> Floats:
    """Return the minimum of a convex loss: no entry of its gradient is larger than `tol` there, else a warning.

    >>> def square(t):
    ...     return Local(float(t @ t), 2 * t, hessian=2 * np.eye(2))
    >>> bool(np.abs(newton_cg(square, np.array([3.0, -4.0]), tol=1e-9, max_iter=5)).max() < 1e-9)
    True
    """
    point, here = start, loss(start)
    for _ in range(max_iter):
        if np.abs(here.gradient).max() <= tol:
            return point
        step = _exact(here.gradient, here.hessian) if here.hessian is not None else _conjugate_gradients(here, tol)
        slope = float(np.vdot(here.gradient, step))
        length = 1.0
        while True:
            there = loss(point + length * step)
            # Near the minimum the gain is less than the last digits of the loss.
            if there.value <= here.value + _GAIN * length * slope + 1e-14 * abs(here.value):
                break
            length /= 2
            if length < 1e-12:
                return _stopped(point, here, tol)
        point, here = point + length * step, there
    return _stopped(point, here, tol)


def _stopped(point: Floats, here: Local, tol: float) -> Floats:
    worst = float(np.abs(here.gradient).max())
    if worst > tol:
        warnings.warn(f"the fit stopped with a gradient of {worst:.1e}, above tol={tol:g}", stacklevel=6)
    return point


def _exact(gradient: Floats, hessian: Floats) -> Floats:
    """Return d of H d = −g; where H is singular to the last digits, of H + ε I."""
    more = 0.0
    while True:
        try:
            factor = cho_factor(hessian + more * np.eye(len(gradient)), check_finite=False)
            step: Floats = cho_solve(factor, -gradient, check_finite=False)
            return step
        except np.linalg.LinAlgError:
            more = max(10 * more, 1e-12 * float(np.diag(hessian).max()), 1e-300)


def _conjugate_gradients(here: Local, tol: float) -> Floats:
    """Return d of H d = −g, as exact as the distance from the minimum warrants."""
    if here.product is None or here.diagonal is None:
        raise ValueError("conjugate gradients need products with the Hessian and its diagonal")
    size = float(np.linalg.norm(here.gradient))
    enough = max(min(0.1, size) * size, tol / 10)
    step = np.zeros_like(here.gradient)
    residual = -here.gradient
    aim = residual / here.diagonal
    direction, old = aim, float(np.vdot(residual, aim))
    for _ in range(10 * step.size):
        product = here.product(direction)
        bend = float(np.vdot(direction, product))
        if bend <= 0:  # flat to the last digit
            break
        length = old / bend
        step = step + length * direction
        residual = residual - length * product
        if np.linalg.norm(residual) <= enough:
            break
        aim = residual / here.diagonal
        new = float(np.vdot(residual, aim))
        direction, old = aim + new / old * direction, new
    return step if step.any() else -here.gradient / here.diagonal


def fit_vector(
    x: Floats, labels: Labels, weights: Floats, penalty: float, *, tol: float, max_iter: int
) -> tuple[Floats, Floats]:
    r"""Return v and b, `[K]` each, of softmax(x ∘ (1 + v) + b) at the least NLL + penalty · (‖v‖² + ‖b‖²)."""
    share = weights / weights.sum()

    def loss(flat: Floats) -> Local:
        v, b = flat.reshape(2, -1)
        value, probs, error = _softmax_loss(x * (1 + v) + b, labels, share)
        gradient = np.stack([np.einsum("nk,nk->k", error, x), error.sum(axis=0)]) + 2 * penalty * flat.reshape(2, -1)
        weighted = share[:, None] * probs
        value += penalty * float(flat @ flat)
        if flat.size <= _DENSE:
            return Local(value, gradient.ravel(), hessian=_vector_hessian(x, probs, share, penalty))

        def product(direction: Floats) -> Floats:
            d = direction.reshape(2, -1)
            moved = _curved(x * d[0] + d[1], probs, weighted)
            out = np.stack([np.einsum("nk,nk->k", moved, x), moved.sum(axis=0)]) + 2 * penalty * d
            return out.ravel()

        spread = weighted * (1 - probs)
        diagonal = np.stack([np.einsum("nk,nk,nk->k", spread, x, x), spread.sum(axis=0)]) + 2 * penalty
        return Local(value, gradient.ravel(), product, diagonal.ravel())

    v, b = newton_cg(loss, np.zeros(2 * x.shape[1]), tol=tol, max_iter=max_iter).reshape(2, -1)
    return v, b


def fit_matrix(
    x: Floats, labels: Labels, weights: Floats, penalty: Floats, *, tol: float, max_iter: int
) -> tuple[Floats, Floats]:
    r"""Return D `[K, K]` and b `[K]` of softmax(x + D x + b) at the least NLL + Σ penalty ∘ (D, b)².

    `penalty` `[K, K + 1]` has those of b in its last column.
    """
    share = weights / weights.sum()
    k = x.shape[1]
    wide = np.concatenate([x, np.ones((len(x), 1))], axis=1)

    def loss(flat: Floats) -> Local:
        d = flat.reshape(k, k + 1)
        value, probs, error = _softmax_loss(x + wide @ d.T, labels, share)
        value += float((penalty * d**2).sum())
        gradient = (error.T @ wide + 2 * penalty * d).ravel()
        if flat.size <= _DENSE:
            return Local(value, gradient, hessian=_matrix_hessian(wide, probs, share, penalty))
        weighted = share[:, None] * probs

        def product(direction: Floats) -> Floats:
            along = direction.reshape(k, k + 1)
            moved = _curved(wide @ along.T, probs, weighted)
            out: Floats = moved.T @ wide + 2 * penalty * along
            return out.ravel()

        diagonal = (weighted * (1 - probs)).T @ wide**2 + 2 * penalty
        return Local(value, gradient, product, diagonal.ravel())

    fitted = newton_cg(loss, np.zeros(k * (k + 1)), tol=tol, max_iter=max_iter).reshape(k, k + 1)
    return fitted[:, :k], fitted[:, k]


def _vector_hessian(x: Floats, probs: Floats, share: Floats, penalty: float) -> Floats:
    """Return the Hessian by (v, b), `[2 K, 2 K]`."""
    k = x.shape[1]
    hessian = 2 * penalty * np.eye(2 * k)
    here = np.arange(k)
    for start in range(0, len(x), _ROWS):
        part = slice(start, start + _ROWS)
        p, z = share[part, None] * probs[part], x[part]
        both = np.concatenate([probs[part] * z, probs[part]], axis=1)
        hessian -= (both * share[part, None]).T @ both
        mixed = np.einsum("nk,nk->k", p, z)
        hessian[here, here] += np.einsum("nk,nk,nk->k", p, z, z)
        hessian[here, here + k] += mixed
        hessian[here + k, here] += mixed
        hessian[here + k, here + k] += p.sum(axis=0)
    return hessian


def _matrix_hessian(wide: Floats, probs: Floats, share: Floats, penalty: Floats) -> Floats:
    """Return the Hessian by D and b, row by row, `[K (K + 1), K (K + 1)]`."""
    k, width = probs.shape[1], wide.shape[1]
    hessian = np.diag(2 * penalty.ravel())
    for start in range(0, len(wide), _ROWS):
        part = slice(start, start + _ROWS)
        x, p, w = wide[part], probs[part], share[part, None]
        both = (p[:, :, None] * x[:, None, :]).reshape(len(x), -1)
        hessian -= (both * w).T @ both
        squares = (x[:, :, None] * x[:, None, :]).reshape(len(x), -1)
        for j, block in enumerate(((w * p).T @ squares).reshape(k, width, width)):
            hessian[j * width : (j + 1) * width, j * width : (j + 1) * width] += block
    return hessian


def _softmax_loss(logits: Floats, labels: Labels, share: Floats) -> tuple[float, Floats, Floats]:
    """Return the weighted NLL, the probabilities `[N, K]` and the derivative by the logits `[N, K]`."""
    logits = logits - logits.max(axis=1, keepdims=True)
    probs = np.exp(logits)
    total = probs.sum(axis=1)
    probs /= total[:, None]
    rows = np.arange(len(labels))
    value = float(share @ (np.log(total) - logits[rows, labels]))
    error = share[:, None] * probs
    error[rows, labels] -= share
    return value, probs, error


def _curved(along: Floats, probs: Floats, weighted: Floats) -> Floats:
    """Return the second derivative by the logits, times logits that move `along`, `[N, K]`."""
    curved: Floats = weighted * (along - np.einsum("nk,nk->n", probs, along)[:, None])
    return curved


def scaled_log_probs(logits: Logits, temperature: float) -> Floats:
    """Return the logarithms of probabilities over the temperature, in float64.

    So logits that differ by a constant, which softmax does not see, give the same fit.
    """
    z: Floats = np.subtract(logits, logits.max(axis=1, keepdims=True), dtype=np.float64)
    z -= np.log(np.exp(z).sum(axis=1, keepdims=True))
    z /= temperature
    return z


def thinned(logits: Logits, labels: Labels, weights: Floats) -> tuple[Logits, Labels, Floats]:
    """Return every m-th row where there are more than `MOST_NUMBERS` numbers, else all of them."""
    every = -(-logits.size // MOST_NUMBERS)
    return (logits, labels, weights) if every == 1 else (logits[::every], labels[::every], weights[::every])
