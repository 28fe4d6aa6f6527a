"""Running a recipe: trainings first, each once however many cells need it, then what is measured of them.

    out/
      z18-tab2.json                    the result
      runs/                            may be removed once the results are there
        cifar10-ERM-1f0c…-seed0/       a training, shared by all recipes that need it
        z18-tab2/…-seed0/cell.json     what was measured of a cell

Both are jobs (`vicinal.runs.jobs`): skipped when done, gone on with when killed, run anywhere.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicinal import _random, data
from vicinal._checks import ArgumentError, nearest_names
from vicinal._files import FORMAT, read_json, write_json
from vicinal.recipes.base import Cell, Method, Recipe, Scale
from vicinal.recipes.results import CellRecord, Result, packed, versions
from vicinal.recipes.trained import Trained, TrainingJob
from vicinal.runs import Experiment, folder_name
from vicinal.runs.jobs import Pool, run_jobs

__all__ = ["Clock", "Plan", "check_data", "duration", "jobs_left", "plan", "reproduce"]


@dataclass(frozen=True)
class MeasureJob:
    """A cell, once its trainings are done."""

    cell: Cell
    folder: Path
    trainings: tuple[Path, ...]

    def result(self) -> CellRecord | None:
        """Return what was measured if it was, with these settings."""
        path = self.folder / "cell.json"
        return CellRecord.from_dict(read_json(path)) if path.exists() else None

    def run(self, *, progress: bool) -> None:
        """Measure."""
        trained = [Trained(folder) for folder in self.trainings]
        began = time.perf_counter()
        with _random.restored_globals():
            measured = self.cell.measure(trained, self.cell.settings, self.cell.seed)
        seconds = time.perf_counter() - began + sum(one.seconds for one in trained)
        figures, curves = packed(measured)
        record = CellRecord(self.cell.key, self.cell.seed, seconds, figures, curves)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / "cell.json", {"format": FORMAT, **record.to_dict()})


@dataclass(frozen=True)
class Plan:
    """What a recipe would run."""

    recipe: Recipe
    name: str
    scale: str
    seeds: tuple[int, ...]
    cells: Mapping[str, MeasureJob]
    trainings: Mapping[str, TrainingJob]
    out: Path

    @property
    def file(self) -> Path:
        """Where the result goes."""
        return self.out / f"{self.name}.json"

    @property
    def report(self) -> Path:
        """Where the report goes."""
        return self.out / "runs" / f"{self.name}.html"

    @property
    def left(self) -> int:
        """How many jobs are not done."""
        return jobs_left([self])

    @property
    def minutes(self) -> float:
        """How long the cells take that are not done: the recipe's time, by their share of its cells."""
        left = sum(job.result() is None for job in self.cells.values())
        return self.recipe.scales[self.scale].minutes * left / len(self.recipe.rows(self.scale))


def jobs_left(plans: Sequence[Plan]) -> int:
    """Return how many jobs of recipes are not done; a training that several of them need counts once."""
    jobs = [job for one in plans for kind in (one.trainings, one.cells) for job in kind.values()]
    return len({job.folder for job in jobs if job.result() is None})


class Clock:
    """How much of all jobs is done, and how long the rest takes at the pace so far."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.began = total, 0, time.monotonic()

    def tick(self) -> str:
        """Count a job; return where things stand."""
        self.done += 1
        left = (time.monotonic() - self.began) / self.done * (self.total - self.done)
        return f"{self.done} of {self.total}, {duration(left)} left"


def plan(
    name: str, recipe: Recipe, scale: str, out: Path, *, seeds: Sequence[int] | None = None, only: Sequence[str] = ()
) -> Plan:
    """Return what there is to run of a recipe at a scale, with results in `out`.

    `seeds` are others than the recipe's. `only` are texts: rows whose name holds one of them are run, and claims that
    need others are not tested.
    """
    cells = recipe.rows(scale, seeds)
    chosen = [cell for cell in cells if not only or any(text in cell.name for text in only)]
    if not chosen:
        raise ArgumentError(
            "only", list(only), "part of a row's name", hint=nearest_names(only[0], {cell.name for cell in cells})
        )
    runs = out.expanduser().resolve() / "runs"
    trainings: dict[str, TrainingJob] = {}
    jobs: dict[str, MeasureJob] = {}
    for cell in chosen:
        folders = []
        for experiment in cell.trainings:
            folder = runs / _training_name(experiment)
            trainings.setdefault(folder.name, TrainingJob(experiment, folder))
            folders.append(folder)
        named = f"{_words(cell.name)[:80]}-{_digest(_described(cell))}-seed{cell.seed}"
        jobs[named] = MeasureJob(cell, runs / name / named, tuple(folders))
    return Plan(recipe, name, scale, tuple(dict.fromkeys(c.seed for c in chosen)), jobs, trainings, out)


def reproduce(
    wanted: Plan,
    pool: Pool,
    *,
    progress: bool = True,
    clock: Clock | None = None,
    on_job: Callable[[str], None] | None = None,
) -> Result:
    """Run what is not done of what `plan` returned, judge the claims, and write the result.

    A clock counts the jobs of several recipes; `on_job` is called with a sentence after each job that was run.
    """
    pool.check_cluster()
    clock = Clock(wanted.left) if clock is None else clock
    started = {key for jobs in (wanted.trainings, wanted.cells) for key, job in jobs.items() if job.result() is None}
    (wanted.out / "runs").mkdir(parents=True, exist_ok=True)
    ignored = wanted.out / "runs" / ".gitignore"
    if not os.path.lexists(ignored):  # else it is as somebody wants it
        ignored.write_text("*\n", encoding="utf-8")

    def on_end(key: str, result: object, error: str | None) -> None:
        if key in started and on_job is not None:
            on_job(f"{wanted.name}: {key}: {'done' if error is None else f'failed: {error}'}; {clock.tick()}")

    _, failed = run_jobs(wanted.trainings, pool, progress=progress, on_job=on_end)
    ready = {
        key: job for key, job in wanted.cells.items() if not failed.keys() & {folder.name for folder in job.trainings}
    }
    records, failures = run_jobs(ready, pool, progress=progress, on_job=on_end)
    result = Result(
        recipe=wanted.name,
        scale=wanted.scale,
        seeds=wanted.seeds,
        settings={**described(wanted.recipe, wanted.scale), "seeds": list(wanted.seeds)},
        cells=[records[key] for key in wanted.cells if key in records],
        verdicts=(),
        versions=versions(),
        failures={**failed, **failures},
    )
    verdicts = result.judged(wanted.recipe.claims(wanted.recipe.scales[wanted.scale]))
    result = dataclasses.replace(result, verdicts=verdicts)
    result.write(wanted.out)
    return result


def check_data(plans: Sequence[Plan]) -> None:
    """Load every data set that is needed, so that what is missing is said before anything runs."""
    seen = set()
    for wanted in plans:
        at = wanted.recipe.scales[wanted.scale]
        if not wanted.left:
            continue
        if wanted.recipe.check is not None:
            wanted.recipe.check(at)
        for of in at.data.values():
            if of.source in seen:
                continue
            seen.add(of.source)
            options = {
                name: of.options[name] for name in ("data_root", "header", "encoding", "target") if name in of.options
            }
            try:
                data.load(of.source, rare="train", tokenizer="words", **options)
            except (OSError, ValueError, ImportError) as error:
                form = f", {of.where}" if of.where else ""
                raise FileNotFoundError(f"{wanted.name} needs {of.source}{form}: {error}") from error


def described(recipe: Recipe, scale: str) -> dict[str, object]:
    """Return the settings of a recipe at a scale, ready for JSON."""
    record = dataclasses.asdict(recipe.scales[scale])
    record["seeds"] = list(record["seeds"])
    record["methods"] = _methods(recipe, recipe.scales[scale])
    record.pop("minutes")
    plain: dict[str, object] = json.loads(json.dumps(record, default=list))
    return {key: value for key, value in plain.items() if value}


def _methods(recipe: Recipe, at: Scale) -> dict[str, object]:
    """Return the methods of each data set that the names of their rows do not say by themselves."""
    methods: dict[str, Any] = {}
    for data_name in at.data:
        for name, method in recipe.methods_of(data_name, at).items():
            if method != Method(name):
                said = {part: value for part, value in dataclasses.asdict(method).items() if value}
                methods.setdefault(data_name, {})[name] = said
    return methods


def _described(cell: Cell) -> dict[str, object]:
    trainings = [_matters(one) for one in cell.trainings]
    return {"measure": cell.measure.__name__, "settings": dict(cell.settings), "trainings": trainings}


def _training_name(experiment: Experiment) -> str:
    short = folder_name(experiment).removesuffix(f"-seed{experiment.seed}")[:60]
    return f"{short}-{_digest(_matters(experiment))}-seed{experiment.seed}"


def _matters(experiment: Experiment) -> dict[str, object]:
    """Return what was asked for beyond the defaults, so that a new field of `Experiment` changes no name."""
    record, usual = experiment.that_matters(), Experiment(source=experiment.source).that_matters()
    return {name: value for name, value in record.items() if name in ("source", "method") or value != usual[name]}


def _digest(record: object) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _words(text: str) -> str:
    return "-".join("".join(c if c.isascii() and (c.isalnum() or c in "._") else " " for c in text).split())


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours, whichever reads best."""
    minutes = round(seconds / 60)
    return f"{round(seconds)} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
