r"""Two perceptrons that see a row of a table in two ways, and answer together.

One sees the numbers standardised and the categories, the other their piecewise-linear features besides
(`vicinal.data`, `features="piecewise"`). The first is smooth where little is known, the second bends where the data say
so; of their mean probabilities

.. math:: \bar p = \tfrac12 \big( \operatorname{softmax}(f(x_\mathrm{plain})) + \operatorname{softmax}(g(x)) \big)

the errors that only one makes are halved. In training each row goes through one of them, the next row through the
other, as the mini-batch of Wen et al. is divided among the members of an ensemble: the loss is the mean of their losses
(not the loss of their mean, which would make them one network). The last layer is one, of both, with zeros in the place
of the other, so that what mixes or looks at the input of the head finds it.

References
----------
Gorishniy, Rubachev & Babenko, "On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS 2022.
Lakshminarayanan, Pritzel & Blundell, "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles",
NeurIPS 2017.
Wen, Tran & Ba, "BatchEnsemble: an Alternative Approach to Efficient Ensemble and Lifelong Learning", ICLR 2020.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from vicinal._checks import ArgumentError, integer
from vicinal.models.averaged import mean_logits
from vicinal.models.mlp import hidden_layers

__all__ = ["TwoViewMLP"]


class TwoViewMLP(nn.Module):
    """Two perceptrons: features `[B, …]`, which are flattened, to logits `[B, n_classes]`.

    Parameters
    ----------
    plain
        The places of the features that the first sees; all of them if not given. The second sees all.
    hidden
        The units of each hidden layer, of both.
    dropout
        The share of hidden units that is dropped after each ReLU in the second, which has more to go by.
    exclusive
        Whether the outputs are classes, of which one holds; else each is a label of its own, with a mean of its own.

    >>> TwoViewMLP(8, 3, plain=[0, 4])(torch.randn(5, 8)).shape
    torch.Size([5, 3])
    """

    plain: Tensor

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        plain: Sequence[int] | None = None,
        hidden: Sequence[int] = (128, 128),
        dropout: float = 0.1,
        exclusive: bool = True,
    ) -> None:
        super().__init__()
        self.exclusive = exclusive
        places = list(range(n_features)) if plain is None else [integer("plain", place, low=0) for place in plain]
        if not places or max(places) >= n_features:
            raise ArgumentError("plain", plain, f"places below {n_features}, at least one")
        self.register_buffer("plain", torch.tensor(places), persistent=False)
        self.first, self._width = hidden_layers(len(places), hidden, 0.0)
        self.second, beside = hidden_layers(n_features, hidden, dropout)
        self.classifier = nn.Linear(self._width + beside, integer("n_classes", n_classes, low=1))

    def forward(self, x: Tensor) -> Tensor:
        """Return in training the logits of every other row by the second, else the log of their mean probabilities."""
        x = torch.flatten(x, 1)
        if not self.training:
            first, second = self.first(x[:, self.plain]), self.second(x)
            rows = torch.cat([pad(first, (0, second.shape[1])), pad(second, (first.shape[1], 0))])
            return mean_logits(self.classifier(rows).unflatten(0, (2, -1)), 0, exclusive=self.exclusive)
        first = self.first(x[0::2, self.plain])
        rows = first.new_zeros(len(x), self.classifier.in_features)
        rows[0::2, : self._width] = first
        if len(x) > 1:
            rows[1::2, self._width :] = self.second(x[1::2])
        logits: Tensor = self.classifier(rows)
        return logits
