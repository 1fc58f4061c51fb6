"""What a model makes of hidden states: its output head, and whatever else its own forward does on the way.

Architectures cap logits (Gemma 2), scale them (Cohere, Granite), scale hidden states first (MiniCPM 3) or
transform them (BERT), each in its own words: one name multiplies in one type and divides in another. So
nothing of it is written again here: the model's own forward runs, with a decoder that gives the hidden states
at hand.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

LOUD = 100.0
"""Nats, more than any architecture caps logits at: a cap leaves small ones nearly alone."""

TRIED = 4
"""Hidden states on which the head alone is compared with the whole."""

ROUNDING = 1e-5
"""Share of the largest logit by which two products of the same numbers may differ."""

_PLAIN: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()


def head_of(causal: PreTrainedModel) -> Callable[[Tensor], Tensor]:
    """From hidden states [N, D] of the model's decoder to its logits [N, V], with gradients.

    The output layer itself where the model does nothing else; that is tried once for each model.
    """
    if causal not in _PLAIN:
        _PLAIN[causal] = _is_plain(causal)
    return causal.get_output_embeddings() if _PLAIN[causal] else lambda hidden_ND: _own(causal, hidden_ND)


def _own(causal: PreTrainedModel, hidden_ND: Tensor) -> Tensor:
    """Logits [N, V] by the model's own forward after its decoder."""
    ids = torch.zeros(1, len(hidden_ND), dtype=torch.long, device=hidden_ND.device)
    with _giving(causal, hidden_ND[None]):
        return causal(input_ids=ids, use_cache=False).logits[0]


@contextmanager
def _giving(causal: PreTrainedModel, hidden_1ND: Tensor) -> Iterator[None]:
    """Within the block the model's decoder computes nothing and gives these hidden states."""
    decoder = causal.get_decoder()
    decoder.forward = lambda *_, **__: _Given(last_hidden_state=hidden_1ND)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del decoder.forward


class _Given(BaseModelOutputWithPast):
    """What a decoder gives; what some architectures have beside it is not there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return None


@torch.no_grad()
def _is_plain(causal: PreTrainedModel) -> bool:
    """Whether the output layer alone gives the model's logits, also where these are large."""
    head = causal.get_output_embeddings()
    weight = head.weight
    random = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(TRIED, weight.shape[1], generator=random).to(weight)
    hidden_ND = hidden_ND * (LOUD / head(hidden_ND).abs().max().clamp(min=1e-6))
    alone_NV, whole_NV = head(hidden_ND), _own(causal, hidden_ND)
    apart = (whole_NV.float() - alone_NV.float()).abs().max()
    return bool(apart <= ROUNDING * alone_NV.abs().max())
