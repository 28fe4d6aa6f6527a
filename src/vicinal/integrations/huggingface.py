"""Hugging Face: fine-tune with any objective by changing two lines.

>>> from vicinal.integrations.huggingface import MixupTrainer       # was: from transformers import Trainer
>>> # MixupTrainer(model, args, train_dataset=…, objective=SequenceMixup.cls())   # was: Trainer(…)

In training the loss is the objective's; in evaluation it is plain cross-entropy. The model never receives labels, since
float labels would silently turn its loss into a multi-label one. Everything else is the `Trainer`'s: gradient
accumulation, mixed precision, checkpoints, several processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler

from vicinal import _random, losses
from vicinal._checks import TARGET_TYPES, choice, require
from vicinal.metrics import measure
from vicinal.objectives.base import Objective, as_objective
from vicinal.objectives.guided.aum import AUM, AUMRecorder

require("transformers", "text")
from transformers import Trainer, TrainerCallback  # noqa: E402
from transformers.trainer_utils import EvalPrediction  # noqa: E402

if TYPE_CHECKING:
    _AnyTrainer = Trainer
else:
    _AnyTrainer = object


class MixupTrainerMixin(_AnyTrainer):
    """Put this before your own `Trainer` class: `class MyMixupTrainer(MixupTrainerMixin, MyTrainer)`.

    Parameters
    ----------
    *args, **kwargs
        What the trainer takes.
    objective
        What is minimised in training: `SequenceMixup.cls(alpha=0.4)`, a bound `GuidedMixup`, `ERM()` …. It receives
        the epoch as `state.epoch`. The state of a bound objective is saved with each checkpoint and restored by
        `resume_from_checkpoint`.
    index_column
        The column that holds each sample's position in the training set, for objectives that track samples. It is kept
        although the model does not know it, and never reaches the model.
    aum
        An `AUM` tracker that records every training sample's margin, saved with each checkpoint and merged over
        processes after each epoch: the first stage of `GuidedMixup`. Margins are of clean samples, so the objective
        has to be `ERM`.
    train_batch_sampler
        What chooses the batches of training instead of the trainer's sampler: a `BalancedBatchSampler`, say.
    class_weights
        How much the samples of each class count in training, `[K]`, as in `vicinal.losses.balanced_weights`.
    weight_column
        The column that says how much each sample counts in training. None unless named: a column of that sense is
        never guessed, and a column `weight` of the data is an input like any other.
    objective_init
        Makes the objective of each trial of `hyperparameter_search`, as `model_init` makes its model: a function of the
        trial, such as `lambda trial: Mixup(alpha=trial.suggest_float("alpha", 0.1, 1.0))`.

    Examples
    --------
    >>> class MyTrainer(Trainer):
    ...     "A trainer of your own."
    >>> class MyMixupTrainer(MixupTrainerMixin, MyTrainer):
    ...     "The same with an objective."
    >>> issubclass(MyMixupTrainer, Trainer)
    True
    """

    #: An objective returns the mean of its micro-batch, so the Trainer has to divide by the accumulation steps. Left
    #: to guess, it would not: BERT-type models accept loss kwargs, and loss and gradients came out N times too large.
    loss_is_scaled_for_ga: bool | None = False

    #: Not `objective`, which is the trainer's name for what a hyper-parameter search maximises.
    training_objective: Objective
    index_column: str
    train_batch_sampler: Sampler[list[int]] | None

    def __init__(
        self,
        *args: Any,
        objective: Objective | Callable[..., Tensor],
        index_column: str = "index",
        aum: AUM | None = None,
        train_batch_sampler: Sampler[list[int]] | None = None,
        class_weights: Tensor | Sequence[float] | None = None,
        weight_column: str | None = None,
        objective_init: Callable[[object], Objective | Callable[..., Tensor]] | None = None,
        **kwargs: Any,
    ) -> None:
        objective = as_objective(objective)
        _refuse_other_loss(type(self))
        self.training_objective = objective if aum is None else AUMRecorder(aum, objective)
        self.index_column, self.weight_column = index_column, weight_column
        self.class_weights, self.objective_init = class_weights, objective_init
        self.train_batch_sampler = train_batch_sampler
        # The trainer wraps the model here, and its configuration says the target type: metrics come after.
        super().__init__(*args, **kwargs)
        self.compute_metrics = _for_target_type(self.compute_metrics, self.target_type)
        self._drawn = (-1, 0)
        self.add_callback(_MergeRanks(self))
        self.model_accepts_loss_kwargs = False  # how releases before `loss_is_scaled_for_ga` are told the same
        if self.args.label_smoothing_factor != 0:
            raise ValueError(
                f"label_smoothing_factor must be 0, got {self.args.label_smoothing_factor:g}: the objective makes the "
                "loss, so smooth there, with ERM(label_smoothing=…) or the label_smoothing of a mixing objective"
            )
        # Two ways to make a loss would silently leave one of them unused.
        if self.compute_loss_func is not None:
            raise ValueError("compute_loss_func must be None: the objective makes the loss")
        # A question-answering model has two columns of labels, start and end, which no objective mixes.
        if len(self.label_names) > 1:
            raise ValueError(f"an objective needs one column of labels, this model takes {self.label_names}")

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the objective's loss in training, plain cross-entropy in evaluation."""
        label = self.label_names[0] if self.label_names else "labels"
        if label not in inputs:
            raise ValueError(f"the batch has no {label!r}, only {list(inputs)}: the objective needs labels")
        x, y = self._for_the_model(inputs), inputs[label]
        del x[label]
        self._check_labels(y)
        if model.training:
            if return_outputs:
                raise ValueError(
                    "return_outputs must be False in training: a mixed batch has no outputs of its samples"
                )
            index = inputs.get(self.index_column)
            if index is None and isinstance(self.training_objective, AUMRecorder):
                raise ValueError(f"aum needs to know the samples: give each row its number in {self.index_column!r}")
            return self.training_objective(
                model,
                x,
                y,
                index=index,
                epoch=self.state.epoch,
                generator=self._generator(),
                weight=self._weight(inputs),
                class_weights=self.class_weights,
                target_type=self.target_type,
            )
        outputs = model(**x)
        logits = getattr(outputs, "logits", outputs)
        loss = losses.loss(logits, losses.as_targets(y, self.target_type)).mean()
        # The Trainer takes the first of anything but a dict for the loss.
        return (loss, outputs if isinstance(outputs, dict) else {"logits": logits}) if return_outputs else loss

    def _weight(self, inputs: Mapping[str, Tensor]) -> Tensor | None:
        if self.weight_column is None:
            return None
        if self.weight_column not in inputs:
            raise ValueError(f"the batch has no weight_column {self.weight_column!r}, only {list(inputs)}")
        weight: Tensor = inputs[self.weight_column]
        return weight

    def _generator(self) -> torch.Generator | None:
        """Return where this process draws from, None for torch's global generator, where it is the only one.

        The trainer gives all processes the same seed, so their global generators would draw the same λ. What is drawn
        depends on seed, step, micro-batch and process alone, so a resumed run draws the same.
        """
        if self.args.world_size == 1:
            return None
        # The micro-batches of one step draw differently, and a resumed run draws as if it had not been stopped.
        step, n = self._drawn
        self._drawn = (self.state.global_step, n + 1 if step == self.state.global_step else 0)
        seed = _random.seed_from("step", self.args.seed, *self._drawn, self.args.process_index)
        return torch.Generator().manual_seed(seed)

    @property
    def target_type(self) -> str:
        """What the targets are, as its configuration says by `problem_type`, or by one label for regression."""
        config: object = getattr(self.model, "config", None)
        kind = getattr(config, "problem_type", None)
        # What transformers itself takes one label without a problem type to be.
        if kind is None and getattr(config, "num_labels", None) == 1:
            kind = "regression"
        return {"regression": "regression", "multi_label_classification": "multilabel"}.get(str(kind), "multiclass")

    def _check_labels(self, y: Tensor) -> None:
        """Refuse several labels a row where nothing says that they are no soft ones, as the trainer would guess."""
        n_labels = getattr(getattr(self.model, "config", None), "num_labels", None)
        if self.target_type == "multiclass" and y.ndim == 2 and y.shape[1] == n_labels:
            losses.check_values(
                _sum_to_one(y),
                f"labels {list(y.shape)} that do not sum to one are several labels a row: set the model's "
                'config.problem_type = "multi_label_classification", and give them as floats',
            )

    def prediction_step(self, model: nn.Module, inputs: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        """Predict as the trainer does; the index is kept from the model."""
        return super().prediction_step(model, self._for_the_model(inputs), *args, **kwargs)

    def get_train_dataloader(self) -> DataLoader[object]:
        """Return the trainer's loader, or one over `train_batch_sampler`."""
        if self.train_batch_sampler is None:
            return super().get_train_dataloader()
        loader = DataLoader(
            self.train_dataset,  # type: ignore[arg-type]  # one without positions has no batches to choose
            batch_sampler=self.train_batch_sampler,
            collate_fn=self._get_collator_with_removed_columns(self.data_collator, description="training"),
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )
        prepared: DataLoader[object] = self.accelerator.prepare(loader)
        return prepared

    def _for_the_model(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {n: value for n, value in inputs.items() if n not in (self.index_column, self.weight_column)}

    def _hp_search_setup(self, trial: object) -> None:
        super()._hp_search_setup(trial)
        if self.objective_init is not None and trial is not None:
            self.training_objective = as_objective(self.objective_init(trial))

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        columns: Any = self._signature_columns
        columns.extend(name for name in (self.index_column, self.weight_column) if name and name not in columns)

    # The training state of the objective travels with the optimizer's: saved in each checkpoint, read when training
    # resumes and not when the best model is loaded.

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        # Most objectives have none, and a checkpoint without this file must not look damaged.
        if state := self.training_objective.state_dict():
            os.makedirs(output_dir, exist_ok=True)
            torch.save(state, self._state_file(output_dir))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None or not self.training_objective.state_dict():
            return
        path = self._state_file(checkpoint)
        if not os.path.isfile(path):
            raise ValueError(
                f"the checkpoint has no {os.path.basename(path)}: it was saved without {self.training_objective!r}"
            )
        self.training_objective.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))

    def _state_file(self, folder: str) -> str:
        rank = f"_{self.args.process_index}" if self.args.world_size > 1 else ""
        return os.path.join(folder, f"objective{rank}.pt")


class MixupTrainer(MixupTrainerMixin, Trainer):
    """A `transformers.Trainer` that trains with an objective.

    Parameters
    ----------
    *args, **kwargs
        What `Trainer` takes: model, arguments, datasets, `compute_metrics`, ….
    objective
        What is minimised in training.
    index_column
        The column with each sample's position in the training set, for objectives that track samples.
    aum
        A tracker of the margins, for the first stage of `GuidedMixup`.
    train_batch_sampler
        What chooses the batches of training, for its second.
    class_weights, weight_column
        How much the samples of each class, and each sample, count.
    objective_init
        Makes the objective of each trial of a hyper-parameter search.

    Notes
    -----
    The two stages of Park & Caragea (that the second starts from the initial weights again is our reading)::

        aum = GuidedMixup().tracker(len(train))
        MixupTrainer(model, args, train_dataset=train, objective=ERM(), aum=aum).train()
        guided = GuidedMixup().bind(aum, dataset=train, collate_fn=collator)
        MixupTrainer(fresh_model, args, train_dataset=train, objective=guided).train()

    Examples
    --------
    >>> import tempfile
    >>> from transformers import TrainingArguments
    >>> from vicinal import Mixup
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     args = TrainingArguments(folder, report_to=[])
    ...     trainer = MixupTrainer(nn.Linear(4, 2), args, objective=Mixup(alpha=0.2))
    >>> trainer.training_objective.alpha
    0.2
    """


class RunningMetrics:
    """The metrics of an evaluation, batch by batch: pass it to a trainer with `batch_eval_metrics=True`.

    `MixupTrainer` makes one of `compute_metrics` by itself. After the last batch it starts again.

    Parameters
    ----------
    n_bins
        Bins of ECE and OE, reported beside them.
    target_type
        What logits and labels are, as in the call of an objective. `"multiclass"`: labels `[N]`, or soft targets
        `[N, K]`, whose largest class counts as the label, with the cross-entropy to the targets beside the metrics.
        `"multilabel"` and `"binary"`: 0 and 1 with a logit each; the metrics are means over labels. `"regression"`:
        numbers; the metrics are the squared error and Spearman's correlation.

    Examples
    --------
    >>> metrics = RunningMetrics(n_bins=10)
    >>> metrics(EvalPrediction(torch.tensor([[2.0, 0.0]]), torch.tensor([0])), compute_result=False)
    {}
    >>> metrics(EvalPrediction(torch.tensor([[0.0, 2.0]]), torch.tensor([0])), compute_result=True)["accuracy"]
    0.5
    """

    def __init__(self, *, n_bins: int = 15, target_type: str = "multiclass") -> None:
        self.n_bins, self.target_type = n_bins, choice("target_type", target_type, TARGET_TYPES)
        self._batches: list[tuple[Tensor, Tensor]] = []

    def __call__(self, prediction: EvalPrediction, compute_result: bool = True) -> dict[str, float]:
        """Take a batch of logits and labels; return the metrics of all of them with `compute_result`, else nothing."""
        given = prediction.predictions
        self._batches.append((_on_cpu(given[0] if isinstance(given, tuple) else given), _on_cpu(prediction.label_ids)))
        if not compute_result:
            return {}
        # Emptied first: an error in what follows must not leave rows behind for the next evaluation.
        batches, self._batches = self._batches, []
        return self._metrics(*(torch.cat(parts) for parts in zip(*batches, strict=True)))

    def _metrics(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        soft: dict[str, float] = {}
        if self.target_type == "multiclass" and labels.is_floating_point():
            targets = losses.as_targets(labels, "multiclass")
            soft, labels = {"cross_entropy": float(losses.loss(logits, targets).mean())}, targets.argmax(dim=1)
        elif self.target_type == "regression":  # models give [N] or [N, 1], and so do data sets
            logits, labels = logits.reshape(len(logits)), labels.reshape(len(labels))
        bins = {} if self.target_type == "regression" else {"n_bins": self.n_bins}
        return {**measure(labels, logits=logits, target_type=self.target_type, n_bins=self.n_bins), **soft, **bins}


def _sum_to_one(y: Tensor) -> Tensor:
    return (y.float().sum(1) - 1).abs().max() < 1e-2 if y.is_floating_point() else torch.tensor(False, device="cpu")


def _on_cpu(values: object) -> Tensor:
    return torch.as_tensor(values).detach().cpu()


def compute_metrics(
    prediction: EvalPrediction, compute_result: bool = True, *, n_bins: int = 15, target_type: str = "multiclass"
) -> dict[str, float]:
    """Return accuracy, MCC, NLL, Brier score, ECE and OE of a classifier's logits: pass it to the trainer.

    `MixupTrainer` knows its target type, and adds up batches; another trainer needs `functools.partial(compute_metrics,
    target_type="regression")`, and with `batch_eval_metrics=True` a `RunningMetrics`.

    Parameters
    ----------
    prediction
        What the trainer hands over. Where the model returns more than logits, they come first.
    compute_result
        False is refused: this keeps no batches.
    n_bins, target_type
        As in `RunningMetrics`.

    Returns
    -------
    dict[str, float]
        The metrics by name, with the number of bins.

    Examples
    --------
    >>> import numpy as np
    >>> metrics = compute_metrics(EvalPrediction(np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([0, 1])))
    >>> {name: round(value, 3) for name, value in metrics.items()}
    {'accuracy': 0.5, 'mcc': 0.0, 'nll': 0.41, 'brier': 0.264, 'ece': 0.31, 'oe': 0.125, 'n_bins': 15}
    """
    if not compute_result:
        raise ValueError("batch_eval_metrics=True hands over one batch after the other: pass RunningMetrics() instead")
    return RunningMetrics(n_bins=n_bins, target_type=target_type)(prediction)


def _for_target_type(metrics: object, target_type: str) -> Any:
    """Return our own metrics as ones that know the target type and add up batches; others as they are."""
    # Ours alone is replaced, also where it was given options: anything else is the user's, and called as it is.
    given = metrics.keywords if isinstance(metrics, partial) and metrics.func is compute_metrics else None
    if metrics is not compute_metrics and given is None:
        return metrics
    return RunningMetrics(**{"target_type": target_type, **(given or {})})


def _refuse_other_loss(kind: type) -> None:
    """Refuse a trainer with a loss of its own, which would silently be replaced by the objective or replace it."""
    # The order of the bases decides whose compute_loss is called: before ours it hides it, after ours it is hidden.
    ours = kind.__mro__.index(MixupTrainerMixin)
    before, after = kind.__mro__[:ours], kind.__mro__[ours + 1 :]
    # One that derives from the mixin knows of it, and may call its loss.
    stranger = next((b for b in before if not issubclass(b, MixupTrainerMixin) and "compute_loss" in vars(b)), None)
    if stranger is not None:
        raise TypeError(
            f"{stranger.__name__} stands before the mixin and has a compute_loss of its own, by which the objective "
            "would never be called: take it out, and pass class weights as class_weights=…"
        )
    other = next((base for base in after if base is not Trainer and "compute_loss" in vars(base)), None)
    if other is not None:
        raise TypeError(
            f"{other.__name__} has a compute_loss of its own, which the objective would replace: take it out, and pass "
            "class weights as class_weights=…"
        )


class _MergeRanks(TrainerCallback):
    """Gives every process what all of them have tracked, at the end of each epoch."""

    def __init__(self, trainer: MixupTrainerMixin) -> None:
        self.trainer = trainer

    def on_epoch_end(self, *args: object, **kwargs: object) -> None:
        self.trainer.training_objective.all_reduce()
