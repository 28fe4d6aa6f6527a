"""Run many independent jobs on this machine or a cluster: finished ones are skipped, interrupted ones resume.

A job depends on nothing but itself, and leaves everything in its folder. So jobs may run anywhere and in any order, and
be stopped at any time. Their results are read from the folders alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import socket
import sys
import threading
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import torch

from vicinal import _portable
from vicinal._atomic import replacing
from vicinal._checks import (
    Argument,
    ArgumentError,
    Sentence,
    choice,
    freeze,
    integer,
    message_of,
    number,
    require,
)
from vicinal._memory import MAX_MEMORY
from vicinal.progress import on_terminal
from vicinal.runs.layout import RunFiles
from vicinal.training.config import MOST_PROCESSES

A = TypeVar("A")
K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

BACKENDS = ("loky", "ray", "dask")
#: Seconds between two checks of which jobs are done.
_LOOK = 0.5
#: Seconds to wait for lost nodes of a Ray cluster to return.
_WAIT = 300.0
#: Seconds in which a cluster must accept a connection. Ray itself would retry for minutes.
_CONNECT = 10.0
#: How often the remaining jobs are restarted together after a crash, before each runs alone.
_ROUNDS = 10
#: How many workers of a Ray cluster may die with a job before it counts as failed.
_DEATHS = 3
#: Seconds until a file that a node wrote must be visible here: network file systems cache that it was missing.
_SETTLE = 60.0


class Job(Protocol[T_co]):
    """A job that can run anywhere: it must pickle, and leave its result on disk."""

    @property
    def folder(self) -> Path:
        """The folder the job writes to; `error.txt` in it says why it failed."""

    def result(self) -> T_co | None:
        """Return the result, read from the folder, if the job is done."""

    def run(self, *, progress: bool) -> None:
        """Do the work, or resume it."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Where jobs run.

    Parameters
    ----------
    workers
        How many jobs at once. The default on this machine is 1, in this process; on a cluster as many as fit.
    backend
        `"loky"` for processes on this machine, or a cluster, `"ray"` or `"dask"`.
    address
        Of the cluster: `"auto"` or `"host:port"`. Without it Ray starts on this machine, or an existing connection is
        used.
    threads
        Threads of torch in each job, and cores that a job takes on a Ray cluster.
    gpus
        GPUs that a job takes, on a Ray cluster or of this machine; a fraction shares one. With 0 Ray hides them.

    Examples
    --------
    >>> Pool(workers=1).backend
    'loky'
    """

    workers: int | None = None
    backend: str = "loky"
    address: str | None = None
    threads: int = 1
    gpus: float = 0

    def __post_init__(self) -> None:
        backend = choice("backend", self.backend, BACKENDS)
        threads, gpus = integer("threads", self.threads, low=1), number("gpus", self.gpus, low=0)
        workers = _checked_workers(self.workers, backend, self.address, threads, gpus)
        freeze(self, backend=backend, threads=threads, gpus=gpus, workers=workers)

    @property
    def is_here(self) -> bool:
        """Whether jobs run in this process, one after the other."""
        return self.backend == "loky" and self.workers == 1

    def check_cluster(self) -> None:
        """Raise if the cluster's library is not installed, or nothing answers at its address.

        This comes before anything is written: Ray would retry for minutes, and leave files of runs that never began.
        """
        if self.backend == "dask" and importlib.util.find_spec("distributed") is None:
            missing = " needs a library that is not installed: pip install distributed"
            raise ImportError(Sentence(Argument("backend", "dask"), missing))
        address = self.address
        if self.backend == "ray":
            if require("ray", "scale").is_initialized():  # that connection is used, whatever the address
                return
            address = _ray_address(address)
        if self.backend != "loky" and address not in (None, "", "auto", "local"):
            _check_answers(address)


def run_jobs(
    jobs: Mapping[K, Job[T]],
    pool: Pool,
    *,
    progress: bool = True,
    weights: Mapping[K, float] | None = None,
    on_job: Callable[[K, T | None, str | None], None] | None = None,
) -> tuple[dict[K, T], dict[K, str]]:
    """Run the jobs that are not done yet; return the results of all, and the errors of those that failed.

    A job that fails is reported and the others continue; the next call tries it again.

    Parameters
    ----------
    jobs
        By key, in the order in which to start them.
    pool
        Where.
    progress
        Show progress where standard error is a terminal.
    weights
        How long each job takes, in any unit, to estimate the time left; by default all take the same.
    on_job
        Called after each job, the skipped ones first, with its key and its result or error. Jobs that run elsewhere
        are reported from another thread.
    """
    state = _Jobs(jobs, weights or {}, on_job)
    # Results are read from disk even when nothing runs: a driver that was restarted knows no more.
    state.skip_finished()
    if pool.is_here:
        state.run_here(pool.threads, progress)
    elif state.pending:
        state.run_elsewhere(pool, progress)
    results = {key: state.results[key] for key in jobs if key in state.results}
    return results, {key: state.failures[key] for key in jobs if key in state.failures}


def results_on_ray(
    function: Callable[[A], R], arguments: Mapping[K, A], pool: Pool, *, portable: bool = False
) -> Iterator[tuple[K, R | None, str | None]]:
    """Call a function for each argument on a Ray cluster; yield key and result, or key, None and why it was lost.

    Each call is a Ray task. A worker or node that dies takes only its own calls with it, which start again elsewhere.
    While no node has room, this waits for nodes.

    Parameters
    ----------
    function
        It must pickle, and return its errors: an exception counts as a death of its process.
    arguments
        By key, in the order in which to start them. Results come as they are ready.
    pool
        The cluster.
    portable
        Start processes with the variables that make digits portable.
    """
    deaths: Counter[K] = Counter()
    waiting, running = deque(arguments), dict[Any, K]()
    with _ray(pool) as ray:
        # Deaths are counted here: Ray's own retries do not tell which call kills its process each time.
        options: dict[str, Any] = {"num_cpus": pool.threads, "num_gpus": pool.gpus, "max_retries": 0}
        if portable:  # workers that are there already have torch: these are started again
            options["runtime_env"] = {"env_vars": _portable.VARIABLES}
        remote = ray.remote(**options)(_plain(function))
        patience = _Patience()
        try:
            while waiting or running:
                slots = _free_slots(ray, pool)
                if patience.ends(slots):
                    yield from ((key, None, _NO_ROOM) for key in (*running.values(), *waiting))
                    return
                while waiting and len(running) < min(slots, pool.workers or slots):
                    key = waiting.popleft()
                    running[remote.remote(arguments[key])] = key
                if not running:
                    time.sleep(_LOOK)
                    continue
                for task in ray.wait(list(running), timeout=_LOOK)[0]:
                    key = running.pop(task)
                    try:
                        result: R = ray.get(task)
                    except ray.exceptions.RayError as error:
                        deaths[key] += 1
                        if deaths[key] < _DEATHS:
                            waiting.append(key)
                        else:
                            yield key, None, f"{_DIED}: {error}"
                    else:
                        yield key, result, None
        finally:
            for task in running:
                ray.cancel(task, force=True)


def _plain(function: Callable[[A], R]) -> Callable[[A], R]:
    """Return a function of its own: Ray takes no `functools.partial`."""

    def call(argument: A) -> R:
        return function(argument)

    return call


def _checked_workers(workers: int | None, backend: str, address: str | None, threads: int, gpus: float) -> int | None:
    if backend == "loky":
        if address is not None:
            kinds = Argument("backend", "ray"), " or ", Argument("backend", "dask")
            cluster = " is that of a cluster: name the cluster's kind, "
            raise ValueError(Sentence(Argument("address", address), cluster, *kinds))
        workers = 1 if workers is None else integer("workers", workers, low=1, high=MOST_PROCESSES)
        cores = os.cpu_count() or 1
        # One thread a worker may exceed the cores, which is slow but right. More threads would thrash.
        if threads > 1 and workers * threads > cores:
            most = f" must be at most the {cores} cores of this machine, got {workers} × {threads}"
            raise ValueError(Sentence(Argument("workers"), " × ", Argument("threads"), most))
    elif workers is not None and integer("workers", workers, low=1) == 1 and backend == "dask":
        # joblib would run a single one in this process.
        rule = " must be at least 2 on a Dask cluster, or left out for all it has room for, got 1"
        raise ValueError(Sentence(Argument("workers"), rule))
    if gpus and backend == "dask":
        rule = " is for processes of this machine and for Ray: Dask gives GPUs to its workers when they start"
        raise ValueError(Sentence(Argument("gpus", gpus), rule))
    if gpus and backend == "loky" and workers is not None:
        n_there = torch.cuda.device_count()
        if workers * gpus > n_there:
            few = f" must be at most the {n_there} GPUs of this machine, got {workers} × {gpus:g}"
            raise ValueError(Sentence(Argument("workers"), " × ", Argument("gpus"), few))
    return workers


def visible_gpus(worker: int, gpus: float, visible: Sequence[str]) -> str:
    """Return which of the visible GPUs a worker has, as CUDA_VISIBLE_DEVICES names them.

    >>> [visible_gpus(k, 2, ["0", "1", "2", "3"]) for k in range(3)]
    ['0,1', '2,3', '0,1']
    >>> [visible_gpus(k, 0.5, ["4", "5"]) for k in range(4)]
    ['4', '4', '5', '5']
    """
    each = max(int(gpus), 1)
    first = int(worker * (gpus if gpus < 1 else each)) % (len(visible) // each * each)
    return ",".join(visible[first : first + each])


def _take_gpus(gpus: float) -> None:
    """Show this worker its GPUs alone, before it uses one; a worker that has some keeps them."""
    if not gpus or torch.cuda.is_initialized() or _TAKEN in os.environ:
        return
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    visible = visible or [str(k) for k in range(torch.cuda.device_count())]
    number = multiprocessing.current_process().name.rpartition("-")[2]
    os.environ["CUDA_VISIBLE_DEVICES"] = visible_gpus(int(number) if number.isdecimal() else 0, gpus, visible)
    os.environ[_TAKEN] = "1"


#: Set in a worker that has its GPUs.
_TAKEN = "VICINAL_GPUS_TAKEN"


def _ray_address(address: str | None) -> str | None:
    """Return where Ray would connect to; for `"auto"` and None Ray itself knows what was started here last."""
    if address not in (None, "auto"):
        return address
    if given := os.environ.get("RAY_ADDRESS"):
        return given
    try:
        from ray._private.services import canonicalize_bootstrap_address
    except ImportError:  # a private name, which another version of Ray may lack; connecting then tells
        return address
    try:
        find: Callable[..., str | None] = canonicalize_bootstrap_address  # its own type knows no None
        return find(address)
    except ConnectionError as error:
        none = ": no Ray cluster runs on this machine: start one with `ray start --head`, or give the address of one"
        raise ConnectionError(Sentence(Argument("address", "auto"), none)) from error


def _check_answers(address: str) -> None:
    """Raise if nothing answers at `host:port`, with or without a protocol before it."""
    try:
        place = urlsplit(address if "://" in address else f"//{address}")
        host, port = place.hostname, place.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise ArgumentError("address", address, "'auto' or 'host:port'")
    try:
        socket.create_connection((host, port), timeout=_CONNECT).close()
    except OSError as error:
        none = ": no cluster answers there. Is it running, and can this machine reach it?"
        raise ConnectionError(Sentence(Argument("address", address), none)) from error


#: Seeds, threads and Accelerate's state belong to the process: a second job in another thread of it waits.
_ONE_AT_A_TIME = threading.Lock()


def _run_job(
    job: Job[Any],
    threads: int,
    *,
    progress: bool = False,
    driver: int | None = None,
    settings: Mapping[str, str],
    portable: bool = False,
    gpus: float = 0,
) -> str | None:
    """Run a job in this process, a worker with so many GPUs of this machine; return its error, or None.

    With `portable` a process is refused whose digits are not: its results could not stand beside the others.
    """
    if driver is not None:
        _end_with(driver)
    if portable and (reason := _portable.shortfall()) is not None:
        return _fail(job, RuntimeError(reason))
    os.environ.update(settings)
    _take_gpus(gpus)
    # Threads of Dask share one process. Two trainings in it would mix their random states.
    with _ONE_AT_A_TIME:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            job.run(progress=progress)
        except Exception as error:
            return _fail(job, error)
        finally:
            torch.set_num_threads(before)
        _error_file(job).unlink(missing_ok=True)
    return None


def _error_file(job: Job[Any]) -> Path:
    return RunFiles(job.folder).error


def _state(job: Job[T]) -> tuple[T | None, str | None]:
    """Return the result of a job, or its error, or neither, read from its folder."""
    try:
        result = job.result()
        if result is None and _error_file(job).exists():
            return None, _error_file(job).read_text(encoding="utf-8").partition("\n\nTraceback")[0]
    except Exception as error:
        return None, _in_short(error)
    return result, None


def _fail(job: Job[Any], error: BaseException) -> str:
    """Write the error with its traceback to the folder, and return it in one line."""
    short = _in_short(error)
    with contextlib.suppress(OSError):  # a full disk, perhaps: then only the short form is reported
        job.folder.mkdir(parents=True, exist_ok=True)
        with replacing(_error_file(job)) as temporary:
            story = "".join(traceback.format_exception(error))
            temporary.write_text(f"{short}\n\n{story}", encoding="utf-8")
    return short


_following: set[int] = set()


def _end_with(driver: int) -> None:
    """End this process soon after the one that started it.

    A killed driver would else leave workers that train on, with their folders locked.
    """
    if sys.platform == "win32" or driver in _following or os.getppid() != driver:
        return
    # A worker of loky serves many jobs; one thread that follows the driver is enough.
    _following.add(driver)

    def follow() -> None:
        while os.getppid() == driver:
            time.sleep(0.2)
        # Not sys.exit: in a thread it would end the thread alone, and leave the training running.
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


class _Jobs(Generic[K, T]):
    """The jobs and their state."""

    def __init__(
        self,
        jobs: Mapping[K, Job[T]],
        weights: Mapping[K, float],
        on_job: Callable[[K, T | None, str | None], None] | None,
    ) -> None:
        self._jobs, self._weights, self._on_job = jobs, weights, on_job
        self.results: dict[K, T] = {}
        self.failures: dict[K, str] = {}

    @property
    def pending(self) -> list[K]:
        return [key for key in self._jobs if key not in self.results and key not in self.failures]

    def skip_finished(self) -> None:
        """Collect the finished jobs; those that failed before will be tried again."""
        for key, job in self._jobs.items():
            with contextlib.suppress(FileNotFoundError):
                _error_file(job).unlink()
            self._look(key)

    def run_here(self, threads: int, progress: bool) -> None:
        for key in self.pending:
            error = _run_job(self._jobs[key], threads, progress=progress, settings={})
            self._look(key, error)

    def run_elsewhere(self, pool: Pool, progress: bool) -> None:
        with self._watched(progress):
            errors = self._on_ray(pool) if pool.backend == "ray" else self._with_joblib(pool)
        # Network file systems show a file some seconds after another node wrote it.
        settled = time.monotonic() + (0 if pool.backend == "loky" else _SETTLE)
        for key in self.pending:
            while self._unfinished(key) and errors.get(key) is None and time.monotonic() < settled:
                time.sleep(_LOOK)
            self._look(key, errors.get(key))
        for key in self.pending:
            self._settle(
                key,
                None,
                f"a worker says that it is finished, but {self._jobs[key].folder} is not here: "
                "the folder of the grid must be on storage that every node sees under the same path",
            )

    def _with_joblib(self, pool: Pool) -> dict[K, str | None]:
        """Run the pending jobs on this machine or on Dask; return the errors by job."""
        joblib = require("joblib", "train")
        task = joblib.delayed(_run_job)
        options: dict[str, object] = {"settings": _settings(), "portable": _portable.is_asked()}
        if pool.backend == "loky":
            options |= {"driver": os.getpid(), "gpus": pool.gpus}
        host = {} if pool.address is None else {"scheduler_host": pool.address}
        # joblib reads -1 as "all workers of the cluster".
        n_jobs = -1 if pool.workers is None else pool.workers
        with joblib.parallel_config(backend=pool.backend, **host):
            # batch_size=1: joblib would group quick jobs and run them one after the other in one process.
            def parallel(keys: list[K]) -> dict[K, str | None]:
                run_all = joblib.Parallel(n_jobs=n_jobs, batch_size=1)
                return dict(
                    zip(keys, run_all(task(self._jobs[key], pool.threads, **options) for key in keys), strict=True)
                )

            return self._in_rounds(parallel, n_jobs)

    def _in_rounds(self, parallel: Callable[[list[K]], dict[K, str | None]], n_jobs: int) -> dict[K, str | None]:
        """Run the pending jobs; return the errors by job.

        A process that dies (out of memory, a crash, a lost node) breaks the whole pool, and the rest is restarted
        together. Jobs start in order, so the culprit is among the first unfinished ones, as many as run at once. A job
        that was suspected twice waits and runs alone at the end, so that only the culprit fails.
        """
        errors: dict[K, str | None] = {}
        suspected: Counter[K] = Counter()
        for _ in range(_ROUNDS):
            # Twice, because the first suspicion falls on every job that ran beside the culprit.
            keys = [key for key in self.pending if self._unfinished(key) and suspected[key] < 2]
            if not keys:
                break
            try:
                errors |= parallel(keys)
            except Exception:
                left = [key for key in keys if self._unfinished(key)]
                suspected.update(left[: n_jobs if n_jobs > 0 else os.cpu_count() or 1])
        for key in self.pending:
            if self._unfinished(key) and errors.get(key) is None:
                try:
                    errors |= parallel([key])
                except Exception as error:
                    errors[key] = _fail(self._jobs[key], error)
        return errors

    def _on_ray(self, pool: Pool) -> dict[K, str | None]:
        """Run the pending jobs on a Ray cluster; return the errors by job.

        A job whose worker died starts again elsewhere; see `results_on_ray`.
        """
        errors: dict[K, str | None] = {}
        portable = _portable.is_asked()
        call = partial(_run_job, threads=pool.threads, settings=_settings(), portable=portable)
        jobs = {key: self._jobs[key] for key in self.pending}
        for key, error, lost in results_on_ray(call, jobs, pool, portable=portable):
            errors[key] = error if lost is None else lost
            if lost is not None and lost != _NO_ROOM:
                errors[key] = _fail(self._jobs[key], RuntimeError(lost))
        return errors

    def _unfinished(self, key: K) -> bool:
        return _state(self._jobs[key]) == (None, None)

    def _look(self, key: K, error: str | None = None) -> None:
        """Check the state of a job; `error` is what its worker reported."""
        result, noted = _state(self._jobs[key])
        if result is not None or noted or error:
            self._settle(key, result, None if result is not None else noted or error)

    def _settle(self, key: K, result: T | None, error: str | None) -> None:
        if result is not None:
            self.results[key] = result
        else:
            self.failures[key] = error or ""
        if self._on_job is not None:
            self._on_job(key, result, error)

    @contextmanager
    def _watched(self, progress: bool) -> Iterator[None]:
        """Check from another thread which jobs are done, meanwhile; errors there are raised here."""
        stop = threading.Event()
        wrong: list[BaseException] = []

        def weight(keys: Iterable[K]) -> float:
            return sum(self._weights.get(key, 1.0) for key in keys)

        def watch() -> None:
            try:
                with _bar(progress, weight(self._jobs)) as show:
                    while True:
                        show(weight(self._jobs) - weight(self.pending))
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


def _settings() -> dict[str, str]:
    """Return the environment variables that jobs elsewhere need too."""
    settings = {
        name: given for name in ("VICINAL_DATA", "VICINAL_DEVICE", MAX_MEMORY) if (given := os.environ.get(name))
    }
    if "VICINAL_DATA" in settings:
        settings["VICINAL_DATA"] = str(Path(settings["VICINAL_DATA"]).expanduser().resolve())
    return settings


#: The errors of a job that kills its process again and again, and of one for which no node came back in time.
_DIED = f"the process that ran it died {_DEATHS} times, out of memory perhaps"
_NO_ROOM = (
    "no node of the Ray cluster has had room for it for too long: start the same comparison again when its nodes are "
    "back to resume it"
)


class _Patience:
    """How long to wait for the nodes of a cluster; the first wait is announced by a warning."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._said = False

    def ends(self, slots: int) -> bool:
        """Return whether there has been no room for too long."""
        if slots:
            self._since = None
            return False
        if not self._said:
            self._said = True
            warnings.warn(
                f"no node of the Ray cluster has room for a cell: waiting for up to {_WAIT:g} s", stacklevel=2
            )
        self._since = time.monotonic() if self._since is None else self._since
        return time.monotonic() > self._since + _WAIT


@contextmanager
def _ray(pool: Pool) -> Iterator[ModuleType]:
    """Give Ray, connected to the cluster; a connection that it made is closed at the end."""
    ray = require("ray", "scale")
    connected = ray.is_initialized()
    if not connected:
        ray.init(address=pool.address, log_to_driver=False, logging_level="warning")
    try:
        slots, there = _free_slots(ray, pool), ray.cluster_resources().get("CPU", 0)  # none while no node is there
        if there and slots < (pool.workers or 1):
            least = Argument("workers", pool.workers) if pool.workers else "the one that is needed"
            room_for = (
                f"the Ray cluster has room for {slots} cells of {pool.threads} CPUs and {pool.gpus:g} GPUs at once"
            )
            raise ValueError(Sentence(room_for, ", fewer than ", least))
        yield ray
    finally:
        if not connected:
            ray.shutdown()


def _free_slots(ray: ModuleType, pool: Pool) -> int:
    """Return how many jobs fit on the nodes that are alive. A job runs on one node."""
    slots = 0
    for node in ray.nodes():
        if node["Alive"]:
            has = node["Resources"]
            cells = int(has.get("CPU", 0) // pool.threads)
            slots += min(cells, int(has.get("GPU", 0) / pool.gpus)) if pool.gpus else cells
    return slots


@contextmanager
def _bar(shown: bool, total: float) -> Iterator[Callable[[float], None]]:
    """Give a function that shows progress and the time left, if standard error is a terminal."""
    if not (shown and on_terminal()):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("cells", total=total)
        yield lambda done: bar.update(task, completed=done)


def _in_short(error: BaseException) -> str:
    return Sentence(f"{type(error).__name__}: ", message_of(error))
