"""Stages on a terminal: shown where asked for, gone when done, and nothing anywhere else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vicinal.progress import shown, stage


def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")


def test_stages_are_silent_unless_they_are_to_be_shown(capsys, monkeypatch):
    with shown(), stage("reading", 3) as advance:
        advance(3)
    _terminal(monkeypatch)
    with stage("reading", 3) as advance:
        advance(3)
    with shown(), shown(False), stage("reading"):
        pass
    assert capsys.readouterr() == ("", "")


def test_stages_within_stages(capsys, monkeypatch):
    _terminal(monkeypatch)

    def work() -> None:
        with shown(), stage("[reading]"), stage("files", 4) as advance:
            advance(3)
            time.sleep(0.3)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    written = capsys.readouterr().err
    assert "[reading]" in written
    assert "3 of 4" in written
    with shown(), stage("encoding"):
        pass
    after = capsys.readouterr().err
    assert "encoding" in after
    assert "files" not in after  # a stage that an error ended is gone


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_the_command_shows_every_stage(tmp_path: Path) -> None:
    import pty

    rows = "".join(f"{i % 7},{i % 3},{'yes' if i % 7 > 3 else 'no'}\n" for i in range(300))
    (tmp_path / "t.csv").write_text(f"a,b,y\n{rows}")
    main, terminal = pty.openpty()
    words = ["train", "t.csv", "--target", "y", "--epochs", "2", "--out", "run", "--report", "r.html"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    call = [sys.executable, "-m", "vicinal", *words]
    with subprocess.Popen(
        call, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=terminal, text=True
    ) as process:
        os.close(terminal)
        written = b""
        while True:
            try:
                piece = os.read(main, 65536)
            except OSError:  # how a terminal ends on Linux
                break
            if not piece:
                break
            written += piece
        assert process.stdout is not None
        answer = process.stdout.read()
    os.close(main)
    assert process.returncode == 0, written
    assert "baselines" in answer
    text = written.decode()
    places = [text.index(title) for title in _STAGES]
    assert places == sorted(places)
    assert "left" in text


_STAGES = (
    "starting",
    "opening the data",
    "reading the table",
    "encoding",
    "building the network",
    "epoch 2.0/2",
    "predicting: test",
    "baselines",
    "logistic regression",
    "writing the report",
)
