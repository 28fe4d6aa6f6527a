"""Run a recipe: each training once, however many cells need it, then the measures of each cell.

    out/
      z18-tab2.json                    the result
      runs/                            may be removed once the results are there
        cifar10-ERM-1f0c…-seed0/       a training, shared by all recipes that need it
        z18-tab2/…-seed0/cell.json     what was measured of a cell

Both are jobs of `vicinal.runs.scheduler`: skipped when done, resumed when killed, run anywhere.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from vicinal import _random, data
from vicinal._atomic import FORMAT, read_json, write_json
from vicinal._checks import Argument, ArgumentError, Sentence, message_of, nearest_names
from vicinal.data.names import roots
from vicinal.data.published_tables import PUBLISHED, read_published
from vicinal.experiment import folder_name
from vicinal.papers.base import Cell, Method, Recipe, Scale, Settings
from vicinal.papers.claims import FIRST_SEED, Key
from vicinal.papers.keys import cell_key, check_trained, training_key
from vicinal.papers.results import DECIDING, CellRecord, Result, commit, environment, packed
from vicinal.papers.sources import is_there, needs, source_of
from vicinal.papers.trained import FitJob, Trained, TrainingJob
from vicinal.runs import Experiment
from vicinal.runs.scheduler import Pool, run_jobs

#: Digits of a cell's key that a result keeps: enough to tell any number of cells from each other.
_ID_DIGITS = 16


@dataclass(frozen=True)
class MeasureJob:
    """A cell, once its trainings are done."""

    cell: Cell
    id: str
    folder: Path
    trainings: tuple[Path, ...]
    known: CellRecord | None = None
    """The cell as a result holds it already."""

    def result(self) -> CellRecord | None:
        """Return what was measured if it was, with these settings."""
        path = self.folder / "cell.json"
        if self.known is not None or not path.exists():
            return self.known
        return CellRecord.from_dict(read_json(path))

    def run(self, *, progress: bool) -> None:
        """Measure."""
        trained = [Trained(folder) for folder in self.trainings]
        began = time.process_time()
        if self.cell.train is None:
            for one, experiment in zip(trained, self.cell.trainings, strict=True):
                check_trained(experiment, one.config)
        with _random.restored_globals():
            measured = self.cell.measure(trained, self.cell.settings, self.cell.seed)
        seconds = time.process_time() - began + sum(one.seconds for one in trained)
        metrics, curves = packed(measured)
        record = CellRecord(self.cell.key, self.cell.seed, self.id, commit(), seconds, metrics, curves)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / "cell.json", {"format": FORMAT, **record.to_dict()})


@dataclass(frozen=True)
class Plan:
    """What a recipe would run."""

    recipe: Recipe
    name: str
    scale: str
    cells: Mapping[str, MeasureJob]
    trainings: Mapping[str, TrainingJob | FitJob]
    out: Path
    kept: Sequence[CellRecord] = ()
    """What the result in `out` holds already. It stays, whatever is run."""
    slices: Mapping[str, str] = field(default_factory=dict)
    """Data sets with fewer samples than were published, which were allowed."""

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
    name: str,
    recipe: Recipe,
    scale: str,
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] = (),
    rows: Collection[Key] | None = None,
) -> Plan:
    """Return what there is to run of a recipe at a scale, with results in `out`.

    Cells that a result in `out` holds already are kept, and are not run again, whichever recipe they were run for.
    `seeds` are others than the recipe's, which are added to those that are there. `only` are texts: rows whose name
    holds one of them are run. `rows` are the keys of rows.
    """
    cells = [cell for cell in recipe.rows(scale, seeds) if rows is None or cell.key in rows]
    chosen = [cell for cell in cells if not only or any(text in cell.name for text in only)]
    if not chosen:
        raise ArgumentError(
            "only",
            only[0] if len(only) == 1 else list(only),
            "part of a row's name",
            hint=nearest_names(only[0], {cell.name for cell in cells}),
        )
    kept = _kept(name, recipe, scale, out)
    known = _known(out)
    slices = _slices_in(out, needs(recipe, scale)) if scale == "paper" else {}
    runs = out.expanduser().resolve() / "runs"
    trainings: dict[str, TrainingJob | FitJob] = {}
    jobs: dict[str, MeasureJob] = {}
    for cell in chosen:
        identity = cell_key(cell)[:_ID_DIGITS]
        named = f"{_words(cell.name)[:80]}-{identity[:8]}-seed{cell.seed}"
        record = known.get(identity)
        if record is not None:
            record = dataclasses.replace(record, key=cell.key)  # rows of other recipes may have other names
        needed = _trainings(cell, runs, named)
        folders = tuple(training.folder for training in needed)
        jobs[named] = job = MeasureJob(cell, identity, runs / name / named, folders, record)
        if job.result() is None:
            for training in needed:
                trainings.setdefault(training.folder.name, training)
    return Plan(recipe, name, scale, jobs, trainings, out, kept, slices)


def _trainings(cell: Cell, runs: Path, named: str) -> list[TrainingJob | FitJob]:
    """Return the trainings that a cell needs: those of its experiments, or its own."""
    if cell.train is not None:
        return [FitJob(cell.train, dict(cell.settings), cell.seed, runs / f"own-{named}")]
    return [TrainingJob(experiment, runs / _training_name(experiment)) for experiment in cell.trainings]


def further_seeds(name: str, out: Path, n: int, first: int = FIRST_SEED) -> range:
    """Return the next n seeds after those of the result that is there."""
    path = out / f"{name}.json"
    result = _read(path, path.stat().st_mtime_ns) if path.exists() else None
    start = first if result is None else max(result.seeds) + 1
    return range(start, start + n)


def _kept(name: str, recipe: Recipe, scale: str, out: Path) -> Sequence[CellRecord]:
    """Return the cells of the result that is there; raise if they cannot stand beside those of today's settings."""
    path = out / f"{name}.json"
    result = _read(path, path.stat().st_mtime_ns) if path.exists() else None
    if result is None:
        return ()
    away = f"move {str(path)!r} away, or name another folder"
    here = environment()
    for what in DECIDING:
        if result.environment.get(what) != here[what]:
            there = result.environment.get(what)
            raise ValueError(
                f"the cells of {str(path)!r} were run with {what} {there}, here it is {here[what]}: {away}"
            )
    rows = {(cell.key, cell.seed): cell for cell in recipe.rows(scale, sorted({c.seed for c in result.cells}))}
    for record in result.cells:
        row = rows.get((record.key, record.seed))
        if row is None or cell_key(row)[:_ID_DIGITS] != record.id:
            raise ValueError(
                f"{' · '.join(record.key)}, seed {record.seed} of {str(path)!r} has other settings: {away}"
            )
    return result.cells


def _known(out: Path) -> dict[str, CellRecord]:
    """Return the cells of all results in a folder by their keys: recipes share them."""
    here = environment()
    known: dict[str, CellRecord] = {}
    for path in sorted(out.glob("*.json")):
        result = _read(path, path.stat().st_mtime_ns)
        if result is not None and all(result.environment.get(what) == here[what] for what in DECIDING):
            known |= {cell.id: cell for cell in result.cells}
    return known


def _slices_in(out: Path, names: Collection[str]) -> dict[str, str]:
    """Return the slices among these data sets that the results in a folder were run with: recipes share their cells."""
    slices: dict[str, str] = {}
    for path in sorted(out.glob("*.json")):
        result = _read(path, path.stat().st_mtime_ns)
        recorded = result.settings.get("slices", {}) if result is not None else {}
        slices |= {name: text for name, text in recorded.items() if name in names}
    return slices


@functools.lru_cache(maxsize=256)
def _read(path: Path, changed: int) -> Result | None:
    """Return a result, or None where the file is something else."""
    try:
        return Result.read(path)
    except (KeyError, TypeError, ValueError):
        return None


Say: TypeAlias = "Callable[[str], None]"


def reproduce(
    wanted: Plan,
    pool: Pool,
    *,
    progress: bool = True,
    clock: Clock | None = None,
    deadline: float | None = None,
    on_job: Say | None = None,
    failed: Mapping[str, str] | None = None,
) -> Result:
    """Run what is not done of what `plan` returned, judge the claims, and write the result.

    A clock counts the jobs of several recipes; `on_job` is called with a sentence after each job that was run. No job
    begins after the `deadline`, in seconds of `time.time`. `failed` is what `train` returned, where it trained before.
    """
    clock = Clock(wanted.left) if clock is None else clock
    if failed is None:
        failed = train(wanted, pool, progress=progress, clock=clock, deadline=deadline, on_job=on_job)
    if not is_first_process():  # the first one measures and writes
        return _merged(wanted, {}, failed)
    ready = {
        key: job
        for key, job in wanted.cells.items()
        if job.result() is not None or not failed.keys() & {folder.name for folder in job.trainings}
    }
    run = _Running(wanted.name, pool, progress, clock, deadline, on_job)
    records, failures = run(ready)
    result = _merged(wanted, records, {key: e for key, e in {**failed, **failures}.items() if not _is_late(e)})
    result.write(wanted.out)
    return result


def train(
    wanted: Plan,
    pool: Pool,
    *,
    progress: bool = True,
    clock: Clock | None = None,
    deadline: float | None = None,
    on_job: Say | None = None,
) -> dict[str, str]:
    """Run the trainings of a plan that are not done; return the errors of those that failed.

    Where torchrun's processes share trainings, all of them call this for every recipe before the first one measures:
    the others would wait for it in the next training, and torch gives up after minutes.
    """
    pool.check_cluster()
    (wanted.out / "runs").mkdir(parents=True, exist_ok=True)
    ignored = wanted.out / "runs" / ".gitignore"
    if not os.path.lexists(ignored):  # else it is as somebody wants it
        ignored.write_text("*\n", encoding="utf-8")
    clock = Clock(wanted.left) if clock is None else clock
    return _Running(wanted.name, pool, progress, clock, deadline, on_job)(wanted.trainings)[1]


@dataclass(frozen=True)
class _Running:
    """How the jobs of a recipe run."""

    name: str
    pool: Pool
    progress: bool
    clock: Clock
    deadline: float | None
    on_job: Say | None

    def __call__(self, jobs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Run those that are not done; return the results of all, and the errors."""
        started = {key for key, job in jobs.items() if job.result() is None}
        late = self.deadline
        timed = {key: job if late is None else BeforeDeadline(job, late) for key, job in jobs.items()}

        def on_end(key: str, result: object, error: str | None) -> None:
            if key in started and self.on_job is not None and not _is_late(error):
                ended = "done" if error is None else f"failed: {error}"
                self.on_job(f"{self.name}: {key}: {ended}; {self.clock.tick()}")

        return run_jobs(timed, self.pool, progress=self.progress, on_job=on_end)


def _merged(wanted: Plan, records: Mapping[str, CellRecord], failures: Mapping[str, str]) -> Result:
    """Return the result with the cells it had and those that were run, and new verdicts."""
    cells = {(cell.key, cell.seed): cell for cell in (*wanted.kept, *records.values())}
    seeds = tuple(sorted({seed for _, seed in cells}))
    rows = [(cell.key, cell.seed) for cell in wanted.recipe.rows(wanted.scale, seeds)]
    result = Result(
        recipe=wanted.name,
        scale=wanted.scale,
        seeds=seeds,
        settings={
            **described(wanted.recipe, wanted.scale),
            **({"slices": dict(wanted.slices)} if wanted.slices else {}),
        },
        cells=[cells[row] for row in rows if row in cells],
        verdicts=(),
        environment=environment(),
        failures=failures,
    )
    verdicts = result.judged(wanted.recipe.claims(wanted.recipe.scales[wanted.scale]))
    return dataclasses.replace(result, verdicts=verdicts)


@dataclass(frozen=True)
class BeforeDeadline:
    """A job that does not begin after a point in time."""

    job: MeasureJob | TrainingJob | FitJob
    deadline: float

    @property
    def folder(self) -> Path:
        """Where the job works."""
        return self.job.folder

    def result(self) -> object:
        """Return the job's result if it is there."""
        return self.job.result()

    def run(self, *, progress: bool) -> None:
        """Run the job, unless it is too late."""
        if time.time() > self.deadline:
            raise TimeoutError(_LATE)
        self.job.run(progress=progress)


_LATE = "there was no time left to begin"


def _is_late(error: str | None) -> bool:
    return error is not None and _LATE in error


def check_data(plans: Sequence[Plan], *, allow_slices: bool = False) -> list[Plan]:
    """Load every data set that is needed, so that what is missing is said before anything runs.

    At paper scale a data set with fewer samples than were published is refused, unless slices are allowed: the plans
    that are returned then name them.
    """
    checked, sizes = [], dict[str, int]()
    for wanted in plans:
        slices = dict(wanted.slices)
        for name, text in slices.items():
            if not allow_slices:
                kept = f"results in {str(wanted.out)!r} were run with {text} of {name}: name another folder, or pass "
                raise ValueError(Sentence(kept, Argument("allow_slices")))
        if wanted.left:
            slices |= _checked(wanted, sizes, allow_slices=allow_slices)
        checked.append(dataclasses.replace(wanted, slices=slices))
    return checked


def _checked(wanted: Plan, sizes: dict[str, int], *, allow_slices: bool) -> dict[str, str]:
    """Return the slices among a recipe's data sets; raise if one is not there. Their sizes are added to `sizes`."""
    at = wanted.recipe.scales[wanted.scale]
    if wanted.recipe.check is not None:
        wanted.recipe.check(at)
    sources = {of.source: of.options for of in at.data.values()}
    if wanted.scale == "paper":
        _check_files(wanted)
        sources |= {
            name: {} for name, of in needs(wanted.recipe, "paper").items() if of.samples and name not in sources
        }
    slices = {}
    for source, options in sources.items():
        if source not in sizes:
            sizes[source] = _size(wanted.name, source, options)
        published = getattr(source_of(source), "samples", 0)
        if wanted.scale == "paper" and sizes[source] < WHOLE * published:
            slices[source] = f"{sizes[source]:,} of {published:,} samples"
            if not allow_slices:
                cut = f"{source} has {slices[source]}, which is not the paper's data: get all of them, or pass "
                raise ValueError(Sentence(cut, Argument("allow_slices")))
    return slices


def _size(recipe: str, source: str, options: Settings) -> int:
    """Return how many samples a data set has; raise if it is not there."""
    chosen = {name: options[name] for name in ("data_root", "header", "encoding", "target") if name in options}
    try:
        if not options and source in PUBLISHED:  # its targets may be numbers
            return read_published(source, roots(None)).n_rows or 0
        task = data.load_from_config(source, {"rare": "train", "tokenizer": "words", **chosen})
    except (OSError, ValueError, ImportError) as error:
        known = source_of(source)
        form = f", {known.form}, from {known.url}" if known is not None and known.form else ""
        raise FileNotFoundError(Sentence(f"{recipe} needs {source}{form}: ", message_of(error))) from error
    return sum(map(len, task.splits.values()))


def _check_files(wanted: Plan) -> None:
    """Raise if other domains or vectors are missing that nothing downloads: a run would end where it measures them."""
    for name, source in needs(wanted.recipe, wanted.scale).items():
        if source.form and not is_there(name):
            raise FileNotFoundError(f"{wanted.name} needs {name}, {source.form}, from {source.url}")


#: A data set with less than this share of the published samples is a slice; a few files are often broken.
WHOLE = 0.97


def is_first_process() -> bool:
    """Return whether this is the only process, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def described(recipe: Recipe, scale: str) -> dict[str, object]:
    """Return the settings of a recipe at a scale, ready for JSON."""
    record = dataclasses.asdict(recipe.scales[scale])
    del record["seeds"]
    record["methods"] = _methods(recipe, recipe.scales[scale])
    record["hardware"] = dict(recipe.hardware)
    record.pop("minutes")
    plain: dict[str, object] = json.loads(json.dumps(record, default=list))
    return {key: value for key, value in plain.items() if value}


def _methods(recipe: Recipe, at: Scale) -> dict[str, object]:
    """Return the methods of each data set that the names of their rows do not say by themselves."""
    methods: dict[str, Any] = {}
    for on in at.pairs():
        for name, method in recipe.methods_of(on, at).items():
            if method != Method(name):
                said = {part: value for part, value in dataclasses.asdict(method).items() if value}
                if methods.setdefault(on.data, {}).setdefault(name, said) != said:  # other networks have another
                    methods[on.data][f"{name}, {on.network}"] = said
    return methods


def _training_name(experiment: Experiment) -> str:
    short = folder_name(experiment).removesuffix(f"-seed{experiment.seed}")[:60]
    return f"{short}-{training_key(experiment)[:8]}-seed{experiment.seed}"


def _words(text: str) -> str:
    return "-".join("".join(c if c.isascii() and (c.isalnum() or c in "._") else " " for c in text).split())


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours, whichever reads best."""
    minutes = round(seconds / 60)
    return f"{round(seconds)} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
