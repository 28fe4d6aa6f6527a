"""MixupClassifier under scikit-learn's own checks, and what it promises beyond them."""

from __future__ import annotations

import pickle
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

import vicinal
from vicinal import losses, metrics

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Perceptron
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal.integrations.sklearn import MixupClassifier, calibrated

FAST = {"hidden_layer_sizes": (32,), "max_iter": 15, "random_state": 0}


#: Batches, their order and the held-out slice depend on the number of rows, as in scikit-learn's own MLPClassifier: a
#: row that counts twice is not the same as two rows.
UNEQUAL = {
    f"check_sample_weight_equivalence_on_{kind}_data": "batches depend on the number of rows"
    for kind in ("dense", "sparse")
}


@parametrize_with_checks([MixupClassifier(max_iter=25)], expected_failed_checks=lambda estimator: UNEQUAL)
def test_scikit_learns_checks(estimator, check):
    """All but those of equal weights. scikit-learn itself skips its array-API check unless SCIPY_ARRAY_API is set."""
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [MixupClassifier(calibrate=True, max_iter=25)], expected_failed_checks=lambda estimator: UNEQUAL
)
@pytest.mark.filterwarnings(
    # The checks fit a dozen rows: their slices are too small to fit a temperature, and we say so.
    "ignore:all .* held-out samples are classified correctly:UserWarning",
    "ignore:the temperature stopped at:UserWarning",
)
def test_scikit_learns_checks_of_a_calibrated_one(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def noisy():
    """A fifth of the labels is random: a network that fits them is over-confident."""
    X, y = make_classification(1200, 10, n_informative=5, n_classes=3, flip_y=0.2, random_state=0)
    return train_test_split(X, y, test_size=0.5, random_state=0)


class TestAmongOthers:
    def test_learns_and_needs_no_scaler(self, iris):
        X, y = iris
        plain, *others = (
            cross_val_score(MixupClassifier(max_iter=30, random_state=seed), X * [1, 1e3, 1e-3, 1] + 50, y, cv=2)
            for seed in range(4)
        )
        assert np.mean([plain, *others]) > 0.93
        scaled = cross_val_score(
            make_pipeline(StandardScaler(), MixupClassifier(max_iter=30, random_state=0)), X, y, cv=2
        )
        assert scaled == pytest.approx(plain)

    def test_grid_search_over_objectives(self, iris):
        grid = {"objective": [vicinal.ERM(), vicinal.Mixup(alpha=0.4)], "hidden_layer_sizes": [(8,), ()]}
        search = GridSearchCV(MixupClassifier(max_iter=5, random_state=0), grid, cv=2, scoring="neg_log_loss")
        search.fit(*iris)
        assert search.best_params_["objective"] in grid["objective"]
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()

    def test_clone_and_repr_keep_the_objective(self):
        model = MixupClassifier(vicinal.RegMixup(vicinal.Mixup(alpha=10.0)), max_iter=7)
        assert clone(model).get_params() == model.get_params()
        assert "RegMixup(Mixup(alpha=10.0" in repr(model)

    def test_string_labels_and_pickle(self, iris):
        X, y = iris
        names = np.array(["setosa", "versicolor", "virginica"])[y]
        model = MixupClassifier(**FAST).fit(X, names)
        assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
        assert set(model.predict(X)) <= set(names)
        again = pickle.loads(pickle.dumps(model))
        assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


class TestRandomness:
    def test_the_same_seed_gives_the_same_model_and_global_generators_are_left_alone(self, iris):
        torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        a, b = (MixupClassifier(**FAST).fit(*iris) for _ in range(2))
        other = MixupClassifier(**{**FAST, "random_state": 1}).fit(*iris)
        assert torch.equal(torch_before, torch.get_rng_state())
        assert np.array_equal(numpy_before, np.random.get_state()[1])  # noqa: NPY002
        assert np.array_equal(a.predict_proba(iris[0]), b.predict_proba(iris[0]))
        assert not np.array_equal(a.predict_proba(iris[0]), other.predict_proba(iris[0]))

    def test_none_follows_numpy_as_everywhere_in_scikit_learn(self, iris):
        models = []
        for _ in range(2):
            np.random.seed(3)  # noqa: NPY002
            models.append(MixupClassifier(**{**FAST, "random_state": None}).fit(*iris))
        assert np.array_equal(*(m.predict_proba(iris[0]) for m in models))


class TestTraining:
    def test_the_weights_are_those_of_linear_layers(self):
        """As wide as torch's own, drawn from our generator."""
        model = MixupClassifier(vicinal.ERM(), learning_rate_init=1e-12, max_iter=1, random_state=0)
        X, y = make_classification(100, 50, random_state=0)
        first = model.fit(X, y).network_.hidden1[0]
        bound = 50**-0.5
        assert float(first.weight.detach().abs().max()) == pytest.approx(bound, rel=0.01)
        assert float(first.weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.05)

    def test_the_objective_sees_index_and_epoch(self, iris):
        seen = []

        def objective(model, x, y, *, index, epoch, generator):
            seen.append((index, epoch, x, y))
            return vicinal.ERM()(model, x, y)

        X, y = iris
        model = MixupClassifier(objective, early_stopping=False, max_iter=2, batch_size=30, random_state=0).fit(X, y)
        assert model.n_iter_ == 2
        index, epochs = torch.cat([s[0] for s in seen]), [s[1] for s in seen]
        assert len(index) == 2 * 150
        assert epochs == pytest.approx([i / 5 for i in range(10)])
        standardised = (X - model.mean_) / model.scale_
        for rows, _, x, labels in seen:
            np.testing.assert_allclose(x.numpy(), standardised[rows], rtol=1e-5, atol=1e-6)
            assert np.array_equal(labels.numpy(), y[rows])

    def test_early_stopping_keeps_the_best_epoch(self, noisy):
        X, _, y, _ = noisy
        model = MixupClassifier(vicinal.ERM(), n_iter_no_change=3, learning_rate_init=0.01, random_state=0).fit(X, y)
        curve = model.validation_curve_
        assert model.n_iter_ == len(curve) == len(model.loss_curve_) < model.max_iter
        assert model.n_iter_ - 1 - int(np.argmin(curve)) == 3
        patient = MixupClassifier(
            vicinal.ERM(), max_iter=int(np.argmin(curve)) + 1, learning_rate_init=0.01, random_state=0
        ).fit(X, y)
        assert np.array_equal(patient.predict_proba(X), model.predict_proba(X))

    def test_without_a_slice_every_row_is_trained_on(self, iris):
        rows = []

        def objective(model, x, y, *, index, epoch, generator):
            rows.extend(index.tolist())
            return vicinal.ERM()(model, x, y)

        model = MixupClassifier(objective, early_stopping=False, max_iter=1, random_state=0).fit(*iris)
        assert sorted(rows) == list(range(150))
        assert model.validation_curve_ == []

    def test_any_objective(self, iris):
        for text in (
            "LogitMix(Mixup(alpha=3.0))",
            "ManifoldMixup(layers=['input', 'hidden1'])",
            "KMixup(alpha=1.0, k=3)",
        ):
            model = MixupClassifier(vicinal.parse(text), max_iter=25, random_state=0).fit(*iris)
            assert model.score(*iris) > 0.9, text
        schedule = vicinal.Warmup(vicinal.Mixup(alpha=0.2), epochs=2)
        assert MixupClassifier(schedule, max_iter=4, random_state=0).fit(*iris).n_iter_ == 4


class TestCalibration:
    def test_the_temperature_improves_unseen_rows_and_leaves_the_labels(self, noisy):
        X, X_test, y, y_test = noisy
        options = {"max_iter": 60, "early_stopping": False, "random_state": 0}
        plain = MixupClassifier(vicinal.ERM(), calibrate=True, validation_fraction=0.2, **options).fit(X, y)
        assert plain.temperature_ > 1.5
        hot = plain.predict_proba(X_test)
        plain.temperature_ = 1.0
        cold = plain.predict_proba(X_test)
        assert np.array_equal(hot.argmax(1), cold.argmax(1))
        assert log_loss(y_test, hot) < log_loss(y_test, cold) - 0.1

    def test_a_slice_without_a_mistake_cannot_tell(self):
        X = np.r_[np.full((40, 2), -5.0), np.full((40, 2), 5.0)] + np.random.default_rng(0).normal(size=(80, 2))
        with pytest.warns(UserWarning, match="all 8 held-out samples are classified correctly"):
            model = MixupClassifier(calibrate=True, max_iter=30, random_state=0).fit(X, np.repeat([0, 1], 40))
        assert model.temperature_ == 1


class TestRefused:
    def test_one_class(self):
        with pytest.raises(ValueError, match="one class"):
            MixupClassifier().fit(np.zeros((5, 2)), np.zeros(5, dtype=int))

    def test_one_sample(self):
        with pytest.raises(ValueError, match="1 sample"):
            MixupClassifier().fit([[1.0, 2.0]], [0])

    def test_too_few_to_hold_out(self):
        X, y = [[0.0], [1.0]], [0, 1]
        with pytest.raises(ValueError, match="leaves nothing to hold out: set early_stopping=False"):
            MixupClassifier().fit(X, y)
        assert MixupClassifier(early_stopping=False, random_state=0).fit(X, y).predict(X).tolist() == [0, 1]

    def test_a_loss_that_is_not_finite(self, iris):
        with pytest.raises(ValueError, match="lower learning_rate_init=1e"):
            MixupClassifier(learning_rate_init=1e20, random_state=0).fit(*iris)

    @pytest.mark.parametrize(
        ("param", "value", "error"),
        [
            ("objective", "Mixup(alhpa=0.2)", ValueError),
            ("objective", vicinal.Mixup, TypeError),
            ("hidden_layer_sizes", (0,), ValueError),
            ("hidden_layer_sizes", 64, TypeError),
            ("learning_rate_init", 0, ValueError),
            ("batch_size", "big", TypeError),
            ("max_iter", 0, ValueError),
            ("early_stopping", "yes", TypeError),
            ("validation_fraction", 1.5, ValueError),
            ("n_iter_no_change", 0, ValueError),
            ("calibrate", 1, TypeError),
        ],
    )
    def test_bad_parameters_are_named_in_fit(self, iris, param, value, error):
        model = MixupClassifier(**{param: value})
        with pytest.raises(error, match=param):
            model.fit(*iris)


@pytest.mark.slow
def test_the_example_runs(capsys):
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "sklearn_estimator.py"), run_name="__main__")
    assert "temperature" in capsys.readouterr().out


def test_the_objective_as_text_and_its_fields_as_parameters():
    model = MixupClassifier("LogitMix(Mixup(alpha=3.0))", **FAST)
    assert model.get_params()["objective__base__alpha"] == 3.0
    model.set_params(objective__weight=0.5, objective__base__alpha=1.0, max_iter=3)
    assert model.objective == vicinal.LogitMix(vicinal.Mixup(alpha=1.0), weight=0.5)
    assert MixupClassifier().set_params(objective__alpha=0.7).objective == vicinal.Mixup(alpha=0.7)
    with pytest.raises(ValueError, match="has no parameter 'alhpa'; did you mean 'alpha'"):
        MixupClassifier().set_params(objective__alhpa=1)


def test_weights_move_the_predictions_and_can_be_undone():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(600, 1))
    y = (draw.random(600) < 0.1).astype(int)  # nothing to learn but how often each class is
    options = {"objective": "ERM()", "hidden_layer_sizes": (), "max_iter": 30, "learning_rate_init": 0.05}
    plain = MixupClassifier(**options, random_state=0).fit(X, y)
    balanced = MixupClassifier(**options, random_state=0, class_weight="balanced").fit(X, y)
    by_hand = MixupClassifier(**options, random_state=0).fit(X, y, sample_weight=np.where(y == 1, 9.0, 1.0))
    assert plain.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=0.05)
    assert balanced.predict_proba(X)[:, 1].mean() == pytest.approx(0.5, abs=0.1)
    assert by_hand.predict_proba(X)[:, 1].mean() == pytest.approx(0.5, abs=0.1)
    weights = losses.balanced_weights(torch.from_numpy(y))
    logits = torch.from_numpy(balanced.predict_log_proba(X))
    undone = losses.without_class_weights(logits, weights).softmax(1)[:, 1]
    assert float(undone.mean()) == pytest.approx(y.mean(), abs=0.05)


def test_a_row_of_weight_zero_is_as_good_as_none(iris):
    X, y = iris
    kept = np.arange(len(X)) % 3 > 0
    wild = np.where(kept[:, None], X, 1e6)
    for options in ({}, {"early_stopping": False}, {"calibrate": True}):
        fits = [MixupClassifier(**{**FAST, **options}).fit(rows, y, sample_weight=kept) for rows in (X, wild)]
        np.testing.assert_array_equal(*(model.predict_proba(X) for model in fits))
    one_kept = MixupClassifier(**FAST).fit(X, y, sample_weight=np.arange(len(X)) % 10 == 0)
    assert min(one_kept.validation_curve_) > 0  # the slice has rows that count
    pieces = [
        MixupClassifier(**FAST).partial_fit(*rows, classes=[0, 1, 2], sample_weight=weight)
        for rows, weight in (((wild, y), kept), ((X[kept], y[kept]), None))
    ]
    np.testing.assert_allclose(*(piece.predict_proba(X) for piece in pieces), rtol=1e-5, atol=1e-7)


def test_a_choice_has_parameters_too():
    model = MixupClassifier(vicinal.RandomChoice(vicinal.Mixup(alpha=0.2), vicinal.ERM()))
    assert model.get_params()["objective__probs"] == (0.5, 0.5)
    model.set_params(objective__probs=[0.25, 0.75])
    assert model.objective == vicinal.RandomChoice(vicinal.Mixup(alpha=0.2), vicinal.ERM(), probs=[0.25, 0.75])
    model.set_params(objective__objectives=(vicinal.ERM(), vicinal.ERM(), vicinal.ERM()))
    assert len(model.objective.probs) == 3


def test_what_is_no_objective_is_refused_by_fit_alone(iris):
    model = MixupClassifier(vicinal.Mixup)
    assert model.get_params()["objective"] is vicinal.Mixup
    with pytest.raises(TypeError, match="objective must be an objective such as"):
        model.set_params(max_iter=2).fit(*iris)


def test_scores_and_sparse_rows(iris, capsys):
    X, y = iris
    model = MixupClassifier(**{**FAST, "max_iter": 3}, verbose=1).fit(csr_matrix(X), y)
    assert "epoch 1: loss" in capsys.readouterr().out
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(csr_matrix(X)))
    assert (model.decision_function(X).argmax(axis=1) == model.predict_proba(X).argmax(axis=1)).all()


def test_any_fitted_classifier_is_calibrated_in_one_call(iris):
    X, y = iris
    names = np.array(["a", "b", "c"])[y]
    forest = RandomForestClassifier(5, random_state=0).fit(X[::2], names[::2])
    assert (forest.predict_proba(X) == 0).any()
    model = calibrated(forest, X[1::2], names[1::2])
    probs = model.predict_proba(X)
    assert (probs > 0).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    assert (model.predict(X) == names).mean() > 0.9
    held_out = {"labels": y[1::2], "probs": probs[1::2]}
    clipped = np.maximum(forest.predict_proba(X[1::2]), 1e-6)
    raw = {"labels": y[1::2], "probs": clipped / clipped.sum(axis=1, keepdims=True)}
    assert metrics.nll(**held_out) < metrics.nll(**raw)
    with pytest.raises(ValueError, match="classes that the estimator does not know: d"):
        calibrated(forest, X, np.full(len(X), "d"))


def test_pieces_are_learned_one_after_the_other():
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], np.array(["a", "b", "c"])[y[order]]

    def learned(epochs: int = 12) -> MixupClassifier:
        model = MixupClassifier(random_state=0, learning_rate_init=0.005)
        for _ in range(epochs):
            for piece in range(3):
                model.partial_fit(X[piece::3], y[piece::3], classes=["a", "b", "c"])
        return model

    model = learned()
    assert model.score(X, y) > 0.9
    assert model.n_iter_ == len(model.loss_curve_) == 36
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    np.testing.assert_array_equal(model.predict_proba(X), learned().predict_proba(X))
    np.testing.assert_allclose(model.mean_, X[::3].mean(axis=0))
    again = pickle.loads(pickle.dumps(model))
    for each in (model, again):
        each.partial_fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    with pytest.raises(ValueError, match="classes must be given in the first call"):
        MixupClassifier().partial_fit(X, y)
    with pytest.raises(ValueError, match="y holds 'd', which is none of the classes"):
        model.partial_fit(X[:2], ["d", "a"])
    with pytest.raises(ValueError, match="classes must be those of the first call"):
        model.partial_fit(X, y, classes=["a", "b"])
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'"):
        MixupClassifier(calibrate=True).partial_fit(X, y, classes=["a", "b", "c"])


def test_the_steps_of_adam_continue_over_pieces(iris):
    X, y = iris
    model = MixupClassifier(objective="ERM()", hidden_layer_sizes=(), batch_size=50, random_state=0)
    for piece in range(3):
        model.partial_fit(X[piece::3], y[piece::3], classes=np.unique(y))
    # The same steps with torch's own Adam. A piece is one batch, and the loss has no draws, so their order is free.
    slow = MixupClassifier(objective="ERM()", hidden_layer_sizes=(), batch_size=50, random_state=0)
    slow._check_params()
    slow.classes_, start = np.unique(y), torch.Generator().manual_seed(slow._seed())
    slow._begin(X[::3], start)
    network = slow.network_.float()
    adam = torch.optim.Adam(network.parameters(), lr=0.001)
    for piece in range(3):
        rows = torch.from_numpy((X[piece::3] - slow.mean_) / slow.scale_).float()
        codes = torch.from_numpy(np.searchsorted(slow.classes_, y[piece::3]))
        adam.zero_grad()
        torch.nn.functional.cross_entropy(network(rows), codes).backward()
        adam.step()
    for name, weight in network.state_dict().items():
        torch.testing.assert_close(model.network_.state_dict()[name].float(), weight, rtol=0, atol=1e-6)


def test_several_labels_a_row_are_refused_with_what_takes_them(iris):
    X, y = iris
    several = np.stack([y > 0, y > 1], axis=1).astype(int)
    model = MixupClassifier(max_iter=2, random_state=0)
    for labels in (several, several.tolist(), csr_matrix(several)):
        with pytest.raises(ValueError, match=r"y has 2 columns.*MultiOutputClassifier.*target_type='multilabel'"):
            model.fit(X, labels)
    with pytest.raises(ValueError, match="y has 2 columns"):
        model.partial_fit(X, several, classes=[0, 1])
    assert MultiOutputClassifier(model).fit(X, several).predict(X).shape == several.shape
    forest = RandomForestClassifier(3, random_state=0).fit(X, several)
    with pytest.raises(ValueError, match=r"y must be one label a row, got shape \[150, 2\]"):
        calibrated(forest, X, several)
    with pytest.raises(TypeError, match=r"got Perceptron: .*CalibratedClassifierCV"):
        calibrated(Perceptron().fit(X, y), X, y)


def test_a_warm_start_goes_on_from_the_weights():
    X, y = load_iris(return_X_y=True)
    model = MixupClassifier(max_iter=3, early_stopping=False, random_state=0, warm_start=True).fit(X, y)
    cold = MixupClassifier(max_iter=3, early_stopping=False, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), cold.predict_proba(X))
    before = model.loss_curve_[-1]
    model.fit(X, y)
    assert model.loss_curve_[0] < before * 1.1 < cold.loss_curve_[0] * 1.1
    np.testing.assert_array_equal(
        cold.fit(X, y).predict_proba(X),
        MixupClassifier(max_iter=3, early_stopping=False, random_state=0).fit(X, y).predict_proba(X),
    )  # without it, fitting again starts afresh
    with pytest.raises(ValueError, match="warm_start=True continues with the classes"):
        model.fit(X[:100], y[:100])
