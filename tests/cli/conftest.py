from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import TINY, vicinal
from tests.data import make


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV file of people; the target is the column `kind`."""
    path = tmp_path_factory.mktemp("table") / "people.csv"
    make.people(90).to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def trained(table: Path) -> Path:
    """A finished run on it. Tests leave it as it is."""
    out = table.parent / "trained"
    vicinal("train", table, "--target", "kind", "--out", out, *TINY)
    return out


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on images, in a folder beside them."""
    root = tmp_path_factory.mktemp("pictures")
    make.image_folder(root / "images", classes=make.HOSTILE, n=10, size=8)
    options = ["--epochs", "1", "--batch-size", "8", "--model-option", "width=4", "--trackers", "tensorboard"]
    vicinal("train", root / "images", "--out", root / "run", *options)
    return root / "run"
