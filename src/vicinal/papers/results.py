"""The result of a recipe as a small JSON file: settings, the metrics of every cell and seed, versions, verdicts."""

from __future__ import annotations

import functools
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vicinal._atomic import FORMAT, Json, read_json, replacing
from vicinal._portable import PORTABLE, cpu_capability
from vicinal.metrics import Estimate
from vicinal.metrics.intervals import over_seeds
from vicinal.papers.claims import FIRST_SEED, LOOKS, AtLeast, Claim, Judged, Key, Metrics, judge

#: What a plot shows: numbers, or rows of them, as deep as need be.
Curve: TypeAlias = "Sequence[float | Curve]"

#: Of a cell, by name: metrics are numbers, or estimates with an interval over samples; all else are curves.
Measured: TypeAlias = "dict[str, float | Estimate | Iterable[Any]]"


@dataclass(frozen=True)
class CellRecord:
    """What was measured of a cell."""

    key: Key
    seed: int
    id: str
    """The first 16 digits of its key: see `vicinal.papers.keys`."""
    commit: str
    """The commit of the code that trained and measured it; empty where that is not known."""
    seconds: float
    """Processor seconds of loading, training, evaluating and measuring."""
    metrics: Mapping[str, Estimate]
    curves: Mapping[str, Curve] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON: a metric is a number, or value, low and high."""
        metrics = {
            name: e.value if e.low == e.value == e.high else [e.value, e.low, e.high]
            for name, e in self.metrics.items()
        }
        record = {
            "key": list(self.key),
            "seed": self.seed,
            "id": self.id,
            "commit": self.commit,
            "seconds": round(self.seconds, 1),
            "figures": metrics,
        }
        return record | ({"curves": dict(self.curves)} if self.curves else {})

    @classmethod
    def from_dict(cls, record: Json) -> CellRecord:
        """Return what `to_dict` recorded."""
        metrics = {
            name: Estimate(*value) if isinstance(value, list) else Estimate(value, value, value)
            for name, value in record["figures"].items()
        }
        return cls(
            tuple(record["key"]),
            record["seed"],
            record["id"],
            record["commit"],
            record["seconds"],
            metrics,
            record.get("curves", {}),
        )


@dataclass(frozen=True)
class Result:
    """The result of a recipe at a scale."""

    recipe: str
    """Its name."""
    scale: str
    """`"cpu"`, `"night"` or `"paper"`."""
    seeds: tuple[int, ...]
    """The seeds that were run."""
    settings: Mapping[str, Any]
    """The settings of the recipe at this scale."""
    cells: Sequence[CellRecord]
    """What was measured of each row and seed."""
    verdicts: Sequence[Judged]
    """The claims, judged."""
    environment: Mapping[str, str]
    """What digits depend on beside the settings: versions, and the instructions that the processor was held at."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """The errors of cells that failed, by their keys."""

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of seeds at which claims are judged."""
        return tuple(self.settings.get("looks", LOOKS))

    @property
    def keys(self) -> list[Key]:
        """The rows, in order."""
        return list(dict.fromkeys(cell.key for cell in self.cells))

    def values(self, key: Key, name: str) -> list[float]:
        """Return a metric of a row, seed by seed."""
        return [cell.metrics[name].value for cell in self.of(key) if name in cell.metrics]

    def of(self, key: Key) -> list[CellRecord]:
        """Return the cells of a row."""
        return [cell for cell in self.cells if cell.key == key]

    def estimate(self, key: Key, name: str) -> Estimate | None:
        """Return the mean over seeds with its 95 % t interval; of one run, its interval over samples."""
        estimates = [cell.metrics[name] for cell in self.of(key) if name in cell.metrics]
        return over_seeds(estimates, other_samples=False) if estimates else None

    def curve(self, key: Key, name: str) -> NDArray[np.float64]:
        """Return a curve of a row, a line for each seed that has it."""
        return np.array([cell.curves[name] for cell in self.of(key) if name in cell.curves], dtype=np.float64)

    def first(self, key: Key, name: str) -> Curve:
        """Return a curve of the first cell of a row that has it; nothing if none has."""
        return next((cell.curves[name] for cell in self.of(key) if name in cell.curves), [])

    def judged(self, claims: Iterable[Claim | AtLeast]) -> list[Judged]:
        """Return the verdicts of claims."""
        # Recipes that were declared later begin with a thousand of their own, which no earlier result has.
        first = max(FIRST_SEED, min(self.seeds, default=0) // FIRST_SEED * FIRST_SEED)
        return judge(list(claims), self.metrics, looks=self.looks, first_seed=first)

    @property
    def metrics(self) -> Metrics:
        """The metrics of every cell: by key, then by seed, then by name."""
        metrics: dict[Key, dict[int, Mapping[str, Estimate]]] = {}
        for cell in self.cells:
            metrics.setdefault(cell.key, {})[cell.seed] = cell.metrics
        return metrics

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""
        return {
            "recipe": self.recipe,
            "scale": self.scale,
            "seeds": list(self.seeds),
            "settings": dict(self.settings),
            "verdicts": [one.to_dict() for one in self.verdicts],
            "cells": [cell.to_dict() for cell in self.cells],
            "environment": dict(self.environment),
            **({"failures": dict(self.failures)} if self.failures else {}),
        }

    def write(self, folder: Path) -> Path:
        """Write the result into a folder and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.recipe}.json"
        # A line for each claim and cell: small, and what changed can be seen.
        record = {"format": FORMAT, **self.to_dict()}
        lines = ",\n".join(f"{json.dumps(name)}: {_lines(value)}" for name, value in record.items())
        with replacing(path) as temporary:
            temporary.write_text(f"{{{lines}}}\n", encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path) -> Result:
        """Return what `write` wrote."""
        record = read_json(path)
        return cls(
            record["recipe"],
            record["scale"],
            tuple(record["seeds"]),
            record["settings"],
            [CellRecord.from_dict(cell) for cell in record["cells"]],
            [Judged.from_dict(one) for one in record["verdicts"]],
            record["environment"],
            record.get("failures", {}),
        )


def packed(measured: Measured) -> tuple[dict[str, Estimate], dict[str, Curve]]:
    """Return metrics and curves of what a recipe measured, rounded to what is worth keeping."""
    metrics: dict[str, Estimate] = {}
    curves: dict[str, Curve] = {}
    for name, value in measured.items():
        if isinstance(value, Estimate):
            metrics[name] = Estimate(*(_rounded(end, 7) for end in (value.value, value.low, value.high)))
        elif isinstance(value, (int, float)):
            metrics[name] = Estimate(*3 * (_rounded(float(value), 7),))
        else:
            curves[name] = _rounded_list(value)
    return metrics, curves


#: What must be equal for cells to stand in one result.
DECIDING = ("torch", "cpu", "numerics")


def environment() -> dict[str, str]:
    """Return what digits may depend on."""
    import scipy
    import torch

    from vicinal import __version__
    from vicinal.papers.keys import NUMERICS

    return {
        "vicinal": __version__,
        "numerics": str(NUMERICS),
        "cpu": _instructions(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }


def _instructions() -> str:
    """Return the instructions of ATen and oneDNN in a word where both are held at the same."""
    capability = cpu_capability()
    return "AVX2" if capability == PORTABLE else ", ".join(f"{name} {value}" for name, value in capability.items())


@functools.cache
def commit() -> str:
    """Return the commit of the code that runs, with a `+` where files differ from it; empty outside a repository."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        call = ["git", "-C", str(here), *words]
        return subprocess.run(call, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        if not git("ls-files", "--", Path(__file__).name):  # installed into somebody else's repository
            return ""
        return git("rev-parse", "--short=10", "HEAD") + "+" * bool(git("status", "--porcelain", "--", str(here)))
    except (OSError, subprocess.SubprocessError):
        return ""


def _lines(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in value) + "\n]"
    return json.dumps(value, ensure_ascii=False)


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _rounded_list(values: Iterable[Any]) -> Curve:
    return [_rounded(v, 4) if isinstance(v, (int, float)) else _rounded_list(v) for v in values]
