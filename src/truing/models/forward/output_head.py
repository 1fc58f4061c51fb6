"""What a model makes of hidden states: its output head, and whatever else its own forward does on the way.

Architectures cap logits (Gemma 2), scale them (Cohere, Granite), scale hidden states first (MiniCPM 3) or
transform them (BERT), each in its own words: one name multiplies in one type and divides in another. So
nothing of it is written again here: the model's own forward runs, with a decoder that gives the hidden states
at hand.
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

LARGE = 100.0
"""A logit beyond every cap: small ones a cap leaves nearly as they are."""

COMPARED = 4
"""Hidden states on which the output layer is compared with the model's own forward."""

ROUNDING = 1e-5
"""Share of the largest logit by which two products of the same numbers may differ."""

_LAYER_IS_ALL: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()
"""Of each model: whether its output layer is all that comes after its decoder."""


def head_of(causal: PreTrainedModel) -> Callable[[Tensor], Tensor]:
    """From hidden states [N, D] of the model's decoder to its logits [N, V], with gradients.

    The output layer itself where the model does nothing else; that is compared once for each model.
    """
    if causal not in _LAYER_IS_ALL:
        _LAYER_IS_ALL[causal] = _layer_is_all(causal)
    if _LAYER_IS_ALL[causal]:
        return causal.get_output_embeddings()
    return partial(_logits_by_model, causal)


def _logits_by_model(causal: PreTrainedModel, hidden_ND: Tensor) -> Tensor:
    """Logits [N, V] by the model's own forward after its decoder."""
    ids = torch.zeros(1, len(hidden_ND), dtype=torch.long, device=hidden_ND.device)
    with _decoder_returns(causal, hidden_ND[None]):
        return causal(input_ids=ids, use_cache=False).logits[0]


@contextmanager
def _decoder_returns(causal: PreTrainedModel, hidden_1ND: Tensor) -> Iterator[None]:
    """Within the block the model's decoder computes nothing and returns these hidden states."""
    decoder = causal.get_decoder()
    decoder.forward = lambda *_, **__: _DecoderOutput(last_hidden_state=hidden_1ND)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del decoder.forward


class _DecoderOutput(BaseModelOutputWithPast):
    """What a decoder returns; whatever some architectures have beside it (losses of routers) is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return None


@torch.no_grad()
def _layer_is_all(causal: PreTrainedModel) -> bool:
    """Whether the output layer alone gives the model's logits, also where these are large."""
    head = causal.get_output_embeddings()
    weight = head.weight
    if getattr(causal.config.get_text_config(), "hidden_size", None) != weight.shape[1]:
        return False  # the model brings its hidden states to another width first
    random = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(COMPARED, weight.shape[1], generator=random).to(weight)
    hidden_ND = hidden_ND * (LARGE / head(hidden_ND).abs().max().clamp(min=1e-6))
    layer_NV, model_NV = head(hidden_ND).float(), _logits_by_model(causal, hidden_ND).float()
    return bool((model_NV - layer_NV).abs().max() <= ROUNDING * layer_NV.abs().max())
