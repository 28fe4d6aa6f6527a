r"""Uncertainty from several predictions of one input: MC dropout and deep ensembles.

Both average the probabilities of S predictions and return the logarithm of the mean,

.. math:: \log \bar p_k, \qquad \bar p = \frac1S \sum_{s=1}^{S} \operatorname{softmax}(z^{(s)})

which are logits of :math:`\bar p` (their softmax is the mean itself), so that metrics and calibrators take them as they
are. Nothing of the model is changed: modes, gradients and hooks are as they were, even after an error.

References
----------
Gal & Ghahramani, "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep Learning", ICML 2016.
Lakshminarayanan, Pritzel & Blundell, "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles",
NeurIPS 2017.
Wen et al., "Combining Ensembles and Data Augmentation can Harm your Calibration", ICLR 2021.
Rahaman & Thiery, "Uncertainty Quantification and Deep Ensembles", NeurIPS 2021.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from torch.nn.modules.dropout import _DropoutNd

from vicinal import _random
from vicinal._arrays import at_least_float32
from vicinal._checks import integer, nearest_names, number
from vicinal._typing import Batch
from vicinal.objectives.base import MixingObjective, Objective
from vicinal.objectives.forward import call, n_rows
from vicinal.probes.base import probing


@final
class MCDropout:
    """A model that predicts with dropout on, several times, and averages.

    Only dropout is active: all else, BatchNorm too, is in eval mode. Dropout is every `nn.Dropout` (1d, 2d and
    3d too), `AlphaDropout` and `FeatureAlphaDropout` with p > 0. So are layers that apply dropout themselves when they
    are in training mode: `nn.MultiheadAttention`, `nn.TransformerEncoderLayer`, recurrent layers, the attention and
    the layers of Hugging Face models, and those of torchvision's DenseNet and Swin. Stochastic depth is not dropout,
    and stays off. `F.dropout` in a `forward` of your own cannot be seen from outside: name its module in
    `dropout_modules`.

    Parameters
    ----------
    model
        Returns logits `[B, K]`, or an object with `.logits`. Called as `model(x)`, or `model(**x)` for a mapping.
    passes
        S. The error of the mean falls as 1/√S.
    max_rows
        Passes are computed together, the batch repeated, while a forward has at most this many rows; a batch is never
        divided. Lower it where memory is short.
    dropout_modules
        Names of submodules whose own `forward` applies dropout in training mode; `""` is the model itself.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    >>> mc = MCDropout(model, passes=20)
    >>> log_probs = mc(torch.ones(5, 4), generator=torch.Generator().manual_seed(0))
    >>> log_probs.shape, log_probs.exp().sum(1).allclose(torch.ones(5))
    (torch.Size([5, 3]), True)
    >>> mc.samples(torch.ones(5, 4)).shape
    torch.Size([20, 5, 3])
    """

    def __init__(
        self, model: nn.Module, passes: int = 10, *, max_rows: int = 512, dropout_modules: Sequence[str] = ()
    ) -> None:
        self.model = _module("model", model)
        self.passes = integer("passes", passes, low=1)
        self.max_rows = integer("max_rows", max_rows, low=1)
        self.dropout_modules = (dropout_modules,) if isinstance(dropout_modules, str) else tuple(dropout_modules)
        self._dropout()  # a model without dropout is refused here

    def __call__(self, x: Batch, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the log of the mean probabilities, `[B, K]`, in at least float32; the arguments are `samples`'."""
        return mean_logits(self.samples(x, generator=generator))

    def samples(self, x: Batch, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the logits of each pass, `[S, B, K]`.

        Parameters
        ----------
        x
            A tensor, or a mapping of tensors.
        generator
            Dropout can only draw from torch's global generators. They are seeded with one number from this generator,
            and given back as they were; without one, that number is drawn from the global generator. The same seed
            gives the same passes for the same batch and `max_rows`.
        """
        rows = n_rows(x)
        # Several passes in one batch: dropout draws for each row, and a large batch is faster.
        together = max(1, min(self.passes, self.max_rows // max(rows, 1)))
        seed = int(_random.integers(2**63 - 1, 1, generator=generator))
        results = []
        with probing(self.model), torch.no_grad():
            # Only dropout is in training mode: batch normalisation must keep its statistics.
            for module in self._dropout():
                module.training = True
            # Dropout has no generator of its own. `probing` restores the global ones afterwards.
            _random.seed_globals(seed)
            for start in range(0, self.passes, together):
                times = min(together, self.passes - start)
                logits = _logits(self.model, _repeated(x, times, rows), rows * times)
                results.append(logits.unflatten(0, (times, rows)))
        return torch.cat(results)

    def __repr__(self) -> str:
        return f"MCDropout({type(self.model).__name__}, passes={self.passes}, max_rows={self.max_rows})"

    def _dropout(self) -> list[nn.Module]:
        """Return the modules that are in training mode during a pass."""
        named = dict(self.model.named_modules())
        for name in self.dropout_modules:
            if name not in named:
                raise ValueError(
                    f"dropout_modules names {name!r}, which the model does not have{nearest_names(name, named)}"
                )
        active = [m for m in named.values() if _dropout_rate(m) > 0]
        if not active and not self.dropout_modules:
            idle = any(isinstance(m, _DropoutNd) for m in named.values())
            why = "every dropout layer of it has p=0" if idle else "it has no dropout layer"
            raise ValueError(
                f"model must have dropout with p > 0 for its passes to differ, but {why}; where a forward of your own "
                "calls F.dropout, name its module in dropout_modules="
            )
        return [*active, *(named[name] for name in self.dropout_modules)]


@final
class Ensemble:
    """Several models whose probabilities are averaged.

    **Ensembling mixup-trained models can make them under-confident**: mixup softens the labels, and averaging softens
    the predictions once more (Wen et al. 2021; Rahaman & Thiery 2021). Tell the ensemble by `methods` how its members
    were trained, and it warns of that. The remedy is a temperature fitted to the *averaged* predictions on held-out
    data, not to each member:

        scaling = TemperatureScaling().fit(ensemble(x_held_out), y_held_out)
        calibrated = ensemble.with_temperature(scaling.temperature_)

    Parameters
    ----------
    models
        Each returns logits `[B, K]`, or an object with `.logits`.
    methods
        The objective that trained all members, or one for each; text is read by `vicinal.parse`.
    temperature
        Divides the averaged log-probabilities, which are normalised again. None (as 1) says that none was fitted.

    Examples
    --------
    >>> ensemble = Ensemble([nn.Linear(4, 3), nn.Linear(4, 3)])
    >>> ensemble(torch.ones(5, 4)).shape, ensemble.samples(torch.ones(5, 4)).shape
    (torch.Size([5, 3]), torch.Size([2, 5, 3]))
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        *,
        methods: Objective | Sequence[Objective] | None = None,
        temperature: float | None = None,
    ) -> None:
        self.models = _members(models)
        self.methods = _methods(methods, len(self.models))
        self.temperature = None if temperature is None else number("temperature", temperature, above=0)
        mixed = [method for method in self.methods if _mixes(method)]
        if mixed and len(self.models) > 1 and self.temperature is None:
            warnings.warn(
                f"members trained by {mixed[0]!r} can be under-confident as an ensemble (Wen et al. 2021, Combining "
                "Ensembles and Data Augmentation can Harm your Calibration): fit TemperatureScaling to the ensemble's "
                "output on held-out data and use with_temperature (Rahaman & Thiery 2021)",
                stacklevel=2,
            )

    def __call__(self, x: Batch) -> Tensor:
        """Return the log of the mean probabilities, `[B, K]`, at the ensemble's temperature, in at least float32."""
        pooled = mean_logits(self.samples(x))
        return pooled if self.temperature is None else (pooled / self.temperature).log_softmax(1)

    def samples(self, x: Batch) -> Tensor:
        """Return the logits of each member in eval mode, before any temperature, `[S, B, K]`."""
        rows = n_rows(x)
        members: list[Tensor] = []
        with probing(*self.models), torch.no_grad():
            for i, model in enumerate(self.models):
                members.append(_logits(model, x, rows))
                if members[i].shape != members[0].shape:
                    raise ValueError(
                        f"members must agree on the classes: models[0] gives {list(members[0].shape)}, models[{i}] "
                        f"{list(members[i].shape)}"
                    )
        return torch.stack(members)

    def with_temperature(self, temperature: float) -> Ensemble:
        """Return the ensemble of the same members with this temperature."""
        if temperature is None:
            raise TypeError("temperature must be a number above 0, got None")
        return Ensemble(self.models, methods=self.methods or None, temperature=temperature)

    def __len__(self) -> int:
        return len(self.models)

    def __repr__(self) -> str:
        kinds = ", ".join(sorted({type(model).__name__ for model in self.models}))
        return f"Ensemble({len(self)} × {kinds}, temperature={self.temperature})"


def mean_logits(logits: Tensor, dim: int = 0, *, exclusive: bool = True, weights: Tensor | None = None) -> Tensor:
    """Return the logits of mean probabilities, of members along `dim` with the classes or labels last.

    `exclusive` says whether the outputs are classes, of which one holds; else each is a label of its own. `weights` say
    how much each member counts, in a shape that can be added to `logits`; they sum to one. All count the same without.
    """

    def log_mean(log_probs: Tensor) -> Tensor:
        if weights is None:
            return log_probs.logsumexp(dim) - math.log(log_probs.shape[dim])
        return (log_probs + weights.log()).logsumexp(dim)

    if exclusive:
        return log_mean(logits.log_softmax(-1))
    return log_mean(logsigmoid(logits)) - log_mean(logsigmoid(-logits))


def _logits(model: nn.Module, x: Batch, rows: int) -> Tensor:
    logits = at_least_float32(call(model, x))
    if logits.ndim != 2 or len(logits) != rows or logits.shape[1] < 2:
        hint = "; a model of one logit gives no distribution" if logits.ndim == 2 and logits.shape[1] == 1 else ""
        raise ValueError(
            f"the model must return logits [{rows}, K] with K of at least 2, got {list(logits.shape)}{hint}"
        )
    return logits


def _repeated(x: Batch, times: int, rows: int) -> Batch:
    """Return the batch `times` times over, `[x; x; …]`; what has no row for each sample stays as it is."""
    if times == 1:
        return x

    def tile(t: Tensor) -> Tensor:
        return t.repeat(times, *(1 for _ in t.shape[1:]))

    if isinstance(x, Mapping):
        return {k: tile(t) if isinstance(t, Tensor) and t.ndim and len(t) == rows else t for k, t in x.items()}
    return tile(x)


def _dropout_rate(module: nn.Module) -> float:
    """Return p of the dropout that this module itself applies in training mode, 0 if it applies none."""
    if isinstance(module, _DropoutNd):
        return module.p
    if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
        return float(module.dropout)
    if isinstance(module, nn.TransformerEncoderLayer):
        # In eval mode without gradients it takes a fused path that skips its dropout layers, whatever their mode.
        return max(_dropout_rate(child) for child in module.children())
    kind, home = type(module).__name__, type(module).__module__
    if "Attention" in kind and home.startswith("transformers."):
        # Attention kernels are handed p by the module, if it is in training mode; its dropout layer is not called.
        rates = [getattr(module, name, 0) for name in ("dropout", "attention_dropout", "dropout_prob", "dropout_p")]
        return max(value.p if isinstance(value, _DropoutNd) else _rate(value) for value in rates)
    if (kind.endswith("Layer") and home.startswith("transformers.")) or (kind, home) in _DROPPING:
        # These hold p as a number, and call F.dropout.
        return max(_rate(getattr(module, name, 0)) for name in _RATES)
    return 0.0


#: What layers that call F.dropout, such as those of BART, Whisper, DenseNet and Swin, call their p.
_RATES = ("dropout", "activation_dropout", "attention_dropout", "drop_rate")
_DROPPING = {
    ("_DenseLayer", "torchvision.models.densenet"),
    ("ShiftedWindowAttention", "torchvision.models.swin_transformer"),
    ("ShiftedWindowAttentionV2", "torchvision.models.swin_transformer"),
}


def _rate(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _mixes(method: object) -> bool:
    """Return whether an objective, or one inside it, mixes samples and so softens labels."""
    if getattr(method, "alpha", None) is not None or isinstance(method, MixingObjective):
        return bool(getattr(method, "alpha", 1) != 0)
    return any(_mixes(inner) for name in ("base", "objective") if (inner := getattr(method, name, None)) is not None)


def _methods(methods: Any, n: int) -> tuple[Objective, ...]:
    if methods is None:
        return ()
    several = isinstance(methods, Sequence) and not isinstance(methods, str)
    given = tuple(methods) if several else (methods,) * n
    for method in given:
        if not isinstance(method, Objective):
            raise TypeError(
                f"methods must be objectives like Mixup(alpha=0.4), got {method!r}; vicinal.parse reads them from text"
            )
    if len(given) != n:
        raise ValueError(f"methods must be one objective, or one for each of the {n} models, got {len(given)}")
    return given


def _members(models: Any) -> tuple[nn.Module, ...]:
    if isinstance(models, nn.Module) and not isinstance(models, nn.ModuleList):
        raise TypeError(f"models must be a list of models, got one {type(models).__name__}")
    members = tuple(_module(f"models[{i}]", model) for i, model in enumerate(models))
    if not members:
        raise ValueError("models is empty: an ensemble needs members")
    if len({id(model) for model in members}) < len(members):
        raise ValueError("models holds the same model twice: members must be trained apart")
    return members


def _module(name: str, value: object) -> nn.Module:
    if not isinstance(value, nn.Module):
        raise TypeError(f"{name} must be an nn.Module, got {type(value).__name__}")
    return value
