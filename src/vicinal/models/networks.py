"""The papers' image networks by name, each in two forms: up to 64 px, and above (VGG: up to 128 px, and above).

The small form keeps the size at the start (a 3×3 convolution, no pooling), as on CIFAR; the large one is
torchvision's ImageNet network. VGG has no such stem: its small form is the one without the hidden layers of 4,096 units
that make up 120 of the 134 million weights at 224 px, so STL-10 (96 px) gets 14.7 million as CIFAR does. Blocks are
torchvision's wherever it has them. Each function takes the shape (C, H, W) of an image and the number of classes, and
its keyword arguments are the options of that network; `dropout` is one of every network: inside the blocks of
pre-activation and dense networks (Z18 Section 3.4 for PreAct ResNet-18), before the classifier of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from vicinal._atomic import Json
from vicinal._checks import integer, nearest_names, number, require
from vicinal.models.lenet import LeNet
from vicinal.models.mlp import MLP
from vicinal.models.preact import PreActResNet
from vicinal.models.vgg import VGG

#: The longest side, in pixels, of images that get the small form; that of VGG.
SMALL, SMALL_VGG = 64, 128


def mlp(shape: Sequence[int], n_classes: int, *, hidden: Sequence[int] = (128, 128), dropout: float = 0.0) -> nn.Module:
    """Return the perceptron on flattened pixels."""
    channels, height, width = shape
    return MLP(channels * height * width, n_classes, hidden=hidden, dropout=dropout)


def lenet(
    shape: Sequence[int], n_classes: int, *, maps: int = 20, hidden: int = 1000, dropout: float = 0.5
) -> nn.Module:
    """Return LeNet."""
    return LeNet(shape, n_classes, maps=maps, hidden=hidden, dropout=dropout)


def preactresnet(blocks: Sequence[int]) -> Callable[..., nn.Module]:
    """Return the function that builds a PreAct ResNet as in the implementation that Z18 names (Section 3.2).

    It is 64 maps wide as there, and 16 on images up to 16 px.
    """

    def build(
        shape: Sequence[int],
        n_classes: int,
        *,
        width: int | None = None,
        dropout: float = 0.0,
        final_norm: bool = False,
    ) -> nn.Module:
        if width is None:
            width = 16 if max(shape[1:]) <= 16 else 64
        width = integer("width", width, low=1)
        return PreActResNet(
            n_classes,
            blocks=blocks,
            **_doubling(width, shape),
            dropout=dropout,
            final_norm=final_norm,
            large=_is_large(shape),
        )

    return build


def _doubling(width: int, shape: Sequence[int]) -> Json:
    """Return the widths of four stages, each twice as wide as the one before."""
    return {"widths": (width, 2 * width, 4 * width, 8 * width), "stem_width": width, "in_channels": shape[0]}


def soundresnet(shape: Sequence[int], n_classes: int, *, width: int = 16, dropout: float = 0.0) -> nn.Module:
    """Return the residual network of 18 layers for spectrograms of sounds: a quarter as wide as that for images.

    It has 0.7 million weights where LeNet on the spectrogram of one second has 16 million, so that some hundred sounds
    are enough to train it, and its stem quarters inputs of any length.
    """
    width = integer("width", width, low=1)
    return PreActResNet(n_classes, blocks=(2, 2, 2, 2), **_doubling(width, shape), dropout=dropout, large=True)


def wideresnet28(shape: Sequence[int], n_classes: int, *, widen: int = 10, dropout: float = 0.0) -> nn.Module:
    """Return Wide ResNet-28, `widen` times as wide as a ResNet."""
    widen = integer("widen", widen, low=1)
    return PreActResNet(
        n_classes,
        blocks=(4, 4, 4),
        widths=(16 * widen, 32 * widen, 64 * widen),
        stem_width=16,
        in_channels=shape[0],
        dropout=dropout,
        large=_is_large(shape),
    )


def densenet_bc_190(
    shape: Sequence[int], n_classes: int, *, growth: int = 40, depth: int = 190, dropout: float = 0.0
) -> nn.Module:
    """Return DenseNet-BC, of depth 190 and growth rate 40 (Huang et al. 2017)."""
    densenet = require("torchvision.models.densenet", "train")
    growth = integer("growth", growth, low=1)
    layers, left = divmod(integer("depth", depth, low=10) - 4, 6)
    if left:
        raise ValueError(f"depth must be 6n + 4 (three blocks of n layers), got {depth}")
    model: nn.Module = densenet.DenseNet(
        growth_rate=growth,
        block_config=(layers, layers, layers),
        num_init_features=2 * growth,
        drop_rate=number("dropout", dropout, low=0, high=1),
        num_classes=n_classes,
    )
    features = model.get_submodule("features")
    if _is_large(shape):
        _new_stem(features, "conv0", shape[0])
    else:
        features.conv0 = _conv(shape[0], 2 * growth)  # and the first block normalises what it receives
        del features.norm0, features.relu0, features.pool0
    return model


def resnet(
    block: str, layers: Sequence[int], *, groups: int = 1, width_per_group: int = 64
) -> Callable[..., nn.Module]:
    """Return the function that builds a ResNet or ResNeXt of these stages."""

    def build(
        shape: Sequence[int],
        n_classes: int,
        *,
        groups: int = groups,
        width_per_group: int = width_per_group,
        dropout: float = 0.0,
    ) -> nn.Module:
        module = require("torchvision.models.resnet", "train")
        model: nn.Module = module.ResNet(
            getattr(module, block), list(layers), num_classes=n_classes, groups=groups, width_per_group=width_per_group
        )
        if _is_large(shape):
            _new_stem(model, "conv1", shape[0])
        else:
            model.conv1 = _conv(shape[0], 64)
            model.maxpool = nn.Identity()
        # Beside the pooling, not in front of `fc`: the names of the weights stay the same.
        rate = number("dropout", dropout, low=0, high=1)
        model.avgpool = nn.Sequential(model.get_submodule("avgpool"), nn.Dropout(rate))
        return model

    return build


def vgg(depth: str) -> Callable[..., nn.Module]:
    """Return the function that builds a VGG with batch normalisation."""

    def build(
        shape: Sequence[int],
        n_classes: int,
        *,
        hidden: Sequence[int] = (),
        dropout: float | None = None,
        width: int = 64,
        stages: int = 5,
    ) -> nn.Module:
        if max(shape[1:]) <= SMALL_VGG or hidden or (width, stages) != (64, 5):
            return VGG(shape, n_classes, depth=depth, hidden=hidden, dropout=dropout, width=width, stages=stages)
        models = require("torchvision.models", "train")
        rate = 0.5 if dropout is None else number("dropout", dropout, low=0, high=1)
        model: nn.Module = getattr(models, f"{depth}_bn")(num_classes=n_classes, dropout=rate)
        _new_stem(model.get_submodule("features"), "0", shape[0])
        return model

    return build


def mobilenetv2(shape: Sequence[int], n_classes: int, *, width: float = 1.0, dropout: float = 0.2) -> nn.Module:
    """Return MobileNetV2; the small form begins with two steps of stride 1."""
    module = require("torchvision.models.mobilenetv2", "train")
    small = not _is_large(shape)
    setting = [[1, 16, 1, 1], [6, 24, 2, 1 if small else 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1],
               [6, 160, 3, 2], [6, 320, 1, 1]]  # fmt: skip
    width = number("width", width, above=0)
    model: nn.Module = module.MobileNetV2(
        n_classes,
        width_mult=width,
        inverted_residual_setting=setting,
        dropout=number("dropout", dropout, low=0, high=1),
    )
    _new_stem(model.get_submodule("features.0"), "0", shape[0], stride=1 if small else 2)
    return model


def shufflenetv2(shape: Sequence[int], n_classes: int, *, dropout: float = 0.0) -> nn.Module:
    """Return ShuffleNetV2 ×1.0; the small form has a 3×3 convolution of stride 1 and no pooling before its stages."""
    module = require("torchvision.models.shufflenetv2", "train")
    model: nn.Module = module.ShuffleNetV2([4, 8, 4], [24, 116, 232, 464, 1024], num_classes=n_classes)
    small = not _is_large(shape)
    _new_stem(model.get_submodule("conv1"), "0", shape[0], stride=1 if small else 2)
    if small:
        model.maxpool = nn.Identity()
    rate = number("dropout", dropout, low=0, high=1)
    if rate:  # it averages positions in its forward, so dropout can only stand in front of `fc`
        model.fc = nn.Sequential(nn.Dropout(rate), model.get_submodule("fc"))
    return model


#: Every image network by its name. ResNeXt-101 is the 32×4d of Z18 (Table 1) and T19 (Section 3.4.1).
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "lenet": lenet,
    "soundresnet": soundresnet,
    "preactresnet10": preactresnet((1, 1, 1, 1)),  # for small experiments
    "preactresnet18": preactresnet((2, 2, 2, 2)),
    "wideresnet28-10": wideresnet28,
    "densenet-bc-190": densenet_bc_190,
    "resnet18": resnet("BasicBlock", (2, 2, 2, 2)),
    "resnet34": resnet("BasicBlock", (3, 4, 6, 3)),
    "resnet50": resnet("Bottleneck", (3, 4, 6, 3)),
    "resnet101": resnet("Bottleneck", (3, 4, 23, 3)),
    "resnext50": resnet("Bottleneck", (3, 4, 6, 3), groups=32, width_per_group=4),
    "resnext101": resnet("Bottleneck", (3, 4, 23, 3), groups=32, width_per_group=4),
    "vgg11": vgg("vgg11"),
    "vgg16": vgg("vgg16"),
    "mobilenetv2": mobilenetv2,
    "shufflenetv2": shufflenetv2,
}


def timm_network(name: str) -> Callable[..., nn.Module]:
    """Return the function that builds a network of timm, `timm:NAME`, without weights of its own.

    Only architectures that timm itself has are built: nothing is fetched, whatever the name says.
    """
    timm = require("timm", "timm")
    inner = name.removeprefix("timm:")
    if not timm.is_model(inner.partition(".")[0]):
        raise ValueError(f"timm has no network {inner!r}{nearest_names(inner, timm.list_models())}")

    def build(shape: Sequence[int], n_classes: int, *, dropout: float = 0.0) -> nn.Module:
        rate = number("dropout", dropout, low=0, high=1)
        model: nn.Module = timm.create_model(
            inner, pretrained=False, num_classes=n_classes, in_chans=shape[0], drop_rate=rate
        )
        return model

    return build


def _is_large(shape: Sequence[int]) -> bool:
    return max(shape[1:]) > SMALL


def _conv(inputs: int, outputs: int) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _new_stem(parent: nn.Module, key: str, inputs: int, *, stride: int | None = None) -> None:
    """Replace the first convolution by one for `inputs` channels (and of another stride), where it differs."""
    old: Any = parent.get_submodule(key)
    strides = old.stride if stride is None else (stride, stride)
    if inputs == old.in_channels and strides == old.stride:
        return
    new = nn.Conv2d(inputs, old.out_channels, old.kernel_size, strides, padding=old.padding, bias=old.bias is not None)
    nn.init.kaiming_normal_(new.weight, mode="fan_out", nonlinearity="relu")
    parent._modules[key] = new
