"""From a path or a name to a task: what kind of data it is, which classes, which splits, which preprocessing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from vicinal._checks import Argument, Sentence, nearest_names
from vicinal._checks import choice as one_of
from vicinal.data import audio, images, sources, tables
from vicinal.data.audio import read_sound
from vicinal.data.files import Folder, give_up, listed, read_all
from vicinal.data.images import ImagePreprocessing
from vicinal.data.multiple_choice import from_choices, refuse_lists
from vicinal.data.named import Arrays
from vicinal.data.preprocessing import Preprocessing
from vicinal.data.published import NamedTable
from vicinal.data.sources import Samples
from vicinal.data.splitting import PARTS, random_subset, stratified_split, stratified_subset
from vicinal.data.tables import Table
from vicinal.data.tabular import TabularPreprocessing
from vicinal.data.task import Split, Task
from vicinal.data.text import TextPreprocessing

__all__ = ["KINDS", "load", "read"]

#: The kinds of data.
KINDS = ("tabular", "text", "image", "audio")


@dataclass(frozen=True, eq=False)
class _New:
    """What was read of new data."""

    items: Sequence[Any] | Tensor
    origins: Sequence[Any]
    names: Sequence[str | None] | None
    """The class of each sample; None where there are none."""
    parts: Sequence[str] | None
    """Which part of a source that is split already each sample belongs to."""
    notes: list[str]


def load(
    source: Any,
    *,
    target: str | None = None,
    text: str | Sequence[str] | None = None,
    choice: str | Sequence[str] | None = None,
    kind: str | None = None,
    seed: int = 0,
    val: float | int = 0.15,
    test: float | int = 0.15,
    train_size: int | None = None,
    subset: str = "stratified",
    subset_seed: int | None = None,
    splits: Mapping[str, Sequence[int]] | None = None,
    max_bad: float | int = 0.05,
    rare: str = "error",
    encoding: str | None = None,
    header: bool = True,
    tokenizer: str | None = None,
    max_length: int = 256,
    augment: str | None = None,
    image_size: int | None = None,
    seconds: float = 1.0,
    front_end: str = "spectrogram",
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
        The column of a table that holds the class.
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
    splits
        Saved `Task.splits`, to be used again.
    max_bad
        How many rows or files may be unreadable before it is an error: a share, or a number if an integer.
    rare
        What to do with classes of a single sample: `"error"`, or `"train"` to keep it in the training set.
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
    seconds
        The length of a sound.
    front_end
        What a sound becomes: a log-`"spectrogram"`, one of `"mel"` bands, or a `"waveform"`. It is what is mixed.
    data_root
        Where data sets are looked for; else the folder that the environment variable VICINAL_DATA names.

    >>> task = load("digits")
    >>> task.kind, len(task.classes), {name: len(part) for name, part in task.splits.items()}
    ('image', 10, {'train': 1259, 'val': 269, 'test': 269})
    >>> x, y = task.train[0]
    >>> x.shape
    torch.Size([1, 8, 8])
    """
    if kind is not None:
        one_of("kind", kind, KINDS)
    one_of("rare", rare, ("error", "train"))
    one_of("subset", subset, ("stratified", "random"))
    opened = sources.open_source(source, kind, encoding, header, data_root, target)
    if isinstance(opened, NamedTable):
        target, text, choice = target or opened.target, text or opened.text or None, choice or opened.choices or None
        opened = opened.table
    if isinstance(opened, Table) and choice:
        samples = from_choices(opened, target, text, choice, max_bad, tokenizer, max_length)
    elif isinstance(opened, Table):
        refuse_lists(opened, text, kind)
        samples = sources.from_table(opened, target, text, kind, max_bad, tokenizer, max_length)
    else:
        for argument, value in (("target", target), ("text", text), ("choice", choice)):
            if value is not None:
                what = f" names a column, but {str(source)!r} is no table: leave it out"
                raise ValueError(Sentence(Argument(argument, value), what))
        if kind not in (None, "image" if isinstance(opened, Arrays) else opened.kind):
            raise ValueError(Sentence(Argument("kind", kind), f" does not fit {str(source)!r}: leave it out"))
        if isinstance(opened, Arrays):
            samples = sources.from_arrays(opened, image_size)
        elif opened.kind == "image":
            samples = sources.from_images(opened, max_bad, image_size, seed)
        else:
            samples = sources.from_sounds(opened, max_bad, seconds, front_end)
    if augment is not None:
        one_of("augment", augment, audio.AUGMENTATIONS if samples.kind == "audio" else images.AUGMENTATIONS)
    classes, labels, notes = _encoded(samples, rare)
    parts, more = _split(samples, labels, val=val, test=test, seed=seed, splits=splits)
    notes += more
    learned = {labels[i] for i in parts["train"]}
    lacking = [name for k, name in enumerate(classes) if k not in learned]
    if lacking:
        raise ValueError(f"the training set has no sample of {listed([repr(name) for name in lacking])}")
    if train_size is not None:
        drawn_from = seed if subset_seed is None else subset_seed
        draw = stratified_subset if subset == "stratified" else random_subset
        chosen = draw([labels[i] for i in parts["train"]], train_size, seed=drawn_from)
        parts["train"] = [parts["train"][i] for i in chosen]
        how_drawn = "every class in its proportion" if subset == "stratified" else "drawn at random"
        notes.append(Sentence(Argument("train_size"), f": {train_size} training samples, {how_drawn}"))
    preprocessing, items, more = samples.fit(parts["train"])
    augment = samples.augment if augment is None else augment

    def split(name: str) -> Split:
        how = augment if name == "train" else "none"
        return Split(preprocessing, items, samples.origins, labels, parts[name], augment=how, seed=seed)

    return Task(
        name=str(source) if isinstance(source, (str, Path)) else "table",
        kind=samples.kind,
        classes=classes,
        train=split("train"),
        val=split("val"),
        test=split("test"),
        preprocessing=preprocessing,
        fingerprint=samples.fingerprint,
        notes=(*samples.notes, *more, *notes),
    )


def read(
    source: Any,
    preprocessing: Preprocessing,
    *,
    classes: Sequence[str] | None = None,
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
    max_bad, encoding, header, data_root
        As in `load`.
    columns
        What columns of this table are called in the model's: `{"q1": "premise"}`.
    class_names
        What its classes are called in the model's: `{"paraphrase": "entailment"}`; several may become one.
    part
        `"train"`, `"val"` or `"test"`: that part alone, where the source is split already, which `notes` then say.
    """
    opened = sources.open_source(
        source, preprocessing.kind, encoding, header, data_root, getattr(preprocessing, "target", None)
    )
    if isinstance(opened, NamedTable):
        opened = opened.table
    if isinstance(opened, Table):
        opened = _renamed(opened, columns or {})
        new = _read_table(opened, preprocessing, max_bad, labelled=classes is not None)
    elif columns:
        raise ValueError(Sentence(Argument("columns", columns), f" names columns, but {str(source)!r} is no table"))
    elif isinstance(opened, Arrays):
        new = _read_arrays(opened, preprocessing)
    else:
        new = _read_folder(opened, preprocessing, max_bad)
    items, origins, notes = new.items, new.origins, new.notes
    chosen: Sequence[int] = range(len(items))
    if part is not None and new.parts is not None and one_of("part", part, PARTS) in new.parts:
        chosen = [i for i, name in enumerate(new.parts) if name == part]
        notes.append(f"it is split already: its {part} part, {len(chosen)} of {len(items)} samples")
    if classes is None:
        return Split(preprocessing, items, origins, None, chosen, notes=notes)
    if new.names is None:
        raise ValueError(f"{str(source)!r} has no classes to compare with: put its files in class folders")
    names = _class_names_of_the_model(new.names, class_names or {}, classes)
    number_of = {name: k for k, name in enumerate(classes)}
    indices = [i for i in chosen if names[i] in number_of]
    strange = Counter(repr(names[i]) if names[i] else "no class" for i in chosen if names[i] not in number_of)
    if strange:
        notes.append(f"left out: {strange.total()} samples of {listed(list(strange))}, which the model does not know")
    if not indices:
        raise ValueError(f"no sample of {str(source)!r} has a class of the model: {listed([repr(c) for c in classes])}")
    labels = [number_of.get(str(name), -1) for name in names]
    return Split(preprocessing, items, origins, labels, indices, notes=notes)


def _renamed(table: Table, columns: Mapping[str, str]) -> Table:
    """Return the table with columns under the names that the model knows them by."""
    for name in columns:
        if name not in table.frame.columns:
            known = nearest_names(name, map(str, table.frame.columns))
            raise ValueError(Sentence(Argument("columns"), f": {table.name!r} has no column {name!r}{known}"))
    if not columns:
        return table
    # A column that already has the new name gives way.
    kept = table.frame.drop(columns=[name for name in columns.values() if name in table.frame and name not in columns])
    return replace(table, frame=kept.rename(columns=dict(columns)))


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
    items: Sequence[Any] | Tensor
    origins: Sequence[Any]
    if isinstance(preprocessing, TabularPreprocessing):
        items, notes = preprocessing.encode(table.frame)
        origins = sources.Rows(table.frame)
    else:
        items, notes = preprocessing.texts(table.frame)
        origins = sources.plain(items)
    skipped = give_up(table.bad, len(table.frame) + len(table.bad), "rows", "could not be read", max_bad)
    names = sources.class_names(tables.column(table, preprocessing.target, "target")) if labelled else None
    return _New(items, origins, names, table.parts, [*table.notes, *skipped, *notes])


def _read_arrays(arrays: Arrays, preprocessing: Preprocessing) -> _New:
    if not isinstance(preprocessing, ImagePreprocessing):
        raise ValueError(f"the model takes {preprocessing.kind} data, but {arrays.name!r} holds images")
    items, names = sources.at_shape(preprocessing, arrays.images), [arrays.classes[k] for k in arrays.labels]
    return _New(items, sources.numbered(arrays.name, len(names)), names, arrays.parts, list(arrays.notes))


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
        images.open_image(path)
        return path

    good, items, notes = read_all(folder.paths, take, folder.kind, max_bad)
    origins = [str(folder.paths[i]) for i in good]
    names, parts = (None if kept is None else [kept[i] for i in good] for kept in (folder.classes, folder.parts))
    return _New(items, origins, names, parts, [*folder.notes, *notes])


def _encoded(samples: Samples, rare: str) -> tuple[tuple[str, ...], list[int], list[str]]:
    """Return the classes in order and the class number of each sample."""
    counts = Counter(samples.names)
    classes = samples.classes or tuple(_ordered(counts))
    if len(counts) < 2:
        raise ValueError(f"there is one class only, {samples.names[0]!r}: a classifier needs at least two")
    single = [name for name in classes if counts[name] == 1]
    if single and rare == "error" and samples.parts is None:
        raise ValueError(
            Sentence(
                f"{'classes' if len(single) > 1 else 'class'} {listed([repr(name) for name in single])} with one "
                "sample only cannot be both learned and tested: remove it or merge it with another class, or pass ",
                Argument("rare", "train"),
                " to keep such samples in the training set",
            )
        )
    number_of = {name: k for k, name in enumerate(classes)}
    shown = ", ".join(f"{name!r} {counts[name]}" for name in classes[:10])
    notes = [f"{len(classes)} classes: {shown}{', …' if len(classes) > 10 else ''}"]
    if single and samples.parts is None:
        notes.append(f"rare: {listed([repr(name) for name in single])} with one sample, kept in the training set")
    return classes, [number_of[name] for name in samples.names], notes


def _split(
    samples: Samples,
    labels: Sequence[int],
    *,
    val: float | int,
    test: float | int,
    seed: int,
    splits: Mapping[str, Sequence[int]] | None,
) -> tuple[dict[str, list[int]], list[str]]:
    """Return the positions of each split: saved ones, the source's own, or drawn ones."""
    if splits is not None:
        return _saved(splits, len(labels)), ["splits: as saved"]
    if samples.parts is None:
        parts = stratified_split(labels, val=val, test=test, seed=seed)
        sizes = ", ".join(f"{name} {len(parts[name])}" for name in PARTS)
        return parts, [f"splits: {sizes}; stratified, seed {seed}"]
    own = {name: [i for i, part in enumerate(samples.parts) if part == name] for name in PARTS}
    if not own["train"]:
        raise ValueError("the training split holds nothing that could be read")
    drawn = stratified_split(
        [labels[i] for i in own["train"]],
        val=0.0 if own["val"] else val,
        test=0.0 if own["test"] else test,
        seed=seed,
    )
    parts = {name: own[name] or [own["train"][i] for i in drawn[name]] for name in ("val", "test")}
    parts["train"] = [own["train"][i] for i in drawn["train"]]
    parts = {name: parts[name] for name in PARTS}
    sizes = ", ".join(f"{name} {len(parts[name])}{'' if own[name] else ' (from train)'}" for name in PARTS)
    return parts, [f"splits: {sizes}; the source's own"]


def _saved(splits: Mapping[str, Sequence[int]], n: int) -> dict[str, list[int]]:
    parts = {name: [int(i) for i in splits.get(name, ())] for name in PARTS}
    every = [i for part in parts.values() for i in part]
    if set(splits) - set(PARTS) or not parts["train"]:
        raise ValueError(f"splits must hold 'train', 'val' and 'test', got {sorted(splits)}")
    if len(set(every)) < len(every) or not all(0 <= i < n for i in every):
        raise ValueError(f"splits must hold different positions in [0, {n - 1}]: these belong to other data")
    return parts


def _ordered(names: Mapping[str, int]) -> list[str]:
    """Return class names in order: of their values if all are numbers, else of their letters."""
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)
