"""The command `vicinal` in forks of one process that has imported everything: a hundred of them cost what one does."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

#: What the first command would import.
_WARM = (
    "vicinal.cli.app",
    "vicinal.runs",
    "vicinal.report",
    "vicinal.predictions",
    "accelerate",
    "pandas",
    "pyarrow.csv",
    "pyarrow.json",
    "pyarrow.parquet",
    "sklearn.linear_model",
    "torch._dynamo",
    "torch.distributed.tensor",
    "openpyxl",
)
#: Limits of each: seconds of the processor and on the wall, bytes of memory.
_CPU_SECONDS, _WALL_SECONDS, _MEMORY = 30, 240, 12 * 2**30


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str
    cpu: float


def warm() -> None:
    """Import what commands need; nothing may run, since a fork has no threads of its parent."""
    for module in _WARM:
        import_module(module)


def command(words: tuple[str, ...], folder: Path, before: Callable[[], object] = lambda: None) -> Ended:
    """Run a command in a folder to its end.

    Parameters
    ----------
    words
        Its arguments.
    folder
        Where it runs.
    before
        Called in its process before it begins.
    """
    streams = [folder.parent / f"{folder.name}.{stream}" for stream in ("out", "err")]
    child = start(words, folder, streams, before)
    limit = time.monotonic() + _WALL_SECONDS
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > limit:
            os.kill(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
            break
        time.sleep(0.01)
    out, err = (file.read_text(errors="replace") for file in streams)
    return Ended(os.waitstatus_to_exitcode(status), out, err, usage.ru_utime + usage.ru_stime)


def start(words: tuple[str, ...], folder: Path, streams: list[Path], before: Callable[[], object]) -> int:
    """Start a command and return the number of its process; what it prints goes to two files."""
    child = os.fork()
    if child == 0:
        _become(words, folder, streams, before)
    return child


def _become(words: tuple[str, ...], folder: Path, streams: list[Path], before: Callable[[], object]) -> None:
    """Be the command: never returns."""
    code = 70
    try:
        for number, file in enumerate(streams, start=1):
            os.dup2(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o666), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS + 5))
        before()
        from vicinal.cli import main

        sys.argv = ["vicinal", *words]
        main()
        code = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            os.write(2, f"{ended.code}\n".encode())
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
