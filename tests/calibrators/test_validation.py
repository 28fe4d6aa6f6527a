"""Does a calibrator help on samples that it was not fitted on?"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vicinal.calibrators import (
    CrossValidation,
    HistogramBinning,
    IsotonicCalibration,
    TemperatureScaling,
    calibrate,
    cross_validate,
)


def predictions(n: int, *, sharpness: float, k: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return logits that are calibrated at sharpness 1, and labels."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(n, k)) * 2
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([random.choice(k, p=p) for p in probs])
    return sharpness * logits, labels


def test_equals_fitting_without_each_fold_by_hand():
    logits, labels = predictions(40, sharpness=2.0)
    order = sorted(range(40), key=lambda i: (labels[i], i))
    fold = {i: place % 4 for place, i in enumerate(order)}
    with_it = without = worst = 0.0
    on_all = TemperatureScaling().fit(logits, labels).temperature_
    for z in logits:
        hotter = math.log(sum(math.exp(v / on_all) for v in z)) - math.log(sum(math.exp(v) for v in z))
        worst = max(worst, *(hotter + v - v / on_all for v in z))
    for number in range(4):
        rest = [i for i in range(40) if fold[i] != number]
        t = TemperatureScaling().fit(logits[rest], labels[rest]).temperature_
        for i in range(40):
            if fold[i] == number:
                z = logits[i]
                without += math.log(sum(math.exp(v) for v in z)) - z[labels[i]]
                with_it += math.log(sum(math.exp(v / t) for v in z)) - z[labels[i]] / t
    tried = cross_validate(TemperatureScaling(), logits, labels, folds=4)
    assert tried.with_it == pytest.approx(with_it / 40)
    assert tried.without == pytest.approx(without / 40)
    assert tried.margin == pytest.approx(worst / 40)  # of fewer than 50 samples
    assert not CrossValidation(1.0, 0.9, margin=0.2).helps


def test_many_over_confident_samples_are_helped_and_few_calibrated_ones_are_not():
    assert cross_validate(TemperatureScaling(), *predictions(300, sharpness=3.0)).helps
    assert not cross_validate(HistogramBinning(), *predictions(60, sharpness=1.0, k=5)).helps
    assert not cross_validate(IsotonicCalibration(), *predictions(60, sharpness=1.0, k=5)).helps


def test_the_calibrator_is_left_alone_and_tensors_are_taken():
    logits, labels = predictions(30, sharpness=1.0)
    calibrator = TemperatureScaling().fit(logits, labels)
    before = calibrator.temperature_
    tensors = cross_validate(calibrator, torch.from_numpy(logits), torch.from_numpy(labels))
    assert tensors == cross_validate(TemperatureScaling(), logits, labels)
    assert calibrator.temperature_ == before


def test_two_samples_are_enough_and_one_is_not():
    cross_validate(TemperatureScaling(), [[0.0, 1.0], [1.0, 0.0]], [0, 1])
    with pytest.raises(ValueError, match="at least 2"):
        cross_validate(TemperatureScaling(), [[0.0, 1.0]], [0])


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_useless_scores_of_few_samples_are_left_as_they_are(n: int):
    """Without the margin the mean NLL on new samples would be about 0.8 in place of 0.694."""
    random = np.random.default_rng(n)
    taken = []
    for _ in range(20):
        logits, labels = random.normal(size=(n, 2)) * 0.05, random.integers(2, size=n)
        taken += [cross_validate(TemperatureScaling(), logits, labels).helps]
        taken += [calibrate(labels, logits=logits).name != "none"] * (n > 2)
    assert sum(taken) <= len(taken) * 0.05


def test_groups_stay_together_in_the_choice():
    """Eight groups of ten equal rows: divided between folds, a calibrator of many values would know their labels."""
    random = np.random.default_rng(1)
    logits, labels = random.normal(size=(8, 2)).repeat(10, 0), random.integers(2, size=8).repeat(10)
    alone, together = (calibrate(labels, logits=logits, groups=g) for g in (None, np.arange(8).repeat(10)))
    wide, narrow = (next(one for one in of.tried if one.name == "none").interval for of in (together, alone))
    assert wide[1] - wide[0] > 2.5 * (narrow[1] - narrow[0])
    best = {of: min(one.nll for one in of.tried) for of in (alone, together)}
    assert best[together] > best[alone]
