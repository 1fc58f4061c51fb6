"""The states of random number generators that a trainer of TRL uses."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


@contextmanager
def rng_preserved() -> Iterator[None]:
    """Restore the RNG states of Python, NumPy and torch after the block."""
    python_state, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(python_state)
    np.random.set_state(numpy_state)
    torch.set_rng_state(torch_state)


def rng_state_of(device: torch.device) -> Tensor:
    """Return torch's RNG state of a device."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
