"""The policy's forward: log-probabilities of a batch's tokens under their own sampling contract.

The hidden state before a token predicts it; ``forward`` computes it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from truing.errors import InvalidValueError
from truing.models.forward.hidden_states import hidden_before
from truing.models.forward.output_head import head_of
from truing.ops.logprobs import chunked_scores
from truing.ops.sampling import mass_below, processed_logits, support_mask
from truing.types.batch import Batch, Scores
from truing.types.sample import Sample
from truing.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from truing.models.critic import Critic

CHUNK_BYTES = 64_000_000
"""One table of logits, of which some six exist at once: 325 rows of a vocabulary of 49,152."""

KEPT_BYTES = 256_000_000
"""What may stay from the forward to the backward pass, so that logits are not computed again."""


def score(
    model: nn.Module,
    batch: Batch,
    wanted_BT: Tensor,
    *,
    critic: "Critic | None" = None,
    recompute: bool = False,
    mass_below_mask_BT: Tensor | None = None,
) -> Scores:
    """Score the tokens ``wanted_BT`` [B, T]; elsewhere the streams are 0.

    Each token is scored under its sample's contract: the same penalties, bans, temperature and
    recorded support as when it was drawn. With ``recompute`` less is kept for the backward pass.
    ``below_BT`` are tokens among them of which the probability of all lower ids is asked for, too.
    """
    causal = causal_model(model)
    device = causal.device
    wanted_2N = wanted_BT.cpu().nonzero().T
    with autocast(device):
        ids = [sample.token_ids for sample in batch.samples]
        hidden_ND = hidden_before(causal, ids, wanted_2N, recompute=recompute)
    dtype = torch.promote_types(hidden_ND.dtype, torch.float32)
    streams = [hidden_ND.new_zeros(batch.token_ids.shape, dtype=dtype) for _ in range(3)]
    head = head_of(causal)
    row_bytes = 4 * causal.config.get_text_config().vocab_size
    contracts = [batch.samples[b].sampling_params for b in wanted_2N[0].tolist()]
    below = None if mass_below_mask_BT is None else streams[0].new_full(batch.token_ids.shape, torch.nan)
    for contract in dict.fromkeys(contracts):
        chosen_N = torch.tensor([each == contract for each in contracts])
        sample_N, token_N = wanted_2N[:, chosen_N]
        ids_N = batch.token_ids[sample_N, token_N].to(device)
        replay = _logits_transform(batch.samples, sample_N, token_N, contract)
        if below is not None and mass_below_mask_BT is not None:
            asked_N = mass_below_mask_BT[sample_N, token_N]
            replay = _with_mass_below(replay, ids_N, asked_N, below, (sample_N, token_N))
        scores = chunked_scores(
            hidden_ND[chosen_N.to(device)],
            head,
            ids_N,
            replay,
            rows=max(1, CHUNK_BYTES // row_bytes),
            kept=KEPT_BYTES // row_bytes,
        )
        place = (sample_N.to(device), token_N.to(device))
        streams = [stream.index_put(place, values) for stream, values in zip(streams, scores, strict=True)]
    if critic is None:
        return Scores(*streams, mass_below=below)
    with autocast(device):
        value_N = critic.values(hidden_ND, ids, wanted_2N, recompute=recompute).to(dtype)
    place = (wanted_2N[0].to(device), wanted_2N[1].to(device))
    values = streams[0].new_zeros(batch.token_ids.shape).index_put(place, value_N)
    return Scores(*streams, value=values, mass_below=below)


@torch.no_grad()
def distributions(
    model: nn.Module, batch: Batch, wanted_BT: Tensor
) -> Iterator[tuple[list[tuple[int, int]], Tensor]]:
    """What tokens were drawn from, some at a time: their rows and places, and log-probabilities [K, V].

    An id that could not come has −∞. All rows are of one contract.
    """
    causal = causal_model(model)
    wanted_2N = wanted_BT.cpu().nonzero().T
    with autocast(causal.device):
        hidden_ND = hidden_before(causal, [sample.token_ids for sample in batch.samples], wanted_2N)
    (contract,) = {sample.sampling_params for sample in batch.samples}
    replay = _logits_transform(batch.samples, *wanted_2N, contract)
    rows = max(1, CHUNK_BYTES // (8 * causal.config.get_text_config().vocab_size))
    head = head_of(causal)
    for start in range(0, len(hidden_ND), rows):
        part = slice(start, min(start + rows, len(hidden_ND)))
        logits_KV = replay(head(hidden_ND[part]).float(), part)
        yield list(zip(*wanted_2N[:, part].tolist(), strict=True)), logits_KV.double().log_softmax(1)


def autocast(device: torch.device) -> torch.autocast:
    """bf16 compute over fp32 weights on CUDA; fp32 elsewhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def causal_model(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside a peft wrapper, or the model itself; adapters live in its layers."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[return-value]


def _logits_transform(
    samples: Sequence[Sample], sample_N: Tensor, token_N: Tensor, contract: SamplingParams
) -> Callable[[Tensor, slice], Tensor]:
    """A function from raw logits of a slice of the asked-for tokens to the logits they were drawn from."""
    places = list(zip(sample_N.tolist(), token_N.tolist(), strict=True))

    def transform(logits_NV: Tensor, part: slice) -> Tensor:
        here, device = places[part], logits_NV.device
        generated = pad_histories([_generated(samples[b], t) for b, t in here]).to(device)
        support = None
        if any(samples[b].support is not None for b, _ in here) or contract.truncates_support:
            supports = [_support(samples[b], t) for b, t in here]
            support = support_mask(supports, logits_NV.shape[1]).to(device)
        return processed_logits(logits_NV, contract, generated, support_NV=support)

    return transform


def _with_mass_below(
    replay: Callable[[Tensor, slice], Tensor],
    ids_N: Tensor,
    asked_N: Tensor,
    below_BT: Tensor,
    places: tuple[Tensor, Tensor],
) -> Callable[[Tensor, slice], Tensor]:
    """The same function, which also writes the mass below the tokens that are asked for into ``below_BT``."""

    def transform(logits_NV: Tensor, part: slice) -> Tensor:
        drawn_NV = replay(logits_NV, part)
        here = asked_N[part].nonzero()[:, 0]
        if len(here):
            mass = mass_below(drawn_NV.detach()[here.to(drawn_NV.device)], ids_N[part][here.to(ids_N.device)])
            below_BT[tuple(each[part][here].to(below_BT.device) for each in places)] = mass.to(below_BT.dtype)
        return drawn_NV

    return transform


def _support(sample: Sample, t: int) -> Tensor:
    """What token ``t`` could have been: [K], empty where nothing was cut."""
    if sample.support is not None:
        return sample.support.at(t)
    if sample.sampling_params.truncates_support:
        raise InvalidValueError(
            f"sample {sample.sample_id} was drawn under a truncated support, and has none"
        )
    return torch.empty(0, dtype=torch.int32)


def _generated(sample: Sample, t: int) -> Tensor:
    """The ids [H] drawn before token ``t`` in its own turn."""
    start = next((turn.start for turn in sample.turns if turn.start <= t < turn.end), t)
    return sample.token_ids[start:t]


def pad_histories(histories: Sequence[Tensor]) -> Tensor:
    """Histories as one table [N, H], padded with −1."""
    return torch.nn.utils.rnn.pad_sequence(list(histories), batch_first=True, padding_value=-1)
