"""The figures of a predictions file of any size in one pass, in memory that does not grow with it."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from vicinal._checks import integer
from vicinal.metrics import ClasswiseTable, Estimate, ReliabilityTable, error_estimates, wilson
from vicinal.metrics._predictions import Array, Floats, open_predictions
from vicinal.metrics.intervals import coverage, z_of
from vicinal.metrics.scores import brier_of, nll_of, predicted
from vicinal.predictions.reading import FileChunk, PredictionsFile, as_file

__all__ = ["FileEvaluation", "Mistake", "evaluate_file"]

#: At least so many bins of confidence are counted: a multiple of the bins that are asked for, which are sums of them.
_FINE_BINS = 10_000
#: MCC needs a count for each pair of classes; above this many classes they are not kept.
_MOST_PAIRED = 2_000

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction: the row in the file (from 1), the true and the predicted class, the confidence."""

    row: int
    label: str
    prediction: str
    confidence: float


@dataclass(frozen=True, eq=False)
class FileEvaluation:
    """The figures of a predictions file, each an `Estimate` (value, low, high). Made by `evaluate_file`.

    Attributes
    ----------
    path, kind
        The file and what it holds: probs, logits, or confidence.
    n, n_classes, n_bins
        Sizes; the calibration errors depend on the number of bins.
    confidence
        Coverage of the intervals.
    accuracy, mcc, nll, brier, ece, oe, mce, rms, rms_debiased
        As in `vicinal.Evaluation`; None where `notes` says that the file cannot tell.
    classwise_ece
        See `vicinal.metrics.classwise_ece`; None for a file of confidences.
    classes
        The names of the classes.
    table, classwise
        The reliability tables themselves.
    confusion
        How many samples of each class (rows) were predicted as each class (columns); None for very many classes.
    worst
        The wrong predictions with the highest confidence, the surest first.
    confidence_levels, confidence_counts, confidence_correct
        The distribution of confidence in some 10,000 bins (lo, hi], those without samples left out: upper edge, number
        of samples, number of right ones. `RiskCoverage.from_counts` takes them.
    notes
        What is worth knowing, in sentences.
    """

    path: Path
    kind: str
    n: int
    n_classes: int
    n_bins: int
    confidence: float
    accuracy: Estimate
    mcc: Estimate | None
    nll: Estimate | None
    brier: Estimate | None
    ece: Estimate
    oe: Estimate
    mce: Estimate
    rms: Estimate
    rms_debiased: Estimate
    classwise_ece: float | None
    classes: tuple[str, ...] = field(repr=False)
    table: ReliabilityTable = field(repr=False)
    classwise: ClasswiseTable | None = field(repr=False)
    confusion: NDArray[np.int64] | None = field(repr=False)
    worst: tuple[Mistake, ...] = field(repr=False)
    confidence_levels: Array = field(repr=False)
    confidence_counts: NDArray[np.int64] = field(repr=False)
    confidence_correct: NDArray[np.int64] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def figures(self) -> dict[str, Estimate | None]:
        """The estimates by name, in order."""
        names = ("accuracy", "mcc", "nll", "brier", "ece", "oe", "mce", "rms", "rms_debiased")
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        bins = zip(
            self.table.edges[:-1].tolist(),
            self.table.edges[1:].tolist(),
            self.table.bin_count.tolist(),
            self.table.bin_confidence.tolist(),
            self.table.bin_accuracy.tolist(),
            strict=True,
        )
        return {
            "path": str(self.path),
            "kind": self.kind,
            "n": self.n,
            "n_classes": self.n_classes,
            "n_bins": self.n_bins,
            "confidence": self.confidence,
            **{name: None if figure is None else figure.to_dict() for name, figure in self.figures.items()},
            "classwise_ece": self.classwise_ece,
            "classes": list(self.classes),
            "bins": [
                {"low": low, "high": high, "count": count, "confidence": sure, "accuracy": right}
                if count
                else {"low": low, "high": high, "count": 0, "confidence": None, "accuracy": None}
                for low, high, count, sure, right in bins
            ],
            "worst": [asdict(mistake) for mistake in self.worst],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        head = (
            f"{self.n:,} samples, {self.n_classes} classes, {self.n_bins} bins; {100 * self.confidence:g} % intervals"
        )
        lines = [f"{name:<13}{'–' if figure is None else figure}" for name, figure in self.figures.items()]
        if self.classwise_ece is not None:
            lines.append(f"{'classwise_ece':<14}{self.classwise_ece:.4f}")
        return "\n".join([head, *lines, *(f"note: {note}" for note in self.notes)])


def evaluate_file(
    file: str | os.PathLike[str] | PredictionsFile,
    *,
    n_bins: int = 15,
    confidence: float = 0.95,
    worst: int = 20,
    progress: Callable[[int, int | None], object] | None = None,
) -> FileEvaluation:
    r"""Return accuracy, proper scores and calibration errors of a predictions file, with intervals, in one pass.

    The numbers are those of `vicinal.evaluate` on the same predictions. Memory holds some chunks of the file, the
    reliability tables, the confusion matrix and the worst mistakes, however many rows there are.

    Parameters
    ----------
    file
        A path, or what `open_file` returned.
    n_bins
        Equal-width bins of the calibration errors.
    confidence
        Coverage of the intervals, in (0, 1).
    worst
        How many of the most confident mistakes to keep.
    progress
        Called after each chunk with the rows read so far and the number of rows, None where only reading tells it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "predictions.csv"
    ...     _ = path.write_text("label,prob_dog,prob_cat\ncat,0.25,0.75\ndog,0.25,0.75\ndog,1.0,0.0\n")
    ...     result = evaluate_file(path)
    >>> print(result.accuracy)
    0.6667 [0.2077, 0.9385]
    >>> result.worst
    (Mistake(row=2, label='dog', prediction='cat', confidence=0.75),)
    """
    opened = as_file(file)
    confidence = coverage(confidence)
    plan = _Plan(integer("n_bins", n_bins, low=1), integer("worst", worst, low=0))
    measure = _measured_confidences if opened.kind == "confidence" else _measured_scores
    total = _Totals(opened, plan)
    for part in _map_ahead(lambda chunk: measure(opened, chunk, plan), opened.unchecked_chunks()):
        total.add(part)
        if progress is not None:
            progress(total.n + total.n_dropped, opened.n_rows)
    return total.evaluation(confidence)


# One chunk


@dataclass(frozen=True, eq=False)
class _Moments:
    """Number, mean and summed squared deviation of values; they merge without loss of digits (Chan et al. 1979)."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: Array) -> _Moments:
        mean = float(values.mean())
        squares = float(((values - mean) ** 2).sum()) if math.isfinite(mean) else math.inf
        return cls(len(values), mean, squares)

    def __add__(self, other: _Moments) -> _Moments:
        n = self.n + other.n
        if not self.n or not math.isfinite(self.mean + other.mean):
            return other if not self.n else _Moments(n, self.mean + other.mean, math.inf)
        gap = other.mean - self.mean
        squares = self.squares + other.squares + gap**2 * self.n * other.n / n
        return _Moments(n, self.mean + gap * other.n / n, squares)

    def estimate(self, confidence: float, *, low: float, high: float) -> Estimate:
        """Return the mean with its normal interval, as `metrics.intervals.mean_interval` does from the values."""
        if self.n < 2 or not math.isfinite(self.mean):
            return Estimate(self.mean, low, high)
        half = z_of(confidence) * math.sqrt(self.squares / (self.n - 1) / self.n)
        return Estimate(self.mean, max(low, self.mean - half), min(high, self.mean + half))


@dataclass(frozen=True)
class _Plan:
    """What is asked for. Fine bins are a multiple of the bins, and their edges the same float64 numbers."""

    n_bins: int
    worst: int

    @property
    def finer(self) -> int:
        return max(1, math.ceil(_FINE_BINS / self.n_bins))


@dataclass(frozen=True, eq=False)
class _Part:
    """What a chunk adds to the whole."""

    n_dropped: int
    n_rescaled: int
    fine: ReliabilityTable
    classes: Sequence[str] = ()
    pairs: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None = None
    """Label, prediction, and how many samples have both."""
    mistakes: list[tuple[float, int, int, int]] = field(default_factory=list)
    """Negative confidence, row, label, prediction: the smallest are the worst."""
    nll: _Moments = field(default_factory=_Moments)
    brier: _Moments = field(default_factory=_Moments)
    n_impossible: int = 0
    classwise: ClasswiseTable | None = None


def _measured_scores(file: PredictionsFile, chunk: FileChunk, plan: _Plan) -> _Part:
    """Measure a chunk of probabilities or logits."""
    if not len(chunk):
        return _Part(chunk.n_dropped, 0, ReliabilityTable(plan.n_bins * plan.finer))
    labels, scores = np.asarray(chunk.labels), {file.kind: chunk.scores}
    with _explained(file, chunk):
        held = open_predictions(labels, **scores)
        rows = [
            (predicted(part), part.confidence, nll_of(part, held.holds_logits), brier_of(part, held.holds_logits))
            for part in held.chunks()
        ]
        guess, sure, nll, brier = (np.concatenate(column) for column in zip(*rows, strict=True))
        part = _measured(chunk, guess, sure, plan)
        return replace(
            part,
            nll=_Moments.of(nll),
            brier=_Moments.of(brier),
            n_impossible=int(np.isinf(nll).sum()),
            classwise=ClasswiseTable(held.n_classes, plan.n_bins).update(labels, **scores),
        )


def _measured_confidences(file: PredictionsFile, chunk: FileChunk, plan: _Plan) -> _Part:
    """Measure a chunk of predictions with their confidence."""
    if not len(chunk):
        return _Part(chunk.n_dropped, 0, ReliabilityTable(plan.n_bins * plan.finer))
    with _explained(file, chunk):
        return _measured(chunk, np.asarray(chunk.predictions), np.asarray(chunk.confidence), plan)


def _measured(chunk: FileChunk, guess: NDArray[np.int64], sure: Floats, plan: _Plan) -> _Part:
    labels = np.asarray(chunk.labels)
    correct = labels == guess
    fine = ReliabilityTable(plan.n_bins * plan.finer).update_confidences(sure, correct)
    mistakes = _surest(chunk, labels, guess, sure, np.flatnonzero(~correct), plan.worst)
    pairs = _pairs(labels, guess, len(chunk.classes))
    return _Part(chunk.n_dropped, chunk.n_rescaled, fine, chunk.classes, pairs, mistakes)


def _surest(
    chunk: FileChunk,
    labels: NDArray[np.int64],
    guess: NDArray[np.int64],
    sure: Floats,
    wrong: NDArray[np.intp],
    worst: int,
) -> list[tuple[float, int, int, int]]:
    """Return the mistakes with the highest confidence; of equals those that come first."""
    if not worst:
        return []
    if len(wrong) > worst:
        least = np.partition(sure[wrong], len(wrong) - worst)[len(wrong) - worst]
        above, equal = wrong[sure[wrong] > least], wrong[sure[wrong] == least]
        wrong = np.concatenate([above, equal[: worst - len(above)]])
    return [(-float(sure[i]), int(chunk.rows[i]), int(labels[i]), int(guess[i])) for i in wrong]


def _pairs(
    labels: NDArray[np.int64], guess: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    if k > _MOST_PAIRED:
        return None
    cell = labels * k + guess
    if k * k <= len(cell):
        counts = np.bincount(cell, minlength=k * k)
        held = np.flatnonzero(counts)
        counts = counts[held]
    else:
        held, counts = np.unique(cell, return_counts=True)
    return held // k, held % k, counts


@contextmanager
def _explained(file: PredictionsFile, chunk: FileChunk) -> Iterator[None]:
    """Measuring checks the values, and cheaply; where one is bad, look again for its row."""
    try:
        yield
    except ValueError:
        file.check(chunk)
        raise


# All chunks


class _Totals:
    """The sum of the parts."""

    def __init__(self, file: PredictionsFile, plan: _Plan) -> None:
        self.file, self.plan = file, plan
        self.fine = ReliabilityTable(plan.n_bins * plan.finer)
        self.classwise: ClasswiseTable | None = None
        self.confusion: NDArray[np.int64] | None = np.zeros((0, 0), np.int64)
        self.nll, self.brier = _Moments(), _Moments()
        self.mistakes: list[tuple[float, int, int, int]] = []
        self.classes: Sequence[str] = file.classes or ()
        self.n_dropped = self.n_rescaled = self.n_impossible = 0

    @property
    def n(self) -> int:
        return self.fine.n

    def add(self, part: _Part) -> None:
        self.n_dropped += part.n_dropped
        self.n_rescaled += part.n_rescaled
        if not part.fine.n:
            return
        self.fine = self.fine + part.fine
        self.nll, self.brier = self.nll + part.nll, self.brier + part.brier
        self.n_impossible += part.n_impossible
        if part.classwise is not None:
            self.classwise = part.classwise if self.classwise is None else self.classwise + part.classwise
        self.mistakes = sorted(self.mistakes + part.mistakes)[: self.plan.worst]
        self.classes = part.classes
        self._count_pairs(part)

    def _count_pairs(self, part: _Part) -> None:
        if part.pairs is None or self.confusion is None:
            self.confusion = None
            return
        label, guess, count = part.pairs
        k = int(max(label.max(), guess.max())) + 1
        if k > len(self.confusion):  # more classes than were met before
            held = self.confusion
            self.confusion = np.zeros((k, k), np.int64)
            self.confusion[: len(held), : len(held)] = held
        self.confusion[label, guess] += count

    def evaluation(self, confidence: float) -> FileEvaluation:
        if not self.n:
            why = f": all {self.n_dropped:,} have a missing value" if self.n_dropped else ""
            raise ValueError(f"{str(self.file.path)!r} has no rows to measure{why}")
        plan, file, fine = self.plan, self.file, self.fine
        table = ReliabilityTable(plan.n_bins)
        for whole, parts in ((table.counts, fine.counts), (table.sums, fine.sums), (table.squares, fine.squares)):
            whole += parts.reshape(plan.n_bins, plan.finer, 2).sum(axis=1)
        correct = int(table.counts[:, 1].sum())
        low, high = wilson(correct, self.n, confidence)
        scored = file.kind != "confidence"
        filled = fine.bin_count > 0
        names = tuple(self.classes)
        confusion = None if self.confusion is None else _padded(self.confusion, len(names))
        return FileEvaluation(
            path=file.path,
            kind=file.kind,
            n=self.n,
            n_classes=len(names),
            n_bins=plan.n_bins,
            confidence=confidence,
            accuracy=Estimate(table.accuracy, float(low), float(high)),
            mcc=None if confusion is None else _mcc(confusion, confidence),
            nll=self.nll.estimate(confidence, low=0.0, high=np.inf) if scored else None,
            brier=self.brier.estimate(confidence, low=0.0, high=2.0) if scored else None,
            **error_estimates(table, confidence),
            classwise_ece=None if self.classwise is None else self.classwise.ece(),
            classes=names,
            table=table,
            classwise=self.classwise,
            confusion=confusion,
            worst=tuple(Mistake(row, names[y], names[z], -sure) for sure, row, y, z in self.mistakes),
            confidence_levels=fine.edges[1:][filled],
            confidence_counts=fine.bin_count[filled],
            confidence_correct=fine.counts[filled, 1],
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        notes = list(self.file.notes)
        if self.file.kind == "confidence":
            notes.append(
                "the file holds predictions and confidences only: NLL, Brier score and classwise error need the "
                "probabilities of all classes"
            )
            if self.confusion is not None and not (self.confusion.any(axis=0) & self.confusion.any(axis=1)).any():
                label, prediction = self.file.label, self.file.columns[0]
                notes.append(
                    f"nothing in column {label!r} is ever in column {prediction!r}, so every prediction counts as "
                    "wrong: are classes written the same way in both?"
                )
        if self.n_dropped:
            notes.append(f"{self.n_dropped:,} of {self.n + self.n_dropped:,} rows are left out: a value is missing")
        if self.n_rescaled:
            notes.append(f"the probabilities of {self.n_rescaled:,} rows were rescaled to sum to one")
        if self.n_impossible:
            notes.append(f"the true class of {self.n_impossible:,} rows has probability 0: the NLL is infinite")
        if self.confusion is None:
            notes.append(f"MCC and the confusion matrix are not computed for more than {_MOST_PAIRED:,} classes")
        return tuple(notes)


def _padded(matrix: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    return np.pad(matrix, (0, k - len(matrix)))


def _mcc(confusion: NDArray[np.int64], confidence: float) -> Estimate:
    """Return what `metrics.scores.mcc_estimate` does, from the number of samples of each label and prediction.

    A sample's contribution depends on its label and its prediction alone, so each cell of the matrix has one.
    """
    n = int(confusion.sum())
    t, p = confusion.sum(axis=1) / n, confusion.sum(axis=0) / n
    if t.max() == 1 or p.max() == 1:
        return Estimate(0.0, -1.0, 1.0)
    a, tp, tt, pp = float(np.trace(confusion)) / n, t @ p, t @ t, p @ p
    size = float(np.sqrt((1 - pp) * (1 - tt)))
    value = float((a - tp) / size)
    numerator = np.eye(len(t)) - a - (t[None, :] + p[:, None] - 2 * tp)
    influence = numerator / size + value * ((p[None, :] - pp) / (1 - pp) + (t[:, None] - tt) / (1 - tt))
    held = confusion > 0
    if np.ptp(influence[held]) > 1e-9:
        squares = float((confusion[held] * influence[held] ** 2).sum())
        return _Moments(n, value, squares).estimate(confidence, low=-1.0, high=1.0)
    low, high = (float((end - tp) / size) for end in wilson(np.trace(confusion), n, confidence))
    return Estimate(value, max(min(low, value), -1.0), min(max(high, value), 1.0))


def _map_ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield `function` of each item in order, on torch's number of threads, a few items ahead and no more."""
    threads = torch.get_num_threads()
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
