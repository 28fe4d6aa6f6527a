"""Permutation importance: what matters, what does not, what is dropped."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vicinal.report import write_run
from vicinal.report.verdicts import judge_run
from vicinal.runs import Experiment, permutation_importance, run


def test_the_column_that_decides_matters_and_a_random_one_does_not(tmp_path) -> None:
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"decides": rng.normal(size=400), "random": rng.normal(size=400), "constant": 1})
    x["y"] = np.where(x["decides"] + 0.3 * rng.normal(size=400) > 0, "yes", "no")
    x.to_csv(tmp_path / "rows.csv", index=False)
    training = {"epochs": 8, "trackers": []}
    experiment = Experiment(source=str(tmp_path / "rows.csv"), data={"target": "y"}, training=training, model="mlp")
    result = run(experiment, tmp_path / "run", progress=False)
    found = {one.column: one.nll for one in permutation_importance(result)}
    assert next(iter(found)) == "decides"
    assert found["decides"].low > 0
    assert found["random"].low <= 0.05 < found["decides"].value
    assert found.get("constant", "dropped") is None  # a column without information is dropped, and said to be
    again = {one.column: one.nll for one in permutation_importance(result)}
    assert again == found
    # Slices of the run are kept with it, and those of a named column are measured again.
    assert any(one.name.startswith("decides") for one in result.run.slices())
    named = result.run.slices(["random"])
    assert {one.name.split()[0] for one in named} == {"random"}
    assert sum(one.n for one in named) == result.test.after.n


def test_a_leak_is_in_every_verdict_on_a_run(tmp_path) -> None:
    rng = np.random.default_rng(0)
    y = rng.random(600) < 0.4
    refund = y + 0.27 * rng.normal(size=600)  # not so near that the data warn of it
    frame = pd.DataFrame({"refund": refund, "age": rng.normal(size=600), "y": np.where(y, "yes", "no")})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    training = {"epochs": 15, "trackers": []}
    experiment = Experiment(source=str(tmp_path / "rows.csv"), data={"target": "y"}, training=training, model="mlp")
    result = run(experiment, tmp_path / "run", progress=False)
    assert judge_run(result).leakage.status == "unknown"  # nothing was measured
    write_run(result, tmp_path / "report.html")  # which measures it and keeps it
    said = judge_run(result).leakage
    assert (said.status, said.columns) == ("leak", ("refund",))
    assert "Nearly all information is in the column" in (tmp_path / "report.html").read_text()
    (tmp_path / "rows.csv").unlink()
    write_run(result, tmp_path / "again.html")
    assert "Nearly all information is in the column" in (tmp_path / "again.html").read_text()
    result.run.files.importance.write_text("{}")
    with pytest.warns(UserWarning, match=r"importance\.json is damaged and ignored"):
        assert judge_run(result).leakage.status == "unknown"
