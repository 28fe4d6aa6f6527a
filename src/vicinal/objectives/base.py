"""What every objective shares: the call, its terms, its training state, and a `repr` that builds it again."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, final

import torch
import torch.distributed as dist
from torch import Tensor

from vicinal import losses
from vicinal._atomic import Json
from vicinal._checks import ArgumentError, flag, number
from vicinal._typing import Batch, Model, Plan, Step
from vicinal.mixing import sent
from vicinal.objectives.forward import (
    call,
    check_even,
    joined,
    laid_out_like,
    map_floating,
    mixed_input,
    plain,
    untraced,
    with_shared_masks,
)

if TYPE_CHECKING:
    from vicinal.objectives.guided.aum import AUM

P = TypeVar("P", bound=Plan)


class Objective(ABC):
    """A frozen record of hyper-parameters that turns a model and a batch into a loss.

    A method writes `compute_terms`. One that keeps training state says so in the methods of the second half, which
    training loops call on every objective.

    Examples
    --------
    >>> from vicinal import Mixup
    >>> objective = Mixup(alpha=0.2)
    >>> loss = objective(torch.nn.Linear(4, 2), torch.randn(8, 4), torch.tensor([0, 1] * 4))
    >>> isinstance(objective, Objective), loss.shape
    (True, torch.Size([]))
    """

    @abstractmethod
    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        """Return the scalar terms of the loss by name, weights included."""

    @final
    def __call__(
        self,
        model: Model,
        x: Batch,
        y: Tensor | None = None,  # required; missing in the call `objective(model(x), y)`, which gets a hint
        *,
        index: Tensor | None = None,
        epoch: float | None = None,
        generator: torch.Generator | None = None,
        weight: Tensor | None = None,
        class_weights: Tensor | Sequence[float] | None = None,
        target_type: str = "multiclass",
    ) -> Tensor:
        """Return the scalar loss of one batch.

        Parameters
        ----------
        model
            Called as `model(x)`, or `model(**x)` for a mapping; returns logits or an object with `.logits`.
        x
            A tensor, or a mapping of tensors.
        y
            Labels `[B]` or soft targets `[B, K]` that sum to one; what `target_type` says where it is another.
        index
            Each sample's position in the training set, for objectives that track samples.
        epoch
            How far training has come (2.5 = halfway through the third epoch), for those that change over time.
        generator
            Where randomness comes from; torch's global generator if not given.
        weight
            How much each sample counts, `[B]`: the loss is the weighted mean, and a mixed sample carries the mixture
            of its sources' weights.
        class_weights
            How much the samples of each class count, `[K]`; times `weight` where both are given.
        target_type
            `"multiclass"`; `"binary"` for 0 and 1 `[B]` with one logit; `"multilabel"` for 0 and 1 `[B, L]` with one
            logit each, both by binary cross-entropy; `"regression"` for numbers `[B]`, by squared error.
        """
        if not callable(model):
            raise TypeError("pass the model, not its output: objective(model, x, y)")
        if y is None:
            raise TypeError("pass the model, the inputs and the labels: objective(model, x, y)")
        given: dict[str, Any] = {"index": index, "epoch": epoch, "generator": generator}
        # A draw breaks a graph. It comes first, so that the rest is one.
        if torch.compiler.is_compiling() and self.draws(Step(**given)):
            given["drawn"] = self._drawn_first(model, x, y, target_type, Step(**given))
        return total(
            self.terms(model, x, y, weight=weight, class_weights=class_weights, target_type=target_type, **given)
        )

    @untraced
    def _drawn_first(self, model: Model, x: Batch, y: Tensor, target_type: str, step: Step) -> object:
        draw = self.draw_ahead(plain(x), self.targets(plain(y), target_type), step, model)
        return None if draw is None else draw()

    @final
    def terms(
        self,
        model: Model,
        x: Batch,
        y: Tensor,
        *,
        weight: Tensor | None = None,
        class_weights: Tensor | Sequence[float] | None = None,
        target_type: str = "multiclass",
        **step: Any,
    ) -> dict[str, Tensor]:
        """Return the terms whose sum is the loss, for logging; the arguments are those of a call."""
        targets = self.targets(plain(y), target_type)
        step["weight"] = None if weight is None else _sample_weights(weight, y)
        step["class_weights"] = None if class_weights is None else _class_weights(class_weights, targets, target_type)
        given = Step(**step)
        if len(self.forwards(given, sharded=True)) > 1:
            check_even(model, lambda sharded: self.forwards(given, sharded=sharded))
        return self.compute_terms(model, plain(x), targets, given)

    def targets(self, y: Tensor, target_type: str) -> Tensor:
        """Return the targets in the form that losses and draws take."""
        return losses.as_targets(y, target_type)

    def forwards(self, step: Step, *, sharded: bool) -> set[int]:
        """Return how often the model may run in a step, as chance decides: where processes wait for each other, once.

        Of a model that is `sharded` those runs count too that go past a wrapper.
        """
        return {1}

    def draws(self, step: Step) -> bool:
        """Whether `draw_ahead` may have something to draw in this step."""
        return type(self).draw_ahead is not Objective.draw_ahead

    def draw_ahead(self, x: Batch, y: Tensor, step: Step, model: Model | None = None) -> Callable[[], object] | None:
        """Return what draws the plan or the noise of this step; None: nothing is, or it is drawn in the step.

        A loop gives the batch on the CPU and no model, and draws on any thread. What is drawn is passed on in the step.
        """
        return None

    def __repr__(self) -> str:
        every = dataclasses.fields(self)  # type: ignore[arg-type]  # every objective is a dataclass
        fields = [f for f in every if not (f.metadata.get("added") and getattr(self, f.name) == f.default)]
        parts = [f"{f.name}={getattr(self, f.name)!r}" if f.kw_only else repr(getattr(self, f.name)) for f in fields]
        return f"{type(self).__name__}({', '.join(parts)})"

    # Training state: most objectives have none.

    def tracker(self, n_samples: int) -> AUM | None:
        """Return what a first, plain run has to record before `bind`; None where no first run is needed."""
        return None

    def bind(self, *args: Any, **kwargs: Any) -> Objective:
        """Return this objective with what the first run recorded, ready to train with."""
        raise TypeError(f"{self!r} keeps no training state: there is nothing to bind")

    @property
    def balanced(self) -> Tensor | None:
        """Two categories of the training set, bool `[N]`, of which batches should hold as many; None: no matter."""
        return None

    def state_dict(self) -> dict[str, Tensor]:
        """Return the training state as tensors, to be saved with the checkpoint; empty if there is none."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        if state:
            raise ValueError(f"{self!r} keeps no training state, got {list(state)}")

    def summary(self) -> dict[str, float]:
        """Return metrics of the training state that belong into the result of a run; empty if there are none."""
        return {}

    def all_reduce(self, group: dist.ProcessGroup | None = None) -> None:
        """Merge the training state of all ranks; called on each at the end of an epoch."""
        return


class MixingObjective(Objective, Generic[P]):
    """An objective made of three public steps: draw a plan, forward the mixed batch, take the loss."""

    label_smoothing: float
    draws_ahead: ClassVar[bool] = False
    """Whether `draw` looks at the shapes and the labels of a batch alone, so that a loop may call it before the step,
    with None for the model."""

    @abstractmethod
    def draw(self, model: Model, x: Batch, y: Tensor, *, generator: torch.Generator | None = None) -> P:
        """Draw the plan: every random choice of this step."""

    @abstractmethod
    def forward(self, model: Model, x: Batch, plan: P, *, beside_clean: bool = False) -> Tensor:
        """Mix as planned and return the logits, with `beside_clean` after those of the clean batch, `[2B, K]`."""

    def loss(self, logits: Tensor, y: Tensor, plan: P) -> Tensor:
        """Return the loss of each mixed row, `[B]`: the cross-entropy to its sources' labels, by their shares."""
        labels = self.labels_plan(plan)
        return losses.mixed_loss(logits, y, labels.weights, labels.partners, label_smoothing=self.label_smoothing)

    @final
    def planned(self, model: Model, x: Batch, y: Tensor, step: Step) -> P:
        """Return the plan of this step: the one that was drawn ahead, or one drawn outside of compiled graphs."""
        if step.drawn is not None:
            return cast(P, sent(step.drawn, y.device))
        return self._draw_untraced(model, x, y, step)

    @untraced
    def _draw_untraced(self, model: Model, x: Batch, y: Tensor, step: Step) -> P:
        return self.draw(model, x, y, generator=step.generator)

    def draw_ahead(self, x: Batch, y: Tensor, step: Step, model: Model | None = None) -> Callable[[], object] | None:
        """Return what draws the plan, if there is a model or none is needed."""
        if model is None and not self.draws_ahead:
            return None
        maybe: Any = model
        return partial(self.draw, maybe, x, y, generator=step.generator)

    def labels_plan(self, plan: P) -> Plan:
        """Return the plan by which labels and the weights of samples are mixed, where it is not that of the inputs."""
        return plan

    def mean_loss(self, logits: Tensor, y: Tensor, plan: P, step: Step) -> Tensor:
        """Return the mean of `loss`; a mixed row carries the mixture of its sources' weights."""
        return mean_loss(self.loss(logits, y, plan), logits, y, step, self.labels_plan(plan))

    def mixes_before_head(self, model: Model, plan: P) -> bool:
        """Return whether the plan mixes what a linear head receives, whose logits are then mixed too."""
        return False

    @final
    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        """Draw, mix, forward, mean loss."""
        plan = self.planned(model, x, y, step)
        logits = self.forward(model, x, plan)
        return {"loss": self.mean_loss(logits, y, plan, step)}


class InputMixing(MixingObjective[P]):
    """A mixing objective that mixes what enters the model: a method writes `draw` and `mix`.

    For a mapping with several floating tensors, `inputs` names those to mix with one plan. `draw` sees the first. `mix`
    sees those of its height and width, and the plan's `combine` mixes the others.
    """

    inputs: Sequence[str] = ()

    @abstractmethod
    def mix(self, x: Tensor, plan: P) -> Tensor:
        """Return the mixed inputs, of the shape of `x`, which is left as it is."""

    @final
    def forward(self, model: Model, x: Batch, plan: P, *, beside_clean: bool = False) -> Tensor:
        """Return the logits of the mixed inputs, after those of the clean ones if they are wanted."""
        first = mixed_input(x, self.inputs)

        def mix(t: Tensor) -> Tensor:
            # A box or a mask is of one height and width; what has others takes its share of the labels.
            alike = t is first or (t.ndim >= 3 and t.shape[-2:] == first.shape[-2:])
            return laid_out_like(t, self.mix(t, plan) if alike else plan.combine(t))

        mixed = with_shared_masks(map_floating(x, mix, self.inputs), plan)
        return call(model, joined(x, mixed) if beside_clean else mixed)


class BesideClean(Objective):
    """A sum of the clean loss and that of a mixing objective: a method has the fields `base` and `split_forward`."""

    base: MixingObjective  # type: ignore[type-arg]  # LightningCLI reads it where a method is defined, without Any
    split_forward: bool

    def clean_loss(self, logits: Tensor, y: Tensor, step: Step) -> Tensor:
        """Return the mean loss of the clean batch, whose labels are smoothed as the base's are."""
        return mean_loss(losses.loss(logits, y, label_smoothing=self.base.label_smoothing), logits, y, step)

    @final
    def draw_ahead(self, x: Batch, y: Tensor, step: Step, model: Model | None = None) -> Callable[[], object] | None:
        """Return what draws the plan of the base."""
        return self.base.draw_ahead(x, y, step, model)

    @final
    def forwards(self, step: Step, *, sharded: bool) -> set[int]:
        """Return how often the model may run in a step: a batch that is left unmixed needs one forward."""
        prob = getattr(self.base, "prob", 1.0) if getattr(self.base, "alpha", 1.0) else 0.0
        mixed = max(self.base.forwards(step, sharded=sharded)) + self.split_forward
        return {1} if prob == 0 else {mixed} if prob == 1 else {1, mixed}


def total(terms: Mapping[str, Tensor]) -> Tensor:
    """Return the loss: the sum of its terms."""
    first, *more = terms.values()
    return torch.stack([first, *more]).sum() if more else first


def row_weights(y: Tensor, step: Step) -> Tensor | None:
    """Return how much each row counts, `[B]`, by its own weight and that of its class; None where all are equal."""
    if step.class_weights is None:
        return step.weight
    by_class = step.class_weights.to(y.device)
    if not y.is_floating_point():
        weight = by_class[y.long()]
    else:
        weight = (y[:, 0] if y.ndim == 3 else y).to(by_class) @ by_class
    return weight if step.weight is None else weight * step.weight.to(weight)


def mean_loss(rows: Tensor, logits: Tensor, y: Tensor, step: Step, plan: Plan | None = None) -> Tensor:
    """Return the weighted mean of each row's loss, of rows that are mixed by `plan` if it is given.

    The logits tell how many classes there are, which labels do not: class weights have to be as many.
    """
    if step.class_weights is not None and not y.is_floating_point() and len(step.class_weights) != logits.shape[-1]:
        raise _wrong_number(step.class_weights, logits.shape[-1])
    weight = row_weights(y, step)
    if weight is not None and plan is not None:
        weight = plan.combine(weight)
    return losses.weighted_mean(rows, weight)


class _Function(Objective):
    """A function with the arguments of a call, as an objective."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function

    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        weights = {"weight": step.weight, "class_weights": step.class_weights}
        given = {name: value for name, value in weights.items() if value is not None}
        return {
            "loss": self.function(model, x, y, index=step.index, epoch=step.epoch, generator=step.generator, **given)
        }

    def targets(self, y: Tensor, target_type: str) -> Tensor:
        return y  # the function's own business

    def __repr__(self) -> str:
        return repr(self.function)


def as_objective(objective: object) -> Objective:
    """Return what a training loop was given as an objective: one of these, or a function of your own."""
    if isinstance(objective, Objective):
        return objective
    if isinstance(objective, type) or not callable(objective):
        raise TypeError(f"objective must be an objective such as Mixup(alpha=0.4), got {objective!r}")
    if hasattr(objective, "state_dict"):
        raise TypeError(
            f"objective keeps training state, which no loop would save: let {type(objective).__name__} derive from "
            "vicinal.objectives.base.Objective"
        )
    return _Function(objective)


def check_mixing(base: object, composite: str) -> MixingObjective[Any]:
    """Return `base` if it has the three steps that composites are written over."""
    if isinstance(base, MixingObjective):
        return base
    parts = getattr(base, "objectives", None) or [getattr(base, "objective", None)]
    instead = ""
    if isinstance(base, Objective) and any(isinstance(part, MixingObjective) for part in parts):  # RandomChoice, Warmup
        inside = ", ".join(f"{composite}({p!r})" if isinstance(p, MixingObjective) else repr(p) for p in parts)
        instead = f": put it inside, {type(base).__name__}({inside}, …)"
    raise TypeError(
        "base must be a mixing objective such as Mixup(alpha=1.0), one with draw, forward and loss, "
        f"got {base!r}{instead}"
    )


def checked_fields(objective: object) -> Json:
    """Return, checked, those of the fields that objectives have in common which this one has."""
    checks: dict[str, Callable[[str, object], object]] = {
        "alpha": partial(number, low=0, infinite=True),
        "per_sample": flag,
        "label_smoothing": partial(number, low=0, high=1),
        "prob": partial(number, low=0, high=1),
        "inputs": _names,
    }
    return {name: check(name, getattr(objective, name)) for name, check in checks.items() if hasattr(objective, name)}


def _names(name: str, value: object) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, list | tuple) else ("",)
    if not all(isinstance(one, str) and one for one in names) or len(set(names)) != len(names):
        raise ArgumentError(name, value, "different names of tensors, such as ('image', 'table')")
    return names


def clean_and_mixed(
    base: MixingObjective[P], model: Model, x: Batch, plan: P, *, split_forward: bool
) -> tuple[Tensor, Tensor]:
    """Return the logits of the clean and of the mixed batch, from one forward unless `split_forward`."""
    if split_forward:
        return call(model, x), base.forward(model, x, plan)
    clean, mixed = base.forward(model, x, plan, beside_clean=True).chunk(2)
    return clean, mixed


def _sample_weights(weight: object, y: Tensor) -> Tensor:
    checked = _weights("weight", weight)
    if len(checked) != len(y):
        raise ValueError(f"weight must have one number for each of the {len(y)} rows, got {len(checked)}")
    return checked.to(y.device, non_blocking=True)


def _class_weights(value: object, targets: Tensor, target_type: str) -> Tensor:
    weights = _weights("class_weights", value)
    if target_type not in ("multiclass", "binary"):
        raise ValueError(f"class_weights need classes, which target_type={target_type!r} does not have: pass weight")
    if targets.is_floating_point() and len(weights) != targets.shape[-1]:  # labels do not tell; the logits will
        raise _wrong_number(weights, targets.shape[-1])
    return weights.to(targets.device, non_blocking=True)


def _wrong_number(class_weights: Tensor, n_classes: int) -> ValueError:
    got = len(class_weights)
    return ValueError(f"class_weights must have a number for each of the {n_classes} classes, got {got}")


def _weights(name: str, value: object) -> Tensor:
    weights = value.detach() if isinstance(value, Tensor) else torch.tensor(value, device="cpu")
    weights = weights if weights.is_floating_point() else weights.float()
    allowed = f"{name} must be finite numbers of at least 0, one after the other"
    valid = (weights >= 0).all() & weights.isfinite().all()
    if not losses.at_hand(weights):
        losses.check_later(valid, allowed)
    if weights.ndim != 1 or len(weights) == 0 or (losses.at_hand(weights) and not bool(losses.unmapped(valid).all())):
        raise ValueError(f"{allowed}, got {value!r}")
    return weights
