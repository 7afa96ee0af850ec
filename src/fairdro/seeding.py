"""Random streams by purpose, so that one seed never couples two choices."""

import hashlib

import torch


def generator(seed: int, purpose: str) -> torch.Generator:
    """Return a generator that depends on the seed and on what it is for, on nothing else."""
    digest = hashlib.sha256(f"{purpose}/{seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
