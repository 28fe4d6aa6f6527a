"""From an experiment to a run: train, calibrate on held-out data, evaluate, save.

run/                       what `vicinal.fit` writes (config.json, metrics.jsonl, checkpoint/, result.json), and
experiment.json          what was asked for, and what the data turned out to be
splits.json              which samples of the source are in which split
model.json               with model.safetensors the trained model: see `vicinal.runs.bundle`
predictions.parquet      index, label and logits of the validation set, before the temperature
predictions-test.parquet          … of the test set
predictions-also-1.parquet        … of each further set
mistakes.json            the most confident mistakes on the test set, with what a report shows of them
evaluation.json          the figures of each set, before and after the temperature; its presence means that all
is done
"""

from __future__ import annotations

import dataclasses
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
from vicinal._files import FORMAT, read_json, write_json
from vicinal.calibrators import TemperatureScaling
from vicinal.data import Split, Task
from vicinal.expressions import parse
from vicinal.metrics import Evaluation, evaluate
from vicinal.probes.label_noise import corrupt_labels, noise_errors
from vicinal.runs.bundle import Bundle
from vicinal.runs.defaults import usual_config, where_texts_are_mixed
from vicinal.runs.experiment import Experiment
from vicinal.runs.mistakes import confident_mistakes
from vicinal.training import FitResult, fit, load_weights, read_predictions
from vicinal.training.folder import write_predictions

__all__ = ["Outcome", "Scored", "finished", "reopen", "run"]


#: Options of the data that say how to read them, and hold for further sets too.
_READING = ("max_bad", "encoding", "header", "data_root")


@dataclass(frozen=True, eq=False)
class Scored:
    """The predictions of a run on one set of samples, before the temperature, and their figures before and after."""

    name: str
    """`"val"`, `"test"`, or the source of a further set."""
    logits: Tensor
    labels: Tensor
    before: Evaluation
    after: Evaluation


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an experiment led to."""

    experiment: Experiment
    out: Path
    facts: dict[str, Any]
    """What the data turned out to be, the network, and everything worth saying: the rest of experiment.json."""
    fit: dict[str, Any]
    """result.json of the training."""
    history: list[dict[str, Any]]
    temperature: float
    sets: dict[str, Scored]
    """`"val"`, `"test"`, and `"also-1"`, …"""
    label_noise: dict[str, Any] | None
    """With corrupted labels: errors on real and on corrupted labels, of the best and of the last weights."""

    @property
    def test(self) -> Scored:
        """The test set; an error where none was held out."""
        if "test" not in self.sets:
            raise ValueError(f"{str(self.out)!r} has no test set: train with test above 0")
        return self.sets["test"]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON can hold them."""
        return {
            "method": self.fit["method"],
            "temperature": self.temperature,
            "seed": self.experiment.seed,
            "seconds": self.fit["seconds"],
            "sets": {
                key: {"name": s.name, "before": s.before.to_dict(), "after": s.after.to_dict()}
                for key, s in self.sets.items()
            },
            **({} if self.label_noise is None else {"label_noise": self.label_noise}),
        }


def run(
    experiment: Experiment,
    out: str | Path,
    *,
    progress: bool = True,
    on_note: Callable[[str], None] | None = None,
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
    out = Path(out)
    say = on_note or (lambda note: None)
    if (done := finished(out, experiment)) is not None:
        say(f"{out} is finished: nothing to do")
        return done
    _check_folder(out)
    objective = parse(experiment.method)
    task = _load(experiment)
    if task.kind == "text" and experiment.model is not None and models.tokenizer_of(experiment.model) is None:
        known = nearest_names(experiment.model, models.names("text"))
        raise ValueError(f"there is no network {experiment.model!r} for text data{known}")
    for note in task.notes:
        say(note)
    # What else may be wrong is better known before hours of training.
    also = [_read_also(experiment, task, source, say) for source in experiment.also]
    spec = models.specify(experiment.model, **task.spec, **experiment.model_options)
    config = usual_config(task.kind, spec.name, experiment.training, seed=experiment.seed, validated=len(task.val) > 0)
    if task.kind == "text" and (mixed := where_texts_are_mixed(objective)) != objective:
        say(f"texts are mixed at their embeddings: {objective!r} is {mixed!r}")
        objective = mixed
    train, noise = _corrupted(task, experiment)
    with _random.restored_globals():
        _random.seed_globals(_random.seed_from("weights", experiment.seed))
        model = _built(spec, experiment)
    n_weights = sum(p.numel() for p in model.parameters())
    amount = f"{config.epochs} epoch{'s' * (config.epochs > 1)}"
    if config.steps is not None:
        amount = f"{config.steps} step{'s' * (config.steps > 1)}"
    say(f"network {spec.name}, {n_weights:,} weights; {amount} of {config.optimizer}")
    about = {
        "fingerprint": task.fingerprint,
        "classes": list(task.classes),
        "splits": hashlib.sha256(json.dumps(task.splits).encode()).hexdigest(),
        "network": spec.to_dict(),
        "corrupt": experiment.corrupt,
    }
    result = fit(
        model,
        objective,
        train,
        task.val if len(task.val) else None,
        out=out,
        config=config,
        collate_fn=task.collate_fn,
        progress=progress,
        about=about,
        on_metrics=on_metrics,
    )
    process = require("accelerate", "train").PartialState()
    outcome = None
    if process.is_main_process:
        facts = {"data": task.summary(), "network": spec.to_dict(), "weights": n_weights, "notes": []}
        bundle = Bundle(
            module=result.model,
            spec=spec,
            preprocessing=task.preprocessing,
            classes=task.classes,
            method=result.info["method"],
            fingerprint=task.fingerprint,
            versions=result.info["versions"],
        )
        outcome = _conclude(experiment, task, bundle, result, facts, also, noise, say)
    process.wait_for_everyone()
    return outcome


def finished(out: str | Path, experiment: Experiment | None = None, *, n_bins: int = 15) -> Outcome | None:
    """Return the outcome of a run that is done, else None.

    Parameters
    ----------
    out
        The run folder.
    experiment
        What it should be a run of; another one there is an error.
    n_bins
        Of the calibration errors.
    """
    out = Path(out)
    if not (out / "evaluation.json").exists():
        return None
    facts = {name: value for name, value in read_json(out / "experiment.json").items() if name != "format"}
    if "asked" not in facts:
        raise ValueError(f"{out / 'experiment.json'} lacks 'asked': it is not whole")
    found = Experiment.from_dict(facts.pop("asked"))
    if experiment is not None and found.that_matters() != experiment.that_matters():
        raise ValueError(
            Sentence(
                f"{out} holds another run, of {found.command()}: pass another ",
                Argument("out"),
                ", or remove this folder to start anew",
            )
        )
    evaluation, result = read_json(out / "evaluation.json"), read_json(out / "result.json")
    temperature = evaluation["temperature"]
    sets = {
        key: _scored(entry["name"], *read_predictions(_predictions_path(out, key)), temperature, n_bins)
        for key, entry in evaluation["sets"].items()
    }
    history = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return Outcome(found, out, facts, result, history, temperature, sets, evaluation.get("label_noise"))


def reopen(outcome: Outcome) -> tuple[Bundle, Task]:
    """Return the trained model of a run and its data, split as they were; data that have changed are an error."""
    bundle = Bundle.load(outcome.out)
    splits = {name: part for name, part in read_json(outcome.out / "splits.json").items() if name != "format"}
    try:
        task = _load(outcome.experiment, splits=splits)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error}. {str(outcome.out)!r} was trained on it: work in the folder in which the run was started"
        ) from error
    if task.fingerprint != bundle.fingerprint:
        raise ValueError(
            f"{outcome.experiment.source!r} has changed since {str(outcome.out)!r} was trained on it: restore it, or "
            "train again"
        )
    return bundle, dataclasses.replace(task, train=_corrupted(task, outcome.experiment)[0])


def _load(experiment: Experiment, *, splits: dict[str, list[int]] | None = None) -> Task:
    options = dict(experiment.data)
    options.setdefault("tokenizer", models.tokenizer_of(experiment.model))
    if splits is not None:
        options = {name: value for name, value in options.items() if name != "train_size"} | {"splits": splits}
    return data.load(experiment.source, **options)


def _read_also(experiment: Experiment, task: Task, source: str, say: Callable[[str], None]) -> Split:
    """Return a further labelled set, read as the data were."""
    options = {name: experiment.data[name] for name in _READING if name in experiment.data}
    split = data.read(source, task.preprocessing, classes=task.classes, **options)
    for note in split.notes:
        say(Sentence(f"{source}: ", note))
    return split


def _built(spec: models.ModelSpec, experiment: Experiment) -> nn.Module:
    try:
        return spec.build()
    except TypeError as error:
        given = ", ".join(f"{name}={value!r}" for name, value in experiment.model_options.items())
        raise TypeError(f"the network {spec.name!r} cannot be built with its options ({given}): {error}") from error


def _check_folder(out: Path) -> None:
    """Refuse a run folder that cannot be written to, before any work is done."""
    there = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(
            Sentence(Argument("out", str(out)), f" must be a folder, but {str(there)!r} is a file")
        )
    if not os.access(there, os.W_OK | os.X_OK):
        forbidden = f" cannot be written: you may not write to {str(there)!r}"
        raise PermissionError(Sentence(Argument("out", str(out)), forbidden))


def _conclude(
    experiment: Experiment,
    task: Task,
    bundle: Bundle,
    result: FitResult,
    facts: dict[str, Any],
    also: list[Split],
    noise: tuple[Tensor, Tensor] | None,
    say: Callable[[str], None],
) -> Outcome:
    """Fit the temperature, evaluate, and write what is not there yet; evaluation.json comes last."""
    out = _path(result)
    temperature, note = _temperature(result)
    if note:
        say(note)
        facts["notes"].append(note)
    bundle = dataclasses.replace(bundle, temperature=temperature)
    bundle.save_record(out)
    write_json(out / "splits.json", {"format": FORMAT, **task.splits})
    sets = {}
    if result.logits is not None and result.labels is not None:
        sets["val"] = _scored("val", result.logits, result.labels, temperature)
    further = {"test": ("test", task.test)} if len(task.test) else {}
    for number, (source, split) in enumerate(zip(experiment.also, also, strict=True), start=1):
        further[f"also-{number}"] = (source, split)
    for key, (name, split) in further.items():
        logits = torch.cat(list(bundle.iter_logits(split)))
        labels = torch.tensor(split.labels)
        write_predictions(_predictions_path(out, key), {"logits": logits, "labels": labels})
        sets[key] = _scored(name, logits, labels, temperature)
    write_json(out / "experiment.json", {"format": FORMAT, "asked": experiment.to_dict(), **facts})
    if "test" in sets:
        mistakes = confident_mistakes(task.test, bundle.calibrated(sets["test"].logits), task.classes)
        write_json(out / "mistakes.json", {"format": FORMAT, "kind": task.kind, "mistakes": mistakes})
    label_noise = None if noise is None else _noise_errors(bundle, task, out, *noise)
    outcome = Outcome(experiment, out, facts, result.info, result.history, temperature, sets, label_noise)
    write_json(out / "evaluation.json", {"format": FORMAT, **outcome.to_dict()})
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


def _scored(name: str, logits: Tensor, labels: Tensor, temperature: float, n_bins: int = 15) -> Scored:
    before = evaluate(labels, logits=logits, n_bins=n_bins)
    after = evaluate(labels, logits=logits.double() / temperature, n_bins=n_bins)
    return Scored(name, logits, labels, before, after)


def _predictions_path(out: Path, key: str) -> Path:
    return out / ("predictions.parquet" if key == "val" else f"predictions-{key}.parquet")


def _path(result: FitResult) -> Path:
    if result.out is None:
        raise RuntimeError("this run has no folder")
    return result.out


# Corrupted labels


def _corrupted(task: Task, experiment: Experiment) -> tuple[Split, tuple[Tensor, Tensor] | None]:
    """Return the training set, its labels drawn anew where asked for, with these labels and where they are."""
    if experiment.corrupt == 0:
        return task.train, None
    generator = torch.Generator().manual_seed(_random.seed_from("corrupt", experiment.data.get("seed", 0)))
    real = torch.tensor(task.train.labels)
    labels, mask = corrupt_labels(real, experiment.corrupt, len(task.classes), generator=generator)
    return task.train.relabelled(labels.tolist()), (labels, mask)


def _noise_errors(bundle: Bundle, task: Task, out: Path, labels: Tensor, mask: Tensor) -> dict[str, Any]:
    """Return the errors of Zhang et al. (2018), Table 2, of the selected and of the last weights."""
    real = torch.tensor(task.train.labels)
    plain = task.train.relabelled(real.tolist(), augment="none")
    found: dict[str, Any] = {"corrupted": int(mask.sum()), "changed": int((labels != real).sum())}
    selected = {name: t.clone() for name, t in bundle.module.state_dict().items()}
    for which, weights in (("best", selected), ("last", load_weights(out, last=True))):
        bundle.module.load_state_dict(weights)
        errors = noise_errors(_predicted(bundle, plain), real, labels, mask)
        known = {name: error.value for name, error in vars(errors).items() if not math.isnan(error.value)}
        found[which] = {f"train_{name}": error for name, error in known.items()}
        if len(task.test):
            wrong = _predicted(bundle, task.test) != torch.tensor(task.test.labels)
            found[which]["test"] = float(wrong.double().mean())
    bundle.module.load_state_dict(selected)
    return found


def _predicted(bundle: Bundle, split: Split) -> Tensor:
    return torch.cat([rows.argmax(dim=1) for rows in bundle.iter_logits(split)])
