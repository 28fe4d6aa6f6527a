"""Methods against each other: a grid of experiments (method × seed) on the same data and splits, and what it shows.

    out/
      grid.json                          what is compared: data, network, training, methods, seeds, threads
      wine-ERM-seed0/                    a cell: one run of `vicinal.runs.run`
      wine-Mixup-alpha-0.2-seed0/        …
        error.txt                        why it failed, if it did

A cell is a function of its experiment and of the number of threads, and everything it leaves is in its folder. So cells
may run anywhere and in any order, a grid may be stopped at any time, and the table is read from the folders alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vicinal import data, models
from vicinal._checks import choice, integer, number, require
from vicinal._files import FORMAT, read_json, replacing, write_json
from vicinal.runs.experiment import Experiment, folder_name
from vicinal.runs.run import Outcome, finished, run
from vicinal.runs.table import GridResult, Key, counted
from vicinal.expressions import parse
from vicinal.training.folder import RunFolder

__all__ = ["GridResult", "run_grid"]

#: Called with the method, the seed, and the outcome or what went wrong.
OnCell = Callable[[str, int, "Outcome | None", "str | None"], None]

_BACKENDS = ("loky", "ray", "dask")
#: Seconds between two looks at which cells are done.
_LOOK = 0.5
#: Seconds until what a node wrote must be visible here: network file systems remember that a file was not there.
_SETTLE = 60.0


def run_grid(
    base: Experiment,
    methods: Sequence[str],
    seeds: Sequence[int],
    out: str | Path,
    *,
    workers: int | None = None,
    backend: str = "loky",
    address: str | None = None,
    threads: int = 1,
    gpus: float = 0,
    progress: bool = True,
    on_cell: OnCell | None = None,
) -> GridResult:
    """Run every method with every seed on the same data and splits, and compare them.

    Cells that are finished are skipped and those that were interrupted go on, so the same call again finishes what is
    missing; methods and seeds may be added. A cell that fails is reported and the others go on; it is tried again the
    next time. The result does not depend on where and in which order cells run: each runs with `threads` threads, since
    sums that are split among threads round differently.

    Parameters
    ----------
    base
        The experiment; its `method` and `seed` give way to those of the cell. Trackers are off unless
        `training["trackers"]` names some.
    methods
        Expressions such as `"Mixup(alpha=0.2)"`. The others are compared with the first.
    seeds
        Of weights, order and mixing. The split stays the same.
    out
        The folder of the grid. On a cluster it must be on storage that every node sees under the same path, and so
        must the data; `vicinal` must be installed on every node.
    workers
        How many cells to run at once. On this machine 1 if not given, which runs them in this process; on a cluster
        as many as it has room for.
    backend
        joblib's: `"loky"` for processes on this machine, or a cluster, `"ray"` or `"dask"`.
    address
        Of the cluster: `"auto"` or `"host:port"`. Without one Ray starts on this machine, unless there is a
        connection already, which is used.
    threads
        Of torch in each cell, and cores that each takes on a Ray cluster.
    gpus
        That each cell takes on a Ray cluster; a fraction shares one. With 0 Ray hides them.
    progress
        Show progress where standard error is a terminal.
    on_cell
        Called after each cell, the skipped ones first, with the method, the seed, and the `Outcome` or else what went
        wrong; not from the main thread if cells run elsewhere.

    Raises
    ------
    KeyboardInterrupt
        If interrupted; the message says what is done and how to go on.
    """
    asked = _distinct_methods(methods)
    seeds = _distinct_seeds(seeds)
    backend = choice("backend", backend, _BACKENDS)
    threads, gpus = integer("threads", threads, low=1), number("gpus", gpus, low=0)
    workers = _checked_workers(workers, backend, address, threads, gpus)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise RuntimeError("a grid is started by one process: call it without accelerate launch or torchrun")
    out = Path(out).expanduser().resolve()
    if out.exists() and not out.is_dir():
        raise ValueError(f"out must be a folder for the runs, and {str(out)!r} is a file")
    base = _rooted(base)
    with RunFolder(out, main=True).locked():
        cells = _check_in(out, base, asked, seeds, threads)
        grid = _Grid(cells, on_cell)
        try:
            grid.skip_finished()
            if backend == "loky" and workers == 1:
                grid.run_here(threads, progress)
            elif grid.pending:
                grid.run_elsewhere(backend, address, workers, threads, gpus, progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped; {len(grid.outcomes)} of {counted(len(cells), 'cell')} are finished and kept in {out}: "
                "start the same comparison again to go on"
            ) from None
    outcomes = {key: grid.outcomes[key] for key in cells if key in grid.outcomes}
    failures = {key: grid.failures[key] for key in cells if key in grid.failures}
    _check_same_data(outcomes)
    return GridResult(out, tuple(asked.values()), seeds, outcomes, failures)


# What is asked for


def _distinct_methods(methods: Sequence[str]) -> dict[str, str]:
    """Return the expressions by what they mean, in order."""
    if isinstance(methods, str) or not isinstance(methods, Sequence) or not methods:
        raise ValueError(f"methods must be one or more expressions such as 'Mixup(alpha=0.2)', got {methods!r}")
    asked: dict[str, str] = {}
    for method in methods:
        meaning = repr(parse(method))
        if meaning in asked:
            raise ValueError(f"methods must differ, but {asked[meaning]!r} and {method!r} are both {meaning}")
        asked[meaning] = method
    return asked


def _distinct_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(seeds, Sequence) or not seeds:
        raise ValueError(f"seeds must be one or more integers, got {seeds!r}")
    found = tuple(integer("seeds", seed, low=0) for seed in seeds)
    if len(set(found)) < len(found):
        raise ValueError(f"seeds must differ, got {list(found)}")
    return found


def _checked_workers(workers: int | None, backend: str, address: str | None, threads: int, gpus: float) -> int | None:
    if backend == "loky":
        if address is not None:
            raise ValueError(
                f"address={address!r} is that of a cluster: name the cluster's kind, backend='ray' or backend='dask'"
            )
        workers = 1 if workers is None else integer("workers", workers, low=1)
        cores = os.cpu_count() or 1
        if threads > 1 and workers * threads > cores:
            raise ValueError(
                f"workers × threads must be at most the {cores} cores of this machine, got {workers} × {threads}"
            )
    elif workers is not None and integer("workers", workers, low=1) == 1:
        raise ValueError(f"workers must be at least 2 on a cluster, or None for all it has room for, got 1 ({backend})")
    if gpus and backend != "ray":
        raise ValueError(f"gpus is what a cell takes on a Ray cluster, got {gpus:g} with backend={backend!r}")
    return workers


def _rooted(base: Experiment) -> Experiment:
    """Return the experiment with absolute paths, since a cell need not run in this working directory."""

    def rooted(name: str, known: Sequence[str]) -> str:
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
        also=tuple(rooted(source, data.NAMES) for source in base.also),
        model=None if base.model is None else rooted(base.model, models.names()),
        data=options,
        training=training,
    )


def _check_in(
    out: Path, base: Experiment, asked: Mapping[str, str], seeds: tuple[int, ...], threads: int
) -> dict[Key, _Cell]:
    """Write what this grid is, or refuse if the folder holds another one; return its cells."""
    path = out / "grid.json"
    record = base.to_dict()
    record = {"base": {name: value for name, value in record.items() if name not in ("method", "seed")}}
    record["threads"] = threads
    found = read_json(path) if path.exists() else {**record, "methods": [], "seeds": []}
    # Field by field, so that the error can name what differs.
    was, wanted = ({**grid["base"], "threads": grid["threads"]} for grid in (found, record))
    differences = [
        f"{name} was {was.get(name)!r} and is {wanted.get(name)!r}"
        for name in {**was, **wanted}
        if was.get(name) != wanted.get(name)
    ]
    if differences and _nothing_begun(out):
        found = {**record, "methods": [], "seeds": []}  # a wrong target or rate, say, which is mended now
    elif differences:
        raise ValueError(
            f"{out} holds another comparison: {'; '.join(differences)}. "
            "Choose another folder, or remove this one to start anew"
        )
    # A method that was there keeps its first spelling, and so its folder.
    spelled = {repr(parse(method)): method for method in found["methods"]}
    spelled |= {meaning: method for meaning, method in asked.items() if meaning not in spelled}
    record |= {"methods": list(spelled.values()), "seeds": sorted({*found["seeds"], *seeds})}
    write_json(path, {"format": FORMAT, **record})
    cells: dict[Key, _Cell] = {}
    for seed in seeds:  # seed by seed: half a grid then says something of every method
        taken: dict[str, str] = {}
        for meaning, method in spelled.items():
            experiment = dataclasses.replace(base, method=method, seed=seed)
            name = folder_name(experiment)
            if name in taken.values():  # long expressions are cut, and punctuation goes
                name += f"-{hashlib.sha256(meaning.encode()).hexdigest()[:8]}"
            taken[meaning] = name
            if meaning in asked:
                cells[asked[meaning], seed] = _Cell(experiment, out / name)
    return cells


def _nothing_begun(out: Path) -> bool:
    return all(RunFolder(folder, main=False).has_not_begun() for folder in out.iterdir() if folder.is_dir())


def _check_same_data(outcomes: Mapping[Key, Outcome]) -> None:
    seen: dict[tuple[Any, ...], Outcome] = {}
    for outcome in outcomes.values():
        about = outcome.fit["about"]
        seen.setdefault((about["fingerprint"], about["splits"]), outcome)
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

    @property
    def error(self) -> Path:
        return self.folder / "error.txt"

    def state(self) -> tuple[Outcome | None, str | None]:
        """Return the outcome, or what went wrong, or neither, from the folder."""
        try:
            outcome = finished(self.folder, self.experiment)
            if outcome is None and self.error.exists():
                return None, self.error.read_text(encoding="utf-8").partition("\n\nTraceback")[0]
        except Exception as error:
            return None, _told(error)
        return outcome, None

    def fail(self, error: BaseException) -> str:
        """Leave a note of what went wrong, and return it in short."""
        told = _told(error)
        with contextlib.suppress(OSError):  # a full disk, perhaps: then the short form has to do
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self.error) as temporary:
                story = "".join(traceback.format_exception(error))
                temporary.write_text(f"{told}\n\n{story}", encoding="utf-8")
        return told


#: Seeds, threads and Accelerate's state belong to the process: a second cell in another thread of it waits.
_ONE_AT_A_TIME = threading.Lock()


def _run_cell(
    cell: _Cell, threads: int, *, progress: bool = False, driver: int | None = None, data_root: str | None = None
) -> str | None:
    """Run a cell, in whatever process this is, and return what went wrong."""
    if driver is not None:
        _end_with(driver)
    if data_root is not None:
        os.environ["VICINAL_DATA"] = data_root
    with _ONE_AT_A_TIME:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            run(cell.experiment, cell.folder, progress=progress)
        except Exception as error:
            return cell.fail(error)
        finally:
            torch.set_num_threads(before)
        cell.error.unlink(missing_ok=True)
    return None


_following: set[int] = set()


def _end_with(driver: int) -> None:
    """End this process soon after the one that started it, which else would leave it training, its folder locked."""
    if sys.platform == "win32" or driver in _following or os.getppid() != driver:
        return
    _following.add(driver)

    def follow() -> None:
        while os.getppid() == driver:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


class _Grid:
    """The cells and where they stand."""

    def __init__(self, cells: Mapping[Key, _Cell], on_cell: OnCell | None) -> None:
        self._cells = cells
        self._on_cell = on_cell
        self.outcomes: dict[Key, Outcome] = {}
        self.failures: dict[Key, str] = {}

    @property
    def pending(self) -> list[Key]:
        return [key for key in self._cells if key not in self.outcomes and key not in self.failures]

    def skip_finished(self) -> None:
        """Take the cells that are done; what failed before will be tried again."""
        for key, cell in self._cells.items():
            with contextlib.suppress(FileNotFoundError):
                cell.error.unlink()
            self._look(key)

    def run_here(self, threads: int, progress: bool) -> None:
        for key in self.pending:
            error = _run_cell(self._cells[key], threads, progress=progress)
            self._look(key, error)

    def run_elsewhere(
        self, backend: str, address: str | None, workers: int | None, threads: int, gpus: float, progress: bool
    ) -> None:
        joblib = require("joblib", "train")
        task = joblib.delayed(_run_cell)
        options: dict[str, Any] = {"data_root": _data_root()}
        if backend == "loky":
            options["driver"] = os.getpid()
        with (
            _pool(backend, address, workers, threads, gpus) as (config, n_jobs),
            joblib.parallel_config(**config),
            self._watched(progress),
        ):
            # One cell at a time: joblib would put quick ones together, to be run one after the other.
            def parallel(keys: list[Key]) -> dict[Key, str | None]:
                run_all = joblib.Parallel(n_jobs=n_jobs, batch_size=1)
                return dict(zip(keys, run_all(task(self._cells[k], threads, **options) for k in keys), strict=True))

            keys = self.pending
            try:
                told = parallel(keys)
            except Exception:
                # A process died (out of memory, a crash, a lost node) and took the others with it. Each cell that is
                # left now has the pool for itself, so that only the one to blame fails.
                told = {}
                for key in keys:
                    if self._unfinished(key):
                        try:
                            told |= parallel([key])
                        except Exception as error:
                            told[key] = self._cells[key].fail(error)
        settled = time.monotonic() + (0 if backend == "loky" else _SETTLE)
        for key in self.pending:
            while self._unfinished(key) and told.get(key) is None and time.monotonic() < settled:
                time.sleep(_LOOK)
            self._look(key, told.get(key))
        for key in self.pending:
            self._settle(
                key,
                None,
                f"a worker says that it is finished, but {self._cells[key].folder} is not here: "
                "the folder of the grid must be on storage that every node sees under the same path",
            )

    def _unfinished(self, key: Key) -> bool:
        return self._cells[key].state() == (None, None)

    def _look(self, key: Key, error: str | None = None) -> None:
        """See how a cell stands; `error` is what its worker said went wrong."""
        outcome, found = self._cells[key].state()
        if outcome is not None or found or error:
            self._settle(key, outcome, None if outcome is not None else found or error)

    def _settle(self, key: Key, outcome: Outcome | None, error: str | None) -> None:
        if outcome is not None:
            self.outcomes[key] = outcome
        else:
            self.failures[key] = error or ""
        if self._on_cell is not None:
            self._on_cell(*key, outcome, error)

    @contextmanager
    def _watched(self, progress: bool) -> Iterator[None]:
        """Meanwhile look, from another thread, which cells are done. What goes wrong there is raised here."""
        stop = threading.Event()
        wrong: list[BaseException] = []

        def watch() -> None:
            try:
                with _bar(progress, len(self._cells)) as show:
                    while True:
                        show(len(self._cells) - len(self.pending))
                        if stop.wait(_LOOK):
                            return
                        for key in self.pending:
                            self._look(key)
            except BaseException as error:
                wrong.append(error)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if wrong:
            raise wrong[0]


def _data_root() -> str | None:
    given = os.environ.get("VICINAL_DATA")
    return str(Path(given).expanduser().resolve()) if given else None


@contextmanager
def _pool(
    backend: str, address: str | None, workers: int | None, threads: int, gpus: float
) -> Iterator[tuple[dict[str, Any], int]]:
    """Give joblib's configuration and the number of jobs; a connection that was not there before ends with it."""
    if backend != "ray":
        host = {} if address is None else {"scheduler_host": address}
        yield {"backend": backend, **host}, -1 if workers is None else workers
        return
    ray = require("ray", "scale")
    require("ray.util.joblib", "scale").register_ray()
    # It warns of an argument that joblib, not the user, passes.
    logging.getLogger("ray.util.multiprocessing.pool").setLevel(logging.ERROR)
    connected = ray.is_initialized()
    if not connected:
        ray.init(address=address, log_to_driver=False, logging_level="warning")
    try:
        resources = ray.cluster_resources()
        room = int(resources.get("CPU", 0) // threads)
        if gpus:
            room = min(room, int(resources.get("GPU", 0) / gpus))
        needed = 2 if workers is None else workers  # joblib would run a single worker here, not on the cluster
        if room < needed:
            raise ValueError(
                f"the Ray cluster has room for {room} cells of {threads} CPUs and {gpus:g} GPUs at once, fewer than "
                f"{'the 2 that make it worth while' if workers is None else f'workers={workers}'}"
            )
        takes = {"num_cpus": threads, "num_gpus": gpus}
        yield {"backend": "ray", "ray_remote_args": takes}, room if workers is None else workers
    finally:
        if not connected:
            ray.shutdown()


@contextmanager
def _bar(shown: bool, total: int) -> Iterator[Callable[[int], None]]:
    """Give a function that shows how many cells are done, where standard error is a terminal."""
    if not (shown and sys.stderr.isatty() and importlib.util.find_spec("rich")):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("cells", total=total)
        yield lambda done: bar.update(task, completed=done)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
