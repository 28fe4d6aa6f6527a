r"""Label noise: corrupt labels as in the code that Zhang et al. adapt, and the errors that they report.

References
----------
Zhang, Bengio, Hardt, Recht & Vinyals, "Understanding deep learning requires rethinking generalization", ICLR 2017.
Zhang, Cisse, Dauphin & Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018, Section 3.4 and Table 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal import _random
from vicinal._arrays import as_labels, as_tensor
from vicinal._checks import flag, integer, number
from vicinal.metrics.intervals import Estimate, clopper_pearson


def corrupt_labels(
    labels: object,
    fraction: float,
    n_classes: int,
    *,
    include_true: bool = True,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Replace each label with probability `fraction` by one drawn uniformly over the classes.

    As in the code that the paper adapts every sample tosses a coin of its own, so the number of replaced labels is
    binomial with mean fraction·N, not exactly that; and the new label is drawn over all K classes, the true one
    included, so that only fraction·(K − 1)/K of the labels are wrong in the end.

    Parameters
    ----------
    labels
        Class numbers `[N]`.
    fraction
        The probability that a label is replaced, in [0, 1].
    n_classes
        K.
    include_true
        Whether the drawn label may be the true one; without, every replaced label is wrong.
    generator
        Where randomness comes from; torch's global generator if not given. With one seed, what a smaller fraction
        replaces a larger one replaces too, by the same labels.

    Returns
    -------
    labels, mask
        New int64 labels `[N]`, and which of them were **redrawn**, bool `[N]` (`new != labels` tells which were
        changed); both on the device of `labels`.

    Examples
    --------
    >>> new, mask = corrupt_labels([0, 1, 2, 0], 1.0, 3, include_true=False)
    >>> mask.all(), (new != torch.tensor([0, 1, 2, 0])).all()
    (tensor(True), tensor(True))
    """
    n_classes = integer("n_classes", n_classes, low=1)
    fraction = number("fraction", fraction, low=0, high=1)
    if not flag("include_true", include_true) and n_classes < 2:
        raise ValueError("include_true=False needs at least two classes, got n_classes=1")
    old = as_labels("labels", labels, n_classes=n_classes)
    # Drawn for every sample, needed or not, so that a seed means the same for every fraction.
    mask = _random.coin(fraction, len(old), generator=generator)
    if include_true:
        drawn = _random.integers(n_classes, len(old), generator=generator)
    else:
        drawn = (old + 1 + _random.integers(n_classes - 1, len(old), generator=generator)) % n_classes
    device = labels.device if isinstance(labels, Tensor) else old.device
    return torch.where(mask, drawn, old).to(device), mask.to(device)


@dataclass(frozen=True)
class NoiseErrors:
    """Training errors under label noise, each an `Estimate` (value, low, high; NaN where there are no samples).

    Examples
    --------
    >>> errors = noise_errors([0, 1, 0], [0, 1, 1], [False, False, True], predictions=[0, 1, 0])
    >>> errors.real.value, errors.corrupted.value
    (0.0, 1.0)
    """

    real: Estimate
    """On the samples whose label was kept."""
    corrupted: Estimate
    """On the redrawn samples, against their redrawn labels: low where noise was memorised. A model that ignores the
    noise has (K − 1)/K here, not 1, since the true label may be redrawn."""
    recovered: Estimate
    """On the same samples, against their true labels, which training never saw. Not in the published table."""

    def to_dict(self) -> dict[str, object]:
        """Return plain numbers for a JSON file."""
        return {name: estimate.to_dict() for name, estimate in vars(self).items()}


def noise_errors(
    labels: object, corrupted: object, mask: object, *, predictions: object, level: float = 0.95
) -> NoiseErrors:
    """Return the training errors on real and on corrupted labels (Zhang et al. 2018, Table 2), with exact intervals.

    Parameters
    ----------
    labels, corrupted
        The true labels `[N]`, and those that were trained on.
    mask
        Which labels were randomly relabelled, bool `[N]`: what `corrupt_labels` returned.
    predictions
        Predicted class numbers `[N]` of the training samples.
    level
        Coverage of the intervals.

    Returns
    -------
    NoiseErrors
        The errors on real and on corrupted labels, and on the true labels of corrupted samples.

    Examples
    --------
    >>> mask = [False, False, True, True]
    >>> errors = noise_errors([0, 1, 0, 0], [0, 1, 1, 1], mask, predictions=[0, 1, 1, 0])
    >>> errors.real.value, errors.corrupted.value, errors.recovered.value
    (0.0, 0.5, 0.5)
    """
    guess, true, trained = (
        as_labels(name, given)
        for name, given in (("predictions", predictions), ("labels", labels), ("corrupted", corrupted))
    )
    redrawn = as_tensor("mask", mask)
    if redrawn.dtype != torch.bool:
        raise ValueError(f"mask must be bool, got {redrawn.dtype}")
    lengths = {"predictions": guess, "labels": true, "corrupted": trained, "mask": redrawn}
    if len({tuple(t.shape) for t in lengths.values()}) != 1:
        shapes = ", ".join(f"{name} {list(t.shape)}" for name, t in lengths.items())
        raise ValueError(f"predictions, labels, corrupted and mask must have the same length, got {shapes}")
    if bool((true != trained)[~redrawn].any()):
        raise ValueError("labels and corrupted differ where mask is False: the mask is not that of these labels")
    return NoiseErrors(
        real=_error(guess != true, ~redrawn, level),
        corrupted=_error(guess != trained, redrawn, level),
        recovered=_error(guess != true, redrawn, level),
    )


@dataclass(frozen=True)
class BestAndLast:
    """The lowest and the last of a run's test errors. The lowest is chosen by the test set itself: an oracle's.

    Examples
    --------
    >>> best_and_last([0.5, 0.2, 0.3]).best_at
    1
    """

    best: float
    best_at: int
    last: float


def best_and_last(errors: Iterable[float]) -> BestAndLast:
    """Return the best and the last of the test errors of a run's epochs (Zhang et al. 2018, Table 2).

    Returns
    -------
    BestAndLast
        The lowest error, the position at which it occurs, and the last error.

    Examples
    --------
    >>> best_and_last([0.5, 0.2, 0.3])
    BestAndLast(best=0.2, best_at=1, last=0.3)
    """
    values = [number("errors", error) for error in errors]
    if not values:
        raise ValueError("errors is empty: there is nothing to report")
    best = min(values)
    return BestAndLast(best, values.index(best), values[-1])


def _error(wrong: Tensor, among: Tensor, level: float) -> Estimate:
    n, k = int(among.sum()), int((wrong & among).sum())
    low, high = clopper_pearson(k, n, level)
    return Estimate(k / n if n else math.nan, float(low), float(high))
