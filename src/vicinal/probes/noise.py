r"""Gaussian noise that has the training set's mean and variance: inputs on which a model should not be confident.

.. math:: x = \mu_c + \sigma_c \varepsilon, \quad \varepsilon \sim N(0, 1)

with the mean :math:`\mu_c` and the standard deviation :math:`\sigma_c` of each channel over the training set, in the
space the model sees (after normalisation).

References
----------
Thulasidasan et al., "On Mixup Training: Improved Calibration and Predictive Uncertainty for Deep Neural Networks",
NeurIPS 2019, Section 7: noise with the training set's mean and variance (whether by channel is not said).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import torch
from torch import Tensor
from torch.utils.data import Dataset

from vicinal import _random
from vicinal._checks import choice, integer

#: Numbers of the dataset held at a time while its mean and variance are computed.
_CHUNK = 2**22


def gaussian_like(
    dataset: object, n: int | None = None, *, per: str = "channel", generator: torch.Generator | None = None
) -> GaussianNoise:
    """Return noise inputs with the mean and variance of a dataset's inputs, as the model sees them.

    Parameters
    ----------
    dataset
        Its items are floating tensors of one shape, or tuples that start with one, as they are fed to the model: pass
        the dataset after normalisation. It is read once, in float64, a chunk at a time.
    n
        How many noise inputs; as many as the dataset has by default.
    per
        What shares a mean and a variance. `"channel"`: each entry of the first dimension (the channels of
        `[C, H, W]`, the features of a vector `[D]`). `"dataset"`: everything, as for waveforms `[T]`, in which no
        place is special.
    generator
        Where the seed of the noise is drawn from; torch's global generator if not given.

    Returns
    -------
    A dataset of `n` tensors. Nothing is stored: item i is drawn when it is asked for, and is always the same.

    Examples
    --------
    >>> from torch.utils.data import TensorDataset
    >>> images = TensorDataset(torch.randn(100, 3, 8, 8) * 0.5 + 2.0, torch.zeros(100))
    >>> noise = gaussian_like(images, generator=torch.Generator().manual_seed(0))
    >>> len(noise), noise[0].shape
    (100, torch.Size([3, 8, 8]))
    >>> round(float(noise.mean[0])), round(float(noise.std[0]), 1)
    (2, 0.5)
    """
    choice("per", per, ("channel", "dataset"))
    size = _length(dataset)
    n = size if n is None else integer("n", n, low=1)
    with _random.restored_globals():  # a dataset that augments draws from the global generators
        shape, dtype, mean, variance = _moments(dataset, size, per)
    seed = int(_random.integers(2**63 - 1, 1, generator=generator))
    return GaussianNoise(n, shape, dtype, mean, variance.sqrt(), seed)


@final
class GaussianNoise(Dataset[Tensor]):
    """Noise inputs, each a function of the seed and its index. Made by `gaussian_like`.

    Attributes
    ----------
    mean, std
        Of each entry of the first dimension, or of everything, in float64, `[C]` or `[1]`.

    Examples
    --------
    >>> noise = gaussian_like(torch.rand(10, 3, 4, 4), 5)
    >>> len(noise), noise[0].shape, torch.equal(noise[0], noise[0])
    (5, torch.Size([3, 4, 4]), True)
    """

    def __init__(self, n: int, shape: torch.Size, dtype: torch.dtype, mean: Tensor, std: Tensor, seed: int) -> None:
        self.shape, self.dtype, self.mean, self.std = shape, dtype, mean, std
        self._n, self._seed = n, seed

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: int) -> Tensor:
        place = range(self._n)[index]  # counts from the end for a negative one, and is an IndexError outside
        generator = torch.Generator().manual_seed(_random.seed_from("gaussian_like", self._seed, place))
        like = torch.empty(self.shape, dtype=torch.float64)
        columns = (-1, *(1 for _ in self.shape[1:]))
        noise = _random.normal_like(like, generator=generator) * self.std.view(columns) + self.mean.view(columns)
        return noise.to(self.dtype)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(self._n))

    def __repr__(self) -> str:
        return f"GaussianNoise(n={self._n}, shape={list(self.shape)}, {self.dtype})"


def _moments(dataset: object, size: int, per: str) -> tuple[torch.Size, torch.dtype, Tensor, Tensor]:
    """Return shape and type of the items with their mean and variance, merged chunk by chunk (Chan et al. 1979)."""
    first = _input(dataset, 0)
    groups = first.shape[0] if per == "channel" else 1
    count, mean, squares = 0, torch.zeros(groups, dtype=torch.float64), torch.zeros(groups, dtype=torch.float64)
    step = max(1, _CHUNK // max(first.numel(), 1))
    for start in range(0, size, step):
        items = [_input(dataset, i, like=first) for i in range(start, min(start + step, size))]
        values = torch.stack(items).double().flatten(1).view(len(items), groups, -1).transpose(0, 1).flatten(1)
        if not bool(values.isfinite().all()):
            raise ValueError(
                f"dataset must hold finite inputs, got NaN or inf in items {start} to {start + len(items) - 1}"
            )
        average = values.mean(1)
        added = values.shape[1]
        total = count + added
        squares += (values - average[:, None]).square().sum(1) + (average - mean).square() * (count * added / total)
        mean += (average - mean) * (added / total)
        count = total
    return first.shape, first.dtype, mean, squares / count


def _input(dataset: Any, index: int, like: Tensor | None = None) -> Tensor:
    item = dataset[index]
    x = item[0] if isinstance(item, (tuple, list)) and item else item
    if not isinstance(x, Tensor):
        raise TypeError(
            f"dataset must hold tensors, or tuples that start with one, as the model sees them; item {index} is "
            f"{'a tuple that starts with ' if x is not item else ''}{type(x).__name__}"
        )
    if not x.is_floating_point():
        raise ValueError(
            f"dataset must hold floating inputs, item {index} is {x.dtype}: turn uint8 images into floats; token ids "
            "have no mean, so give a text model other text instead"
        )
    if x.ndim == 0 or x.numel() == 0:
        raise ValueError(f"dataset must hold inputs with at least one number and dimension, got shape {list(x.shape)}")
    if like is not None and (x.shape != like.shape or x.dtype != like.dtype):
        raise ValueError(
            f"dataset must hold inputs of one shape and type, got {list(like.shape)} {like.dtype} in item 0 and "
            f"{list(x.shape)} {x.dtype} in item {index}"
        )
    return x.detach().cpu()


def _length(dataset: object) -> int:
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise TypeError(f"dataset must have a length and items by index, got {type(dataset).__name__}")
    size = len(dataset)
    if not size:
        raise ValueError("dataset is empty: it has no mean")
    return size
