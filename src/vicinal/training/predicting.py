"""The one loop that predicts: validation, test, extra evaluation sets, `predict` and probes all go through it.

A temperature is fitted to logits, so the same logits must be served. In bfloat16 a logit is off by up to one part in
256, and a temperature fitted to such logits does not suit those of float32. The memory format of images
changes the order of sums, and so the last digits: it is that of training too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from vicinal._typing import Batch, Model
from vicinal.objectives.forward import call

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class AtPrecision(nn.Module):
    """A network that computes at the precision and in the memory format it was trained in; its logits are float32.

    `precision` is `"no"`, `"bf16"` or `"fp16"`, as in `FitConfig.mixed_precision`. The CPU has no fp16 to speak of:
    what was trained in it on a GPU computes in float32 there. With `channels_last` images are put into that memory
    format before the network sees them, whoever calls it; its weights must have it (`channels_last_`). CUDA rounds
    the factors of float32 products to TF32 unless `full_float32`, as in training.
    """

    def __init__(
        self, network: Model, precision: str, *, channels_last: bool = False, full_float32: bool = False
    ) -> None:
        super().__init__()
        self.network, self.precision = network, precision
        self.channels_last, self.full_float32 = channels_last, full_float32

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        """Return the logits of what the network is called with."""
        if self.channels_last:
            args = tuple(map(_with_channels_last, args))
            kwargs = {name: _with_channels_last(value) for name, value in kwargs.items()}
        with self.autocast():
            output = self.network(*args, **kwargs)
        logits: Tensor = getattr(output, "logits", output)
        return logits.float()

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context in which the network computes at this precision, whichever of its methods is called."""
        device = next((p.device.type for p in self.network.parameters()), "cpu")
        half = self.precision in _TYPES and (device, self.precision) != ("cpu", "fp16")
        cast = torch.autocast(device, dtype=_TYPES[self.precision]) if half else nullcontext()
        return cast if device != "cuda" else float32_products(full=self.full_float32, within=cast)


@contextmanager
def float32_products(*, full: bool, within: AbstractContextManager[object] | None = None) -> Iterator[None]:
    """Let CUDA round the factors of float32 products to TF32, unless `full` precision is asked for."""
    places: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    # Switches of the whole process: they are given back as they were.
    before = [_is_rounded(place) for place in places]
    try:
        for place in places:
            place.allow_tf32 = not full
        with within or nullcontext():
            yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.allow_tf32 = value


def _is_rounded(place: Any) -> bool:
    """Return whether products are rounded to TF32, by whichever of torch's two settings."""
    try:
        return bool(place.allow_tf32)
    except RuntimeError:  # set by `fp32_precision`, after which torch refuses to read the other one
        return bool(getattr(place, "conv", place).fp32_precision == "tf32")


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


def to_device(x: Batch, device: torch.device, *, channels_last: bool = False) -> Batch:
    """Return a batch on a device; with `channels_last` images have that memory format."""
    if isinstance(x, Mapping):
        return {name: _moved(t, device, channels_last) for name, t in x.items()}
    return _moved(x, device, channels_last)


def channels_last_(network: nn.Module) -> None:
    """Put the weights of two-dimensional convolutions into the memory format `channels_last`, in place."""
    for t in (*network.parameters(), *network.buffers()):
        t.data = _with_channels_last(t.data)
        if t.grad is not None:
            t.grad.data = _with_channels_last(t.grad.data)


def _moved(t: Tensor, device: torch.device, channels_last: bool) -> Tensor:
    moved = t.to(device, non_blocking=True)
    laid_out: Tensor = _with_channels_last(moved) if channels_last else moved
    return laid_out


def _with_channels_last(value: Any) -> Any:
    """Return floating tensors of four dimensions in the memory format `channels_last`, and all else as it is."""
    if isinstance(value, Tensor) and value.ndim == 4 and value.is_floating_point():
        return value.contiguous(memory_format=torch.channels_last)
    return value
