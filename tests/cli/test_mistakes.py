"""The mistakes of a first-time user, and what each is answered."""

from __future__ import annotations

import errno
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.running import TINY, refused, vicinal
from tests.data import make
from vicinal._checks import Argument, Sentence


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder that holds a table and nothing else."""
    (tmp_path / "people.csv").write_bytes(table.read_bytes())
    monkeypatch.chdir(tmp_path)


def _train(*words: object, source: str = "people.csv", target: str = "kind") -> str:
    return refused("train", source, "--target", target, "--out", "run", *TINY, *words)


def _changed(**columns: object) -> None:
    make.people(60).assign(**columns).to_csv("changed.csv", index=False)


def test_no_such_file_or_column() -> None:
    assert "there is no file or folder 'peple.csv', and no data set of that name; did you mean 'people.csv'?" in _train(
        source="peple.csv"
    )
    assert "--target kid is no column of 'people.csv'; did you mean 'kind' or 'id'?" in _train(target="kid")
    assert "pass --target, the column of 'people.csv' that holds the class" in refused("train", "people.csv")
    assert "--text colours is no column" in _train("--text", "colours")
    assert "there is no file or folder 'elsewhere.csv'" in _train("--eval-data", "elsewhere.csv")
    assert not Path("run").exists()  # all of this is known before training


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["--epochs", "0"], "--epochs must be an integer of at least 1, got 0"),
        (["--lr", "nan"], "--lr must be a number above 0, got nan"),
        (["--lr", "-1"], "--lr must be a number above 0, got -1.0"),
        (["--optimizer", "lamb"], "--optimizer must be one of 'sgd'"),
        (["--kind", "picture"], "--kind must be one of 'tabular'"),
        (["--kind", "image"], "--kind image does not fit the table 'people.csv'"),
        (["--kind", "text"], "no column of 'people.csv' looks like text: pass --text"),
        (["--model", "resnet99"], "there is no network 'resnet99' for tabular data"),
        (["--text", "born", "--model", "mlp"], "there is no network 'mlp' for text data"),
        (["--model-option", "hiden=4"], "mlp-and-trees has no option 'hiden'; did you mean 'hidden'?"),
        (
            ["--model-option", "hidden=four"],
            "the network 'mlp-and-trees' cannot be built with its options (hidden='four')",
        ),
        (["--train-size", "1000"], "--train-size must be between 2"),
        (["--val", "0.9", "--test", "0.5"], "got --val 0.9 and --test 0.5"),
        (["--val", "0", "--patience", "3"], "--patience 3 needs a validation set: pass --val"),
        (["--corrupt", "2"], "--corrupt must be a number in [0, 1], got 2.0"),
        (["--seed", "-1"], "--seed must be an integer of at least 0, got -1"),
        (["--mixed-precision", "half"], "--mixed-precision must be one of"),
        (["--warmup-epochs", "1", "--warmup-steps", "5"], "--warmup-epochs or --warmup-steps, not both"),
        (["--method", "Mixpu()"], "unknown objective 'Mixpu'; did you mean 'Mixup'"),
        (["--method", "Mixup(alpa=1)"], "Mixup has no parameter 'alpa'; did you mean 'alpha'?\n    Mixup(alpa=1)\n"),
        (["--method", "Mixup("], "not a method expression"),
        (["--report", "."], "--report must be a file to write, and '.' is a folder"),
    ],
)
def test_options(options: list[str], answer: str) -> None:
    assert answer in _train(*options)
    assert not Path("run").exists()


def test_classes_that_cannot_be_learned() -> None:
    assert "only one class, 'earth'" in _train(target="planet")
    assert "has 90 different numbers in 90 rows, so it cannot be a class" in _train(target="id")
    _changed(kind=np.where(np.arange(60) == 0, "alone", "b"))
    assert "pass --rare train to keep such samples in the training set" in _train(source="changed.csv")
    _changed(kind=np.where(np.arange(60) < 6, None, np.where(np.arange(60) % 2, "a", "b")))
    said = _train(source="changed.csv")
    assert "'kind' is missing in 6 of 60 rows (row 1, row 2, row 3" in said
    assert "skip them with --max-bad 6" in said


def test_files_that_are_no_tables() -> None:
    Path("empty.csv").write_text("")
    assert "'empty.csv' is empty" in _train(source="empty.csv")
    Path("head.csv").write_text("x,kind\n")
    assert "'head.csv' has no rows" in _train(source="head.csv")
    Path("two.csv").write_text("x,kind\n1,a\n2,b\n")
    assert "with only one sample" in _train(source="two.csv")
    Path("noise.parquet").write_bytes(b"no parquet at all")
    assert "no readable Parquet file" in _train(source="noise.parquet")
    make.people(40).assign(colour="grün").to_csv("latin.csv", index=False, encoding="latin-1")
    said = vicinal("train", "latin.csv", "--target", "kind", "--out", "latin", *TINY)
    assert (
        "it is not UTF-8 and is read as Windows-1252 (Western European): --encoding names another"
        in said.out + said.err
    )
    make.people(40).assign(colour="зелёный").to_csv("cyrillic.csv", index=False, encoding="cp1251")
    assert "is not UTF-8: line 2 holds the byte 0xe7" in _train(source="cyrillic.csv")
    vicinal("train", "cyrillic.csv", "--target", "kind", "--encoding", "cp1251", "--out", "cyrillic", *TINY)


def test_tables_that_are_only_odd() -> None:
    frame = pd.DataFrame({"x": np.linspace(-1, 1, 40).round(3), "empty": "", "target": np.arange(40) % 2 == 0})
    text = frame.to_csv(index=False, sep=";").replace(".", ",")
    Path("odd.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    ran = vicinal("train", "odd.csv", "--target", "target", "--out", "odd", *TINY)
    assert "column 'x' has decimal commas" in ran.out
    assert "left out: 'empty'" in ran.out
    assert "2 classes: 'False' 20, 'True' 20" in ran.out
    both = pd.DataFrame({"x": frame["x"], "z": frame["x"] / 2, "target": frame["target"]})
    Path("two.csv").write_text(both.to_csv(index=False, sep=";").replace(".", ","))
    ran = vicinal("train", "two.csv", "--target", "target", "--out", "two", *TINY)
    assert all(f"column '{name}' has decimal commas" in ran.out for name in "xz")


def test_folders() -> None:
    Path("nothing").mkdir()
    assert "'nothing' holds no class folders" in refused("train", "nothing")
    make.image_folder(Path("one"), classes=["cat"])
    assert "there is only one class, 'cat'" in refused("train", "one")
    assert "--target x names a column, but 'one' is not a table: leave" in refused("train", "one", "--target", "x")
    make.image_folder(Path("mixed"))
    make.sound_folder(Path("mixed") / "more", classes=["low"])
    assert "holds files of several kinds: pass --kind audio or --kind image" in refused("train", "mixed")


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_unreadable_files_are_named_and_counted(kind: str) -> None:
    maker, ending = (make.image_folder, "png") if kind == "image" else (make.sound_folder, "wav")
    maker(Path("files"), classes=("a", "b"), n=7)
    (Path("files") / "a" / f"broken one.{ending}").write_text("nothing of the sort")
    options = ["--epochs", "1", "--out", "run", *(["--model-option", "width=2"] if kind == "image" else [])]
    said = refused("train", "files", *options)
    assert f"1 of 15 {kind} files could not be read: {Path('files', 'a', f'broken one.{ending}')} (" in said
    assert "more than --max-bad 0.05 allows" in said
    ran = vicinal("train", "files", *options, "--max-bad", 1)
    assert "skipped: 1 of 15" in ran.out
    assert "7, 'b' 7" in ran.out
    said = refused("predict", "run", "files", "--out", "answers.csv")
    assert "--max-bad 0.05" in said
    assert "14 rows" in vicinal("predict", "run", "files", "--out", "answers.csv", "--max-bad", 0.1).out


def test_where_a_run_goes(trained: Path) -> None:
    assert "--out people.csv must be a folder, but " in refused(
        "train", "people.csv", "--target", "kind", "--out", "people.csv"
    )
    assert "must be a folder" in refused("train", "people.csv", "--target", "kind", "--out", "people.csv/run")
    words = ["train", "people.csv", "--target", "kind", *TINY, "--out", "run"]
    vicinal(*words)
    said = refused(*words, "--seed", 1)
    assert "run holds another run, of vicinal train people.csv --target kind" in said
    assert "pass another --out, or remove this folder to start over" in said


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to the superuser")
def test_a_folder_that_may_not_be_written() -> None:
    Path("locked").mkdir(mode=0o500)
    assert "you may not write to" in refused("train", "people.csv", "--target", "kind", "--out", "locked/run")


def test_a_full_disk(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    said = refused("predict", trained, "people.csv", "--out", "answers.csv")
    assert "make room, then give the same command again" in said
    assert not [path for path in Path().iterdir() if "answers" in path.name]  # nor half of it
    said = _train()
    assert "the disk is full" in said or "No space left" in said
    assert said.lower().count("make room") == 1
    monkeypatch.undo()


def test_a_loss_that_is_not_finite() -> None:
    said = _train("--lr", "1e30", "--batch-size", "8")
    assert "not finite" in said
    assert "lower --lr" in said


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: …")],
)
def test_out_of_memory(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("vicinal.data.load_from_config", fail)
    assert _train() == "Error: out of memory: use a smaller --batch-size\n"
    monkeypatch.setattr("vicinal.predictions.evaluate_file", fail)
    (tmp_path / "p.csv").write_text("label,prob_a,prob_b\na,0.5,0.5\n")
    said = refused("evaluate", tmp_path / "p.csv")  # which has no such option
    assert said == "Error: out of memory: use less data, or end what else runs\n"


def test_a_fault_of_ours_shows_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("vicinal.data.load_from_config", fail)
    with pytest.raises(KeyError, match="ours"):
        _train()


def test_a_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VICINAL_TRACEBACK", "1")
    with pytest.raises(ValueError, match="lr must be"):
        _train("--lr", "nan")


def test_a_column_that_is_called_like_an_option() -> None:
    """Only what the library names as an argument becomes an option; names of columns stay as they are."""
    texts = [f"this is the long sentence number {i} of a text that no one wrote before" for i in range(60)]
    columns = {"train_size": texts, "image_size": texts[::-1], "max_bad": texts[7:] + texts[:7]}
    pd.DataFrame({**columns, "kind": ["a", "b"] * 30}).to_csv("named.csv", index=False)
    said = _train(source="named.csv")
    assert "--text must be one column, or two for pairs" in said
    assert "'train_size', 'image_size' and 'max_bad'" in said
    assert "--train-size" not in said
    said = refused("train", "named.csv", "--target", "batch_size")
    assert "--target batch_size is no column of 'named.csv'" in said
    assert "--batch-size" not in said


def test_a_parameter_of_a_method_is_no_option() -> None:
    said = _train("--method", "Warmup(Mixup(alpha=0.1), epochs=-1)")
    assert "Warmup: epochs must be" in said
    assert "--epochs" not in said


@pytest.mark.parametrize(
    ("argument", "answer"),
    [
        (Argument("lr"), "--lr"),
        (Argument("batch_size", 0), "--batch-size 0"),
        (Argument("rare", "train"), "--rare train"),
        (Argument("header", False), "--no-header"),
        (Argument("nesterov", True), "--nesterov"),
        (Argument("text", "my column"), "--text 'my column'"),
        (Argument("text", ["a", "b c"]), "--text a --text 'b c'"),
        (Argument("n_bins", 10), "--bins 10"),  # an option of another name
        (Argument("score", "entropy"), "score='entropy'"),  # training has no such option
        (Argument("betas", (0.9, 0.99)), "betas=(0.9, 0.99)"),
    ],
)
def test_arguments_are_named_as_options(argument: Argument, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        warnings.warn(Sentence("mind ", argument), stacklevel=2)
        raise ValueError(Sentence("the library says: pass ", argument, ", not lr=2 or --lr"))

    monkeypatch.setattr("vicinal.data.load_from_config", fail)
    ran = vicinal("train", "people.csv", "--target", "kind", "--out", "run", code=1)
    assert f"Warning: mind {answer}\n" in ran.err
    assert f"Error: the library says: pass {answer}, not lr=2 or --lr\n" in ran.err


def test_options_of_another_name() -> None:
    Path("some.csv").write_text("label,prob_a,prob_b\na,0.5,0.5\n")
    assert "--bins must be an integer of at least 1, got 0" in refused("evaluate", "some.csv", "--bins", 0)
    methods = ["--method", "ERM()", "--method", "ERM(label_smoothing=0)"]
    assert "--method must differ" in refused("compare", "people.csv", "--target", "kind", *methods)
