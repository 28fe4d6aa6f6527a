"""Predictions files of any size and form, opened by the names of their columns and read some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal._arrays import SUM_TOLERANCE
from vicinal._checks import Argument, Sentence, choice, flag, integer, nearest_names
from vicinal._remote import as_path
from vicinal.predictions.class_names import ABSENT, ClassCodes, checked_names
from vicinal.predictions.score_columns import SCORE_KINDS, class_columns, label_column, score_columns
from vicinal.tables import Chunk, Columns, Table, is_pattern, is_table, open_table
from vicinal.tables.base import quoted
from vicinal.tables.column_values import matrix, strict_numbers

#: Numbers in a chunk: some megabytes, and enough rows to make the work on each chunk worth its start.
_CHUNK = 2**21
_FEWEST, _MOST = 2**12, 2**18
#: What a run calls its validation predictions. `vicinal.runs.layout` has all names, and costs the import of torch.
_OF_A_RUN = "predictions.parquet"


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
    spellings
        Classes that the rows so far write in several ways.
    path, before
        The file in which they are, and the number of rows before it, where there are several files.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    scores: NDArray[np.floating] | None
    predictions: NDArray[np.int64] | None
    confidence: NDArray[np.floating] | None
    classes: Sequence[str]
    n_dropped: int = 0
    n_rescaled: int = 0
    others: Columns = field(default_factory=dict)
    path: Path = Path()
    before: int = 0
    spellings: Mapping[str, Collection[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, i: int) -> str:
        """Return where the i-th of these rows is, as an error says it."""
        return f"row {self.rows[i] - self.before:,} of {str(self.path)!r}"


@dataclass(frozen=True, eq=False)
class PredictionsFile:
    r"""A predictions file whose columns are understood; made by `open_file`. Its rows are read by `chunks`.

    Attributes
    ----------
    path
        The file, or the folder or pattern of its shards.
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

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "predictions.csv"
    ...     _ = path.write_text("label,prob_dog,prob_cat\ncat,0.25,0.75\n")
    ...     file = open_file(path)
    >>> file.kind, file.label, file.columns
    ('probs', 'label', ('prob_dog', 'prob_cat'))
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
    source: Table = field(repr=False)
    nested: bool = field(repr=False)
    by_position: bool = field(repr=False)
    is_positive: bool = field(repr=False, default=False)

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
        # Advice on a wrong label differs where classes have no names but their places in a list.
        numbered = self.nested and self.classes == tuple(str(k) for k in range(self.n_classes or 0))
        codes = ClassCodes(self.classes, by_position=self.by_position, numbered=numbered)
        names = list(dict.fromkeys([*([] if label is None else [label]), *self.columns, *others]))
        for rows_read in self.source.chunks(names, size):
            chunk = self._chunk(rows_read, codes, label, others)
            if len(chunk) or chunk.n_dropped:
                yield chunk

    def logits(self, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return scores as logits: the logarithms of probabilities, 0 raised to the smallest positive number."""
        if self.kind == "logits":
            return scores
        logs: NDArray[np.floating] = np.log(np.maximum(scores, np.finfo(scores.dtype).smallest_subnormal))
        return logs

    def required_label(self) -> str:
        """Return the column of labels, or say how to name it."""
        if self.label is None:
            raise ValueError(
                Sentence(
                    f"{str(self.path)!r} has no column of labels (label, labels, target or y_true): its columns are "
                    f"{quoted([*self.columns, *self.others])}. Name it with ",
                    Argument("label"),
                )
            )
        return self.label

    def check(self, chunk: FileChunk) -> None:
        """Raise an error that names the first bad row, if there is one."""
        missing = _missing(chunk)
        if missing.any():
            raise ValueError(self._missing_sentence(chunk, missing))
        if chunk.confidence is not None:
            values = chunk.confidence[:, None]
            self._refuse(chunk, ~((values >= 0) & (values <= 1)), values, "a confidence must lie in [0, 1]")
        elif self.kind == "logits":
            values = np.asarray(chunk.scores)
            finite = ". For a class that cannot be, write a large negative number such as -10000"
            self._refuse(chunk, ~np.isfinite(values), values, "logits must be finite", finite)
        elif chunk.scores is not None:
            advice = (
                ". If these are percentages or counts, rescale them with ",
                Argument("normalise", True),
                "; if they are unnormalised scores, say so with ",
                Argument("kind", "logits"),
            )
            wrong = ~((chunk.scores >= 0) & (chunk.scores <= 1))
            self._refuse(chunk, wrong, chunk.scores, "probabilities must lie in [0, 1]", *advice)
            self._check_sums(chunk, chunk.scores)

    def _chunk(self, part: Chunk, codes: ClassCodes, label: str | None, others: Sequence[str]) -> FileChunk:
        # Errors count rows within the shard that a user can open.
        rows = part.rows - part.before

        def numbers(name: str) -> NDArray[np.floating]:
            return strict_numbers(part[name], rows, what=name, decimal_comma=part.decimal_comma)

        truth = None if label is None else codes.encode(part[label], what=label, rows=rows)
        scores = predictions = confidence = None
        if self.kind == "confidence":
            predictions = codes.encode(part[self.columns[0]], what=self.columns[0], rows=rows)
            confidence = numbers(self.columns[1])
        elif self.nested:
            scores = matrix(part[self.columns[0]], rows, width=len(self.classes or ()), what=self.columns[0])
        else:
            columns = [numbers(name) for name in self.columns]
            # One class after another in memory: what reduces over classes need not turn the matrix.
            scores = np.stack([1 - columns[0], columns[0]] if self.is_positive else columns).T
        kept = {name: part[name] for name in others}
        place: dict[str, Any] = {"path": part.path, "before": part.before, "spellings": codes.spellings}
        chunk = FileChunk(part.rows, truth, scores, predictions, confidence, codes.names, others=kept, **place)
        if self.missing == "drop" and (missing := _missing(chunk)).any():
            chunk = _only(chunk, ~missing)
        # A label without a class is refused even here: the caller checks scores only.
        elif _without_class(chunk).any():
            raise ValueError(self._missing_sentence(chunk, _missing(chunk)))
        if self.normalise and chunk.scores is not None and len(chunk):
            chunk = self._rescaled(chunk)
        return chunk

    def _rescaled(self, chunk: FileChunk) -> FileChunk:
        scores = np.asarray(chunk.scores, np.float64)
        if (missing := _missing(chunk)).any():
            raise ValueError(self._missing_sentence(chunk, missing))
        self._refuse(chunk, ~((scores >= 0) & (scores < np.inf)), scores, "only finite numbers of at least 0 rescale")
        # In float64: rounding of many float32 terms would show in the sum.
        total = scores.sum(axis=1, keepdims=True)
        self._refuse(chunk, total <= 0, total, "probabilities that are all 0 cannot be rescaled")
        off = int((np.abs(total - 1) > SUM_TOLERANCE).sum())
        return replace(chunk, scores=scores / total, n_rescaled=off)

    def _check_sums(self, chunk: FileChunk, scores: NDArray[np.floating]) -> None:
        total = scores.sum(axis=1, dtype=np.float64)
        off = np.flatnonzero(np.abs(total - 1) > SUM_TOLERANCE)
        if not off.size:
            return
        advice: tuple[str | Argument, ...] = (
            "there is one class only: for the probability p of a binary task two columns are needed, 1 - p and p, or "
            "one column y_prob",
        )
        if scores.shape[1] > 1:
            advice = (
                "if these are unnormalised scores, pass ",
                Argument("kind", "logits"),
                "; if they were rounded, or are meant to be rescaled, pass ",
                Argument("normalise", True),
                "; if there are too few or too many columns, name them with ",
                Argument("columns"),
            )
        raise ValueError(
            Sentence(
                f"{chunk.place(int(off[0]))} has probabilities that sum to {total[off[0]]:.6g}, not to one (within "
                f"{SUM_TOLERANCE:g}): ",
                *advice,
            )
        )

    def _refuse(
        self, chunk: FileChunk, wrong: NDArray[np.bool_], values: Any, rule: str, *advice: str | Argument
    ) -> None:
        """Raise an error for the first row with a wrong value among `values` `[M, K]`."""
        if not wrong.any():
            return
        row, column = (int(place[0]) for place in np.nonzero(wrong))
        names = self.columns[1:] if self.kind == "confidence" else self.columns
        # A column y_prob has become two; the error shows the one that is in the file.
        name = names[0] if self.nested or self.is_positive else names[column]
        value = float(values[row, -1 if self.is_positive else column])
        raise ValueError(Sentence(f"{rule}, but {chunk.place(row)} has {value:.10g} in column {name!r}", *advice))

    def _missing_sentence(self, chunk: FileChunk, missing: NDArray[np.bool_]) -> Sentence:
        """Return the error for missing values, after counting them to the end of the file."""
        first = int(np.flatnonzero(missing)[0])
        # The whole file is counted before the error is raised, so that one run shows how much to repair.
        lenient = replace(self, missing="drop", normalise=False)
        n_missing, n, end = 0, 0, ""
        try:
            for part in lenient.unchecked_chunks(labels=chunk.labels is not None):
                n_missing, n = n_missing + part.n_dropped, n + part.n_dropped + len(part)
        except ValueError:  # the file has another fault further on: what is counted is right so far
            end = " at least"
        return Sentence(
            f"{n_missing:,}{end} of {n:,} rows of {str(self.path)!r} have a missing value, the first of them row "
            f"{chunk.rows[first]:,} (",
            *self._missing_column(chunk, first),
            "). Fill them in, or leave these rows out with ",
            Argument("missing", "drop"),
        )

    def _missing_column(self, chunk: FileChunk, row: int) -> tuple[str | Argument, ...]:
        if chunk.labels is not None and chunk.labels[row] == ABSENT:
            advice = "; if its text there is the name of a class, pass "
            return f"column {self.label!r}{advice}", Argument("classes")
        if chunk.scores is not None and not self.nested and not self.is_positive:
            return (f"column {self.columns[int(np.isnan(chunk.scores[row]).argmax())]!r}",)
        if chunk.predictions is not None and chunk.predictions[row] != ABSENT:
            return (f"column {self.columns[1]!r}",)
        return (f"column {self.columns[0]!r}",)


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
    `y_true`, `y_prob`              the true class and the probability of class 1 of a binary task
    `prediction`, `confidence`      the predicted class and its probability; used where none of the above is there
    ==============================  =============================================================================

    A label belongs to the class of the same name, wherever that class's column stands. A label that is a whole number
    is a class number where classes have no names of their own (`probs`, `logits`) or where `classes` names them.

    Parameters
    ----------
    path
        A CSV, TSV or JSON-lines file (plain, .gz, .bz2, .xz, .zip), a Parquet or an NPZ file; a folder of them or a
        pattern (`"part-*.csv"`), read as one; or the folder of a run.
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
        The encoding of a CSV file, if it is not UTF-8.
    missing
        `"error"`, or `"drop"` to leave out rows in which a value is missing.
    normalise
        Whether to divide each row's probabilities by their sum.

    Returns
    -------
    PredictionsFile
        The file, with its columns, classes and notes.

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
    place = _located(as_path(path))
    if kind is not None:
        choice("kind", kind, SCORE_KINDS)
    choice("missing", missing, ("error", "drop"))
    table = open_table(place, encoding=encoding, arrays_too=True)
    if table.repeated:
        hint = ". If its first line holds data, put a line of column names above it" * bool(table.header_hint())
        raise ValueError(f"{str(place)!r} has several columns called {table.repeated[0]!r}: rename them{hint}")
    truth = label_column(table, label)
    scores = score_columns(table, kind, columns, truth)
    if flag("normalise", normalise) and scores.kind != "probs":
        raise ValueError(
            Sentence(Argument("normalise", True), f" rescales probabilities, but {str(place)!r} holds {scores.kind}")
        )
    given = None if classes is None else checked_names(classes)
    names, used = class_columns(table, scores, given or _distinct_classes(table), explicit=columns is not None)
    nested = scores.kind != "confidence" and table.columns[used[0]].nested
    return PredictionsFile(
        path=place,
        kind=scores.kind,
        classes=names,
        n_rows=table.columns[used[0]].n_rows,
        label=truth,
        columns=used,
        others=tuple(name for name in table.columns if name not in (*used, truth)),
        notes=(*table.notes, *scores.notes),
        missing=missing,
        normalise=normalise,
        source=table,
        nested=nested,
        by_position=nested or given is not None,
        is_positive=scores.is_positive,
    )


def _distinct_classes(table: Table) -> tuple[str, ...] | None:
    """Return the names of classes that a file holds, if they are different."""
    try:
        return None if table.classes is None else checked_names(table.classes)
    except ValueError as error:
        raise ValueError(f"{str(table.path)!r}: {error}") from error


def as_file(value: Any) -> PredictionsFile:
    """Return a predictions file from one, or from its path."""
    return value if isinstance(value, PredictionsFile) else open_file(value)


def _located(path: Path) -> Path:
    """Return the predictions of a run's folder, any other path if something is there."""
    if path.is_dir():
        if (predictions := path / _OF_A_RUN).is_file():
            return predictions
        if any(is_table(entry) or entry.suffix == ".npz" for entry in path.iterdir()):
            return path
        raise ValueError(
            f"{str(path)!r} is a folder without {predictions.name} and without tables: pass a predictions file, a "
            "folder of them, or the folder of a run that has finished"
        )
    if not path.exists() and not path.is_symlink() and not is_pattern(path):
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"there is no file {str(path)!r}{nearest_names(path.name, beside)}")
    return path


def _rows_at_once(n_classes: int | None) -> int:
    return min(max(_CHUNK // max(n_classes or 1, 1), _FEWEST), _MOST)


def _without_class(chunk: FileChunk) -> NDArray[np.bool_]:
    """Return where a class is missing, `[M]`."""
    missing = np.zeros(len(chunk), np.bool_)
    for codes in (chunk.labels, chunk.predictions):
        if codes is not None and len(codes) and codes.min() == ABSENT:
            missing |= codes == ABSENT
    return missing


def _missing(chunk: FileChunk) -> NDArray[np.bool_]:
    """Return where anything is missing, `[M]`."""
    missing = _without_class(chunk)
    if chunk.scores is not None:
        missing |= np.isnan(chunk.scores).any(axis=1)
    if chunk.confidence is not None:
        missing |= np.isnan(chunk.confidence)
    return missing


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
        path=chunk.path,
        before=chunk.before,
        spellings=chunk.spellings,
    )
