"""Runs in processes of their own: two at once, interrupted ones, several that share the work."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from tests.cli.running import real, refused, started, vicinal

LONG = ("--epochs", "60", "--patience", "60", "--batch-size", "4", "--model-option", "hidden=[4]")


@contextmanager
def _running(*words: object, cwd: Path, until: Path) -> Iterator[subprocess.Popen[str]]:
    """Give a command that has come so far that a file is there; end it whatever happens."""
    process = started(*words, cwd=cwd)
    try:
        deadline = time.monotonic() + 300
        while not until.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert process.poll() is None, process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


signals = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)


@pytest.fixture(scope="module")
def undisturbed(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    vicinal("train", table, "--target", "kind", *LONG, "--out", out)
    return out


@pytest.mark.skipif(sys.platform == "win32", reason="there Ctrl-C cannot be sent to one process")
@signals
def test_ctrl_c_and_two_runs_at_once(
    number: signal.Signals, code: int, table: Path, undisturbed: Path, tmp_path: Path
) -> None:
    words = ("train", table, "--target", "kind", *LONG)
    out = tmp_path / "run"
    with _running(*words, "--out", out, cwd=tmp_path, until=out / "metrics.jsonl") as process:
        process.send_signal(signal.SIGSTOP)  # else it might be done before the other has looked
        said = refused(*words, "--out", out)
        assert f"is in use: process {process.pid} on " in said
        assert "wait until it has finished, or choose another folder" in said
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=200)
    assert process.returncode == code
    assert not list(out.rglob("*.tmp"))
    assert re.match(r"(.*, \d+ s\n)*Stopped: after step ", err)  # after lines of progress, on a busy machine
    assert "start the same run again" in err
    assert "Traceback" not in err
    assert "this run is not finished" in refused("predict", out, table, "--out", tmp_path / "answers.csv")
    assert "is not finished" in refused("evaluate", out)

    vicinal(*words, "--out", out)
    assert json.loads((out / "result.json").read_text())["resumed"] == 1
    for name in ("model.safetensors", "metrics.jsonl", "evaluation.json"):
        if name == "evaluation.json":
            found, wanted = (json.loads((run / name).read_text()) for run in (out, undisturbed))
            # Checksums are of files with times: the run's own.
            own: dict[str, object] = {"seconds": 0, "files": {}, "checksum": ""}
            assert {**found, **own} == {**wanted, **own}
        else:
            assert (out / name).read_bytes() == (undisturbed / name).read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="there Ctrl-C cannot be sent to one process")
@signals
@pytest.mark.slow
def test_a_prediction_that_is_ended_leaves_nothing(
    number: signal.Signals, code: int, trained: Path, table: Path, tmp_path: Path
) -> None:
    names, *rows = table.read_text().splitlines(keepends=True)
    (tmp_path / "many.csv").write_text(names + "".join(rows) * 3_000)
    (tmp_path / "out").mkdir()
    process = started("predict", trained, "many.csv", "--out", "out/answers.csv", cwd=tmp_path)
    try:
        deadline = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < deadline:
            if any(draft.stat().st_size for draft in (tmp_path / "out").glob(".answers.csv.*.tmp")):
                break  # in the middle of the file
            time.sleep(0.01)
        assert process.poll() is None
        process.send_signal(number)
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == code
    assert "Traceback" not in out + err
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_two_processes_do_what_one_does_with_twice_the_accumulation(table: Path, tmp_path: Path) -> None:
    words = ("train", table, "--target", "kind", "--epochs", "3", "--batch-size", "8", "--model-option", "hidden=[4]")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    ran = real(*words, "--out", tmp_path / "two", cwd=tmp_path, launcher=launcher)
    assert sum(line.startswith("model: ") for line in ran.out.splitlines()) == 1  # one of them speaks
    assert json.loads((tmp_path / "two" / "result.json").read_text())["processes"] == 2
    vicinal(*words, "--out", tmp_path / "one", "--accumulation", 2)
    found, wanted = (load_file(tmp_path / run / "model.safetensors") for run in ("two", "one"))
    assert found.keys() == wanted.keys()
    for name, weights in wanted.items():
        assert weights.allclose(found[name], rtol=1e-4, atol=1e-6)
    initial = _initial(table, tmp_path)
    assert not all(weights.allclose(initial[name]) for name, weights in wanted.items())


def _initial(table: Path, tmp_path: Path) -> dict[str, Tensor]:
    """Weights that were hardly trained, to see that the others were."""
    options = ("--steps", "1", "--lr", "1e-9", "--batch-size", "8", "--model-option", "hidden=[4]")
    vicinal("train", table, "--target", "kind", *options, "--out", tmp_path / "initial")
    return load_file(tmp_path / "initial" / "model.safetensors")
