"""What every calibrator shares: checked input, the call, saving as JSON. The methods are in `calibrators/`."""

from __future__ import annotations

import abc
import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal._arrays import Values, as_array, as_classes, as_scores, as_vector, is_tensor
from vicinal._atomic import Json, replacing
from vicinal._checks import freeze, integer, nearest_names, number
from vicinal._memory import n_threads

if TYPE_CHECKING:
    from torch import Tensor

#: Numbers worked on at a time: the temporaries of one chunk stay in a core's cache.
_CHUNK = 2**16

#: Chunks handed to a thread at a time.
_CHUNKS_PER_TASK = 64

#: Differences and products of logits within ± this cannot overflow float32.
_LARGEST_LOGIT = 1e30

#: Version of the saved form.
_FORMAT = 1

_positive, _count = partial(number, above=0), partial(integer, low=1)
#: Hyper-parameters that several calibrators have, and what they may be.
_CHECKS: dict[str, Callable[[str, object], object]] = {
    "penalty": _positive,
    "off_diagonal": _positive,
    "intercept": _positive,
    "tol": _positive,
    "max_iter": _count,
    "max_classes": _count,
}

Self = TypeVar("Self", bound="Calibrator")
T = TypeVar("T")

#: Logits `[N, K]` as they are worked on: float32 or float64.
Logits: TypeAlias = NDArray[np.floating]
Labels: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


class Calibrator(abc.ABC):
    """A map from logits to calibrated logits, fitted on held-out logits and labels; it never sees a model.

    A subclass is a frozen dataclass. Its fields are the hyper-parameters and, with `init=False` and a name that
    ends in an underscore, what is learned; its methods are `_solve` (logits, labels and weights to the learned values),
    `_calibrate` (logits to logits) and `_shapes` (of the learned arrays) or, where that is not all to check, `_restore`
    (what JSON gave back to the learned values). Weights are always an array, of ones unless given.

    Examples
    --------
    >>> from vicinal.calibrators import TemperatureScaling
    >>> calibrator = TemperatureScaling().fit([[0.0, 2.0]] * 4, [1, 1, 1, 0])
    >>> isinstance(calibrator, Calibrator), calibrator([[0.0, 2.0]]).round(2).tolist()  # log 3: right in three of four
    (True, [[0.0, 1.1]])
    """

    n_classes_: int

    def __post_init__(self) -> None:
        """Check the hyper-parameters that several calibrators have."""
        freeze(
            self, **{name: check(name, getattr(self, name)) for name, check in _CHECKS.items() if hasattr(self, name)}
        )

    def fit(self: Self, logits: ArrayLike, labels: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from held-out predictions, not from those the model was trained on.

        Parameters
        ----------
        logits : array or tensor of shape `[N, K]`
            Unnormalised scores of K ≥ 2 classes, of any float type.
        labels : array or tensor of shape `[N]`
            Class numbers in [0, K).
        sample_weight : array or tensor of shape `[N]`
            How many samples each row counts as, at least 0. A weight of 2 is a row that is there twice.

        Returns
        -------
        The calibrator itself. Fitting again starts afresh.
        """
        z = _as_class_logits(logits)
        y = as_classes("labels", labels, n_classes=z.shape[1])
        if len(y) != len(z):
            raise ValueError(f"logits and labels must have the same length, got {len(z)} and {len(y)}")
        weights = as_weights(sample_weight, len(y))
        if not weights.all():  # rows that count for nothing have no say in bounds, blocks and edges either
            z, y, weights = z[weights > 0], y[weights > 0], weights[weights > 0]
        freeze(self, **self._solve(z, y, weights), n_classes_=z.shape[1])
        return self

    @overload
    def __call__(self, logits: Tensor) -> Tensor: ...
    @overload
    def __call__(self, logits: ArrayLike) -> Logits: ...
    def __call__(self, logits: ArrayLike) -> Any:
        """Return calibrated logits `[N, K]`: their softmax is what `predict_proba` returns.

        A tensor gives a tensor on the same device, anything else a numpy array; the float type is that of the
        input, and at least float32. The result is detached: no gradient flows through a calibrator.
        """
        self._require_fit()
        z = _as_class_logits(logits)
        if z.shape[1] != self.n_classes_:
            raise ValueError(
                f"logits must have the {self.n_classes_} classes {type(self).__name__} was fitted on, "
                f"got shape {list(z.shape)}"
            )
        chunks = map_rows(lambda chunk: self._calibrate(chunk).astype(z.dtype, copy=False), z)
        return _like(np.concatenate(chunks), logits)

    @overload
    def predict_proba(self, logits: Tensor) -> Tensor: ...
    @overload
    def predict_proba(self, logits: ArrayLike) -> Logits: ...
    def predict_proba(self, logits: ArrayLike) -> object:
        """Return calibrated probabilities `[N, K]`, which sum to one in each row."""
        calibrated = as_array("logits", self(logits))
        chunks = map_rows(lambda chunk: softmax(chunk).astype(chunk.dtype), calibrated)
        return _like(np.concatenate(chunks), logits)

    def state_dict(self) -> dict[str, object]:
        """Return hyper-parameters and learned attributes as a dictionary that JSON can hold exactly."""
        self._require_fit()
        return {
            "format": _FORMAT,
            "calibrator": type(self).__name__,
            "params": {name: _jsonable(getattr(self, name)) for name in _fields(type(self), init=True)},
            "learned": {name: _jsonable(getattr(self, name)) for name in _fields(type(self), init=False)},
            "n_classes": self.n_classes_,
        }

    @classmethod
    def from_state_dict(cls: type[Self], state: Json) -> Self:
        """Rebuild what `state_dict` described; on `Calibrator` itself, any calibrator."""
        known = {kind.__name__: kind for kind in _concrete(cls)}
        try:
            version, name, n_classes = state["format"], state["calibrator"], state["n_classes"]
            params, learned = dict(state["params"]), dict(state["learned"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the state of a calibrator: {error!r}") from error
        if version != _FORMAT:
            raise ValueError(f"state has format {version!r}, this version of vicinal reads {_FORMAT}")
        if name not in known:
            raise ValueError(f"state is of {name!r}, not of {cls.__name__}{nearest_names(str(name), known)}")
        kind = known[name]
        if sorted(learned) != sorted(_fields(kind, init=False)):
            raise ValueError(f"{name} learns {_fields(kind, init=False)}, the state holds {list(learned)}")
        try:
            calibrator, n_classes = kind(**params), integer("n_classes", n_classes, low=2)
            freeze(calibrator, **calibrator._restore(n_classes, **learned), n_classes_=n_classes)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the state of {name} is damaged: {error}") from error
        return calibrator

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `state_dict` to `path` as JSON: the file is either the old one or the whole new one."""
        text = json.dumps(self.state_dict(), indent=1, allow_nan=False)
        with replacing(Path(path)) as draft:
            draft.write_text(f"{text}\n", encoding="utf-8")

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; `Calibrator.load` reads any calibrator."""
        text = Path(path).read_text(encoding="utf-8")
        try:
            return cls.from_state_dict(json.loads(text))
        except ValueError as error:  # json.JSONDecodeError is one
            raise ValueError(f"{os.fspath(path)!r} cannot be loaded: {error}") from error

    def _require_fit(self) -> None:
        if not hasattr(self, "n_classes_"):
            raise RuntimeError(f"this {type(self).__name__} is not fitted: call fit(logits, labels) first")

    @abc.abstractmethod
    def _solve(self, logits: Logits, labels: Labels, weights: Floats) -> dict[str, object]:
        """Return the learned attributes from logits `[N, K]`, labels `[N]` and positive weights `[N]`."""

    @abc.abstractmethod
    def _calibrate(self, logits: Logits) -> Logits:
        """Return calibrated logits for a chunk of rows."""

    def _shapes(self, n_classes: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the learned arrays; other learned values are positive numbers."""
        return {}

    def _restore(self, n_classes: int, **learned: object) -> dict[str, object]:
        """Return the learned attributes from what JSON gave back, checked."""
        shapes = self._shapes(n_classes)
        return {
            name: learned_array(name, value, shapes[name]) if name in shapes else number(name, value, above=0)
            for name, value in learned.items()
        }


def map_rows(function: Callable[..., T], matrix: Logits, *others: Values) -> list[T]:
    """Return `function` of each run of rows of `[N, K]` and of the same rows of the others, in order.

    Runs are small and numpy's, spread over threads when there are many: their temporaries stay in the cache, and
    no operation waits for a pool of threads, which on a busy machine costs more than the work. They do not depend
    on the number of threads, so neither does a sum over them.
    """
    rows = max(1, _CHUNK // matrix.shape[1])

    def run(first: int) -> list[T]:
        starts = range(first, min(first + rows * _CHUNKS_PER_TASK, len(matrix)), rows)
        return [function(*(array[start : start + rows] for array in (matrix, *others))) for start in starts]

    tasks = range(0, len(matrix), rows * _CHUNKS_PER_TASK)
    threads = min(len(tasks), n_threads())
    if threads == 1:
        return [result for task in tasks for result in run(task)]
    with ThreadPoolExecutor(threads) as pool:
        return [result for results in pool.map(run, tasks) for result in results]


def softmax(logits: Logits) -> Floats:
    """Return the softmax of each row in float64; a row has the same bits in any batch."""
    probs: Floats = np.subtract(logits, logits.max(axis=1, keepdims=True), dtype=np.float64, order="C")
    np.exp(probs, out=probs)
    probs /= probs.sum(axis=1, keepdims=True)
    return probs


def class_probs(logits: Logits) -> Iterable[Floats]:
    """Return each class's probability `[N]`: the scores of the one-vs-rest calibrators."""
    return np.ascontiguousarray(np.concatenate(map_rows(softmax, logits)).T)


def log_probs(columns: Iterable[Floats], floor: float) -> Floats:
    """Return log-probabilities `[N, K]` of one-vs-rest estimates `[N]`, raised to `floor` and normalised.

    Frequencies of 0 from finite data do not make a class impossible; without a floor one surprise would cost
    an infinite loss, and a row where every class got 0 could not be normalised.
    """
    probs = np.maximum(np.stack(list(columns), axis=1), floor)
    logs: Floats = np.log(probs / probs.sum(axis=1, keepdims=True))
    return logs


def class_log_odds(logits: Logits) -> Floats:
    r"""Return the log-odds of each class against the rest, `[K, N]`; of two classes those of the second, `[1, N]`.

    .. math:: x_k = z_k - \log \sum_{j \ne k} e^{z_j}

    The highest class's sum leaves it out before it is added up: subtracting it afterwards would lose all digits.

    >>> class_log_odds(np.array([[1.0, 3.0]])), class_log_odds(np.log([[0.5, 0.25, 0.25]])).round(4).ravel()
    (array([[2.]]), array([ 0.    , -1.0986, -1.0986]))
    """
    z = logits.astype(np.float64)
    if z.shape[1] == 2:
        return np.ascontiguousarray((z[:, 1] - z[:, 0])[None])
    rows, first = np.arange(len(z)), z.argmax(axis=1)
    top = z[rows, first]
    others = z.copy()
    others[rows, first] = -np.inf
    second = others.max(axis=1)
    rest = np.exp(others - second[:, None]).sum(axis=1)
    exp = np.exp(z - top[:, None])
    with np.errstate(divide="ignore"):  # the highest class, replaced below
        odds = z - top[:, None] - np.log(exp.sum(axis=1, keepdims=True) - exp)
    odds[rows, first] = top - second - np.log(rest)
    return np.ascontiguousarray(odds.T)


def joined_log_odds(odds: Floats) -> Floats:
    """Return log-probabilities `[N, K]` of log-odds as `class_log_odds` returns them, normalised.

    >>> np.exp(joined_log_odds(np.zeros((3, 1)))).round(3)
    array([[0.333, 0.333, 0.333]])
    """
    if len(odds) == 1:
        both: Floats = -np.logaddexp(0, np.stack([odds[0], -odds[0]], axis=1))
        return both
    logs: Floats = np.ascontiguousarray(-np.logaddexp(0, -odds).T)
    top = logs.max(axis=1, keepdims=True)
    logs -= top + np.log(np.exp(logs - top).sum(axis=1, keepdims=True))
    return logs


def as_weights(value: object, n: int) -> Floats:
    """Return weights `[N]` as float64, ones where none are given; some must be positive."""
    if value is None:
        return np.ones(n)
    weights = as_vector("sample_weight", value)
    if len(weights) != n:
        raise ValueError(f"sample_weight and labels must have the same length, got {len(weights)} and {n}")
    if weights.min() < 0 or not weights.any():
        raise ValueError(f"sample_weight must be at least 0, and some above it, got {weights.min():g} as the lowest")
    return weights


def learned_array(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    """Return what JSON gave back for one array of finite numbers of this shape, checked."""
    array = np.asarray(value, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite numbers of shape {list(shape)}")
    return array


def learned_arrays(name: str, value: Any, n_classes: int) -> list[Floats]:
    """Return what JSON gave back for K arrays of finite numbers, checked."""
    arrays = [np.asarray(item, dtype=np.float64) for item in value]
    if len(arrays) != n_classes or any(a.ndim != 1 or not np.isfinite(a).all() for a in arrays):
        raise ValueError(f"{name} must hold {n_classes} lists of finite numbers")
    return arrays


def _as_class_logits(value: object) -> Logits:
    matrix = as_array("logits", as_scores("logits", value))
    if matrix.shape[1] < 2:
        raise ValueError(
            f"logits must have at least 2 classes, got shape {list(matrix.shape)}; "
            "for the one logit z of a binary task pass the two columns [0, z]"
        )
    # Row by row in memory, so that sums have the same last bits however the caller keeps them.
    logits: Logits = np.ascontiguousarray(matrix, matrix.dtype if matrix.dtype == np.float64 else np.float32)
    extremes = np.array(map_rows(lambda chunk: (chunk.min(), chunk.max()), logits))  # NaN goes through both
    largest = float(np.abs(extremes).max())
    if not np.isfinite(largest):
        raise ValueError("logits must be finite, got NaN or inf")
    if largest > _LARGEST_LOGIT:
        raise ValueError(f"logits must lie within ±{_LARGEST_LOGIT:g}, got one of size {largest:g}")
    return logits


def _like(result: Logits, model: object) -> object:
    if not is_tensor(model):
        return result
    import torch

    return torch.from_numpy(result).to(model.device)


def _fields(kind: type[Calibrator], *, init: bool) -> list[str]:
    return [f.name for f in dataclasses.fields(kind) if f.init is init]  # type: ignore[arg-type]  # every calibrator is a dataclass


def _concrete(kind: type[Self]) -> Iterator[type[Self]]:
    if not getattr(kind, "__abstractmethods__", None):
        yield kind
    for child in kind.__subclasses__():
        yield from _concrete(child)


def _jsonable(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, Calibrator):
        return value.state_dict()
    return value.tolist() if isinstance(value, np.ndarray) else value
