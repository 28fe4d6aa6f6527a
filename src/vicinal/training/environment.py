"""Global state that training changes and restores: Accelerate's, the model's `forward`, signal handlers."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn

from vicinal._checks import Argument, Sentence, require
from vicinal._typing import Model
from vicinal.objectives.forward import unwrap
from vicinal.training.config import FitConfig
from vicinal.training.layout import TrainingFiles
from vicinal.training.predicting import float32_products

#: Seconds after which a message says that other processes are waited for.
_SILENCE = 5.0

#: Channels that oneDNN computes at once, at most.
_ONEDNN_BLOCK = 16

#: `accelerate.Accelerator`, which is imported only where it is made: an extra, and slow to import.
Accelerator: TypeAlias = Any


class Process(Protocol):
    """Accelerate's state of this process, as far as it is used here."""

    is_main_process: bool
    process_index: int
    num_processes: int
    device: torch.device

    def wait_for_everyone(self) -> None:
        """Wait until all processes are here."""


def joined_process() -> Process:
    """Return Accelerate's state of this process, once all processes of the job have started.

    torch waits long for a missing process, without a message and deaf to signals; both are handled here.
    """
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):  # Accelerate would fail with an unrelated error
        if not (value := os.environ.get(name, "0")).removeprefix("-").isdecimal():
            raise ValueError(f"the environment variable {name} must be a whole number, got {value!r}: unset it")
    state = require("accelerate", "train").PartialState
    if os.environ.get("WORLD_SIZE", "1") == "1" or state._shared_state:
        alone: Process = state(cpu=only_cpu())
        return alone
    saying = threading.Timer(_SILENCE, _say_what_is_waited_for)
    saying.daemon = True
    saying.start()
    try:
        with _ended_by_signals():
            joined: Process = state(cpu=only_cpu())
            return joined
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
    # Not a warning: the command shows those of the first process only, which may be the missing one.
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals end the process at once: Python's handlers run only when the library's call returns."""
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
    """Give an Accelerator with the settings of this configuration.

    Accelerate's settings are global and fixed once made. Those of others, such as a Hugging Face Trainer in the same
    process, are set aside and restored.
    """
    accelerate = require("accelerate", "train")
    state = require("accelerate.state", "train")
    trackers = config.trackers
    if trackers is None:
        installed = importlib.util.find_spec("tensorboard") is not None
        trackers = ("tensorboard",) if installed and out is not None else ()
    if "tensorboard" in trackers and out is None:
        raise ValueError(Sentence("the tracker 'tensorboard' writes to the run folder: pass ", Argument("out")))
    for name in trackers:  # Accelerate would silently continue without
        if name not in [kind.value for kind in accelerate.tracking.get_available_trackers()]:
            raise ImportError(f"the tracker {name!r} is not installed: pip install {name}")
    if config.mixed_precision == "fp16" and only_cpu():
        raise ValueError(Sentence(Argument("mixed_precision", "fp16"), " needs a GPU, and there is none: use 'bf16'"))
    on_cpu = _choose(config.device)
    kinds: tuple[Any, ...] = (state.AcceleratorState, state.GradientState)
    if config.device is not None:  # what the process as a whole was given may be another
        kinds = (*kinds, state.PartialState)
    # Accelerate keeps one state a process, for ever. A caller's own is put back afterwards.
    others = [dict(kind._shared_state) for kind in kinds]
    for kind in kinds:
        kind._reset_state()
    made = accelerate.Accelerator(
        cpu=on_cpu,
        mixed_precision=config.mixed_precision,
        log_with=list(trackers) or None,
        project_config=accelerate.utils.ProjectConfiguration(
            project_dir=None if out is None else str(out),
            logging_dir=None if out is None else str(TrainingFiles(out).tensorboard),
        ),
    )
    try:
        spread = made.distributed_type.value
        if spread != "NO" and not spread.startswith("MULTI_"):
            raise ValueError(f"fit trains in one process or with DistributedDataParallel, not with {spread}")
        if config.device is not None and made.device.type != torch.device(config.device).type:
            raise ValueError(
                Sentence(
                    Argument("device", config.device), f" is not what Accelerate chose, {made.device}: leave it out"
                )
            )
        with float32_products(full=config.full_float32):
            yield made
    finally:
        for tracker in made.trackers:
            with contextlib.suppress(AttributeError):  # one that could not start has nothing to end
                tracker.finish()
        for kind, state_before in zip(kinds, others, strict=True):
            kind._reset_state()
            kind._shared_state.update(state_before)


def _choose(device: str | None) -> bool:
    """Make a GPU the current one, if it was named; return whether to compute on the CPU."""
    if device is None:
        return only_cpu()
    asked = torch.device(device)
    if asked.type == "cpu":
        return True
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(Sentence(Argument("device", device), " is for one process: several have a GPU each"))
    chosen_device(device)
    if asked.index is not None:
        getattr(torch, asked.type).set_device(asked.index)
    return False


def chosen_device(name: str | None) -> torch.device:
    """Return the device of this name, if it is there; by default the GPU where there is one."""
    if name is None:
        return torch.device("cpu") if only_cpu() else torch.accelerator.current_accelerator() or torch.device("cpu")
    asked = torch.device(name)
    module = getattr(torch, asked.type, None)
    n_there = module.device_count() if module is not None and module.is_available() else 0
    if (asked.index or 0) >= n_there:
        raise ValueError(Sentence(Argument("device", name), f" is not there: torch sees {n_there} of that kind"))
    return asked


def only_cpu() -> bool:
    """Whether the CPU is the only device; Accelerate then ignores torchrun unless it is told."""
    return not (torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available())


def check_layout(model: Model, config: FitConfig) -> None:
    """Refuse layers whose gradient oneDNN writes beyond its memory with channels last (its issue 6035)."""
    if not config.channels_last or not only_cpu():
        return
    for name, layer in model.named_modules():
        strided = isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) and layer.stride != (1, 1)
        if strided and layer.in_channels < _ONEDNN_BLOCK:
            unsafe = (
                f" is not safe with this network on a CPU: its layer {name!r} is a 1×1 convolution with a stride and "
                f"fewer than {_ONEDNN_BLOCK} channels, for which oneDNN corrupts memory. Leave it out"
            )
            raise ValueError(Sentence(Argument("channels_last", True), unsafe))


def warn_if_slow(model: Model, config: FitConfig) -> None:
    """Warn if this processor has no bf16 instructions: convolutions then take 10 to 16 times as long."""
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
def prepared(made: Accelerator, model: Model, *, compiled: bool = False) -> Iterator[Model]:
    """Give the model on its device, in DDP, with autocast and compiled as needed; restore its `forward` afterwards."""
    marks = ("forward", "_original_forward", "_is_accelerate_prepared")
    places = [vars(model), vars(unwrap(model))]
    before = [{name: place[name] for name in marks if name in place} for place in places]
    try:
        ready = made.prepare_model(model)
        graph: Any = torch.compile(ready) if compiled else ready
        yield graph
    finally:
        for place, marked in zip(places, before, strict=True):
            for name in marks:
                place.pop(name, None)
            place.update(marked)


class Terminated(SystemExit):
    """Ends a run after SIGTERM with exit code 143, as shells expect."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = 128 + signal.SIGTERM


@contextmanager
def interruptions(*, watched: bool) -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM, so that the current step can end and be saved; a second one ends at once."""
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
