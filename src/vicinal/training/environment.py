"""What a run borrows and gives back: Accelerate's global state, the model's `forward`, the handlers of signals."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import platform
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

from vicinal._checks import Argument, Sentence, choice, require
from vicinal._files import RunFiles
from vicinal._typing import Model
from vicinal.objectives.forward import unwrap
from vicinal.training.config import FitConfig

__all__ = [
    "Accelerator",
    "Terminated",
    "accelerator",
    "interruptions",
    "joined_process",
    "only_cpu",
    "prepared",
    "versions",
    "warn_if_slow",
]

#: Seconds after which it is said that other processes are waited for.
_SILENCE = 5.0

#: `accelerate.Accelerator`, which is imported where it is made: it is an extra, and slow to import.
Accelerator: TypeAlias = Any


def joined_process() -> Any:
    """Return what Accelerate knows of this process, once the others that were to be started with it are there.

    One that is missing is waited for as long as torch does, which says nothing and hears no signal meanwhile.
    """
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):  # Accelerate would take them at their word
        if not (value := os.environ.get(name, "0")).removeprefix("-").isdecimal():
            raise ValueError(f"the environment variable {name} must be a whole number, got {value!r}: unset it")
    state = require("accelerate", "train").PartialState
    if os.environ.get("WORLD_SIZE", "1") == "1" or state._shared_state:
        return state(cpu=only_cpu())
    saying = threading.Timer(_SILENCE, _say_what_is_waited_for)
    saying.daemon = True
    saying.start()
    try:
        with _ended_by_signals():
            return state(cpu=only_cpu())
    finally:
        saying.cancel()


def _say_what_is_waited_for() -> None:
    limits = torch.distributed.constants
    limit = (None if only_cpu() else limits.default_pg_nccl_timeout) or limits.default_pg_timeout
    given = {name: os.environ.get(name, "?") for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")}
    text = (
        f"waiting for up to {limit.total_seconds() / 60:g} minutes until all {given['WORLD_SIZE']} processes "
        f"(WORLD_SIZE) have met at {given['MASTER_ADDR']}:{given['MASTER_PORT']}; this one is process {given['RANK']}\n"
    )
    # Not a warning: the command shows those of the first process only, and that may be the one that is missing.
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals end the process at once: Python's handlers would run only when the library's call returns."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heard = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in heard:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)


@contextmanager
def accelerator(config: FitConfig, out: Path | None) -> Iterator[Accelerator]:
    """Give an Accelerator of our own settings.

    These are global in Accelerate and cannot be changed once they are made, so those of others (a Hugging Face Trainer
    of the same process, say) are set aside and put back.
    """
    accelerate = require("accelerate", "train")
    state = require("accelerate.state", "train")
    trackers = config.trackers
    if trackers is None:
        installed = importlib.util.find_spec("tensorboard") is not None
        trackers = ("tensorboard",) if installed and out is not None else ()
    if "tensorboard" in trackers and out is None:
        raise ValueError(Sentence("the tracker 'tensorboard' writes to the run folder: pass ", Argument("out")))
    for name in trackers:  # Accelerate would go on without
        choice("trackers", name, [kind.value for kind in accelerate.utils.LoggerType if kind.value != "all"])
        if name not in [kind.value for kind in accelerate.tracking.get_available_trackers()]:
            raise ImportError(f"the tracker {name!r} is not installed: pip install {name}")
    if config.mixed_precision == "fp16" and only_cpu():
        raise ValueError(Sentence(Argument("mixed_precision", "fp16"), " needs a GPU, and there is none: use 'bf16'"))
    kinds = (state.AcceleratorState, state.GradientState)
    others = [dict(kind._shared_state) for kind in kinds]
    for kind in kinds:
        kind._reset_state()
    made = accelerate.Accelerator(
        cpu=only_cpu(),
        mixed_precision=config.mixed_precision,
        log_with=list(trackers) or None,
        project_config=accelerate.utils.ProjectConfiguration(
            project_dir=None if out is None else str(out),
            logging_dir=None if out is None else str(RunFiles(out).tensorboard),
        ),
    )
    try:
        spread = made.distributed_type.value
        if spread != "NO" and not spread.startswith("MULTI_"):
            raise ValueError(f"fit trains in one process or with DistributedDataParallel, not with {spread}")
        yield made
    finally:
        for tracker in made.trackers:
            with contextlib.suppress(AttributeError):  # one that could not start has nothing to end
                tracker.finish()
        for kind, state_before in zip(kinds, others, strict=True):
            kind._reset_state()
            kind._shared_state.update(state_before)


def only_cpu() -> bool:
    """Whether there is no other device; Accelerate takes no notice of torchrun then, unless it is told."""
    return not (torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available())


def warn_if_slow(model: Model, config: FitConfig) -> None:
    """Warn of half precision where this processor has no instructions for it: convolutions then take 10 to 16 times."""
    if config.mixed_precision != "bf16" or not only_cpu():
        return
    if not hasattr(torch.cpu, "get_capabilities"):  # an older torch cannot be asked
        return
    has = torch.cpu.get_capabilities()
    emulated = has.get("architecture") == "x86_64" and not (has.get("avx512_bf16") or has.get("amx_bf16"))
    if emulated and any(isinstance(m, nn.Conv1d | nn.Conv2d | nn.Conv3d) for m in model.modules()):
        slow = " is many times slower than float32 for convolutions on this processor, which emulates it: leave it out"
        warnings.warn(Sentence(Argument("mixed_precision", "bf16"), slow), stacklevel=3)


@contextmanager
def prepared(made: Accelerator, model: Model) -> Iterator[Model]:
    """Give the model on its device, in DDP and with autocast as needed; take back afterwards what was put into it."""
    marks = ("forward", "_original_forward", "_is_accelerate_prepared")
    places = [vars(model), vars(unwrap(model))]
    before = [{name: place[name] for name in marks if name in place} for place in places]
    try:
        yield made.prepare_model(model)
    finally:
        for place, marked in zip(places, before, strict=True):
            for name in marks:
                place.pop(name, None)
            place.update(marked)


class Terminated(SystemExit):
    """What a run that was told to end (SIGTERM) ends with: the exit code is 143, as shells expect."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = 128 + signal.SIGTERM


@contextmanager
def interruptions(*, watched: bool) -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM, so that the step in hand can end and be saved; a second one ends at once."""
    received: list[int] = []
    if not watched or threading.current_thread() is not threading.main_thread():
        yield received
        return

    def receive(number: int, frame: object) -> None:
        received.append(number)
        signal.signal(number, before[number])

    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, receive)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@functools.cache
def _version(package: str) -> str:
    return importlib.metadata.version(package)  # it reads a file of some thousand lines


def versions() -> dict[str, str]:
    """Return what a result depends on beside its settings."""
    names = ("vicinal", "torch", "accelerate", "numpy")
    return {"python": platform.python_version(), "system": sys.platform} | {name: _version(name) for name in names}
