r"""Mixup of k samples with Dirichlet weights.

.. math::
    \tilde x = \sum_{j=1}^k w_j x_{\pi_j}, \qquad w \sim \mathrm{Dirichlet}(\alpha, \dots, \alpha), \qquad
    \mathcal{L} = \sum_j w_j H(f(\tilde x), y_{\pi_j}), \qquad \pi_1 = \mathrm{id}

References
----------
Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, Section 2: three or more samples did about as
well as two, at a higher cost.

Deviation: none published; the weights are Dirichlet draws in float64, in random order by symmetry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vicinal import _random
from vicinal._checks import added_field, freeze, integer
from vicinal._typing import Batch, Model
from vicinal.mixing import sent, weighted_rows
from vicinal.objectives.base import InputMixing, checked_fields
from vicinal.objectives.forward import mixed_input, same_rows


@dataclass(frozen=True, eq=False)
class GroupPlan:
    """Each row mixed from k rows, itself the first."""

    weights: Tensor
    """The share of each source, float32 `[B, k]`."""
    partners: Tensor
    """The row number of each source, int64 `[B, k]`."""
    mixed: bool = True
    """False where the batch was left as it is."""

    def combine(self, t: Tensor) -> Tensor:
        """Return Σₖ weightₖ · t[partnerₖ]."""
        return weighted_rows(t, self.partners, self.weights)


@dataclass(frozen=True, kw_only=True, repr=False)
class KMixup(InputMixing[GroupPlan]):
    """Mix k samples with Dirichlet weights.

    Parameters
    ----------
    alpha
        α ≥ 0 of the symmetric Dirichlet; 0 mixes nothing, `inf` takes plain averages.
    k
        How many samples are mixed into one, at least 2. `k=2` is Mixup.
    per_sample
        Draw one weight vector per sample instead of one per batch.
    label_smoothing
        ε of each label before it is mixed. Default: 0.
    prob
        The share of batches (of samples with `per_sample`) that is mixed.
    inputs
        Of a mapping with several floating tensors, all their names: they are mixed with one plan.

    Examples
    --------
    >>> objective = KMixup(alpha=1.0, k=3)
    >>> loss = objective(torch.nn.Linear(4, 3), torch.randn(8, 4), torch.randint(3, (8,)))
    """

    alpha: float
    k: int
    per_sample: bool = False
    label_smoothing: float = 0.0
    prob: float = added_field(1.0)
    inputs: Sequence[str] = added_field(())
    draws_ahead: ClassVar[bool] = True

    def __post_init__(self) -> None:
        freeze(self, **checked_fields(self), k=integer("k", self.k, low=2))

    def draw(self, model: Model, x: Batch, y: Tensor, *, generator: torch.Generator | None = None) -> GroupPlan:
        """Draw the weights and k − 1 permutations."""
        inputs = mixed_input(x, self.inputs)
        n = same_rows(len(inputs), y)
        weights = _random.dirichlet(self.alpha, self.k, n if self.per_sample else 1, generator=generator)
        tossed = _random.tosses(self.prob, n, per_sample=self.per_sample, generator=generator)
        alone = _random.dirichlet(0, self.k, 1)
        weights, mixed = torch.where(tossed[:, None], weights, alone), self.alpha > 0 and bool(tossed.any())
        others = [_random.permutation(n, generator=generator) for _ in range(self.k - 1)]
        partners = torch.stack([torch.arange(n, device="cpu"), *others], dim=1)
        return sent(GroupPlan(weights.float().expand(n, -1), partners, mixed=mixed), inputs.device)

    def mix(self, x: Tensor, plan: GroupPlan) -> Tensor:
        """Return Σⱼ wⱼ x_πⱼ."""
        return plan.combine(x)
