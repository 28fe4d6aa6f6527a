from __future__ import annotations

import json
import math

import numpy as np
import pytest
from benchmarks import coverage
from scipy import stats

from vicinal.metrics import Comparison, ReliabilityTable, compare, evaluate, risk_coverage
from vicinal.metrics import comparison as module
from vicinal.metrics.comparison import Side, difference_ends
from vicinal.metrics.reliability import BinSums

METRICS = ("accuracy", "mcc", "nll", "brier", "ece", "oe", "rms")


def task(n, seed=0, k=4):
    """Labels, and a function that gives logits of a model with some noise and temperature on the same samples."""
    random = np.random.default_rng(seed)
    true = 2 * random.standard_normal((n, k))
    chance = np.exp(true)
    chance /= chance.sum(1, keepdims=True)
    labels = (chance.cumsum(1) > random.random((n, 1))).argmax(1)

    def model(noise, temperature, seed):
        return (true + noise * np.random.default_rng(seed).standard_normal((n, k))) / temperature

    return labels, model


def test_differences_are_b_minus_a():
    labels, model = task(500)
    a, b = (evaluate(labels, logits=model(1, t, 1)) for t in (0.5, 1.0))
    result = compare(a, b)
    assert isinstance(result, Comparison)
    assert tuple(result.differences) == METRICS
    for name in METRICS:
        assert result[name].a == pytest.approx(getattr(a, name).value, abs=1e-12)
        assert result[name].b == pytest.approx(getattr(b, name).value, abs=1e-12)
        assert result[name].value == result[name].b - result[name].a
        assert result[name].low <= result[name].high


def test_it_sees_what_is_there_and_not_what_is_not():
    labels, model = task(3000)
    sharp, right = (evaluate(labels, logits=model(0.3, t, 1)) for t in (0.5, 1.0))
    result = compare(sharp, right)
    for name in ("nll", "brier", "ece", "oe", "rms"):
        assert result[name].better == "b"
        assert compare(right, sharp)[name].better == "a"
    assert result["accuracy"].value == 0  # a temperature changes no prediction
    assert result["accuracy"].better is None
    better = compare(evaluate(labels, logits=model(3, 1, 1)), right)
    assert better["accuracy"].better == better["mcc"].better == "b"


def test_a_model_equals_itself_exactly():
    labels, model = task(300)
    a = evaluate(labels, logits=model(1, 1, 1))
    for difference in compare(a, a).differences.values():
        assert (difference.value, difference.low, difference.high, difference.better) == (0, 0, 0, None)


def test_pairing_makes_intervals_narrower():
    labels, model = task(2000)
    a, b = evaluate(labels, logits=model(1, 1, 1)), evaluate(labels, logits=model(1, 1.1, 1))
    paired = compare(a, b)["nll"]
    apart = math.hypot(a.nll.high - a.nll.low, b.nll.high - b.nll.low)
    assert paired.high - paired.low < 0.5 * apart


def test_it_is_what_resampling_the_pairs_converges_to():
    labels, model = task(600)
    a, b = evaluate(labels, logits=model(1, 0.7, 1)), evaluate(labels, logits=model(1, 1, 2))
    random = np.random.default_rng(9)
    names = ("accuracy", "mcc", "nll", "brier")
    drawn = {name: [] for name in names}
    logits_a, logits_b = model(1, 0.7, 1), model(1, 1, 2)
    for _ in range(300):
        pick = random.integers(600, size=600)
        x, y = (evaluate(labels[pick], logits=z[pick], metrics=names) for z in (logits_a, logits_b))
        for name in names:
            drawn[name].append(getattr(y, name).value - getattr(x, name).value)
    result = compare(a, b)
    for name in names:
        lower, upper = np.quantile(drawn[name], [0.025, 0.975])
        width = upper - lower
        assert result[name].low == pytest.approx(2 * result[name].value - upper, abs=0.2 * width)
        assert result[name].high == pytest.approx(2 * result[name].value - lower, abs=0.2 * width)


@pytest.mark.parametrize("metric", ["ece", "oe", "rms"])
def test_values_of_samples_have_the_metric_as_mean_and_its_influences_as_spread(metric):
    labels, model = task(400)
    logits = model(1, 0.5, 1)
    run = evaluate(labels, logits=logits)
    values = module.Side.of([run]).values[metric][0]
    assert values.mean() == pytest.approx(getattr(run, metric).value, abs=1e-12)
    # The influence is the derivative by the weight of a sample: add a sample once more to many copies of all.
    copies = 200
    for i in range(0, 400, 37):
        rows = np.concatenate([np.tile(np.arange(400), copies), [i]])
        table = ReliabilityTable.from_confidences(
            run.samples.confidence[rows], (run.samples.predictions == labels)[rows]
        )
        moved = (getattr(table, metric)() - getattr(run, metric).value) * len(rows)
        # OE has the bin's mean confidence as a weight, whose own movement is of second order and is left out.
        assert moved == pytest.approx(values[i] - values.mean(), abs=0.03 if metric == "oe" else 2e-3)


def slow_reach(differences, level, sign):
    """Nested sums over samples and seeds, from the formula in the docstring."""
    seeds, n = differences.shape
    shared = [
        np.cov(differences[s], differences[t])[0, 1] for s in range(seeds) for t in range(seeds) if s != t or seeds == 1
    ]
    mean = [np.mean([differences[s][i] for s in range(seeds)]) for i in range(n)]
    farthest = max(abs(d) for d in mean)
    t_n = stats.t.ppf((1 + level) / 2, n - 1) ** 2
    squared = t_n * (max(np.mean(shared), 0) / n + 2 * farthest**2 / n**2)
    if seeds > 1:
        over_seeds = differences.mean(axis=1).var(ddof=1) / seeds
        squared += stats.t.ppf((1 + level) / 2, seeds - 1) ** 2 * over_seeds * (1.4**2 if seeds == 2 else 1)
    bend = max(sign * stats.moment(mean, 3) / stats.moment(mean, 2), 0) * t_n / 2 / n
    if seeds > 1:
        of_seeds = [row.mean() for row in differences]
        skew = stats.moment(of_seeds, 3) / stats.moment(of_seeds, 2)
        bend += max(sign * skew, 0) * stats.t.ppf((1 + level) / 2, seeds - 1) ** 2 / 2 / seeds
    return bend + math.sqrt(bend**2 + squared)


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_reach_over_samples_and_seeds(seeds):
    labels, model = task(200)
    runs_a = [evaluate(labels, logits=model(1.5, 1, seed)) for seed in range(seeds)]
    runs_b = [evaluate(labels, logits=model(1.0, 1, 10 + seed)) for seed in range(seeds)]
    nll = compare(runs_a, runs_b, level=0.9)["nll"]
    differences = np.array(
        [b.samples.values["nll"] - a.samples.values["nll"] for a, b in zip(runs_a, runs_b, strict=True)]
    )
    assert nll.high - nll.value == pytest.approx(slow_reach(differences, 0.9, 1), rel=1e-9)
    assert nll.value - nll.low == pytest.approx(slow_reach(differences, 0.9, -1), rel=1e-9)


@pytest.mark.parametrize(("wins", "losses", "better"), [(5, 0, None), (6, 0, "b"), (7, 1, None), (9, 1, "b")])
def test_few_disagreements_tell_models_apart_no_sooner_than_the_exact_test(wins, losses, better):
    labels = np.zeros(100, int)
    right, wrong = [0.9, 0.1], [0.1, 0.9]
    a = evaluate(labels, probs=[wrong] * wins + [right] * (100 - wins))
    b = evaluate(labels, probs=[right] * wins + [wrong] * losses + [right] * (100 - wins - losses))
    assert compare(a, b)["accuracy"].better == better
    assert (stats.binomtest(wins, wins + losses).pvalue < 0.05) == (better is not None)


@pytest.mark.parametrize("seeds", [1, 3])
def test_models_that_agree_on_few_samples_may_disagree_on_others(seeds):
    # Of models that differ on every twentieth sample, 7.7 % of trials of 50 show no difference.
    labels = np.arange(50) % 10
    a, b = ([evaluate(labels, logits=heat * np.eye(10)[labels]) for _ in range(seeds)] for heat in (3.0, 5.0))
    result = compare(a, b)
    for name in ("accuracy", "top5_error", "mcc"):
        difference = result[name]
        assert (difference.value, difference.better) == (0, None)
        assert difference.low < -0.05 < 0.05 < difference.high
        assert difference.high < 0.06 * (2 if name == "mcc" else 1)


@pytest.fixture(scope="module")
def pools():
    """A model of three classes over few items: alone, and with runs that differ."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coverage, "ITEMS", 3_000)
        random = np.random.default_rng(3)
        return {alone: coverage.models(3, [1.0], [1.0], alone, random)[0] for alone in (True, False)}


@pytest.mark.parametrize(("seeds", "trials"), [(1, 6000), (2, 3000), (3, 2000), (5, 1200), (10, 600)])
def test_equal_models_are_told_apart_in_at_most_5_and_a_half_percent(pools, seeds, trials):
    false = coverage.false_better(pools[seeds == 1], 100, seeds, trials, np.random.default_rng(3))
    # A rate of 5.5 % or less is refuted by mistake once in a thousand.
    worst = round(trials * max(false.values()))
    assert stats.binomtest(worst, trials, 0.055, alternative="greater").pvalue > 1e-3, false


@pytest.mark.parametrize(("k", "alone"), [(3, False), (7, False), (3, True)])
def test_the_simulated_comparisons_are_those_of_compare(k, alone):
    random, heat = np.random.default_rng(0), np.full(5, 0.5) if alone else np.linspace(0.5, 1.5, 5)
    z = 3 * random.standard_normal((200, k), dtype=np.float32)
    labels = random.integers(k, size=200)
    pools = [coverage.Pool.of(z, labels, heat, np.ones(5), np.random.default_rng(s), alone) for s in (1, 2)]
    logits = [
        np.stack([(z + noise.standard_normal(z.shape, dtype=np.float32)) / np.float32(t) for t in heat])
        for noise in (np.random.default_rng(s) for s in (1, 2))
    ]
    items = random.integers(200, size=(4, 60))
    picks = random.integers(5, size=(2, 4, 1, 60) if alone else (2, 4, 2, 1))
    sides = [pool.side(items, runs) for pool, runs in zip(pools, picks, strict=True)]
    for trial in range(4):
        runs = [
            [evaluate(labels[items[trial]], logits=of[run, items[trial]]) for run in pick[trial]]
            for of, pick in zip(logits, picks, strict=True)
        ]
        result = compare(*runs)
        assert set(result.differences) == set(sides[0].values)
        for name in result.differences:
            low, high = (end[trial] for end in module.difference_ends(name, *sides, 0.95))
            exact = pytest.approx((low, high), rel=1e-7, abs=1e-6)  # but for the float32 of the simulation's tables
            assert (result[name].low, result[name].high) == exact, name


def test_the_truth_of_a_simulated_model_is_that_of_all_it_says(pools):
    for alone, pool in pools.items():
        flat = pool.entries.reshape(-1, 7)
        assert pool.truth["accuracy"] == pytest.approx(flat[:, 1].mean(dtype=np.float64))
        assert pool.truth["nll"] == pytest.approx(flat[:, 4].mean(dtype=np.float64), rel=1e-6)
        runs = [flat] if alone else pool.entries
        eces = [ReliabilityTable.from_confidences(run[:, 0], run[:, 1] > 0).ece() for run in runs]
        assert pool.truth["ece"] == pytest.approx(np.mean(eces), abs=1e-6)


def test_the_interval_covers_a_true_difference():
    hits = dict.fromkeys(("accuracy", "nll", "ece"), 0)
    labels, model = task(300_000, seed=100)
    full = compare(*(evaluate(labels, logits=model(1, t, s)) for t, s in ((0.7, 1), (1.0, 2))))
    for seed in range(100):
        labels, model = task(500, seed=seed)
        both = (model(1, t, s + seed) for t, s in ((0.7, 1001), (1.0, 2002)))
        result = compare(*(evaluate(labels, logits=logits, metrics=list(hits)) for logits in both))
        for name in hits:
            hits[name] += result[name].low <= full[name].value <= result[name].high
    assert min(hits.values()) >= 88, hits


def test_seeds_widen_the_interval_and_average():
    labels, model = task(1000)
    # Not seed 0, which draws the noise from the numbers that the labels were drawn from.
    runs_a = [evaluate(labels, logits=model(1.5, 1, 1 + seed)) for seed in range(5)]
    runs_b = [evaluate(labels, logits=model(1.0, 1, 10 + seed)) for seed in range(5)]
    result = compare(runs_a, runs_b)
    assert result.n_seeds == 5
    for name in METRICS:
        assert result[name].a == pytest.approx(np.mean([getattr(run, name).value for run in runs_a]), abs=1e-12)
    assert result["nll"].better == "b"
    deltas = np.array([b.nll.value - a.nll.value for a, b in zip(runs_a, runs_b, strict=True)])
    assert result["nll"].high - result["nll"].low > 2 * 1.96 * deltas.std(ddof=1) / math.sqrt(5)


def test_seeds_interval_covers_the_mean_over_samples_and_seeds():
    # A model is its seed (a shift of all its losses); the two methods are the same, so the truth is 0.
    hits = 0
    random = np.random.default_rng(0)
    for trial in range(150):
        labels, model = task(200, seed=trial)
        runs = [
            [evaluate(labels, logits=model(1, t, int(random.integers(10**9))), metrics=["accuracy", "nll"]) for t in ts]
            for ts in np.exp(0.4 * random.standard_normal((2, 3)))
        ]
        nll = compare(*runs)["nll"]
        hits += nll.low <= 0 <= nll.high
    assert hits / 150 >= 0.9


@pytest.mark.parametrize("n_seeds", [2, 3, 10])
def test_seeds_that_are_skewed_are_covered(n_seeds):
    # Student's interval over seeds alone has 92.4 % here: the seed that is far off is seldom among few.
    random, trials, n = np.random.default_rng(0), 6_000, 100
    seeds = np.exp(0.48 * random.standard_normal((trials, n_seeds, 1)))
    none = np.zeros((trials, n_seeds, 1))
    sides = [
        Side({"nll": values + 0.01 * random.standard_normal((trials, n_seeds, n))}, BinSums(none, none, none), none)
        for values in (none, seeds)
    ]
    low, high = difference_ends("nll", *sides, 0.95)
    truth = math.exp(0.48**2 / 2)
    assert ((low <= truth) & (truth <= high)).mean() >= 0.94


def test_overconfidence_that_seeds_have_not_shown_is_allowed_for():
    # All are under-confident, by different amounts: none has an OE, and others may well have.
    labels = [0] * 100
    a = [evaluate(labels, probs=[[top, 1 - top]] * 100) for top in (0.6, 0.75, 0.95)]
    b = [evaluate(labels, probs=[[0.8, 0.2]] * 100)] * 3
    oe = compare(a, b)["oe"]
    spread = np.std([top * (top - 1) for top in (0.6, 0.75, 0.95)], ddof=1)
    assert oe.value == 0
    assert min(oe.high, -oe.low) >= 0.999 * stats.t.ppf(0.975, 2) * spread / math.sqrt(3)


def test_equal_seeds_are_no_spread():
    labels, model = task(200)
    a, b = evaluate(labels, logits=model(1, 1, 1)), evaluate(labels, logits=model(1, 2, 1))
    one, many = compare(a, b)["nll"], compare([a] * 3, [b] * 3)["nll"]
    assert many.high - many.low == pytest.approx(one.high - one.low, rel=0.1)


def test_infinite_scores_are_compared_without_warnings():
    labels = [0, 1, 0, 1]
    finite = evaluate(labels, probs=[[0.6, 0.4]] * 4)
    infinite = evaluate(labels, probs=[[1.0, 0.0]] * 4)
    result = compare(finite, infinite)
    assert result["nll"].better == "a"
    assert result["nll"].value == math.inf
    both = compare(infinite, infinite)["nll"]
    assert math.isnan(both.value)
    assert both.better is None


def test_prints_and_goes_to_json():
    labels, model = task(1500)
    a, b = evaluate(labels, logits=model(1, 0.5, 1)), evaluate(labels, logits=model(1, 1, 1))
    result = compare(a, b, names=("erm", "mixup"))
    lines = str(result).splitlines()
    assert lines[0] == "mixup − erm, paired on 1,500 samples, 1 seed, 15 bins; 95 % intervals"
    assert [line.split()[0] for line in lines[2:]] == list(METRICS)
    assert "not significant" in str(result)
    assert lines[6].endswith("mixup")
    held = json.loads(json.dumps(result.to_dict()))
    assert held["ece"]["better"] == "b"
    assert compare(a, b) == compare(a, b)


def test_one_sample_tells_nothing_and_says_so():
    a, b = evaluate([0], probs=[[0.7, 0.3]]), evaluate([0], probs=[[0.9, 0.1]])
    difference = compare(a, b)["nll"]
    assert difference.value < 0
    assert (difference.low, difference.high, difference.better) == (-math.inf, math.inf, None)


def test_bad_input_is_named():
    labels, model = task(50)
    a = evaluate(labels, logits=model(1, 1, 1))
    with pytest.raises(ValueError, match="as many runs"):
        compare([a, a], [a])
    with pytest.raises(ValueError, match="same samples in the same order"):
        compare(a, evaluate(labels[::-1], logits=model(1, 1, 1)))
    with pytest.raises(ValueError, match="same samples in the same order"):
        compare(a, evaluate(labels[:40], logits=model(1, 1, 1)[:40]))
    with pytest.raises(ValueError, match="same bins, got 15 and 10 bins"):
        compare(a, evaluate(labels, logits=model(1, 1, 1), n_bins=10))
    with pytest.raises(TypeError, match="a must be an Evaluation or a list of them"):
        compare([], [])
    with pytest.raises(TypeError, match="b must be an Evaluation"):
        compare(a, [3])
    with pytest.raises(ValueError, match="must be a number in"):
        compare(a, a, level=0)


def test_the_simulation_of_coverage_says_what_evaluate_says(monkeypatch):
    monkeypatch.setattr(coverage, "POPULATION", 2_000)
    pop = coverage.Population.normal(3, 0.7)
    whole = evaluate(pop.labels, logits=pop.logits)
    pick = np.sort(np.random.default_rng(0).integers(2_000, size=300))
    found = coverage.Known.of(whole.samples, 3).estimates(pick)
    rows = np.argsort(-whole.samples.confidence, kind="stable")[pick]
    again = evaluate(pop.labels[rows], logits=pop.logits[rows])
    expected = {name: getattr(again, name) for name in coverage.MEASURED[:-1]}
    expected["aurc"] = risk_coverage(again.samples.confidence, pop.correct[rows]).aurc_estimate()
    for name, estimate in expected.items():
        assert vars(found[name]) == pytest.approx(vars(estimate), rel=1e-9), name


@pytest.mark.parametrize(("accuracy", "n"), [(0.98, 60), (0.995, 50), (0.999, 100)])
def test_a_model_and_its_softened_self_differ_by_mistakes_that_may_be_unseen(accuracy, n):
    """Without a mistake among the samples confidence only helps; in truth each mistake costs it dearly."""
    random, trials = np.random.default_rng(n), 120
    sharp, soft = np.array([0.9995, 0.0005]), np.array([0.95, 0.05])
    truth = {
        "nll": -accuracy * np.log(soft[0] / sharp[0]) - (1 - accuracy) * np.log(soft[1] / sharp[1]),
        "brier": 2 * (accuracy * (soft[1] ** 2 - sharp[1] ** 2) + (1 - accuracy) * (soft[0] ** 2 - sharp[0] ** 2)),
        "ece": abs(0.95 - accuracy) - abs(0.9995 - accuracy),
    }
    held, wrong_side = dict.fromkeys(truth, 0), 0
    for _ in range(trials):
        labels = (random.random(n) > accuracy).astype(int)
        both = (np.tile(probs, (n, 1)) for probs in (sharp, soft))
        found = compare(*(evaluate(labels, probs=probs, metrics=["accuracy", *truth]) for probs in both))
        for name, true in truth.items():
            held[name] += found[name].low - 1e-12 <= true <= found[name].high + 1e-12
        wrong_side += found["nll"].better == ("a" if truth["nll"] < 0 else "b")
    assert min(held.values()) >= 0.91 * trials, held  # 120 trials: 0.95 less two standard errors
    assert wrong_side <= 0.05 * trials


@pytest.mark.parametrize("metric", ["nll", "brier", "ece"])
def test_mistakes_not_seen_are_allowed_for_whatever_else_is_measured(metric):
    """The interval of a metric is the same alone and beside all others: rare mistakes count in either."""
    random = np.random.default_rng(5)
    confidence = 1 - random.uniform(1e-4, 1e-2, 60)
    probs = np.stack([confidence, 1 - confidence], axis=1)
    softened = 0.9 * probs + 0.05
    labels = np.zeros(60, int)
    alone = compare(*(evaluate(labels, probs=p, metrics=[metric]) for p in (probs, softened)))
    among = compare(*(evaluate(labels, probs=p) for p in (probs, softened)))
    assert list(alone.differences) == [metric]
    ends = [(c.differences[metric].low, c.differences[metric].high) for c in (alone, among)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)
