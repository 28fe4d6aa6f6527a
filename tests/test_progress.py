"""Stages on a terminal: shown where asked for, gone when done, and nothing anywhere else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from vicinal.cli.console import Console
from vicinal.progress import reported, shown, stage
from vicinal.training.progress import Progress


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
            assert "[reading]" in _until("3 of 4", capsys)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    capsys.readouterr()
    with shown(), stage("encoding"):
        pass
    after = capsys.readouterr().err
    assert "encoding" in after
    assert "files" not in after  # a stage that an error ended is gone


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.slow
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


def _until(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what is written until a text is, however busy the machine: another thread writes it."""
    written, end = "", time.monotonic() + 60
    while text not in written and time.monotonic() < end:
        time.sleep(0.01)
        written += "".join(capsys.readouterr())
    return written


@pytest.mark.parametrize("as_json", [True, False])
def test_without_a_terminal_there_is_a_line_every_few_seconds(as_json: bool, capsys, monkeypatch) -> None:
    monkeypatch.setattr("vicinal.progress.EVERY", 0.02)
    console = Console(as_json=as_json)
    with console.stage("predicting", 2_000) as advance, stage("a table"):
        advance(1_000)
        told = _until("a table", capsys)  # one call that takes long
    with console.stage("predicting", 2_000) as advance:
        advance(1_000)
        told += _until("1000," if as_json else "1,000 of", capsys)
    out, err = capsys.readouterr()
    told += out if as_json else err
    if as_json:
        events = [json.loads(line) for line in told.splitlines()]
        assert {event["event"] for event in events} == {"progress"}
        assert {event["stage"] for event in events} == {"a table", "predicting"}
        assert {event["done"] for event in events if event["stage"] == "predicting"} == {1_000}
    else:
        assert re.search(r"a table, \d+ s\n", told)
        assert re.search(r"predicting: 1,000 of 2,000, \d+ s\n", told)
    assert (err if as_json else out) == ""
    assert not any("beat" in thread.name for thread in threading.enumerate())


def test_a_training_is_a_stage(capsys, monkeypatch) -> None:
    told: list[dict[str, object]] = []
    monkeypatch.setattr("vicinal.progress.EVERY", 0.01)
    with (
        reported(lambda running: told.append(running.to_dict())),
        Progress(shown=False, title="Mixup", step=3, n_steps=9, n_epochs=3) as bar,
    ):
        bar.update(4, 1.3)
        end = time.monotonic() + 60
        while not told and time.monotonic() < end:
            time.sleep(0.01)
    assert told[-1] == {"stage": "Mixup", "done": 4, "total": 9, "seconds": told[-1]["seconds"]}
