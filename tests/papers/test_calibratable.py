"""Calibration and refinement on the recipes' pages, and what they answer."""

from __future__ import annotations

import dataclasses

import pytest
from scipy.stats import ttest_rel

from vicinal.metrics import Estimate
from vicinal.papers import Result, calibratable, get
from vicinal.papers.results import CellRecord

ERM, MIXUP = (("Abalone", "MLP 2 × 128", name) for name in ("ERM()", "Mixup(alpha=0.2)"))
NAME = "nll refinement"


def of(refinements: dict[tuple[str, ...], list[float | None]]) -> Result:
    """Return a result of z18-tab4 with these refinement parts, seed by seed."""
    cells = [
        CellRecord(key, seed, "", "", 1.0, {"nll": point(0.5)} | ({} if value is None else {NAME: point(value)}))
        for key, values in refinements.items()
        for seed, value in enumerate(values)
    ]
    return Result("z18-tab4", "cpu", (0, 1, 2), {}, cells, (), {})


def point(value: float) -> Estimate:
    return Estimate(value, value, value)


@pytest.mark.parametrize(
    ("mixup", "answer"),
    [((0.52, 0.54, 0.50), "**yes**"), ((0.39, 0.4, 0.38), "**no, more**"), ((0.4, 0.54, 0.42), "not significant")],
)
def test_a_method_is_less_calibratable_where_more_is_left_after_calibration(mixup, answer):
    plain = (0.42, 0.44, 0.41)
    result, recipe = of({ERM: list(plain), MIXUP: list(mixup)}), get("z18-tab4")
    gap = calibratable.refinement_gap(recipe, result, MIXUP)
    wanted = ttest_rel(mixup, plain).confidence_interval()
    assert (gap.low, gap.high) == pytest.approx((wanted.low, wanted.high))
    page = "\n".join(calibratable.section(recipe, result))
    assert page.count(answer) == 1
    assert "–" in page  # what was not measured is a dash


def test_seeds_are_paired_and_one_is_too_few():
    recipe = get("z18-tab4")
    for mixup in ([0.5, None, None], [None, None, None]):
        assert calibratable.refinement_gap(recipe, of({ERM: [0.4, 0.4, None], MIXUP: mixup}), MIXUP) is None
    gap = calibratable.refinement_gap(recipe, of({ERM: [0.4, None, 0.3], MIXUP: [0.5, 9.0, 0.5]}), MIXUP)
    assert gap.value == pytest.approx(0.15)


def test_a_table_says_that_its_parts_were_not_measured_and_one_without_losses_says_nothing():
    recipe, result = get("z18-tab4"), of({ERM: [None], MIXUP: [None]})
    assert "–. These cells" in "\n".join(calibratable.section(recipe, result))
    bare = dataclasses.replace(result, cells=[dataclasses.replace(cell, metrics={}) for cell in result.cells])
    assert not list(calibratable.section(recipe, bare))
