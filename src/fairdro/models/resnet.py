"""ResNet-18 (He et al., 2016), as the paper trains it on faces; its parameters have torchvision's names and shapes."""

import torch
from torch import Tensor, nn


class _Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        return (self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())) + shortcut).relu()


class ResNet18(nn.Module):
    """ResNet-18 with a linear head; its last hidden layer has 512 features."""

    n_features = 512

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for number, (inputs, outputs) in enumerate([(64, 64), (64, 128), (128, 256), (256, 512)], start=1):
            blocks = nn.Sequential(_Block(inputs, outputs, 1 if number == 1 else 2), _Block(outputs, outputs, 1))
            self.add_module(f"layer{number}", blocks)
        self.fc = nn.Linear(512, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # the order convolutions are fastest in

    def features(self, x: Tensor) -> Tensor:
        """Return the mean of the last feature map ``(N, 512)`` for images ``(N, 3, H, W)``."""
        x = self.maxpool(self.bn1(self.conv1(x.contiguous(memory_format=torch.channels_last))).relu())
        for number in range(1, 5):
            x = getattr(self, f"layer{number}")(x)
        return x.mean((-2, -1))

    def head(self, features: Tensor) -> Tensor:
        """Return logits ``(N, Y)``."""
        return self.fc(features)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(N, Y)`` for images ``(N, 3, H, W)``."""
        return self.head(self.features(x))
