r"""SequenceMixup: mixup for transformers, at the embeddings, at an encoder layer or at the sentence vector.

.. math::
    \tilde h_k = \lambda h_k(x) + (1-\lambda) h_k(x_\pi), \qquad
    \mathcal{L} = \lambda H(f_k(\tilde h_k), y) + (1-\lambda) H(f_k(\tilde h_k), y_\pi)

where :math:`h_0` are the embeddings, :math:`h_k` the output of encoder layer k, and `"head"` what the last linear
layer receives. Both members of a pair are first made equally long, so that one attention mask fits their mixture.

References
----------
Zhang & Vaidya, "MixUp Training Leads to Reduced Overfitting and Improved Calibration for the Transformer
Architecture", 2021 (arXiv:2102.11402).

Not compared with code of the authors. What this library decides (the card lists how the text was read): partners form
a random matching, since under any other permutation a row would need one padding with its partner and another with the
row it is the partner of; the batch runs through the model once and is mixed on the way, never twice with different
dropout; no model is rewritten.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vicinal import _random, losses
from vicinal._checks import ArgumentError, added_field, choice, freeze, integer
from vicinal._typing import Batch, Model
from vicinal.mixing import PairPlan, sent
from vicinal.objectives.base import MixingObjective, Objective, checked_fields
from vicinal.objectives.forward import call, check_head, joined, mixed_at, mixed_second_half, row_axes
from vicinal.objectives.mixup import Mixup
from vicinal.objectives.transformers import (
    counted_positions,
    embeddings_name,
    encoder_layer_names,
    end_of_text,
    head_name,
    max_length,
    padding_id,
    reads_last_column,
    unused_id,
)


def pad_pairs(
    input_ids: Tensor, attention_mask: Tensor, partner: Tensor, *, pad: int | str = "sep", scope: str = "pair"
) -> tuple[Tensor, Tensor]:
    """Return token ids and attention mask with both members of each pair equally long.

    Positions that are padding in a row but not in its partner (`scope="pair"`), or at all (`"max"`), get `pad`, and are
    attended to. A row that is its own partner keeps its padding.

    Parameters
    ----------
    input_ids, attention_mask
        Integers `[N, L]`; the mask is 0 on padding.
    partner
        The row each row is mixed with, a matching `[N]`.
    pad
        `"sep"` repeats the row's last attended token, a number writes that token, `"none"` leaves the ids.
    scope
        `"pair"` pads to the longer of the two, `"max"` all columns.

    >>> ids, mask = torch.tensor([[5, 6, 7, 9], [5, 9, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    >>> pad_pairs(ids, mask, torch.tensor([1, 0]))
    (tensor([[5, 6, 7, 9],
            [5, 9, 9, 9]]), tensor([[1, 1, 1, 1],
            [1, 1, 1, 1]]))
    """
    choice("scope", scope, ("pair", "max"))
    pad = choice("pad", pad, ("sep", "none")) if isinstance(pad, str) else integer("pad", pad, low=0)
    attended = attention_mask != 0
    shared = attended | attended[partner] if scope == "pair" else torch.ones_like(attended)
    alone = partner == torch.arange(len(partner), device=partner.device)
    filled = shared & ~attended & ~alone[:, None]
    if pad == "sep":
        columns = torch.arange(attended.shape[1], device=attended.device)
        last = torch.where(attended, columns, 0).amax(1, keepdim=True)
        ids = torch.where(filled, input_ids.gather(1, last), input_ids)
    else:
        ids = input_ids if pad == "none" else input_ids.masked_fill(filled, int(pad))
    return ids, torch.where(filled, 1, attention_mask).to(attention_mask.dtype)


@dataclass(frozen=True, eq=False)
class SequencePlan(PairPlan):
    """A pair plan with the layer at which the rows are mixed."""

    layer: int | str = 0
    """0 for the embeddings, k for encoder layer k, or `"head"`."""
    name: str = ""
    """The submodule that is."""
    choices: int = 1
    """How many rows of the model belong to one sample: more than one in multiple choice."""
    axis: int = 0
    """Which axis of the layer's output holds the rows: the second in models that are time-first, such as XLNet."""
    end: int | None = None
    """The padding token before which a decoder looks for a text's last token, whose logits it returns; else None."""

    @property
    def at_head(self) -> bool:
        """True where only the last linear layer sees a mixture."""
        return self.layer == "head"

    def of_rows(self) -> PairPlan:
        """Return the plan of the model's rows: choice c of a sample meets choice c of its partner."""
        choice = torch.arange(self.choices, device=self.partner.device)
        partner = (self.partner[:, None] * self.choices + choice).flatten()
        return PairPlan(self.lam.repeat_interleave(self.choices), partner, mixed=self.mixed)


@dataclass(frozen=True, kw_only=True, repr=False)
class SequenceMixup(MixingObjective[SequencePlan]):
    """Mix token sequences inside a transformer.

    `SequenceMixup.input()`, `.cls()` and `.manifold(layers=…)` are the paper's three forms. It takes a tokenised
    batch (`input_ids`, `attention_mask`, …) or a tensor of token ids, `[B, L]`, or `[B, C, L]` and `[B·C, L]` for
    multiple choice. Without an attention mask nothing is padding.

    Parameters
    ----------
    layers
        The layers to choose from, one drawn per step: 0 for the embeddings, k for the output of encoder layer k,
        `"head"` for the input of the linear layer that produces the logits (after dropout).
    alpha
        α ≥ 0 of Beta(α, α): 1, λ uniform, in the paper, but 0.75 on CoLA (Table 6).
    pad
        What a row holds where only its partner has tokens, below the head: `"sep"` repeats the row's last
        attended token (SEP in BERT, `</s>` in RoBERTa; the best of Table 5), `"unused"` is a token that the
        tokenizer keeps unused, `"pad"` the model's padding token, an integer is a token id; both rows attend to it.
        With `"none"` such a position has no token: it adds a zero vector to the mix.
    scope
        Pad to the longer of the two (`"pair"`), to the length that the model has positions for (`"max"`), or to a given
        maximum sequence length, such as the tokenizer's.
    per_sample
        Draw one λ per sample instead of one per batch, which is the paper's (Section 2.1).
    label_smoothing
        ε of each label before it is mixed. Default: 0.
    prob
        The share of batches (of samples with `per_sample`) that is mixed.

    Examples
    --------
    >>> class Bag(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.embedding, self.classifier = torch.nn.Embedding(100, 8), torch.nn.Linear(8, 3)
    ...     def forward(self, input_ids):
    ...         return self.classifier(self.embedding(input_ids).mean(1))
    >>> objective = SequenceMixup.manifold(layers=[0, "head"], alpha=1.0)
    >>> loss = objective(Bag(), torch.randint(100, (8, 5)), torch.randint(3, (8,)))
    >>> SequenceMixup.cls().layers
    ('head',)
    """

    alpha: float = 1.0
    layers: Sequence[int | str]
    pad: int | str = "sep"
    scope: int | str = "pair"
    per_sample: bool = False
    label_smoothing: float = 0.0
    prob: float = added_field(1.0)

    def __post_init__(self) -> None:
        freeze(
            self,
            **checked_fields(self),
            layers=_check_layers(self.layers),
            pad=_check_pad(self.pad),
            scope=_check_scope(self.scope, self.pad),
        )

    @classmethod
    def input(
        cls,
        *,
        alpha: float = 1.0,
        pad: int | str = "sep",
        scope: int | str = "pair",
        per_sample: bool = False,
        label_smoothing: float = 0.0,
        prob: float = 1.0,
    ) -> SequenceMixup:
        """Input MixUp: mix the embeddings."""
        return cls.manifold(
            layers=[0],
            alpha=alpha,
            pad=pad,
            scope=scope,
            per_sample=per_sample,
            label_smoothing=label_smoothing,
            prob=prob,
        )

    @classmethod
    def cls(
        cls, *, alpha: float = 1.0, per_sample: bool = False, label_smoothing: float = 0.0, prob: float = 1.0
    ) -> SequenceMixup:
        """CLS MixUp: mix the sentence vectors, which need no padding."""
        return cls(layers=["head"], alpha=alpha, per_sample=per_sample, label_smoothing=label_smoothing, prob=prob)

    @classmethod
    def manifold(
        cls,
        *,
        layers: Sequence[int | str],
        alpha: float = 1.0,
        pad: int | str = "sep",
        scope: int | str = "pair",
        per_sample: bool = False,
        label_smoothing: float = 0.0,
        prob: float = 1.0,
    ) -> SequenceMixup:
        """Manifold MixUp: mix at a layer drawn from `layers` in each step."""
        return cls(
            layers=layers,
            alpha=alpha,
            pad=pad,
            scope=scope,
            per_sample=per_sample,
            label_smoothing=label_smoothing,
            prob=prob,
        )

    def draw(self, model: Model, x: Batch, y: Tensor, *, generator: torch.Generator | None = None) -> SequencePlan:
        """Draw the layer, λ and a matching of the batch."""
        n, rows = len(y), _n_token_rows(x)
        names = _layer_names(model, self.layers)  # an unknown layer must not wait until it is drawn
        if n == 0 or rows % n:
            raise ValueError(f"x must hold as many sequences as y has rows ({n}), or a multiple of it, got {rows}")
        k = int(_random.integers(len(self.layers), 1, generator=generator))
        lam = _random.lam(self.alpha, n, per_sample=self.per_sample, generator=generator)
        tossed = _random.tosses(self.prob, n, per_sample=self.per_sample, generator=generator)
        partner = _random.matching(n, generator=generator)
        below = [name for name, layer in zip(names, self.layers, strict=True) if layer != "head"]
        group = _tensor_rows(x) // n
        axes = row_axes(model, x, below, group=group)
        if "head" in self.layers:
            check_head(model, x, names[self.layers.index("head")], group=group)
        plan = SequencePlan(
            torch.where(tossed, lam, 1.0),
            partner,
            mixed=self.alpha > 0 and bool(tossed.any()),
            layer=self.layers[k],
            name=names[k],
            choices=rows // n,
            axis=axes.get(names[k], 0),
            end=end_of_text(model, x, group=group) if below else None,
        )
        return sent(plan, y.device)

    def forward(self, model: Model, x: Batch, plan: SequencePlan, *, beside_clean: bool = False) -> Tensor:
        """Return the logits of the batch mixed at the planned layer, after those of the clean one if wanted.

        At the head only the head sees both: all that comes before it is the same for the two.
        """
        rows = plan.of_rows()
        if plan.at_head:
            mix = _appended(rows.combine) if beside_clean else rows.combine
        else:
            mix, partner = rows.combine, rows.partner
            if beside_clean:
                alone = torch.arange(len(partner), device=partner.device)
                mix, partner = mixed_second_half(mix), torch.cat([alone, partner + len(partner)])
                x = joined(x, x)
            if plan.mixed and isinstance(x, Mapping) and x.get("attention_mask") is not None:
                x, filled = self._padded(model, x, partner, plan.end)
                mix = _without(filled, mix) if self.pad == "none" else mix
        if not plan.at_head:
            with mixed_at(model, plan.name, _checked(mix, plan, x), axis=plan.axis):
                return call(model, x)
        head = _Head(mix, plan, x)
        with mixed_at(model, plan.name, head, inputs=True):
            logits = call(model, x)
        return logits if head.mixed else mix(logits)

    def mixes_before_head(self, model: Model, plan: SequencePlan) -> bool:
        """Return whether the planned layer is the head."""
        return plan.at_head

    def _padded(
        self, model: Model, x: Mapping[str, Tensor], partner: Tensor, end: int | None = None
    ) -> tuple[Batch, Tensor]:
        """Return the batch with its pairs equally long, and which positions of its rows were filled, `[rows, L]`."""
        if x["attention_mask"].shape != x["input_ids"].shape:
            raise ValueError(
                f"attention_mask must have the shape of input_ids, {list(x['input_ids'].shape)}, "
                f"got {list(x['attention_mask'].shape)}"
            )
        if self.scope != "pair":
            x = _widened(x, self._length(model), padding_id(model, default=0), before=reads_last_column(model))
        ids, mask = x["input_ids"], x["attention_mask"]
        pad = self.pad
        if pad in ("pad", "unused"):
            pad = padding_id(model) if pad == "pad" else unused_id(model)
        flat_ids, flat_mask = ids.reshape(-1, ids.shape[-1]), mask.reshape(-1, ids.shape[-1])
        scope = "pair" if self.scope == "pair" else "max"
        new_ids, new_mask = pad_pairs(flat_ids, flat_mask, partner, pad=pad, scope=scope)
        filled = new_mask != flat_mask
        if end is not None:
            new_ids = self._with_shared_end(new_ids, filled, end)
        padded = {**x, "input_ids": new_ids.view(ids.shape), "attention_mask": new_mask.view(ids.shape)}
        right_already = pad == "sep" or x.get("position_ids") is not None
        if not right_already and (nowhere := counted_positions(model)) is not None:
            # The model would give each PAD token it is now to attend to one and the same position.
            tokens = (new_ids != nowhere) | filled
            padded["position_ids"] = (tokens.cumsum(1) * tokens + nowhere).view(ids.shape)
        return padded, filled

    def _with_shared_end(self, ids: Tensor, filled: Tensor, end: int) -> Tensor:
        """Return ids by which a decoder reads both texts of a pair at the end of the longer one.

        It reads the last token that is not `end`. Where such tokens fill the shorter text it would be read where that
        text ended, and what the longer one says after it would not count while its label does.
        """
        columns = torch.arange(ids.shape[1], device=ids.device)
        last = torch.where(ids != end, columns, 0).amax(1, keepdim=True)
        beyond = filled & (columns > last)
        if self.pad == "none":  # a decoder looks back only: no token before these sees what they hold, and they count 0
            return ids.masked_fill(beyond, int(end == 0))
        losses.check_values(
            ~beyond.any(),
            f"this model reads a text at its last token that is not {end}, its padding, which pad={self.pad!r} "
            "writes where only the partner has tokens, so that the end of the partner would not be read: pass "
            "pad='none' or the id of another token",
        )
        return ids

    def _length(self, model: Model) -> int:
        """Return the length to which `scope` pads all texts."""
        if self.scope != "max":
            return int(self.scope)
        if (length := max_length(model)) is None:
            raise ValueError("the model does not say how many positions it has: pass the maximum length as scope")
        return length


def _widened(x: Mapping[str, Tensor], length: int, padding: int, *, before: bool) -> Mapping[str, Tensor]:
    """Return the tokenised batch with rows of `length` columns; new ones are padding, `before` the text or after it."""
    ids = x["input_ids"]
    width, columns = ids.shape[-1], ids.ndim - 1
    if width > length:
        raise ValueError(f"scope pads texts to {length} tokens, but this batch has rows of {width}")

    def wider(name: str, t: Tensor) -> Tensor:
        of_tokens = isinstance(t, Tensor) and (name == "attention_mask" or not t.is_floating_point())
        if not of_tokens or t.shape[1 : columns + 1] != ids.shape[1:]:  # position_ids may be [1, L]
            return t
        new = t.new_full((*t.shape[:columns], length - width, *t.shape[columns + 1 :]), 0)
        if name == "input_ids":
            new = torch.full_like(new, padding)
        if name == "position_ids" and not before:
            new = t[..., -1:] + torch.arange(1, length - width + 1, device=t.device).expand_as(new)
        return torch.cat([new, t] if before else [t, new], dim=columns)

    return {name: wider(name, t) for name, t in x.items()}


def _without(filled: Tensor, mix: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return `mix` of states whose filled positions, which have no token, are zero vectors."""

    def mixed(states: Tensor) -> Tensor:
        if states.shape[:2] != filled.shape:
            shapes = f"{[*filled.shape, 'D']}, got {list(states.shape)}"
            instead = 'pass another pad, or layers=[0] or ["head"]'
            raise ValueError(f"pad='none' needs a layer with a state for each token, of shape {shapes}: {instead}")
        return mix(states.masked_fill(filled[..., None], 0))

    return mixed


def _appended(combine: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    both = mixed_second_half(combine)
    return lambda states: both(torch.cat([states, states]))


def _checked(mix: Callable[[Tensor], Tensor], plan: SequencePlan, x: Batch) -> Callable[[Tensor], Tensor]:
    """Return `mix`, which refuses states that do not have a row for each sequence."""
    n = _n_token_rows(x)

    def checked(states: Tensor) -> Tensor:
        if states.ndim != 3 or len(states) != n:
            raise ValueError(
                f"the layer {plan.name!r} must see states of shape [{n}, L, D] to be mixed, got {list(states.shape)}: "
                "choose another layer"
            )
        return mix(states)

    return checked


class _Head:
    """Mixes what the linear head receives, `[n, D]`; where that is a state for each token, leaves it as it is.

    Decoders (GPT-2, Llama) put their head on every token and then pick the last one's logits. Both steps are affine
    and the shares sum to one, so the mixture of the logits that they pick is the same.
    """

    def __init__(self, mix: Callable[[Tensor], Tensor], plan: SequencePlan, x: Batch) -> None:
        self.mix, self.name, self.n, self.mixed = mix, plan.name, _n_token_rows(x), True

    def __call__(self, states: Tensor) -> Tensor:
        if len(states) != self.n or states.ndim not in (2, 3):
            raise ValueError(
                f"the head {self.name!r} must see states of shape [{self.n}, D] to be mixed, got {list(states.shape)}: "
                "choose another layer"
            )
        self.mixed = states.ndim == 2
        return self.mix(states) if self.mixed else states


def _layer_names(model: Model, layers: Sequence[int | str]) -> list[str]:
    """Return the submodule of each layer."""
    numbered = encoder_layer_names(model) if any(k not in (0, "head") for k in layers) else []
    names = []
    for layer in layers:
        if layer == "head":
            names.append(head_name(model))
        elif layer == 0:
            names.append(embeddings_name(model))
        elif int(layer) <= len(numbered):
            names.append(numbered[int(layer) - 1])
        else:
            allowed = f'0 to {len(numbered)} and "head"' if numbered else '0 and "head", since it has no encoder layers'
            raise ValueError(f"layers of this model are {allowed}, got {layer}")
    return names


def _token_ids(x: Batch) -> Tensor:
    if isinstance(x, Mapping) and x.get("input_ids") is None:
        raise ValueError(
            f"x must hold input_ids, the token ids of each sequence, got {list(x)}: for other input use Mixup or "
            "ManifoldMixup"
        )
    ids = x["input_ids"] if isinstance(x, Mapping) else x
    if ids.is_floating_point() or ids.ndim < 2:
        raise ValueError(
            f"token ids must be integers [B, L] or [B, C, L], got {ids.dtype} {list(ids.shape)}: for other input "
            "use Mixup or ManifoldMixup"
        )
    return ids


def _n_token_rows(x: Batch) -> int:
    return _token_ids(x).shape[:-1].numel()


def _tensor_rows(x: Batch) -> int:
    return len(_token_ids(x))


def _check_layers(layers: Sequence[int | str]) -> tuple[int | str, ...]:
    allowed = 'a non-empty list of layer numbers (0 for the embeddings) and "head"'
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
        raise ValueError(f"layers must be {allowed}, got {layers!r}")
    for layer in layers:
        if layer != "head" and (isinstance(layer, bool) or not isinstance(layer, int) or layer < 0):
            raise ValueError(f"layers must be {allowed}, got {layer!r} among {layers!r}")
    return tuple(layers)


def _check_pad(pad: int | str) -> int | str:
    if isinstance(pad, str):
        if pad not in ("sep", "unused", "pad", "none"):
            raise ArgumentError("pad", pad, "a token id or one of 'sep', 'unused', 'pad', 'none'")
        return pad
    return integer("pad", pad, low=0)


def _check_scope(scope: int | str, pad: int | str) -> int | str:
    if isinstance(scope, str) and scope not in ("pair", "max"):
        raise ArgumentError("scope", scope, "'pair', 'max' or a number of tokens")
    scope = scope if isinstance(scope, str) else integer("scope", scope, low=1)
    if pad == "none" and scope != "pair":
        raise ArgumentError("scope", scope, "'pair' where pad='none' writes no tokens")
    return scope


def mixed_at_embeddings(objective: Objective) -> Objective:
    """Return the objective for token ids: what mixes inputs mixes their embeddings.

    Token ids cannot be averaged. Thulasidasan et al. (2019, Section 4) and Zhang & Vaidya (2021, Section 3.5.2) mix
    the embeddings instead, so `Mixup` becomes `SequenceMixup.input`, in composites too; anything else is left as it is.

    >>> mixed_at_embeddings(Mixup(alpha=0.2)) == SequenceMixup.input(alpha=0.2)
    True
    """
    if isinstance(objective, Mixup):
        if (objective.labels, objective.partners) != ("soft", "any"):
            raise ValueError(
                f"labels={objective.labels!r}, partners={objective.partners!r}: texts are mixed at their embeddings, "
                "by SequenceMixup, which has neither; leave them out"
            )
        return SequenceMixup.input(
            alpha=objective.alpha, per_sample=objective.per_sample, label_smoothing=objective.label_smoothing
        )
    record: Any = objective  # every objective is a dataclass, but its base class cannot say so
    parts = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    mixed = {name: mixed_at_embeddings(part) for name, part in parts.items() if isinstance(part, Objective)}
    return dataclasses.replace(record, **mixed) if mixed else objective
