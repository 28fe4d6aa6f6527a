"""How to train: one frozen record of everything that is not the data, the model or the method.

Each option is stated once, as a field: its default, its check and its help. The options of the command and the
reference are made of these fields (`options`). torch is imported only where an optimizer is made, so that
`vicinal train --help` answers at once.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from vicinal._atomic import Json
from vicinal._checks import (
    Argument,
    ArgumentError,
    ArgumentTypeError,
    Sentence,
    choice,
    flag,
    freeze,
    integer,
    nearest_names,
    number,
)
from vicinal._names import DEVICES, TRACKERS

if TYPE_CHECKING:
    import torch
    from torch import nn

#: Processes at most that one command starts on a machine: more is a mistake, which would end in a lack of memory.
MOST_PROCESSES = 1_024

#: The learning rate an optimizer starts with unless another is given.
_LEARNING_RATES = {"sgd": 0.1, "adam": 1e-3, "adamw": 1e-3, "adadelta": 1.0}

#: What changes how a run proceeds but not where it ends; a run may be resumed with other values of these.
MECHANICAL = ("checkpoint_minutes", "device", "num_workers", "trackers")

Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Option:
    """An option as its field states it."""

    name: str
    """The name of the field; on the command line with dashes."""
    kind: type
    """The type of one value: `int`, `float`, `bool` or `str`."""
    repeated: bool
    """Whether it is a tuple, and on the command line may be given several times."""
    default: object
    """The value unless given."""
    help: str
    """What it does."""
    choices: tuple[str, ...] = ()
    """The values that are allowed, where they can be listed."""
    metavar: str | None = None
    """What stands for its value in the help of the command."""
    in_command: bool = True
    """Whether the command has it."""


def _option(
    default: object,
    check: Check,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    metavar: str | None = None,
    in_command: bool = True,
) -> Any:
    """Return a field that states an option. `check` gets its name and value, and returns the value to keep."""
    # In the field's metadata, so that the check, the option of the command, its help and the reference have one source.
    stated = {"check": check, "help": help, "choices": choices, "metavar": metavar, "in_command": in_command}
    return dataclasses.field(default=default, metadata=stated)


def _choice(default: str, choices: tuple[str, ...], help: str) -> Any:
    return _option(default, partial(choice, allowed=choices), help, choices=choices)


def _unless_none(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _several(name: str, values: object) -> Sequence[object]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ArgumentTypeError(name, values, "a tuple")
    return values


def _tuple_of(check: Check) -> Check:
    return lambda name, values: tuple(check(name, value) for value in _several(name, values))


def _betas(name: str, value: object) -> tuple[float, ...]:
    betas: tuple[float, ...] = _tuple_of(partial(number, low=0, high=1))(name, value)
    if len(betas) != 2 or max(betas) == 1:
        raise ArgumentError(name, value, "two numbers in [0, 1)")
    return betas


def _stop_at(name: str, value: object) -> tuple[str, float]:
    from vicinal.metrics.registry import watched

    pair = value.split("=") if isinstance(value, str) else _several(name, value)
    if len(pair) != 2:
        raise ArgumentError(name, value, "a metric and a value, such as ('accuracy', 0.9) or 'accuracy=0.9'")
    return choice(name, pair[0], tuple(watched())), number(name, _as_number(pair[1]))


def _as_number(value: object) -> object:
    """Return a text of the command line as the number it stands for, if it does."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def device_name(name: str, value: object) -> str:
    """Return the name of a device, checked without torch, which takes seconds to import."""
    kind, colon, number = str(value).partition(":")
    if kind not in DEVICES or bool(colon) != number.isdecimal():
        raise ArgumentError(name, value, "a device such as 'cpu', 'cuda', 'cuda:1' or 'mps'")
    return str(value)


_count = partial(integer, low=1)
_positive = partial(number, above=0)
_at_least_0 = partial(number, low=0)


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How `fit` trains. Each field is an option of `vicinal train` too, unless it says otherwise.

    Examples
    --------
    >>> FitConfig(epochs=200, optimizer="sgd", nesterov=True, schedule="milestones", milestones=(100, 150)).lr
    0.1
    >>> FitConfig(optimizer="lamb")
    Traceback (most recent call last):
    ...
    vicinal._checks.ArgumentError: optimizer must be one of 'sgd', 'adam', 'adamw', 'adadelta', got 'lamb'
    """

    epochs: int = _option(10, _count, "Passes over the training set.")
    steps: int | None = _option(None, _unless_none(_count), "Train for this many optimizer steps instead of epochs.")
    batch_size: int = _option(
        128,
        _count,
        "Samples in a micro-batch, at most: an epoch is cut into equal micro-batches, so that none is tiny.",
    )
    group_by_length: bool = _option(
        False,
        flag,
        "Make batches of texts of similar length, which leaves little padding. In Python "
        "the training set needs `lengths`, an integer for each sample.",
    )
    accumulation: int = _option(
        1, _count, "Micro-batches per step and process. A step is batch size × accumulation × processes samples."
    )
    optimizer: str = _choice("adamw", tuple(_LEARNING_RATES), "The optimizer.")
    lr: float | None = _option(
        None,
        _unless_none(_positive),
        "Learning rate. Another optimizer brings its own: 0.1 for SGD, 0.001 for Adam and AdamW, 1.0 for Adadelta.",
    )
    momentum: float = _option(0.9, _at_least_0, "Momentum of SGD.")
    nesterov: bool = _option(False, flag, "Nesterov's momentum, for SGD.")
    betas: tuple[float, float] = _option((0.9, 0.999), _betas, "The betas of Adam and AdamW.", in_command=False)
    rho: float = _option(0.9, partial(number, low=0, high=1), "The decay of Adadelta.")
    weight_decay: float = _option(
        0.0, _at_least_0, "Weight decay of all parameters: decoupled for AdamW, an L2 penalty for the others."
    )
    schedule: str = _choice(
        "constant",
        ("constant", "milestones", "cosine", "linear"),
        "How the learning rate changes. Cosine and linear fall to 0 at the end of training.",
    )
    milestones: tuple[float, ...] = _option(
        (), _tuple_of(_at_least_0), "Epoch from which the rate is multiplied by the factor; fractions are allowed."
    )
    factor: float = _option(0.1, _positive, "What the rate is multiplied by at each milestone.")
    warmup_epochs: float = _option(
        0.0, _at_least_0, "Raise the rate linearly over so many epochs; the schedule begins after them."
    )
    warmup_steps: int = _option(0, partial(integer, low=0), "Raise the rate linearly over so many steps instead.")
    warmup_start: float | None = _option(
        None, _unless_none(_at_least_0), "The rate of the first step of the warm-up; by default one step above 0."
    )
    clip_norm: float | None = _option(
        None,
        lambda name, value: None if value is None else _at_least_0(name, value) or None,
        "Scale the gradient down to at most this norm; 0 for no limit.",
    )
    ema: float | None = _option(
        None,
        _unless_none(partial(number, above=0, high=1)),
        "Evaluate and keep an exponential moving average of the weights with this decay, such as 0.999.",
    )
    swa: float | None = _option(
        None,
        _unless_none(_at_least_0),
        "Evaluate and keep the mean of the weights after each epoch from this one on (stochastic weight averaging).",
    )
    mixed_precision: str = _choice("no", ("no", "bf16", "fp16"), "Compute in half precision.")
    channels_last: bool = _option(
        False,
        flag,
        "Keep images, and the weights of convolutions, in memory with their channels last. Narrow networks train "
        "faster on a CPU. Sums are taken in another order, so the last digits differ.",
    )
    full_float32: bool = _option(
        False,
        flag,
        "Multiply matrices of float32 in full precision on a GPU. By default they are rounded to TF32, which is "
        "several times faster.",
    )
    compile: bool = _option(
        False,
        flag,
        "Compile the network with torch.compile, which takes a minute or two and pays in long runs on a GPU. A method "
        "that mixes hidden layers compiles one graph for each of its layers.",
    )
    device: str | None = _option(
        None,
        _unless_none(device_name),
        "Where to train: cpu, cuda, cuda:1, mps; by default the GPU where there is one. Not with several processes, "
        "which have a GPU each.",
        metavar="DEVICE",
    )
    select: str = _choice(
        "nll",
        ("nll", "refined", "accuracy", "mcc", "last"),
        "Keep the weights of the best evaluation by this validation metric, or the last. Refined is the NLL after a "
        "temperature. For regression nll is the squared error.",
    )
    patience: int | None = _option(
        None,
        _unless_none(_count),
        "Stop after so many evaluations without a lower validation NLL (refined, if that selects).",
    )
    stop_at: tuple[str, float] | None = _option(
        None,
        _unless_none(_stop_at),
        "A validation metric and the value at which to stop, such as accuracy=0.9 or top5_error=0.07.",
        metavar="METRIC=VALUE",
    )
    eval_every: int = _option(1, _count, "Evaluate every so many epochs, and at the end.")
    eval_every_steps: int | None = _option(None, _unless_none(_count), "Evaluate every so many steps instead.")
    eval_batch_size: int | None = _option(
        None, _unless_none(_count), "Samples at a time in evaluation; by default the batch size.", in_command=False
    )
    keep_predictions_at: tuple[int, ...] = _option(
        (),
        lambda name, values: tuple(sorted(_tuple_of(_count)(name, values))),
        "Keep the validation predictions after this epoch, in predictions-epoch-N.parquet; 1 is the first.",
    )
    checkpoint_minutes: float = _option(5.0, _at_least_0, "How often a checkpoint is written; 0 for every step.")
    seed: int = _option(
        0,
        partial(integer, low=0),
        "Random seed: the order of an epoch follows from (seed, epoch), augmentation from (seed, epoch, index), "
        "dropout and mixing from (seed, step, micro-batch).",
        in_command=False,
    )
    num_workers: int = _option(
        0, partial(integer, low=0, high=MOST_PROCESSES), "Processes that load data; 0 loads in the training process."
    )
    trackers: tuple[str, ...] | None = _option(
        None,
        _unless_none(_tuple_of(lambda name, value: choice(name, value, TRACKERS))),
        "Where metrics are logged: tensorboard, wandb, …; by default TensorBoard where it is installed.",
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        checks = {field.name: field.metadata["check"] for field in dataclasses.fields(self)}
        freeze(self, **{name: check(name, getattr(self, name)) for name, check in checks.items()})
        # Resolved at once: what a run records is the rate it used, not "the default" of some version.
        if self.lr is None:
            freeze(self, lr=_LEARNING_RATES[self.optimizer])
        self._check_together()

    def _check_together(self) -> None:
        """Refuse fields that do not go together."""
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            needs = (
                " needs ",
                Argument("optimizer", "sgd"),
                f" with momentum, got {self.optimizer!r}, {self.momentum:g}",
            )
            raise ValueError(Sentence(Argument("nesterov"), *needs))
        if (self.schedule == "milestones") != bool(self.milestones):
            raise ValueError(
                Sentence(
                    Argument("schedule", "milestones"),
                    " and ",
                    Argument("milestones"),
                    f" belong together, got {self.schedule!r} and {self.milestones!r}",
                )
            )
        if self.warmup_epochs and self.warmup_steps:
            raise ValueError(
                Sentence(
                    "give ",
                    Argument("warmup_epochs"),
                    " or ",
                    Argument("warmup_steps"),
                    f", not both, got {self.warmup_epochs:g} and {self.warmup_steps}",
                )
            )
        if self.ema is not None and self.swa is not None:
            raise ValueError(Sentence("give ", Argument("ema"), " or ", Argument("swa"), ", not both"))
        if self.ema == 1:
            raise ArgumentError("ema", self.ema, "a number in (0, 1)")
        if self.warmup_start is not None and not (self.warmup_epochs or self.warmup_steps):
            start = Argument("warmup_start", self.warmup_start)
            raise ValueError(Sentence(start, " needs a warm-up: pass ", Argument("warmup_epochs")))

    def to_dict(self) -> dict[str, object]:
        """Return the fields by name, ready for JSON."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(self).items()}

    @classmethod
    def from_dict(cls, fields: Json) -> FitConfig:
        """Build the configuration that `to_dict` wrote.

        >>> FitConfig.from_dict(FitConfig(epochs=3).to_dict()) == FitConfig(epochs=3)
        True
        """
        known = [f.name for f in dataclasses.fields(cls)]
        for name in fields:
            if name not in known:
                raise ValueError(f"FitConfig has no field {name!r}{nearest_names(name, known)}")
        return cls(**fields)

    @property
    def evaluation_batch_size(self) -> int:
        """Samples at a time in evaluation."""
        return self.eval_batch_size or self.batch_size

    def resume_key(self) -> dict[str, object]:
        """Return the fields that decide where a run ends, which a resumed run must share."""
        return {name: value for name, value in self.to_dict().items() if name not in MECHANICAL}

    def unvalidated(self) -> FitConfig:
        """Return the same training to its last step, without a validation set to choose or stop by, and no trackers."""
        plain: dict[str, Any] = dict.fromkeys(("ema", "swa", "patience", "stop_at", "eval_every_steps"))
        return dataclasses.replace(self, **plain, select="last", keep_predictions_at=(), trackers=())

    def lr_at(self, step: int, *, n_steps: int, steps_per_epoch: int) -> float:
        r"""Return the learning rate of a step.

        .. math:: \eta_t = \eta \cdot \begin{cases} (t+1)/w & t < w \\ \gamma^{\#\{m :\, m \le t / S\}} &
            \text{milestones} \\ \tfrac12 (1 + \cos \pi p) & \text{cosine} \\ 1 - p & \text{linear} \end{cases}
            \qquad p = \frac{t - w}{T - w}

        with w steps of warm-up, T steps in all and S in an epoch. With a `warmup_start` s the warm-up is
        :math:`s + (\eta - s)\, t / w` instead: s at its first step, η at the first one after it. It is a function
        of the step alone, so there is no state of a schedule to be saved.

        Parameters
        ----------
        step
            t, from 0.
        n_steps, steps_per_epoch
            T and S.

        >>> config = FitConfig(lr=1.0, schedule="cosine", warmup_steps=2)
        >>> [round(config.lr_at(t, n_steps=6, steps_per_epoch=3), 3) for t in range(6)]
        [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
        """
        if self.lr is None:  # for the type checker: it is a number since construction
            raise TypeError("lr is not set")
        warmup = self.warmup_steps or round(self.warmup_epochs * steps_per_epoch)
        if step < warmup:
            if self.warmup_start is None:  # a rate of 0 would waste the first step, so it begins one step above
                return self.lr * (step + 1) / warmup
            return self.warmup_start + (self.lr - self.warmup_start) * step / warmup
        # Milestones are epochs of the whole run, warm-up included; the other schedules begin where the warm-up ends.
        progress = (step - warmup) / max(1, n_steps - warmup)
        match self.schedule:
            case "milestones":
                return self.lr * self.factor ** sum(m * steps_per_epoch <= step for m in self.milestones)
            case "cosine":
                return self.lr * 0.5 * (1 + math.cos(math.pi * progress))
            case "linear":
                return self.lr * (1 - progress)
            case _:
                return self.lr

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimizer over the parameters that are to be trained."""
        import torch

        # An optimizer of frozen parameters alone would run to the end and train nothing, without a word.
        trained = [p for p in parameters if p.requires_grad]
        if not trained:
            raise ValueError("the model has no parameters to train: requires_grad is False for all")
        common: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay}
        # Fused: one kernel for all parameters. Loss scaling (fp16) and Adadelta do not support it.
        fused = self.mixed_precision != "fp16" and all(p.device.type in ("cpu", "cuda") for p in trained)
        match self.optimizer:
            case "sgd":
                sgd = torch.optim.SGD(trained, momentum=self.momentum, nesterov=self.nesterov, fused=fused, **common)
                # The fused kernel wants momentum buffers for all parameters or for none. Some parameters may have no
                # gradient in the first step, so all buffers are made here, as zeros.
                if self.momentum:
                    for p in trained:
                        sgd.state[p]["momentum_buffer"] = torch.zeros_like(p, requires_grad=False)
                return sgd
            case "adam":
                return torch.optim.Adam(trained, betas=self.betas, fused=fused, **common)
            case "adamw":
                return torch.optim.AdamW(trained, betas=self.betas, fused=fused, **common)
            case _:
                return torch.optim.Adadelta(trained, rho=self.rho, **common)


def check_options(given: Mapping[str, object]) -> None:
    """Check values of options one by one, before it is known on what they are trained.

    >>> check_options({"epochs": 0})
    Traceback (most recent call last):
    ...
    vicinal._checks.ArgumentError: epochs must be an integer of at least 1, got 0
    """
    checks = {field.name: field.metadata["check"] for field in dataclasses.fields(FitConfig)}
    for name, value in given.items():
        checks[name](name, value)


def options() -> list[Option]:
    """Return the options that the fields of `FitConfig` state, in their order.

    >>> [(option.name, option.kind.__name__, option.repeated) for option in options()[:2]]
    [('epochs', 'int', False), ('steps', 'int', False)]
    """
    hints = typing.get_type_hints(FitConfig)
    return [_stated(field, hints[field.name]) for field in dataclasses.fields(FitConfig)]


def _stated(field: dataclasses.Field[object], hint: object) -> Option:
    """Return what a field states, with the type of one value: `int` of `int | None` and of `tuple[int, ...] | None`."""
    # `int | None` and `tuple[int, ...]` both have arguments: None is dropped first, and a tuple is told by its origin.
    (plain,) = [kind for kind in (typing.get_args(hint) or (hint,)) if kind is not type(None)][:1]
    if typing.get_origin(hint) is tuple:
        plain = hint
    parts = typing.get_args(plain) if typing.get_origin(plain) is tuple else ()
    repeated = Ellipsis in parts
    kind = parts[0] if repeated else str if parts else plain  # a pair is one text
    stated = {name: value for name, value in field.metadata.items() if name != "check"}
    return Option(field.name, kind, repeated, field.default, **stated)
