"""Every objective on many kinds of models: tiny ones with random weights, built one at a time.

    python -m benchmarks.matrix                    all of them
    python -m benchmarks.matrix text               Hugging Face texts; or images, sounds, torchvision, timm
    python -m benchmarks.matrix text/gpt2          one
    python -m benchmarks.matrix clients            trainers, estimators, metrics, compiled and sharded models

Each cell must be finite with gradients wherever plain training has them, equal plain training at α = 0, give the same
loss for the same draws, and mix rows and nothing else: a row's logits change with those of its sources, with the last
token of each, and with no other row. And each row's mixed logits must be those of its pair alone, mixed in the layer or
by hand (`reference`). What is refused must be a ValueError or TypeError of the library, and is listed.
"""

from __future__ import annotations

import dataclasses
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import vicinal
from vicinal.objectives.base import MixingObjective
from vicinal.objectives.forward import call
from vicinal.objectives.transformers import encoder_layer_names, head_name

K = 3
SEP, PAD = 2, 1
Build = Callable[[], nn.Module]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Models

_BERT = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": K}
_BERT |= {"intermediate_size": 24, "max_position_embeddings": 60, "pad_token_id": PAD}
_GPT = {"vocab_size": 60, "n_positions": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "num_labels": K}
_GPT |= {"pad_token_id": PAD}
_XLM = {"vocab_size": 60, "emb_dim": 16, "n_layers": 2, "n_heads": 2, "num_labels": K, "pad_token_id": PAD}
_XLM |= {"pad_index": PAD, "n_langs": 1, "max_position_embeddings": 40}
_BART = {"vocab_size": 60, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2}
_BART |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 40}
_BART |= {"num_labels": K, "pad_token_id": PAD, "eos_token_id": SEP, "bos_token_id": 0}
_T5 = {"vocab_size": 60, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "num_labels": K}
_T5 |= {"pad_token_id": PAD, "eos_token_id": SEP, "decoder_start_token_id": PAD}
_BIAS = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16}
_ONE_KV = {**_BERT, "num_key_value_heads": 1, "head_dim": 8}

TEXTS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("bert", "roberta", "camembert", "xlm-roberta", "ernie", "mpnet", "fnet", "ibert", "luke"), _BERT),
    **dict.fromkeys(("megatron-bert", "data2vec-text", "roberta-prelayernorm", "phi", "gpt_neox"), _BERT),
    "distilbert": {"vocab_size": 60, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "num_labels": K}
    | {"max_position_embeddings": 40, "pad_token_id": PAD},
    **{key: {**_BERT, "embedding_size": 8} for key in ("electra", "albert")},
    **{key: {**_BERT, "embedding_size": 16} for key in ("convbert", "roformer", "squeezebert")},
    **{key: {**_BERT, **_BIAS} for key in ("deberta", "deberta-v2")},
    "xlnet": {"vocab_size": 60, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "num_labels": K}
    | {"pad_token_id": PAD},
    **dict.fromkeys(("xlm", "flaubert"), _XLM),
    "canine": {**_BERT, "num_hash_buckets": 20, "num_hash_functions": 2, "downsampling_rate": 2}
    | {"local_transformer_stride": 4, "upsampling_kernel_size": 2},
    "longformer": {**_BERT, "attention_window": [4, 4]},
    "big_bird": {**_BERT, "attention_type": "original_full"},
    "funnel": {"vocab_size": 60, "block_sizes": [1, 1], "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 24}
    | {"num_decoder_layers": 1, "num_labels": K, "pad_token_id": PAD},
    "mobilebert": {**_BERT, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
    "rembert": {**_BERT, "input_embedding_size": 8, "output_embedding_size": 8},
    "layoutlm": {**_BERT, "max_2d_position_embeddings": 64},
    "nystromformer": {**_BERT, "num_landmarks": 8, "segment_means_seq_len": 8},
    "modernbert": {**_BERT, "global_attn_every_n_layers": 2, "local_attention": 8, "bos_token_id": 3}
    | {"eos_token_id": SEP, "cls_token_id": 3, "sep_token_id": SEP},
    **dict.fromkeys(("gpt2", "openai-gpt"), _GPT),
    "gptj": {**_GPT, "rotary_dim": 4},
    "gpt_neo": {"vocab_size": 60, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "num_labels": K}
    | {"attention_types": [[["global", "local"], 1]], "window_size": 8, "pad_token_id": PAD},
    "opt": {**_BERT, "ffn_dim": 24, "word_embed_proj_dim": 16, "layerdrop": 0.0},
    **dict.fromkeys(("llama", "qwen2", "qwen3", "mistral", "gemma"), _ONE_KV),
    "bloom": {"vocab_size": 60, "hidden_size": 16, "n_layer": 2, "n_head": 2, "num_labels": K, "pad_token_id": PAD},
    **dict.fromkeys(("t5", "mt5"), _T5),
    **dict.fromkeys(("bart", "mbart"), _BART),
}
_VIT = {"num_labels": K, "image_size": 32, "patch_size": 16, "hidden_size": 16, "num_hidden_layers": 2}
_VIT |= {"num_attention_heads": 2, "intermediate_size": 24}
_SWIN = {"num_labels": K, "image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2]}
_SWIN |= {"window_size": 4}
_STAGES = {"num_labels": K, "hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1]}
IMAGES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("vit", "beit", "dinov2", "data2vec-vision"), _VIT),
    **dict.fromkeys(("swin", "swinv2"), _SWIN),
    **dict.fromkeys(("convnext", "convnextv2", "poolformer"), _STAGES),
    "resnet": {**_STAGES, "embedding_size": 8},
    "regnet": {**_STAGES, "embedding_size": 8, "groups_width": 8},
    "mobilenet_v2": {"num_labels": K, "depth_multiplier": 0.35},
}
_WAVE = {"num_labels": K, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "conv_dim": [8, 8]}
_WAVE |= {"conv_kernel": [10, 3], "conv_stride": [5, 2], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4}
_WAVE |= {"num_conv_pos_embedding_groups": 2, "classifier_proj_size": 8, "layerdrop": 0.0, "apply_spec_augment": False}
_WAVE |= {"intermediate_size": 24}
_AST = {"num_labels": K, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_length": 32}
_AST |= {"intermediate_size": 24, "num_mel_bins": 16, "patch_size": 8, "frequency_stride": 8, "time_stride": 8}
SOUNDS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("wav2vec2", "hubert", "wavlm", "unispeech", "unispeech-sat", "data2vec-audio", "sew"), _WAVE),
    "audio-spectrogram-transformer": _AST,
}


def torchvision_models() -> dict[str, Build]:
    from torchvision import models

    block = models.convnext.CNBlockConfig
    vit = {"image_size": 32, "patch_size": 16, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 24}
    swin = {"patch_size": [4, 4], "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": [4, 4]}
    dense = {"growth_rate": 4, "block_config": (1, 1, 1, 1), "num_init_features": 8}
    return {
        "resnet18": lambda: models.resnet18(num_classes=K),
        "densenet": lambda: models.DenseNet(**dense, num_classes=K),
        "squeezenet": lambda: models.squeezenet1_1(num_classes=K),
        "mobilenet_v3": lambda: models.mobilenet_v3_small(num_classes=K),
        "shufflenet_v2": lambda: models.shufflenet_v2_x0_5(num_classes=K),
        "vit": lambda: models.VisionTransformer(**vit, num_classes=K),
        "swin": lambda: models.SwinTransformer(**swin, num_classes=K),
        "convnext": lambda: models.ConvNeXt([block(8, 16, 1), block(16, None, 1)], num_classes=K),
        "googlenet": lambda: models.googlenet(num_classes=K, init_weights=False),  # its auxiliary heads are refused
        "googlenet alone": lambda: models.googlenet(num_classes=K, init_weights=False, aux_logits=False),
    }


def models_of(family: str) -> dict[str, Build]:
    """Return what builds each model of a family."""
    if family == "torchvision":
        return torchvision_models()
    if family == "timm":
        import timm

        return {name: lambda name=name: timm.create_model(name, num_classes=K) for name in timm.list_models("test_*")}
    import transformers

    transformers.logging.set_verbosity_error()
    kinds = {"text": (TEXTS, "Sequence"), "images": (IMAGES, "Image"), "sounds": (SOUNDS, "Audio")}
    configs, what = kinds[family]
    auto = getattr(transformers, f"AutoModelFor{what}Classification")

    def build(kind: str) -> nn.Module:
        return auto.from_config(transformers.AutoConfig.for_model(kind, **configs[kind]))

    return {kind: lambda kind=kind: build(kind) for kind in configs}


def batch_of(family: str, name: str) -> tuple[Any, Tensor]:
    """Return a batch: of texts of unequal length as many as tokens, which would hide that a layer is time-first."""
    if family == "text":
        ids, lengths = torch.randint(5, 29, (8, 8), generator=seeded()), torch.tensor([8, 5, 7, 8, 6, 5, 8, 7])
        columns = torch.arange(8)
        ids = torch.where(columns == lengths[:, None] - 1, SEP, ids).where(columns < lengths[:, None], PAD)
        x = {"input_ids": ids, "attention_mask": (columns < lengths[:, None]).long()}
        if name == "xlnet":  # it is padded before the text
            x = {key: t.flip(1) for key, t in x.items()}
        if name == "layoutlm":
            x["bbox"] = torch.randint(30, (8, 8, 4), generator=seeded()).sort(-1).values
        return x, torch.arange(8) % K
    y = torch.arange(4) % K
    if name == "audio-spectrogram-transformer":
        return {"input_values": torch.randn(4, 32, 16, generator=seeded())}, y
    if family == "sounds":
        mask = (torch.arange(400) < torch.tensor([400, 300, 220, 400])[:, None]).long()
        return {"input_values": torch.randn(4, 400, generator=seeded()) * mask, "attention_mask": mask}, y
    side = 160 if "vit" in name and family == "timm" else 64 if family == "timm" or "google" in name else 32
    images = torch.rand(4, 3, side, side, generator=seeded())
    return ({"pixel_values": images} if family == "images" else images), y


# Objectives


def guided(model: nn.Module, x: Any, y: Tensor) -> vicinal.Objective:
    """Return a GuidedMixup bound to the margins of the model as it is."""
    objective = vicinal.GuidedMixup()
    aum = objective.tracker(len(y))
    with torch.no_grad():
        aum.update(call(model.eval(), x), y, torch.arange(len(y)), epoch=0)
    given = x if isinstance(x, dict) else {"x": x}
    rows = [{**{key: t[i] for key, t in given.items()}, "labels": y[i]} for i in range(len(y))]
    if not isinstance(x, dict):
        rows = [(row["x"], row["labels"]) for row in rows]
    return objective.bind(aum, dataset=rows, collate_fn=torch.utils.data.default_collate)


def objectives(family: str, model: nn.Module, x: Any, y: Tensor) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each objective and what makes it."""
    every: list[str] = ["ERM(label_smoothing=0.1, confidence_penalty=0.1)"]
    if family == "text":
        sequences = [
            "layers=[0]",
            "layers=[1]",
            "layers=[2]",
            'layers=["head"]',
            'layers=[0, 1, "head"], per_sample=True',
        ]
        sequences += ['layers=[0], pad="none"', "layers=[0], pad=7", "layers=[0], pad=7, scope=16"]
        every += [f"SequenceMixup({how})" for how in sequences]
        every += ["LogitMix(SequenceMixup(layers=[1]), weight=0.1)", 'RegMixup(SequenceMixup(layers=["head"]))']
        every += ["RegMixup(SequenceMixup(layers=[0], pad=7))", 'RandomChoice(SequenceMixup(layers=["head"]), ERM())']
        layer = encoder_layer_names
    else:
        every += ["Mixup(alpha=1.0)", "Mixup(alpha=1.0, per_sample=True)", "KMixup(alpha=1.0, k=3)"]
        every += ["GaussianVicinity(sigma=0.1)", "LogitMix(Mixup(alpha=3.0))", "RegMixup(Mixup(alpha=10.0))"]
        every += ["RandomChoice(Mixup(alpha=0.8), KMixup(alpha=1.0, k=2))", "Warmup(Mixup(alpha=1.0), epochs=1)"]
        if family != "sounds":
            every += ["CutMix(alpha=1.0)", "CutMix(alpha=1.0, per_sample=True)", "PuzzleMix()", "LogitMix(PuzzleMix())"]

        def layer(model: nn.Module) -> list[str]:
            return [name for name, child in model.named_children() if next(child.parameters(), None) is not None]

    for text in every:
        yield text, lambda text=text: vicinal.parse(text)
    yield "ManifoldMixup", lambda: vicinal.ManifoldMixup(layers=layer(model)[:1])
    yield "ManifoldMixup at the head", lambda: vicinal.ManifoldMixup(layers=[head_name(model)])
    yield "GuidedMixup", lambda: guided(model, x, y)


# Checks


def check_training(model: nn.Module, x: Any, y: Tensor, objective: Any, used: set[str]) -> None:
    """The loss is finite, gradients reach what plain training reaches, and equal draws give equal losses."""
    model.train()
    how: dict[str, Any] = {"index": torch.arange(len(y)), "epoch": 1.0}
    model.zero_grad()
    loss = objective(model, x, y, generator=seeded(1), **how)
    loss.backward()
    assert bool(loss.isfinite()), "the loss is not finite"
    missing = used - with_gradients(model)
    assert not missing, f"no gradient in {sorted(missing)[:3]}"
    model.eval()
    with torch.no_grad():
        first, again = (objective(model, x, y, generator=seeded(3), **how) for _ in range(2))
        ones = objective(model, x, y, generator=seeded(3), class_weights=[1.0] * K, **how)
    torch.testing.assert_close(first, again)
    torch.testing.assert_close(first, ones)


def with_gradients(model: nn.Module) -> set[str]:
    return {n for n, p in model.named_parameters() if p.grad is not None and float(p.grad.abs().max()) > 0}


@torch.no_grad()
def check_mixing(model: nn.Module, x: Any, y: Tensor, objective: MixingObjective[Any]) -> None:
    """Without mixing it is plain training; a mixture has its sources, all of each, and nothing else."""
    model.eval()
    if hasattr(objective, "alpha"):
        plain = dataclasses.replace(objective, alpha=0.0)  # type: ignore[type-var]
        torch.testing.assert_close(plain(model, x, y, generator=seeded(2)), vicinal.ERM()(model, x, y))
    plan = objective.draw(model, x, y, generator=seeded(2))
    mixed, clean = objective.forward(model, x, plan), call(model, as_wide(model, x, objective))
    beside = objective.forward(model, x, plan, beside_clean=True)
    torch.testing.assert_close(beside[len(y) :], mixed, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(beside[: len(y)], clean, rtol=1e-3, atol=1e-4)
    for row in range(len(y)):
        expected = reference(model, x, plan, row, objective)
        if expected is not None:
            torch.testing.assert_close(mixed[row], expected, rtol=1e-3, atol=1e-4, msg=lambda m: f"by hand: {m}")
    if not hasattr(plan, "partners") or "PuzzleMix" in repr(objective):  # noise, and masks that the images decide
        return
    for row in {1, int(plan.partners[0, -1])}:
        share = ((plan.partners == row) * plan.weights).sum(1)
        for changed in (with_another(x, row), with_another_end(x, row)):
            if changed is None or not bool(((call(model, changed) - clean).abs().amax(1) > 1e-6)[row]):
                continue  # the model does not see the change even alone
            moved = (objective.forward(model, changed, plan) - mixed).abs().amax(1)
            assert float(moved[share == 0].sum()) < 1e-3, f"row {row} reaches rows that it is not mixed into"
            assert bool((moved[share > 0.02] > 0).all()), f"row {row} does not reach its mixtures"


def reference(model: nn.Module, x: Any, plan: Any, row: int, objective: Any) -> Tensor | None:
    """Return the logits of a mixed row by other means than the library's; None where there are none (PuzzleMix)."""
    if isinstance(objective, vicinal.SequenceMixup | vicinal.ManifoldMixup):
        if int(plan.partner[row]) == row:
            return None
        pair = torch.tensor([row, int(plan.partner[row])])
        lam = plan.lam[row] if plan.mixed else torch.tensor(1.0)
        alone = {key: t[pair] for key, t in x.items()} if isinstance(x, dict) else x[pair]
        if plan.layer == "head":  # of a linear layer the mixture of outputs is the output of the mixture
            logits = call(model, alone)
            return lam * logits[0] + (1 - lam) * logits[1]
        if plan.layer != "input":
            of_layer = isinstance(objective, vicinal.ManifoldMixup) and not plan.pooled
            if of_layer and isinstance(x, dict) and "attention_mask" in x:
                masks = x["attention_mask"]  # each row sees what any of its own sources has
                alone["attention_mask"] = torch.maximum(masks, masks[plan.partner])[pair]
            return mixed_at_layer(model, alone, plan, lam, objective)
    if not isinstance(objective, vicinal.Mixup | vicinal.KMixup | vicinal.CutMix):
        return None
    name = next(iter(x)) if isinstance(x, dict) else ""
    values = x[name] if name else x
    sources = list(zip(plan.partners[row].tolist(), plan.weights[row].tolist(), strict=True))
    if isinstance(objective, vicinal.CutMix):
        top, left, bottom, right = (plan.boxes if plan.boxes.ndim == 1 else plan.boxes[row]).tolist()
        mixed = values[row].clone()
        mixed[..., top:bottom, left:right] = values[sources[1][0], ..., top:bottom, left:right]
    else:
        mixed = sum((share * values[source] for source, share in sources), torch.zeros_like(values[row]))
    if not name:
        return call(model, mixed[None])[0]
    batch = {name: mixed[None]}
    if "attention_mask" in x:
        batch["attention_mask"] = x["attention_mask"][[s for s, share in sources if share > 0]].amax(0)[None]
    return call(model, batch)[0]


def mixed_at_layer(model: nn.Module, pair: Any, plan: Any, lam: Tensor, objective: Any) -> Tensor:
    """Return the logits of the first of two rows, mixed at the layer after both are made equally long."""
    filled, of_texts = None, isinstance(objective, vicinal.SequenceMixup)
    time_first = type(model).__name__.startswith("XLNet")  # and padded before the text
    if of_texts and "attention_mask" in pair:
        pair, filled = equally_long(pair, objective, before=time_first)
    heads: list[Tensor] = []

    def mix(layer: nn.Module, given: Any, output: Any) -> Any:
        every = [output] if isinstance(output, Tensor) else output.values() if isinstance(output, dict) else output
        first = next(iter(every))
        axis = int(time_first and first.ndim == 3)
        a, b = (t if filled is None else t.masked_fill(filled[k][:, None], 0) for k, t in enumerate(first.unbind(axis)))
        mixed = torch.stack([lam * a + (1 - lam) * b, b], axis)
        if isinstance(output, Tensor):
            return mixed
        if isinstance(output, dict):
            output[next(iter(output))] = mixed
            return output
        return type(output)([mixed, *output[1:]])

    layer = plan.name if of_texts else plan.layer
    module, hooks = model.get_submodule(layer), []
    plain = module.forward
    module.forward = lambda *args, **kwargs: mix(module, args, plain(*args, **kwargs))  # SqueezeBERT calls no hooks
    if filled is not None:
        hooks.append(model.get_submodule(head_name(model)).register_forward_hook(lambda m, x, out: heads.append(out)))
    try:
        logits = call(model, pair)[0]
    finally:
        del module.forward
        for hook in hooks:
            hook.remove()
    if heads and heads[0].ndim == 3:  # a decoder reads the last token of the longer text, whatever its id
        return heads[0][0, int(pair["attention_mask"][0].nonzero().max())]
    return logits


def equally_long(pair: dict[str, Tensor], objective: Any, *, before: bool) -> tuple[dict[str, Tensor], Tensor | None]:
    """Return two texts with `pad` where only the other has tokens, and with pad="none" where that is."""
    ids, mask = pair["input_ids"].clone(), pair["attention_mask"]
    if objective.scope != "pair":
        more = objective.scope - ids.shape[1]
        pad = (more, 0) if before else (0, more)
        pair = {key: nn.functional.pad(t, (0, 0) * (t.ndim - 2) + pad) for key, t in pair.items()}
        ids, mask = pair["input_ids"], pair["attention_mask"]
    needed = mask.amax(0).bool() if objective.scope == "pair" else torch.ones(mask.shape[1], dtype=torch.bool)
    filled = needed & (mask == 0)
    for row in range(2):
        last = ids[row, int(mask[row].nonzero().max())]
        if objective.pad != "none":
            ids[row, filled[row]] = last if objective.pad == "sep" else objective.pad
    changed = {**pair, "input_ids": ids, "attention_mask": (mask.bool() | filled).to(mask.dtype)}
    return changed, filled if objective.pad == "none" else None


def as_wide(model: nn.Module, x: Any, objective: Any) -> Any:
    """Return the batch as wide as `scope` makes it, where a model sees masked tokens, as neighbours or in means."""
    scope = getattr(objective, "scope", "pair")
    if scope == "pair" or not type(model).__name__.startswith(("FNet", "ConvBert", "MobileBert", "Nystromformer")):
        return x
    more = scope - x["input_ids"].shape[1]
    return {key: nn.functional.pad(t, (0, more), value=PAD if key == "input_ids" else 0) for key, t in x.items()}


def with_another(x: Any, row: int) -> Any:
    """Return the batch with other contents of a row, as long as before."""
    name = next(iter(x)) if isinstance(x, dict) else ""
    t = (x[name] if name else x).clone()
    if t.is_floating_point():
        t[row] = t[row].flip(-1) * 1.7 + 0.3
    else:
        t[row] = torch.where((t[row] == SEP) | (t[row] == PAD), t[row], t[row] % 7 + 30)
    return {**x, name: t} if name else t


def with_another_end(x: Any, row: int) -> Any:
    """Return the batch with another last token (before SEP) of a row; None where rows have no length."""
    if not isinstance(x, dict) or "attention_mask" not in x:
        return None
    name = next(iter(x))
    t, last = x[name].clone(), int(x["attention_mask"][row].nonzero().max())
    if t.is_floating_point():
        t[row, last - 40 : last + 1] += 1.5
    else:
        t[row, last - int(t[row, last] == SEP)] = 40
    return {**x, name: t}


def without_dropout(model: nn.Module) -> nn.Module:
    """Return the model, deterministic in training mode too."""
    for module in model.modules():
        for name in ("p", "dropout", "attention_dropout", "activation_dropout", "layerdrop", "drop_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def main() -> None:
    asked = sys.argv[1:] or ["text", "images", "sounds", "torchvision", "timm", "clients"]
    counts: Counter[str] = Counter()
    refused: dict[str, Counter[str]] = {}

    def attempt(cell: str, check: Callable[[], Any]) -> bool:
        try:
            check()
        except Exception as error:
            ours = "vicinal" in traceback.extract_tb(error.__traceback__)[-1].filename.replace("\\", "/").split("/")
            if isinstance(error, ValueError | TypeError) and ours:
                counts["refused"] += 1
                refused.setdefault(str(error), Counter())[cell] += 1
            else:
                counts["failed"] += 1
                print(f"FAILED {cell}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            return False
        counts["passed"] += 1
        return True

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for word in asked:
        family, _, one = word.partition("/")
        if family == "clients":
            from benchmarks.clients import run_clients

            run_clients(one, attempt)
            print(f"clients: {dict(counts)}", flush=True)
            continue
        for name, build in models_of(family).items():
            if one in ("", name):
                run_model(f"{family}/{name}", build, *batch_of(family, name), attempt)
                print(f"{family}/{name}: {dict(counts)}", flush=True)
    for sentence, cells in refused.items():
        print(f"refused {sum(cells.values())} times, {next(iter(cells))} …: {sentence}")
    raise SystemExit(counts["failed"] > 0)


def run_model(cell: str, build: Build, x: Any, y: Tensor, attempt: Callable[[str, Callable[[], Any]], bool]) -> None:
    """Check every objective on one model."""
    torch.manual_seed(0)
    model = without_dropout(build())
    if "text" in cell:
        for parameter in model.parameters():  # the usual tiny initial weights would hide differences
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.15)
    if not attempt(f"{cell} ERM()", lambda: vicinal.ERM()(model.train(), x, y).backward()):
        return
    used = with_gradients(model)
    for name, make in objectives(cell.partition("/")[0], model, x, y):
        made: list[Any] = []
        if not attempt(f"{cell} {name}", lambda made=made, make=make: made.append(make())):
            continue
        objective = made[0]
        if attempt(f"{cell} {name}", lambda o=objective: check_training(model, x, y, o, used)) and isinstance(
            objective, MixingObjective
        ):
            attempt(f"{cell} {name}, mixing", lambda o=objective: check_mixing(model, x, y, o))


if __name__ == "__main__":
    main()
