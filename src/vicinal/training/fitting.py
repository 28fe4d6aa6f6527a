"""`fit`: train a model with an objective on data."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from vicinal import _random
from vicinal._atomic import Json, read_tensors, write_tensors
from vicinal._checks import TARGET_TYPES, Argument, ArgumentError, Sentence, choice
from vicinal._typing import Model
from vicinal.objectives.base import Objective, as_objective
from vicinal.objectives.forward import unwrap
from vicinal.objectives.guided.aum import AUM, AUMRecorder
from vicinal.training.batches import Collate, MapDataset
from vicinal.training.config import FitConfig
from vicinal.training.environment import Process, accelerator, check_layout, joined_process, prepared, warn_if_slow
from vicinal.training.folder import TrainingFolder, checksums_of, load_weights, read_predictions
from vicinal.training.loop import Loop, Supervision, TrainingData, resampled
from vicinal.training.predicting import channels_last_


@dataclass(frozen=True, eq=False)
class FitResult:
    """The result of a training.

    Examples
    --------
    >>> from vicinal import ERM
    >>> data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.tensor([0, 1] * 4))
    >>> result = fit(torch.nn.Linear(4, 2), ERM(), data, data, config=FitConfig(epochs=1, batch_size=4))
    >>> result.last["step"], result.logits.shape, result.out
    (2, torch.Size([8, 2]), None)
    """

    model: nn.Module
    """The model with the selected weights, in eval mode."""
    best: Json
    """The metrics of the selected weights: a line of `history`, measured again after the network's own `after_fit`.

    `TwoViewMLP` and `MLPAndTrees` have one, in which they choose something by the validation set.
    """
    last: Json
    """The metrics of the last step."""
    history: list[Json]
    """Every line of metrics.jsonl."""
    logits: Tensor | None
    """Validation logits of the selected weights, `[N, K]`."""
    labels: Tensor | None
    """The validation labels, `[N]`, or `[N, L]` for several of each sample."""
    info: Json
    """The content of result.json: method, configuration, versions, timings."""
    out: Path | None
    """The run folder."""

    @classmethod
    def of(
        cls,
        model: Model,
        info: Json,
        history: list[Json],
        predictions: Mapping[str, Tensor] | None,
        folder: TrainingFolder,
    ) -> FitResult:
        """Return the result that a training's folder holds."""
        logits, labels = ((predictions or {}).get(name) for name in ("logits", "labels"))
        return cls(model, info["best"], info["last"], history, logits, labels, info, folder.path)

    def __repr__(self) -> str:
        metrics = {name: round(v, 4) if isinstance(v, float) else v for name, v in self.best.items()}
        return f"FitResult(best={metrics}, out={None if self.out is None else str(self.out)!r})"


def fit(
    model: Model,
    objective: Objective | Callable[..., Tensor],
    train: MapDataset,
    val: MapDataset | None = None,
    *,
    watch: Mapping[str, MapDataset] | None = None,
    out: str | os.PathLike[str] | None = None,
    config: FitConfig | None = None,
    collate_fn: Collate | None = None,
    target_type: str = "multiclass",
    weight: Tensor | Sequence[float] | Mapping[str, Tensor | None] | None = None,
    class_weights: Tensor | Sequence[float] | None = None,
    progress: bool = True,
    about: Mapping[str, object] | None = None,
    on_metrics: Callable[[Json], None] | None = None,
) -> FitResult:
    """Train a model with any objective; a run with a folder can be killed and resumed.

    Parameters
    ----------
    model
        Trained in place. Afterwards it has the selected weights.
    objective
        What is minimised: `Mixup(alpha=0.2)`, …. An unbound `GuidedMixup` (or a schedule over one) first trains a
        copy of the model plainly to measure the AUM, in the folder `first-stage`, and then starts again.
    train, val
        Map-style datasets: `dataset[i]` is `(x, y)`, x a tensor or a mapping of tensors. A method
        `set_epoch(epoch, seed)` is called before each epoch, for a dataset that draws its own augmentation; for one
        without it the global generators are seeded before each sample.
    watch
        More datasets by name, such as `{"test": …}` or the training set without augmentation. They are measured with
        the validation set, and `history` has their metrics as `test_accuracy`, …. They neither select weights nor stop
        training. The best value of one of them in hindsight must be reported as an oracle's.
    out
        The run folder. A finished run in it is loaded, an unfinished one resumes, another one is refused.
    config
        How to train; `FitConfig()` if not given.
    collate_fn
        Makes `(x, y)` of a list of samples; torch's default if not given.
    target_type
        `"multiclass"`; `"binary"` for labels 0 and 1 with one logit; `"multilabel"` for several of them, `[L]` each,
        with a logit each; `"regression"` for labels that are numbers, learned by squared error. The validation metrics
        of several labels are means over them.
    weight
        How much each sample of `train` counts, `[N]`; a mixed sample carries the mixture of its sources' weights. A
        mapping `{"train": …, "val": …}` also says how much each sample of `val` counts where weights are selected.
    class_weights
        How much the samples of each class count, `[K]`; `vicinal.losses.balanced_weights` makes all classes count the
        same. Validation is not weighted.
    progress
        Show progress where standard error is a terminal.
    about
        Facts to keep with the run (a fingerprint of the data, the split), ready for JSON. A run folder with other
        facts is refused.
    on_metrics
        Called with each new line of metrics.jsonl.

    Returns
    -------
    FitResult
        The model with the selected weights, the metrics and the validation logits.

    Notes
    -----
    Several processes: start the script with `torchrun --nproc_per_node N` or `accelerate launch`. They do what one
    process does with N times the `accumulation`, up to the order of sums, except for BatchNorm's running statistics,
    which are those of the first process. Bit-identical resumption holds on the CPU and where the kernels of the GPU
    are deterministic.

    Examples
    --------
    >>> from vicinal import Mixup
    >>> x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    >>> data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
    >>> config = FitConfig(epochs=20, batch_size=16, lr=0.05)
    >>> result = fit(torch.nn.Linear(4, 2), Mixup(alpha=0.2), data, data, config=config)
    >>> result.best["val_accuracy"] > 0.9
    True
    """
    config = FitConfig() if config is None else config
    objective = as_objective(objective)
    _check_arguments(model, train, val, watch or {}, config)
    check_layout(model, config)
    warn_if_slow(model, config)
    supervision = _supervision(target_type, weight, class_weights, train, val)
    evaluated = {**({} if val is None else {"val": val}), **(watch or {})}
    data = TrainingData(train, evaluated, collate_fn, supervision)
    process = joined_process()
    folder = TrainingFolder(None if out is None else Path(out), main=process.is_main_process)
    module = unwrap(model)
    if config.channels_last:  # before DistributedDataParallel and the optimizer take up the layout of its weights
        channels_last_(module)
    described = _describe_training(module, objective, data, config, process)
    description = {**described, "about": _json_ready(about or {}), **supervision.description()}
    # The global generators are seeded in every step, so that a caller gets back what they were.
    with folder.locked(), _random.restored_globals():
        # Before anything is loaded or trained: the folder of another run must not be touched.
        folder.check_in(description)
        process.wait_for_everyone()  # the others read what the first process has checked or written
        if (info := folder.result()) is not None:
            # An objective with a state, such as AUM, is asked for it after training, so a finished run restores it too.
            checkpoint = folder.load_checkpoint(rank=process.process_index) if objective.state_dict() else None
            if checkpoint is not None and checkpoint["objective"] is not None:
                objective.load_state_dict(checkpoint["objective"])
            return finished(model, folder, info)
        if (tracker := objective.tracker(len(train))) is not None:
            how: dict[str, Any] = {"target_type": target_type, "weight": weight, "class_weights": class_weights}
            how |= {"config": config.unvalidated(), "collate_fn": collate_fn, "progress": progress}
            plainly = partial(fit, train=train, **how)
            _first_stage(module, tracker, plainly, folder, process)
            generator = torch.Generator().manual_seed(_random.seed_from("split", config.seed))
            objective = objective.bind(
                tracker, dataset=train, collate_fn=collate_fn or default_collate, generator=generator
            )
        with accelerator(config, folder.path) as made, prepared(made, model, compiled=config.compile) as ready:
            loop = Loop(made, ready, objective, data, config, folder, on_metrics)
            info, predictions = loop.run(description, progress=progress)
    return FitResult.of(model, info, loop.history, predictions, folder)


def _describe_training(
    module: nn.Module, objective: Objective, data: TrainingData, config: FitConfig, process: Process
) -> Json:
    """Return what a training must share with the run folder that it resumes."""
    # What does not change the result, such as the number of workers, may change when a run resumes.
    settings = config.resume_key()
    settings.pop("accumulation")  # half of it with twice the processes is the same run
    sizes = {name: len(dataset) for name, dataset in data.evaluated.items()}
    val = sizes.pop("val", None)
    return {
        "method": re.sub(r" at 0x[0-9a-f]+", "", repr(objective)),  # a function is the same when it is loaded again
        "config": settings,
        "micro_batches_per_step": config.accumulation * process.num_processes,
        "model": {"class": type(module).__name__, "parameters": sum(p.numel() for p in module.parameters())},
        "samples": {"train": len(data.train), "val": val},
        **({"watch": sizes} if sizes else {}),
    }


# The first stage of GuidedMixup


def _first_stage(
    module: nn.Module, tracker: AUM, plainly: Callable[..., FitResult], folder: TrainingFolder, process: Process
) -> None:
    """Train a copy of the model without mixing, to measure the AUM."""
    if folder.path is None:
        plainly(copy.deepcopy(module), AUMRecorder(tracker))
        return
    stage = folder.files.first_stage
    # Both stages start from the same weights, even if another process resumes between them.
    if folder.writes and not stage.initial_weights.exists():
        stage.path.mkdir(exist_ok=True)
        write_tensors(stage.initial_weights, module.state_dict())
    process.wait_for_everyone()
    # From the file on all ranks, the first included: both stages then begin with the same bits.
    module.load_state_dict(
        read_tensors(stage.initial_weights, expected=checksums_of(stage).get(stage.initial_weights.name))[0]
    )
    plainly(copy.deepcopy(module), AUMRecorder(tracker), out=stage.path)


def finished(model: Model, folder: TrainingFolder, info: dict[str, object]) -> FitResult:
    """Return the result of a run that was finished before, as its folder holds it."""
    unwrap(model).load_state_dict(load_weights(folder.files.path))
    model.eval()
    predictions = None
    if (path := folder.files.predictions()).exists():
        predictions = dict(zip(("logits", "labels"), read_predictions(path), strict=True))
    return FitResult.of(model, info, folder.history(), predictions, folder)


def _check_arguments(model: object, train: object, val: object, watch: Mapping[str, object], config: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(config, FitConfig):
        raise TypeError(f"config must be a FitConfig, got {config!r}")
    for name in watch:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][\w-]*", name) or name in ("val", "loss"):
            raise ArgumentError("watch", name, "named with letters, digits, - and _, and neither 'val' nor 'loss'")
    for name, dataset in (("train", train), *(() if val is None else (("val", val),)), *watch.items()):
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise TypeError(f"{name} must be a map-style dataset, with len() and [i], got {type(dataset).__name__}")
        if len(dataset) == 0:
            raise ValueError(f"{name} is empty")
    if val is None:
        for field in ("patience", "stop_at", *(() if watch else ("keep_predictions_at", "eval_every_steps"))):
            if getattr(config, field):
                named = Argument(field, getattr(config, field))
                raise ValueError(Sentence(named, " needs a validation set: pass ", Argument("val")))


def _supervision(
    target_type: str, weight: object, class_weights: object, train: MapDataset, val: MapDataset | None
) -> Supervision:
    choice("target_type", target_type, TARGET_TYPES)
    given = weight if isinstance(weight, Mapping) else {"train": weight}
    for name in given.keys() - {"train", "val"}:
        raise ArgumentError("weight", name, "of 'train' or 'val'")
    of_train, of_val = (
        None if dataset is None or given.get(name) is None else _one_each(name, given[name], len(dataset))
        for name, dataset in (("train", train), ("val", val))
    )
    of_classes = None if class_weights is None else torch.as_tensor(class_weights)
    counted = None if of_val is None else resampled(of_val)
    return Supervision(target_type, of_train, of_classes, counted=counted)


def _one_each(name: str, weight: object, n_samples: int) -> Tensor:
    given = torch.as_tensor(weight)
    if given.shape != (n_samples,):
        needed = f"a number for each of the {n_samples} samples of {name}"
        raise ValueError(f"weight must have {needed}, got {list(given.shape)}")
    return given


def _json_ready(about: Mapping[str, object]) -> dict[str, object]:
    try:
        ready: dict[str, object] = json.loads(json.dumps(dict(about)))
    except (TypeError, ValueError) as error:
        raise TypeError(f"about must be ready for JSON: {error}") from error
    return ready
