"""Files that are there whole or not at all, and the names of those in the folder of a run.

Every file is written under another name, synced, and moved into place. Tensors are safetensors, the rest is JSON:
nothing is ever unpickled. What is read is bounded before memory is taken for it: `max_memory` raises or lowers that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vicinal._checks import Argument, ArgumentError, ArgumentTypeError, Sentence, require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = [
    "FORMAT",
    "MAX_MEMORY",
    "MEMORY",
    "DamagedFileError",
    "Json",
    "RunFiles",
    "Scratch",
    "TooLargeError",
    "beyond_memory",
    "check_memory",
    "check_seal",
    "check_size",
    "checksum",
    "foreign_entries",
    "is_our_lock",
    "json_pieces",
    "max_memory",
    "memory_limit",
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
#: Bytes that a byte of JSON takes as Python's objects, about.
_JSON = 8

#: Drafts of this machine; the process that writes one is in its name, so that those of dead ones can be removed.
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_DRAFT = re.compile(r"\..+\.(?:(?P<host>[0-9a-f]{8})-)?(?P<pid>\d+)(?:-[0-9a-f]{16})?\.tmp")

#: Bytes of memory that this machine has.
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**34
#: Where `max_memory` is set: in the environment, so that the processes which this one starts have it too.
MAX_MEMORY = "VICINAL_MAX_MEMORY"
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?) ?(?P<unit>[kmgt]?)(?P<binary>i?)b?", re.IGNORECASE)


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


class TooLargeError(ValueError):
    """What a file claims to hold takes more memory than is allowed."""


@contextmanager
def max_memory(size: int | str) -> Iterator[None]:
    """Allow what files claim to hold this much memory, instead of the usual bounds, as `--max-memory` does.

    Without it an array, the weights of a model or a workbook may take as much as this machine has, and a single row or
    cell of a table much less: see the page on scale. It is set for the whole process and those that it starts.

    Parameters
    ----------
    size
        In bytes, or as text such as `"64GB"` or `"512MiB"`.

    >>> with max_memory("64GB"):
    ...     memory_limit()
    64000000000
    """
    before = os.environ.get(MAX_MEMORY)
    os.environ[MAX_MEMORY] = str(_bytes("max_memory", size))
    try:
        yield
    finally:
        if before is None:
            del os.environ[MAX_MEMORY]
        else:
            os.environ[MAX_MEMORY] = before


def memory_limit(usual: int = MEMORY) -> int:
    """Return the bytes that what a file claims may take: those of `max_memory`, or as many as usual."""
    given = os.environ.get(MAX_MEMORY)
    return usual if given is None else _bytes(MAX_MEMORY, given)


def check_memory(what: str, needed: int, *, usual: int = MEMORY, instead: str = "") -> None:
    """Refuse what takes more memory than `memory_limit`, and say what would allow it.

    Parameters
    ----------
    what
        The beginning of the sentence.
    needed
        The bytes that it takes.
    usual
        As for `memory_limit`.
    instead
        What to do instead, if anything.

    >>> check_memory("the array 'x'", 3_000_000, usual=2_000_000)
    Traceback (most recent call last):
    ...
    vicinal._files.TooLargeError: the array 'x' takes 3 MB of memory, and 2 MB are allowed: max_memory='3MB' allows it
    """
    limit = memory_limit(usual)
    if needed > limit:
        allowed = f"{what} takes {_in_words(needed)} of memory, and {_in_words(limit, math.floor)} are allowed: "
        raise TooLargeError(Sentence(allowed, *([instead, ", or "] if instead else []), _room(needed), " allows it"))


def beyond_memory(what: str, limit: int, *, share: int = 1, instead: str = "") -> TooLargeError:
    """Return the error for what takes more than a limit, without how much that is.

    Parameters
    ----------
    what, instead
        As for `check_memory`.
    limit
        The bytes that are allowed.
    share
        What part of `max_memory` they are.
    """
    more = f"{what} takes more than {_in_words(limit, math.floor)}: "
    return TooLargeError(
        Sentence(more, *([instead, ", or "] if instead else []), _room(2 * share * limit), " allows twice that")
    )


def _room(n: int) -> Argument:
    """Return the `max_memory` of so many bytes, as users write it."""
    return Argument("max_memory", _in_words(n).replace(" ", "").removesuffix("bytes"))


def _bytes(name: str, size: object) -> int:
    """Return a size as a number of bytes."""
    allowed = "a size such as '64GB', '512MiB' or 10000000"
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise ArgumentTypeError(name, size, allowed)
    parsed = _SIZE.fullmatch(str(size).strip())
    if parsed is None:
        raise ArgumentError(name, size, allowed)
    power = " kmgt".index(parsed["unit"].lower() or " ")
    number = float(parsed["number"]) * (1024 if parsed["binary"] else 1000) ** power
    if not 1 <= number < math.inf:
        raise ArgumentError(name, size, allowed)
    return int(number)


def _in_words(n: int, rounded: Callable[[float], int] = math.ceil) -> str:
    """Return a number of bytes with its unit.

    >>> _in_words(999), _in_words(25_320_000_000), _in_words(25_320_000_000, math.floor)
    ('999 bytes', '25.4 GB', '25.3 GB')
    """
    power = min((len(str(n)) - 1) // 3, 4)
    number = f"{rounded(10 * n / 1000**power) / 10:.1f}".removesuffix(".0")
    return f"{number} {('bytes', 'KB', 'MB', 'GB', 'TB')[power]}"


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


def check_size(path: Path, times: int = 1) -> None:
    """Refuse a file that takes more memory than is allowed before it is read: one of holes may have any size.

    Not one that was just written: what is trained is bounded by no file.
    """
    if path.exists():
        check_memory(str(path), times * path.stat().st_size)


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
    check_size(path, _JSON)
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

    A checksum other than the one `expected`, where that was recorded, is a `DamagedFileError`, as is a file that is not
    whole.
    """
    library = require("safetensors", "train")
    check_size(path)
    if expected is not None and checksum(path) != expected:
        raise DamagedFileError(f"{path} is not the file that was written: its checksum differs")
    try:
        with library.safe_open(path, framework="pt") as file:
            # Copies: a view of the file would keep it open and need not be aligned as torch aligns.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  # not a dict
            return tensors, file.metadata() or {}
    except library.SafetensorError as error:
        raise DamagedFileError(f"{path} is incomplete, or not a safetensors file: {error}") from error


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
