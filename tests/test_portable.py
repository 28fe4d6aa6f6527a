"""Digits that are the same on every processor with AVX2, and processes that say so where they are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.cli.running import refused
from tests.portable_cell import Reporting
from vicinal import _portable
from vicinal._portable import PORTABLE, VARIABLES, cpu_capability, is_asked, make_portable, shortfall
from vicinal.runs import scheduler
from vicinal.runs.scheduler import Pool, run_jobs

HERE = Path(__file__).parent
COMMITTED = json.loads((HERE / "portable_digits.json").read_text(encoding="utf-8"))

needs_avx2 = pytest.mark.skipif(not _portable._has_avx2(), reason=_portable._without_avx2())
#: What a process starts with whose instructions are others than AVX2, on every processor.
OLD = {"ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default"}


def python(*words: object, **environment: str) -> str:
    """Return what Python prints in a process of its own."""
    started = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path]), **environment}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, env=started, capture_output=True, text=True, check=True).stdout


@needs_avx2
@pytest.mark.skipif(
    torch.__version__.partition("+")[0] != COMMITTED["torch"],
    reason=f"the committed digits are those of torch {COMMITTED['torch']}, this is {torch.__version__}",
)
def test_a_tiny_cell_has_the_committed_digits_and_workers_inherit_what_holds_them():
    assert COMMITTED["cpu"] == COMMITTED["worker"] == PORTABLE
    printed = python(HERE / "portable_cell.py", **OLD, ONEDNN_VERBOSE="1")
    lines = printed.splitlines()
    assert [line.rpartition(":")[2] for line in lines if ",info,cpu,isa:" in line] == ["Intel AVX2"]
    assert json.loads("".join(line for line in lines if not line.startswith("onednn_verbose"))) == COMMITTED


@needs_avx2
def test_the_suite_itself_has_portable_digits():
    assert shortfall() is None


@needs_avx2
def test_what_comes_after_torch_is_said_to_be_late(monkeypatch):
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that they are taken back
        monkeypatch.delenv(name)
    monkeypatch.setattr(_portable, "_late", False)
    aten = torch.backends.cpu.get_cpu_capability()
    assert cpu_capability() == {"aten": aten, "onednn": "unlimited"}
    reason = make_portable()
    assert cpu_capability() == {"aten": aten, "onednn": "unknown"}
    assert f"not held at AVX2 in this process (ATen: {aten}, oneDNN: unknown)" in str(reason)
    assert "ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2" in str(reason)
    assert make_portable() == reason  # the second time it is as late
    assert is_asked()  # processes that are started from here on are in time


def test_without_avx2_nothing_is_set_and_it_is_said(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_portable, "_has_avx2", lambda: False)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert make_portable() == shortfall()
    assert "(aarch64) has no AVX2" in str(make_portable())
    assert not is_asked()
    assert "--portable cannot be had: this processor (aarch64) has no AVX2" in refused("train", "--portable")
    assert "--portable cannot be had" in refused("compare", "--portable")


@needs_avx2
def test_a_worker_that_is_not_held_refuses_what_must_be_portable(tmp_path, monkeypatch):
    """Workers of a Dask cluster are started by others, whose environment may lack the variables."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)

    def elsewhere(self, pool):
        for name in VARIABLES:
            monkeypatch.delenv(name)
        return {key: scheduler._run_job(job, 1, settings={}, portable=True) for key, job in self._jobs.items()}

    monkeypatch.setattr(scheduler._Jobs, "_with_joblib", elsewhere)
    results, failures = run_jobs({"a": Reporting(tmp_path / "a")}, Pool(workers=2), progress=False)
    assert results == {}
    assert "not held at AVX2 in this process" in failures["a"]
