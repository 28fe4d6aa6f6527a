"""A run on disk, which is whole at every moment.

    run/
      config.json            what was asked for: method, configuration, sizes; written once
      metrics.jsonl          one line per evaluation or epoch; the same run writes the same bytes
      checkpoint/            checkpoint.json names the files that belong to it; replacing it is the commit
      model.safetensors      the selected weights
      predictions.parquet    validation predictions of these weights: index, label, logits
      result.json            best and last metrics, versions, timings; its presence means that the run is finished

Every file is written under another name, synced, and moved into place. Tensors are safetensors, the rest is JSON:
nothing is ever unpickled.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vicinal._checks import Argument, Sentence, joined, require
from vicinal._files import FORMAT, read_json, read_tensors, replacing, sync, write_json, write_tensors

__all__ = ["RunFolder", "load_weights", "pack", "read_predictions", "unpack"]


class RunFolder:
    """The files of one run; without a path nothing is written, and only the main process writes.

    Parameters
    ----------
    path
        The folder, or None for a run that leaves no trace.
    main
        Whether this process is the one that writes.
    """

    def __init__(self, path: Path | None, *, main: bool) -> None:
        self.path = path
        self.writes = path is not None and main
        self._committed: int | None = None  # the step of the checkpoint on disk

    # What the run is

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; a second run is refused. The system lets go of the lock when the process ends, however."""
        if not self.writes:
            yield
            return
        path = self._path()
        path.mkdir(parents=True, exist_ok=True)
        with open(path / ".lock", "a+") as file:
            if not _try_lock(file.fileno()):
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise RuntimeError(
                    f"{path} is in use: {holder} is writing to it; wait until it has finished, or choose another folder"
                )
            for left in path.glob(".*.tmp"):  # by a killed run, in the middle of a write
                left.unlink()
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            yield

    def check_in(self, description: Mapping[str, Any]) -> None:
        """Write what this run is, or refuse if the folder holds another one."""
        if not self.writes:
            return
        path = self._path() / "config.json"
        if not path.exists():
            others = sorted(p.name for p in self._path().iterdir() if p.name in ("metrics.jsonl", "result.json"))
            if others:
                raise ValueError(f"{self._path()} holds {' and '.join(others)} but no config.json: not a run of fit")
            write_json(path, {"format": FORMAT, **description})
            return
        found, wanted = _flat(read_json(path)), _flat({"format": FORMAT, **description})
        differences: list[str] = [
            Sentence(_setting(name), f" was {found.get(name)!r} and is {wanted.get(name)!r}")
            for name in sorted(found.keys() | wanted.keys())
            if found.get(name) != wanted.get(name)
        ]
        if differences and self.has_not_begun():
            shutil.rmtree(self._path() / "checkpoint", ignore_errors=True)
            write_json(path, {"format": FORMAT, **description})
        elif differences:
            raise ValueError(
                Sentence(
                    f"{self._path()} holds another run: ",
                    joined("; ", differences[:5]),
                    f"{'; …' if differences[5:] else ''}. Choose another folder, or remove this one to start anew",
                )
            )

    def has_not_begun(self) -> bool:
        """Whether nothing was trained yet: a run that failed at its first step is not in the way of a mended one."""
        path = self._path()
        if any((path / name).exists() for name in ("metrics.jsonl", "result.json", "first-stage")):
            return False
        checkpoint = path / "checkpoint" / "checkpoint.json"
        return not checkpoint.exists() or read_json(checkpoint)["step"] == 0

    def result(self) -> dict[str, Any] | None:
        """Return the result of a finished run, else None."""
        path = None if self.path is None else self.path / "result.json"
        if path is None or not path.exists():
            return None
        return {name: value for name, value in read_json(path).items() if name != "format"}

    # Metrics

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        if self.writes:
            with self._explained("metrics.jsonl"), open(self._path() / "metrics.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def history(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl."""
        path = None if self.path is None else self.path / "metrics.jsonl"
        if path is None or not path.exists():
            return []
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    # Checkpoints

    def load_checkpoint(self, *, rank: int = 0) -> dict[str, Any] | None:
        """Return the state that was saved last, or None."""
        path = None if self.path is None else self.path / "checkpoint" / "checkpoint.json"
        if path is None or not path.exists():
            return None
        found = read_json(path)
        self._committed = found["step"]
        files = {kind: path.parent / name for kind, name in found["files"].items()}
        return {
            "state": read_tree(files["state"]),
            "best": read_tree(files["best"]) if "best" in files else None,
            "own": read_tree(files.get(f"rank{rank}", files["rank0"])) if "rank0" in files else None,
            "ranks": found["ranks"],
            "metrics_bytes": found["metrics_bytes"],
        }

    def rewind_metrics(self, n_bytes: int) -> None:
        """Cut metrics.jsonl back to where the checkpoint was written: the lines after it will come again."""
        if not self.writes:
            return
        path = self._path() / "metrics.jsonl"
        size = path.stat().st_size if path.exists() else 0
        if size < n_bytes:
            raise ValueError(f"{path} has {size} bytes, but the checkpoint was written when it had {n_bytes}")
        if size > n_bytes:
            os.truncate(path, n_bytes)

    def save_checkpoint(
        self,
        step: int,
        state: Mapping[str, Any],
        *,
        best: Mapping[str, Any] | None,
        own: Mapping[str, Any] | None,
        rank: int,
        ranks: int,
        barrier: Callable[[], None],
    ) -> None:
        """Write a checkpoint and let go of the one before it; every rank calls this.

        Parameters
        ----------
        step
            Where training stands; a second checkpoint of the same step is not written.
        state
            What is common to all ranks: nested dicts and lists of tensors, numbers, strings.
        best
            The best evaluation so far, with its own `"step"`: written when it is new.
        own
            What each rank has for itself.
        rank, ranks, barrier
            Which rank this is, how many there are, and how to wait for them.
        """
        if self.path is None or step == self._committed:
            return
        folder = self.path / "checkpoint"
        files = {"state": f"state-{step}.safetensors"}
        if best is not None:
            files["best"] = f"best-{best['step']}.safetensors"
        if own is not None:
            files |= {f"rank{r}": f"rank{r}-{step}.safetensors" for r in range(ranks)}
        with self._explained(f"the checkpoint of step {step}"):
            folder.mkdir(parents=True, exist_ok=True)
            if self.writes:
                write_tree(folder / files["state"], state)
                if best is not None and not (folder / files["best"]).exists():
                    write_tree(folder / files["best"], best)
            if own is not None:
                write_tree(folder / files[f"rank{rank}"], own)
            barrier()  # the files of all ranks are there
            if self.writes:
                metrics = self._path() / "metrics.jsonl"
                if metrics.exists():
                    sync(metrics)
                n_bytes = metrics.stat().st_size if metrics.exists() else 0
                write_json(
                    folder / "checkpoint.json",
                    {"format": FORMAT, "step": step, "ranks": ranks, "metrics_bytes": n_bytes, "files": files},
                )
                for path in folder.iterdir():
                    if path.name not in files.values() and path.name != "checkpoint.json":
                        path.unlink()
        self._committed = step

    # The end

    def finish(
        self, weights: Mapping[str, Tensor], predictions: Mapping[str, Tensor] | None, result: Mapping[str, Any]
    ) -> None:
        """Write the selected weights and their predictions, then the result, which marks the run as finished."""
        if not self.writes:
            return
        with self._explained("the result"):
            write_tensors(self._path() / "model.safetensors", weights)
            if predictions is not None:
                self.keep_predictions(predictions, "predictions.parquet")
            write_json(self._path() / "result.json", {"format": FORMAT, **result})

    def keep_predictions(self, predictions: Mapping[str, Tensor], name: str) -> None:
        """Write predictions as Parquet."""
        if self.writes:
            with self._explained(name):
                write_predictions(self._path() / name, predictions)

    def _path(self) -> Path:
        if self.path is None:
            raise RuntimeError("this run has no folder")
        return self.path

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Say what a failed write means for the run: what is safe, and what to do."""
        try:
            yield
        except OSError as error:
            reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
            safe = (
                "nothing was saved yet"
                if self._committed is None
                else f"the checkpoint of step {self._committed} is intact"
            )
            raise OSError(
                error.errno,
                f"could not write {what} to {self.path}: {reason}; {safe}. "
                "Make room, then start the same run again: it goes on from there",
            ) from error


def load_weights(path: str | os.PathLike[str], *, last: bool = False) -> dict[str, Tensor]:
    """Return the weights of a run, for `model.load_state_dict`.

    Parameters
    ----------
    path
        The run's folder.
    last
        Those of the last step (of the last checkpoint, if the run is not finished) instead of the selected ones.
    """
    folder = Path(path)
    if last:
        found = RunFolder(folder, main=False).load_checkpoint()
        if found is None:
            raise FileNotFoundError(f"{folder} has no checkpoint")
        weights: dict[str, Tensor] = found["state"]["model"]
        return weights
    if not (folder / "model.safetensors").exists():
        raise FileNotFoundError(
            f"{folder} has no model.safetensors: the run is not finished; start it again, or last=True"
        )
    return read_tensors(folder / "model.safetensors")


# Trees of state, as JSON and named tensors


def pack(tree: Any, name: str = "") -> tuple[Any, dict[str, Tensor]]:
    """Split a tree of dicts, lists, tensors and plain values into what is JSON and what is tensors.

    >>> packed, tensors = pack({"step": 3, "weights": [torch.zeros(2)]})
    >>> packed, list(tensors)
    ({'step': 3, 'weights': [{'$tensor': 'weights/0'}]}, ['weights/0'])
    >>> unpack(packed, tensors)
    {'step': 3, 'weights': [tensor([0., 0.])]}
    """
    if isinstance(tree, Tensor):
        return {"$tensor": name}, {name: tree.detach()}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree, {}
    if isinstance(tree, Mapping):
        pairs = [(str(key), *pack(value, f"{name}/{key}" if name else str(key))) for key, value in tree.items()]
        return {key: packed for key, packed, _ in pairs}, {n: t for *_, found in pairs for n, t in found.items()}
    if isinstance(tree, list | tuple):
        parts = [pack(value, f"{name}/{i}" if name else str(i)) for i, value in enumerate(tree)]
        return [packed for packed, _ in parts], {n: t for _, found in parts for n, t in found.items()}
    raise TypeError(
        f"only tensors, numbers, strings, dicts and lists can be saved, got {type(tree).__name__} at {name!r}"
    )


def unpack(packed: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Put together again what `pack` split."""
    if isinstance(packed, dict):
        if packed.keys() == {"$tensor"}:
            return tensors[packed["$tensor"]]
        return {key: unpack(value, tensors) for key, value in packed.items()}
    return [unpack(value, tensors) for value in packed] if isinstance(packed, list) else packed


# Trees and predictions as files


def write_tree(path: Path, tree: Mapping[str, Any]) -> None:
    """Write nested dicts and lists of tensors and plain values as one safetensors file, atomically."""
    packed, tensors = pack(tree)
    write_tensors(path, tensors, tree=json.dumps(packed))


def read_tree(path: Path) -> dict[str, Any]:
    """Read what `write_tree` wrote."""
    with require("safetensors", "train").safe_open(path, framework="pt") as file:
        # Copies: a view of the file would keep it open and need not be aligned as torch aligns.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  # not a dict
        tree: dict[str, Any] = unpack(json.loads(file.metadata()["tree"]), tensors)
    return tree


def write_predictions(path: Path, predictions: Mapping[str, Tensor]) -> None:
    """Write index, label and logits as Parquet, atomically; each row's logits are one list."""
    pa = require("pyarrow", "train")
    parquet = require("pyarrow.parquet", "train")
    logits = predictions["logits"].float()
    columns = {
        "index": pa.array(torch.arange(len(logits)).numpy()),
        "label": pa.array(predictions["labels"].numpy()),
        "logits": pa.FixedSizeListArray.from_arrays(pa.array(logits.flatten().numpy()), logits.shape[1]),
    }
    with replacing(path) as temporary:
        parquet.write_table(pa.table(columns), temporary)


def read_predictions(path: str | os.PathLike[str]) -> tuple[Tensor, Tensor]:
    """Return logits `[N, K]` and labels `[N]` of a predictions file.

    Parameters
    ----------
    path
        `predictions.parquet` of a run, or one of its `predictions-epoch-N.parquet`.
    """
    table = require("pyarrow.parquet", "train").read_table(path)
    rows = table["logits"].combine_chunks()
    logits = torch.tensor(rows.flatten().to_numpy(zero_copy_only=False)).view(len(rows), -1)
    return logits, torch.tensor(table["label"].to_numpy())


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return False
        raise
    return True


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings by their dotted names, for an error that says which one differs."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return leaves


def _setting(name: str) -> Argument | str:
    """Return a leaf of what a run is as the argument that set it, where one did."""
    field, _, argument = name.partition(".")
    return Argument(argument) if field in ("config", "about") else name
