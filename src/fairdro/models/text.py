"""A text classifier: a pretrained encoder of Hugging Face with a linear head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from fairdro.errors import InputError

__all__ = ["TextClassifier", "load_offline"]


class TextClassifier(nn.Module):
    """An encoder, of which the first token's last hidden layer is the features, and a linear head with dropout.

    The authors' BERT has one more layer between the two (the pooler); here the last hidden layer is what methods read.

    Parameters
    ----------
    encoder : nn.Module
        A model of Hugging Face that gives ``last_hidden_state``. Its pooler, which would get no gradient, is left out.
    n_classes : int

    Attributes
    ----------
    n_features : int
        Size of the last hidden layer.
    """

    def __init__(self, encoder: Any, n_classes: int) -> None:
        super().__init__()
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None
        self.encoder = encoder
        self.n_features = int(encoder.config.hidden_size)
        self.dropout = nn.Dropout(getattr(encoder.config, "hidden_dropout_prob", 0.1))
        self.classifier = nn.Linear(self.n_features, n_classes)
        nn.init.normal_(self.classifier.weight, std=0.02)
        nn.init.zeros_(self.classifier.bias)

    @classmethod
    def from_pretrained(cls, encoder: str | Path, n_classes: int) -> TextClassifier:
        """Load the encoder from a folder, or by name from the local cache; nothing is downloaded. The head is new."""
        model = load_offline("AutoModel", encoder, use_safetensors=True, dtype=torch.float32)
        return cls(model, n_classes)

    def features(self, x: dict[str, Tensor]) -> Tensor:
        """Return the last hidden layer of the first token ``(N, F)`` for ``input_ids`` and ``attention_mask``."""
        return self.encoder(input_ids=x["input_ids"], attention_mask=x["attention_mask"]).last_hidden_state[:, 0]

    def head(self, features: Tensor) -> Tensor:
        """Return logits ``(N, Y)``."""
        return self.classifier(self.dropout(features))

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        """Return logits ``(N, Y)`` for ``input_ids`` and ``attention_mask``."""
        return self.head(self.features(x))

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Return the parameters for AdamW: matrices with weight decay; biases and the weights of LayerNorm without."""
        parameters = list(self.parameters())
        return [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ]


def load_offline(kind: str, encoder: str | Path, **options: Any) -> Any:
    """Load a model or tokenizer of Hugging Face from a folder or the local cache; nothing is downloaded or executed.

    Parameters
    ----------
    kind : {"AutoModel", "AutoTokenizer"}
    encoder : str or Path
        Name or folder.
    **options
        For ``from_pretrained``.
    """
    try:
        import transformers  # noqa: PLC0415
    except ImportError as error:
        raise InputError("Texts need transformers: pip install 'fairdro[text]'.") from error
    try:
        return getattr(transformers, kind).from_pretrained(
            str(encoder), local_files_only=True, trust_remote_code=False, **options
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        files = "config.json, model.safetensors and tokenizer.json"
        if Path(encoder).is_dir():
            raise InputError(f"The folder {encoder} is no encoder that can be read; it needs {files}.") from error
        raise InputError(
            f"There is no encoder {str(encoder)!r} on this machine; run 'hf download {encoder}' once, or name a folder "
            f"with {files}."
        ) from error
