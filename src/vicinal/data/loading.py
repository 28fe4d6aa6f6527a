"""From a path or a name to a task: what kind of data it is, which classes, which splits, which preprocessing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal._arrays import Values
from vicinal._atomic import Json
from vicinal._checks import Argument, ArgumentError, ArgumentTypeError, Sentence, choice, nearest_names, shortened
from vicinal.data.class_folders import listed
from vicinal.data.kind import Kind, NewData, Request, Samples
from vicinal.data.multilabel import combined, combined_name, label_matrix, label_notes, refuse_constant
from vicinal.data.multiple_choice import from_choices, refuse_lists
from vicinal.data.options import TEST, Options, ReadOptions, SplitOptions, TableOptions, TextOptions, records_from
from vicinal.data.preprocessing import Preprocessing, TablePreprocessing
from vicinal.data.published_tables import NamedTable
from vicinal.data.readers import Readers
from vicinal.data.registry import KINDS
from vicinal.data.sources import Opened, open_data
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
from vicinal.data.table_samples import ScannedTable, row_groups, row_weights
from vicinal.data.task import Split, Task
from vicinal.progress import stage
from vicinal.tables import Table
from vicinal.tables.base import renamed
from vicinal.tables.missing_values import without_markers

#: Classes with one sample are kept if they are at most this share of the samples, unless `rare` decides.
_FEW_SINGLE = 0.01
#: What a config may hold beside the fields of option records.
_DIRECT = ("target", "kind", "augment")


def load(
    source: object,
    *options: Options,
    target: str | Sequence[str] | None = None,
    kind: str | None = None,
    augment: str | None = None,
    splits: Mapping[str, Sequence[int]] | None = None,
    fitted: Preprocessing | None = None,
    readers: Readers | None = None,
) -> Task:
    """Load data to train a classifier on.

    Parameters
    ----------
    source
        `"digits"` (8×8 images that come with scikit-learn); a CSV, TSV, JSON-lines or Parquet file, or a pandas
        DataFrame; a folder of class folders of images or of WAV, FLAC or OGG sounds; a folder already split into
        `train` and `val`, `test` or both (of class folders, or of tables); an NPZ file of image arrays; a torchvision
        name (`"fashion-mnist"`, `"cifar10"`, …); a Hugging Face one (`"hf:NAME"` or `"hf:NAME:CONFIG"`).
    options
        Records of options that differ from the defaults, in any order: `SplitOptions`, `ReadOptions`, `TableOptions`,
        `TextOptions`, `ImageOptions`, `AudioOptions`.
    target
        The column of a table that holds the class. Several columns of 0 and 1 make a multi-label task.
    kind
        `"tabular"`, `"text"`, `"image"` or `"audio"`, where the inferred kind is not the one you mean.
    augment
        How training images and sounds are varied. Images: `"standard"` (crop and flip), `"crop"` or `"none"`. Sounds:
        `"standard"` (a random piece of longer ones), `"specaugment"` (blanked bands of frequencies and of time,
        besides) or `"none"`. The data decide if not given.
    splits
        Saved `Task.splits`, to be used again.
    fitted
        A `Task.preprocessing` to use again: it encodes the rows of a table, and gives the size of images. Other kinds
        of data are fitted again.
    readers
        `vicinal.data.readers.Readers.joined()` under `torchrun`. All processes call this together, each reads a part
        of a table, and all have the task of one process. By default each process reads all.

    Returns
    -------
    Task
        The splits, the classes and the fitted preprocessing.

    Examples
    --------
    >>> task = load("digits")
    >>> task.kind, len(task.classes), {name: len(part) for name, part in task.splits.items()}
    ('image', 10, {'train': 1259, 'val': 269, 'test': 269})
    >>> x, y = task.train[0]
    >>> x.shape
    torch.Size([1, 8, 8])
    >>> from vicinal.data import SplitOptions
    >>> len(load("digits", SplitOptions(train_size=100)).train)
    100
    """
    for record in options:
        if not isinstance(record, Options):
            raise ArgumentTypeError("options", record, "records such as SplitOptions(val=0.2)")
    if kind is not None:
        choice("kind", kind, list(KINDS))
    names = [target] if isinstance(target, str) else list(target or ())
    labels_asked = tuple(names) if len(names) > 1 else ()
    split = SplitOptions.given(options)
    one = combined_name(names) if names else None
    with stage("opening the data"):
        opened = open_data(source, kind, ReadOptions.given(options), None if labels_asked else one)
    request = Request(one, labels_asked, kind, options, fitted, split.seed, readers=readers or Readers())
    samples = _samples(opened, request, source)
    of_kind = KINDS[samples.kind]
    if augment is not None and of_kind.augmentations:
        choice("augment", augment, of_kind.augmentations)
    samples, mapped = _with_mapped_classes(samples, split.map_class or {})
    # Combinations of labels may have one sample each, which is no reason to refuse them.
    classes, labels, notes = _encoded(samples, "train" if labels_asked else split.rare)
    parts, drawn = _split(samples, labels, split, splits)
    # Subsets are drawn after the split, so that a smaller training set has the same test set.
    drawn += _subsample(parts, labels, len(classes), split)
    if labels_asked:
        # The combinations served the split; from here on each label is an output of its own.
        classes, labels, notes = _multilabel_targets(labels_asked, classes, labels, parts["train"])
    else:
        _check_every_class(classes, labels[parts["train"]])
    with stage("encoding"):
        # The preprocessing is fitted after the split and sees training rows alone.
        preprocessing, items, more = samples.fit(parts["train"], labels)
        each_label = labels.T if labels.ndim == 2 else [labels]
        warned = of_kind.warnings(preprocessing, items, each_label, parts["train"])
    augmented = {"train": samples.augment if augment is None else augment, "val": "none", "test": "none"}
    splits_of = {
        name: Split(preprocessing, items, samples.origins, labels, parts[name], augment=how, seed=split.seed)
        for name, how in augmented.items()
    }
    _give_weights(splits_of, samples.weights)
    return Task(
        name=str(source) if isinstance(source, (str, Path)) else "table",
        kind=samples.kind,
        classes=classes,
        **splits_of,
        preprocessing=preprocessing,
        fingerprint=samples.fingerprint,
        notes=(*samples.notes, *mapped, *more, *notes, *drawn),
        warnings=warned,
        groups=samples.groups,
        target_type="multilabel" if labels_asked else "multiclass",
    )


def load_from_config(
    source: object,
    config: Json,
    *,
    splits: Mapping[str, Sequence[int]] | None = None,
    fitted: Preprocessing | None = None,
    readers: Readers | None = None,
) -> Task:
    """Load with options as config.json and the command have them: one flat mapping.

    Returns
    -------
    Task
        As from `load`.

    Examples
    --------
    >>> len(load_from_config("digits", {"train_size": 100}).train)
    100
    """
    direct = {name: value for name, value in config.items() if name in _DIRECT}
    return load(source, *records_from(config, others=_DIRECT), **direct, splits=splits, fitted=fitted, readers=readers)


def _samples(opened: Opened, request: Request, source: object) -> Samples:
    """Return the samples of what was opened, of whichever kind."""
    if isinstance(opened, Table):
        with stage("reading the table"):
            return _table_samples(opened, request)
    _refuse_columns(request, source)
    if request.kind not in (None, opened.kind):
        raise ValueError(Sentence(Argument("kind", request.kind), f" does not fit {str(source)!r}: leave it out"))
    return KINDS[str(opened.kind)].open(opened, request)


def _table_samples(table: Table, request: Request) -> Samples:
    if isinstance(table, NamedTable):
        request = _as_published(request, table)
    chooses = request.options(TextOptions).choice
    if request.labels:
        if chooses:
            raise ValueError(Sentence(Argument("choice"), " has one target, the number of the right answer"))
        table, request = combined(table, request.labels), replace(request, known_classes=True)
    elif chooses:
        return from_choices(table, request)
    else:
        refuse_lists(table, request)
    table = without_markers(table, request.options(ReadOptions).missing_values)
    # Whether a table is a text task shows only after one pass over its columns.
    scanned = ScannedTable.of(table, request)
    return KINDS["text" if scanned.text_columns else "tabular"].open(scanned, request)


def _give_weights(splits: Mapping[str, Split], weights: NDArray[np.float64] | None) -> None:
    """Give each split the weights of its samples. A split in which nothing counts is an error."""
    if weights is None:
        return
    for name, split in splits.items():
        split.weights = weights[split.positions]
        if len(split) and not split.weights.any():
            raise ValueError(
                Sentence(Argument("weight"), f" is 0 for all {len(split):,} {name} samples: some must count")
            )


def _as_published(request: Request, named: NamedTable) -> Request:
    """Return what is asked of a named data set: its own columns where none were given, and classes as they are."""
    asked = request.options(TextOptions)
    text = replace(asked, text=asked.text or named.text or None, choice=asked.choice or named.choices or None)
    others = tuple(record for record in request.records if not isinstance(record, TextOptions))
    return replace(
        request,
        target=request.target or named.target,
        records=(*others, text),
        known_classes=request.target in (None, named.target),
        published=True,
    )


def _refuse_columns(request: Request, source: object) -> None:
    """Refuse options that only a table has."""
    split, text = request.options(SplitOptions), request.options(TextOptions)
    columns = {"target": request.target, "text": text.text, "group": split.group, "time": split.time}
    table = request.options(TableOptions)
    columns |= {"choice": text.choice, "drop": table.drop or None, "weight": table.weight}
    for argument, value in columns.items():
        if value is not None:
            what = f" names a column, but {str(source)!r} is not a table: leave it out"
            raise ValueError(Sentence(Argument(argument, value), what))


def _subsample(
    parts: dict[str, Positions], labels: NDArray[np.int64], n_classes: int, options: SplitOptions
) -> list[str]:
    """Keep at most so many held-out samples of each part and so many training samples; return notes that say so."""
    notes: list[str] = []
    most, size, seed = options.max_held_out, options.train_size, options.seed
    if most is not None:
        if most < n_classes:
            raise ArgumentError("max_held_out", most, f"at least {n_classes}, one sample of each class")
        for name in ("val", "test"):
            if len(parts[name]) > most:
                parts[name] = parts[name][stratified_subset(labels[parts[name]], most, seed=seed)]
        sizes = f": {len(parts['val'])} validation and {len(parts['test'])} test samples"
        notes.append(Sentence(Argument("max_held_out"), sizes))
    if size is not None:
        draw = stratified_subset if options.subset == "stratified" else random_subset
        drawn_from = seed if options.subset_seed is None else options.subset_seed
        parts["train"] = parts["train"][draw(labels[parts["train"]], size, seed=drawn_from)]
        how_drawn = "every class in its proportion" if options.subset == "stratified" else "drawn at random"
        notes.append(Sentence(Argument("train_size"), f": {size} training samples, {how_drawn}"))
    return notes


def _multilabel_targets(
    targets: Sequence[str], combinations: tuple[str, ...], labels: NDArray[np.int64], train: Positions
) -> tuple[tuple[str, ...], NDArray[np.int64], list[str]]:
    """Return the names of labels, what each sample has of them, and how often: its class was their combination."""
    matrix = label_matrix(combinations, labels)
    refuse_constant(targets, matrix[train])
    return tuple(targets), matrix, [label_notes(targets, matrix)]


def _check_every_class(classes: Sequence[str], labels: NDArray[np.int64]) -> None:
    """Refuse training labels that lack a class: it could not be learned."""
    absent = [repr(classes[k]) for k in np.setdiff1d(range(len(classes)), labels).tolist()]
    if absent:
        remedy = "all are held out; merge such classes with others, remove them, or draw another split"
        raise ValueError(f"the training set has no sample of {listed(absent)}: {remedy}")


def read(
    source: object,
    preprocessing: Preprocessing,
    *,
    classes: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    options: ReadOptions | None = None,
    columns: Mapping[str, str] | None = None,
    class_names: Mapping[str, str] | None = None,
    part: str | None = None,
    group: str | None = None,
    weight: str | None = None,
) -> Split:
    """Read new data as a model's fitted preprocessing prescribes, to predict or to evaluate.

    Columns are found by name. New ones are ignored and named in `notes`; a missing one is an error.
    `TabularPreprocessing` says how missing values and values not seen in training are handled. Rows with too many
    fields and unreadable files are left out, and named.

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
        The columns of 0 and 1 of a multi-label model, instead of classes. Rows that lack one are left out.
    options
        How to read the files.
    columns
        What columns of this table are called in the model's: `{"q1": "premise"}`.
    class_names
        What its classes are called in the model's: `{"paraphrase": "entailment"}`; several may become one.
    part
        `"train"`, `"val"` or `"test"`: that part alone, where the source is split already, which `notes` then say. For
        a missing test part the validation part stands, and for a missing validation part the training part.
    group
        The column of groups, where the table has it: they are in `groups` of the split.
    weight
        The column that says how much each row counts, where the table has it: they are in `weights` of the split.

    Returns
    -------
    Split
        The samples, with labels if `classes` or `labels` is given.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"x": [0.5, 1.5, 2.5, 3.5] * 5, "y": ["a", "b"] * 10})
    >>> new = read(frame[["x"]], load(frame, target="y").preprocessing)
    >>> len(new), new[0][0].shape
    (20, torch.Size([1]))
    """
    if labels and class_names:
        raise ValueError(Sentence(Argument("class_names", class_names), " needs classes, and the model has labels"))
    options = options or ReadOptions()
    target = None if labels else getattr(preprocessing, "target", None)
    opened = open_data(source, preprocessing.kind, options, target)
    if isinstance(opened, Table):
        opened = _renamed(opened, columns or {})
        opened = combined(opened, labels) if labels else opened
    elif columns or labels:
        argument = Argument("columns", columns) if columns else Argument("labels", labels)
        raise ValueError(Sentence(argument, f" names columns, but {str(source)!r} is not a table"))
    opened, reader, said = adapted(opened, preprocessing, options)
    new = read_opened(opened, reader, options.max_bad, labelled=bool(classes or labels))
    chosen, notes = new.readable, new.notes
    notes += said
    if part is not None and new.parts is not None:
        part = _available_part(choice("part", part, PARTS), {new.parts[i] for i in new.readable})
        chosen = [i for i in new.readable if new.parts[i] == part]
        notes.append(f"it is split already: its {part} part, {len(chosen)} of {len(new.readable)} samples")
    answers: NDArray[np.int64] | None = None
    if labels:
        answers, chosen = _known_labels(new, chosen, labels, str(source))
    elif classes is not None:
        answers, chosen = _known_classes(new, chosen, classes, class_names or {}, str(source))
    content = opened.fingerprint() if isinstance(opened, Table) and classes is not None else ""
    split = Split(preprocessing, new.items, new.origins, answers, chosen, notes=notes, fingerprint=content)
    if isinstance(opened, Table) and group in opened.columns:
        split.groups = row_groups(opened, str(group), len(new.items))[split.positions]
    if isinstance(opened, Table) and weight in opened.columns:
        usable = np.isin(np.arange(len(new.items)), split.positions)
        _give_weights({"new": split}, row_weights(opened, str(weight), None, usable))
    return split


def adapted(opened: Opened, preprocessing: Preprocessing, how: ReadOptions) -> tuple[Opened, Preprocessing, list[str]]:
    """Return a source and its preprocessing as its cells are written, and what was assumed of them."""
    notes: list[str] = []
    if isinstance(opened, Table) and isinstance(preprocessing, TablePreprocessing):
        opened = without_markers(opened, how.missing_values or preprocessing.missing_values)
        preprocessing = preprocessing.adapted(opened, how, notes)
    return opened, preprocessing, notes


def read_opened(opened: Opened, preprocessing: Preprocessing, max_bad: float | int, *, labelled: bool) -> NewData:
    """Return what was opened as a preprocessing prescribes, or say that it is of another kind."""
    kind: Kind[Any, Any] = KINDS[preprocessing.kind]
    is_table = isinstance(opened, Table)
    if is_table is bool(kind.suffixes) or (not isinstance(opened, Table) and opened.kind != kind.name):
        name, holds = (opened.name, "is a table") if isinstance(opened, Table) else (opened.name, opened.holds)
        raise ValueError(f"the model takes {kind.name} data, but {name!r} {holds}")
    return kind.read(opened, preprocessing, max_bad, labelled=labelled)


def _known_classes(
    new: NewData, chosen: Sequence[int], classes: Sequence[str], class_names: Mapping[str, str], source: str
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
    new: NewData, chosen: Sequence[int], labels: Sequence[str], source: str
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


def _available_part(part: str, parts: set[str]) -> str:
    """Return the part that is asked for, or one that stands for it: never a part that is held out further."""
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


def _with_mapped_classes(samples: Samples, mapping: Mapping[str, str]) -> tuple[Samples, list[str]]:
    """Return the samples with other names of classes, of which equal ones are one class, and a note."""
    for name in mapping:
        if name not in samples.classes:
            known = nearest_names(name, samples.classes)
            raise ValueError(Sentence(Argument("map_class"), f": the data have no class {name!r}{known}"))
    if not mapping:
        return samples, []
    names = [mapping.get(name, name) for name in samples.classes]
    classes = tuple(dict.fromkeys(names))
    # The last entry is for -1: unusable samples stay unusable.
    codes = np.array([*map(classes.index, names), -1], samples.labels.dtype)
    said = ", ".join(f"{name!r} is {to!r}" for name, to in mapping.items())
    return replace(samples, classes=classes, labels=codes[samples.labels]), [
        Sentence(Argument("map_class"), f": {said}")
    ]


def _encoded(samples: Samples, rare: str | None) -> tuple[tuple[str, ...], Labels, list[str]]:
    """Return the classes in order and the class number of each sample, -1 for those that cannot be used."""
    counts = np.bincount(samples.labels[samples.labels >= 0], minlength=len(samples.classes))
    present = [name for name, n in zip(samples.classes, counts, strict=True) if n]
    if len(present) < 2:
        raise ValueError(f"there is only one class, {present[0]!r}: a classifier needs at least two")
    classes = samples.classes if samples.is_ordered else tuple(_ordered(present))
    # Classes that the source lists and no sample has are not learned.
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
    shown = ", ".join(f"{shortened(name)!r} {count_of[name]}" for name in classes[:10])
    notes = [f"{len(classes)} classes: {shown}{', …' if len(classes) > 10 else ''}"]
    if single and samples.parts is None:
        have = "have one sample each" if len(single) > 1 else "has one sample"
        untested = "kept in the training set and not evaluated"
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
    # The last entry is for -1: unusable samples stay unusable.
    codes = np.array([*(number_of.get(name, -1) for name in samples.classes), -1], smallest_type(len(classes)))
    return classes, codes[samples.labels], notes


def _split(
    samples: Samples, labels: Labels, options: SplitOptions, saved: Mapping[str, Sequence[int]] | None
) -> tuple[dict[str, Positions], list[str]]:
    """Return the positions of each split: saved ones, the source's own, or drawn ones."""
    usable = labels >= 0
    test, seed, oracle = options.test, options.seed, options.val == TEST
    val = 0.0 if isinstance(options.val, str) else options.val
    if saved is not None:
        return _saved(saved, usable), ["splits: as saved"]

    def drawn(among: Positions, val: float | int, test: float | int) -> dict[str, Positions]:
        def of(values: Values) -> Values:
            return values if len(among) == len(labels) else values[among]  # the whole array needs no copy

        if samples.order is not None:
            parts = ordered_split(of(samples.order), val=val, test=test)
        elif samples.groups is not None:
            parts = grouped_split(of(labels), of(samples.groups), val=val, test=test, seed=seed)
        else:
            parts = split_positions(of(labels), val=val, test=test, seed=seed)
        return parts if len(among) == len(labels) else {name: among[part] for name, part in parts.items()}

    def chosen_by(
        parts: dict[str, Positions], oracle: bool, notes: list[str]
    ) -> tuple[dict[str, Positions], list[str]]:
        if not oracle:
            return parts, notes
        return {**parts, "val": parts["test"]}, [*notes, "oracle: the test set is the validation set too"]

    if samples.parts is None:
        parts = drawn(as_positions(np.flatnonzero(usable)), val, test)
        sizes = ", ".join(f"{name} {len(parts[name])}" for name in PARTS)
        how = "stratified" if samples.groups is None else "stratified, groups together"
        how = "by time" if samples.order is not None else f"{how}, seed {seed}"
        return chosen_by(parts, oracle, [f"splits: {sizes}; {how}"])
    given = {name: as_positions(np.flatnonzero(usable & (samples.parts == k))) for k, name in enumerate(PARTS)}
    if not len(given["train"]):
        raise ValueError("the training split holds nothing that could be read")
    # What the source holds out stays held out; only a missing part is drawn from its training part.
    parts = drawn(given["train"], 0.0 if len(given["val"]) else val, 0.0 if len(given["test"]) else test)
    parts |= {name: given[name] for name in ("val", "test") if len(given[name])}
    sizes = ", ".join(f"{name} {len(parts[name])}{'' if len(given[name]) else ' (from train)'}" for name in PARTS)
    notes = [f"splits: {sizes}; the source's own"]
    if len(given["val"]) and not len(given["test"]) and len(parts["test"]):
        notes.append("the source has no test part: it is drawn from the training part; the validation part stays one")
    return chosen_by(parts, oracle and not len(given["val"]), notes)


def _saved(splits: Mapping[str, Sequence[int]], usable: NDArray[np.bool_]) -> dict[str, Positions]:
    parts = {name: as_positions(np.array(splits.get(name, ()), np.int64)) for name in PARTS}
    oracle = np.array_equal(parts["val"], parts["test"])  # `val="test"`
    every = np.concatenate([part for name, part in parts.items() if name != "val" or not oracle])
    if set(splits) - set(PARTS) or not len(parts["train"]):
        raise ValueError(f"splits must hold 'train', 'val' and 'test', got {sorted(splits)}")
    n = len(usable)
    # A split of other data would train on rows that were held out.
    if len(np.unique(every)) < len(every) or every.min() < 0 or every.max() >= n or not usable[every].all():
        # Positions count every row of a file: splits that name an unreadable one were made by another rule.
        raise ValueError(f"splits must hold different positions in [0, {n - 1}]: these belong to other data")
    return parts


def _ordered(names: Sequence[str]) -> list[str]:
    """Return class names in numeric order if all are numbers, else in alphabetical order."""
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)
