"""The command, in this process or in one of its own."""

from __future__ import annotations

import contextlib
import html
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from vicinal.cli import main

#: A training of a moment on a table.
TINY = ("--epochs", "1", "--model-option", "hidden=[4]", "--trackers", "tensorboard")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The lines of `--json` of one kind."""
        lines = [json.loads(line) for line in self.out.splitlines()]
        return [line for line in lines if line["event"] == kind]


def vicinal(*words: object, code: int | None = 0, cwd: Path | None = None) -> Ran:
    """Run the command in this process, which saves the seconds that torch takes to start."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if cwd is not None:
            patch.chdir(cwd)
        patch.setattr(sys, "argv", ["vicinal", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
    ran = Ran(ended.value.code or 0, out.getvalue(), err.getvalue())  # type: ignore[arg-type]
    assert code in (None, ran.code), ran.out + ran.err
    return ran


def refused(*words: object) -> str:
    """Return what the command says to a mistake: one sentence, no traceback."""
    ran = vicinal(*words, code=1)
    assert ran.err.startswith("Error: ")
    assert "Traceback" not in ran.err
    return ran.err


def text_of(page: Path) -> str:
    """Return what a report says, without its marks."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def environment() -> dict[str, str]:
    """As many threads as here, so that sums are in the same order."""
    return {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), "PYTHONWARNINGS": "default"}


def started(*words: object, cwd: Path, launcher: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    call = [sys.executable, *launcher, "-m", "vicinal", *map(str, words)]
    return subprocess.Popen(
        call, cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def real(*words: object, cwd: Path, code: int = 0, launcher: tuple[str, ...] = ()) -> Ran:
    """Run the command in a process of its own, and wait."""
    with started(*words, cwd=cwd, launcher=launcher) as process:
        try:
            out, err = process.communicate()
        except BaseException:  # the time of the test is up: the next one must not meet this process
            process.kill()
            raise
    assert process.returncode == code, out + err
    return Ran(process.returncode, out, err)
