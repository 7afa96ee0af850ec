"""Pretrained encoders of Hugging Face, of texts or images, with a linear head."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from fairdro._utils.extras import require
from fairdro.errors import InputError


class PretrainedClassifier(nn.Module):
    """An encoder, whose last hidden layer is the features, and a linear head with dropout.

    Where the encoder gives a layer per token, the features are those of the first; where it gives a map, or pools tokens by
    their mean, they are the mean. The authors' BERT has one more layer before the head (the pooler); here the last hidden
    layer is what methods read.

    Parameters
    ----------
    encoder : nn.Module
        A model of Hugging Face that gives ``last_hidden_state``. A pooler that has parameters is left out.
    n_classes : int
    """

    def __init__(self, encoder: Any, n_classes: int) -> None:
        super().__init__()
        pooler = getattr(encoder, "pooler", None)
        if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
            encoder.pooler = None
        self.encoder = encoder
        self.n_features = _width(encoder.config)
        self.dropout = nn.Dropout(getattr(encoder.config, "hidden_dropout_prob", 0.1))
        self.classifier = nn.Linear(self.n_features, n_classes)
        nn.init.normal_(self.classifier.weight, std=0.02)
        nn.init.zeros_(self.classifier.bias)

    @classmethod
    def from_pretrained(cls, encoder: str | Path, n_classes: int) -> Self:
        """Load the encoder from a folder, or by name from the local cache; nothing is downloaded. The head is new."""
        return cls(load_offline("AutoModel", encoder, use_safetensors=True, dtype=torch.float32), n_classes)

    def features(self, x: Tensor | dict[str, Tensor]) -> Tensor:
        """Return the last hidden layer ``(N, F)`` of texts, as ``input_ids`` and ``attention_mask``, or of images."""
        out = self.encoder(**x) if isinstance(x, dict) else self._see(x)
        pooled = getattr(out, "pooler_output", None)
        return out.last_hidden_state[:, 0] if pooled is None else pooled.flatten(1)

    def _see(self, images: Tensor) -> Any:
        try:
            return self.encoder(pixel_values=images)
        except (ValueError, TypeError) as error:
            raise InputError(f"The encoder does not take images of {images.shape[-1]} pixels: {error}") from error

    def head(self, features: Tensor) -> Tensor:
        """Return logits ``(N, Y)``."""
        return self.classifier(self.dropout(features))

    def forward(self, x: Tensor | dict[str, Tensor]) -> Tensor:
        """Return logits ``(N, Y)`` of what :meth:`features` takes."""
        return self.head(self.features(x))

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Return the parameters for AdamW: matrices with weight decay; biases and the weights of LayerNorm without."""
        parameters = list(self.parameters())
        return [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ]


def _width(config: Any) -> int:
    """Return the size of an encoder's last hidden layer."""
    for width in (getattr(config, "hidden_size", None), *reversed(getattr(config, "hidden_sizes", None) or [])):
        if isinstance(width, int):
            return width
    raise InputError("The encoder's configuration names neither hidden_size nor hidden_sizes; choose another.")


def load_offline(kind: str, encoder: str | Path, **options: Any) -> Any:
    """Load an AutoConfig, AutoModel or AutoTokenizer by name or folder; nothing is downloaded or executed."""
    transformers, offline = _transformers(), {"local_files_only": True, "trust_remote_code": False}
    try:
        with _without_bars(transformers):
            return getattr(transformers, kind).from_pretrained(str(encoder), **offline, **options)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        files = "config.json, model.safetensors and, for texts, tokenizer.json"
        if Path(encoder).is_dir():
            raise InputError(f"The folder {encoder} is no encoder that can be read; it needs {files}.") from error
        raise InputError(
            f"There is no encoder {str(encoder)!r} on this machine; run 'hf download {encoder}' once, or name a folder "
            f"with {files}."
        ) from error


def channel_scale(encoder: str | Path) -> tuple[list[float], list[float]] | None:
    """Return the mean and deviation of the channels an encoder of images was trained with, if it says so."""
    load_offline("AutoConfig", encoder)  # there is such an encoder
    try:
        about, _ = _transformers().ImageProcessingMixin.get_image_processor_dict(str(encoder), local_files_only=True)
        mean, std = ([float(channel) for channel in about[key]] for key in ("image_mean", "image_std"))
    except (OSError, KeyError, TypeError, ValueError):
        return None
    return mean, std


def _transformers() -> Any:
    return require("transformers", extra="text", what="Encoders of Hugging Face")


@contextmanager
def _without_bars(transformers: Any) -> Iterator[None]:
    """Load without the library's own progress bars, which come by the file."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
