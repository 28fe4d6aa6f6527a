"""Files and folders that an ordinary user may not read or enter: one sentence and an exit code."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.running import TINY, refused, vicinal
from tests.data import make
from vicinal import data

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes and users as Unix has them")


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Meanwhile files are opened as "nobody", if this is root, whom nothing stops."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may write to, as those of pytest are not."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o777)
    yield path
    for entry in path.rglob("*"):
        entry.chmod(0o700)
    shutil.rmtree(path)


def denied(*words: object) -> None:
    said = refused(*words)
    assert "Permission denied" in said or "may not be read by this user" in said


def test_files_and_folders_that_may_not_be_read_are_one_sentence(folder: Path, trained: Path) -> None:
    make.people(60).to_csv(folder / "secret.csv", index=False)
    make.people(60).to_csv(folder / "open.csv", index=False)
    shutil.copytree(trained, folder / "run")
    (folder / "locked").mkdir()
    shutil.copy(folder / "open.csv", folder / "locked" / "data.csv")
    (folder / "run" / "model.safetensors").chmod(0)
    (folder / "secret.csv").chmod(0)
    (folder / "locked").chmod(0)
    with ordinary_user():
        for source in ("secret.csv", "locked/data.csv", "locked"):
            denied("train", folder / source, "--target", "kind", "--out", folder / "new", *TINY)
            denied("evaluate", folder / source)
        denied("train", folder / "open.csv", "--target", "kind", "--out", folder / "locked" / "out", *TINY)
        denied("predict", folder / "run", folder / "open.csv", "--out", folder / "a.csv")
        denied("predict", folder / "locked" / "run", folder / "open.csv", "--out", folder / "a.csv")
    assert {path.name for path in folder.iterdir()} == {"secret.csv", "open.csv", "run", "locked"}


def test_predictions_that_may_not_be_read_are_not_called_damaged(folder: Path, trained: Path) -> None:
    shutil.copytree(trained, folder / "run")
    for path in (folder / "run").rglob("*"):
        path.chmod(0o755)
    (folder / "run" / "predictions-test.parquet").chmod(0)
    with ordinary_user():
        said = refused("evaluate", folder / "run")
    assert "predictions-test.parquet" in said
    assert "Permission denied" in said
    assert "evaluate it again" not in said


def test_an_image_that_may_not_be_read_counts_as_bad(folder: Path) -> None:
    images = make.image_folder(folder / "images", n=10)
    for path in images.rglob("*"):
        path.chmod(0o755)
    next(images.rglob("*.png")).chmod(0)
    with ordinary_user():
        task = data.load(images, data.ReadOptions(max_bad=1))
        assert any(
            "1 of 20 image files could not be read" in note and "Permission denied" in note for note in task.notes
        )
        with pytest.raises(ValueError, match="more than max_bad=0 allows"):
            data.load(images, data.ReadOptions(max_bad=0))
        assert sum(map(len, task.splits.values())) == 19
        assert "--max-bad" in vicinal("train", images, "--out", folder / "run", "--max-bad", 0, code=1).err
