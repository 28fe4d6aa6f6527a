from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from vicinal import data
from vicinal.predictions import evaluate_file
from vicinal.tables import open_table


def test_a_matrix_has_numbered_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    matrix = np.column_stack([rng.normal(size=(60, 2)) + y[:, None], y])
    matrix[4, 0] = np.nan
    np.save(tmp_path / "m.npy", matrix)
    np.savetxt(tmp_path / "m.csv", matrix, delimiter=",", fmt="%.17g")
    one = data.load(str(tmp_path / "m.npy"), target="3")
    other = data.load(str(tmp_path / "m.csv"), data.ReadOptions(header=False), target="3")
    assert one.classes == other.classes == ("0", "1", "2")
    assert one.splits == other.splits
    np.testing.assert_allclose(one.train.features(), other.train.features(), atol=1e-6)
    before = one.fingerprint
    np.save(tmp_path / "m.npy", matrix[:-1])
    assert data.load(str(tmp_path / "m.npy"), target="3").fingerprint != before


def test_records_have_named_columns(tmp_path: Path) -> None:
    rows = [(k % 2, 0.25 + 0.5 * (k % 2)) for k in range(8)]
    np.save(tmp_path / "p.npy", np.array(rows, [("y_true", int), ("y_prob", float)]))
    assert list(open_table(tmp_path / "p.npy").columns) == ["y_true", "y_prob"]
    measured = evaluate_file(tmp_path / "p.npy")
    assert measured.accuracy.value == 1
    assert measured.nll.value == pytest.approx(-np.log(0.75))


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.arange(5), r"has the shape \[5\]: a table is \[N, D\], or records"),
        (np.zeros((2, 3, 4)), r"has the shape \[2, 3, 4\]"),
        (np.zeros(3, [("probs", float, (2,))]), r"fields hold one value each"),
        (np.array([["a", None]], dtype=object), "is no readable NPY file: .*no Python objects"),
    ],
)
def test_other_arrays_are_refused(array: np.ndarray, said: str, tmp_path: Path) -> None:  # type: ignore[type-arg]
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError, match=said):
        open_table(tmp_path / "a.npy")


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((100, 3)))
    whole = (tmp_path / "a.npy").read_bytes()
    for n in (5, 60, len(whole) - 8):
        (tmp_path / "a.npy").write_bytes(whole[:n])
        with pytest.raises(ValueError, match="is no readable NPY file"):
            open_table(tmp_path / "a.npy")


def test_too_many_columns_are_refused_by_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(values: object) -> None:
        pytest.fail("a column was typed")

    monkeypatch.setattr("vicinal.tables.npy.column_of", typed)
    np.save(tmp_path / "a.npy", np.zeros((2, 100_001), np.uint8))
    with pytest.raises(ValueError, match=r"has 100,001 columns and takes 1\.1 GB of memory"):
        open_table(tmp_path / "a.npy")


@pytest.mark.parametrize("shape", ["((((3,", "(3,) +", "'x'", "3", "(1.5,)"])
@pytest.mark.parametrize("form", ["npy", "npz"])
def test_a_damaged_header_is_a_sentence(tmp_path: Path, shape: str, form: str) -> None:
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    content = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(24)
    path = tmp_path / f"a.{form}"
    if form == "npy":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("label.npy", content)
    with pytest.raises(ValueError, match="is no readable NP"):
        open_table(path, arrays_too=True)


def test_an_archive_of_arrays_under_another_name_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(ValueError, match="is no readable NPY file"):
        open_table(tmp_path / "a.npy")
