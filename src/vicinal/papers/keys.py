"""The keys of trainings and cells: SHA-256 of a versioned record of every resolved option.

A cell of a committed result is found again by its key, so that it is never trained twice and never mixed with a cell
of other settings. A record holds every option, those at their defaults included, under names that are fixed here. The
tables below map today's names in the code to these fixed names. A rename in the code changes the left side alone, and
no key. An option that is added later enters a record only where it is not at its default (`ADDED`).

Raise `NUMERICS` with any change that alters the digits of a training: an optimiser, a draw, the order of samples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TypeAlias

from vicinal.expressions import parse
from vicinal.papers.base import Cell
from vicinal.runs import Experiment
from vicinal.training.defaults import default_config

#: The form of the records.
VERSION = 1
#: What a training's digits are: raised whenever they change.
NUMERICS = 1

#: Options of `vicinal.data.load`: the name in the code, the name in keys, and the default.
_DATA: dict[str, tuple[str, object]] = {
    "target": ("target", None),
    "text": ("text", None),
    "choice": ("choice", None),
    "kind": ("kind", None),
    "seed": ("seed", 0),
    "val": ("val", 0.15),
    "test": ("test", 0.15),
    "train_size": ("train_size", None),
    "subset": ("subset", "stratified"),
    "subset_seed": ("subset_seed", None),
    "max_held_out": ("max_held_out", None),
    "max_bad": ("max_bad", 0.05),
    "rare": ("rare", None),
    "drop": ("drop", []),
    "group": ("group", None),
    "time": ("time", None),
    "features": ("features", "standard"),
    "encoding": ("encoding", None),
    "header": ("header", True),
    "tokenizer": ("tokenizer", None),
    "max_length": ("max_length", 256),
    "augment": ("augment", None),
    "image_size": ("image_size", None),
    "normalisation": ("normalisation", None),
    "seconds": ("seconds", 1.0),
    "front_end": ("front_end", "spectrogram"),
    "max_pixels": ("max_pixels", None),
}
#: Where data are says nothing about what they are.
_PLACES = ("data_root",)

#: Fields of `FitConfig` that decide where a training ends: the name in the code and the name in keys.
_TRAINING = {
    name: name
    for name in (
        "epochs", "steps", "batch_size", "group_by_length", "accumulation", "optimizer", "lr", "momentum", "nesterov",
        "betas", "rho", "weight_decay", "schedule", "milestones", "factor", "warmup_epochs", "warmup_steps",
        "warmup_start", "clip_norm", "mixed_precision", "select", "patience", "stop_at", "eval_every",
        "eval_every_steps", "eval_batch_size", "keep_predictions_at", "seed",
    )
}  # fmt: skip

#: Fields of `Experiment` beside data, network, method and training: name in the code, name in keys, default.
_EXPERIMENT: dict[str, tuple[str, object]] = {
    "eval_data": ("also", []),
    "watch": ("watch", []),
    "temperature": ("temperature", "newton"),
    "new_subset_per_seed": ("new_subset_per_seed", False),
    "corrupt": ("corrupt", 0.0),
    "class_weight": ("class_weight", None),
    "ensemble": ("ensemble", 1),
    "fast": ("fast", False),
    "pretrained": ("pretrained", None),
    "seed": ("seed", 0),
}

#: Options added after these tables were fixed, with their defaults: they enter a record only with another value.
ADDED: dict[str, dict[str, object]] = {
    "data": {
        "decimal": None,
        "thousands": None,
        "day_first": None,
        "missing_values": [],
        "weight": None,
        "map_class": None,
    },
    "training": {"channels_last": False, "full_float32": False, "compile": False, "ema": None, "swa": None},
    "experiment": {"calibrate": "temperature"},
}

#: The networks of the recipes with their options' defaults. None stands for what follows from the size of an image.
_Options: TypeAlias = "dict[str, object]"
_RESNET: _Options = {"groups": 1, "width_per_group": 64, "dropout": 0.0}
_PREACT: _Options = {"width": None, "dropout": 0.0, "final_norm": False}
_VGG: _Options = {"hidden": [], "dropout": None, "width": 64, "stages": 5}
_SPEECH_VGG: _Options = {"hidden": [512], "dropout": None, "width": 64, "stages": 2}
_TRANSFORMER: _Options = {"dropout": None, "pooling": None}
NETWORKS: dict[str, _Options] = {
    "mlp": {"hidden": [128, 128], "dropout": 0.0},
    "lenet": {"maps": 20, "hidden": 1000, "dropout": 0.5},
    "preactresnet10": _PREACT,
    "preactresnet18": _PREACT,
    "wideresnet28-10": {"widen": 10, "dropout": 0.0},
    "densenet-bc-190": {"growth": 40, "depth": 190, "dropout": 0.0},
    "resnet18": _RESNET,
    "resnet34": _RESNET,
    "resnet50": _RESNET,
    "resnet101": _RESNET,
    "resnext50": {"groups": 32, "width_per_group": 4, "dropout": 0.0},
    "resnext101": {"groups": 32, "width_per_group": 4, "dropout": 0.0},
    "vgg11": _SPEECH_VGG,
    "vgg16": _VGG,
    "mobilenetv2": {"width": 1.0, "dropout": 0.2},
    "shufflenetv2": {"dropout": 0.0},
    "sentencecnn": {
        "vectors": None, "dim": 300, "widths": [3, 4, 5], "maps": 100, "dropout": 0.5, "max_norm": 3.0, "padding_id": 0,
    },
    "minilm": _TRANSFORMER,
}  # fmt: skip
#: The kinds of the recipes' data by source; all others are texts.
_KINDS = {
    "image": ("cifar10", "cifar100", "digits", "fashion-mnist", "imagenet", "stl10", "tinyimagenet"),
    "audio": ("fsdd", "speechcommands"),
    "tabular": ("abalone", "arcene", "arrhythmia", "htru2", "iris", "phishing"),
}

#: What is measured of a cell: module and function, and the name in keys. A measure whose digits change gets a new name.
MEASURES = {
    "images.selected": "selected epoch",
    "images.last_epoch": "last epoch",
    "images.both_epochs": "last and selected epoch",
    "l22_fig1.measure": "spirals",
    "l22_tab3.measure": "score",
    "l22_tab4.measure": "last epoch",
    "p22_vanilla.measure": "stored logits",
    "t19_fig1.measure": "course of the gap",
    "t19_fig5.measure": "label entropy",
    "t19_fig7.measure": "course of the ECE",
    "t19_hull.measure": "outside the hull",
    "t19_tab1_fig8.measure": "detection",
    "texts.in_both_domains": "both domains",
    "w21_tab4_fig2.measure": "course of the loss",
    "z18_choices.measure": "design choices",
    "z18_fig1b.measure": "disc in ring",
    "z18_fig2.measure": "between samples",
    "z18_fig4.measure": "speakers",
    "z18_fig5.measure": "GAN",
    "z18_sec5.measure": "errors of training and test",
    "z18_tab2.measure": "memorisation",
    "z18_tab3.measure": "attacks",
}


def training_key(experiment: Experiment) -> str:
    """Return the key of a training."""
    return _digest(training_record(experiment))


def training_record(experiment: Experiment) -> dict[str, object]:
    """Return every resolved option of a training, under its fixed name."""
    given = experiment.to_dict()
    return {
        "version": VERSION,
        "numerics": NUMERICS,
        "source": experiment.source,
        "method": repr(parse(experiment.method)),
        "data": _resolved("data", experiment.data, _DATA, ignored=_PLACES),
        "network": _network(experiment),
        "training": _training(experiment),
        **_resolved("experiment", {name: given[name] for name in (*_EXPERIMENT, *ADDED["experiment"])}, _EXPERIMENT),
    }


def check_trained(experiment: Experiment, config: Mapping[str, object]) -> None:
    """Raise if a training's configuration, as its run recorded it, is not the one that its key stands for."""
    for code, key in _TRAINING.items():
        meant = _training(experiment)[key]
        if code in config and config[code] != meant:
            raise RuntimeError(
                f"{experiment.source} was trained with {code}={config[code]!r}, its key says {meant!r}: "
                f"give {code} in the recipe"
            )


def cell_key(cell: Cell) -> str:
    """Return the key of a cell: what is measured, of which trainings."""
    return _digest(cell_record(cell))


def cell_record(cell: Cell) -> dict[str, object]:
    """Return what a cell's numbers depend on: the measure, its settings, its trainings and the seed."""
    settings = dict(cell.settings)
    if "experiment" in settings:  # a training inside the measure: renames of its fields must not change the key
        inner = Experiment.from_dict({**settings["experiment"], "seed": cell.seed})
        settings["experiment"] = training_key(inner)
    return {
        "version": VERSION,
        "numerics": NUMERICS,
        "measure": measure_name(cell.measure),
        "settings": settings,
        "trainings": [training_key(experiment) for experiment in cell.trainings],
        "seed": cell.seed,
    }


def measure_name(measure: Callable[..., object]) -> str:
    """Return the name of a measure in keys."""
    code = f"{measure.__module__.rpartition('.')[2]}.{measure.__qualname__}"
    return MEASURES.get(code, code)


def _resolved(
    part: str, given: Mapping[str, object], table: Mapping[str, tuple[str, object]], *, ignored: tuple[str, ...] = ()
) -> dict[str, object]:
    """Return the options of a table with the given values, and later ones that are not at their default."""
    later = ADDED[part]
    unknown = sorted(set(given) - {*table, *later, *ignored})
    if unknown:
        raise ValueError(f"keys.py has no fixed name for the option {unknown[0]!r} of {part}: add it to `ADDED`")
    record = {name: given.get(code, default) for code, (name, default) in table.items()}
    return record | {name: given[name] for name in later if name in given and given[name] != later[name]}


def _network(experiment: Experiment) -> dict[str, object]:
    name = str(experiment.model)
    defaults = _TRANSFORMER if name.startswith("hf:") else NETWORKS.get(name)
    if defaults is None:
        raise ValueError(f"keys.py has no defaults for the network {name!r}: add them to `NETWORKS`")
    unknown = sorted(set(experiment.model_options) - set(defaults))
    if unknown:
        raise ValueError(f"keys.py has no fixed name for the option {unknown[0]!r} of {name}: add it to `NETWORKS`")
    return {"name": name, **defaults, **experiment.model_options}


def _training(experiment: Experiment) -> dict[str, object]:
    """Return the resolved configuration. Recipes give what would else depend on the number of samples."""
    name, source = str(experiment.model), experiment.source.partition(":")[0]
    kind = next((kind for kind, sources in _KINDS.items() if source in sources), "text")
    validated = experiment.data.get("val", _DATA["val"][1]) != 0
    config = default_config(kind, name, experiment.training, seed=experiment.seed, validated=validated).to_dict()
    later = ADDED["training"]
    record = {key: config[code] for code, key in _TRAINING.items()}
    return record | {key: config[key] for key in later if key in config and config[key] != later[key]}


def _digest(record: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
