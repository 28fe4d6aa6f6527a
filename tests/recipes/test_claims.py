"""Claims against slow statistics, and how often they are wrong where nothing is to be found."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vicinal.metrics import Estimate
from vicinal.recipes.claims import (
    CANNOT_TELL,
    HOLDS,
    HOLDS_NOT,
    NOT_TESTED,
    AtLeast,
    Claim,
    figure,
    highest,
    holm,
    judge,
    lowest,
    trend,
)


def exact(value: float) -> Estimate:
    return Estimate(value, value, value)


def table(**rows):
    """Figures of cells from lists of values, one a seed: `erm=[...]` is the figure "x" of the cell ("erm",)."""
    return {(name,): {s: {"x": exact(v)} for s, v in enumerate(values)} for name, values in rows.items()}


GAIN = figure("x", "erm") - figure("x", "mixup")


def one(claim, figures):
    (judged,) = judge([claim], figures)
    return judged


def test_a_contrast_is_the_paired_t_test_of_scipy():
    rng = np.random.default_rng(0)
    erm, mixup = rng.normal(0.3, 0.02, 6), rng.normal(0.27, 0.02, 6)
    judged = one(Claim(text="", contrast=GAIN), table(erm=erm, mixup=mixup))
    test = stats.ttest_rel(erm, mixup)
    interval = test.confidence_interval(0.95)
    assert judged.effect == pytest.approx(np.mean(erm - mixup))
    assert (judged.low, judged.high) == pytest.approx((interval.low, interval.high))
    assert judged.p == pytest.approx(test.pvalue)
    assert judged.n_seeds == 6


@pytest.mark.parametrize(
    ("differences", "margin", "verdict"),
    [
        ([0.05, 0.06, 0.055, 0.05], 0.0, HOLDS),
        ([-0.05, -0.06, -0.055, -0.05], 0.0, HOLDS_NOT),
        ([0.05, -0.06, 0.055, -0.05], 0.0, CANNOT_TELL),
        ([-0.005, -0.004, -0.006, -0.005], 0.01, HOLDS),  # a loss, but less than may be lost
        ([-0.005, -0.004, -0.006, -0.005], 0.0, HOLDS_NOT),
        ([-0.05, -0.04, -0.06, -0.05], 0.01, HOLDS_NOT),
        ([0.005, 0.004, 0.006, 0.005], -0.01, HOLDS_NOT),  # must exceed a point, and does not
    ],
)
def test_verdicts(differences, margin, verdict):
    figures = table(erm=differences, mixup=[0.0] * 4)
    assert one(Claim(text="", contrast=GAIN, margin=margin), figures).verdict == verdict


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.001, -0.002, 0.0015, 0.0], HOLDS),
        ([0.05, 0.06, 0.055, 0.05], HOLDS_NOT),
        ([-0.05, -0.06, -0.055, -0.05], HOLDS_NOT),
        ([0.005, 0.02, 0.01, 0.001], CANNOT_TELL),
    ],
)
def test_hardly_differs_is_two_one_sided_tests(differences, verdict):
    claim = Claim(text="", contrast=GAIN, margin=0.01, hardly=True)
    judged = one(claim, table(erm=differences, mixup=[0.0] * 4))
    assert judged.verdict == verdict
    if verdict == HOLDS:  # the interval lies within the margin, and the p value is twice the larger of the two
        sides = [
            stats.ttest_1samp(differences, bound, alternative=side).pvalue
            for bound, side in ((-0.01, "greater"), (0.01, "less"))
        ]
        assert judged.p == pytest.approx(2 * max(sides))
        assert -0.01 < judged.low < judged.high < 0.01


def test_a_calibration_claim_needs_an_over_confident_baseline():
    claim = Claim(text="", contrast=GAIN, overconfident=("erm",))
    figures = table(erm=[0.2, 0.21, 0.22], mixup=[0.1, 0.11, 0.1])
    for gaps, tested in (([0.1, 0.12, 0.11], True), ([0.1, -0.12, 0.01], False), ([-0.1, -0.12, -0.11], False)):
        for seed, gap in enumerate(gaps):
            figures[("erm",)][seed]["gap"] = exact(gap)
        judged = one(claim, figures)
        assert (judged.verdict == HOLDS) == tested
        if not tested:
            assert judged.verdict == NOT_TESTED
            assert "not over-confident" in judged.reason


def test_cells_that_are_not_there():
    assert one(Claim(text="", contrast=GAIN), table(erm=[1.0, 2.0])).verdict == NOT_TESTED
    figures = table(erm=[1.0, 2.0, 3.0], mixup=[0.5, 1.4, 2.6])
    del figures[("mixup",)][1]
    assert one(Claim(text="", contrast=GAIN), figures).n_seeds == 2


def test_one_run_has_intervals_over_samples():
    figures = {("erm",): {0: {"x": Estimate(0.3, 0.28, 0.32)}}, ("mixup",): {0: {"x": Estimate(0.2, 0.19, 0.21)}}}
    judged = one(Claim(text="", contrast=GAIN), figures)
    half = np.hypot(0.02, 0.01)  # independent, as if they were other samples
    assert (judged.effect, judged.low, judged.high) == pytest.approx((0.1, 0.1 - half, 0.1 + half))
    assert judged.verdict == HOLDS
    twice = one(Claim(text="", contrast=GAIN * 2), figures)
    assert twice.high - twice.low == pytest.approx(2 * (judged.high - judged.low))


def test_one_run_without_intervals_proves_nothing():
    judged = one(Claim(text="", contrast=GAIN), table(erm=[2.0], mixup=[1.0]))
    assert judged.verdict == NOT_TESTED
    assert "run more seeds" in judged.reason


def test_equal_seeds_are_tosses():
    assert one(Claim(text="", contrast=GAIN), table(erm=[1.0] * 9, mixup=[1.0] * 9)).verdict == CANNOT_TELL
    few, many = (one(Claim(text="", contrast=GAIN), table(erm=[2.0] * n, mixup=[1.0] * n)) for n in (3, 8))
    assert (few.verdict, few.p) == (CANNOT_TELL, pytest.approx(2 * 0.5**3))
    assert (many.verdict, many.p) == (HOLDS, pytest.approx(2 * 0.5**8))


def test_seeds_that_agree_but_for_rounding_are_tosses_too():
    erm, mixup = [0.3, 0.2, 0.25], [0.2, 0.1, 0.15]  # a tenth each time, though not to the last bit
    assert len({a - b for a, b in zip(erm, mixup, strict=True)}) > 1
    judged = one(Claim(text="", contrast=GAIN), table(erm=erm, mixup=mixup))
    assert (judged.verdict, judged.p) == (CANNOT_TELL, pytest.approx(2 * 0.5**3))
    thirds = table(erm=[0.3333333, 0.6666667, 1.0], mixup=[0.0, 0.3333333, 0.6666667])  # as seven digits leave them
    assert one(Claim(text="", contrast=GAIN), thirds).verdict == CANNOT_TELL
    at_margin = table(erm=[0.31] * 8, mixup=[0.3] * 8)  # a point above in all seeds, where more than a point is asked
    assert one(Claim(text="", contrast=GAIN, margin=-0.01), at_margin).verdict == CANNOT_TELL


def test_a_run_that_diverged_is_not_left_out():
    figures = table(erm=[0.3, 0.31, 0.32], mixup=[0.1, np.nan, 0.12])
    judged = one(Claim(text="", contrast=GAIN), figures)
    assert (judged.verdict, judged.effect) == (NOT_TESTED, None)
    assert judged.reason == "x of mixup with seed 1 is not a finite number"
    several = AtLeast(text="", contrasts=[GAIN, figure("x", "erm")], least=1)
    assert one(several, figures).verdict == NOT_TESTED
    for seed in range(3):
        figures[("erm",)][seed]["gap"] = exact(np.nan)
        figures[("mixup",)][seed]["x"] = exact(0.1)
    gated = one(Claim(text="", contrast=GAIN, overconfident=("erm",)), figures)
    assert gated.reason == "gap of erm with seed 0 is not a finite number"


def test_trend_lowest_and_highest():
    figures = {"a": 3.0, "b": 1.0, "c": 4.0, "d": 1.0}
    cells = [figure("x", name) for name in figures]

    def look(key, name):
        return figures[key[0]]

    assert trend(cells).value(look) == pytest.approx(np.polyfit(range(4), list(figures.values()), 1)[0])
    assert lowest(cells).value(look) == 1.0
    assert highest(cells).value(look) == max(one.value(look) for one in cells)
    assert len(lowest(cells).needs) == 4


def slow_holm(p_values):
    """Reject in order of p while p ≤ α / (number left): the smallest α at which each is rejected."""
    found = []
    for p in p_values:
        alphas = sorted({a for q in p_values for m in range(1, len(p_values) + 1) if (a := q * m) <= 1} | {1.0})
        for alpha in alphas:
            rejected = []
            for rank, at in enumerate(np.argsort(p_values, kind="stable")):
                if p_values[at] > alpha / (len(p_values) - rank) * (1 + 1e-12):
                    break
                rejected.append(p_values[at])
            if p in rejected:
                found.append(alpha)
                break
        else:
            found.append(1.0)
    return found


def test_holm_is_the_smallest_level_that_rejects():
    rng = np.random.default_rng(1)
    for _ in range(50):
        p_values = (rng.random(rng.integers(1, 6)) ** 3).tolist()
        assert holm(p_values) == pytest.approx(slow_holm(p_values))


def test_where_nothing_is_to_be_found_one_recipe_in_twenty_says_something():
    rng = np.random.default_rng(2)
    names = [f"cell{i}" for i in range(6)]
    claims = [Claim(text="", contrast=figure("x", name) - figure("x", "cell0")) for name in names[1:]]
    wrong = 0
    for _ in range(1000):
        figures = table(**{name: rng.normal(0.3, 0.02, 5) for name in names})
        wrong += any(judged.verdict != CANNOT_TELL for judged in judge(claims, figures))
    assert wrong / 1000 <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)


def test_at_least_is_benjamini_and_hellers_partial_conjunction():
    rng = np.random.default_rng(3)
    effects = [0.05, 0.04, 0.06, 0.05, 0.0, -0.01]
    rows = {f"set{i}": rng.normal(effect, 0.01, 8) for i, effect in enumerate(effects)}
    claim = AtLeast(text="", contrasts=[figure("x", name) for name in rows], least=4)
    judged = one(claim, table(**rows))
    p = sorted(stats.ttest_1samp(values, 0, alternative="greater").pvalue for values in rows.values())
    assert judged.p == pytest.approx(min(1, 2 * 3 * p[3]))
    assert judged.verdict == HOLDS
    assert judged.effect >= 4
    assert one(AtLeast(text="", contrasts=claim.contrasts, least=6), table(**rows)).verdict != HOLDS


def test_at_least_four_of_six_is_rarely_said_of_three():
    rng = np.random.default_rng(4)
    effects = [0.5, 0.5, 0.5, 0.0, 0.0, 0.0]  # three are better beyond doubt, three are not at all
    claim = AtLeast(text="", contrasts=[figure("x", f"set{i}") for i in range(6)], least=4)
    wrong = 0
    for _ in range(1000):
        rows = {f"set{i}": rng.normal(effect, 0.05, 6) for i, effect in enumerate(effects)}
        wrong += one(claim, table(**rows)).verdict == HOLDS
    assert wrong / 1000 <= 0.05
