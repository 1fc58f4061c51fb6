"""The policy's forward: log-probabilities of a batch's tokens under their own sampling contract.

The hidden state before a token predicts it; ``pack`` says where that is.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from truing.contract import SamplingContract
from truing.errors import ContractError, ModelError
from truing.models.pack import Packed, pack
from truing.ops.logprobs import chunked_scores
from truing.ops.sampling import contract_logits, support_mask
from truing.types import Batch, Sample, Scores

HEAD_ROWS = 512
"""Rows of logits that exist at once: 512 × 49,152 × 4 bytes = 100 MB."""


def score(model: nn.Module, batch: Batch, wanted_BT: Tensor) -> Scores:
    """Score the tokens ``wanted_BT`` [B, T]; elsewhere the streams are 0.

    Each token is scored under its sample's contract: the same penalties, bans, temperature and
    recorded support as when it was drawn.
    """
    packed = pack(batch, wanted_BT)
    causal = causal_model(model)
    _check_window(causal, packed)
    device = next(causal.parameters()).device
    with autocast(device):
        hidden = causal.get_decoder()(
            input_ids=packed.token_ids.to(device),
            position_ids=packed.position_ids.to(device),
            attention_mask=_attention_mask(causal, packed).to(device),
            use_cache=False,
        ).last_hidden_state
    streams = [hidden.new_zeros(batch.token_ids.shape, dtype=torch.float32) for _ in range(3)]
    for contract in dict.fromkeys(sample.contract for sample in batch.samples):
        chosen_N = torch.tensor([batch.samples[b].contract == contract for b in packed.sample_N.tolist()])
        part = _select(packed, chosen_N)
        scores = chunked_scores(
            hidden[part.row_N.to(device), part.col_N.to(device)],
            causal.get_output_embeddings(),
            batch.token_ids[part.sample_N, part.token_N].to(device),
            _replay(batch.samples, part, contract, device),
            HEAD_ROWS,
        )
        place = (part.sample_N.to(device), part.token_N.to(device))
        streams = [stream.index_put(place, values) for stream, values in zip(streams, scores, strict=True)]
    return Scores(*streams)


def autocast(device: torch.device) -> torch.autocast:
    """bf16 compute over fp32 weights on CUDA; fp32 elsewhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def causal_model(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside a peft wrapper, or the model itself; adapters live in its layers."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[return-value]


def _attention_mask(causal: PreTrainedModel, packed: Packed) -> Tensor:
    """[R, 1, L, L] bool; a number where attention adds it to its scores, having no other form (gpt-oss)."""
    if causal.config._attn_implementation != "eager":
        return packed.mask
    return torch.zeros(packed.mask.shape).masked_fill(~packed.mask, torch.finfo(torch.float32).min)


def _check_window(causal: PreTrainedModel, packed: Packed) -> None:
    """Raise where a sequence is longer than the model's attention window, which the mask does not have."""
    config = causal.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    slides = kinds is None or any(kind != "full_attention" for kind in kinds)
    window = getattr(config, "sliding_window", None) if slides else None
    longest = int(packed.position_ids.max()) + 1
    if window is not None and longest > window:
        raise ModelError(
            f"a sequence is longer than the sliding window of this model ({config.model_type})",
            got=f"{longest} tokens",
            expected=f"at most {window}",
            remedy="shorten prompts or sampling.max_new_tokens, or use a model without a sliding window",
        )


def _select(packed: Packed, chosen_N: Tensor) -> Packed:
    """The packed rows, asked for fewer tokens."""
    asked = (packed.sample_N, packed.token_N, packed.row_N, packed.col_N)
    return Packed(packed.token_ids, packed.position_ids, packed.mask, *(index[chosen_N] for index in asked))


def _replay(
    samples: Sequence[Sample], packed: Packed, contract: SamplingContract, device: torch.device
) -> Callable[[Tensor, slice], Tensor]:
    """A function from raw logits of a slice of the asked-for tokens to the logits they were drawn from."""
    places = list(zip(packed.sample_N.tolist(), packed.token_N.tolist(), strict=True))

    def transform(logits_NV: Tensor, part: slice) -> Tensor:
        here = places[part]
        generated = pad_histories([_generated(samples[b], t) for b, t in here]).to(device)
        support = None
        if any(samples[b].support is not None for b, _ in here) or contract.truncates:
            supports = [_support(samples[b], t) for b, t in here]
            support = support_mask(supports, logits_NV.shape[1]).to(device)
        return contract_logits(logits_NV, contract, generated, support_NV=support)

    return transform


def _support(sample: Sample, t: int) -> Tensor:
    """What token ``t`` could have been: [K], empty where nothing was cut."""
    if sample.support is not None:
        return sample.support.at(t)
    if sample.contract.truncates:
        raise ContractError(f"sample {sample.sample_id} was drawn under a truncated support, and has none")
    return torch.empty(0, dtype=torch.int32)


def _generated(sample: Sample, t: int) -> Tensor:
    """The ids [H] drawn before token ``t`` in its own turn."""
    start = next((turn.start for turn in sample.turns if turn.start <= t < turn.end), t)
    return sample.token_ids[start:t]


def pad_histories(histories: Sequence[Tensor]) -> Tensor:
    """Histories as one table [N, H], padded with −1."""
    return torch.nn.utils.rnn.pad_sequence(list(histories), batch_first=True, padding_value=-1)
