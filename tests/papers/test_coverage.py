"""What the papers print is covered by a recipe at paper scale, or a reason says why not."""

from __future__ import annotations

from tests.cli.running import vicinal
from vicinal.papers import get, names
from vicinal.papers.base import Reported
from vicinal.papers.coverage import Part, panel, parts, table, uncovered

#: Rows beside which cells below paper scale stand, and numbers that the paper tells in prose or prints elsewhere.
NO_PARTS = ("mean of the five networks", "Vanilla (Table 2)")


def test_nothing_is_uncovered_without_a_reason():
    every = parts()
    assert uncovered(every) == []
    assert len(every) == len(set(every))
    assert all(bool(part.recipe) != bool(part.reason) for part in every)
    assert {part.paper for part in every} == {"Z18", "T19", "L22", "P22", "W21"}
    assert set(names()) - {part.recipe for part in every} == {"p22-vanilla"}  # other people's runs of two rows


def test_every_number_of_the_papers_is_listed():
    listed = {(part.recipe, part.row, part.column) for part in parts()}
    quoted = {(part.row, part.column) for part in parts() if part.reason.startswith("quoted by the paper")}
    for name in set(names()) - {"p22-vanilla", "l22-sec5-4"}:
        for row, numbers in get(name).published.items():
            for column, number in numbers.items():
                is_part = isinstance(number, float) and not any(text in row for text in NO_PARTS)
                if is_part and (name, column) != ("l22-tab4", "OE"):  # Table 2's
                    assert (name, row, column) in listed or (row, column) in quoted


def test_a_row_a_metric_or_a_recipe_that_is_not_there_is_found_out():
    good = [
        *table("Z18 Table 4", "z18-tab4", ["Iris"], ["ERM"]),
        *panel("Z18 Figure 3b", "z18-fig3", ["CIFAR-10"], ["course"]),
    ]
    assert uncovered(good) == []
    bad = [
        *table("Z18 Table 4", "z18-tab4", ["Wine"], ["ERM"]),
        *table("Z18 Table 4", "z18-tab4", ["Iris"], ["median"]),
        *panel("Z18 Figure 3b", "z18-fig3", ["CIFAR-1000"], ["course"]),
        *panel("Z18 Figure 3b", "z18-fig3", ["CIFAR-10"], ["heat"]),
        Part("Z18", "Table 9", "row", "column"),
    ]
    assert uncovered(bad) == bad


def test_deviations_are_kept_with_their_numbers():
    for name, n in (
        ("w21-tab2", 24),
        ("w21-tab3", 24),
        ("w21-tab4-fig2", 24),
        ("w21-tab5", 7),
        ("l22-tab1", 6),
        ("p22-tab1-2", 288),
    ):
        published = [number for row in get(name).published.values() for number in row.values()]
        assert sum(isinstance(number, Reported) for number in published) == n == len(published)
    assert get("p22-tab1-2").published["RoBERTa, SWAG → HellaSWAG, Ours + LS"]["ECE, other domain"].deviation == 0.9


def test_the_command_lists_it():
    every = vicinal("reproduce", "--coverage", "--json").events("part")
    assert len(every) == len(parts())
    assert all(event["recipe"] or event["reason"] for event in every)
