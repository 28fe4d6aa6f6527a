"""What files claim to hold is bounded, `max_memory` raises every bound, and training keeps what it frees."""

from __future__ import annotations

import ctypes
import gzip
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import vicinal
from tests.processes import in_processes
from vicinal import ERM, data
from vicinal._atomic import read_json, read_tensors, write_json, write_tensors
from vicinal._checks import Argument, message_of
from vicinal._memory import MAX_MEMORY, TooLargeError, kept_memory, memory_limit
from vicinal.data.audio import read_sound
from vicinal.data.word_vectors import read_vectors
from vicinal.tables import from_rows, open_table, read_arrays
from vicinal.training import FitConfig, fit
from vicinal.training.folder import weights_damage
from vicinal.training.layout import TrainingFiles


def rows_of(path: Path) -> int:
    return sum(len(chunk) for chunk in open_table(path, arrays_too=True).chunks())


def npz(path: Path) -> Path:
    np.savez(path / "a.npz", probs=np.zeros((300, 8)))
    return path / "a.npz"


def npz_by_column(path: Path) -> Path:
    np.savez(path / "a.npz", probs=np.asfortranarray(np.zeros((300, 8))))
    return path / "a.npz"


def npz_of_long_rows(path: Path) -> Path:
    np.savez(path / "a.npz", probs=np.zeros((2, 1500)))
    return path / "a.npz"


def npy(path: Path) -> Path:
    np.save(path / "a.npy", np.zeros((2400, 1)))
    return path / "a.npy"


def npy_of_many_columns(path: Path) -> Path:
    np.save(path / "a.npy", np.zeros((1, 30)))
    return path / "a.npy"


def workbook(path: Path, rows: list[list[object]]) -> Path:
    book = pytest.importorskip("openpyxl").Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path / "a.xlsx")
    return path / "a.xlsx"


def workbook_of_text(path: Path) -> Path:
    return workbook(path, [["text", "label"], ["word " * 6000, "a"]])


def workbook_of_cells(path: Path) -> Path:
    return workbook(path, [list(range(500)), *([1] * 500 for _ in range(9))])


def csv_of_long_row(path: Path) -> Path:
    (path / "a.csv").write_text("text,label\n" + "word " * 2_000_000 + ",a\n" + "b,b\n" * 3)
    return path / "a.csv"


def json_of_long_line(path: Path) -> Path:
    (path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "' + b"word " * 100_000 + b'", "label": "a"}\n'))
    return path / "a.jsonl.gz"


def tsv_of_long_line(path: Path) -> Path:
    (path / "a.tsv").write_text("text\tlabel\n" + "word " * 100_000 + "\ta\n")
    return path / "a.tsv"


def parquet(path: Path, column: object) -> Path:
    pa, library = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    library.write_table(pa.table({"x": pa.array(column), "label": ["a", "b"]}), path / "a.parquet")
    return path / "a.parquet"


def parquet_of_lists(path: Path) -> Path:
    return parquet(path, [[0.0] * 2000, [1.0] * 2000])


def parquet_of_text(path: Path) -> Path:
    return parquet(path, ["word " * 100_000, "b"])


def record(path: Path) -> Path:
    write_json(path / "a.json", {"x": list(range(1000))})
    return path / "a.json"


def weights(path: Path) -> Path:
    write_tensors(path / "a.safetensors", {"w": torch.zeros(3000)})
    return path / "a.safetensors"


def sound(path: Path) -> Path:
    pytest.importorskip("soundfile").write(path / "a.wav", np.zeros(30_000), 16_000)
    return path / "a.wav"


def sound_of_odd_rate(path: Path) -> Path:
    pytest.importorskip("soundfile").write(path / "a.wav", np.zeros(30), 100_003)
    return path / "a.wav"


def vectors(path: Path) -> Path:
    np.savez(path / "a.npz", words=np.array(["good", "bad"]), vectors=np.ones((2, 3000)))
    return path / "a.npz"


def vectors_of_word2vec(path: Path) -> Path:
    (path / "a.bin").write_bytes(b"1 3000\ngood " + np.ones(3000, "<f4").tobytes())
    return path / "a.bin"


def good_vector(path: Path) -> object:
    return read_vectors(path, ["good"])


@pytest.mark.parametrize(
    ("make", "read", "little", "enough", "says"),
    [
        (npz, read_arrays, "19KB", "20KB", "what '.*a.npz' holds takes 19.2 KB of memory, and 19 KB are allowed: "),
        (npz_by_column, rows_of, "19KB", "20KB", "whose columns come first, .*: save np.ascontiguousarray of it"),
        (npz_of_long_rows, rows_of, "11KB", "12KB", r"a row of the array 'probs' of shape \[2, 1500\] takes 12 KB"),
        (npy, rows_of, "19KB", "1MB", "the array of '.*a.npy' takes 19.2 KB"),
        (npy_of_many_columns, rows_of, "299KB", "300KB", "has 30 columns and takes 300 KB of memory, .*: choose among"),
        (workbook_of_text, rows_of, "200KB", "1MB", "unpacks to .* bytes and takes .* of memory, .*: save the sheet"),
        (workbook_of_cells, rows_of, "1.9MB", "2MB", "has more than 4,750 cells and takes more than 1.9 MB: save the"),
        (csv_of_long_row, rows_of, "268MB", "600MB", "a row of '.*' takes more than 4.1 MB: close a quotation mark"),
        (json_of_long_line, rows_of, "500KB", "501KB", "a line of '.*a.jsonl.gz' takes more than 500 KB"),
        (tsv_of_long_line, rows_of, "500KB", "501KB", "a line of '.*a.tsv' takes more than 500 KB"),
        (parquet_of_lists, rows_of, "15KB", "16KB", "a row of '.*a.parquet' takes 16 KB"),
        (parquet_of_text, rows_of, "499KB", "500KB", "a cell of the column 'x' of '.*a.parquet' takes 500 KB"),
        (record, read_json, "30KB", "1MB", r"a.json takes .* KB of memory, and 30 KB are allowed"),
        (weights, read_tensors, "12KB", "13KB", "a.safetensors takes 12.* KB of memory"),
        (sound, read_sound, "119KB", "120KB", "it takes 120 KB of memory"),
        (sound_of_odd_rate, read_sound, "16MB", "17MB", "it takes 16.* MB of memory"),
        (vectors, good_vector, "48KB", "49KB", "holds no word vectors that can be read: what .* takes 48.1 KB"),
        (vectors_of_word2vec, good_vector, "11KB", "12KB", "a vector takes 12 KB"),
    ],
)  # fmt: skip
def test_what_a_file_claims_is_bounded_and_max_memory_raises_that(
    tmp_path: Path, make: Callable[[Path], Path], read: Callable[[Path], object], little: str, enough: str, says: str
) -> None:
    path = make(tmp_path)
    with vicinal.max_memory(little), pytest.raises(ValueError, match=says) as refused:
        read(path)
    (named,) = [part for part in message_of(refused.value).parts if isinstance(part, Argument)]
    assert named.name == "max_memory"  # the command says --max-memory
    assert f"or {named} allows" in str(refused.value) or f": {named} allows" in str(refused.value)
    with vicinal.max_memory(named.value):  # what it says is enough
        read(path)
    with vicinal.max_memory(enough):
        assert read(path) is not None


def test_a_file_of_holes_is_not_read_for_its_checksum(tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(TooLargeError, match=r"model.safetensors takes 1\.1 TB of memory"):
        weights_damage(TrainingFiles(tmp_path), {"weights": "sha256:0"})


def test_rows_of_many_columns_are_bounded() -> None:
    rows = [{f"c{k}": k for k in range(50)}] * 40
    with vicinal.max_memory("15KB"), pytest.raises(TooLargeError, match=r"50 columns of 40 rows and takes 16 KB"):
        from_rows(rows)
    with vicinal.max_memory("16KB"):
        assert from_rows(rows).n_rows == 40


def test_the_default_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MAX_MEMORY, raising=False)
    assert memory_limit() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    np.save(tmp_path / "a.npy", np.zeros((1, 100_001), np.uint8))
    with pytest.raises(TooLargeError, match=r"has 100,001 columns and takes 1\.1 GB of memory, and 1 GB are allowed"):
        open_table(tmp_path / "a.npy")


def test_it_is_set_for_a_while_and_for_processes_that_start_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAX_MEMORY, "2kb")
    assert memory_limit() == 2000
    with vicinal.max_memory("1.5 GiB"):
        assert (memory_limit(), os.environ[MAX_MEMORY]) == (3 * 2**29, str(3 * 2**29))
        with pytest.raises(ZeroDivisionError), vicinal.max_memory(7):
            1 / (memory_limit(default=3) - 7)
        assert memory_limit() == 3 * 2**29
    assert os.environ[MAX_MEMORY] == "2kb"
    monkeypatch.delenv(MAX_MEMORY)
    with vicinal.max_memory(7):
        pass
    assert MAX_MEMORY not in os.environ


@pytest.mark.parametrize("size", ["", "much", "-1GB", "1XB", "0", "1e9", 0, -5, "9" * 400])
def test_what_is_no_size_is_refused(size: Any) -> None:
    got = repr(size)[:200]  # a longer value is shown by its ends
    allowed = f"max_memory must be a size such as '64GB', '512MiB' or 10000000, got {got}"
    with pytest.raises(ValueError, match=re.escape(allowed)), vicinal.max_memory(size):
        pass


def test_sounds_that_are_too_long_count_as_bad(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for k in range(6):
            soundfile.write(tmp_path / name / f"{k}.wav", np.random.default_rng(k).normal(size=1600) / 9, 16_000)
    soundfile.write(tmp_path / "a" / "long.flac", np.zeros((30_000, 8), np.int16), 16_000)
    with vicinal.max_memory("100KB"):
        task = data.load(tmp_path, data.ReadOptions(max_bad=1))
    (note,) = [note for note in task.notes if "skipped" in note]
    assert "long.flac (it takes 120 KB of memory, and 100 KB are allowed: max_memory='120KB' allows it)" in note
    assert sum(map(len, (task.train, task.val, task.test))) == 12


# Memory that training keeps

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc's malloc, on Linux")


@pytest.fixture
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

    samples = TensorDataset(torch.randn(8, 4), torch.randint(2, (8,)))
    config = FitConfig(steps=4, batch_size=2, select="last", trackers=())
    fit(torch.nn.Linear(4, 2), ERM(), samples, config=config)  # imports what it needs
    before = after_a_large_tensor()
    fit(torch.nn.Linear(4, 2), objective, samples, config=config)
    assert min(kept) > before + 0.9 * LARGE
    assert resident() < before + 0.1 * LARGE


@glibc
@pytest.mark.usefixtures("_no_settings_of_the_user")
@pytest.mark.parametrize("worker", [within_and_after, an_error, from_step_to_step])
def test_memory_is_kept_within_and_given_back_after(worker):
    in_processes(1, worker)  # here tests before this one may have left free memory that the tensor would be put into


@pytest.mark.usefixtures("_no_settings_of_the_user")
@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_settings_of_the_user_are_left_alone(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(ctypes, "CDLL", None)  # would fail if it were called
    with kept_memory():
        pass
