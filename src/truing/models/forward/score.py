"""The policy's forward: log-probabilities of a batch's tokens under their own sampling parameters.

The hidden state before a token predicts it; ``hidden_states`` computes it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from truing.distributed.sharding import computing_device, in_forward
from truing.errors import InvalidValueError
from truing.models.forward.autocast import autocast
from truing.models.forward.expert_routes import RouteCount
from truing.models.forward.hidden_states import hidden_before, routes_to_replay
from truing.models.forward.output_head import head_of
from truing.models.forward.rounding_noise import device_and_precision
from truing.ops.logprobs import chunked_scores
from truing.ops.sampling import mass_below, processed_logits, support_mask
from truing.types.batch import Batch, Scores
from truing.types.sample import Sample
from truing.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from truing.models.critic import Critic

CHUNK_BYTES = {"cpu": 64_000_000, "cuda": 512_000_000}
"""One table of logits; about six exist at a time: on a CPU 325 rows of a vocabulary of 49,152."""

KEPT_BYTES = 256_000_000
"""Logits that may be saved from the forward to the backward pass instead of being recomputed."""


def score(
    model: nn.Module,
    batch: Batch,
    mask_BT: Tensor,
    *,
    critic: "Critic | None" = None,
    recompute: bool = False,
    mass_below_mask_BT: Tensor | None = None,
    replay_routes: bool = True,
) -> Scores:
    """Return scores of the tokens in ``mask_BT`` [B, T] in main memory, as the batch; elsewhere they are 0.

    Each token is scored under its sample's sampling parameters: the penalties, bans, temperature and recorded
    support with which it was sampled. With ``recompute`` layers save only their inputs for the backward pass.
    ``mass_below_mask_BT`` selects tokens to return the probability of all lower ids for. In a mixture tokens
    take the experts on record, unless ``replay_routes`` is False.
    """
    causal = causal_model(model)
    below = None
    if mass_below_mask_BT is not None:
        below = torch.full(batch.token_ids.shape, torch.nan, device=computing_device(causal))
    index_2N, ids = mask_BT.cpu().nonzero().T, [sample.token_ids for sample in batch.samples]
    routes, count = routes_to_replay(causal, batch.samples) if replay_routes else None, RouteCount()

    def compute() -> tuple[Tensor, ...]:
        with autocast(causal):
            hidden_ND = hidden_before(causal, ids, index_2N, recompute=recompute, routes=routes, count=count)
        return _streams(causal, batch, index_2N, hidden_ND, critic, recompute, mass_below_mask_BT, below)

    streams = [stream.cpu() for stream in in_forward(causal, compute)]
    return Scores(*streams, mass_below=None if below is None else below.cpu(), routes=count.totals())


def _streams(
    causal: PreTrainedModel,
    batch: Batch,
    index_2N: Tensor,
    hidden_ND: Tensor,
    critic: "Critic | None",
    recompute: bool,
    mass_below_mask_BT: Tensor | None,
    below_BT: Tensor | None,
) -> tuple[Tensor, ...]:
    """Return log-probabilities, entropies, raw entropies and, with a critic, values: each [B, T]."""
    device = computing_device(causal)
    dtype = torch.promote_types(hidden_ND.dtype, torch.float32)
    streams = [hidden_ND.new_zeros(batch.token_ids.shape, dtype=dtype) for _ in range(3)]
    head = _head(causal)
    row_bytes = 4 * causal.config.get_text_config().vocab_size
    params_N = [batch.samples[b].sampling_params for b in index_2N[0].tolist()]
    for sampling_params in dict.fromkeys(params_N):
        chosen_N = torch.tensor([each == sampling_params for each in params_N])
        sample_N, token_N = index_2N[:, chosen_N]
        ids_N = batch.token_ids[sample_N, token_N].to(device)
        transform = _logits_transform(batch.samples, sample_N, token_N, sampling_params)
        if below_BT is not None and mass_below_mask_BT is not None:
            mask_N = mass_below_mask_BT[sample_N, token_N]
            transform = _with_mass_below(transform, ids_N, mask_N, below_BT, (sample_N, token_N))
        scores = chunked_scores(
            hidden_ND[chosen_N.to(device)],
            head,
            ids_N,
            transform,
            rows=max(1, CHUNK_BYTES[device.type] // row_bytes),
            kept=KEPT_BYTES // row_bytes,
        )
        place = (sample_N.to(device), token_N.to(device))
        streams = [stream.index_put(place, values) for stream, values in zip(streams, scores, strict=True)]
    if critic is None:
        return tuple(streams)
    with autocast(causal):
        value_N = critic.values(
            hidden_ND, [sample.token_ids for sample in batch.samples], index_2N, recompute=recompute
        ).to(dtype)
    place = (index_2N[0].to(device), index_2N[1].to(device))
    return *streams, streams[0].new_zeros(batch.token_ids.shape).index_put(place, value_N)


@torch.no_grad()
def distributions(
    model: nn.Module, batch: Batch, mask_BT: Tensor
) -> Iterator[tuple[list[tuple[int, int]], Tensor]]:
    """Yield tokens' sampling distributions: their rows and positions, and log-probabilities [K, V].

    An impossible id has −∞. All rows have the same sampling parameters.
    """
    for places, logits_KV in processed(model, batch, mask_BT):
        yield places, logits_KV.double().log_softmax(1)


@torch.no_grad()
def processed(
    model: nn.Module, batch: Batch, mask_BT: Tensor
) -> Iterator[tuple[list[tuple[int, int]], Tensor]]:
    """Yield the logits that tokens are sampled from, [K, V] float32: the model's own under ``RAW``.

    An impossible id has −∞. All rows have the same sampling parameters.
    """
    causal = causal_model(model)
    index_2N = mask_BT.cpu().nonzero().T
    with autocast(causal):
        routes = routes_to_replay(causal, batch.samples)
        ids = [sample.token_ids for sample in batch.samples]
        hidden_ND = in_forward(causal, lambda: hidden_before(causal, ids, index_2N, routes=routes))
    (sampling_params,) = {sample.sampling_params for sample in batch.samples}
    transform = _logits_transform(batch.samples, index_2N[0], index_2N[1], sampling_params)
    rows = max(1, CHUNK_BYTES["cpu"] // (8 * causal.config.get_text_config().vocab_size))
    head = _head(causal)
    for start in range(0, len(hidden_ND), rows):
        part = slice(start, min(start + rows, len(hidden_ND)))
        logits_KV = transform(in_forward(causal, lambda part=part: head(hidden_ND[part])).float(), part)
        yield list(zip(*index_2N[:, part].tolist(), strict=True)), logits_KV


def _head(causal: PreTrainedModel) -> Callable[[Tensor], Tensor]:
    """Return the function from hidden states [N, D] to logits [N, V], in the precision of the decoder."""
    head = head_of(causal)

    def logits(hidden_ND: Tensor) -> Tensor:
        with autocast(causal):
            return head(hidden_ND)

    return logits


def computed_precision(model: nn.Module) -> str:
    """Return the device and precision that ``score`` computes in, as ``device_and_precision`` does."""
    with autocast(causal_model(model)):
        return device_and_precision(model)


def causal_model(model: nn.Module) -> PreTrainedModel:
    """Return the transformers model inside a peft wrapper, adapters included, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[return-value]


def _logits_transform(
    samples: Sequence[Sample], sample_N: Tensor, token_N: Tensor, sampling_params: SamplingParams
) -> Callable[[Tensor, slice], Tensor]:
    """Return a function from raw logits of a slice of the tokens to the logits they were sampled from."""
    places = list(zip(sample_N.tolist(), token_N.tolist(), strict=True))
    no_ids = torch.empty(0, dtype=torch.long)

    def transform(logits_NV: Tensor, part: slice) -> Tensor:
        here, device = places[part], logits_NV.device
        counted = sampling_params.counts_generated
        generated = pad_histories([_generated(samples[b], t) if counted else no_ids for b, t in here])
        support = None
        if any(samples[b].support is not None for b, _ in here) or sampling_params.truncates_support:
            supports = [_support(samples[b], t) for b, t in here]
            support = support_mask(supports, logits_NV.shape[1]).to(device)
        return processed_logits(logits_NV, sampling_params, generated.to(device), support_NV=support)

    return transform


def _with_mass_below(
    transform: Callable[[Tensor, slice], Tensor],
    ids_N: Tensor,
    mask_N: Tensor,
    below_BT: Tensor,
    places: tuple[Tensor, Tensor],
) -> Callable[[Tensor, slice], Tensor]:
    """Return the same function; it also writes the mass below the tokens ``mask_N`` into ``below_BT``."""

    def transform_and_record(logits_NV: Tensor, part: slice) -> Tensor:
        processed_NV = transform(logits_NV, part)
        here = mask_N[part].nonzero()[:, 0]
        if len(here):
            mass = mass_below(
                processed_NV.detach()[here.to(processed_NV.device)], ids_N[part][here.to(ids_N.device)]
            )
            below_BT[tuple(each[part][here].to(below_BT.device) for each in places)] = mass.to(below_BT.dtype)
        return processed_NV

    return transform_and_record


def _support(sample: Sample, t: int) -> Tensor:
    """Return the recorded support of token ``t``: [K], empty if the support is not truncated."""
    if sample.support is not None:
        return sample.support.at(t)
    if sample.sampling_params.truncates_support:
        raise InvalidValueError(
            f"sample {sample.sample_id} was sampled with a truncated support but records none"
        )
    return torch.empty(0, dtype=torch.int32)


def _generated(sample: Sample, t: int) -> Tensor:
    """Return the ids [H] generated before token ``t`` in its own turn."""
    start = next((turn.start for turn in sample.turns if turn.start <= t < turn.end), t)
    return sample.token_ids[start:t]


def pad_histories(histories: Sequence[Tensor]) -> Tensor:
    """Return histories as one table [N, H], padded with −1."""
    return torch.nn.utils.rnn.pad_sequence(list(histories), batch_first=True, padding_value=-1)
