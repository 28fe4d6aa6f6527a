"""The training loop.

It saves no state of random generators. Before each micro-step dropout and the objective's generator are seeded from
(seed, step, micro-batch). The order of an epoch is drawn from (seed, epoch), augmentation from (seed, epoch, index).
So a killed run resumes to bit-identical weights, ranks draw differently, and two processes do what one does with twice
the accumulation.
"""

from __future__ import annotations

import functools
import math
import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from vicinal import _random
from vicinal._atomic import DamagedFileError, Json
from vicinal._checks import Argument, Sentence
from vicinal._memory import kept_memory
from vicinal._portable import cpu_capability, versions
from vicinal._typing import AfterFit, Batch, Constrained, Model, Step
from vicinal.calibrators import TemperatureScaling
from vicinal.losses import sent_with_copy
from vicinal.metrics import Tally, measure
from vicinal.metrics.registry import METRICS
from vicinal.objectives.base import Objective, row_weights, total
from vicinal.objectives.forward import call, plain, unwrap
from vicinal.training.averaging import AveragedWeights
from vicinal.training.batches import (
    Collate,
    EpochPlan,
    KeyedDataset,
    MapDataset,
    MicroBatches,
    evaluation_batches,
    listed_batches,
    part,
    training_batches,
)
from vicinal.training.config import FitConfig
from vicinal.training.environment import Accelerator, Terminated, interruptions
from vicinal.training.fast_adam import quick_step
from vicinal.training.folder import TrainingFolder
from vicinal.training.predicting import AtPrecision, iter_logits, to_device
from vicinal.training.progress import Progress

T = TypeVar("T")

#: Index, x and y of a micro-batch, and its plan or noise where threads draw it.
_MicroBatch: TypeAlias = "tuple[Tensor, Batch, Tensor, Future[object] | None]"

#: Micro-batches that are drawn for ahead, by as many threads.
_AHEAD = 4

#: Read losses every 64 micro-batches only: a read blocks the host until the device has finished.
_READ_EVERY = 64


@dataclass(frozen=True, eq=False)
class Supervision:
    """The target type, and how much each sample counts."""

    target_type: str = "multiclass"
    """The target type: `"multiclass"`, `"binary"`, `"multilabel"` or `"regression"`."""
    weight: Tensor | None = None
    """How much each sample of the training set counts, `[N]`."""
    class_weights: Tensor | None = None
    """How much the samples of each class count, `[K]`."""
    counted: Tensor | None = None
    """Which validation samples are measured, some several times, where they have weights; see `resampled`."""

    def of(self, index: Tensor) -> Json:
        """Return the keyword arguments of an objective's call for these samples."""
        # The index comes from the loader, on the CPU, and the weights are wherever the user made them.
        weight = None if self.weight is None else self.weight[index.to(self.weight.device)]
        return {"target_type": self.target_type, "weight": weight, "class_weights": self.class_weights}

    def description(self) -> dict[str, object]:
        """Return the settings that a resumed run must match. Empty for classes without weights."""
        facts: dict[str, object] = {} if self.target_type == "multiclass" else {"task": self.target_type}
        if self.weight is not None:
            # A digest, since a million weights would fill the configuration file.
            facts["weight"] = _random.seed_from(*self.weight.double().tolist())
        if self.class_weights is not None:
            facts["class_weights"] = self.class_weights.tolist()
        if self.counted is not None:
            facts["val_weight"] = _random.seed_from(*self.counted.tolist())
        return facts

    def weighted(self, predictions: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return validation predictions as often as their weights say."""
        return predictions if self.counted is None else {name: t[self.counted] for name, t in predictions.items()}


def resampled(weights: Tensor) -> Tensor:
    """Return N places of samples, each about as often as its weight `[N]` says, and nothing drawn.

    Sample i holds a part of [0, 1] as long as its share of the weights. The middles of N equal parts choose. All that
    validation decides, such as when to stop and how many trees there are, so counts weights without knowing them.

    >>> resampled(torch.tensor([1.0, 4.0, 0.0, 5.0])).tolist()
    [1, 1, 3, 3]
    """
    n = len(weights)
    ends = (weights.double() / weights.double().sum()).cumsum(0)
    middles = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    return torch.searchsorted(ends, middles).clamp(max=n - 1)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What is learned from, and what is measured on the way."""

    train: MapDataset
    """The training set."""
    evaluated: Mapping[str, MapDataset] = field(default_factory=dict)
    """By name: `"val"` selects the weights and decides when to stop; the others are only measured."""
    collate_fn: Collate | None = None
    """Makes a batch of a list of samples; torch's default if None."""
    supervision: Supervision = field(default_factory=Supervision)
    """The target type, and how much each sample counts."""


def refined_nll(logits: Tensor, labels: Tensor) -> float:
    """Return the NLL of predictions after the temperature that suits them best: what calibration will leave of it.

    A network becomes over-confident before it stops to learn, and its NLL rises while its ranking of the classes still
    gets better. A temperature repairs the first, so the second should say when to stop (Berta, Holzmüller, Jordan &
    Bach, "Rethinking Early Stopping: Refine, Then Calibrate", 2025).

    >>> logits, labels = torch.tensor([[4.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    >>> round(refined_nll(logits, labels), 4)  # the entropy of 3 in 4
    0.5623
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # early weights may be no better than chance
        scaled: Tensor = TemperatureScaling().fit(logits, labels)(logits.double())
    return float(torch.nn.functional.cross_entropy(scaled, labels))


class ReIterable(Generic[T]):
    """An iterable that starts from the beginning each time."""

    def __init__(self, read: Callable[[], Iterator[T]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[T]:
        return self._read()


class Loop:
    """One training: from the initial weights or a checkpoint to the result."""

    def __init__(
        self,
        accelerator: Accelerator,
        model: Model,
        objective: Objective,
        data: TrainingData,
        config: FitConfig,
        folder: TrainingFolder,
        on_metrics: Callable[[Json], None] | None = None,
    ) -> None:
        self.accelerator, self.config, self.folder = accelerator, config, folder
        self.supervision = data.supervision
        self.rank, self.world, self.device = accelerator.process_index, accelerator.num_processes, accelerator.device
        self.generator = torch.Generator()  # seeded before each micro-step
        self.model, self.objective, self.on_metrics = model, objective, on_metrics
        # Weights are saved and loaded by the names of the bare network: those of a wrapper differ with the number of
        # processes.
        self.module = unwrap(self.model)
        self.constrained = self.module if isinstance(self.module, Constrained) else None
        optimizer = config.make_optimizer(self.module.parameters())
        # Accelerate's own calls look up packages and signatures in every step, a sixth of the time of a small one. Only
        # loss scaling (fp16) needs them.
        self.plain = accelerator.scaler is None
        self.optimizer: torch.optim.Optimizer = optimizer if self.plain else accelerator.prepare_optimizer(optimizer)
        self.update = quick_step(optimizer) if self.plain else self.optimizer.step
        # Gradients are cleared on this list: `zero_grad` walks all groups and notes itself for a profiler in every
        # step.
        self.trained = [p for group in optimizer.param_groups for p in group["params"]]
        self.train = KeyedDataset(data.train, config.seed, purpose="augmentation", collate_fn=data.collate_fn)
        # "val" selects the weights and decides when to stop; the others are only measured.
        self.evaluated = {
            name: KeyedDataset(dataset, config.seed, purpose="validation", collate_fn=data.collate_fn)
            for name, dataset in data.evaluated.items()
        }
        self.plan = EpochPlan(
            len(data.train),
            batch_size=config.batch_size,
            micro_batches_per_step=config.accumulation * self.world,
            seed=config.seed,
            high=objective.balanced,
            lengths=_lengths(data.train) if config.group_by_length else None,
        )
        # Steps, not epochs, count everywhere below, so that a resumed run knows exactly where it was.
        self.n_steps = config.steps or config.epochs * self.plan.steps
        self.average = None if config.ema is config.swa is None else AveragedWeights(self.trained, config)
        if (config.swa or 0) + 1 > self.n_steps // self.plan.steps and config.swa is not None:
            whole = f" must leave an epoch to average, and there are {self.n_steps / self.plan.steps:g}"
            raise ValueError(Sentence(Argument("swa", config.swa), whole))
        # The state that a checkpoint holds, beside model, optimizer and objective.
        self.step = 0
        self.losses = _Losses()
        self.best: Json | None = None
        self.lowest_nll, self.waited, self.stopped = math.inf, 0, False
        self.seconds, self.resumed = 0.0, 0
        self.cpu = cpu_capability()
        self._next_vote, self._voted = 0, (0, time.monotonic())
        # What is read again from the folder when training resumes.
        self.history: list[Json] = []
        self.latest: dict[str, Tensor] | None = None

    @property
    def epoch(self) -> float:
        """How far training has come: 2.5 is halfway through the third epoch."""
        return self.step / self.plan.steps

    @kept_memory()
    def run(self, description: Mapping[str, object], *, progress: bool) -> tuple[Json, dict[str, Tensor] | None]:
        """Train from here to the end; return the result and the predictions of the selected weights."""
        # The order matters: a checkpoint before resuming would overwrite the one to resume from.
        self._resume()
        self._checkpoint()  # the initial weights: a run that is killed before the next checkpoint starts from these
        self._start_trackers(description)
        batches = self._batches()
        began = saved = time.monotonic()
        seconds_before = self.seconds
        bar = Progress(
            shown=progress and self.accelerator.is_main_process,
            title=str(description["method"]).partition("(")[0],
            step=self.step,
            n_steps=self.n_steps,
            n_epochs=self.n_steps / self.plan.steps,
        )
        with bar, interruptions(watched=self.folder.path is not None) as interrupted:
            self.model.train()
            # All ranks take every branch alike: each may wait for the others, and would else wait forever.
            while self.step < self.n_steps and not self.stopped:
                self._train_step(batches)
                line = None
                # The end of an epoch always has a line, also without a validation set: curves and reports count on it.
                if self.step % self.plan.steps == 0 or self.step == self.n_steps:
                    self.objective.all_reduce()  # before the checkpoint, which then holds the sums of all ranks
                    line = self._record(bar)
                elif self._evaluation_is_due():
                    line = self._record(bar)
                bar.update(self.step, self.epoch, line)
                self.seconds = seconds_before + time.monotonic() - began
                due = time.monotonic() - saved >= 60 * self.config.checkpoint_minutes
                # Clocks and signals differ between ranks, and a checkpoint needs all of them at once.
                due, interruption = self._vote(due, bool(interrupted))
                if due or interruption:
                    self._checkpoint()
                    saved = time.monotonic()
                if interruption:
                    raise self._farewell(interrupted)
        self._checkpoint()
        return self._finish(description)

    def _train_step(self, batches: Iterator[_MicroBatch]) -> None:
        """Update the weights once, from `accumulation` micro-batches on each rank."""
        # A function of the step alone. A scheduler with a state would have to be saved, and could drift from it.
        lr = self.config.lr_at(self.step, n_steps=self.n_steps, steps_per_epoch=self.plan.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        # Before the batch is loaded, for data that are loaded in this process; workers learn the epoch with the key.
        self.train.set_epoch(self.step // self.plan.steps)
        for k in range(self.config.accumulation):
            micro = self.step * self.plan.per_step + k * self.world + self.rank
            index, x, y, drawn = next(batches)
            # Each sample has the same weight, however large its micro-batch is. DDP takes the mean over ranks, hence
            # the factor `world` below.
            share = self.plan.share(micro)
            seed = self._seed(micro)
            _random.seed_globals(seed)  # dropout draws from the global generators
            generator = self.generator.manual_seed(seed)
            synced_later = k < self.config.accumulation - 1  # gradients are exchanged once a step
            with self.accelerator.no_sync(self.model) if synced_later else nullcontext():
                terms = self.objective.terms(
                    self.model,
                    to_device(x, self.device, channels_last=self.config.channels_last),
                    sent_with_copy(y, self.device),
                    index=index,
                    epoch=self.epoch,
                    generator=generator,
                    drawn=drawn if drawn is None else drawn.result(),
                    **self.supervision.of(index),
                )
                loss = total(terms)
                scaled = loss if share * self.world == 1 else loss * (share * self.world)
                scaled.backward() if self.plain else self.accelerator.backward(scaled)
            self.losses.add(
                share, {"loss": loss} | ({f"loss_{n}": t for n, t in terms.items()} if len(terms) > 1 else {})
            )
        if self.config.clip_norm is not None:
            self.accelerator.clip_grad_norm_(self.module.parameters(), self.config.clip_norm)
        self.update()
        for p in self.trained:  # as `zero_grad` does, without what it notes for a profiler, a twentieth of a small step
            p.grad = None
        if self.constrained is not None:
            self.constrained.clip_norms()
        self.step += 1
        if self.average is not None:
            self.average.update(self.step, self.plan.steps)
        if self.losses.waiting >= _READ_EVERY:
            self._read_losses()

    # Evaluation

    def _evaluation_is_due(self) -> bool:
        """Whether to evaluate after this step."""
        if not self.evaluated:
            return False
        every = self.config.eval_every_steps or self.config.eval_every * self.plan.steps
        return self.step % every == 0 or self.step == self.n_steps or self._kept_epoch() is not None

    def _kept_epoch(self) -> int | None:
        """Return the number of the epoch that ends here, if its predictions are to be kept."""
        epoch, rest = divmod(self.step, self.plan.steps)
        return epoch if rest == 0 and epoch in self.config.keep_predictions_at else None

    def _record(self, bar: Progress) -> dict[str, object]:
        """Write a line of metrics: the mean loss since the last line and, if due, an evaluation."""
        # The rate of the step that was just taken: `step` counts those that are done.
        lr = self.config.lr_at(self.step - 1, n_steps=self.n_steps, steps_per_epoch=self.plan.steps)
        self._read_losses()
        line: dict[str, object] = {"step": self.step, "epoch": self.epoch, "lr": lr, **self.losses.means()}
        if self._evaluation_is_due():
            with nullcontext() if self.average is None else self.average.in_place(self.module, self._forwards):
                for name in self.evaluated:
                    line |= self._evaluate(name, bar)
                if self.latest is not None:
                    self._compare(line, self.latest)
        self.history.append(line)
        self.folder.append(line)
        self.accelerator.log({name: v for name, v in line.items() if name != "step"}, step=self.step)
        if self.on_metrics is not None and self.accelerator.is_main_process:
            self.on_metrics(line)
        return line

    def _evaluate(self, name: str, bar: Progress) -> dict[str, float]:
        """Return the metrics of a set under its name, and keep its predictions if due."""
        bar.evaluating(name)
        predictions = self._predict(name)
        if name == "val":
            self.latest = predictions
        if (epoch := self._kept_epoch()) is not None:
            self.folder.keep_predictions(predictions, f"{'' if name == 'val' else f'{name}-'}epoch-{epoch}")
        if name == "val":
            return self._measure_val(predictions)
        return {f"{name}_{metric}": value for metric, value in self._measure(predictions).items()}

    def _measure_val(self, predictions: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the metrics that select weights."""
        measured = self._measure(self.supervision.weighted(predictions))
        return {f"val_{metric}": value for metric, value in measured.items()}

    def _measure(self, predictions: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the metrics of predictions."""
        logits, labels, target_type = predictions["logits"], predictions["labels"], self.supervision.target_type
        # Refused here rather than measured: an NLL of NaN would never be the best, and training would go to its end for
        # nothing.
        if not bool(logits.isfinite().all()):
            raise FloatingPointError(f"the model's validation logits are not finite after step {self.step}: lower lr")
        _check_labels(logits, labels, target_type)
        return {**measure(labels, logits=logits, target_type=target_type), **_mean_confidence(logits, target_type)}

    def _predict(self, name: str) -> dict[str, Tensor]:
        """Return logits and labels of a set, on every rank."""
        dataset = self.evaluated[name]
        if self.world > 1:
            for buffer in self.module.buffers():  # each rank has its own BatchNorm statistics until the next step
                dist.broadcast(buffer, src=0)
        self.model.eval()
        dataset.forget_epoch()
        # Each rank predicts a part of its own, without the repeats of a distributed sampler: every sample counts once.
        bounds = [part(len(dataset), self.world, rank) for rank in range(self.world)]
        batches = evaluation_batches(
            dataset,
            range(*bounds[self.rank]),
            batch_size=self.config.evaluation_batch_size,
            num_workers=self.config.num_workers,
            pin_memory=self.device.type == "cuda",
        )
        # Not through DDP, which would wait for ranks that have fewer batches.
        network = self._as_served()
        logits, labels = zip(*iter_logits(network, batches, self.device), strict=True)
        self.train.forget_epoch()
        self.model.train()
        return {"logits": self._gather(torch.cat(logits), bounds), "labels": self._gather(torch.cat(labels), bounds)}

    def _as_served(self) -> AtPrecision:
        """Return the network as the command serves it, at the precision and in the memory format of training."""
        config = self.config
        how = {"channels_last": config.channels_last, "full_float32": config.full_float32}
        return AtPrecision(self.module, config.mixed_precision, **how)

    def _forwards(self) -> Iterator[tuple[int, Callable[[], object]]]:
        """Yield the rows of each batch of the training set and what calls the network with it, alike on all ranks."""
        self.train.forget_epoch()
        generator = torch.Generator().manual_seed(_random.seed_from("averaging", self.config.seed))
        order = _random.permutation(len(self.train), generator=generator)  # a file may be sorted by class
        network, workers = self._as_served(), self.config.num_workers
        for index, x, _ in listed_batches(self.train, order.split(self.config.batch_size), num_workers=workers):
            yield len(index), functools.partial(call, network, to_device(x, self.device))
        self.train.forget_epoch()

    def _held_out(self) -> Iterator[tuple[Batch, Tensor]]:
        """Yield the whole validation set on every rank, so that `after_fit` decides the same on all."""
        size, counted = self.config.evaluation_batch_size, self.supervision.counted
        val = self.evaluated["val"]
        batches = self._in_order(val) if counted is None else listed_batches(val, counted.split(size))
        for _, x, y in batches:
            yield to_device(x, self.device, channels_last=self.config.channels_last), y.to(self.device)

    def _trained_on(self) -> Iterator[tuple[Batch, Tensor, Tensor | None]]:
        """Yield the whole training set on every rank, with the weight of each sample."""
        for index, x, y in self._in_order(self.train):
            given = self.supervision.of(index)
            weight = row_weights(y, Step(weight=given["weight"], class_weights=given["class_weights"]))
            yield to_device(x, self.device, channels_last=self.config.channels_last), y.to(self.device), weight

    def _in_order(self, dataset: KeyedDataset) -> Iterator[tuple[Tensor, Batch, Tensor]]:
        dataset.forget_epoch()
        rows, size = range(len(dataset)), self.config.evaluation_batch_size
        return evaluation_batches(dataset, rows, batch_size=size, num_workers=self.config.num_workers)

    def _gather(self, rows: Tensor, bounds: list[tuple[int, int]]) -> Tensor:
        """Return the rows of all ranks in their order."""
        if self.world == 1:
            return rows
        # Gathering needs equal sizes, so that shorter parts are padded, and cut again below.
        longest = max(stop - start for start, stop in bounds)
        padded: object = self.accelerator.pad_across_processes(rows.to(self.device))
        shares = self.accelerator.gather(padded).cpu().split(longest)
        whole = torch.empty((bounds[-1][1], *rows.shape[1:]), dtype=rows.dtype)
        for (start, stop), share in zip(bounds, shares, strict=True):
            whole[start:stop] = share[: stop - start]
        return whole

    def _compare(self, line: Json, predictions: dict[str, Tensor]) -> None:
        """Keep the best weights, and decide whether to stop."""
        # Of a regression the squared error stands for the NLL: it is that of a normal distribution, up to constants.
        error: float = next((line[name] for name in ("val_nll", "val_mse") if name in line), math.inf)
        if self.config.select == "refined" and self.supervision.target_type == "multiclass" and "val_nll" in line:
            line["val_refined"] = error = refined_nll(**self.supervision.weighted(predictions))
        # Patience counts evaluations without a lower NLL, whatever metric selects the weights: NLL notices a rise in
        # over-confidence that accuracy does not.
        self.waited = 0 if error < self.lowest_nll else self.waited + 1
        self.lowest_nll = min(error, self.lowest_nll)
        self.stopped = self.config.patience is not None and self.waited >= self.config.patience
        if self.config.stop_at is not None:
            name, value = self.config.stop_at
            reached = line.get(f"val_{name}", math.nan)
            self.stopped |= reached >= value if METRICS[name].higher_is_better else reached <= value
        select = self.config.select
        # Nothing is kept: the weights at the end are what is asked for.
        if select == "last":
            return
        if select != "nll" and f"val_{select}" not in line:
            classes = " needs classes; for regression select by 'nll', the squared error"
            raise ValueError(Sentence(Argument("select", select), classes))
        score = -error if select in ("nll", "refined") else line[f"val_{select}"]
        # Strictly better: among equals the earliest is kept, which has been trained for less long.
        if self.best is None or score > self.best["score"]:
            # Copies on the CPU: the optimizer updates these tensors in place, and a GPU may lack room for a second set.
            weights = {name: t.detach().to("cpu", copy=True) for name, t in self.module.state_dict().items()}
            self.best = {"step": self.step, "score": score, "metrics": line, "model": weights, **predictions}

    # Checkpoints

    def _checkpoint(self) -> None:
        """Save everything that a resumed training needs; all ranks call this."""
        self._read_losses()
        scaler = self.accelerator.scaler
        self.folder.save_checkpoint(
            self.step,
            {
                "step": self.step,
                "model": self.module.state_dict(),
                "optimizer": self.optimizer.state_dict()["state"],  # its settings come from the configuration
                "average": None if self.average is None else self.average.state_dict(),
                "scaler": None if scaler is None else scaler.state_dict(),
                "losses": self.losses.sums,
                "lowest_nll": self.lowest_nll,
                "waited": self.waited,
                "stopped": self.stopped,
                "seconds": self.seconds,
                "resumed": self.resumed,
                "cpu": self.cpu,
            },
            best=self.best,
            objective=self.objective.state_dict() or None,
            rank=self.rank,
            ranks=self.world,
            barrier=self.accelerator.wait_for_everyone,
        )

    def _resume(self) -> None:
        """Resume from the last checkpoint, if there is one."""
        saved, damage = None, ""
        try:
            saved = self.folder.load_checkpoint(rank=self.rank)
        except DamagedFileError as error:
            damage = str(error)
        if self._summed([bool(damage)])[0] if self.world > 1 else damage:
            # Only one checkpoint is kept. The configuration is intact, so the run starts over and ends the same.
            warnings.warn(
                f"the checkpoint cannot be read ({damage or 'by another rank'}): training starts over", stacklevel=4
            )
            self.folder.drop_checkpoint()
            saved = None
        if saved is None:
            self.folder.rewind_metrics(0)  # lines of a training whose checkpoint is gone
            return
        state = saved["state"]
        if saved["objective"] is not None:
            if saved["ranks"] != self.world:
                raise ValueError(
                    f"{self.folder.path} was started with {saved['ranks']} processes, of which each keeps a state of "
                    f"its own for this objective; start it again with as many, not with {self.world}"
                )
            self.objective.load_state_dict(saved["objective"])
        self.module.load_state_dict(state["model"])
        # Learning rates and the like come from the configuration, never from the checkpoint.
        settings = self.optimizer.state_dict()["param_groups"]
        trained = settings[0]["params"], self.optimizer.param_groups[0]["params"]
        tensors = {
            number: {name: _laid_out_like(p, t) for name, t in state["optimizer"].get(str(number), {}).items()}
            for number, p in zip(*trained, strict=True)
        }
        self.optimizer.load_state_dict({"state": tensors, "param_groups": settings})
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.step, self.seconds, self.resumed = state["step"], state["seconds"], state["resumed"] + 1
        before = state.get("cpu", {})  # what took other instructions for a while has the digits of neither
        self.cpu = {name: now if before.get(name, now) == now else "mixed" for name, now in self.cpu.items()}
        self.losses = _Losses(state["losses"])
        self.lowest_nll, self.waited, self.stopped = state["lowest_nll"], state["waited"], state["stopped"]
        self.best = saved["best"]
        self.folder.rewind_metrics(saved["metrics_bytes"])
        self.accelerator.wait_for_everyone()
        self.history = self.folder.history()

    # The end

    def _finish(self, description: Mapping[str, object]) -> tuple[dict[str, object], dict[str, Tensor] | None]:
        """Load the selected weights and write the result; return it with their predictions."""
        if self.best is None:
            if self.average is not None and self.average.mean:
                self.average.load_into(self.module, self._forwards)
            best = self.history[-1]
            predictions = self._predict("val") if self.latest is None and "val" in self.evaluated else self.latest
        else:
            best = self.best["metrics"]
            self.module.load_state_dict(self.best["model"])
            predictions = {name: self.best[name] for name in ("logits", "labels")}
        self.model.eval()
        if "val" in self.evaluated and isinstance(self.module, AfterFit):
            with self._as_served().autocast():  # what it decides is served at this precision
                self.module.after_fit(ReIterable(self._trained_on), ReIterable(self._held_out))
            predictions = self._predict("val")
            best = {**best, **self._measure_val(predictions)}
            self.model.eval()
        info = {
            **{name: value for name, value in description.items() if name != "config"},
            "config": self.config.to_dict(),
            "seed": self.config.seed,
            "best": best,
            "last": self.history[-1],
            "ece_bins": Tally().n_bins,
            "steps": self.step,
            "epochs": self.epoch,
            "steps_per_epoch": self.plan.steps,
            "stopped_early": self.stopped and self.step < self.n_steps,
            "seconds": round(self.seconds, 3),
            "resumed": self.resumed,
            "processes": self.world,
            "device": self.device.type,
            "threads": torch.get_num_threads(),
            "cpu": self.cpu,
            "versions": versions(),
        }
        if summary := self.objective.summary():
            info["objective"] = summary
        info = self.folder.finish(self.module.state_dict(), predictions, info)
        self.accelerator.wait_for_everyone()
        return info, predictions

    def _farewell(self, signals: list[int]) -> BaseException:
        """Return the exception that ends an interrupted run, with how to resume."""
        message = (
            f"stopped after step {self.step} of {self.n_steps}; the checkpoint is in {self.folder.path}: "
            "start the same run again to resume it"
        )
        return Terminated(message) if signal.SIGTERM in signals else KeyboardInterrupt(message)

    # Helpers

    def _seed(self, micro: int) -> int:
        """Return the seed of a micro-batch, from (seed, step, micro-batch)."""
        return _seeds(self.config.seed, self.plan.per_step, micro // _READ_EVERY)[micro % _READ_EVERY]

    def _batches(self) -> Iterator[_MicroBatch]:
        """Return the micro-batches of this rank from here to the end of the run."""
        per_step = self.plan.per_step
        sampler = MicroBatches(
            self.plan, start=self.step * per_step, stop=self.n_steps * per_step, rank=self.rank, world=self.world
        )
        loaded = training_batches(
            self.train, sampler, num_workers=self.config.num_workers, pin_memory=self.device.type == "cuda"
        )
        if self.device.type == "cpu":
            return ((*batch, None) for batch in loaded)
        return self._with_draws(zip(sampler.numbers, loaded, strict=True))

    def _with_draws(self, batches: Iterable[tuple[int, tuple[Tensor, Batch, Tensor]]]) -> Iterator[_MicroBatch]:
        """Yield the micro-batches; threads draw the plans or the noise of the next ones while the device computes."""
        with ThreadPoolExecutor(_AHEAD) as pool:
            ahead: deque[_MicroBatch] = deque()
            for micro, (index, x, y) in batches:
                generator = torch.Generator().manual_seed(self._seed(micro))
                step = Step(epoch=micro // self.plan.per_step / self.plan.steps, generator=generator)
                targets = self.objective.targets(plain(y), self.supervision.target_type)
                draw = self.objective.draw_ahead(plain(x), targets, step)
                ahead.append((index, x, y, None if draw is None else pool.submit(draw)))
                while len(ahead) > (_AHEAD if draw else 0):
                    yield ahead.popleft()
            yield from ahead

    def _read_losses(self) -> None:
        """Read the losses of all ranks from the device; raise if one is not finite."""
        if not self.losses.read(self.world):
            raise FloatingPointError(
                Sentence(
                    f"the loss is not finite after step {self.step}: lower ",
                    Argument("lr", self.config.lr),
                    ", or set ",
                    Argument("clip_norm"),
                    " or a warm-up",
                )
            )

    def _vote(self, due: bool, interruption: bool) -> tuple[bool, bool]:
        """Let the clock of the first rank, and an interruption of any, count for all.

        A vote makes all ranks wait for their devices, so that there is one a second: after how many steps the next one
        is due the first rank says.
        """
        if self.world == 1:
            return due, interruption
        if self.step < self._next_vote:
            return False, False
        before, then = self._voted
        per_step = (time.monotonic() - then) / max(1, self.step - before)
        steps = 1 if self.config.checkpoint_minutes == 0 else max(1, min(_READ_EVERY, int(1 / max(per_step, 1e-9))))
        due_votes, interruptions, wait = self._summed([due and self.rank == 0, interruption, steps * (self.rank == 0)])
        self._next_vote, self._voted = self.step + wait, (self.step, time.monotonic())
        return due_votes > 0, interruptions > 0

    def _summed(self, numbers: list[int]) -> list[int]:
        """Return the sums of all ranks' numbers."""
        sums: list[int] = self.accelerator.reduce(torch.tensor(numbers, device=self.device).long(), "sum").tolist()
        return sums

    def _start_trackers(self, description: Mapping[str, object]) -> None:
        if not self.accelerator.log_with:
            return
        settings = {**self.config.to_dict(), "method": description["method"]}
        self.accelerator.init_trackers(
            "vicinal",
            # TensorBoard would make a folder for the settings in each attempt; config.json has them already.
            config=None if self.config.trackers in (None, ("tensorboard",)) else settings,
            init_kwargs={
                "tensorboard": {"purge_step": self.step}
            },  # drop what a killed run logged after its checkpoint
        )


class _Losses:
    """The mean of each named loss since the last line of metrics, weighted by shares of a step.

    Losses stay on the device until they are read, so that the host need not wait for each.
    """

    def __init__(self, sums: Mapping[str, list[float]] | None = None) -> None:
        self.sums = {name: list(pair) for name, pair in (sums or {}).items()}  # name -> [Σ share · loss, Σ share]
        self._pending: list[tuple[float, dict[str, Tensor]]] = []

    @property
    def waiting(self) -> int:
        """How many micro-batches have not been read."""
        return len(self._pending)

    def add(self, share: float, named: Mapping[str, Tensor]) -> None:
        """Note the losses of a micro-batch."""
        self._pending.append((share, {name: t.detach() for name, t in named.items()}))

    def read(self, world: int) -> bool:
        """Add up what is waiting, of all ranks; False if it is not finite.

        Losses are added in the order of micro-batches, so the sums do not depend on when they are read.
        """
        if not self._pending:
            return True
        values = iter(torch.stack([t.float() for _, named in self._pending for t in named.values()]).tolist())
        here = [{name: (share * next(values), share) for name in named} for share, named in self._pending]
        self._pending = []
        ranks: list[object] = [here] * world
        if world > 1:
            dist.all_gather_object(ranks, here)
        for rows in zip(*ranks, strict=True):
            for row in rows:
                for name, (loss, share) in row.items():
                    known = self.sums.setdefault(name, [0.0, 0.0])
                    known[0] += loss
                    known[1] += share
        return math.isfinite(self.sums["loss"][0])

    def means(self) -> dict[str, float]:
        """Return the means and start again."""
        means = {name: total / share for name, (total, share) in self.sums.items()}
        self.sums = {}
        return means


@functools.lru_cache(maxsize=2)
def _seeds(seed: int, per_step: int, block: int) -> list[int]:
    """Return the seeds of a block of micro-batches: a block takes a tenth of the time of single calls."""
    numbers = range(block * _READ_EVERY, (block + 1) * _READ_EVERY)
    return [_random.seed_from("step", seed, *divmod(number, per_step)) for number in numbers]


def _lengths(train: object) -> Tensor:
    """Return the length of each sample of the training set."""
    lengths = getattr(train, "lengths", None)
    if lengths is None:
        needed = " needs a training set with `lengths`, an integer for each sample, as those of texts have"
        raise ValueError(Sentence(Argument("group_by_length", True), needed))
    return torch.as_tensor(lengths)


def _check_labels(logits: Tensor, labels: Tensor, target_type: str) -> None:
    """Refuse validation labels of another type: a tally would take soft targets for class numbers, or broadcast."""
    got = f"got {labels.dtype} {list(labels.shape)} for logits {list(logits.shape)}"
    if target_type == "regression" and (labels.ndim != 1 or logits.shape[1] != 1):
        raise ValueError(f"validation labels must be numbers [N] for regression, {got}")
    if target_type == "multiclass" and (labels.is_floating_point() or labels.ndim != 1):
        raise ValueError(f"validation labels must be integers [N], {got}; floats need another target_type")


def _mean_confidence(logits: Tensor, target_type: str) -> dict[str, float]:
    """Return the mean confidence under its name; numbers have none."""
    if target_type == "regression":
        return {}
    z = logits.double()
    # The confidence of an answer to a label is σ(|z|), that of the likelier of no and yes.
    each = z.softmax(dim=1).amax(dim=1) if target_type == "multiclass" else z.abs().sigmoid()
    return {"confidence": float(each.mean())}


def _laid_out_like(parameter: Tensor, value: object) -> object:
    """Return a saved value in the memory format of its parameter, which fused optimizers assume."""
    if not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)
