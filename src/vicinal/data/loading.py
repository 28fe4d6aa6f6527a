"""From a path or a name to a task: what kind of data it is, which classes, which splits, which preprocessing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, ArgumentError, Sentence, integer, nearest_names
from vicinal._checks import choice as one_of
from vicinal.data import audio, images, sources
from vicinal.data.audio import read_sound
from vicinal.data.files import Folder, give_up, listed, read_all
from vicinal.data.images import ImagePreprocessing
from vicinal.data.kinds import names_and_parts
from vicinal.data.labels import combined, combined_name, label_matrix, label_notes, refuse_constant
from vicinal.data.leaks import ALMOST_ALL, giving_away
from vicinal.data.multiple_choice import from_choices, refuse_lists
from vicinal.data.named import Arrays
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.published import NamedTable
from vicinal.data.rows import Rows
from vicinal.data.splitting import (
    PARTS,
    Labels,
    Positions,
    as_positions,
    grouped_split,
    ordered_split,
    random_subset,
    smallest_type,
    split_positions,
    stratified_subset,
)
from vicinal.data.tables import TableOptions, from_table, plain
from vicinal.data.tabular import FEATURES, TabularPreprocessing
from vicinal.data.task import Items, Split, Task, Unsplit
from vicinal.data.text import TextPreprocessing
from vicinal.progress import stage
from vicinal.tables import Table, renamed

__all__ = ["KINDS", "load", "read"]

_RARE, _SUBSETS = ("error", "train"), ("stratified", "random")
#: Classes of one sample are kept if they are no larger a share of the samples, unless it is said what to do with them.
_FEW_SINGLE = 0.01
#: The kinds of data.
KINDS = ("tabular", "text", "image", "audio")


@dataclass(frozen=True, eq=False)
class _New:
    """What was read of new data."""

    items: Items
    origins: Sequence[object]
    readable: Sequence[int]
    """The positions of samples that could be read."""
    names: Sequence[str | None] | None
    """The class of each sample; None where there are none."""
    parts: Sequence[str] | None
    """Which part of a source that is split already each sample belongs to."""
    notes: list[str]


def load(
    source: object,
    *,
    target: str | Sequence[str] | None = None,
    text: str | Sequence[str] | None = None,
    choice: str | Sequence[str] | None = None,
    kind: str | None = None,
    seed: int = 0,
    val: float | int = 0.15,
    test: float | int = 0.15,
    train_size: int | None = None,
    subset: str = "stratified",
    subset_seed: int | None = None,
    max_held_out: int | None = None,
    splits: Mapping[str, Sequence[int]] | None = None,
    fitted: Preprocessing | None = None,
    max_bad: float | int = 0.05,
    rare: str | None = None,
    drop: str | Sequence[str] = (),
    group: str | None = None,
    time: str | None = None,
    features: str = "standard",
    encoding: str | None = None,
    header: bool = True,
    tokenizer: str | None = None,
    max_length: int = 256,
    augment: str | None = None,
    image_size: int | None = None,
    normalisation: tuple[Sequence[float], Sequence[float]] | None = None,
    seconds: float = 1.0,
    front_end: str = "spectrogram",
    max_pixels: int = images.MOST_PIXELS,
    data_root: str | Path | None = None,
) -> Task:
    """Load data to train a classifier on.

    Parameters
    ----------
    source
        `"digits"` (8×8 images that come with scikit-learn); a CSV, TSV, JSON-lines or Parquet file, or a pandas
        DataFrame; a folder of class folders of images or of WAV, FLAC or OGG sounds; a folder already split into
        `train` and `val`, `test` or both (of class folders, or of tables); an NPZ file of image arrays; a torchvision
        name (`"fashion-mnist"`, `"cifar10"`, …); a Hugging Face one (`"hf:NAME"` or `"hf:NAME:CONFIG"`).
    target
        The column of a table that holds the class; or several columns of 0 and 1, labels that exclude nothing, of
        which each sample then has one of each (`Task.task` is "multilabel").
    text
        The column that holds the text, or two of them for pairs; else a table's only long free strings.
    choice
        The columns of answers to choose from, or one column of lists of them; `text` is then what comes before each,
        and `target` holds the number of the right one, from 0.
    kind
        `"tabular"`, `"text"`, `"image"` or `"audio"`, where what is inferred is not what is meant.
    seed
        What splits and subsets are drawn from.
    val, test
        The share of samples to hold out, or their number if an integer; a source's own splits come first.
    train_size
        Train on this many samples only.
    subset, subset_seed
        How these are drawn: `"stratified"`, every class in its proportion, or `"random"`; and from what, `seed` if not
        given. With another one for each run the subset changes while the held-out samples stay.
    max_held_out
        Validate and test on at most this many samples each, every class in its proportion: of a published test set of
        thousands a part may do.
    splits
        Saved `Task.splits`, to be used again.
    fitted
        What encoded the rows of the table before (`Task.preprocessing`), to be used again, or what size the images of a
        folder had; other kinds of data are fitted anew.
    max_bad
        How many rows or files may be unreadable before it is an error: a share, or a number if an integer.
    rare
        What to do with classes of a single sample: `"train"` keeps it in the training set, `"error"` refuses them. If
        not given, they are kept where they are at most one in a hundred samples.
    drop
        Columns of a table that are not to be learned from.
    group
        A column of a table whose rows of one value, such as a patient, stay on one side of the split. Without it rows
        that are copies of others do.
    time
        A column of dates or numbers to split a table by: the latest rows are the test set, those before them the
        validation set.
    features
        How numbers of a table are encoded: `"standard"`, or `"piecewise"` with piecewise-linear features beside it, or
        `"ranked"` with their ranks besides.
    encoding, header
        How a CSV is written; whether its first line names the columns (else they are "1", "2", …).
    tokenizer
        `"words"` (a vocabulary built on the training texts, for the sentence CNN), `"minilm"`, or a Hugging Face
        checkpoint; MiniLM's if `vicinal[text]` is installed, else words.
    max_length
        The most tokens of a text.
    augment
        Of images `"standard"` (crop and flip), `"crop"` or `"none"`; of sounds `"standard"` (a random piece of longer
        ones), `"specaugment"` (blanked bands of frequencies and of time, besides) or `"none"`. What suits the data if
        not given.
    image_size
        The side that images are resized to, in pixels; their own up to 128, else 224.
    normalisation
        Mean and standard deviation of red, green and blue in [0, 1] that images are normalised by, as pretrained
        weights expect; those of the training images if not given.
    seconds
        The length of a sound.
    front_end
        What a sound becomes: a log-`"spectrogram"`, one of `"mel"` bands, or a `"waveform"`. It is what is mixed.
    max_pixels
        An image file that claims more is not read: it would fill the memory.
    data_root
        Where data sets are looked for; else the folder that the environment variable VICINAL_DATA names.

    >>> task = load("digits")
    >>> task.kind, len(task.classes), {name: len(part) for name, part in task.splits.items()}
    ('image', 10, {'train': 1259, 'val': 269, 'test': 269})
    >>> x, y = task.train[0]
    >>> x.shape
    torch.Size([1, 8, 8])
    """
    for argument, value, allowed in (("kind", kind, KINDS), ("rare", rare, _RARE), ("subset", subset, _SUBSETS)):
        if value is not None:
            one_of(argument, value, allowed)
    names = [target] if isinstance(target, str) else list(target or ())
    targets, one = names if len(names) > 1 else [], combined_name(names) if names else None
    with stage("opening the data"):
        opened = sources.open_data(source, kind, encoding, header, data_root, None if targets else one)
    columns: dict[str, Any] = {"target": one, "text": text, "group": group, "time": time}
    how: dict[str, Any] = {"kind": kind, "max_bad": max_bad, "tokenizer": tokenizer, "max_length": max_length}
    how |= {"features": one_of("features", features, FEATURES[:3]), "drop": [drop] if isinstance(drop, str) else drop}
    asked = TableOptions(**columns, **how, labels=targets, fitted=fitted)
    if isinstance(opened, NamedTable):
        asked, choice, opened = _as_published(asked, opened), choice or opened.choices or None, opened.table
    if isinstance(opened, Table):
        with stage("reading the table"):
            samples = _from_opened_table(opened, asked, choice)
    else:
        _refuse_options(opened, source, kind, **columns, choice=choice, drop=drop or None)
        heard = seconds, front_end
        samples = sources.from_files(opened, max_bad, image_size, seed, *heard, max_pixels, normalisation, fitted)
    if augment is not None:
        one_of("augment", augment, audio.AUGMENTATIONS if samples.kind == "audio" else images.AUGMENTATIONS)
    classes, labels, notes = _encoded(samples, "train" if targets else rare)
    parts, drawn = _split(samples, labels, val=val, test=test, seed=seed, splits=splits)
    drawn += _draw_fewer(parts, labels, len(classes), seed, max_held_out, train_size, subset, subset_seed)
    if targets:
        classes, labels, notes = _several_labels(targets, classes, labels, parts["train"])
    else:
        _refuse_absent(classes, labels[parts["train"]])
    with stage("encoding"):
        preprocessing, items, more = samples.fit(parts["train"])
        warned = _giving_away(preprocessing, items, labels, parts["train"])
    augmented = {"train": samples.augment if augment is None else augment, "val": "none", "test": "none"}
    splits_of = {
        name: Split(preprocessing, items, samples.origins, labels, parts[name], augment=how, seed=seed)
        for name, how in augmented.items()
    }
    return Task(
        name=str(source) if isinstance(source, (str, Path)) else "table",
        kind=samples.kind,
        classes=classes,
        **splits_of,
        preprocessing=preprocessing,
        fingerprint=samples.fingerprint,
        notes=(*samples.notes, *more, *notes, *drawn),
        warnings=warned,
        groups=samples.groups,
        task="multilabel" if targets else "multiclass",
    )


def _several_labels(
    targets: Sequence[str], combinations: tuple[str, ...], labels: NDArray[np.int64], train: Positions
) -> tuple[tuple[str, ...], NDArray[np.int64], list[str]]:
    """Return the names of labels, what each sample has of them, and how often: its class was their combination."""
    matrix = label_matrix(combinations, labels)
    refuse_constant(targets, matrix[train])
    return tuple(targets), matrix, [label_notes(targets, matrix)]


def _as_published(asked: TableOptions, named: NamedTable) -> TableOptions:
    """Return what is asked of a data set by name: its own columns where none were given, and classes as they are."""
    return replace(
        asked,
        target=asked.target or named.target,
        text=asked.text or named.text or None,
        known_classes=asked.target in (None, named.target),
        published=True,
    )


def _from_opened_table(table: Table, asked: TableOptions, choice: str | Sequence[str] | None) -> Unsplit:
    if asked.labels:
        if choice:
            raise ValueError(Sentence(Argument("choice"), " has one target, the number of the right answer"))
        return from_table(combined(table, asked.labels), replace(asked, known_classes=True))
    if choice:
        return from_choices(table, asked.target, asked.text, choice, asked.max_bad, asked.tokenizer, asked.max_length)
    refuse_lists(table, asked.text, asked.kind, asked.drop)
    return from_table(table, asked)


def _giving_away(
    preprocessing: Preprocessing, items: Any, labels: NDArray[np.int64], train: Positions
) -> tuple[str, ...]:
    """Return sentences on the columns of a table that alone tell the classes apart."""
    if not isinstance(preprocessing, TabularPreprocessing):
        return ()
    return tuple(
        Sentence(
            f"the column {name!r} alone {'' if auroc > ALMOST_ALL else 'almost '}gives the answer away (AUROC "
            f"{auroc:.4f}): if it is not known when the model is used, leave it out, ",
            Argument("drop", name),
        )
        for column in (labels.T if labels.ndim == 2 else [labels])
        for name, auroc in giving_away(preprocessing, items, column, train).items()
    )


def _refuse_absent(classes: Sequence[str], labels: NDArray[np.int64]) -> None:
    """Refuse training labels that lack a class: it could not be learned."""
    absent = [repr(classes[k]) for k in np.setdiff1d(range(len(classes)), labels).tolist()]
    if absent:
        remedy = "all are held out; merge such classes with others, remove them, or draw another split"
        raise ValueError(f"the training set has no sample of {listed(absent)}: {remedy}")


def _draw_fewer(
    parts: dict[str, Positions],
    labels: NDArray[np.int64],
    n_classes: int,
    seed: int,
    max_held_out: int | None,
    train_size: int | None,
    subset: str,
    subset_seed: int | None,
) -> list[str]:
    """Keep at most so many held-out samples of each part and so many training samples; return notes that say so."""
    notes: list[str] = []
    if max_held_out is not None:
        if integer("max_held_out", max_held_out, low=1) < n_classes:
            raise ArgumentError("max_held_out", max_held_out, f"at least {n_classes}, one sample of each class")
        for name in ("val", "test"):
            if len(parts[name]) > max_held_out:
                parts[name] = parts[name][stratified_subset(labels[parts[name]], max_held_out, seed=seed)]
        sizes = f": {len(parts['val'])} validation and {len(parts['test'])} test samples"
        notes.append(Sentence(Argument("max_held_out"), sizes))
    if train_size is not None:
        draw = stratified_subset if subset == "stratified" else random_subset
        chosen = draw(labels[parts["train"]], train_size, seed=seed if subset_seed is None else subset_seed)
        parts["train"] = parts["train"][chosen]
        how_drawn = "every class in its proportion" if subset == "stratified" else "drawn at random"
        notes.append(Sentence(Argument("train_size"), f": {train_size} training samples, {how_drawn}"))
    return notes


def _refuse_options(opened: Folder | Arrays, source: object, kind: str | None, **columns: object) -> None:
    """Refuse what only a table has, and a kind that is not the source's."""
    for argument, value in columns.items():
        if value is not None:
            what = f" names a column, but {str(source)!r} is not a table: leave it out"
            raise ValueError(Sentence(Argument(argument, value), what))
    if kind not in (None, "image" if isinstance(opened, Arrays) else opened.kind):
        raise ValueError(Sentence(Argument("kind", kind), f" does not fit {str(source)!r}: leave it out"))


def read(
    source: object,
    preprocessing: Preprocessing,
    *,
    classes: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    max_bad: float | int = 0.05,
    encoding: str | None = None,
    header: bool = True,
    data_root: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    class_names: Mapping[str, str] | None = None,
    part: str | None = None,
) -> Split:
    """Read new data as a model's fitted preprocessing prescribes, to predict or to evaluate.

    Columns are found by name: new ones are ignored and named in `notes`, a missing one is an error. Values that
    training never saw, and missing ones, are handled as `TabularPreprocessing` says. Rows that cannot be told apart as
    rows (too many fields) and unreadable files are left out, and named.

    Parameters
    ----------
    source
        All that `load` takes, a single image or sound, or a folder of them.
    preprocessing
        `Task.preprocessing`, or what `Preprocessing.from_dict` returned.
    classes
        The model's classes. With them the data must be labelled, and samples of other classes are left out; without,
        `labels` is None.
    labels
        Of a model of several labels, instead of classes: the columns of 0 and 1. Rows that lack one are left out.
    max_bad, encoding, header, data_root
        As in `load`.
    columns
        What columns of this table are called in the model's: `{"q1": "premise"}`.
    class_names
        What its classes are called in the model's: `{"paraphrase": "entailment"}`; several may become one.
    part
        `"train"`, `"val"` or `"test"`: that part alone, where the source is split already, which `notes` then say. For
        a missing test part the validation part stands, and for a missing validation part the training part.
    """
    if labels and class_names:
        raise ValueError(Sentence(Argument("class_names", class_names), " needs classes, and the model has labels"))
    target = None if labels else getattr(preprocessing, "target", None)
    opened = sources.open_data(source, preprocessing.kind, encoding, header, data_root, target)
    if isinstance(opened, NamedTable):
        opened = opened.table
    if isinstance(opened, Table):
        opened = _renamed(opened, columns or {})
        opened = combined(opened, labels) if labels else opened
        new = _read_table(opened, preprocessing, max_bad, labelled=bool(classes or labels))
    elif columns or labels:
        argument = Argument("columns", columns) if columns else Argument("labels", labels)
        raise ValueError(Sentence(argument, f" names columns, but {str(source)!r} is not a table"))
    elif isinstance(opened, Arrays):
        new = _read_arrays(opened, preprocessing)
    else:
        new = _read_folder(opened, preprocessing, max_bad)
    chosen, notes = new.readable, new.notes
    if part is not None and new.parts is not None:
        part = _part_there(one_of("part", part, PARTS), {new.parts[i] for i in new.readable})
        chosen = [i for i in new.readable if new.parts[i] == part]
        notes.append(f"it is split already: its {part} part, {len(chosen)} of {len(new.readable)} samples")
    answers: NDArray[np.int64] | None = None
    if labels:
        answers, chosen = _known_labels(new, chosen, labels, str(source))
    elif classes is not None:
        answers, chosen = _known_classes(new, chosen, classes, class_names or {}, str(source))
    return Split(preprocessing, new.items, new.origins, answers, chosen, notes=notes)


def _known_classes(
    new: _New, chosen: Sequence[int], classes: Sequence[str], class_names: Mapping[str, str], source: str
) -> tuple[NDArray[np.int64], list[int]]:
    """Return the class number of each sample, and those of the chosen ones that have a class of the model."""
    if new.names is None:
        raise ValueError(f"{source!r} has no classes to compare with: put its files in class folders")
    names = _class_names_of_the_model(new.names, class_names, classes)
    number_of = {name: k for k, name in enumerate(classes)}
    numbers = np.array([number_of.get(str(name), -1) for name in names], np.int64)
    indices = [i for i in chosen if numbers[i] >= 0]
    strange = dict.fromkeys(repr(names[i]) if names[i] else "no class" for i in chosen if numbers[i] < 0)
    if strange:
        n = len(chosen) - len(indices)
        new.notes.append(f"left out: {n} samples of {listed(list(strange))}, which the model does not know")
    if not indices:
        raise ValueError(f"no sample of {source!r} has a class of the model: {listed([repr(c) for c in classes])}")
    return numbers, indices


def _known_labels(
    new: _New, chosen: Sequence[int], labels: Sequence[str], source: str
) -> tuple[NDArray[np.int64], list[int]]:
    """Return 0 and 1 for each label of each sample, `[N, L]`, and those of the chosen ones that have all of them."""
    names = new.names or []
    combinations = sorted({name for name in names if name})
    number_of = {name: k for k, name in enumerate(combinations)}
    indices = [i for i in chosen if names[i]]
    if not indices:
        raise ValueError(f"no row of {source!r} has all of the labels {listed([repr(name) for name in labels])}")
    if len(indices) < len(chosen):
        new.notes.append(f"left out: {len(chosen) - len(indices)} rows that lack a label")
    return label_matrix(combinations, np.array([number_of.get(str(name), -1) for name in names])), indices


def _part_there(part: str, parts: set[str]) -> str:
    """Return the part that is asked for or stands for it: never one that is held out further."""
    return next((name for name in PARTS[PARTS.index(part) :: -1] if name in parts), part)


def _renamed(table: Table, columns: Mapping[str, str]) -> Table:
    """Return the table with columns under the names that the model knows them by."""
    for name in columns:
        if name not in table.columns:
            known = nearest_names(name, table.columns)
            raise ValueError(Sentence(Argument("columns"), f": {table.name!r} has no column {name!r}{known}"))
    return renamed(table, columns) if columns else table


def _class_names_of_the_model(
    names: Sequence[str | None], mapping: Mapping[str, str], classes: Sequence[str]
) -> list[str | None]:
    for name, to in mapping.items():
        if to not in classes:
            unknown = f": the model has no class {to!r}{nearest_names(to, classes)}"
            raise ValueError(Sentence(Argument("class_names"), unknown))
        if name not in names:
            known = nearest_names(name, {str(n) for n in names if n is not None})
            raise ValueError(Sentence(Argument("class_names"), f": the data have no class {name!r}{known}"))
    return [None if name is None else mapping.get(name, name) for name in names]


def _read_table(table: Table, preprocessing: Preprocessing, max_bad: float | int, *, labelled: bool) -> _New:
    if not isinstance(preprocessing, (TabularPreprocessing, TextPreprocessing)):
        raise ValueError(f"the model takes {preprocessing.kind} data, but {table.name!r} is a table")
    items: Items
    origins: Sequence[object]
    readable: object
    if isinstance(preprocessing, TabularPreprocessing):
        items, readable, bad, notes = preprocessing.encode(table)
        origins = Rows(table, len(items))
    else:
        items, readable, bad, notes = preprocessing.texts(table)
        origins = plain(items)
    if not len(items):
        raise ValueError(f"{table.name!r} has no rows")
    skipped = give_up(list(map(str, bad)), len(items), "rows", "could not be read", max_bad)
    names, parts = names_and_parts(table, preprocessing.target if labelled else None, len(items))
    return _New(items, origins, np.flatnonzero(readable).tolist(), names, parts, [*table.notes, *skipped, *notes])


def _read_arrays(arrays: Arrays, preprocessing: Preprocessing) -> _New:
    if not isinstance(preprocessing, ImagePreprocessing):
        raise ValueError(f"the model takes {preprocessing.kind} data, but {arrays.name!r} holds images")
    items, names = sources.at_shape(preprocessing, arrays.images), [arrays.classes[k] for k in arrays.labels]
    origins = sources.numbered(arrays.name, len(names))
    return _New(items, origins, range(len(names)), names, arrays.parts, list(arrays.notes))


def _read_folder(folder: Folder, preprocessing: Preprocessing, max_bad: float | int) -> _New:
    if preprocessing.kind != folder.kind:
        where = str(folder.root)
        raise ValueError(f"the model takes {preprocessing.kind} data, but {where!r} holds {folder.kind} files")

    def take(path: Path) -> Any:
        """Return what is kept of a file: small pixels, a sound, or of a large image that it can be read."""
        if not isinstance(preprocessing, ImagePreprocessing):
            return read_sound(path)
        if not preprocessing.is_large:
            return preprocessing.pixels(path)
        images.open_image(path, max_pixels=preprocessing.max_pixels)
        return path

    good, items, notes = read_all(folder.paths, take, folder.kind, max_bad)
    origins = [str(folder.paths[i]) for i in good]
    names, parts = (None if kept is None else [kept[i] for i in good] for kept in (folder.classes, folder.parts))
    return _New(items, origins, range(len(good)), names, parts, [*folder.notes, *notes])


def _encoded(samples: Unsplit, rare: str | None) -> tuple[tuple[str, ...], Labels, list[str]]:
    """Return the classes in order and the class number of each sample, -1 for those that cannot be used."""
    counts = np.bincount(samples.labels[samples.labels >= 0], minlength=len(samples.classes))
    present = [name for name, n in zip(samples.classes, counts, strict=True) if n]
    if len(present) < 2:
        raise ValueError(f"there is only one class, {present[0]!r}: a classifier needs at least two")
    classes = samples.classes if samples.is_ordered else tuple(_ordered(present))
    count_of = dict(zip(samples.classes, counts.tolist(), strict=True))
    single = [name for name in classes if count_of[name] == 1]
    many = len(single) > _FEW_SINGLE * counts.sum()
    if single and samples.parts is None and (rare == "error" or (rare is None and many)):
        noun, it, other = ("classes", "them", "other classes") if len(single) > 1 else ("class", "it", "another class")
        raise ValueError(
            Sentence(
                f"{noun} {listed([repr(name) for name in single])} with only one sample cannot be both learned and "
                f"tested: remove {it} or merge {it} with {other}, or pass ",
                Argument("rare", "train"),
                " to keep such samples in the training set",
            )
        )
    shown = ", ".join(f"{name!r} {count_of[name]}" for name in classes[:10])
    notes = [f"{len(classes)} classes: {shown}{', …' if len(classes) > 10 else ''}"]
    if single and samples.parts is None:
        have = "have one sample each" if len(single) > 1 else "has one sample"
        untested = "kept in the training set: no figure says how well such samples are told"
        notes.append(f"{listed([repr(name) for name in single])} {have}, {untested}")
    alike: dict[str, list[str]] = {}
    for name in classes:
        alike.setdefault("".join(name.split()).casefold(), []).append(repr(name))
    notes += [
        f"classes {' and '.join(names)} differ in capitals or spaces only: if they are one, write them alike"
        for names in alike.values()
        if len(names) > 1
    ]
    number_of = {name: k for k, name in enumerate(classes)}
    codes = np.array([*(number_of.get(name, -1) for name in samples.classes), -1], smallest_type(len(classes)))
    return classes, codes[samples.labels], notes


def _split(
    samples: Unsplit,
    labels: Labels,
    *,
    val: float | int,
    test: float | int,
    seed: int,
    splits: Mapping[str, Sequence[int]] | None,
) -> tuple[dict[str, Positions], list[str]]:
    """Return the positions of each split: saved ones, the source's own, or drawn ones."""
    usable = labels >= 0
    if splits is not None:
        return _saved(splits, usable), ["splits: as saved"]

    def drawn(among: Positions, val: float | int, test: float | int) -> dict[str, Positions]:
        def of(values: NDArray[Any]) -> NDArray[Any]:
            return values if len(among) == len(labels) else values[among]  # no copy of what is whole

        if samples.order is not None:
            parts = ordered_split(of(samples.order), val=val, test=test)
        elif samples.groups is not None:
            parts = grouped_split(of(labels), of(samples.groups), val=val, test=test, seed=seed)
        else:
            parts = split_positions(of(labels), val=val, test=test, seed=seed)
        return parts if len(among) == len(labels) else {name: among[part] for name, part in parts.items()}

    if samples.parts is None:
        parts = drawn(as_positions(np.flatnonzero(usable)), val, test)
        sizes = ", ".join(f"{name} {len(parts[name])}" for name in PARTS)
        how = "stratified" if samples.groups is None else "stratified, groups together"
        return parts, [f"splits: {sizes}; {'by time' if samples.order is not None else f'{how}, seed {seed}'}"]
    given = {name: as_positions(np.flatnonzero(usable & (samples.parts == k))) for k, name in enumerate(PARTS)}
    if not len(given["train"]):
        raise ValueError("the training split holds nothing that could be read")
    parts = drawn(given["train"], 0.0 if len(given["val"]) else val, 0.0 if len(given["test"]) else test)
    parts |= {name: given[name] for name in ("val", "test") if len(given[name])}
    sizes = ", ".join(f"{name} {len(parts[name])}{'' if len(given[name]) else ' (from train)'}" for name in PARTS)
    return parts, [f"splits: {sizes}; the source's own"]


def _saved(splits: Mapping[str, Sequence[int]], usable: NDArray[np.bool_]) -> dict[str, Positions]:
    parts = {name: as_positions(np.array(splits.get(name, ()), np.int64)) for name in PARTS}
    every = np.concatenate(list(parts.values()))
    if set(splits) - set(PARTS) or not len(parts["train"]):
        raise ValueError(f"splits must hold 'train', 'val' and 'test', got {sorted(splits)}")
    n = len(usable)
    if len(np.unique(every)) < len(every) or every.min() < 0 or every.max() >= n or not usable[every].all():
        # Positions count every row of a file: splits that name an unreadable one were made by another rule.
        raise ValueError(f"splits must hold different positions in [0, {n - 1}]: these belong to other data")
    return parts


def _ordered(names: Sequence[str]) -> list[str]:
    """Return class names in order: of their values if all are numbers, else of their letters."""
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)
