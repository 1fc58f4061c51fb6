"""A second computation of log-probabilities: row by row, without padding or tree."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from truing.doctor.oracle.support import support_distance
from truing.types.sample import Sample
from truing.types.sampling_params import SamplingParams

Logits = Callable[[Tensor, Tensor], Tensor]
"""Maps ids [T] and places [K] to the model's own logits [K, V] of the next token."""


def plain_logprobs(logits: Logits, sample: Sample, places: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return log-probability and entropy of tokens under the sample's sampling parameters: two [K].

    Args:
        logits: of the policy, the reference, or another model.
        sample: the sample with the tokens.
        places: indices of K tokens, each at least 1.
    """
    logprobs, entropies = [], []
    for logprob_V, t in zip(plain_distributions(logits, sample, places), places, strict=True):
        possible_V = torch.isfinite(logprob_V.detach())
        logprobs.append(logprob_V[sample.token_ids[t]])
        entropies.append(-(logprob_V[possible_V].exp() * logprob_V[possible_V]).sum())
    return torch.stack(logprobs), torch.stack(entropies)


def plain_distributions(logits: Logits, sample: Sample, places: Sequence[int]) -> list[Tensor]:
    """Return the distribution of each of K tokens: K times log-probabilities [V], −∞ if impossible."""
    logits_KV = logits(sample.token_ids, torch.tensor(places) - 1)
    return [_distribution(logits_V, sample, t) for logits_V, t in zip(logits_KV, places, strict=True)]


def support_distances(
    logits: Logits, sample: Sample, places: Sequence[int], allowed: Mapping[int, Tensor] = {}
) -> Tensor:
    """Return how far the recorded support of K tokens is from the declared truncation: [K], nats.

    ``support_distance`` says how it is measured. The sample records a support. ``allowed`` has the ids that a
    grammar allows before truncation, [V] bool by token.
    """
    logits_KV, distances = logits(sample.token_ids, torch.tensor(places) - 1), list[float]()
    for logits_V, t in zip(logits_KV, places, strict=True):
        listed = _support(sample, t, len(logits_V))
        kept_V = torch.full((len(logits_V),), listed is None, device=logits_V.device)
        kept_V[listed or []] = True
        scores_V = plain_scores(logits_V, sample, t)
        if t in allowed:
            scores_V = torch.where(allowed[t].to(scores_V.device), scores_V, -math.inf)
        distances.append(support_distance(scores_V, sample.sampling_params, kept_V & ~scores_V.isneginf()))
    return torch.tensor(distances, dtype=torch.float64)


def plain_scores(logits_V: Tensor, sample: Sample, t: int) -> Tensor:
    """Return the logits [V] of token ``t`` with penalties, bans and temperature, before any truncation."""
    logits_V = logits_V.double()  # torch's float32 softmax is off by 6e-5 nats with 131,072 ids
    before = next((turn.start for turn in sample.turns if turn.start <= t < turn.end), t)
    return _process_logits(logits_V, sample.sampling_params, sample.token_ids[before:t].tolist())


def _distribution(logits_V: Tensor, sample: Sample, t: int) -> Tensor:
    """Return the log-probabilities [V] of token ``t``."""
    scores_V = plain_scores(logits_V, sample, t)
    inside = _support(sample, t, len(logits_V))
    if inside is None and sample.sampling_params.temperature == 0:
        inside = [int(scores_V.argmax())]
    if inside is not None:
        keep_V = torch.zeros(len(logits_V), dtype=torch.bool, device=logits_V.device)
        keep_V[inside] = True
        scores_V = torch.where(keep_V, scores_V, -math.inf)
    return torch.log_softmax(scores_V, dim=0)


def _process_logits(logits_V: Tensor, sampling_params: SamplingParams, earlier_ids: Sequence[int]) -> Tensor:
    """Apply penalties on the turn's earlier ids, the ban of early stops, and the temperature."""
    change_V, scores_V = torch.zeros_like(logits_V), logits_V
    if sampling_params.presence_penalty or sampling_params.frequency_penalty:
        for i, count in Counter(earlier_ids).items():
            change_V[i] = sampling_params.presence_penalty + sampling_params.frequency_penalty * count
    if sampling_params.repetition_penalty != 1 and earlier_ids:
        seen_V = torch.zeros(len(logits_V), dtype=torch.bool, device=logits_V.device)
        seen_V[list(set(earlier_ids))] = True
        factor_V = torch.where(
            logits_V > 0,
            1 / sampling_params.repetition_penalty,
            sampling_params.repetition_penalty * torch.ones_like(logits_V),
        )
        scores_V = torch.where(seen_V, logits_V * factor_V, logits_V)
    scores_V = scores_V - change_V
    if len(earlier_ids) < sampling_params.min_new_tokens and sampling_params.stop_ids:
        banned_V = torch.zeros(len(logits_V), dtype=torch.bool, device=logits_V.device)
        banned_V[list(sampling_params.stop_ids)] = True
        scores_V = torch.where(banned_V, -math.inf, scores_V)
    return scores_V / sampling_params.temperature if sampling_params.temperature > 0 else scores_V


def _support(sample: Sample, t: int, vocabulary: int) -> list[int] | None:
    """Return the possible ids of token ``t``; None for all."""
    if sample.support is None:
        return None
    listed = sample.support.at(t).tolist()
    if not listed:
        return None
    if listed[0] >= 0:
        return listed
    out = {-1 - i for i in listed}
    return [i for i in range(vocabulary) if i not in out]
