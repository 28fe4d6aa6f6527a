"""Predictions as users hold them (numpy, torch, lists; any float type) turned into checked CPU tensors.

What an argument holds is fixed by its name, never guessed from its values: logits that happen to lie in
[0, 1] are still logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["SUM_TOLERANCE", "as_labels", "as_matrix", "as_tensor", "at_least_float32", "sum_tolerance"]

#: How far the probabilities of one sample may be from summing to one. `sum_tolerance` widens it for bfloat16.
SUM_TOLERANCE = 1e-3


def as_tensor(name: str, value: Any) -> Tensor:
    """Return `value` as a detached CPU tensor, without a copy where possible."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold numbers, got an array of {array.dtype}")
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch warns of read-only memory and cannot view negative strides
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)  # long double
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return torch.from_numpy(array)


def as_labels(name: str, value: Any, *, n_classes: int | None = None) -> Tensor:
    """Return class numbers `[N]` as int64, each in [0, n_classes)."""
    labels = as_tensor(name, value)
    if labels.ndim != 1:
        raise ValueError(f"{name} must have shape [N], got {list(labels.shape)}")
    if len(labels) == 0:
        raise ValueError(f"{name} is empty: there is nothing to measure")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"{name} must be integer class numbers, got {labels.dtype}")
    labels = labels.to(torch.int64)
    low, high = (int(v) for v in torch.aminmax(labels))
    if low < 0 or (n_classes is not None and high >= n_classes):
        bad = low if low < 0 else high
        allowed = "at least 0" if n_classes is None else f"in [0, {n_classes - 1}] for {n_classes} classes"
        raise ValueError(f"{name} must be {allowed}, got {bad}")
    return labels


def sum_tolerance(dtype: torch.dtype) -> float:
    """Return how far a row of probabilities held in `dtype` may be from summing to one.

    Rounding to `dtype` moves each probability by at most eps/2 of itself, hence their sum by at most eps/2:
    0.0039 for bfloat16, less than `SUM_TOLERANCE` for the others.

    >>> sum_tolerance(torch.float32), sum_tolerance(torch.bfloat16)
    (0.001, 0.00390625)
    """
    return max(SUM_TOLERANCE, torch.finfo(dtype).eps / 2)


def as_matrix(name: str, value: Any) -> Tensor:
    """Return a floating-point matrix `[N, K]` in its own dtype, its values unchecked."""
    matrix = as_tensor(name, value)
    if not matrix.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {matrix.dtype}")
    if matrix.ndim != 2:
        hint = "; for the probability p of a binary task pass the two columns [1 - p, p]" if matrix.ndim == 1 else ""
        raise ValueError(f"{name} must have shape [N, K], got {list(matrix.shape)}{hint}")
    if matrix.shape[0] == 0 or matrix.shape[1] == 0:
        raise ValueError(f"{name} is empty: shape {list(matrix.shape)}")
    return matrix


def at_least_float32(t: Tensor) -> Tensor:
    """Return the tensor in the type it is computed in: float64 stays, anything else becomes float32."""
    return t if t.dtype == torch.float64 else t.float()
