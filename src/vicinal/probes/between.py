r"""How a model behaves between its training samples, and beyond them.

At :math:`x = \lambda x_i + (1-\lambda) x_j`, for random pairs of training samples, a prediction is a miss if it is
neither :math:`y_i` nor :math:`y_j`. With λ outside [0, 1] the point lies beyond the pair, out of the data's hull.

How we read the paper: its text says that predictions and gradient norms between training samples are more stable
(Section 2, Figure 2) and that the norm is that of the loss's gradient (Section 3.5); what a miss is, and which norm,
are ours.

References
----------
Zhang, Cisse, Dauphin & Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018, Figure 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import default_collate

from vicinal import _random, losses
from vicinal._arrays import at_least_float32
from vicinal._checks import choice, integer, number
from vicinal._typing import Model
from vicinal.metrics.intervals import clopper_pearson, mean_interval
from vicinal.mixing import mix
from vicinal.objectives.forward import call, unwrap
from vicinal.probes.base import arrays_of, device_of, floating_input, probing

Array: TypeAlias = NDArray[np.float64]

_GRADIENTS = ("logits", "loss", "none")


@dataclass(frozen=True, eq=False)
class Curve:
    """A metric at each λ with the ends of its confidence interval, float64 `[L]` each."""

    value: Array
    low: Array
    high: Array

    def to_dict(self) -> dict[str, list[float]]:
        """Return plain lists for a JSON file."""
        return {name: ends.tolist() for name, ends in vars(self).items()}


@dataclass(frozen=True, eq=False)
class BetweenCurves:
    """What a model does along segments between samples. Made by `between_samples`.

    Examples
    --------
    >>> data = torch.rand(8, 2), torch.randint(2, (8,))
    >>> curves = between_samples(torch.nn.Linear(2, 2), data, pairs=5, lambdas=[0, 0.5, 1], gradient="none")
    >>> curves.n_pairs, curves.lambdas.tolist(), curves.gradient_norm
    (5, [0.0, 0.5, 1.0], None)
    """

    n_pairs: int
    """How many segments."""
    lambdas: Array
    """The share of the first sample, `[L]`."""
    misses: Curve
    """The share of predictions that are neither label, with Clopper–Pearson intervals."""
    mean_confidence: Curve
    """The mean of the highest probability."""
    gradient_norm: Curve | None
    """The mean Euclidean norm of the gradient with respect to the input; None if it was not asked for."""
    gradient: str
    """What the gradient is of: `"logits"`, `"loss"` or `"none"`."""

    def to_dict(self) -> dict[str, object]:
        """Return plain values for a JSON file."""
        norm = None if self.gradient_norm is None else self.gradient_norm.to_dict()
        return {
            "n_pairs": self.n_pairs,
            "gradient": self.gradient,
            "lambdas": self.lambdas.tolist(),
            "misses": self.misses.to_dict(),
            "mean_confidence": self.mean_confidence.to_dict(),
            "gradient_norm": norm,
        }


def between_samples(
    model: Model,
    data: object,
    *,
    pairs: int = 1000,
    lambdas: Iterable[float] | Tensor | None = None,
    gradient: str = "logits",
    batch_size: int = 256,
    level: float = 0.95,
    generator: torch.Generator | None = None,
) -> BetweenCurves:
    r"""Return misses, confidence and gradient norm along segments between random pairs of samples.

    The model runs in eval mode; its modes, gradients and the global generators are as before afterwards (but for the
    draw of the pairs). The same pairs serve every λ.

    Parameters
    ----------
    model
        Returns logits, or an object with `.logits`.
    data
        Tensors or arrays `(x, y)`, or a dataset of samples `(x, y)`, of which only the drawn ones are loaded.
    pairs
        How many pairs of different samples to draw, from any two classes, the same one included.
    lambdas
        The share of the first sample; 0, 0.1, …, 1 by default. Values outside [0, 1] lie beyond the pair.
    gradient
        What to take the gradient norm of. `"logits"`: :math:`\|\partial z / \partial x\|_F` (K backward passes). The
        mixed `"loss"`: :math:`\|\partial_x (\lambda H(z, y_i) + (1 - \lambda) H(z, y_j))\|_2` (one). Or `"none"`.
        Section 3.5 of the paper speaks of the loss; Section 2 and Figure 2 do not say.
    batch_size
        Rows at a time.
    level
        Coverage of the intervals.
    generator
        Where the pairs come from; torch's global generator if not given.

    Returns
    -------
    BetweenCurves
        The curves over λ, each with its intervals.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 3)
    >>> curves = between_samples(model, (torch.randn(20, 2), torch.randint(3, (20,))), pairs=7)
    >>> curves.lambdas.shape, curves.misses.value.shape
    ((11,), (11,))
    >>> np.allclose(curves.gradient_norm.value, model.weight.norm().item())  # a linear model has one gradient
    True
    """
    choice("gradient", gradient, _GRADIENTS)
    shares = torch.linspace(0, 1, 11, dtype=torch.float64) if lambdas is None else lambdas
    shares_of = [number("lambdas", float(share)) for share in shares]
    if not shares_of:
        raise ValueError("lambdas is empty: there is nothing to look at")
    batch_size = integer("batch_size", batch_size, low=1)
    arrays = arrays_of(data, to="interpolated")
    n = _length(data) if arrays is None else len(arrays[1])
    if n < 2:
        raise ValueError(f"data must hold at least 2 samples to lie between, got {n}")
    first = _random.integers(n, integer("pairs", pairs, low=1), generator=generator)
    other = _random.integers(n - 1, pairs, generator=generator)
    second = other + (other >= first)  # uniform over the samples that are not the first
    missed, confidence, norms = (np.zeros((len(shares_of), pairs)) for _ in range(3))
    with probing(model):
        module, device = unwrap(model), device_of(model)
        for start in range(0, pairs, batch_size):
            rows = slice(start, min(start + batch_size, pairs))
            x_i, y_i = _samples(data, arrays, first[rows], device)
            x_j, y_j = _samples(data, arrays, second[rows], device)
            for at, share in enumerate(shares_of):
                x = mix(x_i, x_j, share).requires_grad_(gradient != "none")
                logits = at_least_float32(call(module, x.clone()))  # a model may change its input in place
                if not bool(logits.isfinite().all()):
                    raise ValueError(f"the model's logits must be finite, got NaN or inf at λ = {share:g}")
                losses.check_targets(logits, y_i)
                losses.check_targets(logits, y_j)
                with torch.no_grad():
                    top, predicted = logits.softmax(1).max(1)
                missed[at, rows] = ((predicted != y_i) & (predicted != y_j)).cpu().numpy()
                confidence[at, rows] = top.cpu().numpy()
                if gradient == "logits":
                    norms[at, rows] = _norm([logits[:, k].sum() for k in range(logits.shape[1])], x)
                elif gradient == "loss":
                    norms[at, rows] = _norm([losses.mixed_cross_entropy(logits, y_i, y_j, share).sum()], x)
    low, high = clopper_pearson(missed.sum(1), pairs, level)
    return BetweenCurves(
        n_pairs=int(pairs),
        lambdas=np.array(shares_of),
        misses=Curve(missed.mean(1), low, high),
        mean_confidence=_means(confidence, level, high=1.0),
        gradient_norm=None if gradient == "none" else _means(norms, level, high=np.inf),
        gradient=gradient,
    )


def _norm(outputs: list[Tensor], x: Tensor) -> Array:
    """Return the Euclidean norm over all outputs' gradients of each row of `x`, `[B]`; rows do not interact in eval."""
    squares = torch.zeros(len(x), dtype=torch.float64)
    for k, output in enumerate(outputs):
        (slope,) = torch.autograd.grad(output, x, retain_graph=k < len(outputs) - 1)
        squares += slope.cpu().double().flatten(1).square().sum(1)  # mps has no float64
    norm: Array = squares.sqrt().numpy()
    return norm


def _means(values: Array, level: float, *, high: float) -> Curve:
    estimates = [mean_interval(row, level, low=0.0, high=high) for row in values]
    return Curve(*(np.array([getattr(e, name) for e in estimates]) for name in ("value", "low", "high")))


def _length(data: object) -> int:
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise TypeError(f"data must be tensors (x, y) or a dataset of samples (x, y), got {type(data).__name__}")
    return len(data)


def _samples(
    data: Any, arrays: tuple[Tensor, Tensor] | None, index: Tensor, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the samples of these places, of the arrays if there are any and else of the dataset."""
    if arrays is not None:
        x, y = (t[index.to(t.device)] for t in arrays)
    else:
        x, y = default_collate([data[int(i)] for i in index])
    return floating_input(x, to="interpolated").to(device), y.to(device)
