"""Files that are there whole or not at all, and the names of those in the folder of a run.

Every file is written under another name, synced, and moved into place. Tensors are safetensors, the rest is JSON:
nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vicinal._checks import require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = [
    "FORMAT",
    "DamagedFileError",
    "Json",
    "RunFiles",
    "Scratch",
    "check_seal",
    "checksum",
    "foreign_entries",
    "is_our_lock",
    "json_pieces",
    "parts_of",
    "read_json",
    "read_tensors",
    "remove_leftovers",
    "replacing",
    "sealed",
    "sync",
    "write_arrays",
    "write_json",
    "write_tensors",
]

#: A JSON object. `json` has no types for what it reads: whoever wrote the file knows what stands in it.
Json: TypeAlias = "dict[str, Any]"

#: The version of everything this library writes into a run.
FORMAT = 1
#: Where a record holds the checksum of its content.
_SEAL = "checksum"

#: Drafts of this machine; the process that writes one is in its name, so that those of dead ones can be removed.
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_DRAFT = re.compile(r"\..+\.(?:(?P<host>[0-9a-f]{8})-)?(?P<pid>\d+)(?:-[0-9a-f]{16})?\.tmp")


class RunFiles:
    """Where everything is in the folder of a run: the one place that knows the names.

        run/
          config.json               what `fit` was asked for: method, configuration, sizes; written once
          metrics.jsonl             one line per evaluation or epoch; the same run writes the same bytes
          checkpoint/               checkpoint.json names the files that belong to it; replacing it is the commit
          first-stage/              a run of its own: the plain training before `GuidedMixup`
          model.safetensors         the selected weights
          predictions.parquet       index, label and logits of the validation set, before the temperature
          predictions-epoch-1.parquet       … after an epoch
          result.json               best and last metrics, versions, timings: training is finished

          experiment.json           what the experiment was, and what the data turned out to be
          splits.json               which samples of the source are in which split
          model.json                with the weights the trained model: see `vicinal.runs.bundle`
          predictions-test.parquet  as above, of the test set; predictions-also-1.parquet of a further set
          mistakes.json             the most confident mistakes on the test set, with what a report shows of them, and
                                    what mistakes share
          baselines.json            the figures of simpler models on the test set
          evaluation.json           the figures of each set, before and after the temperature: all is done

          members/                  the trainings of an ensemble, a folder each
          head/                     the training of a linear head on a frozen network
          audit/                    trainings and audit.json, what they say about the labels
          error.txt                 why a cell of a grid failed

    It is this low in the house because readers of predictions, training and runs all need it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path = Path(path)
        self.lock = path / ".lock"
        self.config = path / "config.json"
        self.metrics = path / "metrics.jsonl"
        self.checkpoint = path / "checkpoint"
        self.checkpoint_record = self.checkpoint / "checkpoint.json"
        self.initial_weights = path / "initial.safetensors"
        self.weights = path / "model.safetensors"
        self.result = path / "result.json"
        self.tensorboard = path / "tensorboard"
        self.experiment = path / "experiment.json"
        self.splits = path / "splits.json"
        self.model = path / "model.json"
        self.mistakes = path / "mistakes.json"
        self.baselines = path / "baselines.json"
        self.evaluation = path / "evaluation.json"
        self.audit_record = path / "audit" / "audit.json"
        self.error = path / "error.txt"

    @property
    def first_stage(self) -> RunFiles:
        """The run of the first stage, inside this one."""
        return RunFiles(self.path / "first-stage")

    @property
    def head(self) -> Path:
        """The folder of the training of a head on frozen features."""
        return self.path / "head"

    def member(self, number: int) -> Path:
        """Return the folder of one training of an ensemble, from 1."""
        return self.path / "members" / f"member-{number}"

    def audit_training(self, name: str) -> Path:
        """Return the folder of one of the trainings of an audit: `"fold-1"`, or `"training-1"` of one by margins."""
        return self.path / "audit" / name

    def predictions(self, key: str = "val") -> Path:
        """Return the predictions of a set: `"val"`, `"test"`, `"also-1"`, …, or `"epoch-1"` for validation after it."""
        return self.path / ("predictions.parquet" if key == "val" else f"predictions-{key}.parquet")


def is_our_lock(file: Path) -> bool:
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
    names = {file.name for file in ours if file != RunFiles(path).lock or is_our_lock(file)}
    drafts = {e.name for e in path.iterdir() if (draft := _DRAFT.fullmatch(e.name)) and draft["host"]}
    return sorted(e.name for e in path.iterdir() if e.name not in names | drafts)


class DamagedFileError(ValueError):
    """A file of ours that is not as it was written."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name to write to; afterwards the file is synced and moved to `path` at once.

    The draft has an unpredictable name and is made exclusively, so that no link laid in its way is followed; it has the
    mode that the umask gives, whichever library writes it.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder, not a file to write")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r} to write {path.name!r} to: create it first")
    remove_leftovers(path.parent, f".{path.name}.")
    temporary = path.with_name(f".{path.name}.{_HOST}-{os.getpid()}-{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    mode = os.fstat(descriptor).st_mode & 0o777
    os.close(descriptor)
    try:
        yield temporary
        os.chmod(temporary, mode)  # safetensors makes a file of its own, which only its owner may read
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def remove_leftovers(folder: Path, prefix: str | None = None) -> None:
    """Remove drafts whose process, on this machine, was killed in the middle of a write.

    Of one file with this prefix those without the machine in their names too, which in a whole folder may be anyone's.
    """
    hosts = (_HOST,) if prefix is None else (_HOST, None)
    with contextlib.suppress(OSError):  # tidying up is not worth an error
        for path in folder.iterdir():
            draft = _DRAFT.fullmatch(path.name) if path.name.startswith(prefix or ".") else None
            if draft and draft["host"] in hosts and not _is_alive(int(draft["pid"])):
                if draft["host"] and path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()


@contextmanager
def parts_of(draft: Path) -> Iterator[Path]:
    """Give a folder beside a draft that `replacing` named, for its parts; the next write removes what a kill leaves."""
    name, process, suffix = draft.name.rsplit(".", 2)
    folder = draft.with_name(f"{name}.parts.{process}.{suffix}")
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":  # where this signal would end the process
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is there, but of another user
        return True
    return True


class Scratch:
    """A temporary file without a name (`TMPDIR` says in which folder), gone with the last who holds it."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile(prefix="vicinal-")  # noqa: SIM115  # closed below

    def __del__(self) -> None:
        self.file.close()


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, such as `"sha256:9f86…"`."""
    _check_regular(path)
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def _check_regular(path: Path) -> None:
    """Refuse a pipe or a device, which might never end."""
    if path.exists() and not path.is_file():
        raise DamagedFileError(f"{path} is not a regular file")


def json_pieces(arrays: Mapping[str, NDArray[np.generic]], *, rows: int = 2**20) -> Iterator[str]:
    """Yield the text that `json.dumps` makes of arrays of numbers by name, some rows at a time.

    >>> import numpy as np
    >>> "".join(json_pieces({"a": np.arange(3), "b": np.arange(0)}, rows=2))
    '{"a": [0, 1, 2], "b": []}'
    """
    for i, (name, values) in enumerate(arrays.items()):
        yield f"{', ' if i else '{'}{json.dumps(name)}: ["
        for start in range(0, len(values), rows):
            yield (", " if start else "") + json.dumps(values[start : start + rows].tolist())[1:-1]
        yield "]"
    yield "}"


def write_arrays(path: Path, arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Write arrays of numbers as a JSON object with the version of our format, atomically, in little memory."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(f'{{"format": {FORMAT}, ')
        for i, piece in enumerate(json_pieces(arrays)):
            file.write(piece[1:] if i == 0 else piece)
        file.write("\n")


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write a JSON object with the version of our format, atomically."""
    with replacing(path) as temporary:
        text = json.dumps({"format": FORMAT, **value}, indent=1, ensure_ascii=False)
        temporary.write_text(f"{text}\n", encoding="utf-8")


def read_json(path: Path) -> Json:
    """Read a JSON object of our format, without its version."""
    _check_regular(path)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no JSON, or one that is nested thousands deep
        raise DamagedFileError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedFileError(f"{path} is not as it was written: it holds no object")
    record: dict[str, object] = value
    version = record.pop("format", None)
    if version != FORMAT:
        versions = record.get("versions")
        writer = f", {versions['vicinal']}" if isinstance(versions, dict) and "vicinal" in versions else ""
        raise ValueError(
            f"{path} is of format {version!r}, this version of vicinal reads {FORMAT}: use the version that wrote it"
            f"{writer}, or make it again"
        )
    return record


def sealed(record: Mapping[str, object]) -> Json:
    """Return a record with the checksum of its content, by which `check_seal` notices a change."""
    return {**record, _SEAL: _content_checksum(record)}


def check_seal(path: Path, record: Mapping[str, object]) -> None:
    """Refuse a record of a file whose content is not that of its checksum; old records have none."""
    content = {name: value for name, value in record.items() if name != _SEAL}
    if _SEAL in record and record[_SEAL] != _content_checksum(content):
        raise DamagedFileError(f"{path} is not as it was written: its checksum differs")


def _content_checksum(record: Mapping[str, object]) -> str:
    """Return the SHA-256 of what a record says, however it is laid out in its file."""
    read_again = json.loads(json.dumps(record))  # the keys are strings then, whose order is another
    text = json.dumps(read_again, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], **metadata: str) -> None:
    """Write safetensors, atomically."""
    safetensors = require("safetensors.torch", "train")
    seen: set[int] = set()
    owned: dict[str, Tensor] = {}
    for name, t in tensors.items():
        t = t.detach().cpu().contiguous()
        # The format has no aliases: tied weights are written twice, and load_state_dict ties them again.
        owned[name] = t.clone() if t.untyped_storage().data_ptr() in seen else t
        seen.add(t.untyped_storage().data_ptr())
    with replacing(path) as temporary:
        try:
            safetensors.save_file(owned, temporary, metadata={"format": "pt", **metadata})
        except Exception as error:  # the library has an error of its own for a failed write
            if (code := re.search(r"os error (\d+)", str(error))) is None:
                raise
            raise OSError(int(code[1]), os.strerror(int(code[1]))) from error


def read_tensors(path: Path, *, expected: str | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file, and its metadata.

    Parameters
    ----------
    path
        The file.
    expected
        Its checksum, where that was recorded; another one is a `DamagedFileError`, as is a file that is not whole.
    """
    library = require("safetensors", "train")
    if expected is not None and checksum(path) != expected:
        raise DamagedFileError(f"{path} is not the file that was written: its checksum differs")
    try:
        with library.safe_open(path, framework="pt") as file:
            # Copies: a view of the file would keep it open and need not be aligned as torch aligns.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  # not a dict
            return tensors, file.metadata() or {}
    except library.SafetensorError as error:
        raise DamagedFileError(f"{path} is not whole, or no safetensors file: {error}") from error


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
