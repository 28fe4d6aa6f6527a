r"""Two perceptrons that see a row of a table in two ways, and answer together.

One sees the numbers standardised and by rank, and the categories. The other sees their piecewise-linear features
besides (`vicinal.data`, `features="ranked"`). The first is smooth where data are few, the second bends where they are
many. An error that only one of them makes counts in part, since their mean probabilities are

.. math:: \bar p = w \operatorname{softmax}(f(x_\mathrm{plain})) + (1 - w) \operatorname{softmax}(g(x))

In training rows alternate between the two, as the mini-batch of Wen et al. is divided among the members of an ensemble.
The loss is the mean of their losses, not the loss of their mean, which would make them one network. Both share one last
layer, with zeros in the place of the other, so that methods which mix or read the input of the head find it.

After training, held-out rows choose the share :math:`w` (`averaged.best_share`); it starts at one half.

References
----------
Gorishniy, Rubachev & Babenko, "On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS 2022.
Lakshminarayanan, Pritzel & Blundell, "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles",
NeurIPS 2017.
Wen, Tran & Ba, "BatchEnsemble: an Alternative Approach to Efficient Ensemble and Lifelong Learning", ICLR 2020.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from vicinal._checks import ArgumentError, integer
from vicinal.models.averaged import best_share
from vicinal.models.mlp import hidden_layers
from vicinal.probes.uncertainty import mean_logits


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

    Attributes
    ----------
    share
        w, how much the first counts, between 0 and 1; saved with the weights.

    Examples
    --------
    >>> TwoViewMLP(8, 3, plain=[0, 4])(torch.randn(5, 8)).shape
    torch.Size([5, 3])
    """

    plain: Tensor
    share: Tensor

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
        self.register_buffer("share", torch.tensor(0.5))
        self.first, self._width = hidden_layers(len(places), hidden, 0.0)
        self.second, beside = hidden_layers(n_features, hidden, dropout)
        self.classifier = nn.Linear(self._width + beside, integer("n_classes", n_classes, low=1))

    def forward(self, x: Tensor) -> Tensor:
        """Return in training the logits of every other row by the second, else the log of their mean probabilities."""
        x = torch.flatten(x, 1)
        if not self.training:
            weights = torch.stack([self.share, 1 - self.share]).view(2, 1, 1)
            return mean_logits(self._each(x), 0, exclusive=self.exclusive, weights=weights)
        first = self.first(x[0::2, self.plain])
        rows = first.new_zeros(len(x), self.classifier.in_features)
        rows[0::2, : self._width] = first
        if len(x) > 1:
            rows[1::2, self._width :] = self.second(x[1::2])
        logits: Tensor = self.classifier(rows)
        return logits

    @torch.no_grad()
    def after_fit(
        self, train: Iterable[tuple[Tensor, Tensor, Tensor | None]], val: Iterable[tuple[Tensor, Tensor]]
    ) -> None:
        """Choose the share by rows that were not trained on: features `[B, …]` with classes `[B]` or labels `[B, L]`.

        Call it in eval mode.
        """
        both = [_of_truth(self._each(torch.flatten(x, 1)), y, exclusive=self.exclusive) for x, y in val]
        if both:
            self.share.fill_(best_share(*torch.cat(both, dim=1)))

    def _each(self, x: Tensor) -> Tensor:
        """Return the logits of both, `[2, B, K]`."""
        first, second = self.first(x[:, self.plain]), self.second(x)
        rows = torch.cat([pad(first, (0, second.shape[1])), pad(second, (first.shape[1], 0))])
        each: Tensor = self.classifier(rows).unflatten(0, (2, -1))
        return each


def _of_truth(logits: Tensor, y: Tensor, *, exclusive: bool) -> Tensor:
    """Return the probability that both give to each row's class, or to each of its labels, `[2, N]`."""
    logits, y = logits.cpu(), y.cpu()  # some devices have no float64
    if exclusive:
        return logits.double().softmax(dim=2)[:, torch.arange(len(y)), y]
    signs = 2 * y.view(len(y), -1).double() - 1
    return (logits.double() * signs).sigmoid().flatten(1)
