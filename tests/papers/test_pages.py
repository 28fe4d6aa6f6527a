"""The evidence in docs is what the results say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from vicinal.metrics import Estimate
from vicinal.papers import SCALES, Result, get, names, pages
from vicinal.papers.claims import HOLDS
from vicinal.papers.keys import cell_key
from vicinal.papers.results import CellRecord
from vicinal.papers.running import described, plan, reproduce
from vicinal.runs.scheduler import Pool

ROOT = Path(__file__).parents[2]
#: Pilots, which are never merged, have a form of their own.
RESULTS = sorted(path for scale in SCALES for path in (ROOT / "results" / scale).glob("*.json"))


def test_pages_are_up_to_date():
    assert pages.stale(ROOT / "results", ROOT / "docs") == [], "run `make evidence`"


def _said(setting):
    """Return a setting without the fields that say nothing, which a result of before may not have."""
    if not isinstance(setting, dict):
        return setting
    return {
        name: {part: v for part, v in value.items() if v} if isinstance(value, dict) else value
        for name, value in setting.items()
    }


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_committed_results_are_those_of_the_recipe(path):
    result = Result.read(path)
    recipe = get(path.stem)
    assert (result.recipe, result.scale) == (path.stem, path.parent.name)
    wanted = {(cell.key, cell.seed): cell_key(cell) for cell in recipe.rows(result.scale, result.seeds)}
    assert result.cells
    for cell in result.cells:
        assert wanted[cell.key, cell.seed].startswith(cell.id)
    assert not result.failures
    asked = described(recipe, result.scale)
    for part, setting in result.settings.items():
        assert _said(setting) == _said(asked[part]), f"{part} is not what the recipe says now"
    judged = result.judged(recipe.claims(recipe.scales[result.scale]))
    assert [one.to_dict() for one in judged] == [one.to_dict() for one in result.verdicts]
    assert path.stat().st_size < 500_000


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_part_of_a_result_can_be_drawn(path):
    result, draw = Result.read(path), get(path.stem).draw
    last = [cell for cell in result.cells if cell.key == result.keys[-1]]
    others = [cell for cell in result.cells if cell.seed != result.seeds[0]]  # its seed kept what only the figure shows
    for cells in (last, others):
        if cells:
            assert draw(dataclasses.replace(result, cells=cells)).axes


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_legend_of_a_figure_fits_into_it(path):
    drawn = get(path.stem).draw(Result.read(path))
    drawn.draw_without_rendering()
    for legend in drawn.legends:
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= drawn.bbox.width


def test_a_changed_result_makes_its_pages_stale(tmp_path):
    (tmp_path / "results" / "cpu").mkdir(parents=True)
    wanted = plan("t19-fig5", get("t19-fig5"), "cpu", tmp_path / "results" / "cpu")
    result = reproduce(wanted, Pool(workers=1), progress=False)
    pages.write(tmp_path / "results", tmp_path / "docs")
    assert pages.stale(tmp_path / "results", tmp_path / "docs") == []
    changed = dataclasses.replace(result.cells[0], seconds=result.cells[0].seconds + 100)
    dataclasses.replace(result, cells=[changed, *result.cells[1:]]).write(tmp_path / "results" / "cpu")
    assert f"evidence/{result.recipe}.png" in pages.stale(tmp_path / "results", tmp_path / "docs")
    (tmp_path / "docs" / "evidence" / "z99-tab1.md").write_text("left over")
    assert "evidence/z99-tab1.md" in pages.stale(tmp_path / "results", tmp_path / "docs")


def test_the_scoreboard_counts_agreement():
    found = pages.results_in(ROOT / "results")
    text = pages.scoreboard(found)
    verdicts = [one for result in found.values() for one in result.verdicts]
    assert text.startswith("# Evidence")
    if verdicts:
        assert f"Of {len(verdicts)} claims" in text
        assert text.count(f"**{HOLDS}**") == sum(one.verdict == HOLDS for one in verdicts)
    for name in names():
        assert f"evidence/{name}.md" in text


def test_a_recipe_without_results_says_so_and_what_it_costs():
    text = pages.page("z18-tab2", {})
    assert "## Not run yet" in text
    assert "vicinal reproduce z18-tab2 --scale paper" in text
    assert "| 20 %, ERM | 12.7 | 16.6 | 0.05 | 0.28 |" in text


def test_data_without_a_figure_have_no_place_in_its_panel():
    half = Estimate(0.5, 0.5, 0.5)
    both = {"SNLI": {"ece": half, "other ece": half}, "QQP": {"ece": half}}
    cells = [CellRecord((data, "MiniLM-L6", "BERT"), 1000, "", "", 1.0, of) for data, of in both.items()]
    result = Result("p22-tab1-2", "cpu", (1000,), {}, cells, (), {})
    inside, outside = get("p22-tab1-2").draw(result).axes
    assert [label.get_text().split("\n")[0] for label in inside.get_xticklabels()] == ["SNLI", "QQP"]
    assert [label.get_text().split("\n")[0] for label in outside.get_xticklabels()] == ["SNLI"]
