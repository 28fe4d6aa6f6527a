"""scikit-learn: a small network for tables, trained with any objective, that behaves like every other classifier.

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

import copy
import dataclasses
import math
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vicinal import _random, losses
from vicinal._checks import flag, integer, nearest_names, number, require
from vicinal.calibrators import Calibrator, TemperatureScaling
from vicinal.expressions import parse
from vicinal.objectives.base import Objective
from vicinal.objectives.mixup import Mixup
from vicinal.objectives.random_choice import RandomChoice

require("sklearn", "train")
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.class_weight import compute_sample_weight  # noqa: E402
from sklearn.utils.metaestimators import available_if  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data  # noqa: E402


class MixupClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A fully connected network for tables, trained with mixup or any other objective.

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

    classes_: NDArray[Any]
    network_: nn.Module
    loss_curve_: list[float]
    validation_curve_: list[float]
    _adam: torch.optim.Optimizer | None

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
        class_weight: Mapping[Any, float] | str | None = None,
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MixupClassifier:
        """Train on rows `X` and their labels `y`; fitting again starts afresh, unless `warm_start`.

        `sample_weight` `[n_samples]` is how much each row counts; a mixed row carries the mixture of the weights, and a
        row of weight 0 is left out.
        """
        self._check_params()
        _refuse_several_labels(y)
        again = self.warm_start and hasattr(self, "network_")
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2, accept_sparse="csr", reset=not again)
        X = _dense(X)
        check_classification_targets(y)
        weight = self._weights(X, y, sample_weight)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {classes[0]!r}")
        if again and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"warm_start=True continues with the classes {self.classes_.tolist()}, but y holds {classes.tolist()}"
            )
        self.classes_ = classes
        codes = np.searchsorted(classes, y)
        generator = self._seeded()
        counts = _counting(weight, len(X))
        training, held_out = np.flatnonzero(counts), np.arange(0)
        if self.early_stopping or self.calibrate:
            training, held_out = _split(codes, counts, self.validation_fraction, generator)
        if not again:
            self._begin(X[training], generator)
        rows, labels = self._tensors(X, codes)
        parts = torch.from_numpy(training), torch.from_numpy(held_out)
        network = self.network_.float().to(self.device)
        self._train(network, rows, labels, weight, *parts, generator)
        self.network_ = network.cpu().double()
        self.temperature_ = 1.0
        if self.calibrate:
            self.temperature_ = _temperature(self._logits(X[held_out]), torch.from_numpy(codes[held_out]))
        return self

    def _holds_nothing_out(self) -> bool:
        if self.calibrate:
            raise AttributeError("partial_fit holds no rows out to calibrate on: set calibrate=False")
        return True

    @available_if(_holds_nothing_out)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> MixupClassifier:
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
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse="csr", reset=first)
        X = _dense(X)
        check_classification_targets(y)
        if first:
            if classes is None:
                raise ValueError("classes must be given in the first call of partial_fit: all that will come")
            self.classes_ = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes must be those of the first call, {self.classes_.tolist()}, got {list(classes)}")
        if len(self.classes_) < 2:
            raise ValueError(f"classes must be at least two, got one class: {self.classes_[0]!r}")
        if unknown := np.setdiff1d(y, self.classes_).tolist():
            raise ValueError(f"y holds {unknown[0]!r}, which is none of the classes {self.classes_.tolist()}")
        weight = self._weights(X, y, sample_weight)
        generator, counting = self._seeded(), np.flatnonzero(_counting(weight, len(X)))
        if first:
            self._begin(X[counting], generator)
            self.temperature_, self.loss_curve_, self.validation_curve_, self.n_iter_ = 1.0, [], [], 0
        else:
            generator.manual_seed(_random.seed_from("piece", generator.initial_seed(), self.n_iter_))
        rows, labels = self._tensors(X, np.searchsorted(self.classes_, y))
        network = self.network_.float().to(self.device)
        self._adam = self._optimizer(network) if self._adam is None else self._adam
        which = torch.from_numpy(counting)
        loss = self._epoch(network, self._adam, rows, labels, weight, which, generator, self.n_iter_)
        self.network_ = network.cpu().double()
        self.loss_curve_.append(loss)
        self.n_iter_ += 1
        return self

    def _seeded(self) -> torch.Generator:
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return torch.Generator().manual_seed(seed)

    def _begin(self, X: NDArray[np.float64], generator: torch.Generator) -> None:
        """Measure the columns and draw the weights."""
        self.mean_, scale = X.mean(axis=0), X.std(axis=0)
        self.scale_ = np.where(scale > 0, scale, 1.0)
        sizes = [X.shape[1], *self.hidden_layer_sizes, len(self.classes_)]
        self.network_ = _network(sizes, generator).double()
        self._adam = None

    def _tensors(self, X: NDArray[np.float64], codes: NDArray[np.intp]) -> tuple[Tensor, Tensor]:
        """Return standardised rows and class numbers, where the network is trained."""
        rows = torch.from_numpy(self._standardised(X)).float().to(self.device)
        return rows, torch.from_numpy(codes.astype(np.int64)).to(self.device)

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

    def predict(self, X: object) -> NDArray[Any]:
        """Return the most probable label of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[best]
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
        if not weight.any():
            raise ValueError("sample_weight must not be zero for all rows")
        return torch.from_numpy(weight * compute_sample_weight(self.class_weight, y)).float().to(self.device)

    def _train(
        self,
        network: nn.Module,
        rows: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        training: Tensor,
        held_out: Tensor,
        generator: torch.Generator,
    ) -> None:
        optimizer = self._optimizer(network)
        self.loss_curve_, self.validation_curve_ = [], []
        best, best_weights = math.inf, copy.deepcopy(network.state_dict())
        for epoch in range(self.max_iter):
            self.loss_curve_.append(self._epoch(network, optimizer, rows, labels, weight, training, generator, epoch))
            if self.early_stopping:
                with torch.no_grad():
                    logits = network(rows[held_out])
                rest = None if weight is None else weight[held_out]
                self.validation_curve_.append(float(losses.weighted_mean(losses.loss(logits, labels[held_out]), rest)))
                if self.validation_curve_[-1] < best:
                    best, best_weights = self.validation_curve_[-1], copy.deepcopy(network.state_dict())
                elif epoch - int(np.argmin(self.validation_curve_)) >= self.n_iter_no_change:
                    break
        if self.early_stopping:
            network.load_state_dict(best_weights)
        self.n_iter_ = len(self.loss_curve_)

    def _optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        fused = torch.device(self.device).type in ("cpu", "cuda")
        return torch.optim.Adam(network.parameters(), lr=self.learning_rate_init, fused=fused)

    def _epoch(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        rows: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        training: Tensor,
        generator: torch.Generator,
        epoch: int,
    ) -> float:
        """Train on each of these rows once, and return the objective's mean."""
        objective, total = self._objective(), 0.0
        size = int(self.batch_size) if self.batch_size != "auto" else min(max(16, len(training) // 100), 256)
        for done, index in _batches(training, size, generator):
            counts: dict[str, Any] = {} if weight is None else {"weight": weight[index]}
            loss = objective(
                network, rows[index], labels[index], index=index, epoch=epoch + done, generator=generator, **counts
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(index)
        if not math.isfinite(total):
            rate = self.learning_rate_init
            raise ValueError(f"the loss became {total} in epoch {epoch + 1}: lower learning_rate_init={rate:g}")
        if self.verbose:
            print(f"epoch {epoch + 1}: loss {total / len(training):.4f}")  # noqa: T201  # what was asked for
        return total / len(training)

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
    estimator: Any, X: Any, y: Any, *, calibrator: Calibrator | None = None, floor: float = 1e-6
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
    index = {label: k for k, label in enumerate(fitted.classes_.tolist())}
    unknown = sorted({str(label) for label in np.asarray(y).tolist() if label not in index})
    if unknown:
        raise ValueError(f"y holds classes that the estimator does not know: {', '.join(unknown[:5])}")
    fitted.calibrator.fit(fitted.logits(X), np.array([index[label] for label in np.asarray(y).tolist()]))
    return fitted


class CalibratedEstimator:
    """A fitted classifier with a calibrator after it. Made by `calibrated`."""

    def __init__(self, estimator: Any, calibrator: Calibrator, floor: float) -> None:
        check_is_fitted(estimator)
        if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "predict_log_proba"):
            raise TypeError(
                f"estimator must have predict_proba, got {type(estimator).__name__}: scikit-learn's "
                "CalibratedClassifierCV gives it one"
            )
        self.estimator, self.calibrator = estimator, calibrator
        self.floor = number("floor", floor, above=0, high=0.5)
        self.classes_: NDArray[Any] = np.asarray(estimator.classes_)

    def logits(self, X: Any) -> NDArray[np.float64]:
        """Return the logarithms of the estimator's probabilities, none below that of the floor."""
        if hasattr(self.estimator, "predict_proba"):
            logits: NDArray[np.float64] = np.log(np.maximum(self.estimator.predict_proba(X), self.floor))
        else:
            logits = np.maximum(self.estimator.predict_log_proba(X), math.log(self.floor))
        return logits

    def predict_proba(self, X: object) -> NDArray[np.floating]:
        """Return calibrated probabilities, in the order of `classes_`."""
        return self.calibrator.predict_proba(self.logits(X))

    def predict(self, X: object) -> NDArray[Any]:
        """Return the most probable label of each row."""
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
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


def _fields(prefix: str, objective: Any) -> dict[str, object]:
    """Return the fields of an objective, and of what it wraps, by the names that `set_params` takes."""
    fields: dict[str, object] = {}
    for field in dataclasses.fields(objective) if _has_fields(objective) else ():
        value = getattr(objective, field.name)
        fields[f"{prefix}__{field.name}"] = value
        if isinstance(value, Objective):
            fields |= _fields(f"{prefix}__{field.name}", value)
    return fields


def _replaced(objective: Any, path: list[str], value: Any) -> Any:
    name, *rest = path
    known = [f.name for f in dataclasses.fields(objective)] if _has_fields(objective) else []
    if name not in known:
        raise ValueError(f"{objective!r} has no parameter {name!r}{nearest_names(name, known)}")
    value = _replaced(getattr(objective, name), rest, value) if rest else value
    if isinstance(objective, RandomChoice):  # it takes its objectives one after the other
        return RandomChoice(*value) if name == "objectives" else RandomChoice(*objective.objectives, probs=value)
    return dataclasses.replace(objective, **{name: value})


def _has_fields(objective: object) -> bool:
    return isinstance(objective, Objective) and dataclasses.is_dataclass(objective)


def _network(sizes: list[int], generator: torch.Generator) -> nn.Sequential:
    """Return the network with torch's default weights, drawn without touching the global generator."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for depth, (n_in, n_out) in enumerate(pairwise(sizes), start=1):
        linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
        for parameter in linear.parameters():
            nn.init.uniform_(parameter, -(n_in**-0.5), n_in**-0.5, generator=generator)
        last = depth == len(sizes) - 1
        layers["output" if last else f"hidden{depth}"] = linear if last else nn.Sequential(linear, nn.ReLU())
    return nn.Sequential(layers)


def _batches(rows: Tensor, size: int, generator: torch.Generator) -> Iterator[tuple[float, Tensor]]:
    """Yield the rows in random order, `size` at a time, each with the share of the epoch that is done."""
    order = rows[_random.permutation(len(rows), generator=generator)]
    for start in range(0, len(order), size):
        yield start / len(order), order[start : start + size]


def _counting(weight: Tensor | None, n: int) -> NDArray[np.bool_]:
    """Return which rows count: a row of weight 0 is as good as none, for the columns' means and the slice too."""
    return np.ones(n, dtype=bool) if weight is None else (weight > 0).cpu().numpy()


def _split(
    codes: NDArray[np.intp], counts: NDArray[np.bool_], fraction: float, generator: torch.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows to train on and those to hold out: a share of each class, neither part left without it."""
    order = _random.permutation(len(codes), generator=generator).numpy()
    order = order[counts[order]]
    held_out = np.zeros(len(codes), dtype=bool)
    for code in range(int(codes.max()) + 1):
        members = order[codes[order] == code]
        held_out[members[: max(0, min(math.ceil(fraction * len(members)), len(members) - 1))]] = True
    if not held_out.any():
        raise ValueError(
            f"validation_fraction={fraction:g} of n_samples={len(codes)} leaves nothing to hold out: "
            "set early_stopping=False and calibrate=False, or add samples"
        )
    return np.flatnonzero(counts & ~held_out), np.flatnonzero(held_out)


def _temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature that suits held-out logits, or 1 where the gain is not significant."""
    if bool((logits.argmax(dim=1) == labels).all()):
        warnings.warn(
            f"all {len(labels)} held-out samples are classified correctly, so they cannot say how far to trust the "
            "confidence: temperature_ stays 1; hold out more with validation_fraction",
            stacklevel=3,
        )
        return 1.0
    return TemperatureScaling().fit(logits, labels).temperature_
