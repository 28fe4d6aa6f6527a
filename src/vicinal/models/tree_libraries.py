"""Boosted trees of LightGBM and CatBoost, kept in the text formats of these libraries.

A model is a text in a buffer of bytes, which is saved with all other weights and needs no pickle: LightGBM's own text,
and CatBoost's JSON. The library that fitted it evaluates it, so it must be installed wherever the model is used.

References
----------
Ke, Meng, Finley, Wang, Chen, Ma, Ye & Liu, "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", NeurIPS
2017. Prokhorenkova, Gusev, Vorobev, Dorogush & Gulin, "CatBoost: Unbiased Boosting with Categorical Features", NeurIPS
2018.
"""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._checks import integer, number, require
from vicinal.models.tree_columns import Seen, TreeColumns

#: Growing stops once so many further trees have not lowered the NLL of validation rows.
_PATIENCE = 50
#: Trees at most where no validation rows stop growing, as is LightGBM's default.
_UNVALIDATED = 100

Floats = NDArray[np.float64]


class LibraryTrees(TreeColumns):
    """Trees that a library fits and evaluates: features to logits `[B, n_classes]`, zeros before `fit_trees`.

    Parameters
    ----------
    iterations
        The most trees, for each class where the library has trees of each.
    numbers, categories
        As in `TreeColumns`.
    """

    library: ClassVar[str]
    """What it is called in messages."""
    text: Tensor

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        numbers: Sequence[int] | None,
        categories: Sequence[Sequence[int]],
        iterations: int,
    ) -> None:
        super().__init__(n_features, numbers, categories)
        self.n_numbers = self.n_columns - len(self.categories)
        self.n_classes = integer("n_classes", n_classes, low=2)
        self.outputs = 1 if n_classes == 2 else n_classes
        self.iterations = integer("iterations", iterations, low=1)
        self.register_buffer("text", torch.zeros(0, dtype=torch.uint8))
        self._model: Any = None

    @property
    @abstractmethod
    def size(self) -> str:
        """How large trees are and what each counts, in words."""

    @abstractmethod
    def fit_trees(self, train: Seen, val: Seen | None, seed: int) -> tuple[list[float], list[float] | None]:
        """Fit trees, keep as many as suit validation rows best; return the losses of both after each tree."""

    @abstractmethod
    def read(self, text: bytes) -> Any:
        """Return the library's model."""

    @abstractmethod
    def scores(self, model: Any, x: NDArray[np.float32]) -> Floats:
        """Return the sums of leaves, `[N, outputs]`."""

    def keep(self, text: bytes) -> None:
        """Take a model as text."""
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(self.text.device)
        self._model = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits `[B, n_classes]`."""
        if torch.compiler.is_compiling():
            raise ValueError(
                f"trees of {self.library} cannot be exported: train with the model 'mlp-and-trees' or 'hgb'"
            )
        if not len(self.text):
            return torch.zeros(len(x), self.n_classes, device=x.device)
        if self._model is None:
            self._model = self.read(self.text.cpu().numpy().tobytes())
        columns = self.columns(x).T.cpu().numpy()
        scores = torch.from_numpy(self.scores(self._model, columns).reshape(len(columns), self.outputs))
        logits = scores.to(x.device, torch.float32)
        # Two classes have one output, the log-odds of the second: a zero beside it makes them logits.
        return torch.cat([torch.zeros_like(logits), logits], dim=1) if self.outputs == 1 else logits

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """Make room for the text that was saved."""
        saved = state_dict.get(f"{prefix}text")
        if isinstance(saved, Tensor) and saved.ndim == 1:
            self.text, self._model = self.text.new_zeros(len(saved)), None
        super()._load_from_state_dict(state_dict, prefix, *args)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the library's model: the text has all of it."""
        return {**self.__dict__, "_model": None}


class LightGBMTrees(LibraryTrees):
    """LightGBM's trees.

    Parameters
    ----------
    iterations, rate, leaves
        The most trees, what each counts, and its most leaves.
    numbers, categories
        As in `TreeColumns`.

    Examples
    --------
    >>> LightGBMTrees(8, 3)(torch.randn(5, 8)).shape  # zeros before there are trees
    torch.Size([5, 3])
    """

    library = "LightGBM"

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        numbers: Sequence[int] | None = None,
        categories: Sequence[Sequence[int]] = (),
        iterations: int = 1000,
        rate: float = 0.1,
        leaves: int = 31,
    ) -> None:
        super().__init__(n_features, n_classes, numbers=numbers, categories=categories, iterations=iterations)
        self.rate, self.leaves = number("rate", rate, above=0), integer("leaves", leaves, low=2)

    @property
    def size(self) -> str:
        """How large trees are and what each counts, in words."""
        return f"of {self.leaves} leaves at most, learning rate {self.rate:g}"

    def fit_trees(self, train: Seen, val: Seen | None, seed: int) -> tuple[list[float], list[float] | None]:
        """Fit trees, keep as many as suit validation rows best; return the losses of both after each tree."""
        lightgbm = require("lightgbm", "boosting")
        losses: dict[str, dict[str, list[float]]] = {}
        callbacks = [lightgbm.record_evaluation(losses)]
        fixed = list(range(self.n_numbers, self.n_columns))

        def dataset(rows: Seen, reference: Any = None) -> Any:
            about = {"weight": rows.weight, "categorical_feature": fixed, "params": {"verbose": -1}}
            return lightgbm.Dataset(rows.x, rows.labels, reference=reference, **about)

        fitted = dataset(train)
        watched, names = [fitted], ["train"]
        if val is not None:
            watched, names = [fitted, dataset(val, fitted)], ["train", "val"]
            callbacks.append(lightgbm.early_stopping(_PATIENCE, verbose=False))
        several = {"objective": "multiclass", "num_class": self.outputs, "metric": "multi_logloss"}
        options = {
            **({"objective": "binary", "metric": "binary_logloss"} if self.outputs == 1 else several),
            "learning_rate": self.rate,
            "num_leaves": self.leaves,
            "num_threads": torch.get_num_threads(),
            "seed": seed % 2**31,
            "deterministic": True,
            "force_row_wise": True,
            "verbose": -1,
        }
        rounds = self.iterations if val is not None else min(self.iterations, _UNVALIDATED)
        booster = lightgbm.train(options, fitted, rounds, valid_sets=watched, valid_names=names, callbacks=callbacks)
        best = booster.best_iteration if val is not None else booster.num_trees()
        self.keep(booster.model_to_string(num_iteration=best).encode())
        of_train, *of_val = (next(iter(losses[name].values())) for name in names)
        return of_train, of_val[0] if of_val else None

    def read(self, text: bytes) -> Any:
        """Return the library's model."""
        return require("lightgbm", "boosting").Booster(model_str=text.decode())

    def scores(self, model: Any, x: NDArray[np.float32]) -> Floats:
        """Return the sums of leaves, `[N, outputs]`."""
        found: Floats = model.predict(x, raw_score=True, num_threads=torch.get_num_threads())
        return found


class CatBoostTrees(LibraryTrees):
    """CatBoost's trees.

    Parameters
    ----------
    iterations, rate, depth
        The most trees, what each counts (CatBoost chooses if not given), and how many tests a row meets.
    numbers, categories
        As in `TreeColumns`.

    Examples
    --------
    >>> CatBoostTrees(8, 3)(torch.randn(5, 8)).shape  # zeros before there are trees
    torch.Size([5, 3])
    """

    library = "CatBoost"

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        numbers: Sequence[int] | None = None,
        categories: Sequence[Sequence[int]] = (),
        iterations: int = 1000,
        rate: float | None = None,
        depth: int = 6,
    ) -> None:
        super().__init__(n_features, n_classes, numbers=numbers, categories=categories, iterations=iterations)
        self.rate = None if rate is None else number("rate", rate, above=0)
        self.depth = integer("depth", depth, low=1, high=16)

    @property
    def size(self) -> str:
        """How large trees are and what each counts, in words."""
        return f"of depth {self.depth}" + ("" if self.rate is None else f", learning rate {self.rate:g}")

    def fit_trees(self, train: Seen, val: Seen | None, seed: int) -> tuple[list[float], list[float] | None]:
        """Fit trees, keep as many as suit validation rows best; return the losses of both after each tree."""
        catboost = require("catboost", "boosting")
        loss = "Logloss" if self.outputs == 1 else "MultiClass"
        fitted = catboost.CatBoostClassifier(
            iterations=self.iterations,
            learning_rate=self.rate,
            depth=self.depth,
            loss_function=loss,
            random_seed=seed % 2**31,
            thread_count=torch.get_num_threads(),
            early_stopping_rounds=None if val is None else _PATIENCE,
            allow_writing_files=False,
            verbose=False,
        )
        pool = self._pool(train.x, train.labels, train.weight)
        held_out = None if val is None else self._pool(val.x, val.labels, val.weight)
        fitted.fit(pool, eval_set=held_out)
        with tempfile.TemporaryDirectory(prefix="vicinal-") as folder:  # it writes files alone
            path = Path(folder) / "trees.json"
            fitted.save_model(str(path), format="json", pool=pool)
            self.keep(path.read_bytes())
        losses = fitted.get_evals_result()
        return losses["learn"][loss], None if val is None else losses["validation"][loss]

    def read(self, text: bytes) -> Any:
        """Return the library's model."""
        model = require("catboost", "boosting").CatBoostClassifier()
        with tempfile.TemporaryDirectory(prefix="vicinal-") as folder:
            path = Path(folder) / "trees.json"
            path.write_bytes(text)
            model.load_model(str(path), format="json")
        return model

    def scores(self, model: Any, x: NDArray[np.float32]) -> Floats:
        """Return the sums of leaves, `[N, outputs]`."""
        kind, threads = "RawFormulaVal", torch.get_num_threads()
        found: Floats = model.predict(self._pool(x), prediction_type=kind, thread_count=threads)
        return found

    def _pool(self, x: NDArray[np.float32], labels: Any = None, weight: Any = None) -> Any:
        """Return rows as the library takes them: categories are bytes."""
        catboost = require("catboost", "boosting")
        # Written once for each value, not for each cell.
        numbers, codes = np.ascontiguousarray(x[:, : self.n_numbers]), x[:, self.n_numbers :].astype(np.int64)
        written = np.array([str(k).encode() for k in range(int(codes.max(initial=0)) + 1)], object)
        parts = {
            "num_feature_data": numbers if self.n_numbers else None,
            "cat_feature_data": written[codes] if self.categories else None,
        }
        return catboost.Pool(catboost.FeaturesData(**parts), label=labels, weight=weight)
