"""The one loop that predicts: validation, test, further sets, `predict` and probes all go through it.

A temperature is fitted to logits, so what is served must be those very logits: in bfloat16 a logit is off by up to one
part in 256, and a temperature fitted to such logits does not suit those of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from vicinal._typing import Batch, Model
from vicinal.objectives.forward import call

__all__ = ["AtPrecision", "iter_logits", "to_device"]

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class AtPrecision(nn.Module):
    """A network that computes at the precision it was trained at, whoever calls it; its logits are float32.

    `precision` is `"no"`, `"bf16"` or `"fp16"`, as in `FitConfig.mixed_precision`. The CPU has no fp16 to speak of:
    what was trained in it on a GPU computes in float32 there.
    """

    def __init__(self, network: Model, precision: str) -> None:
        super().__init__()
        self.network, self.precision = network, precision

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        """Return the logits of what the network is called with."""
        with self.autocast():
            output = self.network(*args, **kwargs)
        logits: Tensor = getattr(output, "logits", output)
        return logits.float()

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context in which the network computes at this precision, whichever of its methods is called."""
        device = next((p.device.type for p in self.network.parameters()), "cpu")
        half = self.precision in _TYPES and (device, self.precision) != ("cpu", "fp16")
        return torch.autocast(device, dtype=_TYPES[self.precision]) if half else nullcontext()


@torch.no_grad()
def iter_logits(
    network: Callable[[Batch], Tensor], batches: Iterable[tuple[Tensor, Batch, Tensor]], device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield logits `[B, K]` in float32 and labels `[B]` of each batch, in order, on the CPU.

    Parameters
    ----------
    network
        What gives logits of a batch: a module, or something that calls one in its own way, such as `MCDropout`.
    batches
        Of (index, x, y). A sample may be several rows of x (choices): their logits are one row.
    device
        Where the network is.
    """
    for _, x, y in batches:
        x = to_device(x, device)
        logits = call(network, x) if isinstance(network, nn.Module) else network(x)
        yield logits.view(len(y), -1).float().cpu(), y


def to_device(x: Batch, device: torch.device) -> Batch:
    """Return a batch on a device."""
    if isinstance(x, Mapping):
        return {name: t.to(device, non_blocking=True) for name, t in x.items()}
    return x.to(device, non_blocking=True)
