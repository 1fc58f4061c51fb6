"""Bytes of a rank's GPU, of an engine's and of main memory, beside vLLM servers: what Truing holds today."""

from cluster_model import BFLOAT16, FLOAT32, Rates, Shape

LOGIT_BYTES = 2 * 256e6 + 4 * 64e6
"""Logits kept and in use (``models/forward/score.py``)."""


def activation_bytes(shape: Shape) -> int:
    """Return the bytes that a token saves for the backward pass, products in bfloat16, norms in float32.

    By layer: inputs of norms, of products, of the gate's product, and queries, keys, values, output.
    """
    wide = 2 * FLOAT32 * shape.hidden + 2 * BFLOAT16 * shape.hidden + 4 * BFLOAT16 * shape.intermediate
    attention = 2 * BFLOAT16 * shape.head_dim * (shape.heads + shape.kv_heads)
    return shape.layers * (wide + attention)


def recomputed_bytes(shape: Shape) -> float:
    """Return the bytes that a token saves if layers are computed twice: inputs, and one layer thrice."""
    return shape.layers * FLOAT32 * shape.hidden + 3 * activation_bytes(shape) / shape.layers


def trainer_memory(
    shape: Shape, trained: int, ranks: int, ahead: int, number: int, *, offload: bool = False
) -> dict[str, float]:
    """Return the bytes on a rank's GPU by what they are, before the activations of a micro-batch.

    ``number`` is the size of a number that computes. Trained weights, gradients and moments are float32. With
    ``offload`` shards are in main memory.
    """
    full = trained == shape.weights
    is_sharded = ranks > 1 or offload or (full and number < FLOAT32)
    around, layer = _around_and_layer(shape)
    return {
        "shards": 0.0 if offload else shard_bytes(shape, trained, ranks, number),
        # beside shards the whole weights are in main memory, and so are their copies
        "copy that scores, ahead": FLOAT32 * trained if ahead and not is_sharded else 0.0,
        "gathered layers": number * (around + 2 * layer) if is_sharded else 0.0,
        "gathered gradients": number * (around + layer) if is_sharded and full else 0.0,
        "logits": LOGIT_BYTES,
    }


def shard_bytes(shape: Shape, trained: int, ranks: int, number: int) -> float:
    """Return the bytes of a rank's part of a frozen base, trained weights, their gradients and moments."""
    frozen = 0 if trained == shape.weights else number * shape.weights
    return (frozen + 4 * FLOAT32 * trained) / ranks


def start_memory(shape: Shape, trained: int, ranks: int, number: int, *, offload: bool = False) -> float:
    """Return the bytes at the start: each rank reads its parts, and its forward is proven with them.

    Weights that are trained are float32, in which the forward is proven too. With ``offload`` a rank reads
    into main memory.
    """
    full = trained == shape.weights
    held = FLOAT32 if full else number
    around, layer = _around_and_layer(shape)
    is_sharded = ranks > 1 or offload or (full and number < FLOAT32)
    gathered = held * (around + 2 * layer) if is_sharded else 0.0
    return (0.0 if offload else held * shape.weights / ranks) + gathered


def host_memory(shape: Shape, ranks: int, number: int, shards: float = 0.0) -> float:
    """Return the bytes of main memory of a node: of each of its ranks whole weights, and offloaded shards."""
    return ranks * (number * shape.weights + shards)


def _around_and_layer(shape: Shape) -> tuple[float, float]:
    """Return the weights of embedding and head, which stay gathered with the root, and those of a layer."""
    return shape.weights - shape.body, shape.body / shape.layers


def cache_tokens(shape: Shape, rates: Rates, utilization: float = 0.92, workspace: float = 2e9) -> int:
    """Return the tokens whose keys and values fit beside the weights of an engine on a GPU of its own."""
    free = utilization * rates.memory - rates.number * shape.weights - workspace
    return max(0, int(free / shape.kv_bytes(rates.number)))
