"""Atomic files: each is there whole or not at all.

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
from vicinal._memory import check_size
from vicinal._remote import RemotePath

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

#: A JSON object. `json` has no types for what it reads; the code that wrote the file knows them.
Json: TypeAlias = "dict[str, Any]"

#: The version of everything this library writes into a run.
FORMAT = 1
#: Where a record holds the checksum of its content.
_SEAL = "checksum"
#: Bytes that a byte of JSON takes as Python's objects, about.
_JSON = 8

#: A draft has its machine and process in its name, so that drafts of dead processes can be removed.
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_DRAFT = re.compile(r"\..+\.(?:(?P<host>[0-9a-f]{8})-)?(?P<pid>\d+)(?:-[0-9a-f]{16})?\.tmp")


class DamagedFileError(ValueError):
    """A file of a run that is damaged: it differs from what was written."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the path of a draft to write to; afterwards it is synced and renamed to `path`.

    The draft has an unpredictable name and is created exclusively, so that no symbolic link in its place is followed.
    It has the mode of the file that it replaces, else the one that the umask gives, whichever library writes it.
    A file that lies elsewhere is drafted in a temporary folder here, and uploaded when it is complete.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder, not a file to write")
    if isinstance(path, RemotePath):
        path.check_writable()
        # An upload that breaks off leaves nothing, where a stream would leave the first part of the file.
        with tempfile.TemporaryDirectory(prefix="vicinal-") as folder:
            with replacing(Path(folder) / path.name) as draft:
                yield draft
            path.upload(Path(folder) / path.name)
        return
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r} to write {path.name!r} to: create it first")
    remove_leftovers(path.parent, f".{path.name}.")
    temporary = path.with_name(f".{path.name}.{_HOST}-{os.getpid()}-{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    mode = (path.stat() if path.exists() else os.fstat(descriptor)).st_mode & 0o777
    os.close(descriptor)
    try:
        yield temporary
        os.chmod(temporary, mode)  # safetensors makes a file of its own, which only its owner may read
        # This order survives a power failure: the content reaches the disk before the name, then the name itself.
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def remove_leftovers(folder: Path, prefix: str | None = None) -> None:
    """Remove drafts of processes of this machine that were killed in the middle of a write.

    With a prefix, drafts of that file without a machine in their names go too. Without one they stay, since in a whole
    folder such files may be anyone's.
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
    """Give a folder for the parts of a draft of `replacing`; the next write removes what a kill leaves."""
    name, process, suffix = draft.name.rsplit(".", 2)
    folder = draft.with_name(f"{name}.parts.{process}.{suffix}")
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":  # signal 0 would end the process there
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is there, but of another user
        return True
    return True


def is_draft(name: str) -> bool:
    """Whether a file of this name is a draft of ours, from any machine."""
    draft = _DRAFT.fullmatch(name)
    return draft is not None and draft["host"] is not None


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, such as `"sha256:9f86…"`."""
    _check_regular(path)
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def check_listed(path: Path, checksums: Mapping[str, str]) -> Path:
    """Return the path; a file that is gone or differs from its checksum, if it has one, is a `DamagedFileError`."""
    if path.name in checksums:
        if not path.exists():
            raise DamagedFileError(f"{path} is gone")
        check_size(path)
        if checksum(path) != checksums[path.name]:
            raise DamagedFileError(f"{path} is damaged: its checksum differs")
    return path


def _check_regular(path: Path) -> None:
    """Raise for a pipe or a device, which might never end."""
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
        temporary.write_bytes(json_bytes(value))


def json_bytes(value: Mapping[str, object]) -> bytes:
    """Return what `write_json` writes."""
    return f"{json.dumps({'format': FORMAT, **value}, indent=1, ensure_ascii=False)}\n".encode()


def read_json(path: Path) -> Json:
    """Read a JSON object of our format, without its version."""
    _check_regular(path)
    check_size(path, _JSON)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no JSON, or one that is nested thousands deep
        raise DamagedFileError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedFileError(f"{path} is damaged: it holds no object")
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
    """Return a record with the checksum of its content, which `read_sealed` checks."""
    return {**record, _SEAL: _content_checksum(record)}


def read_sealed(path: Path, *, required: bool = False) -> Json:
    """Read a record as `read_json` does; one whose content does not match its checksum is a `DamagedFileError`.

    A record without a checksum is read, unless one is `required`.
    """
    record = read_json(path)
    recorded = record.pop(_SEAL, None)
    if recorded is None and required:
        raise DamagedFileError(f"{path} has no checksum: it was changed, or written by an earlier version")
    if recorded is not None and recorded != _content_checksum(record):
        raise DamagedFileError(f"{path} is damaged: its checksum differs")
    return record


def _content_checksum(record: Mapping[str, object]) -> str:
    """Return the SHA-256 of a record's content, however its file is formatted."""
    read_again = json.loads(json.dumps(record))  # keys become strings, which sort differently than numbers
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
    """Wait until a file, or the entries of a folder, are on the disk."""
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
