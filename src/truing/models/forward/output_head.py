"""From hidden states to logits: the output head, and everything else the model's own forward does there.

Architectures cap logits (Gemma 2), scale them (Cohere, Granite), scale hidden states first (MiniCPM 3) or
transform them (BERT). The same config name multiplies in one type and divides in another. So this module
reimplements none of it: it runs the model's own forward with a decoder that returns the given hidden states.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from truing.distributed.sharding import whole_parameters

LARGE = 100.0
"""A logit beyond every cap; a cap barely changes small logits."""

COMPARED = 4
"""Number of hidden states on which the output layer is compared with the model's own forward."""

ROUNDING = 1e-5
"""Share of the largest logit by which two products of the same numbers may differ."""

_LAYER_IS_ALL: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()
"""By model: whether its output layer alone follows its decoder."""


def head_of(causal: PreTrainedModel) -> Callable[[Tensor], Tensor]:
    """Return the function from hidden states [N, D] to logits [N, V], with gradients.

    It is the output layer itself if the model does nothing else, which is tested once per model.
    """
    if causal not in _LAYER_IS_ALL:
        within = set(causal.get_decoder().modules())
        with whole_parameters(part for part in causal.modules() if part not in within):
            _LAYER_IS_ALL[causal] = _layer_is_all(causal)
    head = causal.get_output_embeddings()
    if head is not None and _LAYER_IS_ALL[causal]:
        return head
    return partial(_logits_by_model, causal)


def _logits_by_model(causal: PreTrainedModel, hidden_ND: Tensor) -> Tensor:
    """Return the logits [N, V] of the model's own forward after its decoder."""
    ids = torch.zeros(1, len(hidden_ND), dtype=torch.long, device=hidden_ND.device)
    with _decoder_returns(causal, hidden_ND[None]):
        return causal(input_ids=ids, use_cache=False).logits[0]


@contextmanager
def _decoder_returns(causal: PreTrainedModel, hidden_1ND: Tensor) -> Iterator[None]:
    """Within the block the model's decoder returns these hidden states without computing."""
    decoder = causal.get_decoder()
    decoder.forward = lambda *_, **__: _DecoderOutput(last_hidden_state=hidden_1ND)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del decoder.forward


class _DecoderOutput(BaseModelOutputWithPast):
    """A decoder's output; every other attribute that an architecture reads (router losses) is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return None


@torch.no_grad()
def _layer_is_all(causal: PreTrainedModel) -> bool:
    """Whether the output layer alone gives the model's logits, also for large logits."""
    head = causal.get_output_embeddings()
    if head is None:
        return False
    weight = head.weight
    if getattr(causal.config.get_text_config(), "hidden_size", None) != weight.shape[1]:
        return False  # the model first projects its hidden states to another width
    random = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(COMPARED, weight.shape[1], generator=random).to(weight)
    hidden_ND = hidden_ND * (LARGE / head(hidden_ND).abs().max().clamp(min=1e-6))
    layer_NV, model_NV = head(hidden_ND).float(), _logits_by_model(causal, hidden_ND).float()
    return bool((model_NV - layer_NV).abs().max() <= ROUNDING * layer_NV.abs().max())
