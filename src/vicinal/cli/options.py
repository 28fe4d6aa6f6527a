"""The options that commands share, as records of annotated fields.

A command takes a record as one argument, and `takes_records` shows typer its fields. The options of data, network and
training are the record `Given`. Those of training come from the fields of `vicinal.training.FitConfig`.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import OptionInfo

from vicinal._atomic import Json
from vicinal._checks import Argument, ArgumentError, Sentence, choice, integer, number
from vicinal._names import CALIBRATORS, KINDS, TABULAR_OPTIONS, check_network, check_network_options
from vicinal._portable import make_portable
from vicinal._remote import as_path, is_remote
from vicinal.cli.inputs import check_source
from vicinal.data.options import command_options
from vicinal.experiment import Experiment
from vicinal.expressions import check_method
from vicinal.training.config import check_options, options
from vicinal.training.defaults import defaults_by_kind

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a line, for machines.")]
Report = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report here, as HTML.")]
Bins = Annotated[int, typer.Option(min=1, help="Bins of the calibration errors.")]
Baselines = Annotated[bool, typer.Option("--baselines", help="Compare with a random forest too.")]
Weight = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of numbers that say how much each row counts.")
]
Predictions = Annotated[Path, typer.Option(metavar="FILE", help="Output: .csv, .csv.gz, .tsv, .parquet or .npz.")]


def _of_file(help: str, metavar: str | None = None, *, flag: str | None = None) -> OptionInfo:
    panel = "Predictions file (the names of columns say what they are)"
    option: OptionInfo = typer.Option(
        *([] if flag is None else [flag]), metavar=metavar, help=help, rich_help_panel=panel
    )
    return option


@dataclass(frozen=True)
class Common:
    """The options of every command that reads and writes files."""

    #: `handle_errors` applies it to all that a command does.
    max_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory limit for what a file claims to hold, such as 64GB.")
    ] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that vicinal did not write.")] = False
    as_json: AsJson = False


def _written(name: str) -> OptionInfo:
    """Return an option of `ReadOptions`, as its field states it."""
    stated = next(one for one in command_options() if one.name == name).metadata
    option: OptionInfo = typer.Option(
        help=stated["help"], metavar=stated["metavar"] or None, show_default=False, rich_help_panel="New data of a run"
    )
    return option


@dataclass(frozen=True)
class Written:
    """How the numbers and dates of new data are written, where that is not as in the training data."""

    decimal: Annotated[str | None, _written("decimal")] = None
    thousands: Annotated[str | None, _written("thousands")] = None
    day_first: Annotated[bool | None, _written("day_first")] = None
    missing_values: Annotated[list[str] | None, _written("missing_values")] = None

    def options(self) -> Json:
        """Return the options as `ReadOptions` takes them."""
        return {**vars(self), "missing_values": tuple(self.missing_values or ())}


@dataclass(frozen=True)
class CsvCommon(Common):
    """Those of commands that may write a CSV."""

    safe_csv: Annotated[
        bool,
        typer.Option("--safe-csv", help="In a CSV, put ' before cells that a spreadsheet would run as formulas."),
    ] = False


@dataclass(frozen=True)
class TrainCommon(Common):
    """Those of commands that train."""

    portable: Annotated[
        bool,
        typer.Option("--portable", help="Hold torch at AVX2, so that newer instructions do not change the digits."),
    ] = False


@dataclass(frozen=True)
class PoolOptions:
    """Where many trainings run."""

    workers: Annotated[int | None, typer.Option(help="Trainings at a time; on a cluster as many as fit.")] = None
    backend: Annotated[
        str, typer.Option(metavar="loky|ray|dask", help="Where they run: this machine, or a cluster.")
    ] = "loky"
    address: Annotated[str | None, typer.Option(metavar="auto|HOST:PORT", help="Address of the cluster.")] = None
    threads: Annotated[int, typer.Option(help="Threads of each training.")] = 1
    gpus: Annotated[float, typer.Option(help="GPUs of each training, here or on Ray; a fraction shares one.")] = 0.0

    def __post_init__(self) -> None:
        choice("backend", self.backend, ("loky", "ray", "dask"))
        integer("threads", self.threads, low=1)
        number("gpus", self.gpus, low=0)
        if self.workers is not None:
            integer("workers", self.workers, low=1)


@dataclass(frozen=True)
class ShardOptions:
    """Where shards are read: in this process, or on a cluster."""

    backend: Annotated[
        str, typer.Option(metavar="here|ray", help="Where shards are read: this process, or a Ray cluster.")
    ] = "here"
    address: Annotated[str | None, typer.Option(metavar="auto|HOST:PORT", help="Address of the cluster.")] = None
    workers: Annotated[int | None, typer.Option(help="Shards at a time on the cluster; default: all that fit.")] = None
    gpus: Annotated[float, typer.Option(help="GPUs of each worker on the cluster; a fraction shares one.")] = 0.0

    @property
    def is_here(self) -> bool:
        """Whether this process reads the shards; the other options are then refused."""
        if choice("backend", self.backend, ("here", "ray")) == "ray":
            return False
        for name in ("address", "workers", "gpus"):
            if getattr(self, name):
                raise ValueError(Sentence(Argument(name), " needs ", Argument("backend", "ray")))
        return True


#: Columns to measure slices by.
Slices = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Measure slices by this column alone; may be repeated. Default: all columns."),
]


@dataclass(frozen=True)
class FileOptions:
    """What the columns of a predictions file hold: the arguments of `open_file`."""

    label: Annotated[str | None, _of_file("The column of labels.", "COLUMN")] = None
    kind: Annotated[str | None, _of_file("What the scores are.", "probs|logits|confidence")] = None
    columns: Annotated[list[str] | None, _of_file("A column of scores; once for each class.", "COLUMN")] = None
    classes: Annotated[list[str] | None, _of_file("A class, in the order of class numbers.", "NAME")] = None
    encoding: Annotated[str | None, _of_file("Encoding of a text file, such as latin-1.", "NAME")] = None
    missing: Annotated[str, _of_file("Missing values: fail, or drop their rows.", "error|drop")] = "error"
    normalise: Annotated[bool, _of_file("Divide probabilities by their sum.", flag="--normalise")] = False


#: More would not be trained in a lifetime: a typing error, found out before a list is made of them.
MOST_SEEDS = 10_000


def share_or_number(name: str, text: str) -> float | int:
    """Return `0.2` as a share and `300` as a number of samples, for the option of this name.

    >>> share_or_number("val", "0.2"), share_or_number("val", "300")
    (0.2, 300)
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(name, text, "a share such as 0.15, or a number such as 300") from None


def use_device(name: str | None) -> None:
    """Measure runs on this device, in this process and those that it starts, if it is there."""
    if name is not None:
        from vicinal.training.config import device_name
        from vicinal.training.environment import chosen_device

        os.environ["VICINAL_DEVICE"] = str(chosen_device(device_name("device", name)))


def hold_portable(asked: bool) -> None:
    """Hold torch at AVX2 if that is asked for, before torch is imported. Raise if the processor does not allow it."""
    if asked and (reason := make_portable()) is not None:
        raise ValueError(Sentence(Argument("portable"), f" cannot be had: {reason}"))


@dataclass(frozen=True)
class _Option:
    name: str
    kind: Any
    help: str
    metavar: str | None = None


def _data_option(one: Field[Any]) -> _Option:
    """Return the option of a field of an option record, with its default where that is a number or a word."""
    stated = isinstance(one.default, int | float | str) and not isinstance(one.default, bool)
    said = f"{one.metadata['help']}  [default: {one.default}]" if stated else one.metadata["help"]
    name = "split_seed" if one.name == "seed" else one.name
    return _Option(name, one.metadata["cli"], said, one.metadata["metavar"] or None)


_DATA = [
    _Option("target", list[str], "Column that holds the class; or several columns of 0 and 1.", "COLUMN"),
    _Option("kind", str, "What the data are, where that is not inferred right.", "tabular|text|image|audio"),
    *map(_data_option, command_options()),
    _Option(
        "augment",
        str,
        "How training images and sounds are varied.  [default: standard]",
        "standard|crop|specaugment|none",
    ),
]
_MODEL = [
    _Option(
        "model",
        str,
        "A network by name, or a Hugging Face checkpoint; by default by the data: mlp-and-trees for rows, "
        "preactresnet18 or resnet18 for images, minilm or sentencecnn for texts, soundresnet for sounds.",
        "NAME",
    ),
    _Option("model_option", list[str], "An option of the network, such as dropout=0.3.", "NAME=VALUE"),
    _Option(
        "pretrained",
        str,
        "Start a network of images from torchvision's or timm's weights, or from those of a file.",
        "[FILE]",
    ),
    _Option("fast", bool, "Leave a pretrained network as it is, and train a linear head on its features."),
    _Option("ensemble", int, "Train this many networks, and serve their mean with one temperature.  [default: 1]", "N"),
]

_PRINTED_KINDS = {"tabular": "tables", "image": "images", "text": "texts", "audio": "sounds"}
_DEFAULTS = defaults_by_kind()


def _default_of(name: str) -> str:
    """Return the default of a training option as the help shows it, by the kind of data where kinds differ."""
    of = {kind: value for kind, value in _DEFAULTS[name].items() if value is not None and value != []}
    if all(value is False for value in of.values()):
        return ""
    if isinstance(of.get("tabular"), bool):
        return f"  [default: on for {', '.join(_PRINTED_KINDS[kind] for kind, value in of.items() if value)}]"
    values = {kind: f"{value:g}" if isinstance(value, float) else _printed(value) for kind, value in of.items()}
    if len(values) == len(_PRINTED_KINDS) and len(set(values.values())) == 1:
        return f"  [default: {values['tabular']}]"
    return f"  [default: {', '.join(f'{value} for {_PRINTED_KINDS[kind]}' for kind, value in values.items())}]"


def _printed(value: object) -> str:
    return " and ".join(map(_printed, value)) if isinstance(value, list) else str(value)


#: `FitConfig` states each of them: default, check and help.
_TRAINING = [
    _Option(
        stated.name,
        list[stated.kind] if stated.repeated else stated.kind,  # type: ignore[name-defined]  # known when it runs
        stated.help + (" May be repeated." if stated.repeated else "") + _default_of(stated.name),
        "|".join(stated.choices) or stated.metavar,
    )
    for stated in options()
    if stated.in_command
]
_CLASSES = [_Option("class_weight", str, "Let all classes count the same, however many samples they have.", "balanced")]
#: What `--calibrate` takes: none, one that is chosen by cross-validation, or one by name.
CALIBRATE = ("auto", "none", *CALIBRATORS)
_EVALUATION = [
    _Option("eval_data", list[str], "Extra labelled data to evaluate on (another domain); may be repeated.", "DATA"),
    _Option(
        "map", list[str], "What columns of --eval-data are called in DATA; N: in front for its N-th.", "NAME=COLUMN,…"
    ),
    _Option(
        "map_class",
        list[str],
        "Names in DATA of classes of --eval-data; as --map. Without --eval-data, or after 0:, new names of DATA's own.",
        "NAME=CLASS,…",
    ),
    _Option("eval_development", list[str], "Fit the temperature for --eval-data on these; as --map.", "DATA"),
    _Option("watch", list[str], "Measure this at every evaluation of training; may be repeated.", "train|test|eval-1"),
    _Option(
        "calibrate",
        str,
        f"How the probabilities are calibrated: {', '.join(CALIBRATE)}.  [default: temperature]",
        "NAME",
    ),
    _Option("temperature", str, "How the temperature is fitted.  [default: newton]", "newton|grid"),
    _Option("corrupt", float, "Relabel this share of the training samples at random, to study label noise."),
    _Option("new_subset_per_seed", bool, "Use another subset of --train-size samples for each seed."),
]
_PANELS = (
    ("Data", _DATA),
    ("Network", _MODEL),
    ("Training (defaults depend on the data)", [*_TRAINING, *_CLASSES]),
    ("Evaluation", _EVALUATION),
)

#: What an extra evaluation set reads.
_SOURCES = ("source", "development")
#: Options that name columns of the data.
_COLUMNS = ("target", "group", "time", "weight", "drop", "text", "choice")
#: Files whose header is read without the rest.
_CHEAP_HEADERS = (".csv", ".tsv", ".parquet")
_NAMES = tuple(option.name for _, options in _PANELS for option in options)


@dataclass(frozen=True)
class Given:
    """The options of data, network and training: fields of an `Experiment`, under their names."""

    data: dict[str, Any]
    model: str | None
    model_options: dict[str, object]
    training: dict[str, Any]
    eval_data: tuple[dict[str, object], ...]
    watch: tuple[str, ...]
    calibrate: str
    temperature: str
    corrupt: float
    new_subset_per_seed: bool
    class_weight: str | None
    ensemble: int
    fast: bool
    pretrained: str | None

    def inputs(self, data: str) -> list[str]:
        """Return what training on `data` reads: names that are no file or folder are ignored."""
        extra = [str(entry[name]) for entry in self.eval_data for name in _SOURCES if name in entry]
        start = (self.model, self.pretrained, self.model_options.get("vectors"))
        return [data, *extra, *(str(name) for name in start if name is not None)]

    def check(
        self, data: str, methods: Sequence[str], models: Sequence[str], slices: Sequence[str] | None = None
    ) -> None:
        """Check options and names before torch is imported and `data` are read, which takes seconds."""
        check_options(self.training)
        if (kind := self.data.get("kind")) is not None:
            choice("kind", kind, KINDS)
        for method in methods:
            check_method(method)
        Experiment(source=data, **vars(self))  # whose fields check themselves
        for model in models:
            check_network(model, kind)
            if model in TABULAR_OPTIONS and kind in (None, "tabular"):
                check_network_options(model, self.model_options)
        for source in (data, *(str(one[name]) for one in self.eval_data for name in _SOURCES if name in one)):
            check_source(source, self.data.get("data_root"))
        for one in command_options():
            if self.data.get(one.name) is not None:
                one.metadata["check"](one.name, self.data[one.name])
        path = as_path(data)
        if is_remote(path) or not path.is_file() or path.suffix.lower() not in _CHEAP_HEADERS:
            return
        from vicinal.data.names import default_target  # numpy: not for `--help`
        from vicinal.tables import open_table

        table = open_table(path, encoding=self.data.get("encoding"), header=self.data.get("header", True))
        if "target" not in self.data and "choice" not in self.data:
            default_target(table)
        for argument in (*_COLUMNS, "slice"):
            names = slices or () if argument == "slice" else self.data.get(argument) or ()
            for name in [names] if isinstance(names, str) else names:
                table.require_column(name, argument)


def takes_records(command: Callable[..., None]) -> Callable[..., None]:
    """Let typer see the fields of a command's records, such as `common: Common`, as options of their own."""
    parameters: list[inspect.Parameter] = []
    records: dict[str, type] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        kind: type = parameter.annotation
        if is_dataclass(kind):
            records[name] = kind
            parameters += _parameters_of(kind)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**values: object) -> None:
        values = {name: as_path(value) if isinstance(value, Path) else value for name, value in values.items()}
        for name, record in records.items():
            names = _NAMES if record is Given else [f.name for f in fields(record)]
            # An option that may be repeated and was not given is an empty list, not its default.
            given = {each: value for each in names if (value := values.pop(each, None)) not in (None, [])}
            values[name] = _collected(given) if record is Given else record(**given)
        command(**values)

    # typer takes the name of the command, its help and its options from these.
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__dict__["__signature__"] = inspect.Signature(parameters)  # what `inspect` and so typer reads
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _parameters_of(record: type) -> list[inspect.Parameter]:
    if record is Given:
        return [_parameter(option, panel) for panel, options in _PANELS for option in options]
    hints, kind = get_type_hints(record, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name]) for f in fields(record)]


def flags_of(command: Callable[..., None]) -> dict[str, str]:
    """Return the options of a command, by the names that they have in Python."""
    flags: dict[str, str] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        for option in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(option, OptionInfo):
                # In an annotation the first of the option's own names stands where its default would.
                names = [text for text in (option.default, *(option.param_decls or ())) if isinstance(text, str)]
                flags[name] = names[0].partition("/")[0] if names else _flag(name)
    return flags


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


#: What stands for a value in the help, where its option says nothing else.
_METAVARS: dict[Any, str] = {int: "N", list[int]: "N", float: "X", list[float]: "X"}


def _parameter(option: _Option, panel: str) -> inspect.Parameter:
    flag = _flag(option.name)
    settings: dict[str, Any] = {"help": option.help, "rich_help_panel": panel, "show_default": False}
    kind: Any = option.kind
    if kind == "share":
        # typer cannot read "a share or a number": `_collected` parses the text.
        kind = str
        settings["metavar"] = "SHARE|NUMBER"
    settings["metavar"] = option.metavar or settings.get("metavar") or _METAVARS.get(kind)
    names = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
    annotation = Annotated[kind | None, typer.Option(*names, **settings)]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _collected(values: dict[str, Any]) -> Given:
    given = {name: value for name, value in values.items() if value not in (None, [])}
    for option in _DATA:
        if option.kind == "share" and option.name in given:
            given[option.name] = share_or_number(option.name, given[option.name])
    data = {("seed" if o.name == "split_seed" else o.name): given[o.name] for o in _DATA if o.name in given}
    for name in ("target", "text", "choice"):
        if len(data.get(name, ())) == 1:
            data[name] = data[name][0]
    training = {o.name: given[o.name] for o in _TRAINING if o.name in given}
    own, given["map_class"] = _own_classes(given)
    data |= {"map_class": own} if own else {}
    return Given(
        data=data,
        model=given.get("model"),
        model_options=_model_options(given.get("model_option", [])),
        training=training,
        eval_data=_eval_sets(given),
        watch=tuple(given.get("watch", ())),
        calibrate=given.get("calibrate", "temperature"),
        temperature=given.get("temperature", "newton"),
        corrupt=given.get("corrupt", 0.0),
        new_subset_per_seed=given.get("new_subset_per_seed", False),
        class_weight=given.get("class_weight"),
        ensemble=given.get("ensemble", 1),
        fast=given.get("fast", False),
        pretrained=given.get("pretrained"),
    )


def _own_classes(given: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return new names of the classes of the data themselves, and the maps of extra evaluation sets."""
    own: dict[str, str] = {}
    others: list[str] = []
    for text in given.get("map_class", ()):
        if text.startswith("0:") or ("eval_data" not in given and not re.match(r"\d+:", text)):
            own |= _pairs("map_class", text.removeprefix("0:"))
        else:
            others.append(text)
    return own, others


def _eval_sets(given: dict[str, Any]) -> tuple[dict[str, object], ...]:
    """Return the extra evaluation sets with their maps: those after `2:` are of the second, the others of all."""
    sets: list[Json] = [{"source": source} for source in given.get("eval_data", ())]
    for option, field in (("map", "columns"), ("map_class", "class_names"), ("eval_development", "development")):
        for text in given.get(option, ()):
            numbered = re.match(r"(\d+):", text)
            value = text[numbered.end() :] if numbered else text
            if not sets or (numbered and not 1 <= int(numbered[1]) <= len(sets)):
                raise ArgumentError(option, text, "for a set that --eval-data names")
            for one in [sets[int(numbered[1]) - 1]] if numbered else sets:
                one[field] = value if field == "development" else {**one.get(field, {}), **_pairs(option, value)}
    return tuple(sets)


#: NAME=NAME, in which names may hold comparisons: `<=50K.=<=50K` is '<=50K.' and '<=50K'.
_PAIR = re.compile(r"((?:[<>!]=|[^=])*)=(.*)", re.DOTALL)


def _pairs(option: str, text: str) -> dict[str, str]:
    """Return `q1=premise,q2=hypothesis`, or a JSON object where names have commas, as a dictionary."""
    if text.startswith("{"):
        try:
            return {str(name): str(value) for name, value in json.loads(text).items()}
        except ValueError:
            raise ArgumentError(option, text, "NAME=NAME,… or a JSON object") from None
    pairs = [pair for one in text.split(",") if (pair := _PAIR.match(one)) and pair[1] and pair[2]]
    if len(pairs) < text.count(",") + 1:
        raise ArgumentError(option, text, "NAME=NAME,…")
    return {pair[1].strip(): pair[2].strip() for pair in pairs}


def _model_options(words: list[str]) -> dict[str, object]:
    options: dict[str, object] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise ArgumentError("model_option", word, "NAME=VALUE, such as dropout=0.3")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options
