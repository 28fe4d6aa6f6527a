r"""GuidedMixup: easy samples meet hard ones, chosen by how alike their gradients are.

A first run trains plainly and measures each sample's area under the margin (`AUM`), which splits the training
set into an easy category (high) and a hard or ambiguous one (low). In the second run every sample is mixed with two
samples of the *other* category: the one with the most similar saliency and the one with the most dissimilar.

.. math::
    \mathcal{L} = w_0 H(z, y) + w_1 H(\tilde z_{+}, \tilde y_{+}) + w_2 H(\tilde z_{-}, \tilde y_{-}), \qquad
    \tilde z_{\pm} = f(\lambda h + (1-\lambda) h_{\pm}), \quad \lambda \sim \mathrm{Beta}(\alpha, \alpha)

where h is the sentence vector, what the last linear layer f receives, and the partners :math:`\pm` maximise and
minimise the cosine of the saliencies :math:`|\partial H/\partial z| = |\mathrm{softmax}(z) - \mathrm{onehot}(y)|`.

Because f is affine, :math:`f(\lambda h + (1-\lambda) h_\pm) = \lambda z + (1-\lambda) z_\pm`, gradients
included. The mixing is therefore done on the logits of one plain forward: nothing in the model is touched, so
multiple choice, DistributedDataParallel, compiled and checkpointed models need no special case.

References
----------
Park & Caragea, "On the Calibration of Pre-trained Language Models using Mixup Guided by Area Under the Margin
and Saliency", ACL 2022.
Pleiss et al., "Identifying Mislabeled Data using the Area Under the Margin Ranking", NeurIPS 2020.

Deviations: this follows the paper where its published code differs; src/vicinal/cards/guidedmixup.md lists where, and
how the text was read where it leaves something open (that the second run starts from the initial weights again, say).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from vicinal import _random, losses
from vicinal._arrays import at_least_float32
from vicinal._checks import ArgumentError, choice, freeze, number
from vicinal._typing import Batch, Model, Step
from vicinal.mixing import fetched, mix, move, sent
from vicinal.objectives.base import Objective, checked_fields, mean_loss, row_weights
from vicinal.objectives.forward import call, has_float64, untraced
from vicinal.objectives.guided.aum import AUM
from vicinal.objectives.guided.neighbours import arc_extremes, cosine_extremes, directions
from vicinal.objectives.guided.saliency import SaliencyTable, check_index
from vicinal.objectives.transformers import head_weight


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class GuidedMixup(Objective):
    """Mix across the AUM categories, guided by saliency; made ready by `bind`.

    Parameters
    ----------
    alpha
        α ≥ 0 of Beta(α, α); 0.4 in the paper (Section 4.3).
    weights
        Of the clean loss, of the similar and of the dissimilar mix, which sum to one: 0.8, 0.1, 0.1 in the paper
        (Section 4.3). A term with weight 0 is left out: `(0.9, 0.0, 0.1)` and `(0.9, 0.1, 0.0)` are the ablations
        −similar and −dissimilar (the paper does not give their weights).
    quantile, threshold
        Where the categories part: at a quantile of the AUM, or at a value. Low is below, high is at or above.
        With neither it is the median, as in the paper (Algorithm 1).
    pool
        Where partners are looked for: `"set"`, the whole opposite category of the training set (Eqs. 4 and 5), from a
        table of saliencies that each batch refreshes for its own samples; or `"batch"`, which is faster and not the
        published search (use it with a `BalancedBatchSampler`).
    saliency
        What the cosines compare: `"logits"`, the published |p − onehot(y)|; `"hidden"`, the signed gradient with
        respect to the sentence vector, Wᵀ(p − onehot(y)); `"auto"`, logits but hidden for two classes.
    split
        `"aum"`, or `"random"` categories of the same sizes (the ablation −AUM).
    partner
        `"saliency"`, or `"random"` of the other category (the ablation −Saliency).
    per_sample
        Draw one λ per sample instead of one per batch.
    label_smoothing
        σ of the labels before they are mixed, σ/(K − 1) on each other class (Section 3.4); the clean loss stays hard.

    Notes
    -----
    With two classes both entries of |p − onehot(y)| are equal and every cosine is 1. `"logits"` then does what the
    published rule says, with a warning: all ties go to the first sample of the other category. `"auto"` uses
    `"hidden"`, with a warning too: there all gradients are multiples of one vector, w₁ − w₀, with a sign that the label
    decides, so the most similar are the samples of the same label and the most dissimilar those of the other, and one
    of them is drawn at random.

    Examples
    --------
    >>> from vicinal import GuidedMixup
    >>> model, x, y, index = torch.nn.Linear(4, 3), torch.randn(8, 4), torch.arange(8) % 3, torch.arange(8)
    >>> aum = GuidedMixup().tracker(8)
    >>> aum.update(model(x), y, index, epoch=0)  # in every step of a first, plain run
    >>> data = torch.utils.data.TensorDataset(x, y)
    >>> objective = GuidedMixup().bind(aum, dataset=data, collate_fn=torch.utils.data.default_collate)
    >>> list(objective.terms(model, x, y, index=index))
    ['clean', 'similar', 'dissimilar']
    """

    alpha: float = 0.4
    weights: tuple[float, float, float] = (0.8, 0.1, 0.1)
    quantile: float | None = None
    threshold: float | None = None
    pool: str = "set"
    saliency: str = "auto"
    split: str = "aum"
    partner: str = "saliency"
    per_sample: bool = False
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.weights, str) or not isinstance(self.weights, Sequence) or len(self.weights) != 3:
            raise ValueError(f"weights must be three numbers (clean, similar, dissimilar), got {self.weights!r}")
        weights = tuple(number("weights", w, low=0) for w in self.weights)
        if abs(sum(weights) - 1) > 1e-6:
            raise ArgumentError("weights", self.weights, "three numbers that sum to one")
        if self.quantile is not None and self.threshold is not None:
            raise ValueError(
                f"give quantile or threshold, not both, got quantile={self.quantile!r} and threshold={self.threshold!r}"
            )
        freeze(
            self,
            **checked_fields(self),
            weights=weights,
            quantile=None if self.quantile is None else number("quantile", self.quantile, low=0, high=1),
            threshold=None if self.threshold is None else number("threshold", self.threshold),
            pool=choice("pool", self.pool, ("batch", "set")),
            saliency=choice("saliency", self.saliency, ("auto", "logits", "hidden")),
            split=choice("split", self.split, ("aum", "random")),
            partner=choice("partner", self.partner, ("saliency", "random")),
        )

    def bind(
        self,
        aum: AUM,
        *,
        dataset: Any = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        generator: torch.Generator | None = None,
    ) -> BoundGuidedMixup:
        """Return this objective with the categories that `aum` gives, ready to train with.

        Parameters
        ----------
        aum
            The `AUM` of a first run, in which every sample of the training set was seen. `pool="set"` starts
            from its table: make it with `AUM(n_samples, saliency=True)`.
        dataset, collate_fn
            Required for `pool="set"`: the partners found are loaded as `collate_fn([dataset[i], …])`, which
            returns `(x, y)` (more may follow), or a mapping with `"labels"`.
        generator
            Where the categories of `split="random"` come from.
        """
        if not isinstance(aum, AUM):
            raise TypeError(f"aum must be an AUM tracker, got {aum!r}")
        if self.pool == "set" and (dataset is None or collate_fn is None):
            raise ValueError("pool='set' loads the partners it finds: bind(aum, dataset=…, collate_fn=…)")
        threshold, high = self._split(aum.values(), generator)
        table = None
        if self.pool == "set" and self.partner == "saliency":
            if aum.table is None:
                raise ValueError(
                    "pool='set' starts from the first run's saliencies: track it with AUM(n_samples, saliency=True)"
                )
            table = aum.table.copy()
            table.stamp.zero_()
        return BoundGuidedMixup(self, threshold, high, table, dataset, collate_fn)

    def tracker(self, n_samples: int) -> AUM:
        """Return the tracker that a first, plain run has to feed; with `pool="set"` it keeps the saliencies too."""
        return AUM(n_samples, saliency=self.pool == "set")

    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> NoReturn:
        """Refuse: there is no loss without the AUM of a first run."""
        raise ValueError(
            "GuidedMixup needs the AUM of a first run: train plainly while `aum = objective.tracker(n_samples)` "
            "records each batch by `aum.update(logits, y, index, epoch=epoch)`, then train with "
            "`objective.bind(aum, …)`"
        )

    def _split(self, aum: Tensor, generator: torch.Generator | None) -> tuple[float, Tensor]:
        """Return the threshold, and which samples are high, bool `[N]`."""
        threshold = self.threshold
        if threshold is None:
            threshold = float(np.quantile(aum.numpy(), 0.5 if self.quantile is None else self.quantile))
        high = aum >= threshold
        if not 0 < int(high.sum()) < len(high):
            what = "below" if bool(high.all()) else "at or above"
            raise ValueError(
                f"no sample has an AUM {what} the threshold {threshold:g} (from {aum.min():g} to {aum.max():g}), so "
                "there is no other category to mix with: choose another threshold or quantile"
            )
        if self.split == "random":
            high = high[_random.permutation(len(high), generator=generator)]
        return threshold, high


@dataclass(frozen=True, eq=False)
class GuidedPlan:
    """Who is mixed with whom: rows of the batch, or samples of the training set."""

    lam: Tensor
    """The weight of the row itself, float32 `[B]`."""
    similar: Tensor
    """The partner with the most similar saliency, int64 `[B]`."""
    dissimilar: Tensor
    """The partner with the least similar one, int64 `[B]`."""


@final
class BoundGuidedMixup(Objective):
    """A `GuidedMixup` with its categories; made by `GuidedMixup(…).bind(aum)`."""

    def __init__(
        self,
        objective: GuidedMixup,
        threshold: float,
        high: Tensor,
        table: SaliencyTable | None,
        dataset: object,
        collate_fn: Callable[[list[Any]], Any] | None,
    ) -> None:
        self.objective = objective
        self.threshold = threshold
        """The AUM at which the categories part."""
        self.high = high
        """Which samples of the training set are of the high category, bool `[N]`: for `BalancedBatchSampler`."""
        self.plain_batches = 0
        """How many batches lacked a category and were trained on plainly (`pool="batch"`)."""
        self._table, self._dataset, self._collate_fn = table, dataset, collate_fn
        self._members: dict[torch.device, list[Tensor]] = {}  # of the low and of the high category, `pool="set"`
        self._steps = 0
        self._warned = False

    def compute_terms(self, model: Model, x: Batch, y: Tensor, step: Step) -> dict[str, Tensor]:
        """Return the weighted terms whose sum is the loss: `clean`, `similar` and `dissimilar`."""
        where = _positions(step.index, len(y), len(self.high), needed_by="GuidedMixup")
        if y.is_floating_point():
            raise ValueError(f"GuidedMixup needs integer labels [B], got {y.dtype} {list(y.shape)}")
        logits = call(model, x)
        if logits.ndim == 2 and logits.shape[1] < 2:
            raise ValueError(f"GuidedMixup needs at least two classes, got logits {list(logits.shape)}")
        clean = mean_loss(losses.loss(logits, y), logits, y, step)
        plan = self.plan(model, logits, y, where, generator=step.generator)
        if plan is None:  # nobody to mix with: the batch costs its plain cross-entropy
            self.plain_batches += 1
            return {"clean": clean, "similar": torch.zeros_like(clean), "dissimilar": torch.zeros_like(clean)}
        weights = dict(zip(("clean", "similar", "dissimilar"), self.objective.weights, strict=True))
        partners = {name: getattr(plan, name) for name in ("similar", "dissimilar") if weights[name]}
        others, labels, partners = self._others(model, logits, y, partners)
        lam = plan.lam
        terms = {"clean": weights["clean"] * clean}
        for name in ("similar", "dissimilar"):
            terms[name] = torch.zeros_like(clean)
            if name in partners:
                mixed = mix(at_least_float32(logits), at_least_float32(others[partners[name]]), lam)
                loss = losses.mixed_cross_entropy(
                    mixed, y, labels[partners[name]], lam, label_smoothing=self.objective.label_smoothing
                )
                carried = self._mixed_weight(y, labels[partners[name]], partners[name], lam, step)
                terms[name] = weights[name] * losses.weighted_mean(loss, carried)
        return terms

    def _mixed_weight(self, y: Tensor, labels: Tensor, partners: Tensor, lam: Tensor, step: Step) -> Tensor | None:
        """Return the weight of each mixed row; None where all count the same."""
        weight = row_weights(y, step)
        if weight is None:
            return None
        if self.objective.pool == "batch":
            return mix(weight, weight[partners], lam)
        if step.weight is not None:
            raise ValueError(
                "weight is known of the samples of a batch, and pool='set' mixes with others: use pool='batch', or "
                "class_weights"
            )
        return mix(weight, torch.as_tensor(row_weights(labels, step)), lam)

    @untraced
    def plan(
        self, model: Model, logits: Tensor, y: Tensor, index: Tensor, *, generator: torch.Generator | None = None
    ) -> GuidedPlan | None:
        """Draw λ and choose the partners of a batch; None if the batch lacks a category.

        Partners are rows of the batch, or with `pool="set"` positions in the training set, whose table of
        saliencies is refreshed for this batch first. The search runs where the logits are.
        """
        spec, high = self.objective, self.high[index]
        self._steps += 1
        if spec.pool == "batch" and (bool(high.all()) or not bool(high.any())):
            return None
        lam = _random.beta(spec.alpha, len(high) if spec.per_sample else 1, generator=generator)
        home = self._home(logits)
        query = [(high == category).nonzero()[:, 0] for category in (False, True)]
        toward = labels = None
        if spec.partner == "saliency":
            given = logits.detach()
            given, labels = (given, y.to(home)) if given.device == home else fetched([given, losses.host_copy(y)])
            toward = directions(given, labels.long())
        if spec.pool == "set":
            members = self._categories(home)
            index, *query = move([index, *query], home)
            if self._table is not None and toward is not None and labels is not None:
                self._table.to(home).write(index, toward, labels, self._steps)
                toward, labels = self._table.directions, self._table.labels
        else:
            index, *query = move([torch.arange(len(high), device="cpu"), *query], home)
            members = query
        compared = None if toward is None else self._compared(model, toward)
        similar, dissimilar = torch.empty_like(index), torch.empty_like(index)
        for rows, other in zip(query, members[::-1], strict=True):
            partners = self._search(compared, labels, index[rows], other, generator)
            similar[rows], dissimilar[rows] = (other[chosen] for chosen in partners)
        if spec.pool == "set":  # the host needs to know them, to load them
            return GuidedPlan(move([lam.float().expand(len(high))], logits.device)[0], similar, dissimilar)
        return sent(GuidedPlan(lam.float().expand(len(high)), similar, dissimilar), logits.device)

    def _home(self, logits: Tensor) -> torch.device:
        """Return where to search: on the device, unless draws depend on the labels or it has no float64."""
        chance = self.objective.partner == "random" or (logits.shape[1] == 2 and self._kind(2) == "hidden")
        return logits.device if not chance and has_float64(logits.device) else torch.device("cpu")

    def _categories(self, home: torch.device) -> list[Tensor]:
        """Return the samples of the low and of the high category, which stay on the device that searches them."""
        if home not in self._members:
            self._members = {home: move([(~self.high).nonzero()[:, 0], self.high.nonzero()[:, 0]], home)}
        return self._members[home]

    @property
    def balanced(self) -> Tensor | None:
        """The categories, where partners are looked for in the batch."""
        return self.high if self.objective.pool == "batch" else None

    def all_reduce(self, group: dist.ProcessGroup | None = None) -> None:
        """Merge the saliency tables of all ranks, of `pool="set"`; call it on every rank at the end of an epoch."""
        if self._table is not None:
            self._table.all_reduce(group)

    def summary(self) -> dict[str, float]:
        """Return the threshold of the AUM, the sizes of the categories, and how many batches were plain."""
        n_high = int(self.high.sum())
        return {
            "aum_threshold": self.threshold,
            "high": n_high,
            "low": len(self.high) - n_high,
            "plain_batches": self.plain_batches,
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return the training state as tensors: the categories, the counters and the saliency table."""
        counts = {"plain_batches": self.plain_batches, "steps": self._steps}
        counters = {name: torch.tensor(count, device="cpu") for name, count in counts.items()}
        table = {} if self._table is None else self._table.state_dict()
        return {"high": self.high.clone(), **counters, **{f"table.{name}": t for name, t in table.items()}}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        if state["high"].shape != self.high.shape:
            raise ValueError(f"the saved state is of {len(state['high'])} samples, this objective of {len(self.high)}")
        if self._table is not None:
            self._table.load_state_dict({n.removeprefix("table."): t for n, t in state.items() if n[:6] == "table."})
        self.high, self._members = state["high"].to("cpu", torch.bool, copy=True), {}
        self.plain_batches, self._steps = int(state["plain_batches"]), int(state["steps"])

    def __repr__(self) -> str:
        return f"{self.objective!r}.bind(<AUM of {len(self.high)} samples>)"

    def _compared(self, model: Model, toward: Tensor) -> Tensor:
        """Return the vectors whose cosines are compared, from the gradients' directions at the logits."""
        n_classes, kind = toward.shape[1], self._kind(toward.shape[1])
        if n_classes == 2 and self.objective.saliency != "hidden" and not self._warned:
            self._warned = True
            warnings.warn(_TWO_CLASSES[self.objective.saliency], stacklevel=5)
        if kind == "logits":
            return toward.abs()
        if n_classes == 2:
            return toward
        weight = head_weight(model)
        if weight is None or len(weight) not in (1, n_classes):
            raise ValueError(f"saliency='hidden' needs a linear head with {n_classes} outputs; use saliency='logits'")
        if len(weight) == 1:  # multiple choice: each choice has its own sentence vector, and w is common to all
            return toward
        # Cosines of Wᵀg and Wᵀg' only need W Wᵀ: with its square root, K numbers stand for the D of the vector.
        gram = weight.to("cpu", torch.float64)
        values, vectors = torch.linalg.eigh(gram @ gram.T)
        root: Tensor = vectors * values.clamp_min(0).sqrt()
        return (toward.double() @ root).to(toward.dtype)

    def _kind(self, n_classes: int) -> str:
        """Return which saliency is compared: "logits" or "hidden"."""
        if self.objective.saliency != "auto":
            return self.objective.saliency
        return "hidden" if n_classes == 2 else "logits"

    def _search(
        self,
        compared: Tensor | None,
        labels: Tensor | None,
        query: Tensor,
        other: Tensor,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the most and the least similar of the rows `other` for each of the rows `query`."""
        if compared is None or labels is None:
            similar, dissimilar = _random.integers(len(other), 2 * len(query), generator=generator).chunk(2)
            return similar, dissimilar
        kind = self._kind(compared.shape[1])
        if compared.shape[1] == 2 and kind == "hidden":
            same = labels[query]
            return (
                _any_with(same, labels[other], generator=generator),
                _any_with(1 - same, labels[other], generator=generator),
            )
        if compared.is_cpu and compared.shape[1] == 3 and kind == "logits" and len(query) >= _MANY:
            return arc_extremes(compared[query], compared[other], labels[other])
        return cosine_extremes(compared[query], compared[other])

    def _others(
        self, model: Model, logits: Tensor, y: Tensor, partners: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the logits and labels among which the partners are, and their rows there."""
        if self.objective.pool == "batch" or not partners:
            return logits, y, partners
        x, labels, rows = self._loaded(torch.stack(list(partners.values())), y.device)
        logits = call(model, x)
        losses.check_targets(logits, labels)
        return logits, labels, dict(zip(partners, rows, strict=True))

    @untraced
    def _loaded(self, partners: Tensor, device: torch.device) -> tuple[Batch, Tensor, Tensor]:
        """Return x and y of the partners, each once, and their rows there; the host waits to know whom to load."""
        chosen, rows = torch.unique(partners.cpu(), return_inverse=True)
        x, labels = _load(self._dataset, self._collate_fn, chosen.tolist(), device)
        return x, labels, move([rows], device)[0]


_TWO_CLASSES = {
    "auto": "with two classes every logit saliency |p - onehot(y)| points the same way, so GuidedMixup uses "
    "saliency='hidden': similar partners have the same label, dissimilar ones the other",
    "logits": "with two classes every logit saliency |p - onehot(y)| points the same way and all cosines are 1: the "
    "first sample of the other category is the most similar and the most dissimilar at once; saliency='hidden' tells "
    "them apart",
}
_positions = untraced(check_index)
_MANY = 32  # from so many queries on, sorting the candidates is cheaper than a product with them


def _any_with(wanted: Tensor, labels: Tensor, *, generator: torch.Generator | None) -> Tensor:
    """Draw, for each wanted label, one of the rows that have it; one of all where none has."""
    chosen = torch.empty_like(wanted)
    for label in (0, 1):
        rows, having = (wanted == label).nonzero()[:, 0], (labels == label).nonzero()[:, 0]
        if len(having) == 0:
            having = torch.arange(len(labels), device="cpu")
        chosen[rows] = having[_random.integers(len(having), len(rows), generator=generator)]
    return chosen


def _moved(x: Any, device: torch.device) -> Any:
    if isinstance(x, Mapping):
        return {name: _moved(t, device) for name, t in x.items()}
    return (x.pin_memory() if device.type == "cuda" else x).to(device, non_blocking=True)


def _load(dataset: Any, collate_fn: Any, index: list[int], device: torch.device) -> tuple[Batch, Tensor]:
    """Return x and y of the samples, on the device."""
    batch = collate_fn([dataset[i] for i in index])
    if isinstance(batch, Mapping) and "labels" in batch:
        x = {name: t for name, t in batch.items() if name not in ("labels", "index")}
        return _moved(x, device), _moved(batch["labels"], device)
    if isinstance(batch, Sequence) and len(batch) >= 2:
        x, y = batch[:2]
        return _moved(x, device), _moved(y, device)
    raise ValueError(f"collate_fn must return (x, y) or a mapping with 'labels', got {type(batch).__name__}")
