from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import settings

# Importing these registers a device for the whole process, so no doctest may look into them.
collect_ignore = ["simulated_device.py", "on_device.py"]

# No deadline: a first call may import or allocate. In CI the same examples every time.
settings.register_profile("vicinal", deadline=None, max_examples=50, derandomize=bool(os.environ.get("CI")))
settings.load_profile("vicinal")

# A shell starts what runs in the background with SIGINT ignored; the tests of interruptions, and the processes that
# they start, need Python's handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Take what was imported out of the garbage collection, which trainers start in each call: half a second."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # extension modules complain at the end of the process about what was not collected


@pytest.fixture(autouse=True)
def no_progress_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a command may take longer than the time between two lines of progress."""
    monkeypatch.setattr("vicinal.progress.EVERY", 600.0)
