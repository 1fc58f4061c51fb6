"""Random numbers keyed by their use, so that batch composition and resuming cannot change them."""

import hashlib

import numpy as np
import torch
from torch import Tensor


def seed_of(*key: object) -> int:
    """Return a 63-bit seed from a key such as ``(seed, stage, step, task, rollout)``."""
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(*key: object) -> np.random.Generator:
    """Return an independent generator for a key."""
    return np.random.Generator(np.random.Philox(seed_of(*key)))


def uniforms(count: int, *key: object) -> Tensor:
    """Return ``count`` numbers in [0, 1), float64; number ``i`` of a key does not depend on ``count``."""
    return torch.from_numpy(generator(*key).random(count))


def permutation(count: int, *key: object) -> list[int]:
    """Return a shuffled ``range(count)``."""
    return generator(*key).permutation(count).tolist()
