"""What the report says: the verdict, the promises, and numbers in print."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.metrics import Estimate, ReliabilityTable, clopper_pearson, evaluate
from vicinal.metrics.selective import risk_coverage
from vicinal.report import verdicts
from vicinal.report.formatting import number, percent, span, with_interval


def table(*groups: tuple[float, int, int], n_bins: int = 15) -> ReliabilityTable:
    """Return the table of groups (confidence, right, of)."""
    sure = np.concatenate([np.full(n, level) for level, _, n in groups])
    right = np.concatenate([np.arange(n) < k for _, k, n in groups])
    return ReliabilityTable.from_confidences(sure, right, n_bins=n_bins)


def said(text: str) -> str:
    return text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("right", "tone", "sentence"),
    [
        (900, "fits", "When it says 90 %, it is right 87–92 % of the time."),
        (700, "over", "When it says 90 %, it is right only 67–73 % of the time."),
        (980, "under", "When it says 90 %, it is right in fact 96.9–98.8 % of the time."),
    ],
)
def test_the_verdict_is_about_ninety_percent(right, tone, sentence):
    found = verdicts.verdict(table((0.9, right, 1000), (0.5, 2, 4)))
    assert (found.tone, said(found.sentence)) == (tone, sentence)


def test_the_interval_of_the_sentence_is_clopper_and_pearsons_rounded_outward():
    low, high = clopper_pearson(900, 1000)
    assert said(span(float(low), float(high), 1)) == "88–91.8 %".replace("88–", f"{math.floor(1000 * low) / 10}–")
    assert math.floor(1000 * low) / 10 <= 100 * low
    assert 100 * high <= 91.8


@pytest.mark.parametrize("n_bins", [1, 2, 10, 15, 20, 100])
def test_the_verdict_finds_ninety_percent_in_any_bins(n_bins):
    found = verdicts.verdict(table((0.9, 900, 1000), n_bins=n_bins))
    assert found.tone == "fits"
    assert "says 90" in said(found.sentence)


def test_with_few_near_ninety_percent_the_fullest_level_speaks():
    found = verdicts.verdict(table((0.9, 40, 49), (0.7, 280, 400), (0.5, 30, 60)))
    assert said(found.sentence).startswith("When it says 70 %, it is right 65–75 %")


def test_too_few_samples_say_so():
    found = verdicts.verdict(table((0.9, 9, 10)))
    assert found.tone == "unknown"
    assert "too few samples" in found.sentence
    assert "10 samples" in said(found.sentence)


def test_a_level_that_fits_does_not_hide_one_that_does_not():
    found = verdicts.verdict(table((0.9, 900, 1000), (0.63, 20, 100)))
    assert found.tone == "fits"
    assert "when it says 63 %, it is right only" in said(found.more)
    assert "word" not in found.word


def test_an_ece_beyond_chance_is_said_with_its_bins():
    found = verdicts.verdict(table((0.9, 180, 200), *((level, 0, 45) for level in (0.3, 0.4, 0.5, 0.6, 0.7))))
    assert "ECE, 15 bins" in found.more
    assert "on the whole it is over-confident" in found.more


def test_a_certain_but_tiny_gap_is_none():
    assert verdicts.verdict(table((0.9, 896_000, 1_000_000))).tone == "fits"
    assert verdicts.verdict(table((0.9, 880_000, 1_000_000))).tone == "over"


def test_nearly_certain_is_not_printed_as_certain():
    assert "over 99.9" in verdicts.verdict(table((0.99997, 1000, 1000))).sentence
    assert "says 100" in said(verdicts.verdict(table((1.0, 1000, 1000))).sentence)


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
    assert with_interval(Estimate(0.1, -0.2, 0.3), share=False) == ("0.1000", "-0.2000 to 0.3000")
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
    assert "99 % is more than 269 samples can promise" in text
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


# What is reached without a model


def predicted(labels: list[int], probs: list[list[float]]):
    return evaluate(labels, probs=probs)


def test_a_verdict_names_what_is_reached_base_rate_sentence():
    good = predicted(
        [0] * 300 + [1] * 100, [[0.9, 0.1]] * 270 + [[0.1, 0.9]] * 30 + [[0.1, 0.9]] * 90 + [[0.9, 0.1]] * 10
    )
    found = verdicts.judged(good, ["no", "yes"])
    assert found.tone == "fits"
    assert "always answering 'no' is right 75.0 % of the time" in said(found.more)
    assert "the shares of the classes have an NLL of 0.562; its own NLL is 0.325" in said(found.more)
    assert verdicts.majority_warning(good) == ""


def test_a_model_that_is_no_better_than_the_majority_never_fits():
    useless = predicted([0] * 900 + [1] * 100, [[0.9, 0.1]] * 1000)
    assert verdicts.verdict(useless.table).tone == "fits"
    found = verdicts.judged(useless, ["no", "yes"])
    assert found.tone == "over"
    assert said(found.sentence) == "It is no better than always answering 'no', which is right 90.0 % of the time."


def test_answers_of_the_majority_alone_are_told_from_probabilities_that_say_more():
    ranked = predicted([0] * 900 + [1] * 100, [[0.99, 0.01]] * 850 + [[0.6, 0.4]] * 150)
    assert "right no more often than always answering class 0" in verdicts.majority_warning(ranked)
    assert verdicts.judged(ranked).tone == "unknown"


def test_at_chance_it_is_not_shown_to_be_better():
    chance = predicted([0, 1] * 50, [[0.52, 0.48]] * 51 + [[0.48, 0.52]] * 49)
    assert "not shown to be better" in verdicts.majority_warning(chance) or "no better" in verdicts.majority_warning(
        chance
    )
    assert verdicts.judged(chance).tone != "fits"


def test_no_verdict_says_both_over_and_under_confident():
    found = verdicts.verdict(table((0.9, 990, 1000), (0.63, 100, 600)))
    assert found.tone == "under"
    assert found.word == "Its confidence is uneven: too high in places, too low in others."
