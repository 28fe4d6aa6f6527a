"""Processes of their own for parts of a test: ranks that train together, or one whose memory nobody has used yet."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable

import torch

#: What the process from which the others are forked has loaded: else each of them takes seconds to import it again.
LOADED = ["pytest", "lightning", "torch.distributed", "torchmetrics", "transformers", "vicinal.training"]


def load_ahead() -> None:
    """Have everything loaded before the first process is forked."""
    multiprocessing.set_forkserver_preload(LOADED)


def in_processes(count: int, worker: Callable[..., None], *args: object) -> None:
    """Run `worker(rank, *args)` in as many processes, and wait until all have returned; what one raises is raised."""
    load_ahead()
    torch.multiprocessing.start_processes(worker, args=args, nprocs=count, start_method="forkserver")


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def world(rank: int, size: int, port: int) -> dict[str, str]:
    """Return what torchrun says to each process in its environment."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return {**meeting, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
