r"""Find mislabelled samples by their area under the margin (AUM); samples mislabelled on purpose give the threshold.

Some training samples, as many as a class has on average, are given a class of their own, K + 1, to which no sample
belongs. A network learns them only by heart, as it does mislabelled ones, so their AUM is that of mislabelled samples.
Whatever has no higher AUM than nearly all of them (the 99th percentile) is suspicious.

References
----------
Pleiss, Zhang, Elenberg & Weinberger, "Identifying Mislabeled Data using the Area Under the Margin Ranking",
NeurIPS 2020, Section 3.3. They stop training before the first drop of the learning rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vicinal import _random
from vicinal._arrays import as_labels, as_tensor
from vicinal._checks import integer, number


def threshold_samples(
    labels: object, n_classes: int, *, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    r"""Draw two disjoint sets of :math:`\lfloor N/(K+1) \rfloor` threshold samples, one for each training run.

    So the fake class is as large as the others are on average. The threshold samples of a run cannot be judged by it;
    with two runs all can.

    Parameters
    ----------
    labels
        Class numbers `[N]`.
    n_classes
        K.
    generator
        Where randomness comes from; torch's global generator if not given.

    Returns
    -------
    first, second
        bool masks `[N]`.

    Examples
    --------
    >>> first, second = threshold_samples([0, 1, 2] * 4, 3)
    >>> int(first.sum()), int(second.sum()), bool((first & second).any())
    (3, 3, False)
    """
    n_classes = integer("n_classes", n_classes, low=1)
    n = len(as_labels("labels", labels, n_classes=n_classes))
    size = n // (n_classes + 1)
    if size == 0:
        raise ValueError(f"{n_classes} classes need at least {n_classes + 1} samples to find a threshold, got {n}")
    order = _random.permutation(n, generator=generator)
    masks = torch.zeros(2, n, dtype=torch.bool)
    masks[0, order[:size]] = True
    masks[1, order[size : 2 * size]] = True
    return masks[0], masks[1]


def suspects(aum: object, is_threshold: object, *, percentile: float = 99.0) -> tuple[Tensor, float]:
    """Return which samples have no higher AUM than the threshold, and the threshold.

    Parameters
    ----------
    aum
        The area under the margin of every sample, `[N]`.
    is_threshold
        Which of them were threshold samples in this run, bool `[N]`; none of these is suspected.
    percentile
        The percentile of the threshold samples' AUM, in [0, 100], interpolated; the paper's is 99.

    Returns
    -------
    tuple[Tensor, float]
        Which samples are suspected, bool `[N]`, and the threshold.

    Examples
    --------
    >>> suspects([-5.0, -4.0, -3.0, -4.5, 2.0], [True, True, True, False, False], percentile=100)
    (tensor([False, False, False,  True, False]), -3.0)
    """
    values, chosen = _aum(aum), as_tensor("is_threshold", is_threshold)
    if chosen.dtype != torch.bool or chosen.shape != values.shape:
        raise ValueError(f"is_threshold must be bool [{len(values)}], got {chosen.dtype} {list(chosen.shape)}")
    if not bool(chosen.any()):
        raise ValueError("is_threshold names no sample: there is no threshold")
    share = number("percentile", percentile, low=0, high=100) / 100
    threshold = float(np.quantile(values[chosen].numpy(), share))  # torch's has a limit of 16 million
    return (values <= threshold) & ~chosen, threshold


@dataclass(frozen=True, eq=False)
class Audit:
    """Which samples are suspicious. Made by `find_mislabelled`.

    Attributes
    ----------
    aum
        The area under the margin of each sample in the run that judged it, float64 `[N]`.
    run
        Which run that was: 1 for the first run's threshold samples, else 0; int64 `[N]`.
    thresholds
        The thresholds of the two runs.
    suspicious
        Whether the AUM is not above the threshold of its run, bool `[N]`.
    percentile
        The percentile of the threshold samples that is the threshold.

    Examples
    --------
    >>> aum, run = torch.tensor([2.0, -4.0]), torch.tensor([0, 0])
    >>> audit = Audit(aum, run, (-3.0, -3.0), torch.tensor([False, True]), 99.0)
    >>> audit.ranking.tolist()
    [1, 0]
    """

    aum: Tensor
    run: Tensor
    thresholds: tuple[float, float]
    suspicious: Tensor
    percentile: float

    @property
    def above_threshold(self) -> Tensor:
        """How far each AUM is above the threshold of its run, float64 `[N]`: what samples are ranked by."""
        return self.aum - torch.tensor(self.thresholds, dtype=torch.float64)[self.run]

    @property
    def ranking(self) -> Tensor:
        """All samples, the most suspicious first, int64 `[N]`."""
        return self.above_threshold.argsort(stable=True)

    def __str__(self) -> str:
        n, flagged = len(self.aum), int(self.suspicious.sum())
        return (
            f"{flagged:,} of {n:,} samples ({100 * flagged / n:.2f} %) are suspicious: AUM of at most "
            f"{self.thresholds[0]:.4g} (first run) or {self.thresholds[1]:.4g} (second), "
            f"the {self.percentile:g}th percentile of threshold samples"
        )


def find_mislabelled(
    train: Callable[[Tensor, int, int], object],
    labels: object,
    n_classes: int,
    *,
    percentile: float = 99.0,
    generator: torch.Generator | None = None,
) -> Audit:
    """Return the samples that look mislabelled, by two training runs with disjoint threshold samples.

    The first run judges every sample but its own threshold samples; the second judges those.

    Parameters
    ----------
    train
        Called twice as `train(labels, n_outputs, run)`: trains a new network with `n_outputs` = K + 1 outputs on these
        labels (int64 `[N]`, those of threshold samples being K), `run` being 0 and then 1, and returns the area under
        the margin of every sample, `[N]` (`AUM.values()`).
    labels
        Class numbers `[N]`.
    n_classes
        K.
    percentile
        As in `suspects`.
    generator
        Draws the threshold samples; torch's global generator if not given.

    Returns
    -------
    Audit
        The AUM of every sample, both thresholds and which samples are suspicious.

    Examples
    --------
    >>> def train(labels, n_outputs, run):  # a network to which the last sample's label makes no sense
    ...     margins = torch.where(labels == 2, -3.0, 2.0)
    ...     margins[-1] = -4.0
    ...     return margins
    >>> audit = find_mislabelled(train, [0, 1] * 6, 2)
    >>> audit.suspicious.nonzero().flatten(), int(audit.ranking[0])
    (tensor([11]), 11)
    """
    given = as_labels("labels", labels, n_classes=integer("n_classes", n_classes, low=1))
    number("percentile", percentile, low=0, high=100)
    masks = threshold_samples(given, n_classes, generator=generator)
    values, flagged, thresholds = [], [], []
    for run, mask in enumerate(masks):
        aum = _aum(train(given.masked_fill(mask, n_classes), n_classes + 1, run))
        if aum.shape != given.shape:
            raise ValueError(f"train must return the AUM of all {len(given)} samples, got {list(aum.shape)}")
        chosen, threshold = suspects(aum, mask, percentile=percentile)
        values.append(aum)
        flagged.append(chosen)
        thresholds.append(threshold)
    judged_second = masks[0]
    return Audit(
        aum=torch.where(judged_second, values[1], values[0]),
        run=judged_second.long(),
        thresholds=(thresholds[0], thresholds[1]),
        suspicious=torch.where(judged_second, flagged[1], flagged[0]),
        percentile=float(percentile),
    )


def _aum(values: object) -> Tensor:
    aum = as_tensor("aum", values).double()
    if aum.ndim != 1 or len(aum) == 0:
        raise ValueError(f"aum must have shape [N], got {list(aum.shape)}")
    if not bool(aum.isfinite().all()):
        raise ValueError("aum must be finite, got NaN or inf: was every sample seen in training?")
    return aum
