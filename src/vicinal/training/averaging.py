r"""Averages of the weights of a training: exponential (EMA), or of the ends of epochs (SWA).

.. math::
    \text{EMA:}\quad \bar w_t = d_t \bar w_{t-1} + (1 - d_t) w_t, \quad d_t = \min\Big(d, \frac{1+t}{10+t}\Big), \qquad
    \text{SWA:}\quad \bar w = \frac1m \sum_{j=1}^m w_{e_j}

with :math:`w_t` after step t = 0, 1, …, :math:`\bar w_0 = w_0` and :math:`w_{e_j}` after each epoch from a given one
on. Without the second bound of d the first weights would rule a short training.

The running statistics of BatchNorm belong to the weights they were collected with. They are computed again with the
averaged weights, in one pass over the training set in random order: the means and variances of batches, weighted by
their rows.

References
----------
Polyak & Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992. Izmailov, Podoprikhin, Garipov, Vetrov
& Wilson, "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018. The bound of d is TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import Tensor, nn

from vicinal._atomic import Json
from vicinal.training.config import FitConfig

#: Yields the number of rows of each training batch, and what calls the module with it.
Batches: TypeAlias = Callable[[], Iterable[tuple[int, Callable[[], object]]]]


class AveragedWeights:
    """The average of the weights that are trained, in float32 at least.

    Parameters
    ----------
    weights
        The parameters, which training updates in place.
    config
        Has `ema` or `swa`.
    """

    def __init__(self, weights: Sequence[nn.Parameter], config: FitConfig) -> None:
        self.weights, self.ema, self.swa = list(weights), config.ema, config.swa
        self.n = 0
        self.mean: list[Tensor] = []

    @torch.no_grad()
    def update(self, step: int, steps_per_epoch: int) -> None:
        """Take in the weights after a step, counted from 1."""
        if self.ema is None and (step % steps_per_epoch or step <= (self.swa or 0) * steps_per_epoch):
            return
        now = [w.detach().to(torch.promote_types(w.dtype, torch.float32)) for w in self.weights]
        share = 1 / (self.n + 1) if self.ema is None else 1 - min(self.ema, step / (9 + step))
        if self.mean:
            torch._foreach_lerp_(self.mean, now, share)
        else:
            self.mean = [t.clone() for t in now]
        self.n += 1

    @contextmanager
    def in_place(self, module: nn.Module, batches: Batches) -> Iterator[None]:
        """Give a module the averaged weights, and statistics that fit, within this context."""
        if not self.mean:
            yield
            return
        kept = {name: t.detach().clone() for name, t in module.state_dict().items()}
        self.load_into(module, batches)
        try:
            yield
        finally:
            module.load_state_dict(kept)

    @torch.no_grad()
    def load_into(self, module: nn.Module, batches: Batches) -> None:
        """Give a module the averaged weights for good."""
        for weight, mean in zip(self.weights, self.mean, strict=True):
            weight.copy_(mean)
        recompute_batch_norm(module, batches)

    def state_dict(self) -> Json:
        """Return the average, to be saved with a checkpoint."""
        return {"n": self.n, "mean": {str(number): t for number, t in enumerate(self.mean)}}

    def load_state_dict(self, state: Json) -> None:
        """Restore what `state_dict` returned."""
        self.n = int(state["n"])
        saved = [state["mean"][str(number)] for number in range(len(state["mean"]))]
        self.mean = [t.to(w.device) for t, w in zip(saved, self.weights, strict=True)] if saved else []


@torch.no_grad()
def recompute_batch_norm(module: nn.Module, batches: Batches) -> None:
    """Compute the running statistics of every BatchNorm layer again.

    All else is in evaluation mode meanwhile. A module without such layers is not called.
    """
    layers = [
        m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_mean is not None
    ]
    if not layers:
        return
    modes, momenta = {m: m.training for m in module.modules()}, [layer.momentum for layer in layers]
    try:
        module.eval()
        for layer in layers:
            layer.reset_running_stats()
            layer.train()
        seen = 0
        for rows, run in batches():
            if rows == 1 and seen:  # one row has no variance
                continue
            seen += rows
            for layer in layers:
                layer.momentum = rows / seen
            run()
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for m, training in modes.items():
            m.training = training
