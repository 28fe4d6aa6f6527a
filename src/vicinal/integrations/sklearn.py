"""scikit-learn: a bare network for tables, trained with any objective, that behaves like every other classifier.

>>> from sklearn.datasets import load_iris
>>> X, y = load_iris(return_X_y=True)
>>> MixupClassifier(max_iter=20, random_state=0).fit(X, y).predict_proba(X[:2]).shape
(2, 3)

References
----------
Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, Section 3.6 (tabular data): two hidden layers
of 128 ReLU units, Adam at its defaults, 10 epochs, batches of 16.

Deviations: training continues until a held-out slice no longer improves, instead of for 10 epochs. Batches grow with
the table.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from vicinal import _random
from vicinal._checks import flag, integer, nearest_names, number, require
from vicinal.calibrators import Calibrator, TemperatureScaling
from vicinal.expressions import parse
from vicinal.integrations.calibrated import Classifier
from vicinal.objectives.base import Objective
from vicinal.objectives.mixup import Mixup
from vicinal.objectives.random_choice import RandomChoice
from vicinal.training import FitConfig, fit

require("sklearn", "train")
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.class_weight import compute_sample_weight  # noqa: E402
from sklearn.utils.metaestimators import available_if  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data  # noqa: E402

#: First and second moments and the steps of Adam, by the number of the parameter.
Moments: TypeAlias = dict[int, dict[str, Tensor]]


class _Continued(FitConfig):
    """A training whose optimizer continues where that of an earlier one ended."""

    # No fields: what was learned before is no option of the training.
    _earlier: Moments
    _optimizer: torch.optim.Optimizer

    def after(self, earlier: Moments) -> _Continued:
        """Take over the moments of an earlier training; none are those of a first one."""
        object.__setattr__(self, "_earlier", earlier)
        return self

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimizer with the earlier moments, and the settings of this configuration."""
        made = super().make_optimizer(parameters)
        made.load_state_dict({**made.state_dict(), "state": getattr(self, "_earlier", {})})
        object.__setattr__(self, "_optimizer", made)
        return made

    def moments(self) -> Moments:
        """Return the moments after training, on the CPU."""
        state = self._optimizer.state_dict()["state"]
        return {k: {name: value.cpu() for name, value in one.items()} for k, one in state.items()}


class MixupClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A fully connected network for arrays of numbers, trained with mixup or any other objective.

    It is the bare network: no trees, categories, dates, texts or missing values, and no calibration by default.
    `vicinal.VicinalClassifier` is the whole model of `vicinal train`, which is more accurate on most tables.

    The columns are standardised inside (by the mean and deviation of the rows it is trained on), so no scaler is
    needed before it, and one does no harm. Names follow `sklearn.neural_network.MLPClassifier`.

    Parameters
    ----------
    objective : objective or str, default=None
        What is minimised: `Mixup(alpha=0.4)`, `RegMixup(Mixup(alpha=10.0))`, `ERM()` …, or its text. Its fields can be
        searched over as `objective__alpha`, and those of what it wraps as `objective__base__alpha`. `None` is
        `Mixup(alpha=0.2)`: the paper gives no α for tables (on ImageNet it is 0.1 to 0.4, Section 3.1). The layers are
        called `hidden1`, `hidden2`, …, `output`, for objectives that mix inside: `ManifoldMixup(layers=["hidden1"])`.
    hidden_layer_sizes : tuple of int, default=(128, 128)
        Units of each hidden layer; ReLU follows each. `()` is a linear model.
    learning_rate_init : float, default=0.001
        Step size of Adam.
    batch_size : int or "auto", default="auto"
        Rows in a step. `"auto"` is the paper's 16, and more where an epoch would take over 100 steps (at most 256).
    max_iter : int, default=100
        The most epochs.
    early_stopping : bool, default=True
        Hold out a slice, stop when its cross-entropy has not improved for `n_iter_no_change` epochs, and keep the
        weights of its best epoch.
    validation_fraction : float, default=0.1
        The share of each class that is held out: at least one row, unless the class has only one.
    n_iter_no_change : int, default=10
        The patience of early stopping, in epochs.
    calibrate : bool, default=False
        Fit a temperature to the held-out slice (the same that stops training) and divide the logits by it.
    random_state : int, RandomState instance or None, default=None
        Seeds the weights, the slice, the order and the objective's draws. As everywhere in scikit-learn, `None` takes
        a seed from numpy's global generator; an int leaves every global generator alone.
    class_weight : dict, "balanced" or None, default=None
        How much the samples of each class count in training, as everywhere in scikit-learn. It distorts the
        probabilities: `vicinal.losses.without_class_weights` undoes that in the logits.
    verbose : bool or int, default=False
        Print the losses of each epoch.
    warm_start : bool, default=False
        Let `fit` continue from the present weights, with the same columns and classes, instead of starting afresh.
    device : str, default="cpu"
        Where the network is trained. Afterwards it lives on the CPU in float64: a prediction does not depend on the
        rows beside it, and a pickle loads anywhere.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    n_features_in_ : int
        The number of columns.
    n_iter_ : int
        Epochs that were run.
    loss_curve_ : list of float
        The objective's mean over each epoch.
    validation_curve_ : list of float
        Cross-entropy of the held-out slice after each epoch; empty without early stopping.
    temperature_ : float
        What the logits are divided by: 1 without `calibrate`.
    network_ : torch.nn.Module
        The trained network, from standardised columns to logits.
    mean_, scale_ : ndarray of shape (n_features,)
        What the columns are standardised by.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from vicinal import Mixup
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MixupClassifier(Mixup(alpha=0.2), max_iter=30, random_state=0)
    >>> bool(cross_val_score(model, X, y, cv=3).mean() > 0.9)
    True
    """

    classes_: NDArray[np.generic]
    network_: nn.Module
    loss_curve_: list[float]
    validation_curve_: list[float]

    def __init__(
        self,
        objective: Objective | str | None = None,
        *,
        hidden_layer_sizes: tuple[int, ...] = (128, 128),
        learning_rate_init: float = 0.001,
        batch_size: int | str = "auto",
        max_iter: int = 100,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        calibrate: bool = False,
        class_weight: Mapping[object, float] | str | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
        device: str = "cpu",
        warm_start: bool = False,
    ) -> None:
        self.objective = objective
        self.hidden_layer_sizes = hidden_layer_sizes
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.calibrate = calibrate
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.warm_start = warm_start

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the parameters, with `deep` those of the objective too."""
        params: dict[str, object] = super().get_params(deep=False)
        if deep:
            with suppress(ValueError):  # text that is no objective is refused by `fit`, as scikit-learn wants it
                params |= _fields("objective", self._objective())
        return params

    def set_params(self, **params: object) -> MixupClassifier:
        """Set parameters; `objective__alpha` replaces the objective by one with another α."""
        # Taken out first: scikit-learn's own code would look for these names in an object with get_params, which
        # objectives are not.
        inner = {name: params.pop(name) for name in list(params) if name.startswith("objective__")}
        super().set_params(**params)
        for name, value in inner.items():
            self.objective = _replaced(self._objective(), name.split("__")[1:], value)
        return self

    def _objective(self) -> Objective:
        """Return what is minimised."""
        if self.objective is None:
            return Mixup(alpha=0.2)
        if not isinstance(self.objective, str):
            return self.objective
        try:
            return parse(self.objective)
        except ValueError as error:
            raise ValueError(f"objective: {error}") from error

    def __sklearn_tags__(self) -> object:
        """Say that sparse rows are taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: object, y: object, sample_weight: ArrayLike | None = None) -> MixupClassifier:
        """Train on rows `X` and their labels `y`; fitting again starts afresh, unless `warm_start`.

        `sample_weight` `[n_samples]` is how much each row counts; a mixed row carries the mixture of the weights, and a
        row of weight 0 is left out.
        """
        self._check_params()
        _refuse_several_labels(y)
        again = self.warm_start and hasattr(self, "network_")
        checked = {"dtype": np.float64, "ensure_min_samples": 2, "accept_sparse": "csr", "reset": not again}
        given, labels = validate_data(self, X, y, **checked)
        X = _dense(given)
        check_classification_targets(labels)
        weight = self._weights(X, labels, sample_weight)
        classes = np.unique(labels)
        if len(classes) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {classes[0]!r}")
        # The output layer has a unit for each class that was met first: others have no place in it.
        if again and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"warm_start=True continues with the classes {self.classes_.tolist()}, but y holds {classes.tolist()}"
            )
        self.classes_ = classes
        codes = np.searchsorted(classes, labels)
        seed = self._seed()
        generator = torch.Generator().manual_seed(seed)
        counts = _counting(weight, len(X))
        training, held_out = np.flatnonzero(counts), np.arange(0)
        # Either needs rows that were not trained on, and one slice does for both.
        if self.early_stopping or self.calibrate:
            training, held_out = _split(codes, counts, self.validation_fraction, generator)
        if not again:
            self._begin(X[training], generator)
        self.loss_curve_, self.validation_curve_ = [], []
        # Only early stopping looks at the slice in training. To calibrate on it, too, does little harm: a temperature
        # is one number, and the slice has chosen among epochs only.
        val = self._rows(X, codes, _as_often(held_out, weight)) if self.early_stopping else None
        counted = None if weight is None else weight[torch.from_numpy(training)]
        self._train(self._rows(X, codes, training), val, counted, epochs=self.max_iter, seed=seed)
        self.temperature_ = 1.0
        if self.calibrate:
            self.temperature_ = _temperature(self._logits(X[held_out]), torch.from_numpy(codes[held_out]))
        return self

    def _holds_nothing_out(self) -> bool:
        if self.calibrate:
            raise AttributeError("partial_fit holds no rows out to calibrate on: set calibrate=False")
        return True

    @available_if(_holds_nothing_out)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: object, y: object, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> MixupClassifier:
        """Train for one epoch on these rows, after what was learned before: data that come in pieces.

        The steps of Adam continue. With an integer `random_state` the same pieces give the same weights.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`. Nothing is held out: `early_stopping` and `calibrate` are for `fit`. Columns are standardised
            by the rows of the first call.
        classes
            All classes that will come, needed in the first call.
        """
        self._check_params()
        _refuse_several_labels(y)
        first = not hasattr(self, "network_")
        given, labels = validate_data(self, X, y, dtype=np.float64, accept_sparse="csr", reset=first)
        X = _dense(given)
        check_classification_targets(labels)
        if first:
            if classes is None:
                raise ValueError("classes must be given in the first call of partial_fit: all that will come")
            self.classes_ = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes must be those of the first call, {self.classes_.tolist()}, got {np.asarray(classes).tolist()}"
            )
        if len(self.classes_) < 2:
            raise ValueError(f"classes must be at least two, got one class: {self.classes_[0]!r}")
        if unknown := np.setdiff1d(labels, self.classes_).tolist():
            raise ValueError(f"y holds {unknown[0]!r}, which is none of the classes {self.classes_.tolist()}")
        weight = self._weights(X, labels, sample_weight)
        seed, counting = self._seed(), np.flatnonzero(_counting(weight, len(X)))
        if first:
            self._begin(X[counting], torch.Generator().manual_seed(seed))
            self.temperature_, self.loss_curve_, self.validation_curve_, self.n_iter_ = 1.0, [], [], 0
        # Each piece has draws of its own. With the seed alone all would mix the same positions by the same λ.
        seed = _random.seed_from("piece", seed, self.n_iter_)
        train = self._rows(X, np.searchsorted(self.classes_, labels), counting)
        counted = None if weight is None else weight[torch.from_numpy(counting)]
        self._train(train, None, counted, epochs=1, seed=seed, adam=self._adam)
        return self

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _begin(self, X: NDArray[np.float64], generator: torch.Generator) -> None:
        """Measure the columns and draw the weights."""
        self.mean_, scale = X.mean(axis=0), X.std(axis=0)
        # A constant column becomes 0, not NaN.
        self.scale_ = np.where(scale > 0, scale, 1.0)
        sizes = [X.shape[1], *self.hidden_layer_sizes, len(self.classes_)]
        self.network_ = _network(sizes, generator).double()
        self._adam: Moments = {}

    def _rows(self, X: NDArray[np.float64], codes: NDArray[np.intp], which: NDArray[np.intp]) -> TensorDataset:
        """Return some rows, standardised, and their class numbers."""
        rows = torch.from_numpy(self._standardised(X[which])).float()
        return TensorDataset(rows, torch.from_numpy(codes[which].astype(np.int64)))

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        """Return the probability of each class, in the order of `classes_`, `[n_samples, n_classes]`."""
        check_is_fitted(self)
        probs: NDArray[np.float64] = self._scaled_logits(X).softmax(dim=1).numpy()
        return probs

    def predict_log_proba(self, X: object) -> NDArray[np.float64]:
        """Return the logarithm of `predict_proba`, which does not underflow."""
        log_probs: NDArray[np.float64] = self._scaled_logits(X).log_softmax(dim=1).numpy()
        return log_probs

    def decision_function(self, X: object) -> NDArray[np.float64]:
        """Return the logits divided by the temperature, `[n_samples, n_classes]`; of two classes their difference."""
        logits = self._scaled_logits(X)
        scores: NDArray[np.float64] = (logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits).numpy()
        return scores

    def predict(self, X: object) -> NDArray[np.generic]:
        """Return the most probable label of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        labels: NDArray[np.generic] = self.classes_[best]
        return labels

    def _scaled_logits(self, X: object) -> Tensor:
        check_is_fitted(self)
        X = _dense(validate_data(self, X, dtype=np.float64, reset=False, accept_sparse="csr"))
        return self._logits(X) / self.temperature_

    def _weights(self, X: object, y: object, sample_weight: object) -> Tensor | None:
        """Return how much each row counts; None where all count the same."""
        if sample_weight is None and self.class_weight is None:
            return None
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        # Else the columns' means, and the loss, would be 0 / 0.
        if not weight.any():
            raise ValueError("sample_weight must not be zero for all rows")
        return torch.from_numpy(weight * compute_sample_weight(self.class_weight, y)).float()

    def _train(
        self,
        train: TensorDataset,
        val: TensorDataset | None,
        weight: Tensor | None,
        *,
        epochs: int,
        seed: int,
        adam: Moments | None = None,
    ) -> None:
        """Train the network, from these moments of Adam, and add the losses of each epoch to the curves."""
        size = int(self.batch_size) if self.batch_size != "auto" else min(max(16, len(train) // 100), 256)
        config = _Continued(
            epochs=epochs,
            batch_size=size,
            optimizer="adam",
            lr=self.learning_rate_init,
            patience=None if val is None else self.n_iter_no_change,
            device=self.device,
            seed=seed,
        ).after(adam or {})
        # Trained in float32 and kept in float64: a float32 product of matrices rounds a row by the rows beside it, and
        # scikit-learn asks that a prediction does not depend on them.
        network = self.network_.float()
        try:
            result = fit(
                network, self._objective(), train, val, config=config, weight=weight, progress=False,
                on_metrics=self._print if self.verbose else None,
            )  # fmt: skip
        except FloatingPointError as error:
            raise ValueError(f"training diverged: lower learning_rate_init={self.learning_rate_init:g}") from error
        self.network_ = network.cpu().double()
        self._adam = config.moments()
        self.loss_curve_ += [line["loss"] for line in result.history]
        self.validation_curve_ += [line["val_nll"] for line in result.history if "val_nll" in line]
        self.n_iter_ = len(self.loss_curve_)

    def _print(self, line: Mapping[str, float]) -> None:
        held_out = f", held out {line['val_nll']:.4f}" if "val_nll" in line else ""
        print(f"epoch {line['epoch']:g}: loss {line['loss']:.4f}{held_out}")  # noqa: T201  # what was asked for

    def _standardised(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        standardised: NDArray[np.float64] = (X - self.mean_) / self.scale_
        return standardised

    def _logits(self, X: NDArray[np.float64]) -> Tensor:
        with torch.no_grad():
            logits: Tensor = self.network_(torch.from_numpy(self._standardised(X)))
        return logits

    def _check_params(self) -> None:
        given = self.objective
        if given is not None and not isinstance(given, str) and (isinstance(given, type) or not callable(given)):
            raise TypeError(f"objective must be an objective such as Mixup(alpha=0.2), or its text, got {given!r}")
        if not np.iterable(self.hidden_layer_sizes):
            raise TypeError(f"hidden_layer_sizes must be a tuple such as (128,), got {self.hidden_layer_sizes!r}")
        for size in self.hidden_layer_sizes:
            integer("hidden_layer_sizes", size, low=1)
        number("learning_rate_init", self.learning_rate_init, above=0)
        if self.batch_size != "auto":
            integer("batch_size", self.batch_size, low=1)
        integer("max_iter", self.max_iter, low=1)
        flag("early_stopping", self.early_stopping)
        number("validation_fraction", self.validation_fraction, low=0, high=1)
        integer("n_iter_no_change", self.n_iter_no_change, low=1)
        flag("calibrate", self.calibrate)
        integer("verbose", int(self.verbose) if isinstance(self.verbose, bool) else self.verbose, low=0)
        flag("warm_start", self.warm_start)


def calibrated(
    estimator: Classifier, X: object, y: ArrayLike, *, calibrator: Calibrator | None = None, floor: float = 1e-6
) -> CalibratedEstimator:
    """Calibrate any fitted classifier of scikit-learn on held-out rows, in one call.

    Parameters
    ----------
    estimator
        A fitted classifier with `predict_proba`, or `predict_log_proba` alone.
    X, y
        Rows that it was not fitted on, and their labels.
    calibrator
        `TemperatureScaling()` if not given.
    floor
        Probabilities below it count as it: a random forest says 0 where no tree has seen the class, whose logarithm
        no calibrator could repair.

    Returns
    -------
    CalibratedEstimator
        The classifier with the fitted calibrator after it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from vicinal.calibrators import VectorScaling
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = RandomForestClassifier(20, random_state=0, max_depth=2).fit(X[::2], y[::2])
    >>> calibrated(forest, X[1::2], y[1::2]).predict_proba(X[:2]).shape
    (2, 3)
    """
    if np.ndim(y) != 1:
        raise ValueError(f"y must be one label a row, got shape {list(np.shape(y))}: calibrate one estimator per label")
    fitted = CalibratedEstimator(estimator, TemperatureScaling() if calibrator is None else calibrator, floor)
    # The classifier's own order: classes that do not occur in these rows keep their column.
    index = {label: k for k, label in enumerate(fitted.classes_.tolist())}
    unknown = sorted({str(label) for label in np.asarray(y).tolist() if label not in index})
    if unknown:
        raise ValueError(f"y holds classes that the estimator does not know: {', '.join(unknown[:5])}")
    fitted.calibrator.fit(fitted.logits(X), np.array([index[label] for label in np.asarray(y).tolist()]))
    return fitted


class CalibratedEstimator:
    """A fitted classifier with a calibrator after it. Made by `calibrated`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> model = calibrated(GaussianNB().fit(X[::2], y[::2]), X[1::2], y[1::2])
    >>> model.predict(X[:2]).tolist(), model.predict_proba(X[:2]).shape
    ([0, 0], (2, 3))
    """

    def __init__(self, estimator: Classifier, calibrator: Calibrator, floor: float) -> None:
        check_is_fitted(estimator)
        if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "predict_log_proba"):
            raise TypeError(
                f"estimator must have predict_proba, got {type(estimator).__name__}: scikit-learn's "
                "CalibratedClassifierCV gives it one"
            )
        self.estimator, self.calibrator = estimator, calibrator
        self.floor = number("floor", floor, above=0, high=0.5)
        self.classes_: NDArray[np.generic] = np.asarray(estimator.classes_)

    def logits(self, X: object) -> NDArray[np.float64]:
        """Return the logarithms of the estimator's probabilities, none below that of the floor."""
        if hasattr(self.estimator, "predict_proba"):
            logits: NDArray[np.float64] = np.log(np.maximum(self.estimator.predict_proba(X), self.floor))
        else:
            logits = np.maximum(self.estimator.predict_log_proba(X), math.log(self.floor))
        return logits

    def predict_proba(self, X: object) -> NDArray[np.floating]:
        """Return calibrated probabilities, in the order of `classes_`."""
        return self.calibrator.predict_proba(self.logits(X))

    def predict(self, X: object) -> NDArray[np.generic]:
        """Return the most probable label of each row."""
        labels: NDArray[np.generic] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels


def _refuse_several_labels(y: object) -> None:
    """Refuse labels of several columns in one sentence that says what takes them."""
    shape = getattr(y, "shape", None) or np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        raise ValueError(
            f"y has {shape[1]} columns, and a MixupClassifier learns one label a row: put it into scikit-learn's "
            "MultiOutputClassifier, or train one network for all labels by an objective's target_type='multilabel'"
        )


def _dense(X: object) -> NDArray[np.float64]:
    dense: NDArray[np.float64] = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    return dense


def _fields(prefix: str, objective: object) -> dict[str, object]:
    """Return the fields of an objective, and of what it wraps, by the names that `set_params` takes."""
    fields: dict[str, object] = {}
    for field in _fields_of(objective):
        value = getattr(objective, field.name)
        fields[f"{prefix}__{field.name}"] = value
        if isinstance(value, Objective):
            fields |= _fields(f"{prefix}__{field.name}", value)
    return fields


def _replaced(objective: Any, path: list[str], value: Any) -> Any:
    name, *rest = path
    known = [field.name for field in _fields_of(objective)]
    if name not in known:
        raise ValueError(f"{objective!r} has no parameter {name!r}{nearest_names(name, known)}")
    value = _replaced(getattr(objective, name), rest, value) if rest else value
    if isinstance(objective, RandomChoice):  # it takes its objectives one after the other
        return RandomChoice(*value) if name == "objectives" else RandomChoice(*objective.objectives, probs=value)
    return dataclasses.replace(objective, **{name: value})


def _fields_of(objective: object) -> tuple[dataclasses.Field[object], ...]:
    """Return the fields of an objective; a plain function, or a class of the user's own, has none."""
    known = isinstance(objective, Objective) and dataclasses.is_dataclass(objective)
    return dataclasses.fields(objective) if known else ()  # type: ignore[arg-type]  # `known` says that it is one


def _network(sizes: list[int], generator: torch.Generator) -> nn.Sequential:
    """Return the network with torch's default weights, drawn without touching the global generator."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for depth, (n_in, n_out) in enumerate(pairwise(sizes), start=1):
        linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
        for parameter in linear.parameters():
            # The bounds of nn.Linear's own initialisation, which draws from the global generator only.
            nn.init.uniform_(parameter, -(n_in**-0.5), n_in**-0.5, generator=generator)
        last = depth == len(sizes) - 1
        layers["output" if last else f"hidden{depth}"] = linear if last else nn.Sequential(linear, nn.ReLU())
    return nn.Sequential(layers)


def _counting(weight: Tensor | None, n: int) -> NDArray[np.bool_]:
    """Return which rows count: a row of weight 0 is as good as none, for the columns' means and the slice too."""
    return np.ones(n, dtype=bool) if weight is None else (weight > 0).numpy()


def _as_often(rows: NDArray[np.intp], weight: Tensor | None) -> NDArray[np.intp]:
    """Return rows as often as their weights say, to a tenth of a row on average.

    `fit` counts all rows of a validation set the same. Unweighted rows would stop a weighted training, and choose its
    weights, where it is still closest to an unweighted one.
    """
    if weight is None:
        return rows
    share = np.cumsum(weight.double().numpy()[rows])
    ends = np.floor(10 * len(rows) * share / share[-1] + 0.5).astype(np.intp)
    return np.repeat(rows, np.diff(ends, prepend=0))


def _split(
    codes: NDArray[np.intp], counts: NDArray[np.bool_], fraction: float, generator: torch.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows to train on and those to hold out: a share of each class, neither part left without it."""
    order = _random.permutation(len(codes), generator=generator).numpy()
    # Permuted before rows without weight are taken out: the draws then do not depend on which rows these are.
    order = order[counts[order]]
    held_out = np.zeros(len(codes), dtype=bool)
    for code in range(int(codes.max()) + 1):
        members = order[codes[order] == code]
        # At least one row of each class is held out, but never its last one, which the network has to learn from.
        held_out[members[: max(0, min(math.ceil(fraction * len(members)), len(members) - 1))]] = True
    if not held_out.any():
        raise ValueError(
            f"validation_fraction={fraction:g} of n_samples={len(codes)} leaves nothing to hold out: "
            "set early_stopping=False and calibrate=False, or add samples"
        )
    return np.flatnonzero(counts & ~held_out), np.flatnonzero(held_out)


def _temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature that suits held-out logits, or 1 where all are classified correctly."""
    # Without a mistake the NLL falls as T goes to 0: the optimum is infinite confidence, whatever the model is worth.
    if bool((logits.argmax(dim=1) == labels).all()):
        warnings.warn(
            f"all {len(labels)} held-out samples are classified correctly, so they cannot say how far to trust the "
            "confidence: temperature_ stays 1; hold out more with validation_fraction",
            stacklevel=3,
        )
        return 1.0
    return TemperatureScaling().fit(logits, labels).temperature_
