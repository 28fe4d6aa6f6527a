r"""Accuracy and calibration now and then: predictions of one model on new rows beside those on reference rows.

**With labels** the difference of a metric is :math:`b - a`, new less reference. The rows are others, so the intervals
:math:`(l_a, u_a)` and :math:`(l_b, u_b)` are independent, and the ends of the difference are those of Zou & Donner
(2008):

.. math::
    b - a - \sqrt{(b - l_b)^2 + (u_a - a)^2}, \qquad b - a + \sqrt{(u_b - b)^2 + (a - l_a)^2}

Where the rows are the same, one by one, differences are paired, as `vicinal.compare` has them.

**Without labels** the confidences predict the accuracy. Let :math:`g_b` be the mean of confidence less correctness of
the :math:`n_b` reference rows in bin b, :math:`s_b^2` the variance of their correctness, :math:`q_b` the share of new
rows there, and :math:`a_i = c_i - g_{b(i)}` the corrected confidence of each of the N new rows. The prediction and its
variance are

.. math::
    \hat a = \frac1N \sum_i a_i, \qquad
    \operatorname{var} = \sum_b \frac{q_b^2 s_b^2}{n_b} + \frac1{N^2} \sum_i a_i (1 - a_i)

A bin with fewer than two reference rows takes the gap of all of them. The prediction **assumes** that answers of equal
confidence are right as often as in the reference. A model that meets what it was not trained on may break that, and no
confidence shows it.

References
----------
Zou & Donner, "Construction of confidence limits about effect measures: a general approach", Statistics in
Medicine 2008.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, Sentence
from vicinal.metrics import Estimate, Evaluation, Tally, compare
from vicinal.metrics.intervals import confidence_level, z_of
from vicinal.predictions.file_evaluation import measured_chunk
from vicinal.predictions.predictions_file import PredictionsFile

ASSUMPTION = "assumes that answers of equal confidence are right as often as in the reference"
#: What is compared, the metrics that a reader of a shift asks for.
_COMPARED = ("accuracy", "nll", "brier", "ece")


@dataclass(frozen=True)
class Shift:
    """The change of each metric, new less reference, by name; or the accuracy that confidences predict."""

    reference: Evaluation
    now: Evaluation | None
    """None where the new rows have no labels."""
    changes: dict[str, Estimate]
    predicted: Estimate
    """The accuracy that the confidences of the new rows predict; see the module for what it assumes."""
    n: int
    """New rows."""
    paired: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return plain numbers for a JSON file."""
        found: dict[str, object] = {"reference": self.reference.to_dict(), "n": self.n, "paired": self.paired}
        found |= {} if self.now is None else {"now": self.now.to_dict()}
        found |= {"changes": {name: each.to_dict() for name, each in self.changes.items()}}
        return found | {"predicted_accuracy": self.predicted.to_dict(), "assumption": ASSUMPTION}


def shift_of_files(
    new: PredictionsFile, reference: PredictionsFile, *, n_bins: int = 15, level: float = 0.95, paired: bool = False
) -> Shift:
    """Compare the predictions of a model on new rows with those on reference rows, which have labels.

    Some numbers of each row are held in memory.

    Parameters
    ----------
    new
        With labels, or without: then the accuracy is predicted.
    reference
        Predictions of the same model, such as those on its test set.
    n_bins
        Equal-width bins of the calibration errors and of the prediction.
    level
        Confidence level of the intervals.
    paired
        Whether row i of both files is one sample.
    """
    then = _measured(reference, n_bins, level)
    confidence = _confidences(new)
    predicted = predicted_accuracy(then, confidence, level)
    if new.label is None:
        if paired:
            raise ValueError(Sentence(Argument("paired"), f" needs labels, and {str(new.path)!r} has none"))
        return Shift(then, None, {}, predicted, len(confidence))
    now = _measured(new, n_bins, level)
    if paired:
        found = compare(then, now, level=level).differences
        changes = {name: Estimate(d.value, d.low, d.high) for name in _COMPARED if (d := found.get(name)) is not None}
    else:
        pairs = ((name, then.metrics.get(name), now.metrics.get(name)) for name in _COMPARED)
        changes = {name: independent_change(a, b) for name, a, b in pairs if a is not None and b is not None}
    return Shift(then, now, changes, predicted, now.n, paired)


def independent_change(a: Estimate, b: Estimate) -> Estimate:
    """Return b − a with its interval, of two independent estimates.

    >>> change = independent_change(Estimate(0.9, 0.87, 0.92), Estimate(0.8, 0.76, 0.84))
    >>> round(change.low, 4), round(change.high, 4)
    (-0.1447, -0.05)
    """
    value = b.value - a.value
    low = value - math.hypot(b.value - b.low, a.high - a.value)
    return Estimate(value, low, value + math.hypot(b.high - b.value, a.value - a.low))


def predicted_accuracy(reference: Evaluation, confidence: NDArray[np.float64], level: float = 0.95) -> Estimate:
    """Return the accuracy that confidences `[N]` of new samples predict; see the module."""
    samples = reference.samples
    if samples is None:
        raise ValueError("a reference needs the values of each sample: evaluate with vicinal.evaluate")
    table, n = reference.table, len(confidence)
    stated = samples.confidence.astype(np.float64)
    gap = stated - samples.correct
    then, now = (np.asarray(table.bin_index(c)) for c in (stated, confidence))
    count = np.bincount(then, minlength=table.n_bins)
    share = np.bincount(now, minlength=table.n_bins) / n
    known, shared = count >= 2, np.maximum(count, 1)
    gaps = np.where(known, np.bincount(then, gap, table.n_bins) / shared, gap.mean())
    # One right and one wrong answer more: a few answers may all be right.
    right = (np.bincount(then, samples.correct, table.n_bins) + 1) / (count + 2)
    spread = share[known] ** 2 @ (right * (1 - right) / shared)[known]
    spread += share[~known].sum() ** 2 * gap.var() / len(gap)
    corrected = confidence - gaps[now]
    value = min(max(float(corrected.mean()), 0.0), 1.0)
    likely = corrected.clip(0, 1)
    reach = z_of(confidence_level(level)) * math.sqrt(spread + (likely * (1 - likely)).sum() / n**2)
    return Estimate(value, max(value - reach, 0.0), min(value + reach, 1.0))


def _measured(file: PredictionsFile, n_bins: int, level: float) -> Evaluation:
    file.required_label()
    tally = Tally(n_bins, keep_samples=True)
    for chunk in file.chunks():
        if len(chunk):
            tally.merge_(measured_chunk(file, chunk, tally.empty()))
    if not tally.n:
        raise ValueError(f"{str(file.path)!r} has no rows to measure")
    return tally.evaluation(level)


def _confidences(file: PredictionsFile) -> NDArray[np.float64]:
    parts = []
    for chunk in file.chunks(labels=False):
        if file.kind == "confidence":
            parts.append(np.asarray(chunk.confidence, np.float64))
            continue
        scores = np.asarray(chunk.scores, np.float64)
        if file.kind == "logits":
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            scores /= scores.sum(axis=1, keepdims=True)
        parts.append(scores.max(axis=1))
    if not sum(map(len, parts)):
        raise ValueError(f"{str(file.path)!r} has no rows to measure")
    return np.concatenate(parts)
