"""Tiny checkpoints as `save_pretrained` writes them."""

from __future__ import annotations

from pathlib import Path

import torch

WORDS = ("the", "film", "was", "good", "bad", "dull", "grey", "fine", "not", "it", "is", "so", "and", "sense")


def save_tiny(folder: Path, family: str = "bert", *, positions: int = 32) -> str:
    """Write a model of two layers and its tokenizer of words; return the folder."""
    import tokenizers
    import transformers
    from tokenizers import models, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] if family == "bert" else ["<s>", "<pad>", "</s>", "<unk>"]
    vocabulary = {word: k for k, word in enumerate([*special, *WORDS])}
    unknown, first, last, pad = special[1], "[CLS]", "[SEP]", "[PAD]"
    if family != "bert":
        unknown, first, last, pad = "<unk>", "<s>", "</s>", "<pad>"
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(first, vocabulary[first]), (last, vocabulary[last])],
    )
    names = {"unk_token": unknown, "cls_token": first, "sep_token": last, "pad_token": pad}
    inputs = ["input_ids", *(["token_type_ids"] if family == "bert" else []), "attention_mask"]
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **names)
    fast.save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = {"vocab_size": len(vocabulary), "pad_token_id": vocabulary[pad], "max_position_embeddings": positions}
    torch.manual_seed(0)
    kinds = {"bert": transformers.BertConfig, "roberta": transformers.RobertaConfig}
    transformers.AutoModel.from_config(kinds[family](**sizes, **config, type_vocab_size=2)).save_pretrained(folder)
    return str(folder)
