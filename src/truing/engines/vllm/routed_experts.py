"""The expert routes in an answer of vLLM, checked: ids of experts, for each token but the last."""

import base64
import binascii
import io

import numpy as np
import torch
from torch import Tensor

from truing.types.token import NO_ROUTE


def read_routes(text: str, tokens: int) -> Tensor:
    """Return the routes of ``tokens`` ids of a prompt and its turn: [tokens, layers, K] int16.

    The last id has NO_ROUTE: it was sampled and not computed.

    Args:
        text: base64 of a .npy file of [tokens − 1, layers, K] (vLLM's ``routed_experts``).
        tokens: ids of prompt and turn.

    Raises:
        ValueError: It is something else.
    """
    try:
        found = np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False)
    except (binascii.Error, OSError, EOFError) as error:
        raise ValueError(f"routes that cannot be read: {error}") from error
    if found.ndim != 3 or len(found) != tokens - 1 or found.dtype.kind not in "iu":
        raise ValueError(f"routes {found.shape} {found.dtype} for {tokens} tokens")
    routes = np.full((tokens, *found.shape[1:]), NO_ROUTE, np.int16)
    routes[:-1] = found
    if not np.array_equal(routes[:-1], found):
        raise ValueError("routes to experts beyond an int16")
    return torch.from_numpy(routes)
