"""What a recipe is: one table or figure of a paper, written down so that it can be run at three scales.

A recipe reads like the table it reproduces: data, networks, methods as expressions, the paper's numbers, the claims.
Its cells (data × network × method × seed) are independent; what is measured of a cell is a plain function of its
trainings, the scale's settings and the seed. All scales run the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from vicinal.data.class_folders import find
from vicinal.data.names import roots
from vicinal.papers.claims import FIRST_SEED, LATER_SEED, LOOKS, AtLeast, Claim, Key, Pair
from vicinal.papers.titles import SCALES
from vicinal.runs import Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vicinal.papers.results import Measured, Result
    from vicinal.papers.trained import Trained

T = TypeVar("T")
#: What all three scales have in common, or that of each.
Each: TypeAlias = "T | tuple[T, T, T]"

#: Options of data, networks, training or measures, by name. Their receiver checks them.
Settings: TypeAlias = "Mapping[str, Any]"
NOTHING: Settings = {}

#: From trained models, settings and a seed to metrics and curves. A function of a module, so that any process finds it.
Measure: TypeAlias = "Callable[[Sequence[Trained], Settings, int], Measured]"
#: From settings and a seed to a training in a folder.
Train: TypeAlias = "Callable[[Settings, int, Path], None]"


@dataclass(frozen=True)
class Data:
    """A data set of a recipe."""

    source: str
    """What `vicinal.data.load` takes. For users it is a name of torchvision, scikit-learn or Hugging Face."""
    options: Settings = field(default_factory=dict)
    """Of `vicinal.data.load`. Its seed is the cell's: every seed draws splits and subsets of its own."""
    training: Settings = field(default_factory=dict)
    """Fields of `FitConfig` in which training on these data differs from the scale's."""
    corrupt: float = 0.0
    """The share of training labels that are randomly relabelled."""


@dataclass(frozen=True)
class Network:
    """A network by name, with its options, and what its training changes."""

    name: str | None = None
    options: Settings = field(default_factory=dict)
    training: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """An objective as an expression, and what else the method changes: the network's options, the training."""

    expression: str
    network: Settings = field(default_factory=dict)
    training: Settings = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What a recipe is at one scale."""

    seeds: Sequence[int]
    """Of weights, order, mixing, and of splits and subsets."""
    looks: Sequence[int] = LOOKS
    """Numbers of seeds at which claims are judged; the last is the most there will be."""
    minutes: float
    """How long these seeds take: below `paper` on two cores as two one-thread processes, at `paper` on one GPU."""
    data: Mapping[str, Data] = field(default_factory=dict)
    """By the names that rows have."""
    networks: Mapping[str, Network] = field(default_factory=dict)
    """By the names that rows have."""
    networks_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names of the networks of a data set, where it does not go with all of them."""
    training: Settings = field(default_factory=dict)
    """Fields of `FitConfig` that differ from the defaults for the kind of data."""
    settings: Settings = field(default_factory=dict)
    """Of what is measured."""
    about: str = ""
    """What differs from the paper."""

    def pairs(self) -> Iterator[Pair]:
        """Yield every data set with each of its networks."""
        return (Pair(data, network) for data in self.data for network in self.networks_of.get(data, self.networks))


def three_scales(
    *,
    seeds: Each[int],
    minutes: Each[float],
    looks: Sequence[int] | Sequence[Sequence[int]] = LOOKS,
    data: Each[Mapping[str, Data]] = NOTHING,
    networks: Each[Mapping[str, Network]] = NOTHING,
    networks_of: Each[Mapping[str, Sequence[str]]] = NOTHING,
    training: Each[Settings] = NOTHING,
    settings: Each[Settings] = NOTHING,
    about: Each[str] = "",
) -> dict[str, Scale]:
    """Return the three scales of a recipe, side by side: a tuple has what is each scale's own.

    `seeds` are numbers of seeds. `looks` are those of all scales, or a sequence of three.

    >>> of = three_scales(seeds=(3, 5, 1), minutes=(1, 10, 600), data={"Iris": Data("iris")})
    >>> of["night"].seeds, of["night"].minutes, list(of["night"].data)
    (range(1000, 1005), 10, ['Iris'])
    """
    return {
        scale: Scale(
            seeds=range(FIRST_SEED, FIRST_SEED + _of(seeds, i)),
            looks=_looks(looks, i),
            minutes=_of(minutes, i),
            data=_of(data, i),
            networks=_of(networks, i),
            networks_of=_of(networks_of, i),
            training=_of(training, i),
            settings=_of(settings, i),
            about=_of(about, i),
        )
        for i, scale in enumerate(SCALES)
    }


def with_later_seeds(scales: Mapping[str, Scale]) -> dict[str, Scale]:
    """Return scales whose seeds no result has.

    For a recipe that was declared after results of its cells were known: its claims must be judged on fresh ones.
    """
    return {name: replace(at, seeds=range(LATER_SEED, LATER_SEED + len(at.seeds))) for name, at in scales.items()}


def _of(values: Each[T], i: int) -> T:
    return values[i] if isinstance(values, tuple) else values


def _looks(looks: Sequence[int] | Sequence[Sequence[int]], i: int) -> tuple[int, ...]:
    """Return the looks of a scale: those of all scales, or one sequence for each."""
    own = looks[i]
    return tuple(own) if isinstance(own, Sequence) else tuple(n for n in looks if isinstance(n, int))


@dataclass(frozen=True, eq=False)
class Cell:
    """One row of a recipe with one seed."""

    key: Key
    seed: int
    measure: Measure
    settings: Settings = field(default_factory=dict)
    trainings: tuple[Experiment, ...] = ()
    train: Train | None = None
    """Of a row that no experiment describes: trains it, given its settings, the seed and a folder."""

    @property
    def name(self) -> str:
        """The row."""
        return " · ".join(self.key)


class Reported(float):
    """A number of a paper with the deviation that is printed beside it.

    >>> Reported(91.8, 0.1) - 90, Reported(91.8, 0.1)
    (1.7999999999999972, 91.8 ± 0.1)
    """

    deviation: float

    def __new__(cls, value: float, deviation: float) -> Reported:
        """Return the number with its deviation."""
        made = super().__new__(cls, value)
        made.deviation = deviation
        return made

    def __repr__(self) -> str:
        return f"{float(self):.12g} ± {self.deviation:g}"


def reported(text: str) -> float:
    """Return a number as a paper prints it, `2.54` or `2.54±0.8`."""
    value, _, deviation = text.partition("±")
    return Reported(float(value), float(deviation)) if deviation else float(value)


def three(text: str) -> tuple[float, float, float]:
    """Return three numbers of a row as a paper prints them.

    >>> three("91.8±0.1 61±8 7.7")
    (91.8 ± 0.1, 61 ± 8, 7.7)
    """
    first, second, third = map(reported, text.split())
    return first, second, third


class Printed(NamedTuple):
    """Where a paper prints a number, and in which unit."""

    row: str
    column: str
    unit: str = "%"
    """`"%"`, `"× 100"`, `"share"`, or `"accuracy"` in percent, of which the error is the rest."""

    def value(self, number: float) -> float:
        """Return a printed number as metrics are kept here: shares, nats, errors in place of accuracies."""
        return number if self.unit == "share" else 1 - number / 100 if self.unit == "accuracy" else number / 100


def where_printed(
    row: Callable[[Key], str], columns: Mapping[str, tuple[str, str]]
) -> Callable[[Key], dict[str, Printed]]:  # fmt: skip
    """Return where a paper prints the metrics of a cell: its row by the cell's key, columns and units by the metric.

    >>> where_printed(lambda key: key[-1], {"error": ("accuracy (%)", "accuracy")})(("CIFAR-10", "VGG", "Mixup"))
    {'error': Printed(row='Mixup', column='accuracy (%)', unit='accuracy')}
    """
    return lambda key: {metric: Printed(row(key), *column) for metric, column in columns.items()}


class Place(NamedTuple):
    """A table or figure: its paper, its name there and what it shows."""

    paper: str
    name: str
    title: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe:
    """A table or figure of a paper."""

    place: Place
    """Where it stands and what it shows."""
    scales: Mapping[str, Scale]
    """`cpu`, `night` and `paper`."""
    measure: Measure
    """What is measured of each cell."""
    claims: Callable[[Scale], Iterable[Claim | AtLeast]]
    """What the paper says, for the data and networks of a scale."""
    columns: Mapping[str, str]
    """The metrics of the printed table, by their titles there; `%` in a title means a share times 100."""
    methods: Mapping[str, Method] | Callable[[Pair, Scale], Mapping[str, Method]] = field(default_factory=dict)
    """By the names that rows have: for all data and networks, or a function of both and the scale."""
    published: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    """The paper's numbers: a row's name, then metrics by name, as printed there."""
    printed: Callable[[Key], Mapping[str, Printed]] | None = None
    """Where `published` has the metrics of a cell, by their names. Below paper scale the paper's data and networks
    stand beside those that replace them."""
    original: Mapping[str, object] = field(default_factory=dict)
    """In what the paper differs from the `paper` scale: options of data and training, or of single networks; in words
    what no option says."""
    hardware: Settings = field(default_factory=dict)
    """What its trainings were given on top by `papers.hardware`, which a result records."""
    draw: Callable[[Result], Figure] | None = None
    """Plots a result, which may have some of the rows and other seeds only."""
    curves: Sequence[str] = ()
    """Curves that a cell keeps at paper scale, which `draw` shows."""
    trainings: Callable[[Experiment], tuple[Experiment, ...]] | None = None
    """Of a cell, if it needs others than its own row's: a function of the row's experiment, which comes first."""
    cells: Callable[[Scale], Iterable[tuple[Key, Settings]]] | None = None
    """Rows of a scale as (key, settings) that are no trainings; they follow those that are."""
    train: Train | None = None
    """Trains each of these rows into a folder before it is measured; None where the measure alone does all."""
    check: Callable[[Scale], object] | None = None
    """Looks for what the recipe needs beside its data, before anything runs."""
    reading: Sequence[str] = ()
    """How the paper was read where it leaves something open; slips of the paper."""
    pilot: str = ""
    """What was looked at, on which seeds, before the settings were fixed."""
    further: Mapping[str, Method] = field(default_factory=dict)
    """Methods that no claim is about, run to examine a verdict that contradicts the paper: by the names of rows."""
    findings: Sequence[str] = ()
    """What that verdict comes from."""

    def rows(self, scale: str, seeds: Sequence[int] | None = None) -> list[Cell]:
        """Return the cells of a scale, seed by seed: half of them then say something of every row."""
        at = self.scales[scale]
        return [cell for seed in (at.seeds if seeds is None else seeds) for cell in self.rows_of_seed(at, seed)]

    def rows_of_seed(self, at: Scale, seed: int) -> Iterator[Cell]:
        """Yield the cells of a scale with one seed."""
        for on in at.pairs():
            for name, method in self.methods_of(on, at).items():
                one = experiment(at, on, method, seed)
                trainings = (one,) if self.trainings is None else self.trainings(one)
                yield Cell(on.cell(name), seed, self.measure, dict(at.settings), trainings)
        for key, settings in () if self.cells is None else self.cells(at):
            yield Cell(key, seed, self.measure, {**at.settings, **settings}, train=self.train)

    def methods_of(self, on: Pair, at: Scale) -> Mapping[str, Method]:
        """Return the methods of a data set with a network at a scale, those that examine a verdict last."""
        return {**(self.methods(on, at) if callable(self.methods) else self.methods), **self.further}


def experiment(at: Scale, on: Pair, method: Method, seed: int) -> Experiment:
    """Return the training of a row."""
    of, net = at.data[on.data], at.networks[on.network]
    return Experiment(
        source=of.source,
        method=method.expression,
        data={**of.options, "seed": seed},
        model=net.name,
        model_options={**net.options, **method.network},
        training={"trackers": [], **at.training, **of.training, **net.training, **method.training},
        corrupt=of.corrupt,
        seed=seed,
    )


def needed(name: str, *, by: str, what: str) -> Path:
    """Return the file of that name below the data root, or say what it is and which recipe needs it."""
    path = find(name, roots(None))
    if path is None:
        raise FileNotFoundError(f"{by} needs {name} below the data root: {what}")
    return path


def keeps_plot_data(seed: int) -> bool:
    """Return whether a cell keeps what only the plot shows: one seed in ten does, so that files stay small."""
    return seed % 10 == 0


def methods(*expressions: str) -> dict[str, Method]:
    """Return methods by their expressions."""
    return {expression: Method(expression) for expression in expressions}
