"""Which calibrator: the rule by hand, what it says, and what it is given."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.special import softmax

import vicinal
from vicinal._checks import ArgumentError
from vicinal.calibrators import (
    CALIBRATORS,
    Calibrator,
    MixtureCalibration,
    TemperatureScaling,
    calibrate,
    cross_validate,
)
from vicinal.calibrators.auto import Candidate, _taken, candidates, least_prob, logits_of_probs
from vicinal.calibrators.mixture import mixture_shares
from vicinal.calibrators.validation import HeldOut


def planted(n=400, k=3, seed=0, truth=lambda z: z / 2):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, k))
    labels = (truth(logits) + rng.gumbel(size=(n, k))).argmax(axis=1)
    return logits, labels


def tried_on(logits, labels, weights=None, **how):
    return candidates(HeldOut.of(labels, logits, sample_weight=weights, **how))


def test_candidates_by_hand():
    logits, labels = planted(n=150)
    found = {one.name: one for one in tried_on(logits, labels)}
    assert list(found) == ["temperature", "none", "svs", "sms", "quadratic", "isotonic", "mixture"]
    tried = cross_validate(TemperatureScaling(), logits, labels, folds=10)
    assert found["temperature"].nll == pytest.approx(tried.with_it)
    assert found["none"].nll == pytest.approx(tried.without)
    best = min(one.nll for one in found.values())
    losses = [
        math.log(sum(math.exp(v) for v in z)) - z[y] for z, y in zip(logits.tolist(), labels.tolist(), strict=True)
    ]
    mean = sum(losses) / 150
    half = 1.959964 * math.sqrt(sum((v - mean) ** 2 for v in losses)) / 150
    assert found["none"].interval == pytest.approx((mean - half, mean + half))
    for one in found.values():
        assert one.behind == pytest.approx(one.nll - best)
        assert (one.standard_error == 0) == (one.nll == best)


def test_two_classes_have_all_candidates_and_many_no_matrix():
    logits, labels = planted(k=2, n=100)
    assert [c.name for c in tried_on(logits, labels)] == [
        "temperature", "none", "svs", "sms", "quadratic", "isotonic", "mixture",
    ]  # fmt: skip
    logits, labels = planted(k=101, n=60)
    found = [c.name for c in tried_on(logits, labels, folds=2)]
    assert found == ["temperature", "none", "svs", "isotonic", "mixture"]


def test_the_shares_of_a_mixture_by_a_search():
    """Every mixture of three on a grid of percents: none has a lower held-out loss."""
    rng = np.random.default_rng(0)
    losses = {name: rng.exponential(0.5, 80) for name in ("none", "svs", "isotonic")}
    weights = rng.integers(1, 4, 80).astype(float)

    def nll(shares):
        total = 0.0
        for i, weight in enumerate(weights):
            total -= weight * math.log(sum(w * math.exp(-losses[name][i]) for name, w in shares.items()))
        return total / weights.sum()

    found = mixture_shares(losses, weights)
    assert sum(found.values()) == pytest.approx(1)
    grid = [
        dict(zip(losses, (i / 50, j / 50, 1 - (i + j) / 50), strict=True)) for i in range(51) for j in range(51 - i)
    ]
    best = min(grid, key=nll)
    assert nll(found) <= nll(best) + 1e-6
    assert {name: found.get(name, 0.0) for name in losses} == pytest.approx(best, abs=0.02)
    tried = tried_on(*planted(n=150))
    assert tried[-1].nll <= min(one.nll for one in tried) + 1e-4  # shares are whole percents
    assert sum(one.share for one in tried[:-1]) == pytest.approx(1)


def rows(**given):
    """Candidates from how much worse than the best they are, its standard error, and their share in the mixture."""
    return [Candidate(name, 0.5 + d, (0, 1), d, error, share) for name, (d, error, share) in given.items()]


@pytest.mark.parametrize(
    ("tried", "taken"),
    [
        (
            rows(temperature=(0.02, 0.03, 0.1), none=(0.1, 0, 0), sms=(0.01, 0.02, 0.9), mixture=(0, 0, 1)),
            "temperature",
        ),
        (
            rows(temperature=(0.03, 0.03, 0.1), none=(0.1, 0, 0), sms=(0.01, 0.02, 0.9), mixture=(0, 0, 1)),
            "temperature",
        ),
        (rows(temperature=(0.04, 0.03, 0.1), none=(0.1, 0, 0), sms=(0.01, 0.02, 0.9), mixture=(0, 0, 1)), "mixture"),
        # A mixture of one is that one.
        (rows(temperature=(0.04, 0.03, 0), none=(0.1, 0.1, 0), sms=(0.0, 0.0, 1.0), mixture=(0, 0, 1)), "sms"),
        (rows(temperature=(0.04, 0.03, 0), none=(0.0, 0.0, 1.0), sms=(0.1, 0.1, 0), mixture=(0, 0, 1)), "none"),
        (rows(none=(0.0, 0.0, 0)), "none"),
    ],
)
def test_the_simplest_within_one_standard_error_of_the_best_is_taken(tried, taken):
    assert _taken(tried) == taken


def _calibrated(logits, labels):
    return calibrate(labels, logits=logits)


def test_it_chooses_what_was_planted_and_says_why():
    over = _calibrated(*planted(n=2_000))
    assert over.name == "temperature"
    assert over.calibrator.temperature_ == pytest.approx(2, rel=0.1)
    biased = _calibrated(*planted(n=2_000, truth=lambda z: z + np.array([2.0, 0.0, -1.0])))
    shares = {one.name: one.share for one in biased.tried}
    assert biased.name in ("svs", "sms", "mixture")
    assert shares["none"] + shares["temperature"] < 0.1
    text = str(biased)
    assert biased.why in text
    assert all(one.name in text for one in biased.tried)
    assert text.count("<- taken") == 1
    assert biased.to_dict()["tried"][0]["name"] == "temperature"


def test_a_mixture_is_the_mean_of_probabilities_by_hand():
    logits, labels = planted(n=200)
    shares = {"none": 0.2, "sms": 0.5, "isotonic": 0.3}
    mixture = MixtureCalibration(members=tuple(shares), shares=tuple(shares.values())).fit(logits, labels)
    alone = {name: calibrate(labels, logits=logits, method=name).predict_proba(logits=logits) for name in shares}
    found = mixture.predict_proba(logits)
    for i in range(200):
        for k in range(3):
            assert found[i, k] == pytest.approx(sum(w * alone[name][i, k] for name, w in shares.items()))
    assert mixture.text == "mixture of 50 % sms, 30 % isotonic and 20 % none"


@pytest.mark.parametrize(
    ("members", "shares", "match"),
    [
        ((), (), "members"),
        (("sms", "sms"), (0.5, 0.5), "members"),
        (("plat",), (1.0,), "members"),
        (("sms", "svs"), (1.0,), "shares"),
        (("sms", "svs"), (0.5, 0.6), "shares"),
        (("sms", "svs"), (1.0, 0.0), "shares"),
        (("sms", "svs"), (0.5, math.nan), "shares"),
    ],
)
def test_a_mixture_of_nothing_known_is_refused(members, shares, match):
    with pytest.raises(ArgumentError, match=match):
        MixtureCalibration(members=members, shares=shares)


@pytest.mark.parametrize("name", [*CALIBRATORS, "none"])
def test_each_name_is_fitted_as_asked(name):
    logits, labels = planted(n=120)
    done = calibrate(labels, logits=logits, method=name)
    assert done.name == name
    assert not done.tried
    assert "as asked" in done.why
    np.testing.assert_allclose(done.predict_proba(logits=logits), softmax(done(logits), axis=1), atol=1e-9)
    assert isinstance(done.calibrator, Calibrator)


def test_probabilities_give_what_their_logits_give():
    logits, labels = planted(n=300)
    probs = softmax(logits, axis=1)
    for name in ("temperature", "svs", "sms", "isotonic", "venn-abers"):
        one, other = calibrate(labels, logits=logits, method=name), calibrate(labels, probs=probs, method=name)
        np.testing.assert_allclose(one.predict_proba(logits=logits), other.predict_proba(probs=probs), atol=1e-5)


def test_probabilities_of_zero_count_as_half_the_smallest_there_is():
    probs = np.array([[1.0, 0.0], [0.96, 0.04], [0.5, 0.5]])
    assert least_prob(probs) == 0.02
    assert least_prob(probs[1:]) == 1e-6
    assert least_prob(np.array([[1.0, 1e-30, 0.0]])) == 1e-6
    np.testing.assert_allclose(logits_of_probs(probs)[0], [0, math.log(0.02)])
    done = calibrate([0, 0, 1], probs=probs, method="temperature")
    assert done.least == 0.02  # which new data have as well, whatever theirs is
    new = done.predict_proba(probs=[[1.0, 0.0]])
    np.testing.assert_allclose(new, softmax(np.log([[1.0, 0.02]]) / done.calibrator.temperature_, axis=1))


def test_weights_count_in_the_choice_and_in_the_fit():
    logits, labels = planted(n=300)
    times = np.arange(300) % 3
    weighted = calibrate(labels, logits=logits, method="temperature", sample_weight=times)
    repeated = calibrate(labels.repeat(times), logits=logits.repeat(times, axis=0), method="temperature")
    assert weighted.calibrator.temperature_ == pytest.approx(repeated.calibrator.temperature_)
    # In the same folds every held-out loss, standard error and share is that of repeated rows.
    fold = np.arange(300) % 7
    weighted = calibrate(labels, logits=logits, sample_weight=times, folds=fold)
    repeated = calibrate(labels.repeat(times), logits=logits.repeat(times, axis=0), folds=fold.repeat(times))
    assert weighted.name == repeated.name
    for one, other in zip(weighted.tried, repeated.tried, strict=True):
        assert dataclasses.astuple(one)[1:] == pytest.approx(
            (other.nll, pytest.approx(other.interval), other.behind, other.standard_error, other.share), abs=1e-8
        )


def test_few_samples_are_left_alone_and_tensors_are_taken():
    logits, labels = planted(n=1)
    assert calibrate(labels, logits=logits).name == "none"
    logits, labels = planted(n=60)
    done = vicinal.calibrate(torch.from_numpy(labels), logits=torch.from_numpy(logits).float(), method="svs")
    assert isinstance(done(torch.from_numpy(logits)), torch.Tensor)


def test_what_a_fit_warns_of_is_noted():
    done = calibrate([0, 1] * 10, logits=np.array([[3.0, 0.0], [0.0, 3.0]] * 10), method="temperature")
    assert any("temperature stopped" in note for note in done.notes)
    assert "note: " in str(done)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "exactly one of logits= and probs=, got neither"),
        ({"logits": [[0.0, 1.0]], "probs": [[0.5, 0.5]]}, "got both"),
        ({"probs": [[1.5, -0.5]]}, "probs"),
        ({"logits": [[0.0, 1.0]] * 2}, "same length"),
        ({"logits": [[0.0, 1.0]], "method": "plat"}, "method"),
    ],
)
def test_bad_arguments_are_refused(given, match):
    with pytest.raises(ValueError, match=match):
        calibrate([1], **given)
