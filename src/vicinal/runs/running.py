"""From an experiment to a run: train, calibrate on held-out data, evaluate, save."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vicinal import _random, data, losses, models
from vicinal._checks import Argument, ArgumentError, Sentence, message_of, nearest_names
from vicinal._files import DamagedFileError, Json, check_size, checksum, json_pieces
from vicinal.calibrators import TemperatureScaling, cross_validate
from vicinal.calibrators.labels import two_logits
from vicinal.data import Split, Task, TextPreprocessing, Words
from vicinal.data.files import find
from vicinal.data.named import roots
from vicinal.expressions import parse
from vicinal.models import Boosted, MLPAndTrees, ModelSpec
from vicinal.objectives.base import Objective
from vicinal.objectives.erm import ERM
from vicinal.probes.label_noise import noise_errors
from vicinal.progress import shown, stage
from vicinal.runs.boosting import boosted
from vicinal.runs.bundle import Bundle
from vicinal.runs.defaults import default_config, default_options, mixed_at_embeddings
from vicinal.runs.experiment import Experiment, FurtherSet
from vicinal.runs.frozen import fit_frozen
from vicinal.runs.members import ensemble, member_seeds
from vicinal.runs.mistakes import confident_mistakes
from vicinal.runs.run import LabelsOutcome, Outcome, Run, corrupted, load_task
from vicinal.runs.scored import LabelsScored, Scored, scored, scored_labels
from vicinal.runs.shared import shared_by_mistakes
from vicinal.training import FitConfig, FitResult, fit, load_weights
from vicinal.training.config import MECHANICAL
from vicinal.training.environment import joined_process
from vicinal.training.folder import refuse_foreign

__all__ = ["held_out_logits", "network_of", "run", "run_labels", "specified"]

Say = Callable[[str], None]

T = TypeVar("T")
S = TypeVar("S", Scored, LabelsScored)

#: With fewer held-out samples a temperature must help by cross-validation. One number fitted on n samples costs new
#: ones about 1/2n of NLL (Akaike 1973), which of more samples is too little to look for.
_CHECKED = 500
#: Options of the data that say how to read them, and hold for further sets too.
_READING = ("max_bad", "encoding", "header", "data_root")


def run(
    experiment: Experiment,
    out: str | Path,
    *,
    n_bins: int = 15,
    progress: bool = True,
    on_note: Say | None = None,
    on_metrics: Callable[[Json], None] | None = None,
) -> Outcome | None:
    """Run an experiment, go on with one that was interrupted, or read one that is done.

    Parameters
    ----------
    experiment
        What to do.
    out
        The run folder.
    n_bins
        Of the calibration errors.
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
    if experiment.is_multilabel:
        raise ValueError("this experiment has several targets: pass it to run_labels")
    return _run(experiment, Run(out), Run.outcome, _conclude, n_bins, progress, on_note, on_metrics)


def run_labels(
    experiment: Experiment,
    out: str | Path,
    *,
    n_bins: int = 15,
    progress: bool = True,
    on_note: Say | None = None,
    on_metrics: Callable[[Json], None] | None = None,
) -> LabelsOutcome | None:
    """Run an experiment whose target is several columns of 0 and 1: labels that exclude nothing.

    One network has an output for each, learned by binary cross-entropy; each has a temperature of its own. The
    arguments are those of `run`.
    """
    asked = {name: getattr(experiment, name) for name in ("corrupt", "class_weight")}
    for name, value in {**asked, "ensemble": experiment.ensemble > 1}.items():
        if value:
            alone = " needs classes, and this target is several columns: train with one of them"
            raise ValueError(Sentence(Argument(name), alone))
    return _run(experiment, Run(out), Run.labels_outcome, _conclude_labels, n_bins, progress, on_note, on_metrics)


def _run(
    experiment: Experiment,
    folder: Run,
    read: Callable[..., T],
    conclude: Callable[[Run, _Ready, FitResult, int, Say], T],
    n_bins: int,
    progress: bool,
    on_note: Say | None,
    on_metrics: Callable[[Json], None] | None,
) -> T | None:
    """Return what a finished run led to, or train and conclude it."""
    say = on_note or (lambda note: None)
    outcome = _finished(folder, lambda: read(folder, experiment, n_bins=n_bins), say)
    if outcome is not None:
        return outcome
    _check_folder(folder)
    with shown(progress):
        ready = _prepare(experiment, folder.network, say)
        result = ready.fit(folder.path, progress=progress, on_metrics=on_metrics)
        process = joined_process()
        finished = conclude(folder, ready, result, n_bins, say) if process.is_main_process else None
    process.wait_for_everyone()
    return finished


def _finished(folder: Run, read: Callable[[], T], say: Say) -> T | None:
    """Return what a run led to if there is nothing left to do, and say so; None where it is to go on."""
    if not folder.is_finished:
        return None
    try:
        outcome, damage = read(), folder.damage()
    except DamagedFileError as error:
        say(message_of(error))
        _end_again(folder)
        return None
    if damage is None:
        say(f"{folder.path} is finished: nothing to do")
        return outcome
    say(f"{damage}; the run goes on from its checkpoint")
    return None


def _end_again(folder: Run) -> None:
    """Let training end again, from its checkpoint, where the validation predictions that it wrote are not whole."""
    try:
        folder.predictions()
    except DamagedFileError:
        folder.files.result.unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class _Ready:
    """All that training takes, and what it is evaluated on."""

    experiment: Experiment
    task: Task
    further: dict[str, _Further]
    """By key: `"also-1"`, …"""
    spec: ModelSpec
    config: FitConfig
    objective: Objective
    build: Callable[[int], nn.Module]
    """A network with the weights that this seed gives."""
    train: Split
    noise: tuple[Tensor, Tensor] | None
    """The labels that were drawn anew, and where."""

    def fit(self, out: Path, *, progress: bool, on_metrics: Callable[[Json], None] | None = None) -> FitResult:
        """Train, or go on with a training in this folder; of an ensemble, each member in a folder within it."""
        val = self.task.val if len(self.task.val) else None
        about, weights = self.about(), self.class_weights()
        trained = partial(
            fit, task=self.task.task, class_weights=weights, progress=progress, about=about, on_metrics=on_metrics
        )

        def train(seed: int, path: Path) -> FitResult:
            return trained(
                self.model if seed == self.experiment.seed else self.build(seed),
                self.objective,
                self.train,
                val,
                watch=self.watched(),
                out=path,
                config=dataclasses.replace(self.config, seed=seed),
                collate_fn=self.task.collate_fn,
            )

        def train_head(head: nn.Module, samples: object, held_out: object, path: Path) -> FitResult:
            return trained(head, self.objective, samples, held_out, out=path, config=self.config)

        if self.experiment.fast:
            return fit_frozen(self.model, train_head, self.train, val, config=self.config, out=out, about=about)
        if isinstance(self.model, Boosted):
            method, config = repr(self.objective), self.config
            return boosted(
                self.model, self.train, val, out=out, config=config, method=method, about=about, class_weights=weights
            )
        if self.spec.members == 1:
            return train(self.experiment.seed, out)
        return ensemble(train, member_seeds(self.experiment.seed, self.spec.members), out, about)

    def watched(self) -> dict[str, Split]:
        """Return what is measured at every evaluation; the training set with the labels it is trained on."""
        sets = {"test": self.task.test, **{key: further.split for key, further in self.further.items()}}
        if "train" in self.experiment.watch:  # of a large table a list of its labels is more than its features
            sets["train"] = self.train.relabelled(self.train.labels or [], augment="none")
        for name in self.experiment.watch:
            if not len(sets[name]):
                raise ArgumentError("watch", name, "a set that has samples")
        return {name: sets[name] for name in self.experiment.watch}

    @cached_property
    def model(self) -> nn.Module:
        """The network, or the first of an ensemble; trained in place."""
        return self.build(self.experiment.seed)

    def class_weights(self) -> Tensor | None:
        """Return how much the samples of each class count; None where all count the same."""
        if self.experiment.class_weight is None:
            return None
        return losses.balanced_weights(torch.tensor(self.train.labels), len(self.task.classes))

    def about(self) -> Json:
        """Return the facts that a resumed run must share."""
        held_out = {}
        if self.experiment.new_subset_per_seed:
            held_out = {"held_out": _digest([self.task.val.indices, self.task.test.indices])}
        return {
            "fingerprint": self.task.fingerprint,
            "classes": list(self.task.classes),
            "splits": _splits_digest(self.task),
            **held_out,
            "network": self.spec.to_dict(),
            "corrupt": self.experiment.corrupt,
            **({} if self.experiment.pretrained is None else {"pretrained": _digest_of_weights(self.experiment)}),
        }

    def facts(self) -> Json:
        """Return what a report tells of the data and the network."""
        weights = self.spec.members * sum(p.numel() for p in self.model.parameters())
        return {"data": self.task.summary(), "network": self.spec.to_dict(), "weights": weights, "notes": []}


@dataclass(frozen=True, eq=False)
class _Further:
    """A further set, and what its temperature is fitted on, where that is not the validation set of the run."""

    name: str
    split: Split
    development: Split | None


def _splits_digest(task: Task) -> str:
    """Return `_digest(task.splits)`, without a list of every sample."""
    digest = hashlib.sha256()
    for piece in json_pieces(task.positions):
        digest.update(piece.encode())
    return digest.hexdigest()


def _digest_of_weights(experiment: Experiment) -> str:
    """Return what a network was pretrained as: the hash of a file, or the name of published weights."""
    path = Path(str(experiment.pretrained)).expanduser()
    if not path.is_file():
        return str(experiment.pretrained)
    check_size(path)
    return checksum(path)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _prepare(experiment: Experiment, started: str | None, say: Say) -> _Ready:
    """Read the data and build the network; what may be wrong is better known before hours of training."""
    parse(experiment.method)
    network = network_of(experiment, started)
    task = load_task(dataclasses.replace(experiment, model=network))
    if (
        network != experiment.model
        and network != specified(dataclasses.replace(experiment, model_options={}), task)[0].name
    ):
        say(f"the run goes on with {network}, which was the usual network when it was started")
    if task.kind == "text" and experiment.model is not None and models.tokenizer_of(experiment.model) is None:
        known = nearest_names(experiment.model, models.names("text"))
        raise ValueError(f"there is no network {experiment.model!r} for text data{known}")
    for note in (*task.notes, *task.warnings):
        say(note)
    further = {
        f"also-{number}": _read_further(experiment, task, further, say)
        for number, further in enumerate(experiment.further_sets, start=1)
    }
    return _made_ready(experiment, task, further, say, network)


def network_of(experiment: Experiment, started: str | None) -> str | None:
    """Return the network that an experiment names, or the one its run was started with where another is usual now."""
    return started if experiment.model is None and started in models.USUAL_BEFORE else experiment.model


def _made_ready(
    experiment: Experiment, task: Task, further: dict[str, _Further], say: Say, network: str | None
) -> _Ready:
    """Return all that training takes, of data that are there, with the network of this name or the usual one."""
    objective = parse(experiment.method)
    with stage("building the network"):
        spec, vectors = specified(dataclasses.replace(experiment, model=network), task)
    if spec.name == "hgb":
        _check_boosting(experiment, task, objective)
    if spec.name == "mlp-and-trees":
        _check_classes(task, Argument("model", spec.name))
        if experiment.corrupt:
            alone = Argument("model", "two-view-mlp")
            raise ValueError(Sentence(Argument("corrupt"), " follows one network to its last weights: pass ", alone))
    if vectors is not None:
        n_words = int((~np.isnan(vectors).any(1)).sum())
        say(f"vectors: {n_words:,} of {len(vectors):,} words have one; the others are drawn with their variance")
    _check_start(experiment, spec)
    config = _config(experiment, task, spec)
    if task.kind == "text" and not experiment.fast and (mixed := mixed_at_embeddings(objective)) != objective:
        say(f"texts are mixed at their embeddings: {objective!r} is {mixed!r}")
        objective = mixed
    train, noise = corrupted(task, experiment)

    weights = None
    if experiment.pretrained is not None:
        with stage("pretrained weights"):
            weights = models.pretrained_weights(spec.name, experiment.pretrained)

    def build(seed: int) -> nn.Module:
        with _random.restored_globals():
            _random.seed_globals(_random.seed_from("weights", seed))
            with stage("building the network"):
                network = _built(dataclasses.replace(spec, members=1), experiment, vectors)
        if weights is not None:
            taken = models.load_pretrained(network, weights, str(experiment.pretrained))
            if seed == experiment.seed:
                say(taken)
        return network

    ready = _Ready(experiment, task, further, spec, config, objective, build, train, noise)
    n_weights = sum(p.numel() for p in ready.model.parameters())
    if experiment.fast:
        say("fast: a linear head is trained on features of the network, which stays as it is")
    amount, unit = (config.epochs, "epoch") if config.steps is None else (config.steps, "step")
    times = f"{spec.members} networks" if spec.members > 1 else "network"
    if spec.name == "hgb":
        say(f"gradient boosting by scikit-learn, at most {spec.options['iterations']} trees a class")
    else:
        beside = ""
        if isinstance(ready.model, MLPAndTrees) and len(task.val):
            beside = f"; then at most {ready.model.trees.iterations} boosted trees a class, by scikit-learn"
        steps = f"{amount} {unit}{'s' * (amount > 1)} of {config.optimizer}"
        say(f"{times} {spec.name}, {n_weights:,} weights; {steps}{beside}")
    return ready


def _config(experiment: Experiment, task: Task, spec: ModelSpec) -> FitConfig:
    """Return how to train: the whole network, or a linear head on its features."""
    given = dict(experiment.training)
    kind, name = task.kind, spec.name
    if experiment.fast:
        given.pop("group_by_length", None)  # the features of a text have no length
        kind, name = "tabular", "linear"
    return default_config(
        kind,
        name,
        given,
        seed=experiment.seed,
        validated=len(task.val) > 0,
        n_train=len(task.train),
        pretrained=experiment.pretrained is not None,
    )


def _check_start(experiment: Experiment, spec: ModelSpec) -> None:
    """Refuse to start from weights, or to leave them as they are, where there are none."""
    if experiment.pretrained is not None and spec.kind != "image":
        hint = ", for text name the checkpoint as the network" if spec.kind == "text" else ""
        raise ValueError(Sentence(Argument("pretrained"), f" is for images, and these are {spec.kind} data{hint}"))
    if not experiment.fast or (spec.kind == "image" and experiment.pretrained is not None):
        return
    if spec.kind != "text" or spec.name == "sentencecnn" or spec.options.get("multiple_choice"):
        raise ValueError(
            Sentence(
                Argument("fast"),
                f" needs a network that was trained before, which {spec.name!r} for {spec.kind} data is not: for texts "
                "a transformer such as 'minilm', for images ",
                Argument("pretrained"),
            )
        )


def _check_boosting(experiment: Experiment, task: Task, objective: Objective) -> None:
    """Refuse what gradient boosting cannot do: it minimises the cross-entropy of rows as they are."""
    hgb = Argument("model", "hgb")
    if objective != ERM():
        raise ValueError(Sentence(hgb, " mixes no rows: pass ", Argument("method", "ERM()")))
    _check_classes(task, hgb)
    for name, asked in (("ensemble", experiment.ensemble > 1), ("watch", bool(experiment.watch))):
        if asked:
            raise ValueError(Sentence(Argument(name), " is for networks: leave it out with ", hgb))
    if given := [name for name in experiment.training if name not in MECHANICAL]:
        sizes = " and its like: iterations, rate, leaves, depth, l2"
        option = Argument("model_option", "iterations=500")
        raise ValueError(Sentence(Argument(given[0]), " is for networks; ", hgb, " takes ", option, sizes))


def _check_classes(task: Task, model: Argument) -> None:
    if task.task != "multiclass":
        raise ValueError(Sentence(model, " needs classes, and this target is several columns"))


def held_out_logits(experiment: Experiment, task: Task, out: Path, *, progress: bool = True) -> tuple[Tensor, float]:
    """Train as an experiment does on data that are split already; return the test set's logits and the temperature.

    The experiment's further sets, and labels to be drawn anew, are left alone. The folder of the training is kept: one
    that was stopped goes on.
    """
    training = {**experiment.training, "trackers": []}
    training.pop("keep_predictions_at", None)
    plain = dataclasses.replace(experiment, also=(), watch=(), corrupt=0.0, training=training)
    ready = _made_ready(plain, task, {}, lambda note: None, plain.model)
    result = ready.fit(out, progress=progress)
    temperature = 1.0
    if result.logits is not None and result.labels is not None:
        temperature = _temperature(plain, lambda note: None, result.logits, result.labels, "")
    return _predicted(_bundle(ready, result, temperature), task.test, "left out"), temperature


def _read_further(experiment: Experiment, task: Task, further: FurtherSet, say: Say) -> _Further:
    """Return a further labelled set, read as the data were."""
    options = {name: experiment.data[name] for name in _READING if name in experiment.data}
    options |= {"columns": further.columns, "class_names": further.class_names}

    options["labels" if task.task == "multilabel" else "classes"] = task.classes

    def read(source: str, part: str) -> Split:
        split = data.read(source, task.preprocessing, part=part, **options)
        for note in split.notes:
            say(Sentence(f"{source}: ", note))
        return split

    split = read(further.source, "test")
    if further.development is None:
        return _Further(further.source, split, None)
    development = read(further.development, "val")
    if further.development == further.source and development.indices == split.indices:
        raise ArgumentError("development", further.development, "other samples than those that are evaluated")
    return _Further(further.source, split, development)


def specified(experiment: Experiment, task: Task) -> tuple[ModelSpec, NDArray[np.float64] | None]:
    """Return what builds the network, and the word vectors that its option `vectors` names, by token id."""
    options, reader = dict(experiment.model_options), task.preprocessing
    name, vectors = experiment.model, None
    if name is None and task.kind == "tabular" and experiment.corrupt:
        name = "two-view-mlp"  # whose errors are followed to the last weights
    if "vectors" in options and isinstance(reader, TextPreprocessing) and isinstance(reader.tokenizer, Words):
        source = str(options.pop("vectors"))
        path = find(source, roots(experiment.data.get("data_root")))
        if path is None:
            raise FileNotFoundError(f"there is no file {source!r} of word vectors (the option vectors)")
        vectors = reader.tokenizer.vectors(path)
        options = {"dim": vectors.shape[1], **options}
    about = task.spec
    if experiment.fast and "tokenizer" in about and about["tokenizer"] != "words" and "choices" not in about:
        options.setdefault("pooling", "mean")
    if name is None:
        options = {**default_options(models.specify(**about).name, len(task.train)), **options}
    spec = models.specify(name, **about, **options)
    return dataclasses.replace(spec, members=experiment.ensemble), vectors


def _built(spec: ModelSpec, experiment: Experiment, vectors: NDArray[np.float64] | None) -> nn.Module:
    try:
        return spec.build(vectors=vectors)
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


def _conclude(folder: Run, ready: _Ready, result: FitResult, n_bins: int, say: Say) -> Outcome:
    """Fit the temperature, evaluate, and write what is not there yet; the evaluation comes last."""
    experiment, task = ready.experiment, ready.task
    facts, note = _noting(ready, say)
    if experiment.class_weight is not None:
        note(
            "all classes counted the same in training, so rare classes are more probable here than in the data: "
            "vicinal.losses.without_class_weights undoes that in the logits"
        )
    shares = [float(part.share) for part in result.model.modules() if isinstance(part, MLPAndTrees)]
    if min(shares, default=1) < 1:
        facts["share"] = share = sum(shares) / len(shares)  # of an ensemble the mean, as in its answers
        percent = round(100 * share)
        say(f"by validation rows the network counts {percent} % in the answers, and the trees {100 - percent} %")
    fitted = partial(_temperature, experiment, note)
    bundle, sets = _evaluated(folder, ready, result, partial(scored, n_bins=n_bins), fitted, note)
    folder.write_experiment(experiment, facts)
    if "test" in sets:
        probs = bundle.calibrated(sets["test"].logits)
        shared = shared_by_mistakes(task.test, (probs.argmax(dim=1) != sets["test"].labels).numpy())
        folder.write_mistakes(task.kind, confident_mistakes(task.test, probs, task.classes), shared)
    noise = None if ready.noise is None else _noise_errors(bundle, task, folder.path, *ready.noise)
    outcome = Outcome(experiment, folder.path, facts, result.info, result.history, sets, bundle.temperature, noise)
    folder.write_evaluation(outcome)
    return outcome


def _conclude_labels(folder: Run, ready: _Ready, result: FitResult, n_bins: int, say: Say) -> LabelsOutcome:
    """Fit the temperature of each label, evaluate, and write what is not there yet; the evaluation comes last."""
    facts, note = _noting(ready, say)

    def fitted(logits: Tensor, labels: Tensor, where: str) -> dict[str, float]:
        return {
            name: _temperature(ready.experiment, note, two_logits(logits[:, k]), labels[:, k], f"of {name!r} {where}")
            for k, name in enumerate(ready.task.classes)
        }

    bundle, sets = _evaluated(folder, ready, result, partial(scored_labels, n_bins=n_bins), fitted, note)
    folder.write_experiment(ready.experiment, facts)
    temperatures = dict(zip(bundle.classes, bundle.temperatures, strict=True))
    outcome = LabelsOutcome(ready.experiment, folder.path, facts, result.info, result.history, sets, temperatures)
    folder.write_evaluation(outcome)
    return outcome


def _noting(ready: _Ready, say: Say) -> tuple[Json, Say]:
    """Return the facts of a run, and what says a thing and keeps it with them."""
    facts = ready.facts()

    def note(text: str) -> None:
        say(text)
        facts["notes"].append(text)

    return facts, note


def _evaluated(
    folder: Run,
    ready: _Ready,
    result: FitResult,
    score: Callable[..., S],
    fitted: Callable[[Tensor, Tensor, str], Any],
    note: Say,
) -> tuple[Bundle, dict[str, S]]:
    """Return the model with what was fitted on the validation set, and each set with its figures; keep predictions."""
    task, sets = ready.task, {}
    temperature: Any = dict.fromkeys(task.classes, 1.0) if task.task == "multilabel" else 1.0
    if result.logits is None or result.labels is None:
        note("there is no validation set: the probabilities are not calibrated (temperature 1)")
    else:
        temperature = fitted(result.logits, result.labels, "on the validation set")
        sets["val"] = score("val", result.logits, result.labels, temperature)
    bundle = _bundle(ready, result, temperature)
    bundle.save_record(folder.path)
    folder.write_splits(task.positions)
    held_out = {"test": _Further("test", task.test, None)} if len(task.test) else {}
    for key, further in {**held_out, **ready.further}.items():
        of_set = temperature
        if further.development is not None:
            logits = _predicted(bundle, further.development, further.name)
            of_set = fitted(logits, torch.tensor(further.development.labels), f"for {further.name}")
        logits, labels = _predicted(bundle, further.split, further.name), torch.tensor(further.split.labels)
        folder.write_predictions(key, logits, labels)
        with stage("evaluating"):
            sets[key] = score(further.name, logits, labels, of_set, notes=further.split.notes)
    return bundle, sets


def _bundle(ready: _Ready, result: FitResult, temperature: float | dict[str, float]) -> Bundle:
    return Bundle(
        module=result.model,
        spec=ready.spec,
        preprocessing=ready.task.preprocessing,
        classes=ready.task.classes,
        temperature=1.0 if isinstance(temperature, dict) else temperature,
        temperatures=tuple(temperature.values()) if isinstance(temperature, dict) else (),
        precision=ready.config.mixed_precision,
        batch_size=ready.config.evaluation_batch_size,
        method=result.info["method"],
        fingerprint=ready.task.fingerprint,
        versions=result.info["versions"],
    )


def _predicted(bundle: Bundle, split: Split, name: str) -> Tensor:
    """Return the logits of a set, and show how far they are."""
    with stage(f"predicting: {name}", len(split)) as advance:
        return torch.cat(list(bundle.iter_logits(split, progress=advance)))


def _temperature(experiment: Experiment, note: Say, logits: Tensor, labels: Tensor, where: str) -> float:
    """Return the temperature that suits held-out samples, 1 if it does not help; what is worth knowing is noted."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calibrator = TemperatureScaling(search=experiment.temperature).fit(logits, labels)
    temperature: float = calibrator.temperature_
    if experiment.temperature == "newton" and temperature != 1 and len(labels) < _CHECKED:
        tried = cross_validate(calibrator, logits, labels) if len(labels) > 1 else None
        if tried is None or not tried.helps:
            seen = "" if tried is None else f" (NLL {tried.with_it:.3f} with it and {tried.without:.3f} without)"
            note(
                f"temperature 1: {where}, {len(labels)} samples, one of {temperature:.3g} would not help "
                f"by cross-validation{seen}, so it is not applied"
            )
            return 1.0
    for warning in caught:
        note(f"temperature {temperature:g}: {where} {warning.message}")
    return temperature


def _noise_errors(bundle: Bundle, task: Task, out: Path, labels: Tensor, mask: Tensor) -> dict[str, object]:
    """Return the errors of Zhang et al. (2018), Table 2, of the selected and of the last weights."""
    real = torch.tensor(task.train.labels)
    plain = task.train.relabelled(real.tolist(), augment="none")
    noise: Json = {"corrupted": int(mask.sum()), "changed": int((labels != real).sum())}
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
