"""From an experiment to a run: train, calibrate on held-out data, evaluate, save."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vicinal import _random, data, models
from vicinal._checks import Argument, Sentence, nearest_names, require
from vicinal.calibrators import TemperatureScaling
from vicinal.data import Split, Task
from vicinal.expressions import parse
from vicinal.models import ModelSpec
from vicinal.objectives.base import Objective
from vicinal.probes.label_noise import noise_errors
from vicinal.runs.bundle import Bundle
from vicinal.runs.defaults import default_config, mixed_at_embeddings
from vicinal.runs.experiment import Experiment
from vicinal.runs.mistakes import confident_mistakes
from vicinal.runs.run import Outcome, Run, corrupted, load_task, scored
from vicinal.training import FitConfig, FitResult, fit, load_weights
from vicinal.training.folder import refuse_foreign

__all__ = ["run"]

Say = Callable[[str], None]

#: Options of the data that say how to read them, and hold for further sets too.
_READING = ("max_bad", "encoding", "header", "data_root")


def run(
    experiment: Experiment,
    out: str | Path,
    *,
    progress: bool = True,
    on_note: Say | None = None,
    on_metrics: Callable[[dict[str, Any]], None] | None = None,
) -> Outcome | None:
    """Run an experiment, go on with one that was interrupted, or read one that is done.

    Parameters
    ----------
    experiment
        What to do.
    out
        The run folder.
    progress
        Show progress where standard error is a terminal.
    on_note
        Called with each thing worth saying, such as what was inferred about the data.
    on_metrics
        Called with each new line of metrics.jsonl.

    Returns
    -------
    Outcome
        None in every process but the first, where there are several.
    """
    folder, say = Run(out), on_note or (lambda note: None)
    if folder.is_finished:
        outcome = folder.outcome(experiment)
        if (damage := folder.damage()) is None:
            say(f"{folder.path} is finished: nothing to do")
            return outcome
        say(f"{damage}; the run goes on from its checkpoint")
    _check_folder(folder)
    ready = _prepare(experiment, say)
    result = fit(
        ready.model,
        ready.objective,
        ready.train,
        ready.task.val if len(ready.task.val) else None,
        out=folder.path,
        config=ready.config,
        collate_fn=ready.task.collate_fn,
        progress=progress,
        about=ready.about(),
        on_metrics=on_metrics,
    )
    process = require("accelerate", "train").PartialState()
    finished = _conclude(folder, ready, result, say) if process.is_main_process else None
    process.wait_for_everyone()
    return finished


@dataclass(frozen=True, eq=False)
class _Ready:
    """All that training takes, and what it is evaluated on."""

    experiment: Experiment
    task: Task
    further: dict[str, tuple[str, Split]]
    """By key: the name and the samples of each further set."""
    spec: ModelSpec
    config: FitConfig
    objective: Objective
    model: nn.Module
    train: Split
    noise: tuple[Tensor, Tensor] | None
    """The labels that were drawn anew, and where."""

    def about(self) -> dict[str, Any]:
        """Return the facts that a resumed run must share."""
        return {
            "fingerprint": self.task.fingerprint,
            "classes": list(self.task.classes),
            "splits": hashlib.sha256(json.dumps(self.task.splits).encode()).hexdigest(),
            "network": self.spec.to_dict(),
            "corrupt": self.experiment.corrupt,
        }

    def facts(self) -> dict[str, Any]:
        """Return what a report tells of the data and the network."""
        weights = sum(p.numel() for p in self.model.parameters())
        return {"data": self.task.summary(), "network": self.spec.to_dict(), "weights": weights, "notes": []}


def _prepare(experiment: Experiment, say: Say) -> _Ready:
    """Read the data and build the network; what may be wrong is better known before hours of training."""
    objective = parse(experiment.method)
    task = load_task(experiment)
    if task.kind == "text" and experiment.model is not None and models.tokenizer_of(experiment.model) is None:
        known = nearest_names(experiment.model, models.names("text"))
        raise ValueError(f"there is no network {experiment.model!r} for text data{known}")
    for note in task.notes:
        say(note)
    further = {
        f"also-{number}": (source, _read_further(experiment, task, source, say))
        for number, source in enumerate(experiment.also, start=1)
    }
    spec = models.specify(experiment.model, **task.spec, **experiment.model_options)
    config = default_config(
        task.kind, spec.name, experiment.training, seed=experiment.seed, validated=len(task.val) > 0
    )
    if task.kind == "text" and (mixed := mixed_at_embeddings(objective)) != objective:
        say(f"texts are mixed at their embeddings: {objective!r} is {mixed!r}")
        objective = mixed
    train, noise = corrupted(task, experiment)
    with _random.restored_globals():
        _random.seed_globals(_random.seed_from("weights", experiment.seed))
        model = _built(spec, experiment)
    n_weights = sum(p.numel() for p in model.parameters())
    amount, unit = (config.epochs, "epoch") if config.steps is None else (config.steps, "step")
    say(f"network {spec.name}, {n_weights:,} weights; {amount} {unit}{'s' * (amount > 1)} of {config.optimizer}")
    return _Ready(experiment, task, further, spec, config, objective, model, train, noise)


def _read_further(experiment: Experiment, task: Task, source: str, say: Say) -> Split:
    """Return a further labelled set, read as the data were."""
    options = {name: experiment.data[name] for name in _READING if name in experiment.data}
    split = data.read(source, task.preprocessing, classes=task.classes, **options)
    for note in split.notes:
        say(Sentence(f"{source}: ", note))
    return split


def _built(spec: ModelSpec, experiment: Experiment) -> nn.Module:
    try:
        return spec.build()
    except TypeError as error:
        given = ", ".join(f"{name}={value!r}" for name, value in experiment.model_options.items())
        raise TypeError(f"the network {spec.name!r} cannot be built with its options ({given}): {error}") from error


def _check_folder(folder: Run) -> None:
    """Refuse a run folder that cannot be written to, or is not ours, before any work is done."""
    out, given = folder.path.absolute(), Argument("out", str(folder.path))
    there = next(path for path in (out, *out.parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(Sentence(given, f" must be a folder, but {str(there)!r} is a file"))
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(Sentence(given, f" cannot be written: you may not write to {str(there)!r}"))
    refuse_foreign(folder.files)


def _conclude(folder: Run, ready: _Ready, result: FitResult, say: Say) -> Outcome:
    """Fit the temperature, evaluate, and write what is not there yet; the evaluation comes last."""
    experiment, task, facts = ready.experiment, ready.task, ready.facts()
    temperature, note = _temperature(result)
    if note:
        say(note)
        facts["notes"].append(note)
    bundle = Bundle(
        module=result.model,
        spec=ready.spec,
        preprocessing=task.preprocessing,
        classes=task.classes,
        temperature=temperature,
        precision=ready.config.mixed_precision,
        batch_size=ready.config.evaluation_batch_size,
        method=result.info["method"],
        fingerprint=task.fingerprint,
        versions=result.info["versions"],
    )
    bundle.save_record(folder.path)
    folder.write_splits(task.splits)
    sets = {}
    if result.logits is not None and result.labels is not None:
        sets["val"] = scored("val", result.logits, result.labels, temperature)
    held_out = {"test": ("test", task.test)} if len(task.test) else {}
    for key, (name, split) in {**held_out, **ready.further}.items():
        logits, labels = bundle.logits(split), torch.tensor(split.labels)
        folder.write_predictions(key, logits, labels)
        sets[key] = scored(name, logits, labels, temperature)
    folder.write_experiment(experiment, facts)
    if "test" in sets:
        probs = bundle.calibrated(sets["test"].logits)
        folder.write_mistakes(task.kind, confident_mistakes(task.test, probs, task.classes))
    noise = None if ready.noise is None else _noise_errors(bundle, task, folder.path, *ready.noise)
    outcome = Outcome(experiment, folder.path, facts, result.info, result.history, temperature, sets, noise)
    folder.write_evaluation(outcome)
    return outcome


def _temperature(result: FitResult) -> tuple[float, str | None]:
    """Return the temperature that suits the validation set, or 1 where it cannot tell, and why."""
    if result.logits is None or result.labels is None:
        return 1.0, "there is no validation set: the probabilities are not calibrated (temperature 1)"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        temperature = TemperatureScaling().fit(result.logits, result.labels).temperature_
    if caught:
        # At the end of its range the temperature says that the set is too easy (or too small), not how sure to be.
        return 1.0, f"temperature left at 1: on the validation set {caught[0].message}"
    return temperature, None


def _noise_errors(bundle: Bundle, task: Task, out: Path, labels: Tensor, mask: Tensor) -> dict[str, Any]:
    """Return the errors of Zhang et al. (2018), Table 2, of the selected and of the last weights."""
    real = torch.tensor(task.train.labels)
    plain = task.train.relabelled(real.tolist(), augment="none")
    noise: dict[str, Any] = {"corrupted": int(mask.sum()), "changed": int((labels != real).sum())}
    selected = {name: t.clone() for name, t in bundle.module.state_dict().items()}
    for which, weights in (("best", selected), ("last", load_weights(out, last=True))):
        bundle.module.load_state_dict(weights)
        errors = noise_errors(bundle.logits(plain).argmax(dim=1), real, labels, mask)
        known = {name: error.value for name, error in vars(errors).items() if not math.isnan(error.value)}
        noise[which] = {f"train_{name}": error for name, error in known.items()}
        if len(task.test):
            wrong = bundle.logits(task.test).argmax(dim=1) != torch.tensor(task.test.labels)
            noise[which]["test"] = float(wrong.double().mean())
    bundle.module.load_state_dict(selected)
    return noise
