"""`vicinal reproduce`: the list, a plan, a run, mistakes."""

from __future__ import annotations

import json
import re

from tests.cli.running import refused, vicinal
from vicinal.papers import Result, names


def test_the_list() -> None:
    said = vicinal("reproduce").out
    events = vicinal("reproduce", "--json").events("recipe")
    assert [event["name"] for event in events] == list(names())
    for event in events:
        assert event["name"] in said
        assert set(event["minutes"]) == {"cpu", "night", "paper"}
        assert event["verdicts"] == {}
    assert "verdicts" not in said


def test_a_dry_run_runs_nothing(tmp_path) -> None:
    said = vicinal("reproduce", "t19-fig5", "z18-fig3", "--dry-run", "--seeds", 2, "--out", tmp_path / "out").out
    assert "t19-fig5 at cpu scale: 12 cells (0 done), 0 trainings" in said
    # Ten minutes for five seeds.
    assert "z18-fig3 at cpu scale: 8 cells (0 done), 8 trainings; about 4 min for what is not done" in said
    assert "CIFAR-10 · PreAct ResNet-10 · ERM(), seed 1001" in said
    assert not (tmp_path / "out").exists()
    plan = vicinal("reproduce", "all", "--dry-run", "--json", "--out", tmp_path / "out").events("plan")
    assert [event["recipe"] for event in plan] == list(names())


def test_a_recipe_is_run_and_reported(tmp_path) -> None:
    out = tmp_path / "out"
    asked = ("t19-fig5", "--seeds", "1000-1004", "--only", "α = 0.1", "--only", "α = 0.2", "--workers", 1, "--out", out)
    ran = vicinal("reproduce", *asked, "--json")
    (event,) = ran.events("result")
    assert event["seeds"] == [1000, 1001, 1002, 1003, 1004]
    assert len(event["cells"]) == 10
    result = Result.read(out / "t19-fig5.json")
    assert json.loads(json.dumps(result.to_dict())) == {k: v for k, v in event.items() if k in result.to_dict()}
    verdicts = {one.claim: one.verdict for one in result.verdicts}
    assert verdicts["labels mixed with α = 0.2 have more entropy than with α = 0.1"] == "holds"
    assert list(verdicts.values()).count("not tested") == len(verdicts) - 1
    page = (out / "runs" / "t19-fig5.html").read_text()
    assert "labels mixed with α = 0.2 have more entropy" in page
    assert "data:image/png;base64," in page
    assert not re.search(r"(src|href)=\"http", page)
    again = vicinal("reproduce", *asked)
    assert "done" not in again.out.partition("T19")[0]
    assert "holds" in again.out
    (tmp_path / "results").mkdir()
    out.rename(tmp_path / "results" / "cpu")
    (event,) = [e for e in vicinal("reproduce", "--results", tmp_path / "results", "--json").events("recipe")
                if e["verdicts"]]  # fmt: skip
    assert (event["name"], event["verdicts"]["cpu"]["holds"]) == ("t19-fig5", 1)
    assert "1 holds" in vicinal("reproduce", "--results", tmp_path / "results").out


def test_mistakes(tmp_path) -> None:
    assert "did you mean 'z18-tab2'" in refused("reproduce", "z18-tab22")
    assert "--scale must be one of" in refused("reproduce", "z18-tab2", "--scale", "gpu")
    assert "--only must be part of a row's name" in refused("reproduce", "z18-tab2", "--only", "CutMix", "--dry-run")
    assert "1010-1014" in refused("reproduce", "z18-tab2", "--seeds", "few")
    for seeds in ("0", "9-8", "1000000000000", "9" * 30, f"5-{10**15}"):
        assert "1 to 10,000 seeds" in refused("reproduce", "z18-tab2", "--dry-run", "--seeds", seeds)
    assert "--pages needs --results" in refused("reproduce", "--pages", tmp_path / "docs")
    assert "there is no folder" in refused("reproduce", "--results", tmp_path / "none")
