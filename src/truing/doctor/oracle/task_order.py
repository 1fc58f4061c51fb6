"""The declared order of tasks: each epoch is a shuffle of all training tasks, by seed, stage and epoch."""

import hashlib

import numpy as np


def expected_tasks(seed: int, stage: str, step: int, count: int, total: int) -> list[int]:
    """Return the indices of the training tasks that update ``step`` (from 0) of a stage samples.

    Task n of a stage is entry n mod ``total`` of the shuffle of epoch n div ``total``.
    """
    shuffles: dict[int, list[int]] = {}
    drawn = list[int]()
    for n in range(step * count, (step + 1) * count):
        epoch, place = divmod(n, total)
        if epoch not in shuffles:
            shuffles[epoch] = _shuffle(total, f"{seed}\x1f{stage}\x1fepoch\x1f{epoch}")
        drawn.append(shuffles[epoch][place])
    return drawn


def _shuffle(total: int, key: str) -> list[int]:
    """Return a permutation of ``range(total)``: Philox, seeded by the first 63 bits of the key's SHA-256."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little") // 2
    return [int(index) for index in np.random.Generator(np.random.Philox(seed)).permutation(total)]
