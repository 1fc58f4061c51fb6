"""The declared order of tasks, and of a step's samples: shuffles of all of them, by seed and epoch."""

import hashlib

import numpy as np


def expected_tasks(seed: int, stage: str, step: int, count: int, total: int) -> list[int]:
    """Return the indices of the training tasks that step ``step`` (from 0) of a stage samples.

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


def expected_minibatches(
    seed: int, stage: str, step: int, samples: int, epochs: int, minibatches: int
) -> list[list[int]]:
    """Return the indices of the samples of each optimizer step of a step: every k-th of the epoch's shuffle.

    With one minibatch an epoch, samples keep their order. A minibatch without samples is left out.
    """
    orders = [
        _shuffle(samples, f"{seed}\x1f{stage}\x1f{step}\x1fminibatches\x1f{epoch}")
        if minibatches > 1
        else list(range(samples))
        for epoch in range(epochs)
    ]
    parts = [order[first::minibatches] for order in orders for first in range(minibatches)]
    return [part for part in parts if part]


def _shuffle(total: int, key: str) -> list[int]:
    """Return a permutation of ``range(total)``: Philox, seeded by the first 63 bits of the key's SHA-256."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little") // 2
    return [int(index) for index in np.random.Generator(np.random.Philox(seed)).permutation(total)]
