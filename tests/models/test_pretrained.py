"""Weights to start from: what is taken, what stays new, and what does not fit."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from vicinal.models import build, load_pretrained, pretrained_weights
from vicinal.models.pretrained import pretrained_statistics

SHAPE = (3, 72, 72)


def network(n_classes: int, shape: tuple[int, int, int] = SHAPE) -> nn.Module:
    return build("shufflenetv2", kind="image", n_classes=n_classes, input_shape=shape)


@pytest.fixture(scope="module")
def published() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return network(10).state_dict()


def test_all_but_the_head_is_taken(published):
    model = network(3)
    new = {name: t.clone() for name, t in model.state_dict().items()}
    said = load_pretrained(model, published, "w.pt")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, new[name] if name.startswith("fc.") else published[name])
    n = len(published)
    others = "new, since the classes are others: fc.weight, fc.bias"
    assert said == f"pretrained: {n - 2} of {n} arrays of weights from w.pt; {others}"
    assert load_pretrained(network(10), published, "w.pt") == f"pretrained: {n} of {n} arrays of weights from w.pt"


def test_a_grey_image_gives_what_three_equal_channels_give(published):
    colour, grey = network(10), network(10, (1, 72, 72))
    load_pretrained(colour, published, "w.pt")
    load_pretrained(grey, published, "w.pt")
    x = torch.randn(2, 1, 72, 72)
    assert torch.allclose(grey.eval()(x), colour.eval()(x.expand(-1, 3, -1, -1)), atol=1e-4)


def test_missing_and_unexpected_weights_are_named(published):
    given = {f"module.{name}": t for name, t in published.items() if name != "conv5.1.bias"} | {"ema": torch.zeros(1)}
    model = network(10)
    said = load_pretrained(model, given, "w.pt")
    assert said.endswith("; missing: conv5.1.bias; unexpected: ema")
    assert torch.equal(model.state_dict()["conv5.1.weight"], published["conv5.1.weight"])


def test_weights_that_do_not_fit(published):
    small = build("resnet18", kind="image", n_classes=10, input_shape=(3, 32, 32))
    large = {name: torch.zeros(64, 3, 7, 7) if name == "conv1.weight" else t for name, t in small.state_dict().items()}
    with pytest.raises(ValueError, match=r"is \[64, 3, 7, 7\] there and \[64, 3, 3, 3\] here: .*image_size=224"):
        load_pretrained(small, large, "w.pt")
    with pytest.raises(ValueError, match=r"weights of ResNet, .* they have conv1\.0\.weight"):
        load_pretrained(small, {n: t for n, t in published.items() if n not in small.state_dict()}, "w.pt")


def test_files_of_weights(published, tmp_path: Path):
    torch.save(published, tmp_path / "plain.pth")
    torch.save({"epoch": 3, "state_dict": published}, tmp_path / "wrapped.pt")
    save_file(published, tmp_path / "w.safetensors")
    for name in ("plain.pth", "wrapped.pt", "w.safetensors"):
        read = pretrained_weights("shufflenetv2", str(tmp_path / name))
        assert all(torch.equal(read[key], t) for key, t in published.items())
    (tmp_path / "bad.pt").write_bytes(pickle.dumps({"a": print}))
    with pytest.raises(ValueError, match="without running code"):
        pretrained_weights("shufflenetv2", str(tmp_path / "bad.pt"))
    torch.save({"epoch": 3}, tmp_path / "none.pt")
    with pytest.raises(ValueError, match="holds no weights by name"):
        pretrained_weights("shufflenetv2", str(tmp_path / "none.pt"))
    with pytest.raises(ValueError, match="pretrained must be a file of weights"):
        pretrained_weights("shufflenetv2", str(tmp_path))


def test_published_weights(published, monkeypatch):
    def fetched(url: str, **options: object) -> dict[str, torch.Tensor]:
        assert options["weights_only"] is True
        if "resnet" in url:
            raise OSError("no network")
        return published

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetched)
    assert pretrained_weights("shufflenetv2", "default") is published
    with pytest.raises(ValueError, match=r"'resnet50' cannot be fetched here: .* pretrained='FILE'"):
        pretrained_weights("resnet50", "default")
    with pytest.raises(ValueError, match="no published weights of 'lenet'"):
        pretrained_weights("lenet", "default")


def test_networks_of_timm():
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = build("timm:resnet10t", kind="image", n_classes=4, input_shape=(1, 64, 64))
    weights = timm.create_model("resnet10t", pretrained=False).state_dict()
    said = load_pretrained(model, weights, "w.pt")
    assert "fc.weight, fc.bias" in said
    assert model(torch.randn(2, 1, 64, 64)).shape == (2, 4)
    assert pretrained_statistics("timm:resnet10t")[1] == (0.229, 0.224, 0.225)
    for name in ("timm:resnett", "timm:hf-hub:someone/something"):
        with pytest.raises(ValueError, match="timm has no network"):
            build(name, kind="image", n_classes=4, input_shape=(3, 64, 64))
