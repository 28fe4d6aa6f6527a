r"""The majority baseline: always answering the most frequent class, with the shares of the classes.

.. math:: \text{accuracy} = \max_k \frac{n_k}{n}, \qquad \text{NLL} = -\sum_k \frac{n_k}{n} \log \frac{n_k}{n}

The shares are those of the samples themselves, so no constant answer does better on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BaseRate:
    """The most frequent class of some samples, its share, and the NLL of answering with the shares of all classes.

    Examples
    --------
    >>> from vicinal.metrics import base_rate
    >>> base_rate([1, 3]).majority
    1
    """

    majority: int
    share: float
    nll: float


def base_rate(counts: object) -> BaseRate:
    """Return the majority baseline on samples of which so many have each class, `[K]`.

    Returns
    -------
    BaseRate
        The majority class, its share and the NLL.

    Examples
    --------
    >>> base_rate([3, 1])
    BaseRate(majority=0, share=0.75, nll=0.5623351446188083)
    """
    n = np.asarray(counts, np.float64)
    if n.ndim != 1 or not len(n) or (n < 0).any() or not n.sum():
        raise ValueError(f"counts must hold how many samples each class has, got {counts!r}")
    share = n / n.sum()
    there = share[share > 0]
    return BaseRate(int(share.argmax()), float(share.max()), float(-(there @ np.log(there))))
