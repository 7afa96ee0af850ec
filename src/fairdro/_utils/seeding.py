"""Random streams by purpose, so that one seed never couples two choices."""

import hashlib

import torch


def number(seed: int, purpose: str) -> int:
    """Return a seed that depends on the seed and on what it is for, on nothing else."""
    return int.from_bytes(hashlib.sha256(f"{purpose}/{seed}".encode()).digest()[:7], "big")


def generator(seed: int, purpose: str) -> torch.Generator:
    """Return a generator of random numbers for one purpose."""
    return torch.Generator().manual_seed(number(seed, purpose))
