"""The options of `load`, one record for each concern: each option is stated once, as a field.

A field's metadata holds its check, its help text and how the command writes its value. `vicinal train --help` and the
checks of `load` come from here. This module imports no torch, so that `--help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from vicinal._atomic import Json
from vicinal._checks import ArgumentError, ArgumentTypeError, choice, flag, integer, nearest_names, number

#: How numbers of a table are encoded: standardised; with piecewise-linear features; with these and ranks.
FEATURES = ("standard", "piecewise", "ranked")
#: What may stand before decimals, and between thousands. `vicinal.tables` has them too, and costs the import of numpy.
DECIMALS, THOUSANDS = (".", ","), (",", ".", " ", "'")
#: What a sound becomes.
FRONT_ENDS = ("spectrogram", "mel", "waveform")
#: The most pixels of an image that is decoded by default: Pillow refuses more too.
MOST_PIXELS = 178_956_970

Check = Callable[[str, Any], Any]
Record = TypeVar("Record", bound="Options")


def share_of(name: str, value: float | int, n: int) -> float:
    """Return `value` as a share of `n`. An integer is a number of samples, a float is a share already."""
    if isinstance(value, int) and not isinstance(value, bool):
        return integer(name, value, low=0) / max(n, 1)
    share = number(name, value, low=0, high=1)
    if share == 1:
        raise ValueError(f"{name} must be a share below 1, or a number of samples (an integer), got {value}")
    return share


def bad_limit(max_bad: float | int, n: int) -> float:
    """Return how many of `n` rows or files may be bad. An integer is a number, a float is a share."""
    if isinstance(max_bad, int) and not isinstance(max_bad, bool):
        return number("max_bad", max_bad, low=0)
    return number("max_bad", max_bad, low=0, high=1) * n


def _as_is(name: str, value: Any) -> Any:
    return value


def _share(name: str, value: Any) -> float | int:
    share_of(name, value, 1)
    return value  # type: ignore[no-any-return]


#: `val=TEST`: the test set is the validation set too, as where a paper chose its epoch on the test set.
TEST = "test"


def _share_or_test(name: str, value: Any) -> float | int | str:
    return TEST if value == TEST else _share(name, value)


def _limit(name: str, value: Any) -> float | int:
    bad_limit(value, 1)
    return value  # type: ignore[no-any-return]


def _one_of(allowed: Sequence[str]) -> Check:
    return lambda name, value: choice(name, value, allowed)


def _at_least(low: int) -> Check:
    return lambda name, value: integer(name, value, low=low)


def _names(name: str, value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _map(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise ArgumentError(name, value, "names of classes by the names that they have in the data")
    return dict(value)


def _statistics(name: str, value: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    mean, std = (tuple(map(float, values)) for values in value)
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise ArgumentError(name, value, "three means and three standard deviations above 0")
    return mean, std


def option(default: Any, help: str, check: Check = _as_is, *, metavar: str = "", cli: Any = str) -> Any:
    """Return a field of an option record.

    Parameters
    ----------
    default
        The default. None means that the data decide.
    help
        One sentence, for `--help` and the reference.
    check
        Returns the checked value, given the option's name and value. None is never checked.
    metavar
        How the command shows the value.
    cli
        The type that the command parses: a type, `"share"` (a share or a number), or None if there is no such option.
    """
    return field(default=default, metadata={"help": help, "check": check, "metavar": metavar, "cli": cli})


@dataclass(frozen=True, kw_only=True)
class Options:
    """A record of options, checked when it is made."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None:
                object.__setattr__(self, one.name, one.metadata["check"](one.name, value))

    @classmethod
    def pop_from(cls: type[Record], config: Json) -> Record:
        """Return the record that a flat mapping sets, and take its options out of the mapping."""
        return cls(**{one.name: config.pop(one.name) for one in fields(cls) if one.name in config})

    @classmethod
    def given(cls: type[Record], records: Iterable[Options]) -> Record:
        """Return the record of this class among several, or one of defaults."""
        found = [record for record in records if isinstance(record, cls)]
        if len(found) > 1:
            raise ValueError(f"pass one {cls.__name__}, got {len(found)}")
        return found[0] if found else cls()


@dataclass(frozen=True, kw_only=True)
class ReadOptions(Options):
    """How files are found and read: what `load`, `read` and `stream` share.

    Examples
    --------
    >>> ReadOptions(missing_values=["-999"], decimal=",").missing_values
    ('-999',)
    """

    max_bad: float | int = option(0.05, "Share (or number) of bad rows or files to skip.", _limit, cli="share")
    encoding: str | None = option(None, "Encoding of a text file, such as latin-1.")
    header: bool = option(True, "Whether the first line of a table names the columns.", flag, cli=bool)
    decimal: str | None = option(
        None, "Mark before decimals in text. Default: all cells decide.", _one_of(DECIMALS), metavar=".|,"
    )
    thousands: str | None = option(
        None, "Only mark allowed between thousands in text.", _one_of(THOUSANDS), metavar="MARK"
    )
    day_first: bool | None = option(None, "Whether 05/07/2020 is 5 July. Default: all cells decide.", flag, cli=bool)
    missing_values: Sequence[str] = option(
        (), "Cell that means missing, such as -999. May be repeated.", _names, metavar="TEXT", cli=list[str]
    )
    data_root: str | Path | None = option(  # noqa: RUF009 (it returns a field)
        None, "Folder of named data sets. Default: the folder in VICINAL_DATA.", metavar="FOLDER"
    )


@dataclass(frozen=True, kw_only=True)
class SplitOptions(Options):
    """How samples are split into train, val and test, and how many are used.

    Examples
    --------
    >>> import pandas as pd
    >>> from vicinal.data import load
    >>> frame = pd.DataFrame({"x": [i / 7 for i in range(40)], "y": ["a", "b"] * 20})
    >>> task = load(frame, SplitOptions(val=8, test=0.2), target="y")
    >>> len(task.train), len(task.val), len(task.test)
    (24, 8, 8)
    """

    val: float | int | str = option(
        0.15, "Share (or number) of samples to select and calibrate on.", _share_or_test, cli="share"
    )
    test: float | int = option(0.15, "Share (or number) of samples to evaluate on.", _share, cli="share")
    seed: int = option(0, "Random seed of the split.", lambda name, value: integer(name, value), cli=int)
    train_size: int | None = option(None, "Train on this many samples only.", _at_least(1), cli=int)
    subset: str = option(
        "stratified",
        "How these are drawn: every class in its proportion, or uniformly.",
        _one_of(("stratified", "random")),
        metavar="stratified|random",
    )
    subset_seed: int | None = option(
        None, "Random seed of the training subset. Default: that of the split.", integer, cli=None
    )
    max_held_out: int | None = option(
        None, "Validate and test on at most this many samples each.", _at_least(1), cli=int
    )
    rare: str | None = option(
        None,
        "Classes with one sample: keep them in training, or fail. Default: kept if they are few.",
        _one_of(("error", "train")),
        metavar="error|train",
    )
    map_class: Mapping[str, str] | None = option(
        None, "Other names of classes, to rename or merge them.", _map, cli=None
    )
    group: str | None = option(None, "Column whose rows of one value stay on one side of the split.", metavar="COLUMN")
    time: str | None = option(None, "Column to split by: the latest rows are the test set.", metavar="COLUMN")


@dataclass(frozen=True, kw_only=True)
class TableOptions(Options):
    """How the columns of a table become features.

    Examples
    --------
    >>> TableOptions(drop=["id"]).drop
    ('id',)
    """

    weight: str | None = option(None, "Column of numbers that say how much each row counts.", metavar="COLUMN")
    drop: Sequence[str] = option(
        (), "Column of a table not to learn from. May be repeated.", _names, metavar="COLUMN", cli=list[str]
    )
    features: str = option(
        "standard", "How numbers are encoded: standardised, with pieces, with ranks.", _one_of(FEATURES), cli=None
    )


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """Which columns hold texts, and how they become tokens.

    Examples
    --------
    >>> TextOptions(text=["premise", "hypothesis"], max_length=64).max_length
    64
    """

    text: str | Sequence[str] | None = option(
        None, "Column that holds the text. Give it twice for pairs of texts.", metavar="COLUMN", cli=list[str]
    )
    choice: str | Sequence[str] | None = option(
        None, "Column of an answer to choose from, or of lists of answers.", metavar="COLUMN", cli=list[str]
    )
    tokenizer: str | None = option(
        None, "'words', 'minilm' or a Hugging Face checkpoint. Default: MiniLM if installed.", cli=None
    )
    max_length: int = option(256, "The most tokens of a text.", _at_least(8), cli=int)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of texts, none where the table decides."""
        return () if self.text is None else _names("text", self.text)


@dataclass(frozen=True, kw_only=True)
class ImageOptions(Options):
    """How images are read.

    Examples
    --------
    >>> ImageOptions(image_size=64).image_size
    64
    """

    image_size: int | None = option(
        None, "Side of the images in pixels. Default: their own up to 128, else 224.", _at_least(8), cli=int
    )
    max_pixels: int = option(MOST_PIXELS, "The most pixels of an image that is read.", _at_least(1), cli=int)
    normalisation: tuple[Sequence[float], Sequence[float]] | None = option(
        None, "Mean and standard deviation of red, green and blue. Default: measured.", _statistics, cli=None
    )


@dataclass(frozen=True, kw_only=True)
class AudioOptions(Options):
    """How sounds are read.

    Examples
    --------
    >>> AudioOptions(seconds=2, front_end="mel").front_end
    'mel'
    """

    seconds: float | None = option(
        None,
        "Length of a sound. Default: the median length, at most 10 s.",
        lambda name, value: number(name, value, above=0),
        cli=float,
    )
    front_end: str = option(
        "spectrogram",
        "What a sound becomes, and is mixed as. The command's default network has mel.",
        _one_of(FRONT_ENDS),
        metavar="spectrogram|mel|waveform",
    )


#: Every record that `load` takes.
RECORDS: tuple[type[Options], ...] = (ReadOptions, SplitOptions, TableOptions, TextOptions, ImageOptions, AudioOptions)


def records_from(config: Mapping[str, object], *, others: Iterable[str] = ()) -> list[Options]:
    """Return the records that a flat mapping sets, such as the `data` of a run's config.json.

    Parameters
    ----------
    config
        Options by name, whichever record they belong to.
    others
        Names that are allowed and belong to no record.

    >>> records_from({"val": 0.2, "drop": ["id"]})[1]
    TableOptions(weight=None, drop=('id',), features='standard')
    """
    home: dict[str, type[Options]] = {one.name: record for record in RECORDS for one in fields(record)}
    for name in config:
        if name not in home and name not in others:
            known = [*home, *others]
            raise ArgumentTypeError(name, config[name], f"an option of load{nearest_names(name, known)}")
    values = {record: {n: v for n, v in config.items() if home.get(n) is record} for record in RECORDS}
    return [record(**given) for record, given in values.items() if given]


def command_options() -> list[Field[Any]]:
    """Return the fields that the command has options for."""
    return [one for record in RECORDS for one in fields(record) if one.metadata["cli"] is not None]
