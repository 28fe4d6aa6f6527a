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

from vicinal.calibrators.auto import calibrate, logits_of_probs
from vicinal.calibrators.base import Floats, Labels
from vicinal.calibrators.validation import HeldOut
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
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    folds: int | ArrayLike = 5,
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
    sample_weight
        How much each sample counts, `[N]`: the parts are weighted means, and the intervals allow for weights.
    groups
        The group of each sample, `[N]`. A group is never divided between folds, and the intervals allow for groups.
    folds
        The number of folds, or the fold of each sample `[N]`.
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
    if (logits is None) == (probs is None):
        raise ValueError("pass exactly one of logits= and probs=")
    given = logits if probs is None else logits_of_probs(probs)
    held_out = HeldOut.of(labels, given, sample_weight=sample_weight, groups=groups, folds=folds)
    quantile = z_of(level)
    found = {}
    for name, (each, left) in refined_losses(held_out, method).items():
        parts = (_mean(values, held_out, quantile) for values in (each, each - left, left))
        found[name] = LossParts(*parts)
    return found


def refined_losses(held_out: HeldOut, method: str = "auto") -> dict[str, tuple[Floats, Floats]]:
    """Return the losses of each sample `[N]` before and after a calibrator that was fitted without its fold."""
    z, y, w, groups = held_out.logits, held_out.labels, held_out.weights, held_out.groups
    if len(y) < 2:
        raise ValueError(f"the parts of a loss need at least 2 samples, got {len(y)}")
    fold = held_out.fold(5)
    after: Floats = softmax(z, axis=1)
    for number in np.unique(fold):
        inside = fold == number
        if inside.all():
            raise ValueError("the parts of a loss need at least 2 folds, got one that holds every sample")
        alike = None if groups is None else groups[~inside]
        fitted = calibrate(y[~inside], logits=z[~inside], method=method, sample_weight=w[~inside], groups=alike)
        after[inside] = fitted.predict_proba(logits=z[inside])
    before: Floats = softmax(z, axis=1)
    return {name: (loss(before, y), loss(after, y)) for name, loss in (("nll", _nll), ("brier", _brier))}


def _nll(probs: Floats, labels: Labels) -> Floats:
    each: Floats = -np.log(np.maximum(probs[np.arange(len(labels)), labels], 1e-300))
    return each


def _brier(probs: Floats, labels: Labels) -> Floats:
    """Return the squared distance to the label, summed over classes."""
    each: Floats = (probs**2).sum(axis=1) - 2 * probs[np.arange(len(labels)), labels] + 1
    return each


def error_of_mean(values: Floats, held_out: HeldOut) -> float:
    """Return the standard error of the weighted mean of values `[N]`, as `evaluate` has it.

    A weight of 2 is one sample that stands for two, not a second sample.
    """
    codes = np.arange(len(values)) if held_out.groups is None else held_out.groups
    sums = np.bincount(codes, held_out.weights * (values - held_out.mean(values)))
    n = len(np.unique(codes))
    return float(np.linalg.norm(sums)) / held_out.n * math.sqrt(n / (n - 1)) if n > 1 else math.inf


def _mean(values: Floats, held_out: HeldOut, quantile: float) -> Estimate:
    mean, half = held_out.mean(values), quantile * error_of_mean(values, held_out)
    return Estimate(mean, mean - half, mean + half)
