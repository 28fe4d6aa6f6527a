"""Odd terminals, streams and names: one sentence and an exit code, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console as RichConsole

from tests.cli.running import refused, vicinal
from vicinal.cli.console import Console

ROWS = "label,prob_a,prob_b\n" + "a,0.75,0.25\nb,0.25,0.75\n" * 20


def _command(*words: str, cwd: Path, **options: object) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "vicinal", *words]
    return subprocess.run(call, cwd=cwd, text=True, stderr=subprocess.PIPE, timeout=300, check=False, **options)


def test_a_terminal_that_knows_ascii_only(tmp_path: Path) -> None:
    """And a name of bytes that are no text, in an error and in an answer."""
    name = os.fsdecode(b"p\xff.csv")
    (tmp_path / name).write_text(ROWS)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = _command("evaluate", name, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "40 samples" in ran.stdout
    assert ran.stdout.isascii()
    ran = _command("evaluate", f"{name}x", cwd=tmp_path, env=environment)
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: there is no file 'p")
    assert "Traceback" not in ran.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="shells there close no streams")
def test_closed_streams(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(ROWS)
    for redirection in (">&-", "2>&-", ">&- 2>&-", "| head -c 1"):
        line = f"{sys.executable} -m vicinal evaluate p.csv {redirection}"
        ran = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert "Traceback" not in ran.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there Ctrl-C cannot be sent to one process")
@pytest.mark.parametrize("delay", [0.15, 0.4, 1.0])
def test_ctrl_c_while_importing(delay: float, tmp_path: Path) -> None:
    call = [sys.executable, "-c", "import vicinal.cli; print(1, flush=True); vicinal.cli.main()", "doctor"]
    with subprocess.Popen(call, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert process.returncode in (130, 0)
    assert "Traceback" not in err


@pytest.mark.skipif(sys.platform == "win32", reason="there Ctrl-C cannot be sent to one process")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals_that_an_import_turns_into_another_error(name: str, tmp_path: Path) -> None:
    """Extension modules do: torch's raise ImportError or abort the process."""
    (tmp_path / "swallowing.py").write_text(f"""
import os, signal
try:
    os.kill(os.getpid(), signal.{name})
    signal.pause()
except BaseException:
    raise ImportError("initialization failed")
""")
    lines = """
import signal, sys, types, vicinal.cli

def app(prog_name):
    import swallowing

sys.modules["vicinal.cli.app"] = types.SimpleNamespace(app=app)
signal.signal(signal.SIGINT, signal.default_int_handler)
vicinal.cli.main()
"""
    ran = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, timeout=300, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (128 + signal.Signals[name], b"", b"")


@pytest.mark.skipif(sys.platform == "win32", reason="there Ctrl-C cannot be sent to one process")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals_that_come_where_no_exception_can_leave(name: str, tmp_path: Path) -> None:
    lines = f"""
import os, signal, sys, time, types, vicinal.cli

class Ends:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})

def app(prog_name):
    Ends()
    end = time.monotonic() + 250
    while time.monotonic() < end:
        time.sleep(0.001)

sys.modules["vicinal.cli.app"] = types.SimpleNamespace(app=app)
signal.signal(signal.SIGINT, signal.default_int_handler)
vicinal.cli.main()
"""
    ran = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, timeout=300, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (128 + signal.Signals[name], b"", b"")


@pytest.mark.parametrize("text", ["(" * 10_000 + ")" * 10_000, "Warmup(" * 300 + ")" * 300, "[" * 900, "-" * 5_000])
def test_methods_that_are_nested_deeply(text: str) -> None:
    assert len(refused("train", "digits", "--method", text)) < 25_000


@pytest.mark.parametrize("codec", ["hex", "rot13", "base64", "zlib", "idna", "undefined"])
def test_an_encoding_that_is_no_text(codec: str, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(ROWS)
    assert codec in refused("evaluate", tmp_path / "p.csv", "--encoding", codec)
    assert codec in refused("train", tmp_path / "p.csv", "--target", "label", "--encoding", codec)


def test_what_may_not_be_read_or_entered(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(ROWS)
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "q.csv").write_text(ROWS)
    (closed / "q.csv").chmod(0)
    if os.access(closed / "q.csv", os.R_OK):
        pytest.skip("nothing is forbidden to the superuser")
    assert "FILE|RUN must be a file or folder that you may read" in vicinal("evaluate", closed / "q.csv", code=2).err
    closed.chmod(0)
    try:
        for words in (("evaluate", closed / "q.csv"), ("train", closed)):
            assert "ermission denied" in refused(*words)
        assert "FILE|RUN must be a file or folder that you may read" in vicinal("evaluate", closed, code=2).err
        files = (tmp_path / "p.csv", tmp_path / "p.csv")
        assert "ermission denied" in refused("calibrate", *files, "--out", closed / "o.csv")
        assert "ermission denied" in refused("evaluate", files[0], "--report", closed / "o.html")
    finally:
        closed.chmod(0o700)


def test_a_tokenizer_that_is_not_there(tmp_path: Path) -> None:
    texts = [f"this is the long sentence number {i} of a text that no one wrote before" for i in range(40)]
    lines = "".join(f"{text},{'ab'[i % 2]}\n" for i, text in enumerate(texts))
    (tmp_path / "t.csv").write_text(f"text,kind\n{lines}")
    said = refused("train", tmp_path / "t.csv", "--target", "kind", "--model", str(tmp_path / "no" / "model"))
    assert "cannot be loaded here" in said


def test_names_of_files_that_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"p\xff.csv")
    Path(name).write_text(ROWS)
    vicinal("evaluate", name, "--report", "report.html")
    vicinal("calibrate", name, name, "--out", os.fsdecode(b"o\xff.csv"))


@pytest.mark.parametrize("width", [100, 80, 60])
def test_no_method_of_a_comparison_is_cut_off(width: int, monkeypatch, capsys) -> None:
    """Nor is an interval: columns that do not fit beside each other are in tables below each other."""
    monkeypatch.setattr("vicinal.cli.console._rich", lambda: RichConsole(width=width))
    monkeypatch.setattr("vicinal.cli.console._on_terminal", lambda: True)
    methods = ["ERM()", "LogitMix(CutMix(alpha=1.0), weight=0.1)", *(f"Mixup(alpha={a}.0)" for a in range(5))]
    rows = "".join(f"| `{name}` | 5 of 5 | 0.8733 [0.7783, 0.9652] | 0.3143 [0.2484, 0.3953] |\n" for name in methods)
    head = "| method | seeds | accuracy | NLL |\n| --- | --- | --- | --- |\n"
    Console(as_json=False).markdown(f"300 test samples\n\n{head}{rows}\nThe best is `ERM()`.\n")
    said = capsys.readouterr().out
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= width
    assert said.count("0.3143") == said.count("[0.2484, 0.3953]") == len(methods)
    for name in methods:
        assert all(word in said for word in name.split())
    assert "The best is ERM()." in said


def test_words_of_a_table_are_never_cut_off(monkeypatch, capsys) -> None:
    monkeypatch.setattr("vicinal.cli.console._rich", lambda: RichConsole(width=60))
    monkeypatch.setattr("vicinal.cli.console._on_terminal", lambda: True)
    Console(as_json=False).markdown("| field | what |\n|---|---|\n| `layers` | " + "the layers to mix at, " * 9 + "|\n")
    said = capsys.readouterr().out
    assert "…" not in said
    assert said.split().count("layers") == 10


NAMES = ["", "n", "accuracy", "NLL", "Brier score", "ECE (15 bins)", "OE (15 bins)"]
METRICS = [
    "1,082",
    "98.5 % (97.6–99.2)",
    "0.036 (0.025–0.055)",
    "0.019 (0.011–0.031)",
    "1.6 % (0.1–2.4)",
    "0.5 % (0.0–1.2)",
]


@pytest.mark.parametrize("width", [140, 100, 80, 60])
def test_tables_of_metrics_fit_any_terminal(width: int, monkeypatch, capsys) -> None:
    """No name and no metric is cut off or broken; where room is short intervals go below, rows become columns."""
    monkeypatch.setattr("vicinal.cli.console._rich", lambda: RichConsole(width=width))
    rows = [[name, *METRICS] for name in ("validation", "validation, calibrated", "test", "test, calibrated")]
    Console(as_json=False).table("", NAMES, rows)
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= width
    words = said.split()
    assert (words.count("validation"), words.count("calibrated"), words.count("accuracy")) == (1, 2, 1)
    assert words.count("1,082") == words.count("0.036") == words.count("98.5") == 4
    assert words.count("(0.025–0.055)") == (0 if width == 60 else 4)
