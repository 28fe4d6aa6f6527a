"""The folder of a training, consistent at every moment; `vicinal.training.layout` lists its files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vicinal._atomic import (
    DamagedFileError,
    Json,
    check_listed,
    checksum,
    is_draft,
    json_bytes,
    read_json,
    read_sealed,
    read_tensors,
    remove_leftovers,
    replacing,
    sealed,
    sync,
    write_json,
    write_tensors,
)
from vicinal._checks import Argument, Sentence, joined, require
from vicinal._memory import check_size
from vicinal.training.layout import TrainingFiles


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a folder against other writers. The system releases the lock when the process ends, even if killed."""
    filelock = require("filelock", "train")
    path.mkdir(parents=True, exist_ok=True)
    file = TrainingFiles(path).lock
    if not _is_our_lock(file):
        raise ValueError(f"{file} is not a lock of ours: remove it, or choose another folder")
    try:
        lock = filelock.FileLock(file, timeout=0).acquire()
    except filelock.Timeout:
        holder = ""
        with contextlib.suppress(OSError):
            holder = file.read_text(encoding="utf-8").strip()
        raise RuntimeError(
            f"{path} is in use: {holder or 'another process'} is writing to it; wait until it has finished, or choose "
            "another folder"
        ) from None
    with lock:
        with contextlib.suppress(OSError):  # Windows lets nobody write to a locked file
            file.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        remove_leftovers(path)
        yield


def _is_our_lock(file: Path) -> bool:
    """Return whether a lock is not there yet, or is one that says which process holds it: no link, nothing else."""
    if file.is_symlink() or (file.exists() and not file.is_file()):
        return False
    with contextlib.suppress(OSError), file.open("rb") as stream:  # one may not be there, or be of another user
        return stream.read(8) in (b"", b"process ")
    return True


def foreign_entries(path: Path, *ours: Path) -> list[str]:
    """Return what a folder holds beside these files and drafts: a folder with other things in it is not ours to use."""
    if not path.is_dir():
        return []
    names = {file.name for file in ours if file != TrainingFiles(path).lock or _is_our_lock(file)}
    return sorted(e.name for e in path.iterdir() if e.name not in names and not is_draft(e.name))


def refuse_foreign(files: TrainingFiles) -> None:
    """Raise if a folder holds something other than a run, which must not be overwritten."""
    if files.config.name in checksums_of(files):  # a finished run, whose config.json may be damaged
        return
    if files.config.exists():
        if "about" not in read_json(files.config):
            raise ValueError(f"{files.config} is not that of a run: choose a new or an empty folder")
        return
    if others := foreign_entries(files.path, files.lock, files.error, files.initial_weights):
        raise ValueError(
            f"{files.path} holds {', '.join(map(repr, others[:3]))}{', …' if others[3:] else ''} but no "
            f"{files.config.name}: it is not a run. Choose a new or an empty folder"
        )


class TrainingFolder:
    """The files of one training; without a path nothing is written, and only the main process writes.

    Parameters
    ----------
    path
        The folder, or None for a run that leaves no trace.
    main
        Whether this process is the one that writes.
    """

    def __init__(self, path: Path | None, *, main: bool) -> None:
        self.path = path
        self.files = TrainingFiles(path or Path())  # never used without a path
        self.writes = path is not None and main
        self._committed: int | None = None  # the step of the checkpoint on disk

    # The description

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, if this process writes."""
        with locked(self.files.path) if self.writes else contextlib.nullcontext():
            yield

    def check_in(self, description: Mapping[str, object]) -> None:
        """Write the description of this run, or raise if the folder holds another."""
        if not self.writes:
            return
        # A folder that holds something else is never written to, however empty it looks.
        refuse_foreign(self.files)
        recorded = checksums_of(self.files).get(self.files.config.name)
        if not self.files.config.exists() or recorded not in (None, checksum(self.files.config)):
            content = f"sha256:{hashlib.sha256(json_bytes(description)).hexdigest()}"
            if recorded not in (None, content):
                raise DamagedFileError(
                    f"{self.files.config} is damaged, and these options do not give it again: run the command of this "
                    f"training, or remove {self.path} to start over"
                )
            write_json(self.files.config, description)
            return
        # Flattened, so that the message can name the one setting that differs.
        before, now = _flat(read_json(self.files.config)), _flat(description)
        differences: list[str] = [
            Sentence(_setting(name), f" was {before.get(name)!r} and is {now.get(name)!r}")
            for name in sorted(before.keys() | now.keys())
            if (before.get(name) or None)
            != (now.get(name) or None)  # a field added since is absent, and off by default
        ]
        if differences and self.has_not_begun():
            # Only the initial checkpoint is there, so nothing is lost.
            shutil.rmtree(self.files.checkpoint, ignore_errors=True)
            write_json(self.files.config, description)
        elif differences:
            raise ValueError(self._another(before, now, differences))

    def _another(self, before: Json, now: Json, differences: Sequence[str]) -> Sentence:
        """Return why a run cannot be resumed with these settings."""
        name = "micro_batches_per_step"
        if len(differences) == 1 and before.get(name) != now.get(name):
            began = (
                f"{self.path} began with {before.get(name)} micro-batches in a step, and this command has {now[name]}: "
            )
            needed = f" must be {before.get(name)} to resume it"
            return Sentence(began, "the number of processes times ", Argument("accumulation"), needed)
        more = "; …" if differences[5:] else ""
        advice = f"{more}. Choose another folder, or remove this one to start over"
        return Sentence(f"{self.path} holds another run: ", joined("; ", differences[:5]), advice)

    def has_not_begun(self) -> bool:
        """Whether nothing was trained yet: a run that failed at its first step gives way to a corrected one."""
        files = self.files
        if any(path.exists() for path in (files.metrics, files.result, files.first_stage.path)):
            return False
        return not files.checkpoint_record.exists() or read_json(files.checkpoint_record).get("step") == 0

    def result(self, *, rewrites_metrics: bool = False) -> dict[str, object] | None:
        """Return the result of a finished run, else None.

        If it, the weights or predictions are missing or damaged, the run is not finished any more: the checkpoint has
        them. Damaged metrics are an error, unless the caller writes them again.
        """
        if self.path is None or not self.files.result.exists():
            return None
        try:
            result = read_sealed(self.files.result)
        except DamagedFileError:
            result = {}
        if not {"method", "best", "last"} <= result.keys():
            warnings.warn(f"{self.files.result} is incomplete: the end is taken from the checkpoint", stacklevel=4)
            return None
        try:
            check_listed(self.files.metrics, checksums_of(self.files))
        except DamagedFileError as error:
            if rewrites_metrics:
                return None
            raise DamagedFileError(
                f"{error}. Only training writes it: remove {self.path}, and run the same command again"
            ) from error
        damage = weights_damage(self.files, result)
        for path in (self.files.predictions(),) if damage is None else ():
            try:
                check_listed(path, checksums_of(self.files))
            except DamagedFileError as error:
                damage = str(error)
        if damage is None:
            return result
        warnings.warn(f"{damage}: they are taken from the checkpoint again", stacklevel=4)
        return None

    # Metrics

    def append(self, line: Mapping[str, object]) -> None:
        """Add a line to the metrics."""
        if self.writes:
            name = self.files.metrics.name
            with self._explained(name), open(self.files.metrics, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def history(self) -> list[Json]:
        """Return the lines of the metrics."""
        return [] if self.path is None else read_history(self.files)

    def rewind_metrics(self, n_bytes: int) -> None:
        """Cut the metrics back to the checkpoint: training writes the later lines again."""
        if not self.writes:
            return
        path = self.files.metrics
        size = path.stat().st_size if path.exists() else 0
        if size < n_bytes:
            raise ValueError(f"{path} has {size} bytes, but the checkpoint was written when it had {n_bytes}")
        if size > n_bytes:
            os.truncate(path, n_bytes)

    # Checkpoints

    def load_checkpoint(self, *, rank: int = 0) -> Json | None:
        """Return the last saved state, or None; a damaged file is a `DamagedFileError`."""
        if self.path is None or not self.files.checkpoint_record.exists():
            return None
        record = read_sealed(self.files.checkpoint_record)
        try:
            self._committed = record["step"]
            names, sums = record["files"], record.get("checksums", {})

            def tree(kind: str) -> Json:
                return read_tree(self.files.checkpoint / names[kind], expected=sums.get(names[kind]))

            return {
                "state": tree("state"),
                "best": tree("best") if "best" in names else None,
                "objective": tree(f"rank{rank}" if f"rank{rank}" in names else "rank0") if "rank0" in names else None,
                "ranks": record["ranks"],
                "metrics_bytes": record["metrics_bytes"],
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise DamagedFileError(f"{self.files.checkpoint_record} is damaged ({error!r})") from error

    def drop_checkpoint(self) -> None:
        """Forget a checkpoint that cannot be read, and all metrics."""
        self._committed = None
        if self.writes:
            self.files.checkpoint_record.unlink(missing_ok=True)
            self.rewind_metrics(0)

    def save_checkpoint(
        self,
        step: int,
        state: Mapping[str, object],
        *,
        best: Mapping[str, object] | None,
        objective: Mapping[str, object] | None,
        rank: int,
        ranks: int,
        barrier: Callable[[], None],
    ) -> None:
        """Write a checkpoint and remove the previous one; every rank calls this.

        Parameters
        ----------
        step
            The current step; a second checkpoint of the same step is not written.
        state
            What is common to all ranks: nested dicts and lists of tensors, numbers, strings.
        best
            The best evaluation so far, with its own `"step"`: written when it is new.
        objective
            The state of the objective, which each rank has for itself.
        rank, ranks, barrier
            Which rank this is, how many there are, and how to wait for them.
        """
        if self.path is None or step == self._committed:
            return
        folder = self.files.checkpoint
        names = {"state": f"state-{step}.safetensors"}
        if best is not None:
            names["best"] = f"best-{best['step']}.safetensors"
        if objective is not None:
            names |= {f"rank{r}": f"rank{r}-{step}.safetensors" for r in range(ranks)}
        with self._explained(f"the checkpoint of step {step}"):
            folder.mkdir(parents=True, exist_ok=True)
            if self.writes:
                write_tree(folder / names["state"], state)
                if best is not None and not (folder / names["best"]).exists():
                    write_tree(folder / names["best"], best)
            if objective is not None:
                write_tree(folder / names[f"rank{rank}"], objective)
            barrier()  # the files of all ranks are there
            if self.writes:
                self._commit(step, ranks, names)
        self._committed = step

    def _commit(self, step: int, ranks: int, names: Mapping[str, str]) -> None:
        """Write checkpoint.json, which makes the new checkpoint count, and remove the files of the old one.

        The order matters: a kill before the record leaves the old checkpoint, one after it the new.
        """
        metrics, folder = self.files.metrics, self.files.checkpoint
        if metrics.exists():
            sync(metrics)  # the record says how long the file is: a power failure must not leave it shorter
        record = {
            "step": step,
            "ranks": ranks,
            "metrics_bytes": metrics.stat().st_size if metrics.exists() else 0,
            "files": names,
            "checksums": {name: checksum(folder / name) for name in names.values()},
        }
        write_json(self.files.checkpoint_record, sealed(record))
        for path in folder.iterdir():
            if path.name not in names.values() and path != self.files.checkpoint_record:
                path.unlink()

    # The end

    def finish(
        self,
        weights: Mapping[str, Tensor],
        predictions: Mapping[str, Tensor] | None,
        result: dict[str, object],
        history: Sequence[Mapping[str, object]] | None = None,
    ) -> dict[str, object]:
        """Write the selected weights and their predictions, then the result, which marks the run as finished.

        Returns the result as it is written, with the checksums of the files. A `history` that was not appended line by
        line is written in place of the metrics.
        """
        if not self.writes:
            return result
        if history is not None:
            self.rewind_metrics(0)
            for line in history:
                self.append(line)
        with self._explained("the result"):
            # result.json last: it marks the training as finished, and holds the checksums of the other files.
            write_tensors(self.files.weights, weights)
            if predictions is not None:
                self.keep_predictions(predictions)
            files = self.files
            written = (files.config, files.metrics, files.initial_weights, *files.kept_predictions())
            listed = {path.name: checksum(path) for path in written if path.exists()}
            result = {**result, "weights": checksum(files.weights), "files": listed}
            write_json(files.result, sealed(result))
        return result

    def keep_predictions(self, predictions: Mapping[str, Tensor], key: str = "val") -> None:
        """Write predictions as Parquet."""
        if self.writes:
            path = self.files.predictions(key)
            with self._explained(path.name):
                write_logits(path, predictions)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Explain a failed write: what is safe, and what to do."""
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
                "Make room, then start the same run again to resume from there",
            ) from error


def read_history(files: TrainingFiles) -> list[dict[str, object]]:
    """Return the lines of a run's metrics."""
    if not check_listed(files.metrics, checksums_of(files)).exists():
        return []
    try:
        return [json.loads(line) for line in files.metrics.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise DamagedFileError(f"{files.metrics} is damaged: {error}") from error


def checksums_of(files: TrainingFiles) -> dict[str, str]:
    """Return the checksums of the files of a finished training by name; none if it is not finished, or damaged."""
    with contextlib.suppress(DamagedFileError):
        listed = read_sealed(files.result).get("files") if files.result.exists() else None
        return listed if isinstance(listed, dict) else {}
    return {}


def weights_damage(files: TrainingFiles, result: Mapping[str, object]) -> str | None:
    """Return what is wrong with the weights of a finished run, or None; the first results have no checksum."""
    if not files.weights.exists():
        return f"the weights {files.weights} are gone"
    check_size(files.weights)
    if "weights" in result and checksum(files.weights) != result["weights"]:
        return f"the weights {files.weights} are damaged: their checksum differs"
    return None


def load_weights(path: str | os.PathLike[str], *, last: bool = False) -> dict[str, Tensor]:
    """Return the weights of a run, for `model.load_state_dict`.

    Parameters
    ----------
    path
        The run's folder.
    last
        Those of the last step (of the last checkpoint, if the run is not finished) instead of the selected ones.

    Returns
    -------
    dict[str, Tensor]
        The weights by name, on the CPU.

    Examples
    --------
    >>> import tempfile
    >>> from vicinal import ERM, fit
    >>> from vicinal.training import FitConfig
    >>> data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.tensor([0, 1] * 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fit(torch.nn.Linear(4, 2), ERM(), data, out=folder, config=FitConfig(epochs=1, batch_size=4))
    ...     weights = load_weights(folder)
    >>> {name: list(tensor.shape) for name, tensor in weights.items()}
    {'bias': [2], 'weight': [2, 4]}
    """
    folder = TrainingFolder(Path(path), main=False)
    if last:
        checkpoint = folder.load_checkpoint()
        if checkpoint is None:
            raise FileNotFoundError(f"{path} has no checkpoint")
        weights: dict[str, Tensor] = checkpoint["state"]["model"]
        return weights
    if not folder.files.weights.exists():
        raise FileNotFoundError(
            f"{path} has no {folder.files.weights.name}: the run is not finished; start it again, or last=True"
        )
    recorded = read_sealed(folder.files.result) if folder.files.result.exists() else {}
    return read_tensors(folder.files.weights, expected=recorded.get("weights"))[0]


# Trees of state, as JSON and named tensors


def pack(tree: object, name: str = "") -> tuple[object, dict[str, Tensor]]:
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
        return {key: packed for key, packed, _ in pairs}, {n: t for *_, named in pairs for n, t in named.items()}
    if isinstance(tree, list | tuple):
        parts = [pack(value, f"{name}/{i}" if name else str(i)) for i, value in enumerate(tree)]
        return [packed for packed, _ in parts], {n: t for _, named in parts for n, t in named.items()}
    raise TypeError(
        f"only tensors, numbers, strings, dicts and lists can be saved, got {type(tree).__name__} at {name!r}"
    )


def unpack(packed: object, tensors: Mapping[str, Tensor]) -> Any:
    """Put together again what `pack` split."""
    # JSON has no tensors: a dictionary with this only key stands for one, by its name in the file.
    if isinstance(packed, dict):
        if packed.keys() == {"$tensor"}:
            return tensors[packed["$tensor"]]
        return {key: unpack(value, tensors) for key, value in packed.items()}
    return [unpack(value, tensors) for value in packed] if isinstance(packed, list) else packed


# Trees and logits as files


def write_tree(path: Path, tree: Mapping[str, object]) -> None:
    """Write nested dicts and lists of tensors and plain values as one safetensors file, atomically."""
    packed, tensors = pack(tree)
    write_tensors(path, tensors, tree=json.dumps(packed))


def read_tree(path: Path, *, expected: str | None = None) -> Json:
    """Read what `write_tree` wrote."""
    if not path.exists():
        raise DamagedFileError(f"{path} is gone")
    tensors, metadata = read_tensors(path, expected=expected)
    tree: dict[str, object] = unpack(json.loads(metadata["tree"]), tensors)
    return tree


def write_logits(path: Path, predictions: Mapping[str, Tensor]) -> None:
    """Write index, label and logits as Parquet, atomically; each row's logits are one list."""
    pa = require("pyarrow", "train")
    parquet = require("pyarrow.parquet", "train")
    logits, labels = predictions["logits"].float(), predictions["labels"]

    def lists(rows: Tensor) -> Any:
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.flatten().numpy()), rows.shape[1])

    columns = {
        "index": pa.array(torch.arange(len(logits)).numpy()),
        "label": pa.array(labels.numpy()) if labels.ndim == 1 else lists(labels),
        "logits": lists(logits),
    }
    with replacing(path) as temporary:
        parquet.write_table(pa.table(columns), temporary)


def read_predictions(path: str | os.PathLike[str]) -> tuple[Tensor, Tensor]:
    """Return logits `[N, K]` and labels `[N]` of a predictions file, or `[N, L]` for several of each sample.

    Parameters
    ----------
    path
        `predictions.parquet` of a run, or one of its `predictions-epoch-N.parquet`.

    Returns
    -------
    tuple[Tensor, Tensor]
        The logits and the labels.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "predictions.parquet"
    ...     write_logits(path, {"logits": torch.tensor([[2.0, -1.0]]), "labels": torch.tensor([0])})
    ...     read_predictions(path)
    (tensor([[ 2., -1.]]), tensor([0]))
    """
    parquet, types = require("pyarrow.parquet", "train"), require("pyarrow", "train").types
    try:
        check_listed(Path(path), checksums_of(TrainingFiles(Path(path).parent)))
        table = parquet.read_table(path)

        def matrix(name: str) -> Tensor:
            rows = table[name].combine_chunks()
            return torch.tensor(rows.flatten().to_numpy(zero_copy_only=False)).view(len(rows), -1)

        several = types.is_fixed_size_list(table["label"].type)
        return matrix("logits"), matrix("label") if several else torch.tensor(table["label"].to_numpy())
    except (PermissionError, DamagedFileError):  # the file may be intact: predicting again would not help
        raise
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:  # the type depends on the damaged byte
        why = "is gone" if not Path(path).exists() else f"is damaged: {str(error).strip()}"
        raise DamagedFileError(f"{path} {why}") from error


def _flat(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return the leaves of nested mappings by dotted names, for errors that say which one differs."""
    leaves: dict[str, object] = {}
    for key, value in tree.items():
        leaves |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return leaves


def _setting(name: str) -> Argument | str:
    """Return a leaf of a description as the argument that set it, if one did."""
    field, _, argument = name.partition(".")
    return Argument(argument) if field in ("config", "about") else name
