r"""Manifold Mixup: mix the hidden states of one layer, drawn in each step.

.. math::
    \tilde h = \lambda g_k(x) + (1-\lambda) g_k(x_\pi), \qquad
    \mathcal{L} = \lambda H(f_k(\tilde h), y) + (1-\lambda) H(f_k(\tilde h), y_\pi)

where :math:`f = f_k \circ g_k` splits the network after the layer k.

References
----------
Verma et al., "Manifold Mixup: Better Representations by Interpolating Hidden States", ICML 2019.

Deviation: the published code edits the network's forward; here any layer of any module is mixed from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal import _random, losses
from vicinal._checks import added_field, freeze
from vicinal._typing import Batch, Model
from vicinal.mixing import PairPlan, sent
from vicinal.objectives.base import MixingObjective, checked_fields
from vicinal.objectives.forward import (
    call,
    joined,
    layouts,
    locate,
    map_floating,
    mixed_at,
    mixed_input,
    mixed_second_half,
    n_rows,
    row_axes,
    same_rows,
    with_shared_masks,
)
from vicinal.objectives.transformers import end_of_text, feeds_head


@dataclass(frozen=True, eq=False)
class LayerPlan(PairPlan):
    """A pair plan with the layer at which the rows are mixed."""

    layer: str = "input"

    axis: int = 0
    """Which axis of the layer's output holds the rows."""

    pooled: bool = False
    """Whether the layer returns one vector for each row, `[B, D]`, which is read without a mask."""

    def mix_states(self, *, beside_clean: bool) -> Callable[[Tensor], Tensor]:
        """Return what mixes the layer's output, rows first; one with another number of rows is refused."""
        n_rows = len(self.partner) * (2 if beside_clean else 1)
        mix = mixed_second_half(self.combine) if beside_clean else self.combine

        def checked(output: Tensor) -> Tensor:
            if len(output) != n_rows:
                raise ValueError(
                    f"the layer {self.layer!r} returned {len(output)} rows for a batch of {n_rows}, so it "
                    "cannot be mixed: choose a layer whose output has a row for each sample"
                )
            return mix(output)

        return checked


@dataclass(frozen=True, kw_only=True, repr=False)
class ManifoldMixup(MixingObjective[LayerPlan]):
    """Mix at a random layer.

    Parameters
    ----------
    layers
        The layers to choose from: `"input"` and names of submodules (as in `model.named_modules()`), whose
        output is mixed (the first tensor of a tuple). One is drawn per step. Verma et al. use the input and
        the first two or three residual blocks.
    alpha
        α ≥ 0 of Beta(α, α); the paper's CIFAR setting is 2.
    per_sample
        Draw one λ per sample instead of one per batch.
    label_smoothing
        ε of each label before it is mixed. Default: 0.
    prob
        The share of batches (of samples with `per_sample`) that is mixed.
    inputs
        Of a mapping with several floating tensors, all their names: `"input"` mixes them with one plan.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> objective = ManifoldMixup(alpha=2.0, layers=["input", "1"])
    >>> loss = objective(model, torch.randn(8, 4), torch.randint(3, (8,)))
    """

    layers: Sequence[str]
    alpha: float = 2.0
    per_sample: bool = False
    label_smoothing: float = 0.0
    prob: float = added_field(1.0)
    inputs: Sequence[str] = added_field(())

    def __post_init__(self) -> None:
        layers = self.layers
        if not (isinstance(layers, list | tuple) and layers and all(isinstance(name, str) and name for name in layers)):
            raise ValueError(f"layers must be a non-empty list of 'input' and names of submodules, got {layers!r}")
        freeze(self, **checked_fields(self), layers=tuple(layers))

    def draw(self, model: Model, x: Batch, y: Tensor, *, generator: torch.Generator | None = None) -> LayerPlan:
        """Draw the layer, λ and the partners."""
        for name in self.layers:
            if name != "input":
                locate(model, name)  # a misspelt layer must not wait until it is drawn
        layer = self.layers[int(_random.integers(len(self.layers), 1, generator=generator))]
        n = same_rows(len(mixed_input(x, self.inputs)) if layer == "input" else n_rows(x), y)
        lam = _random.lam(self.alpha, n, per_sample=self.per_sample, generator=generator)
        tossed = _random.tosses(self.prob, n, per_sample=self.per_sample, generator=generator)
        lam, mixed = torch.where(tossed, lam, 1.0), self.alpha > 0 and bool(tossed.any())
        partner = _random.permutation(n, generator=generator)
        inside = [name for name in self.layers if name != "input"]
        axes: dict[str, int] = {}
        if inside:  # whatever was drawn: where weights are sharded, all ranks run the model equally often
            _refuse_unread_ends(model, x)
            axes = row_axes(model, x, inside)
        pooled = layer != "input" and layouts(model, x, inside)[layer].ndim == 2
        plan = LayerPlan(lam, partner, mixed=mixed, layer=layer, axis=axes.get(layer, 0), pooled=pooled)
        return sent(plan, y.device)

    def forward(self, model: Model, x: Batch, plan: LayerPlan, *, beside_clean: bool = False) -> Tensor:
        """Return the logits of the batch mixed at the planned layer, after those of the clean one if wanted."""
        if plan.layer == "input":
            mixed = with_shared_masks(map_floating(x, plan.combine, self.inputs), plan)
            return call(model, joined(x, mixed) if beside_clean else mixed)
        mixed = x if plan.pooled else with_shared_masks(x, plan)
        with mixed_at(model, plan.layer, plan.mix_states(beside_clean=beside_clean), axis=plan.axis):
            return call(model, joined(x, mixed) if beside_clean else mixed)

    def mixes_before_head(self, model: Model, plan: LayerPlan) -> bool:
        """Return whether the planned layer is the last one before the linear head."""
        return plan.layer != "input" and feeds_head(model, plan.layer)


def _refuse_unread_ends(model: Model, x: Batch) -> None:
    """Refuse texts that end at different columns in a decoder: it reads a mixture where the first of its texts ends."""
    mask = x.get("attention_mask") if isinstance(x, Mapping) and "input_ids" in x else None
    if mask is None or mask.ndim < 2:
        return
    if (end := end_of_text(model, x)) is None:
        return
    ends = torch.where(mask != 0, torch.arange(mask.shape[-1], device=mask.device), 0).amax(-1)
    losses.check_values(
        (ends == ends.reshape(-1)[0]).all(),
        f"this model reads a text at its last token that is not {end}, its padding, so that the end of a longer "
        "partner would not be read while its label counts: use SequenceMixup, which mixes texts of unequal length",
    )
