"""What trees see of features: numbers as they are, and each category as the number of its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vicinal._checks import ArgumentError, integer


class Seen(NamedTuple):
    """What trees see of some rows."""

    x: NDArray[np.float32]
    """`[N, columns]`."""
    labels: NDArray[np.int64]
    """The classes, `[N]`."""
    weight: NDArray[np.float64]
    """How much each row counts, `[N]`."""


class TreeColumns(nn.Module):
    """The columns of trees: features `[B, …]`, which are flattened, to `[n_columns, B]`.

    Parameters
    ----------
    numbers
        The places of the features that trees see as they are, as float32; all if not given.
    categories
        Ranges (start, stop) of places that hold zeros and at most a one: trees see which, from 1, or 0 for none.
    """

    _numbers: Tensor

    def __init__(
        self, n_features: int, numbers: Sequence[int] | None = None, categories: Sequence[Sequence[int]] = ()
    ) -> None:
        super().__init__()
        n_features = integer("n_features", n_features, low=1)
        places = range(n_features) if numbers is None else [integer("numbers", place, low=0) for place in numbers]
        self.categories = [(int(start), int(stop)) for start, stop in categories]
        if max(places, default=0) >= n_features:
            raise ArgumentError("numbers", numbers, f"places below {n_features}")
        if any(not 0 <= start < stop <= n_features for start, stop in self.categories):
            raise ArgumentError("categories", categories, f"ranges of places below {n_features}")
        self.n_columns = len(places) + len(self.categories)
        if not self.n_columns:
            raise ArgumentError("numbers", numbers, "at least one place, or categories")
        self.register_buffer("_numbers", torch.tensor(list(places), dtype=torch.int64), persistent=False)

    def columns(self, x: Tensor) -> Tensor:
        """Return what trees see of features, float32 `[n_columns, B]`: the numbers, then the categories."""
        features = torch.flatten(x, 1).float().T
        seen = [features.index_select(0, self._numbers)]
        for start, stop in self.categories:
            values = torch.arange(1.0, stop - start + 1, device=x.device)
            # One-hot features become the number of the value. A missing one, all zeros, becomes 0.
            seen.append((features[start:stop] * values[:, None]).sum(dim=0, keepdim=True))
        return torch.cat(seen)
