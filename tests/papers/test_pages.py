"""The evidence in docs is what the results say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from vicinal.metrics import Estimate
from vicinal.papers import SCALES, Result, get, names, pages
from vicinal.papers.base import Data, Scale
from vicinal.papers.claims import REVERSED
from vicinal.papers.deviations import deviations, seed_varies
from vicinal.papers.execute import described, plan, reproduce
from vicinal.papers.keys import cell_key
from vicinal.papers.overview import against, overview
from vicinal.papers.page_tables import beside, claim_rows
from vicinal.papers.plots import forest
from vicinal.papers.results import CellRecord
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


def _result(name: str, scale: str = "cpu", seeds: int = 5, **values: float) -> Result:
    """Return a result whose cells all have the same metrics but for a little spread, and for `values` of some rows."""
    recipe = get(name)
    cells = []
    for n, cell in enumerate(recipe.rows(scale, range(1000, 1000 + seeds))):
        row = next((value for text, value in values.items() if cell.key[-1].startswith(text)), 0.5)
        level = row + 1e-3 * ((7 * n) % 5)
        metrics = {name: Estimate(level, level, level) for name in (*recipe.columns, "gap")}
        cells.append(CellRecord(cell.key, cell.seed, cell_key(cell)[:16], "", 60.0, metrics))
    result = Result(name, scale, tuple(range(1000, 1000 + seeds)), described(recipe, scale), cells, (), {})
    return dataclasses.replace(result, verdicts=result.judged(recipe.claims(recipe.scales[scale])))


def test_the_overview_counts_verdicts_and_says_what_goes_against_a_paper():
    found = {("z18-fig3", "cpu"): _result("z18-fig3", ERM=0.2, Mixup=0.6), ("t19-fig2", "cpu"): _result("t19-fig2")}
    verdicts = [one for result in found.values() for one in result.verdicts]
    text = overview(found)
    assert text.startswith("# Evidence")
    assert f"{len(verdicts)} claims have results" in text
    reversed_ = [one.claim for one in verdicts if one.verdict == REVERSED]
    assert reversed_
    assert len(against(found)) == len(reversed_)
    for claim in reversed_:
        assert f"“{claim}” is reversed. The effect is −40" in text
    assert text.count(f"**{REVERSED}**") == len(reversed_)
    assert "![Effects of the primary claims, with their intervals](evidence/overview.png)" in text
    assert text.index("overview.png") < text.index("## All claims")
    for name in names():
        assert f"evidence/{name}.md" in text
    assert "Nothing has been run yet" in overview({})


def test_a_page_shows_primary_claims_first_with_seeds_cost_and_what_is_needed():
    result = _result("z18-tab4", seeds=25)
    rows = claim_rows(result)
    families = [row[1] for row in rows]
    assert families == sorted(families)
    needs = {key for key, _ in next(iter(get("z18-tab4").claims(get("z18-tab4").scales["cpu"]))).needs}
    assert rows[0][4:6] == ["25", f"{len(needs) * 25 / 60:.1f} h"]  # a minute for each cell
    undecided = [row for row in rows if row[6] == "undecided"]
    assert all("needs" in row[7] or "no look" in row[7] for row in undecided)
    early = claim_rows(_result("z18-tab4", seeds=3))
    assert early[0][4] == "3 (before the first look)"
    assert "needs 25 seeds" in early[0][7]


def test_paper_and_here_stand_side_by_side_in_one_unit():
    heads, rows = beside(get("l22-tab1"), _result("l22-tab1"))
    assert heads[:4] == ["here", "in the paper", "error (%): paper", "here"]
    mixup = next(row for row in rows if row[1] == "Mixup: mix")
    assert mixup[2] == "20.18 ± 0.08"  # an accuracy of 79.82 % in the paper
    assert mixup[3].startswith("50.")
    _, rows = beside(get("w21-tab2"), _result("w21-tab2"))
    assert rows[0][1:3] == ["IMDb, 32 examples, Base", "31.8 ± 1.6"]
    assert rows[0][4] == "1.8 ± 0.19"  # a loss of 180, which the paper multiplies by 100
    heads, rows = beside(get("t19-fig2"), _result("t19-fig2"))
    assert "in the paper" not in heads  # the paper prints no numbers
    assert len(rows[0]) == len(heads)


@pytest.mark.parametrize("name", [name for name in names() if get(name).printed is not None])
def test_the_papers_numbers_are_where_recipes_look_for_them(name):
    """Every number of the paper is beside a row at paper scale, but for means that stand beside smaller scales."""
    recipe = get(name)
    every = {(row, column) for row, values in recipe.published.items() for column in values}
    every = {place for place in every if "mean of the five" not in " ".join(place)}
    found = set()
    for cell in recipe.rows_of_seed(recipe.scales["paper"], 1000):
        for metric, place in recipe.printed(cell.key).items():
            assert metric in recipe.columns
            found.add((place.row, place.column))
    assert every <= found


def test_deviations_are_those_of_the_settings():
    recipe = get("z18-fig3")
    found = {one.what: one[1:] for one in deviations(recipe, "cpu")}
    at = recipe.scales["cpu"]
    assert found["length of training"] == (f"{at.training['epochs']} epochs", "200 epochs")
    assert found["batch size"] == (str(at.training["batch_size"]), "128")
    assert found["learning rate"] == ("0.05", "0.1")
    assert found["training samples"] == ("1,000 (CIFAR-10), 2,000 (CIFAR-100)", "all")
    assert found["Nesterov momentum"] == ("yes", "no")
    assert "data" not in found
    assert "optimizer" not in found
    # At paper scale those are left that the recipe declares.
    assert deviations(recipe, "paper") == []
    declared = dataclasses.replace(recipe, original={"lr": 0.2})
    assert deviations(declared, "paper") == [("learning rate", "0.1", "0.2")]
    assert deviations(get("z18-tab4"), "paper") == []
    longer = dataclasses.replace(at, training={**at.training, "epochs": 200})
    changed = dataclasses.replace(recipe, scales={**recipe.scales, "cpu": longer})
    assert "length of training" not in {one.what for one in deviations(changed, "cpu")}


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("scale", SCALES)
def test_every_recipe_says_what_differs_and_what_a_seed_draws(name, scale):
    for one in deviations(get(name), scale):
        assert all(one)
        assert one.here != one.paper
    assert seed_varies(get(name).scales[scale]).startswith("A seed draws ")


def test_what_a_seed_draws_follows_from_the_data():
    whole = Data("cifar10", {"val": 0})
    assert "The data are the same" in seed_varies(Scale(seeds=[1], minutes=1, data={"a": whole}))
    assert "the test split" in seed_varies(Scale(seeds=[1], minutes=1, data={"a": Data("iris", {"val": 0})}))
    part = seed_varies(Scale(seeds=[1], minutes=1, data={"a": Data("cifar10", {"train_size": 9, "val": 0})}))
    assert "mixing and the training subset." in part
    assert "not of one fixed split" in part


def test_panels_of_one_unit_share_their_scale():
    levels = {"nll": 1.5, "ece": 0.1, "error": 0.4}
    result = _result("w21-tab2")
    metrics = {name: Estimate(level, level, level) for name, level in levels.items()}
    cells = [dataclasses.replace(cell, metrics=metrics) for cell in result.cells]
    loss, ece, error, *_ = get("w21-tab2").draw(dataclasses.replace(result, cells=cells)).axes
    assert ece.get_ylim() == error.get_ylim()
    assert loss.get_ylim() != ece.get_ylim()


def test_a_forest_plot_has_a_line_for_each_claim_that_is_tested(tmp_path):
    result = _result("z18-tab4", seeds=25)
    claims = [(one.claim, one) for one in result.verdicts]
    (ax,) = forest(claims).axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == [one.claim for one in result.verdicts if one.margin]  # counts of sets have no margin
    left, right = forest(claims, columns=2, seeds=False).axes
    assert len(left.get_yticklabels()) + len(right.get_yticklabels()) == len(labels)
    assert left.get_xlim() == right.get_xlim()


def test_a_result_that_is_added_or_removed_takes_one_run_of_the_command(tmp_path):
    results, docs = tmp_path / "results", tmp_path / "docs"
    _result("t19-fig5").write(results / "cpu")
    pages.write(results, docs)
    assert pages.stale(results, docs) == []
    _result("z18-fig3").write(results / "cpu")
    assert {"evidence.md", "evidence/z18-fig3.md", "evidence/overview.png"} <= set(pages.stale(results, docs))
    pages.write(results, docs)
    assert pages.stale(results, docs) == []
    (results / "cpu" / "t19-fig5.json").unlink()
    pages.write(results, docs)
    assert pages.stale(results, docs) == []
    assert not (docs / "evidence" / "t19-fig5.png").exists()


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
