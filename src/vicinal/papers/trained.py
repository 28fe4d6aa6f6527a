"""A trained model as a recipe sees it: the only file of the recipes that knows how runs are made and kept."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import Subset

from vicinal import _random
from vicinal._atomic import Json, read_json, write_json
from vicinal.data import Split, Task
from vicinal.metrics import Estimate, Evaluation, evaluate
from vicinal.objectives.base import Objective
from vicinal.runs import Bundle, Experiment, Run, RunResult, run
from vicinal.runs.execute import specified
from vicinal.runs.run import load_task
from vicinal.training import FitConfig, fit, load_weights, read_predictions
from vicinal.training.defaults import default_config
from vicinal.training.environment import joined_process
from vicinal.training.folder import read_history
from vicinal.training.layout import TrainingFiles
from vicinal.training.predicting import channels_last_


class TrainingJob:
    """An experiment to be run into a folder."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.experiment, self.folder = experiment, folder

    def result(self) -> Trained | None:
        """Return the trained model if it is there."""
        return Trained(self.folder) if Run(self.folder).is_finished else None

    def run(self, *, progress: bool) -> None:
        """Train, and note the processor time: of loading and evaluating too."""
        with _timed(self.folder):
            run(self.experiment, self.folder, progress=progress)


@dataclass(frozen=True)
class FitJob:
    """A training that no experiment describes: all processes share it, and the same command resumes it."""

    train: Callable[[Json, int, Path], None]
    """Given the settings of the cell, the seed and the folder."""
    settings: Json
    seed: int
    folder: Path

    def result(self) -> Trained | None:
        """Return the trained model if it is there."""
        return Trained(self.folder) if TrainingFiles(self.folder).result.exists() else None

    def run(self, *, progress: bool) -> None:
        """Train, and note the processor time."""
        with _timed(self.folder):
            self.train(self.settings, self.seed, self.folder)
            joined_process().wait_for_everyone()  # the first process has then written the result


@contextmanager
def _timed(folder: Path) -> Iterator[None]:
    """Note the processor time of a training, over all attempts."""
    began, note = time.process_time(), _seconds_file(folder)
    try:
        yield
    finally:
        before = float(read_json(note)["seconds"]) if note.exists() else 0.0
        write_json(note, {"seconds": before + time.process_time() - began})


def _seconds_file(folder: Path) -> Path:
    """Return where the processor time of a training is noted: beside its folder, which is the run's alone."""
    return folder.parent / f"{folder.name}.seconds.json"


class Trained:
    """A finished run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @functools.cached_property
    def result(self) -> RunResult:
        """The result of the run."""
        return Run(self.folder).result().of_classes()

    @functools.cached_property
    def bundle(self) -> Bundle:
        """The model with the selected weights."""
        return Run(self.folder).bundle()

    @functools.cached_property
    def task(self) -> Task:
        """The data, split as they were."""
        return Run(self.folder).task()

    @property
    def history(self) -> list[Json]:
        """A line for each epoch."""
        return read_history(TrainingFiles(self.folder))

    @property
    def config(self) -> Json:
        """How it was trained, every option."""
        return dict(self.result.fit["config"])

    @property
    def temperature(self) -> float:
        """That of the validation set."""
        return self.result.temperature

    @property
    def seconds(self) -> float:
        """Processor seconds of loading, training and evaluating; of training alone if it was killed at its very end."""
        note = _seconds_file(self.folder)
        return float(read_json(note)["seconds"] if note.exists() else self.result.fit["seconds"])

    def test(self, *, n_bins: int = 15) -> Evaluation:
        """Return the metrics of the selected weights on the test set."""
        scored = self.result.test
        return (
            scored.before
            if n_bins == scored.before.n_bins
            else evaluate(scored.labels, logits=scored.logits, n_bins=n_bins)
        )

    def test_logits(self) -> tuple[Tensor, Tensor]:
        """Return logits and labels of the test set, of the selected weights."""
        return self.result.test.logits, self.result.test.labels

    def at_epoch(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Return the validation logits and labels after an epoch whose predictions were kept."""
        return read_predictions(self.folder / f"predictions-epoch-{epoch}.parquet")

    def last(self) -> Bundle:
        """Return the model with the weights of the last step in place of the selected ones."""
        self.bundle.module.load_state_dict(load_weights(self.folder, last=True))
        return self.bundle

    @functools.cached_property
    def last_logits(self) -> tuple[Tensor, Tensor]:
        """Logits and labels of the test set, of the last weights."""
        return logits_of(self.last(), self.task.test), torch.tensor(self.task.test.labels)

    def test_of_last(self, *, n_bins: int = 15) -> Evaluation:
        """Return the metrics of the last weights on the test set."""
        logits, labels = self.last_logits
        return evaluate(labels, logits=logits, n_bins=n_bins)

    @property
    def label_noise(self) -> Json:
        """Errors with corrupted labels, of the selected and of the last weights."""
        if self.result.label_noise is None:
            raise RuntimeError(f"{self.folder} was trained on labels as they are")
        return self.result.label_noise


def metrics_of(evaluation: Evaluation) -> dict[str, Estimate]:
    """Return the metrics that most recipes report, and by how much mean confidence exceeds accuracy."""
    accuracy, table = evaluation.accuracy, evaluation.table
    gap = table.confidence - table.accuracy
    half = (accuracy.high - accuracy.low) / 2
    return {
        "error": Estimate(1 - accuracy.value, 1 - accuracy.high, 1 - accuracy.low),
        "nll": evaluation.nll,
        "brier": evaluation.brier,
        "ece": evaluation.ece,
        "rms debiased": evaluation.rms_debiased,
        "oe": evaluation.oe,
        "gap": Estimate(gap, gap - half, gap + half),
    }


def train_with(experiment: Experiment, folder: Path, *, objective: Callable[[Split], Objective]) -> None:
    """Train as `vicinal.runs.run` does, with an objective that no expression names, made for the training set."""
    task, bundle, config = _untrained(experiment)
    val = task.val if len(task.val) else None
    made, collate = objective(task.train), task.collate_fn
    fit(bundle.module, made, task.train, val, out=folder, config=config, collate_fn=collate, progress=False)


def evaluation_of(experiment: Experiment, folder: Path, *, n_bins: int = 15) -> Evaluation:
    """Return the test set's metrics of what `train_with` trained, on the device that trained it."""
    task, bundle, config = _untrained(experiment)
    if config.channels_last:  # as in training: the layout of weights decides about digits
        channels_last_(bundle.module)
    bundle.module.load_state_dict(load_weights(folder))
    bundle.module.to(Run(folder).device).eval()
    return evaluate(torch.tensor(task.test.labels), logits=logits_of(bundle, task.test), n_bins=n_bins)


def _untrained(experiment: Experiment) -> tuple[Task, Bundle, FitConfig]:
    task = load_task(experiment)
    spec, vectors = specified(experiment, task)
    validated = len(task.val) > 0
    config = default_config(task.kind, spec.name, experiment.training, seed=experiment.seed, validated=validated)
    config = dataclasses.replace(config, keep_predictions_at=())
    with _random.restored_globals():
        _random.seed_globals(_random.seed_from("weights", experiment.seed))
        model = spec.build(vectors=vectors)
    parts: Json = {"spec": spec, "preprocessing": task.preprocessing, "classes": task.classes}
    return task, Bundle(module=model, channels_last=config.channels_last, **parts), config


class Part(Subset[Any]):
    """Some samples of a split, made into batches as all of it is."""

    @property
    def collate_fn(self) -> Callable[..., Any]:
        """What makes batches of them."""
        return cast(Split, self.dataset).collate_fn


def logits_of(bundle: Bundle, split: object) -> Tensor:
    """Return the logits of a split."""
    return torch.cat(list(bundle.iter_logits(split)))
