"""Bytes of a rank's GPU and of an engine's: pure formulas of what Truing holds today."""

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


def trainer_memory(shape: Shape, trained: int, ranks: int, ahead: int, number: int) -> dict[str, float]:
    """Return the bytes on a rank's GPU by what they are, before the activations of a micro-batch.

    ``number`` is the size of a number that computes. Trained weights, gradients and moments are float32.
    """
    full = trained == shape.weights
    is_sharded = ranks > 1 or (full and number < FLOAT32)
    around = shape.weights - shape.body  # embedding and head stay gathered with the root
    layer = shape.body / shape.layers
    return {
        "shards": ((0 if full else number * shape.weights) + 4 * FLOAT32 * trained) / ranks,
        "whole copy to publish": number * shape.weights if is_sharded else 0.0,
        "copy that scores, ahead": (number if full else FLOAT32) * trained if ahead else 0.0,
        "gathered layers": number * (around + 2 * layer) if is_sharded else 0.0,
        "gathered gradients": number * (around + layer) if is_sharded and full else 0.0,
        "logits": LOGIT_BYTES,
    }


def start_memory(shape: Shape, trained: int, ranks: int, number: int) -> float:
    """Return the bytes at the start: each rank loads all weights, and copies its shards of them.

    Weights that are trained are loaded in float32; where they compute in another size, they are copied.
    """
    loaded = FLOAT32 if trained == shape.weights else number
    rounded = number if loaded != number else 0
    return shape.weights * (loaded + rounded + (loaded / ranks if ranks > 1 or rounded else 0))


def cache_tokens(shape: Shape, rates: Rates, utilization: float = 0.92, workspace: float = 2e9) -> int:
    """Return the tokens whose keys and values fit beside the weights of an engine on a GPU of its own."""
    free = utilization * rates.memory - rates.number * shape.weights - workspace
    return max(0, int(free / shape.kv_bytes(rates.number)))
