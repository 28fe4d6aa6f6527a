"""What differs from the paper's setting, computed from a declared record of it.

The record of a recipe is its `paper` scale. `Recipe.original` has the fields in which the paper differs from that scale
too: by the names of the options of data and training, where a mapping has the values of single networks, or in words
where no option says it. A scale is compared with the record field by field. What a result was run with, such as half
precision or slices of the data, is compared too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from vicinal._atomic import Json
from vicinal.data.options import TEST
from vicinal.data.published_tables import PUBLISHED
from vicinal.papers.base import Recipe, Scale, experiment
from vicinal.papers.claims import FIRST_SEED, Pair
from vicinal.papers.keys import measure_name, training_record

#: Every resolved option of a training, by its name.
_Options: TypeAlias = "Mapping[str, Any]"


class Deviation(NamedTuple):
    """An option that differs from the paper's setting."""

    what: str
    here: str
    paper: str


def _samples(value: object) -> str:
    """Return a number or a share of samples."""
    if value is None:
        return "all"
    return "none" if value == 0 else f"{100 * value:g} %" if isinstance(value, float) else f"{value:,}"


def _or_none(value: object) -> str:
    return f"{value:g}" if value else "none"


def _schedule(of: _Options) -> str:
    if of["schedule"] != "milestones":
        return str(of["schedule"])
    if len(of["milestones"]) > 10 and of["milestones"] == list(range(1, len(of["milestones"]) + 1)):
        return f"× {of['factor']:g} after every epoch"
    return f"× {of['factor']:g} after {_listed([f'{epoch:g}' for epoch in of['milestones']])}"


def _selected(of: _Options) -> str:
    if of["measure"] in _COURSES:
        return ""
    if of["measure"] in _LAST or of["select"] == "last":
        return "last"
    chosen = _SELECTED.get(of["select"], str(of["select"]))
    if of["val"] == TEST:
        return f"{chosen.replace('validation', 'test')} (oracle)"
    return f"last, and beside it {chosen}" if of["measure"] == "last and selected epoch" else chosen


_SELECTED = {"last": "last", "accuracy": "best validation accuracy", "nll": "best validation NLL", "mcc": "best MCC"}

#: What is compared, and how it is written. An empty text stands for an option that means nothing there.
_FIELDS: Mapping[str, Callable[[_Options], str]] = {
    "training samples": lambda of: _samples(of["train_size"]),
    "samples held out for validation": lambda of: "none" if of["val"] == TEST else _samples(of["val"]),
    "test samples at most": lambda of: _samples(of["max_held_out"]),
    "augmentation": lambda of: (of["augment"] or "standard") if of["kind"] == "image" else "",
    "tokens of a text at most": lambda of: f"{of['max_length']:,}" if of["kind"] == "text" else "",
    "length of training": lambda of: f"{of['epochs']:g} epochs" if of["steps"] is None else f"{of['steps']:,} steps",
    "batch size": lambda of: f"{of['batch_size']:,}",
    "optimizer": lambda of: str(of["optimizer"]),
    "learning rate": lambda of: f"{of['lr']:g}",
    "schedule": _schedule,
    "warm-up (epochs)": lambda of: _or_none(of["warmup_epochs"]),
    "Nesterov momentum": lambda of: ("yes" if of["nesterov"] else "no") if of["optimizer"] == "sgd" else "",
    "weight decay": lambda of: _or_none(of["weight_decay"]),
    "gradient clipping": lambda of: _or_none(of["clip_norm"]),
    "epoch that is measured": _selected,
}
#: Parts of the names of networks by the kind of their data.
_KINDS = {
    "image": ("resnet", "resnext", "densenet", "vgg", "mobilenet", "shufflenet"),
    "text": ("minilm", "hf:", "cnn"),
}
#: Measures, by their names in keys, that take the last epoch whichever was selected, and those that follow a course.
_LAST = (
    "last epoch",
    "attacks",
    "between samples",
    "design choices",
    "errors of training and test",
    "outside the hull",
)
_COURSES = ("course of the gap", "course of the ECE", "memorisation")


def deviations(recipe: Recipe, scale: str) -> list[Deviation]:
    """Return what differs at a scale from the paper's setting.

    >>> from vicinal.papers import get
    >>> deviations(get("z18-fig3"), "cpu")[1]
    Deviation(what='training samples', here='1,000 (CIFAR-10), 2,000 (CIFAR-100)', paper='all')
    """
    at, paper = recipe.scales[scale], recipe.scales["paper"]
    here, there = _options(recipe, at, {}), _options(recipe, paper, recipe.original)
    pairs = [("data", ", ".join(at.data), ", ".join(paper.data)), ("networks", _networks(at), _networks(paper))]
    pairs += [(title, _values(here, shown), _values(there, shown)) for title, shown in _FIELDS.items()]
    ours, theirs = _methods(recipe, at), _methods(recipe, paper)
    only = [", ".join(row for row in one if row not in other) for one, other in ((ours, theirs), (theirs, ours))]
    pairs += [("methods in one of them alone", only[0], only[1])]
    pairs += [("training of single methods", _own_training(recipe, at), _own_training(recipe, paper))]
    if scale == "paper":
        pairs += [(what, "as the other rows", str(said)) for what, said in recipe.original.items() if " " in what]
    # The number of layers follows from the network.
    names = [name for name in dict.fromkeys((*paper.settings, *at.settings)) if name != "layers"]
    pairs += [(name, _setting(at.settings.get(name)), _setting(paper.settings.get(name))) for name in names]
    return [Deviation(what, ours or "none", theirs or "none") for what, ours, theirs in pairs if ours != theirs]


def ran_with(settings: Mapping[str, Any]) -> list[Deviation]:
    """Return how a result was run otherwise than its recipe says: on which hardware, and with which slices.

    >>> ran_with({"hardware": {"mixed_precision": "bf16"}, "slices": {"cifar10": "12,000 of 60,000 samples"}})
    [Deviation(what='mixed precision', here='bf16', paper='not given'), Deviation(what='samples of cifar10', \
here='12,000', paper='60,000')]
    """
    hardware = [
        (name.replace("_", " "), str(value), "not given") for name, value in settings.get("hardware", {}).items()
    ]
    slices = [
        (f"samples of {name}", *text.removesuffix(" samples").split(" of "))
        for name, text in settings.get("slices", {}).items()
    ]
    return [Deviation(*one) for one in (*hardware, *slices)]


def seed_varies(at: Scale) -> str:
    """Return what a seed draws at a scale, and what a verdict speaks of, in two sentences."""
    options = [of.options for of in at.data.values()]
    drawn = ["weights", "batch order", "mixing"] if options else ["all random numbers of the measurement"]
    subsets = [
        ("the training subset", any(of.get("train_size") for of in options)),
        ("the validation samples", any(of.get("val", 0.15) not in (0, TEST) for of in options)),
        ("the test subset", any(of.get("max_held_out") for of in options)),
        ("the test split", any(_split_is_drawn(of.source) for of in at.data.values())),
    ]
    data = [name for name, varies in subsets if varies]
    said = f"A seed draws {_listed([*drawn, *data])}."
    if not options:
        return f"{said} A verdict speaks of the mean over such draws."
    if data:
        return f"{said} A verdict speaks of the mean over such draws of the data, not of one fixed split."
    return f"{said} The data are the same for every seed. A verdict speaks of these data alone."


def _split_is_drawn(source: str) -> bool:
    """Return whether a data set was published without a test set, so that the seed draws one."""
    return source in PUBLISHED and "" in PUBLISHED[source].files


def _options(recipe: Recipe, at: Scale, changes: Mapping[str, object]) -> dict[Pair, _Options]:
    """Return every resolved option of the training on each data set with each network."""
    found: dict[Pair, _Options] = {}
    for on in at.pairs():
        method = next(iter(recipe.methods_of(on, at).values()))
        record: Json = training_record(experiment(at, on, method, FIRST_SEED))
        name = record["network"]["name"]
        kind = next((kind for kind, parts in _KINDS.items() if any(part in name for part in parts)), "")
        own = {
            name: value[on.network] if isinstance(value, Mapping) else value
            for name, value in changes.items()
            if not isinstance(value, Mapping) or on.network in value
        }
        found[on] = {
            **record["data"],
            **record["training"],
            "kind": kind,
            "measure": measure_name(recipe.measure),
            **own,
        }
    return found


def _values(options: Mapping[Pair, _Options], shown: Callable[[_Options], str]) -> str:
    """Return the values of an option: one if all agree, else each with the data or the networks that have it."""
    values = {on: shown(of) for on, of in options.items()}
    if len(set(values.values())) <= 1:
        return next(iter(values.values()), "")
    # By data alone, by network alone, else by both, whichever is enough.
    parts: tuple[Callable[[Pair], str], ...] = (_data, _network, str)
    name = next(p for p in parts if len({(p(on), v) for on, v in values.items()}) == len({p(on) for on in values}))
    where: dict[str, dict[str, None]] = {}
    for on, value in values.items():
        where.setdefault(value or "none", {})[name(on)] = None
    return ", ".join(f"{value} ({', '.join(names)})" for value, names in where.items())


def _data(on: Pair) -> str:
    return on.data


def _network(on: Pair) -> str:
    return on.network


def _networks(at: Scale) -> str:
    said = []
    for name, network in at.networks.items():
        options = ", ".join(f"{key} {value}" for key, value in network.options.items() if value not in (False, None))
        said.append(f"{name} ({options})" if options else name)
    return ", ".join(said)


def _methods(recipe: Recipe, at: Scale) -> dict[str, None]:
    """Return the rows of a scale in order. Layers are left out, since they follow from the network."""
    rows = [row for on in at.pairs() for row in recipe.methods_of(on, at) if row not in recipe.further]
    return dict.fromkeys(re.sub(r", layers=[\[(][^\])]*[\])]", "", row) for row in rows)


def _own_training(recipe: Recipe, at: Scale) -> str:
    """Return the fields in which the trainings of single methods differ from the others, by data."""
    found: dict[str, dict[str, None]] = {}
    for on in at.pairs():
        for name, method in recipe.methods_of(on, at).items():
            if method.training:
                said = ", ".join(
                    f"{field.replace('_', ' ')} {_plain(value)}" for field, value in method.training.items()
                )
                found.setdefault(said, {})[f"{name} on {on.data}"] = None
    return "; ".join(f"{', '.join(names)}: {said}" for said, names in found.items())


def _plain(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return _listed([_plain(one) for one in value])
    return (
        {True: "on", False: "off"}[value]
        if isinstance(value, bool)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def _setting(value: object) -> str:
    """Return a number, or several, of what is measured; rows and tables are no part of a setting."""
    if isinstance(value, (list, tuple)) and all(isinstance(one, (int, float)) for one in value):
        return ", ".join(map(_setting, value))
    return f"{value:,}" if isinstance(value, (int, float)) else ""


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
