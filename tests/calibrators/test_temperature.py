from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.special import logsumexp, softmax

from vicinal.calibrators import TemperatureScaling
from vicinal.calibrators.temperature import GRID, grid_ece, newton_nll, nll_derivatives


def planted(temperature, n=4_000, k=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * temperature * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator)[:, 0]
    return logits, labels


def slow_nll(logits, labels, temperature):
    """The mean negative log-likelihood, sample by sample from its formula, in Python's floats."""
    total = 0.0
    for row, y in zip(torch.as_tensor(logits).double().tolist(), torch.as_tensor(labels).tolist(), strict=True):
        z = [value / temperature for value in row]
        total += max(z) + math.log(sum(math.exp(value - max(z)) for value in z)) - z[y]
    return total / len(labels)


def slow_temperature(logits, labels):
    """The minimum by scipy, in float64."""
    z, y = np.asarray(logits, dtype=np.float64), np.asarray(labels)

    def nll(u):
        scaled = z * math.exp(-u)
        return np.mean(logsumexp(scaled, axis=1) - scaled[np.arange(len(y)), y])

    return math.exp(minimize_scalar(nll, bounds=(-7, 7), options={"xatol": 1e-10}).x)


def derivatives(logits, labels, beta):
    z = logits.numpy()
    return nll_derivatives(z, labels.numpy(), z.max(axis=1), beta)


def exact_fit_data(temperature, k=4):
    """Logits and labels whose best temperature is known: label frequencies equal softmax(z / T) of the one row."""
    counts = np.array([400, 300, 200, 100])[:k]
    row = temperature * np.log(counts / counts.sum())
    return np.tile(row, (counts.sum(), 1)), np.repeat(np.arange(k), counts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("temperature", [0.02, 0.3, 1.0, 1.698, 4.0, 50.0])
def test_a_planted_temperature_is_recovered(temperature, dtype):
    logits, labels = exact_fit_data(temperature)
    found = TemperatureScaling().fit(logits.astype(dtype), labels).temperature_
    assert found == pytest.approx(temperature, rel=1e-5 if dtype == np.float32 else 1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("temperature", "n", "k"), [(0.05, 2_000, 3), (1.7, 500, 100), (2.5, 9_000, 10), (30.0, 300, 2)]
)
def test_the_optimum_is_scipys(temperature, n, k, dtype):
    logits, labels = planted(temperature, n, k)
    found = TemperatureScaling().fit(logits.to(dtype), labels).temperature_
    assert found == pytest.approx(slow_temperature(logits, labels), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_fitted_as_the_numbers_they_are(dtype):
    logits, labels = planted(2.0)
    rounded = logits.to(dtype)
    assert TemperatureScaling().fit(rounded, labels).temperature_ == pytest.approx(
        slow_temperature(rounded.double(), labels), rel=1e-6
    )


def test_many_rows_start_from_a_subsample_and_end_at_the_same_optimum(monkeypatch):
    logits, labels = planted(2.0, n=30_000, k=5)
    order = labels.argsort()  # sorted by class, as folders of images are
    passes = []
    monkeypatch.setattr(
        "vicinal.calibrators.temperature.nll_derivatives",
        lambda z, y, *rest: passes.append(len(z)) or nll_derivatives(z, y, *rest),
    )
    found = TemperatureScaling().fit(logits[order], labels[order]).temperature_
    assert found == pytest.approx(slow_temperature(logits, labels), rel=1e-6)
    assert sum(n == 30_000 for n in passes) <= 4


def test_derivatives_agree_with_autograd():
    logits, labels = planted(2.0, n=50)
    beta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    nll = torch.nn.functional.cross_entropy(beta * logits, labels)
    (slope,) = torch.autograd.grad(nll, beta, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, beta)
    expected = (nll.item(), slope.item(), curvature.item())
    assert derivatives(logits, labels, 0.7) == pytest.approx(expected, rel=1e-9)
    assert nll.item() == pytest.approx(slow_nll(logits, labels, 1 / 0.7))


def test_the_predicted_class_and_the_accuracy_stay():
    logits, labels = planted(3.0, n=20_000)
    for dtype in (torch.float32, torch.float64):
        z = logits.to(dtype)
        calibrator = TemperatureScaling().fit(z, labels)
        assert torch.equal(calibrator(z).argmax(1), z.argmax(1))
        assert torch.equal(calibrator(z), z / calibrator.temperature_)


def test_confidence_equals_accuracy_on_average_at_a_fitted_two_class_optimum():
    # With z in {±c} the score equation says: mean confidence = accuracy.
    logits, labels = torch.tensor([[5.0, 0.0]]).repeat(10, 1), torch.tensor([0] * 7 + [1] * 3)
    assert TemperatureScaling().fit(logits, labels).predict_proba(logits)[0, 0] == pytest.approx(0.7, abs=1e-6)


@given(scale=st.floats(0.1, 10), shift=st.floats(-100, 100))
@settings(max_examples=20, deadline=None)
def test_scaling_the_logits_scales_the_temperature_and_a_shift_changes_nothing(scale, shift):
    logits, labels = planted(2.0, n=200, k=4)
    one = TemperatureScaling().fit(logits, labels).temperature_
    other = TemperatureScaling().fit(scale * logits + shift, labels).temperature_
    assert other == pytest.approx(scale * one, rel=1e-6)


@given(n=st.integers(2, 30), k=st.integers(2, 5), seed=st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_the_slope_is_zero_at_the_optimum_or_points_out_of_the_range(n, k, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.randint(k, (n,), generator=generator)
    found = newton_nll(logits.numpy(), labels.numpy(), low=1e-3, high=1e3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = TemperatureScaling().fit(logits, labels).temperature_
    # The calibrator takes the optimum, unless it is lower or higher than so few samples can show.
    assert fitted == found or found < fitted <= 1 or 1 <= fitted < found
    slope = derivatives(logits, labels, 1 / found)[1]
    if found == 1e-3:
        assert slope <= 0
    elif found == 1e3:
        assert slope >= 0
    else:
        best = brentq(lambda u: derivatives(logits, labels, math.exp(u))[1], -7, 7, xtol=1e-12)
        assert found == pytest.approx(math.exp(-best), rel=1e-5)


def expected_mistakes(logits, labels, temperature):
    """Sample by sample: how much probability the right answers leave to others, as a share of all samples."""
    left = 0.0
    for z, y in zip(logits.double().tolist(), labels.tolist(), strict=True):
        if z[y] == max(z):
            left += 1 - 1 / sum(math.exp((value - max(z)) / temperature) for value in z)
    return left / len(labels)


def test_separable_data_stops_where_they_show_no_more_and_say_so():
    logits, labels = torch.eye(3), torch.arange(3)
    with pytest.warns(UserWarning, match=r"stopped at 0\.4809, .*3 samples"):
        fitted = TemperatureScaling().fit(logits, labels)
    assert fitted.temperature_ == pytest.approx(1 / math.log(8), rel=1e-5)  # 2 / (2 + exp(1 / T)) is 1 / 5
    with pytest.warns(UserWarning, match=r"stopped at 0\.5, the lower end"):
        assert TemperatureScaling(bounds=(0.5, 2)).fit(logits, labels).temperature_ == 0.5


@pytest.mark.parametrize("n", [10, 50, 500])
def test_a_small_set_without_mistakes_does_not_make_a_model_certain(n):
    generator = torch.Generator().manual_seed(n)
    logits = 3 * torch.randn(n, 4, generator=generator)
    labels = logits.argmax(dim=1)
    with pytest.warns(UserWarning, match="the lowest that"):
        fitted = TemperatureScaling().fit(logits, labels)
    assert expected_mistakes(logits, labels, fitted.temperature_) == pytest.approx(1 / (n + 2), rel=1e-4)
    assert fitted.temperature_ < 1
    # The published grid keeps its own ends.
    with pytest.warns(UserWarning, match=r"stopped at 0\.01, the lower end of \[0\.01, 5\]"):
        assert TemperatureScaling(search="grid").fit(logits, labels).temperature_ == 0.01


def test_a_model_that_is_surer_than_samples_can_show_stays_as_it_is():
    with pytest.warns(UserWarning, match="stopped at 1, the lowest that 30 samples"):
        assert TemperatureScaling().fit(20 * torch.eye(3).repeat(10, 1), torch.arange(3).repeat(10)).temperature_ == 1


def test_nearly_separable_data_has_its_own_optimum():
    logits, labels = torch.eye(3).repeat(1000, 1).double(), torch.arange(3).repeat(1000)
    labels[0] = 1
    found = TemperatureScaling().fit(logits, labels).temperature_
    assert found == pytest.approx(slow_temperature(logits, labels), rel=1e-6)


def test_a_mistake_by_a_hair_still_ends_at_the_bound_quickly(monkeypatch):
    logits, labels = 20 * torch.eye(3).repeat(100, 1).double(), torch.arange(3).repeat(100)
    logits[0] = torch.tensor([0.0, 1e-9, -1e-3])
    passes = []
    monkeypatch.setattr(
        "vicinal.calibrators.temperature.nll_derivatives",
        lambda z, y, top, beta, w: passes.append(beta) or nll_derivatives(z, y, top, beta, w),
    )
    with pytest.warns(UserWarning, match="the lowest that 300 samples"):
        assert TemperatureScaling().fit(logits, labels).temperature_ == 1  # margins of 20: surer than 300 can show
    assert len(passes) < 10


@pytest.mark.parametrize("labels", [torch.tensor([2, 0, 1]), torch.tensor([1, 2, 0])])
def test_logits_worse_than_chance_stop_where_so_few_samples_can_show_it(labels):
    logits = torch.eye(3)
    with pytest.warns(UserWarning, match="the highest that 3 samples no better than chance can show"):
        found = TemperatureScaling().fit(logits, labels).temperature_

    def excess(temperature):  # by its definition, a sample at a time
        tops = [max(math.exp(v / temperature) for v in row) for row in logits.tolist()]
        sums = [sum(math.exp(v / temperature) for v in row) for row in logits.tolist()]
        return sum(top / total for top, total in zip(tops, sums, strict=True)) / 3 - 1 / 3 - 1 / 5

    assert excess(found * 0.9999) > 0 > excess(found * 1.0001)
    with pytest.warns(UserWarning, match="stopped at 1.1, the upper end"):
        assert TemperatureScaling(bounds=(0.1, 1.1)).fit(logits, labels).temperature_ == 1.1


def test_what_many_samples_no_better_than_chance_can_show_is_bounded_too():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(400, 2, generator=generator, dtype=torch.float64)
    labels = logits.argmin(dim=1)  # always the other one
    with pytest.warns(UserWarning, match="no better than chance"):
        found = TemperatureScaling().fit(logits, labels).temperature_
    assert 1 < found < 1000
    mean = float((logits / found).softmax(dim=1).amax(dim=1).mean())
    assert mean == pytest.approx(0.5 + 1 / 402, abs=1e-6)


def test_constant_logits_leave_one_and_say_so():
    with pytest.warns(UserWarning, match="constant in every row"):
        fitted = TemperatureScaling().fit(torch.full((4, 3), 7.0), torch.tensor([0, 1, 2, 0]))
    assert fitted.temperature_ == 1.0


def test_the_warning_points_at_the_callers_line():
    with pytest.warns(UserWarning, match="the lowest") as caught:
        TemperatureScaling().fit(torch.eye(3), torch.arange(3))
    assert caught[0].filename == __file__


def test_the_grid_is_park_and_carageas():
    assert len(GRID) == 500
    assert (GRID[0], GRID[1], GRID[-1]) == (0.01, 0.02, 5.0)


@pytest.mark.parametrize("temperature", [0.05, 0.8, 1.234, 4.5])
def test_grid_search_finds_what_trying_every_temperature_finds(temperature):
    logits, labels = planted(temperature, n=40, k=4)
    tried = [slow_nll(logits, labels, t) for t in GRID]
    found = TemperatureScaling(search="grid").fit(logits, labels).temperature_
    assert found == GRID[int(np.argmin(tried))]


@pytest.mark.parametrize(("temperature", "end"), [(1e-4, 0.01), (20.0, 5.0)])
def test_grid_search_beyond_its_ends_says_so(temperature, end):
    logits, labels = planted(temperature)
    with pytest.warns(UserWarning, match=f"stopped at {end:g}"):
        assert TemperatureScaling(search="grid").fit(logits, labels).temperature_ == end


def slow_ece(probs, labels, n_bins):
    """ECE from its definition: bins (lo, hi], 0 in the first."""
    bins = [[] for _ in range(n_bins)]
    for p, y in zip(probs, labels, strict=True):
        confidence = p.max()
        which = next(b for b in range(n_bins) if confidence <= (b + 1) / n_bins or b == n_bins - 1)
        bins[which].append((confidence, p.argmax() == y))
    n = len(labels)
    return sum(len(b) / n * abs(np.mean([c for c, _ in b]) - np.mean([a for _, a in b])) for b in bins if b)


@pytest.mark.parametrize("n_bins", [1, 10, 15])
def test_ece_of_the_grid_is_that_of_the_definition(n_bins):
    logits, labels = planted(2.0, n=80, k=3)
    grid = GRID[[4, 99, 199, 499]]
    expected = [slow_ece(softmax(logits.numpy() / t, axis=1), labels.numpy(), n_bins) for t in grid]
    np.testing.assert_allclose(grid_ece(logits.numpy(), labels.numpy(), grid, n_bins=n_bins), expected, atol=1e-12)


def test_full_confidence_counts_in_the_last_bin():
    logits = np.array([[800.0, 0.0], [800.0, 0.0]])  # confidence exactly 1, half of it wrong
    assert grid_ece(logits, np.array([0, 1]), np.array([1.0]), n_bins=15) == pytest.approx([0.5])


def test_criterion_ece_takes_the_grids_best():
    logits, labels = planted(2.0, n=2_000, k=5)
    errors = grid_ece(logits.numpy(), labels.numpy(), GRID, n_bins=10)
    found = TemperatureScaling(search="grid", criterion="ece", n_bins=10).fit(logits, labels).temperature_
    assert found == GRID[errors.argmin()]
    assert found == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"search": "adam"}, "search must be one of 'newton', 'grid', got 'adam'"),
        ({"criterion": "brier"}, "criterion must be one of 'nll', 'ece', got 'brier'"),
        ({"criterion": "ece"}, "needs search='grid'"),
        ({"n_bins": 0}, "n_bins must be an integer of at least 1, got 0"),
        ({"bounds": (0, 1)}, r"bounds\[0\] must be a number above 0, got 0"),
        ({"bounds": (2, 1)}, r"bounds must be increasing, got \(2, 1\)"),
        ({"bounds": 3}, "bounds must be a pair"),
        ({"bounds": (1, 2, 3)}, "bounds must be a pair"),
        ({"bounds": (1, math.inf)}, r"bounds\[1\]"),
    ],
)
def test_bad_hyper_parameters_are_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        TemperatureScaling(**arguments)


def test_fields_are_normalised():
    assert repr(TemperatureScaling(bounds=[1, 2])) == (
        "TemperatureScaling(search='newton', criterion='nll', n_bins=15, bounds=(1.0, 2.0))"
    )
    with pytest.raises(TypeError):
        TemperatureScaling("grid")


def test_a_negative_temperature_is_not_loaded():
    state = TemperatureScaling().fit(*planted(2.0)).state_dict()
    state["learned"]["temperature_"] = -1.0
    with pytest.raises(ValueError, match="temperature_ must be a number above 0"):
        TemperatureScaling.from_state_dict(state)
