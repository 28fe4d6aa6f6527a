"""The public names are a committed list: adding one is a decision, and removing one needs a major version."""

from __future__ import annotations

import importlib
from pathlib import Path

PACKAGES = ("vicinal", "vicinal.calibrators", "vicinal.data", "vicinal.metrics", "vicinal.models", "vicinal.papers",
            "vicinal.papers.gan", "vicinal.plots", "vicinal.predictions", "vicinal.probes", "vicinal.report",
            "vicinal.runs", "vicinal.tables", "vicinal.training")  # fmt: skip
LISTED = Path(__file__).parent / "public_names.txt"


def test_public_names_are_those_of_the_list() -> None:
    names = [f"{package}.{name}" for package in PACKAGES for name in importlib.import_module(package).__all__]
    assert sorted(names) == LISTED.read_text(encoding="utf-8").split()
