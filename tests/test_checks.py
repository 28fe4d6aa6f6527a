"""What is said where a library that is needed is missing, or an argument is refused."""

from __future__ import annotations

import pytest

from vicinal._checks import ArgumentTypeError, require


def test_a_library_that_is_not_there_is_called_not_installed():
    said = r"needs nowhere_at_all, which is not installed: pip install 'vicinal\[x\]'"
    for module in ("nowhere_at_all", "nowhere_at_all.part"):
        with pytest.raises(ModuleNotFoundError, match=said):
            require(module, "x")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ImportError('libx.so: failed to map segment from shared object')", "failed to map segment"),
        ("raise OSError(12, 'Cannot allocate memory')", "Cannot allocate memory"),
        ("raise MemoryError", "MemoryError"),
        ("import nowhere_at_all", r"No module named 'nowhere_at_all'; pip install 'vicinal\[x\]' may repair it"),
    ],
)
def test_a_library_that_is_there_and_cannot_be_loaded_is_not_called_missing(tmp_path, monkeypatch, body, reason):
    (tmp_path / "half_a_library.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=f"needs half_a_library, which cannot be loaded: .*{reason}") as caught:
        require("half_a_library", "x")
    assert "not installed" not in str(caught.value)


def test_a_long_value_is_not_shown_whole():
    error = ArgumentTypeError("source", [{"x": k} for k in range(100_000)], "a path")
    assert 300 < len(str(error)) < 500
    assert str(error).startswith("source must be a path, got [{'x': 0}, {'x': 1}")
    assert str(error).endswith("{'x': 99999}] (list)")
