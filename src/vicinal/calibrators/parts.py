r"""Calibration and refinement parts of a loss: how much a calibrator would take away, and what it would leave.

For a proper loss, with c the best post-hoc calibrator,

.. math::
    \underbrace{\mathbb{E}\,\ell(p, y)}_{\text{loss}} =
    \underbrace{\mathbb{E}\,[\ell(p, y) - \ell(c(p), y)]}_{\text{calibration}} +
    \underbrace{\mathbb{E}\,\ell(c(p), y)}_{\text{refinement}}

c is chosen and fitted without the fold that it is judged on, so both parts are of new samples. A model that no
calibrator helps has a calibration part of about 0, or below it where the samples are few. Two models with equal losses
and unequal refinement differ in what calibration can reach ("calibratable").

The cost is that of `calibrate` once a fold: with `method="auto"` some 150 fits in five folds.

References
----------
Bröcker (2009), Reliability, sufficiency, and the decomposition of proper scores. Berta, Holzmüller, Jordan & Bach
(2025), Rethinking Early Stopping: Refine, Then Calibrate. Wang, Feng & Zhang (2021), Rethinking Calibration of Deep
Neural Networks ("calibratable").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from vicinal._arrays import as_array, as_classes, as_scores
from vicinal._checks import integer
from vicinal.calibrators.auto import calibrate, logits_of_probs
from vicinal.calibrators.base import Floats, Labels
from vicinal.calibrators.validation import stratified_folds
from vicinal.metrics.intervals import Estimate, z_of


@dataclass(frozen=True)
class LossParts:
    """The two parts of a loss, with 95 % intervals; they add up to `loss`.

    Examples
    --------
    >>> part = loss_parts([0, 1] * 20, probs=[[0.9, 0.1]] * 40, method="temperature")["nll"]
    >>> round(part.loss.value, 3), round(part.calibration.value, 3), round(part.refinement.value, 3)
    (1.204, 0.509, 0.695)
    """

    loss: Estimate
    calibration: Estimate
    refinement: Estimate

    def __str__(self) -> str:
        return f"{self.loss} = calibration {self.calibration} + refinement {self.refinement}"

    def to_dict(self) -> dict[str, object]:
        """Return the three with their intervals as JSON can hold them."""
        return {name: part.to_dict() for name, part in vars(self).items()}


def loss_parts(
    labels: ArrayLike,
    *,
    logits: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    method: str = "auto",
    folds: int = 5,
    level: float = 0.95,
) -> dict[str, LossParts]:
    """Return the parts of the NLL and of the Brier score, as `"nll"` and `"brier"`.

    Parameters
    ----------
    labels
        Class numbers `[N]`.
    logits, probs
        Scores `[N, K]`, exactly one of the two, of samples that the model was not trained on.
    method
        What calibrates, as for `vicinal.calibrate`; `"auto"` chooses again in each fold.
    folds
        Of the cross-validation, at least 2.
    level
        Confidence level of the intervals.

    Returns
    -------
    dict[str, LossParts]
        The loss, its calibration part and its refinement part, with intervals.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> logits = generator.normal(size=(2_000, 3))
    >>> labels = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    >>> good, bold = (loss_parts(labels, logits=c * logits, method="temperature")["nll"] for c in (1, 3))
    >>> bool(bold.calibration.low > 0.1 > good.calibration.high)
    True
    >>> abs(bold.refinement.value - good.refinement.value) < 1e-3  # a temperature restores it
    True
    """
    quantile = z_of(level)
    found = {}
    for name, (each, left) in refined_losses(labels, logits=logits, probs=probs, method=method, folds=folds).items():
        parts = (_mean(values, quantile) for values in (each, each - left, left))
        found[name] = LossParts(*parts)
    return found


def refined_losses(
    labels: ArrayLike,
    *,
    logits: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    method: str = "auto",
    folds: int = 5,
) -> dict[str, tuple[Floats, Floats]]:
    """Return the losses of each sample `[N]` before and after a calibrator that was fitted without its fold."""
    if (logits is None) == (probs is None):
        raise ValueError("pass exactly one of logits= and probs=")
    given = as_scores("logits", logits) if probs is None else logits_of_probs(probs)
    z: Floats = as_array("logits", given).astype(np.float64)
    y = as_classes("labels", labels, n_classes=z.shape[1])
    if len(y) != len(z) or len(y) < 2:
        raise ValueError(f"labels and scores must have the same length, at least 2, got {len(y)} and {len(z)}")
    fold = stratified_folds(y, min(integer("folds", folds, low=2), len(y)))
    after = np.empty_like(z)
    for number in range(fold.max() + 1):
        inside = fold == number
        after[inside] = calibrate(y[~inside], logits=z[~inside], method=method).predict_proba(logits=z[inside])
    before = softmax(z, axis=1)
    return {name: (loss(before, y), loss(after, y)) for name, loss in (("nll", _nll), ("brier", _brier))}


def _nll(probs: Floats, labels: Labels) -> Floats:
    each: Floats = -np.log(np.maximum(probs[np.arange(len(labels)), labels], 1e-300))
    return each


def _brier(probs: Floats, labels: Labels) -> Floats:
    """Return the squared distance to the label, summed over classes."""
    each: Floats = (probs**2).sum(axis=1) - 2 * probs[np.arange(len(labels)), labels] + 1
    return each


def _mean(values: Floats, quantile: float) -> Estimate:
    half = quantile * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(float(values.mean()), float(values.mean()) - half, float(values.mean()) + half)
