r"""Does a calibrator help? Its negative log-likelihood on samples that it was not fitted on, against that without it.

The samples are put into m folds, every class in turn, and the calibrator is fitted m times, each time without one fold:

.. math:: \mathrm{NLL}_\mathrm{cv} = -\frac1N \sum_i \log \operatorname{softmax}\big(c_{-f(i)}(z_i)\big)_{y_i}

A calibrator with many values, or one of few samples, fits chance; then this is above the NLL of the logits themselves.
Below 50 samples that is not enough: two right answers make any scores look certain. There the samples must gain
more in all than the one that the calibrator harms most could lose, were its label the least favourable.

References
----------
Stone, "Cross-validatory choice and assessment of statistical predictions", JRSS B 1974.
"""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from vicinal._arrays import as_array, as_classes, as_scores
from vicinal._checks import integer
from vicinal.calibrators.base import Calibrator, Floats, Labels, Logits, as_weights

#: With fewer samples than this a calibrator must outweigh one unseen mistake.
FEW = 50


@dataclass(frozen=True)
class CrossValidation:
    """The mean negative log-likelihood of samples without a calibrator, and with one that was fitted without them.

    Examples
    --------
    >>> from vicinal.calibrators import TemperatureScaling
    >>> result = cross_validate(TemperatureScaling(), [[0.0, 1.0], [0.0, -1.0]] * 20, [1, 1] * 20)
    >>> round(result.without, 3), round(result.with_it, 3), result.helps
    (0.813, 0.695, True)
    """

    without: float
    """The mean without the calibrator."""
    with_it: float
    """The mean with it."""
    margin: float = 0.0
    """By how much it must be less: below 50 samples, one unseen mistake divided by their number."""

    @property
    def helps(self) -> bool:
        """Whether the calibrator makes new samples more likely."""
        return self.with_it < self.without - self.margin


def cross_validate(
    calibrator: Calibrator,
    logits: object,
    labels: object,
    *,
    sample_weight: object = None,
    folds: int = 5,
    groups: object = None,
) -> CrossValidation:
    """Return what a calibrator does to samples that it was not fitted on; `calibrator` itself is left as it is.

    Parameters
    ----------
    calibrator
        Fitted or not.
    logits, labels
        As for `Calibrator.fit`, at least two samples.
    sample_weight
        As for `Calibrator.fit`.
    folds
        m; of fewer samples than that each is a fold of its own.
    groups
        The group of each sample, `[N]`; a group is never divided between folds.

    Returns
    -------
    CrossValidation
        The NLL without and with the calibrator.

    Examples
    --------
    >>> z = np.array([[0.0, 1.0], [0.0, -1.0]] * 20)
    >>> from vicinal.calibrators import TemperatureScaling
    >>> cross_validate(TemperatureScaling(), z, [1, 1] * 20).helps  # right in half the cases, and says 73 %
    True
    """
    z = as_array("logits", as_scores("logits", logits)).astype(np.float64)
    y = as_classes("labels", labels, n_classes=z.shape[1])
    if len(y) != len(z) or len(y) < 2:
        raise ValueError(f"logits and labels must have the same length, at least 2, got {len(z)} and {len(y)}")
    w = as_weights(sample_weight, len(y))
    together = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    with_it, without = (held_out_nll(one, z, y, w, folds=folds, groups=together) for one in (calibrator, None))
    margin = _largest_loss(calibrator, z, y, w) / len(y) if len(y) < FEW else 0.0
    return CrossValidation(float(np.average(without, weights=w)), float(np.average(with_it, weights=w)), margin)


def held_out_nll(
    calibrator: Calibrator | None,
    logits: Logits,
    labels: Labels,
    weights: Floats,
    *,
    folds: int = 5,
    groups: NDArray[np.intp] | None = None,
) -> Floats:
    """Return the negative log-likelihood of each sample, `[N]`, under a calibrator that was fitted without its fold.

    None is no calibrator at all.
    """
    if calibrator is None:
        return _nll(logits, labels)
    folds = min(integer("folds", folds, low=2), len(labels))
    fold = stratified_folds(labels, folds) if groups is None else groups % folds
    held_out = np.empty(len(labels))
    for number in range(fold.max() + 1):
        inside = fold == number
        if not weights[~inside].any():  # nothing to learn from
            held_out[inside] = _nll(logits[inside], labels[inside])
            continue
        fresh = _fitted(calibrator, logits[~inside], labels[~inside], weights[~inside])
        held_out[inside] = _nll(fresh(logits[inside]), labels[inside])
    return held_out


def _fitted(calibrator: Calibrator, logits: Logits, labels: Labels, weights: Floats) -> Calibrator:
    """Return a calibrator of this kind, fitted on these samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is worth saying of the calibrator is said where it is fitted on all
        fresh: Calibrator = dataclasses.replace(calibrator)  # type: ignore[type-var]  # every calibrator is a dataclass
        return fresh.fit(logits, labels, sample_weight=weights)


def _largest_loss(calibrator: Calibrator, logits: Logits, labels: Labels, weights: Floats) -> float:
    """Return by how much the NLL of a sample rises at most, whatever its label, if the calibrator is fitted on all."""
    if not weights.any():
        return 0.0
    after = _fitted(calibrator, logits, labels, weights)(logits)
    return float((log_softmax(logits, axis=1) - log_softmax(after, axis=1)).max())


def stratified_folds(labels: Labels, folds: int) -> Labels:
    """Return the fold of each sample: in turn within each class, and on with the next class where the last ended."""
    fold = np.empty(len(labels), np.int64)
    fold[np.argsort(labels, kind="stable")] = np.arange(len(labels)) % folds
    return fold


def _nll(logits: Any, labels: Labels) -> Floats:
    each: Floats = -log_softmax(logits, axis=1)[np.arange(len(labels)), labels]
    return each
