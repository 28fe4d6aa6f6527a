"""An experiment as a record: what was asked for, and nothing that follows from it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from vicinal._checks import Argument, Sentence, freeze, integer, nearest_names, number
from vicinal.training.config import MECHANICAL

__all__ = ["Experiment", "data_name", "folder_name"]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Data, a network, a method and a seed; `run` makes a run of it.

    Only what differs from the usual is recorded: `training` and `data` hold the options that were given.

    Parameters
    ----------
    source
        What `vicinal.data.load` takes: a path or a name.
    method
        The objective, as an expression.
    data
        Options of `vicinal.data.load`.
    model
        The name of a network; the usual one for the kind of data if not given.
    model_options
        Its own options, such as `{"dropout": 0.3}`.
    training
        Fields of `FitConfig` that differ from the usual ones for this kind of data.
    also
        More labelled data to evaluate on, such as another domain.
    corrupt
        The share of training labels to draw anew, uniformly over all classes, before training.
    seed
        Of the weights, the order and the mixing. The split has its own: `data["seed"]`, 0 if not given.

    >>> Experiment(source="digits", training={"epochs": 3}, seed=1).command()
    "vicinal train digits --method 'Mixup(alpha=0.2)' --epochs 3 --seed 1"
    """

    source: str
    method: str = "Mixup(alpha=0.2)"
    data: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    model_options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    corrupt: float = 0.0
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
            also=tuple(str(source) for source in self.also),
            corrupt=number("corrupt", self.corrupt, low=0, high=1),
            seed=integer("seed", self.seed, low=0),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    def that_matters(self) -> dict[str, Any]:
        """Return the record without what changes how a run proceeds but not where it ends."""
        kept = {name: value for name, value in self.training.items() if name not in MECHANICAL}
        return {**self.to_dict(), "training": kept}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Experiment:
        """Return what `to_dict` recorded."""
        known = [f.name for f in fields(cls)]
        for name in record:
            if name not in known:
                raise ValueError(f"an experiment has no field {name!r}{nearest_names(name, known)}")
        return cls(**record)

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
        for source in self.also:
            words += ["--also", source]
        words += ["--corrupt", f"{self.corrupt:g}"] if self.corrupt else []
        words += ["--seed", str(self.seed)] if self.seed else []
        words += [] if out is None else ["--out", str(out)]
        return shlex.join(words)


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


def _words(text: str) -> str:
    return "-".join("".join(c if c.isalnum() or c in "._" else " " for c in text).split())


def _option(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if isinstance(value, list | tuple):
        return [word for one in value for word in (flag, str(one))]
    return [flag, str(value)]


def _json(name: str, value: Any) -> dict[str, Any]:
    try:
        ready: dict[str, Any] = json.loads(json.dumps(dict(value)))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a mapping ready for JSON, got {value!r}: {error}") from error
    return {key: entry for key, entry in ready.items() if entry is not None}


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
