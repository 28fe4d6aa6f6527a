"""VGG networks for small images and for spectrograms.

References
----------
Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015.

Deviation: batch normalisation after every convolution, as in Thulasidasan et al. (2019, Section 3.1). The classifier
is one linear layer on the mean over all positions (the CIFAR form), or hidden layers on the flattened maps
(spectrograms). The ImageNet form is torchvision's.

How we read the speech network of Zhang et al. (2018, Section 3.3): the text says VGG-11, and that it has two
convolutional and two fully-connected layers; both cannot be, and no size is given. On sounds it is by the letter the
first two stages of VGG-11, a convolution each, and two fully-connected layers, the hidden one of 512 units. `stages=5`
has the eight convolutions of the name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from vicinal._checks import ArgumentError, choice, integer, number
from vicinal.models.preact import init_convolutions

#: The convolutions of each of the five stages; a stage ends with a pooling.
_STAGES = {
    "vgg11": ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    "vgg16": ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)),
}


class VGG(nn.Module):
    """Up to five stages of 3×3 convolutions, each halving the size.

    Called with `[B, C, H, W]`, it returns logits `[B, n_classes]`. Stages are `layer1`, `layer2`, ….

    Parameters
    ----------
    input_shape
        (C, H, W) of one input.
    n_classes
        How many classes there are.
    depth
        `"vgg11"` or `"vgg16"`.
    hidden
        The hidden layers of the classifier, on the flattened maps; none: one linear layer on their mean.
    dropout
        The share that is dropped of the hidden units, or without any of the means before the classifier; None is 0.5
        of hidden units, as in the paper, and none of the means, as on CIFAR.
    width
        The channels of the first stage; the others follow. 64 in the paper.
    stages
        How many of the five stages there are.

    Examples
    --------
    >>> VGG((3, 32, 32), 10, width=8)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        n_classes: int,
        *,
        depth: str = "vgg11",
        hidden: Sequence[int] = (),
        dropout: float | None = None,
        width: int = 64,
        stages: int = 5,
    ) -> None:
        super().__init__()
        inputs, height, side = input_shape
        every = _STAGES[choice("depth", depth, tuple(_STAGES))]
        width, n_stages = integer("width", width, low=1), integer("stages", stages, low=1)
        if n_stages > len(every):
            raise ArgumentError("stages", stages, f"an integer from 1 to {len(every)}")
        rate = number("dropout", (0.5 if hidden else 0.0) if dropout is None else dropout, low=0, high=1)
        self.stages, self.pooled = [f"layer{k}" for k in range(1, n_stages + 1)], not hidden
        for name, stage in zip(self.stages, every[:n_stages], strict=True):
            outputs = [channels * width // 64 for channels in stage]
            # Rounding up keeps one position of inputs below 32 px, and changes nothing at 32.
            pool = nn.MaxPool2d(2, ceil_mode=self.pooled)
            self.add_module(name, nn.Sequential(*_convolutions(inputs, outputs), pool))
            inputs = outputs[-1]
        shrunk = 2**n_stages
        features = inputs if self.pooled else inputs * (height // shrunk) * (side // shrunk)
        if not features:
            least = f"{shrunk} × {shrunk}"
            raise ArgumentError("input_shape", tuple(input_shape), f"at least {least} for VGG with hidden layers")
        layers: list[nn.Module] = [nn.Dropout(rate)] if self.pooled else []
        for units in (integer("hidden", units, low=1) for units in hidden):
            layers += [nn.Linear(features, units), nn.ReLU(), nn.Dropout(rate)]
            features = units
        self.hidden = nn.Sequential(*layers)
        self.classifier = nn.Linear(features, n_classes)
        init_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits `[B, n_classes]` of inputs `[B, C, H, W]`."""
        for name in self.stages:
            x = self.get_submodule(name)(x)
        x = x.mean((2, 3)) if self.pooled else torch.flatten(x, 1)
        logits: Tensor = self.classifier(self.hidden(x))
        return logits


def _convolutions(inputs: int, outputs: Sequence[int]) -> Iterator[nn.Module]:
    """Yield the convolutions of a stage, each normalised and rectified."""
    for before, after in pairwise([inputs, *outputs]):
        yield from (nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())
