"""What is run next: steps by gain and cost, and a schedule to its end."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from tests.papers.tiny import ERM, MIXUP, RECIPE
from vicinal.papers import scheduling
from vicinal.papers.claims import UNDECIDED
from vicinal.papers.execute import plan, reproduce
from vicinal.papers.results import Result
from vicinal.runs.scheduler import Pool


@pytest.fixture
def tiny(monkeypatch):
    at = dataclasses.replace(RECIPE.scales["cpu"], looks=(2, 3), seeds=range(1000, 1002))
    recipe = dataclasses.replace(RECIPE, scales={**RECIPE.scales, "cpu": at})
    monkeypatch.setattr(scheduling, "get", lambda name: recipe)
    return recipe


def test_the_next_step_has_the_rows_of_undecided_claims(tiny, tmp_path):
    step = scheduling.next_step(["tiny"], "cpu", tmp_path)
    assert step.recipe == "tiny"
    assert {key[-1] for key in step.rows} == {ERM, MIXUP}
    declared = 2 * 60 * tiny.scales["cpu"].minutes
    assert step.seconds == pytest.approx(declared * step.look / 2)


def test_a_later_look_costs_more_and_decides_more(tiny, tmp_path):
    first, second = scheduling._steps(scheduling._State.read("tiny", "cpu", tmp_path))
    assert (first.look, second.look) == (2, 3)
    assert second.seconds == pytest.approx(1.5 * first.seconds)
    assert second.decisions > first.decisions
    assert second.gain > second.decisions  # one of the claims is primary


def test_costs_are_those_measured(tiny, tmp_path):
    result = reproduce(plan("tiny", tiny, "cpu", tmp_path), Pool(workers=1), progress=False)
    state = scheduling._State.read("tiny", "cpu", tmp_path)
    key = result.cells[0].key
    assert state.seconds(key) == pytest.approx(np.mean([cell.seconds for cell in result.of(key)]))


def test_a_schedule_ends_when_nothing_is_undecided_or_worth_it(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(scheduling, "_FEWEST_DECISIONS", 0.0)
    said: list[str] = []
    wanted = dataclasses.replace(plan("tiny", tiny, "cpu", tmp_path), slices={"digits": "2 of 3 samples"})
    where = scheduling.until_decided([wanted], Pool(workers=1), hours=1, progress=False, say=said.append)
    assert Result.read(wanted.file).settings["slices"] == wanted.slices
    state = scheduling._State.read("tiny", "cpu", tmp_path)
    assert all(one.look == 3 for one in state.verdicts if one.verdict == UNDECIDED)
    assert where.claims == 2
    assert where.hours > 0
    assert "next: tiny to" in said[0]
    assert "are expected to decide" in said[-1]


def test_nothing_begins_after_the_deadline(tiny, tmp_path):
    wanted = plan("tiny", tiny, "cpu", tmp_path)
    result = reproduce(wanted, Pool(workers=1), progress=False, deadline=time.time() - 1)
    assert result.cells == []
    assert result.failures == {}
    assert plan("tiny", tiny, "cpu", tmp_path).left == 8


def test_a_schedule_gives_up_a_recipe_that_fails(tiny, tmp_path, monkeypatch):
    def failing(trained, settings, seed):
        raise ValueError("no such luck")

    broken = dataclasses.replace(tiny, measure=failing)
    wanted = plan("tiny", broken, "cpu", tmp_path)  # the recipe of the plan, with its hardware, is what runs
    monkeypatch.setattr(scheduling, "_FEWEST_DECISIONS", 0.0)
    said: list[str] = []
    scheduling.until_decided([wanted], Pool(workers=1), hours=1, progress=False, say=said.append)
    assert any("no such luck" in line for line in said)
