"""Calling a model: with a tensor or a tokenised batch, whole or with one of its layers mixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vicinal._checks import nearest_names
from vicinal._typing import Batch, Model

__all__ = [
    "call",
    "joined",
    "locate",
    "map_floating",
    "mixed_at",
    "mixed_second_half",
    "n_rows",
    "same_rows",
    "the_floating",
    "unwrap",
]


def call(model: Model, x: Batch) -> Tensor:
    """Return the model's logits; labels are never passed, since float labels change an HF model's loss."""
    if isinstance(x, Mapping) and "labels" in x:
        raise ValueError("x holds 'labels': take them out of the batch and pass them as y")
    output = model(**x) if isinstance(x, Mapping) else model(x)
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise TypeError(f"the model must return logits or an object with .logits, got {type(output).__name__}")
    return logits


def n_rows(x: Batch) -> int:
    """Return the number of rows in the batch."""
    if not isinstance(x, Mapping):
        return len(x)
    sizes = {name: len(t) for name, t in x.items() if isinstance(t, Tensor) and t.ndim}
    rows = max(sizes.values(), default=0)
    if not set(sizes.values()) <= {1, rows}:  # one row stands for all: position_ids may be [1, L]
        raise ValueError(f"the tensors of x must have one number of rows, got {sizes}")
    return rows


def same_rows(n: int, y: Tensor) -> int:
    """Return `n`, the rows of x, if y has as many."""
    if n != len(y):
        raise ValueError(f"x and y must have as many rows, got {n} and {len(y)}")
    return n


def joined(first: Batch, second: Batch) -> Batch:
    """Return the rows of both batches, one after the other; what stands for all rows stays single."""
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return torch.cat([first, second])  # type: ignore[list-item]  # both are tensors
    rows = n_rows(first)

    def both(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b]) if isinstance(a, Tensor) and a.ndim and len(a) == rows else a

    return {name: both(t, second[name]) for name, t in first.items()}


def the_floating(x: Batch) -> Tensor:
    """Return the one floating tensor of the batch: what input mixing mixes."""
    return x[_floating_name(x)] if isinstance(x, Mapping) else _floating(x)


def map_floating(x: Batch, mix: Callable[[Tensor], Tensor]) -> Batch:
    """Return the batch with its one floating tensor mixed."""
    if not isinstance(x, Mapping):
        return mix(_floating(x))
    name = _floating_name(x)
    return {**x, name: mix(x[name])}


def unwrap(model: Model) -> nn.Module:
    """Return the user's module inside DistributedDataParallel and compiled wrappers."""
    while True:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be an nn.Module for its layers to be mixed, got {type(model).__name__}")
        if isinstance(model, nn.DataParallel):
            raise ValueError(
                "nn.DataParallel copies the model in every step, so its layers cannot be mixed: "
                "use DistributedDataParallel"
            )
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif "_orig_mod" in model._modules:
            model = model.get_submodule("_orig_mod")
        else:
            return model


def locate(model: Model, name: str) -> tuple[nn.Module, str]:
    """Return the parent of the submodule called `name`, and the key it has there."""
    parent, key = unwrap(model), ""
    for depth, part in enumerate(parts := name.split(".")):
        if part not in parent._modules or parent._modules[part] is None:
            known = [n.replace("_orig_mod.", "") for n, _ in unwrap(model).named_modules() if n]
            raise ValueError(f"the model has no layer {name!r}{nearest_names(name, known)}")
        key = part
        if depth < len(parts) - 1:
            parent = unwrap(parent.get_submodule(part))
    return parent, key


@contextmanager
def mixed_at(model: Model, name: str, combine: Callable[[Tensor], Tensor], *, inputs: bool = False) -> Iterator[None]:
    """Mix the output of the submodule `name` (or its first input) for one forward within this context.

    The submodule is replaced in its parent, not hooked: hooks registered at call time are silently skipped
    once a model is compiled, and give silently wrong gradients under reentrant checkpointing.
    """
    parent, key = locate(model, name)
    original = parent.get_submodule(key)
    layer = _MixedLayer(original, name, combine, inputs=inputs, gradients=torch.is_grad_enabled())
    parent._modules[key] = layer
    try:
        yield
    finally:
        parent._modules[key] = original
    if layer.runs != 1:
        raise ValueError(
            f"the layer {name!r} ran {layer.runs} times in one forward, so it cannot be mixed: "
            "choose a layer that runs exactly once"
        )


def mixed_second_half(combine: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return what mixes the second half of the rows, and leaves the first, clean half alone."""

    def mix(states: Tensor) -> Tensor:
        clean, other = states.chunk(2)
        return torch.cat([clean, combine(other)])

    return mix


class _MixedLayer(nn.Module):
    """Stands in for a layer during one forward and mixes what it returns (or receives)."""

    def __init__(
        self,
        layer: nn.Module,
        name: str,
        combine: Callable[[Tensor], Tensor],
        *,
        inputs: bool,
        gradients: bool,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.training = layer.training
        self.name, self.combine, self.inputs, self.gradients = name, combine, inputs, gradients
        self.runs = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.gradients and not torch.is_grad_enabled():
            raise ValueError(
                f"the layer {self.name!r} runs without gradients inside a reentrant checkpoint, which would "
                "give wrong gradients: use checkpoint(..., use_reentrant=False)"
            )
        self.runs += 1
        if self.inputs:
            return self.layer(self.combine(args[0]), *args[1:], **kwargs)
        output = self.layer(*args, **kwargs)
        if isinstance(output, Tensor):
            return self.combine(output)
        if isinstance(output, tuple) and output and isinstance(output[0], Tensor):
            first = self.combine(output[0])
            # A named tuple is rebuilt by its fields, a plain one from an iterable.
            return type(output)(first, *output[1:]) if hasattr(output, "_fields") else (first, *output[1:])
        raise ValueError(
            f"the layer {self.name!r} must return a tensor or a tuple that starts with one, got {type(output).__name__}"
        )

    def __getattr__(self, name: str) -> Any:
        # Parents may read attributes of the layer they know (`self.classifier.weight`).
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)


def _floating(x: Tensor) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor or a mapping of tensors, got {type(x).__name__}")
    if not x.is_floating_point():
        raise ValueError(
            f"x must be a floating tensor to be mixed at the input, got {x.dtype}: turn uint8 images into "
            "floats first, and mix token ids at a layer (SequenceMixup, ManifoldMixup)"
        )
    return x


def _floating_name(x: Mapping[str, Tensor]) -> str:
    names = [name for name, t in x.items() if isinstance(t, Tensor) and t.is_floating_point()]
    if len(names) != 1:
        raise ValueError(
            f"x must hold exactly one floating tensor to be mixed at the input, got {names or 'none'} among "
            f"{list(x)}: mix token ids at a layer (SequenceMixup, ManifoldMixup)"
        )
    return names[0]
