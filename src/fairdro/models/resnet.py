"""ResNet-18 (He et al., 2016), as the paper trains it on faces; its parameters have torchvision's names and shapes."""

import torch
from torch import Tensor, nn

from fairdro.errors import InputError


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
    """ResNet-18 with a linear head.

    Parameters
    ----------
    n_classes : int
    width : int, default 64
        Channels of the first layer; the last hidden layer has eight times as many features.
    small : bool, default False
        For images of about 32 pixels: the first convolution is 3 x 3, and no pooling follows it.
    """

    def __init__(self, n_classes: int, *, width: int = 64, small: bool = False) -> None:
        super().__init__()
        if width < 1:
            raise InputError(f"The width must be a positive whole number, got {width}.")
        self.n_features = 8 * width
        side = 3 if small else 7
        self.conv1 = nn.Conv2d(3, width, side, 2, side // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        for number in range(1, 5):
            inputs, outputs = (width, width) if number == 1 else (width << (number - 2), width << (number - 1))
            blocks = nn.Sequential(_Block(inputs, outputs, 1 if number == 1 else 2), _Block(outputs, outputs, 1))
            self.add_module(f"layer{number}", blocks)
        self.fc = nn.Linear(self.n_features, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        # The order that convolutions are fastest in; with fewer channels than a CPU has lanes, the gradient of a shortcut
        # writes past its memory in it: https://github.com/uxlfoundation/oneDNN/issues/6035
        self.layout = torch.channels_last if width >= 16 else torch.contiguous_format
        self.to(memory_format=self.layout)  # type: ignore[call-overload]

    def features(self, x: Tensor) -> Tensor:
        """Return the mean of the last feature map ``(N, 8 * width)`` for images ``(N, 3, H, W)``."""
        x = self.maxpool(self.bn1(self.conv1(x.contiguous(memory_format=self.layout))).relu())
        for number in range(1, 5):
            x = getattr(self, f"layer{number}")(x)
        return x.mean((-2, -1))

    def head(self, features: Tensor) -> Tensor:
        """Return logits ``(N, Y)``."""
        return self.fc(features)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(N, Y)`` for images ``(N, 3, H, W)``."""
        return self.head(self.features(x))
