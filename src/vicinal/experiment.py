"""An experiment as a record: the options that were given, and nothing that follows from them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from vicinal._atomic import Json
from vicinal._checks import Argument, Sentence, choice, flag, freeze, integer, nearest_names, number
from vicinal._names import CALIBRATORS
from vicinal.training.config import MECHANICAL

#: Networks of an ensemble at most: more is a typing mistake.
_MOST_MEMBERS = 1_000


@dataclass(frozen=True, kw_only=True)
class EvalSet:
    """An extra evaluation set: labelled data to evaluate a run on, such as another domain.

    Parameters
    ----------
    source
        What `vicinal.data.read` takes. Data that are already split are evaluated on their test part.
    columns, class_names
        What its columns and classes are called in the training data: `{"q1": "premise"}`, `{"same": "entailment"}`.
    development
        Labelled data of the same domain to fit the set's own temperature on. Data that are already split give their
        validation part. Without it the set has the temperature of the run.

    Examples
    --------
    >>> EvalSet(source="qqp.csv", columns={"q1": "premise"}).to_plain()
    {'source': 'qqp.csv', 'columns': {'q1': 'premise'}}
    """

    source: str
    columns: Mapping[str, str] = field(default_factory=dict)
    class_names: Mapping[str, str] = field(default_factory=dict)
    development: str | None = None

    def __post_init__(self) -> None:
        freeze(self, source=str(self.source), columns=dict(self.columns), class_names=dict(self.class_names))

    @classmethod
    def of(cls, given: EvalSet | Mapping[str, object] | str) -> EvalSet:
        """Return an extra evaluation set from its record, or from its source alone."""
        if isinstance(given, EvalSet):
            return given
        return cls(**_known(cls, given)) if isinstance(given, Mapping) else cls(source=str(given))

    def to_plain(self) -> str | dict[str, object]:
        """Return the record as JSON can hold it: the source alone where there is nothing else."""
        record = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name)}
        return self.source if len(record) == 1 else record

    def words(self, number: int) -> list[str]:
        """Return the options of the command that ask for it, as the set of this number."""
        words = ["--eval-data", self.source]
        for option, names in (("--map", self.columns), ("--map-class", self.class_names)):
            words += [option, f"{number}:{json.dumps(dict(names), ensure_ascii=False)}"] if names else []
        return words + ([] if self.development is None else ["--eval-development", f"{number}:{self.development}"])


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Data, a network, a method and a seed; `run` executes it.

    Only what differs from the defaults is recorded: `training` and `data` hold the options that were given.

    Parameters
    ----------
    source
        What `vicinal.data.load` takes: a path or a name.
    method
        The objective, as an expression.
    data
        Options of `vicinal.data.load`.
    model
        The name of a network; by default the one for the kind of data.
    model_options
        Its own options, such as `{"dropout": 0.3}`.
    training
        Fields of `FitConfig` that differ from the defaults for this kind of data.
    eval_data
        Extra evaluation sets, such as another domain: each a source, or an `EvalSet`.
    watch
        What to measure at every evaluation of training, beside the validation set: `"test"`, `"train"` (without
        augmentation) or `"eval-1"`, …. See `vicinal.training.fit`.
    calibrate
        What calibrates the probabilities, fitted on the validation set: `"temperature"`, another name of
        `vicinal.calibrators.CALIBRATORS`, `"none"`, or `"auto"`, which chooses by cross-validation.
    temperature
        How the temperature is found: `"newton"`, or `"grid"`, the best of 0.01, 0.02, …, 5.00 (Park & Caragea 2022).
    new_subset_per_seed
        Draw the training samples that `data["train_size"]` leaves from the experiment's seed, not from that of the
        data: other seeds then train on other samples, and are evaluated on the same.
    corrupt
        Label noise: the share of training labels to replace by random ones, uniform over all classes.
    class_weight
        `"balanced"`: all classes count the same in training, however many samples they have.
    ensemble
        How many networks to train, each with a seed of its own; the mean of their probabilities is served, with one
        temperature.
    fast
        Train a linear head on the features of the pretrained network, which are computed once, instead of all weights.
    pretrained
        Initial weights of an image network: `"default"` for those of torchvision or timm, or a file.
    seed
        Random seed for weights, batch order and mixing. The split has its own: `data["seed"]`, 0 by default.

    Examples
    --------
    >>> Experiment(source="digits", training={"epochs": 3}, seed=1).command()
    "vicinal train digits --method 'Mixup(alpha=0.2)' --epochs 3 --seed 1"
    """

    source: str
    method: str = "Mixup(alpha=0.2)"
    data: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    model_options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    eval_data: tuple[EvalSet | Mapping[str, object] | str, ...] = ()
    watch: tuple[str, ...] = ()
    calibrate: str = "temperature"
    temperature: str = "newton"
    new_subset_per_seed: bool = False
    corrupt: float = 0.0
    class_weight: str | None = None
    ensemble: int = 1
    fast: bool = False
    pretrained: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        plain = {name: _json(name, getattr(self, name)) for name in ("data", "model_options", "training")}
        if "seed" in plain["training"]:
            sentence = Sentence(
                "the seed of training is the experiment's: pass ", Argument("seed"), ", not training['seed']"
            )
            raise ValueError(sentence)
        freeze(
            self,
            **plain,
            eval_data=self.eval_sets,
            watch=tuple(str(name) for name in self.watch),
            calibrate=choice("calibrate", self.calibrate, ("auto", "none", *CALIBRATORS)),
            temperature=choice("temperature", self.temperature, ("newton", "grid")),
            new_subset_per_seed=flag("new_subset_per_seed", self.new_subset_per_seed),
            corrupt=number("corrupt", self.corrupt, low=0, high=1),
            ensemble=integer("ensemble", self.ensemble, low=1, high=_MOST_MEMBERS),
            fast=flag("fast", self.fast),
            seed=integer("seed", self.seed, low=0),
        )
        if self.ensemble > 1 and (self.corrupt or self.watch):
            other = Argument("corrupt", self.corrupt) if self.corrupt else Argument("watch")
            together = " is of one training: pass it without "
            raise ValueError(Sentence(other, together, Argument("ensemble", self.ensemble)))
        if self.fast and (self.ensemble > 1 or self.corrupt or self.watch):
            whole = "ensemble" if self.ensemble > 1 else "corrupt" if self.corrupt else "watch"
            raise ValueError(Sentence(Argument(whole), " is of whole networks: pass it without ", Argument("fast")))
        if self.temperature == "grid" and self.calibrate != "temperature":
            given = Argument("calibrate", self.calibrate)
            raise ValueError(Sentence(Argument("temperature", "grid"), " is of temperatures: leave out ", given))
        if self.class_weight is not None:
            choice("class_weight", self.class_weight, ("balanced",))
        for name in self.watch:
            choice("watch", name, ("train", "test", *(f"eval-{n}" for n in range(1, len(self.eval_data) + 1))))
        if self.new_subset_per_seed and "train_size" not in self.data:
            needs = " needs a subset: pass ", Argument("train_size")
            raise ValueError(Sentence(Argument("new_subset_per_seed"), *needs))

    @property
    def is_multilabel(self) -> bool:
        """Whether its target is several columns."""
        return isinstance(self.data.get("target"), list | tuple) and len(self.data["target"]) > 1

    @property
    def eval_sets(self) -> tuple[EvalSet, ...]:
        """The extra evaluation sets as records."""
        return tuple(EvalSet.of(given) for given in self.eval_data)

    def to_dict(self) -> dict[str, object]:
        """Return the record as JSON can hold it."""
        record = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        return {**record, "eval_data": [each.to_plain() for each in self.eval_sets]}

    def resume_key(self) -> dict[str, object]:
        """Return the options that a resumed run must match: all but those that only change how it proceeds."""
        kept = {name: value for name, value in self.training.items() if name not in MECHANICAL}
        return {**self.to_dict(), "training": kept}

    @classmethod
    def from_dict(cls, record: Mapping[str, object]) -> Experiment:
        """Return what `to_dict` recorded."""
        # Run folders outlive versions: the first ones call the extra evaluation sets `also`, each with its number.
        named = {"eval_data" if name == "also" else name: value for name, value in record.items()}
        if isinstance(watch := named.get("watch"), Sequence):
            named["watch"] = tuple(str(name).replace("also-", "eval-") for name in watch)
        return cls(**_known(cls, named))

    def command(self, out: str | Path | None = None) -> str:
        """Return the command that runs it."""
        words = ["vicinal", "train", self.source]
        for name, value in self.data.items():
            words += _option("split-seed" if name == "seed" else name, value)
        words += ["--method", self.method]
        words += [] if self.model is None else ["--model", self.model]
        for name, value in self.model_options.items():
            words += ["--model-option", f"{name}={json.dumps(value)}"]
        for name, value in self.training.items():
            words += _option(name, value)
        for i, each in enumerate(self.eval_sets, start=1):
            words += each.words(i)
        words += [word for name in self.watch for word in ("--watch", name)]
        words += [] if self.calibrate == "temperature" else ["--calibrate", self.calibrate]
        words += [] if self.temperature == "newton" else ["--temperature", self.temperature]
        words += ["--new-subset-per-seed"] if self.new_subset_per_seed else []
        words += ["--corrupt", f"{self.corrupt:g}"] if self.corrupt else []
        words += [] if self.class_weight is None else ["--class-weight", self.class_weight]
        words += ["--ensemble", str(self.ensemble)] if self.ensemble > 1 else []
        words += ["--fast"] if self.fast else []
        words += [] if self.pretrained is None else ["--pretrained", self.pretrained]
        words += ["--seed", str(self.seed)] if self.seed else []
        words += [] if out is None else ["--out", str(out)]
        return shlex.join(words)


def default_method(model: str | None) -> str:
    """Return the method that trains a model, None for the default one, unless another is given.

    >>> default_method(None), default_method("hgb")
    ('Mixup(alpha=0.2)', 'ERM()')
    """
    return "ERM()" if model in ("hgb", "lightgbm", "catboost") else "Mixup(alpha=0.2)"


def folder_name(experiment: Experiment) -> str:
    """Return a name for the run's folder: readable, and the same for the same data, method and seed.

    >>> folder_name(Experiment(source="my data/wine.csv", method="LogitMix(Mixup(alpha=3.0))"))
    'wine-LogitMix-Mixup-alpha-3.0-seed0'
    """
    return f"{_words(f'{data_name(experiment.source)} {experiment.method}')[:80]}-seed{experiment.seed}"


def data_name(source: str) -> str:
    """Return a short name of the data that can be part of a file's.

    >>> data_name("my data/red wine.csv"), data_name("hf:glue:sst2")
    ('red-wine', 'hf-glue-sst2')
    """
    return _words(Path(source).name.partition(".")[0]) or "data"


def _known(kind: type, record: Mapping[str, object]) -> Json:
    """Return a record of a dataclass, if it has these fields."""
    names = [f.name for f in fields(kind)]
    for name in record:
        if name not in names:
            raise ValueError(f"{kind.__name__} has no field {name!r}{nearest_names(name, names)}")
    return dict(record)


def _words(text: str) -> str:
    return "-".join("".join(c if c.isalnum() or c in "._" else " " for c in text).split())


def _option(name: str, value: object) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if name == "stop_at" and isinstance(value, list | tuple):
        return [flag, "=".join(map(str, value))]
    if isinstance(value, Mapping):
        return [flag, f"0:{json.dumps(dict(value), ensure_ascii=False)}"]
    if isinstance(value, list | tuple):
        return [word for one in value for word in (flag, str(one))]
    return [flag, str(value)]


def _json(name: str, value: Any) -> dict[str, object]:
    try:
        ready: dict[str, object] = json.loads(json.dumps(dict(value)))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a mapping ready for JSON, got {value!r}: {error}") from error
    return {key: entry for key, entry in ready.items() if entry is not None}


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
