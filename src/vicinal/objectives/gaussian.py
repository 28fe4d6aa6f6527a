r"""Gaussian vicinity: the noise that mixup replaces.

.. math:: \tilde x = x + \sigma \varepsilon, \quad \varepsilon \sim \mathcal{N}(0, I), \qquad
    \mathcal{L} = H(f(\tilde x), y)

References
----------
Chapelle, Weston, Bottou & Vapnik, "Vicinal Risk Minimization", NeurIPS 2000.
Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, Section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from vicinal import _random, losses
from vicinal._checks import added_field, freeze, number
from vicinal._typing import Batch, Model, Step
from vicinal.objectives.base import Objective, checked_fields, mean_loss
from vicinal.objectives.forward import call, laid_out_like, map_floating, untraced


@dataclass(frozen=True, kw_only=True, repr=False)
class GaussianVicinity(Objective):
    """Train on inputs with Gaussian noise and unchanged labels.

    Parameters
    ----------
    sigma
        σ ≥ 0, the noise's standard deviation in the units of the input.
    label_smoothing
        ε of the labels. Default: 0.
    inputs
        Of a mapping with several floating tensors, all their names: each gets noise of its own.

    Examples
    --------
    >>> import torch
    >>> objective = GaussianVicinity(sigma=0.1)
    >>> loss = objective(torch.nn.Linear(4, 3), torch.randn(8, 4), torch.randint(3, (8,)))
    """

    sigma: float
    label_smoothing: float = 0.0
    inputs: Sequence[str] = added_field(())

    def __post_init__(self) -> None:
        freeze(self, **checked_fields(self), sigma=number("sigma", self.sigma, low=0))

    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        """Return the mean loss of the noisy batch."""
        noises = iter(self._drawn(x, step) if step.drawn is None else step.drawn)

        def add_noise(t: Tensor) -> Tensor:
            noise = next(noises).to(t.device, non_blocking=True)
            return laid_out_like(t, (t + self.sigma * noise).to(t.dtype))

        logits = call(model, map_floating(x, add_noise, self.inputs))
        return {"loss": mean_loss(losses.loss(logits, y, label_smoothing=self.label_smoothing), logits, y, step)}

    def draw_ahead(self, x: Batch, y: Tensor, step: Step, model: Model | None = None) -> Callable[[], object] | None:
        """Return what draws the noise of this step."""
        return partial(self._drawn, x, step)

    @untraced
    def _drawn(self, x: Batch, step: Step) -> list[Tensor]:
        """Return the noise of each input."""
        noises: list[Tensor] = []

        def noted(t: Tensor) -> Tensor:
            noises.append(_random.normal_like(t, generator=step.generator))
            return t

        map_floating(x, noted, self.inputs)
        return noises
