"""`Run`, the folder of a run: its options, result and model. Everything reads and writes a run through it.

`vicinal.runs.layout` lists the files. `vicinal.training` writes those of the training, and `vicinal.runs.execute` makes
a run of an experiment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal import _random, data, models
from vicinal._atomic import (
    DamagedFileError,
    Json,
    check_listed,
    checksum,
    read_json,
    read_sealed,
    replacing,
    sealed,
    write_arrays,
    write_json,
)
from vicinal._checks import Argument, Sentence
from vicinal._remote import local_path
from vicinal.data import Preprocessing, Split, Task
from vicinal.data.options import MOST_PIXELS
from vicinal.data.readers import Readers
from vicinal.experiment import Experiment
from vicinal.metrics import Estimate, Evaluation, Slice, compare, evaluate_slices
from vicinal.models.pretrained import pretrained_statistics
from vicinal.models.specification import features_of, front_end_of
from vicinal.probes.label_noise import corrupt_labels
from vicinal.runs.bundle import Bundle, read_record
from vicinal.runs.calibration import HeadCalibrators
from vicinal.runs.error_slices import slice_masks
from vicinal.runs.layout import RunFiles
from vicinal.runs.scores import Scores, score
from vicinal.training import read_predictions
from vicinal.training.config import device_name
from vicinal.training.environment import chosen_device
from vicinal.training.folder import checksums_of, read_history, weights_damage, write_logits

T = TypeVar("T")

#: More training samples are not hashed: it takes two seconds for a million.
_MOST_DIGESTS = 1_000_000


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run produced.

    Examples
    --------
    >>> result = Run("runs/digits").result()  # doctest: +SKIP
    >>> result.sets["test"].after.ece, result.history[-1]["val_nll"]  # doctest: +SKIP
    """

    experiment: Experiment
    """The options of the run."""
    out: Path
    """The run folder."""
    facts: Json
    """Facts about the data and the network, and notes: the rest of experiment.json."""
    fit: Json
    """result.json of the training."""
    history: list[Json]
    """Every line of metrics.jsonl."""
    sets: dict[str, Scores]
    """`"val"`, `"test"`, and `"eval-1"`, …"""
    calibrators: HeadCalibrators
    """Fitted on the validation set; a temperature of 1 where there is none."""
    label_noise: Json | None = None
    """With corrupted labels: errors on real and on corrupted labels, of the best and of the last weights."""

    @property
    def run(self) -> Run:
        """The folder."""
        return Run(self.out)

    @property
    def test(self) -> Scores:
        """The test set; an error where none was held out."""
        if "test" not in self.sets:
            raise ValueError(f"{str(self.out)!r} has no test set: train with test above 0")
        return self.sets["test"]

    @property
    def heads(self) -> dict[str, Evaluation]:
        """The evaluation of each head on the test set, after its calibrator; multi-class has one head."""
        return self.test.heads

    @property
    def is_multilabel(self) -> bool:
        """Whether each head is a label."""
        return self.calibrators.is_multilabel

    @property
    def temperature(self) -> float:
        """The mean temperature of all heads, of which multi-class has one; NaN with other calibrators."""
        return self.calibrators.temperature

    def head(self, name: str) -> RunResult:
        """Return the result of one label, as if it were one of two classes, no and yes."""
        sets = {key: each.head(name) for key, each in self.sets.items()}
        return dataclasses.replace(self, sets=sets, calibrators=self.calibrators.head(name))

    def of_classes(self) -> RunResult:
        """Return this result; one with several targets is an error that says what to do."""
        if self.is_multilabel:
            raise ValueError(
                f"{str(self.out)!r} has several targets, and this needs classes: train with one of them, or use "
                "`vicinal evaluate`, `vicinal predict` and `vicinal compare`, which take several"
            )
        return self

    def oracle(self) -> dict[str, dict[str, float]]:
        """Return the lowest error of each watched set over all evaluations of training, and its step and epoch.

        These errors are selected by the very labels that they are measured on, so they are too low. They compare only
        with other errors of this kind (Zhang et al. 2018, Table 2).
        """
        lowest = {}
        for name in self.experiment.watch:
            lines = [line for line in self.history if f"{name}_accuracy" in line]
            if lines:
                best = max(lines, key=lambda line: float(line[f"{name}_accuracy"]))
                lowest[name] = {"error": 1 - best[f"{name}_accuracy"], "step": best["step"], "epoch": best["epoch"]}
        return lowest

    def objective_summary(self) -> str:
        """Return what the objective reports, such as the AUM threshold of `GuidedMixup`; "" if nothing."""
        reported: Mapping[str, float] = self.fit.get("objective") or {}
        return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in reported.items())

    def to_dict(self) -> dict[str, object]:
        """Return the metrics as JSON can hold them."""
        oracle = {} if self.is_multilabel else self.oracle()
        return {
            "method": self.fit["method"],
            **self.calibrators.to_dict(),
            **({"calibration": self.facts["calibration"]} if "calibration" in self.facts else {}),
            **({"oracle": oracle} if oracle else {}),
            **({} if self.label_noise is None else {"label_noise": self.label_noise}),
            "seed": self.experiment.seed,
            "seconds": self.fit["seconds"],
            "sets": {key: each.to_dict() for key, each in self.sets.items()},
            **({"objective": self.fit["objective"]} if self.fit.get("objective") else {}),
        }


class Run:
    """The folder of a run.

    Parameters
    ----------
    path
        The folder that `vicinal train` or `vicinal.runs.run` writes.

    Examples
    --------
    >>> Run("no-such-folder").is_finished
    False
    >>> Run("runs/digits").result().temperature  # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path("run", path)
        self.files = RunFiles(self.path)

    # The result

    @property
    def is_finished(self) -> bool:
        """Whether it was trained and evaluated; evaluation.json is written last."""
        return self.files.evaluation.exists()

    @property
    def network(self) -> str | None:
        """The name of the network, None before training. The experiment names it only if the user did."""
        if not self.files.config.exists():
            return None
        recorded = self._read(self.files.config).get("about", {}).get("network", {})
        return None if "name" not in recorded else str(recorded["name"])

    def result(self, experiment: Experiment | None = None, *, n_bins: int = 15) -> RunResult:
        """Return the result of a finished run; one that is not finished is an error that says what to do.

        Parameters
        ----------
        experiment
            The experiment that the folder must hold; another one is an error.
        n_bins
            Of the calibration errors.
        """
        recorded, facts = self._recorded(experiment)
        return self._whole(lambda: self._result(recorded, facts, n_bins))

    @property
    def is_multilabel(self) -> bool:
        """Whether its target is several columns of 0 and 1."""
        return self.is_finished and HeadCalibrators.from_dict(self._whole(self._evaluation)).is_multilabel

    @property
    def warnings(self) -> list[str]:
        """The warnings on its data, such as columns that leak the target."""
        return list(self._recorded(None)[1]["data"].get("warnings", ()))

    def _recorded(self, experiment: Experiment | None) -> tuple[Experiment, Json]:
        """Return the experiment of a finished run, and the other facts of experiment.json."""
        if not self.is_finished:
            raise ValueError(
                f"{str(self.path)!r} is not finished: run its `vicinal train` command again to resume it"
                if self.files.config.exists()
                else f"{str(self.path)!r} is not a run of vicinal: it has no {self.files.evaluation.name}. Pass the "
                "folder that `vicinal train` wrote, one of the runs in that of `vicinal compare`, or a predictions file"
            )
        recorded, facts = self._whole(self._experiment)
        if experiment is not None and recorded.resume_key() != experiment.resume_key():
            raise ValueError(
                Sentence(
                    f"{self.path} holds another run, of {recorded.command()}: pass another ",
                    Argument("out"),
                    ", or remove this folder to start over",
                )
            )
        return recorded, facts

    def _whole(self, read: Callable[[], T]) -> T:
        """Return what `read` returns; a damaged file is an error that says what to do."""
        command = "the same training command"
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, OSError):
            command = f"`{self._experiment()[0].command(self.path)}`"
        advice = f"run {command} to make it again"
        try:
            return read()
        except DamagedFileError as error:
            raise DamagedFileError(f"{error}; {advice}") from error
        except FileNotFoundError as error:
            raise DamagedFileError(f"{error.filename} is gone; {advice}") from error
        except (KeyError, TypeError, AttributeError) as error:
            files = f"{self.files.evaluation}, {self.files.result.name} or {self.files.experiment.name}"
            raise DamagedFileError(f"{files} is damaged ({error!r}); {advice}") from error

    def _experiment(self) -> tuple[Experiment, Json]:
        """Return the experiment of experiment.json, and the other facts."""
        facts = read_sealed(self.files.experiment)
        return Experiment.from_dict(facts.pop("asked")), facts

    def _result(self, recorded: Experiment, facts: Json, n_bins: int) -> RunResult:
        self._check_files()
        fit = read_sealed(self.files.result)
        history = list(read_history(self.files))
        # Later steps take these for granted; missing here, the file is damaged, and `_whole` says so.
        if missing := [name for name in ("method", "seconds", "about") if name not in fit]:
            raise KeyError(*missing)
        evaluation, checksums = self._evaluation(), self._checksums()
        fitted = HeadCalibrators.from_dict(evaluation, len(facts["data"]["classes"]))
        groups = read_json(check_listed(self.files.groups, checksums)) if recorded.data.get("group") is not None else {}
        counted = recorded.data.get("weight") is not None
        weights = read_json(check_listed(self.files.weights_of_samples, checksums)) if counted else {}
        sets = {
            key: score(
                entry["name"],
                *self.predictions(key),
                HeadCalibrators.from_dict(entry, len(facts["data"]["classes"]), fitted),
                n_bins,
                groups=groups.get(key),
                weights=weights.get(key),
                notes=entry.get("notes", ()),
            )
            for key, entry in evaluation["sets"].items()
        }
        return RunResult(recorded, self.path, facts, fit, history, sets, fitted, evaluation.get("label_noise"))

    def damage(self) -> str | None:
        """Return what is wrong with the weights of a finished run: they are missing or damaged; None if intact.

        A damaged record of the model or of the splits is an error.
        """
        for path in (self.files.model, self.files.splits):
            if not path.exists():
                raise DamagedFileError(f"{path} is gone")
        self._check_files()
        return weights_damage(self.files, read_sealed(self.files.result))

    def _check_files(self) -> None:
        """Raise if a record or a prediction is gone or damaged; weights, which are large, are checked where used."""
        checksums = self._checksums()
        for name in checksums:
            check_listed(self.path / name, checksums)
        if self.files.model.exists():
            read_record(self.files)

    def _evaluation(self) -> Json:
        return read_sealed(self.files.evaluation)

    def _checksums(self) -> dict[str, str]:
        """Return the checksums of the files of a finished run by name."""
        listed = self._evaluation().get("files", {}) if self.is_finished else {}
        return {**checksums_of(self.files), **(listed if isinstance(listed, dict) else {})}

    def _read(self, path: Path) -> Json:
        """Return a record of this run; one that differs from its checksum is an error that says what to do."""
        return self._whole(lambda: read_json(check_listed(path, self._checksums())))

    def predictions(self, key: str = "val") -> tuple[Tensor, Tensor]:
        """Return the logits, before calibration, and the labels of a set: `"val"`, `"test"` or `"eval-1"`."""
        path = self.files.predictions(key)
        return self._whole(lambda: read_predictions(check_listed(path, self._checksums())))

    def mistakes(self) -> list[Json]:
        """Return the most confident mistakes on the test set; none where there is no test set."""
        return self._of_mistakes("mistakes")

    def error_slices(self) -> list[Json]:
        """Return the error slices of the test set; none where they are not known."""
        return self._of_mistakes("shared")

    def _of_mistakes(self, name: str) -> list[Json]:
        """Return a list of mistakes.json; an empty one for labels, and for a run without a test set."""
        path, listed = self.files.mistakes, self._checksums()
        entries: list[Json] = self._read(path).get(name, []) if path.exists() or path.name in listed else []
        return entries

    def slices(self, columns: Sequence[str] = (), *, n_bins: int = 15) -> list[Slice]:
        """Return the metrics of slices of the test set, the worst first.

        They are those that training wrote, or, where `columns` are named, those of these columns alone, which are
        measured again and corrected for their own number.
        """
        if columns:
            return evaluate_slices(self.result(n_bins=n_bins).test.after, slice_masks(self.task().test, columns))
        return [Slice.from_dict(one) for one in self._of_mistakes("slices")]

    def baselines(self) -> dict[str, dict[str, Estimate | None]]:
        """Return the metrics of baselines on the test set by name, those that were measured.

        Among them is `"nll_difference"`: the NLL of this run less theirs, paired on the same samples.
        """
        return {
            name: {metric: None if e is None else Estimate.from_dict(e) for metric, e in of.items()}
            for name, of in self._baselines().items()
        }

    def _baselines(self) -> Json:
        """Return the record of baselines; a damaged file counts as none, with a warning."""
        path = self.files.baselines
        try:
            saved = read_sealed(path)["models"] if path.exists() else {}
            return {str(name): dict(metrics) for name, metrics in saved.items()}
        except (DamagedFileError, KeyError, TypeError, ValueError, AttributeError):
            warnings.warn(f"{path} is damaged and ignored", stacklevel=4)
            return {}

    # The model and the data

    def on_new_data(
        self, source: str, *, n_bins: int = 15, device: str | torch.device | None = None, **options: object
    ) -> Scores:
        """Return the predictions of the trained model on new labelled data, and their metrics.

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
        asked = self._recorded(None)[0].data
        named = {name: asked.get(name) for name in ("group", "weight")}
        split = bundle.read(source, labelled=True, **named, **options)
        logits, labels = bundle.logits(split), torch.tensor(split.labels)
        notes = (*split.notes, *self._trained_on(source, split))
        about: Json = {"groups": split.groups, "weights": split.weights, "notes": notes}
        return score(source, logits, labels, bundle.calibrators, n_bins, **about)

    def _trained_on(self, source: str, split: Split) -> list[str]:
        """Return a note if the model was trained on some of these samples: by their places, or by their content."""
        recorded, known = self._recorded(None)[0].source, read_record(self.files)["fingerprint"]
        same = str(source) == recorded or Path(source).expanduser().absolute() == Path(recorded).expanduser().absolute()
        if same or split.fingerprint == known:
            trained = np.isin(split.positions, self._read(self.files.splits)["train"])
        elif self.files.digests.exists() and (digests := split.digests()) is not None:
            path = self.files.digests
            trained = np.isin(digests, self._whole(lambda: np.load(check_listed(path, self._checksums()))))
        else:
            return []
        if not (seen := int(trained.sum())):
            return []
        return [
            f"{seen:,} of these {len(split):,} samples were trained on, so the metrics are too good to be true of "
            "new ones: without DATA the run is measured on its held-out test set"
        ]

    @property
    def device(self) -> torch.device:
        """Where the run is measured: the device that trained it, or the one that VICINAL_DEVICE names."""
        if asked := os.environ.get("VICINAL_DEVICE"):
            return chosen_device(device_name("device", asked))
        record = read_json(self.files.result) if self.files.result.exists() else {}
        # A run of a GPU elsewhere, or a model saved without a record of its training, is measured on what is here.
        return torch.device("cpu") if record.get("device") == "cpu" else chosen_device(None)

    def bundle(self, *, device: str | torch.device | None = None) -> Bundle:
        """Return the trained model, by default on the device that trained it."""
        asked = self._whole(self._experiment)[0].data if self.files.experiment.exists() else {}
        most = int(str(asked.get("max_pixels", MOST_PIXELS)))
        return Bundle.load(self.path, device=device or self.device, max_pixels=most)

    def task(self) -> Task:
        """Return the data with the splits of the run; missing or changed data are an error."""
        experiment, record = self._recorded(None)[0], read_record(self.files)
        fingerprint, fitted = record["fingerprint"], Preprocessing.from_dict(record["preprocessing"])
        try:
            # The fitted encoding is taken from the run: another version of the library may fit columns differently.
            named = dataclasses.replace(experiment, model=self.network)
            task = load_task(named, splits=self._read(self.files.splits), fitted=fitted)
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

    # Writing, the evaluation last

    def write_predictions(self, key: str, logits: Tensor, labels: Tensor) -> None:
        """Keep the predictions of a set."""
        write_logits(self.files.predictions(key), {"logits": logits, "labels": labels})

    def write_splits(self, splits: Mapping[str, NDArray[np.int64]]) -> None:
        """Keep which samples are in which split."""
        write_arrays(self.files.splits, splits)

    def write_digests(self, train: Split) -> None:
        """Keep a hash of each training row or text, up to a million of them."""
        if len(train) <= _MOST_DIGESTS and (digests := train.digests()) is not None:
            with replacing(self.files.digests) as temporary, temporary.open("wb") as file:
                np.save(file, digests)

    def write_groups(self, groups: Mapping[str, NDArray[np.int64]]) -> None:
        """Keep the group of each held-out sample."""
        write_arrays(self.files.groups, groups)

    def write_weights(self, weights: Mapping[str, NDArray[np.float64]]) -> None:
        """Keep the weight of each held-out sample."""
        write_json(self.files.weights_of_samples, {name: of.tolist() for name, of in weights.items()})

    def write_experiment(self, experiment: Experiment, facts: Mapping[str, object]) -> None:
        """Write the options and the facts about the data."""
        write_json(self.files.experiment, sealed({"asked": experiment.to_dict(), **facts}))

    def write_mistakes(
        self,
        kind: str,
        mistakes: list[dict[str, object]],
        shared: Sequence[Mapping[str, object]] = (),
        slices: Sequence[Mapping[str, object]] = (),
    ) -> None:
        """Write the most confident mistakes, the error slices and the metrics of all slices."""
        record = {"kind": kind, "mistakes": mistakes, "shared": list(shared), "slices": list(slices)}
        write_json(self.files.mistakes, record)

    def write_baselines(self, models: Mapping[str, Evaluation], beside: Evaluation) -> None:
        """Keep the metrics of baselines, and the paired difference of this run's NLL to theirs."""
        metrics = {}
        for name, evaluation in models.items():
            less = compare(evaluation, beside)["nll"]
            of = {**evaluation.metrics, "nll_difference": Estimate(less.value, less.low, less.high)}
            metrics[name] = {metric: None if e is None else e.to_dict() for metric, e in of.items()}
        write_json(self.files.baselines, sealed({"models": {**self._baselines(), **metrics}}))

    def write_evaluation(self, result: RunResult) -> None:
        """Keep the metrics and the checksums of all files; the run is finished from here on."""
        files, known = self.files, checksums_of(self.files)
        mine = (files.splits, files.digests, files.groups, files.weights_of_samples, files.mistakes, files.result)
        predicted = self.path.glob("predictions-*.parquet")
        listed = {p.name: checksum(p) for p in (*mine, *sorted(predicted)) if p.exists() and p.name not in known}
        write_json(files.evaluation, sealed({**result.to_dict(), "files": listed}))


def load_task(
    experiment: Experiment,
    *,
    source: object = None,
    splits: Mapping[str, list[int]] | None = None,
    fitted: Preprocessing | None = None,
    readers: Readers | None = None,
) -> Task:
    """Return the data of an experiment, encoded for its network; splits and encoding are fitted unless given.

    `source` holds the data where they are in memory. `readers` read them together.
    """
    options = dict(experiment.data)
    options.setdefault("features", features_of(experiment.model))
    options.setdefault("front_end", front_end_of(experiment.model))
    options.setdefault("tokenizer", models.tokenizer_of(experiment.model))
    if experiment.pretrained is not None:
        options.setdefault("image_size", 224)
        options["normalisation"] = pretrained_statistics(experiment.model or "resnet18")
    if experiment.new_subset_per_seed:
        options["subset_seed"] = experiment.seed
    if splits is not None:
        drawn = ("train_size", "max_held_out")
        options = {name: value for name, value in options.items() if name not in drawn}
    where = experiment.source if source is None else source
    return data.load_from_config(where, options, splits=splits, fitted=fitted, readers=readers)


def corrupted(task: Task, experiment: Experiment) -> tuple[Split, tuple[Tensor, Tensor] | None]:
    """Return the training set, with label noise if asked for: then also the noisy labels and which were replaced."""
    if experiment.corrupt == 0:
        return task.train, None
    columns = getattr(task.preprocessing, "columns", ())
    if coded := [column.name for column in columns if getattr(column, "statistics", None) is not None]:
        knows = f" would not replace what the statistics of {coded[0]!r} know of the labels: leave it out, "
        raise ValueError(Sentence(Argument("corrupt", experiment.corrupt), knows, Argument("drop", coded[0])))
    generator = torch.Generator().manual_seed(_random.seed_from("corrupt", experiment.data.get("seed", 0)))
    real = torch.tensor(task.train.labels)
    labels, mask = corrupt_labels(real, experiment.corrupt, len(task.classes), generator=generator)
    return task.train.relabelled(labels.tolist()), (labels, mask)
