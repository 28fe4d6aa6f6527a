r"""Pre-activation residual networks, narrow (PreAct ResNet) and wide (Wide ResNet).

.. math::
    x_{l+1} = h(x_l) + W_2\,\mathrm{dropout}(a(W_1\,a(x_l))), \qquad a = \mathrm{ReLU} \circ \mathrm{BN}

with h the identity, or a 1×1 convolution of :math:`a(x_l)` where the shape changes.

References
----------
He, Zhang, Ren & Sun, "Identity Mappings in Deep Residual Networks", ECCV 2016.
Zagoruyko & Komodakis, "Wide Residual Networks", BMVC 2016: dropout lies between the convolutions of a block.

He et al. normalise and rectify once more after the last block, and so do Wide ResNets. The implementation that Zhang et
al. (2018, Section 3.2) name for PreAct ResNet-18 does not: it is the default of `"preactresnet18"`, and
`final_norm=True` is He et al.'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from vicinal._checks import integer, number

#: From this many channels on a 1×1 convolution may have a stride.
_NARROW = 16


class PreActBlock(nn.Module):
    """Two 3×3 convolutions, each after normalisation and ReLU, with dropout between them."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        same = inputs == outputs and stride == 1
        narrow = inputs < _NARROW and stride > 1
        kind = partial(_Subsampled, every=stride) if narrow else partial(nn.Conv2d, stride=stride)
        self.shortcut = None if same else kind(inputs, outputs, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, of `outputs` channels and the size divided by `stride`."""
        active = self.norm1(x).relu()
        residual: Tensor = self.conv2(self.dropout(self.norm2(self.conv1(active)).relu()))
        return residual + (x if self.shortcut is None else self.shortcut(active))


class _Subsampled(nn.Conv2d):
    """A 1×1 convolution of every `every`-th row and column of pixels: what a stride does.

    oneDNN corrupts memory in the gradient of a strided one, with channels last and few channels (its issue 6035).
    """

    def __init__(self, *args: Any, every: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.every = every

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution."""
        return super().forward(avg_pool2d(x, 1, self.every))


class PreActResNet(nn.Module):
    """A stem, stages of pre-activation blocks, the mean over all positions, one linear layer.

    Called with images `[B, C, H, W]` of any size, it returns logits `[B, n_classes]`. Stages are `layer1`, `layer2`,
    …: the names to mix at.

    Parameters
    ----------
    n_classes
        How many classes there are.
    blocks
        How many blocks each stage has: (2, 2, 2, 2) is ResNet-18, (4, 4, 4) a 28-layer Wide ResNet.
    widths
        The channels of each stage; the second and later ones halve the size.
    stem_width
        The channels after the first convolution.
    in_channels
        The channels of an image.
    dropout
        The share of activations dropped between the convolutions of each block.
    final_norm
        Normalise and rectify after the last block, as He et al. do.
    large
        Begin with a 7×7 convolution and a pooling that quarter the size, for images above 64 px.

    Examples
    --------
    >>> import torch
    >>> PreActResNet(10, blocks=(2, 2, 2, 2), widths=(8, 16, 32, 64), stem_width=8)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        n_classes: int,
        *,
        blocks: Sequence[int],
        widths: Sequence[int],
        stem_width: int,
        in_channels: int = 3,
        dropout: float = 0.0,
        final_norm: bool = True,
        large: bool = False,
    ) -> None:
        super().__init__()
        if len(blocks) != len(widths) or not blocks:
            raise ValueError(f"blocks and widths must name the same stages, got {list(blocks)} and {list(widths)}")
        dropout = number("dropout", dropout, low=0, high=1)
        stem_width = integer("stem_width", stem_width, low=1)
        if large:
            self.stem = nn.Sequential(
                nn.Conv2d(in_channels, stem_width, 7, 2, padding=3, bias=False), nn.MaxPool2d(3, 2, padding=1)
            )
        else:
            self.stem = nn.Sequential(nn.Conv2d(in_channels, stem_width, 3, padding=1, bias=False))
        inputs = stem_width
        self.stages = [f"layer{k}" for k in range(1, len(blocks) + 1)]
        for k, (name, depth, width) in enumerate(zip(self.stages, blocks, widths, strict=True)):
            width, stride = integer("widths", width, low=1), 1 if k == 0 else 2
            first = PreActBlock(inputs, width, stride, dropout=dropout)
            rest = (PreActBlock(width, width, dropout=dropout) for _ in range(integer("blocks", depth, low=1) - 1))
            self.add_module(name, nn.Sequential(first, *rest))
            inputs = width
        self.final = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU()) if final_norm else nn.Identity()
        self.classifier = nn.Linear(inputs, n_classes)
        init_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits `[B, n_classes]` of images `[B, C, H, W]`."""
        x = self.stem(x)
        for name in self.stages:
            x = self.get_submodule(name)(x)
        logits: Tensor = self.classifier(self.final(x).mean((2, 3)))
        return logits


def init_convolutions(network: nn.Module) -> None:
    """Initialise the weights of all convolutions for the ReLUs after them (He et al. 2015)."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
