r"""A deep ensemble as one network: the mean of the members' probabilities.

.. math:: \log \bar p_k, \qquad \bar p = \frac1M \sum_{m=1}^{M} \operatorname{softmax}(z^{(m)})

These are logits of :math:`\bar p`, so that one temperature calibrates the mean, and what serves one network serves M.
Each label of a multi-label task has a mean and a logit, log Σₘ σ(zₖ⁽ᵐ⁾) − log Σₘ σ(−zₖ⁽ᵐ⁾).

References
----------
Lakshminarayanan, Pritzel & Blundell, "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles",
NeurIPS 2017. Rahaman & Thiery, "Uncertainty Quantification and Deep Ensembles", NeurIPS 2021 (the temperature after
the mean).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from vicinal.probes.uncertainty import mean_logits

#: How close `best_share` is to the best.
_PRECISION = 1e-4


class Averaged(nn.Module):
    """Networks that were trained apart and answer together: the log of their mean probabilities, `[B, K]`.

    Parameters
    ----------
    members
        Networks that return logits `[B, K]`, or objects with `.logits`. It is for evaluation: members are to be
        trained one by one, since the loss of a mean would make them one large network.

    >>> Averaged([nn.Linear(4, 3), nn.Linear(4, 3)])(torch.zeros(2, 4)).exp().sum(1).allclose(torch.ones(2))
    True
    """

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        """Return the log of the members' mean probabilities."""
        outputs = [member(*args, **kwargs) for member in self.members]
        logits = torch.stack([getattr(output, "logits", output) for output in outputs])
        return mean_logits(logits, 0)


def best_share(first: Tensor, second: Tensor, rows_more: tuple[float, float] = (5.0, 5.0)) -> float:
    r"""Return how much the first of two models should count in a mean of probabilities, by rows not trained on.

    It is the share :math:`0 < w < 1` for which :math:`\sum_i \log(w p_i + (1 - w) q_i) + a \log w + b \log (1 - w)`,
    which is concave, is largest. The last two terms are those of a and b rows more that the first, or the second, alone
    gets right: few rows leave the share near a / (a + b).

    Parameters
    ----------
    first, second
        The probabilities of what was true by either, `[N]`.
    rows_more
        a and b.

    >>> best_share(torch.tensor([0.9, 0.9]), torch.tensor([0.9, 0.9]))
    0.5
    """
    p, q = first.double(), second.double()
    low, high = 0.0, 1.0
    while high - low > _PRECISION:
        w = (low + high) / 2
        mean = (w * p + (1 - w) * q).clamp_min(torch.finfo(torch.float64).tiny)
        rises = float(((p - q) / mean).sum()) + rows_more[0] / w - rows_more[1] / (1 - w)
        low, high = (w, high) if rises > 0 else (low, w)
        if rises == 0:
            return w
    return (low + high) / 2
