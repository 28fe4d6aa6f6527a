"""What answers at once: help, methods, and words that are no command."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import accelerate
import pytest
import torch

import vicinal as library
from tests.cli.running import refused, vicinal
from vicinal import _names, calibrators, expressions, models
from vicinal.cli.app import app
from vicinal.models import specification

#: What takes seconds to import.
SLOW = ("torch", "numpy", "scipy", "pandas", "pyarrow", "sklearn", "torchvision", "transformers", "matplotlib", "PIL")

_MAIN = """
from vicinal.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""
_SAY = "print(json.dumps([name for name in {slow!r} if name in sys.modules]))\n"
_LOADED = f"import json, sys\n{_MAIN}{_SAY}"


@pytest.mark.parametrize("words", [[], ["--help"], ["train", "-h"], ["--version"], ["methods"], ["methods", "Mixup"]])
def test_help_imports_nothing_slow(words: list[str]) -> None:
    call = [sys.executable, "-c", _LOADED.format(slow=SLOW), *words]
    done = subprocess.run(call, capture_output=True, text=True, check=True, encoding="utf-8")
    *said, loaded = done.stdout.splitlines()
    assert said
    assert json.loads(loaded) == []


#: Files of predictions: what is measured of them differs.
FILES = {
    "confidences": "label,prediction,confidence\n" + "1,1,0.9\n0,1,0.6\n" * 30,
    "two": "label,prob_0,prob_1\n" + "1,0.1,0.9\n0,0.4,0.6\n1,0.7,0.3\n" * 20,
    "three": "label,prob_0,prob_1,prob_2\n" + "1,0.1,0.7,0.2\n0,0.4,0.6,0\n2,0,0,1\n" * 20,
    "logits-of-two": "label,logit_0,logit_1\n" + "1,0.1,2.9\n0,-0.4,0.6\n1,0.7,0.3\n" * 20,
    "logits-of-three": "label,logit_0,logit_1,logit_2\n" + "1,1,7,2\n0,4,6,0\n2,0,0,1\n" * 20,
}


@pytest.mark.parametrize("report", [False, True])
def test_files_are_measured_without_torch(tmp_path: Path, report: bool) -> None:
    calls = []
    for name, lines in FILES.items():
        (tmp_path / f"{name}.csv").write_text(lines)
        calls.append(["evaluate", f"{name}.csv", *(["--report", f"{name}.html"] if report else [])])
    # One process for all: what any of them loads is still loaded at the end.
    each = indent(f"sys.argv = ['vicinal', *words]\n{_MAIN}", "    ")
    script = f"import json, sys\nfor words in {calls!r}:\n{each}{_SAY}"
    call = [sys.executable, "-c", script.format(slow=SLOW)]
    done = subprocess.run(call, capture_output=True, text=True, check=True, encoding="utf-8", cwd=tmp_path)
    needless = {"torch", "sklearn", "transformers", *([] if report else ["matplotlib"])}
    assert needless.isdisjoint(json.loads(done.stdout.splitlines()[-1]))
    assert {page.stem for page in tmp_path.glob("*.html")} == (set(FILES) if report else set())


def test_every_command_is_in_the_help() -> None:
    said = vicinal("--help").out
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.callback.__name__
        assert name in said
        assert "Usage: vicinal " + name in vicinal(name, "--help").out


def test_no_words_greet_with_three_commands_that_exist() -> None:
    said = vicinal().out
    tried = [line.split()[1] for line in said.splitlines() if line.startswith("  vicinal ")]
    assert tried == ["train", "train", "evaluate"]
    names = {command.callback.__name__ for command in app.registered_commands if command.callback is not None}
    assert {*tried, "methods", "doctor"} <= names
    assert "vicinal doctor" in said


def test_the_doctor_names_versions_devices_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = vicinal("doctor").out
    for word in ("vicinal", "torch", "CPU", "cores", "vicinal[train]", "vicinal[export]"):
        assert word in said
    version = importlib.metadata.version

    def without_onnx(package: str) -> str:
        if package.startswith("onnx"):
            raise importlib.metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(importlib.metadata, "version", without_onnx)
    # timm, which the tests do not need, may be missing too
    assert re.search(r"pip install 'vicinal\[(timm,)?export\]'", vicinal("doctor").out)
    (result,) = vicinal("doctor", "--json").events("result")
    assert sorted(result["missing"]["export"]) == ["onnx", "onnxruntime", "onnxscript"]
    assert result["torch"].startswith(version("torch"))


def test_every_method_has_a_card() -> None:
    cards = {event["name"]: event["idea"] for event in vicinal("methods", "--json").events("method")}
    assert set(cards) == set(expressions.objective_names())
    assert all(cards.values())


def test_a_card_is_found_however_it_is_written() -> None:
    shown = vicinal("methods", "Mixup").out
    assert shown == vicinal("methods", "mixup").out == vicinal("methods", "Mixup(alpha=0.2)").out
    assert shown.startswith("# Mixup")
    assert "did you mean 'Mixup'" in refused("methods", "mixpu")


#: Words that cannot be read, and what is said of them.
UNREADABLE = {
    "tran": "there is no command 'tran'; did you mean 'train'?\nSee vicinal --help.",
    "--vresion": "there is no option --vresion; did you mean '--version'?\nSee vicinal --help.",
    "train --optimzer sgd": "there is no option --optimzer; did you mean '--optimizer'?\nSee vicinal train --help.",
    "train --epochs two": "--epochs must be an integer of at least 1, got 'two'",
    "train --lr abc": "--lr must be a number above 0, got 'abc'",
    "train --milestones 0.5 --milestones b": "--milestones must be a number of at least 0, got 'b'",
    "train --lr": "give a value: --lr X",
    "train --json=1": "--json takes no value",
    "train a b": "'b' is too much: vicinal train [DATA] [OPTIONS]",
    "calibrate a.csv": "FILE is missing: vicinal calibrate VALIDATION FILE [OPTIONS]",
    "calibrate a.csv b.csv": "--out is missing: vicinal calibrate VALIDATION FILE [OPTIONS]",
    "reproduce x --hours -1": "--hours must be a number of at least 0, got -1.0",
    "reproduce x --more-seeds 0": "--more-seeds must be an integer from 1 to 10,000, got 0",
    "compare --workers x": "--workers must be an integer, got 'x'",
}


@pytest.mark.parametrize("words", UNREADABLE)
def test_words_that_cannot_be_read(words: str) -> None:
    said = vicinal(*words.split(), code=2).err
    assert said.startswith(f"Error: {UNREADABLE[words]}\n")
    assert re.search(r"\nSee vicinal( \w+)? --help\.\n$", said)


#: Names and values that are wrong, and what is said of them before torch is imported.
WRONG = {
    "train missing.csv": "there is no file or folder 'missing.csv'",
    "train digitz": "did you mean 'digits'?",
    "train --method Mxup()": "unknown objective 'Mxup'; did you mean 'Mixup'",
    "train --method LogitMix(Mxup())": "unknown objective 'Mxup'; did you mean 'Mixup'",
    "train --model resnet81": "there is no network 'resnet81'; did you mean 'resnet18'",
    "train --method LogitMix(Mixup(alpa=0.2))": "Mixup has no parameter 'alpa'; did you mean 'alpha'?",
    "train t.csv --target sort --model mpl": "there is no network 'mpl'; did you mean 'mlp'?",
    "train t.csv --target sort --model mlp --model-option dropuot=0.3": "mlp has no option 'dropuot'; did you mean",
    "train t.csv": "pass --target, the column of 't.csv' that holds the class: one of 'size' and 'sort'",
    "train t.csv --target sort --slice syze": "--slice syze is no column of 't.csv'; did you mean 'size'?",
    "train t.csv --target sort --kind tablar": "--kind must be one of 'tabular', 'text', 'image', 'audio'",
    "train --device cudda": "--device must be a device such as 'cpu', 'cuda', 'cuda:1' or 'mps', got 'cudda'",
    "train --trackers tensorbord": "--trackers must be one of 'aim', 'tensorboard'",
    "train --class-weight balnced": "--class-weight must be one of 'balanced', got 'balnced'",
    "train --ensemble 0": "--ensemble must be an integer from 1 to 1,000, got 0",
    "train --corrupt 3": "--corrupt must be a number in [0, 1], got 3.0",
    "train --watch tst": "--watch must be one of 'train', 'test', got 'tst'",
    "train --report x.pdf": "--report must end in .html",
    "compare --model mlp,hgb --backend rey": "--backend must be one of 'loky', 'ray', 'dask', got 'rey'",
    "compare --model mlp,hgb --workers 0": "--workers must be an integer of at least 1, got 0",
    "compare --model mlp,hgb --choose nl": "--choose must be one of 'accuracy'",
    "train --calibrate platt": "--calibrate must be one of 'auto', 'none', 'temperature'",
    "train --val many": "--val must be a share such as 0.15",
    "train --model-option hidden": "--model-option must be NAME=VALUE",
    "train --eval-data x.csv --map a": "--map must be NAME=NAME,…, got 'a'",
    "train --eval-data x.csv": "there is no file or folder 'x.csv'",
    "compare --model hgb,mlpp": "there is no network 'mlpp'; did you mean 'mlp'",
    "compare": "name at least two methods, models, runs or files",
    "compare --method ERM() --run gone": "there is no folder 'gone'",
    "predict gone x.csv --out y.csv": "there is no folder 'gone'",
    "audit gone": "there is no folder 'gone'",
    "export gone --out x.onnx": "there is no folder 'gone'",
    "calibrate a.csv b.csv --out c.csv --calibrator platt": "--calibrator must be one of 'auto', 'temperature'",
    "evaluate gone.csv": "there is no file 'gone.csv'",
    "reproduce z18-tab9": "there is no recipe 'z18-tab9'; did you mean",
    "reproduce z18-tab2 --scale cpus": "--scale must be one of 'cpu', 'night', 'paper'",
    "reproduce z18-tab2 --seeds x": "--seeds must be a number such as 5, or a range such as 1010-1014, got 'x'",
    "reproduce z18-tab2 --seeds 2 --more-seeds 2": "give --seeds or --more-seeds, not both",
    "reproduce z18-tab2 --until never": "--until must be one of 'decided', got 'never'",
    "reproduce z18-tab2 --mixed-precision bf17": "--mixed-precision must be one of 'no', 'bf16', 'fp16'",
    "reproduce --pages docs": "--pages needs --results FOLDER",
    "methods Mxup": "there is no method 'Mxup'; did you mean 'Mixup'",
}


def test_names_are_checked_before_torch_is_imported(tmp_path: Path) -> None:
    main = _MAIN.replace("not ended.code", "ended.code == 1")
    each = indent(f"sys.argv = ['vicinal', *words.split()]\n{main}print('END', file=sys.stderr)\n", "    ")
    (tmp_path / "t.csv").write_text("size,sort\n1,a\n2,b\n")
    script = f"import json, sys\nfor words in {list(WRONG)!r}:\n{each}{_SAY}"
    call = [sys.executable, "-c", script.format(slow=SLOW)]
    done = subprocess.run(call, capture_output=True, text=True, check=True, encoding="utf-8", cwd=tmp_path)
    for (words, said), shown in zip(WRONG.items(), done.stderr.split("END\n"), strict=False):
        assert shown.startswith("Error: "), words
        assert said in shown, words
    assert "torch" not in json.loads(done.stdout.splitlines()[-1])


def test_names_that_are_checked_early_are_all_there_are() -> None:
    assert tuple(calibrators.CALIBRATORS) == _names.CALIBRATORS
    assert {kind: tuple(models.names(kind)) for kind in _names.NETWORKS} == _names.NETWORKS
    assert {*models.names("audio")} <= {*_names.NETWORKS["image"]}
    assert specification.KINDS == _names.KINDS
    for name, known in _names.TABULAR_OPTIONS.items():
        assert {*specification._defaults(specification.FAMILIES["tabular"].builder(name))} - {
            *_names.FROM_THE_DATA
        } == {*known}, name
    trackers = [kind.value for kind in accelerate.utils.LoggerType if kind.value != "all"]
    assert tuple(trackers) == _names.TRACKERS
    for name in _names.DEVICES:
        torch.device(name)


@pytest.mark.parametrize("name", library.OBJECTIVES)
def test_parameters_of_methods_are_read_without_importing_them(name: str) -> None:
    found = {*expressions._parameters(library.OBJECTIVES[name], name)}
    assert found == {*inspect.signature(getattr(library, name)).parameters} - {"given"}
