"""VGG networks for small images and for spectrograms.

References
----------
Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015.

Deviation: batch normalisation after every convolution, as all the mixup papers train them. The classifier is one linear
layer on the mean over all positions (the usual CIFAR form), or hidden layers on the flattened maps (spectrograms, as in
Zhang et al. 2018). The ImageNet form is torchvision's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal._checks import choice, integer, number

__all__ = ["VGG"]

#: The convolutions of each of the five stages; a stage ends with a pooling.
_STAGES = {
    "vgg11": ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    "vgg16": ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)),
}


class VGG(nn.Module):
    """Five stages of 3×3 convolutions, each halving the size.

    Called with `[B, C, H, W]`, it returns logits `[B, n_classes]`. Stages are `layer1` to `layer5`.

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
        The share of hidden units that is dropped.
    width
        The channels of the first stage; the others follow. 64 in the paper.

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
        dropout: float = 0.5,
        width: int = 64,
    ) -> None:
        super().__init__()
        inputs, height, side = input_shape
        stages = _STAGES[choice("depth", depth, tuple(_STAGES))]
        width, dropout = integer("width", width, low=1), number("dropout", dropout, low=0, high=1)
        layers: list[nn.Module]
        for k, stage in enumerate(stages, start=1):
            layers = []
            for outputs in (channels * width // 64 for channels in stage):
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
                inputs = outputs
            # Rounding up keeps one position of inputs below 32 px, and changes nothing at 32.
            layers.append(nn.MaxPool2d(2, ceil_mode=not hidden))
            self.add_module(f"layer{k}", nn.Sequential(*layers))
        self.pooled = not hidden
        features = inputs if self.pooled else inputs * (height // 32) * (side // 32)
        if not features:
            raise ValueError(f"VGG with hidden layers needs inputs of at least 32 × 32, got {height} × {side}")
        layers = []
        for units in (integer("hidden", units, low=1) for units in hidden):
            layers += [nn.Linear(features, units), nn.ReLU(), nn.Dropout(dropout)]
            features = units
        self.hidden = nn.Sequential(*layers)
        self.classifier = nn.Linear(features, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits `[B, n_classes]` of inputs `[B, C, H, W]`."""
        for k in range(1, 6):
            x = self.get_submodule(f"layer{k}")(x)
        x = x.mean((2, 3)) if self.pooled else torch.flatten(x, 1)
        logits: Tensor = self.classifier(self.hidden(x))
        return logits
