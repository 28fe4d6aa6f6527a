"""What a command may write: never over what it reads, nor over a file of somebody else's without being asked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.running import refused, vicinal
from vicinal.cli.outputs import check_outputs
from vicinal.predictions import write

ROWS = "label,prob_a,prob_b\n" + "a,0.75,0.25\nb,0.25,0.75\na,0.4,0.6\nb,0.9,0.1\n" * 4


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("v.csv").write_text(ROWS)
    Path("t.csv").write_text(ROWS)


LINKS: dict[str, Callable[[Path], Path]] = {
    "itself": lambda path: path,
    "a longer path": lambda path: Path("sub") / ".." / path,
    "a link": lambda path: _link(os.symlink, path),
    "a hard link": lambda path: _link(os.link, path),
    "a linked folder": lambda path: _link(os.symlink, Path.cwd()) / path.name,
}


def _link(make: Callable[..., None], path: Path) -> Path:
    name = Path("link.csv")
    make(path.absolute(), name)
    return name


@pytest.mark.parametrize("reach", LINKS.values(), ids=LINKS)
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("option", ["--out", "--save"])
def test_inputs_are_never_written_over(reach: Callable[[Path], Path], overwrite: bool, option: str) -> None:
    Path("sub").mkdir()
    place = reach(Path("v.csv"))
    words = ["--out", "o.csv"] if option == "--save" else []
    said = refused("calibrate", "v.csv", "t.csv", *words, option, place, *["--overwrite"] * overwrite)
    assert f"{option} {place} is an input of this command, which would be lost: choose another name" in said
    assert Path("v.csv").read_text() == ROWS
    assert not Path("o.csv").exists()


OURS = "label,prediction,confidence,prob_a,prob_b\n" + "a,a,0.75,0.75,0.25\nb,a,0.5,0.5,0.5\n" * 6


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("way", ["a linked shard", "a linked folder of shards", "a pattern through folders"])
def test_inputs_that_are_reached_by_links_are_never_written_over(way: str, overwrite: bool) -> None:
    Path("deep/er").mkdir(parents=True)
    mine = Path("deep/er/mine.csv")
    mine.write_text(OURS)  # of a kind that may be replaced, were it no input
    Path("shards").mkdir()
    source = "shards"
    if way == "a linked shard":
        Path("shards/p.csv").symlink_to(mine.absolute())
        Path("shards/nowhere.csv").symlink_to("gone")
    elif way == "a linked folder of shards":
        Path("shards").rmdir()
        Path("shards").symlink_to(mine.parent.absolute())
        Path("deep/er/round").symlink_to(Path("deep").absolute())
    else:
        source = "deep/**/*.csv"
    said = refused("calibrate", "v.csv", source, "--out", mine, *["--overwrite"] * overwrite)
    assert f"--out {mine} is an input of this command, which would be lost" in said
    assert mine.read_text() == OURS


def test_two_outputs_are_two_files() -> None:
    said = refused("calibrate", "v.csv", "t.csv", "--out", "o.csv", "--save", "./o.csv")
    assert "--out and --save are the same file" in said or "--save and --out are the same file" in said
    assert not Path("o.csv").exists()


def test_a_foreign_file_is_replaced_only_on_request() -> None:
    for name in ("o.csv", "o.parquet", "o.npz", "o.csv.gz", "c.json"):
        Path(name).write_text("mine\n")
    for words in (["--out", "o.csv"], ["--out", "o.parquet"], ["--out", "o.npz"], ["--out", "o.csv.gz"]):
        said = refused("calibrate", "v.csv", "t.csv", *words)
        assert f"{words[0]} {words[1]} exists, and vicinal did not write it" in said
        assert Path(words[1]).read_text() == "mine\n"
        vicinal("calibrate", "v.csv", "t.csv", *words, "--overwrite")
        vicinal("calibrate", "v.csv", "t.csv", *words)  # what was written may be written again
    assert "--save c.json exists" in refused("calibrate", "v.csv", "t.csv", "--out", "o.csv", "--save", "c.json")
    vicinal("calibrate", "v.csv", "t.csv", "--out", "o.csv", "--save", "c.json", "--overwrite")
    vicinal("calibrate", "v.csv", "t.csv", "--out", "o.csv", "--save", "c.json")


def test_predictions_of_somebody_else_are_foreign() -> None:
    Path("o.csv").write_text(ROWS)
    assert "vicinal did not write it" in refused("calibrate", "v.csv", "t.csv", "--out", "o.csv")
    assert Path("o.csv").read_text() == ROWS


def test_a_report_replaces_reports_only() -> None:
    Path("page.html").write_text("<html>my page</html>")
    assert "--report page.html exists, and vicinal" in refused("evaluate", "v.csv", "--report", "page.html")
    assert Path("page.html").read_text() == "<html>my page</html>"
    vicinal("evaluate", "v.csv", "--report", "page.html", "--overwrite")
    vicinal("evaluate", "v.csv", "--report", "page.html")
    os.mkfifo("pipe.html")
    assert "is a device or a pipe" in refused("evaluate", "v.csv", "--report", "pipe.html")


def test_the_files_of_a_run_are_inputs(trained: Path, table: Path) -> None:
    weights = trained / "model.safetensors"
    before = weights.read_bytes()
    for place in (trained / "predictions.parquet", table):
        said = refused("predict", trained, table, "--out", place, "--overwrite")
        assert "is an input of this command" in said
    said = refused("export", trained, "--out", weights, "--overwrite")
    assert "is an input of this command" in said
    assert weights.read_bytes() == before
    os.link(weights, "linked.onnx")
    assert "is an input of this command" in refused("export", trained, "--out", "linked.onnx", "--overwrite")


def test_the_home_is_known_whoever_expands_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for words in (
        ["v.csv", "t.csv", "--out", "~/v.csv"],
        ["~/v.csv", "t.csv", "--out", "v.csv"],
        ["v.csv", "t.csv", "--out", "o.csv", "--save", "~/v.csv"],
    ):
        assert "is an input of this command" in refused("calibrate", *words, "--overwrite")
    same = refused("calibrate", "v.csv", "t.csv", "--out", "o.json.csv", "--save", "~/o.json.csv")
    assert "are the same file" in same
    assert Path("v.csv").read_text() == ROWS
    vicinal("calibrate", "v.csv", "t.csv", "--out", "o.csv", "--save", "~/how.json")
    assert Path("how.json").exists()


def test_the_data_of_a_run_are_an_input_of_its_audit(trained: Path, table: Path) -> None:
    before = table.read_bytes()
    assert "is an input of this command" in refused("audit", trained, "--out", table, "--overwrite")
    assert table.read_bytes() == before


@pytest.mark.parametrize("words", [["--pretrained", "w.html"], ["--model-option", "vectors=w.html"]])
def test_weights_and_vectors_to_start_from_are_inputs(words: list[str]) -> None:
    Path("w.html").write_text("mine")
    said = refused("train", "v.csv", *words, "--report", "w.html", "--overwrite")
    assert "is an input of this command" in said


def test_a_comparison_writes_nothing_to_a_foreign_folder(table: Path) -> None:
    Path("q").mkdir()
    Path("q/thesis.txt").write_text("mine")
    methods = ("--method", "ERM()", "--method", "Mixup(alpha=0.2)")
    assert "not a comparison" in refused("compare", table, "--target", "kind", *methods, "--out", "q")
    assert [path.name for path in Path("q").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["t19-fig5.json", "runs/t19-fig5.html"])
def test_a_recipe_replaces_its_own_results_only(name: str) -> None:
    Path("q/runs").mkdir(parents=True)
    Path("rules").write_text("mine")
    Path("q/runs/.gitignore").symlink_to(Path("rules").resolve())
    Path("q", name).write_text('{"mine": 1}')
    command = ("reproduce", "t19-fig5", "--seeds", "1", "--only", "α = 0.1", "--workers", "1", "--out", "q")
    assert "vicinal did not write it" in refused(*command)
    assert Path("q", name).read_text() == '{"mine": 1}'
    vicinal(*command, "--overwrite")
    written = Path("q", name).read_text()
    assert written != '{"mine": 1}'
    vicinal(*command)  # what it wrote itself
    assert Path("rules").read_text() == "mine"
    if name.endswith(".json"):  # and is no calibrator
        said = refused("calibrate", "v.csv", "t.csv", "--out", "o.csv", "--save", Path("q", name))
        assert "vicinal did not write it" in said


def test_a_command_may_stand_alone() -> None:
    assert "Mixup" in vicinal("methods").out


@pytest.mark.parametrize("encoding", ["punycode", "idna", "undefined", "rot13"])
def test_codecs_that_are_not_of_text_are_refused(encoding: str) -> None:
    assert f"--encoding {encoding} is not known" in refused("evaluate", "v.csv", "--encoding", encoding)


def test_names_that_are_looked_for_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern stands for its files, and a name may lie below the root of the data."""
    Path("data").mkdir()
    Path("data/d.csv").write_text("x")
    for name, root in (("d.csv", "data"), ("data/*.csv", None)):
        with pytest.raises(ValueError, match="is an input"):
            check_outputs({"--out": Path("data/d.csv")}, [name], overwrite=True, data_root=root)
    monkeypatch.setenv("VICINAL_DATA", "data")
    with pytest.raises(ValueError, match="is an input"):
        check_outputs({"--out": Path("data/d.csv")}, ["d.csv"], overwrite=True)
    check_outputs({"--out": Path("data/new.csv"), "--save": None}, ["d.csv", "digits"], overwrite=False)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz"])
def test_formulas_are_quoted_where_that_is_asked_for(suffix: str) -> None:
    classes = ["=1+1", "-2", "@x", "+3", "plain"]
    columns = {"file": ["=cmd|' /C calc'!A0", "a-b.png", "-1", "\ttab", None], "=n": [1, -2, 3, -4, 5]}
    probs = [[0.6 if i == k else 0.1 for k in range(5)] for i in range(5)]
    separator = "\t" if suffix == ".tsv" else ","
    safe, plain = f"safe{suffix}", f"plain{suffix}"
    write(safe, classes, [(columns, probs)], safe_csv=True)
    write(plain, classes, [(columns, probs)])
    frame = pd.read_csv(safe, sep=separator)
    assert frame["file"].tolist()[:4] == ["'=cmd|' /C calc'!A0", "a-b.png", "'-1", "'\ttab"]
    assert frame["prediction"].tolist() == ["'=1+1", "'-2", "'@x", "'+3", "plain"]
    assert frame["'=n"].tolist() == columns["=n"]  # numbers are no formulas
    assert pd.read_csv(plain, sep=separator)["prediction"].tolist() == classes


def test_safe_csv_in_the_commands() -> None:
    text = ROWS.replace("prob_a", "prob_=a").replace("\na,", "\n=a,")
    for name in ("v.csv", "t.csv"):
        Path(name).write_text(text)
    vicinal("calibrate", "v.csv", "t.csv", "--out", "o.csv", "--safe-csv")
    frame = pd.read_csv("o.csv")
    assert set(frame["label"]) == {"'=a", "b"}
    assert set(frame["prediction"]) == {"'=a", "b"}


def test_a_link_that_leads_nowhere_is_no_output(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("nowhere.csv")
    with pytest.raises(ValueError, match=r"--out .*link.csv is a link to 'nowhere.csv', which is not there"):
        check_outputs({"--out": tmp_path / "link.csv"}, [], overwrite=False)
