"""Models as banks: S seeds times P hyperparameter points, trained together."""

from fairdro.errors import unknown_name
from fairdro.models.banks import LinearBank, MLPBank, ModelBank

__all__ = ["MODELS", "LinearBank", "MLPBank", "ModelBank", "get_model"]

MODELS: dict[str, type[ModelBank]] = {"linear": LinearBank, "mlp": MLPBank}


def get_model(name: str) -> type[ModelBank]:
    """Return the model class registered under ``name``."""
    if name not in MODELS:
        raise unknown_name("model", name, list(MODELS))
    return MODELS[name]
