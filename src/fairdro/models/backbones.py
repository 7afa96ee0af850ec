"""Networks by name: what each reads, and whether it is pretrained."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from fairdro.models import efficientnet
from fairdro.models.efficientnet import EfficientNetLite0
from fairdro.models.pretrained import PretrainedClassifier, channel_scale
from fairdro.models.resnet import ResNet18

Scale = tuple[list[float], list[float]]
"""Mean and deviation of three channels, from 0 to 1."""

RESNET = "resnet18"
SMALL_IMAGES = 32  # pixels up to which ResNet-18 reduces them more slowly


@dataclass(frozen=True)
class Backbone:
    """A network that is known by name.

    Attributes
    ----------
    make : callable
        ``make(n_classes, size, width)`` returns the network with a fresh head, for images of a size.
    pretrained : bool
        Otherwise it starts from nothing, and has a width to choose.
    texts : bool
        Whether it may read texts.
    scale : callable
        Returns the channel scale that it was pretrained with; None where that of the data will do.
    """

    make: Callable[[int, int, int], nn.Module]
    pretrained: bool
    texts: bool = False
    scale: Callable[[], Scale | None] = lambda: None


def _resnet(n_classes: int, size: int, width: int) -> nn.Module:
    return ResNet18(n_classes, width=width, small=size <= SMALL_IMAGES)


def _efficientnet(n_classes: int, size: int, width: int) -> nn.Module:
    return EfficientNetLite0(n_classes)


def _encoder(name: str, n_classes: int, size: int, width: int) -> nn.Module:
    return PretrainedClassifier.from_pretrained(name, n_classes)


BACKBONES = {
    RESNET: Backbone(_resnet, pretrained=False),
    efficientnet.NAME: Backbone(_efficientnet, pretrained=True, scale=lambda: (efficientnet.MEAN, efficientnet.STD)),
}


def get_backbone(name: str) -> Backbone:
    """Return the network of a name; all that are not in :data:`BACKBONES` are encoders of Hugging Face."""
    encoder = Backbone(partial(_encoder, name), pretrained=True, texts=True, scale=partial(channel_scale, name))
    return BACKBONES.get(name, encoder)
