"""`Run`, the folder of a run: what was asked for, what came of it, and its model. Everything reads a run through it.

`vicinal._files.RunFiles` lists the files, `vicinal.training` writes those of the training and has the loop that
predicts, and `vicinal.runs.running` makes a run of an experiment.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal import _random, data, models
from vicinal._checks import Argument, Sentence
from vicinal._files import DamagedFileError, Json, RunFiles, read_json, write_arrays, write_json
from vicinal.data import Preprocessing, Split, Task
from vicinal.metrics import Estimate, Evaluation, compare
from vicinal.probes.label_noise import corrupt_labels
from vicinal.runs.bundle import Bundle, read_record
from vicinal.runs.experiment import Experiment
from vicinal.runs.scored import LabelsScored, Scored, scored, scored_labels
from vicinal.training import read_predictions
from vicinal.training.folder import read_history, weights_damage, write_logits

__all__ = ["Finished", "LabelsOutcome", "Outcome", "Run", "corrupted", "load_task"]

T = TypeVar("T")
S = TypeVar("S", Scored, LabelsScored)


@dataclass(frozen=True, eq=False)
class Finished(Generic[S]):
    """What an experiment led to, whatever its targets are."""

    experiment: Experiment
    """What was run."""
    out: Path
    """The run folder."""
    facts: Json
    """What the data turned out to be, the network, and everything worth saying: the rest of experiment.json."""
    fit: Json
    """result.json of the training."""
    history: list[Json]
    """Every line of metrics.jsonl."""
    sets: dict[str, S]
    """`"val"`, `"test"`, and `"also-1"`, …"""

    @property
    def run(self) -> Run:
        """The folder."""
        return Run(self.out)

    @property
    def test(self) -> S:
        """The test set; an error where none was held out."""
        if "test" not in self.sets:
            raise ValueError(f"{str(self.out)!r} has no test set: train with test above 0")
        return self.sets["test"]

    def objective_summary(self) -> str:
        """Return what the objective has to report, such as the AUM threshold of `GuidedMixup`; "" if nothing."""
        reported: Mapping[str, float] = self.fit.get("objective") or {}
        return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in reported.items())

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON can hold them."""
        return {
            "method": self.fit["method"],
            **self._of_kind(),
            "seed": self.experiment.seed,
            "seconds": self.fit["seconds"],
            "sets": {key: s.to_dict() for key, s in self.sets.items()},
            **({"objective": self.fit["objective"]} if self.fit.get("objective") else {}),
        }

    @abstractmethod
    def _of_kind(self) -> dict[str, object]: ...


@dataclass(frozen=True, eq=False)
class Outcome(Finished[Scored]):
    """What an experiment led to."""

    temperature: float
    """What logits are divided by, fitted on the validation set; 1 where there is none."""
    label_noise: Json | None
    """With corrupted labels: errors on real and on corrupted labels, of the best and of the last weights."""

    def oracle(self) -> dict[str, dict[str, float]]:
        """Return the lowest error of each watched set over all evaluations of training, and its step and epoch.

        Choosing by the very labels that are scored takes an oracle: these errors are lower than any that a choice by
        validation leads to, and only compare with others of their kind (Zhang et al. 2018, Table 2).
        """
        lowest = {}
        for name in self.experiment.watch:
            lines = [line for line in self.history if f"{name}_accuracy" in line]
            if lines:
                best = max(lines, key=lambda line: float(line[f"{name}_accuracy"]))
                lowest[name] = {"error": 1 - best[f"{name}_accuracy"], "step": best["step"], "epoch": best["epoch"]}
        return lowest

    def _of_kind(self) -> dict[str, object]:
        return {
            "temperature": self.temperature,
            **({"oracle": oracle} if (oracle := self.oracle()) else {}),
            **({} if self.label_noise is None else {"label_noise": self.label_noise}),
        }


@dataclass(frozen=True, eq=False)
class LabelsOutcome(Finished[LabelsScored]):
    """What an experiment with several columns of 0 and 1 as its target led to."""

    temperatures: dict[str, float]
    """By label, in the order of the outputs."""

    label_noise: ClassVar[None] = None
    """None: labels are drawn anew of classes only."""

    def _of_kind(self) -> dict[str, object]:
        return {"temperatures": self.temperatures}

    def of_label(self, label: str) -> Outcome:
        """Return what came of one label, as if it were one of two classes, no and yes."""
        shared = (self.experiment, self.out, self.facts, self.fit, self.history)
        sets = {key: each.of_label(label) for key, each in self.sets.items()}
        return Outcome(*shared, sets, self.temperatures[label], None)


class Run:
    """The folder of a run.

    Parameters
    ----------
    path
        What `vicinal train` or `vicinal.runs.run` wrote, or will write.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.files = RunFiles(self.path)

    # What was done

    @property
    def is_finished(self) -> bool:
        """Whether it was trained and evaluated; evaluation.json is what is written last."""
        return self.files.evaluation.exists()

    @property
    def network(self) -> str | None:
        """The network that is trained here, None before it is. The experiment names it only where it was asked for."""
        if not self.files.config.exists():
            return None
        recorded = read_json(self.files.config).get("about", {}).get("network", {})
        return None if "name" not in recorded else str(recorded["name"])

    def outcome(self, experiment: Experiment | None = None, *, n_bins: int = 15) -> Outcome:
        """Return what a finished run led to; one that is not finished is an error that says what to do.

        Parameters
        ----------
        experiment
            What it should be a run of; another one is an error.
        n_bins
            Of the calibration errors.
        """
        recorded, facts = self._recorded(experiment)
        if self.is_multilabel:
            raise ValueError(
                f"{str(self.path)!r} has several targets, and this needs classes: train with one of them, or use "
                "`vicinal evaluate`, `vicinal predict` and `vicinal compare`, which take several"
            )
        return self._whole(lambda: self._outcome(recorded, facts, n_bins))

    def labels_outcome(self, experiment: Experiment | None = None, *, n_bins: int = 15) -> LabelsOutcome:
        """Return what a finished run of several labels led to; the arguments are those of `outcome`."""
        recorded, facts = self._recorded(experiment)
        return self._whole(lambda: self._labels_outcome(recorded, facts, n_bins))

    @property
    def is_multilabel(self) -> bool:
        """Whether its target is several columns of 0 and 1."""
        return self.is_finished and "temperatures" in read_json(self.files.evaluation)

    def _recorded(self, experiment: Experiment | None) -> tuple[Experiment, dict[str, object]]:
        """Return the experiment of a finished run, and the rest of what is recorded with it."""
        if not self.is_finished:
            raise ValueError(
                f"{str(self.path)!r} is not finished: give its `vicinal train` command again, and it goes on"
                if self.files.config.exists()
                else f"{str(self.path)!r} is not a run of vicinal: it has no {self.files.evaluation.name}. Pass the "
                "folder that `vicinal train` wrote, one of the runs in that of `vicinal compare`, or a predictions file"
            )
        recorded, facts = self._whole(self._experiment)
        if experiment is not None and recorded.that_matters() != experiment.that_matters():
            raise ValueError(
                Sentence(
                    f"{self.path} holds another run, of {recorded.command()}: pass another ",
                    Argument("out"),
                    ", or remove this folder to start anew",
                )
            )
        return recorded, facts

    def _whole(self, read: Callable[[], T]) -> T:
        """Return what is read of the folder, with an error that says what to do where it is damaged."""
        anew = "the same training command evaluates anew"
        try:
            return read()
        except DamagedFileError as error:
            raise DamagedFileError(f"{error}; {anew}") from error
        except FileNotFoundError as error:
            raise DamagedFileError(f"{error.filename} is gone; {anew}") from error
        except (KeyError, TypeError, AttributeError) as error:
            files = f"{self.files.evaluation}, {self.files.result.name} or {self.files.experiment.name}"
            raise DamagedFileError(f"{files} is not as it was written ({error!r}); {anew}") from error

    def _experiment(self) -> tuple[Experiment, Json]:
        """Return the experiment as it is recorded, and the rest of the record."""
        facts = read_json(self.files.experiment)
        return Experiment.from_dict(facts.pop("asked")), facts

    def _outcome(self, recorded: Experiment, facts: dict[str, object], n_bins: int) -> Outcome:
        fit, history = read_json(self.files.result), read_history(self.files)
        if missing := [name for name in ("method", "seconds", "about") if name not in fit]:
            raise KeyError(*missing)
        evaluation = read_json(self.files.evaluation)
        sets = self._sets(evaluation, "temperature", scored, n_bins)
        shared = (recorded, self.path, facts, fit, history, sets)
        return Outcome(*shared, evaluation["temperature"], evaluation.get("label_noise"))

    def _labels_outcome(self, recorded: Experiment, facts: dict[str, object], n_bins: int) -> LabelsOutcome:
        fit, history = read_json(self.files.result), read_history(self.files)
        evaluation = read_json(self.files.evaluation)
        sets = self._sets(evaluation, "temperatures", scored_labels, n_bins)
        temperatures = {str(name): float(value) for name, value in evaluation["temperatures"].items()}
        return LabelsOutcome(recorded, self.path, facts, fit, history, sets, temperatures)

    def _sets(self, evaluation: Mapping[str, Any], fitted: str, score: Callable[..., S], n_bins: int) -> dict[str, S]:
        """Return the predictions of each set with their figures, at what was fitted for it or for the whole run."""
        return {
            key: score(
                entry["name"],
                *self.predictions(key),
                entry.get(fitted, evaluation[fitted]),
                n_bins,
                notes=entry.get("notes", ()),
            )
            for key, entry in evaluation["sets"].items()
        }

    def damage(self) -> str | None:
        """Return what is wrong with the weights of a finished run: they are gone, or not those that were written.

        That the record of the model, or of the splits, is not as it was written is an error.
        """
        for path in (self.files.model, self.files.splits):
            if not path.exists():
                raise DamagedFileError(f"{path} is gone")
        read_record(self.files)
        return weights_damage(self.files, read_json(self.files.result))

    def predictions(self, key: str = "val") -> tuple[Tensor, Tensor]:
        """Return the logits, before the temperature, and the labels of a set: `"val"`, `"test"` or `"also-1"`."""
        return read_predictions(self.files.predictions(key))

    def mistakes(self) -> list[dict[str, object]]:
        """Return the most confident mistakes on the test set; none where there is no test set."""
        path = self.files.mistakes
        if not path.exists():
            return []
        mistakes = read_json(path).get("mistakes")
        if not isinstance(mistakes, list) or not all(map(_is_mistake, mistakes)):
            raise DamagedFileError(f"{path} is not as it was written: remove it, and the report goes without")
        return mistakes

    def shared(self) -> list[Json]:
        """Return what mistakes on the test set share; nothing where that is not known."""
        path = self.files.mistakes
        shared = read_json(path).get("shared", []) if path.exists() else []
        numbers = ("n", "wrong", "n_elsewhere", "wrong_elsewhere")
        if not isinstance(shared, list) or not all(
            isinstance(e, dict) and isinstance(e.get("property"), str) and all(type(e.get(x)) is int for x in numbers)
            for e in shared
        ):
            raise DamagedFileError(f"{path} is not as it was written: remove it, and the report goes without")
        return shared

    def baselines(self) -> dict[str, dict[str, Estimate | None]]:
        """Return the figures of simpler models on the test set by name, those that were measured.

        Among them is `"nll_difference"`: the NLL of this run less theirs, paired on the same samples.
        """
        return {
            name: {figure: None if e is None else Estimate.from_dict(e) for figure, e in of.items()}
            for name, of in self._simpler().items()
        }

    def _simpler(self) -> Json:
        """Return what is kept of simpler models; nothing of a file that is incomplete, which is said."""
        path = self.files.baselines
        try:
            saved = read_json(path)["models"] if path.exists() else {}
            return {str(name): dict(figures) for name, figures in saved.items()}
        except (DamagedFileError, KeyError, TypeError, ValueError, AttributeError):
            warnings.warn(f"{path} is not as it was written: it is passed over", stacklevel=4)
            return {}

    # What to go on with

    def on_new_data(
        self, source: str, *, n_bins: int = 15, device: str | torch.device = "cpu", **options: object
    ) -> Scored | LabelsScored:
        """Return the predictions and figures of the trained model on further labelled data.

        Parameters
        ----------
        source
            All that `vicinal.data.load` takes: a file with the columns of the training data, a folder, ….
        n_bins
            Of the calibration errors.
        device
            Where to compute.
        options
            Of `vicinal.data.read`: `max_bad`, `encoding`, `header`, `data_root`.
        """
        bundle = self.bundle(device=device)
        split = bundle.read(source, labelled=True, **options)
        logits, labels = bundle.logits(split), torch.tensor(split.labels)
        notes = (*split.notes, *self._trained_on(source, split.positions))
        if bundle.is_multilabel:
            temperatures = dict(zip(bundle.classes, bundle.temperatures, strict=True))
            return scored_labels(source, logits, labels, temperatures, n_bins, notes=notes)
        return scored(source, logits, labels, bundle.temperature, n_bins, notes=notes)

    def _trained_on(self, source: str, positions: NDArray[np.int64]) -> list[str]:
        """Say so where samples are of the run's own data, and it was trained on some of them."""
        recorded = self._recorded(None)[0].source
        if str(source) != recorded and Path(source).expanduser().absolute() != Path(recorded).expanduser().absolute():
            return []
        seen = int(np.isin(positions, read_json(self.files.splits)["train"]).sum())
        if not seen:
            return []
        return [
            f"{seen:,} of these {len(positions):,} samples were trained on, so the figures are too good to be true of "
            "new ones: without DATA the run is measured on its held-out test set"
        ]

    def bundle(self, *, device: str | torch.device = "cpu") -> Bundle:
        """Return the trained model."""
        asked = read_json(self.files.experiment).get("asked", {}) if self.files.experiment.exists() else {}
        most = asked.get("data", {}).get("max_pixels", data.MOST_PIXELS)
        return Bundle.load(self.path, device=device, max_pixels=most)

    def task(self) -> Task:
        """Return the data, split as they were; data that are gone or have changed are an error."""
        experiment, record = self._recorded(None)[0], read_json(self.files.model)
        fingerprint, fitted = record["fingerprint"], Preprocessing.from_dict(record["preprocessing"])
        try:
            # Columns are encoded as they were: another version may fit them otherwise.
            named = dataclasses.replace(experiment, model=self.network)
            task = load_task(named, splits=read_json(self.files.splits), fitted=fitted)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{error}. {str(self.path)!r} was trained on it: work in the folder in which the run was started"
            ) from error
        if task.fingerprint != fingerprint:
            raise ValueError(
                f"{experiment.source!r} has changed since {str(self.path)!r} was trained on it: restore it, or train "
                "again"
            )
        return dataclasses.replace(task, train=corrupted(task, experiment)[0])

    # What `vicinal.runs.running` writes, the evaluation last

    def write_predictions(self, key: str, logits: Tensor, labels: Tensor) -> None:
        """Keep the predictions of a set."""
        write_logits(self.files.predictions(key), {"logits": logits, "labels": labels})

    def write_splits(self, splits: Mapping[str, NDArray[np.int64]]) -> None:
        """Keep which samples are in which split."""
        write_arrays(self.files.splits, splits)

    def write_experiment(self, experiment: Experiment, facts: Mapping[str, object]) -> None:
        """Keep what was asked for and what the data turned out to be."""
        write_json(self.files.experiment, {"asked": experiment.to_dict(), **facts})

    def write_mistakes(
        self, kind: str, mistakes: list[dict[str, object]], shared: Sequence[Mapping[str, object]] = ()
    ) -> None:
        """Keep the most confident mistakes, and what mistakes share."""
        write_json(self.files.mistakes, {"kind": kind, "mistakes": mistakes, "shared": list(shared)})

    def write_baselines(self, models: Mapping[str, Evaluation], beside: Evaluation) -> None:
        """Keep the figures of simpler models, and how far the NLL of this one lies above theirs, sample by sample."""
        figures = {}
        for name, evaluation in models.items():
            less = compare(evaluation, beside)["nll"]
            of = {**evaluation.figures, "nll_difference": Estimate(less.value, less.low, less.high)}
            figures[name] = {figure: None if e is None else e.to_dict() for figure, e in of.items()}
        write_json(self.files.baselines, {"models": {**self._simpler(), **figures}})

    def write_evaluation(self, outcome: Outcome | LabelsOutcome) -> None:
        """Keep the figures; the run is finished from here on."""
        write_json(self.files.evaluation, outcome.to_dict())


def _is_mistake(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("label"), str):
        return False
    numbers = [entry.get(name, 0.0) for name in ("confidence", "label_probability")]
    return isinstance(entry.get("row", {}), dict) and all(isinstance(number, float | int) for number in numbers)


def load_task(
    experiment: Experiment, *, splits: Mapping[str, list[int]] | None = None, fitted: Preprocessing | None = None
) -> Task:
    """Return the data of an experiment, split and encoded anew or as saved, for its network or the usual one."""
    options = dict(experiment.data)
    options.setdefault("features", models.features_of(experiment.model))
    options.setdefault("front_end", models.front_end_of(experiment.model))
    options.setdefault("tokenizer", models.tokenizer_of(experiment.model))
    if experiment.pretrained is not None:
        options.setdefault("image_size", 224)
        options["normalisation"] = models.pretrained_statistics(experiment.model or "resnet18")
    if experiment.new_subset_per_seed:
        options["subset_seed"] = experiment.seed
    if splits is not None:
        drawn = ("train_size", "max_held_out")
        options = {name: value for name, value in options.items() if name not in drawn} | {"splits": splits}
    return data.load(experiment.source, **options, fitted=fitted)


def corrupted(task: Task, experiment: Experiment) -> tuple[Split, tuple[Tensor, Tensor] | None]:
    """Return the training set, its labels drawn anew where asked for, with these labels and where they are."""
    if experiment.corrupt == 0:
        return task.train, None
    generator = torch.Generator().manual_seed(_random.seed_from("corrupt", experiment.data.get("seed", 0)))
    real = torch.tensor(task.train.labels)
    labels, mask = corrupt_labels(real, experiment.corrupt, len(task.classes), generator=generator)
    return task.train.relabelled(labels.tolist()), (labels, mask)
