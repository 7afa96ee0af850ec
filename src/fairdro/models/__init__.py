"""Kinds of models, and the registry that names them."""

from typing import Any

from fairdro.errors import unknown_name
from fairdro.models.backbones import RESNET
from fairdro.models.banks import LinearBank, MLPBank, ModelBank
from fairdro.models.efficientnet import NAME, EfficientNetLite0
from fairdro.models.pretrained import PretrainedClassifier
from fairdro.models.resnet import ResNet18
from fairdro.models.trees import Trees

__all__ = ["BANKS", "MODELS", "LinearBank", "MLPBank", "ModelBank"]

BANKS: dict[str, type[ModelBank]] = {"linear": LinearBank, "mlp": MLPBank}
"""The banks by name; :func:`~fairdro.training.engines.minibatch_engine` trains each."""

MODELS: dict[str, Any] = {
    **BANKS, "boosting": Trees, RESNET: ResNet18, NAME: EfficientNetLite0, "NAME or FOLDER": PretrainedClassifier,
}  # fmt: skip
"""All there are: for tables, for images, and encoders of Hugging Face by name or folder."""


def get_model(name: str) -> type[ModelBank]:
    """Return the bank registered under ``name``."""
    if name not in BANKS:
        raise unknown_name("model", name, list(BANKS))
    return BANKS[name]
