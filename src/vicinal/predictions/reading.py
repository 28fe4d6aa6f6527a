"""Predictions files of any size and form, opened by the names of their columns and read some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal._arrays import SUM_TOLERANCE
from vicinal._checks import Argument, ArgumentError, ArgumentTypeError, Sentence, choice, flag, integer, nearest_names
from vicinal._files import RunFiles
from vicinal.predictions.classes import ABSENT, ClassCodes, checked_names, whole
from vicinal.predictions.sources import Batch, Column, Source, matrix, numbers, open_source

__all__ = ["FileChunk", "PredictionsFile", "as_file", "open_file"]

KINDS = ("probs", "logits", "confidence")
_LABELS = ("label", "labels", "target")
_PREFIXES = {"probs": "prob_", "logits": "logit_"}

#: Numbers in a chunk: some megabytes, and enough rows to make the work on each chunk worth its start.
_CHUNK = 2**20
_FEWEST, _MOST = 2**12, 2**17


@dataclass(frozen=True, eq=False)
class FileChunk:
    """Some rows of a predictions file.

    Attributes
    ----------
    rows
        Their numbers in the file, from 1 (the line of column names is not counted), `[M]`.
    labels
        Class numbers `[M]`; None where labels were not asked for.
    scores
        Probabilities or logits `[M, K]`; None for a file of predictions and confidences.
    predictions, confidence
        Predicted class numbers and confidences `[M]` of such a file, else None.
    classes
        The names of the classes met so far.
    n_dropped, n_rescaled
        Rows left out because a value was missing; rows whose probabilities were rescaled.
    others
        The columns that were asked for beside, by name.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    scores: NDArray[np.floating[Any]] | None
    predictions: NDArray[np.int64] | None
    confidence: NDArray[np.floating[Any]] | None
    classes: Sequence[str]
    n_dropped: int = 0
    n_rescaled: int = 0
    others: Batch = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class PredictionsFile:
    """A predictions file whose columns are understood; made by `open_file`. Its rows are read by `chunks`.

    Attributes
    ----------
    path
        The file.
    kind
        What it holds: `"probs"`, `"logits"`, or `"confidence"` (a prediction and its confidence).
    classes
        The names of the classes, in the order of class numbers. None for a file of confidences whose classes were
        not given: they are found while it is read.
    n_rows
        The number of rows; None where only reading tells (CSV).
    label
        The column of labels, None if there is none.
    columns
        The columns of scores: one for each class, or one of lists; prediction and confidence.
    others
        The other columns.
    notes
        What was decided, in sentences.
    missing, normalise
        As in `open_file`.
    """

    path: Path
    kind: str
    classes: tuple[str, ...] | None
    n_rows: int | None
    label: str | None
    columns: tuple[str, ...]
    others: tuple[str, ...]
    notes: tuple[str, ...]
    missing: str
    normalise: bool
    source: Source = field(repr=False)
    nested: bool = field(repr=False)
    by_position: bool = field(repr=False)

    @property
    def n_classes(self) -> int | None:
        """K, None where it is not known before the file is read."""
        return None if self.classes is None else len(self.classes)

    def chunks(
        self, rows: int | None = None, *, labels: bool = True, others: Sequence[str] = ()
    ) -> Iterator[FileChunk]:
        """Yield the rows in order, at most `rows` at a time, every value checked.

        Parameters
        ----------
        rows
            How many rows at a time; by default as many as fit in a few megabytes.
        labels
            Whether labels are read.
        others
            Further columns to hand along as they are.
        """
        for chunk in self.unchecked_chunks(rows, labels=labels, others=others):
            self.check(chunk)
            yield chunk

    def unchecked_chunks(
        self, rows: int | None = None, *, labels: bool = True, others: Sequence[str] = ()
    ) -> Iterator[FileChunk]:
        """Yield what `chunks` yields, for a caller that checks the values of scores itself.

        Labels are known to be classes, and with `missing="drop"` nothing is missing.
        """
        label = self.required_label() if labels else None
        size = _rows_at_once(self.n_classes) if rows is None else integer("rows", rows, low=1)
        numbered = self.nested and self.classes == tuple(str(k) for k in range(self.n_classes or 0))
        codes = ClassCodes(self.classes, by_position=self.by_position, numbered=numbered)
        names = list(dict.fromkeys([*([] if label is None else [label]), *self.columns, *others]))
        first = 1
        for batch in self.source.batches(names, size):
            chunk = self._chunk(batch, codes, first, label, others)
            first += len(chunk) + chunk.n_dropped
            if len(chunk) or chunk.n_dropped:
                yield chunk

    def required_label(self) -> str:
        """Return the column of labels, or say how to name it."""
        if self.label is None:
            raise ValueError(
                Sentence(
                    f"{str(self.path)!r} has no column of labels (label, labels or target): its columns are "
                    f"{_shown([*self.columns, *self.others])}. Name it with ",
                    Argument("label"),
                )
            )
        return self.label

    def check(self, chunk: FileChunk) -> None:
        """Raise an error that names the first bad row, if there is one."""
        lacks = _lacking(chunk)
        if lacks.any():
            raise ValueError(self._missing_sentence(chunk, lacks))
        if chunk.confidence is not None:
            values = chunk.confidence[:, None]
            self._refuse(chunk, ~((values >= 0) & (values <= 1)), values, "a confidence must lie in [0, 1]")
        elif self.kind == "logits":
            values = np.asarray(chunk.scores)
            advice = ". For a class that cannot be, write a large negative number such as -10000"
            self._refuse(chunk, ~np.isfinite(values), values, "logits must be finite", advice)
        elif chunk.scores is not None:
            advice = Sentence(
                ". If these are percentages or counts, rescale them with ",
                Argument("normalise", True),
                "; if they are unnormalised scores, say so with ",
                Argument("kind", "logits"),
            )
            wrong = ~((chunk.scores >= 0) & (chunk.scores <= 1))
            self._refuse(chunk, wrong, chunk.scores, "probabilities must lie in [0, 1]", advice)
            self._check_sums(chunk, chunk.scores)

    def _chunk(
        self, batch: Batch, codes: ClassCodes, first: int, label: str | None, others: Sequence[str]
    ) -> FileChunk:
        truth = None if label is None else codes.encode(batch[label], what=label, first=first)
        scores = predictions = confidence = None
        comma = self.source.decimal_comma
        if self.kind == "confidence":
            predictions = codes.encode(batch[self.columns[0]], what=self.columns[0], first=first)
            confidence = numbers(batch[self.columns[1]], what=self.columns[1], first=first, decimal_comma=comma)
        elif self.nested:
            name = self.columns[0]
            scores = matrix(batch[name], width=len(self.classes or ()), what=name, first=first)
        else:
            parts = [numbers(batch[name], what=name, first=first, decimal_comma=comma) for name in self.columns]
            # One class after another in memory: what reduces over classes need not turn the matrix.
            scores = np.stack(parts).T
        some = scores if scores is not None else confidence
        rows = np.arange(first, first + (0 if some is None else len(some)))
        kept = {name: batch[name] for name in others}
        chunk = FileChunk(rows, truth, scores, predictions, confidence, codes.names, others=kept)
        if self.missing == "drop" and (lacks := _lacking(chunk)).any():
            chunk = _only(chunk, ~lacks)
        elif _unlabelled(chunk).any():
            raise ValueError(self._missing_sentence(chunk, _lacking(chunk)))
        if self.normalise and chunk.scores is not None and len(chunk):
            chunk = self._rescaled(chunk)
        return chunk

    def _rescaled(self, chunk: FileChunk) -> FileChunk:
        scores = np.asarray(chunk.scores, np.float64)
        if (lacks := _lacking(chunk)).any():
            raise ValueError(self._missing_sentence(chunk, lacks))
        self._refuse(chunk, ~((scores >= 0) & (scores < np.inf)), scores, "only finite numbers of at least 0 rescale")
        total = scores.sum(axis=1, keepdims=True)
        self._refuse(chunk, total <= 0, total, "probabilities that are all 0 cannot be rescaled")
        off = int((np.abs(total - 1) > SUM_TOLERANCE).sum())
        return replace(chunk, scores=scores / total, n_rescaled=off)

    def _check_sums(self, chunk: FileChunk, scores: NDArray[np.floating[Any]]) -> None:
        total = scores.sum(axis=1, dtype=np.float64)
        off = np.flatnonzero(np.abs(total - 1) > SUM_TOLERANCE)
        if not off.size:
            return
        advice = (
            "there is one class only: for the probability p of a binary task two columns are needed, 1 - p and p"
            if scores.shape[1] == 1
            else Sentence(
                "if these are unnormalised scores, pass ",
                Argument("kind", "logits"),
                "; if they were rounded, or are meant to be rescaled, pass ",
                Argument("normalise", True),
                "; if there are too few or too many columns, name them with ",
                Argument("columns"),
            )
        )
        raise ValueError(
            Sentence(
                f"row {chunk.rows[off[0]]:,} of {str(self.path)!r} has probabilities that sum to "
                f"{total[off[0]]:.6g}, not to one (within {SUM_TOLERANCE:g}): ",
                advice,
            )
        )

    def _refuse(self, chunk: FileChunk, wrong: NDArray[np.bool_], values: Any, rule: str, advice: str = "") -> None:
        """Raise an error for the first row with a wrong value among `values` `[M, K]`."""
        if not wrong.any():
            return
        row, column = (int(place[0]) for place in np.nonzero(wrong))
        names = self.columns[1:] if self.kind == "confidence" else self.columns
        name = names[0] if self.nested else names[column]
        raise ValueError(
            Sentence(
                f"{rule}, but row {chunk.rows[row]:,} of {str(self.path)!r} has {float(values[row, column]):g} in "
                f"column {name!r}",
                advice,
            )
        )

    def _missing_sentence(self, chunk: FileChunk, lacks: NDArray[np.bool_]) -> str:
        """Return the error for missing values, after counting them to the end of the file."""
        first = int(chunk.rows[np.flatnonzero(lacks)[0]])
        where = self._missing_column(chunk, int(np.flatnonzero(lacks)[0]))
        lenient = replace(self, missing="drop", normalise=False)
        n_missing, n, end = 0, 0, ""
        try:
            for part in lenient.unchecked_chunks(labels=chunk.labels is not None):
                n_missing, n = n_missing + part.n_dropped, n + part.n_dropped + len(part)
        except ValueError:  # the file has another fault further on: what is counted is right so far
            end = " at least"
        return Sentence(
            f"{n_missing:,}{end} of {n:,} rows of {str(self.path)!r} have a missing value, the first of them row "
            f"{first:,} (",
            where,
            "). Fill them in, or leave these rows out with ",
            Argument("missing", "drop"),
        )

    def _missing_column(self, chunk: FileChunk, row: int) -> str:
        if chunk.labels is not None and chunk.labels[row] == ABSENT:
            label = f"column {self.label!r}; if its text there is the name of a class, pass "
            return Sentence(label, Argument("classes"))
        if chunk.scores is not None and not self.nested:
            return f"column {self.columns[int(np.isnan(chunk.scores[row]).argmax())]!r}"
        if chunk.predictions is not None and chunk.predictions[row] != ABSENT:
            return f"column {self.columns[1]!r}"
        return f"column {self.columns[0]!r}"


def open_file(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    kind: str | None = None,
    columns: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    encoding: str | None = None,
    missing: str = "error",
    normalise: bool = False,
) -> PredictionsFile:
    r"""Open a predictions file: find by name what its columns hold, without reading its rows.

    Columns have these names; what they hold is never guessed from their values:

    ==============================  =============================================================================
    `label`, `labels`, `target`     the true class: a name, or a class number
    `prob_<class>`                  the probability of a class, a column for each; `logit_<class>` for logits
    `probs`, `logits`               the same as lists (Parquet) or a matrix `[N, K]` (NPZ), by class number
    `prediction`, `confidence`      the predicted class and its probability; used where none of the above is there
    ==============================  =============================================================================

    A label belongs to the class of the same name, wherever that class's column stands. A label that is a whole number
    is a class number where classes have no names of their own (`probs`, `logits`) or where `classes` names them.

    Parameters
    ----------
    path
        A CSV or TSV file (plain, .gz, .bz2, .xz, .zip), a Parquet or an NPZ file, or the folder of a run.
    label
        The column of labels, if it has another name. A file without labels can be opened, not evaluated.
    kind
        `"probs"`, `"logits"` or `"confidence"`: which columns to use where a file has several kinds, and what
        `columns` hold.
    columns
        The columns of scores, if they have other names: one for each class, or a single one of lists; for
        `kind="confidence"` the prediction's and the confidence's.
    classes
        The names of the classes in the order of class numbers: those of `columns`, or of the entries of a list.
    encoding
        Of a CSV file, if it is not UTF-8.
    missing
        `"error"`, or `"drop"` to leave out rows in which a value is missing.
    normalise
        Whether to divide each row's probabilities by their sum.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "predictions.csv"
    ...     _ = path.write_text("id,label,prob_dog,prob_cat\n7,cat,0.25,0.75\n8,dog,0.5,0.5\n")
    ...     file = open_file(path)
    ...     chunk = next(file.chunks())
    >>> file.kind, file.classes, file.others
    ('probs', ('dog', 'cat'), ('id',))
    >>> chunk.labels.tolist(), chunk.scores.tolist()
    ([1, 0], [[0.25, 0.75], [0.5, 0.5]])
    """
    place = _found(Path(path).expanduser())
    if kind is not None:
        choice("kind", kind, KINDS)
    choice("missing", missing, ("error", "drop"))
    source = open_source(place, encoding=encoding)
    held = source.columns
    truth = _label_column(place, held, label)
    kind, used, notes = _score_columns(place, held, kind, columns, truth)
    if flag("normalise", normalise) and kind != "probs":
        other = f" rescales probabilities, but {str(place)!r} holds {kind}"
        raise ValueError(Sentence(Argument("normalise", True), other))
    nested = kind != "confidence" and held[used[0]].nested
    given = None if classes is None else checked_names(classes)
    names, used = _classes(place, source, kind, used, given or source.classes, nested, explicit=columns is not None)
    return PredictionsFile(
        path=place,
        kind=kind,
        classes=names,
        n_rows=held[used[0]].n_rows,
        label=truth,
        columns=used,
        others=tuple(name for name in held if name not in (*used, truth)),
        notes=tuple(notes),
        missing=missing,
        normalise=normalise,
        source=source,
        nested=nested,
        by_position=nested or given is not None,
    )


def as_file(value: Any) -> PredictionsFile:
    """Return a predictions file from one, or from its path."""
    return value if isinstance(value, PredictionsFile) else open_file(value)


def _found(path: Path) -> Path:
    if path.is_dir():
        if (predictions := RunFiles(path).predictions()).is_file():
            return predictions
        raise ValueError(
            f"{str(path)!r} is a folder without {predictions.name}: pass a predictions file, or the folder of a run "
            "that has finished"
        )
    if not path.exists():
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"there is no file {str(path)!r}{nearest_names(path.name, beside)}")
    return path


def _label_column(path: Path, held: Mapping[str, Column], label: str | None) -> str | None:
    if label is not None:
        found = [_column(path, held, label, "label")]
    else:
        found = [name for name in held if name.strip() in _LABELS]
    if len(found) > 1:
        several = f"{str(path)!r} has the columns {_shown(found)}: say which holds the labels with "
        raise ValueError(Sentence(several, Argument("label")))
    if found and held[found[0]].nested:
        if held[found[0]].width == 1:
            raise ValueError(
                f"{found[0]!r} of {str(path)!r} is a matrix of one column: one class for each row is wanted, an array "
                "[N], such as labels.ravel()"
            )
        raise ValueError(
            f"{found[0]!r} of {str(path)!r} holds several values in each row: one class is wanted, its name or number "
            "(of one-hot labels, the position of the 1)"
        )
    return found[0] if found else None


def _score_columns(
    path: Path, held: Mapping[str, Column], kind: str | None, columns: Sequence[str] | None, label: str | None
) -> tuple[str, tuple[str, ...], list[str]]:
    """Return the kind and the columns of scores, and what is worth saying of the choice."""
    if columns is not None:
        return _named_columns(path, held, kind, columns)
    found: dict[str, tuple[str, ...]] = {}
    for name, prefix in _PREFIXES.items():
        lists = [column for column in held if column.strip() == name and column != label]
        each = [column for column in held if column.lstrip().startswith(prefix) and column != label]
        if lists and each:
            both = f"{str(path)!r} has the column {lists[0]!r} and columns {_shown(each)}: say which to use with "
            raise ValueError(Sentence(both, Argument("columns")))
        if lists and not held[lists[0]].nested:
            raise ValueError(
                f"column {lists[0]!r} of {str(path)!r} must hold a list in each row (Parquet) or be a matrix [N, K] "
                "(NPZ); in other files every class has a column of its own, prob_<class>. For the probability p of a "
                "binary task write both, 1 - p and p"
            )
        if lists or each:
            found[name] = tuple(lists or each)
    pair = tuple(next((c for c in held if c.strip() == name), "") for name in ("prediction", "confidence"))
    if all(pair):
        found["confidence"] = pair
    if kind is None:
        if "probs" in found and "logits" in found:
            raise ValueError(
                Sentence(
                    f"{str(path)!r} has columns of probabilities ({_shown(found['probs'])}) and of logits "
                    f"({_shown(found['logits'])}): say which to use with ",
                    Argument("kind", "probs"),
                    " or ",
                    Argument("kind", "logits"),
                )
            )
        kind = next((name for name in KINDS if name in found), None)
    elif kind not in found and kind != "confidence":
        # The caller overrules the name: --kind logits for columns prob_<class> that hold scores.
        other = "logits" if kind == "probs" else "probs"
        if other in found:
            return kind, found[other], [f"columns {_shown(found[other])} are read as {kind}, as asked"]
    if kind is None or kind not in found:
        raise ValueError(
            Sentence(
                f"{str(path)!r} has no columns of {kind or 'predictions'} that are known by name: its columns are "
                f"{_shown(list(held))}. Name those of each class's probability prob_<class>, or say which they are "
                "with ",
                Argument("columns"),
                " and what they hold with ",
                Argument("kind"),
                " ('probs', 'logits', or 'confidence' for a prediction and its confidence)",
            )
        )
    notes = []
    if kind != "confidence" and "confidence" in found:
        notes.append(f"columns {_shown(found[kind])} are used; prediction and confidence are not looked at")
    return kind, found[kind], notes


def _named_columns(
    path: Path, held: Mapping[str, Column], kind: str | None, columns: Sequence[str]
) -> tuple[str, tuple[str, ...], list[str]]:
    if isinstance(columns, str) or not columns:
        raise ArgumentTypeError("columns", columns, "a list of names")
    used = tuple(_column(path, held, name, "columns") for name in columns)
    if len(set(used)) < len(used):
        raise ArgumentError("columns", list(columns), "different from each other")
    if kind is None:
        said = [k for k, p in _PREFIXES.items() if all(c == k or c.lstrip().startswith(p) for c in used)]
        if not said:
            unclear = f"columns {_shown(used)} do not say what they hold: pass "
            raise ValueError(Sentence(unclear, Argument("kind"), " with one of 'probs', 'logits', 'confidence'"))
        kind = said[0]
    if kind == "confidence":
        if len(used) != 2:
            pair = f": the prediction and its confidence, got {list(columns)}"
            raise ValueError(Sentence(Argument("kind", "confidence"), " needs two ", Argument("columns"), pair))
    elif len(used) > 1 and (lists := [name for name in used if held[name].nested]):
        lone = f"column {lists[0]!r} holds lists, so it must be the only one of "
        raise ValueError(Sentence(lone, Argument("columns"), f", got {list(columns)}"))
    return kind, used, []


def _classes(
    path: Path,
    source: Source,
    kind: str,
    used: tuple[str, ...],
    given: tuple[str, ...] | None,
    nested: bool,
    *,
    explicit: bool,
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the names of the classes, and the columns of scores in the same order."""
    if kind == "confidence":
        return given, used
    if nested:
        width = _width(source, used[0])
        if given is not None and width is not None and len(given) != width:
            raise ValueError(f"classes has {len(given)} names, but {used[0]!r} of {str(path)!r} has {width} entries")
        if width == 0:
            raise ValueError(f"column {used[0]!r} of {str(path)!r} holds empty lists: there are no classes")
        if width is None and given is None:
            empty = f"{str(path)!r} has no rows, so the number of classes is not known: pass "
            raise ValueError(Sentence(empty, Argument("classes")))
        return given or tuple(str(k) for k in range(width or 0)), used
    if explicit and given is not None:
        if len(given) != len(used):
            number = f" must name the {len(used)} columns in their order, got {len(given)} names"
            raise ValueError(Sentence(Argument("classes"), number))
        return given, used
    names = tuple(_class_of(column) for column in used)
    if len(set(names)) < len(names):
        twice = f"two columns of {str(path)!r} are of the same class: {_shown(used)}. Name them with "
        raise ValueError(Sentence(twice, Argument("columns")))
    if given is None:
        return names, used
    if set(given) != set(names) and {whole(name) for name in names} == set(range(len(given))):
        names = tuple(given[int(name)] for name in names)  # prob_0, prob_1, …: numbers, which classes= names
    if set(given) != set(names):
        odd = sorted(set(given) ^ set(names))
        raise ValueError(
            Sentence(
                Argument("classes"),
                f" must be the names of the columns, {_shown(names)}, in the order of class numbers; {odd[0]!r} is "
                "in one of the two only. To rename the columns, pass ",
                Argument("columns"),
                " as well",
            )
        )
    place = dict(zip(names, used, strict=True))
    return given, tuple(place[name] for name in given)


def _class_of(column: str) -> str:
    for prefix in _PREFIXES.values():
        if column.lstrip().startswith(prefix):
            return column.lstrip().removeprefix(prefix)
    return column


def _width(source: Source, name: str) -> int | None:
    """Return the number of entries of a column of lists, from its first row where the file does not say it."""
    width = source.columns[name].width
    if width is not None:
        return width
    for batch in source.batches([name], 1024):
        for value in batch[name].to_pylist():
            if value is not None:
                return len(value)
    return None


def _column(path: Path, held: Mapping[str, Column], name: str, argument: str) -> str:
    if name in held:
        return name
    absent = f" is no column of {str(path)!r}{nearest_names(name, held)}"
    raise ValueError(Sentence(Argument(argument, name), absent))


def _rows_at_once(n_classes: int | None) -> int:
    return min(max(_CHUNK // max(n_classes or 1, 1), _FEWEST), _MOST)


def _unlabelled(chunk: FileChunk) -> NDArray[np.bool_]:
    """Return where a class is missing, `[M]`."""
    lacks = np.zeros(len(chunk), np.bool_)
    for codes in (chunk.labels, chunk.predictions):
        if codes is not None and len(codes) and codes.min() == ABSENT:
            lacks |= codes == ABSENT
    return lacks


def _lacking(chunk: FileChunk) -> NDArray[np.bool_]:
    """Return where anything is missing, `[M]`."""
    lacks = _unlabelled(chunk)
    if chunk.scores is not None:
        lacks |= np.isnan(chunk.scores).any(axis=1)
    if chunk.confidence is not None:
        lacks |= np.isnan(chunk.confidence)
    return lacks


def _only(chunk: FileChunk, kept: NDArray[np.bool_]) -> FileChunk:
    """Return the chunk with the rows to keep."""

    def part(values: Any) -> Any:
        if values is None or isinstance(values, np.ndarray):
            return None if values is None else values[kept]
        return values.filter(kept)

    return FileChunk(
        chunk.rows[kept],
        part(chunk.labels),
        part(chunk.scores),
        part(chunk.predictions),
        part(chunk.confidence),
        chunk.classes,
        n_dropped=int((~kept).sum()),
        others={name: part(values) for name, values in chunk.others.items()},
    )


def _shown(names: Sequence[str], n: int = 6) -> str:
    """Return names as an error lists them, the first few.

    >>> _shown(["a", "b", "c"], n=2)
    "'a', 'b', … (3)"
    """
    if not names:
        return "none"
    listed = ", ".join(map(repr, names[:n]))
    return f"{listed}, … ({len(names)})" if len(names) > n else listed
