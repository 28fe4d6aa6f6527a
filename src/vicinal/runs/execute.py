"""Execute an experiment: train, calibrate on held-out data, evaluate, save."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vicinal import _random, data, losses, models
from vicinal._atomic import DamagedFileError, Json, checksum, json_pieces
from vicinal._checks import Argument, ArgumentError, Sentence, message_of, nearest_names
from vicinal._memory import check_size
from vicinal._names import check_network
from vicinal._remote import local_path
from vicinal.calibrators import Calibrator, TemperatureScaling, calibrate, cross_validate
from vicinal.calibrators.two_logits import two_logits
from vicinal.data import ReadOptions, Split, Task
from vicinal.data.class_folders import find
from vicinal.data.names import roots
from vicinal.data.readers import Readers
from vicinal.data.text import TextPreprocessing
from vicinal.data.tokens import Words
from vicinal.experiment import EvalSet, Experiment
from vicinal.expressions import parse
from vicinal.metrics import Evaluation, evaluate, evaluate_slices
from vicinal.models import ModelSpec
from vicinal.objectives.base import Objective
from vicinal.objectives.sequence import mixed_at_embeddings
from vicinal.probes.label_noise import noise_errors
from vicinal.progress import shown, stage
from vicinal.runs.boosting import boosted, check_trees, network_share, share_notice, stop_notice, training_summary
from vicinal.runs.bundle import Bundle
from vicinal.runs.calibration import ONLY_HEAD, HeadCalibrators
from vicinal.runs.ensemble import ensemble, member_seeds
from vicinal.runs.error_slices import MOST_SLICED, error_slices, slice_masks
from vicinal.runs.expected_time import expected_seconds, time_notice
from vicinal.runs.linear_head import fit_frozen
from vicinal.runs.method_choice import AUTO, CANDIDATES, MethodChoice, choice_among, choice_without_trial
from vicinal.runs.mistakes import confident_mistakes
from vicinal.runs.run import Run, RunResult, corrupted, load_task
from vicinal.runs.scores import Scores, score
from vicinal.training import FitConfig, FitResult, fit, load_weights
from vicinal.training.batches import MapDataset
from vicinal.training.defaults import default_config, default_options
from vicinal.training.environment import joined_process
from vicinal.training.folder import refuse_foreign

Say = Callable[[str], None]

#: With fewer held-out samples than this a temperature must help by cross-validation. One parameter fitted on n samples
#: costs about 1/(2n) in NLL on new ones (Akaike 1973). Beyond 500 samples that is too little to be worth a check.
_CHECKED = 500
_NOT_CALIBRATED = "there is no validation set: the probabilities are not calibrated (temperature 1)"


def run(
    experiment: Experiment,
    out: str | Path,
    *,
    n_bins: int = 15,
    progress: bool = True,
    on_note: Say | None = None,
    on_metrics: Callable[[Json], None] | None = None,
) -> RunResult | None:
    """Run an experiment, resume one that was interrupted, or read one that is done.

    A target of several columns of 0 and 1 is multi-label: the network has a head for each, learned by binary
    cross-entropy, and each head has a calibrator of its own.

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
        Called with each note, such as what was inferred about the data.
    on_metrics
        Called with each new line of metrics.jsonl.

    Returns
    -------
    RunResult
        None in every process but the first, where there are several.

    Examples
    --------
    >>> experiment = Experiment(source="digits", model_options={"width": 4}, training={"epochs": 1})
    >>> result = run(experiment, "runs/digits", progress=False)  # doctest: +SKIP
    >>> print(result.sets["test"].after.accuracy)  # doctest: +SKIP
    """
    folder, say = Run(local_path("out", out)), on_note or (lambda note: None)
    if experiment.is_multilabel:
        _check_multilabel(experiment)
    if (done := _finished(folder, experiment, n_bins, say)) is not None:
        return done
    _check_folder(folder)  # before the data are read, which may take minutes
    with shown(progress):
        ready = _prepare(experiment, say)
        trained = ready.fit(folder.path, progress=progress, on_metrics=on_metrics)
        process = joined_process()
        result = _conclude(folder, ready, trained, n_bins, say) if process.is_main_process else None
    # The other processes wait until the first has written the results: a second command may read them at once.
    process.wait_for_everyone()
    return result


def _check_multilabel(experiment: Experiment) -> None:
    asked = {name: getattr(experiment, name) for name in ("corrupt", "class_weight")}
    for name, value in {**asked, "ensemble": experiment.ensemble > 1}.items():
        if value:
            alone = " needs classes, and this target is several columns: train with one of them"
            raise ValueError(Sentence(Argument(name), alone))


def _finished(folder: Run, experiment: Experiment, n_bins: int, say: Say) -> RunResult | None:
    """Return the result of a finished run, with a note; None if there is something left to do."""
    if not folder.is_finished:
        return None
    try:
        result, damage = folder.result(experiment, n_bins=n_bins), folder.damage()
    except DamagedFileError as error:
        say(message_of(error))
        return None
    if damage is None:
        say(f"{folder.path} is finished: nothing to do")
        return result
    say(f"{damage}; the run resumes from its checkpoint")
    return None


@dataclass(frozen=True, eq=False)
class _Ready:
    """Everything that training needs, and what the model is evaluated on."""

    experiment: Experiment
    task: Task
    extra_sets: dict[str, _EvalData]
    """By key: `"eval-1"`, …"""
    spec: ModelSpec
    config: FitConfig
    objective: Objective
    build: Callable[[int], nn.Module]
    """Builds the network with initial weights drawn from this seed."""
    train: Split
    noise: tuple[Tensor, Tensor] | None
    """With label noise: the noisy labels, and which were replaced."""
    method_choice: MethodChoice | None = None
    """With the method `auto`: what was tried, and what was chosen."""

    def fit(self, out: Path, *, progress: bool, on_metrics: Callable[[Json], None] | None = None) -> FitResult:
        """Train, or resume a training in this folder; an ensemble trains each member in a subfolder."""
        val = self.task.val if len(self.task.val) else None
        about, weights = self.about(), self.class_weights()
        trained = partial(
            fit,
            target_type=self.task.target_type,
            weight={"train": _scaled(self.train), "val": None if val is None else _scaled(val)},
            class_weights=weights,
            progress=progress,
            about=about,
            on_metrics=on_metrics,
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

        # The head has no `watch` and no `collate_fn`: it sees features, which are tensors already.
        def train_head(head: nn.Module, samples: MapDataset, held_out: MapDataset | None, path: Path) -> FitResult:
            return trained(head, self.objective, samples, held_out, out=path, config=self.config)

        if self.experiment.fast:
            return fit_frozen(self.model, train_head, self.train, val, config=self.config, out=out, about=about)
        method, config = repr(self.objective), self.config
        # None unless the model is trees alone, which have no training loop.
        trees = boosted(self.model, self.train, val, weights, out=out, config=config, method=method, about=about)
        if trees is not None:
            return trees
        if self.spec.members == 1:
            return train(self.experiment.seed, out)
        return ensemble(train, member_seeds(self.experiment.seed, self.spec.members), out, about)

    def watched(self) -> dict[str, Split]:
        """Return the sets to measure at every evaluation; the training set has the labels it is trained on."""
        sets = {"test": self.task.test, **{key: extra.split for key, extra in self.extra_sets.items()}}
        if "train" in self.experiment.watch:  # not always: for a large table the list of labels outweighs its features
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
        """Return the weight of each class; None if all weigh the same."""
        if self.experiment.class_weight is None:
            return None
        return losses.balanced_weights(torch.tensor(self.train.labels), len(self.task.classes))

    def about(self) -> Json:
        """Return the facts that a resumed run must match."""
        held_out = {}
        if self.experiment.new_subset_per_seed:
            # The training part differs between seeds, so only the held-out parts must match.
            held_out = {"held_out": _digest([self.task.val.indices, self.task.test.indices])}
        return {
            "fingerprint": self.task.fingerprint,
            "classes": list(self.task.classes),
            # Hashes, not lists: the splits of a large table would make the record larger than the weights.
            "splits": _splits_digest(self.task),
            **held_out,
            "network": self.spec.to_dict(),
            "corrupt": self.experiment.corrupt,
            **({} if self.experiment.pretrained is None else {"pretrained": _digest_of_weights(self.experiment)}),
        }

    def facts(self) -> Json:
        """Return the facts about data and network that a report shows."""
        weights = self.spec.members * sum(p.numel() for p in self.model.parameters())
        facts = {"data": self.task.summary(), "network": self.spec.to_dict(), "weights": weights, "notes": []}
        if self.method_choice is not None:
            facts["method_choice"] = {**self.method_choice.to_dict(), "said": str(self.method_choice)}
        return facts


@dataclass(frozen=True, eq=False)
class _EvalData:
    """An extra evaluation set, and the development set that its temperature is fitted on, if it has one."""

    name: str
    split: Split
    development: Split | None


def _splits_digest(task: Task) -> str:
    """Return `_digest(task.splits)`, without a list of every sample in memory."""
    digest = hashlib.sha256()
    for piece in json_pieces(task.positions):
        digest.update(piece.encode())
    return digest.hexdigest()


def _digest_of_weights(experiment: Experiment) -> str:
    """Return the identity of pretrained weights: the hash of a file, or their published name."""
    path = Path(str(experiment.pretrained)).expanduser()
    if not path.is_file():
        return str(experiment.pretrained)
    check_size(path)
    return checksum(path)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _prepare(experiment: Experiment, say: Say) -> _Ready:
    """Read the data and build the network, so that mistakes are found before hours of training."""
    check_names(experiment)
    joined_process()  # the processes of torchrun read the data together
    task = load_task(experiment, readers=Readers.joined())
    if task.kind == "text" and experiment.model is not None and models.tokenizer_of(experiment.model) is None:
        known = nearest_names(experiment.model, models.names("text"))
        raise ValueError(f"there is no network {experiment.model!r} for text data{known}")
    for note in (*task.notes, *task.warnings):
        say(note)
    extra = {
        f"eval-{number}": _read_eval_set(experiment, task, each, say)
        for number, each in enumerate(experiment.eval_sets, start=1)
    }
    ready = _made_ready(experiment, task, extra, say)
    if task.kind in ("image", "audio") and not experiment.fast:
        with stage("timing a step"):
            shape = tuple(task.spec["input_shape"])
            seconds = expected_seconds(ready.model, shape, len(task.train), ready.config) * ready.spec.members
        if (said := time_notice(seconds, task.kind, joined_process().device.type)) is not None:
            say(said)
    return ready


def check_names(experiment: Experiment) -> None:
    """Refuse a typing error in the method or the network before the data are read."""
    if experiment.method != AUTO:
        parse(experiment.method)
    check_network(experiment.model)


def _made_ready(experiment: Experiment, task: Task, extra_sets: dict[str, _EvalData], say: Say) -> _Ready:
    """Return all that training takes, for data that are loaded."""
    choice = _method_choice(experiment, task, say) if experiment.method == AUTO else None
    objective = parse(experiment.method if choice is None else choice.method)
    with stage("building the network"):
        spec, vectors = specified(experiment, task)
    check_trees(spec.name, experiment, task, objective)
    if vectors is not None:
        n_words = int((~np.isnan(vectors).any(1)).sum())
        say(f"vectors: {n_words:,} of {len(vectors):,} words have one; the others are drawn with their variance")
    _check_start(experiment, spec)
    config = _config(experiment, task, spec, objective)
    if task.kind == "text" and not experiment.fast and (mixed := mixed_at_embeddings(objective)) != objective:
        say(f"texts are mixed at their embeddings: {objective!r} is {mixed!r}")
        objective = mixed
    train, noise = corrupted(task, experiment)

    weights = None
    if experiment.pretrained is not None:
        with stage("pretrained weights"):
            weights = models.pretrained_weights(spec.name, experiment.pretrained)

    # Initial weights depend on the seed alone, whatever was drawn before in this process.
    def build(seed: int) -> nn.Module:
        with _random.restored_globals():
            _random.seed_globals(_random.seed_from("weights", seed))
            with stage("building the network"):
                network = _built(dataclasses.replace(spec, members=1), experiment, vectors)
        if weights is not None:
            taken = models.load_pretrained(network, weights, str(experiment.pretrained))
            # Members of an ensemble take the same weights: one note is enough.
            if seed == experiment.seed:
                say(taken)
        return network

    ready = _Ready(experiment, task, extra_sets, spec, config, objective, build, train, noise, choice)
    if experiment.fast:
        say("fast: a linear head is trained on features of the network, which stays as it is")
    say(training_summary(ready.model, spec.name, spec.members, config, validated=len(task.val) > 0))
    return ready


def _method_choice(experiment: Experiment, task: Task, say: Say) -> MethodChoice:
    """Return the method that suits validation rows best, and say so; each candidate is trained in a scratch folder."""
    choice = choice_without_trial(experiment, task)
    if choice is None:
        found: dict[str, Evaluation] = {}
        for method in CANDIDATES:
            say(f"trying {method}")
            tried = dataclasses.replace(experiment, method=method, eval_data=(), watch=(), ensemble=1)
            with tempfile.TemporaryDirectory(prefix="vicinal-") as folder:
                bundle, trained = train_bundle(tried, task, Path(folder))
            if trained.logits is not None and trained.labels is not None:  # there is a validation set
                calibrated = bundle.calibrators(trained.logits)
                found[method] = evaluate(trained.labels, logits=calibrated, sample_weight=task.val.weights)
        choice = choice_among(found)
    say(str(choice))
    return choice


def _config(experiment: Experiment, task: Task, spec: ModelSpec, objective: Objective) -> FitConfig:
    """Return the configuration of the whole network, or with `fast` of a linear head."""
    given = dict(experiment.training)
    if task.kind == "image" and "LogitMix(" in repr(objective) and "lr" not in given:
        # Its squared distance of logits has gradients without bound, which the default rate would follow.
        given.setdefault("clip_norm", 1.0)
    kind, name = task.kind, spec.name
    if experiment.fast:
        # The options are those of the whole network, but a linear head is trained.
        given.pop("group_by_length", None)  # the head sees features, which have no length
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
    """Refuse `pretrained` and `fast` for networks without pretrained weights."""
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


def held_out_logits(experiment: Experiment, task: Task, out: Path, *, progress: bool = True) -> Tensor:
    """Train an experiment on data that are already split; return the calibrated test logits.

    The experiment's extra evaluation sets and label noise are left out. The folder of the training is kept, so one that
    was stopped resumes.
    """
    training = {**experiment.training, "trackers": []}
    # An audit trains many folds, whose predictions during training nobody reads.
    training.pop("keep_predictions_at", None)
    plain = dataclasses.replace(experiment, eval_data=(), watch=(), corrupt=0.0, training=training)
    bundle = train_bundle(plain, task, out, progress=progress)[0]
    return bundle.calibrators(_predicted(bundle, task.test, "left out"))


def train_bundle(
    experiment: Experiment, task: Task, out: Path, *, progress: bool = True, on_note: Say | None = None
) -> tuple[Bundle, FitResult]:
    """Train and calibrate on data that are loaded; return the model and its training, without an evaluation.

    The folder `out` holds the training alone: one that was stopped resumes.
    """
    say = on_note or (lambda note: None)
    ready = _made_ready(experiment, task, {}, say)
    trained = ready.fit(out, progress=progress)
    if (ended := stop_notice(trained.info)) is not None:
        say(ended)
    calibrators = _uncalibrated(task)
    if trained.logits is None or trained.labels is None:
        say(_NOT_CALIBRATED)
    else:
        groups = _groups(ready, task.val)
        held_out = trained.logits, trained.labels, "on the validation set", groups, task.val.weights
        calibrators = _fitted(ready, {}, say, *held_out)
    return _bundle(ready, trained, calibrators), trained


def _read_eval_set(experiment: Experiment, task: Task, given: EvalSet, say: Say) -> _EvalData:
    """Return an extra evaluation set, read with the preprocessing of the training data."""
    options: dict[str, Any] = {"options": ReadOptions.pop_from(dict(experiment.data))}
    options |= {"columns": given.columns, "class_names": given.class_names}

    options["labels" if task.target_type == "multilabel" else "classes"] = task.classes

    def read(source: str, part: str) -> Split:
        split = data.read(source, task.preprocessing, part=part, **options)
        for note in split.notes:
            say(Sentence(f"{source}: ", note))
        return split

    split = read(given.source, "test")
    if given.development is None:
        return _EvalData(given.source, split, None)
    development = read(given.development, "val")
    # A temperature fitted on the samples that it is evaluated on would look better than it is.
    if given.development == given.source and development.indices == split.indices:
        raise ArgumentError("development", given.development, "other samples than those that are evaluated")
    return _EvalData(given.source, split, development)


def specified(experiment: Experiment, task: Task) -> tuple[ModelSpec, NDArray[np.float64] | None]:
    """Return the network's specification, and the word vectors that its option `vectors` names, by token id."""
    options, reader = dict(experiment.model_options), task.preprocessing
    name, vectors = experiment.model, None
    if name is None and task.kind == "tabular" and experiment.corrupt:
        # Label noise is measured at the last weights too, which trees beside a network do not have.
        name = "two-view-mlp"
    if "vectors" in options and isinstance(reader, TextPreprocessing) and isinstance(reader.tokenizer, Words):
        source = str(options.pop("vectors"))
        path = find(source, roots(experiment.data.get("data_root")))
        if path is None:
            raise FileNotFoundError(f"there is no file {source!r} of word vectors (the option vectors)")
        vectors = reader.tokenizer.vectors(path)
        # A given `dim` wins, so that a wrong one is an error of the network and not ignored.
        options = {"dim": vectors.shape[1], **options}
    about = task.spec
    if experiment.fast and "tokenizer" in about and about["tokenizer"] != "words" and "choices" not in about:
        # MiniLM was trained with the mean of its states: its first token alone says little of a text.
        options.setdefault("pooling", "mean")
    if name is None and experiment.pretrained is not None and task.kind == "image":
        name = "resnet18"  # of which there are published weights
    about |= {"n_train": len(task.train), "accelerated": joined_process().device.type != "cpu"}
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
    """Refuse a run folder that cannot be written to, or holds something else, before any work is done."""
    out, given = folder.path.absolute(), Argument("out", str(folder.path))
    if out.is_symlink() and not out.exists():
        raise FileNotFoundError(Sentence(given, f" is a link to {os.readlink(out)!r}, which is not there: create it"))
    there = next(path for path in (out, *out.parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(Sentence(given, f" must be a folder, but {str(there)!r} is a file"))
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(Sentence(given, f" cannot be written: you may not write to {str(there)!r}"))
    refuse_foreign(folder.files)


def _conclude(folder: Run, ready: _Ready, trained: FitResult, n_bins: int, say: Say) -> RunResult:
    """Fit the calibrator of each head, evaluate, and write the results.

    evaluation.json is written last, since it marks the run as finished: a run killed before resumes here.
    """
    experiment, task, facts = ready.experiment, ready.task, ready.facts()

    def note(text: str) -> None:
        say(text)
        facts["notes"].append(text)

    if experiment.class_weight is not None:
        note(
            "all classes counted the same in training, so rare classes are more probable here than in the data: "
            "vicinal.losses.without_class_weights undoes that in the logits"
        )
    if (ended := stop_notice(trained.info)) is not None:
        say(ended)
    # Trees that do not help by the validation set have no share, and are not mentioned.
    if (said := share_notice(trained.model)) is not None:
        facts["share"] = network_share(trained.model)
        say(said)
    bundle, sets = _evaluated(folder, ready, trained, n_bins, facts, note)
    folder.write_experiment(experiment, facts)
    if "test" in sets and not bundle.is_multilabel:
        probs = bundle.calibrated(sets["test"].logits)
        shared = error_slices(task.test, (probs.argmax(dim=1) != sets["test"].labels).numpy())
        slices = evaluate_slices(sets["test"].after, slice_masks(task.test)) if len(task.test) <= MOST_SLICED else []
        mistakes = confident_mistakes(task.test, probs, task.classes)
        folder.write_mistakes(task.kind, mistakes, shared, [one.to_dict() for one in slices])
    noise = None if ready.noise is None else _noise_errors(bundle, task, folder.path, *ready.noise)
    fitted = bundle.calibrators
    result = RunResult(experiment, folder.path, facts, trained.info, trained.history, sets, fitted, noise)
    folder.write_evaluation(result)
    return result


def _evaluated(
    folder: Run, ready: _Ready, trained: FitResult, n_bins: int, facts: Json, note: Say
) -> tuple[Bundle, dict[str, Scores]]:
    """Return the calibrated model and the metrics of each set; write the predictions."""
    task, sets = ready.task, {}
    chosen: dict[str, Json] = {}
    calibrators = _uncalibrated(task)
    if trained.logits is None or trained.labels is None:
        note(_NOT_CALIBRATED)
    else:
        groups = _groups(ready, task.val)
        of_val = trained.logits, trained.labels, "on the validation set", groups, task.val.weights
        calibrators = _fitted(ready, chosen, note, *of_val)
        facts |= {"calibration": chosen} if chosen else {}
        counted = task.val.weights
        sets["val"] = score("val", trained.logits, trained.labels, calibrators, n_bins, groups=groups, weights=counted)
    bundle = _bundle(ready, trained, calibrators)
    # The model can be served from here on, even if the evaluation below is interrupted.
    bundle.save_record(folder.path)
    folder.write_splits(task.positions)
    folder.write_digests(task.train)
    if (in_val := _groups(ready, task.val)) is not None and (in_test := _groups(ready, task.test)) is not None:
        folder.write_groups({"val": in_val, "test": in_test})
    if task.val.weights is not None and task.test.weights is not None:
        folder.write_weights({"val": task.val.weights, "test": task.test.weights})
    held_out = {"test": _EvalData("test", task.test, None)} if len(task.test) else {}
    for key, extra in {**held_out, **ready.extra_sets}.items():
        # The validation calibrators serve every set that has no development set of its own.
        of_set = calibrators
        if extra.development is not None:
            logits = _predicted(bundle, extra.development, extra.name)
            labels = torch.tensor(extra.development.labels)
            of_set = _fitted(ready, {}, note, logits, labels, f"for {extra.name}")
        logits, labels = _predicted(bundle, extra.split, extra.name), torch.tensor(extra.split.labels)
        folder.write_predictions(key, logits, labels)
        with stage("evaluating"):
            groups = _groups(ready, extra.split) if key == "test" else None
            about: Json = {"groups": groups, "weights": extra.split.weights, "notes": extra.split.notes}
            sets[key] = score(extra.name, logits, labels, of_set, n_bins, **about)
    return bundle, sets


def _scaled(part: Split) -> Tensor | None:
    """Return weights with mean 1, so that the rate of the training does not depend on their unit; None without any."""
    return None if part.weights is None else torch.from_numpy((part.weights / part.weights.mean()).astype(np.float32))


def _groups(ready: _Ready, split: Split) -> NDArray[np.int64] | None:
    """Return the group of each sample of a split, None unless groups were asked for: duplicates are none."""
    known = ready.task.groups if ready.experiment.data.get("group") is not None else None
    return None if known is None else np.asarray(known)[split.positions].astype(np.int64)


def _head_names(task: Task) -> tuple[str, ...]:
    return task.classes if task.target_type == "multilabel" else (ONLY_HEAD,)


def _uncalibrated(task: Task) -> HeadCalibrators:
    n_classes = 2 if task.target_type == "multilabel" else len(task.classes)
    return HeadCalibrators.of_temperatures(dict.fromkeys(_head_names(task), 1.0), n_classes)


def _fitted(
    ready: _Ready,
    chosen: dict[str, Json],
    note: Say,
    logits: Tensor,
    labels: Tensor,
    where: str,
    groups: NDArray[np.int64] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> HeadCalibrators:
    """Return the calibrator of each head, fitted on held-out samples; `chosen` gets what was tried, and why."""
    fitted: dict[str, Calibrator] = {}
    for k, name in enumerate(_head_names(ready.task)):
        alone = (logits, labels) if labels.ndim == 1 else (two_logits(logits[:, k]), labels[:, k])
        of = where if labels.ndim == 1 else f"of {name!r} {where}"
        if ready.experiment.calibrate == "temperature":
            temperature = _temperature(ready.experiment, note, *alone, of, groups, weights)
            fitted[name] = TemperatureScaling.of(temperature, alone[0].shape[1])
            continue
        method = ready.experiment.calibrate
        made = calibrate(alone[1], logits=alone[0], method=method, sample_weight=weights, groups=groups)
        chosen[name], fitted[name] = made.to_dict(), made.calibrator
        for sentence in made.sentences:
            note(f"calibrator {of}: {sentence}")
    return HeadCalibrators(fitted)


def _bundle(ready: _Ready, trained: FitResult, calibrators: HeadCalibrators) -> Bundle:
    return Bundle(
        module=trained.model,
        spec=ready.spec,
        preprocessing=ready.task.preprocessing,
        classes=ready.task.classes,
        calibrators=calibrators,
        target_type=ready.task.target_type,
        precision=ready.config.mixed_precision,
        channels_last=ready.config.channels_last,
        full_float32=ready.config.full_float32,
        batch_size=ready.config.evaluation_batch_size,
        method=trained.info["method"],
        fingerprint=ready.task.fingerprint,
        versions=trained.info["versions"],
    )


def _predicted(bundle: Bundle, split: Split, name: str) -> Tensor:
    """Return the logits of a set, with a progress bar."""
    with stage(f"predicting: {name}", len(split)) as advance:
        return torch.cat(list(bundle.iter_logits(split, progress=advance)))


def _temperature(
    experiment: Experiment,
    note: Say,
    logits: Tensor,
    labels: Tensor,
    where: str,
    groups: NDArray[np.int64] | None,
    weights: NDArray[np.float64] | None,
) -> float:
    """Return the temperature fitted on held-out samples, or 1 if it does not help; warnings become notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")  # by default Python repeats no warning, and later heads would lose theirs
        calibrator = TemperatureScaling(search=experiment.temperature).fit(logits, labels, sample_weight=weights)
    temperature: float = calibrator.temperature_
    # The grid is a published procedure, which is applied as it was published.
    if experiment.temperature == "newton" and temperature != 1 and len(labels) < _CHECKED:
        enough = (len(labels) if weights is None else np.count_nonzero(weights)) > 1
        tried = cross_validate(calibrator, logits, labels, sample_weight=weights, groups=groups) if enough else None
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
    """Return the errors of Zhang et al. (2018), Table 2, at the selected and at the last weights."""
    real = torch.tensor(task.train.labels)
    plain = task.train.relabelled(real.tolist(), augment="none")
    noise: Json = {"corrupted": int(mask.sum()), "changed": int((labels != real).sum())}
    selected = {name: t.clone() for name, t in bundle.module.state_dict().items()}  # loading overwrites in place
    for which, weights in (("best", selected), ("last", load_weights(out, last=True))):
        bundle.module.load_state_dict(weights)
        errors = noise_errors(real, labels, mask, predictions=bundle.logits(plain).argmax(dim=1))
        known = {name: error.value for name, error in vars(errors).items() if not math.isnan(error.value)}
        noise[which] = {f"train_{name}": error for name, error in known.items()}
        if len(task.test):
            wrong = bundle.logits(task.test).argmax(dim=1) != torch.tensor(task.test.labels)
            noise[which]["test"] = float(wrong.double().mean())
    bundle.module.load_state_dict(selected)
    return noise
