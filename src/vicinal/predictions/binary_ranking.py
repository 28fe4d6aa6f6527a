"""A predictions file of two classes: how the probability of the second one fits and ranks, in constant memory.

A ranking needs all probabilities in order. Each is kept as one number of 64 bits, the bits of the float (which for
floats from 0 on are in the order of the values) with the label in place of the sign. A million are sorted at a time and
put into a temporary file, from which they are merged: sorted in parts, the counts at each score are those of all rows
sorted at once, so nothing is approximated.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from vicinal.metrics import BinaryEvaluation, ReliabilityTable, evaluate_binary
from vicinal.metrics.binary import FINE_BINS
from vicinal.metrics.ranking import Counts, RankingSums, ranking_of_counts
from vicinal.predictions.file_evaluation import group_columns, joined_groups
from vicinal.predictions.predictions_file import FileChunk, PredictionsFile, as_file

#: Rows that are sorted in memory, and that are in memory while they are merged.
_IN_MEMORY = 2**20
#: Keys of a run that is merged as it is; shorter ones are sorted together.
_SHORTEST_RUN = 2**16
#: Rows of a range that is summed by itself, about, and how many of them show where ranges end.
_RANGE, _LOOKS = 2**19, 2**9


def binary_of_file(
    file: str | os.PathLike[str] | PredictionsFile, *, n_bins: int = 15, level: float = 0.95, group: str | None = None
) -> BinaryEvaluation | None:
    r"""Return how the probability of the second of two classes fits and ranks.

    None where there are more classes, one of them never occurs, or only confidences are known. Above a million rows,
    each takes 8 bytes of a temporary file. With a column of groups, all are in memory.

    Returns
    -------
    BinaryEvaluation or None
        The reliability table of the second class, AUROC and average precision.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "predictions.csv"
    ...     _ = path.write_text("label,prob_dog,prob_cat\ncat,0.25,0.75\ndog,0.2,0.8\ncat,0.1,0.9\ndog,0.6,0.4\n")
    ...     binary_of_file(path).auroc.value
    0.75
    """
    opened = as_file(file)
    if opened.kind == "confidence":
        return None
    groups, kept = [], []
    with BinaryCounts(n_bins) as counts:
        for chunk in opened.chunks(others=group_columns(opened, group)):
            if len(chunk.classes) != 2:
                return None
            if not len(chunk):
                continue
            probs, labels = counts.add(opened, chunk)
            if group is not None:
                groups.append(chunk.others[group])
                kept.append((probs, labels))
        if not counts.has_both or group is None:
            return counts.evaluation(level)
        p, y = (np.concatenate(parts) for parts in zip(*kept, strict=True))
        return evaluate_binary(y, p, n_bins=n_bins, level=level, groups=joined_groups(groups))


class BinaryCounts:
    """What is counted of the second of two classes. Counts of shards add up to those of the file.

    Parameters
    ----------
    n_bins
        As in `binary_of_file`.
    """

    def __init__(self, n_bins: int = 15) -> None:
        self._table, self._fine = ReliabilityTable(n_bins), ReliabilityTable(FINE_BINS)
        self._spilled = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `__exit__`
        self._keys = _Sorted(self._spilled)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._spilled.close()

    @property
    def has_both(self) -> bool:
        """Whether both classes occur."""
        return 0 < self._keys.n_positive < self._table.n

    def add(self, file: PredictionsFile, chunk: FileChunk) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Count the rows of a chunk; return the probability of the second class and whether it is true, `[M]`."""
        scores, labels = np.asarray(chunk.scores, np.float64), np.asarray(chunk.labels) == 1
        probs = expit(scores[:, 1] - scores[:, 0]) if file.kind == "logits" else scores[:, 1]
        self._table.update_confidences(probs, labels)
        self._fine.update_confidences(probs, labels)
        self._keys.add(probs, labels)
        return probs, labels

    def evaluation(
        self, level: float = 0.95, sum_ranges: Callable[[Mapping[int, KeyRange]], Sequence[RankingSums]] | None = None
    ) -> BinaryEvaluation | None:
        """Return the metrics of all rows; None where only one class occurs.

        Parameters
        ----------
        level
            The confidence level.
        sum_ranges
            What calls `KeyRange.sums` of each range of probabilities, perhaps elsewhere. Ranges are read when they are
            asked for. Without it rows are merged here.
        """
        if not self.has_both:
            return None
        positive, n = self._keys.n_positive, self._table.n
        if sum_ranges is None:
            found = ranking_of_counts(self._keys.counts(), positive, n - positive, level)
        else:
            every = sum(sum_ranges(_Ranges(self._keys, n)), RankingSums())
            found = every.ranking(positive, n - positive, level)
        return BinaryEvaluation(self._table, *found, positive / n, self._fine)

    def packed(self) -> PackedCounts:
        """Return the counts as data that can be sent to another process: 8 bytes a row."""
        return PackedCounts(self._table, self._fine, self._keys.n_positive, self._keys.sorted_runs())

    def append(self, shard: PackedCounts) -> None:
        """Add the counts of a shard."""
        self._table.merge_(shard.table)
        self._fine.merge_(shard.fine)
        self._keys.append(shard.runs, shard.n_positive)


@dataclass(frozen=True, eq=False)
class PackedCounts:
    """`BinaryCounts` of a shard, outside its temporary file."""

    table: ReliabilityTable
    fine: ReliabilityTable
    n_positive: int
    runs: list[NDArray[np.uint64]]
    """Keys, each run of them sorted."""


@dataclass(frozen=True, eq=False)
class KeyRange:
    """All rows whose probability is in some range, as keys in any order, and how many rows are elsewhere."""

    keys: NDArray[np.uint64]
    below: tuple[int, int]
    """Positives and negatives below the range."""
    every: tuple[int, int]
    """All positives and negatives."""

    def sums(self) -> RankingSums:
        """Return the part that these rows have in the ranking of all."""
        return RankingSums.of([_counted(np.sort(self.keys))], *self.every, self.below)


class _Sorted:
    """Probabilities with their labels, in order, of which few are in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.runs: list[tuple[int, int]] = []
        """Where each sorted run of keys begins in the file, and how long it is."""
        self.waiting, self.n_waiting = np.empty(_IN_MEMORY, np.uint64), 0
        self.n_positive = 0

    def add(self, probs: NDArray[np.float64], labels: NDArray[np.bool_]) -> None:
        """Take in rows; `probs` are in [0, 1]."""
        self.n_positive += int(labels.sum())
        self._take(((probs + 0.0).view(np.uint64) << np.uint64(1)) | labels.astype(np.uint64))  # -0.0 + 0.0 is 0.0

    def sorted_runs(self) -> list[NDArray[np.uint64]]:
        """Return all keys in sorted runs."""
        runs = [self.read(run, 0, length) for run, (_, length) in enumerate(self.runs)]
        return [*runs, np.sort(self.waiting[: self.n_waiting])]

    def append(self, runs: Sequence[NDArray[np.uint64]], n_positive: int) -> None:
        """Take in what `sorted_runs` of another one returned."""
        self.n_positive += n_positive
        for run in runs:
            if len(run) >= _SHORTEST_RUN:
                self._write(run)
            else:  # thousands of short runs would take long to merge
                self._take(run)

    def read(self, run: int, start: int, stop: int) -> NDArray[np.uint64]:
        """Return some keys of a run."""
        self.file.seek(8 * (self.runs[run][0] + start))
        return np.fromfile(self.file, np.uint64, stop - start)

    def _write(self, keys: NDArray[np.uint64]) -> None:
        self.file.seek(0, os.SEEK_END)
        self.runs.append((self.file.tell() // 8, len(keys)))
        self.file.write(keys.tobytes())

    def _take(self, keys: NDArray[np.uint64]) -> None:
        while len(keys):
            taken = keys[: _IN_MEMORY - self.n_waiting]
            self.waiting[self.n_waiting : self.n_waiting + len(taken)] = taken
            self.n_waiting += len(taken)
            keys = keys[len(taken) :]
            if self.n_waiting == _IN_MEMORY:
                self.waiting.sort()
                self._write(self.waiting)
                self.n_waiting = 0

    def counts(self) -> Iterator[Counts]:
        """Yield the counts at each distinct probability, rising, some at a time."""
        held: Counts | None = None  # the highest probability so far, of which more may come
        for keys in self._merged():
            block = _counted(keys)
            if held is not None and held.scores[0] == block.scores[0]:
                block.positive[0] += held.positive[0]
                block.negative[0] += held.negative[0]
            elif held is not None:
                yield held
            if len(block.scores) > 1:
                yield Counts(block.scores[:-1], block.positive[:-1], block.negative[:-1])
            held = Counts(block.scores[-1:], block.positive[-1:], block.negative[-1:])
        if held is not None:
            yield held

    def _merged(self) -> Iterator[NDArray[np.uint64]]:
        last = np.sort(self.waiting[: self.n_waiting])
        size = max(_IN_MEMORY // (len(self.runs) + 1), 256)
        done, lengths = [0] * len(self.runs), [length for _, length in self.runs]
        parts = [np.zeros(0, np.uint64)] * len(self.runs) + [last]
        while True:
            for run, at in enumerate(done):
                if not len(parts[run]) and at < lengths[run]:
                    parts[run] = self.read(run, at, min(at + size, lengths[run]))
                    done[run] += len(parts[run])
            # What is not above the last of every part that goes on is complete.
            ongoing = zip(parts, done, lengths, strict=False)
            unread = [part[-1] for part, at, length in ongoing if at < length]
            ends = [int(np.searchsorted(part, min(unread), "right")) if unread else len(part) for part in parts]
            ready = np.concatenate([part[:end] for part, end in zip(parts, ends, strict=True)])
            parts = [part[end:] for part, end in zip(parts, ends, strict=True)]
            if not len(ready):
                return
            ready.sort()
            yield ready


class _Ranges(Mapping[int, KeyRange]):
    """All rows in ranges of rising probability, each read when it is asked for; none holds many more than another."""

    def __init__(self, keys: _Sorted, n: int) -> None:
        self._keys, self._last = keys, np.sort(keys.waiting[: keys.n_waiting])
        self._every = keys.n_positive, n - keys.n_positive
        count, step = -(-n // _RANGE), max(_RANGE // _LOOKS, 1)
        # Every so many keys of each run show where to cut. A cut is below both keys of a probability.
        shown = np.sort(np.concatenate([run[::step] for run in self._runs()]))
        cuts = np.unique(shown[[len(shown) * k // count for k in range(1, count)]] & ~np.uint64(1))
        cuts = cuts[cuts > shown[0]]  # each range has rows: the lowest of a run are among the shown
        self._places, positive = [], np.zeros(len(cuts) + 1, np.int64)
        for run in self._runs():
            at = np.searchsorted(run, cuts)
            positive += [int((part & np.uint64(1)).sum()) for part in np.split(run, at)]
            self._places.append([0, *at.tolist(), len(run)])
        below = np.cumsum([0, *positive[:-1]])
        self._below = [(int(p), int(rows - p)) for p, rows in zip(below, np.sum(self._places, axis=0), strict=False)]

    def _runs(self) -> Iterator[NDArray[np.uint64]]:
        """Yield the sorted runs, one in memory at a time."""
        yield from (self._keys.read(run, 0, length) for run, (_, length) in enumerate(self._keys.runs))
        yield self._last

    def __len__(self) -> int:
        return len(self._below)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __getitem__(self, k: int) -> KeyRange:
        *runs, last = ((row[k], row[k + 1]) for row in self._places)
        parts = [self._keys.read(run, *ends) for run, ends in enumerate(runs)]
        return KeyRange(np.concatenate([*parts, self._last[slice(*last)]]), self._below[k], self._every)


def _counted(keys: NDArray[np.uint64]) -> Counts:
    scores = keys >> np.uint64(1)
    first = np.flatnonzero(np.diff(scores, prepend=~scores[:1]))
    positive = np.add.reduceat((keys & np.uint64(1)).astype(np.int64), first)
    return Counts(scores[first].view(np.float64), positive, np.diff(first, append=len(keys)) - positive)
