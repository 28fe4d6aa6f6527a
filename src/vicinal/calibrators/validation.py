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
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from vicinal._arrays import as_array, as_classes, as_scores
from vicinal._checks import integer
from vicinal.calibrators.base import Calibrator, Floats, Labels, Logits, as_weights

#: With fewer samples than this a calibrator must outweigh one unseen mistake.
FEW = 50


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Checked samples that calibrators are fitted on and judged by."""

    logits: Logits
    labels: Labels
    weights: Floats
    groups: NDArray[np.intp] | None
    """The group of each sample, numbered from 0."""
    folds: NDArray[np.intp] | int | None
    """The fold of each sample, numbered from 0, or how many folds there are."""

    @classmethod
    def of(
        cls,
        labels: object,
        logits: object,
        *,
        sample_weight: object = None,
        groups: object = None,
        folds: object = None,
    ) -> HeldOut:
        """Return the samples that count: rows of weight 0 are no part of a fold either."""
        z: Floats = as_array("logits", as_scores("logits", logits)).astype(np.float64)
        y = as_classes("labels", labels, n_classes=z.shape[1])
        if len(y) != len(z):
            raise ValueError(f"labels and scores must have the same length, got {len(y)} and {len(z)}")
        number = folds is None or isinstance(folds, int | np.integer)
        fold = (None if folds is None else integer("folds", folds, low=2)) if number else _codes("folds", folds, len(y))
        return cls(z, y, as_weights(sample_weight, len(y)), _codes("groups", groups, len(y)), fold).every(1)

    @property
    def n(self) -> float:
        """How many samples the rows count as."""
        return float(self.weights.sum())

    def every(self, step: int) -> HeldOut:
        """Return every row that counts, every second, …."""
        if step == 1 and self.weights.all():
            return self
        rows = np.arange(0, len(self.labels), step)
        rows = rows[self.weights[rows] > 0]
        return HeldOut(**{name: each[rows] if np.ndim(each) else each for name, each in vars(self).items()})

    def fold(self, default: int) -> Labels:
        """Return the fold of each row: the given one, or every class in turn, or by groups."""
        if not (self.folds is None or isinstance(self.folds, int)):
            return self.folds
        number = min(self.folds or default, len(self.labels))
        return stratified_folds(self.labels, number) if self.groups is None else self.groups % number

    def mean(self, values: Floats) -> float:
        """Return the mean of values `[N]` by weight."""
        return float(np.average(values, weights=self.weights))

    def standard_error(self, values: Floats) -> float:
        """Return that of `mean`: a value is there as often as its weight says, and those of a group are alike."""
        away = values - self.mean(values)
        squares = away**2 * self.weights if self.groups is None else np.bincount(self.groups, self.weights * away) ** 2
        return float(np.sqrt(squares.sum())) / self.n


def _codes(name: str, values: object, n: int) -> NDArray[np.intp] | None:
    """Return values `[N]` as numbers from 0."""
    if values is None:
        return None
    codes = np.unique(np.asarray(values), return_inverse=True)[1]
    if codes.shape != (n,):
        raise ValueError(f"{name} and labels must have the same length, got {len(codes)} and {n}")
    return codes


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
    folds: int | ArrayLike = 5,
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
        m, or the fold of each sample `[N]`; of fewer samples than m each is a fold of its own.
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
    held_out = HeldOut.of(labels, logits, sample_weight=sample_weight, groups=groups, folds=folds)
    if len(held_out.labels) < 2:
        raise ValueError(f"labels and scores must be of at least 2 samples, got {len(held_out.labels)}")
    return cross_validated(calibrator, held_out)


def cross_validated(calibrator: Calibrator, held_out: HeldOut) -> CrossValidation:
    """Return what `cross_validate` does, of samples that are checked."""
    fold = held_out.fold(5)
    with_it, without = (held_out.mean(held_out_nll(one, held_out, fold)) for one in (calibrator, None))
    margin = _largest_loss(calibrator, held_out) / held_out.n if held_out.n < FEW else 0.0
    return CrossValidation(without, with_it, margin)


def held_out_nll(calibrator: Calibrator | None, held_out: HeldOut, fold: Labels) -> Floats:
    """Return the negative log-likelihood of each sample, `[N]`, under a calibrator that was fitted without its fold.

    None is no calibrator at all.
    """
    nll = _nll(held_out.logits, held_out.labels)
    if calibrator is None:
        return nll
    for number in range(fold.max() + 1):
        inside = fold == number
        if inside.any() and not inside.all():  # else there is nothing to learn from
            fresh = _fitted(calibrator, held_out.logits[~inside], held_out.labels[~inside], held_out.weights[~inside])
            nll[inside] = _nll(fresh(held_out.logits[inside]), held_out.labels[inside])
    return nll


def _fitted(calibrator: Calibrator, logits: Logits, labels: Labels, weights: Floats) -> Calibrator:
    """Return a calibrator of this kind, fitted on these samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is worth saying of the calibrator is said where it is fitted on all
        fresh: Calibrator = dataclasses.replace(calibrator)  # type: ignore[type-var]  # every calibrator is a dataclass
        return fresh.fit(logits, labels, sample_weight=weights)


def _largest_loss(calibrator: Calibrator, held_out: HeldOut) -> float:
    """Return by how much the NLL of a sample rises at most, whatever its label, if the calibrator is fitted on all."""
    after = _fitted(calibrator, held_out.logits, held_out.labels, held_out.weights)(held_out.logits)
    return float((log_softmax(held_out.logits, axis=1) - log_softmax(after, axis=1)).max())


def stratified_folds(labels: Labels, folds: int) -> Labels:
    """Return the fold of each sample: in turn within each class, and on with the next class where the last ended."""
    fold = np.empty(len(labels), np.int64)
    fold[np.argsort(labels, kind="stable")] = np.arange(len(labels)) % folds
    return fold


def _nll(logits: Any, labels: Labels) -> Floats:
    each: Floats = -log_softmax(logits, axis=1)[np.arange(len(labels)), labels]
    return each
