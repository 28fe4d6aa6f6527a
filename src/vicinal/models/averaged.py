r"""A deep ensemble as one network: the mean of the members' probabilities.

.. math:: \log \bar p_k, \qquad \bar p = \frac1M \sum_{m=1}^{M} \operatorname{softmax}(z^{(m)})

These are logits of :math:`\bar p`, so that one temperature calibrates the mean, and what serves one network serves M.
Of labels that exclude nothing each has a mean and a logit, log Σₘ σ(zₖ⁽ᵐ⁾) − log Σₘ σ(−zₖ⁽ᵐ⁾).

References
----------
Lakshminarayanan, Pritzel & Blundell, "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles",
NeurIPS 2017. Rahaman & Thiery, "Uncertainty Quantification and Deep Ensembles", NeurIPS 2021 (the temperature after
the mean).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

__all__ = ["Averaged", "mean_logits"]


def mean_logits(logits: Tensor, dim: int, *, exclusive: bool = True, weights: Tensor | None = None) -> Tensor:
    """Return the logits of mean probabilities, of members along `dim` with the classes or labels last.

    `exclusive` says whether the outputs are classes, of which one holds; else each is a label of its own. `weights` say
    how much each member counts, in a shape that can be added to `logits`; they sum to one. All count the same without.
    """
    shift = -math.log(logits.shape[dim]) if weights is None else weights.log()
    if exclusive:
        return (logits.log_softmax(dim=-1) + shift).logsumexp(dim=dim)
    return (logsigmoid(logits) + shift).logsumexp(dim=dim) - (logsigmoid(-logits) + shift).logsumexp(dim=dim)


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
