"""Where the parts of a transformer are, found by its structure and without importing transformers.

Names are those of `named_modules()` inside DistributedDataParallel and compiled wrappers: what `mixed_at` takes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vicinal._typing import Batch, Model
from vicinal.objectives.forward import at_full_precision, evaluating, layouts, locate, unwrap


def head_name(model: Model) -> str:
    """Return the name of the `nn.Linear` that produces the logits.

    It is the last one outside the encoder: `classifier` in BERT and DistilBERT (after `pre_classifier`),
    `classifier.out_proj` in RoBERTa. In a model without an encoder it is the last linear layer of all. A layer that
    an adapter such as LoRA wraps is the wrapper, which has the layer as `base_layer`: its parts alone are no head.

    >>> head_name(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.Identity()))
    '2'
    """
    modules = _modules(model)
    encoder = _encoder(modules)
    wrappers = [name for name, module in modules.items() if "base_layer" in module._modules]
    linears = [
        name
        for name, module in modules.items()
        if isinstance(_base_layer(module), nn.Linear)
        and not any(_within(name, wrapper) for wrapper in wrappers if wrapper != name)
    ]
    if encoder is not None:
        # Some models (CamemBERT) register their head before their encoder, so order alone does not tell.
        inside = _common_parent(_words(model, modules) or encoder, encoder) or encoder
        linears = [name for name in linears if not _within(name, inside)]
    if not linears:
        raise ValueError(
            f"{_kind(model)} has no nn.Linear that produces its logits, so there is no head to mix at: mix a layer by "
            "its name with ManifoldMixup"
        )
    return linears[-1]


def head_weight(model: Model) -> Tensor | None:
    """Return the matrix of the linear head, with what an adapter makes of it; None where the head has none."""
    parent, key = locate(model, head_name(model))
    head = parent.get_submodule(key)
    base: Any = _base_layer(head)
    weight = getattr(base, "weight", None)
    if not isinstance(weight, Tensor):
        return None
    if any(hasattr(p, "full_tensor") for p in head.parameters()):  # FSDP2's; who gathers them waits for all ranks
        raise ValueError(
            "saliency='hidden' compares by the head, and the weights of the head are sharded: use 'logits'"
        )
    if base is head:
        return weight.detach()
    # Adapters add to the matrix or rescale it, each in its own way. What they make of unit vectors is the same for all.
    kind = weight.dtype if weight.is_floating_point() else None  # quantised ones have integers
    units = torch.eye(base.in_features, device=weight.device, dtype=kind)
    with torch.no_grad(), evaluating(head), at_full_precision(weight.device):
        matrix: Tensor = head(units) - head(torch.zeros_like(units[:1]))
    return matrix.T


def feeds_head(model: Model, name: str) -> bool:
    """Return whether no module but reshaping and averaging stands between the submodule `name` and the linear head.

    Modules are taken in the order of registration. What the model computes without modules on the way is not seen.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2))
    >>> [feeds_head(model, name) for name in ("0", "1", "3")]
    [False, True, True]
    """
    modules = _modules(model)
    if name not in modules or not any(isinstance(module, nn.Linear) for module in modules.values()):
        return False
    names = list(modules)
    head = head_name(model)
    between = names[names.index(name) + 1 : names.index(head)]
    steps = [modules[n] for n in between if not _within(n, name) and not modules[n]._modules]
    return names.index(name) <= names.index(head) and all(isinstance(step, _LINEAR_STEPS) for step in steps)


_LINEAR_STEPS = (
    nn.Identity,
    nn.Flatten,
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
)


def encoder_layer_names(model: Model) -> list[str]:
    """Return the names of the encoder layers, in the order in which they run; none if there is no encoder.

    The encoder is the largest `nn.ModuleList` with layers that compute in it.
    """
    modules = _modules(model)
    encoder = _encoder(modules)
    if encoder is None:
        return []
    _refuse_decoder(model)
    config = getattr(unwrap(model), "config", None)
    layers = _layers(modules[encoder], encoder)
    different = len(set(layers.values()))
    depth = getattr(config, "num_hidden_layers", len(layers))
    if depth != len(layers) or different != len(layers):
        raise ValueError(
            f"{_kind(model)} runs {depth} encoder layers but holds {different}: it shares its layers among "
            'depths, as ALBERT does, so one depth cannot be mixed alone; choose from 0 and "head"'
        )
    return list(layers)


def embeddings_name(model: Model) -> str:
    """Return the name of the module whose output enters the encoder: `bert.embeddings`, or an `nn.Embedding`.

    >>> embeddings_name(nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(8, 2)))
    '0'
    """
    _refuse_decoder(model)
    modules = _modules(model)
    name, encoder = _words(model, modules), _encoder(modules)
    if name is None:
        raise ValueError(
            f"{_kind(model)} has no nn.Embedding, so there are no token embeddings to mix: choose another layer, or "
            "mix one by its name with ManifoldMixup"
        )
    if encoder is None:
        return name
    parent = name.rpartition(".")[0]
    while parent and not _within(encoder, parent):
        name, parent = parent, parent.rpartition(".")[0]
    return name


def padding_id(model: Model, *, default: int | None = None) -> int:
    """Return the id of the model's padding token."""
    words = _words(model, _modules(model))
    token = None
    if words is not None:
        parent, key = locate(model, words)
        token = getattr(_base_layer(parent.get_submodule(key)), "padding_idx", None)
    token = padding_of_config(model) if token is None else token
    token = default if token is None else token
    if token is None:
        raise ValueError(f"{_kind(model)} does not say which token is its padding: pass the token's id as pad")
    return int(token)


def padding_of_config(model: Model) -> int | None:
    """Return the id of the padding token that the model's configuration names, if it names one."""
    token = getattr(getattr(unwrap(model), "config", None), "pad_token_id", None)
    return token if isinstance(token, int) else None


def end_of_text(model: Model, x: Batch, *, group: int = 1) -> int | None:
    """Return the padding token of a model that has its head on every token and picks the last before the padding.

    `group` rows of `x` are one sample. None for every other model, and for texts without a mask.
    """
    if not isinstance(x, Mapping) or x.get("attention_mask") is None or (end := padding_of_config(model)) is None:
        return None
    try:
        head = head_name(model)
    except ValueError:
        return None
    return end if layouts(model, x, [head], group=group)[head].ndim == 3 else None


def reads_last_column(model: Model) -> bool:
    """Return whether the model reads a text at the last column, padding or not, as XLNet does: it is padded before."""
    return getattr(getattr(unwrap(model), "config", None), "summary_type", None) == "last"


def unused_id(model: Model) -> int:
    """Return the id of a token that the model's tokenizer keeps unused: `[unused0]` in BERT's vocabulary."""
    token = _unused_in(str(getattr(getattr(unwrap(model), "config", None), "name_or_path", "") or ""))
    if token is None:
        raise ValueError(
            f"the tokenizer of {_kind(model)} has no unused token, or cannot be loaded from where the model came from: "
            "pass the token's id as pad"
        )
    return token


@functools.lru_cache
def _unused_in(checkpoint: str) -> int | None:
    """Return the id of the first unused token of a checkpoint's tokenizer, if it has one."""
    if not checkpoint:
        return None
    from transformers import AutoTokenizer

    try:
        vocabulary = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True).get_vocab()
    except (OSError, ValueError):
        return None
    return next((int(vocabulary[name]) for name in ("[unused0]", "[unused1]") if name in vocabulary), None)


def counted_positions(model: Model) -> int | None:
    """Return the position of padding in a model that numbers positions by counting other tokens, else None.

    RoBERTa and similar models do: the first token is number `padding_idx + 1`, and every PAD token `padding_idx`.
    BERT numbers all columns from left to right.
    """
    table = _positions(model)
    return None if table is None else table.padding_idx


def max_length(model: Model) -> int | None:
    """Return how many tokens the model has positions for, if it says so."""
    table = _positions(model)
    if table is None:
        length = getattr(getattr(unwrap(model), "config", None), "max_position_embeddings", None)
        return None if length is None else int(length)
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def _positions(model: Model) -> nn.Embedding | None:
    """Return the table of position vectors within the embeddings, if there is one."""
    inside = embeddings_name(model)
    for name, module in _modules(model).items():
        if _within(name, inside) and "position" in name.rpartition(".")[2] and isinstance(module, nn.Embedding):
            return module
    return None


def _words(model: Model, modules: Mapping[str, nn.Module]) -> str | None:
    """Return the name of the table of word vectors, if there is one."""
    # transformers models know which of their tables holds the words; elsewhere it is the first.
    known: object = getattr(unwrap(model), "get_input_embeddings", None)
    try:
        table = known() if callable(known) else None
    except NotImplementedError:
        table = None
    if table is None:
        table = next((module for module in modules.values() if isinstance(module, nn.Embedding)), None)
    if table is None:
        return None
    # T5 has its table twice, with one matrix of weights, and the encoder uses the later one.
    every = unwrap(model).named_modules(remove_duplicate=False)
    weight = getattr(table, "weight", None)
    same = [n for n, m in every if m is table or (isinstance(m, nn.Embedding) and m.weight is weight)]
    if not same:
        return None
    name: str = same[-1].replace("_orig_mod.", "")
    while name.endswith(".base_layer"):  # inside an adapter, which adds to what the table returns
        name = name.removesuffix(".base_layer")
    return name


def _encoder(modules: Mapping[str, nn.Module]) -> str | None:
    """Return the name of the largest outermost `nn.ModuleList` with layers that compute in it, if there is one.

    A layer that computes has a matrix or a kernel, and is no table: `nn.Linear`, GPT-2's own `Conv1D`, SqueezeBERT's
    `nn.Conv1d`.
    """
    lists = [
        name
        for name, module in modules.items()
        if isinstance(module, nn.ModuleList) and any(map(_computes, module.modules()))
    ]
    outermost = [name for name in lists if not any(_within(name, other) for other in lists if other != name)]
    return max(outermost, key=lambda name: sum(p.numel() for p in modules[name].parameters()), default=None)


def _computes(module: nn.Module) -> bool:
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return False
    return any(p.ndim > 1 for p in module.parameters(recurse=False))


def _base_layer(module: nn.Module) -> nn.Module:
    """Return the layer inside the adapters around it."""
    while (inner := module._modules.get("base_layer")) is not None:
        module = inner
    return module


def _layers(module: nn.Module, name: str) -> dict[str, nn.Module]:
    """Return the layers of a list by name, of lists within it one after the other (Funnel's blocks)."""
    layers: dict[str, nn.Module] = {}
    for key, child in module._modules.items():
        if isinstance(child, nn.ModuleList):
            layers |= _layers(child, f"{name}.{key}")
        elif child is not None:
            layers[f"{name}.{key}"] = child
    return layers


def _refuse_decoder(model: Model) -> None:
    if getattr(getattr(unwrap(model), "config", None), "is_encoder_decoder", False):
        raise ValueError(f'{_kind(model)} has an encoder and a decoder, of which no layer can be mixed; choose "head"')


def _modules(model: Model) -> dict[str, nn.Module]:
    """Return the named submodules, without the names that compiled wrappers add on the way."""
    return {name.replace("_orig_mod.", ""): module for name, module in unwrap(model).named_modules() if name}


def _within(name: str, parent: str) -> bool:
    return name == parent or name.startswith(f"{parent}.")


def _common_parent(a: str, b: str) -> str:
    """Return the name of the smallest module that holds both, "" for the model itself."""
    shared = []
    for x, y in zip(a.split("."), b.split("."), strict=False):
        if x != y:
            break
        shared.append(x)
    return ".".join(shared)


def _kind(model: Model) -> str:
    return type(unwrap(model)).__name__
