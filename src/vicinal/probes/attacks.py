r"""Adversarial attacks within a max-norm ball: the fast gradient sign method, in one step or several.

.. math::
    x' = \mathrm{clip}_{[0, 1]}\bigl(x + \epsilon\,\mathrm{sign}\,\nabla_x H(f(x), y)\bigr)

The iterative form takes `steps` equal steps of ε/steps, each from where the last one ended.

References
----------
Goodfellow, Shlens & Szegedy, "Explaining and Harnessing Adversarial Examples", ICLR 2015 (FGSM).
Kurakin, Goodfellow & Bengio, "Adversarial examples in the physical world", 2016 (I-FGSM).
Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, Section 3.5: white box and black box,
10 equal steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from vicinal import losses
from vicinal._arrays import at_least_float32
from vicinal._checks import choice, freeze, integer, nearest_names, number
from vicinal._typing import Model
from vicinal.metrics.intervals import Estimate, clopper_pearson, confidence_level
from vicinal.objectives.forward import call, unwrap
from vicinal.probes.base import batches_of, device_of, floating_input, probing

#: A number for all channels, or one for each.
PerChannel: TypeAlias = "float | Sequence[float] | Tensor | None"

_NAMES = ("fgsm", "ifgsm")


def fgsm(
    model: Model,
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float,
    mean: PerChannel = None,
    std: PerChannel = None,
    clip: tuple[float, float] | None = (0.0, 1.0),
) -> Tensor:
    """Return adversarial examples by one step of the gradient's sign (FGSM).

    The model runs in eval mode; its modes, gradients and the global generators are as before afterwards.

    Parameters
    ----------
    model
        Whose gradient is used: the attacked one (white box) or another (black box).
    x
        Inputs `[B, C, …]` as the model takes them, that is, normalised.
    y
        Their labels, integers `[B]`.
    epsilon
        The largest change of any entry, in units of the input before normalisation: 4/255 for pixels in [0, 1].
    mean, std
        The normalisation (input − mean) / std that `x` has been through: numbers, or one per channel (axis 1).
    clip
        The valid range of the input before normalisation; None if there is none.

    Returns
    -------
    Tensor
        It has the shape, type and device of `x`, and is `x` for ε = 0. No entry is farther than ε from that of `x`, or
        outside `clip`, by more than the rounding of float32. Half precision is rounded inwards.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.eye_(model.weight)
    >>> fgsm(model, torch.tensor([[0.5, 0.95]]), torch.tensor([0]), epsilon=0.1)
    tensor([[0.4000, 1.0000]])
    """
    return _attacked(model, x, y, epsilon, 1, mean, std, clip)


def ifgsm(
    model: Model,
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float,
    steps: int = 10,
    mean: PerChannel = None,
    std: PerChannel = None,
    clip: tuple[float, float] | None = (0.0, 1.0),
) -> Tensor:
    """Return adversarial examples by `steps` equal steps of the gradient's sign (I-FGSM).

    The arguments are those of `fgsm`, which it is for one step; each step has size ε/steps, and every intermediate
    point stays in the ball and in the range.

    Returns
    -------
    Tensor
        The attacked inputs, of the shape, type and device of `x`.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.eye_(model.weight)
    >>> ifgsm(model, torch.tensor([[0.5, 0.4]]), torch.tensor([0]), epsilon=0.1, steps=2)
    tensor([[0.4000, 0.5000]])
    """
    return _attacked(model, x, y, epsilon, integer("steps", steps, low=1), mean, std, clip)


@dataclass(frozen=True)
class Attack:
    """An attack and its size, as `--attack` names it.

    Attributes
    ----------
    name
        `"fgsm"` or `"ifgsm"`.
    epsilon
        In units of the input.
    steps
        1 for FGSM.

    Examples
    --------
    >>> str(Attack("ifgsm", 4 / 255, 10))
    'ifgsm:4/255:10'
    """

    name: str
    epsilon: float
    steps: int = 1

    def __post_init__(self) -> None:
        freeze(
            self,
            name=choice("name", self.name, _NAMES),
            epsilon=number("epsilon", self.epsilon, low=0),
            steps=integer("steps", self.steps, low=1),
        )
        if self.name == "fgsm" and self.steps != 1:
            raise ValueError(f"fgsm takes one step, got steps={self.steps}: use ifgsm")

    def __call__(
        self,
        model: Model,
        x: Tensor,
        y: Tensor,
        *,
        mean: PerChannel = None,
        std: PerChannel = None,
        clip: tuple[float, float] | None = (0.0, 1.0),
    ) -> Tensor:
        """Return adversarial examples; the arguments are those of `fgsm`."""
        return _attacked(model, x, y, self.epsilon, self.steps, mean, std, clip)

    def __str__(self) -> str:
        pixels, size = round(255 * self.epsilon), f"{self.epsilon:g}"
        if float(size) != self.epsilon:
            size = f"{pixels}/255" if pixels / 255 == self.epsilon else repr(self.epsilon)
        return f"{self.name}:{size}" + (f":{self.steps}" if self.name == "ifgsm" else "")


def parse_attack(text: str) -> Attack:
    """Return the attack that a text such as `fgsm:4/255`, `fgsm:0.1` or `ifgsm:4/255:10` names; I-FGSM has 10 steps.

    Returns
    -------
    Attack
        The attack, with its ε and its number of steps.

    Examples
    --------
    >>> parse_attack("fgsm:4/255")
    Attack(name='fgsm', epsilon=0.01568627450980392, steps=1)
    >>> parse_attack("fgms:4/255")
    Traceback (most recent call last):
    ...
    ValueError: there is no attack 'fgms'; did you mean 'fgsm' or 'ifgsm'?
    """
    if not isinstance(text, str):
        raise TypeError(f"an attack is written as text such as 'fgsm:4/255', got {text!r}")
    name, *parts = text.strip().split(":")
    if name not in _NAMES:
        raise ValueError(f"there is no attack {name!r}{nearest_names(name, _NAMES)}")
    allowed = "fgsm:EPSILON" if name == "fgsm" else "ifgsm:EPSILON or ifgsm:EPSILON:STEPS"
    if not 1 <= len(parts) <= (1 if name == "fgsm" else 2):
        raise ValueError(f"an attack by {name} is written {allowed}, such as {name}:4/255, got {text!r}")
    try:
        epsilon = float(Fraction(parts[0]))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise ValueError(
            f"the epsilon of {text!r} must be a number or a fraction such as 4/255, got {parts[0]!r}"
        ) from error
    if len(parts) == 1:
        return Attack(name, epsilon, 1 if name == "fgsm" else 10)
    if not (parts[1].isascii() and parts[1].isdigit()):
        raise ValueError(f"the steps of {text!r} must be an integer of at least 1, got {parts[1]!r}")
    return Attack(name, epsilon, int(parts[1]))


@dataclass(frozen=True)
class AttackErrors:
    """Errors of a model without and under attack. Made by `attack_errors`.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> data = torch.rand(8, 2), torch.randint(2, (8,))
    >>> errors = attack_errors(torch.nn.Linear(2, 2), data, Attack("fgsm", 0.1), top=[1])
    >>> errors.n, errors.black_box, errors.clean[1].value <= errors.attacked[1].value
    (8, False, True)
    """

    attack: Attack
    """What was done."""
    black_box: bool
    """Whether the gradient was another model's."""
    n: int
    """Samples."""
    clean: dict[int, Estimate]
    """The top-k error without the attack, by k, with its Clopper–Pearson interval."""
    attacked: dict[int, Estimate]
    """The same under attack."""

    def to_dict(self) -> dict[str, object]:
        """Return plain values for a JSON file."""
        return {
            "attack": str(self.attack),
            "black_box": self.black_box,
            "n": self.n,
            **{f"clean_top{k}": error.to_dict() for k, error in self.clean.items()},
            **{f"attacked_top{k}": error.to_dict() for k, error in self.attacked.items()},
        }

    def __str__(self) -> str:
        lines = [f"{self.attack}, {'black' if self.black_box else 'white'} box, {self.n:,} samples"]
        for name, errors in (("clean", self.clean), ("attacked", self.attacked)):
            lines += [f"top-{k} error, {name:<9}{error}" for k, error in errors.items()]
        return "\n".join(lines)


def attack_errors(
    model: Model,
    data: object,
    attack: Attack,
    *,
    source: Model | None = None,
    top: Sequence[int] = (1, 5),
    mean: PerChannel = None,
    std: PerChannel = None,
    clip: tuple[float, float] | None = (0.0, 1.0),
    batch_size: int = 256,
    level: float = 0.95,
) -> AttackErrors:
    """Return the top-k errors of a model without and under attack, with Clopper–Pearson intervals.

    Parameters
    ----------
    model
        The attacked model.
    data
        Tensors or arrays `(x, y)`, or an iterable of batches `(x, y)` such as a loader; moved to the models' devices.
    attack
        Such as `Attack("fgsm", 4 / 255)` or `parse_attack("fgsm:4/255")`.
    source
        The model whose gradient is used: a black-box (transfer) attack. By default the attacked model: white box.
    top
        The k of the top-k errors; the first win among equal logits. With k or fewer classes the error is 0.
    mean, std, clip
        As for `fgsm`.
    batch_size
        Rows at a time where `data` is tensors.
    level
        Confidence level of the intervals.

    Returns
    -------
    AttackErrors
        The top-k errors without and under attack, by k.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.eye_(model.weight)
    >>> x, y = torch.tensor([[0.5, 0.4], [0.9, 0.1]]), torch.tensor([0, 0])
    >>> print(attack_errors(model, (x, y), Attack("fgsm", 0.1), top=[1]))
    fgsm:0.1, white box, 2 samples
    top-1 error, clean    0.0000 [0.0000, 0.8419]
    top-1 error, attacked 0.5000 [0.0126, 0.9874]
    """
    if not isinstance(attack, Attack):
        raise TypeError(f"attack must be an Attack (parse_attack makes one of text), got {type(attack).__name__}")
    ks = [integer("top", k, low=1) for k in top]
    if not ks:
        raise ValueError("top is empty: name at least one k")
    confidence_level(level)
    crafted_on = model if source is None else source
    n, misses = 0, np.zeros((2, len(ks)), np.int64)
    with probing(model, crafted_on):
        for x, y in batches_of(data, integer("batch_size", batch_size, low=1), to="attacked"):
            x = floating_input(x, to="attacked")
            there = device_of(crafted_on)
            adversarial = attack(crafted_on, x.to(there), y.to(there), mean=mean, std=std, clip=clip)
            here = device_of(model)
            for row, inputs in enumerate((x.to(here), adversarial.to(here))):
                with torch.no_grad():
                    rank = _rank(call(model, inputs), y.to(here))
                misses[row] += [int((rank >= k).sum()) for k in ks]
            n += len(y)
    if n == 0:
        raise ValueError("data is empty: there is nothing to attack")
    low, high = clopper_pearson(misses, n, level)
    clean, attacked = (
        {k: Estimate(int(misses[row, i]) / n, float(low[row, i]), float(high[row, i])) for i, k in enumerate(ks)}
        for row in (0, 1)
    )
    return AttackErrors(attack, source is not None and source is not model, n, clean, attacked)


def _attacked(
    model: Model,
    x: Tensor,
    y: Tensor,
    epsilon: float,
    steps: int,
    mean: PerChannel,
    std: PerChannel,
    clip: tuple[float, float] | None,
) -> Tensor:
    x = floating_input(x, to="attacked")
    if not isinstance(y, Tensor) or y.is_floating_point():
        raise TypeError(f"y must be integer labels [B], got {y.dtype if isinstance(y, Tensor) else type(y).__name__}")
    with probing(model):
        module = unwrap(model)  # a wrapper's bookkeeping (DistributedDataParallel) is for the training forward only
        start, y = at_least_float32(x).clone(), y.clone()  # clones, since inference mode's own tensors have no gradient
        scale = _per_channel("std", std, 1.0, start)
        radius = number("epsilon", epsilon, low=0) / scale
        low, high = _limits(start, radius, _per_channel("mean", mean, 0.0, start), scale, clip, x.dtype)
        if bool((low.to(x.dtype).isinf() | high.to(x.dtype).isinf()).any()):
            raise ValueError(f"epsilon={epsilon!r} reaches beyond what {x.dtype} holds: is it in units of the input?")
        point = start
        for _ in range(steps):
            # The gradient is taken at what the model would see, in its own precision.
            leaf = _rounded_inwards(point, low, high, x.dtype).requires_grad_()
            # A model may change its input in place, hence the clone.
            (gradient,) = torch.autograd.grad(losses.loss(call(module, leaf.clone()), y).sum(), leaf)
            if not bool(gradient.isfinite().all()):
                raise ValueError("the gradient of the loss with respect to x is not finite: is the model, or x?")
            # Steps add up in float32: in half precision a small step may round to none.
            point = (point + radius / steps * gradient.sign().to(point)).clamp(low, high).detach()
        return _rounded_inwards(point, low, high, x.dtype)


def _limits(
    x: Tensor, radius: Tensor, mean: Tensor, std: Tensor, clip: tuple[float, float] | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the ends of what each entry may become: the ball's, within the valid range."""
    low, high = x - radius, x + radius
    if clip is None:
        return low, high
    if not (isinstance(clip, Sequence) and len(clip) == 2):
        raise ValueError(f"clip must be two numbers (low, high) or None, got {clip!r}")
    least, most = (number("clip", end) for end in clip)
    if least >= most:
        raise ValueError(f"clip must be two numbers (low, high) with low < high, got {clip!r}")
    floor, ceiling = (least - mean) / std, (most - mean) / std
    # Normalising rounds (images mostly in float32): an input at the end of the range may lie beyond it by as much.
    rounding = max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    slack = 8 * rounding * torch.maximum(floor.abs(), ceiling.abs()).clamp(min=1)
    if bool(((x < floor - slack) | (x > ceiling + slack)).any()):
        raw = x * std + mean
        raise ValueError(
            f"x lies outside clip={clip}: its values, before normalisation, reach from {raw.min():.4g} to "
            f"{raw.max():.4g}; pass the mean and std that x was normalised with, its true range, or clip=None"
        )
    # An input slightly beyond the range by rounding stays where it is, so that ε = 0 changes nothing.
    return torch.maximum(low, torch.minimum(floor, x)), torch.minimum(high, torch.maximum(ceiling, x))


def _rounded_inwards(point: Tensor, low: Tensor, high: Tensor, dtype: torch.dtype) -> Tensor:
    """Return points between `low` and `high` in another type, still between them: half precision rounds a pixel away.

    There is always such a number, since the input itself is one.
    """
    near = point.to(dtype)
    for end, beyond in ((-torch.inf, near.to(point) > high), (torch.inf, near.to(point) < low)):
        near = torch.where(beyond, torch.nextafter(near, near.new_tensor(end)), near)
    return near


def _per_channel(name: str, value: PerChannel, default: float, x: Tensor) -> Tensor:
    """Return the value as `[1, C, 1, …]` of the type and device of `x`."""
    given = torch.as_tensor(default if value is None else value, dtype=x.dtype, device=x.device).flatten()
    if len(given) not in (1, x.shape[1]):
        raise ValueError(f"{name} must be a number or {x.shape[1]} of them, one per channel, got {len(given)}")
    if not bool(given.isfinite().all()) or (name == "std" and bool((given <= 0).any())):
        raise ValueError(f"{name} must be {'positive' if name == 'std' else 'finite'}, got {given.tolist()}")
    return given.view(1, -1, *[1] * (x.ndim - 2))


def _rank(logits: Tensor, y: Tensor) -> Tensor:
    """Return how many classes come before the label's, `[B]`; the first win among equals."""
    if not bool(logits.isfinite().all()):
        raise ValueError("the model's logits must be finite, got NaN or inf")
    losses.check_targets(logits, y)
    of_label = logits.gather(1, y.long()[:, None])
    # Ties go to the lower class number, as in `argmax`; a constant model is not always right.
    earlier = torch.arange(logits.shape[1], device=logits.device) < y[:, None]
    return ((logits > of_label) | ((logits == of_label) & earlier)).sum(1)
