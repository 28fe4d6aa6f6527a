"""Looking at a trained model without leaving a trace: modes, gradients and generators are as they were before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vicinal._arrays import as_tensor
from vicinal._random import restored_globals
from vicinal._typing import Model


@contextmanager
def probing(*models: Model) -> Iterator[None]:
    """Put the models in eval mode; afterwards modes and global generators are as before, even after an error.

    Gradients can be taken inside, whatever the caller's grad or inference mode is. Take them with
    `torch.autograd.grad`, which writes to no parameter.
    """
    for model in models:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    modes = [(module, module.training) for model in models for module in model.modules()]
    with restored_globals():
        try:
            for model in models:
                model.eval()
            with torch.inference_mode(False), torch.enable_grad():
                yield
        finally:
            for module, training in modes:
                module.training = training


def device_of(model: Model) -> torch.device:
    """Return the device of the model's first parameter or buffer; the CPU for a model that has none."""
    for tensors in (model.parameters(), model.buffers()):
        for t in tensors:
            return t.device
    return torch.device("cpu")


def floating_input(x: object, *, to: str) -> Tensor:
    """Return `x` detached if it is a floating tensor `[B, …]`: what can be attacked or interpolated."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"x must be a tensor to be {to}, got {type(x).__name__}: tokens have no gradient and nothing in between"
        )
    if not x.is_floating_point():
        raise ValueError(f"x must be a floating tensor to be {to}, got {x.dtype}: turn uint8 images into floats first")
    if x.ndim < 2 or len(x) == 0:
        raise ValueError(f"x must have shape [B, …] with at least one row, got {list(x.shape)}")
    return x.detach()


def arrays_of(data: object, *, to: str) -> tuple[Tensor, Tensor] | None:
    """Return `(x, y)` as tensors where `data` is a tuple of inputs and labels; None where it is something else.

    Inputs are a tensor or an array, labels may be a list as well: a tuple of two samples or batches is neither.
    """
    array = (Tensor, np.ndarray)
    if not (isinstance(data, tuple) and len(data) == 2 and (isinstance(data[0], array) or isinstance(data[1], Tensor))):
        return None
    x = floating_input(as_tensor("x", data[0]) if isinstance(data[0], np.ndarray) else data[0], to=to)
    y = data[1] if isinstance(data[1], Tensor) else as_tensor("y", data[1])
    if y.ndim == 0 or len(x) != len(y):
        rows = len(y) if y.ndim else "none"
        raise ValueError(f"data must be two tensors with the same number of rows, got {len(x)} and {rows}")
    return x, y


def batches_of(data: Any, batch_size: int, *, to: str) -> Iterable[tuple[object, Tensor]]:
    """Yield pairs (x, y): the batches of a loader, or those of a tuple `(x, y)`; labels as tensors."""
    tensors = arrays_of(data, to=to)
    if tensors is not None:
        yield from zip(*(t.split(batch_size) for t in tensors), strict=True)
        return
    for batch in data:
        if not (isinstance(batch, (tuple, list)) and len(batch) == 2):
            raise TypeError(f"data must be tensors (x, y) or yield pairs (x, y), got a {type(batch).__name__}")
        yield batch[0], batch[1] if isinstance(batch[1], Tensor) else as_tensor("y", batch[1])
