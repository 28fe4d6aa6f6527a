"""A recipe from data to result: run, killed and resumed, judged, added to, read again."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.papers.tiny import ERM, MIXUP, RECIPE
from vicinal.metrics import Estimate
from vicinal.metrics.intervals import over_seeds
from vicinal.papers.execute import Clock, check_data, further_seeds, jobs_left, plan, reproduce
from vicinal.papers.results import DECIDING, CellRecord, Result, commit, packed
from vicinal.runs.scheduler import Pool

KEY = ("digits", "MLP", ERM)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    out = tmp_path_factory.mktemp("tiny")
    said: list[str] = []
    result = reproduce(plan("tiny", RECIPE, "cpu", out), Pool(workers=1), progress=False, on_job=said.append)
    return out, result, said


def comparable(result: Result):
    return [(cell.key, cell.seed, cell.metrics) for cell in result.cells]


def test_a_result_has_every_cell_and_verdict(ran):
    out, result, said = ran
    assert len(result.cells) == 4
    assert result.seeds == (1000, 1001)
    assert [one.claim for one in result.verdicts] == ["mixup lowers the error", "mixup lowers the ECE"]
    assert not result.failures
    assert len(said) == 8
    assert said[-1].endswith("8 of 8, 0 s left")
    assert 0 < result.values(KEY, "error")[0] < 1
    assert (out / "runs" / ".gitignore").read_text() == "*\n"


def test_a_result_is_read_as_it_was_written(ran):
    out, result, _ = ran
    again = Result.read(out / "tiny.json")
    assert again.to_dict() == result.to_dict()
    assert again.judged(RECIPE.claims(RECIPE.scales["cpu"])) == list(result.verdicts)
    assert (out / "tiny.json").stat().st_size < 20_000


def test_what_is_done_is_skipped(ran):
    out, result, _ = ran
    again = plan("tiny", RECIPE, "cpu", out)
    assert again.left == 0
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.safetensors")}
    assert before
    assert comparable(reproduce(again, Pool(workers=1), progress=False)) == comparable(result)
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.safetensors")} == before


def test_the_same_seeds_give_the_same_figures_and_others_do_not(ran, tmp_path):
    _, result, _ = ran
    wanted = plan("tiny", RECIPE, "cpu", tmp_path, seeds=[1001], only=["Mixup"])
    ((key, seed, metrics),) = comparable(reproduce(wanted, Pool(workers=1), progress=False))
    assert (key[-1], seed) == (MIXUP, 1001)
    assert metrics == next(cell.metrics for cell in result.cells if cell.key == key and cell.seed == 1001)
    assert metrics != next(cell.metrics for cell in result.cells if cell.key == key and cell.seed == 1000)


def test_seeds_are_added_and_cells_are_neither_trained_again_nor_lost(ran, tmp_path):
    """Without the folders of the runs, a committed result is all there is."""
    out, result, _ = ran
    shutil.copy(out / "tiny.json", tmp_path)
    assert further_seeds("tiny", tmp_path, 2) == range(1002, 1004)
    more = plan("tiny", RECIPE, "cpu", tmp_path, seeds=[1001, 1002])
    assert more.left == 4  # two trainings and two cells of the new seed
    both = reproduce(more, Pool(workers=1), progress=False)
    assert both.seeds == (1000, 1001, 1002)
    before = {(cell.key, cell.seed): cell for cell in result.cells}
    assert all(before.get((cell.key, cell.seed), cell) == cell for cell in both.cells)
    assert len(both.cells) == 6
    assert Result.read(tmp_path / "tiny.json").to_dict() == both.to_dict()


def test_recipes_share_cells(ran, tmp_path):
    out, result, _ = ran
    shutil.copy(out / "tiny.json", tmp_path)
    again = reproduce(plan("again", RECIPE, "cpu", tmp_path), Pool(workers=1), progress=False)
    assert comparable(again) == comparable(result)
    assert not list(tmp_path.glob("runs/digits*"))


@pytest.mark.parametrize("what", DECIDING)
def test_cells_of_another_environment_are_refused(ran, tmp_path, what):
    _, result, _ = ran
    dataclasses.replace(result, environment={**result.environment, what: "other"}).write(tmp_path)
    with pytest.raises(ValueError, match=f"were run with {what} other, here it is .*: move .* away"):
        plan("tiny", RECIPE, "cpu", tmp_path)


def test_cells_of_other_settings_are_refused(ran, tmp_path):
    out, _, _ = ran
    shutil.copy(out / "tiny.json", tmp_path)
    longer = dataclasses.replace(RECIPE.scales["cpu"], training={**RECIPE.scales["cpu"].training, "epochs": 3})
    changed = dataclasses.replace(RECIPE, scales={**RECIPE.scales, "cpu": longer})
    with pytest.raises(ValueError, match=r"seed 1000 of .* has other settings: move"):
        plan("tiny", changed, "cpu", tmp_path)


def test_a_cell_says_what_it_cost_and_what_ran_it(ran):
    _, result, _ = ran
    assert all(cell.seconds > 0 for cell in result.cells)
    assert len({cell.id for cell in result.cells}) == 4
    assert {cell.commit for cell in result.cells} == {commit()}
    assert result.environment["cpu"]


def test_only_names_rows(tmp_path):
    with pytest.raises(ValueError, match="only must be part of a row's name, got 'CutMix'; there are"):
        plan("tiny", RECIPE, "cpu", tmp_path, only=["CutMix"])


@pytest.mark.slow
def test_a_killed_recipe_resumes_to_the_same_figures(ran, tmp_path):
    _, result, _ = ran
    root = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    call = [sys.executable, "-m", "tests.papers.tiny", str(tmp_path)]
    process = subprocess.Popen(call, cwd=root, env=environment, start_new_session=True)
    try:
        while not list(tmp_path.glob("runs/*/evaluation.json")):  # one training is done, others are not
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "tiny.json").exists()
    left = plan("tiny", RECIPE, "cpu", tmp_path)
    assert 0 < left.left < 8
    again = reproduce(left, Pool(workers=1), progress=False)
    while any("is in use" in error for error in again.failures.values()):  # a worker that has not noticed yet
        time.sleep(0.2)
        again = reproduce(plan("tiny", RECIPE, "cpu", tmp_path), Pool(workers=1), progress=False)
    assert comparable(again) == comparable(result)


def test_missing_data_are_said_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.delenv("VICINAL_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    from vicinal.papers import get

    wanted = plan("z18-tab3", get("z18-tab3"), "paper", tmp_path)
    with pytest.raises((ValueError, OSError), match=r"z18-tab3 needs imagenet, imagenet/train and imagenet/val"):
        check_data([wanted])
    assert not (tmp_path / "runs").exists()


def test_other_images_that_are_missing_are_said_before_anything_runs(monkeypatch):
    from vicinal.papers import get, t19_tab1_fig8

    def absent(source):
        raise FileNotFoundError(f"{source} is not there")

    monkeypatch.setattr(t19_tab1_fig8, "load", absent)
    recipe = get("t19-tab1-fig8")
    with pytest.raises(FileNotFoundError, match="t19-tab1-fig8 needs cifar10: cifar10 is not there"):
        recipe.check(recipe.scales["cpu"])


def test_a_training_that_two_recipes_need_counts_once(tmp_path):
    one, two = (plan(name, RECIPE, "cpu", tmp_path) for name in ("tiny", "again"))
    assert (one.left, two.left) == (8, 8)
    assert jobs_left([one, two]) == 12


def test_what_is_left_costs_its_share(ran, tmp_path):
    out, _, _ = ran
    assert plan("tiny", RECIPE, "cpu", out).minutes == 0
    assert plan("tiny", RECIPE, "cpu", tmp_path).minutes == RECIPE.scales["cpu"].minutes
    assert plan("tiny", RECIPE, "cpu", tmp_path, seeds=[7], only=["Mixup"]).minutes == RECIPE.scales["cpu"].minutes / 4


def test_a_failing_cell_is_reported_and_the_others_go_on(tmp_path, monkeypatch):
    from vicinal.papers import images

    def failing(trained, settings, seed):
        if seed == 1001:
            raise ValueError("no such luck")
        return images.selected(trained, settings, seed)

    result = reproduce(
        plan("tiny", dataclasses.replace(RECIPE, measure=failing), "cpu", tmp_path), Pool(workers=1), progress=False
    )
    assert len(result.cells) == 2
    assert len(result.failures) == 2
    assert all("no such luck" in error for error in result.failures.values())


def test_records_keep_seven_digits_and_intervals():
    metrics, curves = packed({"a": 1 / 3, "b": Estimate(0.123456789, 0.1, 0.2), "c": [1 / 3, [2 / 3]]})
    assert metrics["a"] == Estimate(0.3333333, 0.3333333, 0.3333333)
    assert curves == {"c": [0.3333, [0.6667]]}
    record = CellRecord(("x", "y"), 3, "00ff", "", 1.25, metrics, curves)
    assert CellRecord.from_dict(record.to_dict()).metrics == metrics


def test_the_mean_over_seeds_has_a_t_interval():
    from scipy import stats

    values = [0.1, 0.2, 0.15, 0.12]
    low, high = stats.t.interval(0.95, 3, loc=sum(values) / 4, scale=stats.sem(values))
    estimate = over_seeds([Estimate(v, v, v) for v in values], other_samples=False)
    assert (estimate.low, estimate.high) == pytest.approx((low, high))
    assert over_seeds([Estimate(0.1, 0.05, 0.2)]) == Estimate(0.1, 0.05, 0.2)


def test_the_clock_knows_what_is_left(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock(10)
    now[0] = 120.0
    assert clock.tick() == "1 of 10, 18 min left"
