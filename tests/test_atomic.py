"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vicinal import _atomic
from vicinal._atomic import DamagedFileError, read_json, read_tensors, replacing, write_json


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"format": 1, "value": "before"})
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"format": 1, "value": object()})

    def killed() -> None:
        with replacing(tmp_path / "x.json") as draft:
            draft.write_text("half of")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        killed()
    assert read_json(tmp_path / "x.json")["value"] == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_drafts_of_killed_processes_are_removed_and_others_are_not(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    host = _atomic._HOST
    dead = [f".x.json.{process.pid}.tmp", f".x.json.{host}-{process.pid}-0123456789abcdef.tmp"]
    others = [
        f".x.json.{host}-{os.getpid()}-0123456789abcdef.tmp",  # in the middle of a write
        f".x.json.00000000-{process.pid}-0123456789abcdef.tmp",  # of another machine
        f".y.json.{process.pid}.tmp",
        ".x.json.mine.tmp",
    ]
    for name in dead + others:
        (tmp_path / name).touch()
    parts = tmp_path / f".x.json.parts.{host}-{process.pid}-0123456789abcdef.tmp"
    parts.mkdir()
    (parts / "column.npy").touch()
    write_json(tmp_path / "x.json", {})
    assert {path.name for path in tmp_path.iterdir()} == {*others, "x.json"}


def test_parts_of_a_draft_lie_in_a_folder_that_a_kill_does_not_leave_for_good(tmp_path: Path) -> None:
    with _atomic.replacing(tmp_path / "x.npz") as draft, _atomic.parts_of(draft) as folder:
        assert folder.parent == tmp_path
        assert _atomic._DRAFT.fullmatch(folder.name)["pid"] == str(os.getpid())
        (folder / "column.npy").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_files_have_the_mode_of_the_umask_and_links_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "x.json", {})
        _atomic.write_tensors(tmp_path / "x.safetensors", {"x": torch.zeros(2)})
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}
    (tmp_path / "victim").write_text("mine")
    monkeypatch.setattr("secrets.token_hex", lambda n: "0" * 2 * n)
    draft = tmp_path / f".x.json.{_atomic._HOST}-{os.getpid()}-{'0' * 16}.tmp"
    draft.symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        write_json(tmp_path / "x.json", {})
    assert (tmp_path / "victim").read_text() == "mine"


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere.* create it first"):
        write_json(tmp_path / "nowhere" / "x.json", {})
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_json(tmp_path, {})


def test_files_that_are_something_else(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(DamagedFileError, match="is damaged: it holds no object"):
        read_json(tmp_path / "list.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="is of format None"):
        read_json(tmp_path / "other.json")
    (tmp_path / "half.json").write_text('{"format": ')
    with pytest.raises(ValueError, match="is not JSON"):
        read_json(tmp_path / "half.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(DamagedFileError, match=r"deep\.json is not JSON: maximum recursion"):
        read_json(tmp_path / "deep.json")
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "nothing.safetensors")


def test_an_output_that_only_its_owner_may_read_stays_so(tmp_path):
    path = tmp_path / "secret.json"
    path.write_text("{}")
    path.chmod(0o600)
    write_json(path, {"a": 1})
    assert path.stat().st_mode & 0o777 == 0o600
