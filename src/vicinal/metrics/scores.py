"""Scores of predictions: accuracy, top-k, MCC, negative log-likelihood, Brier; Spearman for regression.

Labels come first; what the predictions hold is said by name (`logits=`, `probs=`), never guessed. Every function
reads its input once, a chunk at a time, and computes in float64.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._arrays import as_array, as_classes, as_vector
from vicinal._checks import integer, scores_by_name
from vicinal.metrics import kernels
from vicinal.metrics.chunks import Array, Chunk, Predictions, open_predictions
from vicinal.metrics.intervals import Estimate, Moments, clopper_pearson, mean_interval, z_of


@scores_by_name
def accuracy(
    labels: ArrayLike,
    *,
    logits: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    predictions: ArrayLike | None = None,
) -> float:
    """Return the fraction of samples whose highest score is the label's; the first wins among equals.

    Beside the labels, class numbers `[N]`, exactly one is given of `logits` and `probs` `[N, K]`, and `predictions`,
    the class numbers that were predicted.

    Returns
    -------
    float
        The accuracy, in [0, 1].

    Examples
    --------
    >>> accuracy([0, 1], probs=[[0.5, 0.5], [0.5, 0.5]])
    0.5
    """
    if predictions is not None:
        truth, guess = _class_pairs(labels, predictions, logits, probs)
        return float((truth == guess).mean())
    return _mean(open_predictions(labels, logits, probs), lambda chunk: chunk.correct)


def top_k(labels: ArrayLike, k: int, *, logits: ArrayLike | None = None, probs: ArrayLike | None = None) -> float:
    """Return the fraction of samples whose label is among the k highest scores; the first win among equals.

    Returns
    -------
    float
        The top-k accuracy, in [0, 1].

    Examples
    --------
    >>> top_k([2, 0], 2, probs=[[0.5, 0.2, 0.3], [0.2, 0.5, 0.3]])
    0.5
    """
    given = open_predictions(labels, logits, probs)
    if not 1 <= integer("k", k, low=1) <= given.n_classes:
        raise ValueError(f"k must be in [1, {given.n_classes}] for {given.n_classes} classes, got {k}")

    return 1 - _mean(given, lambda chunk: misses(chunk, k))


@scores_by_name
def nll(labels: ArrayLike, *, logits: ArrayLike | None = None, probs: ArrayLike | None = None) -> float:
    r"""Return the mean negative log-likelihood :math:`-\frac1N \sum_i \log p_{i, y_i}` (log loss).

    It is infinite where a label has probability 0: nothing is clipped. Probabilities in float32 underflow to 0,
    so prefer logits, which do not.

    Returns
    -------
    float
        The NLL in nats, at least 0; lower is better.

    Examples
    --------
    >>> round(nll([0, 1], probs=[[0.5, 0.5], [0.5, 0.5]]), 6)
    0.693147
    """
    return _mean(open_predictions(labels, logits, probs), nll_of)


@scores_by_name
def brier(labels: ArrayLike, *, logits: ArrayLike | None = None, probs: ArrayLike | None = None) -> float:
    r"""Return the Brier score :math:`\frac1N \sum_i \sum_k (p_{ik} - [y_i = k])^2`, in [0, 2].

    This is Brier's own definition (1950), summed over classes; for two classes some halve it.

    Returns
    -------
    float
        The Brier score; lower is better.

    Examples
    --------
    >>> brier([0, 1], probs=[[0.5, 0.5], [0.5, 0.5]])
    0.5
    """
    return _mean(open_predictions(labels, logits, probs), brier_of)


@scores_by_name
def mcc(
    labels: ArrayLike,
    *,
    logits: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    predictions: ArrayLike | None = None,
) -> float:
    r"""Return Matthews' correlation coefficient of labels and predicted classes, for any number of classes.

    With a the accuracy and :math:`t_k`, :math:`p_k` the fractions of samples that are, and are predicted, of class k:

    .. math:: \frac{a - \sum_k p_k t_k}{\sqrt{(1 - \sum_k p_k^2)(1 - \sum_k t_k^2)}}

    It is 0 where labels or predictions are all of one class, as in scikit-learn. The arguments are `accuracy`'s.

    Returns
    -------
    float
        The coefficient, in [-1, 1]; 1 is best.

    References
    ----------
    Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", 2004.

    Examples
    --------
    >>> mcc([0, 0, 1, 1], predictions=[0, 0, 1, 1]), mcc([0, 0, 1, 1], predictions=[0, 0, 0, 0])
    (1.0, 0.0)
    """
    if predictions is None:
        given = open_predictions(labels, logits, probs)
        guesses = given.map_blocks(lambda chunks: np.concatenate([chunk.predictions for chunk in chunks]))
        truth, guess = as_classes("labels", labels), np.concatenate(guesses)
    else:
        truth, guess = _class_pairs(labels, predictions, logits, probs)
    return float(mcc_contributions(truth, guess)[0])


def spearman(targets: ArrayLike, predictions: ArrayLike) -> float:
    """Return Spearman's rank correlation of real-valued targets `[N]` and predictions `[N]` (regression).

    Equal values share the mean of their ranks. Where all targets or all predictions are equal, a correlation does
    not exist, and the result is NaN.

    Returns
    -------
    float
        The correlation, in [-1, 1], or NaN.

    Examples
    --------
    >>> round(spearman([1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.4, 0.3]), 6)
    0.8
    """
    a, b = (_ranks(values) for values in _real_pairs(targets, predictions))
    a, b = a - a.mean(), b - b.mean()
    # Pearson's correlation of the ranks, which are centred; rounding may carry it beyond ±1 by a bit.
    size = np.sqrt((a @ a) * (b @ b))
    return float(np.clip(a @ b / size, -1, 1)) if size > 0 else float("nan")


def spearman_estimate(targets: ArrayLike, predictions: ArrayLike, *, level: float = 0.95) -> Estimate:
    r"""Return Spearman's correlation with its confidence interval.

    .. math:: \tanh\left(\operatorname{artanh} r \pm z\sqrt{(1 + r^2/2)/(n - 3)}\right)

    The interval is [-1, 1] where nothing is known: fewer than four samples, or a correlation that does not exist.

    Returns
    -------
    Estimate
        The correlation, with the ends of its interval.

    References
    ----------
    Bonett & Wright, "Sample size requirements for estimating Pearson, Kendall and Spearman correlations", 2000.

    Examples
    --------
    >>> print(spearman_estimate([1.0, 2.0, 3.0, 4.0, 5.0], [0.1, 0.2, 0.4, 0.3, 0.5]))
    0.9000 [-0.1689, 0.9961]
    """
    z = z_of(level)
    r, n = spearman(targets, predictions), len(as_array("targets", targets))
    if n < 4 or np.isnan(r):
        return Estimate(r, -1.0, 1.0)
    # ±1 has no artanh, and no spread either: the nearest number below keeps the ends finite.
    centre = np.arctanh(np.clip(r, -1 + 1e-15, 1 - 1e-15))
    half = z * np.sqrt((1 + r**2 / 2) / (n - 3))
    return Estimate(r, float(np.tanh(centre - half)), max(r, float(np.tanh(centre + half))))


def mcc_estimate(
    labels: NDArray[np.int64], predictions: NDArray[np.int64], level: float, counts: NDArray[np.int64] | None = None
) -> Estimate:
    """Return MCC with the delta-method interval of its contributions; with `counts`, entries stand for many samples.

    Samples that (almost) all contribute alike, such as those of a model that is hardly ever wrong, show little spread:
    the interval reaches at least to the ends of the accuracy's interval, put into the formula with the classes'
    shares as they are. It is [-1, 1] where labels or predictions are all of one class: nothing is known.
    """
    value, contributions = mcc_contributions(labels, predictions, counts)
    t, p = class_shares(labels, predictions, counts)
    # The denominator is 0 where either is of one class, and no number of samples would tell more.
    if np.count_nonzero(t) < 2 or np.count_nonzero(p) < 2:
        return Estimate(value, -1.0, 1.0)
    each = np.ones(len(labels), np.int64) if counts is None else counts
    n = round(float(each.sum()))
    away = contributions - value
    moments = Moments(n, value, float(each @ away**2), cubes=float(each @ away**3))
    spread = mean_interval(moments, level, low=-1.0, high=1.0)
    # Where hardly any answer is wrong the contributions have no spread, but the accuracy's interval knows better.
    ends = clopper_pearson(each @ (labels == predictions), n, level)
    low, high = (float((end - t @ p) / np.sqrt((1 - p @ p) * (1 - t @ t))) for end in ends)
    return Estimate(value, max(min(low, spread.low, value), -1.0), min(max(high, spread.high, value), 1.0))


def nll_of(chunk: Chunk) -> Array:
    """Return the negative log-probability of each label, `[M]`."""
    if chunk.exp is None:
        with np.errstate(divide="ignore"):
            loss: Array = np.abs(np.log(chunk.label_scores.astype(np.float64)))  # -log 1 would be -0.0
        return loss
    # log Σ exp(z − top) = −log confidence, and log1p of the others' sum keeps digits when it is near 0.
    # The confidence alone will not do: 1 − 1e-20 is 1 in float64, whose logarithm is 0, while log1p(1e-20) is 1e-20.
    true, top = (of.astype(np.float64) for of in (chunk.label_scores, chunk.score_of(chunk.predictions)))
    rows = np.arange(len(chunk))
    chunk.exp[rows, chunk.predictions] = 0  # for the moment: it is 1
    others = chunk.exp.sum(axis=1)
    chunk.exp[rows, chunk.predictions] = 1
    result: Array = np.log1p(others) + (top - true)
    return result


def brier_of(chunk: Chunk) -> Array:
    """Return the squared distance of each sample's probabilities from its label, `[M]`."""
    compiled, by_class = kernels.loaded(), chunk.by_class
    if compiled and chunk.exp is None and by_class is not None:  # of such a layout numpy adds up in the same order
        return compiled.squared_distances(by_class, chunk.labels)
    probs = chunk.probs()
    # `probs` is a copy already, so that it may be changed in place.
    probs[np.arange(len(chunk)), chunk.labels] -= 1
    squares: Array = np.einsum("nk,nk->n", probs, probs)
    return squares


def misses(chunk: Chunk, k: int) -> NDArray[np.bool_]:
    """Return whether each label is not among the k highest scores, `[M]`; the first win among equals."""
    compiled, by_class = kernels.loaded(), chunk.by_class
    if compiled and by_class is not None:
        return compiled.count_before(by_class, chunk.labels, chunk.label_scores) >= k
    if compiled:
        return compiled.misses(chunk.scores, chunk.labels, chunk.correct, k)
    missed = np.zeros(len(chunk), np.bool_)
    rows = np.flatnonzero(~chunk.correct)  # the others are first
    scores, true = chunk.scores[rows], chunk.label_scores[rows, None]
    missed[rows] = _count(scores > true) >= k
    # Only where the k-th place is among equals does it matter which of them come first.
    near = rows[~missed[rows] & (_count(scores >= true) > k)]
    scores, true, labels = chunk.scores[near], chunk.label_scores[near, None], chunk.labels[near, None]
    missed[near] = _count((scores > true) | ((scores == true) & (np.arange(scores.shape[1]) < labels))) >= k
    return missed


def _count(mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return how many are true in each row, added up as floats, which is fastest."""
    total: NDArray[np.float32] = np.einsum("nk->n", mask.astype(np.float32))
    return total


def mcc_contributions(
    labels: NDArray[np.int64], predictions: NDArray[np.int64], counts: NDArray[np.int64] | None = None
) -> tuple[float, Array]:
    """Return MCC and what each sample contributes, `[N]`: numbers whose mean is MCC and whose spread is its error.

    A contribution is MCC plus the sample's influence on it (the derivative of the formula by the sample's weight),
    so mean ± z·s/√N of them is the delta-method interval, and paired differences compare two models. It depends on the
    label and the prediction alone: with `counts`, entry i stands for so many samples.
    """
    t, p = class_shares(labels, predictions, counts)
    if np.count_nonzero(t) < 2 or np.count_nonzero(p) < 2:
        return 0.0, np.zeros(len(labels))
    right = labels == predictions
    a, tp, tt, pp = float(np.average(right, weights=counts)), t @ p, t @ t, p @ p
    size = np.sqrt((1 - pp) * (1 - tt))
    value = (a - tp) / size
    numerator = right - a - (t[predictions] + p[labels] - 2 * tp)
    influence = numerator / size + value * ((p[predictions] - pp) / (1 - pp) + (t[labels] - tt) / (1 - tt))
    return float(value), value + influence


def class_shares(
    labels: NDArray[np.int64], predictions: NDArray[np.int64], counts: NDArray[np.int64] | None = None
) -> tuple[Array, Array]:
    """Return the fraction of samples that are, and that are predicted, of each class."""
    n = len(labels) if counts is None else counts.sum()
    k = int(max(labels.max(), predictions.max())) + 1
    t, p = (np.bincount(values, counts, k) / n for values in (labels, predictions))
    return t, p


def _mean(predictions: Predictions, score: Callable[[Chunk], NDArray[np.floating] | NDArray[np.bool_]]) -> float:
    totals = predictions.map_blocks(lambda chunks: sum(float(score(chunk).sum()) for chunk in chunks))
    return float(sum(totals) / len(predictions))


def _ranks(values: Array) -> Array:
    """Return ranks from 1, equal values sharing the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Array = (np.cumsum(count) - (count - 1) / 2)[place]
    return ranks


def _class_pairs(
    labels: ArrayLike, predictions: ArrayLike, logits: object, probs: object
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if logits is not None or probs is not None:
        raise ValueError("pass exactly one of logits=, probs= and predictions=, got predictions= and another")
    truth, guess = as_classes("labels", labels), as_classes("predictions", predictions)
    if len(truth) != len(guess):
        raise ValueError(f"labels and predictions must have the same length, got {len(truth)} and {len(guess)}")
    return truth, guess


def _real_pairs(targets: ArrayLike, predictions: ArrayLike) -> tuple[Array, Array]:
    truth, guess = as_vector("targets", targets), as_vector("predictions", predictions)
    if len(truth) != len(guess):
        raise ValueError(f"targets and predictions must have the same length, got {len(truth)} and {len(guess)}")
    return truth, guess
