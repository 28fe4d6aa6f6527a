"""The help: short, in full, within 80 columns, with real defaults and examples that parse."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from vicinal import expressions
from vicinal.cli.app import app
from vicinal.cli.help import COMMON, EXAMPLES
from vicinal.training.defaults import defaults_by_kind

from .running import refused, vicinal

COMMANDS = {command.callback.__name__: command for command in app.registered_commands if command.callback is not None}


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_fits_and_leaves_no_name_out(name: str) -> None:
    short = vicinal(name, "--help").out
    assert short.startswith(f"Usage: vicinal {name}")
    assert "Examples:" in short
    full = vicinal(name, "--help-all").out
    for text in (short, full):
        assert all(len(line) <= 80 for line in text.splitlines()), text
    group = get_command(app)
    command = group.commands[name]
    flags = [flag for one in command.params if one.param_type_name == "option" for flag in one.opts]
    assert all(f"{flag}" in full for flag in flags)
    assert {one.name for one in command.params} >= set(COMMON.get(name, ()))
    if name in COMMON:
        assert len(short.splitlines()) < 60
        assert f"vicinal {name} --help-all" in short


@pytest.mark.parametrize(("name", "typed"), [(name, typed) for name, of in EXAMPLES.items() for typed, _ in of])
def test_examples_have_options_that_exist(name: str, typed: str) -> None:
    program, command, *words = shlex.split(typed)
    assert (program, command) == ("vicinal", name)
    full = vicinal(name, "--help-all").out
    assert all(f"{word} " in full or f"{word}," in full for word in words if word.startswith("--"))


def test_defaults_are_those_of_each_kind_of_data() -> None:
    full = " ".join(vicinal("train", "--help-all").out.split())
    epochs = defaults_by_kind()["epochs"]
    assert f"[default: {epochs['tabular']} for tables, {epochs['image']} for images" in full
    assert "on for images" in full  # Nesterov's momentum
    assert "[default: 0]" in full  # of the seed: a zero is a default too


def test_equations_of_cards_have_no_commands_left() -> None:
    for name in expressions.objective_names():
        shown = vicinal("methods", name).out
        assert "$$" not in shown
        assert "\\lambda" not in shown
    assert "x̃ = λ x + (1-λ) x_π" in vicinal("methods", "Mixup").out


def test_options_and_columns_are_checked_before_data_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,kind\n" + "1,2,x\n3,4,y\n" * 3)
    assert "--target knd is no column of" in refused("train", path, "--target", "knd")
    assert "--optimizer must be one of" in refused("train", tmp_path / "missing.csv", "--optimizer", "adamm")
    assert "--epochs must be" in refused("compare", tmp_path / "missing.csv", "--model", "mlp,hgb", "--epochs", "0")
    assert "did you mean 'resnet18'" in refused("train", tmp_path / "missing.csv", "--model", "resnet81")
