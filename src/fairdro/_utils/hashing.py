"""One hash for settings, labels, features and weights."""

import hashlib
import json
from typing import Any

import numpy as np
import torch


def digest(*parts: Any) -> str:
    """Return the SHA-256 of bytes, arrays, tensors or what JSON can hold; their order, types and shapes count."""
    known = hashlib.sha256()
    for part in parts:
        kind, content = _content(part)
        known.update(f"{kind} {len(content)}\n".encode())
        known.update(content)
    return known.hexdigest()


def _content(part: Any) -> tuple[str, bytes]:
    if isinstance(part, bytes):
        return "bytes", part
    if isinstance(part, torch.Tensor):
        flat = part.detach().cpu().contiguous().flatten().view(torch.uint8)
        return f"{part.dtype} {tuple(part.shape)}", flat.numpy().tobytes()
    if isinstance(part, np.ndarray):
        if part.dtype.hasobject:
            raise TypeError("An array of objects has no content to hash.")
        return f"{part.dtype} {part.shape}", part.tobytes()
    return "json", json.dumps(part, sort_keys=True).encode()
