"""Compare methods: a grid of experiments (method × seed) on the same data and splits.

    out/
      grid.json                          the options of the grid: data, network, training, methods, seeds, threads
      wine-ERM-seed0/                    a cell: one run of `vicinal.runs.run`
      wine-Mixup-alpha-0.2-seed0/        …
        error.txt                        why it failed, if it did

A cell is a job that runs anywhere (`vicinal.runs.scheduler`), a function of its experiment and the number of threads.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vicinal import data, models
from vicinal._atomic import Json, read_json, write_json
from vicinal._checks import Argument, ArgumentError, Sentence, integer, joined
from vicinal._remote import is_remote, local_path
from vicinal.experiment import EvalSet, Experiment, folder_name
from vicinal.expressions import parse
from vicinal.runs.execute import run
from vicinal.runs.layout import RunFiles
from vicinal.runs.run import Run, RunResult
from vicinal.runs.scheduler import Job, Pool, run_jobs
from vicinal.runs.summary_table import GridResult, Key, counted
from vicinal.training.folder import TrainingFolder, foreign_entries, locked

#: Called with the method, the seed, and the result or what went wrong.
OnCell = Callable[[str, int, "RunResult | None", "str | None"], None]

#: The file that says what is compared.
_GRID = "grid.json"


def run_grid(
    base: Experiment,
    methods: Sequence[str],
    seeds: Sequence[int],
    out: str | Path,
    *,
    pool: Pool | None = None,
    n_bins: int = 15,
    progress: bool = True,
    on_cell: OnCell | None = None,
) -> GridResult:
    """Run every method with every seed on the same data and splits, and compare them.

    Finished cells are skipped and interrupted ones resume, so the same call again finishes what is missing. Methods and
    seeds may be added. A cell that fails is reported, the others continue, and the next call tries it again. The result
    does not depend on where and in which order cells run. Each runs with `pool.threads` threads, because sums that
    are split among threads round differently.

    Parameters
    ----------
    base
        The experiment; its `method` and `seed` give way to those of the cell. Trackers are off unless
        `training["trackers"]` names some.
    methods
        Expressions such as `"Mixup(alpha=0.2)"`. The others are compared with the first.
    seeds
        Random seeds for weights, batch order and mixing. The split stays the same.
    out
        The folder of the grid. On a cluster it must be on storage that every node sees under the same path, and so
        must the data; `vicinal` must be installed on every node.
    pool
        Where cells run. Default: in this process, one after the other.
    n_bins
        Of the calibration errors.
    progress
        Show progress where standard error is a terminal.
    on_cell
        Called after each cell, the skipped ones first, with the method, the seed, and the `RunResult` or else what went
        wrong; not from the main thread if cells run elsewhere.

    Returns
    -------
    GridResult
        The results of all cells, the failures and the comparisons.

    Raises
    ------
    KeyboardInterrupt
        If interrupted; the message says what is done and how to resume.

    Examples
    --------
    >>> base = Experiment(source="digits", model_options={"width": 4}, training={"epochs": 1})
    >>> grid = run_grid(base, ["ERM()", "Mixup(alpha=0.2)"], [0, 1], "runs/grid", progress=False)  # doctest: +SKIP
    >>> print(grid.comparison("Mixup(alpha=0.2)"))  # doctest: +SKIP
    """
    asked = _distinct_methods(methods)
    seeds = _distinct_seeds(seeds)
    pool = pool or Pool()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise RuntimeError("a grid is started by one process: call it without accelerate launch or torchrun")
    out = local_path("out", out).expanduser().resolve()
    if out.exists() and not out.is_dir():
        raise ValueError(Sentence(Argument("out"), f" must be a folder for the runs, and {str(out)!r} is a file"))
    _refuse_foreign(out)
    # Before anything is written: a wrong address must not leave folders of runs that never began.
    pool.check_cluster()
    base = _rooted(base)
    done: set[Key] = set()

    def on_job(key: Key, result: RunResult | None, error: str | None) -> None:
        if result is not None:
            done.add(key)
        if on_cell is not None:
            on_cell(*key, result, error)

    # Two comparisons into one folder would train the same cells twice.
    with locked(out):
        spelled = _check_in(out, base, asked, seeds, pool.threads)
        cells: Mapping[Key, Job[RunResult]] = _cells(out, base, spelled, asked, seeds, n_bins)
        try:
            results, failures = run_jobs(cells, pool, progress=progress, on_job=on_job)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped; {len(done)} of {counted(len(cells), 'cell')} are finished and kept in {out}: "
                "start the same comparison again to resume it"
            ) from None
    _check_same_data(results)  # a file may have changed between two calls
    return GridResult(out, tuple(asked.values()), seeds, results, failures)


# The options


def _distinct_methods(methods: Sequence[str]) -> dict[str, str]:
    """Return the expressions by the objective that they mean, in order."""
    if isinstance(methods, str) or not isinstance(methods, Sequence) or not methods:
        raise ArgumentError("methods", methods, "one or more expressions such as 'Mixup(alpha=0.2)'")
    asked: dict[str, str] = {}
    for method in methods:
        meaning = repr(parse(method))
        if meaning in asked:
            same = f" must differ, but {asked[meaning]!r} and {method!r} are both {meaning}"
            raise ValueError(Sentence(Argument("methods"), same))
        asked[meaning] = method
    return asked


def _distinct_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(seeds, Sequence) or not seeds:
        raise ArgumentError("seeds", seeds, "one or more integers")
    numbers = tuple(integer("seeds", seed, low=0) for seed in seeds)
    if len(set(numbers)) < len(numbers):
        raise ArgumentError("seeds", list(numbers), "different from each other")
    return numbers


def _rooted(base: Experiment) -> Experiment:
    """Return the experiment with absolute paths: a cell may run in another working directory."""

    def rooted(name: str, known: Sequence[str]) -> str:
        if is_remote(name):
            return name
        prefix, name = ("hf:", name[3:]) if name.startswith("hf:") else ("", name)
        path = Path(name).expanduser()
        is_name = name.lower().replace("_", "-") in known
        return prefix + (str(path.resolve()) if not is_name and path.exists() else name)

    options, training = dict(base.data), dict(base.training)
    if "data_root" in options:
        options["data_root"] = str(Path(options["data_root"]).expanduser().resolve())
    if "tokenizer" in options:
        options["tokenizer"] = rooted(options["tokenizer"], ("words", *models.names("text")))
    training.setdefault("trackers", [])
    return dataclasses.replace(
        base,
        source=rooted(base.source, data.NAMES),
        eval_data=tuple(_rooted_set(each, rooted) for each in base.eval_sets),
        model=None if base.model is None else rooted(base.model, models.names()),
        data=options,
        training=training,
    )


def _rooted_set(given: EvalSet, rooted: Callable[[str, Sequence[str]], str]) -> EvalSet:
    development = None if given.development is None else rooted(given.development, data.NAMES)
    return dataclasses.replace(given, source=rooted(given.source, data.NAMES), development=development)


def _refuse_foreign(out: Path) -> None:
    """Refuse a folder that holds something else than a comparison; nothing is written to it."""
    if not (out / _GRID).exists() and (others := foreign_entries(out, RunFiles(out).lock)):
        raise ValueError(
            f"{out} holds {', '.join(map(repr, others[:3]))}{', …' if others[3:] else ''} but no {_GRID}: it is "
            "not a comparison. Choose a new or an empty folder"
        )


def _check_in(
    out: Path, base: Experiment, asked: Mapping[str, str], seeds: tuple[int, ...], threads: int
) -> dict[str, str]:
    """Write the options of this grid, or refuse if the folder holds another; return its methods by meaning."""
    path = out / _GRID
    settings = {**_shared_settings(base), "threads": threads}
    before: Json = read_json(path) if path.exists() else {"methods": [], "seeds": []}
    if "base" in before:
        # Field by field, so that the error can name what differs; a field that is new since has its default.
        old = {**_shared_settings(Experiment.from_dict(before["base"])), "threads": before["threads"]}
        differences: list[str] = [
            Sentence(Argument(name), f" was {old[name]!r} and is {settings[name]!r}")
            for name in settings
            if old[name] != settings[name]
        ]
        if differences and _nothing_begun(out):
            before = {"methods": [], "seeds": []}  # a wrong target or rate, say, that is corrected now
        elif differences:
            kept = ". Choose another folder, or remove this one to start over"
            raise ValueError(Sentence(f"{out} holds another comparison: ", joined("; ", differences), kept))
    # A method that was there keeps its first spelling, and so its folder.
    spelled = {repr(parse(method)): method for method in before["methods"]}
    spelled |= {meaning: method for meaning, method in asked.items() if meaning not in spelled}
    methods, every = list(spelled.values()), sorted({*before["seeds"], *seeds})
    write_json(path, {"base": _shared_settings(base), "threads": threads, "methods": methods, "seeds": every})
    return spelled


def _shared_settings(base: Experiment) -> dict[str, object]:
    """Return what all cells have in common."""
    return {name: value for name, value in base.to_dict().items() if name not in ("method", "seed")}


def _cells(
    out: Path,
    base: Experiment,
    spelled: Mapping[str, str],
    asked: Mapping[str, str],
    seeds: tuple[int, ...],
    n_bins: int,
) -> dict[Key, _Cell]:
    """Return the cells, seed by seed, so that half a grid has runs of every method."""
    cells: dict[Key, _Cell] = {}
    for seed in seeds:
        taken: dict[str, str] = {}
        for meaning, method in spelled.items():
            experiment = dataclasses.replace(base, method=method, seed=seed)
            name = folder_name(experiment)
            if name in taken.values():  # long expressions are cut, and punctuation goes
                name += f"-{hashlib.sha256(meaning.encode()).hexdigest()[:8]}"
            taken[meaning] = name
            if meaning in asked:
                cells[asked[meaning], seed] = _Cell(experiment, out / name, n_bins)
    return cells


def _nothing_begun(out: Path) -> bool:
    return all(TrainingFolder(folder, main=False).has_not_begun() for folder in out.iterdir() if folder.is_dir())


def merged(out: Path, grids: Mapping[str, GridResult], runs: Mapping[str, RunResult]) -> GridResult:
    """Return grids of several models, finished runs and predictions as one comparison on the same split.

    `grids` are by name of the model, which stands before each method; one without a name stays as it is. A finished run
    counts as the first seed of a method that has its name.

    Returns
    -------
    GridResult
        The comparison of all of them.

    Examples
    --------
    >>> base = Experiment(source="digits", model="linear", training={"epochs": 1})
    >>> grid = run_grid(base, ["ERM()"], [0], "runs/linear", progress=False)  # doctest: +SKIP
    >>> merged(Path("runs/all"), {"linear": grid}, {}).methods  # doctest: +SKIP
    """
    results: dict[Key, RunResult] = {}
    failures: dict[Key, str] = {}
    names: list[str] = []
    for model, grid in grids.items():
        label = {method: f"{model}: {method}" if model else method for method in grid.methods}
        names += label.values()
        results |= {(label[method], seed): each for (method, seed), each in grid.results.items()}
        failures |= {(label[method], seed): error for (method, seed), error in grid.failures.items()}
    seeds = next((grid.seeds for grid in grids.values()), (0,))
    results |= {(name, seeds[0]): each for name, each in runs.items()}
    _check_same_data(results)
    tests = [each.test.labels for each in results.values() if "test" in each.sets]
    if any(len(labels) != len(tests[0]) or not bool((labels == tests[0]).all()) for labels in tests):
        raise ValueError("the runs have different test samples: train them with the same data options and split")
    return GridResult(out, (*names, *runs), seeds, results, failures)


def _check_same_data(results: Mapping[Key, RunResult]) -> None:
    seen: dict[tuple[object, ...], RunResult] = {}
    for result in results.values():
        about = result.fit["about"]
        # Where each seed has its own training samples, the held-out ones are still the same.
        seen.setdefault((about["fingerprint"], about.get("held_out", about["splits"])), result)
    if len(seen) > 1:
        first, other = list(seen.values())[:2]
        raise ValueError(
            f"{first.experiment.source} has changed: {first.out.name} and {other.out.name} were run on different data. "
            "Remove the folders of the cells that are out of date, or choose another folder"
        )


# Cells


@dataclass(frozen=True)
class _Cell:
    experiment: Experiment
    folder: Path
    n_bins: int

    def result(self) -> RunResult | None:
        """Return the result if it is there."""
        run = Run(self.folder)
        return run.result(self.experiment, n_bins=self.n_bins) if run.is_finished else None

    def run(self, *, progress: bool) -> None:
        """Run the experiment."""
        run(self.experiment, self.folder, n_bins=self.n_bins, progress=progress)
