"""What every public calibrator promises."""

from __future__ import annotations

import copy
import json
import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal import calibrators
from vicinal.calibrators import (
    Calibrator,
)

from .cases import CALIBRATORS as CASES

PUBLIC = [
    value
    for name in calibrators.__all__
    if isinstance(value := getattr(calibrators, name), type)
    and issubclass(value, Calibrator)
    and value is not Calibrator
]

pytestmark = pytest.mark.filterwarnings("ignore:a matrix of")  # more classes than max_classes

each = pytest.mark.parametrize("case", CASES, ids=repr)


def data(n=400, k=4, temperature=2.0, seed=0):
    """Over-confident logits: the labels are drawn from softmax(logits / temperature)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator)[:, 0]
    return logits.float(), labels


def fresh(case):
    """A new, unfitted calibrator equal to `case`: also the test that repr is the Python that builds it."""
    built = eval(repr(case), vars(calibrators))
    assert repr(built) == repr(case)
    assert not hasattr(built, "n_classes_")
    return built


def test_every_public_calibrator_is_in_the_contract():
    assert {type(case) for case in CASES} == set(PUBLIC)


@each
def test_fit_returns_self_and_learns_names_that_end_in_an_underscore(case):
    calibrator = fresh(case)
    before = set(vars(calibrator))
    assert calibrator.fit(*data()) is calibrator
    learned = set(vars(calibrator)) - before
    assert "n_classes_" in learned
    assert len(learned) >= 2
    assert all(name.endswith("_") for name in learned)
    assert repr(calibrator) == repr(case)  # the learned values are not hyper-parameters


@each
def test_hyper_parameters_cannot_change_after_construction(case):
    with pytest.raises(AttributeError):
        fresh(case).n_bins = 3


@each
def test_unfitted_says_call_fit_first(case, tmp_path):
    calibrator = fresh(case)
    logits, _ = data(n=3)
    for use in (
        lambda: calibrator(logits),
        lambda: calibrator.predict_proba(logits),
        calibrator.state_dict,
        lambda: calibrator.save(tmp_path / "never.json"),
    ):
        with pytest.raises(RuntimeError, match=r"not fitted: call fit\(logits, labels\) first"):
            use()
    assert not list(tmp_path.iterdir())


@each
def test_call_gives_logits_whose_softmax_is_predict_proba(case):
    logits, labels = data()
    calibrator = fresh(case).fit(logits, labels)
    out = calibrator(logits)
    assert out.shape == logits.shape
    assert out.isfinite().all()
    probs = calibrator.predict_proba(logits)
    torch.testing.assert_close(out.softmax(1), probs)
    torch.testing.assert_close(probs.sum(1), torch.ones(len(logits)))
    assert (probs >= 0).all()


@each
def test_calibrating_improves_the_likelihood_of_over_confident_logits(case):
    logits, labels = data(n=20_000)
    held_out, truth = data(n=20_000, seed=1)
    out = fresh(case).fit(logits, labels)(held_out)
    loss = torch.nn.functional.cross_entropy
    assert loss(out, truth) < loss(held_out, truth) - 0.05


@each
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_torch_in_torch_out(case, dtype):
    logits, labels = data()
    logits = logits.to(dtype)
    out = fresh(case).fit(logits, labels)(logits)
    assert isinstance(out, torch.Tensor)
    assert out.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert out.device == logits.device


@each
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_numpy_in_numpy_out_with_the_same_values(case, dtype):
    logits, labels = data()
    array = logits.numpy().astype(dtype)
    calibrator = fresh(case).fit(array, labels.numpy())
    out = calibrator(array)
    assert isinstance(out, np.ndarray)
    assert out.dtype == (np.float64 if dtype == np.float64 else np.float32)
    tensor = torch.from_numpy(array)
    assert np.array_equal(out, fresh(case).fit(tensor, labels)(tensor).numpy())
    assert isinstance(calibrator.predict_proba(array), np.ndarray)


@each
def test_lists_and_read_only_strided_arrays_work(case):
    logits, labels = data(n=60)
    expected = fresh(case).fit(logits.numpy(), labels.numpy())(logits.numpy())
    odd = np.asfortranarray(logits.numpy())[::-1][::-1]
    odd.flags.writeable = False
    assert np.array_equal(fresh(case).fit(odd, labels.tolist())(odd), expected)
    as_list = fresh(case).fit(logits.tolist(), labels.tolist())(logits.tolist())
    np.testing.assert_allclose(as_list, expected, rtol=1e-4, atol=1e-4)


@each
def test_inputs_that_carry_gradients_are_fine_and_stay_untouched(case):
    logits, labels = data()
    leaf = logits.clone().requires_grad_()
    out = fresh(case).fit(leaf, labels)(leaf)
    assert not out.requires_grad
    assert torch.equal(leaf.detach(), logits)


@each
def test_nothing_is_mutated(case):
    logits, labels = data()
    kept = logits.clone(), labels.clone()
    calibrator = fresh(case).fit(logits, labels)
    calibrator(logits)
    calibrator.predict_proba(logits)
    assert torch.equal(logits, kept[0])
    assert torch.equal(labels, kept[1])


@each
def test_the_output_is_the_callers_to_change(case):
    logits, labels = data()
    calibrator = fresh(case).fit(logits, labels)
    first = calibrator(logits)
    kept = first.clone()
    first.zero_()
    assert torch.equal(calibrator(logits), kept)


@each
def test_deterministic_and_independent_of_the_global_generators(case):
    logits, labels = data()
    torch.manual_seed(1)
    one = fresh(case).fit(logits, labels).state_dict()
    state = torch.get_rng_state()
    assert fresh(case).fit(logits, labels).state_dict() == one
    assert torch.equal(torch.get_rng_state(), state)


@each
def test_a_weight_of_two_is_a_row_that_is_there_twice_and_of_zero_one_that_is_not(case):
    logits, labels = data(n=150, k=3)
    logits = logits.double()
    times = torch.arange(150) % 3
    weighted = fresh(case).fit(logits, labels, sample_weight=times)
    repeated = fresh(case).fit(logits.repeat_interleave(times, 0), labels.repeat_interleave(times))
    torch.testing.assert_close(weighted(logits), repeated(logits), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(weighted(logits), fresh(case).fit(logits, labels)(logits))


@each
@pytest.mark.parametrize(
    ("weights", "match"),
    [([1.0], "same length"), ([-1.0] * 6, "at least 0"), ([0.0] * 6, "some above it"), ([float("nan")] * 6, "finite")],
)
def test_bad_weights_are_refused(case, weights, match):
    with pytest.raises(ValueError, match=match):
        fresh(case).fit(LOGITS, LABELS, sample_weight=weights)


@each
def test_two_classes_work_whichever_is_first(case):
    logits, labels = data(n=300, k=2)
    probs = fresh(case).fit(logits, labels).predict_proba(logits)
    flipped = fresh(case).fit(logits.flip(1), 1 - labels).predict_proba(logits.flip(1))
    torch.testing.assert_close(probs, flipped.flip(1), rtol=1e-3, atol=1e-4)


@each
def test_fitting_again_starts_afresh(case):
    calibrator = fresh(case).fit(*data(k=3, seed=5))
    assert calibrator.fit(*data()).state_dict() == fresh(case).fit(*data()).state_dict()


@each
def test_a_failed_fit_leaves_the_old_one(case):
    logits, labels = data()
    calibrator = fresh(case).fit(logits, labels)
    before = calibrator.state_dict()
    with pytest.raises(ValueError, match="labels"):
        calibrator.fit(logits, labels + 1)
    assert calibrator.state_dict() == before


@each
def test_a_sample_is_calibrated_alike_in_any_batch(case):
    logits, labels = data(n=101)
    calibrator = fresh(case).fit(logits, labels)
    whole = calibrator(logits)
    assert torch.equal(torch.cat([calibrator(part) for part in logits.split(7)]), whole)
    assert torch.equal(calibrator(logits.flip(0)), whole.flip(0))


@each
def test_chunking_is_invisible(case, monkeypatch):
    logits, labels = data(n=501)
    whole = fresh(case).fit(logits, labels)
    expected = whole(logits)
    monkeypatch.setattr("vicinal.calibrators.base._CHUNK", 64)
    assert torch.equal(whole(logits), expected)
    torch.testing.assert_close(fresh(case).fit(logits, labels)(logits), expected)


@each
def test_save_and_load_are_exact(case, tmp_path):
    logits, labels = data()
    calibrator = fresh(case).fit(logits, labels)
    path = tmp_path / "calibrator.json"
    path.write_text("an older file")
    calibrator.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["calibrator.json"]
    assert json.loads(path.read_text()) == calibrator.state_dict()
    for load in (type(case).load, Calibrator.load):
        loaded = load(str(path))
        assert type(loaded) is type(case)
        assert repr(loaded) == repr(case)
        assert loaded.state_dict() == calibrator.state_dict()
        assert torch.equal(loaded(logits), calibrator(logits))


@each
def test_state_dict_survives_json_pickle_and_deepcopy(case):
    logits, labels = data()
    calibrator = fresh(case).fit(logits, labels)
    state = calibrator.state_dict()
    assert json.loads(json.dumps(state, allow_nan=False)) == state
    for twin in (
        Calibrator.from_state_dict(state),
        pickle.loads(pickle.dumps(calibrator)),
        copy.deepcopy(calibrator),
    ):
        assert torch.equal(twin(logits), calibrator(logits))


@each
def test_a_failed_save_keeps_the_old_file(case, tmp_path, monkeypatch):
    calibrator = fresh(case).fit(*data())
    path = tmp_path / "calibrator.json"
    path.write_text("old")

    def full_disk(_):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        calibrator.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["calibrator.json"]
    assert path.read_text() == "old"


@each
def test_damaged_files_are_refused_by_name(case, tmp_path):
    calibrator = fresh(case).fit(*data())
    good = calibrator.state_dict()
    name = next(iter(good["learned"]))
    path = tmp_path / "damaged.json"
    for state, match in [
        ("{", "damaged.json"),
        ("[1, 2]", "not the state of a calibrator"),
        ({"format": 1}, "not the state of a calibrator"),
        ({**good, "format": 99}, "format 99"),
        ({**good, "calibrator": "TemperatureScalin"}, "TemperatureScalin"),
        ({**good, "params": {"unknown": 1}}, "unknown"),
        ({**good, "n_classes": 1}, "n_classes"),
        ({**good, "learned": {}}, "learns"),
        ({**good, "learned": {**good["learned"], name: None}}, "damaged"),
        ({**good, "learned": {**good["learned"], name: "abc"}}, "damaged"),
        ({**good, "learned": {**good["learned"], name: [[0.0]]}}, "damaged"),
    ]:
        path.write_text(state if isinstance(state, str) else json.dumps(state))
        with pytest.raises(ValueError, match=match) as caught:
            Calibrator.load(path)
        assert "damaged.json" in str(caught.value)


@each
def test_loading_as_another_calibrator_is_an_error(case):
    state = fresh(case).fit(*data()).state_dict()
    for other in set(PUBLIC) - {type(case)}:
        with pytest.raises(ValueError, match=f"state is of '{type(case).__name__}', not of {other.__name__}"):
            other.from_state_dict(state)


LOGITS, LABELS = data(n=6, k=3)
HOSTILE = {
    "nan": (LOGITS.where(LOGITS.max() != LOGITS, torch.nan), LABELS, "logits must be finite"),
    "inf": (LOGITS.where(LOGITS.max() != LOGITS, torch.inf), LABELS, "logits must be finite"),
    "-inf": (LOGITS.where(LOGITS.max() != LOGITS, -torch.inf), LABELS, "logits must be finite"),
    "huge": (LOGITS * 1e37, LABELS, r"logits must lie within ±1e\+30"),
    "1-d logits": (LOGITS[:, 0], LABELS, r"logits must have shape \[N, K\]"),
    "3-d logits": (LOGITS[None], LABELS, r"logits must have shape \[N, K\]"),
    "one class": (LOGITS[:, :1], LABELS * 0, "at least 2 classes.*pass the two columns"),
    "empty": (LOGITS[:0], LABELS[:0], "logits is empty"),
    "label too high": (LOGITS, LABELS * 0 + 3, r"labels must be in \[0, 2\] for 3 classes, got 3"),
    "label negative": (LOGITS, LABELS * 0 - 1, r"labels must be in \[0, 2\] for 3 classes, got -1"),
    "float labels": (LOGITS, LABELS.double(), "labels must be integer"),
    "one-hot labels": (LOGITS, torch.eye(3)[LABELS], r"labels must have shape \[N\]"),
    "lengths differ": (LOGITS, LABELS[:-1], "same length, got 6 and 5"),
}


@each
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_refused_by_name(case, name):
    logits, labels, match = HOSTILE[name]
    calibrator = fresh(case)
    with pytest.raises(ValueError, match=match):
        calibrator.fit(logits, labels)
    assert not hasattr(calibrator, "n_classes_")
    if "label" not in name and "length" not in name:
        calibrator.fit(*data(k=3))
        with pytest.raises(ValueError, match=match):
            calibrator(logits)


@each
def test_input_that_is_not_numbers_is_a_type_error(case):
    for logits in (LABELS[:, None].repeat(1, 3) > 0, np.array([["a", "b"]]), None):
        with pytest.raises(TypeError, match="logits"):
            fresh(case).fit(logits, LABELS)


@each
def test_another_number_of_classes_is_refused(case):
    calibrator = fresh(case).fit(*data(k=4))
    with pytest.raises(ValueError, match=f"the 4 classes {type(case).__name__} was fitted on, got shape"):
        calibrator(data(k=3)[0])


ODD = {
    "one sample, right": (torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0])),
    "one sample, wrong": (torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([2])),
    "one sample, second": (torch.tensor([[3.0, 2.9, 0.0]]), torch.tensor([1])),
    "constant": (torch.zeros(5, 3), torch.tensor([0, 1, 2, 0, 0])),
    "all right": (3 * torch.eye(3).repeat(9, 1), torch.arange(3).repeat(9)),
    "all wrong": (3 * torch.eye(3).repeat(9, 1), (torch.arange(3).repeat(9) + 1) % 3),
    "one label only": (data(n=50, k=3)[0], torch.ones(50, dtype=torch.int64)),
    "in [0, 1]": (data(n=50, k=3)[0].softmax(1), data(n=50, k=3)[1]),  # still logits
    "far from zero": (data(n=50, k=3)[0].double() + 1e8, data(n=50, k=3)[1]),
    "large": (data(n=50, k=3)[0] * 1e4, data(n=50, k=3)[1]),
    "small": (data(n=50, k=3)[0] * 1e-30, data(n=50, k=3)[1]),
    "largest": (data(n=50, k=3)[0].sign() * 9e29, data(n=50, k=3)[1]),
}


@each
@pytest.mark.parametrize("name", ODD)
def test_odd_data_gives_finite_logits(case, name):
    logits, labels = ODD[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibrator = fresh(case).fit(logits, labels)
    assert calibrator(logits).isfinite().all()
    probs = calibrator.predict_proba(logits)
    torch.testing.assert_close(probs.sum(1), torch.ones(len(logits), dtype=logits.dtype))
    json.dumps(calibrator.state_dict(), allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(
    which=st.integers(0, len(CASES) - 1),
    n=st.integers(1, 40),
    k=st.integers(2, 6),
    scale=st.floats(1e-6, 1e6),
    seed=st.integers(0, 2**31),
    rounded=st.booleans(),
)
def test_any_data_gives_probabilities(which, n, k, scale, seed, rounded):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator)
    logits = scale * (logits.round() if rounded else logits)  # rounded: ties within and between rows
    labels = torch.randint(k, (n,), generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibrator = fresh(CASES[which]).fit(logits, labels)
    probs = calibrator.predict_proba(logits)
    assert probs.isfinite().all()
    torch.testing.assert_close(probs.sum(1), torch.ones(n))
