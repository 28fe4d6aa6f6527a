"""The shards of a table on a Ray cluster: one task a shard, and results in the order of the shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from vicinal._checks import Argument, Sentence
from vicinal.metrics import BinaryEvaluation, Evaluation
from vicinal.metrics.intervals import confidence_level
from vicinal.predictions import PredictionsFile
from vicinal.predictions.binary_ranking import BinaryCounts, KeyRange, PackedCounts
from vicinal.predictions.file_evaluation import FileCounts
from vicinal.runs.scheduler import Pool, results_on_ray
from vicinal.tables import Table
from vicinal.tables.shards import Shards

A = TypeVar("A")
R = TypeVar("R")


def parts_of_table(table: Table) -> tuple[Table, ...]:
    """Return the shards of a table; a single file is its only one."""
    return table.parts if isinstance(table, Shards) and not table.part_names else (table,)


def map_shards(
    function: Callable[[A], R],
    shards: Sequence[A] | Mapping[int, A],
    pool: Pool,
    *,
    on_shard: Callable[[R], None] | None = None,
) -> list[R]:
    """Return what a function gives for each shard, in order. The first error that a shard gave is raised.

    Parameters
    ----------
    function, shards
        A function that pickles, and what to call it with; a mapping by number may read each when it is asked for.
    pool
        The cluster. A call whose worker died is made again.
    on_shard
        Called with each result as it comes.
    """
    results: dict[int, R] = {}
    numbered = shards if isinstance(shards, Mapping) else dict(enumerate(shards))
    for key, answer, lost in results_on_ray(_Caught(function), numbered, pool):
        if answer is None:
            raise RuntimeError(f"shard {key + 1} of {len(shards)}: {lost}")
        value, error = answer
        if error is not None or value is None:
            raise error or RuntimeError(f"shard {key + 1} gave no result")
        results[key] = value
        if on_shard is not None:
            on_shard(value)
    return [results[key] for key in range(len(shards))]


@dataclass(frozen=True)
class _Caught(Generic[A, R]):
    """A function whose errors are results: on Ray an exception could not be told from a death."""

    function: Callable[[A], R]

    def __call__(self, shard: A) -> tuple[R | None, Exception | None]:
        try:
            return self.function(shard), None
        except Exception as error:
            return None, error


@dataclass(frozen=True)
class _CountShard:
    n_bins: int
    worst: int

    def __call__(self, file: PredictionsFile) -> tuple[FileCounts, PackedCounts | None]:
        counts = FileCounts(self.n_bins, self.worst)
        with BinaryCounts(self.n_bins) as binary:
            is_binary = file.n_classes == 2 and file.kind != "confidence"
            for chunk in counts.read(file):
                if is_binary and len(chunk):
                    binary.add(file, chunk)
            return counts, binary.packed() if is_binary else None


def evaluate_shards(
    file: PredictionsFile,
    pool: Pool,
    *,
    n_bins: int = 15,
    level: float = 0.95,
    worst: int = 20,
    progress: Callable[[int, int | None], object] | None = None,
) -> tuple[Evaluation, BinaryEvaluation | None]:
    """Return what `evaluate_file` and `binary_of_file` return, with a task of a Ray cluster for each shard.

    Counts are equal. Sums differ in their order alone. A worker holds some chunks of its shard, and for two classes
    8 bytes a row.

    Parameters
    ----------
    file
        What `open_file` returned. Every node must see it under the same path.
    pool
        The cluster.
    n_bins, level, worst, progress
        As in `evaluate_file`; progress is called after each shard.
    """
    if file.classes is None:
        raise ValueError(Sentence("each shard may meet other classes: name them all with ", Argument("classes")))
    file.required_label()
    done = 0

    def move(counted: tuple[FileCounts, PackedCounts | None]) -> None:
        nonlocal done
        done += counted[0].n_rows
        if progress is not None:
            progress(done, file.n_rows)

    shards = [replace(file, source=part, n_rows=part.n_rows) for part in parts_of_table(file.source)]
    total = FileCounts(n_bins, worst)
    with BinaryCounts(n_bins) as binary:
        for counts, packed in map_shards(_CountShard(n_bins, worst), shards, pool, on_shard=move):
            total.append(counts)
            if packed is not None:
                binary.append(packed)
        # Rows are ranked where they are counted: here alone it would take longer than all else.
        ranked = binary.evaluation(level, lambda ranges: map_shards(KeyRange.sums, ranges, pool))
        return total.evaluation(file, confidence_level(level)), ranked
