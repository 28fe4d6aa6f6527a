"""The CIFAR ResNet-18 that training steps are timed on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock


class CifarResNet18(nn.Module):
    """A 3×3 stem, four stages of two basic blocks, `width` channels in the first."""

    def __init__(self, n_classes: int = 10, *, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.layer1 = self._stage(width, width, 1)
        self.layer2 = self._stage(width, 2 * width, 2)
        self.layer3 = self._stage(2 * width, 4 * width, 2)
        self.layer4 = self._stage(4 * width, 8 * width, 2)
        self.fc = nn.Linear(8 * width, n_classes)

    @staticmethod
    def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
        shortcut = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        return nn.Sequential(BasicBlock(inputs, outputs, stride, shortcut), BasicBlock(outputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        return self.fc(x.mean((2, 3)))


def step_with(
    objective: Callable[..., Tensor],
    x: object,
    y: Tensor,
    *,
    make: Callable[[], nn.Module] = CifarResNet18,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Callable[[], None]:
    """Return one SGD step of a network of its own on this batch."""
    torch.manual_seed(0)
    model = make().to(memory_format=memory_format)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimiser.zero_grad()
        objective(model, x, y).backward()
        optimiser.step()

    return step
