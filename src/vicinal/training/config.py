"""How to train: one frozen record of everything that is not the data, the model or the method."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

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
from vicinal.metrics.figures import watched

__all__ = ["MECHANICAL", "MOST_PROCESSES", "FitConfig"]

#: Processes at most that one command starts on a machine: more is a mistake, which would end in a lack of memory.
MOST_PROCESSES = 1_024

#: The learning rate an optimizer starts with unless another is given.
_LEARNING_RATES = {"sgd": 0.1, "adam": 1e-3, "adamw": 1e-3, "adadelta": 1.0}
_SCHEDULES = ("constant", "milestones", "cosine", "linear")

#: What changes how a run proceeds but not where it ends; a run may be resumed with other values of these.
MECHANICAL = ("checkpoint_minutes", "num_workers", "trackers")


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How `fit` trains.

    Parameters
    ----------
    epochs
        Passes over the training set.
    steps
        Train for this many optimizer steps instead of `epochs`.
    batch_size
        Samples in a micro-batch, at most: an epoch is cut into equal micro-batches, so that none is tiny.
    group_by_length
        Make micro-batches of samples of like length, so that little is padding: texts train faster, and samples are
        mixed with others of about their length. The training set needs `lengths`, an integer for each sample.
    accumulation
        Micro-batches per step and process. A step is `batch_size × accumulation × processes` samples.
    optimizer
        `"sgd"`, `"adam"`, `"adamw"` or `"adadelta"`.
    lr
        The learning rate; by default 0.1 for SGD, 0.001 for Adam and AdamW, 1.0 for Adadelta.
    momentum, nesterov
        Of SGD.
    betas
        Of Adam and AdamW.
    rho
        Of Adadelta.
    weight_decay
        Decoupled for AdamW, an L2 penalty for the others, on all parameters.
    schedule
        `"constant"`; `"milestones"`: times `factor` at each of `milestones`; `"cosine"` or `"linear"`: down to 0 at
        the end of training.
    milestones, factor
        In epochs (fractions are allowed): from epoch m on the rate is multiplied by `factor`.
    warmup_epochs, warmup_steps
        Raise the rate linearly over this time, given in either unit; the schedule begins after it.
    warmup_start
        The rate of the first step of the warm-up; by default one step above 0. Zhang et al. (2018, Section 3.1) go from
        0.1 to 0.4 over five epochs: `lr=0.4, warmup_start=0.1, warmup_epochs=5`.
    clip_norm
        Scale the gradient down to at most this norm.
    mixed_precision
        `"no"`, `"bf16"` or `"fp16"`.
    select
        Which evaluation's weights are kept: those with the best validation `"nll"`, `"accuracy"` or `"mcc"`, or the
        `"last"`. For regression `"nll"` is the squared error.
    patience
        Stop once this many evaluations in a row did not lower the validation NLL.
    stop_at
        A validation figure by name and the value at which to stop, `("accuracy", 0.9)`: reached from below where more
        is better, from above where less is.
    eval_every
        Evaluate after every so many epochs, and at the end.
    eval_every_steps
        Evaluate after every so many steps instead.
    eval_batch_size
        Samples at a time in evaluation; by default `batch_size`.
    keep_predictions_at
        Epochs after which the validation predictions are kept, in `predictions-epoch-N.parquet`; 1 is the first.
    checkpoint_minutes
        How often a checkpoint is written; 0 for every step.
    seed
        Keys every draw: the order of an epoch by (seed, epoch), augmentation by (seed, epoch, index), dropout and
        mixing by (seed, step, micro-batch).
    num_workers
        Processes that load data, 1,024 at most; 0 loads in the training process.
    trackers
        Names of Accelerate's trackers (`"tensorboard"`, `"wandb"`, …); by default TensorBoard where it is installed.

    >>> FitConfig(epochs=200, optimizer="sgd", nesterov=True, schedule="milestones", milestones=(100, 150)).lr
    0.1
    >>> FitConfig(optimizer="lamb")
    Traceback (most recent call last):
    ...
    vicinal._checks.ArgumentError: optimizer must be one of 'sgd', 'adam', 'adamw', 'adadelta', got 'lamb'
    """

    epochs: int = 10
    steps: int | None = None
    batch_size: int = 128
    group_by_length: bool = False
    accumulation: int = 1
    optimizer: str = "adamw"
    lr: float | None = None
    momentum: float = 0.9
    nesterov: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    rho: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "constant"
    milestones: tuple[float, ...] = ()
    factor: float = 0.1
    warmup_epochs: float = 0.0
    warmup_steps: int = 0
    warmup_start: float | None = None
    clip_norm: float | None = None
    mixed_precision: str = "no"
    select: str = "nll"
    patience: int | None = None
    stop_at: tuple[str, float] | None = None
    eval_every: int = 1
    eval_every_steps: int | None = None
    eval_batch_size: int | None = None
    keep_predictions_at: tuple[int, ...] = ()
    checkpoint_minutes: float = 5.0
    seed: int = 0
    num_workers: int = 0
    trackers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        optimizer = choice("optimizer", self.optimizer, tuple(_LEARNING_RATES))
        betas = _numbers("betas", self.betas, low=0, high=1)
        if len(betas) != 2 or max(betas) == 1:
            raise ArgumentError("betas", self.betas, "two numbers in [0, 1)")
        freeze(
            self,
            epochs=integer("epochs", self.epochs, low=1),
            steps=None if self.steps is None else integer("steps", self.steps, low=1),
            batch_size=integer("batch_size", self.batch_size, low=1),
            group_by_length=flag("group_by_length", self.group_by_length),
            accumulation=integer("accumulation", self.accumulation, low=1),
            lr=_LEARNING_RATES[optimizer] if self.lr is None else number("lr", self.lr, above=0),
            momentum=number("momentum", self.momentum, low=0),
            nesterov=flag("nesterov", self.nesterov),
            betas=betas,
            rho=number("rho", self.rho, low=0, high=1),
            weight_decay=number("weight_decay", self.weight_decay, low=0),
            schedule=choice("schedule", self.schedule, _SCHEDULES),
            milestones=_numbers("milestones", self.milestones, low=0),
            factor=number("factor", self.factor, above=0),
            warmup_epochs=number("warmup_epochs", self.warmup_epochs, low=0),
            warmup_steps=integer("warmup_steps", self.warmup_steps, low=0),
            warmup_start=None if self.warmup_start is None else number("warmup_start", self.warmup_start, low=0),
            clip_norm=None if self.clip_norm is None else number("clip_norm", self.clip_norm, above=0),
            mixed_precision=choice("mixed_precision", self.mixed_precision, ("no", "bf16", "fp16")),
            select=choice("select", self.select, ("nll", "accuracy", "mcc", "last")),
            patience=None if self.patience is None else integer("patience", self.patience, low=1),
            stop_at=None if self.stop_at is None else _stop(self.stop_at),
            eval_every=integer("eval_every", self.eval_every, low=1),
            eval_every_steps=_optional_integer("eval_every_steps", self.eval_every_steps),
            eval_batch_size=_optional_integer("eval_batch_size", self.eval_batch_size),
            keep_predictions_at=tuple(
                sorted(
                    integer("keep_predictions_at", e, low=1)
                    for e in _several("keep_predictions_at", self.keep_predictions_at)
                )
            ),
            checkpoint_minutes=number("checkpoint_minutes", self.checkpoint_minutes, low=0),
            seed=integer("seed", self.seed, low=0),
            num_workers=integer("num_workers", self.num_workers, low=0, high=MOST_PROCESSES),
            trackers=None if self.trackers is None else tuple(str(t) for t in _several("trackers", self.trackers)),
        )
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
        if self.warmup_start is not None and not (self.warmup_epochs or self.warmup_steps):
            start = Argument("warmup_start", self.warmup_start)
            raise ValueError(Sentence(start, " needs a warm-up: pass ", Argument("warmup_epochs")))

    def to_dict(self) -> dict[str, object]:
        """Return the fields by name, ready for JSON."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(self).items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> FitConfig:
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

    def that_matters(self) -> dict[str, object]:
        """Return the fields that decide where a run ends, which a resumed run must share."""
        return {name: value for name, value in self.to_dict().items() if name not in MECHANICAL}

    def unvalidated(self) -> FitConfig:
        """Return the same training to its last step, without a validation set to choose or stop by, and no trackers."""
        plain: dict[str, Any] = {"select": "last", "patience": None, "stop_at": None, "eval_every_steps": None}
        return dataclasses.replace(self, **plain, keep_predictions_at=(), trackers=())

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
        trained = [p for p in parameters if p.requires_grad]
        if not trained:
            raise ValueError("the model has no parameters to train: requires_grad is False for all")
        common: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay}
        # One kernel for all parameters. Loss scaling and Adadelta do not know it.
        fused = self.mixed_precision != "fp16" and all(p.device.type in ("cpu", "cuda") for p in trained)
        match self.optimizer:
            case "sgd":
                sgd = torch.optim.SGD(trained, momentum=self.momentum, nesterov=self.nesterov, fused=fused, **common)
                # The kernel begins with none for all or for no parameter, and some have no gradient in the first step.
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


def _several(name: str, values: object) -> Sequence[object]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ArgumentTypeError(name, values, "a tuple")
    return values


def _numbers(name: str, values: object, *, low: float, high: float = math.inf) -> tuple[float, ...]:
    return tuple(number(name, value, low=low, high=high) for value in _several(name, values))


def _stop(value: object) -> tuple[str, float]:
    pair = _several("stop_at", value)
    if len(pair) != 2:
        raise ArgumentError("stop_at", value, "a figure and a value, such as ('accuracy', 0.9)")
    return choice("stop_at", pair[0], tuple(watched())), number("stop_at", pair[1])


def _optional_integer(name: str, value: object) -> int | None:
    return None if value is None else integer(name, value, low=1)
