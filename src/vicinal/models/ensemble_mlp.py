r"""An ensemble of perceptrons that share their weights, for rows of a table.

Every member has the same matrix :math:`W` in each layer, and vectors of its own that scale what goes in and comes out:

.. math:: h_m = s_m \odot W (r_m \odot x) + b_m

so that M members cost hardly more memory than one. In training each row goes through one member, the next row through
the next, as the mini-batch of Wen et al. is divided among theirs: a step costs what a single perceptron's does, and an
expected loss is the mean of the members' losses (not the loss of their mean, which would make them one large network).
In evaluation every row goes through all members, and their probabilities are averaged. As in TabM, only the first
:math:`r_m` starts at random signs, all other scales at one. The last layer is a plain linear one with :math:`r_m`
before it, so that what mixes or looks at the input of the head finds it; TabM has a matrix of each member there.

References
----------
Wen, Tran & Ba, "BatchEnsemble: an Alternative Approach to Efficient Ensemble and Lifelong Learning", ICLR 2020.
Gorishniy, Kotelnikov & Babenko, "TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling", ICLR 2025.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from vicinal._checks import integer, number
from vicinal.probes.uncertainty import mean_logits


class EnsembleMLP(nn.Module):
    """Perceptrons with shared weights: features `[B, …]`, which are flattened, to logits `[B, n_classes]`.

    Parameters
    ----------
    hidden
        The units of each hidden layer.
    dropout
        The share of hidden units that is dropped after each ReLU.
    members
        M; with 1 it is a plain perceptron.
    exclusive
        Whether the outputs are classes, of which one holds; else each is a label of its own, with a mean of its own.

    Examples
    --------
    >>> EnsembleMLP(8, 3)(torch.randn(5, 8)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        hidden: Sequence[int] = (256, 256),
        dropout: float = 0.1,
        members: int = 8,
        exclusive: bool = True,
    ) -> None:
        super().__init__()
        self.exclusive = exclusive
        if not isinstance(hidden, list | tuple):
            raise TypeError(f"hidden must be a list of the units of each layer, such as [256, 256], got {hidden!r}")
        self.members = integer("members", members, low=1)
        dropout = number("dropout", dropout, low=0, high=1)
        sizes = [integer("n_features", n_features, low=1), *(integer("hidden", units, low=1) for units in hidden)]
        shared = [_SharedLinear(*pair, self.members, first=i == 0) for i, pair in enumerate(pairwise(sizes))]
        self.layers = nn.Sequential(*(nn.Sequential(layer, nn.ReLU(), nn.Dropout(dropout)) for layer in shared))
        self.scale = _MemberScale(sizes[-1], self.members)
        self.classifier = nn.Linear(sizes[-1], integer("n_classes", n_classes, low=1))

    def forward(self, x: Tensor) -> Tensor:
        """Return in training the logits of row i by member i mod M, else the log of the members' mean probabilities."""
        x = torch.flatten(x, 1)
        if self.training:
            logits: Tensor = self.classifier(self.scale(self.layers(x)))
            return logits
        each: Tensor = self.classifier(
            self.scale(self.layers(x.unsqueeze(1).expand(-1, self.members, -1).flatten(0, 1)))
        )
        return mean_logits(each.reshape(-1, self.members, each.shape[1]), 1, exclusive=self.exclusive)


class _ByMember(nn.Module, ABC):
    """Calls `of_members` with rows `[n, M, D]`: row i is of member i mod M."""

    members: int

    def forward(self, x: Tensor) -> Tensor:
        """Return what each row's member makes of it, `[B, …]`."""
        if not self.training:  # each row is there once for each member
            return self.of_members(x.reshape(-1, self.members, x.shape[1])).flatten(0, 1)
        short = -len(x) % self.members
        padded = pad(x, (0, 0, 0, short)) if short else x
        return self.of_members(padded.reshape(-1, self.members, x.shape[1])).flatten(0, 1)[: len(x)]

    @abstractmethod
    def of_members(self, x: Tensor) -> Tensor:
        """Return what every member makes of its rows."""


class _SharedLinear(_ByMember):
    """One matrix, and scales and a bias of each member."""

    def __init__(self, inputs: int, outputs: int, members: int, *, first: bool) -> None:
        super().__init__()
        self.members = members
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.scale_in = nn.Parameter(torch.ones(members, inputs))
        if first:
            with torch.no_grad():
                nn.init.uniform_(self.scale_in, -1, 1).sign_()
        self.scale_out = nn.Parameter(torch.ones(members, outputs))
        bound = 1 / math.sqrt(inputs)
        self.bias = nn.Parameter(nn.init.uniform_(torch.empty(members, outputs), -bound, bound))

    def of_members(self, x: Tensor) -> Tensor:
        """Return s ⊙ W (r ⊙ x) + b."""
        out: Tensor = self.linear(x * self.scale_in) * self.scale_out + self.bias
        return out


class _MemberScale(_ByMember):
    """The scales of each member, before the last layer."""

    def __init__(self, inputs: int, members: int) -> None:
        super().__init__()
        self.members = members
        self.scale_in = nn.Parameter(torch.ones(members, inputs))

    def of_members(self, x: Tensor) -> Tensor:
        """Return r ⊙ x."""
        return x * self.scale_in
