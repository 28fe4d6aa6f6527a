"""`vicinal predict --backend ray`: a task for each shard writes a part, and the parts are joined in order."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal._atomic import Json
from vicinal._checks import Argument, Sentence
from vicinal._remote import as_path, is_remote
from vicinal.cli.answers import AnswerCounter, Work, answered_chunks
from vicinal.cli.console import Console
from vicinal.cli.options import ShardOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vicinal.data import Preprocessing
    from vicinal.runs.bundle import Bundle
    from vicinal.tables import Columns


@dataclass(frozen=True)
class _Shard:
    """A shard to predict, and the file for it."""

    work: Work
    part: str


@dataclass(frozen=True)
class _Predicted:
    """What a worker says of a shard."""

    n: int
    """Rows that were written."""
    n_read: int
    """Rows of the shard, those included that could not be read."""
    answered: int
    in_sets: int
    notes: tuple[str, ...]
    written: Mapping[str, Mapping[str, object]]
    """How numbers and dates of each column were read."""


def _predict_shard(shard: _Shard) -> _Predicted:
    from vicinal.predictions import write
    from vicinal.tables import open_table

    bundle, rule, sets = shard.work.loaded()
    blocks, counter = shard.work.blocks(bundle), AnswerCounter()
    chunks = answered_chunks(bundle, blocks, shard.work.how["batch_size"], rule, sets, counter, lambda n: None)
    n = write(as_path(shard.part), bundle.classes, chunks, exclusive=not bundle.is_multilabel)
    reading = {name: shard.work.how[name] for name in ("encoding", "header")}
    n_read = blocks.n_rows if blocks.n_rows is not None else open_table(shard.work.data, **reading).count_rows()
    return _Predicted(n, n_read, counter.n, counter.in_sets, tuple(blocks.notes), _written(blocks.preprocessing))


def _written(preprocessing: Preprocessing) -> dict[str, dict[str, object]]:
    """Return the marks and the unit of each column of numbers, and the order of each column of dates."""
    record: Json = preprocessing.to_dict()
    columns = [column for column in record.get("columns", ()) if isinstance(column, Mapping)]
    return {one["name"]: {**one.get("format", {}), "day_first": one.get("day_first")} for one in columns}


def _check_written(names: Sequence[str], shards: Sequence[_Predicted]) -> None:
    """Refuse shards that were read differently: a worker decides by its own cells, one process by all of them."""
    for argument, default in (("decimal", "."), ("thousands", None), ("unit", None), ("day_first", None)):
        first: dict[str, tuple[str, object]] = {}
        for name, shard in zip(names, shards, strict=True):
            for column, written in shard.written.items():
                value = written.get(argument) or default
                if argument == "unit" and value is None:
                    continue  # a number without a unit is read alike
                before, other = first.setdefault(column, (name, value))
                if value != other:
                    what = f"{other!r} in {before!r} and {value!r} in {name!r}"
                    said = f"the shards write column {column!r} in several ways, {argument.replace('_', ' ')} {what}: "
                    here = "write them alike, or leave out ", Argument("backend")
                    how = here if argument == "unit" else ("pass ", Argument(argument), ", or leave out ", here[1])
                    raise ValueError(Sentence(said, *how))


def predict_on_ray(
    console: Console, work: Work, bundle: Bundle, out: Path, shards: ShardOptions, *, safe_csv: bool
) -> tuple[AnswerCounter, Sequence[str]]:
    """Write the predictions of all shards of a table; return what was counted, and notes.

    Parts are written beside the file, on storage that every node sees under the same path, and removed at the end.
    """
    from vicinal.predictions import write
    from vicinal.runs.scheduler import Pool
    from vicinal.runs.shards import map_shards, parts_of_table
    from vicinal.tables import open_table

    if work.answers.sets is not None and work.answers.sets_kind == "adaptive-randomised":
        rule = " draws a number for each row in order: choose another one, or leave out "
        raise ValueError(Sentence(Argument("sets_kind", "adaptive-randomised"), rule, Argument("backend")))
    pool = Pool(backend="ray", address=shards.address, workers=shards.workers, gpus=shards.gpus)
    pool.check_cluster()
    source = as_path(work.data).absolute()
    table = open_table(source, encoding=work.how["encoding"], header=work.how["header"])
    folder = out.absolute().parent / f".{out.name}.{os.getpid()}-{secrets.token_hex(8)}.parts"
    folder.mkdir()
    paths = [part.path for part in parts_of_table(table)]
    parts = [folder / f"{k:06}.parquet" for k in range(len(paths))]
    jobs = [_Shard(replace(work, data=str(path)), str(part)) for path, part in zip(paths, parts, strict=True)]
    try:
        with console.stage("predicting", table.n_rows) as advance:
            done = map_shards(_predict_shard, jobs, pool, on_shard=lambda shard: advance(shard.n_read))
        _check_written([path.name for path in paths], done)
        with console.stage("joining the parts"):
            joined = _joined(parts, [one.n_read for one in done], bundle)
            write(out, bundle.classes, joined, safe_csv=safe_csv, exclusive=not bundle.is_multilabel)
    finally:
        _remove(folder)
    counter = AnswerCounter()
    counter.rows, counter.n = sum(one.n for one in done), sum(one.answered for one in done)
    counter.in_sets = sum(one.in_sets for one in done)
    said = dict.fromkeys(note for one in done for note in one.notes)
    return counter, [*table.notes, *(note for note in said if note not in table.notes)]


def _joined(
    parts: Sequence[Path], n_read: Sequence[int], bundle: Bundle
) -> Iterator[tuple[Columns, NDArray[np.floating]]]:
    """Yield the rows of all parts, numbered through all shards."""
    import numpy as np
    import pyarrow as pa

    from vicinal.tables import open_table

    probs = [f"prob_{name}" for name in bundle.classes]
    before = 0
    for path, rows in zip(parts, n_read, strict=True):
        for chunk in open_table(path).chunks():
            kept = {k: v for k, v in chunk.columns.items() if k not in (*probs, "prediction", "confidence")}
            kept["row"] = pa.array(np.asarray(kept["row"]) + before)
            yield kept, np.stack([np.asarray(chunk[name]) for name in probs], axis=1)
        before += rows


def _remove(folder: Path) -> None:
    if not is_remote(folder):
        shutil.rmtree(folder, ignore_errors=True)
    elif folder.exists():
        for part in folder.iterdir():
            part.unlink()
