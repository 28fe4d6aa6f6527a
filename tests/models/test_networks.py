"""The papers' networks: their sizes against published counts and by hand, both forms, every input."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vicinal import CutMix, ManifoldMixup, models
from vicinal.models import MLP, VGG, LeNet, PreActResNet
from vicinal.models.preact import PreActBlock


def n_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def on_meta(name, shape=(3, 32, 32), n_classes=10, **options):
    with torch.device("meta"):
        return models.build(name, kind="image", n_classes=n_classes, input_shape=shape, **options)


#: Where each count is published: the papers' tables, torchvision's documentation, or the usual CIFAR code.
CIFAR = {
    "preactresnet18": 11_171_146,  # the implementation that Z18 names: no last normalisation (2 · 512)
    "wideresnet28-10": 36_479_194,  # 36.5 M in Zagoruyko & Komodakis, Table 5
    "densenet-bc-190": 25_624_430,  # 25.6 M in Huang et al., Table 2
    "resnet18": 11_173_962,
    "resnet34": 21_282_122,
    "resnet50": 23_520_842,
    "resnet101": 42_512_970,
    "vgg11": 9_231_114,
    "vgg16": 14_728_266,
}
IMAGENET = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnext50": 25_028_904,
    "resnext101": 44_177_704,  # 44.18 M, 32×4d
    "vgg11": 132_868_840,
    "vgg16": 138_365_992,
    "mobilenetv2": 3_504_872,
    "shufflenetv2": 2_278_604,
}


@pytest.mark.parametrize(("name", "count"), CIFAR.items())
def test_published_counts_at_32_px(name, count):
    assert n_parameters(on_meta(name)) == count


@pytest.mark.parametrize(("name", "count"), IMAGENET.items())
def test_published_counts_at_224_px(name, count):
    assert n_parameters(on_meta(name, (3, 224, 224), 1000)) == count


def test_the_last_normalisation_of_preact_networks_is_an_option():
    assert n_parameters(on_meta("preactresnet18", final_norm=True)) == 11_171_146 + 2 * 512


def test_vgg16_at_96_px_has_the_size_it_has_at_32():
    assert n_parameters(on_meta("vgg16", (3, 96, 96))) == CIFAR["vgg16"]
    assert n_parameters(on_meta("vgg16", (3, 128, 128))) == CIFAR["vgg16"]
    assert n_parameters(on_meta("vgg16", (3, 129, 129))) > 100_000_000


#: Options that make each network small enough to run many.
TINY = {
    "preactresnet18": {"width": 4},
    "wideresnet28-10": {"widen": 1},
    "densenet-bc-190": {"depth": 10, "growth": 4},
    "vgg11": {"width": 8},
    "vgg16": {"width": 8},
    "mobilenetv2": {"width": 0.25},
    "lenet": {"hidden": 32},
    "mlp": {"hidden": [32]},
}


@pytest.mark.parametrize("name", models.names("image"))
def test_dropout_is_an_option_of_every_network(name):
    torch.manual_seed(0)
    model = models.build(name, kind="image", n_classes=3, input_shape=(3, 32, 32), dropout=0.5, **TINY.get(name, {}))
    side = 8 if name.startswith("res") else 32  # these take any size, and have no option that makes them small
    x = torch.rand(2, 3, side, side)
    with torch.no_grad():
        outputs = [model.eval()(x), model(x), model.train()(x), model(x)]
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[2], outputs[3])
    for side in (96, 224):
        assert 0.25 in rates(on_meta(name, (3, side, side), dropout=0.25))
    with pytest.raises(ValueError, match=r"dropout must be a number in \[0, 1\], got 2"):
        on_meta(name, dropout=2)


def rates(model):
    """The rates of all dropout layers (DenseNet's layers apply theirs themselves)."""
    return [float(getattr(m, "p", getattr(m, "drop_rate", 0.0))) for m in model.modules()]


def test_dropout_lies_before_the_classifier_where_blocks_have_none():
    for name in ("resnet18", "vgg16", "shufflenetv2", "mobilenetv2"):
        torch.manual_seed(0)
        model = models.build(name, kind="image", n_classes=3, input_shape=(3, 32, 32), dropout=1.0)
        head = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
        logits = model(torch.randn(2, 3, 32, 32))
        torch.testing.assert_close(logits, head.bias.expand(2, 3))


def test_speech_networks_have_two_fully_connected_layers():
    for name, options, convolutions in (("lenet", {}, 2), ("vgg11", {}, 2), ("vgg11", {"stages": 5}, 8)):
        with torch.device("meta"):
            model = models.build(name, kind="audio", n_classes=30, input_shape=(16_000,), **options)
        count = {kind: sum(isinstance(m, kind) for m in model.modules()) for kind in (nn.Conv2d, nn.Linear)}
        assert count == {nn.Conv2d: convolutions, nn.Linear: 2}


def preact_by_hand(blocks, widths, stem, n_classes):
    total, inputs = 3 * stem * 9, stem
    for stage, (depth, width) in enumerate(zip(blocks, widths, strict=True)):
        for block in range(depth):
            total += 2 * inputs + 9 * inputs * width + 2 * width + 9 * width * width
            if inputs != width or (stage > 0 and block == 0):
                total += inputs * width
            inputs = width
    return total + inputs * n_classes + n_classes  # without the last normalisation, 2 · inputs


def test_residual_counts_by_hand():
    assert preact_by_hand((2,) * 4, (64, 128, 256, 512), 64, 10) == CIFAR["preactresnet18"]
    assert preact_by_hand((4,) * 3, (160, 320, 640), 16, 10) + 2 * 640 == CIFAR["wideresnet28-10"]
    assert (
        n_parameters(on_meta("wideresnet28-10", widen=2, n_classes=7))
        == preact_by_hand((4,) * 3, (32, 64, 128), 16, 7) + 2 * 128
    )


def densenet_by_hand(depth, growth, n_classes):
    channels, total = 2 * growth, 3 * 2 * growth * 9
    for block in range(3):
        for _ in range((depth - 4) // 6):
            total += 2 * channels + channels * 4 * growth + 2 * 4 * growth + 4 * growth * growth * 9
            channels += growth
        if block < 2:
            total += 2 * channels + channels * (channels // 2)
            channels //= 2
    return total + 2 * channels + channels * n_classes + n_classes


def test_densenet_counts_by_hand():
    assert densenet_by_hand(190, 40, 10) == CIFAR["densenet-bc-190"]
    assert n_parameters(on_meta("densenet-bc-190", depth=22, growth=12)) == densenet_by_hand(22, 12, 10)


@pytest.mark.parametrize(
    "shape",
    [
        (1, 28, 28),
        *(pytest.param(shape, marks=pytest.mark.slow) for shape in ((3, 64, 48), (1, 96, 96))),
        pytest.param((3, 224, 224), marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", models.names("image"))
def test_every_network_takes_every_size(name, shape):
    model = on_meta(name, shape, 5, **({"depth": 22} if name == "densenet-bc-190" else {}))
    x = torch.empty(2, *shape, device="meta")
    assert model(x).shape == (2, 5)


SMALL = {
    "preactresnet18": {"width": 4, "dropout": 0.3},
    "wideresnet28-10": {"widen": 1, "dropout": 0.3},
    "densenet-bc-190": {"depth": 10, "growth": 4},
    "resnet18": {},
    "resnext50": {},
    "vgg11": {"width": 4},
    "mobilenetv2": {"width": 0.25},
    "shufflenetv2": {},
    "lenet": {"hidden": 16},
    "mlp": {"hidden": [16]},
}


@pytest.mark.parametrize("name", SMALL)
def test_forward_and_backward(name):
    torch.manual_seed(0)
    model = models.build(name, kind="image", n_classes=3, input_shape=(1, 28, 28), **SMALL[name])
    loss = CutMix(alpha=1.0)(model, torch.randn(4, 1, 28, 28), torch.tensor([0, 1, 2, 0]))
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    model.eval()
    assert model(torch.randn(1, 1, 28, 28)).shape == (1, 3)


def test_tiny_images_get_a_narrow_network():
    digits = models.build(kind="image", n_classes=10, input_shape=(1, 8, 8))
    assert digits.layer1[0].conv1.out_channels == 16
    assert digits(torch.randn(2, 1, 8, 8)).shape == (2, 10)


def test_a_preactivation_block_by_hand():
    torch.manual_seed(0)
    block = PreActBlock(3, 5, 2, dropout=0.5).eval()
    x = torch.randn(2, 3, 6, 6)
    active = nn.functional.relu(block.norm1(x))
    inner = nn.functional.relu(block.norm2(nn.functional.conv2d(active, block.conv1.weight, stride=2, padding=1)))
    want = nn.functional.conv2d(inner, block.conv2.weight, padding=1)
    want = want + nn.functional.conv2d(active, block.shortcut.weight, stride=2)
    torch.testing.assert_close(block(x), want)
    plain = PreActBlock(3, 3).eval()
    assert plain.shortcut is None
    nn.init.zeros_(plain.conv2.weight)
    assert torch.equal(plain(x), x)


def test_dropout_lies_between_the_convolutions():
    block = PreActBlock(4, 4, dropout=1.0)
    x = torch.randn(3, 4, 5, 5)
    assert torch.equal(block(x), x)  # all of the residual is dropped
    assert not torch.equal(block.eval()(x), x)


def test_stages_can_be_mixed():
    model = models.build("preactresnet18", kind="image", n_classes=3, input_shape=(3, 16, 16), width=4)
    objective = ManifoldMixup(layers=["input", "layer1", "layer2"])
    for _ in range(3):
        assert objective(model, torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 0])).isfinite()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PreActResNet(3, blocks=(1,), widths=(4, 8), stem_width=4), "must name the same stages"),
        (lambda: PreActResNet(3, blocks=(0,), widths=(4,), stem_width=4), "blocks must be an integer of at least 1"),
        (lambda: LeNet((1, 8, 8), 3), "LeNet needs inputs of at least 16 × 16, got 8 × 8"),
        (
            lambda: VGG((1, 16, 16), 3, hidden=(8,)),
            r"input_shape must be at least 32 × 32 for VGG .*, got \(1, 16, 16\)",
        ),
        (lambda: VGG((1, 16, 16), 3, depth="vgg12"), "depth must be one of 'vgg11', 'vgg16', got 'vgg12'"),
        (lambda: VGG((1, 32, 32), 3, stages=6), "stages must be an integer from 1 to 5, got 6"),
        (lambda: MLP(0, 3), "n_features must be an integer of at least 1, got 0"),
        (lambda: on_meta("densenet-bc-190", depth=191), r"depth must be 6n \+ 4"),
    ],
)
def test_impossible_networks_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("inputs", [8, 16])
def test_a_shortcut_is_a_strided_convolution(inputs):
    torch.manual_seed(0)
    block, x = PreActBlock(inputs, 2 * inputs, 2), torch.randn(4, inputs, 9, 9, requires_grad=True)
    expected = torch.nn.functional.conv2d(x, block.shortcut.weight, stride=2)
    torch.testing.assert_close(block.shortcut(x), expected)
    assert list(block.shortcut.state_dict()) == ["weight"]
    for a, b in zip(
        torch.autograd.grad(block.shortcut(x).square().sum(), [x, block.shortcut.weight]),
        torch.autograd.grad(expected.square().sum(), [x, block.shortcut.weight]),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
