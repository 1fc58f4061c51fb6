"""Whether a model computes in bfloat16 over weights in float32."""

import torch
from transformers import PreTrainedModel

from truing.distributed.sharding import computing_device, computing_dtype


def autocast(causal: PreTrainedModel) -> torch.autocast:
    """Return a context that computes in bf16 over fp32 weights on CUDA, elsewhere in the weights' dtype."""
    device = computing_device(causal).type
    fp32_on_cuda = device == "cuda" and computing_dtype(causal) is torch.float32
    return torch.autocast(device, torch.bfloat16, enabled=fp32_on_cuda)
