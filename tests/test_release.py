"""What a release says of itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import vicinal

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", vicinal.__version__)
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"\n## {vicinal.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
