"""The metrics of a predictions file of any size, in one pass and constant memory."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vicinal._checks import Argument, ArgumentError, Sentence, choice
from vicinal._memory import n_threads
from vicinal.metrics import METRICS, Evaluation, Mistake, Tally, evaluate_slices, kernels
from vicinal.metrics.intervals import confidence_level
from vicinal.metrics.slices import FEWEST, column_slices
from vicinal.predictions.predictions_file import FileChunk, PredictionsFile, as_file
from vicinal.tables.column_values import merged_notes

#: Numbers in a file from which on compiled loops save more than the second that it takes to load them.
_WORTH_COMPILED_LOOPS = 2**26
#: Bytes of a file up to which all its columns are sliced by, since they are held in memory.
_MOST_SLICED = 2**26

T = TypeVar("T")
R = TypeVar("R")


def evaluate_file(
    file: str | os.PathLike[str] | PredictionsFile,
    *,
    n_bins: int = 15,
    level: float = 0.95,
    worst: int = 20,
    group: str | None = None,
    weight: str | None = None,
    slices: Sequence[str] | None = (),
    progress: Callable[[int, int | None], object] | None = None,
) -> Evaluation:
    r"""Return accuracy, proper scores and calibration errors of a predictions file, with intervals, in one pass.

    The numbers are those of `vicinal.evaluate` on the same predictions. Memory holds some chunks of the file, the
    reliability tables, the confusion matrix and the worst mistakes, however many rows there are.

    Parameters
    ----------
    file
        A path, or what `open_file` returned.
    n_bins
        Equal-width bins of the calibration errors.
    level
        Confidence level of the intervals, in (0, 1).
    worst
        How many of the most confident mistakes to keep.
    group
        The column of groups, where rows of a group are alike: intervals then allow for it. Some numbers of each row
        are held in memory.
    weight
        The column that says how much each row counts; see `vicinal.evaluate`. Some numbers of each row are held in
        memory.
    slices
        Columns to slice by, which are held in memory; None for all columns of a file of at most 64 MB. The result's
        `slices` has the metrics of each value, of quartiles of numbers and of lengths of texts, the worst first.
    progress
        Called after each chunk with the rows read so far and the number of rows, None where only reading tells it.

    Returns
    -------
    Evaluation
        The metrics, the confusion matrix and the worst mistakes.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "predictions.csv"
    ...     _ = path.write_text("label,prob_dog,prob_cat\ncat,0.25,0.75\ndog,0.25,0.75\ndog,1.0,0.0\n")
    ...     result = evaluate_file(path)
    >>> print(result.accuracy)
    0.6667 [0.0943, 0.9916]
    >>> result.worst
    (Mistake(row=2, label='dog', prediction='cat', confidence=0.75),)
    """
    opened, level = as_file(file), confidence_level(level)
    sliced = slice_columns(opened, slices)
    keep = group is not None or weight is not None or bool(sliced)
    counts = FileCounts(n_bins, worst, keep_samples=keep)
    others, groups, weights = [*group_columns(opened, group), *sliced], list[Any](), list[NDArray[np.float64]]()
    others += weight_columns(opened, weight)
    columns: dict[str, list[Any]] = {name: [] for name in sliced}
    for chunk in counts.read(opened, others):
        groups += [] if group is None else [chunk.others[group]]
        weights += [] if weight is None else [row_weights(chunk, weight)]
        for name, cells in columns.items():
            cells.append(np.asarray(chunk.others[name], object))
        if progress is not None:
            progress(counts.n_rows, opened.n_rows)
    measured = counts.evaluation(
        opened,
        level,
        groups=None if group is None else joined_groups(groups),
        sample_weight=None if weight is None else joined_weights(weights, weight),
    )
    masks = dict(_slices_of(columns, all_of_them=slices is not None))
    return replace(measured, slices=tuple(evaluate_slices(measured, masks, level=level)) if masks else ())


class FileCounts:
    """What is counted of a predictions file. Counts of its shards, added up in order, are those of the file.

    Parameters
    ----------
    n_bins, worst
        As in `evaluate_file`.
    keep_samples
        Whether to keep some numbers of each row, for groups and slices.
    """

    def __init__(self, n_bins: int = 15, worst: int = 20, *, keep_samples: bool = False) -> None:
        self.tally = Tally(n_bins, metrics=list(METRICS), fine=True, worst=worst, keep_samples=keep_samples)
        self.names: Sequence[str] = ()
        self.n_dropped = self.n_rescaled = 0
        self.spellings: Mapping[str, Collection[str]] = {}

    @property
    def n_rows(self) -> int:
        """The number of rows read."""
        return self.tally.n + self.n_dropped

    def read(self, file: PredictionsFile, others: Sequence[str] = ()) -> Iterator[FileChunk]:
        """Count the rows of a file; yield its chunks once they are counted.

        Parameters
        ----------
        file
            The file, or one shard of it.
        others
            Further columns that chunks have.
        """
        if (file.n_rows or 0) * (file.n_classes or 1) > _WORTH_COMPILED_LOOPS:
            kernels.load()
        self.names = file.classes or ()
        chunks = file.unchecked_chunks(others=others)
        for chunk, part in _map_ahead(lambda chunk: _counted(file, chunk, self.tally), chunks):
            self.tally.merge_(part)
            self.names, self.spellings = chunk.classes, chunk.spellings
            self.n_dropped, self.n_rescaled = self.n_dropped + chunk.n_dropped, self.n_rescaled + chunk.n_rescaled
            yield chunk

    def append(self, other: FileCounts) -> None:
        """Add the counts of the next shard, whose rows are numbered from 1 and follow those so far."""
        before = self.n_rows
        other.tally.mistakes = [(minus, row + before, y, z) for minus, row, y, z in other.tally.mistakes]
        self.tally.merge_(other.tally)
        self.names, self.spellings = other.names or self.names, {**self.spellings, **other.spellings}
        self.n_dropped, self.n_rescaled = self.n_dropped + other.n_dropped, self.n_rescaled + other.n_rescaled

    def evaluation(
        self,
        file: PredictionsFile,
        level: float,
        *,
        groups: Any = None,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> Evaluation:
        """Return the metrics of all rows."""
        if not self.tally.n:
            why = f": all {self.n_dropped:,} have a missing value" if self.n_dropped else ""
            raise ValueError(f"{str(file.path)!r} has no rows to measure{why}")
        self.tally.n_classes = len(self.names)  # a class may be in the list and in no row
        measured = self.tally.evaluation(level, groups=groups, sample_weight=sample_weight)
        return replace(
            measured,
            path=file.path,
            kind=file.kind,
            classes=tuple(self.names),
            worst=tuple(_named(mistake, self.names) for mistake in measured.worst),
            notes=(
                *file.notes,
                *merged_notes(self.spellings),
                *_notes(file, measured, self.n_dropped, self.n_rescaled),
            ),
        )


def _counted(file: PredictionsFile, chunk: FileChunk, total: Tally) -> tuple[FileChunk, Tally]:
    """Measure a chunk. The tally checks the values cheaply; if one is bad, look again for its row."""
    part = total.empty()
    if not len(chunk):
        return chunk, part
    try:
        return chunk, measured_chunk(file, chunk, part)
    except ValueError:
        file.check(chunk)
        raise


def measured_chunk(file: PredictionsFile, chunk: FileChunk, tally: Tally) -> Tally:
    """Return a tally with the rows of a chunk counted in."""
    given: dict[str, Any] = {"labels": chunk.labels, "rows": chunk.rows}
    if file.kind == "confidence":
        given |= {"confidence": chunk.confidence, "predictions": chunk.predictions}
        return tally.update_confidences(**given)
    return tally.update(**given | {file.kind: chunk.scores})


def slice_columns(file: PredictionsFile, slices: Sequence[str] | None) -> list[str]:
    """Return the columns to slice by, which must be in the file; None for all of a small file."""
    if slices is None:
        size = sum(path.stat().st_size for path in [file.path] if path.is_file())
        others = [name for name in file.others if name not in ("prediction", "confidence")]
        return others if 0 < size <= _MOST_SLICED else []
    for name in slices:
        choice("slice", name, file.others)
    return list(slices)


def _slices_of(columns: Mapping[str, list[Any]], *, all_of_them: bool) -> Iterator[tuple[str, Any]]:
    """Yield slices by name, and which rows are in them; small ones only of columns that were named."""
    for name, parts in columns.items():
        for label, rows in column_slices(name, np.concatenate(parts)):
            if all_of_them or FEWEST <= int(rows.sum()) < len(rows):
                yield label, rows


def group_columns(file: PredictionsFile, group: str | None) -> list[str]:
    """Return the column of groups, if one is named, which must be in the file."""
    if group is not None and group not in file.others:
        raise ArgumentError("group", group, f"a column beside label and scores: {', '.join(map(repr, file.others))}")
    return [] if group is None else [group]


def weight_columns(file: PredictionsFile, weight: str | None) -> list[str]:
    """Return the column of weights, if one is named, which must be in the file."""
    if weight is not None and weight not in file.others:
        raise ArgumentError("weight", weight, f"a column beside label and scores: {', '.join(map(repr, file.others))}")
    return [] if weight is None else [weight]


def row_weights(chunk: FileChunk, weight: str) -> NDArray[np.float64]:
    """Return the weight of each row of a chunk, which must be a number of at least 0."""
    cells = chunk.others[weight]
    numbers = np.array([_number(cell) for cell in cells], np.float64)
    bad = np.flatnonzero(~((numbers >= 0) & (numbers < np.inf)))
    if len(bad):
        held = f" must hold numbers of at least 0, got {cells[int(bad[0])]!r} in {chunk.place(int(bad[0]))}"
        raise ValueError(Sentence(Argument("weight", weight), held))
    return numbers


def joined_weights(parts: Sequence[NDArray[np.float64]], weight: str) -> NDArray[np.float64]:
    """Return the weight of each row, some of which must be above 0."""
    weights = np.concatenate(parts)
    if not weights.any():
        raise ValueError(Sentence(Argument("weight", weight), " is 0 in every row: some must be above it"))
    return weights


def _number(cell: object) -> float:
    try:
        return float(cell)  # type: ignore[arg-type]  # what is no number is caught
    except (TypeError, ValueError):
        return math.nan


def joined_groups(parts: Sequence[Any]) -> Any:
    """Return the group of each row as text; a row without one is a group of its own."""
    values = np.concatenate([np.asarray(part, object) for part in parts])
    missing = [value is None or value != value or value == "" for value in values]
    return np.array(
        [f"row {k}" if gone else f"is {v}" for k, (v, gone) in enumerate(zip(values, missing, strict=True))]
    )


def _named(mistake: Mistake, classes: Sequence[str]) -> Mistake:
    return replace(mistake, label=classes[int(mistake.label)], prediction=classes[int(mistake.prediction)])


def _notes(file: PredictionsFile, measured: Evaluation, n_dropped: int, n_rescaled: int) -> list[str]:
    """Return notes on the metrics of a file."""
    notes = list(measured.notes)
    pairs = measured.confusion if file.kind == "confidence" else None
    if pairs is not None and not (pairs.any(axis=0) & pairs.any(axis=1)).any():
        notes.append(
            f"nothing in column {file.label!r} is ever in column {file.columns[0]!r}, so every prediction counts as "
            "wrong: are classes written the same way in both?"
        )
    if n_dropped:
        notes.append(f"{n_dropped:,} of {measured.n + n_dropped:,} rows are left out: a value is missing")
    if n_rescaled:
        notes.append(f"the probabilities of {n_rescaled:,} rows were rescaled to sum to one")
    return notes


def _map_ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield `function` of each item in order, on `n_threads` threads, a few items ahead and no more."""
    threads = n_threads()
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[R]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) > threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
