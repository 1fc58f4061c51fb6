"""How vLLM's layers are divided among workers with tensor parallelism.

https://docs.vllm.ai/en/latest/serving/parallelism_scaling
"""

from typing import Any

import torch

Division = str | list[list[int]]
"""WHOLE: each worker holds all of a layer. INPUTS: each takes a part of the inputs, and responses add up.
A list: the length of each fused part's outputs on this worker, and how many neighbours hold the same."""

WHOLE, INPUTS, UNKNOWN = "whole", "inputs", "unknown"


def division(layer: Any, workers: int) -> Division:
    """Return how a linear layer, an embedding or an output head is divided among the workers."""
    if workers == 1 or not hasattr(layer, "tp_size"):
        return WHOLE
    if hasattr(layer, "shard_indices"):
        return [[layer.shard_indices.num_org_elements, 1]]
    if not hasattr(layer, "input_size_per_partition") or layer.tp_size == 1:
        return WHOLE
    if layer.tp_size != workers:
        return UNKNOWN
    if layer.input_size_per_partition < layer.input_size:
        return INPUTS
    copies, sizes = getattr(layer, "num_kv_head_replicas", 1), layer.output_partition_sizes
    if copies > 1 and len(sizes) != 3:  # other parts than q, k and v
        return UNKNOWN
    return [[size, copies if part else 1] for part, size in enumerate(sizes)]


def inputs_here(layer: Any, r: torch.Tensor) -> torch.Tensor:
    """Return the entries of a vector of all inputs that a layer of this worker takes."""
    length = getattr(layer, "input_size_per_partition", len(r))
    if length == len(r):
        return r
    return r[layer.tp_rank * length : (layer.tp_rank + 1) * length]
