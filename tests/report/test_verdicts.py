"""What the report says: the verdict, the promises, and numbers in print."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vicinal.data.leakage import leakage_warning
from vicinal.metrics import Estimate, ReliabilityTable, Tally, evaluate, evaluate_binary
from vicinal.metrics.selective import risk_coverage
from vicinal.report import verdicts
from vicinal.report.formatting import number, percent, span, with_interval
from vicinal.runs import Importance


def table(*groups: tuple[float, int, int], n_bins: int = 15) -> ReliabilityTable:
    """Return the table of groups (confidence, right, of)."""
    sure = np.concatenate([np.full(n, level) for level, _, n in groups])
    right = np.concatenate([np.arange(n) < k for _, k, n in groups])
    return ReliabilityTable.from_confidences(sure, right, n_bins=n_bins)


def said(text: str) -> str:
    return text.replace("\u00a0", " ")


def drawn(n: int, k: int = 3, *, sharpness: float = 1.0, spread: float = 3.0, seed: int = 0):
    """Return an evaluation of predictions that are calibrated for sharpness 1 and over-confident above it."""
    rng = np.random.default_rng(seed)
    logits = spread * rng.normal(size=(n, k))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (probs.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return evaluate(labels, logits=sharpness * logits)


def of_table(*groups: tuple[float, int, int], n_bins: int = 15):
    """Return the evaluation of groups (confidence, right, of) without the classes."""
    made = table(*groups, n_bins=n_bins)
    return replace(drawn(60), n=made.n, n_bins=n_bins, table=made, fine=made, samples=None, confusion=None, metrics={})


def test_overall_calibration_comes_first():
    """Cases as users meet them: 400 samples, a gap of a few points, a temperature of 1.4."""
    for seed in range(5):
        assert verdicts.judge(drawn(400, seed=seed)).tone == "fits"
        over = verdicts.judge(drawn(400, sharpness=1.6, seed=seed))
        assert (over.tone, over.calibration.status) == ("over", "over")
        assert said(over.sentence).startswith("Over-confident: it says ")
        assert "--calibrate auto" in over.next_step
        assert verdicts.judge(drawn(400, sharpness=0.5, seed=seed)).tone == "under"


def test_calibrated_models_are_seldom_called_miscalibrated():
    found = [verdicts.judge(drawn(300, seed=seed)).tone for seed in range(200)]
    assert found.count("fits") >= 184  # 95 % but for chance


def test_a_file_is_told_to_be_calibrated_by_its_name():
    found = verdicts.judge(replace(drawn(800, sharpness=1.6), path=Path("predictions.csv")))
    assert "vicinal calibrate VALIDATION predictions.csv --out FILE" in found.next_step
    path = Path("a folder") / "it's over.csv"
    found = verdicts.judge(replace(drawn(800, sharpness=1.6), path=path))
    assert str(path) in shlex.split(found.next_step.split("`")[1])


def test_a_temperature_is_seen_without_a_mean_gap():
    """Over-confident where it is confident and under-confident elsewhere: the slope shows what the mean hides."""
    found = verdicts.judge(of_table((0.99, 940, 1000), (0.6, 650, 1000)))
    assert found.tone == "over"
    assert "a temperature of" in found.sentence
    assert "When it says 99 %, it is right only" in said(found.calibration.detail)


def test_a_bin_that_is_off_is_not_hidden_by_the_mean():
    found = verdicts.judge(of_table((0.9, 9100, 10_000), (0.63, 20, 100)))
    assert found.tone == "uneven"
    assert "When it says 63 %, it is right only" in said(str(found))


def test_a_class_that_is_off_is_not_hidden_by_a_green_headline():
    rng = np.random.default_rng(0)
    rows = [(0, 0.9, 9000, 0.9), (1, 0.885, 110, 0.609), (2, 0.9, 9000, 0.9)]
    probs = np.concatenate([np.full((n, 3), (1 - p) / 2) for _, p, n, _ in rows])
    labels, at = [], 0
    for k, p, n, right in rows:
        probs[at : at + n, k] = p
        labels.append(np.where(np.arange(n) < round(right * n), k, (k + rng.integers(1, 3, n)) % 3))
        at += n
    found = verdicts.judge(evaluate(np.concatenate(labels), probs=probs), classes=["a", "b", "c"])
    assert (found.calibration.status, found.classes.status, found.tone) == ("fits", "off", "uneven")
    assert said(found.sentence) == (
        "Over-confident in 'b': answers with this class say 88.5 % and are right 60.9 % of the time (n = 110)."
    )
    assert "Calibrate its classes" in found.next_step
    assert "Well calibrated overall (n = 18,110)" in str(found)


def rare(n: int = 4000, seed: int = 0):
    """Return evaluations of a good model of a class of 4 %."""
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-(2.4 * rng.normal(size=n) - 5.3)))
    labels = (rng.random(n) < p).astype(int)
    return evaluate(labels, probs=np.c_[1 - p, p]), evaluate_binary(labels, p)


def test_a_model_of_a_rare_class_is_useful_though_accuracy_does_not_show_it():
    evaluation, binary = rare()
    found = verdicts.judge(evaluation, classes=["no", "yes"], binary=binary)
    assert evaluation.accuracy.low < evaluation.base_rate.share
    assert (found.tone, found.usefulness.status) == ("fits", "useful")
    assert "always answering 'no' is right" in found.usefulness.sentence
    assert "AUROC" in found.usefulness.sentence
    assert "Choose a threshold on the probability of 'yes', by" in found.next_step
    samples = evaluation.samples
    yes = np.where(samples.predictions == 1, samples.confidence, 1 - samples.confidence)
    # The second class is the frequent one.
    turned = evaluate(1 - samples.labels, probs=np.c_[yes, 1 - yes])
    step = verdicts.judge(turned, classes=["churn", "stay"]).next_step
    assert "the probability of 'stay' (the rest is that of the rare class 'churn'), by" in step
    assert verdicts.judge(evaluation, classes=["no", "yes"]).usefulness.status == "useful"  # by NLL alone


def sliced(*, accuracy: float, seed: int = 0, n: int = 1000):
    """Return an evaluation of calibrated answers, in one region less accurate than the 90 % elsewhere."""
    rng = np.random.default_rng(seed)
    where = np.where(rng.random(n) < 0.3, "south", "north")
    confidence = np.where(where == "south", accuracy, 0.9)
    right = rng.random(n) < confidence
    labels = rng.integers(2, size=n)
    of_first = np.where(right == (labels == 0), confidence, 1 - confidence)
    return evaluate(labels, probs=np.c_[of_first, 1 - of_first], slices={"region": where})


def test_the_worst_slice_is_named_and_the_next_step_knows_it():
    found = verdicts.judge(sliced(accuracy=0.6))
    assert (found.tone, found.slices.status) == ("fits", "worse")
    assert said(found.slices.sentence).startswith("The worst slice is “region is 'south'” (n = ")
    assert "Watch the worst slice" in found.next_step
    none = verdicts.judge(sliced(accuracy=0.9))
    assert (none.tone, none.slices.sentence, none.next_step.count("slice")) == ("fits", "", 0)
    assert verdicts.judge(drawn(400)).slices.status == "unknown"


def test_a_slice_that_is_off_is_not_hidden_by_a_green_headline():
    """One region is right ten points less often than the model says, the other ten points more often."""
    rng = np.random.default_rng(1)
    n = 2000
    region, named = np.arange(n) % 2, rng.integers(2, size=n)
    confidence = rng.uniform(0.6, 0.85, n)
    right = rng.random(n) < confidence + np.where(region == 1, 0.1, -0.1)
    second = np.where(named == 1, confidence, 1 - confidence)
    labels = np.where(right, named, 1 - named)
    found = verdicts.judge(evaluate(labels, probs=np.c_[1 - second, second], slices={"region": region}))
    assert (found.tone, found.calibration.status, found.classes.status) == ("uneven", "fits", "fits")
    assert found.sentence == found.slices.sentence
    assert "-confident in the slice “region is '" in found.sentence
    assert "Well calibrated overall (n" in found.calibration.sentence
    assert "not its confidence in that slice" in found.next_step


def test_calibrated_slices_are_seldom_called_off():
    found = [verdicts.judge(sliced(accuracy=0.6, seed=seed, n=300)).slices.status for seed in range(200)]
    assert found.count("off") <= 10  # 5 % of all three metrics together


def test_one_output_never_says_better_and_not_better():
    evaluation, binary = rare()
    majority = {"nll": Estimate(0.2, 0.2, 0.2), "nll_difference": Estimate(-0.05, -0.07, -0.03)}
    logistic = {"nll": Estimate(0.12, 0.1, 0.14), "nll_difference": Estimate(-0.01, -0.02, -0.001)}
    both = {"majority class": majority, "logistic regression": logistic}
    found = verdicts.judge(evaluation, binary=binary, baselines=both)
    assert (found.usefulness.status, found.baselines.status) == ("useful", "better")
    unsure = {**both, "majority class": {**majority, "nll_difference": Estimate(-0.01, -0.03, 0.01)}}
    assert verdicts.judge(evaluation, baselines=unsure).baselines.status == "no difference"


def test_a_model_without_information_is_useless_however_calibrated():
    useless = evaluate([0] * 900 + [1] * 100, probs=[[0.9, 0.1]] * 1000)
    found = verdicts.judge(useless, classes=["no", "yes"])
    assert (found.tone, found.calibration.status) == ("useless", "fits")
    assert said(found.sentence).startswith("No better than always answering 'no', which is right 90.0 % of the time")
    assert found.next_step.startswith("Do not use it")


def test_a_good_ranking_with_misleading_probabilities_is_told():
    rng = np.random.default_rng(0)
    z = rng.normal(size=2000)
    labels = (rng.random(2000) < 1 / (1 + np.exp(-2 * z))).astype(int)
    p = 1 / (1 + np.exp(-12 * z))
    found = verdicts.judge(evaluate(labels, probs=np.c_[1 - p, p]), binary=evaluate_binary(labels, p))
    assert (found.tone, found.usefulness.status) == ("over", "miscalibrated")


def test_too_few_samples_say_so():
    for evaluation in (drawn(20), of_table((0.9, 9, 10))):
        found = verdicts.judge(evaluation)
        assert found.tone == "unknown"
        assert "Too few samples" in found.sentence
        assert "more labelled samples" in found.next_step


def leaky(second: float = 0.02):
    """Return the importance of columns of which the first, or the first two, hold the information."""
    estimates = [Estimate(0.5, 0.4, 0.6), Estimate(second, second - 0.01, second + 0.01)]
    return [Importance(name, each) for name, each in zip(("refund", "age"), estimates, strict=True)]


def test_a_column_that_holds_all_information_is_no_reason_to_use_the_model():
    evaluation = drawn(800, 2)
    found = verdicts.judge(evaluation, importance=leaky())
    assert (found.tone, found.calibration.status, found.leakage.status) == ("leak", "fits", "leak")
    assert found.sentence == (
        "Nearly all information is in the column 'refund': it leaks the target unless it is known before the answer."
    )
    assert "Use it" not in found.next_step
    assert "`--drop refund`" in found.next_step
    assert found.section == "importance"
    two = verdicts.judge(evaluation, importance=leaky(0.3))
    assert (two.tone, two.leakage.status) == ("fits", "fits")
    assert verdicts.judge(evaluation).leakage.status == "unknown"
    modest = verdicts.judge(drawn(800, 2, spread=0.7), importance=leaky())
    assert (modest.tone, modest.leakage.status) == ("fits", "fits")  # one good column is no leak


def test_a_leak_that_the_data_warn_of_is_in_the_headline():
    warnings = [leakage_warning("fee's copy", 0.9998), leakage_warning("refund", 0.9995), "something else"]
    found = verdicts.judge(drawn(800, 2), importance=leaky(0.3), warnings=warnings)
    assert (found.tone, found.leakage.status) == ("leak", "leak")
    assert found.sentence == ('Target leakage: the column "fee\'s copy" alone tells the classes apart (AUROC 0.9998).')
    assert "'refund' alone tells" in found.leakage.detail
    assert shlex.split(found.next_step.split("`")[1]) == ["--drop", "fee's copy", "--drop", "refund"]
    assert verdicts.judge(drawn(800, 2), warnings=["something else"]).tone == "fits"


def test_logistic_regression_is_always_answered():
    def baselines(logistic: float, boosting: float):
        def one(nll: float, difference: float) -> dict[str, Estimate]:
            ends = Estimate(difference, difference - 0.01, difference + 0.01)
            return {"nll": Estimate(nll, nll, nll), "nll_difference": ends}

        return {"logistic regression": one(0.5, logistic), "gradient boosting": one(0.4, boosting)}

    def judged(logistic: float, boosting: float):
        return verdicts.judge(drawn(800, 2), baselines=baselines(logistic, boosting))

    as_good = judged(0.005, 0.002)
    assert as_good.baselines.detail.startswith("No significant difference to logistic regression: NLL 0.500 (diff")
    assert as_good.next_step.endswith("Logistic regression, which is simpler, is not significantly worse.")
    better = judged(-0.05, 0.002)
    assert better.baselines.detail.startswith("Better than logistic regression: NLL 0.500")
    assert "simpler" not in better.next_step
    assert judged(-0.05, -0.04).baselines.detail == ""  # better than all of them, which says it
    worse = judged(0.05, 0.06)
    assert (worse.tone, worse.baselines.status, worse.section) == ("worse", "worse", "baselines")
    assert worse.sentence == worse.baselines.sentence
    few = verdicts.judge(drawn(40, 2), baselines=baselines(0.05, 0.06))
    assert (few.calibration.status, few.section) == ("unknown", "baselines")  # more samples would not change that
    leak = verdicts.judge(drawn(800, 2), baselines=baselines(0.05, 0.06), importance=leaky())
    assert (leak.tone, leak.section) == ("leak", "importance")  # the baseline knows that column, too
    assert worse.baselines.detail.startswith("Worse than logistic regression")


@given(right=st.integers(0, 200), confidence=st.floats(0.5, 0.9995))
@example(right=197, confidence=0.9995)
def test_what_is_said_of_a_bin_does_not_contradict_itself(right, confidence):
    found = said(verdicts.judge(of_table((confidence, right, 200), (0.3, 30, 100))).calibration.detail)
    if not found:
        return
    says, often = found.removeprefix("When it says ").split(" %, it is right ")
    low, high = (float(end) for end in often.removeprefix("only ").removeprefix("in fact ").split(" %")[0].split("–"))
    # "over 99.9" is more than 99.9.
    says = float(says.removeprefix("over ")) + (0.01 if says.startswith("over ") else 0)
    assert says > high if "only" in found else says < low


def test_the_interval_of_the_gap_is_that_of_the_test():
    """Well calibrated, and an interval without 0, would contradict each other."""
    for seed in range(60):
        found = verdicts.judge(drawn(1000, seed=seed)).calibration
        if found.status == "fits" and "CI" in found.sentence:
            low, high = said(found.sentence).split("98 % CI ")[1].split(" points")[0].replace("−", "-").split(" to ")
            gap = abs(float(low) + float(high)) / 2
            assert float(low) <= 0 <= float(high) or gap < 1.05  # less than a point is nothing


def test_a_significant_but_tiny_gap_is_none():
    assert verdicts.judge(of_table((0.9, 896_000, 1_000_000))).tone == "fits"
    assert verdicts.judge(of_table((0.9, 880_000, 1_000_000))).tone == "over"


def test_nearly_certain_is_not_printed_as_certain():
    found = verdicts.judge(of_table((0.99997, 900, 1000), (0.8, 800, 1000)))
    assert "When it says over 99.9 %, it is right only" in said(str(found))


def test_a_streamed_file_has_the_verdict_of_its_samples():
    for evaluation in (drawn(700), drawn(700, sharpness=1.6), rare()[0]):
        table = Tally(15, fine=True)
        samples = evaluation.samples
        table.update_confidences(samples.confidence, labels=samples.labels, predictions=samples.predictions)
        streamed = table.evaluation()
        assert verdicts.judge(streamed).calibration == verdicts.judge(evaluation).calibration
        assert np.allclose(streamed.named_confidence, evaluation.named_confidence)


def test_a_verdict_is_json():
    found = verdicts.judge(drawn(400))
    assert json.loads(json.dumps(found.to_dict()))["calibration"]["status"] == "fits"
    assert str(found).splitlines()[0] == found.sentence
    assert str(found).splitlines()[-1] == f"Next step: {found.next_step}"


@given(low=st.floats(0, 1), width=st.floats(0, 1), decimals=st.integers(0, 2))
def test_spans_never_promise_more(low, width, decimals):
    high = min(low + width, 1.0)
    first, last = said(span(low, high, decimals)).removesuffix(" %").split("–")
    assert float(first) <= 100 * low + 1e-6
    assert float(last) >= 100 * high - 1e-6


def test_numbers_in_print():
    assert said(percent(1.0)) == "100 %"
    assert said(percent(0.99999)) == "100.0 %"
    assert percent(math.nan) == "–"
    assert number(math.inf) == "∞"
    assert number(-math.inf) == "−∞"
    assert number(math.nan) == "–"
    assert with_interval(Estimate(0.1, -0.2, 0.3), share=False) == ("0.1000", "−0.2000 to 0.3000")
    assert said(with_interval(Estimate(0.5, 0.0, 1.0), share=True)[1]) == "0–100 %"


# What may be answered


def curve(n_sure: int, wrong_sure: int, n_unsure: int, wrong_unsure: int):
    """Two crowds: one at 0.95 and above, one around 0.6."""
    confidence = np.concatenate([np.linspace(0.95, 0.999, n_sure), np.linspace(0.55, 0.65, n_unsure)])
    correct = np.ones(n_sure + n_unsure, bool)
    correct[:wrong_sure] = False
    correct[n_sure : n_sure + wrong_unsure] = False
    return risk_coverage(confidence, correct)


def test_promises_are_made_on_held_out_samples_and_kept_on_others():
    held_out, other = curve(7000, 7, 3000, 1500), curve(700, 2, 300, 150)
    found = verdicts.rules(held_out, other)
    first = found[0]
    assert first.wanted == 0.99
    assert first.chosen == held_out.risk_threshold(0.01)
    accepted = other.confidences > first.chosen.threshold
    assert first.coverage == other.counts[accepted].sum() / other.n
    assert first.accuracy.value == pytest.approx(1 - other.errors[accepted].sum() / other.counts[accepted].sum())
    text = said(verdicts.promise(found, held_out, other))
    assert text.startswith(
        f"To be right 99 % of the time, answer these {100 * first.coverage:.0f} % of cases, those above"
    )
    assert text.endswith("and pass on the rest.")


def test_what_few_samples_cannot_promise_is_said():
    held_out = curve(200, 0, 69, 30)
    text = said(verdicts.promise(verdicts.rules(held_out, held_out), held_out, held_out))
    assert "99 % is more than 269 samples can guarantee" in text
    assert text.startswith("To be right 95 % of the time")


def test_without_a_promise_the_sentence_looks_back():
    seen = curve(70, 0, 30, 15)
    assert said(verdicts.promise([], None, seen)) == (
        "Looking back, it would have been right 99 % of the time had it answered the 85 % of cases of highest "
        "confidence and passed on the rest."
    )
    assert "every case" in verdicts.promise([], None, curve(50, 0, 50, 0))
    assert "should not answer on its own" in verdicts.promise([], None, risk_coverage([0.9, 0.8], [False, False]))
    lucky = risk_coverage(np.linspace(0.1, 0.9, 100), np.arange(100) == 99)
    assert "should not answer on its own" in verdicts.promise([], None, lucky)


def test_a_model_without_a_mistake_answers_everything():
    perfect = curve(5000, 0, 5000, 0)
    (only,) = verdicts.rules(perfect, perfect)
    assert only.coverage == 1
    assert said(verdicts.promise([only], perfect, perfect)) == "To be right 99 % of the time, answer every case."


def test_a_rule_that_accepts_none_of_the_others_is_told():
    held_out = curve(7000, 0, 3000, 3000)
    other = risk_coverage([0.3, 0.4], [True, False])
    found = verdicts.rules(held_out, other)
    assert found[0].accuracy is None
    assert "answer these 0 % of cases" in said(verdicts.promise(found, held_out, other))
