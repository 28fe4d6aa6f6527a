"""Turn predictions as users hold them (numpy, torch, lists; any float type) into checked arrays on the CPU.

What an argument holds is fixed by its name, never guessed from its values: logits that happen to lie in
[0, 1] are still logits. Measuring is done in numpy: torch is imported only by what returns tensors, and a tensor
is recognised without importing it.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

#: An array of booleans, integers or floats: numpy has no narrower type for numbers of any kind.
Values: TypeAlias = "NDArray[Any]"

#: How far the probabilities of one sample may be from summing to one. `sum_tolerance` widens it for bfloat16.
SUM_TOLERANCE = 1e-3


# Arrays


def as_array(name: str, value: object) -> Values:
    """Return numbers as a numpy array, without a copy where possible; bfloat16, which numpy lacks, becomes float32."""
    if is_tensor(value):
        tensor = value.detach().cpu()
        moved: Values = (tensor.float() if _is_bfloat16(tensor.dtype) else tensor).numpy()
        return moved
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        n = int(np.ma.getmaskarray(value).sum())
        raise ValueError(f"{name} has {n:,} masked value{'s' * (n > 1)}: leave these samples out")
    if hasattr(value, "collect_schema") and hasattr(value, "collect"):
        value = value.collect()  # polars reads a lazy frame only now
    if n := _n_missing(value):
        raise ValueError(f"{name} has {n:,} missing value{'s' * (n > 1)}: leave these samples out")
    array = np.asarray(value)
    if array.dtype == object:
        array = _plain_numbers(name, _stacked(array))
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold numbers, got an array of {array.dtype}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)  # long double
    return array


def _n_missing(value: object) -> int:
    """Return how many values a column of polars or pyarrow, or a nullable one of pandas, lacks; numpy knows none."""
    count = getattr(value, "null_count", None)
    if isinstance(count, Integral):
        return int(count)
    if callable(count):
        found = count()
        return int(found) if isinstance(found, Integral) else 0
    mask = getattr(getattr(value, "array", None), "isna", None)
    nullable = mask is not None and not isinstance(getattr(value, "dtype", None), np.dtype)
    return int(np.sum(mask())) if nullable and mask is not None else 0


def _stacked(objects: Values) -> Values:
    """Return a column of equally long lists, as Arrow and polars have them, as a matrix."""
    rows = [*objects] if objects.ndim == 1 else []
    if (
        rows
        and all(isinstance(row, list | tuple | np.ndarray) for row in rows)
        and len({len(row) for row in rows}) == 1
    ):
        return np.array([list(row) for row in rows], object)
    return objects


def _plain_numbers(name: str, objects: Values) -> Values:
    """Return objects that are numbers, as frames with nullable or Arrow columns give them, as integers or floats."""
    whole = True
    for place, each in np.ndenumerate(objects):
        if not isinstance(each, Real | Decimal | np.number | np.bool_):
            got = "a missing value" if each is None or type(each).__name__ == "NAType" else f"{each!r}"
            raise TypeError(f"{name} must hold numbers, got {got} at {list(place)}")
        whole = whole and isinstance(each, Integral | np.bool_) and abs(int(each)) < 2**63
    return objects.astype(np.int64 if whole and objects.size else np.float64)


def as_scores(name: str, value: object) -> Values | Tensor:
    """Return logits or probabilities `[N, K]` in the type they have; only bfloat16 stays a tensor."""
    scores: Any = value.detach().cpu() if is_tensor(value) and _is_bfloat16(value.dtype) else as_array(name, value)
    if not is_tensor(scores) and scores.dtype.kind in "iu":
        scores = scores.astype(np.float64)
    _check_matrix(name, scores)
    kept: Values | Tensor = scores
    return kept


def as_vector(name: str, value: object) -> NDArray[np.float64]:
    """Return finite numbers `[N]`, N of at least 1, as float64."""
    numbers = as_array(name, value).astype(np.float64)
    if numbers.ndim != 1 or len(numbers) == 0:
        raise ValueError(f"{name} must have shape [N] with N of at least 1, got {list(numbers.shape)}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be finite, got NaN or inf")
    return numbers


def as_classes(name: str, value: object, *, n_classes: int | None = None) -> NDArray[np.int64]:
    """Return class numbers `[N]` as int64, each in [0, n_classes); False and True are 0 and 1."""
    labels = as_array(name, value)
    labels = labels.astype(np.int64) if labels.dtype == np.bool_ else labels
    if labels.ndim != 1:
        raise ValueError(f"{name} must have shape [N], got {list(labels.shape)}")
    if len(labels) == 0:
        raise ValueError(f"{name} is empty: there is nothing to measure")
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integer class numbers, got {labels.dtype}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or (n_classes is not None and high >= n_classes):
        bad = low if low < 0 else high
        allowed = "at least 0" if n_classes is None else f"in [0, {n_classes - 1}] for {n_classes} classes"
        raise ValueError(f"{name} must be {allowed}, got {bad}")
    return labels.astype(np.int64, copy=False)


def equal_mass_edges(values: Values, n_bins: int, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the inner edges of bins (lo, hi] that hold about equally many of the values: strictly increasing.

    Edge k is the ⌈k·N / n_bins⌉-th smallest value, the inverse of the empirical distribution function at k / n_bins:
    the smallest number that at least k / n_bins of the values do not exceed. Where values are equal, edges coincide
    and are merged. With weights, a value counts as so many.

    >>> equal_mass_edges(np.array([0.1, 0.2, 0.3, 0.4, 0.5]), 2)
    array([0.3])
    """
    if weights is not None:
        order = np.argsort(values, kind="stable")
        mass = np.cumsum(weights[order])
        shares = np.arange(1, n_bins) / n_bins * mass[-1] * (1 - 1e-12)  # a sum of floats may end a hair too low
        return np.unique(values[order][np.searchsorted(mass, shares)].astype(np.float64))
    ordered = np.sort(values).astype(np.float64)
    return np.unique(ordered[(np.arange(1, n_bins) * len(ordered) + n_bins - 1) // n_bins - 1])


def sum_tolerance(dtype: object) -> float:
    """Return how far a row of probabilities held in `dtype` (numpy's or torch's) may be from summing to one.

    Rounding to `dtype` moves each probability by at most eps/2 of itself, hence their sum by at most eps/2:
    0.0039 for bfloat16, less than `SUM_TOLERANCE` for the others.

    >>> import torch
    >>> sum_tolerance(torch.float32), sum_tolerance(torch.bfloat16)
    (0.001, 0.00390625)
    """
    return 2**-8 if _is_bfloat16(dtype) else SUM_TOLERANCE


# Tensors


def as_tensor(name: str, value: object) -> Tensor:
    """Return `value` as a detached CPU tensor, without a copy where possible."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    array = as_array(name, value)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch warns of read-only memory and cannot view negative strides
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return torch.from_numpy(array)


def as_labels(name: str, value: object, *, n_classes: int | None = None) -> Tensor:
    """Return class numbers `[N]` as an int64 tensor, each in [0, n_classes)."""
    return as_tensor(name, as_classes(name, value, n_classes=n_classes))


def as_matrix(name: str, value: object) -> Tensor:
    """Return a floating-point matrix `[N, K]` in its own dtype, its values unchecked."""
    matrix = as_tensor(name, value)
    if not matrix.is_floating_point() and str(matrix.dtype) != "torch.bool":
        matrix = matrix.double()
    _check_matrix(name, matrix)
    return matrix


def at_least_float32(t: Tensor) -> Tensor:
    """Return the tensor in the type it is computed in: float64 stays, anything else becomes float32."""
    import torch

    return t if t.dtype == torch.float64 else t.float()


def is_tensor(value: object) -> TypeGuard[Tensor]:
    # Who has a tensor has imported torch.
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def _is_bfloat16(dtype: object) -> bool:
    return str(dtype) == "torch.bfloat16"


def _check_matrix(name: str, matrix: Any) -> None:
    floating = matrix.is_floating_point() if is_tensor(matrix) else matrix.dtype.kind == "f"
    if not floating:
        raise TypeError(f"{name} must be floating point, got {matrix.dtype}")
    if matrix.ndim != 2:
        hint = "; for the probability p of a binary task pass the two columns [1 - p, p]" if matrix.ndim == 1 else ""
        raise ValueError(f"{name} must have shape [N, K], got {list(matrix.shape)}{hint}")
    if matrix.shape[0] == 0 or matrix.shape[1] == 0:
        raise ValueError(f"{name} is empty: shape {list(matrix.shape)}")
