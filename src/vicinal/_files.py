"""Files that are there whole or not at all: written under another name, synced, and moved into place.

Tensors are safetensors, the rest is JSON: nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from vicinal._checks import require

__all__ = ["FORMAT", "read_json", "read_tensors", "replacing", "sync", "write_json", "write_tensors"]

#: The version of everything this library writes into a run.
FORMAT = 1


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name to write to; afterwards the file is synced and moved to `path` at once."""
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder, not a file to write")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r} to write {path.name!r} to: create it first")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def write_json(path: Path, value: Any) -> None:
    """Write JSON, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of this format."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        found = value.get("format") if isinstance(value, dict) else None
        versions = value.get("versions") if isinstance(value, dict) else None
        writer = f", {versions['vicinal']}" if isinstance(versions, dict) and "vicinal" in versions else ""
        raise ValueError(
            f"{path} is of format {found!r}, this version of vicinal reads {FORMAT}: use the version that wrote it"
            f"{writer}, or make it again"
        )
    return value


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
            if (found := re.search(r"os error (\d+)", str(error))) is None:
                raise
            raise OSError(int(found.group(1)), os.strerror(int(found.group(1)))) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read safetensors."""
    library, torch_part = require("safetensors", "train"), require("safetensors.torch", "train")
    try:
        tensors: dict[str, Tensor] = torch_part.load_file(path)
    except library.SafetensorError as error:
        raise ValueError(f"{path} is not whole, or no safetensors file: {error}") from error
    return tensors


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
