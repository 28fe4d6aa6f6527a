"""Claims against slow statistics: looks, intervals, verdicts, and how often they are wrong where nothing differs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vicinal.metrics import Estimate
from vicinal.papers.claims import (
    HOLDS,
    KINDS,
    LOOKS,
    NO_DIFFERENCE,
    NOT_TESTED,
    REVERSED,
    UNDECIDED,
    AtLeast,
    Claim,
    Judged,
    Sample,
    chance_decided,
    error_rate,
    family_level,
    highest,
    interval,
    judge,
    lowest,
    metric,
    pooled,
    read_interval,
    trend,
)

FIRST = 1000


def exact(value: float) -> Estimate:
    return Estimate(value, value, value)


def table(first=FIRST, **rows):
    """Figures of cells from lists of values, one a seed: `erm=[...]` is the figure "x" of the cell ("erm",)."""
    return {(name,): {first + s: {"x": exact(float(v))} for s, v in enumerate(values)} for name, values in rows.items()}


GAIN = metric("x", "erm") - metric("x", "mixup")


def one(claim, metrics, **options):
    (judged,) = judge([claim], metrics, **options)
    return judged


def gains(values, claim=None, **options):
    """Return the verdict of values of the contrast."""
    claim = Claim("", metric("x", "gain")) if claim is None else claim
    return one(claim, table(gain=values), **options)


def slow_interval(values, level):
    """The t interval, from its formula."""
    n = len(values)
    mean = sum(values) / n
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
    half = -stats.t.ppf((1 - level) / 2, n - 1) * error
    return mean - half, mean + half


def slow_verdict(low, high, kind, threshold, margin):
    """What can be said of every mean in the interval; the first of these that is true."""
    means = np.linspace(low, high, 101)
    if kind == "above":
        said = {
            HOLDS: np.all(means > threshold),
            REVERSED: np.all(means < threshold),
            NO_DIFFERENCE: np.all(abs(means - threshold) < margin),
        }
    elif kind == "no worse":
        said = {HOLDS: np.all(means > -margin), REVERSED: np.all(means < -margin)}
    else:
        said = {HOLDS: np.all(abs(means) < margin), REVERSED: np.all(means > margin) or np.all(means < -margin)}
    return next((verdict for verdict, true in said.items() if true), UNDECIDED)


class TestIntervals:
    @pytest.mark.parametrize("m", [1, 3, 18])
    @pytest.mark.parametrize("n", LOOKS)
    def test_it_is_the_paired_t_interval_at_the_level_of_the_family(self, n, m):
        rng = np.random.default_rng(n)
        erm, mixup = rng.normal(0.3, 0.02, n), rng.normal(0.27, 0.02, n)
        judged = judge([Claim(str(i), GAIN) for i in range(m)], table(erm=erm, mixup=mixup))[-1]
        level = 1 - 0.05 / (4 * m)
        expected = stats.ttest_rel(erm, mixup).confidence_interval(level)
        assert (judged.level, judged.look, judged.n_seeds) == (level, n, n)
        assert judged.effect == pytest.approx(np.mean(erm - mixup))
        assert (judged.low, judged.high) == pytest.approx((expected.low, expected.high))
        assert (judged.low, judged.high) == pytest.approx(slow_interval(list(erm - mixup), level))
        assert judged.values == pytest.approx(list(erm - mixup))

    def test_other_looks_share_alpha_among_themselves(self):
        judged = gains(np.arange(3.0), looks=(3, 6))
        assert judged.level == 1 - 0.05 / 2
        assert judged.look == 3

    def test_arrays_are_read_as_one_by_one(self):
        rng = np.random.default_rng(0)
        means, errors = rng.normal(0, 0.02, (2, 40))
        errors = np.abs(errors)
        low, high = interval(means, errors, 5, 0.99)
        for kind in KINDS:
            margin = 0.02
            found = read_interval(low, high, kind=kind, margin=margin)
            for i, verdict in enumerate(found):
                alone = interval(means[i], errors[i], 5, 0.99)
                assert alone == (low[i], high[i])
                assert read_interval(*alone, kind=kind, margin=margin) == verdict

    @given(
        st.sampled_from(KINDS),
        st.floats(-3, 3),
        st.floats(0.01, 4),
        st.floats(0.1, 2),
        st.sampled_from([0.0, 0.5, -1.0]),
    )
    def test_a_verdict_is_what_is_true_of_every_mean_in_the_interval(self, kind, low, width, margin, threshold):
        threshold = threshold if kind == "above" else 0.0
        found = read_interval(low, low + width, kind=kind, threshold=threshold, margin=margin)
        assert found == slow_verdict(low, low + width, kind, threshold, margin)

    @pytest.mark.parametrize(
        ("kind", "low", "high", "verdict"),
        [
            ("above", 0.0, 1.0, UNDECIDED),  # an end at the bound shows nothing
            ("above", -1.0, 0.0, UNDECIDED),
            ("above", -0.01, 0.005, UNDECIDED),
            ("above", 0.001, 0.002, HOLDS),  # a small difference is one
            ("no worse", -0.01, 1.0, UNDECIDED),
            ("no worse", -1.0, -0.01, UNDECIDED),
            ("no worse", -0.009, -0.001, HOLDS),
            ("equal", -0.01, 0.0, UNDECIDED),
            ("equal", 0.01, 0.02, UNDECIDED),
            ("equal", -0.02, -0.011, REVERSED),
            ("equal", 0.011, 0.02, REVERSED),
        ],
    )
    def test_the_ends(self, kind, low, high, verdict):
        assert read_interval(low, high, kind=kind) == verdict


SPREAD = np.array([-0.004, 0.004, -0.002, 0.002, 0.0])  # t of five seeds and one claim: half a width of 0.006


@pytest.mark.parametrize(
    ("mean", "options", "verdict"),
    [
        (0.05, {}, HOLDS),
        (-0.05, {}, REVERSED),
        (0.001, {}, NO_DIFFERENCE),
        (0.005, {}, UNDECIDED),
        (0.05, {"threshold": 0.01}, HOLDS),
        (0.0, {"threshold": 0.01}, REVERSED),
        (0.0101, {"threshold": 0.01}, NO_DIFFERENCE),
        (0.015, {"threshold": 0.01}, UNDECIDED),
        (0.001, {"margin": 0.005, "reason": "half a point matters here"}, UNDECIDED),
        (0.05, {"kind": "no worse"}, HOLDS),
        (-0.002, {"kind": "no worse"}, HOLDS),
        (-0.05, {"kind": "no worse"}, REVERSED),
        (-0.008, {"kind": "no worse"}, UNDECIDED),
        (0.001, {"kind": "equal"}, HOLDS),
        (0.05, {"kind": "equal"}, REVERSED),
        (-0.05, {"kind": "equal"}, REVERSED),
        (0.008, {"kind": "equal"}, UNDECIDED),
    ],
)
def test_planted_effects(mean, options, verdict):
    values = mean + SPREAD
    claim = Claim("", metric("x", "gain"), **options)
    judged = gains(values, claim)
    assert judged.verdict == verdict
    assert judged.verdict == slow_verdict(
        *slow_interval(list(values), 1 - 0.05 / 4), claim.kind, claim.threshold, claim.margin
    )
    assert (judged.kind, judged.margin, judged.threshold) == (claim.kind, claim.margin, claim.threshold)


class TestLooks:
    VALUES = np.random.default_rng(5).normal(0.01, 0.02, 40)

    @pytest.mark.parametrize("n", range(41))
    def test_a_look_uses_exactly_the_first_seeds(self, n):
        look = max([0, *(k for k in LOOKS if k <= n)])
        judged = one(Claim("", GAIN), table(erm=self.VALUES[:n], mixup=[0.0] * n) if n else table(erm=[], mixup=[]))
        assert (judged.look, judged.n_seeds, len(judged.values)) == (look, n, n)
        if n == 0:
            assert judged.verdict == NOT_TESTED
        elif look == 0:
            assert (judged.verdict, judged.low, judged.high) == (UNDECIDED, None, None)
            assert judged.effect == pytest.approx(np.mean(self.VALUES[:n]))
        else:
            at_look = one(Claim("", GAIN), table(erm=self.VALUES[:look], mixup=[0.0] * look))
            for name in ("verdict", "effect", "low", "high", "level"):
                assert getattr(judged, name) == getattr(at_look, name)

    def test_between_looks_the_verdict_stays_whatever_the_seeds_say(self):
        five = list(0.05 + SPREAD)
        assert gains(five).verdict == HOLDS
        for n in range(1, 5):
            assert gains(five + [-1.0] * n).verdict == HOLDS
        assert gains([*five, -1.0, -1.1, -1.2, -1.1, -1.0]).verdict == UNDECIDED

    def test_a_later_look_replaces_the_verdict(self):
        rng = np.random.default_rng(6)
        values = np.r_[0.05 + SPREAD, rng.normal(-0.5, 0.01, 35)]
        assert [gains(values[:n]).verdict for n in (5, 40)] == [HOLDS, REVERSED]

    @pytest.mark.parametrize("missing", [0, 2, 4])
    def test_a_missing_seed_keeps_the_look_unreached(self, missing):
        metrics = table(erm=0.05 + np.tile(SPREAD, 2), mixup=[0.0] * 10)
        assert one(Claim("", GAIN), metrics).look == 10
        del metrics["mixup",][FIRST + missing]
        judged = one(Claim("", GAIN), metrics)
        assert (judged.verdict, judged.look, judged.n_seeds) == (UNDECIDED, 0, 9)
        assert len(judged.values) == 9

    def test_a_missing_seed_after_a_look_keeps_that_look(self):
        metrics = table(erm=0.05 + np.tile(SPREAD, 2), mixup=[0.0] * 10)
        del metrics["erm",][FIRST + 7]
        judged = one(Claim("", GAIN), metrics)
        assert (judged.verdict, judged.look, judged.n_seeds) == (HOLDS, 5, 9)

    def test_a_missing_figure_is_a_missing_seed(self):
        metrics = table(gain=0.05 + SPREAD)
        metrics["gain",][FIRST + 1] = {"y": exact(0.0)}
        assert one(Claim("", metric("x", "gain")), metrics).look == 0

    def test_seeds_of_pilots_do_not_count(self):
        rng = np.random.default_rng(7)
        pilots = table(first=0, gain=rng.normal(1.0, 0.1, 40))
        judged = one(Claim("", metric("x", "gain")), pilots)
        assert (judged.verdict, judged.look, judged.n_seeds, judged.values) == (UNDECIDED, 0, 0, ())
        both = {("gain",): {**pilots["gain",], **table(gain=-0.05 + SPREAD)["gain",]}}
        assert one(Claim("", metric("x", "gain")), both).verdict == REVERSED
        assert one(Claim("", metric("x", "gain")), pilots, first_seed=0).look == 40

    def test_the_order_of_seeds_in_a_file_does_not_matter(self):
        metrics = table(gain=self.VALUES)
        turned = {("gain",): dict(reversed(metrics["gain",].items()))}
        assert one(Claim("", metric("x", "gain")), metrics) == one(Claim("", metric("x", "gain")), turned)

    @pytest.mark.parametrize("looks", [(), (5, 5), (10, 5), (1, 5), (5.0, 10)])
    def test_looks_that_make_no_sense(self, looks):
        with pytest.raises(ValueError, match="looks must be"):
            judge([], {}, looks=looks)


class TestFamilies:
    def test_primary_and_secondary_claims_are_corrected_apart(self):
        claims = [Claim(str(i), metric("x", "gain"), primary=i < 2) for i in range(7)]
        claims.append(AtLeast(text="sets", contrasts=[metric("x", "gain")], least=1))
        judged = judge(claims, table(gain=SPREAD))
        assert [one.family for one in judged] == ["primary"] * 2 + ["secondary"] * 6
        assert [one.level for one in judged] == [family_level(2)] * 2 + [family_level(6)] * 6
        assert family_level(2) == pytest.approx(1 - 0.05 / 8)

    def test_a_claim_that_is_not_tested_counts(self):
        claims = [Claim("a", metric("x", "gain")), Claim("b", metric("x", "absent"))]
        judged = judge(claims, table(gain=SPREAD))
        assert judged[0].level == family_level(2)
        assert judged[1].verdict == NOT_TESTED

    def test_the_error_rate_over_all_recipes(self):
        gain = metric("x", "gain")
        both = judge([Claim("a", gain, primary=True), Claim("b", gain), Claim("c", gain)], table(gain=SPREAD))
        rate = error_rate([both, both, both[1:], []])
        assert rate.families == 5
        assert rate.wrong == pytest.approx(0.25)
        assert rate.any_wrong == pytest.approx(1 - 0.95**5)
        assert "5 families" in str(rate)
        assert "23 %" in str(rate)
        assert error_rate([]) == (0, 0, 0)


class TestNotTested:
    def test_a_calibration_claim_needs_an_over_confident_baseline(self):
        claim = Claim("", GAIN, overconfident=[("erm",)])
        metrics = table(erm=0.2 + SPREAD, mixup=[0.1] * 5)
        for mean, tested in ((0.1, True), (0.006, True), (0.001, False), (-0.1, False)):
            for seed, gap in zip(metrics["erm",], mean + SPREAD, strict=True):
                metrics["erm",][seed]["gap"] = exact(gap)
            low, _ = slow_interval(list(mean + SPREAD), 0.95)  # at 95 %, not at the level of the family
            assert (low > 0) == tested
            judged = one(claim, metrics)
            assert judged.verdict == (HOLDS if tested else NOT_TESTED)
            assert (judged.reason == "") == tested
            if not tested:
                assert judged.reason.startswith("the baseline is not over-confident (confidence − accuracy is ")
                assert (judged.effect, judged.low, judged.high, judged.needs_seeds) == (None, None, None, None)
                assert len(judged.values) == judged.look == 5

    def test_a_pooled_claim_asks_all_its_baselines(self):
        gain = pooled([GAIN, metric("x", "erm2") - metric("x", "mixup")])
        claim = Claim("", gain, overconfident=[("erm",), ("erm2",)])
        metrics = table(erm=0.2 + SPREAD, erm2=0.3 + SPREAD, mixup=[0.1] * 5)
        # The first set alone is over-confident in both cases. The mean over the sets is in the first case only.
        for other, tested in ((-0.05, True), (-0.15, False)):
            for seed, spread in zip(metrics["erm",], SPREAD, strict=True):
                metrics["erm",][seed]["gap"] = exact(0.1 + spread)
                metrics["erm2",][seed]["gap"] = exact(other + spread)
            assert one(claim, metrics).verdict == (HOLDS if tested else NOT_TESTED)

    def test_the_gate_is_read_at_the_look(self):
        claim = Claim("", GAIN, overconfident=[("erm",)])
        metrics = table(erm=0.2 + np.tile(SPREAD, 2), mixup=[0.1] * 10)
        for seed, gap in zip(metrics["erm",], [*(0.1 + SPREAD), *(-0.5 + SPREAD)], strict=True):
            metrics["erm",][seed]["gap"] = exact(gap)
        assert one(claim, metrics).verdict == NOT_TESTED
        del metrics["mixup",][FIRST + 9]
        assert one(claim, metrics).verdict == HOLDS  # nine seeds: the look is at five, where the baseline was

    def test_a_seed_without_the_gap_is_not_complete(self):
        metrics = table(erm=0.2 + SPREAD, mixup=[0.1] * 5)
        for seed in list(metrics["erm",])[:3]:
            metrics["erm",][seed]["gap"] = exact(0.1)
        judged = one(Claim("", GAIN, overconfident=[("erm",)]), metrics)
        assert (judged.verdict, judged.look, judged.n_seeds) == (UNDECIDED, 0, 3)

    def test_cells_that_are_not_there(self):
        judged = one(Claim("", GAIN), table(erm=SPREAD))
        assert (judged.verdict, judged.reason, judged.n_seeds) == (NOT_TESTED, "there is no cell mixup", 0)
        judged = one(Claim("", metric("y", "erm")), table(erm=SPREAD))
        assert (judged.verdict, judged.reason) == (NOT_TESTED, "there is no y of erm")

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_a_run_that_diverged_is_not_left_out(self, value):
        metrics = table(erm=0.3 + SPREAD, mixup=[0.1, value, 0.12, 0.11, 0.1])
        judged = one(Claim("", GAIN), metrics)
        assert (judged.verdict, judged.effect, judged.look) == (NOT_TESTED, None, 5)
        assert judged.reason == "x of mixup with seed 1001 is not a finite number"
        assert judged.values[1] is None
        assert judged.values[0] == pytest.approx(0.296 - 0.1)
        for contrast in (lowest([metric("x", "erm"), metric("x", "mixup")]), highest([GAIN, metric("x", "erm")])):
            assert one(Claim("", contrast), metrics).verdict == NOT_TESTED  # min and max can hide it
        several = AtLeast(text="", contrasts=[GAIN, metric("x", "erm")], least=1)
        assert one(several, metrics).verdict == NOT_TESTED
        for seed in metrics["erm",]:
            metrics["erm",][seed]["gap"] = exact(value)
            metrics["mixup",][seed]["x"] = exact(0.1)
        gated = one(Claim("", GAIN, overconfident=[("erm",)]), metrics)
        assert gated.reason == "gap of erm with seed 1000 is not a finite number"

    def test_a_run_that_diverged_after_the_look_leaves_its_verdict(self):
        judged = gains([*(0.05 + SPREAD), np.nan])
        assert (judged.verdict, judged.look, judged.n_seeds, judged.values[-1]) == (HOLDS, 5, 6, None)
        undecided = gains([*(0.005 + SPREAD), np.nan])
        assert (undecided.verdict, undecided.needs_seeds) == (UNDECIDED, None)  # every later look has that seed
        early = gains([0.1, np.nan, 0.2])
        assert (early.verdict, early.effect, early.needs_seeds) == (UNDECIDED, pytest.approx(0.15), None)


class TestSeedsThatAgree:
    @pytest.mark.parametrize("m", [1, 6, 7, 18])
    @pytest.mark.parametrize("n", LOOKS)
    def test_they_decide_as_tosses_of_a_coin_would(self, n, m):
        judged = judge([Claim(str(i), GAIN) for i in range(m)], table(erm=[2.0] * n, mixup=[1.0] * n))[0]
        # All seeds on one side of the median, by chance: as many heads, or as many tails.
        enough = stats.binomtest(n, n).pvalue <= 0.05 / (4 * m)
        assert judged.verdict == (HOLDS if enough else UNDECIDED)
        assert judged.effect == 1
        if enough:
            assert (judged.low, judged.high) == pytest.approx((1, 1), abs=1e-5)
        else:
            assert (judged.low, judged.high) == (None, None)
            assert judged.reason == f"all {n} seeds agree, which is no certainty at this level"
        json.dumps(judged.to_dict(), allow_nan=False)

    def test_five_are_never_enough_and_ten_are_for_six_claims(self):
        for m, n in ((1, 10), (6, 10), (7, 20), (18, 20)):
            metrics = table(erm=[2.0] * 40, mixup=[1.0] * 40)
            for seeds in LOOKS:
                cut = {key: dict(list(rows.items())[:seeds]) for key, rows in metrics.items()}
                verdict = judge([Claim(str(i), GAIN) for i in range(m)], cut)[0].verdict
                assert verdict == (HOLDS if seeds >= n else UNDECIDED)

    def test_rounding_is_no_spread(self):
        erm = np.array([0.3, 0.2, 0.25, 0.7, 0.9])
        mixup = np.array([0.2, 0.1, 0.15, 0.6, 0.8])  # a tenth each time, though not to the last bit
        assert len(set(erm - mixup)) > 1
        assert one(Claim("", GAIN), table(erm=erm, mixup=mixup)).low is None
        thirds = table(erm=[0.3333333, 0.6666667, 1, 0.3333333, 1], mixup=[0, 0.3333333, 0.6666667, 0, 0.6666667])
        judged = one(Claim("", GAIN), thirds)  # as seven digits leave thirds
        assert (judged.verdict, judged.low) == (UNDECIDED, None)

    @given(st.integers(1, 6), st.integers(0, 10**6))
    def test_seven_digits_of_equal_sums_are_recognised(self, k, seed):
        rng = np.random.default_rng(seed)
        parts = rng.uniform(-1, 1, (k, 5)) * 10.0 ** rng.integers(-3, 3, (k, 1))
        last = 0.5 - parts.sum(axis=0)  # every seed sums to a half
        kept = {f"c{i}": [float(f"{v:.7g}") for v in row] for i, row in enumerate([*parts, last])}
        total = metric("x", "c0")
        for name in list(kept)[1:]:
            total = total + metric("x", name)
        assert one(Claim("", total), table(**kept)).low is None

    def test_a_value_at_the_bound_is_not_beyond_it(self):
        at = table(erm=[0.31] * 20, mixup=[0.3] * 20)  # 0.31 − 0.3 is not 0.01 to the last bit
        assert one(Claim("", GAIN, threshold=0.01), at).verdict == NO_DIFFERENCE
        assert one(Claim("", GAIN, kind="equal"), at).verdict == UNDECIDED
        assert one(Claim("", GAIN * -1, kind="no worse"), at).verdict == UNDECIDED

    def test_no_difference_at_all(self):
        zeros = {n: one(Claim("", GAIN), table(erm=[1.0] * n, mixup=[1.0] * n)) for n in LOOKS}
        assert [judged.verdict for judged in zeros.values()] == [UNDECIDED] + [NO_DIFFERENCE] * 3
        assert zeros[5].needs_seeds == 10

    def test_a_gap_that_never_varies_is_no_certainty_either(self):
        metrics = table(erm=0.2 + SPREAD, mixup=[0.1] * 5)
        for seed in metrics["erm",]:
            metrics["erm",][seed]["gap"] = exact(0.1)
        assert one(Claim("", GAIN, overconfident=[("erm",)]), metrics).verdict == NOT_TESTED


class TestNeedsSeeds:
    @pytest.mark.parametrize("effect", [0.3, 0.7, 1.0, 1.5, 3.0])
    @pytest.mark.parametrize("n", LOOKS)
    def test_the_chance_of_a_sign_is_that_of_the_noncentral_t(self, n, effect):
        level, shift = family_level(3), effect * math.sqrt(n)
        bound = stats.t.ppf((1 + level) / 2, n - 1)
        expected = stats.nct.sf(bound, n - 1, shift)
        if shift < 3:  # beyond, the other tail is nothing
            expected += stats.nct.cdf(-bound, n - 1, shift)
        # A margin of next to nothing leaves the two signs.
        found = chance_decided(Sample(5, effect, 1.0), n, level, margin=1e-9)
        assert found == pytest.approx(expected, abs=0.01)

    @pytest.mark.parametrize(("kind", "mean"), [("above", 0.004), ("no worse", -0.004), ("equal", 0.004)])
    def test_the_chance_is_what_simulated_looks_give(self, kind, mean):
        rng = np.random.default_rng(8)
        n, level, margin, spread = 10, family_level(2), 0.02, 0.012
        seeds = rng.normal(mean, spread, (1000, n))
        decided = [slow_verdict(*slow_interval(list(row), level), kind, 0.0, margin) != UNDECIDED for row in seeds]
        found = chance_decided(Sample(5, mean, spread), n, level, kind=kind, margin=margin)
        assert 0.1 < found < 0.95
        assert found == pytest.approx(np.mean(decided), abs=0.01 + 3 * math.sqrt(0.25 / 1000))

    def test_it_is_the_first_look_that_is_likely_to_decide(self):
        claims = [Claim(str(i), metric("x", "gain")) for i in range(3)]
        needed = []
        for mean, factor in ((0.0075, 1.5), (0.004, 1.5), (0.01, 5), (0.01, 50)):
            values = mean + factor * SPREAD
            judged = judge(claims, table(gain=values))[0]
            assert judged.verdict == UNDECIDED
            seeds = Sample(5, float(np.mean(values)), float(np.std(values, ddof=1)))
            likely = [n for n in LOOKS if n > 5 and chance_decided(seeds, n, family_level(3)) >= 0.8]
            assert judged.needs_seeds == min(likely, default=None)
            needed.append(judged.needs_seeds)
        assert needed == [10, 20, 40, None]

    def test_none_when_decided_or_out_of_reach(self):
        assert gains(0.05 + SPREAD).needs_seeds is None
        far = gains(0.01 + 100 * SPREAD)
        assert (far.verdict, far.needs_seeds) == (UNDECIDED, None)
        last = gains(np.tile(0.005 + 20 * SPREAD, 8))
        assert (last.verdict, last.look, last.needs_seeds) == (UNDECIDED, 40, None)

    def test_before_the_first_look(self):
        assert gains([0.1, 0.11, 0.105, 0.1]).needs_seeds == 5
        assert gains([0.1]).needs_seeds == 5  # nothing is known of the spread
        assert gains([0.1]).effect == 0.1
        assert gains([0.01, -0.02, 0.03, 0.0]).needs_seeds is None

    def test_at_least_multiplies_chances(self):
        rng = np.random.default_rng(9)
        rows = {f"set{i}": rng.normal(0.01, 0.01, 5) for i in range(4)}
        claim = AtLeast(text="", contrasts=[metric("x", name) for name in rows], least=3)
        samples = [Sample(5, float(v.mean()), float(v.std(ddof=1))) for v in rows.values()]
        level, n = family_level(1), 20

        def side(sign, count, level):
            chances = [float((sign * s.looks(n, level)[0 if sign > 0 else 1] > 0).mean()) for s in samples]
            total = 0.0
            for which in np.ndindex(2, 2, 2, 2):
                if sum(which) >= count:
                    total += math.prod(c if w else 1 - c for c, w in zip(chances, which, strict=True))
            return total

        expected = side(1, 3, 1 - (1 - level) / 2) + side(-1, 2, 1 - (1 - level) / 3)
        assert claim.chance(samples, n, level) == pytest.approx(expected)
        assert 0.05 < expected < 0.999


class TestAtLeast:
    def slow(self, rows, least, level):
        """Benjamini and Heller's p values, one for each side, against half of what the level leaves."""
        n = len(rows)
        p = sorted(stats.ttest_1samp(values, 0, alternative="greater").pvalue for values in rows)
        q = sorted(stats.ttest_1samp(values, 0, alternative="less").pvalue for values in rows)
        if (n - least + 1) * p[least - 1] <= (1 - level) / 2:
            return HOLDS
        return REVERSED if least * q[n - least] <= (1 - level) / 2 else UNDECIDED

    def test_it_is_benjamini_and_hellers_partial_conjunction(self):
        rng = np.random.default_rng(3)
        found = []
        for _ in range(100):
            rows = {f"set{i}": rng.normal(rng.choice([-1.5, 0, 1.5, 2]), 1, 10) for i in range(6)}
            least = int(rng.integers(1, 7))
            claim = AtLeast(text="", contrasts=[metric("x", name) for name in rows], least=least)
            judged = judge([claim, Claim("", metric("x", "set0"))], table(**rows))[0]
            assert judged.verdict == self.slow(list(rows.values()), least, family_level(2))
            assert judged.effect == sum(values.mean() > 0 for values in rows.values())
            assert judged.low <= judged.effect <= judged.high
            found.append(judged.verdict)
        assert min(found.count(verdict) for verdict in (HOLDS, REVERSED, UNDECIDED)) > 10

    def test_its_record(self):
        rows = {"a": 0.05 + SPREAD, "b": 0.05 + SPREAD, "c": SPREAD}
        claim = AtLeast(text="", contrasts=[metric("x", name) for name in rows], least=2, paper=3, primary=True)
        judged = one(claim, table(**rows))
        assert (judged.kind, judged.family, judged.verdict) == ("at least", "primary", HOLDS)
        assert (judged.low, judged.high, judged.threshold, judged.margin, judged.unit) == (2, 3, 2, 0, "sets")
        assert judged.values == (2, 3, 2, 3, 2)

    def test_four_of_six_is_rarely_said_of_three(self):
        rng = np.random.default_rng(4)
        claim = AtLeast(text="", contrasts=[metric("x", f"set{i}") for i in range(6)], least=4)
        wrong = 0
        for _ in range(200):  # three are better beyond doubt, three are not at all
            rows = {f"set{i}": rng.normal(0.5 * (i < 3), 0.05, 10) for i in range(6)}
            wrong += one(claim, table(**rows)).verdict == HOLDS
        assert wrong / 200 <= 0.05

    def test_seeds_that_agree_do_not_count_too_early(self):
        claim = AtLeast(text="", contrasts=[metric("x", name) for name in "ab"], least=2)
        few, many = (one(claim, table(a=[1.0] * n, b=[2.0] * n)) for n in (5, 20))
        assert (few.verdict, few.low, few.high, few.effect) == (UNDECIDED, 0, 2, 2)
        assert many.verdict == HOLDS

    @pytest.mark.parametrize(("contrasts", "least"), [([], 1), ([GAIN], 0), ([GAIN], 2)])
    def test_what_is_refused(self, contrasts, least):
        with pytest.raises(ValueError, match=r"(contrasts|least) must be"):
            AtLeast(text="", contrasts=contrasts, least=least)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "below"}, "kind must be one of 'above', 'no worse', 'equal', got 'below'"),
        ({"margin": 0.0, "reason": "none"}, "margin must be a number above 0, got 0.0"),
        ({"margin": -0.01, "reason": "none"}, "margin must be a number above 0, got -0.01"),
        ({"margin": math.nan, "reason": "none"}, "margin must be a number above 0, got nan"),
        ({"margin": math.inf, "reason": "none"}, "margin must be a number above 0, got inf"),
        ({"margin": 0.02}, "reason must be why the margin is 0.02 and not 0.01, got ''"),
        ({"margin": 0.02, "reason": " "}, "reason must be why the margin is 0.02 and not 0.01, got ' '"),
        ({"reason": "so"}, "reason must be empty, since the margin is the default of 0.01, got 'so'"),
        ({"threshold": math.nan}, "threshold must be a finite number, got nan"),
        ({"kind": "equal", "threshold": 0.01}, "threshold must be 0 for a claim of the kind 'equal', got 0.01"),
        ({"kind": "no worse", "threshold": 0.01}, "threshold must be 0 for a claim of the kind 'no worse', got 0.01"),
    ],
)
def test_claims_that_are_refused(options, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the whole message is compared)
        Claim("", GAIN, **options)
    assert str(error.value) == message


def test_trend_lowest_highest_and_pooled():
    metrics = {"a": 3.0, "b": 1.0, "c": 4.0, "d": 1.0}
    cells = [metric("x", name) for name in metrics]

    def look(key, name):
        return metrics[key[0]]

    assert trend(cells).value(look) == pytest.approx(np.polyfit(range(4), list(metrics.values()), 1)[0])
    assert lowest(cells).value(look) == 1.0
    assert highest(cells).value(look) == 4.0
    assert pooled(cells).value(look) == np.mean(list(metrics.values()))
    assert pooled(iter(cells)).needs == lowest(cells).needs
    assert len(lowest(cells).needs) == 4
    with pytest.raises(ValueError, match="contrasts must be at least one contrast"):
        pooled([])


def test_a_pooled_contrast_is_the_mean_for_each_seed():
    rng = np.random.default_rng(10)
    rows = {name: rng.normal(0.1, 0.02, 10) for name in "abc"}
    judged = one(Claim("", pooled(metric("x", name) for name in rows)), table(**rows))
    means = np.mean(list(rows.values()), axis=0)
    assert judged.values == pytest.approx(list(means))
    assert (judged.low, judged.high) == pytest.approx(slow_interval(list(means), family_level(1)))


def test_a_record_is_read_as_it_was_written():
    claims = [Claim("a", metric("x", "gain"), primary=True, paper=0.02), Claim("b", metric("x", "none"))]
    for values in (0.05 + SPREAD, [0.1, np.nan, 0.2], [1.0] * 5, [1 / 3] * 10):
        for judged in judge(claims, table(gain=values)):
            record = json.loads(json.dumps(judged.to_dict(), allow_nan=False))
            again = Judged.from_dict(record)
            assert again.to_dict() == judged.to_dict() == record
            assert isinstance(again.values, tuple)


@pytest.mark.slow
def test_where_nothing_differs_few_families_say_something_at_any_look():
    rng = np.random.default_rng(2)
    names = [f"cell{i}" for i in range(6)]
    claims = [Claim(name, metric("x", name) - metric("x", "cell0")) for name in names[1:]]
    wrong, families = 0, 100
    for _ in range(families):
        values = {name: rng.normal(0.3, 0.1, 40) for name in names}
        said = [judge(claims, table(**{name: v[:n] for name, v in values.items()})) for n in LOOKS]
        wrong += any(judged.verdict in (HOLDS, REVERSED) for judgeds in said for judged in judgeds)
    assert wrong / families <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / families)
