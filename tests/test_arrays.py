from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from tests.processes import in_processes
from vicinal import ERM
from vicinal._arrays import kept_memory
from vicinal.training import FitConfig, fit

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc's malloc, on Linux")


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch):
    for name in [n for n in os.environ if n == "GLIBC_TUNABLES" or n.startswith("MALLOC_")]:
        monkeypatch.delenv(name)


LARGE = 256 * 2**20


def resident():
    """The bytes of memory that the process has of the system."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def after_a_large_tensor():
    torch.ones(LARGE, dtype=torch.uint8)  # freed at once
    return resident()


def within_and_after(rank):
    before = after_a_large_tensor()
    with kept_memory():
        assert after_a_large_tensor() > before + 0.9 * LARGE
    assert after_a_large_tensor() < before + 0.1 * LARGE


def an_error(rank):
    before = resident()
    with pytest.raises(KeyError), kept_memory():
        raise KeyError(after_a_large_tensor())
    assert resident() < before + 0.1 * LARGE


def from_step_to_step(rank):
    kept = []

    def objective(model, x, y, **_):
        kept.append(after_a_large_tensor())
        return ERM()(model, x, y)

    data = TensorDataset(torch.randn(8, 4), torch.randint(2, (8,)))
    config = FitConfig(steps=4, batch_size=2, select="last", trackers=())
    fit(torch.nn.Linear(4, 2), ERM(), data, config=config)  # imports what it needs
    before = after_a_large_tensor()
    fit(torch.nn.Linear(4, 2), objective, data, config=config)
    assert min(kept) > before + 0.9 * LARGE
    assert resident() < before + 0.1 * LARGE


@glibc
@pytest.mark.parametrize("worker", [within_and_after, an_error, from_step_to_step])
def test_memory_is_kept_within_and_given_back_after(worker):
    in_processes(1, worker)  # here tests before this one may have left free memory that the tensor would be put into


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_settings_of_the_user_are_left_alone(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(ctypes, "CDLL", None)  # would fail if it were called
    with kept_memory():
        pass
